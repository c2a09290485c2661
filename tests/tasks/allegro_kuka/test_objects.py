"""The cuboids: how many, in what order, and that each simulation has its own in size, mass, inertia and contact."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from gpu import MARKS

from echelon.sim import make_engine
from echelon.sim.contract import Engine
from echelon.tasks.allegro_kuka import objects, scene

ALL = (objects.small(), objects.big(), objects.sticks())
# From the lightest to the heaviest, a stick, a plate as thin as they get, one longer in each direction.
SAMPLE = [(1.0, 1.0, 1.0), (3.0, 2.0, 2.5), (1.0, 1.0, 6.0), (0.5, 5.0, 1.0)]
SAMPLE += [(2.5, 0.5, 1.0), (3.5, 1.25, 1.25), (0.66, 1.75, 2.0), (1.0, 2.0, 3.0)]


def test_counts_masses_order_and_shapes_by_exact_arithmetic() -> None:
    """50 g for the cube of 5 cm. Published: 0.05 to 0.75 kg, 0.159 in the mean, no side above 30 cm, the first six."""
    assert [len(kind) for kind in ALL] == [654, 248, 45]
    together = [scales for kind in ALL for scales in kind]
    assert len(together) == 947
    assert len(set(together)) == 938
    assert len({tuple(sorted(scales)) for scales in ALL[0]}) == 131
    assert (1.0, 1.0, 1.0) in ALL[0]
    mass = 0.05 * np.prod(together, axis=1)
    assert (mass.min(), mass.max()) == (pytest.approx(0.05), pytest.approx(0.75))
    assert mass.mean() == pytest.approx(0.159, abs=5e-4)
    assert mass[:654].max() == pytest.approx(0.125)
    assert np.max(together) == 6.0
    first = [(4.0, 0.75, 1.0), (1.0, 2.5, 1.0), (1.25, 0.66, 3.0), (3.0, 0.75, 1.1), (2.0, 1.0, 3.0), (1.5, 2.5, 1.25)]
    ordered = objects.shuffled(*ALL)
    assert ordered[:6] == first
    assert sorted(ordered) == sorted(together)

    # The rules once more, over fractions.
    def shapes(sides: str, least: str, most: str, long: bool) -> set[tuple[float, ...]]:
        triples = product([Fraction(side) for side in sides.split()], repeat=3)
        found = [t for t in triples if Fraction(least) <= t[0] * t[1] * t[2] <= Fraction(most)]
        found = [t for t in found if 3 * sorted(t)[0] > sorted(t)[1]]
        return {tuple(map(float, t)) for t in found if not long or max(t) > 3 * sorted(t)[1]}

    assert shapes("1 1.25 1.5 2 2.5 3 3.5", "2.5", "15", long=False) == set(ALL[1])
    assert shapes("0.5 0.75 1 2 3 4 5 6", "2.5", "6", long=True) == set(ALL[2])
    assert {tuple(sorted(t)) for t in ALL[2]} == {
        *[(0.5, 1.0, x) for x in (5.0, 6.0)],
        *[(0.75, 0.75, x) for x in (5.0, 6.0)],
        *[(y, 1.0, x) for y in (0.75, 1.0) for x in (4.0, 5.0, 6.0)],
    }


def made(num_sims: int, device: str = "cpu") -> Engine:
    return make_engine(scene.build("kuka_one_arm.xml"), num_sims, torch.device(device), 28, 112, "fused")


def place(engine: Engine, position: object, velocity: object = 0.0) -> None:
    """The objects there, `[N, 3]`, with velocities `[N, 6]`."""
    qpos, qvel = engine.qpos.clone(), torch.zeros_like(engine.qvel)
    qpos[:, :3], qvel[:, :6] = torch.as_tensor(position), torch.as_tensor(velocity)
    engine.set_state(torch.ones(len(qpos), dtype=torch.bool, device=engine.device), qpos, qvel)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=MARKS)])
def test_every_simulation_has_its_own_object(device: str) -> None:
    """Size, mass and inertia of each, and that it rests on the table at its half height."""
    engine = made(10, device)  # two more than objects
    scales, mass = objects.give(engine, SAMPLE)
    body, geoms = engine.model.body("object").id, [engine.model.geom(name).id for name in ("object", "goal")]
    np.testing.assert_allclose(scales.cpu(), [SAMPLE[i % 8] for i in range(10)], rtol=1e-6)
    for i in range(10):
        a, b, c = sides = 0.05 * np.array(SAMPLE[i % 8])
        kilograms = 400 * a * b * c
        moments = kilograms / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
        for found, expected in (
            (mass[i], kilograms),
            (engine.expand("body_mass")[i, body], kilograms),
            (engine.expand("body_inertia")[i, body], moments),
            (engine.expand("dof_damping")[i, :6], [0, 0, 0, *0.5 * moments]),
            (engine.expand("geom_size")[i, geoms], [sides / 2] * 2),
            # Half the diagonal: what the collision code looks at first.
            (engine.expand("geom_rbound")[i, geoms[0]], np.linalg.norm(sides / 2)),
        ):
            np.testing.assert_allclose(found.cpu(), expected, rtol=1e-5)
    half = 0.025 * scales[:, 2:].cpu()
    place(engine, torch.cat((torch.zeros(10, 2), 0.53 + half + 0.002), dim=1))
    for _ in range(40):
        engine.step(2)
    np.testing.assert_allclose((engine.qpos[:, 2:3] - 0.53).cpu(), half, rtol=0, atol=5e-4)
    assert engine.qvel[:, :6].abs().max() < 0.01
    assert not engine.overflow.any()


def test_a_push_at_the_centre_moves_an_object_by_its_mass_and_turning_fades_by_half_in_a_second() -> None:
    """0.1 N for 1/60 s in free fall: dv = F dt / m, and no turning. Then exp(-0.5 t) about every axis, whatever the
    shape; a turn about a principal axis stays one."""
    engine = made(8)
    _, mass = objects.give(engine, SAMPLE)
    place(engine, (0.0, -1.0, 3.0))
    engine.xfrc_applied[:, engine.model.body("object").id, 0] = 0.1
    engine.step(2)
    np.testing.assert_allclose(engine.qvel[:, 0], 0.1 / 60 / mass.double(), rtol=1e-6)
    np.testing.assert_allclose(engine.qvel[:, 2], np.full(8, -9.81 / 60), rtol=1e-6)
    assert engine.qvel[:, 3:6].abs().max() < 1e-9
    engine = made(3)
    objects.give(engine, [(1.0, 2.0, 3.0)])
    place(engine, (0.0, -1.0, 30.0), torch.cat((torch.zeros(3, 3), torch.eye(3)), dim=1))
    engine.step(120)
    np.testing.assert_allclose(engine.qvel[:, 3:6], np.exp(-0.5) * np.eye(3), rtol=0, atol=3e-3)
