"""Which runs are one method, and what methods are called."""

import json
from pathlib import Path
from typing import Any

from report.synthetic import write_run

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import UpdateConfig
from echelon.report.methods import group_runs
from echelon.report.reading import Run, read_run


def read(folder: Path, algo: str = "cpo", seed: int = 0, **more: Any) -> Run:
    return read_run(write_run(folder, algo, seed=seed, iterations=2, **more))


def test_methods_are_algorithms_unless_settings_differ(tmp_path: Path) -> None:
    plain = [read(tmp_path / "a", seed=seed) for seed in (0, 1)]
    other_task = read(tmp_path / "a", task="Hopper", update=UpdateConfig(horizon=32))
    methods = group_runs([*plain, other_task])
    assert [(method.name, len(method.runs)) for method in methods] == [("CPO", 3)]
    assert methods[0].on("Hopper") == [other_task]
    longer = read(tmp_path / "c", seed=7, planned=50)
    assert [method.name for method in group_runs([*plain, longer])] == ["CPO"]


def test_settings_that_an_older_run_lacks_had_their_defaults(tmp_path: Path) -> None:
    """A run from before a setting existed, and one that came from another preset with the same values, are alike."""
    paths = [write_run(tmp_path, seed=seed, iterations=2) for seed in (0, 1)]
    document = json.loads((paths[0] / "config.json").read_text())
    del document["config"]["pull"]["temperature"]
    document["config"]["preset"] = "paper"
    (paths[0] / "config.json").write_text(json.dumps(document))
    assert [method.name for method in group_runs([read_run(path) for path in paths])] == ["CPO"]


def test_names_say_only_what_differs_and_of_what(tmp_path: Path) -> None:
    """One setting that varies is named for all; of several, only where it is not what most runs have."""
    runs = [read(tmp_path / str(value), pull=PullConfig(temperature=value)) for value in (0.2, 0.5)]
    assert [method.name for method in group_runs(runs)] == ["CPO · pull temperature 0.2", "CPO · pull temperature 0.5"]
    runs = [read(tmp_path / f"coef {value}", adversary=AdversaryConfig(coef=value)) for value in (0.01, 0.1)] + runs
    names = [method.name for method in group_runs([*runs, read(tmp_path / "p", "ppo")])]
    varied = ("adversary coef 0.01", "adversary coef 0.1", "pull temperature 0.5")
    assert names == ["PPO", "CPO", *(f"CPO · {setting}" for setting in varied)]


def test_a_variant_goes_by_its_name(tmp_path: Path) -> None:
    """After the algorithm it varies; what else its runs differ in is added, the algorithm too."""

    def varied(folder: str, *variant: str, algo: str = "cpo", seed: int = 0) -> Run:
        pull = PullConfig(beta=0.0 if variant else 0.001)
        return read(tmp_path / folder, algo, seed, variant=variant, pull=pull)

    no_pull = [varied("a", "no_pull", seed=seed) for seed in (0, 1)]
    runs = [*no_pull, varied("a"), varied("a", "no_pull", "entropy_off"), varied("a", algo="sapg")]
    methods = group_runs(runs)
    assert [method.name for method in methods] == ["SAPG", "CPO", "no_pull", "no_pull+entropy_off"]
    assert [len(method.runs) for method in methods] == [1, 1, 2, 1]
    names = [method.name for method in group_runs([*no_pull, varied("b", "no_pull", algo="sapg")])]
    assert names == ["no_pull · algo sapg", "no_pull · algo cpo"]
