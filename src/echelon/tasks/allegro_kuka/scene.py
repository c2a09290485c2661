"""The models of the scenes. They are MJCF files, but for what differs from the Allegro hand that stands alone.

On the arm the hand sits 16 mm further along the mount's x, its links have masses from a system identification, its
servos are stiffer and weaker.
"""

from pathlib import Path

import mujoco

FINGERS = ("index", "middle", "ring", "thumb")
ARM_JOINTS = tuple(f"iiwa7_joint_{i}" for i in range(1, 8))
HAND_JOINTS = tuple(f"hand/{finger}_joint_{i}" for finger in FINGERS for i in range(4))
STIFFNESS, DAMPING, TORQUE = 40.0, 5.0, 0.35
"""The hand's servos, in N m/rad, N m s/rad and N m. The arm's have the same stiffness and damping, and 300 N m."""
ROTOR_INERTIA = 0.004
"""kg m², as identified for the fingers' motors. Without it a servo this strong chatters from step to step."""
STOP_TIME = 0.0167
"""`solref` time of joint stops: with MuJoCo's defaults they give by 1.4 rad when a finger is hit."""
HARDNESS = (0.95, 0.99)
"""First numbers of `solimp`, of joint stops and of contacts. With MuJoCo's default objects slip out of the hand, with
more some fly."""
PALM_PLACE = (0.008219, -0.02063, 0.08086)
"""Position of the palm in the mount's frame, in metres."""
OTHER_ARM = 8
"""Contact bit by which hands and wrists of the first arm meet those of the second."""

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


def build(file: str) -> mujoco.MjModel:
    """The model in a file of this folder, with its hands changed and its contacts hardened."""
    spec = mujoco.MjSpec.from_file(str(Path(__file__).with_name(file)))
    for body in spec.bodies:
        name = body.name.rpartition("hand/")[2]
        finger, _, link = name.partition("_link_")
        if name == "palm_link":
            body.pos = PALM_PLACE
        elif finger in FINGERS:
            mass, centre, inertia = (_THUMB if finger == "thumb" else _FINGER)[int(link)]
            body.mass, body.ipos, body.inertia, body.fullinertia = mass, centre, (0.0, 0.0, 0.0), inertia
    for joint in spec.joints:
        if "hand/" in joint.name:
            # The task limits speeds by its targets, and friction is negligible beside such a servo.
            joint.damping, joint.frictionloss, joint.armature = (0.0, 0.0, 0.0), 0.0, ROTOR_INERTIA
            joint.solref_limit[0], joint.solimp_limit[:2] = STOP_TIME, HARDNESS
    for servo in spec.actuators:
        if "hand/" in servo.name:
            servo.gainprm[0], servo.biasprm[1], servo.biasprm[2] = STIFFNESS, -STIFFNESS, -DAMPING
            servo.forcerange = (-TORQUE, TORQUE)
    two_arms = spec.body("arm1/iiwa7_link_0") is not None
    for geom in spec.geoms:
        geom.solimp[:2] = HARDNESS
        if two_arms and geom.contype:
            geom.contype |= OTHER_ARM * geom.name.startswith("arm0/")
            geom.conaffinity |= OTHER_ARM * geom.name.startswith("arm1/")
    return spec.compile()
