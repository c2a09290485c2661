"""What an environment may lack or have besides, and what training makes of it."""

import pytest
import torch
from rollout.stub_env import DriftEnv, ScriptedEnv

from echelon.config import ModelConfig, UpdateConfig
from echelon.envs.contract import Bounded, Stateful, bounded
from echelon.errors import UserError
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout


def collector(env, **changes) -> Collector:
    model = ActorCritic(env.obs_spec, env.action_dim, 1, ModelConfig(hidden=(4,)))
    update = UpdateConfig(horizon=4, **changes)
    return Collector(env, model, Layout(env.num_envs, 1, "cpu"), update, torch.Generator().manual_seed(0))


def test_actions_reach_an_environment_in_its_own_units() -> None:
    """From -1 to 1 onto [low, high]; without a limit as they were drawn."""
    env = DriftEnv(2)
    action = torch.tensor([[-3.0, 0.5], [1.0, 4.0]])
    assert bounded(env)(action).tolist() == [[-1.0, 0.5], [1.0, 1.0]]
    env.action_low, env.action_high = torch.tensor([-0.4, 10.0]), torch.tensor([0.4, 20.0])
    assert isinstance(env, Bounded)
    assert bounded(env)(action).tolist() == [[pytest.approx(-0.4), 17.5], [pytest.approx(0.4), 20.0]]
    env.action_low, env.action_high = torch.tensor([-torch.inf, 10.0]), torch.tensor([torch.inf, 20.0])
    assert bounded(env)(action).tolist() == [[-3.0, 17.5], [1.0, 20.0]]
    env.action_low, env.action_high = -torch.full((2,), torch.inf), torch.full((2,), torch.inf)
    assert torch.equal(bounded(env)(action), action)


def test_without_final_obs_the_value_before_the_last_step_is_the_bootstrap() -> None:
    """The same numbers as with `timeout_bootstrap="current_obs"`, which is V(s_t)."""

    class Silent(DriftEnv):
        def step(self, action):
            step = super().step(action)
            step.final_obs = None
            return step

    found = []
    for env, how in ((Silent(6, episode_length=3), "final_obs"), (DriftEnv(6, episode_length=3), "current_obs")):
        torch.manual_seed(0)
        acting = collector(env, timeout_bootstrap=how)
        acting.reset()
        found.append(acting.collect())
        assert acting.lacks_final_obs == isinstance(env, Silent)
    cut = found[0].truncated & ~found[0].terminated
    assert cut.any()
    assert torch.equal(found[0].final_value, torch.where(cut, found[0].value[:-1], 0.0))
    assert torch.equal(found[0].final_value, found[1].final_value)


def test_numbers_in_a_log_hold_for_all_environments() -> None:
    """A number, a 0-d tensor and a tensor with a number for each: means over 4 steps."""

    class Logging(DriftEnv):
        steps = 0

        def step(self, action):
            step, self.steps = super().step(action), self.steps + 1
            step.log = {"number": self.steps, "scalar": torch.tensor(2.0), "each": torch.arange(6.0)}
            return step

    acting = collector(Logging(6))
    acting.reset()
    acting.collect()
    metrics = acting.episodes.metrics()
    found = {name: metrics[f"env/{name}"].item() for name in ("number", "scalar", "each")}
    assert found == {"number": 2.5, "scalar": 2.0, "each": 2.5}


def test_a_name_that_is_missing_from_a_later_log_is_one_sentence() -> None:
    class Forgetful(DriftEnv):
        def step(self, action):
            step = super().step(action)
            step.log = {"a": 1.0} if self.clock[0] % 2 else {"b": 1.0}
            return step

    acting = collector(Forgetful(6))
    acting.reset()
    with pytest.raises(UserError, match=r"logs [ab] in some steps but not in others"):
        acting.collect()


def test_state_is_optional() -> None:
    assert isinstance(DriftEnv(2), Stateful)
    assert not isinstance(object(), Stateful)


def test_a_new_start_forgets_what_was_in_the_middle() -> None:
    rest, never = torch.zeros(9, 2), torch.zeros(9, 2, dtype=torch.bool)
    env = ScriptedEnv(torch.zeros(10, 2), rest + 1, never, never, rest, episode_length=20)
    acting = collector(env)
    acting.reset()
    acting.collect()
    assert acting.episodes.current.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    acting.reset()
    assert acting.episodes.current.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert acting.rollout.start[-1].all()
