"""Distances between the policies of a rollout against a plain loop over rows, and that measuring changes nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from learning.iteration import Parts, small_config, small_trainer, take_apart

from echelon.config import DiagnosticsConfig
from echelon.diagnostics import measure
from echelon.rollout.layout import Layout


def collected(policies: int, lstm: int, num_envs: int = 18) -> Parts:
    return take_apart(small_trainer(small_config("sapg", policies, lstm, num_envs=num_envs)))


def row_output(parts: Parts, t: int, env: int, policy: int) -> tuple[np.ndarray, float]:
    """Mean action and value of `policy` at one row, one step from the collector's state there."""
    model, rollout = parts.trainer.model, parts.rollout
    obs = {name: x[t, env].view(1, 1, -1) for name, x in rollout.obs.items()}
    with torch.no_grad():
        output = model(obs, torch.tensor([policy]), rollout.state[t, env][None], torch.zeros(1, 1, dtype=torch.bool))
        value = model.raw_value(output.value[0]).item()
    return output.mean[0, 0].double().numpy(), value


@pytest.mark.parametrize(("policies", "lstm", "num_envs"), [(3, 0, 18), (3, 8, 18), (4, 0, 22)])
def test_against_a_plain_loop(policies: int, lstm: int, num_envs: int) -> None:
    """22 environments of 4 policies are uneven: 7 for the leader and 5 for each follower."""
    parts = collected(policies, lstm, num_envs)
    trainer, rollout = parts.trainer, parts.rollout
    layout = trainer.layout
    between, found = measure(trainer.model, rollout, layout, states=20, update=trainer.config.update)
    rows = layout.spread_rows(rollout.horizon, 20).tolist()
    log_std = trainer.model.log_std.detach().double().numpy()
    matrix = np.zeros((policies, policies))
    log_w, advantage = np.zeros((2, policies, 20))
    score, discount = np.zeros((policies, 20, 2 * log_std.shape[1])), trainer.config.update.discount
    ended = rollout.terminated | rollout.truncated  # where only a truncated row has a final value
    for i in range(policies):
        for k, row in enumerate(rows[i]):
            t, env = divmod(row, num_envs)
            means = [row_output(parts, t, env, j)[0] for j in range(policies)]
            for j in range(policies):
                var_i, var_j = np.exp(2 * log_std[i]), np.exp(2 * log_std[j])
                shift = (means[i] - means[j]) ** 2
                kl = log_std[j] - log_std[i] + (var_i + shift) / (2 * var_j) - 0.5
                matrix[i, j] += kl.sum() / 20
            action = rollout.action[t, env].double().numpy()
            leader = -0.5 * ((action - means[0]) / np.exp(log_std[0])) ** 2 - log_std[0] - 0.5 * math.log(2 * math.pi)
            log_w[i, k] = leader.sum() - rollout.log_prob[t, env].item()
            noise = (action - means[0]) / np.exp(log_std[0])
            score[i, k] = np.concatenate((noise / np.exp(log_std[0]), noise**2 - 1))
            after = row_output(parts, t + 1, env, 0)[1] if not ended[t, env] else rollout.final_value[t, env].item()
            advantage[i, k] = rollout.reward[t, env].item() + discount * after - row_output(parts, t, env, 0)[1]
    np.testing.assert_allclose(between, matrix, rtol=1e-4, atol=1e-5)
    w = np.exp(log_w)
    assert found["is_deviation"].item() == pytest.approx(np.abs(1 - w[1:]).mean(), rel=1e-4)
    assert found["ess"].item() == pytest.approx(w.sum() ** 2 / (w.size * (w**2).sum()), rel=1e-4)
    change, size, clip = w[1:] - 1, np.linalg.norm(score[1:], axis=-1), trainer.config.update.clip
    removed = np.where(change * np.sign(advantage[1:]) > clip, w[1:] * advantage[1:], 0.0)
    bias = np.linalg.norm((removed[..., None] * score[1:]).mean((0, 1)))
    bound = np.sqrt(np.where(abs(change) > clip, ((abs(change) + 1) * advantage[1:] * size) ** 2, 0.0).mean())
    assert found["clip_bias"].item() == pytest.approx(bias, rel=1e-3)
    assert found["clip_bias_bound"].item() == pytest.approx(bound, rel=1e-3)
    assert 0 < bias < bound
    assert found["is_deviation"].item() > 0.05
    assert np.abs(log_w[0]).max() < 1e-5  # the leader's own rows
    assert found["kl/follower_to_leader"].item() == pytest.approx(matrix[1:, 0].mean(), rel=1e-4)
    others = matrix + np.diag([np.inf] * policies)
    assert found["nearest_is_leader"].item() == pytest.approx((others.argmin(1)[1:] == 0).mean())


def test_rows_are_distinct_and_spread_evenly() -> None:
    """Over environments and steps, as far as whole numbers allow."""
    for horizon, num_envs, policies, states in (
        *((12, 18, 3, 20), (16, 256, 6, 512), (5, 22, 4, 7)),
        (8, 24, 6, 512),  # fewer rows than were asked for
        *((horizon, 6 * 4096, 6, 512) for horizon in (8, 16)),  # the paper's sizes: 512 rows of 32768 are every 64th
    ):
        layout = Layout(num_envs, policies)
        rows = layout.spread_rows(horizon, states)
        smallest = min(layout.sizes)
        count = min(states, horizon * smallest)
        assert rows.shape == (policies, count)
        for policy, line in enumerate(rows):
            t, env = line // num_envs, line % num_envs
            assert len(line.unique()) == count
            assert (layout.policy_id[env] == policy).all()
            assert t.max() < horizon
            used = (env - layout.environments(policy).start).bincount(minlength=smallest)
            assert len(used) == smallest
            assert all(counts.max() - counts.min() <= 1 for counts in (used, t.bincount(minlength=horizon)))


@pytest.mark.parametrize("lstm", [0, 8])
def test_measuring_does_not_change_what_is_learned(lstm: int) -> None:
    results = []
    for every in (0, 1):
        config = replace(small_config("cpo", 3, lstm, adversary=0.1), diagnostics=DiagnosticsConfig(every, states=16))
        trainer = small_trainer(config)
        iterations = [trainer.iterate() for _ in range(2)]
        assert all((iteration.kl_matrix is not None) == bool(every) for iteration in iterations)
        results.append((trainer.model.state_dict(), iterations[-1].metrics))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=0)
    measured = {"ess", "is_deviation", "clip_bias", "clip_bias_bound", "kl/follower_to_leader", "nearest_is_leader"}
    assert set(results[1][1]) - set(results[0][1]) == measured
    assert all(results[1][1][name] == value or math.isnan(value) for name, value in results[0][1].items())
    # Every two iterations, and read back as a matrix.
    trainer = small_trainer(replace(config, diagnostics=DiagnosticsConfig(every=2, states=16)))
    matrices = [trainer.iterate().kl_matrix for _ in range(4)]
    assert [matrix is not None for matrix in matrices] == [True, False, True, False]
    matrix = matrices[2] or []
    assert [[value == 0 for value in line] for line in matrix] == [[i == j for j in range(3)] for i in range(3)]
    alone = replace(small_config("ppo"), diagnostics=DiagnosticsConfig(every=1, states=16))
    assert small_trainer(alone).iterate().kl_matrix is None  # one policy has nothing to measure


@pytest.mark.parametrize("lstm", [0, 8])
def test_members_of_a_population_are_measured_on_each_others_states(lstm: int) -> None:
    """The KL map against members taken one at a time; who reads whose rows is no question there."""
    trainer = small_trainer(small_config("pbt", 3, lstm))
    rollout = take_apart(trainer, rollouts=1).rollout
    found, metrics = measure(trainer.model, rollout, trainer.layout, states=16, update=trainer.config.update)
    rows = trainer.layout.spread_rows(rollout.horizon, 16)
    for i, flat in enumerate(rows):
        obs = {name: x[:-1].flatten(0, 1)[flat][None] for name, x in rollout.obs.items()}
        state, start = rollout.state[:-1].flatten(0, 1)[flat], torch.zeros(1, 16, dtype=torch.bool)
        ids = torch.zeros(16, dtype=torch.int64)
        outputs = [trainer.model.only(k)(obs, ids, state, start) for k in range(3)]
        normals = [torch.distributions.Normal(x.mean[0], x.log_std.exp()) for x in outputs]
        for k in range(3):
            expected = torch.distributions.kl_divergence(normals[i], normals[k]).sum(-1).mean()
            assert found[i, k].item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-6)
    assert metrics == {}


@pytest.mark.parametrize("lstm", [0, 8])
@pytest.mark.parametrize(("reward", "bias"), [(3.0, 12 * math.sqrt(2)), (-3.0, 0.0)])
def test_clip_bias_by_hand(lstm: int, reward: float, bias: float) -> None:
    """Two actions, both 0, as are all means and values. The leader has σ = 1 and followers σ = 2, so every row of
    theirs has w = 2 · 2 = 4 and A = reward. ∇log π is 0 for the means and 0² - 1 = -1 for each log σ. Where A = 3 the
    clip removes 4 · 3 · (0, 0, -1, -1), of norm 12 √2; where A = -3 the unclipped branch is the smaller, and nothing is
    removed. The bound is √((|1 - 4| + 1)² · 3² · 2) = 12 √2 for both."""
    parts = collected(3, lstm)
    model, rollout = parts.trainer.model, parts.rollout
    with torch.no_grad():
        for x in (*model.mean_head.parameters(), *model.value_head.parameters(), model.value_norm.get_buffer("mean")):
            x.zero_()
        model.log_sigma.fill_(math.log(2))
        model.log_sigma[:, 0] = 0.0
    rollout.action.zero_()
    rollout.log_prob.fill_(-math.log(2 * math.pi) - 2 * math.log(2))
    rollout.reward.fill_(reward)
    rollout.final_value.zero_()
    _, found = measure(model, rollout, parts.trainer.layout, 20, parts.trainer.config.update)
    assert found["clip_bias"].item() == pytest.approx(bias, rel=1e-5)
    assert found["clip_bias_bound"].item() == pytest.approx(12 * math.sqrt(2), rel=1e-5)
    assert found["is_deviation"].item() == pytest.approx(3.0, rel=1e-5)
