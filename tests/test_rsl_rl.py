"""rsl_rl's runner with our algorithms, in an environment of rsl_rl's own class."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from echelon.config import to_dict
from echelon.console.view import NullView
from echelon.envs.torch_env import groups_of
from echelon.errors import UserError
from echelon.rsl_rl import OnPolicyRunner, _Adapter
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.runs.trained import Trained

pytest.importorskip("rsl_rl", reason="rsl-rl-lib is not installed")
from rsl_rl.env import VecEnv  # pyright: ignore[reportMissingImports]
from tensordict import TensorDict  # pyright: ignore[reportMissingImports]


class Pushed(VecEnv):
    """Points that are pushed along a line, to be held at 0; the value function also sees the clock."""

    def __init__(self, num_envs: int = 24) -> None:
        self.num_envs, self.num_actions, self.max_episode_length, self.device = num_envs, 2, 6, "cpu"
        self.cfg = {}
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.x = torch.ones(num_envs, 2)

    def get_observations(self) -> TensorDict:
        clock = self.episode_length_buf[:, None].float()
        return TensorDict({"points": self.x.clone(), "clock": clock}, batch_size=[self.num_envs])

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        self.x = self.x + 0.3 * actions.clamp(-1, 1)
        self.episode_length_buf += 1
        reward, over = 1 - self.x.square().sum(1), self.episode_length_buf >= self.max_episode_length
        self.x[over], self.episode_length_buf[over] = 1.0, 0
        return self.get_observations(), reward, over, {"time_outs": over, "log": {"/reached": reward.mean()}}


def settings(algo: str, **more: Any) -> dict[str, Any]:
    """As a script of rsl_rl 5 has them."""
    network = {"class_name": "MLPModel", "hidden_dims": [16], "activation": "elu"}
    return {
        "num_steps_per_env": 6,
        "save_interval": 2,
        "seed": 3,
        "obs_groups": {"actor": ["points"], "critic": ["points", "clock"]},
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 0.5}},
        "critic": network,
        "algorithm": {"class_name": algo, "num_learning_epochs": 5, "num_mini_batches": 2, "learning_rate": 3e-3},
        **more,
    }


@pytest.mark.parametrize(("algo", "policies"), [("PPO", 1), ("rsl_rl.algorithms:CPO", 3)])
def test_a_script_of_rsl_rl_trains_saves_loads_and_acts(
    algo: str, policies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, cfg = Pushed(), settings(algo, echelon={"policies": policies, "model.hidden": [8, 4]})
    runner = OnPolicyRunner(env, cfg, log_dir=str(tmp_path), device="cpu")
    runner.add_git_repo_to_log(__file__)
    assert "critic.hidden_dims" in runner.without_counterpart
    assert not {"algorithm.class_name", "obs_groups.actor", "obs_groups.critic"} & {*runner.without_counterpart}  # read
    runner.learn(3, init_at_random_ep_len=True, view=NullView())
    runner.learn(2, view=NullView())
    folder = RunFolder.open(tmp_path / "echelon")
    assert [line["iteration"] for line in read_metrics(folder)] == [1, 2, 3, 4, 5]
    assert (folder.config.update.horizon, folder.config.model.initial_sigma, folder.config.seed) == (6, 0.5, 3)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == [f"model_{i}.pt" for i in (2, 3, 4, 5)]
    runner.save(str(tmp_path / "mine.pt"), infos={"note": 7})
    other = OnPolicyRunner(env, cfg, log_dir=None, device="cpu")
    assert other.load(str(tmp_path / "mine.pt")) == {"note": 7}
    obs, trained = env.get_observations(), Trained.load(folder)
    actions = other.get_inference_policy(device="cpu")(obs)
    groups = groups_of(obs, {"policy": ["points"], "critic": ["points", "clock"]})
    expected = trained.actor(trained.leader, 24).decide(groups, torch.zeros(24, trained.model.state_dim), None).mean
    assert torch.allclose(actions, expected, atol=1e-6)
    other.learn(1, view=NullView())
    assert other.current_learning_iteration == 6
    second = OnPolicyRunner(env, cfg, log_dir=str(tmp_path / "second"))  # of two processes, of which the first writes
    monkeypatch.setattr("echelon.rsl_rl.join", lambda: SimpleNamespace(first=False, attempt=lambda act: act()))
    assert second.load(str(tmp_path / "mine.pt")) == {"note": 7}
    assert (second.current_learning_iteration, second.folder_path.exists()) == (5, False)


def test_clocks_begin_at_random_if_asked_and_mistakes_are_sentences(tmp_path: Path) -> None:
    env = Pushed()
    runner = OnPolicyRunner(env, settings("PPO"), str(tmp_path / "a"))
    _Adapter(env, {"policy": ["points"]}, random_clocks=True).reset()
    assert len(set(env.episode_length_buf.tolist())) > 1
    (tmp_path / "bad.pt").write_text(json.dumps({"iter": 1}))
    torch.save({"iter": 1, "state": {}, "config": to_dict(runner.config)}, tmp_path / "part.pt")
    for act, sentence in (
        (
            lambda: OnPolicyRunner(env, settings("TD3")),
            "the algorithm is one of ppo, pbt, sapg, cpo, sac, distil, not 'td3",
        ),
        (lambda: OnPolicyRunner(env, settings("PPO"), device="cuda"), "the environment is on cpu, and the runner was"),
        (lambda: OnPolicyRunner(env, settings("PPO", echelon={"pull.beta": 1.0})), "pull.beta is not a setting of ppo"),
        (
            lambda: OnPolicyRunner(env, settings("PPO", echelon={"polcies": 1})),
            "polcies is not a setting of ppo; did you mean policies?",
        ),
        (lambda: OnPolicyRunner(env, settings("PPO", obs_groups={"actor": ["p"]})).learn(1), "obs_groups names p, and"),
        (lambda: runner.load(str(tmp_path / "bad.pt")), "bad.pt holds no policy of Echelon"),
        (lambda: runner.load(str(tmp_path / "part.pt")), "part.pt holds no policy of Echelon ('infos')"),
        (lambda: runner.load(str(tmp_path / "none.pt")), "none.pt cannot be read: No such file"),
    ):
        with pytest.raises(UserError) as error:
            act()
        assert sentence in str(error.value)
