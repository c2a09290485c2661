"""Encoders before the trunk: convolutions for images, or a network of the user's own."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d, elu

from echelon.config import ModelConfig
from echelon.envs.contract import Groups, Size, shape_of
from echelon.envs.sources import code
from echelon.errors import UserError, first_line
from echelon.models.linear import by_network, by_step

CHUNK = 2048
"""Rows whose images are encoded together without gradient: a whole rollout's would not fit into memory."""


class Encoder(nn.Module):
    """Encodes groups as a vector per row. `policy` comes normalised, `image` from 0 to 1 if it was uint8."""

    features: int
    """Width of that vector."""

    def forward(self, groups: Groups) -> Tensor:
        """Rows `[L, G·n, ...]` of each group, those of a network side by side, to `[L, G·n, F]`."""
        steps, rows = next(iter(groups.values())).shape[:2]
        flat = {name: by_network(x, self.networks) for name, x in groups.items()}  # [G, L·n, ...]
        count = steps * rows // self.networks
        if torch.is_grad_enabled() or count <= CHUNK:
            found = self.encode(flat)
        else:
            parts = zip(*(x.split(CHUNK, dim=1) for x in flat.values()), strict=True)
            found = torch.cat([self.encode(dict(zip(flat, part, strict=True))) for part in parts], dim=1)
        return by_step(found, steps)

    @property
    def networks(self) -> int:
        """G"""
        return next(self.parameters()).shape[0]

    def encode(self, groups: Groups) -> Tensor:
        """Rows `[G, n, ...]` to `[G, n, F]`."""
        raise NotImplementedError


class Convolutions(Encoder):
    """Images through layers of 3 by 3 with stride 2 and ELU, laid out beside the numbers of `policy`."""

    def __init__(self, sizes: Mapping[str, Size], channels: tuple[int, ...]) -> None:
        super().__init__()
        before, height, width = shape_of(sizes["image"])
        self.layers = nn.ModuleList()
        for after in channels:
            self.layers.append(Convolution(before, after))
            before, height, width = after, -(-height // 2), -(-width // 2)
        numbers = sizes.get("policy", 0)
        assert isinstance(numbers, int)
        self.features = numbers + before * height * width

    def encode(self, groups: Groups) -> Tensor:
        # Networks side by side in channels: one grouped convolution serves all.
        x = groups["image"].transpose(0, 1).flatten(1, 2)
        for layer in self.layers:
            x = elu(layer(x), inplace=True)
        x = x.unflatten(1, (self.networks, -1)).transpose(0, 1).flatten(2)
        return torch.cat((groups["policy"], x), dim=-1) if "policy" in groups else x


class Convolution(nn.Module):
    """3 by 3 with stride 2: a weight `[G, O, C, 3, 3]` and bias `[G, O]` for each network."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.Conv2d(inputs, outputs, 3).weight.detach()[None])
        self.bias = nn.Parameter(torch.zeros(1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """`[n, G·C, H, W]` to `[n, G·O, H/2, W/2]`."""
        weight, bias = self.weight.flatten(0, 1), self.bias.flatten(0, 1)
        return conv2d(x, weight, bias, stride=2, padding=1, groups=self.weight.shape[0])


class Custom(Encoder):
    """A user's module. Its tensors get a leading dimension G; networks are evaluated one after another."""

    def __init__(self, make: Callable[[dict[str, Size]], Any], sizes: Mapping[str, Size], source: str) -> None:
        super().__init__()
        inner = make(dict(sizes))
        if not isinstance(inner, nn.Module) or not any(x.requires_grad for x in inner.parameters()):
            raise UserError(f"{source} made a {type(inner).__name__}, not a torch.nn.Module with weights to train")
        if any("BatchNorm" in type(part).__name__ or "Dropout" in type(part).__name__ for part in inner.modules()):
            raise UserError(f"{source} has batch normalisation or dropout, which make ratios of policies meaningless")
        self._inner = (inner,)  # in a tuple, so that its tensors are not registered twice
        self._names: dict[str, str] = {}
        for name, x in (*inner.named_parameters(), *inner.named_buffers()):
            self._names[name], stacked = name.replace(".", "__"), x.detach()[None].clone()
            if x.requires_grad:
                self.register_parameter(self._names[name], nn.Parameter(stacked))
            else:  # a buffer, or a weight that is not to be trained
                self.register_buffer(self._names[name], stacked)
        self.features = self._try(sizes, source)

    def _try(self, sizes: Mapping[str, Size], source: str) -> int:
        """The width of its output."""
        blank = {name: torch.zeros(1, 2, *shape_of(size)) for name, size in sizes.items()}
        try:
            with torch.no_grad():
                shape = self.encode(blank).shape
        except (RuntimeError, TypeError, KeyError, ValueError, IndexError) as error:
            raise UserError(f"{source} fails on observations of sizes {dict(sizes)}: {first_line(error)}") from error
        if len(shape) != 3 or shape[:2] != (1, 2):
            raise UserError(f"{source} makes a tensor {list(shape[1:])} of 2 rows, not [2, F]")
        return shape[2]

    def encode(self, groups: Groups) -> Tensor:
        found = []
        for k in range(self.networks):
            tensors = {name: getattr(self, kept)[k] for name, kept in self._names.items()}
            found.append(functional_call(self._inner[0], tensors, ({name: x[k] for name, x in groups.items()},)))
        return torch.stack(found)


def make_encoder(obs_spec: Mapping[str, Size], config: ModelConfig) -> Encoder | None:
    """The encoder of the actor's observations; None if they are plain vectors, which the trunk takes directly."""
    sizes = {name: obs_spec[name] for name in ("policy", "image") if name in obs_spec}
    if not sizes or any(isinstance(size, int) == (name == "image") for name, size in obs_spec.items()):
        needs = "the policy needs a group policy with a number of values, a group image (C, H, W), or both"
        raise UserError(f"obs_spec is {dict(obs_spec)}; {needs}, and no other group may be an image")
    if config.encoder is not None:
        return Custom(code(config.encoder), sizes, config.encoder)
    return Convolutions(sizes, config.channels) if "image" in sizes else None


def scaled(image: Tensor, kind: torch.dtype) -> Tensor:
    """From 0 to 1 if it was uint8; floats as they are."""
    return image.to(kind) / 255 if image.dtype is torch.uint8 else image.to(kind)
