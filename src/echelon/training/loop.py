"""The loop: iterate, log, save."""

import dataclasses
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

import torch

from echelon.algorithms import find
from echelon.config import TaskConfig, TrainConfig
from echelon.console.interrupt import Interrupt
from echelon.console.view import Guarded, View, default_view
from echelon.envs.contract import Configured, Env, Guarding, MakeEnv, Stateful
from echelon.envs.sources import source_of
from echelon.errors import UserError, first_line
from echelon.logging.metrics import MetricsWriter
from echelon.logging.trouble import TroubleWatch
from echelon.runs import checkpoint
from echelon.runs.changes import described
from echelon.runs.distances import DistanceWriter
from echelon.runs.durable import write_durably
from echelon.runs.faults import keep_faults
from echelon.runs.folder import RunFolder
from echelon.runs.genealogy import GenealogyWriter
from echelon.runs.json_lines import LineWriter
from echelon.runs.lock import still_ours
from echelon.runs.soundness import unsound
from echelon.tasks import maker
from echelon.training.callbacks import Callback, Looking, ask, look, until
from echelon.training.memory import require_room_for_envs, require_room_for_training, told_if_full
from echelon.training.resolve import Resolved, choose_device, resolve
from echelon.training.soundness import diverged, environment_fault, require_finite
from echelon.training.trainer import Trainer


def train(
    config: TrainConfig | Resolved,
    view: View | None = None,
    make_env: MakeEnv | None = None,
    callbacks: Sequence[Callback | Looking] = (),
    *,
    change: bool = False,
) -> RunFolder:
    """Train as `config` says, in its run folder; a folder that exists is resumed where it stopped.

    Progress is shown in a notebook or on a terminal; `view=NullView()` shows nothing. `callbacks` are asked after every
    iteration (`echelon.training.callbacks`); evaluations and films are callbacks, too.

    With `change`, a stored run goes on with settings that differ from its own, as far as they can; what changed is
    written down.

    `make_env` builds the environment; without it, it is the task of that name. Give a config for an environment of
    your own a `task` name of your own.
    """
    view = Guarded(view or default_view())
    resolved = config if isinstance(config, Resolved) else resolve(config)
    config = resolved.config
    if make_env is not None and config.source is None:
        config = dataclasses.replace(config, source=source_of(make_env))
    set_up_torch(config)
    if change and find(config.algo).selection is not None:
        raise UserError("settings of a population cannot be changed in its run: members have values of their own")
    folder = RunFolder.create_or_resume(config, find(config.algo).colour, change=change)
    given_env, make_env = make_env, make_env or maker(config, spread_clocks=True)
    looking = [one for one in callbacks if isinstance(one, Looking)]
    asked = [one for one in callbacks if not isinstance(one, Looking)]
    asked += [until(config.until)] if config.until else []
    with told_if_full(config):
        require_room_for_envs(config, make_env, resolved.device)
        env = make_env(config.num_envs, resolved.device, config.seed)
        config, folder = _complete(config, folder, env)
        require_room_for_training(env, config)
        trainer = Trainer(env, config, resolved.plan)
    seconds_before = _resume(trainer, folder, view)
    _take_changes(trainer, folder, view)
    view.start(config, folder, config.num_iterations, trainer.iteration)
    try:
        with MetricsWriter(folder, trainer.iteration) as log, Interrupt() as interrupt:
            if log.gap:
                view.message(f"WARNING: {log.gap}")
            distances = DistanceWriter(folder, trainer.iteration)
            genealogy = _begin_genealogy(trainer, folder)
            session = _Session(trainer, folder, seconds_before, (log.lines, distances, genealogy))
            trouble = TroubleWatch(config, view.message)
            figures: dict[str, float] = {}
            while trainer.iteration < config.num_iterations:
                try:
                    with told_if_full(config):
                        result = trainer.iterate()
                except FloatingPointError as error:
                    raise diverged(trainer, str(error), folder) from None
                metrics = session.clock() | result.metrics | trainer.timers.metrics() | figures
                log.write(metrics)
                view.update(metrics)
                if trainer.iteration == session.first:
                    _say_what_is_missing(trainer, view)
                require_finite(trainer, metrics, folder)
                session.require_folder()
                # Looked at once: one that comes later is for the next iteration.
                stop = interrupt.asked or view.gone
                enough = ask(asked, metrics, view.message)
                last = stop or enough is not None or trainer.iteration == config.num_iterations
                trouble.look(metrics, last)
                if metrics.get("env/quarantined", 0.0) > 0 and isinstance(env, Guarding):
                    keep_faults(folder, trainer.iteration, env.take_faults(), trainer.layout.policy_id.tolist())
                if result.kl_matrix is not None:
                    distances.write(trainer.iteration, session.env_steps, result.kl_matrix)
                if result.takeovers:
                    for one in result.takeovers:
                        if math.isnan(one.objective):
                            trouble.tell_of_broken(trainer.iteration, one.member, one.donor)
                    takeovers = [dataclasses.asdict(takeover) for takeover in result.takeovers]
                    genealogy.write(trainer.iteration, session.env_steps, takeovers)
                due = [one for one in looking if not stop and (last or trainer.iteration % one.every == 0)]
                if last or due or trainer.iteration % config.checkpoint_every == 0:
                    session.save(trainer.score(result.metrics))
                if due:
                    with session.paused():
                        figures |= look(due, folder, given_env, view)
                if last:
                    view.message(f"where the time went:\n{trainer.timers.table()}")
                if stop:
                    view.message(f"interrupted: iteration {trainer.iteration} is saved in {folder.path}")
                    raise KeyboardInterrupt
                if enough is not None:
                    view.message(f"stopped after iteration {trainer.iteration}: {enough.reason}")
                    break
    finally:
        view.stop()
    return folder


class _Session:
    """One start of a run: its clock, which goes on where the last start's stopped, and its checkpoints."""

    def __init__(
        self, trainer: Trainer, folder: RunFolder, seconds_before: float, files: Sequence[LineWriter] = ()
    ) -> None:
        """`files` are those that a checkpoint counts on."""
        self.trainer, self.folder, self.files = trainer, folder, files
        self.first = trainer.iteration + 1
        """The first iteration of this start."""
        self._noted = False
        self.steps = trainer.config.steps_per_iteration
        self.last = time.perf_counter()
        self.began = self.last - seconds_before

    @property
    def env_steps(self) -> int:
        return self.trainer.iteration * self.steps

    def clock(self) -> dict[str, float]:
        """Where the run stands and how fast it goes."""
        now = time.perf_counter()
        spent, self.last = now - self.last, now
        seconds = self.trainer.timers.iteration
        return {
            "iteration": self.trainer.iteration,
            "env_steps": self.env_steps,
            "gradient_steps": self.trainer.gradient_steps,
            "wall_s": now - self.began,
            "fps/total": self.steps / spent,
            "fps/collect": self.steps / seconds["collect"].seconds,
            "fps/update": self.steps / seconds["update"].seconds,
        }

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What takes place here is not training, so its time does not count."""
        began = time.perf_counter()
        yield
        spent = time.perf_counter() - began
        self.last += spent
        self.began += spent

    def state(self) -> dict[str, object]:
        return {
            "trainer": self.trainer.state_dict(),
            "seconds": time.perf_counter() - self.began,
            "device": self.trainer.env.device.type,
        }

    def save(self, score: float) -> None:
        """Save what was learned, unless it is spoiled; what was logged until now is on the disk before."""
        state = self.state()
        if self.trainer.selection is None and environment_fault(self.trainer):
            raise diverged(self.trainer, "a run that goes on from there would learn from it", self.folder)
        if spoiled := unsound(state):
            raise diverged(self.trainer, f"{spoiled} is not finite", self.folder)
        for file in self.files:
            file.sync()
        checkpoint.save(self.folder, self.trainer.iteration, state, score)
        if not self._noted:
            self.folder.note_saved()
            self._noted = True

    def require_folder(self) -> None:
        """Stop if the folder was moved, deleted or replaced, with what can be saved in a folder beside it."""
        path = self.folder.path
        if still_ours(path):
            return
        names = (path.with_name(f"{path.name}.rescued{number or ''}") for number in count())
        place = next(name for name in names if not name.exists())
        try:
            rescued = RunFolder.create_or_resume(dataclasses.replace(self.trainer.config, out=str(place)))
            for file in self.files:
                if content := file.content():
                    (place / file.name).parent.mkdir(exist_ok=True)
                    write_durably(place / file.name, content)
            checkpoint.save(rescued, self.trainer.iteration, self.state())
            rescued.note_saved()
        except (OSError, UserError) as error:
            raise UserError(
                f"{path} was moved or deleted while it was trained, and nothing could be saved beside it: {error}"
            ) from None
        raise UserError(
            f"{path} was moved or deleted while it was trained; the state after iteration {self.trainer.iteration} and "
            f"what was logged are in {place}: the same command with --out {place} goes on there"
        )


def set_up_torch(config: TrainConfig) -> None:
    """Torch's settings for the whole process."""
    on_cpu = choose_device(config.device).type == "cpu"
    torch.set_num_threads(config.threads)
    exact = config.precision == "fp32" or on_cpu
    torch.set_float32_matmul_precision("highest" if exact else "high")  # high is TF32


def _complete(config: TrainConfig, folder: RunFolder, env: Env) -> tuple[TrainConfig, RunFolder]:
    """The settings with what the environment chose where they left it open, stored as well."""
    if not isinstance(env, Configured) or not isinstance(env.config, TaskConfig) or env.config == config.env:
        return config, folder
    config = dataclasses.replace(config, env=env.config)
    return config, folder.with_config(config)


def _say_what_is_missing(trainer: Trainer, view: View) -> None:
    """Parts of an environment that training did without, where that costs something."""
    if trainer.collector.lacks_final_obs:
        view.message(
            "the environment gives no final_obs: where its time limit ends an episode, the value of the state before "
            "the last step is used instead"
        )


def _take_changes(trainer: Trainer, folder: RunFolder, view: View) -> None:
    """Say what is changed from here on. The learning rate lies in the checkpoint, where the KL rule has moved it, so a
    new one is set; again if the run comes back to a checkpoint from before."""
    for changed in folder.take_changes(trainer.iteration):
        if changed["iteration"] < trainer.iteration:
            continue
        if changed["setting"] == "update.learning_rate":
            trainer.update.optimizer.rate.fill_(trainer.config.update.learning_rate)
        view.message(f"changed: {described(changed)}")


def _begin_genealogy(trainer: Trainer, folder: RunFolder) -> GenealogyWriter:
    """With what the members of a population start from, if they do."""
    genealogy = GenealogyWriter(folder, trainer.iteration)
    if trainer.selection is not None and trainer.iteration == 0:
        genealogy.begin(trainer.selection.start())
    return genealogy


def _warm_start(trainer: Trainer, run: str, view: View) -> None:
    """Begin with the networks of another run."""
    found = checkpoint.load(RunFolder.open(run), "newest")
    try:
        trainer.model.load_state_dict(found.state["trainer"]["model"])
    except RuntimeError:
        raise UserError(
            f"the networks of {run} have other sizes, so they cannot be started from; it needs the same observations, "
            "actions, --model, --policies and kind of algorithm"
        ) from None
    view.message(f"started from the networks of {run} after iteration {found.iteration}")


def _resume(trainer: Trainer, folder: RunFolder, view: View, iteration: int | None = None) -> float:
    """Load the newest whole checkpoint, if there is one, or that of an iteration; seconds the run has taken so far."""
    found = checkpoint.load_newest(folder, view.message) if iteration is None else checkpoint.load(folder, iteration)
    if found is None and folder.lost_checkpoints and not checkpoint.any_saved(folder):
        raise UserError(
            f"{folder.path} has logged iterations but no checkpoint is left, and training anew would overwrite them; "
            "put its checkpoints back, or choose another folder with --out"
        )
    if found is None:
        if checkpoint.any_saved(folder):  # a fresh start would drop what the run has logged
            raise UserError(f"every checkpoint of {folder.path} is damaged; restore one, or start anew with --out")
        if trainer.config.start_from:
            _warm_start(trainer, trainer.config.start_from, view)
        return 0.0
    if found.iteration > trainer.config.num_iterations:
        raise UserError(
            f"{folder.path} is at iteration {found.iteration} already, beyond the {trainer.config.num_iterations} "
            "that were asked for; ask for more, or choose another folder with --out"
        )
    here = trainer.env.device.type
    if (there := found.state.get("device", here)) != here:  # engines and random numbers differ
        raise UserError(
            f"{folder.path} was trained on {there}, not {here}, where it cannot go on; use --device {there}"
        )
    try:
        trainer.load_state_dict(found.state["trainer"])
        seconds = float(found.state["seconds"])
    except UserError:
        raise
    except Exception as error:  # whatever a stranger's file makes of it
        raise UserError(
            f"checkpoint {found.path} does not fit this run ({first_line(error)}): it is of another task or network, "
            "or no version of Echelon wrote it; remove it, or choose another folder with --out"
        ) from None
    if trainer.iteration != found.iteration or not 0 <= seconds < math.inf:
        raise UserError(f"checkpoint {found.path} contradicts itself; remove it, or choose another folder with --out")
    view.message(f"resumed {folder.path} after iteration {trainer.iteration}")
    if not isinstance(trainer.env, Stateful) or not found.state["trainer"]["env"]:
        view.message(
            "the environment keeps no state (state_dict), so its episodes begin anew: "
            "learning goes on, but not to the bit"
        )
    return seconds
