"""A grid on a Ray cluster: nodes that go and come, nodes that cannot train, and GPUs that several runs share."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tiny import tiny

from echelon import cli
from echelon.console.view import NullView
from echelon.errors import UserError
from echelon.grid import Cell, node, run
from echelon.grid.cluster import RayCluster, RayPool, gpu_part, require_address
from echelon.grid.node import Outcome, Ticket
from echelon.grid.progress import GridProgress, PlainGridView
from echelon.grid.share import measured_runs_per_gpu, memory_file, runs_per_gpu
from echelon.training.loop import train

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
STORE = 80_000_000
"""Bytes of a node's object store, the least that Ray allows; nothing is kept there."""


@pytest.mark.parametrize("address", ["slurm", "ray://", "127.0.0.1:6379", ""])
def test_a_place_that_is_none_is_one_sentence(address: str) -> None:
    with pytest.raises(UserError, match=r"--on takes ray, or the address of a Ray cluster as in ray://head:10001, not"):
        require_address(address)


def test_without_ray_the_command_that_installs_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("echelon.errors.find_spec", lambda name: None)
    assert cli.main(["compare", "--tasks", "CartpoleSwingup", "--on", "ray"]) == 2
    said = capsys.readouterr().err
    assert said == "echelon: --on needs the package ray, which is not installed; pip install 'echelon-rl[ray]'\n"


@pytest.mark.parametrize("flag", ["--per-gpu", "--cpus"])
def test_flags_of_a_cluster_need_one(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--tasks", "CartpoleSwingup", flag, "2"]) == 2
    assert f"{flag} is for a Ray cluster; add --on ray" in capsys.readouterr().err


@needs_ray
def test_mistakes_are_told_before_ray_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", "--tasks", "Hoper", "--on", "ray://nowhere:1"]) == 2
    assert "Hoper is not a task" in capsys.readouterr().err


@needs_ray
def test_an_address_where_nothing_answers_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"  # and closed again
    with pytest.raises(UserError, match=f"nothing answers at ray://{there} .*Connection refused.*; see ray status"):
        RayCluster(f"ray://{there}")
    monkeypatch.setenv("RAY_ADDRESS", there)
    with pytest.raises(UserError, match=f"nothing answers at {there} "):
        RayCluster("ray")
    with pytest.raises(UserError, match="nothing answers at ray://head:port "):
        RayCluster("ray://head:port")


def test_how_many_runs_fit_on_a_gpu() -> None:
    """Of 100 GB, 95 may be filled; a run of 10 GB reserves 11: eight fit (88), nine do not (99)."""
    assert runs_per_gpu(10, 100, most=20) == 8
    assert runs_per_gpu(10, 100, most=4) == 4
    assert runs_per_gpu(43, 100, most=4) == 2  # 2 · 47.3 = 94.6
    assert runs_per_gpu(44, 100, most=4) == 1  # 2 · 48.4 = 96.8
    assert runs_per_gpu(99, 100, most=4) == 1  # it may fit alone
    assert [gpu_part(runs) for runs in (1, 2, 3, 7)] == [1.0, 0.5, 0.3333, 0.1428]


def test_what_was_measured_holds_for_runs_of_the_same_kind(tmp_path: Path) -> None:
    first, second = (Cell(name, tiny("CartpoleSwingup", tmp_path / name, seed=i)) for i, name in enumerate("ab"))
    larger = Cell("c", replace(first.config, num_envs=12))
    assert measured_runs_per_gpu(first, tmp_path, 4) is None
    memory_file(first, tmp_path).write_text(json.dumps({"bytes": 30, "total": 100}))
    assert [measured_runs_per_gpu(cell, tmp_path, 4) for cell in (first, second, larger)] == [2, 2, None]
    memory_file(first, tmp_path).write_text("{")
    assert measured_runs_per_gpu(first, tmp_path, 4) is None


def test_a_node_that_cannot_train_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "SHARED_WAIT_S", -1.0)
    (tmp_path / "token").touch()
    assert Ticket(tmp_path, "token").misfit() is None
    other = Ticket(tmp_path, "token", version="9.9").misfit()
    assert other is not None
    assert "not 9.9; install the same version on all machines" in other
    unseen = Ticket(tmp_path, "another").misfit()
    assert unseen == f"it does not see the files in {tmp_path}; pass --out with a folder that all machines share"


class FakeRay:
    """Keeps what is asked of it; tasks end when a test says so."""

    exceptions = SimpleNamespace(TaskCancelledError=KeyError, RayTaskError=IndexError, RayError=LookupError)

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.ended: dict[str, Any] = {}

    def remote(self, **options: Any) -> Any:
        def wrap(function: Any) -> Any:
            def submit(*arguments: Any) -> str:
                self.asked.append(options | {"function": function.__name__})
                return f"task {len(self.asked)}"

            return SimpleNamespace(remote=submit)

        return wrap

    def wait(self, tasks: list[str], num_returns: int = 1, timeout: float = 0) -> tuple[list[str], list[str]]:
        return [task for task in tasks if task in self.ended], []

    def get(self, task: str) -> Any:
        return self.ended[task]

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {"NodeID": id, "Alive": True, "NodeManagerHostname": id, "Resources": {"CPU": 1}} for id in ("good", "bad")
        ]


def test_a_gpu_run_waits_until_it_is_measured_and_then_takes_its_part(tmp_path: Path) -> None:
    fake = FakeRay()
    pool = RayPool(fake, tmp_path, lambda cell: None, cpus=1, per_gpu=4)
    cells = [Cell(f"s{i}", replace(tiny("Hopper", tmp_path / f"s{i}", seed=i), device="cuda")) for i in range(2)]
    assert not any(pool.has_room(cell, 0) for cell in cells)
    assert [(one["function"], one["num_gpus"]) for one in fake.asked] == [("measure_memory", 1)]  # once for both
    memory_file(cells[0], tmp_path).write_text(json.dumps({"bytes": 30, "total": 100}))
    fake.ended["task 1"] = None
    assert all(pool.has_room(cell, 0) for cell in cells)
    for cell in cells:
        pool.start(cell)
    assert [one["num_gpus"] for one in fake.asked[1:]] == [0.5, 0.5]
    assert {one["max_retries"] for one in fake.asked} == {-1}


def test_a_node_that_cannot_train_is_left_out_and_its_cells_are_tried_elsewhere(tmp_path: Path) -> None:
    fake = FakeRay()
    pool = RayPool(fake, tmp_path, lambda cell: None, cpus=1, per_gpu=4)
    cell = Cell("a", tiny("CartpoleSwingup", tmp_path / "a"))
    job = pool.start(cell)
    fake.ended["task 1"] = Outcome(misfit="bad: it has echelon 0.0", node="bad")
    pool.watch()
    assert job.ended()
    assert job.held  # so the grid starts it again
    assert pool.news() == ["left out: bad: it has echelon 0.0"]
    pool.start(cell)
    assert fake.asked[1]["label_selector"] == {"ray.io/node-id": "!in(bad)"}
    fake.ended["task 2"] = Outcome(misfit="good: it has echelon 0.0", node="good")
    pool._looked = time.monotonic()  # it has just looked
    pool.watch()
    pool.start(cell)
    pool._looked = 0.0
    with pytest.raises(UserError, match="no node can train: good: it has echelon"):
        pool.watch()


class SeesOtherNodes(PlainGridView):
    """At each look the cell trains on another node, both of which are alive; then it ends, perhaps before the look."""

    def __init__(self, fake: FakeRay, pool: RayPool, logs: Path, at_once: bool) -> None:
        self._fake, self._pool, self._file = fake, pool, node.node_file(logs, "a")
        self._coming, self._at_once = ["good", "bad"], at_once
        self.said: list[str] = []

    def begin(self) -> None: ...

    def tick(self) -> None:
        self._pool._looked = 0.0
        if self._coming:
            id = self._coming.pop(0)
            self._file.write_text(json.dumps({"host": id, "id": id}))
            if self._coming or not self._at_once:
                return
        self._fake.ended["task 1"] = Outcome(failure="enough")

    def message(self, text: str) -> None:
        self.said.append(text)

    def stop(self) -> None: ...


@pytest.mark.parametrize("at_once", [False, True])
def test_a_node_lost_and_replaced_between_two_looks_is_told(tmp_path: Path, at_once: bool) -> None:
    """Ray may start a cell again on a new node before the old one is known to be dead."""
    fake = FakeRay()
    pool = RayPool(fake, tmp_path, lambda cell: None, cpus=1, per_gpu=4)
    view = SeesOtherNodes(fake, pool, tmp_path, at_once)
    cell = Cell("a", tiny("CartpoleSwingup", tmp_path / "a"))
    failed = run(
        [cell], tmp_path, cluster=cast(RayCluster, SimpleNamespace(pool=lambda *_: pool)), make_view=lambda _: view
    )
    assert failed == {"a": "enough"}
    lost = "a lost its node good and goes on elsewhere"
    assert view.said == ["a starts on good", lost, "a starts on bad", "a failed: enough"]


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node half a minute to start: too little on a machine that is busy with something else."""
    for _ in range(4):
        with contextlib.suppress(Exception):
            return start()
    return start()


def add_node(cluster: Any) -> None:
    patiently(lambda: cluster.add_node(num_cpus=1, object_store_memory=STORE))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that trains nothing, and two nodes of one CPU."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    for _ in range(2):
        add_node(cluster)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()


class LosesANode(PlainGridView):
    """When a cell has saved something, its machine is lost like one whose power fails, and another one comes."""

    def __init__(self, progress: GridProgress, cluster: Any) -> None:
        super().__init__(progress)
        self._progress, self._cluster = progress, cluster
        self.lost: list[str] = []

    def tick(self) -> None:
        for cell in self._progress.running:
            if not self.lost and cell.newest().get("iteration", 0) >= 25:
                self._lose(cell)  # or one of the next, if this one has just ended

    def _lose(self, cell: Cell) -> None:
        id = self._progress.nodes[cell.name].rpartition("/")[2]
        (gone,) = [one for one in self._cluster.worker_nodes if one.node_id.startswith(id)]
        settings = str(cell.path.parent / "logs" / f"{cell.name}.json")  # another grid may run here with like cells
        children = [pid for pid, words in processes() if "echelon.grid.child" in words and settings in words]
        if not children:
            return
        (child,) = children
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGSTOP)  # so that it does not notice, and saves nothing
        if cell.done:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
            return
        self._cluster.remove_node(gone, allow_graceful=False)
        os.kill(child, signal.SIGKILL)
        add_node(self._cluster)
        self.lost.append(cell.name)


def processes() -> list[tuple[int, str]]:
    """Everything that runs on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append((int(path.parent.name), path.read_text(errors="replace").replace("\0", " ")))
        except OSError:
            continue  # it has just ended
    return found


def timeless(path: Path) -> list[dict[str, float]]:
    """A run's metrics without those that a clock made."""
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return [
        {k: v for k, v in json.loads(line).items() if not k.startswith(("wall_s", "fps/", "time/"))} for line in lines
    ]


@needs_ray
def test_a_grid_survives_the_loss_of_a_node(cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight cells; a node is removed in the middle and another added. All end, none is trained twice, and what they
    learned is, to the last digit, what they learn without a cluster."""

    def cells(folder: Path) -> list[Cell]:
        small: dict[str, Any] = {"iterations": 60, "checkpoint_every": 10}
        names = [(algo, seed) for seed in range(4) for algo in ("ppo", "cpo")]
        configs = {f"{algo}-s{seed}": (algo, seed) for algo, seed in names}
        return [
            Cell(name, tiny("CartpoleSwingup", folder / name, algo=algo, seed=seed, **small))
            for name, (algo, seed) in configs.items()
        ]

    here = socket.gethostname()
    together, logs, views = cells(tmp_path / "ray"), tmp_path / "ray" / "logs", []

    def make_view(progress: GridProgress) -> LosesANode:
        views.append(LosesANode(progress, cluster))
        return views[-1]

    def finished(cell: Cell) -> str:
        return f"on {socket.gethostname()} by {os.getpid()}"

    connection = RayCluster("ray")
    try:
        assert connection.device == "cpu"
        assert run(together, logs, cluster=connection, make_view=make_view, finished=finished) == {}
        before = {cell.name: len(timeless(cell.path)) for cell in together}
        assert run(together, logs, cluster=connection, make_view=PlainGridView, finished=finished) == {}
    finally:
        connection.close()
    said = capsys.readouterr().out
    (lost,) = views[0].lost
    assert f"{lost} lost its node {here}/" in said
    assert f"{lost} goes on on {here}/" in said
    assert f"is done: on {here} by " in said
    assert f"by {os.getpid()}" not in said  # but in a worker
    assert "8 of 8 done, 0 running, 0 left" in said
    assert not list(logs.glob("*.node"))
    assert not list(logs.glob(".grid-*"))
    for cell, alone in zip(together, cells(tmp_path / "alone"), strict=True):
        starts = json.loads((cell.path / "config.json").read_text())["sessions"]
        assert len(starts) == (2 if cell.name == lost else 1), cell.name
        assert before[cell.name] == 60
        train(alone.config, NullView())
        assert timeless(cell.path) == timeless(alone.path), cell.name
    assert "resumed" in (logs / f"{lost}.log").read_text()
