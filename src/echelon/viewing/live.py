"""Watch policies live in a browser, in MuJoCo's own web viewer.

The simulation runs in the main thread. The page's interface runs in a thread of the viewer, reads the simulation and
sends it messages. Pause, speed, camera and pushing bodies with the mouse are the viewer's; the window `Policy` is ours.
"""

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
from echelon.runs.checkpoint import saved_iterations
from echelon.runs.trained import Trained
from echelon.tasks.anymal.settings import AnymalConfig
from echelon.viewing.guard import Guard, InnerSocket
from echelon.viewing.recorder import PolicyRunner
from echelon.viewing.scene import camera, followed, free_view, is_shown_by, shown_model

PUSH_S = 0.1
"""Seconds that a push by the button lasts."""
MAX_LAG_S = 0.2
"""Seconds a simulation may lag behind the clock and still catch up."""


@dataclass(frozen=True)
class Request(messages.Event):
    """Message from the page: call a method of the simulation."""

    method: str
    arguments: tuple[Any, ...] = ()


class Simulation(plugin.SimPlugin):
    """Steps the environment at the speed set in the page, and passes its state to the viewer."""

    def __init__(self, trained: Trained, policy: int, seed: int) -> None:
        self.runner, self._seed = PolicyRunner(trained, policy, seed), seed
        self.engine, self.control_s = self.runner.engine, self.runner.control_s
        self.paused, self.speed = False, 1.0
        self.episode, self.steps, self.total_return = 0, 0, 0.0
        self.terms: dict[str, float] = {}
        """Reward terms of the last step, where the task tells them; else the whole reward."""
        self._command: tuple[float, ...] | None = None
        """Set by the page; until then the task draws it."""
        self._kick, self._kick_steps, self._pushed = 0.0, 0, False
        self._due, self._last = 0.0, time.perf_counter()
        self.begin()

    def step(self, data: mujoco.MjData) -> None:
        """One control step, with the forces of the mouse; a new episode starts when one ends."""
        push = np.array(data.xfrc_applied)
        if self._kick_steps and (body := followed(self.engine.model)) is not None:
            push[body, 1] += self._kick
            self._kick_steps -= 1
        if push.any() or self._pushed:
            self.engine.xfrc_applied[0] = torch.from_numpy(push)
            self._pushed = bool(push.any())
        if self._command is not None and (env := commanded(self.runner.env)):
            env.kept["command"][0] = torch.tensor(self._command)
        step = self.runner.step()
        terms = {name.removeprefix("reward/"): float(x) for name, x in step.log.items() if name.startswith("reward/")}
        self.terms = terms or {"reward": float(step.reward)}
        self.steps, self.total_return = self.steps + 1, self.total_return + float(step.reward)
        if bool(step.terminated | step.truncated):
            self._count()

    def advance(self, seconds: float, data: mujoco.MjData) -> None:
        """Run the control steps that are due after `seconds` of wall-clock time."""
        if self.paused:
            return
        self._due = min(self._due + seconds * self.speed, MAX_LAG_S * max(self.speed, 1.0))
        deadline = time.perf_counter() + MAX_LAG_S
        while self._due >= self.control_s and time.perf_counter() < deadline:
            self._due -= self.control_s
            self.step(data)

    def begin(self) -> None:
        """Start a new episode."""
        self.runner.reset()
        self._count()

    def _count(self) -> None:
        self.episode, self.steps, self.total_return = self.episode + 1, 0, 0.0

    def choose(self, policy: int, iteration: int) -> None:
        """Let another policy act, or another checkpoint's."""
        trained = self.runner.trained
        self.runner.use(trained if iteration == trained.iteration else Trained.load(trained.folder, iteration), policy)
        self.begin()

    def sample(self, sampled: bool) -> None:
        """Sample actions, or act at the means."""
        self.runner.generator = torch.Generator().manual_seed(self._seed) if sampled else None

    def command(self, *velocity: float) -> None:
        """Set the velocity of a robot that follows commands: forward, sideways, turn."""
        self._command = velocity

    def push(self, side: float) -> None:
        """Push the robot to the left (1) or right (-1) of the picture.

        A tenth of a second at the robot's own weight changes its speed by about a metre per second.
        """
        weight = float(self.engine.model.body_mass.sum()) * 9.81
        self._kick, self._kick_steps = side * weight, max(1, round(PUSH_S / self.control_s))

    @messages.handler
    def on_request(self, event: Request) -> bool:
        getattr(self, event.method)(*event.arguments)
        return True

    @messages.handler
    def on_step(self, event: messages.StepEvent) -> None:
        now = time.perf_counter()
        self.advance(now - self._last, event.data)
        self._last = now
        if not is_shown_by(self.handle.model, self.engine):
            self.handle.set_model(shown_model(self.engine))  # the next episode may have an object of another size
        for name in ("qpos", "qvel", "ctrl", "mocap_pos", "mocap_quat"):
            getattr(self.handle.data, name)[:] = getattr(self.engine, name)[0].numpy()
        self.handle.data.time = self.steps * self.control_s
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

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._iterations = saved_iterations(simulation.runner.trained.folder)
        self._view = camera(simulation.engine.model, simulation.engine.qpos[0].numpy())

    @messages.handler(priority=0)  # after the viewer's own handlers, which frame the whole model
    def on_model(self, event: messages.PostModelEvent) -> None:
        seen = self.viewer.camera
        for name, value in free_view(self._view).items():
            setattr(seen, name, value)
        if self._view.follow is not None:
            seen.type, seen.trackbodyid = int(mujoco.mjtCamera.mjCAMERA_TRACKING), self._view.follow

    @messages.handler
    def on_build_gui(self, _: messages.BuildGuiEvent) -> None:
        imgui.SetNextWindowPos(imgui.Vec2(16, 84), int(imgui.Cond.FirstUseEver))
        imgui.SetNextWindowSize(imgui.Vec2(270, 330), int(imgui.Cond.Appearing))
        if imgui.Begin("Policy")[0]:
            self._choose()
            self._steer()
        imgui.End()

    def _ask(self, method: str, *arguments: Any) -> None:
        self.viewer.send_to_sim(Request(method, arguments))

    def _choose(self) -> None:
        """Policy, checkpoint and way of acting; the episode so far, and the rewards of the last step."""
        now, runner, iterations = self._simulation, self._simulation.runner, self._iterations
        trained = runner.trained
        imgui.TextUnformatted(f"{trained.config.task}, {trained.config.algo}, iteration {trained.iteration:,}")
        names = [trained.name(policy) for policy in range(trained.model.policies)]
        changed, policy = imgui.Combo("##policy", runner.policy, names)
        if changed:
            self._ask("choose", policy, trained.iteration)
        if len(iterations) > 1 and trained.iteration in iterations:
            moments = [f"after {iteration:,} iterations" for iteration in iterations]
            changed, place = imgui.Combo("##checkpoint", iterations.index(trained.iteration), moments)
            if changed:
                self._ask("choose", runner.policy, iterations[place])
        changed, sampled = imgui.Checkbox("sampled actions", runner.generator is not None)
        if changed:
            self._ask("sample", sampled)
        if imgui.Button("new episode"):
            self._ask("begin")
        imgui.TextUnformatted(f"episode {now.episode}, {now.steps * now.control_s:.1f} s")
        imgui.TextUnformatted(f"return {now.total_return:.1f}")
        for name, value in now.terms.items():
            imgui.TextUnformatted(f"  {name} {value:+.4f}")

    def _steer(self) -> None:
        """Sliders of a command, and buttons that push."""
        if env := commanded(self._simulation.runner.env):
            velocity = env.kept["command"][0].tolist()
            for k, name in enumerate(("forward", "sideways", "turn")):
                limit = getattr(env.config, f"max_{name}")
                changed, value = imgui.SliderFloat(name, velocity[k], -limit, limit)
                if changed:
                    self._ask("command", *velocity[:k], value, *velocity[k + 1 :])
        if followed(self._simulation.engine.model) is not None:
            if imgui.Button("push left"):
                self._ask("push", 1.0)
            imgui.SameLine()
            if imgui.Button("push right"):
                self._ask("push", -1.0)


def commanded(env: Any) -> Any:
    """The environment, whatever it is wrapped in, if its robot is told a velocity; else None."""
    return env if isinstance(getattr(env, "config", None), AnymalConfig) else None


class LocalViewer(web_viewer.WebViewer):
    """MuJoCo's web viewer, bound to localhost and behind a guard. The original listens on every network, without a
    password, and answers every page.

    Nothing is lost: browsers run the page only from localhost or over https. From elsewhere, use `ssh -L`.
    """

    _host = property(lambda self: "127.0.0.1", lambda self, every_network: None)

    def __init__(self, *given: Any, **more: Any) -> None:
        guard = Guard()
        web_server.serve = guard.serve  # what the server's thread calls
        web_server.bind_loopback_socket = InnerSocket.bound

        def announce(host: str, port: int) -> None:
            guard.listening.wait(10)  # the server begins in a thread of its own
            print(f"Open http://localhost:{port}/?token={guard.token}", flush=True)
            print("Only this link opens the viewer, on this machine. Ctrl-C ends it.", flush=True)

        web_viewer._print_url_banner = announce
        super().__init__(*given, **more)


def play(trained: Trained, policy: str, seed: int, port: int, sampled: bool = False) -> None:
    """Show a policy until the viewer is closed or Ctrl-C, and print where."""
    simulation = Simulation(trained, trained.number(policy), seed)
    simulation.sample(sampled)
    page = app.App(app.Config(show_options=False, show_inspector=False, show_toolbar=True))
    config = viewer_protocol.ViewerConfig(title=f"Echelon: {trained.config.task}", gfx="web", http_port=port)

    def serve(endpoint: object) -> None:
        viewer_protocol.run_viewer_loop(LocalViewer(config, endpoint, plugins=[page, PolicyWindow(simulation)]))

    try:
        with launch_thread.launch_thread(serve, sim_plugins=[simulation]) as handle:
            handle.set_model(shown_model(simulation.engine))
            viewer_handle.run_sim_loop(handle)
    except RuntimeError as error:
        if "in use" not in str(error):
            raise
        raise UserError(f"port {port} is taken; choose another --port, or 0 for any that is free") from None
