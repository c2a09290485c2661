"""A file that `echelon export` wrote, opened to be shown: its policy acts in the environment it was trained in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from echelon.envs.contract import Groups
from echelon.errors import UserError
from echelon.export.files import OnnxPolicy
from echelon.export.numpy_policy import NumpyPolicy
from echelon.models.actor_critic import ActorCritic, Output
from echelon.runs.checkpoint import Which
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.tasks import stored_config

NO_NOISE = -20.0
"""Log sigma of a policy that always acts at its mean."""


def opened(run: RunFolder | Path, checkpoint: Which = "newest") -> Trained:
    """A run's checkpoint, or the policy of an exported file."""
    return Trained.load(run, checkpoint) if isinstance(run, RunFolder) else open_exported(run)


def open_exported(file: Path) -> Trained:
    """The policy of a file in the place of a run's networks; a `UserError` if it is none."""
    try:
        policy: Any = (OnnxPolicy if file.suffix == ".onnx" else NumpyPolicy)(file)
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
