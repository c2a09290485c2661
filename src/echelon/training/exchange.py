"""Connect a run to the islands it exchanges networks with."""

from echelon.algorithms.algorithm import Parts
from echelon.console.view import View
from echelon.errors import UserError
from echelon.islands.island import Island
from echelon.runs.folder import RunFolder
from echelon.training.trainer import Trainer


def settle_on_island(trainer: Trainer, folder: RunFolder, view: View) -> Island | None:
    """This run's island; None unless `islands.place` is set."""
    config, layout = trainer.config, trainer.layout
    if config.islands.place is None:
        return None
    if layout.ranks.size > 1:
        raise UserError("--islands.place is for runs of one process; leave it out under torchrun")
    parts = Parts(trainer.env, config, layout, trainer.settings, trainer.update, trainer.collector)
    return Island(parts, trainer.selection, folder, trainer.iteration, view.message)
