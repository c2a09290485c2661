"""`echelon plan` as a user meets it."""

import re
from pathlib import Path

import pytest

from echelon import cli

BENCH = Path(__file__).parents[2] / "results" / "bench" / "AllegroHand-cpo.json"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "plan needs a task"),
        (["AllegroHand"], "plan needs a number of GPUs, as in echelon plan AllegroHand --gpus 64"),
        (["AllegroHand", "--gpus", "0"], "--gpus takes a whole number of at least 1, not '0'"),
        (["AllegroHand", "--gpus", "1000001"], "--gpus takes at most 1,000,000, not 1,000,001"),
        (["AllegroHand", "--gpus", "8", "--steps", "many"], "--steps takes a number above 0, not 'many'"),
        (["AllegroHand", "--gpus", "8", "--steps", "nan"], "--steps takes a number above 0, not 'nan'"),
        (["AllegroHand", "--gpus", "8", "--jitter", "-1"], "--jitter takes a number of at least 0, not '-1'"),
        (["AllegroHand", "--gpus", "8", "--rates", "a100"], "--rates takes h200, not 'a100'"),
        (["AllegroHand", "--gpus", "8", "--rates", "h200"], "there are no published rates of AllegroHand ppo_x4"),
        (["AllegroHand", "--gpus", "8", "--rates", "h200", "--bench", "x"], "--rates and --bench both say"),
        (["AllegroHand", "--gpus", "8", "--bench", "x", "--algo", "cpo"], "--algo does not go with --bench"),
        (["AllegroHand", "--gpus", "8", "--bench", __file__], "is not a file of echelon bench"),
        (["Anymal", "--gpus", "8", "--bench", str(BENCH)], "AllegroHand-cpo.json is of AllegroHand, not of Anymal"),
    ],
    ids=lambda value: " ".join(value[:5]) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *arguments]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("milliseconds", ["-1", "NaN", "0", "1e999", "[]"])
def test_a_bench_whose_times_make_no_sense(
    milliseconds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = tmp_path / "bench.json"
    bench.write_text(re.sub(r'"iteration_ms": [\d.]+', f'"iteration_ms": {milliseconds}', BENCH.read_text()))
    assert cli.main(["plan", "AllegroHand", "--gpus", "8", "--bench", str(bench)]) == 2
    assert capsys.readouterr().err.startswith(f"echelon: {bench} is not a file of echelon bench")


def test_a_plan_by_a_bench(capsys: pytest.CaptureFixture[str]) -> None:
    """159.8 ms an iteration, with 20 steps of 228,657 parameters: each of 8 GPUs sends 20 · 7/4 · 0.915 MB = 32 MB."""
    assert cli.main(["plan", "AllegroHand", "--gpus", "8", "--steps", "2e10", "--bench", str(BENCH)]) == 0
    said = capsys.readouterr().out
    assert "AllegroHand, 20,000,000,000 environment steps on 8 GPUs, 196,608 steps an iteration each" in said
    assert "32.01 MB" in said
    assert "Train 2 islands of 4 GPUs." in said
    assert "132.3 ms an iteration without its update, 27.6 ms the update, of 20 optimizer steps" in said


def test_a_plan_by_what_is_measured_here(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--num-envs", "96", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--repeats", "3"]
    assert cli.main(["plan", "CartpoleSwingup", "--gpus", "2", "--algo", "ppo", *tiny]) == 0
    said = capsys.readouterr().out
    assert "Rates: measured on this machine's CPU" in said
    assert "768 steps an iteration each" in said
