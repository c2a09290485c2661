"""Every task against the original's formulas, written anew from its fact sheet in float64: every term, flag and column.

States are those of random actions, with some environments put where goals are near, objects lifted or robots fallen.
What the tasks change on purpose (`docs/tasks/fidelity.md`) is written as they have it, and said beside the line.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from tasks.allegro_kuka.states import FAMILY, begun
from tasks.in_hand.states import ALLEGRO, SHADOW
from tasks.originals import franka, hands, kuka, locomotion
from tasks.originals.maths import Array
from tasks.originals.watch import Moment, state, watch

from echelon import tasks
from echelon.tasks.anymal.settings import AnymalConfig

CPU = torch.device("cpu")
NUM_ENVS, STEPS = 24, 60


def made(task: str, config: Any = None) -> Any:
    env = tasks.make(task, config or tasks.info(task).preset.env, NUM_ENVS, CPU, 0, spread_clocks=True)
    env.reset()
    return env


def compare(seen: Moment, parts: list[Array], terms: dict[str, Array], met: Counter[str]) -> None:
    """Columns, terms, their sum and flags of a step, where the simulation did not diverge."""
    whole = seen.log["quarantined"] == 0
    column = 0
    for number, part in enumerate(parts):
        found = seen.observed[:, column : column + part.shape[1]]
        np.testing.assert_allclose(found[whole], part[whole], rtol=2e-4, atol=2e-4, err_msg=f"part {number}")
        column += part.shape[1]
    assert column == seen.observed.shape[1]
    flags = {name.split(": ")[1]: value for name, value in terms.items() if ": " in name}
    paid = {name: value for name, value in terms.items() if ": " not in name}
    for name, value in paid.items():
        np.testing.assert_allclose(seen.log[f"reward/{name}"][whole], value[whole], rtol=1e-4, atol=2e-3, err_msg=name)
        met[name] += int((value != 0).sum())
    total = sum(paid.values())
    total = np.maximum(0.0, total) if "linear" in paid else total  # Anymal's is never negative
    np.testing.assert_allclose(seen.reward[whole], total[whole], rtol=1e-4, atol=2e-3)
    assert {name for name in seen.log if name.startswith("reward/")} == {f"reward/{name}" for name in paid}
    np.testing.assert_array_equal(seen.terminated[whole], flags["terminated"][whole])
    np.testing.assert_array_equal(seen.truncated[whole], flags["truncated"][whole])
    if "successes" in flags:
        np.testing.assert_array_equal(seen.log["episode/successes"][whole], flags["successes"][whole])
    elif "success" in flags:
        np.testing.assert_array_equal(seen.log["episode/successes"][whole], flags["success"][whole])
    if "fell" in flags:
        np.testing.assert_array_equal(seen.log["episode/fell"][whole], flags["fell"][whole])
    for name in ("terminated", "truncated", "success", "fell"):
        met[name] += int(flags.get(name, np.zeros(1)).sum())


@pytest.mark.parametrize("hand", [SHADOW, ALLEGRO], ids=lambda hand: hand.task)
def test_hands(hand: Any) -> None:
    env, met = hand.begun(NUM_ENVS), Counter()
    env.clock[:5] = 560
    for seen in watch(env, STEPS, hands.disturb):
        terms = hands.reward(hand, seen)
        compare(seen, hands.observation(hand, seen), terms, met)
    assert min(met[name] for name in ("success", "terminated")) > 10


@pytest.mark.parametrize("world_frame", [False, True])
def test_anymal(world_frame: bool) -> None:
    config = AnymalConfig(world_frame_gravity=world_frame)  # the original's is True
    env, met = made("Anymal", config), Counter()
    for seen in watch(env, STEPS, locomotion.disturb):
        terms = locomotion.anymal_reward(seen)
        compare(seen, locomotion.anymal_observation(seen, world_frame), terms, met)
    assert met["fell"] > 20


def test_humanoid() -> None:
    env, met = made("Humanoid"), Counter()
    original = locomotion.HumanoidOriginal(np.zeros((NUM_ENVS, 2)))

    def disturb(env: Any, generator: Any) -> None:
        locomotion.disturb(env, generator)
        original.before = env.engine.qpos[:, :2].numpy().copy()

    for seen in watch(env, STEPS, disturb):
        terms = original.reward(seen)
        compare(seen, original.observation(seen), terms, met)
    assert min(met[name] for name in ("terminated", "limits", "fall", "up")) > 20


@pytest.mark.parametrize(("task", "formula"), [("FrankaCubePush", franka.push), ("FrankaCubeStack", franka.stack)])
def test_franka(task: str, formula: Any) -> None:
    env, met = made(task), Counter()
    for seen in watch(env, STEPS, franka.disturb):
        terms = formula(seen)
        compare(seen, franka.observation(seen), terms, met)
        np.testing.assert_array_equal(seen.log["lifted"], franka.lifted(seen))
    assert min(met[name] for name in ("success", "truncated", "align")) > 3


@pytest.mark.parametrize("task", FAMILY)
def test_allegro_kuka(task: str) -> None:
    """Half of the episodes are nearly over, unless a success turns their clocks back; half were near their goal."""
    env, met = begun(task, NUM_ENVS), Counter()
    start = state(env, env.arms.target)
    original = kuka.KukaOriginal(task, env.scales.double().numpy(), env.config.tolerance, start)
    env.clock[::2] = env.episode_length - 12
    original.clock[::2] = env.episode_length - 12
    env.progress.near_steps[1::2] = original.near[1::2] = env.config.success_steps // 2
    for seen in watch(env, STEPS, kuka.disturb):
        parts = original.observation(seen)
        terms = original.reward(seen)
        compare(seen, parts, terms, met)
    wanted = ("success", "fell", "terminated", "truncated", "lift", "lift_bonus", "reach", "keypoint", "goal")
    assert min(met[name] for name in wanted) >= 1, met
