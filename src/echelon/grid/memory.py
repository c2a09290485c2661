"""What a run takes of a GPU: `python -m echelon.grid.memory SETTINGS FILE` trains a few iterations and writes it down.

It is the memory of the whole GPU, which nothing else may use meanwhile: what torch, Warp, recorded graphs and the CUDA
context take together is known to nobody else.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

from echelon.grid.process import read_settings
from echelon.runs.durable import replace_durably
from echelon.tasks import maker
from echelon.training.loop import set_up_torch
from echelon.training.resolve import resolve
from echelon.training.trainer import Trainer

ITERATIONS = 4
"""As it is, recording, a first replay, and one more; each with diagnostics, which take memory too."""


def main(settings: Path, out: Path) -> None:
    """Train, measure, write."""
    config = read_settings(settings).config
    resolved = resolve(replace(config, diagnostics=replace(config.diagnostics, every=1)))
    config = resolved.config
    set_up_torch(config)
    env = maker(config, spread_clocks=True)(config.num_envs, resolved.device, config.seed)
    trainer = Trainer(env, config, resolved.plan)
    for _ in range(ITERATIONS):
        trainer.iterate()
    free, total = torch.cuda.mem_get_info(resolved.device)
    replace_durably(out, json.dumps({"bytes": total - free, "total": total}).encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
