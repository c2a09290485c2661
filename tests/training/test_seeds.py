"""Seeds that train side by side: each is the run it would be alone, has a folder like any other, and resumes to the
bit."""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from learning.iteration import small_config
from rollout.stub_env import DriftEnv
from tiny import differing, tiny
from training.test_loop import state_of

from echelon.cli import main
from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.console.view import NullView
from echelon.envs.contract import Env, Groups, Step
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate, evaluate_every
from echelon.runs import checkpoint
from echelon.runs.metrics import DISTANCES, read_lines, read_metrics
from echelon.tasks import make, preset
from echelon.training.loop import train, train_seeds
from echelon.training.run import Run
from echelon.training.setup import _common_iteration
from echelon.training.stacked import StackedTrainer
from echelon.training.trainer import Trainer

SEEDS = (3, 0, 11)
PAIR = (2, 0)
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


class Double:
    """A task that observes and pays in float64."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self) -> Groups:
        return {name: x.double() for name, x in self._env.reset().items()}

    def step(self, action: torch.Tensor) -> Step:
        step = self._env.step(action)
        obs, final = ({name: x.double() for name, x in groups.items()} for groups in (step.obs, step.final_obs))
        return replace(step, obs=obs, final_obs=final, reward=step.reward.double())


def cartpoles(config: TrainConfig, seed: int) -> Any:
    env = preset("CartpoleSwingup").env
    return Double(make("CartpoleSwingup", env, config.num_envs, torch.device("cpu"), seed, spread_clocks=True))


def drifting(config: TrainConfig, seed: int) -> Env:
    return DriftEnv(config.num_envs, seed=seed, critic=True)


def side_by_side(config: TrainConfig, make_env: Callable[[TrainConfig, int], Env]) -> StackedTrainer:
    return StackedTrainer([make_env(config, seed) for seed in SEEDS], [replace(config, seed=seed) for seed in SEEDS])


CASES = {
    "PPO with LSTM": small_config("ppo", lstm=8),
    "CPO with adversary": small_config("cpo", 3, adversary=0.2, entropy_scale=0.01),
    "CPO with adversary and LSTM": small_config("cpo", 3, 8, adversary=0.2),
}


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", CASES)
def test_each_seed_is_its_own_run(name: str) -> None:
    """Three iterations of the cartpole, measurements among them: metrics and all that a checkpoint holds, in float64
    to 1e-6 (the task itself rounds to float32)."""
    config = replace(CASES[name], diagnostics=DiagnosticsConfig(every=2))
    together = side_by_side(config, cartpoles)
    alone = [Trainer(cartpoles(config, seed), replace(config, seed=seed)) for seed in SEEDS]
    for iteration in range(3):
        found = together.iterate_each()
        for ours, run in zip(found, alone, strict=True):
            expected = run.iterate()
            assert list(ours.metrics) == list(expected.metrics)
            for metric, value in expected.metrics.items():
                same = math.isnan(value) and math.isnan(ours.metrics[metric])
                assert same or ours.metrics[metric] == pytest.approx(value, rel=1e-6, abs=1e-6), metric
            assert (ours.kl_matrix is None) == (expected.kl_matrix is None) == bool(iteration % 2 or name[:3] == "PPO")
            if ours.kl_matrix is not None:
                torch.testing.assert_close(torch.tensor(ours.kl_matrix), torch.tensor(expected.kl_matrix), **TOLERANCE)
    together.sync_learned()
    for ours, run in zip(together.runs, alone, strict=True):
        assert differing(ours.state_dict(), run.state_dict(), **TOLERANCE) == []
    first, second, _ = (run.model.mean_head.weight for run in alone)
    assert (first - second).abs().max() > 0.01


def test_a_seed_of_a_stack_goes_on_alone_and_a_run_in_a_stack() -> None:
    """What each saves is a run's checkpoint: one of the stack's continues alone, as the stack does."""
    config = CASES["CPO with adversary and LSTM"]
    together = side_by_side(config, drifting)
    for _ in range(3):
        together.iterate_each()
    together.sync_learned()
    run = Trainer(drifting(config, SEEDS[1]), replace(config, seed=SEEDS[1]))
    run.load_state_dict(together.runs[1].state_dict())
    run.iterate()
    together.iterate_each()
    together.sync_learned()
    assert run.iteration == together.runs[1].iteration == 4
    assert run.gradient_steps == together.runs[1].gradient_steps
    assert differing(together.runs[1].state_dict(), run.state_dict(), **TOLERANCE) == []


def short(out: Path, iterations: int = 6, algo: str = "cpo", lstm: int = 0) -> TrainConfig:
    config = tiny("CartpoleSwingup", out, algo, lstm, {"episode_length": 20}, iterations=iterations, checkpoint_every=2)
    return replace(config, diagnostics=DiagnosticsConfig(every=3), adversary=replace(config.adversary, coef=0.1))


def test_each_seeds_folder_is_that_of_a_run(tmp_path: Path) -> None:
    """Settings, metrics and networks; what is computed in float32 agrees to 1e-5 after a few iterations."""
    folders = train_seeds(short(tmp_path / "all", 4, lstm=4), PAIR)
    assert [folder.path for folder in folders] == [tmp_path / "all" / f"seed_{seed}" for seed in PAIR]
    alone = train(replace(short(tmp_path / "alone", 4, lstm=4), seed=PAIR[0]))
    folder = folders[0]
    assert replace(folder.config, out="") == replace(alone.config, out="")
    ours, theirs = state_of(folder), state_of(alone)
    assert set(ours) == set(theirs)
    assert differing(ours["model"], theirs["model"], rtol=1e-5, atol=1e-5) == []
    assert ours["generator"].equal(theirs["generator"])
    assert ours["env"]["generator"].equal(theirs["env"]["generator"])
    for found, expected in zip(read_metrics(folder), read_metrics(alone), strict=True):
        for name in (name for name in expected if not name.startswith(("time/", "fps/", "wall_s"))):
            assert found[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4, nan_ok=True), name
    assert [line["iteration"] for line in read_lines(folder.path / DISTANCES)] == [1, 4]
    assert checkpoint.saved_iterations(folder) == checkpoint.saved_iterations(alone)
    assert len(evaluate(folders[1], num_envs=2).scores) == 6


def test_seeds_resume_together_to_the_bit_also_after_a_kill_between_two_saves(tmp_path: Path) -> None:
    """If the first save of all was cut short, they start over. Where the newest of one is damaged, they resume from an
    older one. A seed that was trained further alone is left as it is."""
    whole = train_seeds(short(tmp_path / "whole"), PAIR)
    for iterations in (2, 4, 5):
        parts = train_seeds(short(tmp_path / "parts", iterations), PAIR)
        newest = parts[1].checkpoints / f"{iterations:08d}"
        if iterations == 5:
            os.truncate(newest / "tensors.safetensors", 1000)
        else:
            shutil.rmtree(newest)  # as if killed after the first seed was saved
        assert [len(read_metrics(folder)) for folder in parts] == [iterations] * 2
        if iterations == 2:  # and again while they start over, when what they had logged is gone
            parts[1]._store(saved=False)
            before = _common_iteration(parts, NullView())
            for folder in parts:
                folder.metrics.write_text("")
            assert before == _common_iteration(parts, NullView()) == 0
    parts = train_seeds(short(tmp_path / "parts"), PAIR)
    for ours, theirs in zip(parts, whole, strict=True):
        assert differing(state_of(ours), state_of(theirs)) == []
        for found, expected in zip(read_metrics(ours), read_metrics(theirs), strict=True):
            assert found["iteration"] == expected["iteration"]
            assert found["loss/actor"] == expected["loss/actor"]
    train(replace(parts[0].config, iterations=10))
    with pytest.raises(UserError, match=r"seed_2 is ahead of .*seed_0, so they cannot continue side by side"):
        train_seeds(short(tmp_path / "parts", 10), PAIR)
    assert len(read_metrics(parts[0])) == 10


@pytest.mark.parametrize("operation", ["log", "save"])
@pytest.mark.parametrize("common", [0, 2])
def test_seeds_killed_while_they_repeat_what_one_had_saved_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, common: int, operation: str
) -> None:
    """The first has a checkpoint of iteration 3, as an interrupt leaves it, and the second an older one or none. They
    start from there, and the first gets further than the second before the next kill: the old one counts no more."""

    class Killed(BaseException): ...

    whole = train_seeds(short(tmp_path / "whole", algo="ppo"), PAIR)
    config = short(tmp_path / "parts", algo="ppo")
    parts = train_seeds(replace(config, iterations=3), PAIR)
    shutil.rmtree(parts[1].checkpoints / "00000003")
    if common == 0:
        shutil.rmtree(parts[0].checkpoints / "00000002")
        shutil.rmtree(parts[1].checkpoints / "00000002")
        parts[1]._store(saved=False)
    done = getattr(Run, operation)

    def killed(run: Run) -> None:
        if run.folder.config.seed == PAIR[1]:
            raise Killed
        done(run)

    monkeypatch.setattr(Run, operation, killed)
    with pytest.raises(Killed):
        train_seeds(config, PAIR)
    monkeypatch.undo()
    parts = train_seeds(config, PAIR)
    for ours, theirs in zip(parts, whole, strict=True):
        assert differing(state_of(ours), state_of(theirs)) == []
        assert len(read_metrics(ours)) == 6


def test_a_seed_that_is_added_does_not_start_the_others_over(tmp_path: Path) -> None:
    """Though they have one checkpoint each, as after a kill while the first was saved."""
    done = train_seeds(short(tmp_path / "all", 2, "ppo"), PAIR)
    written = [folder.metrics.read_text() for folder in done]
    with pytest.raises(UserError, match=r"seed_2 is ahead of .*seed_9, so they cannot continue side by side"):
        train_seeds(short(tmp_path / "all", 2, "ppo"), [*PAIR, 9])
    assert [folder.metrics.read_text() for folder in done] == written
    assert not (tmp_path / "all" / "seed_9").exists()


def test_seeds_that_share_no_whole_checkpoint_do_not_start_over(tmp_path: Path) -> None:
    """Here the only one of a seed is damaged; so it is where each keeps one and a kill came between their saves."""
    done = train_seeds(short(tmp_path, 2, "ppo"), PAIR)
    os.truncate(done[1].checkpoints / "00000002" / "tensors.safetensors", 1000)
    with pytest.raises(UserError, match=r"the runs .*seed_2 to .*seed_0 share no whole checkpoint; train those"):
        train_seeds(short(tmp_path, 4, "ppo"), PAIR)
    assert [len(read_metrics(folder)) for folder in done] == [2, 2]


def test_a_seed_whose_checkpoints_are_gone_does_not_start_the_others_over(tmp_path: Path) -> None:
    """As where it trains alone; a kill while the first was saved leaves a seed that never had one."""
    done = train_seeds(short(tmp_path, 2, "ppo"), PAIR)
    shutil.rmtree(done[1].checkpoints)
    with pytest.raises(UserError, match=r"seed_0 has logged iterations but no checkpoint is left"):
        train_seeds(short(tmp_path, 4, "ppo"), PAIR)
    assert [len(read_metrics(folder)) for folder in done] == [2, 2]


def test_seeds_stop_together_and_each_is_evaluated_and_has_its_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`until` is asked about the mean over seeds."""
    shown: list[float] = []
    begun: list[dict[str, Any]] = []

    class Service:
        def __init__(self, **settings: Any) -> None:
            begun.append(settings | {"logged": []})
            self.log, self.define_metric = begun[-1]["logged"].append, lambda *_, **__: None

        def finish(self) -> None: ...

    pytest.importorskip("wandb", reason="needs pip install -e '.[wandb]'")
    monkeypatch.setattr("wandb.init", Service)
    config = replace(short(tmp_path / "all", 9, "ppo"), until="env_steps>=60", wandb="offline")
    folders = train_seeds(config, PAIR, callbacks=[lambda metrics: shown.append(metrics["lr"]), evaluate_every(2, 2)])
    lines = [read_metrics(folder) for folder in folders]
    assert [len(one) for one in lines] == [3, 3]  # 24 steps each
    assert shown == pytest.approx([(first["lr"] + second["lr"]) / 2 for first, second in zip(*lines, strict=True)])
    for folder, metrics, service in zip(folders, lines, begun, strict=True):
        found = [json.loads(line) for line in (folder.path / "evaluations.jsonl").read_text().splitlines()]
        assert [line["iteration"] for line in found] == [2, 3]
        assert "evaluated/leader" in metrics[2]
        assert service["reinit"] == "create_new"
        assert [line["loss/actor"] for line in service["logged"]] == pytest.approx([x["loss/actor"] for x in metrics])


def test_the_flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many, or which; without --out each folder has the name it would have alone."""
    monkeypatch.chdir(tmp_path)
    flags = ["CartpoleSwingup", "--algo", "ppo", "--num-envs", "4", "--iterations", "1", "--update.minibatches", "1"]
    assert main(["train", *flags, "--seeds", "2"]) == 0
    assert main(["train", *flags, "--seeds", "4", "7", "--out", "mine"]) == 0
    runs = sorted(str(path.parent) for path in Path().rglob("config.json"))
    assert runs == ["mine/seed_4", "mine/seed_7", "runs/CartpoleSwingup-ppo-s0", "runs/CartpoleSwingup-ppo-s1"]
