"""What is asked after every iteration, and where a run may begin."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tiny import tiny
from training.test_loop import Remember

from echelon import RunFolder, Stop, UserError, cli, evaluate, evaluate_every, film_every, no_better_for, train, until
from echelon.commands.command import parse
from echelon.commands.train import Train
from echelon.config import ModelConfig
from echelon.runs import checkpoint
from echelon.runs.metrics import RunWriter, read_metrics
from echelon.tasks import preset
from echelon.training.callbacks import OCCASIONAL


def test_a_callback_sees_the_metrics_speaks_and_stops(tmp_path: Path) -> None:
    """The iteration it stops in is saved, and the run resumes from there."""
    seen, view = [], Remember()

    def ask(metrics):
        seen.append((metrics["iteration"], metrics["env_steps"]))
        return Stop("enough") if metrics["iteration"] == 3 else f"at {metrics['iteration']}"

    config = tiny("DeceptiveReach", tmp_path / "run", iterations=9, checkpoint_every=100)
    folder = train(config, view, callbacks=[ask])
    assert seen == [(1, 24), (2, 48), (3, 72)]
    assert [text for text in view.said if text.startswith("at ")] == ["at 1", "at 2"]
    assert "stopped after iteration 3: enough" in view.said
    assert checkpoint.saved_iterations(folder) == [3]
    lines = read_metrics(train(replace(config, iterations=4)))
    assert len(lines) == 4
    assert lines[0].keys() - lines[1].keys() == OCCASIONAL - {"evaluated/leader"}  # diagnostics: every tenth


def test_the_flags_until_and_evaluate_every(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"train DeceptiveReach --device cpu --num-envs 12 --policies 2 --out {tmp_path / 'run'}".split()
    assert cli.main([*words, "--iterations", "9", "--evaluate-every", "2", "--until", "env_steps>=500"]) == 0
    assert "stopped after iteration 3: env_steps is 576" in capsys.readouterr().out  # 12 · 16 each
    assert len((tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()) == 2
    assert cli.main([*words, "--until", "return/leadr>1"]) == 2
    assert "return/leadr is not a metric of this run; did you mean return/leader?" in capsys.readouterr().err


def test_conditions() -> None:
    """They stop at the last of these values. A metric of diagnostics is missing in most iterations; after the best, 3,
    two pass without a better one, and NaN is none."""
    nan = float("nan")
    cases = {"x>=2": [1.0, nan, 2.0], "x > 2": [2.0, 2.5], "x<0.5": [1.0, 0.5, 0.4], "x<=-1e-1": [0.0, -0.1]}
    for condition, values in cases.items():
        ask = until(condition)
        assert [ask({"x": value}) is None for value in values] == [True] * (len(values) - 1) + [False], condition
    ask, found = until("ess>=0.5"), ({"x": 1.0}, {"ess": 0.4}, {}, {"ess": 0.5})
    assert [ask(metrics) is not None for metrics in found] == [False, False, False, True]
    assert until("return>=5")({"return/leader": 6.0}) == Stop("return/leader is 6")
    ask = no_better_for(2, "x")
    answers = [ask({"x": value}) for value in (nan, nan, nan, 1.0, 3.0, nan, 2.0)]
    assert answers == [*[None] * 6, Stop("x has not risen above 3 for 2 iterations")]
    assert no_better_for(1, "evaluated/leader")({"x": 1.0}) is None  # before the first evaluation
    with pytest.raises(UserError, match="no_better_for: y is not a metric of this run"):
        no_better_for(1, "y")({"x": 1.0})


def test_a_warm_start_begins_with_the_networks_of_another_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--from` is short for it."""
    first = train(tiny("DeceptiveReach", tmp_path / "first", iterations=3))
    words = "--device cpu --num-envs 6 --policies 3 --iterations 2 --update.horizon 4 --update.minibatches 1 --seed 5 "
    words += "--model.hidden 8 --model.phi-dim 2 --update.mini-epochs 1 --update.learning-rate 1e-30 "
    words += f"--update.rate-schedule fixed --from {first.path} --out {tmp_path / 'second'}"
    assert cli.main(["train", "DeceptiveReach", *words.split()]) == 0
    assert f"started from the networks of {first.path} after iteration 3" in capsys.readouterr().out
    second = RunFolder.open(tmp_path / "second")
    states = [checkpoint.load(folder, "newest").state["trainer"]["model"] for folder in (first, second)]
    for name in ("mean_head.weight", "phi"):
        torch.testing.assert_close(states[1][name], states[0][name])
    counts = [state["obs_norm.policy.count"].item() for state in states]
    assert counts[1] > counts[0]  # the normaliser continues, too
    assert second.config.start_from == str(first.path)
    assert evaluate(second, 2, device="cpu").iteration == 2
    other = replace(second.config, out=str(tmp_path / "third"), model=ModelConfig(hidden=(9,), phi_dim=2))
    with pytest.raises(UserError, match="have other sizes, so they cannot be started from"):
        train(other)


def test_without_an_interval_evaluations_keep_to_their_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end always; before, where a checkpoint is saved and there is time: 1 % of this short run is not enough."""
    for name, share, iterations in (("little", 0.01, [3]), ("much", 1e9, [2, 3])):
        monkeypatch.setattr("echelon.training.loop.SHARE", share)
        config = tiny("DeceptiveReach", tmp_path / name, iterations=3, checkpoint_every=2)
        folder = train(config, callbacks=evaluate_every(num_envs=2))
        lines = (folder.path / "evaluations.jsonl").read_text().splitlines()
        assert [json.loads(line)["iteration"] for line in lines] == iterations


def test_a_run_on_cuda_is_evaluated_unasked() -> None:
    """A built-in task only: an environment from elsewhere may not be made twice in a process."""
    cases = [
        ("", "cpu", []),
        ("", "cuda", [None]),
        ("--evaluate-every 0", "cuda", []),
        ("--evaluate-every 7", "cpu", [7]),
    ]
    for words, device, found in cases:
        command = parse(Train, "train", ["Hopper", *words.split()])
        config = replace(preset("Hopper"), device=device)
        assert [one.every for one in command.callbacks(config)] == found
        foreign = replace(config, source="gymnasium:Hopper-v5")
        assert [one.every for one in command.callbacks(foreign)] == [every for every in found if every]


class Nosy:
    """Draws from every source of random numbers that others may share."""

    every = 2

    def on_checkpoint(self, folder: RunFolder, make_env: object) -> dict[str, float]:
        torch.rand(3), random.random(), np.random.rand()  # noqa: NPY002
        if len(read_metrics(folder)) == 4:
            raise UserError("nothing to see")
        return {"seen/leader": float(len(read_metrics(folder)))}


def test_looking_at_a_run_does_not_disturb_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and all random numbers are the same with an evaluation, a film's page and a nosy callback."""
    monkeypatch.setattr("echelon.viewing.video.is_installed", lambda name: False)  # drawing frames takes long
    monkeypatch.setattr(RunWriter, "send_film", sent := Mock())

    def trained(name: str, callbacks: list[Any]) -> tuple[RunFolder, tuple[float, ...]]:
        torch.manual_seed(5)
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        config = tiny("Hopper", tmp_path / name, iterations=5, checkpoint_every=100, env={"episode_length": 12})
        folder = train(config, view, callbacks=callbacks)
        return folder, (torch.rand(1).item(), random.random(), np.random.rand())  # noqa: NPY002

    view = Remember()
    plain, numbers = trained("plain", [])
    watched, same = trained("watched", [evaluate_every(2, num_envs=4), film_every(4), Nosy()])
    assert same == numbers
    expected, found = (checkpoint.load(run, "newest").state["trainer"] for run in (plain, watched))
    for name, x in expected["model"].items():
        assert found["model"][name].equal(x), name
    assert found["generator"].equal(expected["generator"])
    lines = [json.loads(line) for line in (watched.path / "evaluations.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [2, 4, 5]
    assert json.loads(watched.evaluation.read_text()) == lines[-1]
    assert [call.args for call in sent.call_args_list] == [(2, 48), (4, 96), (5, 120)]  # 24 steps an iteration
    films = sorted(file.name for file in (watched.path / "films").iterdir())
    assert films == ["iteration-000004.html", "iteration-000005.html"]
    metrics = read_metrics(watched)
    assert [line.get("seen/leader") for line in metrics] == [None, None, 2.0, 2.0, 2.0]
    scores = {(score["policy"], score["mode"]): score["return_mean"] for score in lines[1]["scores"]}
    assert metrics[4]["evaluated/leader"] == pytest.approx(scores[0, "deterministic"])
    assert [text for text in view.said if "Nosy" in text] == [
        "WARNING: Nosy failed, and training continues: nothing to see"
    ]
