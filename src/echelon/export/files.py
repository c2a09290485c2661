"""A policy as one file, compared with the network before it is written."""

import json
import logging
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from echelon import __version__
from echelon.envs.contract import bounded, dtype_of
from echelon.errors import UserError, require_package
from echelon.export import numpy_policy
from echelon.export.network import PolicyNetwork, weights_of
from echelon.export.policy import Extract
from echelon.rollout.acting import Actor
from echelon.runs.durable import replace_durably

Format = Literal["onnx", "numpy"]
ENDINGS: dict[Format, str] = {"onnx": ".onnx", "numpy": ".npz"}
COMPARED_OBSERVATIONS = 1000
"""Observations on which the file must agree with the network."""
TOLERANCE = 1e-5
COMPARED_STEPS = 10
"""Length of the sequences a policy with a memory is compared on."""

Act = Callable[..., np.ndarray]
"""From observations, images or both to actions."""


def export(extract: Extract, format: Format, out: Path) -> float:
    """Write the policy to `out`; the largest difference from the network's actions that was found."""
    write, read = _WAYS[format]
    metadata = describe(extract)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / f"policy{ENDINGS[format]}"
        write(extract, file, metadata)
        difference = largest_difference(extract, lambda: read(file))
        if not difference <= TOLERANCE:
            raise UserError(f"the {format} file differs from the network by {difference:.2g}, so it was not written")
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(out, file.read_bytes())
    if format == "numpy":
        replace_durably(out.parent / "numpy_policy.py", Path(numpy_policy.__file__).read_bytes())
    return difference


def describe(extract: Extract) -> dict[str, Any]:
    """Metadata stored in the file: where the policy comes from, its inputs, outputs and action bounds."""
    config, network = extract.folder.config, extract.network()
    return {
        "echelon": __version__,
        "run": extract.folder.name,
        "task": config.source or config.task,
        "policy": extract.policy,
        "iteration": extract.iteration,
        "inputs": {name: list(shape) for name, shape in network.sizes.items()},
        "outputs": {"action": [network.get_buffer("mean_bias").shape[0]]} | _state_size(network, "next_state"),
        "action_low": _plain(network.get_buffer("action_low")),
        "action_high": _plain(network.get_buffer("action_high")),
    }


def _plain(x: torch.Tensor) -> list[float | None]:
    """Numbers for JSON; None where there is no limit."""
    return [value if np.isfinite(value) else None for value in x.tolist()]


def _state_size(network: PolicyNetwork, name: str = "state") -> dict[str, list[int]]:
    return {name: [network.state_dim]} if network.recurrent else {}


def largest_difference(extract: Extract, load: Callable[[], Act]) -> float:
    """Between the file and the run's own network, on observations as far from their mean as the normaliser clips."""
    model, network = extract.model, extract.network()
    each = model.policies // model.networks
    steps = COMPARED_STEPS if network.recurrent else 1
    rows = COMPARED_OBSERVATIONS // steps
    actor = Actor(model.only(extract.policy // each), torch.full((rows,), extract.policy % each))
    state, act, worst = torch.zeros(rows, model.state_dim), load(), 0.0
    unseen = {name: torch.zeros(rows, norm.get_buffer("mean").shape[1]) for name, norm in model.obs_norm.items()}
    within, generator = bounded(_Bounds(extract)), torch.Generator().manual_seed(0)  # pyright: ignore[reportArgumentType]
    for _ in range(steps):
        given = _draw(extract, network, rows, generator)
        with torch.no_grad():
            seen = {"policy" if name == "obs" else name: x for name, x in given.items()}
            decision = actor.decide(unseen | seen, state, None)
        state = decision.state
        found = act(*(x.numpy() for x in given.values()))
        worst = max(worst, float(np.abs(found - within(decision.action).numpy()).max()))
    return worst


def _draw(extract: Extract, network: PolicyNetwork, rows: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Observations by the names of the file's inputs."""
    found: dict[str, torch.Tensor] = {}
    if "obs" in network.sizes:
        mean, std = network.get_buffer("obs_mean"), network.get_buffer("obs_std")
        found["obs"] = mean + 2 * std * torch.randn(rows, len(mean), generator=generator)
    if extract.image is not None:
        shape = (rows, *network.sizes["image"])
        noise = torch.rand(shape, generator=generator)
        found["image"] = noise if extract.image.floats else (noise * 255).to(torch.uint8)
    return found


class _Bounds:
    """The attributes of an environment that `bounded` reads."""

    device = torch.device("cpu")

    def __init__(self, extract: Extract) -> None:
        if extract.bounds:
            self.action_low, self.action_high = (torch.tensor(extract.bounds[name]) for name in ("low", "high"))


def _examples(extract: Extract, network: PolicyNetwork) -> tuple[torch.Tensor, ...]:
    kinds = {"image": torch.float32 if extract.image is None else dtype_of(extract.image)}
    return tuple(torch.zeros(2, *shape, dtype=kinds.get(name)) for name, shape in network.sizes.items())


def _with_memory(step: Callable[..., Any], width: int) -> Act:
    """A function of observations that hands its state to itself."""
    state: list[np.ndarray] = []

    def act(*obs: np.ndarray) -> np.ndarray:
        if not width:
            return step(*obs)
        action, after = step(*obs, state.pop() if state else np.zeros((len(obs[0]), width), np.float32))
        state.append(after)
        return action

    return act


def _write_onnx(extract: Extract, file: Path, metadata: dict[str, Any]) -> None:
    for package in ("onnx", "onnxscript"):
        require_package(package, "--format onnx", "export")
    import onnx

    for noisy in ("torch.onnx", "torch.onnx._internal.exporter._registration"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    network = extract.network()
    names = list(network.sizes), ["action", "next_state"][: 2 if network.recurrent else 1]
    batch = torch.export.Dim("batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own making
        program = torch.onnx.export(
            network,
            _examples(extract, network),
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=tuple({0: batch} for _ in names[0]),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value if isinstance(value, str) else json.dumps(value))
    onnx.save(model, str(file))


def _read_onnx(file: Path) -> Act:
    """By ONNX Runtime, or where that is not installed by the standard's own reference."""
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]  # optional

        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
        names = [x.name for x in session.get_inputs()]
        shapes = [x.shape for x in session.get_inputs()]
        run = session.run
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(file))
        names = [x if isinstance(x, str) else x.name for x in session.input_names]
        shapes = [[d.dim_value for d in x.type.tensor_type.shape.dim] for x in session.proto_.graph.input]
        run = session.run

    def step(*inputs: np.ndarray) -> Any:
        found: Any = run(None, dict(zip(names, inputs, strict=True)))
        return found[0] if len(found) == 1 else found

    return _with_memory(step, shapes[-1][1] if names[-1] == "state" else 0)


def _write_numpy(extract: Extract, file: Path, metadata: dict[str, Any]) -> None:
    if extract.model.encoder is not None:
        raise UserError("a numpy file holds no images and no network of your own; use --format onnx")
    metadata = metadata | {"activation": extract.folder.config.model.activation}
    weights = weights_of(extract.model, extract.policy, extract.bounds)
    arrays: dict[str, Any] = {name: x.numpy() for name, x in weights.items()}
    np.savez(file, metadata=json.dumps(metadata), **arrays)


def _read_numpy(file: Path) -> Act:
    return numpy_policy.NumpyPolicy(file)


_WAYS: dict[Format, tuple[Callable[[Extract, Path, dict[str, Any]], None], Callable[[Path], Act]]] = {
    "onnx": (_write_onnx, _read_onnx),
    "numpy": (_write_numpy, _read_numpy),
}
