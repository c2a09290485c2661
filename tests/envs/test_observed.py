"""What a policy sees of an environment, against the environment itself and lists of what it has shown."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from rollout.stub_env import DriftEnv
from tiny import differing

from echelon.envs.contract import Groups, Step, require_observations, require_step
from echelon.envs.observed import Observed, observed
from echelon.errors import UserError
from echelon.tasks import make, preset

ACTIONS = torch.linspace(-1, 1, 30 * 3 * 2).view(30, 3, 2)


class Camera(DriftEnv):
    """A point that is also seen in an image of one colour; its first two numbers are privileged."""

    privileged = ("0:2",)

    def __init__(self, critic: bool = False) -> None:
        super().__init__(3, episode_length=5, critic=critic)
        self.obs_spec = {**self.obs_spec, "image": (2, 1, 3)}

    def _observe(self) -> Groups:
        image = (50 * self.x[:, 1].abs()).byte().view(-1, 1, 1, 1).expand(-1, 2, 1, 3)
        return super()._observe() | {"image": image}


def course(env: DriftEnv | Observed, steps: int = 30) -> list[Step]:
    with torch.inference_mode():
        return [env.step(action) for action in ACTIONS[:steps]]


@pytest.mark.parametrize(
    ("words", "critic", "policy", "groups"),
    [
        ((), False, [0, 1, 2, 3], {"policy", "image"}),
        (("policy",), False, [2, 3], {"policy", "critic"}),
        (("policy", "image"), True, [2, 3], {"policy", "critic", "image"}),
        (("image",), False, [], {"critic", "image"}),
        (("critic",), True, [0, 1, 2, 3, 4], {"policy"}),
        (("3:", "1:2"), False, [1, 3], {"policy", "critic"}),
        ((":",), False, [0, 1, 2, 3], {"policy"}),
    ],
)
def test_a_history_is_of_what_was_chosen_and_begins_with_the_episode(
    words: Sequence[str], critic: bool, policy: list[int], groups: set[str]
) -> None:
    env, plain = Observed(Camera(critic), words, 3), Camera(critic)
    assert set(env.obs_spec) == groups
    whole, first, seen = "critic" if critic else "policy", plain.reset(), env.reset()
    require_observations(env, seen)
    numbers = torch.cat((first[whole], first["policy"]), dim=1)[:, policy] if policy else torch.zeros(3, 0)
    lists = [[(numbers[i], first["image"][i])] * 3 for i in range(3)]
    for step, expected in zip(course(env), course(plain), strict=True):
        require_step(env, step)
        done = (expected.terminated | expected.truncated).tolist()
        assert expected.final_obs is not None
        assert step.final_obs is not None
        for obs, found, stays in ((expected.final_obs, step.final_obs, False), (expected.obs, step.obs, True)):
            for i in range(3):
                now = (obs[whole][i, policy], obs["image"][i])
                last = [now] * 3 if done[i] and stays else [*lists[i][1:], now]
                lists[i] = last if stays else lists[i]
                if "policy" in groups:
                    assert found["policy"][i].equal(torch.cat([x for x, _ in last]))
                if "image" in groups:
                    assert found["image"][i].equal(torch.cat([x for _, x in last]))
            if "critic" in groups:
                assert found["critic"].equal(obs[whole])


def test_it_continues_to_the_bit_from_its_state() -> None:
    env, again = (Observed(Camera(), ("policy", "image"), 2) for _ in range(2))
    env.reset(), again.reset()
    course(env, 7)
    again.load_state_dict(env.state_dict())
    for one, other in zip(course(env), course(again), strict=True):
        assert differing(vars(one), vars(other)) == []


@pytest.mark.parametrize(
    ("task", "seen", "velocities"),
    [
        ("Anymal", 45, slice(0, 3)),
        ("Humanoid", 104, slice(0, 3)),
        ("Hopper", 8, slice(0, 2)),
        ("CartpoleSwingup", 3, slice(0, 2)),
        ("AllegroHand", 82, None),
        ("ShadowHand", 205, None),
    ],
)
def test_tasks_say_what_their_robot_does_not_measure(task: str, seen: int, velocities: slice | None) -> None:
    """Velocities of the base, or of the cube that a hand holds, change what the value function sees alone."""
    env: Any = make(task, preset(task).env, 2, torch.device("cpu"), 0)
    view = Observed(env, ("policy",), 1)
    assert (view.obs_spec["policy"], view.obs_spec["critic"]) == (seen, env.obs_spec["policy"])
    view.reset()
    found = []
    for speed in (0.0, 0.3):
        qvel = env.engine.qvel.clone()
        qvel[:, velocities or env.cube[1]] = speed
        env.engine.set_state(torch.tensor([True, True]), env.engine.qpos.clone(), qvel)
        found.append(view.observer.final(env.observe()))
    assert found[0]["policy"].equal(found[1]["policy"])
    assert ((found[0]["critic"] != found[1]["critic"]).sum(1) >= 2).all()


def test_places_are_known_where_no_other_group_is_seen_and_what_is_seen_whole_stays_itself() -> None:
    env = DriftEnv(2, critic=True)
    assert observed(env, (), 1) is env
    assert Observed(env, ("0:2",), 1).observer.places == (0, 1)
    assert Observed(env, ("critic", "0:2"), 1).observer.places == ()


def test_a_wrong_word_is_one_sentence() -> None:
    for word, sentence in {
        "policy": "none of its observations privileged, so --obs policy would be all of them; choose some of its 4",
        "critic": "--obs takes groups of observations, or places as in 0:5, not 'critic'; there is policy (4)",
        "2:5": "--obs 2:5 names none of the numbers of policy, which are 0:4",
        "3:3": "--obs 3:3 names none of the numbers",
    }.items():
        with pytest.raises(UserError) as error:
            observed(DriftEnv(2), (word,), 1)
        assert sentence in str(error.value)
