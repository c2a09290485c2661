"""Both hands with a cube: observations, rewards, goals, drops, starts and figures of states put there by hand."""

import pytest
import torch
from tasks.in_hand.states import ALLEGRO, RAISED, SHADOW, Hand
from tasks.states import UPRIGHT, begun, check_spread, put, put_object, turn

BOTH = pytest.mark.parametrize("hand", [ALLEGRO, SHADOW], ids=["allegro", "shadow"])


@BOTH
def test_a_goal_reached_is_counted_paid_and_replaced_within_the_step(hand: Hand) -> None:
    """The last also reaches the time limit, after 599 steps."""
    env = hand.in_the_air(4, 0.05, 1.0, 0.05, 0.05)
    env.clock[2:] = torch.tensor([597, 598])
    before, idle = env.kept["goal"].clone(), torch.zeros(4, env.action_dim)
    step = env.step(idle)
    reached = torch.tensor([True, False, True, True])
    assert torch.equal(step.log["reward/success"], 250.0 * reached)
    assert torch.equal(step.log["episode/successes"], reached.float())
    assert step.truncated.tolist() == [False, False, False, True]
    assert not step.terminated.any()
    assert torch.equal((env.kept["goal"] != before).any(dim=1), reached)
    # Both observations show the goal to act for now, the reward was for the one before.
    obs, final, shown = step.obs["policy"], step.final_obs["policy"], hand.cube + torch.tensor([19, 16, 17, 18])
    torch.testing.assert_close(obs[:, shown], env.kept["goal"])
    assert torch.equal(obs[:3], final[:3])
    # The state that is worth something beyond the limit is the one with the next goal.
    assert not torch.equal(final[3, shown], before[3])
    assert not torch.equal(final[3, shown], obs[3, shown])
    assert (step.reward > 200).tolist() == reached.tolist()
    torch.testing.assert_close(env.engine.mocap_quat[:, 0].float(), env.kept["goal"])
    assert env.clock.tolist() == [1, 1, 598, 0]  # a success does not turn the clock back
    assert env.totals["successes"].tolist() == [1.0, 0.0, 1.0, 0.0]
    env.clock[:] = 1
    put_object(env, hand.goal + RAISED, env.kept["goal"])
    assert env.step(idle).log["episode/successes"].tolist() == [2.0, 1.0, 2.0, 1.0]


@BOTH
def test_a_dropped_cube_ends_the_episode_and_actions_are_targets(hand: Hand) -> None:
    env = hand.in_the_air(3)
    env.totals["successes"][:] = 2.0
    env.clock[:] = torch.tensor([10, 10, 598])
    far = hand.goal + torch.tensor([[0.0, 0.0, 0.15], [0.3, 0.0, 0.15], [0.3, 0.0, 0.15]])
    put_object(env, far)
    step = env.step(torch.zeros(3, env.action_dim))
    assert step.terminated.tolist() == [False, True, True]
    assert not step.truncated.any()  # the drop on the last step is a drop
    assert step.log["episode/successes"].tolist() == [2.0, 2.0, 2.0]
    assert env.totals["successes"].tolist() == [2.0, 0.0, 0.0]
    assert env.clock.tolist() == [11, 0, 0]
    obs, final = step.obs["policy"][1:], step.final_obs["policy"][1:]
    torch.testing.assert_close(final[0, hand.cube : hand.cube + 3], far[1], atol=0.02, rtol=0)
    assert (obs[:, hand.cube : hand.cube + 3] - hand.start).abs().max() <= 0.01 + 1e-6
    assert not obs[:, -env.action_dim :].any()
    goal = slice(hand.cube + 16, hand.cube + 20)
    assert (obs[:, goal] != final[:, goal]).any(dim=1).all()  # a goal of its own
    low, high = hand.limits[hand.driven].unbind(1)  # actions are targets across the joints' ranges
    for action, target in ((-1.0, low), (1.0, high), (0.0, (low + high) / 2)):
        env.step(torch.full((3, len(hand.driven)), action))
        torch.testing.assert_close(env.engine.ctrl[0].float(), target)


@BOTH
def test_starts(hand: Hand) -> None:
    """No torque, wrench or action is observed before the first action."""
    env = begun(hand.task, 600)
    obs = env.observe()["policy"]
    torch.testing.assert_close(obs[:, 2 * len(hand.limits) : hand.cube], torch.zeros(600, len(hand.limits)))
    assert not obs[:, -env.action_dim - (30 if hand is SHADOW else 0) :].any()
    cube, joints = env.engine.qpos[:, env.cube[0]].float(), env.engine.qpos[:, env.joints[0]].float()
    offset = cube[:, :3] - hand.start
    check_spread(offset, -0.01, 0.01, share=0.03)
    assert offset.mean(dim=0).abs().max() < 1.5e-3
    low, high = hand.limits.unbind(1)
    check_spread(joints, torch.maximum(low, 0.2 * low), 0.2 * high, share=0.1)
    assert not env.engine.qvel.any()
    for orientation in (cube[:, 3:], env.kept["goal"]):
        torch.testing.assert_close(orientation.norm(dim=1), torch.ones(600))
        w, x, y, z = orientation.unbind(1)
        assert (w * z - x * y).abs().max() < 1e-6  # as in every `Rx(a) Ry(b)`, by multiplying out
        # cos of either angle averages to 0, as does its sin; the first: w² + y² - x² - z² = cos a.
        assert (w * w + y * y - x * x - z * z).mean().abs() < 0.1
        assert (2 * (w * x + y * z)).mean().abs() < 0.1
    assert (cube[:, 3:] * env.kept["goal"]).sum(dim=1).abs().mean() < 0.6  # independent draws


def test_torques_can_be_left_out_and_weights_are_settings_and_scales_of_single_environments() -> None:
    env, blind = begun(ALLEGRO.task, 3), begun(ALLEGRO.task, 3, observe_torques=False)
    action = torch.rand(3, 16, generator=torch.Generator().manual_seed(0))
    seen, zeros = env.step(action).obs["policy"], blind.step(action).obs["policy"]
    assert seen[:, 32:48].abs().amax(dim=1).gt(0.1).all()
    seen[:, 32:48] = 0.0
    assert torch.equal(seen, zeros)
    # What a population may mutate: twice the weights in the second environment make twice each of these terms.
    weights = {"distance_weight": -1.0, "rotation_weight": 2.0, "rotation_softening": 0.5, "action_weight": -1.0}
    env = begun(ALLEGRO.task, 1, **weights, drop_reward=-7)
    put_object(env, ALLEGRO.goal[None] + torch.tensor([0.0, 0.0, -0.25]), turn((0.0, 1.0, 0.0), 1.0))
    env.kept["goal"].copy_(torch.tensor(UPRIGHT))
    torch.testing.assert_close(env.reward(torch.full((1, 16), 0.5)), torch.tensor([-0.25 + 2 / 1.5 - 4.0 - 7.0]))
    env = ALLEGRO.in_the_air(2)
    assert env.objective == "successes"
    assert set(env.reward_scales) == {"distance_weight", "rotation_weight", "action_weight", "success_bonus"}
    state = env.state_dict()
    first = env.step(torch.full((2, env.action_dim), 0.5)).log
    env.load_state_dict(state)
    for scale in env.reward_scales.values():
        scale[1] *= 2
    second = env.step(torch.full((2, env.action_dim), 0.5)).log
    for name in ("reward/distance", "reward/rotation", "reward/action"):
        assert second[name][0] == first[name][0] != 0
        assert second[name][1].item() == pytest.approx(2 * first[name][1].item(), rel=1e-6)


def test_allegro_starts_with_its_thumb_at_the_stop_and_a_resting_cube_hardly_sinks_in() -> None:
    """0.2 U(0.279, 1.571) lies below the lower stop in 86 % of the draws; there it is held at the stop."""
    env = begun(ALLEGRO.task, 600)
    at_stop = (env.engine.qpos[:, 7 + 12] - 0.27924).abs() < 1e-6
    assert abs(at_stop.float().mean().item() - (0.27924 / 0.2 - 0.27924) / (1.57075 - 0.27924)) < 0.06
    step = env.step(torch.zeros(600, 16))
    assert not step.log["quarantined"].any()
    assert step.obs["policy"].isfinite().all()
    speed = env.engine.qvel[:, :3].norm(dim=1)
    assert (speed < 1.5).float().mean() > 0.97  # nothing is shot out of the hand
    env = begun(ALLEGRO.task, 4)
    pose = torch.tensor([0.05, 0.45, 0.55, 0.35, 0.0, 0.4, 0.55, 0.35, -0.05, 0.45, 0.55, 0.35, 0.9, 0.75, 0.35, 0.45])
    qpos = torch.cat((torch.tensor([-0.005, -0.165, 0.585, 1.0, 0.0, 0.0, 0.0]), pose)).repeat(4, 1)
    put(env, qpos)
    low, high = ALLEGRO.limits.unbind(1)
    action = ((2 * pose - high - low) / (high - low)).repeat(4, 1)
    for _ in range(90):  # it slips once after a second
        step = env.step(action)
    assert not step.terminated.any()
    assert step.obs["policy"][:, 55:61].abs().max() < 0.05  # at rest
    corner = env.engine.qpos[:, 2].clone()
    for _ in range(30):
        env.step(action)
    assert (env.engine.qpos[:, 2] - corner).abs().max() < 5e-4  # and it stays so
