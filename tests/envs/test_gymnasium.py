"""Gymnasium's environments as ours: resets, last observations, dict and discrete spaces, and whole runs."""

import json
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from envs.life import live

gymnasium = pytest.importorskip("gymnasium", reason="needs pip install -e '.[gymnasium]'")

from gymnasium import spaces  # noqa: E402
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorObservationWrapper  # noqa: E402
from gymnasium.wrappers.vector import NormalizeObservation  # noqa: E402

from echelon import cli  # noqa: E402
from echelon.config import TrainConfig  # noqa: E402
from echelon.envs.contract import bounded  # noqa: E402
from echelon.envs.gymnasium_env import GymnasiumEnv, make_gymnasium  # noqa: E402
from echelon.envs.sources import as_env, maker  # noqa: E402
from echelon.errors import UserError  # noqa: E402

CPU = torch.device("cpu")


class Count(gymnasium.Env):
    """Counts from 10 times its number; ends by itself after 3 steps if even, is cut after 4 if odd."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64)

    def __init__(self, number: int = 0) -> None:
        self.number, self.steps, self.seen = number, 0, []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.seen.append(action)
        even = self.number % 2 == 0
        return self._observe(), float(self.steps), even and self.steps == 3, not even and self.steps == 4, {}

    def _observe(self) -> np.ndarray:
        return np.array([10.0 * self.number, self.steps])


def two_of(space: spaces.Space, observe: Callable[[int], Any], **members: Any) -> GymnasiumEnv:
    """Two environments that count, with observations of their own."""
    members |= {"observation_space": space, "_observe": lambda self: observe(self.steps)}
    kind = type("Own", (Count,), members)
    return GymnasiumEnv(SyncVectorEnv([kind, kind], autoreset_mode=AutoresetMode.SAME_STEP), CPU)


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
def test_every_reset_mode_resets_within_the_step(mode: AutoresetMode) -> None:
    """Environment 0 ends at step 3, environment 1 is cut at step 4; both start again at once, and none loses a step.
    Actions arrive in the units of their space."""
    vector = SyncVectorEnv([lambda: Count(0), lambda: Count(1)], autoreset_mode=mode)
    env = GymnasiumEnv(vector, CPU)
    assert (env.num_envs, env.action_dim, env.obs_spec) == (2, 2, {"policy": 2})
    assert env.reset()["policy"].tolist() == [[0.0, 0.0], [10.0, 0.0]]
    counts, finals, ends = [], [], []
    for _ in range(6):
        step = env.step(bounded(env)(torch.tensor([[-1.0, 0.0]] * 2)))
        assert step.final_obs is not None
        counts.append(step.obs["policy"][:, 1].tolist())
        finals.append(step.final_obs["policy"][:, 1].tolist())
        ends.append((step.terminated.tolist(), step.truncated.tolist()))
        assert step.reward.tolist() == finals[-1]  # of the step that was made, not of a reset
        assert step.reward.dtype == torch.float32
    assert counts == [[1, 1], [2, 2], [0, 3], [1, 0], [2, 1], [0, 2]]
    assert finals == [[1, 1], [2, 2], [3, 3], [1, 4], [2, 1], [3, 2]]
    assert ends[2] == ([True, False], [False, False])
    assert ends[3] == ([False, False], [False, True])
    assert vector.envs[0].unwrapped.seen[0].tolist() == [-2.0, 5.0]


def test_dict_and_discrete_parts_lie_side_by_side() -> None:
    """Unless one of them is called policy: then they are the groups of actor and critic."""
    parts = {"place": spaces.Box(-1, 1, (2, 2)), "kind": spaces.Discrete(3), "flag": spaces.MultiBinary(1)}
    seen = {"place": np.full((2, 2), 0.5, np.float32), "kind": 2, "flag": np.ones(1, np.int8)}
    env = two_of(spaces.Dict(parts), lambda steps: seen, action_space=spaces.Discrete(3, start=5))
    assert env.obs_spec == {"policy": 8}
    flat = {"flag": [1.0], "kind": [0.0, 0.0, 1.0], "place": [0.5] * 4}
    expected = [x for name in env.env.single_observation_space.spaces for x in flat[name]]
    assert env.reset()["policy"].tolist() == [expected, expected]
    env.step(torch.tensor([[0.1, 0.9, -1.0], [0.0, -1.0, 2.0]]))
    assert [int(one.unwrapped.seen[0]) for one in env.env.envs] == [6, 7]
    groups = {"policy": spaces.Box(-1, 1, (2,)), "critic": spaces.Box(-1, 1, (3,))}
    blank = {"policy": np.zeros(2, np.float32), "critic": np.ones(3, np.float32)}
    both = as_env(two_of(spaces.Dict(groups), lambda steps: blank).env, "x:make", CPU, 0)
    assert both.obs_spec == {"policy": 2, "critic": 3}


def test_images_are_a_group_with_channels_first() -> None:
    parts = {"eye": spaces.Box(0, 255, (6, 5, 3), np.uint8), "speed": spaces.Box(-1, 1, (2,)), "on": spaces.Discrete(2)}

    def observe(steps: int) -> Any:
        eye = np.zeros((6, 5, 3), np.uint8)
        eye[4, 2, 1] = 200 + steps
        return {"eye": eye, "speed": np.zeros(2, np.float32), "on": 1}

    env = two_of(spaces.Dict(parts), observe)
    assert env.obs_spec == {"policy": 4, "image": (3, 6, 5, False)}
    image = env.reset()["image"]
    assert (image.shape, image.dtype) == ((2, 3, 6, 5), torch.uint8)
    assert image[0, 1, 4, 2] == 200
    for _ in range(3):
        step = env.step(torch.zeros(2, 2))
    assert step.final_obs is not None  # the third step is the last
    assert (int(step.final_obs["image"][0, 1, 4, 2]), int(step.obs["image"][0, 1, 4, 2])) == (203, 200)
    frames = two_of(spaces.Box(0, 255, (4, 6, 5), np.uint8), lambda steps: np.full((4, 6, 5), steps, np.uint8))
    assert frames.obs_spec == {"image": (4, 6, 5, False)}
    assert frames.reset()["image"].shape == (2, 4, 6, 5)


def test_the_seed_decides_the_episodes_and_a_wrong_name_or_argument_is_one_sentence() -> None:
    starts = [make_gymnasium("Pendulum-v1", 3, CPU, seed).reset()["policy"] for seed in (1, 1, 2)]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])
    wrong = {
        ("", "g=1"): "gymnasium: names no environment; write gymnasium:NAME",
        ("Walker9d-v5", "g=1"): "gymnasium cannot make Walker9d-v5: ",
        ("NoSuch-v5", "g=1"): "gymnasium cannot make NoSuch-v5: Environment .* doesn't exist(;|$)",
        ("Pendulum", "g=1"): "gymnasium cannot make Pendulum: .*; did you mean Pendulum-v1",
        ("Pendulum-v1", "x=1"): "gymnasium cannot make Pendulum-v1: .* unexpected keyword argument 'x'$",
        ("Pendulum-v1", "max_episode_steps=-2"): "gymnasium cannot make Pendulum-v1: .* positive",
        ("Pendulum-v1", "processes=maybe"): "--env-arg processes is true or false, not 'maybe'",
        ("Pendulum-v1", "seed=1"): "--env-arg seed=... is what --seed sets",
        ("Pendulum-v1", "render_mode=human"): "human draws a window in every step; leave it out",
    }
    for (name, argument), sentence in wrong.items():
        with pytest.raises(UserError, match=sentence):
            maker(TrainConfig(source=f"gymnasium:{name}", env_arg=(argument,)))(1, CPU, 0)
    with pytest.raises(UserError, match="made one environment, not num_envs; return"):
        as_env(gymnasium.make("Pendulum-v1"), "x:make", CPU, 0)
    with pytest.raises(UserError, match="x:make made no environment: int lacks num_envs"):
        as_env(3, "x:make", CPU, 0)
    vectors = [gymnasium.make_vec("Pendulum-v1", 2, "sync") for _ in range(3)]
    starts = [
        as_env(vector, "x:make", CPU, seed).reset()["policy"] for vector, seed in zip(vectors, (1, 1, 2), strict=True)
    ]
    assert torch.equal(starts[0], starts[1])
    assert not torch.equal(starts[0], starts[2])


def test_a_time_limit_is_that_of_the_copies() -> None:
    """Though the vector's spec has the registered one, 200."""
    for mode, steps, expected in (("sync", 30, 30), ("async", 500, 500), ("sync", -1, 1000), ("sync", None, 200)):
        vector = gymnasium.make_vec("Pendulum-v1", 2, mode, **({} if steps is None else {"max_episode_steps": steps}))
        assert GymnasiumEnv(vector, CPU).episode_length == expected
        vector.close()
    factory = partial(gymnasium.make, "Pendulum-v1", max_episode_steps=37)
    vector = AsyncVectorEnv([factory, factory])
    assert GymnasiumEnv(vector, CPU).episode_length == 37
    vector.close()


def test_a_vector_environment_that_resets_all_copies_at_once_is_refused() -> None:
    """But not a wrapper, which may change all observations; unless it cannot reset some copies either."""

    class Anew(VectorObservationWrapper):
        seen = 0

        def observations(self, observations: np.ndarray) -> np.ndarray:
            self.seen += 1
            return observations / self.seen

    def play(vector: VectorEnv) -> None:
        env = GymnasiumEnv(vector, CPU)
        env.reset()
        deque((env.step(torch.tensor([[0.0, 1.0]] * 6)) for _ in range(60)), maxlen=0)

    with pytest.raises(UserError, match="CartPoleVectorEnv resets all copies when one has ended"):
        play(gymnasium.make_vec("CartPole-v1", 6, "vector_entry_point"))
    play(Anew(gymnasium.make_vec("CartPole-v1", 6, "sync")))
    with pytest.raises(UserError, match="NormalizeObservation cannot reset only the copies whose episodes ended"):
        play(NormalizeObservation(gymnasium.make_vec("CartPole-v1", 6, "sync")))


def test_walker_from_the_first_iteration_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    lines = live("gymnasium:Walker2d-v5", tmp_path / "walker", "--num-envs", "8", "--update.minibatches", "4")
    assert lines[-1]["return/leader"] == lines[-1]["return/leader"]  # not NaN: episodes have ended
    said = capsys.readouterr().out
    assert "the environment saves no state (state_dict), so new episodes start" in said
    assert f"record it  echelon record {tmp_path / 'walker'}\n" in said
    assert cli.main(["record", str(tmp_path / "walker"), "--format", "html"]) == 0


def test_a_discrete_task_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CartPole-v1: some 20 steps by chance, far above 100 after 40,000. It is not on MuJoCo, so the closing
    lines do not name play and record."""
    monkeypatch.chdir(tmp_path)
    words = ["--device", "cpu", "--env-steps", "40000", "--model.hidden", "32", "32", "--out", "run"]
    words += ["--update.mini-epochs", "5", "--update.rate-schedule", "fixed", "--update.learning-rate", "2e-3"]
    assert cli.main(["train", "gymnasium:CartPole-v1", *words]) == 0
    said = capsys.readouterr().out
    assert "  score it   echelon evaluate run\n  report it  echelon report run" in said
    assert cli.main(["evaluate", "run", "--num-envs", "8", "--device", "cpu"]) == 0
    scores = json.loads(Path("run/evaluation.json").read_text())["scores"]
    assert scores[0]["return_mean"] > 120
