"""The KUKA iiwa 7 with the Allegro hand at its flange, composed from the two models.

The hand differs from the stand-alone model: it sits 16 mm further along the mount's x, its links have masses from a
system identification, its servos are stiffer and weaker. Names of the hand begin with `hand/`.
"""

from pathlib import Path
from typing import Any

import mujoco

ARM_JOINTS = tuple(f"iiwa7_joint_{i}" for i in range(1, 8))
FINGERS = ("index", "middle", "ring", "thumb")
HAND_JOINTS = tuple(f"hand/{finger}_joint_{i}" for finger in FINGERS for i in range(4))
STIFFNESS, DAMPING, TORQUE = 40.0, 5.0, 0.35
"""The hand's servos, in N m/rad, N m s/rad and N m. The arm's have the same stiffness and damping, and 300 N m."""
ROTOR_INERTIA = 0.004
"""kg m², as identified for the fingers' motors. Without it a servo this strong chatters from step to step."""
STOP_TIME, STOP_HARDNESS = 0.0167, (0.95, 0.99)
"""`solref` time and `solimp` of joint stops: MuJoCo's defaults give by 1.4 rad when a finger is hit."""
PALM_PLACE = (0.008219, -0.02063, 0.08086)
"""Position of the palm in the mount's frame, in metres."""

# Mass [kg], centre of mass [m], inertia about it [kg m²] as xx yy zz xy xz yz. Where the identified inertia is not
# physically possible (links 1 to 3), it is that of the link's boxes, uniformly filled.
_ROUND = (5.146e-05, 5.146e-05, 6.125e-05, 0.0, 0.0, 0.0)
_FINGER = (
    (0.005, (0.0, 0.0, 0.0), _ROUND),
    (0.125164, (0.027, -0.0022, 0.0), (1.339e-05, 5.704e-05, 5.567e-05, 0.0, 0.0, 0.0)),
    (0.131691, (0.0203, -0.0022, 0.0), (1.409e-05, 3.744e-05, 3.6e-05, 0.0, 0.0, 0.0)),
    (0.0211922, (0.012331, -0.000667, 0.0), (1.498e-06, 3.91e-06, 3.478e-06, -9.523e-08, 0.0, 0.0)),
)
_THUMB = ((0.1, (0.0, 0.0, 0.0), _ROUND),) * 4


def kuka_allegro() -> Any:
    """The assembly as a `mujoco.MjSpec`, its root body `iiwa7_link_0` at the frame's origin."""
    arm = read("kuka_iiwa.xml")
    arm.attach(_hand(), site=arm.site("flange"), prefix="hand/")
    return arm


def _hand() -> Any:
    """The Allegro hand of this assembly, with a sensor at every fingertip's reference point."""
    hand = read("../in_hand/allegro_hand.xml")
    hand.body("palm_link").pos = PALM_PLACE
    for finger in FINGERS:
        for i, (mass, centre, inertia) in enumerate(_THUMB if finger == "thumb" else _FINGER):
            link = hand.body(f"{finger}_link_{i}")
            link.mass, link.ipos, link.inertia, link.fullinertia = mass, centre, (0.0, 0.0, 0.0), inertia
        hand.add_sensor(
            name=finger,
            type=mujoco.mjtSensor.mjSENS_FRAMEPOS,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=f"{finger}_ref",
        )
    for joint in hand.joints:
        # The task limits speeds by its targets, and friction is negligible beside such a servo.
        joint.damping, joint.frictionloss, joint.armature = (0.0, 0.0, 0.0), 0.0, ROTOR_INERTIA
        joint.solref_limit[0], joint.solimp_limit[:2] = STOP_TIME, STOP_HARDNESS
    for servo in hand.actuators:
        servo.gainprm[0], servo.biasprm[1], servo.biasprm[2] = STIFFNESS, -STIFFNESS, -DAMPING
        servo.forcerange = (-TORQUE, TORQUE)
    return hand


def read(name: str) -> Any:
    """The `mujoco.MjSpec` in a file, named from this folder."""
    return mujoco.MjSpec.from_file(str(Path(__file__).parent / name))
