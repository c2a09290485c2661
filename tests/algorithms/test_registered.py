"""An algorithm from outside the package: a borrowing, a reward and settings that no other has, on the same path."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from torch import Tensor

from echelon import cli
from echelon.algorithms import REGISTERED, register
from echelon.algorithms.algorithm import Algorithm
from echelon.algorithms.ppo import own_term
from echelon.config import TrainConfig
from echelon.envs.contract import Env
from echelon.evaluation.evaluate import evaluate
from echelon.learning.batch import Batch, total
from echelon.learning.losses import surrogate
from echelon.learning.objective import ActorLoss
from echelon.learning.plans import Group
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import Layout
from echelon.runs import checkpoint
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train
from echelon.training.trainer import Trainer

RING = Group("ring", lambda policies: [(k, (k + 1) % policies) for k in range(policies)] if policies > 1 else ())
"""Everybody also learns from the next policy's rows."""


class Novelty:
    """Pays a policy for actions far from the mean of all it has seen, which it remembers."""

    def __init__(self, env: Env, layout: Layout, config: TrainConfig) -> None:
        self.mean = torch.zeros(env.action_dim, device=layout.device)

    def __call__(
        self, rollout: Rollout, model: ActorCritic, generator: torch.Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        reward = 0.1 * (rollout.action - self.mean).square().mean(-1)
        self.mean.lerp_(rollout.action.mean((0, 1)), 0.1)
        return reward, {"novelty/reward": reward.mean()}

    def state_dict(self) -> dict[str, Tensor]:
        return {"mean": self.mean.clone()}

    def load_state_dict(self, state: Any) -> None:
        self.mean.copy_(state["mean"])


def actor_loss(batch: Batch, config: TrainConfig) -> ActorLoss:
    rows = batch.columns(RING.name)
    loss = surrogate(batch.log_ratio[..., rows], batch.advantage[..., rows], batch.setting("clip", rows))
    return ActorLoss({"own": own_term(batch, config), RING.name: 0.5 * total(loss)})


def clips(config: TrainConfig, layout: Layout) -> dict[str, Tensor]:
    return {"clip": torch.linspace(0.1, 0.3, layout.policies, dtype=torch.float64, device=layout.device)}


TOY = Algorithm(
    "ring", actor_loss, groups=lambda config: (RING,), policies=3, vectors=clips, extra_reward=Novelty, colour=6
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register(TOY)
    yield
    del REGISTERED[TOY.name]


def make_env(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    return DriftEnv(num_envs, seed=seed)


def toy(out: Path, lstm: int, iterations: int) -> TrainConfig:
    config = replace(small_config("ring", None, lstm, num_envs=24), task="Drift", envs_per_policy=(6, 10, 8))
    return replace(config, out=str(out), iterations=iterations, checkpoint_every=2, device="cpu")


@pytest.mark.parametrize("lstm", [0, 8])
def test_it_trains_resumes_to_the_bit_evaluates_and_reports(
    lstm: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = train(toy(tmp_path / "whole", lstm, 4), make_env=make_env)
    train(toy(tmp_path / "parts", lstm, 2), make_env=make_env)
    parts = train(toy(tmp_path / "parts", lstm, 4), make_env=make_env)
    states = [checkpoint.load(folder, "newest").state["trainer"] for folder in (whole, parts)]
    for name, tensor in states[0]["model"].items():
        assert tensor.equal(states[1]["model"][name]), name
    assert states[0]["extra_reward"]["mean"].equal(states[1]["extra_reward"]["mean"])
    assert states[0]["extra_reward"]["mean"].any()
    last = read_metrics(whole)[-1]
    # 3·12·24 rows: own, and everybody's once more under the policy before; so many minibatches of two passes.
    assert last["gradient_steps"] == 4 * 2 * 2
    assert {"loss/ring", "kl/ring", "clip_fraction/ring", "novelty/reward", "return/policy_2"} <= set(last)
    assert last["novelty/reward"] > 0
    scores = evaluate(whole, num_envs=4, make_env=make_env).scores
    assert sorted({score.policy for score in scores}) == [0, 1, 2]
    assert cli.main(["report", str(whole.path), str(parts.path), "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    assert "RING" in page
    assert json.loads((whole.path / "config.json").read_text())["colour"] == 6


def test_rows_are_its_own_and_the_next_ones_and_the_extra_reward_is_paid_on_its_own() -> None:
    """24 environments with 6, 10 and 8: the ring's columns are those of policies 1, 2, 0 under 0, 1, 2."""
    trainer = Trainer(DriftEnv(24), replace(toy(Path("unused"), 0, 1), out=None))
    per_minibatch = {name: columns.stop - columns.start for name, columns in trainer.plan.columns.items()}
    assert per_minibatch == {"own": 12 * 24 // 2, "ring": 12 * 24 // 2}
    learners = trainer.plan.policy_id[0, trainer.plan.columns["ring"]].bincount().tolist()
    assert learners == [12 * 10 // 2, 12 * 8 // 2, 12 * 6 // 2]
    clip = trainer.settings.at("clip", torch.tensor([0, 1, 2]), torch.float64)
    assert isinstance(clip, Tensor)
    assert clip.tolist() == pytest.approx([0.1, 0.2, 0.3])
    trainer.collector.reset()
    trainer.collector.collect()
    with_it = trainer._make_targets().targets
    trainer.extra_reward = None
    without = trainer._make_targets().targets
    changed = (with_it.returns - without.returns)[0, 0].abs() > 1e-7
    own = trainer.plan.sizes[0]
    assert changed[:own].all()
    assert not changed[own:].any()
