"""Draw `docs/images/worlds.png`, sixteen worlds of one policy at the same moment, each with the physics that it drew.

python docs/draw_worlds.py runs/Hopper-ppo_x4+robust-s0 [SECONDS]
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import matplotlib.pyplot as plt
import mujoco
import torch

from echelon.rollout.acting import Player
from echelon.runs.trained import Trained

WORLDS = 16
SHOWN = {"friction": "friction", "gravity": "gravity", "action_delay": "delay"}


def main() -> None:
    trained = Trained.load(sys.argv[1])
    env = trained.make_env(WORLDS, torch.device("cpu"), 1000)
    if not getattr(env, "randomiser", None):
        sys.exit(f"{sys.argv[1]} was trained in plain physics; train with --variant robust")
    engine, control_step = env.engine, env.substeps * env.engine.model.opt.timestep
    player = Player(env, trained.actor(trained.leader, WORLDS))
    player.reset()
    for _ in range(round(float(sys.argv[2] if len(sys.argv) > 2 else 2.0) / control_step)):
        player.act(None)
    model, mass = engine.model, engine.expand("body_mass").sum(1) / engine.model.body_mass.sum()
    data, drawn, columns = mujoco.MjData(model), env.randomiser.state["drawn"], env.randomiser._columns
    figure, places = plt.subplots(4, 4, figsize=(12, 9.2), layout="constrained")
    with mujoco.Renderer(model, height=240, width=320) as renderer:
        for world, place in enumerate(places.flat):
            data.qpos[:] = engine.qpos[world]
            mujoco.mj_forward(model, data)
            renderer.update_scene(data, "side")
            place.imshow(renderer.render())
            values = {text: drawn[world, columns[name]].item() for name, text in SHOWN.items()}
            words = f"mass ×{mass[world]:.2f}, friction ×{values['friction']:.2f}\n"
            place.set_title(
                words + f"gravity ×{values['gravity']:.2f}, {1000 * values['delay']:.0f} ms late", fontsize=9
            )
            place.axis("off")
    figure.savefig(Path(__file__).parent / "images" / "worlds.png", dpi=75)


if __name__ == "__main__":
    main()
