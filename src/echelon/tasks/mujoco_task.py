"""The base class of all MuJoCo tasks: the environment contract on a physics engine.

A task defines its model, action, observation, reward, failure and start state. This class does the rest, in an order
that matters: step, judge the new state, take `final_obs`, reset the episodes that ended, observe again.

Everything is batched with fixed shapes and no branch on data: start states are drawn for all environments at every
step and used where an episode ended. That makes a step capturable as a CUDA graph.
"""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import mujoco
import numpy as np
import torch
from torch import Tensor

from echelon.config.checks import check
from echelon.device.capture import Source, draw, generators_of
from echelon.device.compile_progress import announced
from echelon.device.fusion import cache_folder, fused
from echelon.envs.contract import Groups, State, Step, onto
from echelon.errors import UserError, first_line
from echelon.sim import make_engine, probe
from echelon.sim.contract import Engine
from echelon.sim.faults import FaultLog
from echelon.tasks.settings import MujocoTaskConfig

if TYPE_CHECKING:
    from echelon.tasks.randomise import Randomiser


class StartState(NamedTuple):
    """Sampled start states: `qpos [N, nq]`, `qvel [N, nv]`."""

    qpos: Tensor
    qvel: Tensor


class ObsPart(NamedTuple):
    """Consecutive entries of the policy's observation, one per name in `of`: `scale * (quantity - offset)`, clipped to
    ±`clip`. Scale and offset are one for all, or one per entry."""

    quantity: str
    of: Sequence[str]
    """Joints, axes or the like."""
    unit: str = ""
    """Unit of the quantity; joints have their own."""
    scale: float | Sequence[float] = 1.0
    offset: float | Sequence[float] = 0.0
    clip: float | None = None


COMPILED = ("_command", "_conclude", "_restart")
"""Functions of a step that `MujocoTask.fuse` compiles."""
Fill = Callable[[Tensor, torch.Generator], Tensor]
Draw = tuple[tuple[int, ...], Fill]
"""Columns of random numbers, and what fills them."""


class Rng:
    """Draws random numbers, a row for each of `num_envs` environments.

    All `blocks` of equal size get the same numbers, so that policies can be compared side by side under equal
    conditions. Several generators draw for equal parts of the environments.
    """

    def __init__(self, generator: Source, num_envs: int, blocks: int = 1) -> None:
        generators = generators_of(generator)
        self.generator, self.blocks, self.device = generator, blocks, generators[0].device
        self.seeds, self.each = len(generators), num_envs // blocks // len(generators)
        """Number of generators, and of environments that each draws for."""
        self._noted: list[Draw] | None = None
        """What was drawn so far, while it is noted."""
        self._ready: list[Tensor] = []
        """What was drawn ahead."""
        self._used = 0
        """How much of it was asked for."""

    def uniform(self, low: float, high: float, *columns: int) -> Tensor:
        """Uniform numbers `[N, *columns]`."""
        return self._draw(columns, lambda x, generator: x.uniform_(low, high, generator=generator))

    def normal(self, *columns: int) -> Tensor:
        """Normal numbers `[N, *columns]` of mean 0 and deviation 1."""
        return self._draw(columns, lambda x, generator: x.normal_(generator=generator))

    def noting(self, run: Callable[[], object]) -> list[Draw]:
        """What `run` draws, for `draw_ahead`."""
        self._noted = noted = []
        run()
        self._noted = None
        return noted

    def draw_ahead(self, draws: Sequence[Draw]) -> None:
        """Draw now what a step will ask for, in that order: compiled code cannot use a generator."""
        assert self._used == len(self._ready), "a step has drawn less than was noted"
        self._ready, self._used = [self._now(*each) for each in draws], 0

    def forget(self) -> None:
        """Drop what was drawn ahead."""
        self._ready, self._used = [], 0

    def _draw(self, columns: tuple[int, ...], fill: Fill) -> Tensor:
        if self._used < len(self._ready):
            self._used += 1
            return self._ready[self._used - 1]
        if self._noted is not None:
            self._noted.append((columns, fill))
        return self._now(columns, fill)

    def _now(self, columns: tuple[int, ...], fill: Fill) -> Tensor:
        drawn = draw(
            self.generator,
            self.seeds * self.each,
            lambda generator, rows: fill(torch.empty(rows, *columns, device=self.device), generator),
        )
        return drawn if self.blocks == 1 else drawn.repeat(self.blocks, *[1] * (drawn.dim() - 1))


C = TypeVar("C", bound=MujocoTaskConfig)


class MujocoTask(ABC, Generic[C]):
    """`num_envs` copies of a task on one engine.

    A simulation that diverges is quarantined: its episode terminates with reward 0, a new one starts, and
    `log["quarantined"]` is 1 there. The engine has already put it into the default state, so `final_obs` is finite.

    With `spread_clocks`, `reset()` starts episodes at random times of their clock: otherwise all would be truncated at
    the same step, and each iteration of training would see only one phase of the episode. Evaluation leaves it off,
    because it shortens first episodes. With `blocks`, all blocks of environments draw the same random numbers.
    """

    substeps: ClassVar[int]
    """Physics steps per control step."""
    objective: ClassVar[str] = "return"
    """Metric by which members of a population are compared: an `episode/` metric, or the return."""
    curriculum: ClassVar[tuple[str, ...]] = ()
    """Names of `kept` that all environments of a seed have in common: 0-d, or `[S]` with several seeds."""
    scene: ClassVar[str]
    """MJCF file of the scene, beside the module of the class that names it."""
    obs_spec: dict[str, int]
    privileged: tuple[str, ...] = ()
    """Places of what the robot itself would not measure, in the group `policy`: `("0:3",)`."""

    def __init__(
        self,
        config: C,
        num_envs: int,
        device: torch.device,
        seed: int | Sequence[int],
        *,
        spread_clocks: bool = False,
        blocks: int = 1,
    ) -> None:
        """Several seeds share the environments equally; `slices` takes them apart."""
        if num_envs < 1:
            raise UserError(f"num_envs is at least 1, not {num_envs}")
        self.config = config = check(config, "env.")
        self.num_envs, self.device = num_envs, device
        self.episode_length = config.episode_length
        self.engine: Engine = self._make_engine()
        self._faults = FaultLog(self.engine)
        self.action_dim: int = self.engine.model.nu
        self._onto_controls = onto(*(self.constant(limits) for limits in control_limits(self.engine.model)))
        seeds = [seed] if isinstance(seed, int) else list(seed)
        generators = tuple(torch.Generator(device).manual_seed(number) for number in seeds)
        self.generator = generators[0] if len(seeds) == 1 else generators
        self.rng = Rng(self.generator, num_envs, blocks)
        self.clock = torch.zeros(num_envs, dtype=torch.int64, device=device)
        """`[N]`: control steps since the episode began."""
        self.totals: dict[str, Tensor] = {}
        """Sums over the episode, `[N]` each; zeroed when an episode starts, saved with the state."""
        self.kept: dict[str, Tensor] = {}
        """Other state of the task between steps, `[N, ...]` each, or one per seed if `curriculum` names it;
        saved with the state, reset by `begin`."""
        self._spread_clocks = spread_clocks
        self.fixed_shapes = device.type == "cuda"
        """Whether all environments are computed where a few would do, as compiled functions and CUDA graphs need it."""
        self._draws: list[Draw] = []
        """Random numbers of a step, which are drawn ahead if it is compiled."""
        self._everything = torch.ones(num_envs, dtype=torch.bool, device=device)
        self._terms: dict[str, Tensor] = {}
        self.prepare()
        if not hasattr(self, "obs_spec"):
            self.obs_spec = {name: values.shape[1] for name, values in self.observe().items()}
        self.randomiser: Randomiser | None = None
        """Draws the physics of each episode, if the settings ask for it."""
        if config.randomise.active():
            from echelon.tasks import randomise

            width = self.obs_spec.get("policy", 0)
            self.randomiser = randomise.Randomiser(config.randomise, self.engine, self.rng, self.substeps, width)
            self.kept |= {f"randomise.{name}": value for name, value in self.randomiser.state.items()}

    def prepare(self) -> None:
        """Make `totals`, `kept` and constants of the step; `obs_spec` too, or it is taken from `observe`."""

    def constant(self, values: object) -> Tensor:
        """A float32 tensor, made once: a captured CUDA graph cannot build tensors from Python numbers."""
        return torch.as_tensor(values, dtype=torch.float32).to(self.device)

    def zeros(self, *columns: int) -> Tensor:
        """`[N, *columns]`."""
        return torch.zeros(self.num_envs, *columns, device=self.device)

    def _make_engine(self) -> Engine:
        """Build the engine; on CUDA with buffer sizes from a probe, which become part of the settings."""
        model, config = self.model(), self.config
        if self.device.type == "cuda" and None in (config.contacts, config.constraints):
            contacts, constraints = probe(model)
            config = self.config = replace(
                config, contacts=config.contacts or contacts, constraints=config.constraints or constraints
            )
        return make_engine(model, self.num_envs, self.device, config.contacts, config.constraints, config.physics)

    @classmethod
    def scene_file(cls) -> Path:
        """Path of `scene`."""
        owner = next(base for base in cls.__mro__ if "scene" in vars(base))
        return Path(inspect.getfile(owner)).with_name(cls.scene)

    def model(self) -> mujoco.MjModel:
        """The MuJoCo model of the scene; by default the one in `scene`."""
        scene = self.scene_file()
        try:
            return mujoco.MjModel.from_xml_path(str(scene))  # a path, because scenes attach robots
        except ValueError as error:
            why = ", ".join(filter(None, map(str.strip, str(error).splitlines())))
            raise UserError(f"MuJoCo cannot load {scene}: {why}") from None

    @abstractmethod
    def observe(self) -> Groups:
        """Observations of the current state, float32 `[N, D]` by group, with the widths of `obs_spec`."""

    def layout(self) -> tuple[ObsPart, ...]:
        """Name the entries of the policy's observation in order, for export; by default unnamed."""
        return ()

    @abstractmethod
    def reward(self, action: Tensor) -> Tensor:
        """Reward `[N]` of the state that the clamped `action [N, A]` led to."""

    @abstractmethod
    def start_state(self) -> StartState:
        """Start states for all environments, drawn with `uniform`."""

    def begin(self, mask: Tensor) -> None:
        """Reset `kept` for the episodes that start in `mask [N]`; their start states are already set."""

    def control(self, action: Tensor) -> Tensor:
        """The engine's controls `[N, nu]` for a clamped action; by default -1 to 1 is mapped onto the control range of
        each actuator that has one."""
        return self._onto_controls(action)

    def controls(self) -> str:
        """What actions stand for, in a sentence."""
        if type(self).control is not MujocoTask.control:
            return "the task's own control() turns actions into controls"
        model, by_range = self.engine.model, dict[str, list[str]]()
        for number, (low, high) in enumerate(zip(*control_limits(model), strict=True)):
            mapped = f"{low:g} to {high:g}" if np.isfinite(low) else "-1 to 1"
            by_range.setdefault(mapped, []).append(model.actuator(number).name or f"actuator {number}")
        each = (f"{mapped} ({', '.join(names[:4] + ['...'] * (len(names) > 4))})" for mapped, names in by_range.items())
        return f"actions from -1 to 1 become controls from {', '.join(each)}"

    def judge(self) -> None:
        """Evaluate the new state once, before `failed`, time limit and `reward` are computed; may restart the clock."""

    def failed(self) -> Tensor:
        """`[N]` bool: episodes that end in failure in the current state; by default none."""
        return ~self._everything

    def figures(self) -> dict[str, Tensor]:
        """Metrics to log, `[N]` each: of the current state, and under `episode/` of the episode so far."""
        return {}

    def total(self, terms: dict[str, Tensor]) -> Tensor:
        """The reward `[N]` as a sum of terms by name, which are logged as `reward/<name>`."""
        self._terms = terms
        return torch.stack(tuple(terms.values())).sum(dim=0)

    def log(self) -> dict[str, Tensor]:
        """The reward's terms, zero where a simulation diverged, and copies of the metrics: a reset changes views."""
        terms = {f"reward/{name}": term.masked_fill(self.engine.bad, 0.0) for name, term in self._terms.items()}
        return terms | {name: value.clone() for name, value in self.figures().items()}

    def proceed(self) -> None:
        """Change the task within an episode, such as a new goal; called after `judge` and before `observe`."""

    def uniform(self, low: float, high: float, *columns: int) -> Tensor:
        """Random numbers `[N, *columns]` from the task's generator."""
        return self.rng.uniform(low, high, *columns)

    def reset(self) -> Groups:
        start = self.start_state()  # first, so that starts are the same whatever is randomised
        if self.randomiser is not None:
            self.randomiser.draw()
        self._place(self._everything, start)
        self._begin(self._everything)
        if self._spread_clocks:
            sizes = {"high": self.episode_length, "device": self.device}
            self.clock.copy_(
                draw(self.generator, self.num_envs, lambda g, rows: torch.randint(size=(rows,), generator=g, **sizes))
            )
        if self.randomiser is not None:
            self.randomiser.observe(self.observe())  # so that delays begin with this observation
        return self._observed(self._everything)

    def _observed(self, started: Tensor | None = None) -> Groups:
        """Observations as the policy gets them: after a step, and again where episodes have `started [N]` since."""
        return self.observe() if self.randomiser is None else self.randomiser.observe(self.observe(), started)

    def step(self, action: Tensor) -> Step:
        self.rng.draw_ahead(self._draws)
        action, overflow = self._command(action)
        before = self._faults.before()
        self.engine.step(self.substeps)
        self._faults.keep(before)
        step, start = self._conclude(action, overflow)
        ended = step.terminated | step.truncated
        self._place(ended, start)
        return replace(step, obs=self._restart(ended))

    def _command(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Set the controls; returns the clamped action, and overflows so far."""
        action = action.detach().clamp(-1.0, 1.0)
        control = self.control(action)
        self.engine.ctrl.copy_(control if self.randomiser is None else self.randomiser.act(control))
        return action, self.engine.overflow.clone()

    def _conclude(self, action: Tensor, overflow: Tensor) -> tuple[Step, StartState]:
        """The step that physics has made, without the observation to act on, and states to start from."""
        if self.randomiser is not None:
            self.randomiser.acted()
        self.clock += 1
        self.judge()
        bad = self.engine.bad.clone()
        terminated = self.failed() | bad
        truncated = (self.clock >= self.episode_length) & ~terminated
        reward = self.reward(action).float().masked_fill(bad, 0.0)
        log = self.log() | {"quarantined": bad.float(), "overflow": (self.engine.overflow - overflow).float()}
        self.proceed()
        return Step({}, reward, terminated, truncated, self._observed(), log), self.start_state()

    def _place(self, mask: Tensor, start: StartState) -> None:
        """Put the environments of `mask [N]` into their start states."""
        if self.randomiser is not None:
            self.randomiser.begin(mask)
        self.engine.set_state(mask, start.qpos, start.qvel)

    def _restart(self, mask: Tensor) -> Groups:
        """Start an episode in the environments of `mask [N]`, whose states are set; returns observations of all."""
        self._begin(mask)
        return self._observed(mask)

    def fuse(self) -> None:
        """Compile what a step computes outside physics into a few kernels, by two steps whose effects are undone."""
        from torch._dynamo.exc import TorchDynamoException

        before, states = self.state_dict(), [generator.get_state() for generator in generators_of(self.generator)]
        self.fixed_shapes = True
        self.engine.fuse()
        # Under inference mode as in a rollout, or it would be compiled again.
        with torch.inference_mode(), announced(cache_folder(), "for this task"):
            action = self.zeros(self.action_dim)
            self._draws = self.rng.noting(lambda: self.step(action))
            if self.randomiser is not None:
                self.randomiser.fuse()
            for name in COMPILED:
                setattr(self, name, fused(getattr(self, name), self.device))
            try:
                self.step(action)
            except TorchDynamoException as error:  # a task of one's own may be any Python
                stack = getattr(error, "real_stack", None) or ()  # torch's first line alone is "Observed exception"
                place = "".join(f" ({Path(at.filename).name}, line {at.lineno})" for at in stack[-1:])
                why = f"{type(self).__name__}'s step is not compiled, so it is slower: {first_line(error)}{place}"
                print(why, file=sys.stderr, flush=True)
                for name in COMPILED:
                    delattr(self, name)
                self._draws = []
                self.rng.forget()
        self.load_state_dict(before)
        for generator, state in zip(generators_of(self.generator), states, strict=True):
            generator.set_state(state)

    def take_faults(self) -> list[dict[str, Any]]:
        return self._faults.take()

    def capturing(self) -> AbstractContextManager[None]:
        return self.engine.capturing()

    def _begin(self, mask: Tensor) -> None:
        """Reset clock, totals and the task's own state in the environments of `mask [N]`."""
        self.clock.masked_fill_(mask, 0)
        for total in self.totals.values():
            total.masked_fill_(mask, 0.0)
        self.begin(mask)

    def state_dict(self) -> State:
        """Simulator, clocks, `totals`, `kept` and random generator; with several seeds, `SeedSlice` saves theirs."""
        return {
            "engine": self.engine.state_dict(),
            "clock": self.clock.clone(),
            "totals": {name: total.clone() for name, total in self.totals.items()},
            "kept": {name: value.clone() for name, value in self.kept.items()},
        } | ({"generator": self.generator.get_state()} if isinstance(self.generator, torch.Generator) else {})

    def load_state_dict(self, state: State) -> None:
        saved = cast(Mapping[str, Any], state)
        self.engine.load_state_dict(saved["engine"])
        self.clock.copy_(saved["clock"])
        for kind, tensors in (("totals", self.totals), ("kept", self.kept)):
            for name, value in tensors.items():
                value.copy_(saved[kind].get(name, value))  # it may be younger than the run
        if isinstance(self.generator, torch.Generator):
            self.generator.set_state(saved["generator"].cpu())

    def slices(self) -> list["SeedSlice"]:
        """The environments of each seed of a task that was made with several."""
        found: list[SeedSlice] = []
        found.extend(SeedSlice(self, index, found) for index in range(self.rng.seeds))
        return found


def control_limits(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """`[nu]` each: the controls that actions of -1 and 1 are mapped onto, infinite where an action is the control."""
    low, high = model.actuator_ctrlrange.T
    same = ~model.actuator_ctrllimited.astype(bool) | ((low == -1) & (high == 1))
    return np.where(same, -np.inf, low), np.where(same, np.inf, high)


class SeedSlice:
    """One seed's environments, with everything of an `Env` but `reset` and `step`, which are the whole task's."""

    def __init__(self, task: MujocoTask[Any], index: int, all_slices: list["SeedSlice"]) -> None:
        self._task, self._index, self._all_slices = task, index, all_slices
        self.generator, self.num_envs = generators_of(task.generator)[index], task.rng.each
        self.action_dim, self.obs_spec, self.device = task.action_dim, task.obs_spec, task.device
        self.episode_length, self.config = task.episode_length, task.config
        self._faults: list[dict[str, Any]] = []

    def take_faults(self) -> list[dict[str, Any]]:
        """Faults of this seed's simulations; those of other seeds are stored for their slices."""
        for fault in self._task.take_faults():
            index, environment = divmod(fault["environment"], self.num_envs)
            self._all_slices[index]._faults.append(fault | {"environment": environment})
        found, self._faults = self._faults, []
        return found

    def state_dict(self) -> State:
        """The state that a task of this seed alone would save."""
        return self._part(self._task.state_dict()) | {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        """The other seeds keep their state."""
        whole, saved = self._task.state_dict(), cast(Mapping[str, Any], state)
        part = self._part(whole)
        _write(part, {**saved, **{kind: part[kind] | saved[kind] for kind in ("totals", "kept")}})
        self._task.load_state_dict(whole)
        self.generator.set_state(saved["generator"].cpu())

    def _part(self, state: Any, name: str = "") -> Any:
        """Views of this seed's numbers."""
        if isinstance(state, Mapping):
            return {key: self._part(value, key) for key, value in state.items()}
        return state[self._index] if name in self._task.curriculum else state.chunk(self._task.rng.seeds)[self._index]


def _write(part: Any, state: Any) -> None:
    """Copy the tensors of a nested `state` into those of `part`."""
    for name, value in part.items():
        value.copy_(state[name]) if isinstance(value, Tensor) else _write(value, state[name])
