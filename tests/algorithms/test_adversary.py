"""The discriminator learns who acted when that can be seen, nothing when it cannot, and pays followers by it."""

import math

import numpy as np
import pytest
import torch

from echelon.algorithms import AdversaryConfig, CpoTrainConfig
from echelon.algorithms.adversary import Adversary
from echelon.config import ModelConfig, UpdateConfig
from echelon.models.actor_critic import ActorCritic
from echelon.models.linear import Linear
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout

POLICIES, ENVS, HORIZON, OBS, ACTIONS = 6, 60, 16, 4, 2
CONFIG = CpoTrainConfig(
    policies=POLICIES,
    num_envs=ENVS,
    update=UpdateConfig(horizon=HORIZON, minibatch_envs=0.25, learning_rate=5e-3),
    adversary=AdversaryConfig(coef=0.7, hidden=(32, 32)),
)
"""64 minibatches of 15 rows are one pass over 960 rows."""


def build(num_envs: int = ENVS, networks: int = 1) -> tuple[Adversary, ActorCritic]:
    torch.manual_seed(0)
    model = ActorCritic({"policy": OBS}, ACTIONS, POLICIES, ModelConfig(hidden=(4,)), networks=networks)
    return Adversary(OBS, ACTIONS, Layout(num_envs, POLICIES, networks=networks), CONFIG), model


def random_rollout(seed: int, seen_id: torch.Tensor | None, num_envs: int = ENVS) -> Rollout:
    """Noise, and in the first two observations a point on a circle that tells `seen_id [N]`."""
    generator = torch.Generator().manual_seed(seed)
    rollout = Rollout.allocate(HORIZON, num_envs, {"policy": OBS}, ACTIONS, 0, POLICIES, torch.device("cpu"))
    obs = rollout.obs["policy"].normal_(0.0, 0.3, generator=generator)
    if seen_id is not None:
        angle = seen_id * (2 * math.pi / POLICIES)
        obs[..., 0] += 2 * angle.cos()
        obs[..., 1] += 2 * angle.sin()
    rollout.action.normal_(generator=generator)
    return rollout


def accuracy(adversary: Adversary, model: ActorCritic, rollout: Rollout) -> float:
    with torch.no_grad():
        guess = adversary.logits(adversary.inputs(rollout, model)).argmax(-1)
    return (guess == adversary.layout.policy_id).float().mean().item()


def one_pass(adversary: Adversary, model: ActorCritic, rollout: Rollout, seed: int = 0) -> dict[str, float]:
    inputs = adversary.inputs(rollout, model)
    metrics = adversary.learn(inputs, torch.Generator().manual_seed(seed))
    return {name: x.mean().item() for name, x in metrics.items()}


@pytest.mark.parametrize("num_envs", [ENVS, 65])
def test_policies_that_can_be_told_apart_are_told_apart_within_one_rollout(num_envs: int) -> None:
    """One pass over one rollout, judged on another; 65 environments leave 15 to the leader.

    The loss falls below the floor of a double softmax: probabilities taken for logits could not get below 1.0436.
    """
    assert -math.log(math.e / (math.e + 5)) == pytest.approx(1.0436, abs=1e-4)
    adversary, model = build(num_envs)
    ids = adversary.layout.policy_id
    fresh = random_rollout(2, ids, num_envs)
    assert accuracy(adversary, model, fresh) < 0.5
    losses = [one_pass(adversary, model, random_rollout(1, ids, num_envs))]
    assert accuracy(adversary, model, fresh) > 0.9
    losses += [one_pass(adversary, model, random_rollout(seed, ids, num_envs)) for seed in (3, 4)]
    assert losses[0]["adversary/loss"] > losses[-1]["adversary/loss"]
    assert losses[-1]["adversary/loss"] < 0.1
    assert losses[-1]["adversary/accuracy"] > 0.95


def test_policies_that_cannot_be_told_apart_stay_at_chance() -> None:
    """What is seen belongs to another environment at every step: three passes, judged on another rollout."""
    adversary, model = build()
    for seed in range(3):
        generators = [torch.Generator().manual_seed(100 * seed + t) for t in range(HORIZON + 1)]
        shuffled = torch.stack([torch.randperm(ENVS, generator=generator) for generator in generators])
        rollout = random_rollout(seed, adversary.layout.policy_id[shuffled])
        metrics = one_pass(adversary, model, rollout, seed)
    # 960 rows: chance is 1/6 with a deviation of 0.012; the loss cannot fall below ln 6 but by chance.
    fresh = random_rollout(9, adversary.layout.policy_id[shuffled.flip(1)])
    assert accuracy(adversary, model, fresh) == pytest.approx(1 / 6, abs=0.05)
    assert metrics["adversary/loss"] == pytest.approx(math.log(6), abs=0.1)


def test_reward_is_the_log_probability_of_the_truth_for_followers_only() -> None:
    adversary, model = build()
    one_pass(adversary, model, random_rollout(1, adversary.layout.policy_id))
    rollout = random_rollout(2, adversary.layout.policy_id)
    reward = adversary.reward(adversary.inputs(rollout, model))
    # Row by row in numpy, from raw observations: the normaliser is still (0, 1), so √(1 + 1e-5) is its deviation.
    ids = adversary.layout.policy_id.tolist()
    obs = np.clip(rollout.obs["policy"].numpy()[:-1].astype(np.float64) / math.sqrt(1 + 1e-5), -5, 5)
    for t, env in ((0, 0), (3, 9), (3, 10), (7, 33), (15, 59)):
        row = np.concatenate((obs[t, env], rollout.action[t, env].numpy()))
        logits = row
        for number, layer in enumerate(adversary.network):
            assert isinstance(layer, Linear)
            if number:
                logits = np.where(logits > 0, logits, np.exp(np.minimum(logits, 0)) - 1)
            weight, bias = (x.detach()[0].double().numpy() for x in (layer.weight, layer.bias))
            logits = weight @ logits + bias
        expected = 0.0 if ids[env] == 0 else 0.7 * (logits[ids[env]] - np.log(np.exp(logits).sum()))
        assert reward[t, env].item() == pytest.approx(expected, abs=1e-5)
    assert reward[:, :10].eq(0).all()
    assert reward[:, 10:].lt(0).all()


def test_scoring_changes_nothing_one_pass_sees_every_row_once_and_networks_have_discriminators_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adversary, model = build()
    inputs = adversary.inputs(random_rollout(1, adversary.layout.policy_id), model)
    before = {name: x.clone() for name, x in adversary.network.state_dict().items()}
    adversary.reward(inputs)
    torch.testing.assert_close(dict(adversary.network.state_dict()), before, rtol=0, atol=0)
    assert set(before) == {f"{layer}.{kind}" for layer in (0, 1, 2) for kind in ("weight", "bias")}  # in checkpoints
    rollout = random_rollout(1, None)
    rollout.action[..., 0] = torch.arange(HORIZON * ENVS).view(HORIZON, ENVS)
    seen: list[float] = []
    logits = adversary.logits
    monkeypatch.setattr(adversary, "logits", lambda rows: seen.extend(rows[0, :, OBS].tolist()) or logits(rows))
    one_pass(adversary, model, rollout)
    assert sorted(seen) == list(range(HORIZON * ENVS))
    assert seen != sorted(seen)
    # Two networks of three policies: only the second's can be told apart, none is compared across networks.
    adversary, model = build(networks=2)
    layout = adversary.layout
    seen = torch.where(layout.policy_id < 3, 0, layout.policy_id)
    for seed in range(2):
        one_pass(adversary, model, random_rollout(seed, seen), seed)
    inputs = adversary.inputs(random_rollout(9, seen), model)
    hit = (adversary.logits(inputs).argmax(-1) == layout.policy_id % 3).float().mean(0)
    assert hit[ENVS // 2 :].mean() > 0.95
    assert hit[: ENVS // 2].mean() < 0.5
    reward, metrics = adversary(random_rollout(9, seen), model, torch.Generator().manual_seed(0))
    leaders = layout.policy_id % 3 == 0
    assert reward[:, leaders].eq(0).all()
    assert metrics["adversary/reward"].mean().item() == pytest.approx(reward[:, ~leaders].mean().item(), rel=1e-5)
