"""What an environment may lack or have besides, and what training makes of it."""

import pytest
import torch
from rollout.stub_env import DriftEnv, ScriptedEnv

from echelon.config import ModelConfig, UpdateConfig
from echelon.envs.contract import Bounded, bounded
from echelon.errors import UserError
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout


def collector(env, **changes) -> Collector:
    torch.manual_seed(0)
    model = ActorCritic(env.obs_spec, env.action_dim, 1, ModelConfig(hidden=(4,)))
    update = UpdateConfig(horizon=4, **changes)
    acting = Collector(env, model, Layout(env.num_envs, 1, "cpu"), update, torch.Generator().manual_seed(0))
    acting.reset()
    return acting


class Changed(DriftEnv):
    """A sound environment but for a change of its steps."""

    def __init__(self, change) -> None:
        super().__init__(6, episode_length=3)
        self.change, self.steps = change, 0

    def step(self, action):
        step, self.steps = super().step(action), self.steps + 1
        self.change(self, step)
        return step


def test_actions_reach_an_environment_in_its_own_units() -> None:
    """From -1 to 1 onto [low, high]; without a limit as they were drawn."""
    env = DriftEnv(2)
    action = torch.tensor([[-3.0, 0.5], [1.0, 4.0]])
    assert bounded(env)(action).tolist() == [[-1.0, 0.5], [1.0, 1.0]]
    inf = torch.inf
    expected = {
        ((-0.4, 10.0), (0.4, 20.0)): [[pytest.approx(-0.4), 17.5], [pytest.approx(0.4), 20.0]],
        ((-inf, 10.0), (inf, 20.0)): [[-3.0, 17.5], [1.0, 20.0]],
        ((-inf, -inf), (inf, inf)): action.tolist(),
    }
    for (low, high), found in expected.items():
        env.action_low, env.action_high = torch.tensor(low), torch.tensor(high)
        assert isinstance(env, Bounded)
        assert bounded(env)(action).tolist() == found


def test_without_final_obs_the_value_before_the_last_step_is_the_bootstrap() -> None:
    """The same numbers as with `timeout_bootstrap="current_obs"`, which is V(s_t)."""
    silent = collector(Changed(lambda env, step: setattr(step, "final_obs", None)))
    current = collector(DriftEnv(6, episode_length=3), timeout_bootstrap="current_obs")
    found, expected = silent.collect(), current.collect()
    assert (silent.lacks_final_obs, current.lacks_final_obs) == (True, False)
    cut = found.truncated & ~found.terminated
    assert cut.any()
    assert torch.equal(found.final_value, torch.where(cut, found.value[:-1], 0.0))
    assert torch.equal(found.final_value, expected.final_value)


def test_numbers_in_a_log_hold_for_all_environments() -> None:
    """A number, a 0-d tensor and a tensor with a number for each: means over 4 steps. A name that is missing from a
    later log is one sentence."""

    def log(env: Changed, step) -> None:
        step.log = {"number": env.steps, "scalar": torch.tensor(2.0), "each": torch.arange(6.0)}

    acting = collector(Changed(log))
    acting.collect()
    metrics = acting.episodes.metrics()
    found = {name: metrics[f"env/{name}"].item() for name in ("number", "scalar", "each")}
    assert found == {"number": 2.5, "scalar": 2.0, "each": 2.5}
    forgetful = collector(Changed(lambda env, step: setattr(step, "log", {"ab"[env.steps % 2]: 1.0})))
    with pytest.raises(UserError, match=r"logs [ab] in some steps but not in others"):
        forgetful.collect()


def test_a_new_start_forgets_what_was_in_the_middle() -> None:
    rest, never = torch.zeros(9, 2), torch.zeros(9, 2, dtype=torch.bool)
    acting = collector(ScriptedEnv(torch.zeros(10, 2), rest + 1, never, never, rest, episode_length=20))
    acting.collect()
    assert acting.episodes.current.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    acting.reset()
    assert acting.episodes.current.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert acting.rollout.start[-1].all()
