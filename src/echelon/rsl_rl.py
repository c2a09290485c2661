"""rsl_rl's runner with the algorithms of this library, so that a script for mjlab or Isaac Lab changes one import.

    from echelon.rsl_rl import OnPolicyRunner  # instead of rsl_rl.runners

`train_cfg["algorithm"]["class_name"]` chooses PPO, SAPG, CPO or PBT; `train_cfg["echelon"]` has any other settings by
their dotted names, such as `{"policies": 4, "pull.beta": 0.01}`. Everything that is trained is an ordinary run, in
`log_dir/echelon`. docs/coming-from.md says what is translated.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms import with_algorithm
from echelon.config import to_dict
from echelon.config.checks import check, settings_of, with_settings
from echelon.config.peers import translate
from echelon.console.view import View
from echelon.envs.contract import Groups, MakeEnv
from echelon.envs.sources import ON_DEVICE
from echelon.envs.torch_env import TorchEnv, groups_of
from echelon.errors import UserError, first_line, nearest
from echelon.export.files import export
from echelon.export.policy import Policy, SavedPolicy
from echelon.ranks import join
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.tasks import stored_config
from echelon.training.loop import train


class OnPolicyRunner:
    """Trains in a `VecEnv` by settings of rsl_rl, and keeps the leader of what it trained."""

    def __init__(self, env: Any, train_cfg: dict[str, Any], log_dir: str | None = None, device: str = "cpu") -> None:
        self.env, self.cfg, self.log_dir, self.device = env, train_cfg, log_dir, device
        self.current_learning_iteration = 0
        if torch.device(env.device).type != torch.device(device).type:
            raise UserError(f"the environment is on {env.device}, and the runner was asked to train on {device}")
        _, settings, others = translate({name: x for name, x in train_cfg.items() if name != "echelon"})
        name = str(train_cfg.get("algorithm", {}).get("class_name", "PPO"))
        algo = name.rpartition(":")[2].rpartition(".")[2].lower()
        start = with_algorithm(replace(ON_DEVICE, task=str(train_cfg.get("experiment_name") or "VecEnv")), algo)
        known, own = settings_of(start), train_cfg.get("echelon", {})
        for name in own:
            if name not in known:
                raise UserError(f'train_cfg["echelon"]: {name} is not a setting of {algo}{nearest(name, known)}')
        settings |= {"algo": algo, "device": torch.device(device).type, **own}
        settings["num_envs"] = env.num_envs * int(os.environ.get("WORLD_SIZE", "1"))
        if train_cfg.get("logger") == "wandb":
            settings.setdefault("wandb", "online")
        self.config = check(with_settings(start, settings))
        read = {"algorithm.class_name", "obs_groups.actor", "obs_groups.policy", "obs_groups.critic", "logger"}
        self.without_counterpart = [name for name in others if name not in read]
        """Names in `train_cfg` that mean nothing here."""
        names = {"actor": "policy", "policy": "policy", "critic": "critic"}
        groups = (train_cfg.get("obs_groups") or {}).items()
        self._groups = {names[name]: list(parts) for name, parts in groups if name in names}
        """Which observations the policy and the value function see, by our names of the groups."""
        self.folder_path = Path(log_dir or tempfile.mkdtemp(prefix="echelon-")) / "echelon"
        """The run folder."""

    def learn(
        self, num_learning_iterations: int, init_at_random_ep_len: bool = False, view: View | None = None
    ) -> None:
        """Train for more iterations. `view` shows progress as in `echelon.train`."""
        wanted = self.current_learning_iteration + num_learning_iterations
        config = replace(self.config, iterations=wanted, out=str(self.folder_path))

        def make_env(num_envs: int, device: torch.device, seed: int) -> _Adapter:
            return _Adapter(self.env, self._groups, init_at_random_ep_len)

        train(config, view, make_env, [_SaveModels(self, config.checkpoint_every)])
        self.current_learning_iteration = wanted

    def save(self, path: str, infos: dict[str, Any] | None = None) -> None:
        """Write the newest checkpoint as one file, which `load` reads."""
        folder = RunFolder.open(self.folder_path)
        found, config = checkpoint.load(folder, "newest"), to_dict(folder.config)
        torch.save({"iter": found.iteration, "infos": infos, "state": found.state, "config": config}, path)

    def load(
        self, path: str, load_cfg: object = None, strict: bool = True, map_location: str | None = None
    ) -> dict[str, Any] | None:
        """Continue, or act, with what a file holds; returns the `infos` that were saved with it. Only data is read: a
        file cannot run code."""
        ranks = join()
        return ranks.attempt(lambda: self._load(path, first=ranks.first))

    def _load(self, path: str, first: bool) -> dict[str, Any] | None:
        """What `load` does in one of several processes: the first writes the run."""
        if first and (self.folder_path / "config.json").exists():
            raise UserError(f"{self.folder_path} is a run already, which a file cannot replace; give another log_dir")
        try:
            found = torch.load(path, map_location="cpu", weights_only=True)
            config = replace(stored_config(found["config"]), out=str(self.folder_path))
            state, iteration, infos = found["state"], int(found["iter"]), found["infos"]
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        except Exception as error:  # a file is untrusted
            raise UserError(f"{path} holds no policy of Echelon ({first_line(error)})") from None
        if first:
            checkpoint.save(RunFolder.create_or_resume(config), iteration, state)
        self.current_learning_iteration = iteration
        return infos

    def get_inference_policy(self, device: str | None = None) -> "InferencePolicy":
        """The leader as a function of observations; it acts at its mean."""
        return InferencePolicy(SavedPolicy.load(self.folder_path), self._groups)

    def export_policy_to_onnx(self, path: str, filename: str = "policy.onnx", verbose: bool = False) -> None:
        """Write the leader as one file."""
        export(SavedPolicy.load(self.folder_path), "onnx", Path(path) / filename)

    def add_git_repo_to_log(self, repo_file_path: str) -> None:
        """Do nothing: a run's `config.json` has the revision of this library."""


class InferencePolicy(Policy):
    """From observations as the environment gives them to actions."""

    def __init__(self, network: SavedPolicy, groups: Mapping[str, list[str]]) -> None:
        super().__init__(network)
        self._groups = groups

    def __call__(self, obs: Any) -> Tensor:
        return super().__call__(groups_of(obs, self._groups)["policy"])

    def reset(self, dones: Tensor | None = None) -> None:
        """Forget what was seen, where `dones` says so if it is given."""
        if dones is None or self._state is None:
            super().reset()
        else:
            self._state = self._state * ~dones.bool()[:, None]


class _SaveModels:
    """Writes `model_N.pt` into `log_dir`, where scripts look for it."""

    def __init__(self, runner: OnPolicyRunner, every: int) -> None:
        self.runner, self.every = runner, every

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> None:
        if self.runner.log_dir is not None:
            number = checkpoint.saved_iterations(folder)[-1]
            self.runner.save(str(Path(self.runner.log_dir) / f"model_{number}.pt"))


class _Adapter(TorchEnv):
    """A `VecEnv`, whose first episodes may begin at random times of their clock."""

    def __init__(self, env: Any, groups: Mapping[str, list[str]], random_clocks: bool) -> None:
        self._random_clocks = random_clocks
        super().__init__(env, groups)

    def reset(self) -> Groups:
        obs = super().reset()
        if self._random_clocks:
            self.env.episode_length_buf = torch.randint_like(self.env.episode_length_buf, high=self.episode_length)
        return obs
