"""What can be imported from `echelon`, and the module as a command."""

import subprocess
import sys
from pathlib import Path

import pytest
from tiny import tiny

import echelon
from echelon import make
from echelon.errors import UserError

PAGE = Path(__file__).parent.parent / "docs" / "api.md"


def test_everything_public_can_be_imported_and_is_listed_and_the_module_is_the_command() -> None:
    text = PAGE.read_text()
    for name in echelon.__all__:
        assert getattr(echelon, name) is not None
        assert f"`{name}" in text, f"{name} is not in docs/api.md"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = echelon.trian  # pyright: ignore
    done = subprocess.run([sys.executable, "-m", "echelon", "trian"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "echelon: trian is not a command of echelon; did you mean train?\n"


def test_environments_by_name() -> None:
    env = make("CartpoleSwingup", num_envs=3, device="cpu", episode_length=7)
    assert (env.num_envs, env.episode_length, env.reset()["policy"].shape) == (3, 7, (3, 5))
    least = make("envs.least:make", num_envs=2, device="cpu", bonus=2.5)
    assert least.bonus == 2.5
    assert make("envs.own_task:Pole", 2, "cpu", episode_length=9).episode_length == 9
    with pytest.raises(UserError, match=r"env\.lenght is not a setting"):
        make("CartpoleSwingup", device="cpu", lenght=3)
    with pytest.raises(UserError, match="num_envs takes a whole number, not '3'"):
        make("CartpoleSwingup", num_envs="3")  # pyright: ignore[reportArgumentType]


def test_what_people_pass_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task's name instead of settings, a run's path instead of its folder, one callback or variant alone."""
    for wrong in ("Hopper", {"task": "Hopper"}):
        with pytest.raises(UserError, match=r'train takes settings, as in train\(preset\("Hopper"\)\), not '):
            echelon.train(wrong)  # pyright: ignore
    config = tiny("Hopper", tmp_path / "run", "ppo")
    echelon.train(config, callbacks=lambda metrics: None)
    assert "Hopper, ppo, 1 policy, 6 environments, cpu, iterations 0 to 2" in capsys.readouterr().out
    assert echelon.read_metrics(str(tmp_path / "run"))
    assert len(echelon.evaluate(str(tmp_path / "run"), num_envs=2, device="cpu").scores) == 2
    assert echelon.apply_variants(config, "no_pull").variant == ("no_pull",)
    with pytest.raises(ZeroDivisionError):
        echelon.train(tiny("Hopper", tmp_path / "failed"), make_env=lambda num_envs, device, seed: 1 / 0)  # pyright: ignore
    assert not (tmp_path / "failed").exists()
