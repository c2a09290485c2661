"""`echelon record`: an episode of a run's policies, as a film or as a page that shows it in 3D."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from echelon.commands.command import OnRun
from echelon.config.ranges import NOT_NEGATIVE
from echelon.errors import UserError, is_installed, require_package

if TYPE_CHECKING:
    from echelon.viewing.recorder import Tape


@dataclass(frozen=True)
class Record(OnRun):
    """Film a run's policies, or show them in 3D."""

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
        from echelon.viewing.drawing import MODULES

        format = _format(self, MODULES["mp4"])
        folder = self.folder()
        require_package("mujoco", "echelon record", "mujoco")
        for module in MODULES.get(format, ()):
            require_package(module, f"--format {format}, unlike html,", "video")

        from echelon.evaluation.trained import Trained
        from echelon.runs.checkpoint import saved_iterations
        from echelon.runs.durable import writing
        from echelon.runs.replays import replay_path, write_replay
        from echelon.viewing.recorder import record, to_replay

        if self.checkpoint == "all" and format != "html":
            raise UserError("a film shows one checkpoint; add --format html to --checkpoint all")
        earlier = saved_iterations(folder)[:-1] if self.checkpoint == "all" else []
        trained = Trained.load(folder, "best" if self.checkpoint == "best" else "newest")
        tapes = tuple(tape for one in earlier for tape in record(Trained.load(folder, one), self.policy, self.seed))
        tapes += record(trained, self.policy, self.seed)
        for tape in tapes:
            when = f"{tape.iteration:>7,}  " if earlier else ""
            print(f"{when}{tape.name:<12} return {tape.total_return:10.2f}, {_end(tape)}")
        out = Path(self.out) if self.out else folder.path / "replay" / f"{self.policy}.{format}"
        with writing(out, "choose another --out"):
            if format == "html":
                from echelon.viewing.page import write_page

                replay = to_replay(trained, self.seed, tapes)
                write_replay(replay, replay_path(folder))
                write_page(replay, out)
            else:
                from echelon.viewing.video import draw

                if not replay_path(folder).exists():  # a film of the leader leaves a replay of all alone
                    with suppress(UserError):  # meshes can be filmed only
                        write_replay(to_replay(trained, self.seed, tapes), replay_path(folder))
                print(f"drawing {max(len(tape.qpos) for tape in tapes)} frames ...", flush=True)
                draw(tapes, out, format)
        print(f"Written to {out}")
        return 0


def _end(tape: "Tape") -> str:
    """How an episode ended, and when."""
    steps = "1 step" if tape.length == 1 else f"{tape.length} steps"
    if tape.outcome == "cut":
        return f"cut after {tape.seconds:.3g} s, {steps}"
    return f"{'ended at its time limit' if tape.outcome == 'time limit' else tape.outcome} after {steps}"


def _format(given: Record, film: tuple[str, ...]) -> Literal["mp4", "gif", "html"]:
    """What to write, from the flags and whether the modules that a `film` needs are installed."""
    ending = Path(given.out).suffix.removeprefix(".").lower() if given.out else ""
    if given.format != "auto":
        if ending in ("mp4", "gif", "html") and ending != given.format:
            raise UserError(f"--out ends in .{ending} but --format is {given.format}; leave out one of them")
        return given.format
    if ending == "mp4" or ending == "gif" or ending == "html":
        return ending
    if given.out:
        raise UserError(f"--out must end in .mp4, .gif or .html, or give --format; {given.out} does not")
    return "mp4" if all(map(is_installed, film)) else "html"
