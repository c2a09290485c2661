"""Evaluation while a run is trained: `train(config, callbacks=[evaluate_every(50)])`, or `--evaluate-every 50`."""

import dataclasses
import json

from echelon.envs.contract import MakeEnv
from echelon.evaluation.evaluate import evaluate
from echelon.evaluation.scores import write_scores
from echelon.runs.durable import replace_durably
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import jsonable


class evaluate_every:
    """Score every policy each `every` iterations and at the end, in environments of its own.

    Results are appended to the run's `evaluations.jsonl`, the last also written to `evaluation.json`. The leader's
    return with deterministic actions is logged as `evaluated/leader`.
    """

    def __init__(self, every: int, num_envs: int = 32, seed: int = 1000) -> None:
        self.every, self.num_envs, self.seed = every, num_envs, seed

    def on_checkpoint(self, folder: RunFolder, make_env: MakeEnv | None) -> dict[str, float]:
        """Score the newest checkpoint."""
        found = evaluate(folder, self.num_envs, self.seed, folder.config.device, "newest", make_env)
        write_scores(found, folder.evaluation)
        file = folder.path / "evaluations.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        lines = [line for line in lines if line["iteration"] < found.iteration]  # a resumed run may repeat one
        lines.append(jsonable(dataclasses.asdict(found)))
        replace_durably(file, "".join(json.dumps(line) + "\n" for line in lines).encode())
        return {"evaluated/leader": found.scores[found.leader].return_mean}
