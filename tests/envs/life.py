"""A run in another library's environment, from the first iteration to the report."""

import json
from pathlib import Path

from echelon import cli

SMALL = ["--device", "cpu", "--model.hidden", "16", "--checkpoint-every", "1", "--diagnostics.every", "0"]


def live(source: str, out: Path, *flags: str) -> list[dict[str, float]]:
    """Train, resume, evaluate, report; what was logged."""
    for iterations in ("2", "4"):
        words = ["train", "--env", source, *SMALL, *flags, "--out", str(out), "--iterations", iterations]
        assert cli.main(words) == 0
    assert cli.main(["evaluate", str(out), "--num-envs", "2", "--device", "cpu"]) == 0
    assert cli.main(["report", str(out)]) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    return lines
