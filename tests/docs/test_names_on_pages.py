"""The pages name settings, variants, functions, metrics, commands and files that exist."""

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from tiny import tiny

from echelon.algorithms import AdversaryConfig, PbtConfig, Preset, student_of
from echelon.algorithms.variants import VARIANTS
from echelon.commands.command import parse
from echelon.commands.compare import Compare, make_jobs
from echelon.commands.train import configure
from echelon.config import DiagnosticsConfig
from echelon.config.checks import settings_of
from echelon.runs.metrics import read_metrics
from echelon.training.loop import train

ROOT = Path(__file__).parents[2]
GROUPS = "model|update|ensemble|pull|adversary|pbt|diagnostics"
PATTERNS = {"policy_i": r"policy_\d+", "GROUP": "(own|leader_borrows|follower_pull)", "NAME": r"[\w.]+"}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_settings_variants_and_functions_exist() -> None:
    for name in ("sapg.md", "cpo.md", "pbt.md", "paper-vs-code.md"):
        named = set(re.findall(rf"`((?:{GROUPS})\.(?!py`)\w+)", page(name)))
        assert named, name
        assert named <= set(settings_of(Preset())), name
    prefixes = "|".join({variant.split("_")[0] for variant in VARIANTS})
    for name in ("cpo.md", "paper-vs-code.md"):
        named = set(re.findall(rf"`((?:{prefixes})_\w+)`", page(name)))
        assert named, name
        assert named <= set(VARIANTS), name
    for name in ("ppo.md", "sapg.md", "cpo.md", "pbt.md", "your-algorithm.md"):
        pointers = re.findall(r"((?:`\w+`(?:, )?)+) in `([\w/]+\.py)`", page(name))
        pointers += [(f"`{function}`", path) for path, function in re.findall(r"`([\w/]+\.py): (\w+)", page(name))]
        assert pointers, name
        for functions, path in pointers:
            source = (ROOT / "src" / "echelon" / path).read_text()
            for function in re.findall(r"`(\w+)`", functions):
                assert re.search(rf"^(def|class) {function}\b", source, re.MULTILINE), f"{function} in {path}"


def documented(name: str) -> dict[str, re.Pattern[str]]:
    """Names in the first column of a page's table of metrics, and what each stands for."""
    table = page(name).split("| name | meaning |\n")[1].split("\n\n")[0]
    names = {name for row in table.splitlines()[1:] for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    split = {name: re.split("(" + "|".join(PATTERNS) + ")", name) for name in names}
    return {n: re.compile("".join(PATTERNS.get(part, re.escape(part)) for part in parts)) for n, parts in split.items()}


def test_metrics_are_documented_all_that_runs_write_and_nothing_else(tmp_path: Path) -> None:
    """After two iterations of every algorithm, with all that can be switched on."""
    on: dict[str, Any] = {
        "adversary": AdversaryConfig(coef=0.01, hidden=(8,)),
        "diagnostics": DiagnosticsConfig(every=1),
    }
    on["pbt"] = PbtConfig(mutable=("learning_rate", "clip"))
    written: dict[str, set[str]] = {}
    configs = [tiny("Hopper", tmp_path / algo, algo, **on) for algo in ("ppo", "pbt", "sapg", "cpo")]
    configs.append(replace(student_of(configs[0], str(tmp_path / "ppo")), out=str(tmp_path / "distil")))
    for config in configs:
        algo, lines = config.algo, read_metrics(train(config))
        assert len(lines) == 2
        written[algo] = set().union(*lines)
        known = documented("metrics.md") | (documented(f"{algo}.md") if algo in ("pbt", "distil") else {})
        assert [name for name in written[algo] if not any(each.fullmatch(name) for each in known.values())] == [], algo
    every = set().union(*written.values())
    for name, metrics in {"metrics.md": every, "pbt.md": written["pbt"], "distil.md": written["distil"]}.items():
        missing = [text for text, each in documented(name).items() if not any(map(each.fullmatch, metrics))]
        assert missing == [], name


def commands(text: str, name: str) -> list[list[str]]:
    """The words after every `echelon NAME` in a page or a file, without comments and what belongs to the shell."""
    text = text.replace("\\\n", " ").replace(">-", "")
    found = []
    for line in re.findall(rf"echelon {name} ([^\n`#&]*(?:\n {{10,}}--[^\n`#&]*)*)", text):
        words = shlex.split(re.sub(r"\$\{?\w+[^}\"\s]*\}?", "1", line.replace("\n", " ")))
        if words[:1] not in ([], ["..."], ["1"], ["TASK"], ["@"], ["$@"]) and words[1:2] != ["..."]:
            found.append(words)
    return found


def test_commands_on_many_machines_are_understood(tmp_path: Path) -> None:
    """In files, all of which the page names."""
    files, found = sorted((ROOT / "examples" / "scale").iterdir()), 0
    for path in files:
        text = path.read_text()
        for task, *flags in commands(text, "train"):
            configure(task, re.sub(r"--seeds( \d+)+", "", " ".join(flags)).split())  # a flag of the command, no setting
            found += 1
        for words in commands(text, "compare"):
            if "--on" in words:
                place = words.index("--on")
                assert words[place + 1].startswith("ray")
                words = [*words[:place], *words[place + 2 :]]
            assert make_jobs(parse(Compare, "compare", [*words, "--out", str(tmp_path)]))
            found += 1
        if path.suffix == ".yaml":
            assert all(isinstance(document, dict) for document in yaml.safe_load_all(text))
        if path.suffix == ".sbatch":
            subprocess.run(["bash", "-n", str(path)], check=True)
            assert "scontrol requeue" in text
    assert found >= 4
    named = set(re.findall(r"examples/scale/[\w.]+", page("scale.md")))
    assert named == {f"examples/scale/{path.name}" for path in files}


def test_results_are_listed_and_begin_with_their_answer() -> None:
    folders = [path for path in (ROOT / "results").iterdir() if path.is_dir() and path.name != "__pycache__"]
    listed = (ROOT / "results" / "README.md").read_text()
    assert [path.name for path in folders if f"({path.name}/" not in listed and f"`{path.name}`" not in listed] == []
    for path in (ROOT / "results").glob("*/README.md"):
        title, answer, *_ = path.read_text().split("\n\n")
        assert title.startswith("# "), path
        assert answer.lstrip("*")[0].isalnum(), path  # prose, bold or not
