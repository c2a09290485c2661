"""Four islands as processes: one is killed, one comes late. And the same files in an object store."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import PATIENCE

from echelon.cli import main
from echelon.commands import PREEMPTED
from echelon.islands.chronicle import Chronicle, read_chronicle
from echelon.islands.records import network_file
from echelon.islands.store import FolderStore, Store, open_store

FLAGS = [
    *("--algo", "ppo", "--num-envs", "16", "--update.minibatches", "2", "--update.mini-epochs", "2"),
    *("--model.hidden", "16", "--checkpoint-every", "20", "--islands.every", str(4 * 16 * 16)),
]

FOR_EVER = 1_000_000
"""Iterations of an island that is ended from outside."""
STARTED: list[subprocess.Popen[bytes]] = []


def start(name: str, place: str, folder: Path, iterations: int, seed: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "echelon", "train", "CartpoleSwingup", *FLAGS, "--iterations", str(iterations)]
    words += ["--islands.place", place, "--islands.name", name, "--seed", str(seed), "--out", str(folder / name)]
    with (folder / f"{name}.log").open("wb") as log:
        STARTED.append(subprocess.Popen(words, stdout=log, stderr=log))
    return STARTED[-1]


@pytest.fixture(autouse=True)
def end_all() -> Iterator[None]:
    """Also where a test fails."""
    yield
    for process in STARTED:
        process.kill()
        process.wait()
    STARTED.clear()


class Watch:
    """Looks at a store while islands live there: the best that was published is always there, whole."""

    def __init__(self, store: Store) -> None:
        self.store, self.highest = store, float("-inf")

    def look(self) -> Chronicle:
        chronicle = read_chronicle(self.store)
        assert chronicle.left_alone == []
        champion = chronicle.champion
        if champion is None:
            return chronicle
        assert champion.score >= self.highest
        self.highest = champion.score
        try:
            assert len(self.store.read(network_file(champion.network), 10**8)) == champion.size
        except FileNotFoundError:  # only if a better one has taken its place meanwhile
            better = read_chronicle(self.store).champion
            assert better is not None
            assert better.score > champion.score
        return chronicle

    def until(self, island: str, processes: dict[str, subprocess.Popen[bytes]], *, takes_over: bool = False) -> None:
        """It has published something, and perhaps taken over something."""
        end = time.monotonic() + PATIENCE
        while True:
            chronicle = self.look()
            taken = any(event.island == island and event.donor is not None for event in chronicle.events)
            if island in chronicle.best and (taken or not takes_over):
                return
            assert time.monotonic() < end, f"{island} did not publish or take over anything"
            assert all(process.poll() in (None, 0) for process in processes.values())
            time.sleep(0.2)


def test_one_is_killed_one_comes_late_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The genealogy is whole: no island's events have a gap, and every network goes back to a beginning."""
    place = str(tmp_path / "store")
    watch = Watch(FolderStore(tmp_path / "store"))
    lengths = {"a": 120, "b": 120, "c": FOR_EVER}
    running = {name: start(name, place, tmp_path, lengths[name], seed) for seed, name in enumerate(lengths)}
    watch.until("c", running)
    dead = running.pop("c")
    dead.send_signal(signal.SIGKILL)
    assert dead.wait() == -signal.SIGKILL
    lost = watch.look().best["c"]
    late = start("d", place, tmp_path, FOR_EVER, 3)
    watch.until("d", running | {"d": late}, takes_over=True)
    late.terminate()
    while any(process.poll() is None for process in (*running.values(), late)):
        watch.look()
        time.sleep(0.2)
    for name, process in running.items():
        assert process.returncode == 0, (tmp_path / f"{name}.log").read_text()
    assert late.returncode == PREEMPTED, (tmp_path / "d.log").read_text()
    chronicle = watch.look()
    assert set(chronicle.best) == set("abcd")
    assert chronicle.best["c"].score >= lost.score
    for name in "abcd":
        numbers = [event.number for event in chronicle.events if event.island == name]
        assert numbers == list(range(len(numbers)))
        for record in (chronicle.newest[name], chronicle.best[name]):
            line = chronicle.lineage(record)
            assert line is not None
            assert line[-1].donor is None
    champion = chronicle.champion
    assert champion is not None
    assert champion.score == watch.highest == max(record.score for record in chronicle.best.values())
    taken = [event for event in chronicle.events if event.donor is not None]
    assert main(["islands", place]) == 0
    said = capsys.readouterr().out
    assert f"the best: {champion.score:.6g} of {champion.island}" in said
    assert sum(" steps, member 0 (" in line for line in said.splitlines()) == len(taken)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place in an object store on this machine."""
    for package in ("s3fs", "moto", "flask"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}: pip install s3fs 'moto[server]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    for name, value in (("KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_ACCESS_{name}" if name == "KEY_ID" else f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    )
    try:
        import s3fs  # pyright: ignore[reportMissingImports]

        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        s3fs.S3FileSystem().mkdir("islands")
        yield "s3://islands/here"
    finally:
        server.kill()
        server.wait()


def test_an_object_store(bucket: str, tmp_path: Path) -> None:
    """Two islands meet there; one learns from the other. A store that goes away ends nothing."""
    watch = Watch(open_store(bucket))
    running = {"a": start("a", bucket, tmp_path, 60, 0)}
    watch.until("a", running)
    running["b"] = start("b", bucket, tmp_path, 20, 1)
    for name, process in running.items():
        assert process.wait() == 0, (tmp_path / f"{name}.log").read_text()
    chronicle = watch.look()
    assert set(chronicle.best) == {"a", "b"}
    assert all(chronicle.lineage(record) for record in chronicle.newest.values())
    networks = watch.store.names("networks")
    named = {record.network for records in (chronicle.newest, chronicle.best) for record in records.values()}
    assert sorted(networks) == sorted(map(network_file, named))
