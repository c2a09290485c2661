"""Finding a preset by name, and what every one of them must satisfy."""

import pytest

from echelon.config import from_dict, to_dict
from echelon.errors import UserError
from echelon.tasks import TASKS, preset


@pytest.mark.parametrize("task", TASKS)
def test_preset_is_found_and_survives_json(task: str) -> None:
    config = preset(task)
    assert config.task == task
    assert from_dict(config, to_dict(config)) == config
    assert config.policies is None  # a preset that fixed it would make `--algo ppo` fail


def test_a_task_that_is_not_there_is_answered_with_where_they_are_listed() -> None:
    with pytest.raises(UserError, match="zzz is not a task; echelon tasks lists them"):
        preset("zzz")
