"""Watch policies live in a browser, in MuJoCo's own web viewer.

The viewer has two sides that exchange messages: the simulation, which runs here in the main thread, and the page's
interface, which runs in a thread of the viewer. Pause, speed, camera and pushing bodies with the mouse are the
viewer's; choosing policy, checkpoint and way of acting, reward terms, commands, pushes by a button and new episodes are
added here.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import torch
from mujoco.studio import app, launch_thread, messages, plugin, sim, viewer_handle, viewer_protocol, web_viewer
from mujoco.studio.dear_imgui import dear_imgui as imgui
from mujoco.studio.web import web_server

from echelon.errors import UserError
from echelon.evaluation.trained import Trained
from echelon.runs.checkpoint import saved_iterations
from echelon.runs.folder import RunFolder
from echelon.tasks.anymal.task import Anymal
from echelon.viewing.acting import PolicyRunner
from echelon.viewing.guard import Guard
from echelon.viewing.scene import Appearance, camera, followed

PUSH_S = 0.1
"""Seconds that a push by the button lasts."""
MAX_LAG_S = 0.2
"""Seconds a simulation may lag behind the clock and still catch up."""


@dataclass(frozen=True)
class Request(messages.Event):
    """Message from the page: call a method of the simulation."""

    method: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EpisodeSnapshot(messages.Snapshot):
    """Message to the page: state of the episode."""

    policy: int
    episode: int
    seconds: float
    total_return: float
    iteration: int
    sampled: bool
    terms: tuple[tuple[str, float], ...]
    """Reward terms of the last step by name, where the task tells them; the whole reward otherwise."""
    command: tuple[float, ...]
    """Commanded velocity; empty for a robot that follows no command."""


class Simulation(plugin.SimPlugin):
    """Steps the environment at the speed set in the page, and passes its state to the viewer."""

    def __init__(self, trained: Trained, policy: int, seed: int, folder: RunFolder | None = None) -> None:
        self.runner = PolicyRunner(trained, policy, seed)
        self._folder, self._seed = folder, seed
        self.iteration = trained.iteration
        self.terms: dict[str, float] = {}
        self._command: tuple[float, ...] | None = None
        """Set by the page; until then the task draws it."""
        self._kick, self._kick_steps = 0.0, 0
        self.engine = self.runner.simulated.engine
        self.paused, self.speed = False, 1.0
        self.episode = self.steps = 0
        self.total_return = 0.0
        self._due, self._last = 0.0, time.perf_counter()
        self._pushed = False
        self.begin()
        self._shown_episode = self.episode
        self._appearance = Appearance.of(self.engine)

    def model(self) -> mujoco.MjModel:
        """The model with this environment's sizes and colours."""
        model = self.engine.model.__copy__()
        self._appearance = Appearance.of(self.engine)
        self._appearance.put_into(model)
        return model

    def step(self, data: mujoco.MjData) -> None:
        """One control step, with the forces of the mouse; a new episode starts when one ends."""
        push = np.array(data.xfrc_applied)
        if self._kick_steps and (body := followed(self.engine.model)) is not None:
            push[body, 1] += self._kick
            self._kick_steps -= 1
        if push.any() or self._pushed:
            self.engine.xfrc_applied[0] = torch.from_numpy(push)
            self._pushed = bool(push.any())
        if self._command is not None and isinstance(self.runner.env, Anymal):
            self.runner.env.kept["command"][0] = torch.tensor(self._command)
        step = self.runner.step()
        terms = {name.removeprefix("reward/"): float(x) for name, x in step.log.items() if name.startswith("reward/")}
        self.terms = terms or {"reward": float(step.reward)}
        self.steps, self.total_return = self.steps + 1, self.total_return + float(step.reward)
        if bool(step.terminated | step.truncated):
            self._count()

    def show(self, data: mujoco.MjData) -> None:
        """Copy the engine's state to the viewer's `MjData`."""
        for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat"):
            getattr(data, name)[:] = getattr(self.engine, name)[0].numpy()
        data.time = self.steps * self.runner.control_s

    def advance(self, seconds: float, data: mujoco.MjData) -> None:
        """Run the control steps that are due after `seconds` of wall-clock time."""
        if self.paused:
            return
        self._due = min(self._due + seconds * self.speed, MAX_LAG_S * max(self.speed, 1.0))
        deadline = time.perf_counter() + MAX_LAG_S
        while self._due >= self.runner.control_s and time.perf_counter() < deadline:
            self._due -= self.runner.control_s
            self.step(data)

    def snapshot(self) -> EpisodeSnapshot:
        """The episode's state, for the page."""
        env = self.runner.env
        return EpisodeSnapshot(
            policy=self.runner.policy,
            episode=self.episode,
            seconds=self.steps * self.runner.control_s,
            total_return=self.total_return,
            iteration=self.iteration,
            sampled=self.runner.generator is not None,
            terms=tuple(self.terms.items()),
            command=tuple(env.kept["command"][0].tolist()) if isinstance(env, Anymal) else (),
        )

    def begin(self) -> None:
        """Start a new episode."""
        self.runner.reset()
        self._count()

    def _count(self) -> None:
        self.episode, self.steps, self.total_return = self.episode + 1, 0, 0.0

    def choose(self, policy: int) -> None:
        """Let another policy act."""
        self.runner.policy = policy
        self.begin()

    def sample(self, sampled: bool) -> None:
        """Sample actions, or act at the means."""
        self.runner.generator = torch.Generator().manual_seed(self._seed) if sampled else None

    def load(self, iteration: int) -> None:
        """Show the policies of another checkpoint."""
        assert self._folder is not None, "only a run has other checkpoints to choose"
        trained = Trained.load(self._folder, iteration)
        self.runner.use(trained)
        self.iteration = trained.iteration
        self.begin()

    def command(self, *velocity: float) -> None:
        """Set the velocity of a robot that follows commands: forward, sideways, turn."""
        self._command = velocity

    def push(self, side: float) -> None:
        """Push the robot to the left (1) or right (-1) of the picture.

        A tenth of a second at the robot's own weight changes its speed by about a metre per second.
        """
        weight = float(self.engine.model.body_mass.sum()) * 9.81
        self._kick, self._kick_steps = side * weight, max(1, round(PUSH_S / self.runner.control_s))

    @messages.handler
    def on_request(self, event: Request) -> bool:
        getattr(self, event.method)(*event.arguments)
        return True

    @messages.handler
    def on_step(self, event: messages.StepEvent) -> None:
        now = time.perf_counter()
        self.advance(now - self._last, event.data)
        self._last = now
        if self.episode != self._shown_episode and not self._appearance.same(Appearance.of(self.engine)):
            self.handle.set_model(self.model())  # the next episode may have an object of another size
        self._shown_episode = self.episode
        self.show(self.handle.data)
        self.handle.send_to_viewer(self.snapshot())
        time.sleep(0.002)  # let the page's thread run

    @messages.handler
    def on_reset(self, event: messages.ResetEvent) -> bool:
        self.begin()
        return True

    @messages.handler
    def on_load(self, event: messages.LoadModelEvent) -> bool:
        """Start an episode on a reload, also when a model is dropped onto the page: the policy knows only its robot."""
        self.begin()
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
    """The window `Policy`: choose which policy acts, how, at which moment of its training; see its rewards; command and
    push it."""

    def __init__(self, trained: Trained, start: Simulation, iterations: Sequence[int] = ()) -> None:
        self._trained, self._iterations = trained, list(iterations)
        env = start.runner.env
        config = env.config if isinstance(env, Anymal) else None
        self._limits = (config.max_forward, config.max_sideways, config.max_turn) if config else ()
        self._stands = followed(start.engine.model) is not None
        self._view = camera(start.engine.model, start.engine.qpos[0].numpy())
        self._now = start.snapshot()

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
        imgui.SetNextWindowSize(imgui.Vec2(270, 330), int(imgui.Cond.Appearing))
        if imgui.Begin("Policy")[0]:
            imgui.TextUnformatted(f"{config.task}, {config.algo}, iteration {now.iteration:,}")
            names = [self._trained.name(policy) for policy in range(self._trained.model.policies)]
            changed, policy = imgui.Combo("##policy", now.policy, names)
            if changed:
                self.viewer.send_to_sim(Request("choose", (policy,)))
            if len(self._iterations) > 1 and now.iteration in self._iterations:
                moments = [f"after {iteration:,} iterations" for iteration in self._iterations]
                changed, place = imgui.Combo("##checkpoint", self._iterations.index(now.iteration), moments)
                if changed:
                    self.viewer.send_to_sim(Request("load", (self._iterations[place],)))
            changed, sampled = imgui.Checkbox("sampled actions", now.sampled)
            if changed:
                self.viewer.send_to_sim(Request("sample", (sampled,)))
            if imgui.Button("new episode"):
                self.viewer.send_to_sim(Request("begin"))
            imgui.TextUnformatted(f"episode {now.episode}, {now.seconds:.1f} s")
            imgui.TextUnformatted(f"return {now.total_return:.1f}")
            for name, value in now.terms:
                imgui.TextUnformatted(f"  {name} {value:+.4f}")
            self._steer()
        imgui.End()

    def _steer(self) -> None:
        """Sliders of a command, and buttons that push."""
        now = self._now
        for k, (name, limit) in enumerate(zip(("forward", "sideways", "turn"), self._limits, strict=False)):
            changed, value = imgui.SliderFloat(name, now.command[k], -limit, limit)
            if changed:
                self.viewer.send_to_sim(Request("command", (*now.command[:k], value, *now.command[k + 1 :])))
        if self._stands:
            if imgui.Button("push left"):
                self.viewer.send_to_sim(Request("push", (1.0,)))
            imgui.SameLine()
            if imgui.Button("push right"):
                self.viewer.send_to_sim(Request("push", (-1.0,)))


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


def play(folder: RunFolder, trained: Trained, policies: str, seed: int, port: int, sampled: bool = False) -> None:
    """Show a policy until the viewer is closed or Ctrl-C, and print where."""
    (policy,) = trained.chosen(policies)
    start = Simulation(trained, policy, seed, folder)
    start.sample(sampled)
    iterations = saved_iterations(folder)
    page = app.App(app.Config(show_options=False, show_inspector=False, show_toolbar=True))
    config = viewer_protocol.ViewerConfig(title=f"Echelon: {trained.config.task}", gfx="web", http_port=port)

    def serve(endpoint: object) -> None:
        viewer = LocalViewer(config, endpoint, plugins=[page, PolicyWindow(trained, start, iterations)])
        viewer_protocol.run_viewer_loop(viewer)

    try:
        with launch_thread.launch_thread(serve, sim_plugins=[start]) as handle:
            handle.set_model(start.model())
            viewer_handle.run_sim_loop(handle)
    except RuntimeError as error:
        if "in use" not in str(error):
            raise
        raise UserError(f"port {port} is taken; choose another --port, or 0 for any that is free") from None
