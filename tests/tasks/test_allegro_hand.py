"""AllegroHand: observations, rewards, goals, drops, starts and figures of states put there by hand."""

import dataclasses
import math

import pytest
import torch
from tasks.in_hand_states import aim, begun, put, turn
from torch import Tensor

from echelon.tasks.allegro_hand import AllegroHand, AllegroHandConfig

FLEX = (-0.27924, 1.72782)
FINGER = ((-0.55849, 0.55849), FLEX, FLEX, FLEX)
LIMITS = torch.tensor((*FINGER * 3, (0.27924, 1.57075), (-0.3316, 1.15188), FLEX, (-0.27924, 1.76273)))
GOAL = torch.tensor([0.0, -0.2, 0.52])
UPRIGHT = turn((0.0, 0.0, 1.0), 0.0)


def make(num_envs: int, **settings: float | bool) -> AllegroHand:
    return begun(AllegroHand, dataclasses.replace(AllegroHandConfig(), **settings), num_envs)


def test_observation_by_index() -> None:
    env = make(1)
    qpos, qvel = torch.zeros(1, 23), torch.zeros(1, 22)
    joints = torch.linspace(0.3, 0.55, 16)
    qpos[0, 7:] = joints
    qvel[0, 6:] = speeds = torch.linspace(-2.0, 2.0, 16)
    qpos[0, :3] = torch.tensor([0.01, -0.19, 0.55])
    cube = turn((0.0, 0.0, 1.0), math.pi / 2)
    qpos[0, 3:7] = cube.float()
    qvel[0, :6] = torch.tensor([0.1, -0.2, 0.3, 4.0, 5.0, 6.0])
    env.engine.set_state(torch.ones(1, dtype=torch.bool), qpos, qvel)
    targets = joints + 0.1
    env.engine.ctrl.copy_(targets)
    env.kept["action"].copy_(torch.linspace(-1.0, 1.0, 16))
    aim(env, turn((1.0, 0.0, 0.0), math.pi / 2))
    obs = env.observe()["policy"][0]

    low, high = LIMITS.unbind(1)
    half = math.sqrt(0.5)
    expected = {
        (0, 16): (2 * joints - high - low) / (high - low),
        (16, 32): 0.2 * speeds,
        # 3 N m/rad on 0.1 rad, 0.1 N m s/rad against the speed, at most ±0.5 N m; times 10, clipped to ±5.
        (32, 48): (10 * (3 * 0.1 - 0.1 * speeds)).clamp(-5, 5),
        (48, 51): torch.tensor([0.01, -0.19, 0.55]),
        (51, 55): torch.tensor([0.0, 0.0, half, half]),
        (55, 58): torch.tensor([0.1, -0.2, 0.3]),
        # A quarter about z takes the cube's x to the world's y: (4, 5, 6) becomes (-5, 4, 6).
        (58, 61): 0.2 * torch.tensor([-5.0, 4.0, 6.0]),
        (61, 64): GOAL,
        (64, 68): torch.tensor([half, 0.0, 0.0, half]),
        # (c + c k)(c - c i) with c² = ½: (1 - i - j + k) / 2, since k i = j.
        (68, 72): torch.tensor([-0.5, -0.5, 0.5, 0.5]),
        (72, 88): torch.linspace(-1.0, 1.0, 16),
    }
    assert [end for _, end in expected][:-1] == [start for start, _ in expected][1:]
    for (start, end), values in expected.items():
        torch.testing.assert_close(obs[start:end], values, rtol=1e-5, atol=1e-5, msg=f"columns {start} to {end}")
    assert obs.shape == (88,)


def test_observation_is_clipped() -> None:
    env = make(1)
    env.engine.qvel[:, 6:] = 40.0  # 8 after scaling
    env.engine.qvel[:, 0] = -7.0
    obs = env.observe()["policy"][0]
    assert obs[16:32].eq(5.0).all()
    assert obs[55] == -5.0


def test_torques_can_be_left_out_as_in_the_reference() -> None:
    env, blind = make(3), make(3, observe_torques=False)
    action = torch.rand(3, 16, generator=torch.Generator().manual_seed(0))
    seen, zeros = env.step(action).obs["policy"], blind.step(action).obs["policy"]
    assert seen[:, 32:48].abs().amax(dim=1).gt(0.1).all()
    assert not zeros[:, 32:48].any()
    others = [column for column in range(88) if not 32 <= column < 48]
    assert torch.equal(seen[:, others], zeros[:, others])


def test_no_torque_and_no_action_are_observed_before_the_first_one() -> None:
    obs = make(4).observe()["policy"]
    torch.testing.assert_close(obs[:, 32:48], torch.zeros(4, 16), atol=1e-5, rtol=0)
    assert not obs[:, 72:].any()


def test_reward_by_hand() -> None:
    env = make(4)
    position = GOAL + torch.tensor([[0.0, 0.0, 0.0], [0.03, 0.0, 0.04], [0.0, 0.3, 0.0], [0.0, 0.0, 0.1]])
    angles = (0.5, 0.1 + 1e-4, 0.05, math.pi)
    put(env, position, torch.stack([turn((0.6, 0.8, 0.0), angle) for angle in angles]))
    aim(env, UPRIGHT)
    action = torch.zeros(4, 16)
    action[1] = 1.0
    action[2, :2] = torch.tensor([0.5, -1.0])
    expected = [
        1 / 0.6,  # at the goal's place, half a radian away
        -10 * 0.05 + 1 / 0.2001 - 0.0002 * 16,  # a hair too far for the bonus
        -10 * 0.3 + 1 / 0.15 - 0.0002 * 1.25 + 250,  # reached, though the cube is dropped
        -10 * 0.1 + 1 / (math.pi + 0.1),
    ]
    torch.testing.assert_close(env.reward(action), torch.tensor(expected), rtol=1e-4, atol=1e-4)
    assert env.failed().tolist() == [False, False, True, False]


def test_weights_and_drop_reward_are_settings() -> None:
    env = make(1, distance_weight=-1.0, rotation_weight=2.0, rotation_softening=0.5, action_weight=-1.0, drop_reward=-7)
    put(env, GOAL[None] + torch.tensor([0.0, 0.0, -0.25]), turn((0.0, 1.0, 0.0), 1.0))
    aim(env, UPRIGHT)
    torch.testing.assert_close(env.reward(torch.full((1, 16), 0.5)), torch.tensor([-0.25 + 2 / 1.5 - 4.0 - 7.0]))


ABOVE = GOAL + torch.tensor([0.0, 0.0, 0.15])
"""Out of the fingers' reach, though not dropped."""


def in_the_air(num_envs: int, angle: float = 1.0) -> AllegroHand:
    """Cubes above the hand, `angle` from their goal."""
    env = make(num_envs)
    put(env, ABOVE.expand(num_envs, 3), UPRIGHT)
    aim(env, turn((1.0, 0.0, 0.0), angle))
    return env


def test_a_goal_reached_is_counted_paid_and_replaced_within_the_step() -> None:
    env = in_the_air(3)
    aim(env, torch.stack([turn((1.0, 0.0, 0.0), angle) for angle in (0.05, 1.0, 0.05)]))
    before = env.kept["goal"].clone()
    step = env.step(torch.zeros(3, 16))
    reached = torch.tensor([True, False, True])
    assert torch.equal(step.log["reward/success"], 250.0 * reached)
    assert torch.equal(step.log["episode/successes"], reached.float())
    assert not (step.terminated | step.truncated).any()
    assert torch.equal((env.kept["goal"] != before).any(dim=1), reached)
    # Both observations show the goal to act for now, the reward was for the one before.
    torch.testing.assert_close(step.obs["policy"][:, [67, 64, 65, 66]], env.kept["goal"])
    assert torch.equal(step.obs["policy"], step.final_obs["policy"])
    assert (step.reward > 200).tolist() == reached.tolist()
    torch.testing.assert_close(env.engine.mocap_quat[:, 0].float(), env.kept["goal"])
    assert env.clock.tolist() == [1, 1, 1]  # a success does not turn the clock back

    put(env, ABOVE.expand(3, 3), env.kept["goal"])
    again = env.step(torch.zeros(3, 16))
    assert again.log["episode/successes"].tolist() == [2.0, 1.0, 2.0]


def test_terms_add_up_to_the_reward() -> None:
    env = in_the_air(4)
    step = env.step(torch.rand(4, 16, generator=torch.Generator().manual_seed(1)))
    terms = [value for name, value in step.log.items() if name.startswith("reward/")]
    assert len(terms) == 5
    torch.testing.assert_close(torch.stack(terms).sum(dim=0), step.reward)


def test_a_dropped_cube_ends_the_episode() -> None:
    env = in_the_air(3)
    env.totals["successes"][:] = 2.0
    env.clock[:] = torch.tensor([10, 10, 598])
    far = ABOVE + torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.3, 0.0, 0.0]])
    put(env, far, UPRIGHT)
    step = env.step(torch.zeros(3, 16))
    assert step.terminated.tolist() == [False, True, True]
    assert not step.truncated.any()  # the drop on the last step is a drop
    assert step.log["episode/successes"].tolist() == [2.0, 2.0, 2.0]
    assert env.totals["successes"].tolist() == [2.0, 0.0, 0.0]
    assert env.clock.tolist() == [11, 0, 0]
    torch.testing.assert_close(step.final_obs["policy"][1, 48:51], far[1], atol=0.02, rtol=0)
    assert (step.obs["policy"][1:, 48:51] - torch.tensor([0.0, -0.2, 0.56])).abs().max() <= 0.01 + 1e-6
    assert not step.obs["policy"][1:, 72:].any()
    assert (step.obs["policy"][1:, 64:68] != step.final_obs["policy"][1:, 64:68]).any(dim=1).all()  # a goal of its own


def test_truncated_after_599_steps_with_a_goal_reached_on_the_last() -> None:
    env = in_the_air(2)
    aim(env, torch.stack((turn((1.0, 0.0, 0.0), 0.05), turn((1.0, 0.0, 0.0), 1.0))))
    env.clock[:] = torch.tensor([598, 597])
    reached = env.kept["goal"][0, [1, 2, 3, 0]].clone()
    step = env.step(torch.zeros(2, 16))
    assert step.truncated.tolist() == [True, False]
    assert not step.terminated.any()
    assert step.log["episode/successes"].tolist() == [1.0, 0.0]
    # The state that is worth something beyond the limit is the one with the next goal.
    assert not torch.equal(step.final_obs["policy"][0, 64:68], reached)
    assert not torch.equal(step.final_obs["policy"][0, 64:68], step.obs["policy"][0, 64:68])
    assert env.totals["successes"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("action", "column"), [(-1.0, 0), (1.0, 1)])
def test_actions_are_targets_across_the_joints_ranges(action: float, column: int) -> None:
    env = in_the_air(1)
    env.step(torch.full((1, 16), action))
    torch.testing.assert_close(env.engine.ctrl[0].float(), LIMITS[:, column])
    env.step(torch.zeros(1, 16))
    torch.testing.assert_close(env.engine.ctrl[0].float(), LIMITS.mean(dim=1))


def pitch_free(orientation: Tensor) -> Tensor:
    """0 for every `Rx(a) Ry(b)`: w z - x y, by multiplying out."""
    w, x, y, z = orientation.unbind(1)
    return w * z - x * y


def test_starts() -> None:
    env = make(600)
    cube, joints = env.engine.qpos[:, :7].float(), env.engine.qpos[:, 7:].float()
    offset = cube[:, :3] - torch.tensor([0.0, -0.2, 0.56])
    assert (offset.abs().amax(dim=0) <= 0.01 + 1e-6).all()
    assert (offset.abs().amax(dim=0) > 0.0095).all()
    assert offset.mean(dim=0).abs().max() < 1.5e-3

    low, high = LIMITS.unbind(1)
    wanted_low, wanted_high = (0.2 * low).clamp(min=low), 0.2 * high
    assert (joints >= wanted_low - 1e-6).all()
    assert (joints <= wanted_high + 1e-6).all()
    assert (joints.amax(dim=0) > wanted_high - 0.03).all()
    # 0.2 U(0.279, 1.571) lies below the thumb's lower stop in 86 % of the draws; there it is held at the stop.
    at_stop = (joints[:, 12] - 0.27924).abs() < 1e-6
    assert abs(at_stop.float().mean().item() - (0.27924 / 0.2 - 0.27924) / (1.57075 - 0.27924)) < 0.06
    assert not env.engine.qvel.any()

    for orientation in (cube[:, 3:], env.kept["goal"]):
        torch.testing.assert_close(orientation.norm(dim=1), torch.ones(600))
        assert pitch_free(orientation).abs().max() < 1e-6
        # cos of either angle averages to 0, as does its sin; the first: w² + y² - x² - z² = cos a.
        w, x, y, z = orientation.unbind(1)
        assert (w * w + y * y - x * x - z * z).mean().abs() < 0.1
        assert (2 * (w * x + y * z)).mean().abs() < 0.1
    assert (cube[:, 3:] * env.kept["goal"]).sum(dim=1).abs().mean() < 0.6  # independent draws


def test_starts_overlap_little() -> None:
    env = make(200)
    step = env.step(torch.zeros(200, 16))
    assert not step.log["quarantined"].any()
    assert step.obs["policy"].isfinite().all()
    speed = env.engine.qvel[:, :3].norm(dim=1)
    assert (speed < 1.5).float().mean() > 0.97  # nothing is shot out of the hand


def test_a_resting_cube_hardly_sinks_in() -> None:
    env = make(4)
    pose = torch.tensor([0.05, 0.45, 0.55, 0.35, 0.0, 0.4, 0.55, 0.35, -0.05, 0.45, 0.55, 0.35, 0.9, 0.75, 0.35, 0.45])
    qpos = torch.cat((torch.tensor([-0.005, -0.165, 0.585, 1.0, 0.0, 0.0, 0.0]), pose)).repeat(4, 1)
    env.engine.set_state(torch.ones(4, dtype=torch.bool), qpos, torch.zeros(4, 22))
    low, high = LIMITS.unbind(1)
    action = ((2 * pose - high - low) / (high - low)).repeat(4, 1)
    for _ in range(60):
        step = env.step(action)
    assert not step.terminated.any()
    assert step.obs["policy"][:, 55:61].abs().max() < 0.05  # at rest
    corner = env.engine.qpos[:, 2]
    for _ in range(30):
        env.step(action)
    assert (env.engine.qpos[:, 2] - corner).abs().max() < 5e-4  # and it stays so


def test_a_goal_survives_saving() -> None:
    env, other = in_the_air(3), make(3)
    for one in (env, other):
        one.step(torch.ones(3, 16))
    env.totals["successes"][1] = 3.0
    other.load_state_dict(env.state_dict())
    assert torch.equal(other.kept["goal"], env.kept["goal"])
    assert other.totals["successes"].tolist() == [0.0, 3.0, 0.0]
    assert torch.equal(other.observe()["policy"], env.observe()["policy"])


def test_reward_scales_of_single_environments_reach_the_reward() -> None:
    """What a population may mutate: twice the weights in the second environment make twice each of these terms."""
    env = in_the_air(2)
    assert env.objective == "successes"
    assert set(env.reward_scales) == {"distance_weight", "rotation_weight", "action_weight", "success_bonus"}
    state = env.state_dict()
    first = env.step(torch.full((2, env.action_dim), 0.5)).log
    env.load_state_dict(state)
    for scale in env.reward_scales.values():
        scale[1] *= 2
    second = env.step(torch.full((2, env.action_dim), 0.5)).log
    for name in ("distance", "rotation", "action"):
        assert second[f"reward/{name}"][0] == first[f"reward/{name}"][0] != 0
        assert second[f"reward/{name}"][1].item() == pytest.approx(2 * first[f"reward/{name}"][1].item(), rel=1e-6)
