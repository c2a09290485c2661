"""The least time an update can take on an H200: its matrix products in TF32, and nothing beside them.

    python results/speed/roofline.py AllegroHand cpo

Every product is bound by the tensor cores or by memory, whichever takes longer, at the share of the peak that large
products reach in practice. A layer is three products: forward, and backward to its input and to its weights. The first
layer counts as one, W·[x; φ], on every evaluation: that a library may compute W·x once for all policies that look at
the same row (`shared`) is a saving, not a lower bar. Pointwise work, gathers, the optimizer and a leader's extra
forward pass (`pull.reverse_temperature`) are not counted.

The targets rest on figures of another origin: SAPG and CPO on AllegroHand 6.9 and 11.9 ms, on ShadowHand 12.3 and
21.0, on AllegroKuka with its LSTM 66 and 113. Here they are 6.9 and 11.9, 12.2 and 21.0, 62 and 106: the two shares
below were chosen to meet the hands', and the LSTM's come out 6 % lower. In those figures CPO is twice PPO, so the first
layer is not shared; if it were, CPO on AllegroHand would have 9.8 ms.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from echelon import preset, tasks
from echelon.algorithms import complete
from echelon.config import ModelConfig, TrainConfig
from echelon.training.resolve import resolve

FLOPS = 0.75 * 494.7e12
"""Dense TF32 on an H200, per second."""
BYTES = 0.80 * 4.8e12
"""To and from its memory, per second."""
FLOAT = 4
PASSES = 3
"""Forward, gradient of the input, gradient of the weights: the same operands, hence the same cost."""


@dataclass(frozen=True)
class Product:
    """`[rows, inputs] · [inputs, outputs]`."""

    rows: int
    inputs: int
    outputs: int

    @property
    def flop(self) -> int:
        return 2 * self.rows * self.inputs * self.outputs

    @property
    def bytes(self) -> int:
        """Both tables of rows once; weights stay in the cache."""
        return FLOAT * self.rows * (self.inputs + self.outputs)

    @property
    def seconds(self) -> float:
        return max(self.flop / FLOPS, self.bytes / BYTES)


def trunk(model: ModelConfig, obs: int, phi: int, outputs: int, evaluations: int, units: int) -> Iterator[Product]:
    """Forward products of a trunk and its heads, over rows of evaluations; the first layer's x part over `units` rows.

    Where both are as many, the first layer is one product with φ in it. Where they are not, φ's part is a table of as
    many rows as there are policies, and costs nothing.
    """
    widths = list(model.hidden)
    first = 4 * model.lstm if model.lstm else widths.pop(0)
    yield Product(units, obs + (phi if units == evaluations else 0), first)
    width = model.lstm or first
    if model.lstm:
        yield Product(evaluations, width, 4 * width)
    for wider in widths:
        yield Product(evaluations, width, wider)
        width = wider
    yield Product(evaluations, width, outputs)


def forward(
    model: ModelConfig, obs_spec: Mapping[str, int], actions: int, policies: int, evaluations: int, units: int
) -> Iterator[Product]:
    """Products of the actor-critic: one trunk with both heads, or two where the critic has observations of its own."""
    phi = model.phi_dim if policies > 1 else 0
    apart = "critic" in obs_spec
    yield from trunk(model, obs_spec["policy"], phi, actions + (not apart), evaluations, units)
    if apart:
        yield from trunk(model, obs_spec["critic"], phi, 1, evaluations, units)


def update_products(
    config: TrainConfig, obs_spec: Mapping[str, int], actions: int, *, shared: bool = False
) -> list[Product]:
    """Forward products of all gradient steps of one iteration."""
    plan = resolve(config).plan
    rows = plan.layout.networks * plan.length
    evaluations = plan.size * rows
    units = plan.sizes[0] * rows if shared else evaluations
    passes = forward(config.model, obs_spec, actions, complete(config).num_policies, evaluations, units)
    return [replace(one, rows=config.update.mini_epochs * one.rows) for one in passes]


def milliseconds(products: Iterable[Product]) -> float:
    """Of forward and backward passes."""
    return 1e3 * PASSES * sum(one.seconds for one in products)


def update_roofline(config: TrainConfig, obs_spec: Mapping[str, int], actions: int) -> dict[str, float]:
    """What goes beside a measured update: the roofline, the same if the first layer is shared, and the operations."""
    products = update_products(config, obs_spec, actions)
    return {
        "roofline_ms": milliseconds(products),
        "roofline_shared_ms": milliseconds(update_products(config, obs_spec, actions, shared=True)),
        "update_tflop": 1e-12 * PASSES * sum(one.flop for one in products),
    }


if __name__ == "__main__":
    task, algo = sys.argv[1:]
    env = tasks.make(task, preset(task).env, 1, torch.device("cpu"), 0)
    print(json.dumps(update_roofline(replace(preset(task), algo=algo), env.obs_spec, env.action_dim)))
