"""Runs that are killed, whose disk fails, whose folder is moved, or whose environment goes wrong, at any moment: they
end with one sentence at most, and the same command resumes to the end of an undisturbed run."""

import errno
import fcntl
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.attack import (
    LIVES,
    Child,
    Outcome,
    check_resumes,
    differences,
    repeat,
    run_config,
    train_disturbed,
    whole_run,
)

from echelon.algorithms import FROM_SCRATCH
from echelon.envs.contract import Step
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.training.loop import train


def kills(place: Path, tries: int, rng: random.Random) -> Outcome:
    """SIGKILL while a run starts, resumes, trains or saves, the algorithms in turn; a run that gets to its end is
    compared, and another begins."""
    outcome = Outcome()
    share = -(-tries // len(FROM_SCRATCH))
    for algo in rng.sample(list(FROM_SCRATCH), min(tries, len(FROM_SCRATCH))):
        whole = whole_run(place, algo, outcome)
        done, number = 0, 0
        while done < min(share, tries - outcome.tries + done):
            run = place / f"{algo}-{number}"
            number += 1
            done += _kill_until_its_end(run, algo, share - done, outcome, rng)
            found = differences(RunFolder.open(run), whole)
            outcome.check(not found, f"{algo} after {done} kills: {', '.join(found)}")
    return outcome


def _kill_until_its_end(run: Path, algo: str, most: int, outcome: Outcome, rng: random.Random) -> int:
    """Kill a run again and again until it ends by itself, or `most` kills are done; how many they were.

    A life is at most as long as an undisturbed run, so that it gets to its end after a few.
    """
    done = 0
    while True:
        child = Child(lambda: train(run_config(run, algo)))
        if done < most:
            time.sleep(rng.uniform(0, LIVES[algo]))
            child.kill()
        ended = child.wait()
        if ended.code == 0:
            return done
        done += 1
        outcome.tries += ended.code == -signal.SIGKILL
        outcome.check(ended.code == -signal.SIGKILL, f"{algo}: {ended.said}")
        if ended.code != -signal.SIGKILL:
            return done


ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EDQUOT)
SHUT_DOWN = 0x8004587D
"""ext4's ioctl: from now on everything fails."""
OPERATIONS = ((os, "fsync"), (os, "replace"), (os, "rename"), (Path, "mkdir"))
"""Operations of a disk: not `os.write`, which writes to pipes, too, as MuJoCo does when it is imported."""


@repeat
def disk(run: Path, algo: str, rng: random.Random, outcome: Outcome) -> None:
    """From some operation on, every one fails, for any of the reasons that a disk has."""
    why, after = rng.choice(ERRORS), rng.randrange(50)
    left = after

    def broken(operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(why, os.strerror(why))
            return operation(*given, **more)

        return wrapped

    def act() -> None:
        for owner, name in OPERATIONS:
            setattr(owner, name, broken(getattr(owner, name)))
        train(run_config(run, algo))

    ended, what = Child(act).wait(), f"{algo}, {os.strerror(why)} after {after} operations"
    outcome.check(ended.in_words, f"{what}: {ended.said}")
    check_resumes(run, algo, outcome, what, whole_run(run.parent, algo, outcome))


@repeat
def failing_disk(run: Path, algo: str, rng: random.Random, outcome: Outcome) -> None:
    """A real file system that becomes read-only, or fails altogether, at some control step; only root may mount one.
    What is lost is what was not synced."""
    image, when, way = run.with_suffix(".ext4"), rng.randrange(1, 56), ("read-only", "broken")[outcome.tries % 2]
    image.touch()
    os.truncate(image, 64 << 20)
    run.mkdir()

    def mount(*words: str) -> bool:
        return subprocess.run(["mount", *words], capture_output=True).returncode == 0

    try:
        made = subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True).returncode == 0
        if not made or not mount("-o", "loop,errors=remount-ro", str(image), str(run)):
            outcome.tries -= 1  # this was none
            print("a real disk needs root, loop devices and mkfs.ext4: not tried", file=sys.stderr)
            return

        def disturb(count: int, step: Step) -> Step:
            if count == when and way == "broken":
                folder = os.open(run, os.O_RDONLY)
                fcntl.ioctl(folder, SHUT_DOWN, struct.pack("I", 2))  # without writing the journal
            elif count == when:
                device = Path(f"/sys/dev/block/{os.major(run.stat().st_dev)}:{os.minor(run.stat().st_dev)}").resolve()
                Path(f"/sys/fs/ext4/{device.name}/trigger_fs_error").write_text("1")
            return step

        inside = run / "run"
        ended, what = train_disturbed(run_config(inside, algo), disturb), f"{algo}, disk {way} at step {when}"
        outcome.check(ended.code == 2 and ended.in_words, f"{what}: {ended.code} {ended.said}")
        subprocess.run(["umount", str(run)], check=True)
        outcome.check(mount("-o", "loop", str(image), str(run)), f"{what}: it cannot be mounted again")
        check_resumes(inside, algo, outcome, what, whole_run(run.parent, algo, outcome))
    finally:
        subprocess.run(["umount", str(run)], capture_output=True)
        image.unlink()


@repeat
def moved(run: Path, algo: str, rng: random.Random, outcome: Outcome) -> None:
    """The folder is renamed, deleted, or replaced by a copy at some control step; it is not made a second time."""
    way, when = ("moved", "deleted", "replaced")[outcome.tries % 3], rng.randrange(1, 56)
    elsewhere = run.with_name(f"{run.name}-elsewhere")

    def disturb(count: int, step: Step) -> Step:
        if count == when:
            run.rename(elsewhere)
            if way == "replaced":
                shutil.copytree(elsewhere, run)
            if way != "moved":
                shutil.rmtree(elsewhere)
        return step

    ended, what = train_disturbed(run_config(run, algo), disturb), f"{algo}, {way} at step {when}"
    sentence = (
        f"{run} was moved or deleted while it was trained, so the run stops; if it was moved, the same command with "
        "--out and its new place resumes it from its last checkpoint"
    )
    outcome.check(ended.code == 2 and sentence in ended.said, f"{what}: {ended.said}")
    outcome.check(run.exists() == (way == "replaced"), f"{what}: the folder was made again")
    if way != "deleted":
        kept = run if way == "replaced" else elsewhere
        check_resumes(kept, algo, outcome, what, whole_run(run.parent, algo, outcome))


VALUES = (math.nan, math.inf, -math.inf, 1e30, -3e38)
HARMS: dict[str, Callable[[Any], Any]] = {
    "[N, 1]": lambda x: x[:, :1] if x.dim() > 1 else x[:, None],
    "[1]": lambda x: x[:1],
    "[]": lambda x: x.flatten()[0],
    "float64": lambda x: x.double(),
    "int64": lambda x: x.long(),
    "numpy": lambda x: x.numpy(),
    "None": lambda x: None,
}


class Broken(Exception):
    """The environment's own error: this traceback is its author's."""


@repeat
def environments(run: Path, algo: str, rng: random.Random, outcome: Outcome) -> None:
    """Numbers that are none or absurd, wrong shapes and types, exceptions, in one environment or in all, at any step.
    Nothing spoiled is saved, and a run with a fixed environment resumes."""
    when, part = rng.randrange(1, 58), rng.choice(("obs", "reward", "terminated"))
    rows = rng.choice((slice(12), slice(4, 5)))
    kind = rng.choice((*VALUES, *HARMS, "exception"))

    def disturb(count: int, step: Step) -> Step:
        if count < when or (count > when and isinstance(kind, float)):
            return step
        if kind == "exception":
            raise Broken
        x: Any = step.obs["policy"] if part == "obs" else getattr(step, part)
        if isinstance(kind, str):
            x = HARMS[kind](x)
        elif part != "terminated":
            x = x.clone()
            x[rows] = kind
        if part == "obs":
            step.obs = {"policy": x}
        else:
            setattr(step, part, x)
        return step

    ended = train_disturbed(run_config(run, algo), disturb)
    what = f"{algo}: {part} of environments {rows.start} to {rows.stop} {kind} at step {when}"
    told = ended.in_words or (isinstance(kind, str) and ("Broken" in ended.said or "Error" in ended.said))
    outcome.check(told, f"{what}: {ended.said}")
    found = checkpoint.find(RunFolder.open(run), warn=lambda text: None)
    outcome.check(found is None or checkpoint.unsound(found.state) is None, f"{what}: it was saved")
    check_resumes(run, algo, outcome, what)
