"""What a rollout holds, with values known by hand, and that acting and storing agree."""

import copy

import pytest
import torch
from rollout.stub_env import DriftEnv, ScriptedEnv

from echelon.config import ModelConfig, UpdateConfig
from echelon.envs.contract import Env
from echelon.models.actor_critic import ActorCritic
from echelon.models.normaliser import EPSILON
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout

YES, NO = True, False


def scripted() -> ScriptedEnv:
    """Two environments, four steps. The first is cut at t = 1; the second ends at t = 0 and both at once at t = 2."""
    return ScriptedEnv(
        obs=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]),
        reward=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
        terminated=torch.tensor([[NO, YES], [NO, NO], [NO, YES], [NO, NO]]),
        truncated=torch.tensor([[NO, NO], [YES, NO], [NO, YES], [NO, NO]]),
        final_obs=torch.tensor([[3.0, 20.0], [30.0, 6.0], [7.0, 40.0], [9.0, 10.0]]),
    )


def known_collector(env: Env, config: UpdateConfig) -> Collector:
    """V(s) = 2·obs + 10 for positive observations, mean action 3·obs, σ = e^-1."""
    model = ActorCritic({"policy": 1}, 1, 1, ModelConfig(hidden=(1,), obs_clip=1e6))
    with torch.no_grad():
        model.actor.observe.weight.fill_(1.0)
        model.mean_head.weight.fill_(3.0)
        model.value_head.weight.fill_(1.0)
        model.log_std.fill_(-1.0)
    model.obs_norm["policy"].var.fill_(1 - EPSILON)
    model.value_norm.clip = 1e6
    model.value_norm.mean.fill_(10.0)
    model.value_norm.var.fill_(4 - EPSILON)
    collector = Collector(env, model, Layout(env.num_envs, 1), config, torch.Generator().manual_seed(0))
    collector.reset()
    return collector


@pytest.mark.parametrize(("how", "cut"), [("final_obs", 70.0), ("current_obs", 16.0), ("none", 0.0)])
def test_timeout_bootstrap(how: str, cut: float) -> None:
    """V(final_obs) = 2·30 + 10; V(s_1) = 2·3 + 10; nothing."""
    rollout = known_collector(scripted(), UpdateConfig(horizon=4, timeout_bootstrap=how)).collect()
    # Only the row that was cut and did not end.
    assert rollout.final_value.flatten().tolist() == pytest.approx([0.0, 0.0, cut, 0.0, 0.0, 0.0, 0.0, 0.0])
    bootstrapped = rollout.trajectory.bootstrapped_reward(0.5)
    assert bootstrapped[:, 0].tolist() == pytest.approx([1.0, 3.0 + 0.5 * cut, 5.0, 7.0])
    assert bootstrapped[:, 1].tolist() == pytest.approx([2.0, 4.0, 6.0, 8.0])


def test_rows_are_stored_as_they_came_and_actions_as_drawn_though_clamped_for_the_environment() -> None:
    env = scripted()
    collector = known_collector(env, UpdateConfig(horizon=4, reward_scale=0.5))
    rollout = collector.collect()
    # Scores count the environment's own rewards: 1 + 3 in the first environment, 4 + 6 in the second (2 at t = 0).
    assert collector.episodes.metrics()["return/leader"].item() == pytest.approx((4 + 10) / 2)
    assert rollout.obs["policy"][..., 0].equal(env.obs)
    assert rollout.value.tolist() == (2 * env.obs + 10).tolist()  # the last row bootstraps the rollout
    assert rollout.reward.equal(0.5 * env.reward)
    assert rollout.terminated.equal(env.terminated)
    assert rollout.truncated.equal(env.truncated)
    # All episodes begin at first, then after each end or cut.
    assert rollout.start.tolist() == [[YES, YES], [NO, YES], [YES, NO], [NO, YES], [NO, NO]]
    assert rollout.mean[..., 0].tolist() == (3 * env.obs[:4]).tolist()
    assert rollout.log_std.tolist() == [[-1.0]]
    env = scripted()
    rollout = known_collector(env, UpdateConfig(horizon=4)).collect()
    assert rollout.action.max() > 1  # means lie between 3 and 24
    assert torch.stack(env.actions).equal(torch.ones(4, 2, 1))
    noise = torch.randn(4, 1, 2, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    torch.testing.assert_close(rollout.action, rollout.mean + torch.exp(torch.tensor(-1.0)) * noise)
    expected = torch.distributions.Normal(rollout.mean, torch.exp(torch.tensor(-1.0))).log_prob(rollout.action).sum(-1)
    torch.testing.assert_close(rollout.log_prob, expected)


def drifting(lstm: int = 0, critic: bool = False, policies: int = 3, networks: int = 1) -> Collector:
    env = DriftEnv(9, critic=critic)
    torch.manual_seed(0)
    config = ModelConfig(hidden=(8,), lstm=lstm, phi_dim=3)
    model = ActorCritic(env.obs_spec, 2, policies, config, networks=networks)
    model.log_sigma.data.normal_()
    model.value_norm.merge(torch.tensor([[4.0], [6.0]]).repeat(networks, 1))
    layout = Layout(9, policies, networks=networks)
    collector = Collector(env, model, layout, UpdateConfig(horizon=6), torch.Generator().manual_seed(0))
    collector.reset()
    return collector


@pytest.mark.parametrize("lstm", [0, 5])
@pytest.mark.parametrize("critic", [False, True])
def test_a_rollout_goes_on_where_the_last_one_stopped(lstm: int, critic: bool) -> None:
    collector = drifting(lstm, critic)
    first = copy.deepcopy(collector.collect())  # the storage is reused
    second = collector.collect()
    for name in ("start", "state", "value"):
        assert getattr(second, name)[0].equal(getattr(first, name)[-1]), name
    assert all(second.obs[name][0].equal(first.obs[name][-1]) for name in first.obs)
    assert first.start[1:].equal(first.terminated | first.truncated)
    if lstm:
        assert not first.state[1:][first.start[1:]].any()
        assert first.state[1:][~first.start[1:]].abs().amax(-1).min() > 0


@pytest.mark.parametrize("lstm", [0, 5])
@pytest.mark.parametrize("critic", [False, True])
@pytest.mark.parametrize("networks", [1, 3])
def test_a_cut_is_worth_the_value_of_the_last_observation_in_its_own_state(
    networks: int, lstm: int, critic: bool
) -> None:
    """V(final_obs) from the state after the row, before the reset; computed here one environment at a time."""
    collector = drifting(lstm, critic, networks=networks)
    collector.collect()  # leaves its own cuts in the storage
    finals = []
    step = collector.env.step

    def spy(action):
        result = step(action)
        finals.append({name: x.clone() for name, x in result.final_obs.items()})
        return result

    collector.env.step = spy
    rollout, model, ids = collector.collect(), collector.model, collector.layout.policy_id
    cut = rollout.truncated & ~rollout.terminated
    assert cut.any()
    assert not rollout.final_value[~cut].any()
    never = torch.zeros(1, 1, dtype=torch.bool)
    for t, env in cut.nonzero().tolist():
        obs = {name: x[t, env].view(1, 1, -1) for name, x in rollout.obs.items()}
        only = model.only(int(ids[env]) // (3 // networks))
        own = ids[env : env + 1] % (3 // networks)
        state = only(obs, own, rollout.state[t, env][None], never).state
        final = {name: x[env].view(1, 1, -1) for name, x in finals[t].items()}
        value = only.raw_value(only(final, own, state, never).value)
        assert rollout.final_value[t, env].item() == pytest.approx(value.item(), abs=1e-5)
        assert abs(rollout.value[t + 1, env].item() - value.item()) > 1e-3  # not that of the next episode
