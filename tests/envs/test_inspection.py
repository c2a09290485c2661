"""`echelon env check` finds what goes wrong in adapters, and is content with what keeps the contract."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from rollout.stub_env import DriftEnv

from echelon import cli
from echelon.envs.contract import MakeEnv, Step
from echelon.envs.inspection import inspect_env
from echelon.tasks import maker, preset

CPU = torch.device("cpu")


class Changed(DriftEnv):
    """A sound environment, but for one change of its steps."""

    def __init__(self, num_envs: int, seed: int, change: Callable[["Changed", Step], None]) -> None:
        super().__init__(num_envs, seed)
        self.change = change

    def step(self, action: torch.Tensor) -> Step:
        step = super().step(action)
        self.change(self, step)
        return step


def found(change: Callable[[Changed, Step], None], **members: Any) -> dict[str, list[str]]:
    def make(num_envs: int, device: torch.device, seed: int) -> Changed:
        env = Changed(num_envs, seed, change)
        for name, value in members.items():
            setattr(env, name, value)
        return env

    return by_kind(make)


def by_kind(make: MakeEnv, num_envs: int = 8) -> dict[str, list[str]]:
    """What is found, without the facts."""
    findings = list(inspect_env(make, num_envs, CPU, 0))
    return {kind: [said for k, said in findings if k == kind] for kind in ("note", "problem")}


def sound(env: Changed, step: Step) -> None: ...


@pytest.mark.parametrize("task", ["DeceptiveReach", "CartpoleSwingup", "Hopper"])
def test_a_sound_environment_has_neither_problems_nor_notes(task: str) -> None:
    assert by_kind(maker(preset(task)), 4) == found(sound) == {"note": [], "problem": []}


def sets(**parts: Callable[[Changed, Step], Any]) -> Callable[[Changed, Step], None]:
    """A change of some parts of a step."""
    return lambda env, step: [setattr(step, name, part(env, step)) for name, part in parts.items()] and None


column = sets(reward=lambda env, step: step.reward[:, None])


def test_a_wrong_step_or_member_is_one_sentence() -> None:
    def broken(env: Changed, step: Step) -> None:
        step.obs["policy"][3, 2] = torch.nan

    def endless(env: Changed, step: Step) -> None:
        step.terminated[0] = step.truncated[0] = False

    steps = {
        "final_obs equals obs where episodes ended": sets(final_obs=lambda env, step: step.obs),
        "final_obs differs from obs where no episode ended": sets(
            final_obs=lambda env, step: {"policy": step.obs["policy"] + 1}
        ),
        "reward must have the shape [8], not [8, 1]": column,
        "terminated must be bool, not int64": sets(terminated=lambda env, step: step.terminated.long()),
        "reward must be a torch tensor, not ndarray": sets(reward=lambda env, step: step.reward.numpy()),
        "is nan in environment 3": broken,
        "log has b in some steps only": sets(log=lambda env, step: {"a": 1.0} | ({} if env.clock[0] % 2 else {"b": 2})),
        "1 environments have not ended an episode": endless,
        "observation lacks the group policy": sets(obs=lambda env, step: {"obs": step.obs["policy"]}),
    }
    members: dict[str, dict[str, Any]] = {
        "device is a str, not a torch.device": {"device": "cpu"},
        "num_envs is 4, though 8 environments were asked for": {"num_envs": 4},
        "obs_spec has no group called policy": {"obs_spec": {"obs": 4}},
        "episode_length is a whole number": {"episode_length": 9.0},
        "action_low is not below action_high": {"action_low": torch.ones(2), "action_high": torch.ones(2)},
        "state_dict has a numpy.ndarray at x": {"state_dict": lambda: {"x": np.zeros(3)}},
        "after load_state_dict it does not continue": {"load_state_dict": lambda state: None},
        "load_state_dict failed with KeyError: 'gone'": {"load_state_dict": lambda state: state["gone"]},
    }
    problems = {sentence: found(change)["problem"] for sentence, change in steps.items()}
    problems |= {sentence: found(sound, **changes)["problem"] for sentence, changes in members.items()}
    assert [(sentence, said) for sentence, said in problems.items() if sentence not in said[0]] == []
    assert all(len(problems[sentence]) == 1 for sentence in members)


def test_the_command_and_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """What is lacking, and chance without a seed, are notes."""
    assert cli.main(["env", "check", "envs.least:make", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert said.count("note: ") == 2
    assert "no final_obs" in said
    assert "no state_dict" in said
    assert said.endswith("envs.least:make keeps the contract\n")
    noisy = found(sets(reward=lambda env, step: torch.rand(8)))
    assert any("two environments of the same seed differ" in note for note in noisy["note"])
    assert cli.main(["env", "check", "envs.test_inspection:make_wrong", "--device", "cpu"]) == 1
    assert "does not keep the contract" in capsys.readouterr().out
    assert cli.main(["env", "chek"]) == 2
    assert "env takes check and a source" in capsys.readouterr().err


def make_wrong(num_envs: int, device: torch.device, seed: int) -> Changed:
    return Changed(num_envs, seed, column)
