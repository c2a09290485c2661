"""An exported file says what a robot needs, and the runners of `examples/deploy` do with it what the task does."""

import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import scenes
import torch
from tiny import tiny

import echelon
from echelon.algorithms import SacConfig
from echelon.config import RandomiseConfig
from echelon.export.files import describe, export
from echelon.export.policy import SavedPolicy
from echelon.export.robot import describe_robot
from echelon.runs.trained import Trained
from echelon.tasks import TASKS, make, preset
from echelon.tasks.settings import MujocoTaskConfig
from echelon.training.loop import train

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
SHORT = {"env": {"episode_length": 40}}
"""A pole near the top and a foot that slips magnify the rounding of float32, given time."""
LIGHT = {"env": {"episode_length": 40, "randomise": RandomiseConfig(mass=(0.5, 0.6))}}
"""Trained in physics that the runners do not have."""
SAC = {"algo": "sac", "policies": 1, "sac": SacConfig(updates=1, batch=8, warm_up=4, hidden=(8, 6), critic_width=8)}
CASES = {"Anymal": LIGHT, "Hopper": SHORT | SAC, "CartpoleSwingup": SHORT | {"lstm": 5, "algo": "ppo"}}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A .npz file by task, and the run two folders above it."""
    found = {}
    for task, changes in CASES.items():
        place = tmp_path_factory.mktemp(task)
        run = train(tiny(task, place / "run", **changes))
        found[task] = run.path / "export" / "policy.npz"
        export(SavedPolicy.load(run), "numpy", found[task])
    return found


@pytest.fixture
def deploy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads a file of `examples/deploy`, beside the others as its user does."""
    monkeypatch.syspath_prepend(str(DEPLOY))
    monkeypatch.setattr(sys, "path", list(sys.path))  # a policy adds its folder
    yield lambda name: SimpleNamespace(**runpy.run_path(str(DEPLOY / name)))
    for name in ("run", "policy", "numpy_policy"):
        sys.modules.pop(name, None)


def test_the_layout_names_every_entry() -> None:
    tasks = [name for name, info in TASKS.items() if isinstance(info.preset.env, MujocoTaskConfig)]
    envs: dict[str, Any] = {task: make(task, preset(task).env, 1, torch.device("cpu"), 0) for task in tasks}
    for task, env in envs.items():
        parts = env.layout()
        assert task.startswith("AllegroKuka") or sum(len(part.of) for part in parts) == env.obs_spec["policy"], task
        for part in parts:
            assert all(isinstance(x, float) or len(x) == len(part.of) for x in (part.scale, part.offset)), task


def test_what_the_file_says_about_the_robot(exported: dict[str, Path], tmp_path: Path) -> None:
    trained = Trained.load(exported["Anymal"].parents[1])
    facts = describe_robot(trained)
    assert facts["control_rate"] == pytest.approx(50)
    legs = [f"{leg}_{joint}" for leg in ("LF", "LH", "RF", "RH") for joint in ("HAA", "HFE", "KFE")]
    assert [joint["name"] for joint in facts["joints"]] == ["root", *legs]
    assert facts["joints"][0]["default"] == [0, 0, 0.62, 1, 0, 0, 0]
    knee, servo = facts["joints"][3], facts["actuators"][2]
    assert (knee["default"], knee["unit"]) == ([-0.8], "rad")
    assert (servo["joint"], servo["control"], servo["unit"]) == ("LF_KFE", "position", "rad")
    assert (servo["offset"], servo["scale"], servo["stiffness"], servo["damping"]) == (-0.8, 0.5, 85, 2)
    assert [part["start"] for part in facts["observation"]] == [0, 3, 6, 9, 11, 12, 24, 36]
    motor = describe_robot(Trained.load(exported["Hopper"].parents[1]))["actuators"][2]
    found = [motor[fact] for fact in ("name", "control", "unit", "offset", "scale")]
    assert found == ["ankle", "force", "40 N m", 0, 1]
    # Controls that depend on the state have no scale.
    run = train(tiny("FrankaCubePush", tmp_path / "run", algo="ppo", iterations=1))
    facts = describe(SavedPolicy.load(run))
    assert {actuator["scale"] for actuator in facts["actuators"]} == {None}
    assert facts["joints"][-1]["default"] == [0.035]


@pytest.mark.parametrize("task", CASES)
def test_the_runner_sees_and_does_what_the_task_does(task: str, exported: dict[str, Path], deploy: Any) -> None:
    env: Any = Trained.load(exported[task].parents[1]).make_env(3, torch.device("cpu"), 5)
    policy = deploy("policy.py").Policy(exported[task])
    path = exported[task].with_name("model.mjb")
    mujoco.mj_saveModel(env.engine.model, str(path))
    robot = deploy("run.py").Simulation(str(path), policy)
    random = torch.Generator().manual_seed(0)
    seen = env.reset()["policy"]
    for _ in range(10):
        action = torch.rand(3, env.action_dim, generator=random) * 2 - 1
        seen = env.step(action).obs["policy"]
    for i in range(3):
        command = env.kept["command"][i].numpy() if task == "Anymal" else np.zeros(3)
        robot.start(env.engine.qpos[i].numpy(), env.engine.qvel[i].numpy(), command)
        policy.action = env.kept["action"][i].numpy() if task == "Anymal" else policy.action
        np.testing.assert_allclose(policy.observe(robot.read), seen[i].numpy(), atol=1e-6)
    policy.network, tried = lambda obs: action[0].numpy(), env.control(action)[0].numpy()
    np.testing.assert_allclose(policy.control(robot.read), tried, atol=1e-6)


@pytest.mark.parametrize("task", CASES)
def test_returns_are_those_of_evaluate(task: str, exported: dict[str, Path], deploy: Any) -> None:
    """Python with both formats, in processes that can import neither Echelon nor torch, and C++; MLP, LSTM and SAC's
    network, which normalises its layers and squashes its actions."""
    pytest.importorskip("onnxscript", reason="needs the export extra")
    found = deploy("check.py").compare(str(exported[task].parents[1]), 3)
    assert len(found) == 4 or shutil.which("g++") is None
    for returns in found.values():
        np.testing.assert_allclose(returns, found["evaluate"], rtol=1e-4, atol=1e-5)


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, deploy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = train(tiny("DeceptiveReach", tmp_path / "reach", iterations=1)).path
    sentences = {
        tmp_path / "nothing": "there is no run folder",
        other: "run.py has the rewards of Cartpole.*, not of Dec",
    }
    for run, sentence in sentences.items():
        monkeypatch.setattr(sys, "argv", ["check.py", str(run)])
        with pytest.raises(SystemExit, match=f"check.py: {sentence}"):
            deploy("check.py").main()


def test_a_file_that_is_missing_or_of_another_robot_is_one_sentence(
    exported: dict[str, Path], deploy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, alone = deploy("policy.py").Policy, tmp_path / "policy.npz"
    shutil.copy(exported["Hopper"], alone)
    for file in (tmp_path / "nothing.npz", tmp_path / "nothing.onnx"):
        with pytest.raises(SystemExit, match=f"there is no {file}; `echelon export RUN --out {file}` writes it"):
            policy(file)
    with pytest.raises(SystemExit, match=r"there is no .*numpy_policy\.py; .* writes it"):
        policy(alone)
    with pytest.raises(SystemExit, match=r"nothing\.xml is no model that MuJoCo can load: .*nothing\.xml"):
        deploy("run.py").Simulation(str(tmp_path / "nothing.xml"), policy(exported["Hopper"]))
    models = Path(echelon.__file__).parent / "tasks"
    for words, sentence in (
        ([models / "hopper" / "hopper.xml", "nothing.npz"], r"there is no nothing\.npz"),
        ([models / "cartpole" / "cartpole.xml"], r"cartpole.xml is not the robot of the policy: .*'hip'"),
    ):
        monkeypatch.setattr(sys, "argv", ["run.py", str(exported["Hopper"]), *map(str, words)])
        with pytest.raises(SystemExit, match=sentence):
            deploy("run.py").main()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compressed_file_is_one_sentence_in_cpp(exported: dict[str, Path], deploy: Any, tmp_path: Path) -> None:
    """As those in results/policies are."""
    np.savez_compressed(tmp_path / "policy.npz", **np.load(exported["Hopper"]))
    words = [*deploy("check.py").runners(tmp_path)["C++, .npz"], "model.mjb"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "policy.npz is compressed; numpy.savez writes it as it is\n")


class Clock:
    """A time of ROS 2 in nanoseconds."""

    def __init__(self, nanoseconds: float) -> None:
        self.nanoseconds = nanoseconds

    def __sub__(self, other: "Clock") -> "Clock":
        return Clock(self.nanoseconds - other.nanoseconds)


def test_the_ros_node_does_what_the_runner_does(
    exported: dict[str, Path], deploy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for ROS 2, and joint states in another order; old measurements publish nothing."""
    published, topics, time = list[list[float]](), dict[str, Any](), [0.0]

    class Node:
        def __init__(self, name: str) -> None:
            self.create_subscription = lambda kind, topic, call, qos: topics.update({topic: call})
            self.create_publisher = lambda *_: SimpleNamespace(publish=lambda message: published.append(message.data))
            self.create_timer = lambda period, call: topics.update(timer=call, period=period)
            self.get_clock = lambda: SimpleNamespace(now=lambda: Clock(time[0] * 1e9))

        def declare_parameter(self, name: str, default: Any) -> Any:
            return SimpleNamespace(value=str(exported["Anymal"]) if name == "policy" else default)

    for name in ("rclpy", "rclpy.node", "rclpy.qos", *(f"{x}_msgs.msg" for x in ("geometry", "nav", "sensor", "std"))):
        module: Any = ModuleType(name)
        module.Node, module.qos_profile_sensor_data, module.Float64MultiArray = Node, None, SimpleNamespace
        module.Twist = module.Odometry = module.Imu = module.JointState = None
        monkeypatch.setitem(sys.modules, name, module)
    env: Any = Trained.load(exported["Anymal"].parents[1]).make_env(1, torch.device("cpu"), 5)
    env.reset()
    for _ in range(10):
        env.step(torch.ones(1, 12))
    model = exported["Anymal"].with_name("robot.mjb")
    mujoco.mj_saveModel(env.engine.model, str(model))
    policy = deploy("policy.py").Policy(exported["Anymal"])
    robot = deploy("run.py").Simulation(str(model), policy)
    robot.start(env.engine.qpos[0].numpy(), env.engine.qvel[0].numpy(), np.array([1.0, 0.5, -0.2]))
    deploy("ros2_node.py").PolicyNode()
    topics["timer"]()
    assert (published, topics["period"]) == ([], pytest.approx(0.02))
    qpos, qvel = robot.data.qpos, robot.data.qvel
    names = [joint["name"] for joint in policy.facts["joints"]][1:]
    joints = SimpleNamespace(name=names[::-1], position=qpos[:6:-1], velocity=qvel[:5:-1])
    orientation = SimpleNamespace(**dict(zip("wxyz", qpos[3:7], strict=True)))
    topics["joint_states"](joints)
    topics["imu"](SimpleNamespace(orientation=orientation, angular_velocity=_vector(qvel[3:6])))
    twist = SimpleNamespace(linear=_vector(robot.to_base(qvel[:3])))
    topics["odom"](SimpleNamespace(twist=SimpleNamespace(twist=twist)))
    topics["cmd_vel"](SimpleNamespace(linear=_vector((1.0, 0.5, 0.0)), angular=_vector((0.0, 0.0, -0.2))))
    topics["timer"]()
    time[0] = 1.0
    topics["timer"]()
    assert len(published) == 1
    np.testing.assert_allclose(published[0], policy.control(robot.read), atol=1e-5)


def _vector(values: Any) -> SimpleNamespace:
    return SimpleNamespace(**dict(zip("xyz", values, strict=True)))


EXAMPLE = runpy.run_path(str(DEPLOY / "allegro_hand.py"))


def test_the_plain_loop_is_the_task() -> None:
    """From the same states, with the same goals and actions: observations, successes and falls are the same. A goal
    counts as reached within 1.5 rad here, so that some are. States are set equal after every step: contacts make far
    more of the task's rounding to float32 in a second."""
    env: Any = echelon.make("AllegroHand", 1, "cpu", seed=3, success_angle=1.5, episode_length=60)
    hand = EXAMPLE["Hand"](scenes.load("allegro_cube"))
    hand.step.__globals__["SUCCESS_ANGLE"] = 1.5
    random, reached, ended = np.random.default_rng(0), 0, 0

    def begin() -> None:
        hand.reset()
        hand.data.qpos[:] = env.engine.qpos[0].numpy()
        hand.data.ctrl[:] = env.engine.ctrl[0].numpy()
        hand.goal = env.kept["goal"][0].numpy().astype(float)

    expected = env.reset()["policy"][0].numpy()
    begin()
    for step in range(150):
        np.testing.assert_allclose(hand.observe(), expected, atol=2e-4, err_msg=f"at step {step}")
        hand.data.qpos[:], hand.data.qvel[:] = env.engine.qpos[0].numpy(), env.engine.qvel[0].numpy()
        action = random.uniform(-1.2, 1.2, env.action_dim).astype(np.float32)
        success, fell = hand.step(action)
        found = env.step(torch.from_numpy(action)[None])
        assert success == bool(found.log["reward/success"][0] > 0)
        assert fell == bool(found.terminated[0])
        reached, ended = reached + success, ended + int(found.terminated[0] | found.truncated[0])
        if found.terminated[0] or found.truncated[0]:
            begin()
        elif success:
            hand.goal = env.kept["goal"][0].numpy().astype(float)
        expected = found.obs["policy"][0].numpy()
    assert reached > 0
    assert ended > 1
