"""Rates, kernels and growth: of the algorithm that was asked for, a population too."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from echelon.errors import UserError
from echelon.presets import preset
from echelon.training.population_trainer import PopulationTrainer

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def rates() -> Any:
    return import_module("rates")


@pytest.mark.parametrize("script", ["rates", "kernels", "growth", "precision"])
def test_an_unknown_algorithm_is_refused(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["--task"] if script == "precision" else []
    monkeypatch.setattr("sys.argv", [script, *task, "CartpoleSwingup", "--device", "cpu", "--algo", "foo"])
    with pytest.raises(SystemExit) as stopped:
        import_module(script).main()
    assert stopped.value.code == 2
    assert "'foo' (choose from" in capsys.readouterr().err


def test_a_population_is_measured_as_one(rates: Any) -> None:
    prepared = rates.prepare(rates.settings("CartpoleSwingup", "pbt", 12, "on"), CPU)
    assert isinstance(prepared.trainer, PopulationTrainer)
    found = rates.measure(prepared, seconds=0.05, iterations=1)
    assert (found["algo"], found["adversary"]) == ("pbt", False)
    assert found["training"] > 0
    assert "ms_update" in found
    assert not any("roofline" in name for name in found)  # it counts one network that all policies share


def test_environments_that_members_cannot_share_equally_are_refused(rates: Any) -> None:
    with pytest.raises(UserError, match="--num-envs 13 does not divide between the 6 members"):
        rates.prepare(rates.settings("CartpoleSwingup", "pbt", 13, None), CPU)


def test_growth_takes_the_nearest_size_that_members_share_equally() -> None:
    config = replace(preset("CartpoleSwingup"), algo="pbt")
    assert import_module("growth").nearest_fit(config, 13) == 12


def test_kernels_are_those_of_the_population(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, trainers, profiled = import_module("kernels"), [], []
    prepare = kernels.prepare

    def prepared(*args: Any) -> Any:
        found = prepare(*args)
        trainers.append(found.trainer)
        return found

    monkeypatch.setattr(kernels, "prepare", prepared)
    monkeypatch.setattr(kernels, "kernels", lambda run, device: profiled.append(run) or [])  # the profiler is slow
    words = ["--algo", "pbt", "--num-envs", "12", "--device", "cpu", "--iterations", "1"]
    monkeypatch.setattr("sys.argv", ["kernels.py", "CartpoleSwingup", *words])
    kernels.main()
    (trainer,) = trainers
    assert isinstance(trainer, PopulationTrainer)
    assert profiled == [trainer._collect, trainer._prepare, trainer._learn]
