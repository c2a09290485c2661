"""Environments of rsl_rl's and Isaac Lab's kind: torch tensors, resets within the step, no word of what was before.

Isaac Lab itself needs Isaac Sim and an RTX card; a stand-in has the signatures of its `ManagerBasedRLEnv`.
"""

import dataclasses
import sys
import types
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from echelon.envs import torch_env
from echelon.envs.sources import as_env, maker
from echelon.envs.torch_env import TorchEnv, groups_of, make_mjlab, set_fields
from echelon.errors import UserError
from echelon.tasks import preset


class Walkers:
    """Points on a line that walk by their action. Even ones fall at 3, all are stopped after 4 steps."""

    num_actions, max_episode_length, device, cfg = 1, 4, "cpu", None

    def __init__(self, num_envs: int = 4) -> None:
        self.num_envs = num_envs
        self.place, self.episode_length_buf = torch.zeros(num_envs), torch.zeros(num_envs, dtype=torch.long)

    def get_observations(self) -> dict[str, Tensor]:
        place, clock = self.place[:, None], self.episode_length_buf[:, None].float()
        return {"actor": place.clone(), "critic": torch.cat((place, clock), 1)}

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, object]]:
        self.place += actions[:, 0]
        self.episode_length_buf += 1
        fallen = (self.place.abs() >= 3) & (torch.arange(self.num_envs) % 2 == 0)
        over = self.episode_length_buf >= self.max_episode_length
        reward, done = self.place.clone(), fallen | over
        self.place[done], self.episode_length_buf[done] = 0.0, 0
        log = {"log": {"falls": fallen.float()}} if done.any() else {}
        return self.get_observations(), reward, done.long(), {"time_outs": over, **log}


class Managed(Walkers):
    """The same with what Isaac Lab's and mjlab's managers return."""

    single_action_space = SimpleNamespace(shape=(1,), low=-torch.inf, high=torch.inf)

    def reset(self, seed: int | None = None) -> tuple[dict[str, Tensor], dict[str, object]]:
        self.place.zero_(), self.episode_length_buf.zero_()
        return self.get_observations(), {"log": {"falls": 0.0}}

    def step(self, actions: Tensor):  # type: ignore[override]
        obs, reward, done, extras = super().step(actions)
        cut = extras.pop("time_outs")
        return obs, reward, done.bool() & ~cut, cut, extras


def test_a_walk_by_hand() -> None:
    """Steps of 1.5, beyond any limit of 1: even ones are at 3 after two steps and fall, odd ones reach 6 in four."""
    for kind in (Walkers, Managed):
        env = as_env(kind(), "x:make", torch.device("cpu"), 0)
        assert isinstance(env, TorchEnv)
        assert (env.obs_spec, env.action_dim, env.episode_length) == ({"policy": 1, "critic": 2}, 1, 4)
        assert torch.isinf(env.action_high).all()
        env.reset()
        steps = [env.step(torch.full((4, 1), 1.5)) for _ in range(4)]
        assert [step.reward.tolist() for step in steps] == [[1.5] * 4, [3.0] * 4, [1.5, 4.5] * 2, [3.0, 6.0] * 2]
        assert [step.terminated.tolist() for step in steps[1::2]] == [[True, False] * 2, [True, False] * 2]
        assert steps[3].truncated.tolist() == [False, True, False, True]
        assert steps[3].obs["critic"].tolist() == [[0.0, 0.0]] * 4
        assert all(step.final_obs is None and step.terminated.dtype == torch.bool for step in steps)


def test_a_figure_that_is_logged_now_and_then_is_held() -> None:
    """A mean over what it reports; what comes up later than the first step is left out."""

    class Reporting(Managed):
        reports = [{"falls": torch.tensor([0.0, 1.0])}, None, {"falls": 2, "late": 1}]  # noqa: RUF012

        def step(self, actions: Tensor):
            *found, _ = super().step(actions)
            return *found, {"log": self.reports.pop(0)}

    env = TorchEnv(Reporting())
    assert [dict(env.step(torch.zeros(4, 1)).log) for _ in range(3)] == [{"falls": 0.5}, {"falls": 0.5}, {"falls": 2.0}]


def test_a_name_or_field_that_does_not_fit_is_one_sentence() -> None:
    with pytest.raises(UserError, match="no observations for the policy among images; call them one of policy, actor"):
        groups_of({"images": torch.zeros(2, 3)})
    with pytest.raises(UserError, match=r"observations of policy are \[N, D\], not \[2, 3, 4\]"):
        groups_of({"policy": torch.zeros(2, 3, 4)})
    config = SimpleNamespace(episode_length_s=20.0, scene=SimpleNamespace(), seed=None)
    set_fields(config, {"episode_length_s": 5.5, "seed": 3})
    assert (config.episode_length_s, config.seed) == (5.5, 3)
    wrong: dict[str, tuple[Any, str]] = {
        "episode_length": (5, "is not a field of the task's config; did you mean episode_length_s"),
        "episode_length_s": ("five", "is of type float in the task's config, not 'five'"),
        "scene": (3, "is of type SimpleNamespace in the task's config, not 3"),
    }
    for name, (value, sentence) in wrong.items():
        with pytest.raises(UserError, match=f"{name} {sentence}"):
            set_fields(config, {name: value})


def stand_ins(monkeypatch: pytest.MonkeyPatch, **members: dict[str, Any]) -> None:
    """Modules of these names, `__` for a dot, with these members."""
    for name, values in members.items():
        module = types.ModuleType(name.replace("__", "."))
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_isaac_labs_tasks_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in: the app starts once, before tasks are imported; size, device, seed and arguments arrive."""
    began, made = [], []

    def parse(name: str, device: str, num_envs: int) -> SimpleNamespace:
        return SimpleNamespace(name=name, device=device, num_envs=num_envs, episode_length_s=20.0, dt=0.1)

    def build(name: str, cfg: Any) -> SimpleNamespace:
        made.append(cfg)
        return SimpleNamespace(unwrapped=Managed(cfg.num_envs), rate=1 / cfg.dt)

    tasks = {"isaaclab_tasks": {}, "isaaclab_tasks__utils": {"parse_env_cfg": parse}, "gymnasium": {"make": build}}
    stand_ins(monkeypatch, isaaclab={}, isaaclab__app={"AppLauncher": lambda headless: began.append(headless)}, **tasks)
    monkeypatch.setattr(torch_env, "_app", [])
    config = preset("isaaclab:Isaac-Ant-v0")
    assert config.task == "Isaac-Ant-v0"
    env = maker(dataclasses.replace(config, env_arg=("episode_length_s=5.0",)))(6, torch.device("cpu"), 3)
    assert isinstance(env, TorchEnv)
    assert (began, env.num_envs) == ([True], 6)
    expected = {"name": "Isaac-Ant-v0", "device": "cpu", "num_envs": 6, "seed": 3, "episode_length_s": 5.0, "dt": 0.1}
    assert vars(made[0]) == expected
    with pytest.raises(UserError, match=r"isaaclab cannot make Isaac-Ant-v0 with dt=0\.0: float division by zero"):
        maker(dataclasses.replace(config, env_arg=("dt=0.0",)))(6, torch.device("cpu"), 3)


def test_mjlab_on_cuda_solves_with_our_kernel_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against stand-ins: the solver is installed before the environment is made, on CUDA only, and may be missing."""
    said = []
    registry = {"list_tasks": lambda: ["Go"], "load_env_cfg": lambda name: SimpleNamespace(scene=SimpleNamespace())}
    envs = {"ManagerBasedRlEnv": lambda cfg, device: said.append(device) or Managed(cfg.scene.num_envs)}
    stand_ins(monkeypatch, mjlab={}, mjlab__tasks={}, mjlab__envs=envs, mjlab__tasks__registry=registry)
    stand_ins(monkeypatch, echelon__sim__newton={"install": lambda: said.append("installed")})
    monkeypatch.setattr("echelon.sim.newton", sys.modules["echelon.sim.newton"], raising=False)
    make_mjlab("Go", 2, torch.device("cpu"), 0)
    make_mjlab("Go", 2, torch.device("cuda"), 0)
    monkeypatch.delattr("echelon.sim.newton")
    monkeypatch.setitem(sys.modules, "echelon.sim.newton", None)
    make_mjlab("Go", 2, torch.device("cuda"), 0)
    assert said == ["cpu", "installed", "cuda", "cuda"]


def test_mjlabs_simulation_is_shown() -> None:
    """By a stand-in with mjlab's names: poses follow from qpos as MuJoCo computes them, also after a later step."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><body pos="0 0 1"><joint type="slide" axis="1 0 0"/><geom size="0.1"/></body>'
        '<body name="goal" mocap="true"><geom size="0.1"/></body></worldbody></mujoco>'
    )
    env = Managed()
    assert TorchEnv(env).drawing is None  # as of Isaac Lab
    state = SimpleNamespace(qpos=torch.zeros(4, 1), mocap_pos=torch.ones(4, 1, 3), mocap_quat=torch.eye(4)[:, None])
    env.sim, env.cfg = SimpleNamespace(mj_model=model, data=state), SimpleNamespace(decimation=4)
    drawing = TorchEnv(env).drawing
    assert drawing is not None
    shown = drawing()
    places = shown.engine.read("xpos")
    assert (shown.substeps, shown.engine.model) == (4, model)
    for x in (0.0, 2.5):
        state.qpos[:] = x
        assert shown.engine.qpos.tolist() == [[x]]
        assert places[0, 1:].tolist() == [[x, 0.0, 1.0], [1.0, 1.0, 1.0]]


def test_a_robot_without_mocap_bodies_is_shown() -> None:
    """mjlab raises where an array without elements is read on a CPU; here it lacks the field."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='0.1'/></body></worldbody></mujoco>"
    )
    env = Managed()
    state = SimpleNamespace(qpos=torch.tensor([[1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0]]))
    env.sim, env.cfg = SimpleNamespace(mj_model=model, data=state), SimpleNamespace(decimation=4)
    engine = TorchEnv(env)._view().engine
    assert engine.read("xpos")[0, 1].tolist() == [1.0, 2.0, 3.0]
    assert engine.mocap_pos.shape == (1, 0, 3)
