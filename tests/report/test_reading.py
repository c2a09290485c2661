"""What a report makes of run folders, broken ones above all."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from report.synthetic import write_run

from echelon.errors import UserError
from echelon.report.reading import find_runs, read_run, read_runs


def problem(path: Path) -> str:
    """The one sentence a folder is named with."""
    runs, problems = read_runs([path])
    assert runs == []
    assert [one.path for one in problems] == [str(path)]
    return problems[0].sentence


def test_a_run_as_it_was_written(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "cpo", seed=3, iterations=40))
    assert (run.name, run.task) == ("CartpoleSwingup-cpo-s3", "CartpoleSwingup")
    assert (run.iterations, run.finished, run.notes) == (40, True, [])
    assert run.env_steps == 40 * 96 * 16
    assert math.isnan(run.columns["return/leader"][0])  # null: no episode had ended
    assert len(run.columns["ess"]) == 40
    assert np.isfinite(run.columns["ess"]).sum() == 4  # measured every tenth iteration
    assert len(run.distances) == 4
    assert run.settings["update.horizon"] == 16
    assert run.settings["policies"] == 6  # what the default stands for
    assert run.machine["device"] == "a CPU"
    assert run.machine["revision"] == "0123456789+changes"
    assert "loss/0" in run.columns  # any metric can be drawn


def test_the_final_score_is_the_mean_of_the_last_twentieth(tmp_path: Path) -> None:
    path = write_run(tmp_path, iterations=60)
    lines = [{"iteration": i, "return/leader": float(i)} for i in range(1, 61)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(path).final("return/leader") == pytest.approx((58 + 59 + 60) / 3)
    lines[-1]["return/leader"] = math.nan
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines).replace("NaN", "null"))
    assert read_run(path).final("return/leader") == pytest.approx((58 + 59) / 2)
    assert math.isnan(read_run(path).final("successes/leader"))


def test_an_unfinished_run_says_how_far_it_got(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, iterations=30, planned=1200))
    assert not run.finished
    assert run.notes == ["unfinished: 30 of 1,200 iterations"]


def test_a_line_cut_short_and_a_damaged_one(tmp_path: Path) -> None:
    path = write_run(tmp_path, iterations=20)
    text = (path / "metrics.jsonl").read_text().splitlines()
    text[4] = text[4][:50]
    (path / "metrics.jsonl").write_text("\n".join(text)[:-30])
    run = read_run(path)
    assert len(run.columns["iteration"]) == 18
    assert run.notes == ["1 damaged lines of metrics.jsonl were skipped", "unfinished: 19 of 20 iterations"]


def test_maps_of_another_size_are_left_out(tmp_path: Path) -> None:
    path = write_run(tmp_path, iterations=20)
    with (path / "diagnostics" / "kl.jsonl").open("a") as file:
        file.write('{"env_steps": 5, "kl": [[0, 1], [1, 0]]}\n[1]\n{"env_steps": 5}\nnonsense\n')
        file.write('{"env_steps": 5, "kl": [[0, 1, 1, 1, 1, 1], [1, 0, 1, 1, 1, 1]]}\n')
    assert len(read_run(path).distances) == 2


def test_of_many_maps_the_first_the_middle_and_the_last_are_kept(tmp_path: Path) -> None:
    path = write_run(tmp_path, iterations=12)
    line = {"kl": [[0.0] * 6] * 6}
    steps = range(0, 1001)
    text = "".join(json.dumps({"iteration": k, "env_steps": k} | line) + "\n" for k in steps)
    (path / "diagnostics" / "kl.jsonl").write_text(text)
    kept = [found["env_steps"] for found in read_run(path).distances]
    assert (len(kept), kept[0], kept[30], kept[60]) == (61, 0, 500, 1000)
    assert {b - a for a, b in itertools.pairwise(kept)} == {16, 17}  # 1000 / 60 = 16.7


def test_folders_that_are_no_runs_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert problem(tmp_path / "empty") == "it is empty"
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "photo.jpg").write_text("")
    assert problem(tmp_path / "foreign") == "it is not a run folder: it has no config.json"
    (tmp_path / "file").write_text("")
    assert problem(tmp_path / "file") == "it is a file, not a run folder"


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ("{", "its config.json cannot be read"),
        ("[]", "its config.json was not written by echelon"),
        ('{"config": {"task": 3}}', "its config.json was not written by echelon"),
        ('{"config": {"task": "A", "algo": 3}}', "its config.json cannot be used: algo takes str"),
        ('{"config": {"task": "A", "colour": 1}}', "its config.json cannot be used: colour is not a setting"),
    ],
)
def test_a_broken_config_is_named(tmp_path: Path, config: str, sentence: str) -> None:
    path = write_run(tmp_path)
    (path / "config.json").write_text(config)
    assert problem(path).startswith(sentence)


def test_a_run_without_metrics_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    (path / "metrics.jsonl").write_text('{"iter')
    assert problem(path) == "it has a config but no metrics yet"
    (path / "metrics.jsonl").unlink()
    assert problem(path) == "it has a config but no metrics yet"


def test_settings_of_a_task_nobody_knows_are_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, task="MyRobot")
    document = json.loads((path / "config.json").read_text())
    document["config"]["env"] = {"arms": 3}
    document["sessions"] = "lost"
    (path / "config.json").write_text(json.dumps(document))
    assert read_run(path).settings["env.arms"] == 3


def test_one_broken_folder_does_not_stop_others(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "ppo", seed=seed, iterations=3) for seed in range(2)]
    (tmp_path / "empty").mkdir()
    runs, problems = read_runs([paths[0], tmp_path / "empty", *paths[1:]])
    assert [run.config.seed for run in runs] == [0, 1]
    assert [one.sentence for one in problems] == ["it is empty"]
    assert runs[-1].columns["gradient_steps"].tolist() == [5.0, 10.0, 15.0]


def test_a_folder_of_runs_stands_for_them(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, seed=seed, iterations=2) for seed in (1, 0)]
    for name in ("logs", "half/checkpoints", "report"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "report" / "index.html").write_text("")
    assert find_runs([tmp_path, runs[0]]) == [runs[1], runs[0], tmp_path / "half"]
    assert find_runs([tmp_path / "report", tmp_path / "logs"]) == [tmp_path / "logs"]


def test_a_mistyped_path_is_a_mistake(tmp_path: Path) -> None:
    write_run(tmp_path, iterations=2)
    with pytest.raises(UserError, match=r"there is no run folder .* did you mean .*CartpoleSwingup-cpo-s0\?"):
        find_runs([tmp_path / "CartpoleSwingup-cpo-s1"])


def test_equal_names_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / above, iterations=2) for above in ("a", "b")]
    paths.append(write_run(tmp_path / "a", "ppo", iterations=2))
    runs, _ = read_runs(paths)
    same = "CartpoleSwingup-cpo-s0"
    assert [run.name for run in runs] == [f"a/{same}", f"b/{same}", "CartpoleSwingup-ppo-s0"]


def test_an_algorithm_from_outside_is_read_like_any_other(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "mine", iterations=2, level=1.0))
    assert run.config.algo == "mine"
