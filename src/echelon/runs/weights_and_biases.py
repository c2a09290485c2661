"""A run's metrics in Weights & Biases, with `--wandb online` or `offline`; needs the wandb extra.

One run folder is one run there: its id is kept in `wandb/id`, so a resumed run continues the same curves. The
horizontal axis is `env_steps`, as in TensorBoard. Offline runs lie in `wandb/` until `wandb sync` sends them.
"""

import math
import uuid
import warnings
from collections.abc import Callable, Mapping

from echelon.config import to_dict
from echelon.errors import UserError, first_line
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder

PROJECT = "echelon"


class WeightsAndBiases:
    """Sends metrics. If the service fails, its curves end and training continues."""

    def __init__(self, folder: RunFolder) -> None:
        import wandb

        config = folder.config
        try:
            self._run = wandb.init(
                project=PROJECT,
                name=folder.name,
                id=_run_id(folder),
                resume="allow",
                reinit="create_new",  # seeds that train side by side are a run each
                dir=str(folder.path),
                mode=config.wandb,
                config=to_dict(config),
                tags=[config.task, config.algo],
                settings=wandb.Settings(silent=True, console="off", disable_git=True),
            )
        except Exception as error:  # wandb raises many types of its own
            reason = first_line(error)
            raise UserError(
                f"Weights & Biases does not start ({reason}); log in with wandb login, or use --wandb offline"
            ) from None
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")
        self._works = True

    def write(self, metrics: Mapping[str, float]) -> None:
        """One iteration. Values that are not finite are left out, as in TensorBoard."""
        self._attempt(lambda: self._run.log({name: x for name, x in metrics.items() if math.isfinite(x)}))

    def close(self) -> None:
        """Wait until everything is stored or sent."""
        self._attempt(self._run.finish)

    def _attempt(self, act: Callable[[], object]) -> None:
        if not self._works:
            return
        try:
            act()
        except Exception as error:  # training continues without the service
            self._works = False
            warnings.warn(f"Weights & Biases is left out from here on: {error}", UserWarning, stacklevel=3)


def _run_id(folder: RunFolder) -> str:
    """The run's id at Weights & Biases, drawn once and stored."""
    path = folder.path / "wandb" / "id"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        replace_durably(path, uuid.uuid4().hex[:12].encode())
    return path.read_text().strip()
