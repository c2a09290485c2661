"""The command line as a user meets it; `commands/mistakes.txt` has the mistakes."""

import json
import re
import subprocess
import sys
import types
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import echelon.commands.lists
import echelon.commands.train
import echelon.evaluation.evaluate
import echelon.tasks
from echelon import cli
from echelon.algorithms import BUILT_IN, Preset, converted
from echelon.algorithms.variants import VARIANTS
from echelon.config import TaskConfig, TaskInfo, TrainConfig, UpdateConfig
from echelon.config.checks import setting, settings_of
from echelon.config.schema import PLAIN
from echelon.console.flags import flags_of
from echelon.console.view import Preempted
from echelon.errors import UserError, nearest
from echelon.evaluation.evaluate import Evaluation, PolicyScore
from echelon.runs.durable import require_writable
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
T = ["train", "Pendulum"]
RUN = "runs/Pendulum-cpo-s0"


class Line:
    """A command line with stand-ins for trainer, evaluator, tasks and presets, so that only it is tested here."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.preset = capsys, PRESET
        self.trained: list[TrainConfig] = []
        self.evaluated: list[tuple[Any, ...]] = []
        self.fails_with: BaseException | None = None
        self.meanwhile = lambda: None
        """What happens while policies are scored."""

    def find(self, task: str) -> TrainConfig:
        if task != PRESET.task:
            raise UserError(f"{task} is not a task{nearest(task, [PRESET.task]) or '; echelon tasks lists them'}")
        return self.preset

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

    def evaluate(self, folder: RunFolder, num_envs: int, seed: int, *more: Any, **named: Any) -> Evaluation:
        self.meanwhile()
        self.evaluated.append((folder.config, num_envs, seed, *more, *named.values()))
        score = PolicyScore(0, "deterministic", num_envs, 1.5, 0.5, 10.0, 0.25, {"successes": 2.0})
        return Evaluation("Pendulum", "cpo", 3, 768, seed, (score, replace(score, policy=1, mode="sampled")))

    def says(self, *words: str) -> str:
        """What a command prints when all is well."""
        self.capsys.readouterr()
        assert cli.main(words) == 0
        said = self.capsys.readouterr()
        assert said.err == ""
        return said.out

    def refuses(self, *words: str) -> str:
        """The one sentence a command is refused with."""
        self.capsys.readouterr()
        assert cli.main(words) == 2
        said = self.capsys.readouterr()
        assert said.out == ""
        assert re.fullmatch(r"echelon: [^\n╭╰│]+\n", said.err)
        return said.err.strip().removeprefix("echelon: ")


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Line:
    line, loop = Line(capsys), types.ModuleType("echelon.training.loop")
    vars(loop).update(train=line.train, train_seeds=None)
    monkeypatch.setitem(sys.modules, "echelon.training.loop", loop)
    tasks = {"Pendulum": TaskInfo("swing it up", PRESET), "Hopper": TaskInfo("hop", PRESET)}
    for module in (echelon.tasks, echelon.commands.train, echelon.commands.lists):
        monkeypatch.setattr(module, "TASKS", tasks)
    for module in (echelon.tasks, echelon.commands.train):
        monkeypatch.setattr(module, "preset", line.find)
    monkeypatch.setattr(echelon.evaluation.evaluate, "evaluate", line.evaluate)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return line


def test_flags_change_the_preset_of_the_task(line: Line) -> None:
    """Of the mistakes those that no line of a shell has, or that only this task has."""
    null = "'a\\x00b' has a null byte, which no value may have"
    assert line.refuses("evaluate", "x", "--json", "a\0b") == null
    assert line.refuses(*T, "--env.reach", "1") == "--env.reach takes 2 values, not 1: 1"
    assert line.refuses(*T, "--env.velocity").endswith("; did you mean --env.velocities?")
    assert (line.trained, line.evaluated) == ([], [])
    flags = "--num_envs 64 --update.clip=0.1 --env.no-velocities --model.hidden 8 4 --policies 3 --out here"
    line.says(*T, *flags.split(), "--env.reach", "-1", "2", "--pull.normalise", "--iterations", "2")
    changes: dict[str, Any] = {"num_envs": 64, "policies": 3, "out": "here", "iterations": 2}
    changes |= {"update": replace(PRESET.update, clip=0.1), "model": replace(PRESET.model, hidden=(8, 4))}
    changes |= {"env": PendulumConfig(False, (-1.0, 2.0)), "pull": replace(PRESET.pull, normalise=True)}
    assert line.trained == [replace(COMPLETE, **changes)]


def test_the_end_of_training_says_what_to_type_next(line: Line) -> None:
    """Ctrl-C is 130, SIGTERM 75. A user's mistake is a sentence, a bug keeps its traceback."""
    said = line.says(*T, "--out", "my run")
    assert re.search(r"^The run is in my run, after \d+ s\.$", said, re.MULTILINE)
    assert "echelon evaluate 'my run'\n" in said
    assert "echelon train Pendulum --out 'my run'" in said
    for line.fails_with, code in ((KeyboardInterrupt(), 130), (Preempted(), 75)):
        assert cli.main([*T, "--seed", "4"]) == code
        resumes = "The same command resumes from the last checkpoint, if there is one:  echelon train Pendulum --seed 4"
        assert resumes in line.capsys.readouterr().out
    line.fails_with = UserError("the disk is full")
    assert line.refuses(*T) == "the disk is full"
    line.fails_with = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        cli.main(T)


def test_a_run_is_resumed_with_its_settings_or_by_its_folder_with_others(line: Line) -> None:
    """What a refusal says to type works: what `setting` spells is parsed back to that value, for every setting."""
    values = settings_of(COMPLETE)
    del values["task"], values["source"]
    line.says(*T, *(word for name, value in values.items() for word in setting(name, value).split()))
    assert line.trained == [COMPLETE]
    line.says(*T, "--iterations", "9")
    sentence = line.refuses(*T, "--update.clip", "0.1")
    assert f"update.clip is 0.2 in {RUN} but 0.1 here; pass --update.clip 0.2" in sentence
    assert f"echelon train --resume {RUN} --update.clip 0.1 resumes with the new value" in sentence
    line.says(*T, "--update.clip", "0.2", "--iterations", "9")
    line.says("train", "--resume", RUN, "--update.clip", "0.1", "--iterations", "12")
    now, clip = line.trained[-1], 0.1
    assert (now.update.clip, now.num_envs, now.iterations) == (clip, 96, 12)
    changes = json.loads(Path(RUN, "config.json").read_text())["changes"]
    assert changes == [{"setting": "update.clip", "before": "0.2", "after": "0.1", "iteration": None}]
    for flags, message in {
        "--num-envs 192": f"num_envs cannot be changed in {RUN}: environment steps are counted",
        "--model.hidden 8": f"model.hidden cannot be changed in {RUN}: it sets the shape of the networks",
        "--env.no-velocities": f"env.velocities cannot be changed in {RUN}: it would be another task",
        "--seed 4": f"--from {RUN} begins a new run with its networks",
        "--out x": "--out would be another run",
    }.items():
        assert message in line.refuses("train", "--resume", RUN, *flags.split())
    line.says(*T, "--algo", "sac", "--sac.warm-up", "8", "--out", "sac")
    said = line.refuses("train", "--resume", "sac", "--update.clip", "0.1")
    assert said == "sac does not read --update.clip; leave it out"


def test_help_lists_commands_tasks_variants_and_every_setting_with_the_presets_default(line: Line) -> None:
    text, known = line.says(*T, "--help"), flags_of(PRESET)
    assert "--env.no-velocities" in known
    assert [flag for flag in known if not re.search(rf"{re.escape(flag)}[\s,]", text)] == []
    for words in ("(default: 96)", "Show velocities to the policy.", "swing it up"):  # num_envs of the preset
        assert words in text
    assert "--task" not in text
    listed = "  Pendulum  swing it up\n  Hopper    hop\n"
    assert line.says("tasks") == listed
    assert line.says("train", "--help").endswith(listed)
    text = line.says("variants")
    assert re.search(r"^  no_pull +CPO without the KL term", text, re.MULTILINE)
    assert len(text.splitlines()) == len(VARIANTS)
    assert line.says() == line.says("--help") == line.says("-h") == cli.OVERVIEW
    assert {"train", "import-config", "doctor"} < set(cli.COMMANDS)
    for command in cli.COMMANDS:
        assert line.says(command, "--help").startswith(f"usage: echelon {command} ")
    assert re.fullmatch(r"echelon \d+\.\d+\S*\n", line.says("--version"))


def test_variants_by_name_and_notes(line: Line) -> None:
    """One after the other; the run is named after them. Flags win over them, and they see the flags: β is what was
    typed, not 0; the steps of SAPG follow from the horizon that was typed: 2 · 16 / 4."""
    text = line.says(*T, "--variant", "no_pull", "policies_4")
    expected = VARIANTS["policies_4"](VARIANTS["no_pull"](COMPLETE))
    assert line.trained == [replace(expected, variant=("no_pull", "policies_4"), preset="paper")]
    assert "The run is in runs/Pendulum-no_pull+policies_4-s0" in text
    line.says(*T, "--variant", "no_pull", "--pull.beta", "0.5")
    assert vars(line.trained[-1])["pull"].beta == 0.5
    line.says(*T, "--update.horizon", "16", "--variant", "sapg_cpo_steps")
    assert line.trained[-1].update.minibatches == 8
    # Notes come before training. 50 = 6 · 8 + 2: the preset's number is fitted, one that was typed is refused.
    line.preset = replace(PRESET, num_envs=50)
    said = line.says(*T, "--algo", "pbt", "--update.minibatches", "1")
    assert said.startswith("48 environments instead of 50: an equal number for each member\n")
    assert line.trained[-1].num_envs == 48
    assert "does not divide between the 6 members" in line.refuses(*T, "--algo", "pbt", "--num_envs=50")


def test_evaluate_prints_a_table_and_writes_json(line: Line) -> None:
    line.says(*T)
    text = line.says("evaluate", RUN, "--num-envs", "5", "--checkpoint", "250", "--seed", "9")
    assert line.evaluated == [(COMPLETE, 5, 9, "auto", 250, PLAIN)]
    assert "0 leader  deterministic  1.50 ± 0.500" in text
    assert "successes" in text
    data = json.loads(Path(RUN, "evaluation.json").read_text())
    assert [score["policy"] for score in data["scores"]] == [0, 1]
    line.says("evaluate", RUN, "--json", "elsewhere/scores.json")
    assert Path("elsewhere/scores.json").exists()
    assert f"did you mean {RUN}?" in line.refuses("evaluate", "runs/Pendulum-cpo-s1")
    line.meanwhile = lambda: warnings.warn("checkpoint 7 is damaged", UserWarning, stacklevel=1)
    assert cli.main(["evaluate", RUN]) == 0
    assert line.capsys.readouterr().err == "warning: checkpoint 7 is damaged\n"


def test_a_file_that_cannot_be_written_is_refused_before_the_work(line: Line) -> None:
    """If its folder goes while the policies are scored, the scores are still shown."""
    line.says(*T)
    Path("file").write_text("kept")
    for json_file in ("file/scores.json", "runs", "/proc/scores.json"):
        sentence = line.refuses("evaluate", RUN, "--json", json_file)
        assert re.fullmatch(f"{json_file} cannot be written: .*; choose another --json", sentence)
    assert line.evaluated == []
    assert Path("file").read_text() == "kept"
    line.meanwhile = lambda: (Path("here").rmdir(), Path("here").write_text(""))
    assert cli.main(["evaluate", RUN, "--json", "here/scores.json"]) == 2
    said = line.capsys.readouterr()
    assert "0 leader" in said.out
    assert "here/scores.json cannot be written" in said.err


def test_asking_whether_a_file_can_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older file stays as it is, and so does a link to where none is yet."""
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text("kept")
    Path("link.json").symlink_to("target.json")
    for name in ("old.json", "link.json", "deep/new.json"):
        require_writable(Path(name))
    assert Path("old.json").read_text() == "kept"
    assert sorted(path.name for path in Path().iterdir()) == ["deep", "link.json", "old.json"]
    assert list(Path("deep").iterdir()) == []


def test_an_interrupt_that_meets_a_destructor_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python cannot raise it there and would print a traceback; any other error is still printed."""

    class Raises:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __del__(self) -> None:
            raise self.error

    monkeypatch.setattr(sys, "unraisablehook", cli._unraisable)
    Raises(KeyboardInterrupt())
    assert capsys.readouterr().err == ""
    Raises(ValueError("a fault"))
    assert "ValueError: a fault" in capsys.readouterr().err


SCRIPT = """
import contextlib, io, json, shlex, sys
from echelon import cli
for number, line in enumerate(json.load(sys.stdin)):
    said, written = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(written):
        code = cli.main(shlex.split(line))
    slow = [name for name in ("torch", "mujoco", "tensorboard") if name in sys.modules]
    print(json.dumps([code, said.getvalue(), written.getvalue(), slow]))
"""


def test_a_mistake_is_one_sentence_at_once(tmp_path: Path) -> None:
    """Exactly this one, and nothing else happens. Those above the empty line import nothing slow."""
    quick, slow = (Path(__file__).parent / "commands" / "mistakes.txt").read_text().split("\n\n")
    cases = [line.split("  ->  ") for line in [*quick.splitlines(), *slow.splitlines()]]
    lines = json.dumps([line for line, _ in cases])
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(answer) for answer in done.stdout.splitlines()]
    wrong = [
        f"{line}  ->  {code} {said!r} {written!r} {imported}"
        for number, ((line, sentence), (code, said, written, imported)) in enumerate(zip(cases, found, strict=True))
        if (code, said, written) != (2, f"echelon: {sentence}\n", "") or (imported and number < len(quick.splitlines()))
    ]
    assert not wrong, "\n".join(wrong)
    assert list(tmp_path.iterdir()) == []
