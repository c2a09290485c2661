"""Watch policies live in a browser, in MuJoCo's own web viewer.

The viewer has two sides that exchange messages: the simulation, which runs here in the main thread, and the page's
interface, which runs in a thread of the viewer. Pause, speed, camera and pushing bodies with the mouse are the
viewer's; choosing a policy and starting an episode are added here.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.studio import app, launch_thread, messages, plugin, sim, viewer_handle, viewer_protocol, web_viewer
from mujoco.studio.dear_imgui import dear_imgui as imgui
from mujoco.studio.web import web_server

from echelon.errors import UserError
from echelon.viewing.acting import Performer, Trained
from echelon.viewing.guard import Guard
from echelon.viewing.scene import Looks, camera

MAX_LAG_S = 0.2
"""Seconds a simulation may lag behind the clock and still catch up."""


@dataclass(frozen=True)
class PolicyEvent(messages.Event):
    """Message from the page: choose a policy."""

    policy: int


@dataclass(frozen=True)
class EpisodeEvent(messages.Event):
    """Message from the page: start a new episode."""


@dataclass(frozen=True)
class EpisodeSnapshot(messages.Snapshot):
    """Message to the page: state of the episode."""

    policy: int
    episode: int
    seconds: float
    total_return: float


class Simulation(plugin.SimPlugin):
    """Steps the environment at the speed set in the page, and passes its state to the viewer."""

    def __init__(self, trained: Trained, policy: int, seed: int) -> None:
        self.actor = Performer(trained, policy, seed)
        self.engine = self.actor.simulated.engine
        self.paused = False
        self.speed = 1.0
        self.episode = 0
        self.steps = 0
        self.total_return = 0.0
        self._due = 0.0
        self._last = time.perf_counter()
        self._pushed = False
        self._begin()
        self._seen = self.episode
        self._looks = Looks.of(self.engine)

    def model(self) -> mujoco.MjModel:
        """The model with this environment's sizes and colours."""
        model = self.engine.model.__copy__()
        self._looks = Looks.of(self.engine)
        self._looks.put_into(model)
        return model

    def step(self, data: mujoco.MjData) -> None:
        """One control step, with the forces of the mouse; a new episode starts when one ends."""
        push = np.asarray(data.xfrc_applied)
        if push.any() or self._pushed:
            self.engine.xfrc_applied[0] = torch.from_numpy(push)
            self._pushed = bool(push.any())
        step = self.actor.step()
        self.steps, self.total_return = self.steps + 1, self.total_return + float(step.reward)
        if bool(step.terminated | step.truncated):
            self._count()

    def show(self, data: mujoco.MjData) -> None:
        """Copy the engine's state to the viewer's `MjData`."""
        for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = getattr(self.engine, name)[0].numpy()
        data.time = self.steps * self.actor.control_s

    def advance(self, seconds: float, data: mujoco.MjData) -> None:
        """Run the control steps that are due after `seconds` of wall-clock time."""
        if self.paused:
            return
        self._due = min(self._due + seconds * self.speed, MAX_LAG_S * max(self.speed, 1.0))
        deadline = time.perf_counter() + MAX_LAG_S
        while self._due >= self.actor.control_s and time.perf_counter() < deadline:
            self._due -= self.actor.control_s
            self.step(data)

    def _begin(self) -> None:
        self.actor.reset()
        self._count()

    def _count(self) -> None:
        self.episode, self.steps, self.total_return = self.episode + 1, 0, 0.0

    @messages.handler
    def on_step(self, event: messages.StepEvent) -> None:
        now = time.perf_counter()
        self.advance(now - self._last, event.data)
        self._last = now
        if self.episode != self._seen and not self._looks.same(Looks.of(self.engine)):
            self.handle.set_model(self.model())  # the next episode may have an object of another size
        self._seen = self.episode
        self.show(self.handle.data)
        seconds = self.steps * self.actor.control_s
        self.handle.send_to_viewer(EpisodeSnapshot(self.actor.policy, self.episode, seconds, self.total_return))
        time.sleep(0.002)  # let the page's thread run

    @messages.handler
    def on_policy(self, event: PolicyEvent) -> bool:
        self.actor.policy = event.policy
        self._begin()
        return True

    @messages.handler
    def on_episode(self, event: EpisodeEvent) -> bool:
        self._begin()
        return True

    @messages.handler
    def on_reset(self, event: messages.ResetEvent) -> bool:
        self._begin()
        return True

    @messages.handler
    def on_load(self, event: messages.LoadModelEvent) -> bool:
        """Start an episode on a reload, also when a model is dropped onto the page: the policy knows only its robot."""
        self._begin()
        return True

    @messages.handler
    def on_pace(self, event: messages.StepControlSnapshot) -> bool:
        self.paused = event.pause_state != sim.PauseState.UNPAUSED
        self.speed = event.speed / 100
        return True

    @messages.handler
    def on_single_step(self, event: messages.SingleStepEvent) -> bool:
        self.step(self.handle.data)
        return True


class PolicyWindow(plugin.ViewerPlugin):
    """The window `Policy`: choose which policy acts, and see its return."""

    def __init__(self, trained: Trained, start: Simulation) -> None:
        self._trained = trained
        self._view = camera(start.engine.model, start.engine.qpos[0].numpy())
        self._now = EpisodeSnapshot(start.actor.policy, start.episode, 0.0, 0.0)

    @messages.handler(priority=0)  # after the viewer's own handlers, which frame the whole model
    def on_model(self, event: messages.PostModelEvent) -> None:
        eye, target = np.array(self._view.eye), np.array(self._view.target)
        forward = (target - eye) / np.linalg.norm(target - eye)
        seen = self.viewer.camera
        seen.lookat[:], seen.distance = target, np.linalg.norm(target - eye)
        seen.azimuth = math.degrees(math.atan2(forward[1], forward[0]))
        seen.elevation = math.degrees(math.asin(forward[2]))
        if self._view.follow is not None:
            seen.type, seen.trackbodyid = int(mujoco.mjtCamera.mjCAMERA_TRACKING), self._view.follow

    @messages.handler
    def on_episode(self, event: EpisodeSnapshot) -> None:
        self._now = event

    @messages.handler
    def on_build_gui(self, _: messages.BuildGuiEvent) -> None:
        config, now = self._trained.config, self._now
        imgui.SetNextWindowPos(imgui.Vec2(16, 84), int(imgui.Cond.FirstUseEver))
        imgui.SetNextWindowSize(imgui.Vec2(250, 150), int(imgui.Cond.FirstUseEver))
        if imgui.Begin("Policy")[0]:
            imgui.TextUnformatted(f"{config.task}, {config.algo}, iteration {self._trained.iteration:,}")
            names = [self._trained.name(policy) for policy in range(self._trained.model.policies)]
            changed, policy = imgui.Combo("##policy", now.policy, names)
            if changed:
                self.viewer.send_to_sim(PolicyEvent(policy))
            if imgui.Button("new episode"):
                self.viewer.send_to_sim(EpisodeEvent())
            imgui.TextUnformatted(f"episode {now.episode}, {now.seconds:.1f} s")
            imgui.TextUnformatted(f"return {now.total_return:.1f}")
        imgui.End()


class LocalViewer(web_viewer.WebViewer):
    """MuJoCo's web viewer, bound to localhost and behind a guard. The original listens on every network, without a
    password, and answers every page.

    Nothing is lost: browsers run the page only from localhost or over https. From elsewhere, use `ssh -L`.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        guard = Guard()
        web_server.serve = guard.serve  # what the server's thread calls
        web_viewer._print_url_banner = lambda host, port: _print_link(port, guard.token)
        super().__init__(*given, **more)

    @property
    def _host(self) -> str:
        return "127.0.0.1"

    @_host.setter
    def _host(self, every_network: str) -> None:
        pass


def _print_link(port: int, token: str) -> None:
    link = f"http://localhost:{port}/?token={token}"
    print(f"Open {link}\nOnly this link opens the viewer, on this machine. Ctrl-C ends it.", flush=True)


def play(trained: Trained, policies: str, seed: int, port: int) -> None:
    """Show a policy until the viewer is closed or Ctrl-C, and print where."""
    (policy,) = trained.chosen(policies)
    start = Simulation(trained, policy, seed)
    page = app.App(app.Config(show_options=False, show_inspector=False, show_toolbar=True))
    config = viewer_protocol.ViewerConfig(title=f"Echelon: {trained.config.task}", gfx="web", http_port=port)

    def serve(endpoint: object) -> None:
        viewer = LocalViewer(config, endpoint, plugins=[page, PolicyWindow(trained, start)])
        viewer_protocol.run_viewer_loop(viewer)

    try:
        with launch_thread.launch_thread(serve, sim_plugins=[start]) as handle:
            handle.set_model(start.model())
            viewer_handle.run_sim_loop(handle)
    except RuntimeError as error:
        if "in use" not in str(error):
            raise
        raise UserError(f"port {port} is taken; choose another --port, or 0 for any that is free") from None
