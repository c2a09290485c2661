"""Run folders that a stranger made: every damage of the table, read by every command that would meet it. Each answers
with a sentence or with what it can still show, in 5 seconds of a processor and 1 GB, and writes nothing elsewhere."""

import base64
import json
import os
import random
import resource
import shutil
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from chaos.attack import Child, Outcome, run_config
from chaos.checkpoints import craft, forge

from echelon import cli
from echelon.training.loop import train

SECONDS, MEMORY = 5.0, 1 << 30
CONFIG, METRICS, EVALUATION, REPLAY = "config.json", "metrics.jsonl", "evaluation.json", "replay/replay.json"
ROBUSTNESS, PRUNED = "robustness.json", "pruned.txt"
KL, GENEALOGY = "diagnostics/kl.jsonl", "population/genealogy.jsonl"
STATE, TENSORS = "state.json", "tensors.safetensors"
READERS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "report": (["report", "RUN"], (CONFIG, METRICS, EVALUATION, ROBUSTNESS, PRUNED, REPLAY, KL)),
    "evaluate": (["evaluate", "RUN", "--num-envs", "2", "--device", "cpu"], (CONFIG, STATE, TENSORS)),
    "record": (["record", "RUN", "--format", "html", "--policy", "leader"], (CONFIG, STATE, TENSORS)),
    "export": (["export", "RUN", "--format", "numpy"], (CONFIG, STATE, TENSORS)),
    "play": (["play", "RUN"], (CONFIG, STATE, TENSORS)),
    "resume": (["train", "--resume", "RUN", "--iterations", "16"], (CONFIG, METRICS, KL, GENEALOGY, STATE, TENSORS)),
}
"""Commands that open a run, and the files that each reads."""
Harm = Callable[[Path], object]


def _put(text: str | bytes) -> Harm:
    return lambda path: path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))


def _link(target: str) -> Harm:
    return lambda path: (path.unlink(), path.symlink_to(target))


def _sparse(size: int, end: bytes = b"\n") -> Harm:
    """Zeros that take no space on the disk."""

    def harm(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(size)
            file.write(end)

    return harm


ANY_FILE: dict[str, Harm] = {
    "is empty": _put(b""),
    "is cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "is noise": lambda path: path.write_bytes(random.Random(0).randbytes(5000)),
    "is a folder": lambda path: (path.unlink(), path.mkdir()),
    "is a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "is endless": _link("/dev/zero"),
    "leads out of the folder": _link("/etc/hostname"),
    "leads to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "has a gigabyte of zeros at its end": _sparse(1 << 30),
    "may not be read": _link("/proc/self/mem"),
    "is nested 100,000 times": _put("[" * 100_000 + "]" * 100_000 + "\n"),
    "is a number of 100,000 digits": _put("1" * 100_000 + "\n"),
}
"""What can be done to every file."""


def _json(path: str, value: Any) -> Harm:
    """Set an entry of a JSON file by its path; a callable gets the old value."""

    def harm(file: Path) -> None:
        document = json.loads(file.read_text())
        place, names = document, path.split("/")
        for name in names[:-1]:
            place = place[int(name) if isinstance(place, list) else name]
        last: Any = int(names[-1]) if isinstance(place, list) else names[-1]
        place[last] = value(place[last]) if callable(value) else value
        file.write_text(json.dumps(document))

    return harm


def _lines(count: int, change: Callable[[int, dict[str, Any]], object]) -> Harm:
    """Lines like the file's last, each changed."""

    def harm(file: Path) -> None:
        last = file.read_text().splitlines()[-1]
        with file.open("w") as out:
            for number in range(1, count + 1):
                line = json.loads(last) | {"iteration": number, "env_steps": number}
                change(number, line)
                out.write(json.dumps(line) + "\n")

    return harm


def _bomb(size: int) -> str:
    """Base64 of what inflates to `size` zeros."""
    packer = zlib.compressobj(9)
    first = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    again = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # from here on every one is the same
    return base64.b64encode(first + again * ((size >> 20) - 1)).decode()


def _named(many: int, first: str = "") -> dict[str, float]:
    return {f"{first}name {i}/leader": 1.0 for i in range(many)}


MESH = {"counts": [1 << 29] * 2, "vertices": "", "faces": "", "low": [0] * 3, "unit": 1}


def _metrics(value: Any) -> Harm:
    """Lines whose metrics are all of this value."""
    return _lines(8, lambda i, x: x.update({name: value for name in x if "/" in name}))


LONG, LONE = "x" * 3_000_000, "\ud800"
NAN, DIGITS, FEW = float("nan"), 10**400, {"iteration", "env_steps", "return/leader"}
OF_FILES: dict[str, dict[str, Harm]] = {
    CONFIG: {
        "asks for 65536 by 65536 weights": _json("config/model/hidden", [65536, 65536]),
        "asks for 100,000 layers": _json("config/model/hidden", [8] * 100_000),
        "asks for 1024 policies": _json("config/policies", 1024),
        "asks for episodes of 1e6 steps": _json("config/env/episode_length", 10**6),
        "asks for 4e6 environments": _json("config/num_envs", 4 * 10**6),
        "asks for a horizon of 1e6": _json("config/update/horizon", 10**6),
        "asks for 1e300 steps": _json("config/env_steps", 1e300),
        "has NaN": _json("config/update/clip", NAN),
        "has a number of 400 digits": _json("config/seed", DIGITS),
        "has a task of megabytes": _json("config/task", LONG),
        "has a task with a lone surrogate": _json("config/task", LONE),
        "has a task of control characters": _json("config/task", "\x1b[2J\x00\n\r\u202e</script><b>"),
        "has a task with slashes": _json("config/task", "../../../../tmp/x"),
        "has 100,000 variants": _json("config/variant", ["x"] * 100_000),
        "has a setting of megabytes": _json("config/" + LONG, 1),
        "has 100,000 settings": _json("config/env", {f"x{i}": i for i in range(100_000)}),
        "has a source that is no environment": _json("config/source", "json:dumps"),
        "has an encoder that is no network": _json("config/model/encoder", "builtins:print"),
        "has a colour that is no number": _json("colour", 10**30),
        "has 1,000,000 sessions": _json("sessions", [{}] * 1_000_000),
        "has a session of megabytes": _json("sessions", [{"hardware": {"gpu": LONG}, "versions": {LONG: LONG}}]),
        "has sessions of the wrong kind": _json("sessions", [{"hardware": [1], "versions": 3, "git_revision": {}}]),
        "has changes of the wrong kind": _json("changes", [{"setting": [], "before": LONG, "iteration": 1e308}, 3]),
        "starts from the network of a device": _json("config/start_from", "/dev/zero"),
    },
    METRICS: {
        "has metrics of 1e308": _lines(8, lambda i, x: x.update({k: 1e308 * (-1) ** i for k in x if "/" in k})),
        "has metrics of 1e-320": _metrics(1e-320),
        "has metrics of 400 digits": _metrics(DIGITS),
        "has metrics that are text": _metrics("12"),
        "has metrics that are NaN": _metrics(NAN),
        "has 100,000 names in a line": _lines(2, lambda i, x: x.update(_named(100_000))),
        "has 9,000 names in each line": _lines(50, lambda i, x: x.update(_named(9_000))),
        "has 100,000 names over its lines": _lines(1000, lambda i, x: x.update(_named(100, f"{i} "))),
        "has a name of megabytes": _lines(4, lambda i, x: x.update({LONG + "/leader": 1.0})),
        "has a name with a lone surrogate": _lines(4, lambda i, x: x.update({LONE: 1.0})),
        "has policy 10**30": _lines(4, lambda i, x: x.update({"return/policy_" + "9" * 31: 1.0})),
        "has iterations that jump to 2**52": _lines(4, lambda i, x: x.update(iteration=2**52 + i, env_steps=2**52 + i)),
        "has iterations in reverse": _lines(50, lambda i, x: x.update(iteration=51 - i, env_steps=51 - i)),
        "has negative steps": _lines(50, lambda i, x: x.update(env_steps=-i, wall_s=-1e300)),
        "has steps of 1e308": _lines(8, lambda i, x: x.update(env_steps=1e308, wall_s=None)),
        "has 200,000 lines": _lines(200_000, lambda i, x: [x.pop(name) for name in set(x) - FEW]),
        "has a line of 200 MB": lambda path: _put(path.read_text() + '{"a": "' + "y" * 200_000_000 + '"}\n')(path),
        "has 3,000,000 damaged lines": _put("x\n" * 3_000_000),
    },
    KL: {
        "has KL of 1e308": _lines(4, lambda i, x: x.update(kl=[[1e308] * 6] * 6)),
        "has text for KL": _lines(4, lambda i, x: x.update(kl=[["1"] * 6] * 6)),
        "has ragged KL": _lines(4, lambda i, x: x.update(kl=[[1.0], [1.0, 2.0]])),
        "has KL of 2000 policies": _lines(1, lambda i, x: x.update(kl=[[1.0] * 2000] * 2000)),
        "has steps of 400 digits": _lines(4, lambda i, x: x.update(env_steps=DIGITS)),
        "has 100,000 measurements": _lines(100_000, lambda i, x: None),
    },
    GENEALOGY: {
        "has takeovers of megabytes": _put(json.dumps({"iteration": 1, LONG: LONG}) + "\n"),
        "has iterations of text": _put('{"iteration": "1"}\n'),
    },
    EVALUATION: {
        "has scores of 1e308": _json("scores/0/return_mean", 1e308),
        "has scores of 400 digits": _json("scores/0/return_mean", DIGITS),
        "has scores that are text": _json("scores/0/return_mean", "1e999"),
        "has 100,000 scores": _json("scores", lambda scores: scores[:1] * 100_000),
        "has 9,000 figures": _json("scores/0/extra", _named(9_000)),
        "has a leader of 10**30": _json("leader", 10**30),
        "is of 1e308 episodes": _json("scores/0/episodes", 1e308),
    },
    ROBUSTNESS: {
        "has scores of 1e308": _json("plain", [1e308, -1e308, 1e308]),
        "has scores of 400 digits": _json("plain", [DIGITS] * 3),
        "has 5,000 parameters": _json("parameters", lambda x: {f"p{i}": x["friction"] for i in range(5_000)}),
        "has a parameter of megabytes": _json("parameters", lambda x: {LONG: x["friction"]}),
        "has a million values": _json("parameters/friction/values", [1.0] * 1_000_000),
        "has a leader of 10**30": _json("leader", 10**30),
    },
    REPLAY: {
        "has meshes that unpack to gigabytes": _json("meshes", {"m": MESH | {"vertices": _bomb(1 << 32)}}),
        "has a mesh with corners that are none": _json(
            "meshes", {"m": MESH | {"counts": [1, 1], "low": "x", "unit": []}}
        ),
        "unpacks to 4 GB": _json("episodes/0", lambda x: x | {"frames": 10**7, "poses": _bomb(1 << 32)}),
        "unpacks to 4 GB instead of little": _json("episodes/0/poses", _bomb(1 << 32)),
        "unpacks to 200 MB as it says": _json("episodes/0", lambda x: x | {"frames": 1 << 22, "poses": _bomb(7 << 24)}),
        "has frames below 0": _json("episodes/0/frames", -1),
        "has 10**30 frames": _json("episodes/0/frames", 10**30),
        "has true for frames": _json("episodes/0/frames", True),
        "has NaN in a series": _json("episodes/0/series/reward/low", NAN),
        "has 1e308 in a series": _json("episodes/0/series/reward", lambda x: x | {"low": -1e308, "high": 1e308}),
        "has text for a return": _json("episodes/0/total_return", "x" * 1000),
        "has NaN in its camera": _json("camera/eye", [NAN] * 3),
        "has bodies that are a number": _json("bodies", 10**9),
        "has 1,000,000 bodies": _json("bodies", ["b"] * 1_000_000),
        "has 100,000 shapes": _json("episodes/0/geoms", lambda x: x[:1] * 100_000),
        "has shapes of the wrong kind": _json("episodes/0/geoms", [{"type": LONE, "size": "x"}]),
        "has 100,000 episodes": _json("episodes", [{}] * 100_000),
        "has a name of megabytes": _json("run", LONG),
    },
}
"""What can be done to one kind of file."""


def _forged(change: Callable[[Any, Any, Any], object]) -> Harm:
    return lambda run: forge(max((run / "checkpoints").iterdir()), change)


def _header(size: int, text: str) -> Harm:
    """A file of tensors whose header says something absurd."""
    return _forged(lambda body, rank, tensors: size.to_bytes(8, "little") + text.encode())


def _trainer(**changes: Any) -> Harm:
    return _forged(lambda body, rank, tensors: rank["state"]["trainer"].update(changes))


def _interface(**changes: Any) -> Harm:
    return _forged(lambda body, rank, tensors: rank["state"]["trainer"]["interface"].update(changes))


def _leads_out(name: str) -> Harm:
    """A folder of the run is a link to the one that holds it."""
    return lambda run: (shutil.rmtree(run / name, ignore_errors=True), (run / name).symlink_to(run.parent))


def _outside(run: Path) -> Path:
    return run.with_name(f"{run.name}-outside")


SHAPE = '{"trainer/model/phi":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'
OF_FOLDERS: dict[tuple[str, ...], dict[str, Harm]] = {
    (TENSORS,): {
        "a checkpoint has tensors of 2**64 numbers": _header(len(SHAPE), SHAPE),
        "a checkpoint has a header of 2**63 bytes": _header(2**63, "{}"),
        "a checkpoint has 100,000 tensors": _forged(
            lambda body, rank, tensors: tensors.update({f"x{i}": torch.empty(0) for i in range(100_000)})
        ),
        "a checkpoint has empty tensors": _forged(
            lambda body, rank, tensors: tensors.update({name: x.new_empty(0) for name, x in tensors.items()})
        ),
    },
    (STATE,): {
        **{f"a checkpoint is crafted, {seed}": _forged(craft(seed)) for seed in range(40)},
        "a checkpoint is of 100,000 ranks": _forged(lambda body, rank, tensors: body.update(ranks=[rank] * 100_000)),
        "a checkpoint has observations of 1e12 numbers": _interface(obs_spec={"policy": 10**12}),
        "a checkpoint has observations of 1e5 numbers": _interface(obs_spec={"policy": 10**5}),
        "a checkpoint has images of a gigabyte": _interface(obs_spec={"image": [3, 2**14, 2**14, True]}),
        "a checkpoint has 1e9 actions": _interface(action_dim=10**9),
        "a checkpoint has bounds of the wrong kind": _interface(bounds={"low": "x"}),
        "a checkpoint has a leader of 1e9": _trainer(leader=10**9),
        "a checkpoint has an environment of text": _trainer(env={"x": "y"}),
        "there are 10,000 checkpoints": lambda run: [
            (run / "checkpoints" / f"{10**9 + i}").mkdir() for i in range(10_000)
        ],
        "a checkpoint has a name of 200 digits": lambda run: (run / "checkpoints" / ("9" * 200)).mkdir(),
        "checkpoints is a file": lambda run: (shutil.rmtree(run / "checkpoints"), (run / "checkpoints").write_text("")),
        "checkpoints leads out of the folder": lambda run: (
            (run / "checkpoints").rename(_outside(run)),
            (run / "checkpoints").symlink_to(_outside(run)),
        ),
    },
    (METRICS,): {"the report leads out of the folder": _leads_out("report")},
    (GENEALOGY,): {
        "the lock leads out of the folder": lambda run: _link(str(run.parent / "precious"))(run / ".lock"),
        "the lock is a pipe": lambda run: ANY_FILE["is a pipe"](run / ".lock"),
        "tensorboard leads out of the folder": _leads_out("tensorboard"),
    },
    (REPLAY, TENSORS): {"replay leads out of the folder": _leads_out("replay")},
}
"""What can be done to a folder, by the files whose readers meet it."""


def _at(name: str, harm: Harm, run: Path) -> None:
    harm((max((run / "checkpoints").iterdir()) if name in (STATE, TENSORS) else run) / name)


def damages() -> dict[str, tuple[tuple[str, ...], Harm]]:
    """All of them, by their names: the files whose readers meet it, and what is done to a run folder."""
    found = {words: (files, harm) for files, harms in OF_FOLDERS.items() for words, harm in harms.items()}
    for name in (CONFIG, METRICS, KL, GENEALOGY, EVALUATION, ROBUSTNESS, PRUNED, REPLAY, STATE, TENSORS):
        for words, harm in (ANY_FILE | OF_FILES.get(name, {})).items():
            found[f"{name} {words}"] = (name,), partial(_at, name, harm)
    return found


def attack(place: Path, tries: int, rng: random.Random) -> Outcome:
    """Every damage with every reader that meets it; or a few of them, drawn."""
    outcome, whole, table = Outcome(), place / "whole", damages()
    precious = place / "precious"
    precious.write_text("precious")

    def make() -> None:
        train(run_config(whole, "cpo", keep_checkpoints=1))
        for words in ("evaluate", "record"):
            assert cli.main([str(whole) if word == "RUN" else word for word in READERS[words][0]]) == 0
        (whole / "population").mkdir()
        (whole / GENEALOGY).write_text('{"iteration": 1, "member": 0}\n')
        (whole / PRUNED).write_text("stopped early")
        axis = {"values": [1.0, 2.0], "scores": [[1.0, 2.0]] * 3}
        scores = {"parameters": {"friction": axis}, "plain": [1.0] * 3, "score": "return/leader"}
        (whole / ROBUSTNESS).write_text(json.dumps(scores | {"iteration": 15, "leader": 0, "episodes": 2}))

    made = Child(make).wait()
    outcome.check(made.code == 0, f"undisturbed: {made.said}")
    pairs = [
        (reader, name) for reader, (_, files) in READERS.items() for name in table if set(table[name][0]) & set(files)
    ]
    chosen = pairs if tries >= len(pairs) else rng.sample(pairs, tries)
    for number, (reader, name) in enumerate(chosen):
        run = place / f"{number}"
        shutil.copytree(whole, run)
        table[name][1](run)
        before = _beside(place)
        ended, peak, spent = _read(run, reader)
        what = f"{reader}, {name}"
        outcome.tries += 1
        outcome.check(ended.in_words, f"{what}: {ended.code} {ended.said[-600:]}")
        outcome.check(len(ended.said) < 20_000, f"{what}: it says {len(ended.said):,} letters")
        outcome.check(peak <= MEMORY, f"{what}: {peak / 2**20:.0f} MB")
        outcome.check(spent <= SECONDS, f"{what}: {spent:.1f} s")
        outcome.check(_beside(place) == before, f"{what}: it wrote outside")
        shutil.rmtree(run)
        shutil.rmtree(_outside(run), ignore_errors=True)
    return outcome


def _beside(place: Path) -> list[str]:
    """What lies beside the run."""
    return sorted(f"{path.name} {path.read_text() if path.is_file() else ''}" for path in place.iterdir())


def _read(run: Path, reader: str) -> tuple[Any, float, float]:
    """Let a child run the command: how it ended, the most bytes that it held and the seconds of a processor."""
    used = run.with_name(f".{run.name}-used")

    def act() -> None:
        code = 1
        resource.setrlimit(resource.RLIMIT_AS, (12 * MEMORY, 12 * MEMORY))
        began = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        try:
            if reader == "play":  # up to where it would wait for a browser
                from echelon.viewing import live

                live.launch_thread.launch_thread = _no_viewer
            words = [str(run) if word == "RUN" else word for word in READERS[reader][0]]
            code = cli.main(words)
        except _Shown:
            code = 0
        finally:
            found = resource.getrusage(resource.RUSAGE_SELF)
            used.write_text(f"{found.ru_maxrss * 1024} {sum(found[:2]) - began}")
        sys.exit(code)

    ended = Child(act).wait(60)
    peak, spent = map(float, used.read_text().split()) if used.exists() else (float("inf"), float("inf"))
    used.unlink(missing_ok=True)
    return ended, peak, spent


class _Shown(BaseException):
    """The viewer would start now."""


def _no_viewer(*given: Any, **more: Any) -> Any:
    raise _Shown
