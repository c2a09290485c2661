"""The KUKA arm with the Allegro hand beyond its fact table, what meets what in the scenes, and room for objects."""

import mujoco
import numpy as np
import pytest
import torch
from tasks.allegro_kuka.states import DEFAULT, FAMILY, REORIENTATION, THROW, TWO_ARMS
from tasks.robots import load, pairs, posed, touching
from tasks.states import UPRIGHT, begun, put_object

from echelon import tasks


def test_the_default_pose_holds_the_palm_over_the_table_and_only_the_wrist_touches_it() -> None:
    """Published for a base at (0, 0.8, 0), to the millimetre: palm down, fingers along -y."""
    data = posed(load("kuka_allegro"), DEFAULT)
    for name, place in {
        "palm": (0.014, 0.085, 0.692),
        "hand/index": (0.069, -0.101, 0.684),
        "hand/middle": (0.012, -0.104, 0.683),
        "hand/ring": (-0.046, -0.101, 0.683),
        "hand/thumb": (0.195, 0.135, 0.728),
    }.items():
        np.testing.assert_allclose(data.sensor(name).data + np.array([0, 0.8, 0]), place, rtol=0, atol=1.1e-3)
    assert data.body("hand/palm_link").xmat.reshape(3, 3)[2, 2] < -0.98
    model = load("kuka_allegro")
    shapes = {int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("SPHERE", "CAPSULE", "BOX", "CYLINDER")}
    assert set(model.geom_type) == shapes
    solid = {model.geom(i).name for i in np.flatnonzero(model.geom_contype)}
    arm = {name for name in solid if not name.startswith("hand/")}
    assert arm == {"link_5_back", "link_5_front", "link_6", "link_7"}
    assert len(solid) == 4 + 17
    assert all(model.geom(name).contype[0] == 4 and model.geom(name).conaffinity[0] == 0 for name in arm)


def kind(name: str) -> str:
    """`arm0/hand/index_2` is a hand of arm 0, `arm0/link_6` a wrist."""
    arm, _, rest = name.partition("/")
    return f"{'hand' if rest.startswith('hand/') else 'wrist'} {arm[-1]}" if rest else name.split("_")[0]


@pytest.mark.parametrize("task", FAMILY)
def test_what_meets_what(task: str) -> None:
    """By contact bits; the pairs that are listed as well are within a hand. Boxes, capsules and a plane: nothing that
    needs a convex solver with `nativeccd` off."""
    expected = pairs("object, table", "object, floor", "object, hand 0", "hand 0, table", "wrist 0, table")
    if task == THROW:
        expected |= pairs("object, bucket", "hand 0, bucket", "wrist 0, bucket")
    if task == TWO_ARMS:
        expected |= pairs("object, hand 1", "hand 1, table", "wrist 1, table")
        expected |= pairs("hand 0, hand 1", "hand 0, wrist 1", "wrist 0, hand 1", "wrist 0, wrist 1")
    model = load(tasks.info(task).task.scene.removesuffix(".xml"))
    assert touching(model, kind) == expected
    touches = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    assert set(model.geom_type[touches]) == {
        int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("BOX", "CAPSULE", "PLANE")
    }
    assert model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)


def test_hands_do_not_reach_through_walls_and_few_objects_start_in_them() -> None:
    """The bucket stands beside the palm, its wall 2 cm inside it: the arm gives way."""
    env = begun(THROW, 1)
    put_object(env, torch.tensor([0.0, -1.0, 0.9]))
    palm = env.arms.palms().centre[0, 0].double()
    env.engine.mocap_pos[0, 0] = palm + torch.tensor([0.1, 0.0, -0.1])
    env.engine.mocap_quat[0, 0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    env.engine.step(10)
    assert env.engine.read("ncon")[0] > 0
    assert (env.arms.palms().centre[0, 0] - palm).norm() > 0.005
    # A cube of 10 cm around the palm's centre, one 5 cm away from all balls, one that just holds a tip.
    env = begun(REORIENTATION, 3)
    env.scales[:] = 2.0
    balls = env.hands.balls()
    assert balls.shape == (3, 16 * 3 + 27, 3)
    tip = env.arms.palms().fingertips[2, 0, 0] + torch.tensor([0.0, -0.049, 0.0])
    away = balls[1, :, 0].amax() + 0.02 + 0.1
    centres = torch.stack((balls[0].mean(dim=0), torch.tensor([away, 0.0, 0.8]), tip))
    pose = torch.cat((centres, torch.tensor(UPRIGHT).expand(3, 4)), dim=1)
    assert env.hands.meet(balls, pose, env.scales).tolist() == [True, False, True]
    env = begun(REORIENTATION, 600)
    balls = env.hands.balls()
    inside = env.hands.meet(balls, env.engine.qpos[:, :7].float(), env.scales)
    assert inside.float().mean() < 0.03
    drawn = env.hands.meet(balls, env.draws.starts(), env.scales)  # regardless of the hand: 7 %
    assert 0.04 < drawn.float().mean() < 0.12
