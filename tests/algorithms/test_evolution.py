"""The rules of evolution against numbers worked out by hand, and their course over a run."""

import math
import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from echelon.algorithms import PbtConfig
from echelon.algorithms.pbt import (
    BROKEN,
    Evolution,
    candidates,
    deviation,
    donors,
    group_size,
    mutate,
    ranked,
    worth_copying,
)

NAN = math.nan
CONFIG = PbtConfig()
SIX = [50.0, 10.0, 40.0, 30.0, 60.0, 20.0]


def drawing(*numbers: float):
    """A generator that was told what to draw; drawing more is a mistake."""
    queue = iter(numbers)
    return lambda: next(queue)


def test_members_rank_by_objective_the_unknown_and_then_the_broken_last() -> None:
    """The best are donors, if they are known. Groups are rounded up: 0.3 · 6 = 1.8 makes 2; 0.07 · 100 makes 7, though
    the float product lies above."""
    assert ranked(SIX) == [4, 0, 2, 3, 5, 1]
    objectives = [BROKEN, NAN, -5.0, 3.0, -1.0, math.inf]
    assert ranked(objectives) == [3, 4, 2, 1, 5, 0]
    assert donors(objectives, PbtConfig(best_fraction=1.0, worst_fraction=1.0)) == [3, 4, 2]
    assert donors(SIX, CONFIG) == [4, 0]
    assert donors([NAN, NAN, 1.0, NAN], CONFIG) == [2]
    assert ranked([NAN, -5.0, NAN, 2.0]) == [3, 1, 0, 2]
    assert ranked([1.0, 1.0, 1.0]) == [0, 1, 2]
    asked = [(0.3, 6), (0.3, 8), (0.125, 8), (0.3, 1), (0.3, 2), (0.3, 10), (0.07, 100), (1.0, 6)]
    assert [group_size(fraction, members) for fraction, members in asked] == [2, 3, 1, 1, 1, 3, 7, 6]


LATELY = [50.0, 49.9, 40.0, 30.0, 60.0, 20.0]


def test_who_may_be_replaced() -> None:
    """Objectives, the best since the last check (the same ones, unless given), the worst fraction, and who."""
    for objectives, lately, worst, expected in (
        (SIX, SIX, 0.3, [1, 5]),  # the top two are 60 and 50, so the bar is 50; both were never above 20
        (SIX, LATELY, 0.3, [1, 5]),
        (SIX, [50.0, 50.0, *LATELY[2:]], 0.3, [5]),  # lately as good as the lower of the donors
        # Unknown members occupy the last places and stay.
        ([50, NAN, 40, 30, 60, NAN], SIX, 0.3, []),
        ([50, NAN, 40, 30, 60, 20], SIX, 0.3, [5]),
        # Most members must be known: more than max(2, half of them), even if all could be replaced.
        ([9.0, 8.0, NAN, NAN, NAN, 1.0], None, 0.3, []),
        ([9.0, 8.0, NAN, NAN, NAN, 1.0], None, 1.0, []),
        ([9.0, 8.0, 2.0, NAN, NAN, 1.0], None, 1.0, [2, 5]),
        ([2.0, 1.0], None, 0.3, [1]),  # of two, both
        ([2.0, NAN], None, 0.3, []),
        ([3.0, 2.0, 1.0], None, 0.3, [2]),
        ([3.0, 2.0, NAN], None, 0.3, []),
        ([5.0], None, 0.3, []),  # alone: its own donor, and never below itself
        ([7.0] * 6, None, 0.3, []),
        ([BROKEN, -5.0, 3.0, -1.0, 2.0, 2.5], [BROKEN] * 6, 0.5, [1, 3]),  # who is broken was replaced before
    ):
        found = candidates(objectives, lately or objectives, PbtConfig(worst_fraction=worst))
        assert found == expected, (objectives, lately)


def test_a_donor_must_be_better_by_both_thresholds() -> None:
    """The deviation leaves the lowest fifth out. One of six is dropped: 20..60 by tens has mean 40 and variance
    (400+100+0+100+400)/5 = 200."""
    assert deviation(SIX) == pytest.approx(math.sqrt(200))
    # A fifth of four rounds down to none: mean 2.5, variance (2.25+0.25+0.25+2.25)/4 = 1.25. Unknown ones do not count.
    assert deviation([1.0, NAN, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(1.25))
    # Half the deviation of SIX is 7.07; a twentieth of a donor of 60 is 3, of one of 200 it is 10.
    assert worth_copying(52.0, 60.0, SIX, CONFIG)
    assert not worth_copying(53.0, 60.0, SIX, CONFIG)
    assert worth_copying(189.0, 200.0, SIX, CONFIG)
    assert not worth_copying(190.5, 200.0, SIX, CONFIG)
    # Negative objectives: the share is of the magnitude.
    assert worth_copying(-211.0, -200.0, SIX, CONFIG)
    assert not worth_copying(-209.0, -200.0, SIX, CONFIG)


def test_hyperparameters_are_multiplied_or_divided_one_by_one() -> None:
    """Draws: mutates (0.1 < 0.15), up (below 0.5) or down, and where the factor lies between 1.1 and the largest."""
    for name, value, up, share, expected in (
        ("critic_coef", 4.0, True, 0.25, 4.8),  # 1.1 + 0.4 · 0.25 = 1.2
        ("critic_coef", 4.0, False, 0.25, 4 / 1.2),
        ("env.distance_weight", -10.0, True, 0.25, -12.0),  # a negative reward scale keeps its sign
        ("grad_norm", 1.0, True, 0.0, 1.1),
        # The largest factor: 1.5, and 1.2 for the discount, whose 1 - γ grows. Then the limits.
        ("discount", 0.99, True, 1.0, 1 - 0.01 * 1.2),
        ("discount", 0.99, False, 1.0, 1 - 0.01 / 1.2),
        ("discount", 0.9, True, 0.0, 1 - 0.1 * 1.1),
        ("clip", 0.25, True, 1.0, 0.3),  # 0.25 · 1.5 = 0.375
        ("clip", 0.012, False, 1.0, 0.01),  # 0.012 / 1.5 = 0.008
        ("learning_rate", 9e-3, True, 1.0, 1e-2),
        ("learning_rate", 1.2e-6, False, 1.0, 1e-6),
        ("learning_rate", 0.0, True, 1.0, 1e-6),
        ("entropy_coef", 0.0, True, 1.0, 0.0),
        ("mini_epochs", 8.0, True, 1.0, 8.0),
        ("mini_epochs", 5.0, True, 1.0, 6.0),
        ("mini_epochs", 5.0, False, 1.0, 4.0),
        ("mini_epochs", 1.0, False, 1.0, 1.0),
    ):
        found = mutate({name: value}, drawing(0.1, 0.2 if up else 0.7, share), CONFIG)
        assert found[name] == pytest.approx(expected, rel=1e-12), (name, value)
    several = {"grad_norm": 1.0, "kl_threshold": 0.016, "bounds_coef": 1e-4}
    found = mutate(several, drawing(0.9, 0, 0, 0.5, 0.15), CONFIG)
    assert found == {"grad_norm": 1.0, "kl_threshold": pytest.approx(0.016 * 1.3), "bounds_coef": 1e-4}


SHORT = PbtConfig(interval=100, initial_delay=300, wait=250)
SETS = [{"clip": 0.2 + 0.01 * i, "grad_norm": 1.0} for i in range(6)]


def evolve(evolution: Evolution, steps: int, objectives: Iterable[float]):
    objectives = list(objectives)
    evolution.observe(objectives)
    return evolution.check(steps, objectives, SETS)


def test_checks_are_due_once_an_interval_and_no_member_is_replaced_before_the_initial_delay_or_soon_again() -> None:
    evolution = Evolution(6, SHORT, seed=0)
    assert [evolution.due(steps) for steps in (50, 99, 100, 150)] == [False, False, True, True]
    evolve(evolution, 110, SIX)
    assert [evolution.due(steps) for steps in (150, 199, 200)] == [False, False, True]
    evolution = Evolution(6, SHORT, seed=0)
    found = {steps: [t.member for t in evolve(evolution, steps, SIX)] for steps in range(100, 1000, 100)}
    assert found == {100: [], 200: [], 300: [1, 5], 400: [], 500: [], 600: [1, 5], 700: [], 800: [], 900: [1, 5]}
    # The best objective is that since the last check: member 1 was above 50 for a moment, and no longer.
    evolution = Evolution(6, SHORT, seed=0)
    evolution.observe([50, 55, 40, 30, 60, NAN])
    assert [[t.member for t in evolve(evolution, steps, SIX)] for steps in (300, 400)] == [[5], [1]]
    # A copy of another in the place of a broken member rests like any other that was replaced.
    evolution = Evolution(3, PbtConfig(mutation_probability=0.0), seed=0)
    (taken,) = evolution.replace_broken(700, [1.0, BROKEN, 2.0], [{"clip": 0.1}, {"clip": 0.2}, {"clip": 0.3}])
    assert (taken.member, taken.donor, taken.before, taken.after) == (1, 2, {"clip": 0.2}, {"clip": 0.3})
    assert evolution.left_alone_since == [0, 700, 0]


def test_takeovers_say_who_copied_whom_and_what_changed() -> None:
    """Over many checks: donors are the two best, alternately; weights come along because 10 and 20 are far below; the
    hyperparameters are the donor's about as often as the member's own; only the worst are touched."""
    config = PbtConfig(interval=1, initial_delay=0, wait=0, mutation_probability=0.0)
    evolution = Evolution(6, config, seed=0)
    takeovers = [t for steps in range(1, 201) for t in evolve(evolution, steps, SIX)]
    assert len(takeovers) == 400
    assert {t.member for t in takeovers} == {1, 5}
    assert all(t.copied and t.objective == SIX[t.member] and t.donor_objective == SIX[t.donor] for t in takeovers)
    assert all(t.before == SETS[t.member] and t.after == SETS[t.source] for t in takeovers)
    assert all(t.source in (t.donor, t.member) for t in takeovers)
    assert 160 <= sum(t.donor == 4 for t in takeovers) <= 240
    assert {t.donor for t in takeovers} == {0, 4}
    assert 160 <= sum(t.source == t.donor for t in takeovers) <= 240
    # All within 5 % of the best: a member near its donor keeps its weights and mutates its own hyperparameters.
    evolution = Evolution(6, replace(config, mutation_probability=1.0), seed=0)
    objectives = [100.0, 97.0, 99.0, 98.5, 99.5, 98.0]
    takeovers = [t for steps in range(1, 21) for t in evolve(evolution, steps, objectives)]
    assert {t.member for t in takeovers} == {1, 5}
    assert not any(t.copied for t in takeovers)
    assert all(t.source == t.member and t.after != t.before for t in takeovers)


def test_the_best_member_is_never_overwritten_and_the_start_mutates_each_apart() -> None:
    """Whatever the others do: random objectives, every fraction, checks at every step."""
    numbers = random.Random(0)
    for trial in range(200):
        members = numbers.randint(1, 9)
        config = PbtConfig(
            interval=1, initial_delay=0, wait=0, worst_fraction=numbers.random(), best_fraction=1 - numbers.random()
        )
        evolution = Evolution(members, config, seed=trial)
        for steps in range(1, 6):
            objectives = [numbers.choice([NAN, numbers.gauss(0, 1)]) for _ in range(members)]
            evolution.observe(objectives)
            taken = evolution.check(steps, objectives, [{"clip": 0.2}] * members)
            best = ranked(objectives)[0]
            assert best not in [t.member for t in taken]
            assert not {t.donor for t in taken} & {t.member for t in taken}
    config = PbtConfig(interval=1, initial_delay=0, wait=2)
    begun, same, other = (Evolution(6, config, seed).start([{"clip": 0.2, "discount": 0.99}] * 6) for seed in (3, 3, 4))
    assert 1 < len({tuple(values.items()) for values in begun}) <= 6
    assert begun == same != other
