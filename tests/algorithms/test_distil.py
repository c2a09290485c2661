"""A student: its loss by hand, its teacher in every state, and a run like any other."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpu import needs_gpu
from rollout.stub_env import DriftEnv
from tiny import differing, timeless, tiny

from echelon import cli
from echelon.algorithms import student_of
from echelon.algorithms.distil import actor_loss
from echelon.console.view import NullView
from echelon.envs.contract import State
from echelon.envs.observed import Observed
from echelon.errors import UserError
from echelon.export.files import describe
from echelon.export.policy import Policy, SavedPolicy
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.runs.trained import Trained
from echelon.tasks import make, preset
from echelon.training.loop import train
from echelon.training.setup import as_seen
from echelon.training.teacher import Taught
from echelon.training.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=[0, 5], ids=["mlp", "lstm"])
def teacher(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Three policies, of which the first leads; it sees two observations at once."""
    out = tmp_path_factory.mktemp("teacher") / "run"
    return train(tiny("Hopper", out, lstm=request.param, history=2, env={"episode_length": 6}), NullView())


def test_the_loss_is_the_kl_of_gaussians_around_the_two_means() -> None:
    """Two rows with sigmas 1/2 and 2: off by (0.5, 2) and (0, -4), so ½(1 + 1) and ½(0 + 4)."""
    output = SimpleNamespace(
        mean=torch.tensor([[[[1.5, 3.0], [0.0, -3.0]]]], requires_grad=True),
        log_std=torch.tensor([0.5, 2.0]).log().view(1, 1, 2).requires_grad_(),
    )
    batch: Any = SimpleNamespace(target=torch.tensor([[[[1.0, 1.0], [0.0, 1.0]]]]), output=output)
    loss = actor_loss(batch, student_of(tiny("Hopper", Path("run")), "teacher"))
    assert loss.terms["own"].tolist() == pytest.approx([1.0 + 2.0])
    assert loss.metrics["distil/error"].tolist() == pytest.approx([((0.25 + 4 + 0 + 16) / 4) ** 0.5])
    loss.terms["own"].sum().backward()
    assert output.mean.grad.flatten().tolist() == pytest.approx([0.5 / 0.25, 2 / 4, 0.0, -4 / 4])
    assert output.log_std.grad is None


def test_the_teacher_says_what_its_exported_policy_does_and_acts_in_ever_fewer_environments(teacher: RunFolder) -> None:
    """With four environments and a fade of two steps: in all, in half of them, in none. Episodes have six steps."""
    config, asked = teacher.config, list[torch.Tensor]()
    env = make("Hopper", config.env, 4, CPU, 3)
    taught, view = Taught(env, Trained.load(teacher), fade=2), Observed(make("Hopper", config.env, 4, CPU, 3), (), 2)
    policies = [Policy(SavedPolicy.load(teacher)) for _ in range(4)]
    step = env.step
    env.step = lambda action: asked.append(action) or step(action)
    obs, seen = taught.reset(), view.reset()
    own = torch.full((4, env.action_dim), 0.25)
    for number, share in enumerate([4, 2, 0, 0, 0, 0, 0, 0]):
        said = torch.stack([policy(x) for policy, x in zip(policies, seen["policy"], strict=True)])
        assert torch.allclose(obs["target"].clamp(-1, 1), said, atol=1e-6)
        found = taught.step(own)
        assert asked[number].equal(torch.cat((obs["target"][:share].clamp(-1, 1), own[share:])))
        assert float(found.log["taught"]) == share / 4
        expected = view.step(asked[number])
        obs, seen = found.obs, expected.obs
        for policy, done in zip(policies, expected.terminated | expected.truncated, strict=True):
            policy.reset() if done else None


def test_a_student_is_a_run_like_any_other_and_needs_its_teacher_only_to_train(
    teacher: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, parts, whole = (tmp_path / name for name in ("teacher", "parts", "whole"))
    shutil.copytree(teacher.path, here)
    before = {file: file.read_bytes() for file in here.rglob("*.*") if file.is_file()}
    words = ["distil", str(here), "--obs", "policy", "--history", "3", "--model.lstm", "4", "--teacher.fade", "3"]
    assert cli.main([*words, "--out", str(parts)]) == 0
    assert cli.main([*words, "--out", str(whole), "--iterations", "4"]) == 0
    assert cli.main(["train", "--resume", str(parts), "--iterations", "4"]) == 0
    assert timeless(parts) == timeless(whole)
    one, other = (checkpoint.load(RunFolder.open(path), "newest").state["trainer"] for path in (parts, whole))
    assert differing(one, other) == []
    assert {file: file.read_bytes() for file in here.rglob("*.*") if file.is_file()} == before
    lines = read_metrics(RunFolder.open(whole))
    assert [line["env/taught"] for line in lines] == pytest.approx([1 - 1.5 / 12, 1 - 5.5 / 12, 1 - 9.5 / 12, 0.0])
    assert all(line["sigma/policy_0"] == pytest.approx(0.1, rel=1e-5) for line in lines)
    assert RunFolder.open(whole).config.env == teacher.config.env
    first = checkpoint.saved_iterations(teacher)[0]
    assert cli.main([*words, "--out", str(tmp_path / "early"), "--checkpoint", str(first), "--iterations", "1"]) == 0
    early = json.loads((tmp_path / "early" / "config.json").read_text())["config"]
    assert early["teacher"]["checkpoint"] == first
    assert cli.main([*words, "--out", str(tmp_path / "none"), "--checkpoint", "99"]) == 2
    shutil.move(here, tmp_path / "elsewhere")
    for command in (["evaluate", "--num-envs", "2"], ["export", "--format", "numpy"], ["record", "--format", "html"]):
        assert cli.main([command[0], str(parts), *command[1:]]) == 0
    capsys.readouterr()
    resumed = ["train", "--resume", str(parts), "--iterations", "5"]
    assert cli.main(resumed) == 2
    assert (
        capsys.readouterr().err
        == f"echelon: the teacher's run {here} is not there; --teacher.run RUN says where it is\n"
    )
    assert cli.main([*resumed, "--teacher.run", str(tmp_path / "elsewhere")]) == 0


def test_an_exported_policy_says_which_observations_it_takes(tmp_path: Path) -> None:
    run = train(tiny("Hopper", tmp_path / "run", "ppo", obs=("policy",), iterations=1), NullView())
    parts = describe(SavedPolicy.load(run))["observation"]
    named = [(part["quantity"], part["of"], part["start"]) for part in parts]
    joints = ["pitch", "hip", "knee", "ankle"]
    assert named == [("joint position", joints, 0), ("joint velocity", joints, 4)]


def test_a_student_learns_what_its_teacher_does(tmp_path: Path) -> None:
    """Any network can teach. A student that misses half of the numbers cannot be as near. Resumed, it is still beyond
    the iterations in which its teacher acts, though the environment saves no state."""

    class Forgets(DriftEnv):
        def state_dict(self) -> State:
            return {}

    def env(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
        return Forgets(num_envs, seed)

    config = replace(tiny("Hopper", tmp_path / "teacher", "ppo", iterations=1), task="Drift")
    taught = train(config, NullView(), env)
    student = replace(student_of(taught.config, str(taught.path)), num_envs=48, iterations=25, device="cpu")
    student = replace(student, update=replace(student.update, learning_rate=1e-2, mini_epochs=5))
    found = []
    for obs in ((), ("0:2",)):
        out = tmp_path / f"student{len(obs)}"
        lines = read_metrics(train(replace(student, obs=obs, out=str(out)), NullView(), env))
        found.append(lines[-1]["distil/error"] / lines[0]["distil/error"])
    assert found[0] < 0.1
    assert found[0] < 0.5 * found[1]
    resumed = train(replace(student, iterations=26, out=str(tmp_path / "student0")), NullView(), env)
    assert [line["env/taught"] for line in read_metrics(resumed)[-6:]] == [0.0] * 6
    other = make("Hopper", preset("Hopper").env, 2, CPU, 0)
    with pytest.raises(UserError, match="has other observations or actions than these, so it cannot teach"):
        as_seen(other, student)


@needs_gpu
def test_a_student_is_recorded_as_a_graph(teacher: RunFolder) -> None:
    """Everything but the read of the metrics, and to the bit what it is without a graph."""
    start = replace(
        student_of(teacher.config, str(teacher.path)), obs=("policy",), history=3, fuse=False, device="cuda"
    )
    states = []
    for capture in (True, False):
        config = replace(start, capture=capture)
        trainer = Trainer(as_seen(make("Hopper", config.env, 6, torch.device("cuda"), 0), config), config)
        for _ in range(5):
            trainer.iterate()
        assert (trainer._collect._graph is not None) == capture
        states.append(trainer.model.state_dict())
    assert differing(*states) == []
