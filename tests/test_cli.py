"""The command line as a user meets it, mistakes above all."""

import json
import re
import subprocess
import sys
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import echelon.evaluation.evaluate
import echelon.tasks
from echelon import cli
from echelon.algorithms import BUILT_IN, Preset, converted
from echelon.algorithms.variants import VARIANTS
from echelon.config import TaskConfig, TaskInfo, TrainConfig, UpdateConfig
from echelon.config.checks import setting
from echelon.console.flags import flags_of
from echelon.console.view import Preempted
from echelon.errors import UserError, nearest
from echelon.runs.durable import require_writable
from echelon.runs.evaluations import Evaluation, PolicyScore
from echelon.runs.folder import RunFolder
from echelon.training.resolve import Resolved


@dataclass(frozen=True)
class PendulumConfig(TaskConfig):
    """Settings of the stand-in task."""

    velocities: bool = True
    """Show velocities to the policy."""
    reach: tuple[float, float] = (0.1, 0.5)
    """Range of targets."""


PRESET = Preset(task="Pendulum", num_envs=96, device="cpu", env=PendulumConfig(), update=UpdateConfig(horizon=8))
COMPLETE = replace(converted(PRESET, BUILT_IN["cpo"]), policies=6)
"""What is trained with: the algorithm's number of policies is filled in."""


class StandIns:
    """Trainer, evaluator, tasks and presets, so that only the command line is tested here."""

    def __init__(self) -> None:
        self.trained: list[TrainConfig] = []
        self.evaluated: list[tuple[Any, ...]] = []
        self.fails_with: BaseException | None = None

    def preset(self, task: str) -> TrainConfig:
        if task != PRESET.task:
            raise UserError(f"{task} is not a task{nearest(task, [PRESET.task]) or '; echelon tasks lists them'}")
        return PRESET

    def train(self, resolved: Resolved, view: Any = None, *, callbacks: Any = (), change: bool = False) -> RunFolder:
        config = resolved.config
        self.trained.append(config)
        if self.fails_with is not None:
            raise self.fails_with
        folder = RunFolder.create_or_resume(config, change=change)
        folder.metrics.write_text("{}\n")  # the run has begun
        view.start(config, folder, 1, 0)
        view.update({"iteration": 1})
        return folder

    def evaluate(self, folder: RunFolder, num_envs: int, seed: int, device: str, checkpoint: str) -> Evaluation:
        self.evaluated.append((folder.config, num_envs, seed, device, checkpoint))
        score = PolicyScore(0, "deterministic", num_envs, 1.5, 0.5, 10.0, 0.25, {"successes": 2.0})
        return Evaluation("Pendulum", "cpo", 3, 768, seed, (score, replace(score, policy=1, mode="sampled")))


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    stand_ins = StandIns()
    train = types.ModuleType("echelon.training.loop")
    vars(train).update(train=stand_ins.train, train_seeds=None)
    monkeypatch.setitem(sys.modules, "echelon.training.loop", train)
    monkeypatch.setattr(
        echelon.tasks, "TASKS", {"Pendulum": TaskInfo("swing it up", PRESET), "Hopper": TaskInfo("hop", PRESET)}
    )
    monkeypatch.setattr(echelon.tasks, "preset", stand_ins.preset)
    monkeypatch.setattr(echelon.evaluation.evaluate, "evaluate", stand_ins.evaluate, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return stand_ins


pytestmark = pytest.mark.usefixtures("stand_ins")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence a command is refused with."""
    capsys.readouterr()
    assert cli.main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("echelon: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    assert not re.search("[╭╰│]|Traceback", said.err)
    return said.err.strip().removeprefix("echelon: ")


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints when all is well."""
    capsys.readouterr()
    assert cli.main(arguments) == 0
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


T = ["train", "Pendulum"]


def test_values_that_no_line_of_a_shell_has(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    for words, sentence in (
        (["evaluate", "x", "--json", "a\0b"], "'a\\x00b' has a null byte, which no value may have"),
        ([*T, "--env.reach", "1"], "--env.reach takes 2 values, not 1: 1"),
        ([*T, "--env.velocity"], "did you mean --env.velocities?"),
    ):
        assert sentence in refusal(capsys, *words)
    assert (stand_ins.trained, stand_ins.evaluated) == ([], [])


def test_flags_change_the_preset_of_the_task(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    output(
        capsys,
        *[*T, "--num_envs", "64", "--update.clip=0.1", "--env.no-velocities", "--model.hidden", "8", "4"],
        *["--policies", "3", "--out", "here", "--env.reach", "-1", "2", "--pull.normalise", "--iterations", "2"],
    )
    (config,) = stand_ins.trained
    assert config == replace(
        COMPLETE,
        num_envs=64,
        policies=3,
        out="here",
        iterations=2,
        update=replace(PRESET.update, clip=0.1),
        env=PendulumConfig(velocities=False, reach=(-1.0, 2.0)),
        model=replace(PRESET.model, hidden=(8, 4)),
        pull=replace(PRESET.pull, normalise=True),
    )


def test_the_end_of_training_says_what_to_type_next(capsys: pytest.CaptureFixture[str]) -> None:
    said = output(capsys, *T, "--out", "my run")
    assert re.search(r"^The run is in my run, after \d+ s\.$", said, re.MULTILINE)
    assert "echelon evaluate 'my run'\n" in said
    assert "echelon train Pendulum --out 'my run'" in said


def test_what_ends_training_early_says_how_to_resume(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    """Ctrl-C is 130, SIGTERM 75."""
    for stand_ins.fails_with, code in ((KeyboardInterrupt(), 130), (Preempted(), 75)):
        assert cli.main([*T, "--seed", "4"]) == code
        said = capsys.readouterr()
        resumes = "The same command resumes from the last checkpoint, if there is one:  echelon train Pendulum --seed 4"
        assert resumes in said.out
        assert said.err == ""


def test_a_users_mistake_found_while_training_is_a_sentence_too(
    capsys: pytest.CaptureFixture[str], stand_ins: StandIns
) -> None:
    stand_ins.fails_with = UserError("the disk is full")
    assert refusal(capsys, *T) == "the disk is full"


def test_a_bug_keeps_its_traceback(stand_ins: StandIns) -> None:
    stand_ins.fails_with = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        cli.main(T)


def test_resuming_with_other_settings_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, *T)
    sentence = refusal(capsys, *T, "--update.clip", "0.1")
    assert "update.clip is 0.2 in runs/Pendulum-cpo-s0 but 0.1 here; pass --update.clip 0.2" in sentence
    assert "echelon train --resume runs/Pendulum-cpo-s0 --update.clip 0.1 resumes with the new value" in sentence
    output(capsys, *T, "--update.clip", "0.2", "--iterations", "9")


def test_settings_are_changed_when_a_run_is_resumed_by_its_folder(
    capsys: pytest.CaptureFixture[str], stand_ins: StandIns
) -> None:
    output(capsys, *T, "--num-envs", "192", "--iterations", "9")
    run = ["train", "--resume", "runs/Pendulum-cpo-s0"]
    output(capsys, *run, "--update.clip", "0.1", "--iterations", "12")
    now, clip = stand_ins.trained[-1], 0.1
    assert (now.update.clip, now.num_envs, now.iterations) == (clip, 192, 12)
    changes = json.loads(Path("runs/Pendulum-cpo-s0/config.json").read_text())["changes"]
    assert changes == [{"setting": "update.clip", "before": "0.2", "after": "0.1", "iteration": None}]
    for flags, message in (
        (
            ["--num-envs", "96"],
            "num_envs cannot be changed in runs/Pendulum-cpo-s0: environment steps are counted",
        ),
        (
            ["--model.hidden", "8"],
            "model.hidden cannot be changed in runs/Pendulum-cpo-s0: it sets the shape of the networks",
        ),
        (["--env.no-velocities"], "env.velocities cannot be changed in runs/Pendulum-cpo-s0: it would be another task"),
        (["--seed", "4"], "--from runs/Pendulum-cpo-s0 begins a new run with its networks"),
        (["--out", "x"], "--out would be another run"),
    ):
        assert message in refusal(capsys, *run, *flags)


def test_what_a_refusal_says_to_type_works(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    """For every setting: what `setting` spells is parsed back to that value."""
    from echelon.config.checks import settings_of

    values = settings_of(PRESET)
    del values["task"], values["source"]
    words = [word for name, value in values.items() for word in setting(name, value).split()]
    output(capsys, *T, *words)
    assert stand_ins.trained == [COMPLETE]


def test_the_help_of_a_task_lists_every_setting_with_the_presets_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, *T, "--help")
    known = flags_of(PRESET)
    assert "--env.no-velocities" in known
    for flag in known:
        assert re.search(rf"{re.escape(flag)}[\s,]", text), flag
    assert "(default: 96)" in text  # num_envs of the preset, not of TrainConfig
    assert "Show velocities to the policy." in text
    assert "swing it up" in text
    assert "--task" not in text


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        text = output(capsys, *arguments)
        assert [name for name in cli.COMMANDS if not re.search(rf"^  {name} ", text, re.MULTILINE)] == []


def test_tasks_and_variants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = "  Pendulum  swing it up\n  Hopper    hop\n"
    assert output(capsys, "tasks") == listed
    assert output(capsys, "train", "--help").endswith(listed)
    text = output(capsys, "variants")
    assert re.search(r"^  no_pull +CPO without the KL term", text, re.MULTILINE)
    assert len(text.splitlines()) == len(VARIANTS)
    for command in cli.COMMANDS:
        assert output(capsys, command, "--help").startswith(f"usage: echelon {command} ")


def test_variants_by_name(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    """One after the other; the run is named after them."""
    text = output(capsys, *T, "--variant", "no_pull", "policies_4")
    expected = VARIANTS["policies_4"](VARIANTS["no_pull"](COMPLETE))
    assert stand_ins.trained == [replace(expected, variant=("no_pull", "policies_4"), preset="paper")]
    assert "The run is in runs/Pendulum-no_pull+policies_4-s0" in text


def test_flags_win_over_variants_and_variants_see_them(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    """β is what was typed, not 0; the steps of SAPG follow from the horizon that was typed: 2 · 16 / 4."""
    output(capsys, *T, "--variant", "no_pull", "--pull.beta", "0.5")
    output(capsys, *T, "--update.horizon", "16", "--variant", "sapg_cpo_steps")
    assert vars(stand_ins.trained[0])["pull"].beta == 0.5
    assert stand_ins.trained[1].update.minibatches == 8


def test_notes_come_before_training(
    capsys: pytest.CaptureFixture[str], stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 = 6 · 8 + 2: a number that nobody typed is fitted, one that somebody did is left for them to change."""
    monkeypatch.setattr(echelon.tasks, "preset", lambda task: replace(PRESET, num_envs=50))
    said = output(capsys, *T, "--algo", "pbt", "--update.minibatches", "1")
    assert said.startswith("48 environments instead of 50: an equal number for each member\n")
    assert stand_ins.trained[0].num_envs == 48
    assert "does not divide between the 6 members" in refusal(capsys, *T, "--algo", "pbt", "--num_envs=50")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert re.fullmatch(r"echelon \d+\.\d+\S*\n", output(capsys, "--version"))


def test_evaluate_prints_a_table_and_writes_json(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    output(capsys, *T, "--seed", "2")
    text = output(capsys, "evaluate", "runs/Pendulum-cpo-s2", "--num-envs", "5", "--checkpoint", "best", "--seed", "9")
    config, *rest = stand_ins.evaluated[0]
    assert config == replace(COMPLETE, seed=2)
    assert rest == [5, 9, "auto", "best"]
    assert "0 leader  deterministic  1.50 ± 0.500" in text
    assert "successes" in text
    data = json.loads(Path("runs/Pendulum-cpo-s2/evaluation.json").read_text())
    assert [score["policy"] for score in data["scores"]] == [0, 1]
    output(capsys, "evaluate", "runs/Pendulum-cpo-s2", "--json", "elsewhere/scores.json")
    assert Path("elsewhere/scores.json").exists()


def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], stand_ins: StandIns
) -> None:
    output(capsys, *T)
    Path("file").write_text("kept")
    for json_file in ("file/scores.json", "runs", "/proc/scores.json"):
        sentence = refusal(capsys, "evaluate", "runs/Pendulum-cpo-s0", "--json", json_file)
        assert sentence.startswith(f"{json_file} cannot be written: ")
        assert sentence.endswith("; choose another --json")
    assert stand_ins.evaluated == []
    assert Path("file").read_text() == "kept"


def test_asking_whether_a_file_can_be_written_leaves_nothing_behind() -> None:
    """An older file stays as it is, and so does a link to where none is yet."""
    Path("old.json").write_text("kept")
    Path("link.json").symlink_to("target.json")
    for name in ("old.json", "link.json", "deep/new.json"):
        require_writable(Path(name))
    assert Path("old.json").read_text() == "kept"
    assert sorted(path.name for path in Path().iterdir()) == ["deep", "link.json", "old.json"]
    assert list(Path("deep").iterdir()) == []


def test_scores_that_cannot_be_written_are_still_shown(
    capsys: pytest.CaptureFixture[str], stand_ins: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their folder goes while the policies are scored."""
    output(capsys, *T)

    def evaluate(*arguments: Any) -> Evaluation:
        Path("here").rmdir()
        Path("here").write_text("")
        return stand_ins.evaluate(*arguments)

    monkeypatch.setattr(echelon.evaluation.evaluate, "evaluate", evaluate)
    assert cli.main(["evaluate", "runs/Pendulum-cpo-s0", "--json", "here/scores.json"]) == 2
    said = capsys.readouterr()
    assert "0 leader" in said.out
    assert "here/scores.json cannot be written" in said.err


def test_a_mistyped_run_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    output(capsys, *T)
    assert "did you mean runs/Pendulum-cpo-s0?" in refusal(capsys, "evaluate", "runs/Pendulum-cpo-s1")


def test_warnings_are_one_line(capsys: pytest.CaptureFixture[str], stand_ins: StandIns) -> None:
    import warnings

    def warn(*args: Any) -> Evaluation:
        warnings.warn("checkpoint 7 is damaged", UserWarning, stacklevel=1)
        return stand_ins.evaluate(*args)

    output(capsys, *T)
    echelon.evaluation.evaluate.evaluate = warn  # undone by the fixture
    assert cli.main(["evaluate", "runs/Pendulum-cpo-s0"]) == 0
    assert capsys.readouterr().err == "warning: checkpoint 7 is damaged\n"


def test_the_overview_imports_nothing_slow() -> None:
    """`echelon --help` must answer at once, and torch alone takes seconds."""
    script = (
        "import sys; from echelon.cli import main; main(['--help']); "
        "print([m for m in ('torch', 'tyro', 'rich', 'numpy', 'mujoco', 'tensorboard') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")
