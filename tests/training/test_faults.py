"""What goes wrong around a run costs nothing that was learned, and is told: lost checkpoints, moved folders, bad
numbers and wrong shapes from an environment, signals, a closed pipe."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollout.stub_env import DriftEnv
from tiny import PATIENCE, disturbed
from torch import Tensor
from training.test_loop import Remember, drift, iterations_of, refused, state_of, tiny

from echelon.console.view import PlainView, Preempted
from echelon.envs.contract import Groups, Step
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.training.loop import train
from echelon.training.run import CHECK_EVERY


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four iterations, to be copied."""
    return train(tiny(tmp_path_factory.mktemp("four") / "run", 4), make_env=drift).path


@pytest.fixture
def folder(four: Path, tmp_path: Path) -> RunFolder:
    """A copy of it, to be harmed."""
    return RunFolder.open(shutil.copytree(four, tmp_path / "run", ignore=lambda *_: [".lock"]))


def test_a_run_without_a_valid_checkpoint_is_not_started_over(folder: RunFolder) -> None:
    """Nor is what it logged overwritten. One that was killed before its first checkpoint starts over."""
    logged = [folder.metrics, folder.path / "diagnostics" / "kl.jsonl"]
    before = [file.read_bytes() for file in logged]
    for tensors in folder.checkpoints.glob("*/tensors.safetensors"):
        tensors.write_bytes(b"")
    damaged = f"every checkpoint of {folder.path} is damaged; restore one"
    assert refused(tiny(folder.path, 5)).startswith(damaged)
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match=damaged):
        checkpoint.load(folder, "newest")
    shutil.rmtree(folder.checkpoints)
    assert refused(tiny(folder.path, 5)) == (
        f"{folder.path} has logged iterations but no checkpoint is left, and training again would overwrite them; "
        "put its checkpoints back, or choose another folder with --out"
    )
    assert [file.read_bytes() for file in logged] == before
    config = tiny(folder.path.with_name("killed"), 3)
    RunFolder.create_or_resume(config).metrics.write_text('{"iteration": 1}\n')
    assert iterations_of(train(config, make_env=drift)) == [1, 2, 3]


class Patient(DriftEnv):
    """Takes any action."""

    def step(self, action: Tensor) -> Step:
        return super().step(action.nan_to_num())


def at(number: int, what: Callable[[Step], None]) -> Any:
    """An environment to which it happens in one step; a rollout has four."""
    return lambda num_envs, device, seed: disturbed(
        Patient(num_envs, seed=seed), lambda count, step: what(step) if count == number else None
    )


@pytest.fixture
def hang_up_heard() -> Iterator[None]:
    """Whoever starts the tests under nohup has it ignored, and a run keeps it so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hang_up_heard")
def test_a_signal_saves_the_iteration_and_the_same_command_resumes(tmp_path: Path) -> None:
    """A cluster sends the last two, and is asked to start the run again."""
    config = replace(tiny(tmp_path / "run", 6), checkpoint_every=100)
    for number, name in enumerate(("SIGINT", "SIGHUP", "SIGTERM", "SIGUSR1"), start=1):
        with pytest.raises(KeyboardInterrupt) as caught:
            train(config, make_env=at(2, lambda step, name=name: os.kill(os.getpid(), getattr(signal, name))))
        assert isinstance(caught.value, Preempted) == (name in ("SIGTERM", "SIGUSR1"))
        folder = RunFolder.open(tmp_path / "run")
        assert checkpoint.saved_iterations(folder)[-1] == number
        assert iterations_of(folder) == list(range(1, number + 1))
    assert iterations_of(train(config, make_env=drift)) == [1, 2, 3, 4, 5, 6]


def put(part: str, value: float) -> Callable[[Step], None]:
    def act(step: Step) -> None:
        x = step.obs["policy"] if part == "observation policy" else step.reward
        x[3] = value

    return act


@pytest.mark.parametrize(("part", "value"), [("observation policy", float("nan")), ("reward", float("inf"))])
def test_a_number_that_is_none_stops_the_run_before_it_is_saved(tmp_path: Path, part: str, value: float) -> None:
    """The fault is in the sixth iteration, which is saved; the message names it as the environment's, and resuming
    starts from a sound checkpoint."""
    sentence = refused(tiny(tmp_path / "run", 9), at(22, put(part, value)))
    place = " (number 0)" if "policy" in part else ""
    assert sentence.startswith(f"the environment's {part}{place} is {value:g} in environment 3, seen in iteration 6: ")
    assert sentence.endswith("fix the environment and rerun the command to resume")
    view = Remember()
    folder = train(tiny(tmp_path / "run", 9), view, drift)
    assert view.began == 4
    assert iterations_of(folder) == list(range(1, 10))
    assert all(x.isfinite().all() for x in state_of(folder)["model"].values())


def test_bad_numbers_that_no_iteration_learned_from_are_found(tmp_path: Path) -> None:
    """The last observation of a rollout is learned from in the next iteration only, and saved with this one. One of an
    iteration that is not saved is seen in the statistics at the next checkpoint. Between checkpoints, magnitudes are
    checked now and then."""
    nan, huge = put("observation policy", float("nan")), put("observation policy", 1e30)
    assert "is nan in environment 3, seen in iteration 6" in refused(tiny(tmp_path / "last", 9), at(24, nan))
    assert iterations_of(train(tiny(tmp_path / "last", 9), make_env=drift)) == list(range(1, 10))
    sentence = refused(tiny(tmp_path / "run", 9), at(18, huge))
    assert sentence.startswith("the environment gave an observation policy that is not finite, or larger than 1e10")
    assert checkpoint.saved_iterations(RunFolder.open(tmp_path / "run")) == [2, 4]
    config = replace(tiny(tmp_path / "seldom", 2 * CHECK_EVERY), checkpoint_every=1000)
    sentence = refused(config, at(4 * CHECK_EVERY - 1, put("reward", 1e30)))
    assert f"is 1e+30 in environment 3, seen in iteration {CHECK_EVERY}" in sentence


def test_what_is_wrong_with_a_folder_is_told_or_cleaned_up(folder: RunFolder) -> None:
    """A checkpoint with numbers that are not finite is skipped; missing metrics are reported; files that a kill left
    half-written are removed, but not those of an evaluation that may be running."""
    found = checkpoint.load(folder, "newest")
    found.state["trainer"]["model"]["obs_norm.policy.mean"][0, 1] = float("inf")
    checkpoint.save(folder, 4, found.state)
    folder.metrics.write_bytes(folder.metrics.read_bytes().splitlines(keepends=True)[0])
    left = [folder.path / ".metrics.jsonl.123.tmp", folder.path / "diagnostics" / ".kl.jsonl.9.tmp"]
    for path in (*left, other := folder.path / ".evaluation.json.7.tmp"):
        path.write_text("half")
    view = Remember()
    train(tiny(folder.path, 5), view, drift)
    assert view.began == 2
    assert "model/obs_norm.policy.mean is not finite" in view.said[0]
    assert any("metrics.jsonl lacks iterations 2 to 2" in text for text in view.said)
    assert iterations_of(folder) == [1, 3, 4, 5]
    assert [path.exists() for path in (*left, other)] == [False, False, True]


def test_a_folder_in_the_place_of_metrics_is_told_of(folder: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    """The view cannot read it either, and must not take that for a closed terminal, after which nothing is said."""
    folder.metrics.unlink()
    folder.metrics.mkdir()
    sentence = refused(tiny(folder.path, 5), view=PlainView())
    assert "metrics.jsonl cannot be read: metrics.jsonl is not a file; move it away" in sentence
    assert "iterations 4 to 5" in capfd.readouterr().out


def changed(**parts: Callable[[Any], Any]) -> Callable[[Step], None]:
    def change(step: Step) -> None:
        for name, act in parts.items():
            setattr(step, name, act(getattr(step, name)))

    return change


def of_policy(act: Callable[[Tensor], Any]) -> Callable[[Groups], dict[str, Any]]:
    return lambda obs: {name: act(x) for name, x in obs.items()}


WRONG = {
    "observation policy must have the shape [6, 4], not [6, 1]": changed(obs=of_policy(lambda x: x[:, :1])),
    "observation policy must be floating point, not int64": changed(obs=of_policy(lambda x: x.long())),
    "observation policy must be a torch tensor, not ndarray": changed(obs=of_policy(lambda x: x.numpy())),
    "reward must be on cpu, where it says it is, not on meta": changed(reward=lambda x: x.to("meta")),
    "observation lacks the group policy, which its obs_spec names": changed(obs=lambda obs: {}),
    "observation must be a dict of groups such as policy, not Tensor": changed(obs=lambda obs: obs["policy"]),
    "final_obs policy must have the shape [6, 4], not [4]": changed(final_obs=of_policy(lambda x: x[0])),
    "reward must have the shape [6], not [6, 1]": changed(reward=lambda x: x[:, None]),
    "terminated must be bool, not float32": changed(terminated=lambda x: x.float()),
    "truncated must have the shape [6], not []": changed(truncated=lambda x: x[0]),
    "log height must have the shape [6], not [3]": changed(log=lambda log: log | {"height": log["height"][:3]}),
}


def test_a_step_or_reset_of_another_shape_or_type_is_refused(tmp_path: Path) -> None:
    for number, (sentence, change) in enumerate(WRONG.items()):
        assert refused(tiny(tmp_path / f"run-{number}", 2), at(1, change)) == f"the environment's {sentence}"
    cut = type("Cut", (DriftEnv,), {"reset": lambda self: of_policy(lambda x: x[:1])(DriftEnv.reset(self))})
    sentence = refused(tiny(tmp_path / "reset", 2), lambda num_envs, *_: cut(num_envs))
    assert "observation policy must have the shape [6, 4], not [1, 4]" in sentence


def test_metrics_are_on_the_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync, save = os.fsync, checkpoint.save

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def saves(*given: Any) -> Path:
        synced.append("save")
        return save(*given)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(checkpoint, "save", saves)
    train(tiny(tmp_path / "run", 2), make_env=drift)
    place = synced.index("save")
    assert {"metrics.jsonl", "kl.jsonl"} <= set(synced[:place])


def test_a_closed_pipe_saves_and_five_interrupts_leave_no_traceback(tmp_path: Path) -> None:
    """As of `echelon train ... | head`, and of a person in a hurry."""
    words = ["train", "CartpoleSwingup", "--algo", "ppo", "--num-envs", "12", "--model.hidden", "8", "--device", "cpu"]
    words += ["--iterations", "100000", "--checkpoint-every", "100000", "--out"]
    runs = [tmp_path / "pipe", tmp_path / "interrupts"]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "echelon.cli", *words, str(run)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for run in runs
    ]
    deadline = time.monotonic() + PATIENCE
    while not all((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size for run in runs):
        assert [child.poll() for child in children] == [None, None]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    closed, interrupted = children
    assert closed.stdout is not None
    closed.stdout.close()
    closed.stdout = None
    for _ in range(5):
        interrupted.send_signal(signal.SIGINT)
        time.sleep(0.003)
    for child in children:
        assert b"Traceback" not in child.communicate(timeout=PATIENCE)[1]
    assert interrupted.returncode == 130
    last = json.loads((runs[0] / "metrics.jsonl").read_text().splitlines()[-1])
    assert (runs[0] / "checkpoints" / f"{last['iteration']:08d}").is_dir()
