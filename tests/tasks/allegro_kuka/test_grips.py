"""Training episodes that begin with the object in the hand."""

from dataclasses import replace

import pytest
import torch
from tasks.allegro_kuka.states import REGRASPING, THROW, TWO_ARMS
from tasks.states import begun, put_object

from echelon.tasks import make, preset
from echelon.tasks.allegro_kuka import grips
from echelon.tasks.allegro_kuka.task import AllegroKuka

CPU = torch.device("cpu")


def made(task: str, *, share: float = 1.0, training: bool = True) -> AllegroKuka:
    env = begun(task, 24, gripped_starts=share, force_scale=0.0, spread_clocks=training)
    env.clock.zero_()
    return env


def keep_still(env: AllegroKuka, fingers: torch.Tensor) -> torch.Tensor:
    """The action that leaves the arms where they are and sends the fingers to `fingers [N, 23 A]`."""
    action = 2.0 * (fingers - env.arms.low) / (env.arms.high - env.arms.low) - 1.0
    return torch.where(env.arms._relative, torch.zeros_like(action), action)


@pytest.mark.parametrize("task", [REGRASPING, TWO_ARMS])
def test_a_scripted_grasp_holds_until_the_hand_opens(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grips, "ATTEMPTS", 3)
    env = made(task)
    gripped = env.kept["gripped"].clone()
    assert gripped.sum() >= 8  # of 24; by 8 attempts three of four environments find one
    assert env.held()[gripped].all()
    assert env.progress.lifted.equal(gripped)
    closed = env.arms.target.clone()
    for _ in range(30):
        step = env.step(keep_still(env, closed))
    assert (env.held() & gripped).sum() >= 0.9 * gripped.sum()
    assert not step.log["reward/lift_bonus"].any()  # what the script has lifted earns nothing
    opened = closed.clone()
    opened[:, torch.arange(23 * env.arms.count) % 23 >= 7] = env.arms.low.min()
    dropped = torch.zeros_like(gripped)
    for _ in range(60):
        step = env.step(keep_still(env, opened))
        dropped |= step.terminated
    assert (dropped & gripped).sum() >= 0.6 * gripped.sum()  # the episode ends with the drop; some lie on the hand
    still = env.kept["gripped"] & gripped & ~dropped
    assert (env.engine.qpos[still, 2] > grips.DROPPED_HEIGHT).all()


def test_what_is_thrown_into_a_low_bucket_was_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 0.3 m, 0.7 m aside, it is as low as no object on the table, which ends 0.2375 m aside at a height of 0.53."""
    monkeypatch.setattr(grips, "ATTEMPTS", 1)
    env = made(THROW)
    env.kept["gripped"].fill_(True)
    aside = torch.arange(24) % 2 == 0
    put_object(env, torch.where(aside[:, None], torch.tensor([0.7, 0.0, 0.3]), torch.tensor([0.2, 0.0, 0.6])))
    assert env.step(torch.zeros(24, 23)).terminated.equal(~aside)


def test_each_seeds_grasps_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an odd number of environments, too: both arms take turns in those of each seed."""
    monkeypatch.setattr(grips, "ATTEMPTS", 1)
    config = replace(preset(TWO_ARMS).env, gripped_starts=1.0)
    both, alone = (make(TWO_ARMS, config, *how, spread_clocks=True) for how in ((6, CPU, (4, 5)), (3, CPU, 5)))
    assert both.kept["grip_qpos"][3:].equal(alone.kept["grip_qpos"])


def test_a_share_of_the_episodes_and_the_state_survives_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grips, "ATTEMPTS", 2)
    env = made(REGRASPING, share=0.5)
    monkeypatch.setattr(grips, "ATTEMPTS", 1)
    other = made(REGRASPING, share=0.5)
    known, share = env.kept["grip_known"].sum(), 0.0
    for _ in range(40):
        env.reset()
        share += float(env.kept["gripped"].sum() / known / 40)
    assert share == pytest.approx(0.5, abs=0.1)
    other.load_state_dict(env.state_dict())
    noise = torch.randn(24, env.action_dim, generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        ours, theirs = env.step(noise), other.step(noise)
    assert torch.equal(ours.obs["policy"], theirs.obs["policy"])
    scored = made(REGRASPING, training=False)  # by the task's own starts
    assert scored.grips is None
    assert not scored.held().any()
