"""What an environment may lack or add, what training makes of it, and what `echelon env check` says of it."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rollout.stub_env import DriftEnv, ScriptedEnv
from tiny import disturbed, tiny

from echelon import cli, evaluate, train
from echelon.config import ModelConfig, UpdateConfig
from echelon.envs.contract import Bounded, Groups, MakeEnv, Step, bounded, require_step
from echelon.envs.inspection import inspect_env
from echelon.errors import UserError
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.collector import Collector
from echelon.rollout.layout import Layout
from echelon.tasks import maker, preset

CPU = torch.device("cpu")


def changed(num_envs: int, seed: int = 0, episode_length: int = 9, **changes: Any) -> Any:
    """A sound environment but for some members, and for parts of its steps: functions of the step's number and the step
    make them."""
    env = DriftEnv(num_envs, seed, episode_length=episode_length)
    parts = {part.name: changes.pop(part.name) for part in fields(Step) if part.name in changes}
    vars(env).update(changes)
    return disturbed(env, lambda n, step: replace(step, **{name: part(n, step) for name, part in parts.items()}))


def collector(env: Any, **changes: Any) -> Collector:
    torch.manual_seed(0)
    model = ActorCritic(env.obs_spec, env.action_dim, 1, ModelConfig(hidden=(4,)))
    update = UpdateConfig(horizon=4, **changes)
    acting = Collector(env, model, Layout(env.num_envs, 1, "cpu"), update, torch.Generator().manual_seed(0))
    acting.reset()
    return acting


def test_actions_reach_an_environment_in_its_own_units() -> None:
    """From -1 to 1 onto [low, high]; without a limit as they were drawn."""
    env = DriftEnv(2)
    action = torch.tensor([[-3.0, 0.5], [1.0, 4.0]])
    assert bounded(env)(action).tolist() == [[-1.0, 0.5], [1.0, 1.0]]
    inf = torch.inf
    expected = {
        ((-0.4, 10.0), (0.4, 20.0)): [[pytest.approx(-0.4), 17.5], [pytest.approx(0.4), 20.0]],
        ((-inf, 10.0), (inf, 20.0)): [[-3.0, 17.5], [1.0, 20.0]],
        ((-inf, -inf), (inf, inf)): action.tolist(),
    }
    for (low, high), found in expected.items():
        env.action_low, env.action_high = torch.tensor(low), torch.tensor(high)
        assert isinstance(env, Bounded)
        assert bounded(env)(action).tolist() == found


def test_without_final_obs_the_value_before_the_last_step_is_the_bootstrap() -> None:
    """The same numbers as with `timeout_bootstrap="current_obs"`, which is V(s_t)."""
    silent = collector(changed(6, episode_length=3, final_obs=lambda number, step: None))
    current = collector(DriftEnv(6, episode_length=3), timeout_bootstrap="current_obs")
    found, expected = silent.collect(), current.collect()
    assert (silent.lacks_final_obs, current.lacks_final_obs) == (True, False)
    cut = found.truncated & ~found.terminated
    assert cut.any()
    assert torch.equal(found.final_value, torch.where(cut, found.value[:-1], 0.0))
    assert torch.equal(found.final_value, expected.final_value)


def test_numbers_in_a_log_hold_for_all_environments() -> None:
    """A number, a 0-d tensor and a tensor with a number for each: means over 4 steps. A name that is missing from a
    later log is one sentence."""
    log = {"scalar": torch.tensor(2.0), "each": torch.arange(6.0)}
    acting = collector(changed(6, log=lambda number, step: {"number": number, **log}))
    acting.collect()
    metrics = acting.episodes.metrics()
    found = {name: metrics[f"env/{name}"].item() for name in ("number", "scalar", "each")}
    assert found == {"number": 2.5, "scalar": 2.0, "each": 2.5}
    forgetful = collector(changed(6, log=lambda number, step: {"ab"[number % 2]: 1.0}))
    with pytest.raises(UserError, match=r"logs [ab] in some steps but not in others"):
        forgetful.collect()


def test_a_new_start_forgets_what_was_in_the_middle() -> None:
    rest, never = torch.zeros(9, 2), torch.zeros(9, 2, dtype=torch.bool)
    acting = collector(ScriptedEnv(torch.zeros(10, 2), rest + 1, never, never, rest, episode_length=20))
    acting.collect()
    assert acting.episodes.current.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    acting.reset()
    assert acting.episodes.current.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert acting.rollout.start[-1].all()


def inspected(make: MakeEnv, num_envs: int = 8) -> dict[str, list[str]]:
    """What is found, without the facts."""
    findings = list(inspect_env(make, num_envs, CPU, 0))
    return {kind: [said for k, said in findings if k == kind] for kind in ("note", "problem")}


def test_a_sound_environment_has_neither_problems_nor_notes_and_a_wrong_one_a_sentence() -> None:
    sound = inspected(lambda num_envs, device, seed: changed(num_envs, seed))
    for task in ("DeceptiveReach", "CartpoleSwingup", "Hopper"):
        assert inspected(maker(preset(task)), 4) == sound == {"note": [], "problem": []}
    broken = torch.zeros(8, 4)
    broken[3, 2] = torch.nan
    late = torch.arange(8) > 0
    endless = {"terminated": lambda _, step: step.terminated & late, "truncated": lambda _, step: step.truncated & late}
    adaptive = {"adopt": print, "join_ranks": print}
    wrong: dict[str, dict[str, Any]] = {
        "final_obs equals obs where episodes ended": {"final_obs": lambda number, step: step.obs},
        "final_obs differs from obs where no episode ended": {
            "final_obs": lambda number, step: {"policy": step.obs["policy"] + 1}
        },
        "reward must have the shape [8], not [8, 1]": {"reward": lambda number, step: step.reward[:, None]},
        "is nan in environment 3": {"obs": lambda number, step: {"policy": step.obs["policy"] + broken}},
        "log has b in some steps only": {"log": lambda number, step: {"a": 1.0} | ({"b": 2} if number % 2 else {})},
        "1 environments have not ended an episode": endless,
        "device is a str, not a torch.device": {"device": "cpu"},
        "num_envs is 4, though 8 environments were asked for": {"num_envs": 4},
        "obs_spec has no group called policy": {"obs_spec": {"obs": 4}},
        "obs_spec has no group called policy, which": {"obs_spec": 4},
        "obs_spec has '4' for policy, not an int": {"obs_spec": {"policy": "4"}},
        "obs_spec has (3, 8) for image, not an int or (C, H, W)": {"obs_spec": {"image": (3, 8)}},
        "for policy, not an int": {"obs_spec": {"policy": np.int64(4)}},
        "action_dim is np.int64(2), not an int of at least 1": {"action_dim": np.int64(2)},
        "action_dim is None": {"action_dim": None},
        "episode_length is 9.0, not an int": {"episode_length": 9.0},
        "action_low and action_high are not both tensors": {"action_low": -np.ones(2), "action_high": np.ones(2)},
        "difficulty is 0.5, not a tensor of one number on cpu": adaptive | {"difficulty": 0.5},
        "size=(1,)), not a tensor of one number on cpu": adaptive | {"difficulty": torch.empty(1, device="meta")},
        "action_low is not below action_high": {"action_low": torch.ones(2), "action_high": torch.ones(2)},
        "state_dict has a numpy.ndarray at x": {"state_dict": lambda: {"x": np.zeros(3)}},
        "after load_state_dict it does not continue": {"load_state_dict": lambda state: None},
        "load_state_dict failed with KeyError: 'gone'": {"load_state_dict": lambda state: state["gone"]},
    }
    for sentence, changes in wrong.items():
        changes = {"num_envs": 8} | changes
        problems = inspected(lambda _, device, seed, changes=changes: changed(seed=seed, **changes))["problem"]
        assert sentence in problems[0]
        assert len(problems) == 1 or sentence.startswith(("1 environments", "final_obs differs")), problems
    plain: Any = (0, 1)
    with pytest.raises(UserError, match=r"step must return an echelon\.Step, not a tuple"):
        require_step(changed(8), plain)


def make_wrong(num_envs: int, device: torch.device, seed: int) -> Any:
    return changed(num_envs, seed, reward=lambda number, step: step.reward[:, None])


def test_the_command_and_its_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """What is lacking, and chance without a seed, are notes."""
    assert cli.main(["env", "check", "envs.least:make", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert said.count("note: ") == 2
    assert "no final_obs" in said
    assert "no state_dict" in said
    assert said.endswith("envs.least:make keeps the contract\n")
    noisy = inspected(lambda *order: changed(8, reward=lambda number, step: torch.rand(8)))
    assert any("two environments of the same seed differ" in note for note in noisy["note"])
    assert cli.main(["env", "check", "envs.test_contract:make_wrong", "--device", "cpu"]) == 1
    assert "does not keep the contract" in capsys.readouterr().out


def test_an_environment_that_does_not_fit_is_refused_before_its_first_step(tmp_path: Path) -> None:
    run = tiny("CartpoleSwingup", tmp_path / "run", "ppo")
    wrong: dict[str, dict[str, Any]] = {
        "num_envs is 7, though 6 environments were asked for": {"num_envs": 7},
        "obs_spec has nothing to see in policy": {"obs_spec": {"policy": 0}},
        "action_dim is 0": {"action_dim": 0},
        r"shapes \(3,\) and \(3,\), not \(2,\)": {"action_low": torch.zeros(3), "action_high": torch.ones(3)},
    }
    for problem, changes in wrong.items():
        with pytest.raises(UserError, match=f"the environment does not fit: .*{problem}"):
            train(run, make_env=lambda _, device, seed, changes=changes: changed(**{"num_envs": 6} | changes))
        assert not (tmp_path / "run").exists()


def test_observations_of_other_floats_are_cast_and_told_once(tmp_path: Path) -> None:
    class Other(DriftEnv):
        def _observe(self) -> Groups:
            return {name: x.double() for name, x in super()._observe().items()}

    run = tiny("CartpoleSwingup", tmp_path / "run", "ppo")
    with pytest.warns(UserWarning, match="and are taken as torch.float32"):
        folder = train(run, make_env=lambda num_envs, device, seed: Other(num_envs, seed))
    assert evaluate(folder, 4, make_env=lambda num_envs, device, seed: Other(num_envs, seed)).scores
