"""The cuboids: how many, in what order, and that each simulation has its own in size, mass, inertia and contact."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from gpu import needs_gpu

from echelon.sim.cpu import CpuEngine
from echelon.tasks.allegro_kuka import objects, scene

ALL = (objects.small(), objects.big(), objects.sticks())
# From the lightest to the heaviest, a stick, a plate as thin as they get, one longer in each direction.
SAMPLE = [
    (1.0, 1.0, 1.0),
    (3.0, 2.0, 2.5),
    (1.0, 1.0, 6.0),
    (0.5, 5.0, 1.0),
    (2.5, 0.5, 1.0),
    (3.5, 1.25, 1.25),
    (0.66, 1.75, 2.0),
    (1.0, 2.0, 3.0),
]


def test_counts() -> None:
    assert [len(kind) for kind in ALL] == [654, 248, 45]
    together = [scales for kind in ALL for scales in kind]
    assert len(together) == 947
    assert len(set(together)) == 938
    assert len({tuple(sorted(scales)) for scales in ALL[0]}) == 131
    assert (1.0, 1.0, 1.0) in ALL[0]


def test_sticks_and_big_ones_by_exact_arithmetic() -> None:
    """The rules once more, over unordered shapes of fractions, and their permutations counted."""

    def shapes(sides: str, least: str, most: str) -> set[tuple[Fraction, ...]]:
        triples = product([Fraction(side) for side in sides.split()], repeat=3)
        return {t for t in triples if Fraction(least) <= t[0] * t[1] * t[2] <= Fraction(most)}

    thick = lambda t: 3 * sorted(t)[0] > sorted(t)[1]  # noqa: E731
    long = lambda t: sorted(t)[2] > 3 * sorted(t)[1]  # noqa: E731
    big = {t for t in shapes("1 1.25 1.5 2 2.5 3 3.5", "2.5", "15") if thick(t)}
    sticks = {t for t in shapes("0.5 0.75 1 2 3 4 5 6", "2.5", "6") if thick(t) and long(t)}
    assert {tuple(map(float, t)) for t in big} == set(ALL[1])
    assert {tuple(map(float, t)) for t in sticks} == set(ALL[2])
    assert {tuple(sorted(t)) for t in ALL[2]} == {
        *[(0.5, 1.0, x) for x in (5.0, 6.0)],
        *[(0.75, 0.75, x) for x in (5.0, 6.0)],
        *[(y, 1.0, x) for y in (0.75, 1.0) for x in (4.0, 5.0, 6.0)],
    }


def test_masses() -> None:
    """50 g for the cube of 5 cm; published: 0.05 to 0.75 kg, 0.159 in the mean, no side above 30 cm."""
    mass = 0.05 * np.array([np.prod(scales) for kind in ALL for scales in kind])
    assert (mass.min(), mass.max()) == (pytest.approx(0.05), pytest.approx(0.75))
    assert mass.mean() == pytest.approx(0.159, abs=5e-4)
    assert max(0.05 * np.prod(scales) for scales in ALL[0]) == pytest.approx(0.125)
    assert max(side for kind in ALL for scales in kind for side in scales) == 6.0


def test_order() -> None:
    """The published first six."""
    ordered = objects.shuffled(*ALL)
    assert ordered[:6] == [
        (4.0, 0.75, 1.0),
        (1.0, 2.5, 1.0),
        (1.25, 0.66, 3.0),
        (3.0, 0.75, 1.1),
        (2.0, 1.0, 3.0),
        (1.5, 2.5, 1.25),
    ]
    assert sorted(ordered) == sorted(scales for kind in ALL for scales in kind)


def check_objects(engine) -> None:
    """Size, mass and inertia of each simulation's object, and that it rests on the table at its half height."""
    scales, mass = objects.give(engine, SAMPLE)
    assert engine.num_sims == 10  # two more than objects
    body, geoms = engine.model.body("object").id, [engine.model.geom(name).id for name in ("object", "goal")]
    for i in range(10):
        sides = 0.05 * np.array(SAMPLE[i % 8])
        kilograms = 400 * sides[0] * sides[1] * sides[2]
        assert mass[i].item() == pytest.approx(kilograms, rel=1e-5)
        np.testing.assert_allclose(scales[i].cpu(), SAMPLE[i % 8], rtol=1e-6)
        assert engine.expand("body_mass")[i, body].item() == pytest.approx(kilograms, rel=1e-5)
        a, b, c = sides
        moments = kilograms / 12 * np.array([b * b + c * c, a * a + c * c, a * a + b * b])
        np.testing.assert_allclose(engine.expand("body_inertia")[i, body].cpu(), moments, rtol=1e-5)
        np.testing.assert_allclose(engine.expand("dof_damping")[i, :6].cpu(), [0, 0, 0, *0.5 * moments], rtol=1e-5)
        for geom in geoms:
            np.testing.assert_allclose(engine.expand("geom_size")[i, geom].cpu(), sides / 2, rtol=1e-5)
        # Half the diagonal: what the collision code looks at first.
        bound = float(np.linalg.norm(sides / 2))
        assert engine.expand("geom_rbound")[i, geoms[0]].item() == pytest.approx(bound, rel=1e-5)
    start = engine.qpos.clone()
    half = torch.tensor([0.025 * SAMPLE[i % 8][2] for i in range(10)]).to(start)
    start[:, 2] = 0.53 + half + 0.002
    everything = torch.ones(10, dtype=torch.bool, device=engine.device)
    engine.set_state(everything, start, torch.zeros_like(engine.qvel))
    for _ in range(40):
        engine.step(2)
    np.testing.assert_allclose((engine.qpos[:, 2] - 0.53).cpu(), half.cpu(), rtol=0, atol=5e-4)
    assert engine.qvel[:, :6].abs().max() < 0.01
    assert not engine.overflow.any()


def test_every_simulation_has_its_own_object() -> None:
    check_objects(CpuEngine(scene.build("kuka_one_arm.xml"), 10))


@needs_gpu
def test_every_simulation_has_its_own_object_on_cuda() -> None:
    from echelon.sim.warp import WarpEngine

    check_objects(WarpEngine(scene.build("kuka_one_arm.xml"), 10, torch.device("cuda"), 28, 112))


def test_a_push_at_the_centre_moves_an_object_by_its_mass() -> None:
    """0.1 N for 1/60 s in free fall: dv = F dt / m, and no turning."""
    model = scene.build("kuka_one_arm.xml")
    engine = CpuEngine(model, 8)
    _, mass = objects.give(engine, SAMPLE)
    start = engine.qpos.clone()
    start[:, :3] = torch.tensor([0.0, -1.0, 3.0])
    engine.set_state(torch.ones(8, dtype=torch.bool), start, torch.zeros_like(engine.qvel))
    engine.xfrc_applied[:, model.body("object").id, 0] = 0.1
    engine.step(2)
    np.testing.assert_allclose(engine.qvel[:, 0], 0.1 / 60 / mass.double(), rtol=1e-6)
    np.testing.assert_allclose(engine.qvel[:, 2], np.full(8, -9.81 / 60), rtol=1e-6)
    assert engine.qvel[:, 3:6].abs().max() < 1e-9


def test_turning_fades_by_half_in_a_second() -> None:
    """exp(-0.5 t) about every axis, whatever the shape; a turn about a principal axis stays one."""
    model = scene.build("kuka_one_arm.xml")
    engine = CpuEngine(model, 3)
    objects.give(engine, [(1.0, 2.0, 3.0)])
    start, spin = engine.qpos.clone(), torch.zeros_like(engine.qvel)
    start[:, :3] = torch.tensor([0.0, -1.0, 30.0])
    spin[:, 3:6] = torch.eye(3)
    engine.set_state(torch.ones(3, dtype=torch.bool), start, spin)
    for _ in range(60):
        engine.step(2)
    np.testing.assert_allclose(engine.qvel[:, 3:6], np.exp(-0.5) * np.eye(3), rtol=0, atol=3e-3)
