"""CartpoleSwingup: observations, rewards and figures of states put there by hand."""

import math

import torch
from tasks.states import begun, check_spread, put

from echelon.tasks.cartpole.task import CartpoleSwingup

# Cart position, pole angle, cart velocity, pole velocity: up, down, tilted, off the centre.
STATES = torch.tensor(
    [(0.0, 0.0, 0.0, 0.0), (0.0, math.pi, 0.0, 0.0), (0.25, 2 * math.pi + 0.2, -1.0, 3.0), (1.2, 0.1, 0.0, 0.0)],
    dtype=torch.float64,
)


def in_states(**settings: bool) -> CartpoleSwingup:
    return put(begun("CartpoleSwingup", len(STATES), **settings), STATES[:, :2], STATES[:, 2:])


def raised(angle: float) -> float:
    height = (1 + math.cos(angle)) / 2
    return 0.25 * height + 0.75 * height**4


def test_observation_reward_and_upright() -> None:
    """Upright wants the pole up and the cart centred."""
    env, blind = in_states(), in_states(velocities=False)
    expected = torch.tensor(
        [
            [0.0, 0.0, 1.0, 0.0, 0.0],
            [0.0, 0.0, -1.0, 0.0, 0.0],
            [0.25, math.sin(0.2), math.cos(0.2), -1.0, 3.0],
            [1.2, math.sin(0.1), math.cos(0.1), 0.0, 0.0],
        ]
    )
    torch.testing.assert_close(env.observe()["policy"], expected)
    assert blind.obs_spec == {"policy": 3}
    assert torch.equal(blind.observe()["policy"], env.observe()["policy"][:, :3])
    paid = [
        1.0,  # raised 1, centred 1, calm 1
        -0.0025,  # raised 0; half the force costs 0.01 * 0.25
        # centred 1 - 0.8 * 0.25 / 1.9, calm 1 - 0.01 * 3², full force costs 0.01
        raised(0.2) * (1 - 0.2 / 1.9) * 0.91 - 0.01,
        raised(0.1) * (1 - 0.96 / 1.9),  # 1.2 m from the centre
    ]
    torch.testing.assert_close(env.reward(torch.tensor([[0.0], [0.5], [1.0], [0.0]])), torch.tensor(paid))
    assert abs(raised(math.pi / 2) - 0.171875) < 1e-12  # 0.25 / 2 + 0.75 / 16
    assert env.figures()["upright"].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_upright_late_starts_rail_and_force() -> None:
    """One pole is up in the first half, the other in the second but for a step."""
    env = begun("CartpoleSwingup", 2, episode_length=8)
    for clock in range(1, 9):
        env.engine.qpos[:] = torch.tensor([[0.0, 0.0 if up else math.pi] for up in (clock <= 4, clock in (5, 7, 8))])
        env.engine.qvel[:] = 0.0
        step = env.step(torch.zeros(2, 1))
    assert step.truncated.all()
    assert step.log["episode/upright_late"].tolist() == [0.0, 0.75]
    assert not any(total.any() for total in env.totals.values())
    # It starts hanging near the centre.
    position, angle = begun("CartpoleSwingup", 500).engine.qpos.unbind(1)
    check_spread(position, -0.5, 0.5, share=0.02)
    check_spread(angle - math.pi, -0.3, 0.3, share=0.02)
    env = in_states()
    assert env.engine.model.joint("slide").range.tolist() == [-CartpoleSwingup.rail, CartpoleSwingup.rail]
    env.step(torch.ones(len(STATES), 1))
    # Hanging at rest, the pole hardly couples yet: 15 N on between 1 kg (cart) and 1.21 kg (all) for 0.05 s.
    assert 15 / 1.21 * 0.05 < env.engine.qvel[1, 0] < 15 / 1.0 * 0.05
