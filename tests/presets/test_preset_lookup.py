"""Finding a preset by name, and what every one of them must satisfy."""

import subprocess
import sys

import pytest

from echelon.config import from_dict, to_dict
from echelon.errors import UserError
from echelon.presets import FAMILIES, preset


@pytest.mark.parametrize("task", FAMILIES)
def test_preset_is_found_and_survives_json(task: str) -> None:
    config = preset(task)
    assert config.task == task
    assert from_dict(config, to_dict(config)) == config
    assert config.policies is None  # a preset that fixed it would make `--algo ppo` fail


def test_a_task_that_is_not_there_is_answered_with_the_nearest_or_with_where_they_are_listed() -> None:
    with pytest.raises(UserError, match=r"shadowhands is not a task; did you mean ShadowHand\?"):
        preset("shadowhands")
    with pytest.raises(UserError, match="`echelon tasks` lists them"):
        preset("zzz")


def test_naming_the_tasks_and_variants_loads_no_torch() -> None:
    code = "import echelon.presets, echelon.presets.variants, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
