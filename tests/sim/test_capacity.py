"""Room for contacts is sized by looking."""

import mujoco

from echelon.sim.capacity import CAPACITY_FACTOR, probe

BALLS = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    {}
  </worldbody>
</mujoco>
"""
BALL = '<body pos="{} 0 0.2"><freejoint/><geom type="sphere" size="0.1"/></body>'


def model(balls: int) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(BALLS.format("".join(BALL.format(2 * i) for i in range(balls))))


def test_room_grows_with_what_touches() -> None:
    """Each ball that lies on the floor is one contact, of four pyramid edges: 3 contacts and 12 rows for three."""
    assert probe(model(0)).contacts == 8
    room = probe(model(3))
    assert room.contacts == 8 + int(CAPACITY_FACTOR * 3)
    assert room.constraints == 16 + int(CAPACITY_FACTOR * 12)


def test_the_same_seed_finds_the_same() -> None:
    assert probe(model(2), seed=3) == probe(model(2), seed=3)
