"""The loop on a run folder: every iteration once, whether it was stopped by a kill, by Ctrl-C or not at all."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rollout.stub_env import DriftEnv
from tiny import differing, timeless

from echelon.algorithms import complete
from echelon.config import DiagnosticsConfig, ModelConfig, NoiseConfig, TrainConfig, UpdateConfig
from echelon.console.view import NullView
from echelon.errors import UserError
from echelon.report.reading import read_run
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import DISTANCES, read_lines, read_metrics
from echelon.training import loop
from echelon.training.loop import train
from echelon.training.trainer import Iteration, Trainer


def tiny(out: Path, iterations: int) -> TrainConfig:
    """A run of an environment of our own, which has no preset."""
    config = TrainConfig(task="Drift", algo="cpo", policies=3, num_envs=6, iterations=iterations, device="cpu")
    update, diagnostics = UpdateConfig(horizon=4, mini_epochs=1), DiagnosticsConfig(every=2, states=8)
    config = replace(config, model=ModelConfig(hidden=(8,), phi_dim=2), update=update, diagnostics=diagnostics)
    return replace(config, out=str(out), checkpoint_every=2, keep_checkpoints=5)


def drift(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    return DriftEnv(num_envs, seed=seed)


class Remember(NullView):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.began: int | None = None

    def start(self, config: TrainConfig, folder: RunFolder, total_iterations: int, first_iteration: int) -> None:
        self.began = first_iteration

    def message(self, text: str) -> None:
        self.said.append(text)


def iterations_of(folder: RunFolder) -> list[float]:
    return [line["iteration"] for line in read_metrics(folder)]


def state_of(folder: RunFolder) -> dict[str, Any]:
    return checkpoint.load(folder, "newest").state["trainer"]


def refused(config: TrainConfig, make_env: Any = drift, **given: Any) -> str:
    with pytest.raises(UserError) as caught:
        train(config, make_env=make_env, **given)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_longer_run_resumes_and_ends_where_an_unbroken_one_does(tmp_path: Path) -> None:
    """Also after a kill that lost the last checkpoint, whose iteration is done again and logged once. A finished run is
    left alone, but for what a killed save left in it; one beyond what is asked for is refused."""
    whole = train(tiny(tmp_path / "whole", 5), make_env=drift)
    train(tiny(tmp_path / "parts", 3), make_env=drift)
    shutil.rmtree(tmp_path / "parts" / "checkpoints" / "00000003")
    view = Remember()
    parts = train(tiny(tmp_path / "parts", 5), view, drift)
    assert view.began == 2
    assert any("resumed" in text and "2" in text for text in view.said)
    assert iterations_of(parts) == iterations_of(whole) == [1, 2, 3, 4, 5]
    assert differing(state_of(parts), state_of(whole)) == []
    assert str(timeless(parts.path)) == str(timeless(whole.path))  # NaN is not equal to itself
    for folder in (parts, whole):
        assert [line["iteration"] for line in read_lines(folder.path / DISTANCES)] == [1, 3, 5]
    lines = read_metrics(parts)
    assert [line["env_steps"] for line in lines] == [24, 48, 72, 96, 120]
    clock = [line["wall_s"] for line in lines]
    assert clock == sorted(clock)  # continues where the first part stopped

    assert checkpoint.saved_iterations(whole) == [2, 4, 5]
    (whole.checkpoints / ".removing-00000001").mkdir()
    text = whole.metrics.read_text()
    view = Remember()
    train(tiny(whole.path, 5), view, drift)
    assert view.said[-1] == f"finished already: all 5 iterations are done, in {whole.path}"
    assert [path.name for path in whole.checkpoints.iterdir() if path.name.startswith(".")] == []
    assert "is at iteration 5 already, beyond the 4 that were asked for" in refused(tiny(whole.path, 4))
    assert whole.metrics.read_text() == text


def test_a_changed_rate_holds_from_the_checkpoint_on_and_is_written_down(tmp_path: Path) -> None:
    """Also if the run is killed before it saves again: it comes back to the old rate's checkpoint."""
    config = tiny(tmp_path / "run", 3)
    folder = train(replace(config, update=replace(config.update, rate_schedule="fixed")), make_env=drift)
    rate = replace(config.update, rate_schedule="fixed", learning_rate=1e-5, clip=0.1)
    longer = replace(config, iterations=5, update=rate)
    with pytest.raises(UserError, match=r"update.clip is .* resumes with the new value"):
        train(longer, make_env=drift)
    RunFolder.create_or_resume(complete(longer), change=True)  # and no further
    view = Remember()
    train(longer, view, drift)
    assert read_metrics(folder)[-1]["lr"] == pytest.approx(1e-5)
    assert "changed: update.clip 0.2 to 0.1 after iteration 3" in view.said
    assert read_run(folder.path).notes == [
        "changed while it was trained: update.clip 0.2 to 0.1 after iteration 3",
        "changed while it was trained: update.learning_rate 0.0005 to 1e-05 after iteration 3",
    ]
    view = Remember()
    train(replace(longer, iterations=6), view, drift)
    assert not [text for text in view.said if text.startswith("changed")]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_new_target_of_the_noise_holds_from_the_first_rollout_on(tmp_path: Path, resumed: bool) -> None:
    """If sigma fell from 1 to 0.2 within the update, its second pass would be ln 5 + 0.02 - 0.5 = 1.13 per action from
    the first. At this rate nothing else moves."""
    config = replace(tiny(tmp_path / "run", 2), algo="ppo", policies=1)
    slow = replace(config.update, mini_epochs=2, minibatches=1, learning_rate=1e-9, rate_schedule="fixed")
    config = replace(config, update=slow)
    train(config, make_env=drift)
    other = {"iterations": 3} if resumed else {"start_from": config.out, "out": str(tmp_path / "next")}
    noise = NoiseConfig(sigma=0.2, anneal=1 if resumed else 0)  # over long before
    config = replace(config, noise=noise, **other)
    lines = read_metrics(train(config, make_env=drift, change=resumed))
    line = lines[2 if resumed else 0]
    assert line["sigma/policy_0"] == pytest.approx(0.2)
    assert line["kl/own"] == pytest.approx(0.0, abs=1e-3)


def test_learning_that_diverged_stops_and_saves_no_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(tmp_path / "diverged", 9)
    config = replace(config, update=replace(config.update, learning_rate=1e6, rate_schedule="fixed"))
    with pytest.raises(UserError, match=r"learning diverged in iteration \d+: loss/\w+ is not finite"):
        train(config, make_env=drift)
    found = checkpoint.find(RunFolder.open(config.out or ""))
    assert found is None or all(x.isfinite().all() for x in found.state["trainer"]["model"].values())
    # Another kind of device is refused; `auto` is another one on another machine.
    found = checkpoint.load(train(tiny(tmp_path / "run", 2), make_env=drift), "newest")
    assert found.state["device"] == "cpu"
    found.state["device"] = "cuda"
    monkeypatch.setattr(checkpoint, "find", lambda *_: found)
    sentence = refused(tiny(tmp_path / "run", 3))
    assert "was trained on cuda and cannot continue on cpu; use --device cuda" in sentence


def test_a_checkpoint_is_saved_every_few_minutes_at_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations take two minutes each; the third is the first that ends five minutes or more after the start."""
    now, iterate = [0.0], Trainer.iterate_each

    def slowly(trainer: Trainer) -> list[Iteration]:
        now[0] += 120
        return iterate(trainer)

    monkeypatch.setattr(Trainer, "iterate_each", slowly)
    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    for minutes, saved in ((5.0, [3, 6, 7]), (0.0, [7])):
        config = replace(tiny(tmp_path / f"{minutes}", 7), checkpoint_every=1000, checkpoint_minutes=minutes)
        assert checkpoint.saved_iterations(train(config, make_env=drift)) == saved
