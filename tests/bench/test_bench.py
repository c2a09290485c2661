"""The parts of an iteration, their rests and their table; and the command on a real task."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from gpu import needs_gpu

from echelon.bench.clock import Clock, memory, synchronisations
from echelon.bench.measure import Bench, _with_rests, physics_of
from echelon.bench.table import document, table
from echelon.cli import main
from echelon.config import TrainConfig, UpdateConfig
from echelon.tasks import make, preset

CPU = torch.device("cpu")


def found(**changes: object) -> Bench:
    """100 environments × 10 steps in 50 ms: 20,000 steps a second."""
    config = TrainConfig(num_envs=100, update=UpdateConfig(horizon=10))
    parts = {"collect": 30.0, "collect/physics": 25.0, "collect/storage and scores": 5.0, "update": 20.0}
    values: dict = {"physics_rate": 40_000.0, "memory": 3 * 2**30, "synchronisations": 1} | changes
    return Bench(config, "cpu", 50.0, parts, **values)


def test_what_parts_leave_over_is_the_rest_and_parts_are_sorted() -> None:
    parts = {"collect": 30.0, "targets": 1.0, "update": 9.0, "collect/policy": 5.0, "collect/physics": 20.0}
    assert list(_with_rests(parts).items()) == [
        ("collect", 30.0),
        ("collect/physics", 20.0),
        ("collect/policy", 5.0),
        ("collect/storage and scores", 5.0),
        ("targets", 1.0),
        ("update", 9.0),
    ]
    assert _with_rests({"update": 1.0, "update/forward": 2.0})["update/shuffling, KL and metrics"] == 0.0


def test_table_and_document_by_hand() -> None:
    lines = table(found()).splitlines()
    assert lines[1].split() == ["collect", "30.00", "60.0%", "33.3", "k"]  # 1,000 steps in 30 ms
    assert lines[2].split() == ["physics", "25.00", "50.0%", "40.0", "k"]
    assert lines[2].index("physics") == lines[1].index("collect") + 2
    assert lines[5].split() == ["iteration", "50.00", "100.0%", "20.0", "k"]
    assert lines[7:] == [
        "training runs at 50% of the rate of physics alone",
        "3.0 GiB on the device",
        "the host waits for the device once in an iteration",
    ]
    on_cpu = table(found(physics_rate=None, memory=None, synchronisations=None))
    assert not any(word in on_cpu for word in ("physics alone", "GiB", "host"))
    assert memory(CPU) is synchronisations(lambda: None, CPU) is None
    figures = json.loads(document(found()))
    assert (figures["steps_per_s"], figures["parts_ms"]["collect/physics"]) == (20_000, 25.0)
    assert figures["config"]["update"]["horizon"] == 10


def test_the_clock_takes_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times = Clock(CPU, (), 3, capture=True), iter([5.0, 1.0, 2.0])
    calls = []
    monkeypatch.setattr(clock, "once", lambda run: next(times))
    assert clock.milliseconds(lambda: calls.append(1)) == 2.0
    assert len(calls) == 3  # before the clock starts


def test_the_host_waits_when_torch_says_so_and_not_when_it_introduces_the_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def switch(mode: str) -> None:
        modes.append(mode)
        if mode == "warn":
            warnings.warn("Synchronization debug mode does not yet detect all synchronizing operations", stacklevel=1)

    def iterate() -> None:
        for _ in range(3):
            warnings.warn("called a synchronizing CUDA operation (Triggered internally)", stacklevel=1)
        warnings.warn("something else", stacklevel=1)

    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", switch)
    assert synchronisations(iterate, torch.device("cuda")) == 3
    assert modes == ["warn", "default"]


@needs_gpu
def test_torch_says_when_the_host_waits_and_only_then() -> None:
    """In torch's own words, of which the test above has a copy."""
    device = torch.device("cuda")
    x = torch.zeros((), device=device)
    assert synchronisations(lambda: x.item(), device) == 1
    assert synchronisations(lambda: x.add_(1), device) == 0


def test_repeated_physics_ends_where_the_rollout_did() -> None:
    env = make("Hopper", preset("Hopper").env, 8, torch.device("cpu"), 0)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    actions = 2 * torch.rand(6, 8, env.action_dim, generator=generator) - 1
    began = env.engine.qpos.clone()
    repeat = physics_of(env, actions)
    whole = env.clock == 6  # no episode ended there meanwhile
    assert whole.sum() > 3
    qpos, qvel = env.engine.qpos[whole], env.engine.qvel[whole]
    assert (qpos - began[whole]).abs().amax(1).min() > 0.01
    for _ in range(2):
        env.engine.ctrl.zero_()
        repeat()
        torch.testing.assert_close(env.engine.qpos[whole], qpos, rtol=0, atol=1e-6)
        torch.testing.assert_close(env.engine.qvel[whole], qvel, rtol=0, atol=1e-4)


@pytest.mark.parametrize("algo", ["cpo", "pbt"])
def test_a_task_is_measured(algo: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "figures" / "here.json"
    words = ["CartpoleSwingup", "--algo", algo, "--num-envs", "48", "--policies", "2", "--repeats", "2"]
    assert main(["bench", *words, "--json", str(path), "--device", "cpu"]) == 0
    figures = json.loads(path.read_text())
    parts = figures["parts_ms"]
    pieces = {"collect/physics", "collect/policy", "update/gather", "update/forward", "update/backward"}
    assert {"collect", "targets", "update", "read", "logging"} | pieces <= set(parts)
    assert all(value >= 0 for value in parts.values())
    wholes = sum(parts[name] for name in ("collect", "targets", "update", "read"))
    assert 0.3 < wholes / figures["iteration_ms"] < 2  # loosely: the machine may be busy
    assert figures["num_envs"] == 48
    assert f"Written to {path}" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_figures_that_cannot_be_written_are_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr("echelon.bench.measure.bench", lambda *arguments: pytest.fail("measured"))
    for name in ("file/figures.json", "folder"):
        assert main(["bench", "CartpoleSwingup", "--device", "cpu", "--json", str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert f"{tmp_path / name} cannot be written: " in error
        assert len(error.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_help_lists_the_tasks(capsys: pytest.CaptureFixture) -> None:
    for words in (["--help"], ["Hopper", "-h"]):
        assert main(["bench", *words]) == 0
        out = capsys.readouterr().out
        assert "--repeats INT" in out
        assert "AllegroHand" in out
