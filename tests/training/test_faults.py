"""What goes wrong around a run costs nothing that was learned, and is told: lost checkpoints, moved folders, bad
numbers and wrong shapes from an environment, signals, a closed pipe."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rollout.stub_env import DriftEnv
from torch import Tensor
from training.test_loop import Remember, drift, iterations_of, state_of, tiny

from echelon.config import TrainConfig
from echelon.console.view import PlainView, Preempted
from echelon.envs.contract import Groups, Step
from echelon.errors import UserError
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.training.loop import train
from echelon.training.run import CHECK_EVERY


def refused(config: TrainConfig, make_env: Any = drift) -> str:
    with pytest.raises(UserError) as caught:
        train(config, make_env=make_env)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_metrics_are_not_overwritten_where_checkpoints_are_gone(tmp_path: Path) -> None:
    folder = train(tiny(tmp_path / "run", 3), make_env=drift)
    shutil.rmtree(folder.checkpoints)
    before = folder.metrics.read_bytes(), (folder.path / "diagnostics" / "kl.jsonl").read_bytes()
    assert refused(tiny(tmp_path / "run", 4)) == (
        f"{folder.path} has logged iterations but no checkpoint is left, and training again would overwrite them; "
        "put its checkpoints back, or choose another folder with --out"
    )
    assert (folder.metrics.read_bytes(), (folder.path / "diagnostics" / "kl.jsonl").read_bytes()) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_over(tmp_path: Path) -> None:
    folder = RunFolder.create_or_resume(tiny(tmp_path / "run", 3))
    folder.metrics.write_text('{"iteration": 1}\n')
    assert iterations_of(train(tiny(tmp_path / "run", 3), make_env=drift)) == [1, 2, 3]


class Happening(DriftEnv):
    """Something happens at a step."""

    def __init__(self, num_envs: int, seed: int, happens: dict[int, Callable[[Step], None]]) -> None:
        super().__init__(num_envs, seed=seed)
        self.happens, self.steps = happens, 0

    def step(self, action: Tensor) -> Step:
        step = super().step(action.nan_to_num())
        self.steps += 1
        self.happens.get(self.steps, lambda step: None)(step)
        return step


def at(step: int, what: Callable[[Step], None]) -> Any:
    """An environment to which it happens; a rollout has four steps."""
    return lambda num_envs, device, seed: Happening(num_envs, seed, {step: what})


@pytest.mark.parametrize("way", ["moved", "deleted", "replaced"])
def test_a_folder_that_is_not_ours_any_more_is_not_made_anew(tmp_path: Path, way: str) -> None:
    """The run stops; where the folder was moved, it resumes as if nothing had happened."""
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def act(step: Step) -> None:
        run.rename(elsewhere)
        if way == "deleted":
            shutil.rmtree(elsewhere)
        if way == "replaced":
            shutil.copytree(elsewhere, run)

    whole = train(tiny(tmp_path / "whole", 6), make_env=drift)
    sentence = refused(tiny(run, 6), at(18, act))  # in the fifth iteration, after the checkpoint of the fourth
    assert sentence == (
        f"{run} was moved or deleted while it was trained, so the run stops; if it was moved, "
        "the same command with --out and its new place resumes it from its last checkpoint"
    )
    assert run.exists() == (way == "replaced")
    if way == "moved":
        folder = train(tiny(elsewhere, 6), make_env=drift)
        assert iterations_of(folder) == [1, 2, 3, 4, 5, 6]
        for name, x in state_of(whole)["model"].items():
            assert state_of(folder)["model"][name].equal(x), name


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM", "SIGUSR1"])
def test_a_signal_saves_the_iteration_and_the_same_command_resumes(tmp_path: Path, name: str) -> None:
    """A cluster sends the last two, and is asked to start the run again."""
    config = replace(tiny(tmp_path / "run", 6), checkpoint_every=100)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(config, make_env=at(10, lambda step: os.kill(os.getpid(), getattr(signal, name))))
    assert isinstance(caught.value, Preempted) == (name in ("SIGTERM", "SIGUSR1"))
    folder = RunFolder.open(tmp_path / "run")
    assert (checkpoint.saved_iterations(folder), iterations_of(folder)) == ([3], [1, 2, 3])
    assert iterations_of(train(config, make_env=drift)) == [1, 2, 3, 4, 5, 6]


def put(part: str, value: float) -> Callable[[Step], None]:
    def act(step: Step) -> None:
        x = step.obs["policy"] if part == "observation policy" else step.reward
        x[3] = value

    return act


@pytest.mark.parametrize("part", ["observation policy", "reward"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_number_that_is_none_stops_the_run_before_it_is_saved(tmp_path: Path, part: str, value: float) -> None:
    """In the sixth iteration, which is saved; the message names the environment's fault, and resuming goes on from a
    checkpoint that is sound."""
    sentence = refused(tiny(tmp_path / "run", 9), at(22, put(part, value)))
    place = " (number 0)" if "policy" in part else ""
    assert sentence.startswith(f"the environment's {part}{place} is {value:g} in environment 3, seen in iteration 6: ")
    assert sentence.endswith("fix the environment and rerun the command to resume")
    view = Remember()
    folder = train(tiny(tmp_path / "run", 9), view, drift)
    assert view.began == 4
    assert iterations_of(folder) == list(range(1, 10))
    assert all(x.isfinite().all() for x in state_of(folder)["model"].values())


def test_the_last_observation_of_a_rollout_counts_as_well(tmp_path: Path) -> None:
    """It is learned from in the next iteration only, and saved with this one."""
    sentence = refused(tiny(tmp_path / "run", 9), at(24, put("observation policy", float("inf"))))
    assert "is inf in environment 3, seen in iteration 6" in sentence
    assert iterations_of(train(tiny(tmp_path / "run", 9), make_env=drift)) == list(range(1, 10))


def test_a_huge_number_long_ago_is_seen_in_the_statistics(tmp_path: Path) -> None:
    """In an iteration that nobody looks at; the next checkpoint is not saved."""
    sentence = refused(tiny(tmp_path / "run", 9), at(18, put("observation policy", 1e30)))
    assert sentence.startswith("the environment gave an observation policy that is not finite, or larger than 1e10")
    found = checkpoint.find(RunFolder.open(tmp_path / "run"))
    assert found is not None
    assert found.iteration == 4


def test_magnitudes_are_looked_at_now_and_then(tmp_path: Path) -> None:
    config = replace(tiny(tmp_path / "run", 2 * CHECK_EVERY), checkpoint_every=1000)
    sentence = refused(config, at(4 * CHECK_EVERY - 1, put("reward", 1e30)))
    assert f"is 1e+30 in environment 3, seen in iteration {CHECK_EVERY}" in sentence


def test_a_spoiled_checkpoint_of_an_older_version_is_passed_over(tmp_path: Path) -> None:
    folder = train(tiny(tmp_path / "run", 4), make_env=drift)
    found = checkpoint.find(folder)
    assert found is not None
    found.state["trainer"]["model"]["obs_norm.policy.mean"][0, 1] = float("inf")
    checkpoint.save(folder, 4, found.state)
    view = Remember()
    train(tiny(tmp_path / "run", 5), view, drift)
    assert view.began == 2
    assert "model/obs_norm.policy.mean is not finite" in view.said[0]


class Shaped(DriftEnv):
    """Returns what somebody made of it."""

    def __init__(self, num_envs: int, change: Callable[[Step], None], resets: Callable[[Groups], Groups]) -> None:
        super().__init__(num_envs)
        self.change, self.resets = change, resets

    def reset(self) -> Groups:
        return self.resets(super().reset())

    def step(self, action: Tensor) -> Step:
        step = super().step(action)
        self.change(step)
        return step


def changed(**parts: Callable[[Any], Any]) -> Callable[[Step], None]:
    def change(step: Step) -> None:
        for name, act in parts.items():
            setattr(step, name, act(getattr(step, name)))

    return change


def of_policy(act: Callable[[Tensor], Any]) -> Callable[[Groups], dict[str, Any]]:
    return lambda obs: {name: act(x) for name, x in obs.items()}


WRONG = {
    "observation policy must have the shape [6, 4], not [6, 1]": changed(obs=of_policy(lambda x: x[:, :1])),
    "observation policy must have the shape [6, 4], not [1, 4]": changed(obs=of_policy(lambda x: x[:1])),
    "observation policy must be floating point, not int64": changed(obs=of_policy(lambda x: x.long())),
    "observation policy must be a torch tensor, not ndarray": changed(obs=of_policy(lambda x: x.numpy())),
    "observation policy must be on cpu, where it says it is, not on meta": changed(
        obs=of_policy(lambda x: x.to("meta"))
    ),
    "observation lacks the group policy, which its obs_spec names": changed(obs=lambda obs: {}),
    "observation must be a dict of groups such as policy, not Tensor": changed(obs=lambda obs: obs["policy"]),
    "final_obs policy must have the shape [6, 4], not [4]": changed(final_obs=of_policy(lambda x: x[0])),
    "reward must have the shape [6], not [1]": changed(reward=lambda x: x[:1]),
    "reward must have the shape [6], not [6, 1]": changed(reward=lambda x: x[:, None]),
    "terminated must have the shape [6], not [1]": changed(terminated=lambda x: x[:1]),
    "terminated must be bool, not float32": changed(terminated=lambda x: x.float()),
    "truncated must have the shape [6], not []": changed(truncated=lambda x: x[0]),
    "log height must have the shape [6], not [3]": changed(log=lambda log: log | {"height": log["height"][:3]}),
}


def test_a_step_or_reset_of_another_shape_or_type_is_refused(tmp_path: Path) -> None:
    for number, (sentence, change) in enumerate(WRONG.items()):
        env = Shaped(6, change, lambda obs: obs)
        assert refused(tiny(tmp_path / f"run-{number}", 2), lambda *_, env=env: env) == f"the environment's {sentence}"
    env = Shaped(6, lambda step: None, of_policy(lambda x: x[:1]))
    assert "observation policy must have the shape [6, 4], not [1, 4]" in refused(
        tiny(tmp_path / "reset", 2), lambda *_: env
    )


def test_metrics_that_are_missing_are_told(tmp_path: Path) -> None:
    folder = train(tiny(tmp_path / "run", 4), make_env=drift)
    folder.metrics.write_bytes(b"".join(folder.metrics.read_bytes().splitlines(keepends=True)[:2]))
    view = Remember()
    train(tiny(tmp_path / "run", 5), view, drift)
    assert any("metrics.jsonl lacks iterations 3 to 4" in text for text in view.said)
    assert iterations_of(folder) == [1, 2, 5]


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


def test_what_a_kill_left_half_written_is_cleaned_up(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", 2), make_env=drift)
    left = [tmp_path / "run" / ".metrics.jsonl.123.tmp", tmp_path / "run" / "diagnostics" / ".kl.jsonl.9.tmp"]
    other = tmp_path / "run" / ".evaluation.json.7.tmp"  # of an evaluation that may be running
    for path in (*left, other):
        path.write_text("half")
    train(tiny(tmp_path / "run", 3), make_env=drift)
    assert not any(path.exists() for path in left)
    assert other.exists()


COMMAND = [sys.executable, "-m", "echelon.cli", "train", "CartpoleSwingup", "--algo", "ppo", "--num-envs", "12"]
COMMAND += ["--model.hidden", "8", "--device", "cpu", "--iterations", "100000", "--checkpoint-every", "100000", "--out"]


def start(out: Path, **streams: Any) -> "subprocess.Popen[bytes]":
    """A run that has done some iterations."""
    child = subprocess.Popen([*COMMAND, str(out)], env=os.environ | {"OMP_NUM_THREADS": "1"}, **streams)
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").read_text().count("\n") < 3:
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return child


def saved(out: Path) -> bool:
    """Whether the last iteration that was logged is saved."""
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return (out / "checkpoints" / f"{json.loads(lines[-1])['iteration']:08d}").is_dir()


def test_a_closed_pipe_saves(tmp_path: Path) -> None:
    """As of `echelon train ... | head`."""
    child = start(tmp_path / "run", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    child.wait(60)
    assert saved(tmp_path / "run")
    assert child.stderr is not None
    assert b"Traceback" not in child.stderr.read()


def test_a_folder_in_the_place_of_metrics_is_told_of(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The view cannot read it either, and must not take that for a closed terminal, after which nothing is said."""
    out = tmp_path / "run"
    train(tiny(out, 2), make_env=drift)
    (out / "metrics.jsonl").unlink()
    (out / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read: Is a directory; move it away"):
        train(tiny(out, 3), view=PlainView(), make_env=drift)
    assert "iterations 2 to 3" in capfd.readouterr().out


def test_five_interrupts_end_without_a_traceback(tmp_path: Path) -> None:
    child = start(tmp_path / "run", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for _ in range(5):
        child.send_signal(signal.SIGINT)
        time.sleep(0.003)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130
    assert b"Traceback" not in errors


def test_a_finished_run_removes_what_a_killed_save_left(tmp_path: Path) -> None:
    folder = train(tiny(tmp_path / "run", 2), make_env=drift)
    (folder.checkpoints / ".removing-00000001").mkdir()
    train(tiny(tmp_path / "run", 2), make_env=drift)
    assert [path.name for path in folder.checkpoints.iterdir() if path.name.startswith(".")] == []
