"""Lost contacts, quarantined simulations and bad settings are announced with what helps, not at every iteration."""

import dataclasses

from echelon.config import EnsembleConfig, UpdateConfig
from echelon.tasks import preset
from echelon.training.run import TroubleWatch


def said(
    *metrics: dict[str, float], contacts: int | None = 20, last: bool = False, scope: str = "centred"
) -> list[str]:
    """What is said of these iterations' metrics, at 1,000 environment steps an iteration; `last` ends the run."""
    task, sentences = preset("Hopper"), []
    env = dataclasses.replace(task.env, contacts=contacts, constraints=contacts and 3 * contacts)
    ensemble = EnsembleConfig(advantage_scope=scope)
    config = dataclasses.replace(task, num_envs=100, env=env, update=UpdateConfig(horizon=10), ensemble=ensemble)
    watch = TroubleWatch(config, sentences.append, lambda kind: f", the furthest of {kind} in environment 5")
    for place, line in enumerate(metrics, start=1):
        watch.check({"iteration": place, "lr": 1e-3} | line, last=last and place == len(metrics))
    return sentences


def test_lost_contacts_are_told_with_what_to_type() -> None:
    """One step in a thousand is tolerated. An environment without such settings gets no advice."""
    assert not said({}, {"env/overflow": 0.0, "env/quarantined": 0.0}, {"env/overflow": 1.0})
    assert said({"env/overflow": 2.0})
    (text,) = said({"iteration": 7, "env/overflow": 25.0})
    assert text.startswith("WARNING: in 2.50 % of the environment steps of iteration 7")
    assert text.endswith("resume with --env.contacts 40 --env.constraints 120")
    assert said({"env/overflow": 25.0}, contacts=None)[0].endswith("physics is wrong there")
    assert len(said(*[{"env/overflow": 25.0}] * 101)) == 3  # iterations 1, 51, 101


def test_quarantines_of_the_silence_are_told_together_at_its_end() -> None:
    (text,) = said({"iteration": 342, "env/quarantined": 1.0}, {"iteration": 343, "env/quarantined": 0.0})
    assert text.startswith("WARNING: in iteration 342, 1 simulation went wrong")
    found = {1: 3.0, 2: 1.0, 40: 1300.0, 60: 7.0}
    texts = said(*[{"env/quarantined": found.get(iteration, 0.0)} for iteration in range(1, 200)])
    assert [text.partition(" went wrong")[0] for text in texts] == [
        "WARNING: in iteration 1, 3 simulations",
        "WARNING: in iterations 2 to 51, 1,301 simulations",
        "WARNING: in iterations 60 to 101, 7 simulations",
    ]
    lines = [{"env/quarantined": 1.0}, {"env/quarantined": 3.0}, {"env/quarantined": 0.0}]
    assert len(said(*lines)) == 1
    assert said(*lines, last=True)[1].startswith("WARNING: in iterations 2 to 3, 3 simulations")
    assert len(said({"env/quarantined": 1.0}, {}, last=True)) == 1  # nothing was kept back
    # One warning does not silence the other.
    lines = ({"env/overflow": 25.0}, {"env/quarantined": 1.0}, {"iteration": 51, "env/overflow": 25.0})
    assert ["did not fit" in text for text in said(*lines)] == [True, False, True]


def test_settings_that_do_not_work_are_told() -> None:
    """A pull that is turned off (E[exp(x)] is at least 1 if E[x] is 0), and a leader that is nothing but noise."""
    assert not said({"pull/weight": 1.0}, {"pull/weight": 3.0}, {"sigma/policy_0": 1.5})
    (text,) = said({"pull/weight": 0.07}, {"pull/weight": 0.09})
    assert "the pull's mean weight was 0.0700, which centred advantages cannot give" in text
    assert not said({"pull/weight": 0.07}, scope="global")  # the paper's presets: known, and in the pages
    (text,) = said({"sigma/policy_0": 2.0})
    assert "the leader's sigma has reached its bound of 2 (--model.max-sigma)" in text
    # A rate that stays at its bound is explained.
    apart = {"lr": 1e-6, "kl/rate": 0.4, "kl/own": 4e-6}
    assert not said(*[apart] * 99, {}, *[apart] * 99)
    (text,) = said(*[apart] * 100)
    assert text.startswith("WARNING: the learning rate has been at its bound of 1e-06 for 100 iterations")
    assert text.endswith("--update.kl-rows own does not")
    (text,) = said(*[apart | {"kl/own": 0.4}] * 100)
    assert "raise --update.kl-threshold" in text
    (text,) = said(*[{"lr": 1e-2, "kl/rate": 1e-3, "kl/own": 1e-3}] * 100)
    assert "widen --update.clip" in text
    # Rows beyond the limit are told once, with their place.
    (text,) = said({"clipped/observations": 0.0}, *[{"clipped/observations": 1.0}] * 120)
    assert text.startswith("WARNING: in iteration 2, 1 of the observations lay over 100 deviations away, the furthest")
    assert "in environment 5" in text
    assert len(said({"clipped/observations": 1.0, "clipped/returns": 2.0})) == 2
