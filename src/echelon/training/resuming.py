"""Starting a run: from its newest valid checkpoint, with the networks of another run, or from scratch."""

import math
from collections.abc import Sequence

from echelon.console.view import View
from echelon.envs.contract import Adaptive, Stateful
from echelon.errors import UserError, first_line
from echelon.runs import checkpoint
from echelon.runs.checkpoint import Checkpoint
from echelon.runs.folder import RunFolder
from echelon.training.trainer import Trainer


def resume_all(trainer: Trainer, folders: Sequence[RunFolder], view: View) -> list[float]:
    """Load the newest valid checkpoint of each run, if there is one; seconds that each has taken so far. Several seeds
    go back to the newest iteration that all of them have saved.

    Rank 0 chooses. What is learned is then the same on all ranks to the bit, whatever machine each is on.
    """
    ranks = trainer.ranks
    common = ranks.attempt(lambda: _common_iteration(folders, view) if len(folders) > 1 and ranks.first else None)
    common = ranks.broadcast(common)
    seconds = [_resume(run, folder, view, common) for run, folder in zip(trainer.runs, folders, strict=True)]
    trainer.take_in()
    return seconds


def _resume(trainer: Trainer, folder: RunFolder, view: View, iteration: int | None) -> float:
    """Load one run's newest checkpoint, or that of an iteration; 0 starts over."""
    ranks = trainer.ranks
    found = ranks.attempt(lambda: _find(trainer, folder, view, iteration) if ranks.first else None)
    chosen = ranks.broadcast(None if found is None else found.iteration)
    seconds = ranks.attempt(lambda: _load(trainer, folder, found, chosen, view))
    trainer.sync_learned()
    return seconds


def _common_iteration(folders: Sequence[RunFolder], view: View) -> int | None:
    """The newest iteration that every seed has a valid checkpoint of; 0 if they have none in common, None if none was
    ever saved.

    A kill while the seeds are saved one after another leaves some of them one checkpoint ahead, and no more.
    """
    saved = [checkpoint.saved_iterations(folder) for folder in folders]
    if not any(saved):
        return None
    common = sorted(set.intersection(*map(set, saved)), reverse=True)
    at = next((iteration for iteration in common if _valid(folders, iteration, view)), 0)
    for folder, iterations in zip(folders, saved, strict=True):
        if sum(iteration > at for iteration in iterations) > 1:
            behind = min(zip(saved, folders, strict=True), key=lambda pair: max(pair[0], default=0))[1]
            raise UserError(
                f"{folder.path} is ahead of {behind.path}, so they cannot continue side by side; train each alone, "
                "with --seed and --out, or start again with another --out"
            )
    return at


def _valid(folders: Sequence[RunFolder], iteration: int, view: View) -> bool:
    """Whether every seed's checkpoint of an iteration can be used."""
    try:
        for folder in folders:
            checkpoint.load(folder, iteration)
    except UserError as error:
        view.message(f"iteration {iteration} was skipped: {error}")
        return False
    return True


def _find(trainer: Trainer, folder: RunFolder, view: View, iteration: int | None) -> Checkpoint | None:
    checkpoint.tidy(folder.checkpoints)  # a run that is done saves no more, which would tidy up too
    if iteration == 0:
        return None
    found = checkpoint.load(folder, iteration) if iteration else checkpoint.find(folder, "newest", view.message)
    if found is None:  # a fresh start would drop what the run has logged
        if checkpoint.saved_iterations(folder):
            raise UserError(f"every checkpoint of {folder.path} is damaged; restore one, or start again with --out")
        if folder.lost_checkpoints:
            raise UserError(
                f"{folder.path} has logged iterations but no checkpoint is left, and training again would overwrite "
                "them; put its checkpoints back, or choose another folder with --out"
            )
        return None
    if found.iteration > trainer.config.num_iterations:
        raise UserError(
            f"{folder.path} is at iteration {found.iteration} already, beyond the {trainer.config.num_iterations} "
            "that were asked for; ask for more, or choose another folder with --out"
        )
    here = trainer.env.device.type
    if (there := found.state.get("device", here)) != here:  # engines and random numbers differ
        raise UserError(
            f"{folder.path} was trained on {there}, not {here}, where it cannot continue; use --device {there}"
        )
    return found


def _load(trainer: Trainer, folder: RunFolder, found: Checkpoint | None, chosen: int | None, view: View) -> float:
    if chosen is None:
        if trainer.config.start_from:
            _warm_start(trainer, trainer.config.start_from, view)
        return 0.0
    found = found or checkpoint.load(folder, chosen)
    same = found.ranks == trainer.ranks.size
    try:
        trainer.load_learned(found.state["trainer"])
        if same:
            trainer.load_own_state(found.of_rank(trainer.ranks.rank))
        else:
            _begin_episodes(trainer, found)
        seconds = float(found.state["seconds"])
    except UserError:
        raise
    except Exception as error:  # the file is untrusted
        raise UserError(
            f"checkpoint {found.path} does not fit this run ({first_line(error)}): it is of another task or network, "
            "or no version of Echelon wrote it; remove it, or choose another folder with --out"
        ) from None
    if trainer.iteration != found.iteration or not 0 <= seconds < math.inf:
        raise UserError(f"checkpoint {found.path} contradicts itself; remove it, or choose another folder with --out")
    view.message(f"resumed {folder.path} after iteration {trainer.iteration}")
    if not same:
        view.message(
            f"{_ranks(found.ranks)} saved it and {_ranks(trainer.ranks.size)} will train it now, so new episodes "
            "start: learning continues, but not to the bit"
        )
    elif not isinstance(trainer.env, Stateful) or not found.state["trainer"]["env"]:
        view.message(
            "the environment saves no state (state_dict), so new episodes start: learning continues, but not to the bit"
        )
    return seconds


def _begin_episodes(trainer: Trainer, found: Checkpoint) -> None:
    """Start new episodes, because another number of ranks divides the environments differently; what they share, such
    as a curriculum, is kept."""
    state = found.state["trainer"]["env"]
    if isinstance(trainer.env, Adaptive) and state:
        trainer.env.adopt(state, fixed=False)
    trainer.collector.reset()


def _ranks(count: int) -> str:
    return "one process" if count == 1 else f"{count} ranks"


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
