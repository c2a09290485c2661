"""`echelon record`: an episode of a run's policies or an exported one, as a film or as a page that shows it in 3D."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from echelon.commands.command import OnPolicies
from echelon.config.ranges import NOT_NEGATIVE
from echelon.errors import UserError, is_installed, require_package
from echelon.runs.durable import writing

if TYPE_CHECKING:
    from echelon.viewing.recorder import Tape


@dataclass(frozen=True)
class Record(OnPolicies):
    """Film a run's policies or an exported one, or show them in 3D."""

    checkpoints = ("newest", "best", "all")
    refused = dict.fromkeys(("--video", "--render"), "; --format mp4 makes a film") | {"--episodes": ": it shows one"}

    policy: str = "all"
    """leader, a policy's number, or all of them side by side; without RUN, an exported policy's name or file."""
    format: Literal["auto", "mp4", "gif", "html"] = "auto"
    """A film, or a page in 3D; auto: as --out ends, else mp4 if the video extra is installed, html if not."""
    out: str | None = None
    """Where to write it; if unset, into the run folder's replay/, or here if there is no run."""
    seed: Annotated[int, NOT_NEGATIVE] = 1000
    """Seed of the episode. Every policy starts in the same state."""
    checkpoint: str = "newest"
    """Which checkpoint to show: newest, best, the iteration it was saved after, or in a page all that were kept."""

    def run(self) -> None:
        from echelon.viewing.drawing import MODULES

        format, source = _format(self, MODULES["mp4"]), self.source()
        require_package("mujoco", "echelon record", "mujoco")
        for module in MODULES.get(format, ()):
            require_package(module, f"--format {format}, unlike html,", "video")

        from echelon.export.files import opened
        from echelon.runs.checkpoint import is_newest, saved_iterations
        from echelon.runs.replays import replay_path, write_replay
        from echelon.viewing.recorder import record, to_replay

        if self.checkpoint == "all" and format != "html":
            raise UserError("a film shows one checkpoint; add --format html to --checkpoint all")
        trained = opened(source, self.which)
        folder = trained.folder
        earlier = saved_iterations(folder)[:-1] if self.checkpoint == "all" else []
        tapes = tuple(tape for one in earlier for tape in record(opened(folder, one), self.shown, self.seed))
        tapes += record(trained, self.shown, self.seed)
        for tape in tapes:
            when = f"{tape.iteration:>7,}  " if earlier else ""
            print(f"{when}{tape.name:<12} return {tape.total_return:10.2f}, {_end(tape)}")
        stored = replay_path(folder.path) if self.run_folder else None
        place = stored.with_name(f"{self.policy}.{format}") if stored else Path(f"{folder.name}.{format}")
        out = Path(self.out) if self.out else place
        if not is_newest(folder, self.which, trained.iteration):
            stored = None  # reports show the stored replay beside scores of the newest
        with writing(out, "choose another --out"):
            if format == "html":
                from echelon.viewing.page import write_page

                replay = to_replay(trained, self.seed, tapes)
                if stored:
                    write_replay(replay, stored)
                write_page(replay, out)
            else:
                from echelon.viewing.video import draw

                print(f"drawing {max(len(tape.qpos) for tape in tapes)} frames ...", flush=True)
                draw(tapes, out, format)
                if stored and not stored.exists():  # a film of the leader leaves a replay of all alone
                    with suppress(UserError):  # meshes that are too large for a page can be filmed
                        write_replay(to_replay(trained, self.seed, tapes), stored)
        print(f"Written to {out}")


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
    if ending == "mp4" or ending == "gif" or ending == "html":  # which a type checker can follow
        return ending
    if given.out:
        raise UserError(f"--out must end in .mp4, .gif or .html, or give --format; {given.out} does not")
    return "mp4" if all(map(is_installed, film)) else "html"
