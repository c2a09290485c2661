"""TensorBoard and Weights & Biases show every iteration, resumed runs continue their curves, and their failures are
told and cost nothing else."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from echelon import errors
from echelon.commands.train import Train
from echelon.config import TrainConfig, checks as config_checks
from echelon.errors import UserError
from echelon.ranks import ALONE
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import RunWriter, read_metrics
from echelon.runs.trackers import WeightsAndBiases
from echelon.tasks import preset


@pytest.fixture
def offline(folder: RunFolder) -> RunFolder:
    pytest.importorskip("wandb", reason="needs pip install -e '.[wandb]'")
    return replace(folder, config=TrainConfig(wandb="offline", algo="sapg", seed=7))


def write(folder: RunFolder, completed: int, *iterations: int, tag: float = 1.0) -> None:
    with RunWriter(folder, completed) as writer:
        for iteration in iterations:
            line = {"iteration": iteration, "env_steps": 100 * iteration, "return/leader": tag * iteration}
            writer.write(line | {"kl/mean": math.nan if iteration % 2 else -math.inf})
            writer.send_film(iteration, 100 * iteration)


def scalars(folder: RunFolder) -> list[tuple[int, float]]:
    """What TensorBoard would draw."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["iteration", "env_steps", "return/leader"]  # what is not finite is left out
    return [(event.step, event.value) for event in events.Scalars("return/leader")]


def test_tensorboard_follows_env_steps_and_forgets_what_was_dropped(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 0, 1, 2, 3, 4)
    write(folder, 2, 3, tag=2.0)
    curve = [(100, 1.0), (200, 2.0), (300, 6.0)]
    assert scalars(folder) == curve
    monkeypatch.setattr("time.time", lambda: 1e9)  # a clock that goes back hides nothing
    write(folder, 3, 4, 5, tag=3.0)
    assert scalars(folder) == [*curve, (400, 12.0), (500, 15.0)]
    # The last event's error is told on closing, but hides no earlier one.
    closed, failed = RunWriter(folder), RunWriter(folder)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
    for log in (closed, failed):
        log.write({"iteration": 1})
    failed.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    with pytest.raises(UserError, match=r"events\.out\.tfevents\..* cannot be written: No space left"):
        closed.__exit__(None, None, None)


def test_an_offline_run_is_sent_every_iteration_and_continues_when_it_is_resumed(
    offline: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    sent: list[dict[str, float]] = []
    begun: list[dict[str, Any]] = []
    init = wandb.init

    def watched(**settings: Any) -> Any:
        begun.append(settings)
        run = init(**settings)
        log = run.log
        monkeypatch.setattr(run, "log", lambda line: (sent.append(line), log(line)))
        return run

    monkeypatch.setattr(wandb, "init", watched)
    write(offline, 0, 1, 2, 3, tag=2.5)
    (offline.path / "films").mkdir()
    for name in ("3.mp4", "4.mp4", "5.html"):
        (offline.path / "films" / f"iteration-00000{name}").write_text(f"<p>film {name}</p>")
    write(offline, 3, 4, 5)
    films = [line for line in sent if "film" in line]
    assert [line["env_steps"] for line in films] == [400, 500]
    kept = [file.read_text() for file in (offline.path / "wandb").glob("offline-run-*/files/media/*/film_*")]
    assert sorted("4.mp4" in text for text in kept) == [False, True]
    sent = [line for line in sent if "film" not in line]
    assert [(line["env_steps"], line["return/leader"]) for line in sent[:3]] == [(100, 2.5), (200, 5.0), (300, 7.5)]
    assert len(sent) == 5
    assert all("kl/mean" not in line for line in sent)
    first, second = begun
    assert first["id"] == second["id"] == (offline.path / "wandb" / "id").read_text()
    assert (first["config"]["algo"], first["config"]["seed"], first["mode"]) == ("sapg", 7, "offline")
    assert list((offline.path / "wandb").glob(f"offline-run-*/run-{first['id']}.wandb"))
    # The files that are always there are there too.
    assert [line["iteration"] for line in read_metrics(offline)] == [1, 2, 3, 4, 5]
    assert len(scalars(offline)) == 5


def test_a_file_in_its_place_is_one_sentence(offline: RunFolder) -> None:
    (offline.path / "wandb").write_text("")
    with pytest.raises(UserError, match=r"wandb/id cannot be written: .*; make room, then resume"):
        WeightsAndBiases(offline)


def test_it_is_off_unless_asked_for_and_without_the_package_the_extra_is_named(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, 0, 1)
    assert not (folder.path / "wandb").exists()
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    config_checks.check(TrainConfig())
    with pytest.raises(UserError, match=r"wandb, which is not installed; pip install -e '.\[wandb\]'"):
        config_checks.check(TrainConfig(wandb="offline"))


def test_a_service_that_does_not_start_is_one_sentence(offline: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**settings: object) -> None:
        assert settings["mode"] == "online"
        raise RuntimeError("api_key not configured (no-tty)\nmore")

    monkeypatch.setattr("wandb.init", refuse)
    online = replace(offline, config=replace(offline.config, wandb="online"))
    with pytest.raises(UserError, match=r"start \(api_key not configured \(no-tty\)\); log in with wandb login"):
        RunWriter(online)


def test_a_service_that_fails_later_is_left_out(folder: RunFolder) -> None:
    """One warning, then silence; the other writers continue."""

    log = WeightsAndBiases.__new__(WeightsAndBiases)
    log._run = service = Mock(**{"log.side_effect": ConnectionError("gone"), "finish.side_effect": ConnectionError})
    with RunWriter(folder) as writer:
        writer._wandb = log
        with pytest.warns(UserWarning, match="left out from here on: gone"):
            writer.write({"iteration": 1})
        writer.write({"iteration": 2})
    assert service.log.call_count == 1
    assert len(read_metrics(folder)) == 2


def test_a_stored_config_sends_nothing_out(tmp_path: Path) -> None:
    """Another user's run folder may say `wandb: online`; only this start's command line may."""
    pytest.importorskip("wandb", reason="needs pip install -e '.[wandb]'")
    path = tmp_path / "theirs"
    theirs = replace(preset("CartpoleSwingup"), wandb="online", policies=6, num_envs=24, out=str(path))
    RunFolder.create_or_resume(theirs)
    found = Train(resume=str(path)).settings(ALONE)
    assert found.config.wandb == "off"
    assert found.notes[-1].endswith("unless you add --wandb online")
    asked = Train(resume=str(path), train_flags=("--wandb", "offline")).settings(ALONE)
    assert asked.config.wandb == "offline"
