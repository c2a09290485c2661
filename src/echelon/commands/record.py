"""`echelon record`: an episode of a run's policies, as a film or as a page that shows it in 3D."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from echelon.commands.command import Command, RunPath
from echelon.config.ranges import NOT_NEGATIVE
from echelon.errors import UserError, require_package

if TYPE_CHECKING:
    from echelon.viewing.recorder import Tape

FORMATS = ("mp4", "gif", "html")


@dataclass(frozen=True)
class Record(Command):
    """Film a run's policies, or show them in 3D."""

    run_folder: RunPath
    """The run."""
    policy: str = "all"
    """leader, a policy's number, or all of them side by side."""
    format: Literal["auto", "mp4", "gif", "html"] = "auto"
    """A film, or a page in 3D; auto: as --out ends, else mp4 if the video extra is installed, html if not."""
    out: str | None = None
    """Where to write it; into the run folder's replay/ unless given."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episode. Every policy starts in the same state."""
    checkpoint: Literal["newest", "best", "all"] = "newest"
    """Which checkpoint to show; all shows every checkpoint that was kept, in a page."""

    def run(self) -> int:
        format = _format(self)

        from echelon.runs.folder import RunFolder

        folder = RunFolder.open(self.run_folder)
        require_package("mujoco", "echelon record", "mujoco")
        if format != "html":
            from echelon.viewing.video import require_packages

            require_packages(format)

        from echelon.evaluation.trained import Trained
        from echelon.runs.checkpoint import saved_iterations
        from echelon.runs.replays import replay_path, write_replay
        from echelon.viewing.recorder import record, to_replay

        shown = saved_iterations(folder) if self.checkpoint == "all" else []
        if self.checkpoint == "all" and format != "html":
            raise UserError("a film shows one checkpoint; add --format html to --checkpoint all")
        tapes: tuple[Tape, ...] = ()
        for iteration in shown[:-1]:
            tapes += record(Trained.load(folder, iteration), self.policy, self.seed)
        trained = Trained.load(folder, "best" if self.checkpoint == "best" else "newest")
        tapes += record(trained, self.policy, self.seed)
        out = Path(self.out) if self.out else folder.path / "replay" / f"{self.policy}.{format}"
        for tape in tapes:
            when = f"{tape.iteration:>7,}  " if len(shown) > 1 else ""
            print(f"{when}{tape.name:<12} return {tape.total_return:10.2f}, {_end(tape)}")
        try:
            if format == "html":
                from echelon.viewing.page import write_page

                replay = to_replay(folder.name, trained, self.seed, tapes)
                write_replay(replay, replay_path(folder))
                write_page(replay, out)
            else:
                if not replay_path(folder).exists():  # a film of the leader leaves a replay of all alone
                    with suppress(UserError):  # meshes can be filmed only
                        write_replay(to_replay(folder.name, trained, self.seed, tapes), replay_path(folder))
                from echelon.console.wording import policies
                from echelon.viewing.video import draw

                frames = max(len(tape.qpos) for tape in tapes)
                print(f"drawing {frames} frames of {policies(len(tapes))} ...", flush=True)
                draw(tapes, out, format)
        except OSError as error:
            where = error.filename or out
            raise UserError(f"{where} cannot be written: {error.strerror}; choose another --out") from None
        print(f"Written to {out}")
        return 0


def _end(tape: "Tape") -> str:
    """How an episode ended, and when."""
    steps = "1 step" if tape.length == 1 else f"{tape.length} steps"
    if tape.outcome == "cut":
        return f"cut after {tape.seconds:.3g} s, {steps}"
    return f"{'ended at its time limit' if tape.outcome == 'time limit' else tape.outcome} after {steps}"


def _format(given: Record) -> Literal["mp4", "gif", "html"]:
    """What to write, from the flags and what is installed."""
    from importlib.util import find_spec

    ending = Path(given.out).suffix.removeprefix(".").lower() if given.out else ""
    if given.format != "auto":
        if ending in FORMATS and ending != given.format:
            raise UserError(f"--out ends in .{ending} but --format is {given.format}; leave out one of them")
        return given.format
    for format in FORMATS:
        if ending == format:
            return format
    if given.out:
        raise UserError(f"--out must end in .mp4, .gif or .html, or give --format; {given.out} does not")
    return "mp4" if find_spec("imageio_ffmpeg") and find_spec("PIL") else "html"
