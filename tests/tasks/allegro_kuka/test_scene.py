"""What can touch what in the AllegroKuka scenes, and that objects are not put into hands."""

from itertools import combinations

import mujoco
import pytest
import torch
from tasks.allegro_kuka.states import FAMILY, REORIENTATION, THROW, TWO_ARMS, begun, put, turn

from echelon import tasks
from echelon.tasks.allegro_kuka import scene


def kind(name: str) -> str:
    """`arm0/hand/index_2` is a hand of arm 0, `arm0/link_6` a wrist."""
    arm, _, rest = name.partition("/")
    return f"{'hand' if rest.startswith('hand/') else 'wrist'} {arm[-1]}" if rest else name.split("_")[0]


def touching(task: str) -> set[frozenset[str]]:
    """Kinds that meet by their contact bits; the pairs that are listed besides are within a hand."""
    model = scene.build(tasks.info(task).task.scene)
    geoms = [model.geom(i) for i in range(model.ngeom)]
    return {
        frozenset((kind(one.name), kind(two.name)))
        for one, two in combinations(geoms, 2)
        if ((one.contype[0] & two.conaffinity[0]) or (two.contype[0] & one.conaffinity[0]))
        and (model.body_weldid[one.bodyid[0]] or model.body_weldid[two.bodyid[0]])  # two that stand still never meet
    }


def test_what_meets_what() -> None:
    def pairs(*names: str) -> set[frozenset[str]]:
        return {frozenset(name.split(", ")) for name in names}

    one_arm = pairs("object, table", "object, floor", "object, hand 0", "hand 0, table", "wrist 0, table")
    assert touching(REORIENTATION) == one_arm
    assert touching(THROW) == one_arm | pairs("object, bucket", "hand 0, bucket", "wrist 0, bucket")
    second = pairs("object, hand 1", "hand 1, table", "wrist 1, table")
    between = pairs("hand 0, hand 1", "hand 0, wrist 1", "wrist 0, hand 1", "wrist 0, wrist 1")
    assert touching(TWO_ARMS) == one_arm | second | between


@pytest.mark.parametrize("task", FAMILY)
def test_only_primitive_pairs_touch(task: str) -> None:
    """Boxes, capsules and a plane: nothing that needs a convex solver with `nativeccd` off."""
    model = scene.build(tasks.info(task).task.scene)
    touches = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    assert set(model.geom_type[touches]) == {
        int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("BOX", "CAPSULE", "PLANE")
    }
    assert model.opt.disableflags & int(mujoco.mjtDisableBit.mjDSBL_NATIVECCD)


def test_a_hand_does_not_reach_through_the_buckets_wall() -> None:
    """The bucket stands beside the palm, its wall 2 cm inside it: the arm gives way."""
    env = begun(THROW, 1)
    put(env, torch.tensor([0.0, -1.0, 0.9]))
    palm = env.arms.palms().centre[0, 0].double()
    env.engine.mocap_pos[0, 0] = palm + torch.tensor([0.1, 0.0, -0.1])
    env.engine.mocap_quat[0, 0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    for _ in range(5):
        env.engine.step(2)
    assert env.engine.read("ncon")[0] > 0
    assert (env.arms.palms().centre[0, 0] - palm).norm() > 0.005


def test_balls_of_a_hand_meet_what_its_shapes_meet() -> None:
    """A cube of 10 cm around the palm's centre, one 5 cm away from all balls, one that just holds a tip."""
    env = begun(REORIENTATION, 3)
    env.scales[:] = 2.0
    balls = env.hands.balls()
    assert balls.shape == (3, 16 * 3 + 27, 3)
    tip = env.arms.palms().fingertips[2, 0, 0]
    away = balls[1, :, 0].amax() + 0.02 + 0.1
    centres = torch.stack(
        (balls[0].mean(dim=0), torch.tensor([away, 0.0, 0.8]), tip + torch.tensor([0.0, -0.049, 0.0]))
    )
    pose = torch.cat((centres, torch.tensor(turn((0.0, 0.0, 1.0), 0.0)).expand(3, 4)), dim=1)
    assert env.hands.meet(balls, pose, env.scales).tolist() == [True, False, True]


def test_few_objects_start_in_the_hand() -> None:
    """Drawn regardless of the hand, 7 % would."""
    env = begun(REORIENTATION, 600)
    inside = env.hands.meet(env.hands.balls(), env.engine.qpos[:, :7].float(), env.scales)
    assert inside.float().mean() < 0.03
    drawn = env.hands.meet(env.hands.balls(), env.draws.starts(), env.scales)
    assert 0.04 < drawn.float().mean() < 0.12
