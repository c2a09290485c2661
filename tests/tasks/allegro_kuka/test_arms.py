"""Actions and starts of the arms."""

import torch
from tasks.allegro_kuka import states
from tasks.allegro_kuka.states import REGRASPING, REORIENTATION, TWO_ARMS
from tasks.robots import limits
from tasks.states import begun, check_spread

ARM, HAND = torch.tensor(limits("kuka_allegro")).float().split((7, 16))
DEFAULT = torch.tensor(states.DEFAULT)


def test_arm_actions_move_the_target_and_hand_actions_are_it() -> None:
    env = begun(REORIENTATION, 2)
    before = env.arms.target.clone()
    torch.testing.assert_close(before, env.engine.qpos[:, 7:].float())  # targets start where the joints are
    action = torch.full((2, 23), 0.5)
    action[1] = -1.0
    env.step(action)
    # 10 rad/s for 1/60 s at full action
    torch.testing.assert_close(env.arms.target[0, :7], before[0, :7] + 0.5 / 6)
    torch.testing.assert_close(env.arms.target[1, :7], before[1, :7] - 1 / 6)
    low, high = HAND.unbind(1)
    torch.testing.assert_close(env.arms.target[0, 7:], low + 0.75 * (high - low))
    torch.testing.assert_close(env.arms.target[1, 7:], low)
    env.step(action)
    torch.testing.assert_close(env.arms.target[0, :7], before[0, :7] + 1 / 6)  # from the target, not from the joint
    env.arms.target[0, :7], env.arms.target[1, :7] = ARM[:, 1] - 0.01, ARM[:, 0] + 0.01
    env.arms.control(action)
    torch.testing.assert_close(env.arms.target[:, :7], ARM.T.flip(0))  # not beyond the joints' ranges
    env = begun(TWO_ARMS, 1)  # all actions are targets
    action = torch.linspace(-1, 1, 46)[None]
    env.step(action)
    low, high = torch.cat((ARM, HAND, ARM, HAND)).unbind(1)
    torch.testing.assert_close(env.arms.target[0], low + 0.5 * (action[0] + 1) * (high - low))


def test_servos_are_led_no_further_than_their_speed_limit() -> None:
    """kp Δ = kd v: 1.25 rad ahead is 10 rad/s for an arm, 0.785 rad is 6.283 rad/s for a finger."""
    for env in (begun(REORIENTATION, 2), begun(TWO_ARMS, 2)):
        angles = env.engine.qpos[:, 7:].clone()
        env.arms.target[:] = env.arms.high
        env.engine.ctrl.copy_(env.arms.control(torch.ones(2, env.action_dim)))
        lead = torch.tensor(([1.25] * 7 + [0.785375] * 16) * env.arms.count)
        ahead = (env.engine.ctrl - angles).float()
        torch.testing.assert_close(ahead, torch.minimum(env.arms.high - angles.float(), lead.expand_as(ahead)))
        assert (ahead > 1.24).any()


def test_starts() -> None:
    """Of one arm, and of two: the other looks the other way, turned by half a turn about z."""
    env = begun(REGRASPING, 1500)
    joints, speeds = env.engine.qpos[:, 7:].float(), env.engine.qvel[:, 6:].float()
    low, high = ARM.unbind(1)
    least, most = DEFAULT + 0.1 * (low - DEFAULT), DEFAULT + 0.1 * (high - DEFAULT)
    check_spread(joints[:, :7], least, most)
    torch.testing.assert_close(joints[:, :7].mean(dim=0), (least + most) / 2, rtol=0, atol=0.015)
    low, high = HAND.unbind(1)
    # The thumb has no zero in its range.
    check_spread(joints[:, 7:], torch.maximum(low, 0.1 * low), torch.maximum(low, 0.1 * high), share=0.02)
    check_spread(speeds, -0.5, 0.5)
    palm, both = env.arms.palms().centre[:, 0], begun(TWO_ARMS, 1000).arms.palms().centre.unbind(1)
    for found, mean, std, atol in (  # published for this law
        (palm, (0.116, 0.123, 0.781), (0.136, 0.074, 0.096), 0.008),
        (both[0], (-0.505, 0.104, 0.834), (0.084, 0.130, 0.086), 0.01),
        (both[1], (0.505, -0.104, 0.834), (0.084, 0.130, 0.086), 0.01),
    ):
        torch.testing.assert_close(found.mean(dim=0), torch.tensor(mean), rtol=0, atol=atol)
        torch.testing.assert_close(found.std(dim=0), torch.tensor(std), rtol=0, atol=atol)
