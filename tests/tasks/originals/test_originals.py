"""Every task against the original's formulas, rewritten from its fact sheet in float64: every term, flag and column.

States are those of random actions, with some environments put where goals are near, objects lifted or robots fallen.
What the tasks change on purpose (`docs/tasks/fidelity.md`) is written as they have it, and said beside the line.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tasks.allegro_kuka.states import FAMILY
from tasks.in_hand.states import ALLEGRO, SHADOW
from tasks.originals import franka, hands, kuka, locomotion
from tasks.originals.watch import Array, Moment, state, watch
from tasks.states import begun

NUM_ENVS = 24
Original = Callable[[Moment], tuple[list[Array], dict[str, Array]]]
"""The parts of the observation, and the terms of the reward with flags among them."""


def compare(env: Any, original: Original, disturb: Any, *wanted: str, least: int, steps: int = 60) -> None:
    """Columns, terms, their sum and flags of all steps, where the simulation did not diverge. Each of `wanted` is met
    more than `least` times."""
    met: Counter[str] = Counter()
    for seen in watch(env, steps, disturb):
        parts, terms = original(seen)
        whole, column = seen.log["quarantined"] == 0, 0
        for number, part in enumerate(parts):
            found = seen.observed[:, column : column + part.shape[1]]
            np.testing.assert_allclose(found[whole], part[whole], rtol=2e-4, atol=2e-4, err_msg=f"part {number}")
            column += part.shape[1]
        assert column == seen.observed.shape[1]
        flags = {name.split(": ")[1]: value for name, value in terms.items() if ": " in name}
        paid = {name: value for name, value in terms.items() if ": " not in name}
        assert {name for name in seen.log if name.startswith("reward/")} == {f"reward/{name}" for name in paid}
        for name, value in paid.items():
            found = seen.log[f"reward/{name}"]
            np.testing.assert_allclose(found[whole], value[whole], rtol=1e-4, atol=2e-3, err_msg=name)
        total = sum(paid.values())
        total = np.maximum(0.0, total) if "linear" in paid else total  # Anymal's is never negative
        np.testing.assert_allclose(seen.reward[whole], total[whole], rtol=1e-4, atol=2e-3)
        found = seen.log | {"terminated": seen.terminated, "truncated": seen.truncated}
        logged = {"success": "episode/successes", "successes": "episode/successes", "fell": "episode/fell"}
        for name, value in flags.items():
            if name != "success" or "successes" not in flags:
                np.testing.assert_array_equal(found[logged.get(name, name)][whole], value[whole], err_msg=name)
        met.update({name: int((value != 0).sum()) for name, value in (paid | flags).items()})
    assert min(met[name] for name in wanted) > least, met


@pytest.mark.parametrize("hand", [SHADOW, ALLEGRO], ids=lambda hand: hand.task)
def test_hands(hand: Any) -> None:
    env = begun(hand.task, NUM_ENVS)
    env.clock[:5] = 560
    compare(env, lambda seen: hands.original(hand, seen), hands.disturb, "success", "terminated", least=10)


@pytest.mark.parametrize("world_frame", [False, True])
def test_anymal(world_frame: bool) -> None:
    env = begun("Anymal", NUM_ENVS, world_frame_gravity=world_frame, spread_clocks=True)  # the original's is True
    compare(env, lambda seen: locomotion.anymal(seen, world_frame), locomotion.disturb, "fell", least=20)


def test_humanoid() -> None:
    original = locomotion.HumanoidOriginal(np.zeros((NUM_ENVS, 2)))

    def disturb(env: Any, generator: Any) -> None:
        locomotion.disturb(env, generator)
        original.before = env.engine.qpos[:, :2].numpy().copy()

    env = begun("Humanoid", NUM_ENVS, spread_clocks=True)
    compare(env, original, disturb, "terminated", "limits", "fall", "up", least=20)


@pytest.mark.parametrize(("task", "formula"), [("FrankaCubePush", franka.push), ("FrankaCubeStack", franka.stack)])
def test_franka(task: str, formula: Any) -> None:
    def original(seen: Moment) -> Any:
        np.testing.assert_array_equal(seen.log["lifted"], franka.lifted(seen))
        return franka.observation(seen), formula(seen)

    env = begun(task, NUM_ENVS, spread_clocks=True)
    compare(env, original, franka.disturb, "success", "truncated", "align", least=3)


@pytest.mark.parametrize("task", FAMILY)
def test_allegro_kuka(task: str) -> None:
    """Half of the episodes are nearly over, unless a success turns their clocks back; half were near their goal."""
    env = begun(task, NUM_ENVS)
    start = state(env, env.arms.target)
    original = kuka.KukaOriginal(task, env.scales.double().numpy(), env.config.tolerance, start)
    env.clock[::2] = env.episode_length - 12
    original.clock[::2] = env.episode_length - 12
    env.progress.near_steps[1::2] = original.near[1::2] = env.config.success_steps // 2
    wanted = ("success", "fell", "terminated", "truncated", "lift", "lift_bonus", "reach", "keypoint", "goal")
    compare(env, original, kuka.disturb, *wanted, least=0, steps=40)
