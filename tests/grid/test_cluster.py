"""A grid on a Ray cluster: nodes that go and come, and nodes that cannot train."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tiny import timeless, tiny

from echelon import __version__, cli
from echelon.commands.compare import score_text
from echelon.config import TrainConfig
from echelon.console.view import NullView, PlainView
from echelon.errors import UserError
from echelon.grid import Job, cluster, run
from echelon.grid.cluster import RayCluster, RayPool, why_unfit
from echelon.grid.process import Outcome
from echelon.training.loop import train

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
STORE = 80_000_000
"""Bytes of a node's object store, the least that Ray allows; nothing is kept there."""


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--on slurm", "--on takes ray, or the address of a Ray cluster as in ray://head:10001, not 'slurm'"),
        ("--on ray://", "--on takes ray, or the address of a Ray cluster"),
        ("--on 127.0.0.1:6379", "--on takes ray, or the address of a Ray cluster"),
        ("--per-gpu 2", "--per-gpu is for a Ray cluster; add --on ray"),
        ("--cpus 2", "--cpus is for a Ray cluster; add --on ray"),
        ("--workers 2 --on ray", "--workers is for this machine"),
        ("--on ray", "--on needs the package ray, which is not installed; pip install 'echelon-rl[ray]'\n"),
    ],
)
def test_a_mistake_is_one_sentence(
    flags: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("echelon.errors.find_spec", lambda name: None)
    assert cli.main(["compare", "--tasks", "CartpoleSwingup", *flags.split()]) == 2
    assert sentence in capsys.readouterr().err


@needs_ray
def test_an_address_where_nothing_answers_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other mistakes are told before it is waited for."""
    assert cli.main(["compare", "--tasks", "Hoper", "--on", "ray://nowhere:1"]) == 2
    assert "Hoper is not a task" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"  # and closed again
    with pytest.raises(UserError, match=f"nothing answers at ray://{there} .*Connection refused.*; see ray status"):
        RayCluster(f"ray://{there}")
    monkeypatch.setenv("RAY_ADDRESS", there)
    with pytest.raises(UserError, match=f"nothing answers at {there} "):
        RayCluster("ray")
    with pytest.raises(UserError, match="nothing answers at ray://head:port "):
        RayCluster("ray://head:port")


def test_a_node_that_cannot_train_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SHARED_WAIT_S", -1.0)
    assert why_unfit(tmp_path, __version__) == ""
    assert "not 9.9; install the same version on all machines" in why_unfit(tmp_path, "9.9")
    unseen = why_unfit(tmp_path / ".grid-1", __version__)
    assert unseen == f"it does not see the files in {tmp_path}; pass --out with a folder that all machines share"


class FakeRay:
    """Keeps what is asked of it; its tasks end as `answer` says, which may run on a node."""

    def __init__(self, answer: Callable[[Path], Outcome]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._answer = answer

    def remote(self, **options: Any) -> Any:
        return lambda function: SimpleNamespace(options=lambda **more: self._task(options | more))

    def _task(self, options: dict[str, Any]) -> Any:
        self.asked.append(options)

        def submit(document: str, logs: Path, node_file: Path, version: str) -> Any:
            future: Future[Outcome] = Future()
            future.set_result(self._answer(node_file))
            return SimpleNamespace(future=lambda: future)

        return SimpleNamespace(remote=submit)


def run_on(fake: FakeRay, config: TrainConfig, logs: Path, per_gpu: int = 1) -> dict[str, str]:
    pool = RayPool(fake, logs, cpus=1, per_gpu=per_gpu)
    cluster = cast(RayCluster, SimpleNamespace(pool=lambda logs: pool))
    return run([Job("a", config)], logs, cluster=cluster)


def test_a_node_that_cannot_train_ends_the_grid(tmp_path: Path) -> None:
    fake = FakeRay(lambda file: Outcome(unfit="node3 cannot train: it has echelon 0.0"))
    with pytest.raises(UserError, match=r"node3 cannot train: it has echelon 0\.0"):
        run_on(fake, tiny("CartpoleSwingup", tmp_path / "a"), tmp_path)
    assert {one["max_retries"] for one in fake.asked} == {-1}


def test_runs_that_share_a_gpu_reserve_a_part_of_it(tmp_path: Path) -> None:
    fake = FakeRay(lambda file: Outcome("enough"))
    config = replace(tiny("CartpoleSwingup", tmp_path / "a"), device="cuda")
    for per_gpu in (1, 3):
        assert run_on(fake, config, tmp_path, per_gpu) == {"a": "enough"}
    assert [one["num_gpus"] for one in fake.asked] == [1.0, 0.3333]


def patiently(start: Callable[[], Any]) -> Any:
    """Ray gives a node half a minute to start: too little on a machine that is busy with something else."""
    for _ in range(4):
        with contextlib.suppress(Exception):
            return start()
    return start()


def add_node(cluster: Any) -> None:
    patiently(lambda: cluster.add_node(num_cpus=1, object_store_memory=STORE))


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that trains nothing, and two nodes of one CPU."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    for _ in range(2):
        add_node(cluster)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()


class LosesANode(PlainView):
    """When a job has saved something, its machine is lost like one whose power fails, and another one comes."""

    def __init__(self, jobs: list[Job], cluster: Any) -> None:
        super().__init__()
        self._jobs, self._cluster = jobs, cluster
        self.lost: list[str] = []

    def tick(self, now: bool = False) -> None:
        for job in self._jobs:
            if not self.lost and 25 <= job.newest().get("iteration", 0) < 50:
                self._lose(job)  # or one of the next, if this one has just ended

    def _lose(self, job: Job) -> None:
        (file,) = (job.path.parent / "logs").glob(f".grid-*/{job.name}")
        (gone,) = [one for one in self._cluster.worker_nodes if one.node_id.startswith(file.read_text()[-4:])]
        (child,) = [int(pid) for pid, folder in trainers() if folder == job.path.resolve()]
        os.kill(child, signal.SIGSTOP)  # so that it does not notice, and saves nothing
        if job.trained:
            return os.kill(child, signal.SIGCONT)
        self._cluster.remove_node(gone, allow_graceful=False)
        os.kill(child, signal.SIGKILL)
        add_node(self._cluster)
        self.lost.append(job.name)


def trainers() -> Iterator[tuple[str, Path]]:
    """Processes of this machine that hold the lock of a run folder, and the folder."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (target := link.readlink()).name == ".lock":
                yield link.parts[2], target.parent


@needs_ray
def test_a_grid_survives_the_loss_of_a_node(nodes: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A node is removed in the middle and another added. All three jobs end, none is trained twice, and what they learn
    is to the last digit what they learn without a cluster."""

    def make_jobs(folder: Path) -> list[Job]:
        names = {"ppo-s0": ("ppo", 0), "cpo-s0": ("cpo", 0), "ppo-s1": ("ppo", 1)}
        small: dict[str, Any] = {"iterations": 60, "checkpoint_every": 10}
        return [Job(n, tiny("CartpoleSwingup", folder / n, a, seed=s, **small), True) for n, (a, s) in names.items()]

    jobs, logs, here = make_jobs(tmp_path / "ray"), tmp_path / "ray" / "logs", socket.gethostname()
    view = LosesANode(jobs, nodes)
    connection = RayCluster("ray")
    try:
        assert connection.device == "cpu"
        assert run(jobs, logs, cluster=connection, view=view, finished=score_text) == {}
        before = {job.name: len(timeless(job.path)) for job in jobs}
        assert run(jobs, logs, cluster=connection) == {}
    finally:
        connection.close()
    said = capsys.readouterr().out
    (lost,) = view.lost
    assert f"{lost} lost its node {here}/" in said
    assert f"{lost} resumes on {here}/" in said
    assert f"{lost} is done: evaluated return" in said
    assert "3 of 3 done, 0 running, 0 left" in said
    assert not list(logs.glob(".grid-*"))
    for job, alone in zip(jobs, make_jobs(tmp_path / "alone"), strict=True):
        starts = json.loads((job.path / "config.json").read_text())["sessions"]
        assert len(starts) == (2 if job.name == lost else 1), job.name
        assert before[job.name] == 60
        train(alone.config, NullView())
        assert timeless(job.path) == timeless(alone.path), job.name
    assert "resumed" in (logs / f"{lost}.log").read_text()
