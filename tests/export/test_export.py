"""A policy outside of its run does what it did inside: every kind of network, every format."""

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rollout.stub_env import DriftEnv
from tiny import tiny

from echelon import cli, load_policy
from echelon.config import TaskConfig
from echelon.envs.contract import Step
from echelon.errors import UserError
from echelon.export import files, numpy_policy
from echelon.export.files import ENDINGS, Format, export, largest_difference
from echelon.export.numpy_policy import NumpyPolicy
from echelon.export.policy import SavedPolicy
from echelon.rollout.acting import Actor
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.training.loop import train


def shifted(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    """Actions in units of their own, one of them without a limit; a critic that sees more."""
    env = DriftEnv(num_envs, seed, critic=True)
    env.action_low, env.action_high = torch.tensor([2.0, -torch.inf]), torch.tensor([3.0, torch.inf])
    env.step = lambda action: DriftEnv.step(env, ((action - 2.5) * 2).clamp(-1, 1))
    return env


RUNS = {"mlp": {}, "lstm": {"lstm": 5}, "population": {"algo": "pbt"}, "one policy": {"algo": "ppo"}, "bounds": {}}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """A run of each kind, trained when it is first asked for."""

    @cache
    def find(name: str) -> RunFolder:
        config = tiny("CartpoleSwingup", tmp_path_factory.mktemp("runs") / "run", **RUNS[name])
        if name == "one policy":  # a file knows its activation
            config = replace(config, model=replace(config.model, activation="silu"))
        if name == "bounds":
            return train(replace(config, task="Drift", env=TaskConfig()), make_env=shifted)
        return train(config)

    return find


@pytest.fixture(params=RUNS)
def folder(request: pytest.FixtureRequest, runs: Callable[[str], RunFolder]) -> RunFolder:
    return runs(request.param)


def expected(folder: RunFolder, policy: int, obs: np.ndarray) -> np.ndarray:
    """What the run's own networks do for a sequence of observations `[T, N, D]`, in the environment's units."""
    model = Trained.load(folder).model
    each = model.policies // model.networks
    actor = Actor(model.only(policy // each), torch.full((obs.shape[1],), policy % each))
    state, actions = torch.zeros(obs.shape[1], model.state_dim), []
    for row in torch.from_numpy(obs):
        with torch.no_grad():
            decision = actor.decide({"policy": row, "critic": torch.zeros(len(row), 5)}, state, None)
        state = decision.state
        actions.append(decision.action.clamp(-1, 1).numpy())
        if folder.config.task == "Drift":  # 2 to 3, and without a limit
            actions[-1] = np.stack((2.5 + 0.5 * actions[-1][:, 0], decision.action[:, 1].numpy()), axis=1)
    return np.stack(actions)


def observations(folder: RunFolder) -> np.ndarray:
    width = 4 if folder.config.task == "Drift" else 5
    return np.random.default_rng(0).normal(0, 3, (6, 7, width)).astype(np.float32)


def test_a_policy_in_one_line(folder: RunFolder) -> None:
    """On NumPy and torch, one observation or many, and it remembers until it is reset."""
    obs = observations(folder)
    for policy in range(folder.config.policies or 1):
        wanted = expected(folder, policy, obs)
        act = load_policy(folder.path, policy)
        np.testing.assert_allclose(np.stack([act(row) for row in obs]), wanted, atol=1e-5)
        act.reset()
        np.testing.assert_allclose(np.stack([act(row[0]) for row in obs]), wanted[:, 0], atol=1e-5)
        act.reset()
        torch.testing.assert_close(act(torch.from_numpy(obs[0])), torch.from_numpy(wanted[0]), atol=1e-5, rtol=0)
    act.reset()
    np.testing.assert_allclose(act({"critic": np.zeros((7, 9)), "policy": obs[0]}), wanted[0], atol=1e-5)
    with pytest.raises(UserError, match="this policy sees policy: give it that, alone or in a dict"):
        act({"critic": obs[0]})
    with pytest.raises(UserError, match=rf"observations are \[{obs.shape[2]}\] or \[N, {obs.shape[2]}\], not \[3\]"):
        act(np.zeros(3))


FILES = [("numpy", name) for name in RUNS] + [("onnx", name) for name in ("lstm", "population", "bounds")]


@pytest.mark.parametrize(("format", "name"), FILES)
def test_a_file_does_what_the_run_does(
    runs: Callable[[str], RunFolder], format: Format, name: str, tmp_path: Path
) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript", reason="needs pip install -e '.[export]'")
    folder, out = runs(name), tmp_path / f"policy{ENDINGS[format]}"
    policy, obs = (folder.config.policies or 1) - 1, observations(folder)
    assert export(SavedPolicy.load(folder, policy), format, out) < 1e-5
    act = (files.OnnxPolicy if format == "onnx" else NumpyPolicy)(out)
    np.testing.assert_allclose(np.stack([act(row) for row in obs]), expected(folder, policy, obs), atol=1e-5)


def test_large_actions_may_differ_by_as_much_as_float32_rounds_them(
    runs: Callable[[str], RunFolder], tmp_path: Path
) -> None:
    """Torques in N m, say."""
    trained = Trained.load(runs("bounds"))
    limits = {"low": [-300.0, 2900.0], "high": [300.0, 3000.0]}
    policy = SavedPolicy(replace(trained, interface=trained.interface | {"bounds": limits}), 0).eval()
    export(policy, "numpy", tmp_path / "policy.npz")
    act = NumpyPolicy(tmp_path / "policy.npz")
    assert 1e-6 < largest_difference(policy, lambda obs: act(obs) + np.array([0.0, 0.01], np.float32)) < 1e-5
    assert largest_difference(policy, lambda obs: act(obs) + np.array([0.01, 0.0], np.float32)) > 1e-5


def test_a_file_that_differs_is_not_written(
    runs: Callable[[str], RunFolder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(shift: float, file: Path) -> files.Act:
        act = NumpyPolicy(file)
        return lambda obs: act(obs) + shift

    folder = runs("bounds")
    policy = SavedPolicy.load(folder, 0)
    for shift, said in ((2e-5, "2e-05"), (math.nan, "nan")):
        monkeypatch.setattr(numpy_policy, "NumpyPolicy", partial(wrong, shift))
        with pytest.raises(UserError, match=f"differs from the network by {said}, so it was not written"):
            export(policy, "numpy", tmp_path / "policy.npz")
    assert list(tmp_path.iterdir()) == []
    with torch.no_grad():  # another policy is told apart by every action
        policy.trained.model.mean_head.bias += 1e-3
    assert largest_difference(policy, load_policy(folder.path, 0)) > 1e-4


def test_what_the_file_says_of_itself(runs: Callable[[str], RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript", reason="needs pip install -e '.[export]'")
    import onnx

    run = runs("lstm")
    capsys.readouterr()
    assert cli.main(["export", str(run.path), "--policy", "1"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert re.search(r"Written to .*/export/1\.onnx; on 1,000 .* differ .* by at most \d\.\de-\d\d", said.out)
    model = onnx.load(run.path / "export" / "1.onnx")
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert (facts["task"], facts["policy"], facts["iteration"]) == ("CartpoleSwingup", "1", "2")
    assert json.loads(facts["inputs"]) == {"obs": [5], "state": [10]}
    assert json.loads(facts["outputs"]) == {"action": [1], "next_state": [10]}
    assert [x.name for x in model.graph.input] == ["obs", "state"]
    assert [x.name for x in model.graph.output] == ["action", "next_state"]
    for words, sentence in (
        (["--policy", "3"], "--policy is leader or a number from 0 to 2, not 3"),
        (["--out", "x.txt"], "--out must end in .onnx or .npz"),
        (["--out", "x.npz", "--format", "onnx"], "--out ends in .npz but --format is onnx; leave out one of them"),
        (["--out", "/proc/x.npz"], "/proc/x.npz cannot be written"),
    ):
        assert cli.main(["export", str(run.path), *words]) == 2
        assert sentence in capsys.readouterr().err


def _with_images(sizes: dict[str, Any], num_envs: int, device: torch.device, seed: int) -> Any:
    """Images, or images and numbers, of nothing in particular."""
    generator, clock = torch.Generator().manual_seed(seed), itertools.count(1)

    def reset() -> dict[str, torch.Tensor]:
        image = torch.randint(0, 256, (num_envs, *sizes["image"]), generator=generator, dtype=torch.uint8)
        numbers = {"policy": torch.randn(num_envs, 3, generator=generator)} if "policy" in sizes else {}
        return {"image": image} | numbers

    def step(action: torch.Tensor) -> Step:
        over = torch.full((num_envs,), next(clock) % 3 == 0)
        return Step(reset(), torch.rand(num_envs, generator=generator), torch.zeros_like(over), over)

    facts = {"num_envs": num_envs, "device": device, "action_dim": 2, "episode_length": 3, "obs_spec": sizes}
    return SimpleNamespace(reset=reset, step=step, **facts)


@pytest.mark.parametrize(("sizes", "lstm"), [({"image": (2, 8, 8)}, 0), ({"policy": 3, "image": (2, 8, 8)}, 4)])
def test_a_policy_that_sees_images(sizes: dict[str, Any], lstm: int, tmp_path: Path) -> None:
    make = partial(_with_images, sizes)
    config = tiny("CartpoleSwingup", tmp_path / "run", lstm=lstm)
    model = replace(config.model, channels=(3, 4), activation="tanh")
    run = train(replace(config, task="Pictures", env=TaskConfig(), model=model), make_env=make)
    extract = SavedPolicy.load(run, 1)
    if lstm:
        pytest.importorskip("onnxscript", reason="needs pip install -e '.[export]'")
        assert export(extract, "onnx", tmp_path / "policy.onnx") <= files.TOLERANCE
    with pytest.raises(UserError, match="a numpy file holds no images"):
        export(extract, "numpy", tmp_path / "policy.npz")
    policy, obs = load_policy(run), {name: x.numpy() for name, x in make(4, torch.device("cpu"), 0).reset().items()}
    action = policy(obs if len(obs) == 2 else obs["image"])
    policy.reset()
    one = policy({name: x[2] for name, x in obs.items()})
    np.testing.assert_allclose(action[2], one, atol=1e-6)
    with pytest.raises(UserError, match=r"images are \[2, 8, 8\] or \[N, 2, 8, 8\], not \[4, 8, 8\]"):
        policy(obs | {"image": obs["image"][:, 0]})
