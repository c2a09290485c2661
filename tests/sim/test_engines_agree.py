"""Both engines on a GPU machine: the same motion without contacts, the same statistics with them."""

import dataclasses
import math
from typing import Any

import mujoco
import pytest
import scenes
import torch
from gpu import MARKS
from torch import Tensor

from echelon import tasks
from echelon.sim.cpu import CpuEngine

pytestmark = MARKS
TASKS = (
    *("AllegroHand", "ShadowHand", "Humanoid", "Anymal"),
    *("FrankaCubePush", "FrankaCubeStack", "AllegroKukaReorientation"),
)
SCENES = ("hopper", "allegro_cube", "shadow_hand", "humanoid", "anymal", "franka_push", "franka_stack")
EPISODES, STEPS = 1000, 120
KOLMOGOROV = 1.95
"""Two samples of one distribution differ by more than this times √(2/n) once in a thousand times."""


@pytest.mark.parametrize("scene", SCENES)
def test_contact_free_motion_is_the_same_for_a_hundred_steps(scene: str) -> None:
    """Contacts off in the model, random controls; relative to the size of the motion."""
    from echelon.sim.warp import WarpEngine

    model = scenes.load(scene)
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_CONTACT)
    here, there = CpuEngine(model, 4), WarpEngine(model, 4, torch.device("cuda"), 8, 200)
    generator = torch.Generator().manual_seed(0)
    limits = torch.tensor(model.actuator_ctrlrange)
    spread = torch.where((limits[:, 1] > limits[:, 0]), limits[:, 1] - limits[:, 0], 2.0)
    low = torch.where((limits[:, 1] > limits[:, 0]), limits[:, 0], -1.0)
    begin = here.qpos.clone()
    control = low + spread * torch.rand(here.ctrl.shape, generator=generator, dtype=torch.float64)
    for _ in range(100):
        for engine in (here, there):
            engine.ctrl.copy_(control)
            engine.step(1)
    moved = (here.qpos - begin).abs().amax()
    assert moved > 0.1
    assert (there.qpos.cpu().double() - here.qpos).abs().amax() < 1e-3 * max(1.0, moved.item())
    speed = here.qvel.abs().amax().item()
    assert (there.qvel.cpu().double() - here.qvel).abs().amax() < 1e-2 * max(1.0, speed)
    assert (there.read("xpos").cpu().double() - here.read("xpos")).abs().amax() < 1e-3 * max(1.0, moved.item())


def contacts(engine: Any) -> Tensor:
    """`[N]`: contacts of each simulation."""
    if isinstance(engine, CpuEngine):
        return engine.read("ncon").float()
    import mujoco_warp as mjw
    import warp as wp

    engine.read("geom_xpos")  # makes them current, where the task reads no poses itself
    data = engine._data
    with engine._on_stream():
        mjw.collision(engine._model, data)  # a step leaves the contacts of its last substep's beginning
    world, count = wp.to_torch(data.contact.worldid).long(), wp.to_torch(data.nacon)
    real = torch.arange(len(world), device=world.device) < count
    return torch.zeros(engine.num_sims, device=world.device).index_add_(0, world.clamp(min=0), real.float())


def first_episodes(task: str, device: str) -> dict[str, Tensor]:
    """Length, return and mean contacts of a thousand episodes of random actions, none longer than `STEPS`."""
    info = tasks.info(task)
    config = dataclasses.replace(info.preset.env, episode_length=STEPS)
    env: Any = info.task(config, EPISODES, torch.device(device), 7 if device == "cpu" else 8)
    generator = torch.Generator(device).manual_seed(1 if device == "cpu" else 2)
    env.reset()
    running = torch.ones(EPISODES, device=device)
    figures = {name: torch.zeros(EPISODES, device=device) for name in ("length", "return", "contacts")}
    for _ in range(STEPS):
        action = 2 * torch.rand(EPISODES, env.action_dim, generator=generator, device=device) - 1
        step = env.step(action)
        figures["length"] += running
        figures["return"] += running * step.reward
        running = running * (~(step.terminated | step.truncated))
        figures["contacts"] += running * contacts(env.engine).to(device)
    assert not running.any()
    figures["contacts"] /= figures["length"]
    return {name: x.cpu().double() for name, x in figures.items()}


@pytest.mark.parametrize("task", TASKS)
def test_episodes_of_random_actions_have_the_same_statistics(task: str) -> None:
    here, there = first_episodes(task, "cpu"), first_episodes(task, "cuda")
    for name, a in here.items():
        b = there[name]
        error = math.sqrt((a.var() + b.var()).item() / EPISODES)
        print(f"{task} {name}: CPU {a.mean():.4g} ± {a.std():.3g}, CUDA {b.mean():.4g} ± {b.std():.3g}")
        assert abs(a.mean() - b.mean()).item() <= 4 * error + 1e-6, name
        both = torch.cat((a, b)).unique()
        gap = (torch.searchsorted(a.sort().values, both, right=True).double() / EPISODES) - (
            torch.searchsorted(b.sort().values, both, right=True).double() / EPISODES
        )
        assert gap.abs().max().item() <= KOLMOGOROV * math.sqrt(2 / EPISODES), name
