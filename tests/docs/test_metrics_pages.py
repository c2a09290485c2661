"""The tables of metrics name what runs write, all of it and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

from echelon.algorithms import AdversaryConfig, PbtConfig
from echelon.config import DiagnosticsConfig
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train

DOCS = Path(__file__).parents[2] / "docs"
ALGOS = ("ppo", "pbt", "sapg", "cpo")
PATTERNS = {"policy_i": r"policy_\d+", "GROUP": "(own|leader_borrows|follower_pull)", "NAME": r"[\w.]+"}


def documented(page: str) -> set[str]:
    """Names in the first column of a page's table of metrics."""
    table = (DOCS / page).read_text().split("| name | meaning |\n")[1].split("\n\n")[0]
    return {name for row in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def pattern(name: str) -> re.Pattern[str]:
    """What a documented name stands for."""
    parts = re.split("(" + "|".join(PATTERNS) + ")", name)
    return re.compile("".join(PATTERNS.get(part, re.escape(part)) for part in parts))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of metrics after two iterations of every algorithm, with all that can be switched on."""
    on: dict[str, Any] = {
        "adversary": AdversaryConfig(coef=0.01, hidden=(8,)),
        "diagnostics": DiagnosticsConfig(every=1),
        "pbt": PbtConfig(mutable=("learning_rate", "clip")),
    }
    names: dict[str, set[str]] = {}
    for algo in ALGOS:
        lines = read_metrics(train(tiny("Hopper", tmp_path_factory.mktemp("runs") / algo, algo, **on)))
        assert len(lines) == 2
        names[algo] = set().union(*lines)
    return names


@pytest.mark.parametrize("algo", ALGOS)
def test_every_metric_is_documented(algo: str, written: dict[str, set[str]]) -> None:
    pages = ("ppo.md", "pbt.md") if algo == "pbt" else ("ppo.md",)
    known = [pattern(name) for page in pages for name in documented(page)]
    assert [name for name in written[algo] if not any(each.fullmatch(name) for each in known)] == []


def test_everything_documented_is_written(written: dict[str, set[str]]) -> None:
    for page, names in (("ppo.md", set().union(*written.values())), ("pbt.md", written["pbt"])):
        missing = {name for name in documented(page) if not any(pattern(name).fullmatch(each) for each in names)}
        assert missing == set(), page
