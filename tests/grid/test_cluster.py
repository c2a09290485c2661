"""A grid on a Ray cluster: nodes that go and come, and nodes that cannot train."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from tiny import timeless, tiny

from echelon import __version__, cli
from echelon.console.view import NullView, PlainView
from echelon.errors import UserError
from echelon.grid import Job, cluster, run
from echelon.grid.cluster import RayCluster, require_fit
from echelon.training.loop import train

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
ITERATIONS = 100
STORE = 80_000_000
"""Bytes of a node's object store, the least that Ray allows; nothing is kept there."""


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


def test_a_node_that_cannot_train_says_why_and_without_ray_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "SHARED_WAIT_S", -1.0)
    require_fit(tmp_path, __version__)
    with pytest.raises(UserError, match=r"cannot train: it has echelon .*, not 9\.9; install the same version on all"):
        require_fit(tmp_path, "9.9")
    with pytest.raises(UserError, match=f"does not see the files in {tmp_path}; pass --out with a folder that all"):
        require_fit(tmp_path / ".grid-1", __version__)
    monkeypatch.setattr("echelon.errors.find_spec", lambda name: None)
    assert cli.main(["compare", "--tasks", "CartpoleSwingup", "--on", "ray"]) == 2
    sentence = "--on needs the package ray, which is not installed; pip install -e '.[ray]' in Echelon's clone\n"
    assert capsys.readouterr().err.endswith(sentence)


def test_runs_that_share_a_gpu_reserve_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray starts a job again whenever its node is lost; three runs a GPU reserve a third of it, rounded down, and there
    is room for twelve on four GPUs."""
    asked: list[dict[str, Any]] = []
    ended: Future[int] = Future()
    ended.set_result(0)
    task = SimpleNamespace(remote=lambda *job: Mock(future=lambda: ended))

    def remote(**options: Any) -> Callable[..., Any]:
        return lambda function: SimpleNamespace(options=lambda **more: asked.append(options | more) or task)

    nodes = [{"Alive": True, "Resources": {"CPU": 8.0}}]
    fake = SimpleNamespace(cluster_resources=lambda: {"GPU": 4.0}, nodes=lambda: nodes, remote=remote)
    monkeypatch.setattr(cluster, "_connect", lambda address: fake)
    monkeypatch.setattr(cluster, "require_address", lambda address: None)
    config = replace(tiny("CartpoleSwingup", tmp_path / "a"), device="cuda")
    for per_gpu in (1, 3):
        failed = run([Job("a", config)], tmp_path, cluster=(there := RayCluster("ray", per_gpu=per_gpu)))
        assert there.room == 4 * per_gpu
        assert failed == {"a": f"it ended before it was done; see {tmp_path / 'a.log'}"}
    assert [(one["num_gpus"], one["num_cpus"], one["max_retries"]) for one in asked] == [(1.0, 1, -1), (0.3333, 1, -1)]


PORTS = """
from echelon.grid.cluster import RayCluster
cluster = RayCluster("ray", cpus=1)
import psutil  # comes with Ray
started = [psutil.Process(), *psutil.Process().children(recursive=True)]
ports = [port for one in started for port in one.net_connections("inet") if port.status == "LISTEN"]
print(len(ports) > 3, {port.laddr.ip.removeprefix("::ffff:") for port in ports})
cluster.close()
"""


@needs_ray
def test_a_cluster_of_our_own_listens_on_this_machine_alone_and_wants_a_token() -> None:
    own = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS"}
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as place:  # its sockets need a short path
        env = {name: value for name, value in os.environ.items() if name not in own} | {"RAY_TMPDIR": place}
        given: dict[str, Any] = {"env": env, "capture_output": True, "text": True, "check": True, "timeout": 120}
        done = patiently(lambda: subprocess.run([sys.executable, "-c", PORTS], **given))
    assert done.stdout == "True {'127.0.0.1'}\n"
    assert "Token authentication is disabled" not in done.stderr


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
    """Two nodes of one CPU, one of which is the head."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    cluster = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    add_node(cluster)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()


class LosesANode(PlainView):
    """When the job that is not on the head has saved something, its machine is lost like one whose power fails, and
    another one comes."""

    def __init__(self, jobs: list[Job], cluster: Any) -> None:
        super().__init__()
        self._jobs, self._cluster = jobs, cluster
        self.lost: Job | None = None

    def tick(self, now: bool = False) -> None:
        for job in self._jobs:
            files = list((job.path.parent / "logs").glob(f".grid-*/{job.name}"))
            node = [one for one in self._cluster.worker_nodes for file in files if one.node_id[:4] in file.read_text()]
            if node and self.lost is None and job.newest().get("iteration", 0) >= 12:
                (child,) = [int(pid) for pid, folder in trainers() if folder == job.path.resolve()]
                os.kill(child, signal.SIGSTOP)  # so that it does not notice, and saves nothing
                assert not job.trained
                self._cluster.remove_node(node[0], allow_graceful=False)
                os.kill(child, signal.SIGKILL)
                add_node(self._cluster)
                self.lost = job


def trainers() -> Iterator[tuple[str, Path]]:
    """Processes of this machine that hold the lock of a run folder, and the folder."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has just ended
            if (target := link.readlink()).name == ".lock":
                yield link.parts[2], target.parent


@needs_ray
def test_a_grid_survives_the_loss_of_a_node(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node is removed in the middle and another added. Both jobs end, none is trained twice, and what they learn is
    to the last digit what they learn without a cluster. A node of another version ends the grid."""

    def make_jobs(folder: Path) -> list[Job]:
        small: dict[str, Any] = {"iterations": ITERATIONS, "checkpoint_every": 10}
        return [Job(algo, tiny("CartpoleSwingup", folder / algo, algo, **small)) for algo in ("cpo", "ppo")]

    jobs, logs, here = make_jobs(tmp_path / "ray"), tmp_path / "ray" / "logs", socket.gethostname()
    view = LosesANode(jobs, nodes)
    with contextlib.closing(RayCluster("ray")) as connection:
        assert connection.device == "cpu"
        assert run(jobs, logs, cluster=connection, view=view) == {}
        before = {job.name: len(timeless(job.path)) for job in jobs}
        assert run(jobs, logs, cluster=connection) == {}
        monkeypatch.setattr(cluster, "__version__", "9.9")
        with pytest.raises(UserError, match=rf"^{here} cannot train: it has echelon .*, not 9\.9"):
            run([Job("new", tiny("CartpoleSwingup", tmp_path / "new"))], logs, cluster=connection)
    said = capsys.readouterr().out
    assert view.lost is not None
    lost = view.lost.name
    assert f"{lost} lost its node {here}/" in said
    assert f"{lost} resumes on {here}/" in said
    assert f"{lost} is done" in said
    assert "2 of 2 done, 0 running, 0 left" in said
    assert not list(logs.glob(".grid-*"))
    for job, alone in zip(jobs, make_jobs(tmp_path / "alone"), strict=True):
        starts = json.loads((job.path / "config.json").read_text())["sessions"]
        assert len(starts) == (2 if job.name == lost else 1), job.name
        assert before[job.name] == ITERATIONS
        train(alone.config, NullView())
        assert timeless(job.path) == timeless(alone.path), job.name
    assert "resumed" in (logs / f"{lost}.log").read_text()
