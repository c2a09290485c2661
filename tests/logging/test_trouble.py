"""Lost contacts and quarantined simulations are announced, with what helps, and not at every iteration."""

import dataclasses

import pytest

from echelon.config import TrainConfig, UpdateConfig
from echelon.logging.trouble import TroubleWatch
from echelon.presets import preset


def watch(config: TrainConfig) -> tuple[TroubleWatch, list[str]]:
    said: list[str] = []
    return TroubleWatch(config, said.append), said


def config(contacts: int | None = 20) -> TrainConfig:
    """1,000 environment steps an iteration."""
    task = preset("Hopper")
    env = dataclasses.replace(task.env, contacts=contacts, constraints=contacts and 3 * contacts)
    return dataclasses.replace(task, num_envs=100, env=env, update=UpdateConfig(horizon=10))


@pytest.mark.parametrize(("lost", "warned"), [(0.0, False), (1.0, False), (2.0, True)])
def test_one_step_in_a_thousand_is_tolerated(lost: float, warned: bool) -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 1, "env/overflow": lost})
    assert bool(said) == warned


def test_the_warning_says_how_much_and_what_to_type() -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 7, "env/overflow": 25.0})
    (text,) = said
    assert text.startswith("WARNING: in 2.50 % of the environment steps of iteration 7")
    assert text.endswith("resume with --env.contacts 40 --env.constraints 120")


def test_an_environment_without_such_settings_gets_no_advice() -> None:
    trouble, said = watch(config(contacts=None))
    trouble.look({"iteration": 1, "env/overflow": 25.0})
    assert said[0].endswith("physics is wrong there")


def test_it_is_repeated_but_not_at_every_iteration() -> None:
    trouble, said = watch(config())
    for iteration in range(1, 102):
        trouble.look({"iteration": iteration, "env/overflow": 25.0})
    assert len(said) == 3  # iterations 1, 51, 101


def test_metrics_without_trouble_are_fine() -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 1})
    trouble.look({"iteration": 2, "env/overflow": 0.0, "env/quarantined": 0.0})
    assert not said


def test_a_single_quarantined_simulation_is_told_of() -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 342, "env/quarantined": 1.0})
    trouble.look({"iteration": 343, "env/quarantined": 0.0})
    (text,) = said
    assert text.startswith("WARNING: in iteration 342, 1 simulation went wrong")


def test_those_of_the_silence_are_told_of_together_at_its_end() -> None:
    trouble, said = watch(config())
    found = {1: 3.0, 2: 1.0, 40: 1300.0, 60: 7.0}
    for iteration in range(1, 200):
        trouble.look({"iteration": iteration, "env/quarantined": found.get(iteration, 0.0)})
    beginnings = [text.partition(" went wrong")[0] for text in said]
    assert beginnings == [
        "WARNING: in iteration 1, 3 simulations",
        "WARNING: in iterations 2 to 51, 1,301 simulations",
        "WARNING: in iterations 60 to 101, 7 simulations",
    ]


def test_the_last_iteration_ends_the_silence() -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 1, "env/quarantined": 1.0})
    trouble.look({"iteration": 2, "env/quarantined": 3.0})
    assert len(said) == 1
    trouble.look({"iteration": 3, "env/quarantined": 0.0}, last=True)
    assert said[1].startswith("WARNING: in iterations 2 to 3, 3 simulations")
    trouble.look({"iteration": 4}, last=True)
    assert len(said) == 2


def test_one_warning_does_not_silence_the_other() -> None:
    trouble, said = watch(config())
    trouble.look({"iteration": 1, "env/overflow": 25.0})
    trouble.look({"iteration": 2, "env/quarantined": 1.0})
    trouble.look({"iteration": 51, "env/overflow": 25.0})
    assert ["did not fit" in text for text in said] == [True, False, True]
