"""A policy as one file: compared with the network before it is written, and opened to be shown, when its policy acts in
the environment it was trained in."""

import json
import logging
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from echelon import __version__
from echelon.config import to_dict
from echelon.envs.contract import Groups, onto
from echelon.errors import UserError, require_package
from echelon.export import numpy_policy
from echelon.export.policy import SavedPolicy
from echelon.export.robot import describe_robot
from echelon.models.actor_critic import ActorCritic, Output
from echelon.runs.checkpoint import Which
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import jsonable
from echelon.runs.trained import Trained
from echelon.tasks import stored_config

Format = Literal["onnx", "numpy"]
ENDINGS: dict[Format, str] = {"onnx": ".onnx", "numpy": ".npz"}
COMPARED_OBSERVATIONS = 1000
"""Observations on which the file must agree with the network."""
TOLERANCE = 1e-5
"""Largest difference, where the largest action is 1."""
NO_NOISE = -20.0
"""Log sigma of a policy that always acts at its mean."""
COMPARED_STEPS = 10
"""Length of the sequences a policy with a memory is compared on."""

OF_ENVIRONMENT = ("task", "source", "env_arg", "env", "obs", "history", "algo")
"""Settings that a file keeps, without paths and names of machines."""

Act = Callable[..., np.ndarray]
"""From observations, images or both to actions."""


def export(policy: SavedPolicy, format: Format, out: Path) -> float:
    """Write the policy to `out`; returns the largest difference from the network's actions that was found."""
    write, read = (_write_onnx, OnnxPolicy) if format == "onnx" else (_write_numpy, numpy_policy.NumpyPolicy)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / f"policy{ENDINGS[format]}"
        write(policy, file, describe(policy))
        difference = largest_difference(policy, read(file))
        if not difference <= TOLERANCE:
            raise UserError(f"the {format} file differs from the network by {difference:.2g}, so it was not written")
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_durably(out, file.read_bytes())
    if format == "numpy":
        replace_durably(out.parent / "numpy_policy.py", Path(numpy_policy.__file__).read_bytes())
    return difference


def describe(policy: SavedPolicy) -> dict[str, Any]:
    """Metadata stored in the file: where the policy comes from, its inputs and outputs, its environment, and the
    robot."""
    trained, weights = policy.trained, policy.weights
    return {
        "echelon": __version__,
        "run": trained.folder.name,
        "task": trained.config.source or trained.config.task,
        "policy": policy.number,
        "iteration": trained.iteration,
        "inputs": {name: list(shape) for name, shape in policy.sizes.items()},
        "outputs": {"action": [len(weights["mean_bias"])]}
        | ({"next_state": [policy.state_dim]} if policy.state_dim else {}),
        "action_low": jsonable(weights["action_low"].tolist()),  # null where there is no limit
        "action_high": jsonable(weights["action_high"].tolist()),
        "obs_spec": trained.interface["obs_spec"],
        "config": {name: x for name, x in to_dict(trained.config).items() if name in OF_ENVIRONMENT},
        "env_state": _numbers(trained.env_state),
    } | describe_robot(trained)


def _numbers(state: Mapping[str, Any]) -> dict[str, Any]:
    """Single numbers of a nested state, such as how far a curriculum went."""
    nested = {name: _numbers(x) for name, x in state.items() if isinstance(x, Mapping)}
    single = {name: x.item() for name, x in state.items() if isinstance(x, Tensor) and not x.dim()}
    return {name: x for name, x in nested.items() if x} | single


def largest_difference(policy: SavedPolicy, act: Act) -> float:
    """Compare a file with the run's own network, on observations as far from their mean as the normaliser clips. A
    difference counts by its share of the largest action, if that is above 1: so does the rounding of float32."""
    model = policy.trained.model
    steps = COMPARED_STEPS if policy.state_dim else 1
    rows = COMPARED_OBSERVATIONS // steps
    actor = policy.trained.actor(policy.number, rows)
    state, worst = torch.zeros(rows, model.state_dim), torch.zeros(())
    unseen = {name: torch.zeros(rows, norm.get_buffer("mean").shape[1]) for name, norm in model.obs_norm.items()}
    low, high = policy.weights["action_low"], policy.weights["action_high"]
    within, largest = onto(low, high), torch.maximum(low.abs(), high.abs()).masked_fill(policy.unlimited, 1.0).clamp(1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        given = _draw(policy, rows, generator)
        with torch.no_grad():
            seen = {"policy" if name == "obs" else name: x for name, x in given.items()}
            decision = actor.decide(unseen | seen, state, None)
        state = decision.state
        found, wanted = torch.as_tensor(act(*(x.numpy() for x in given.values()))), within(decision.action)
        worst = worst.maximum(((found - wanted).abs() / wanted.abs().maximum(largest)).max())  # a NaN stays
    return float(worst)


def _draw(policy: SavedPolicy, rows: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Random observations by the names of the file's inputs."""
    found: dict[str, Tensor] = {}
    if "obs" in policy.sizes:
        mean, std = policy.weights["obs_mean"], policy.weights["obs_std"]
        found["obs"] = mean + 2 * std * torch.randn(rows, len(mean), generator=generator)
    if policy.image is not None:
        noise = torch.rand((rows, *policy.sizes["image"]), generator=generator)
        found["image"] = noise if policy.image.floats else (noise * 255).to(torch.uint8)
    return found


def _write_onnx(policy: SavedPolicy, file: Path, metadata: dict[str, Any]) -> None:
    for package in ("onnx", "onnxscript"):
        require_package(package, "--format onnx", "export")
    import onnx

    for noisy in ("torch.onnx", "torch.onnx._internal.exporter._registration"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    batch, examples = torch.export.Dim("batch"), tuple(_draw(policy, 2, torch.Generator()).values())
    if policy.state_dim:
        examples += (torch.zeros(2, policy.state_dim),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own making
        program = torch.onnx.export(
            policy,
            examples,
            input_names=list(metadata["inputs"]),
            output_names=list(metadata["outputs"]),
            dynamic_shapes=tuple({0: batch} for _ in examples),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for node in model.graph.node:
        node.ClearField("metadata_props")  # torch writes paths of this machine into them
    for name, value in metadata.items():
        model.metadata_props.add(key=name, value=value if isinstance(value, str) else json.dumps(value))
    onnx.save(model, str(file))


class OnnxPolicy:
    """A file run by ONNX Runtime, or where that is not installed by the standard's own reference; an LSTM's `state` is
    kept between calls."""

    def __init__(self, file: Path) -> None:
        require_package("onnx", "a policy in ONNX", "export")
        import onnx

        try:
            import onnxruntime  # pyright: ignore[reportMissingImports]  # optional

            self.run: Any = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"]).run
        except ImportError:
            from onnx.reference import ReferenceEvaluator

            self.run = ReferenceEvaluator(str(file)).run
        model = onnx.load(str(file))
        self.metadata: dict[str, Any] = {x.key: _parsed(x.value) for x in model.metadata_props}
        self.inputs = {x.name: [d.dim_value for d in x.type.tensor_type.shape.dim] for x in model.graph.input}
        self.state: np.ndarray | None = None

    def __call__(self, *obs: np.ndarray) -> np.ndarray:
        given = obs
        if "state" in self.inputs:
            fresh = np.zeros((len(obs[0]), self.inputs["state"][1]), np.float32)
            given = (*obs, fresh if self.state is None else self.state)
        action, *state = self.run(None, dict(zip(self.inputs, given, strict=True)))
        self.state = state[0] if state else None
        return action


def _parsed(text: str) -> Any:
    """A value of the metadata, where texts stand as they are."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _write_numpy(policy: SavedPolicy, file: Path, metadata: dict[str, Any]) -> None:
    if policy.encoder is not None:
        raise UserError("a numpy file holds no images and no network of your own; use --format onnx")
    arrays: dict[str, Any] = {name: x.numpy() for name, x in policy.weights.items()}
    metadata = metadata | {"activation": policy.activation, "squashed": policy.squashed}
    np.savez(file, metadata=json.dumps(metadata), **arrays)


def opened(run: RunFolder | Path, checkpoint: Which = "newest") -> Trained:
    """A run's checkpoint, or the policy of an exported file."""
    return Trained.load(run, checkpoint) if isinstance(run, RunFolder) else open_exported(run)


def open_exported(file: Path) -> Trained:
    """The policy of a file in the place of a run's networks; a `UserError` if it is none."""
    try:
        policy: Any = (OnnxPolicy if file.suffix == ".onnx" else numpy_policy.NumpyPolicy)(file)
        facts = policy.metadata
        if "config" not in facts:
            raise UserError(f"{file} does not say which task it is for; export it again with this version")
        sizes = {name: tuple(x) if isinstance(x, list) else x for name, x in facts["obs_spec"].items()}
        interface = {"obs_spec": sizes, "action_dim": int(facts["outputs"]["action"][0])}
        config, state = stored_config(facts["config"]), _tensors(facts["env_state"])
        model = cast(ActorCritic, ExportedNetwork(policy))
        folder = RunFolder(file.absolute().parent if file.stem == "policy" else file.with_suffix(""), config)
        return Trained(folder, config, model, int(facts["iteration"]), 0, interface, state, None)
    except UserError:
        raise
    except Exception:  # a file may be anything
        raise UserError(f"{file} is not a policy that echelon export wrote") from None


class ExportedNetwork(nn.Module):
    """One policy with the members of an `ActorCritic` that acting needs."""

    policies = networks = 1

    def __init__(self, policy: Any) -> None:
        super().__init__()
        facts = policy.metadata
        self.policy, self.names = policy, [name for name in facts["inputs"] if name != "state"]
        self.state_dim: int = facts["inputs"].get("state", [0])[0]
        low, high = (torch.tensor(np.array(facts[f"action_{end}"], np.float32)) for end in ("low", "high"))
        self.free = torch.isnan(low) | torch.isnan(high)
        self.low, self.high = low.masked_fill(self.free, -1.0), high.masked_fill(self.free, 1.0)
        self.log_std = nn.Parameter(torch.full((1, len(low)), NO_NOISE))

    def only(self, network: int) -> "ExportedNetwork":
        """The network itself."""
        return self

    def raw_value(self, value: Tensor) -> Tensor:
        """The value as it is."""
        return value

    def forward(self, obs: Groups, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """One step. The file's action is in the units of the environment; a network's is from -1 to 1."""
        self.policy.state = state.numpy() if self.state_dim else None
        seen = [obs["policy" if name == "obs" else name][0].numpy() for name in self.names]
        action = torch.from_numpy(self.policy(*seen))
        mean = (2 * action - self.low - self.high) / (self.high - self.low)
        after = torch.from_numpy(self.policy.state) if self.state_dim else state
        return Output(torch.where(self.free, action, mean)[None], self.log_std, torch.zeros(1, len(action)), after)


def _tensors(state: Any) -> Any:
    """Numbers of a nested state as tensors, as a checkpoint holds them."""
    return {k: _tensors(x) for k, x in state.items()} if isinstance(state, Mapping) else torch.tensor(state)
