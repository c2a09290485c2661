"""Lost contacts and quarantined simulations are announced, with what helps, and not at every iteration."""

import dataclasses

import pytest

from echelon.config import EnsembleConfig, UpdateConfig
from echelon.tasks import preset
from echelon.training.trouble import TroubleWatch


def said(
    *metrics: dict[str, float], contacts: int | None = 20, last: bool = False, scope: str = "centred"
) -> list[str]:
    """What is said of these iterations' metrics, at 1,000 environment steps an iteration; `last` ends the run."""
    task, sentences = preset("Hopper"), []
    env = dataclasses.replace(task.env, contacts=contacts, constraints=contacts and 3 * contacts)
    watch = TroubleWatch(
        dataclasses.replace(
            task, num_envs=100, env=env, update=UpdateConfig(horizon=10), ensemble=EnsembleConfig(advantage_scope=scope)
        ),
        sentences.append,
    )
    for place, line in enumerate(metrics, start=1):
        watch.check({"iteration": place} | line, last=last and place == len(metrics))
    return sentences


@pytest.mark.parametrize(("lost", "warned"), [(0.0, False), (1.0, False), (2.0, True)])
def test_one_step_in_a_thousand_is_tolerated(lost: float, warned: bool) -> None:
    assert bool(said({"env/overflow": lost})) == warned


def test_the_warning_says_how_much_and_what_to_type() -> None:
    (text,) = said({"iteration": 7, "env/overflow": 25.0})
    assert text.startswith("WARNING: in 2.50 % of the environment steps of iteration 7")
    assert text.endswith("resume with --env.contacts 40 --env.constraints 120")
    # An environment without such settings gets no advice.
    assert said({"env/overflow": 25.0}, contacts=None)[0].endswith("physics is wrong there")


def test_it_is_repeated_but_not_at_every_iteration() -> None:
    assert len(said(*[{"env/overflow": 25.0}] * 101)) == 3  # iterations 1, 51, 101


def test_metrics_without_trouble_are_fine() -> None:
    assert not said({}, {"env/overflow": 0.0, "env/quarantined": 0.0})


def test_a_single_quarantined_simulation_is_told_of() -> None:
    (text,) = said({"iteration": 342, "env/quarantined": 1.0}, {"iteration": 343, "env/quarantined": 0.0})
    assert text.startswith("WARNING: in iteration 342, 1 simulation went wrong")


def test_those_of_the_silence_are_told_of_together_at_its_end() -> None:
    found = {1: 3.0, 2: 1.0, 40: 1300.0, 60: 7.0}
    texts = said(*[{"env/quarantined": found.get(iteration, 0.0)} for iteration in range(1, 200)])
    assert [text.partition(" went wrong")[0] for text in texts] == [
        "WARNING: in iteration 1, 3 simulations",
        "WARNING: in iterations 2 to 51, 1,301 simulations",
        "WARNING: in iterations 60 to 101, 7 simulations",
    ]


def test_the_last_iteration_ends_the_silence() -> None:
    lines = [{"env/quarantined": 1.0}, {"env/quarantined": 3.0}, {"env/quarantined": 0.0}]
    assert len(said(*lines)) == 1
    texts = said(*lines, last=True)
    assert len(texts) == 2
    assert texts[1].startswith("WARNING: in iterations 2 to 3, 3 simulations")
    assert len(said({"env/quarantined": 1.0}, {}, last=True)) == 1  # nothing was kept back


def test_one_warning_does_not_silence_the_other() -> None:
    lines = ({"env/overflow": 25.0}, {"env/quarantined": 1.0}, {"iteration": 51, "env/overflow": 25.0})
    assert ["did not fit" in text for text in said(*lines)] == [True, False, True]


def test_a_pull_that_is_turned_off_is_told_of() -> None:
    """E[exp(x)] is at least 1 if E[x] is 0."""
    assert not said({"pull/weight": 1.0}, {"pull/weight": 3.0})
    (text,) = said({"pull/weight": 0.07}, {"pull/weight": 0.09})
    assert "the pull's mean weight was 0.0700, which centred advantages cannot give" in text
    assert not said({"pull/weight": 0.07}, scope="global")  # the paper's presets: known, and in the pages


def test_a_leader_that_is_nothing_but_noise_is_told_of() -> None:
    assert not said({"sigma/policy_0": 1.5})
    (text,) = said({"sigma/policy_0": 2.0})
    assert "the leader's sigma has reached its bound of 2 (--model.max-sigma)" in text
