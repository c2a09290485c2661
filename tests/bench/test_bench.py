"""The parts of an iteration, their rests and their table; and the command on a real task."""

import json
import warnings
from pathlib import Path

import pytest
import torch
from gpu import needs_gpu

from echelon.bench.measure import Bench, Clock, _with_rests, physics_of, synchronisations
from echelon.cli import main
from echelon.config import TrainConfig, UpdateConfig
from echelon.tasks import make, preset

CPU = torch.device("cpu")


def test_table_and_document_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 environments × 10 steps in 50 ms: 20,000 steps a second. Whole parts come before theirs, the largest first,
    and what they leave over is the rest, at least 0."""
    config = TrainConfig(num_envs=100, update=UpdateConfig(horizon=10))
    measured = {"collect": 30.0, "update": 18.0, "read": 2.0, "collect/policy": 4.0, "collect/physics": 25.0}
    parts = _with_rests(measured | {"update/forward": 20.0})
    found = Bench(config, "cpu", 50.0, parts, 3 * 2**30, 1, ((50.0, None), (40.0, 2**30)))
    lines = found.table().splitlines()
    rows = [line.split() for line in lines[1:9]]
    names = "collect physics policy storage update forward shuffling, read"
    assert [row[0] for row in rows] == names.split()
    assert rows[0] == ["collect", "30.00", "60.0%", "33.3", "k"]  # 1,000 steps in 30 ms
    assert rows[1] == ["physics", "25.00", "50.0%", "40.0", "k"]
    assert lines[2].index("physics") == lines[1].index("collect") + 2
    assert (parts["collect/storage and scores"], parts["update/shuffling, KL and metrics"]) == (1.0, 0.0)
    assert lines[9].split() == ["iteration", "50.00", "100.0%", "20.0", "k"]
    assert lines[11:] == [
        "training runs at 50% of the rate of physics alone",
        "3.0 GiB on the device",
        "the host waits for the device once in an iteration",
        "rank 0: 50.00 ms, 10.0 k steps/s",
        "rank 1: 40.00 ms, 12.5 k steps/s, 1.0 GiB",
    ]
    on_cpu = Bench(config, "cpu", 50.0, {"collect": 30.0}, None, None).table()
    assert not any(word in on_cpu for word in ("physics alone", "GiB", "host", "rank"))
    assert synchronisations(lambda: None, CPU) is None
    figures = json.loads(found.document())
    assert (figures["steps_per_s"], figures["parts_ms"]["collect/physics"]) == (20_000, 25.0)
    assert figures["config"]["update"]["horizon"] == 10
    # The clock takes the median.
    clock, times = Clock(CPU, (), 3, True), iter([5.0, 1.0, 2.0])
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


def test_a_task_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "figures" / "here.json"
    words = ["CartpoleSwingup", "--algo", "pbt", "--num-envs", "48", "--policies", "2", "--repeats", "2"]
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


def test_an_algorithm_with_a_replay_is_measured_once_it_learns(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """8 steps fill the replay and an iteration takes 4, so two pass before the first with updates."""
    small = [
        "--sac.updates",
        "3",
        "--sac.batch",
        "8",
        "--sac.warm-up",
        "8",
        "--sac.hidden",
        "8",
        "--sac.critic-width",
        "8",
    ]
    words = ["CartpoleSwingup", "--algo", "sac", "--num-envs", "4", "--update.horizon", "4", *small, "--repeats", "2"]
    assert main(["bench", *words, "--json", str(tmp_path / "a.json"), "--device", "cpu"]) == 0
    parts = json.loads((tmp_path / "a.json").read_text())["parts_ms"]
    pieces = {name for name in parts if name.startswith("update/")}
    assert pieces == {f"update/{name}" for name in ("rows", "critics", "actor", "targets and metrics")}
    assert min(parts["update"], parts["update/critics"]) > 0
    assert "CartpoleSwingup, sac, one policy, 4 environments" in capsys.readouterr().out


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
