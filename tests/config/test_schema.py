"""Settings as plain data and back; what cannot be meant is refused."""

import contextlib
import inspect
import json
import re
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Optional

from echelon.cli import COMMANDS
from echelon.commands.command import find
from echelon.config import EnsembleConfig, ModelConfig, TaskConfig, TrainConfig, UpdateConfig, from_dict, to_dict
from echelon.config.checks import check
from echelon.errors import UserError
from echelon.tasks import TASKS, preset


@dataclass(frozen=True)
class Friction:
    slide: float = 1.0


@dataclass(frozen=True)
class HandConfig(TaskConfig):
    """A task's settings with everything an annotation may be."""

    objects: Literal["cube", "pen"] = "cube"
    level: Literal[1, 2] = 1
    scale: tuple[float, float] = (0.9, 1.1)
    names: tuple[str, ...] = ()
    noise: bool = False
    limit: Optional[int] = None  # noqa: UP045  # the older spelling must work too
    friction: Friction = field(default_factory=Friction)


TEMPLATE = TrainConfig(task="Hand", env=HandConfig())


def test_a_config_survives_json() -> None:
    config = TrainConfig(
        task="Hand",
        algo="sapg",
        policies=4,
        iterations=7,
        env=HandConfig(objects="pen", scale=(0.5, 2.0), names=("a", "b"), noise=True, limit=3, friction=Friction(0.2)),
        model=ModelConfig(hidden=(8, 4)),
        update=UpdateConfig(minibatches=3, learning_rate=1e-5),
        ensemble=EnsembleConfig(estimator="vtrace"),
    )
    again = from_dict(TEMPLATE, json.loads(json.dumps(to_dict(config))))
    assert again == config
    assert isinstance(again.env, HandConfig)
    assert isinstance(again.model.hidden, tuple)
    changed = from_dict(TEMPLATE, {"update": {"clip": 1}})  # the rest stays as the template has it
    assert changed == replace(TEMPLATE, update=UpdateConfig(clip=1.0))
    assert type(changed.update.clip) is float


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_envs": 2.0}, "num_envs takes a whole number, not 2.0"),
    ({"num_env": 1}, "num_env is not a setting; did you mean num_envs?"),
    ({"update": {"klip": 1}}, "update.klip is not a setting; did you mean clip?"),
    ({"env": {"friction": {"slid": 1}}}, "env.friction.slid is not a setting; did you mean slide?"),
    ({"update": 3}, "update takes a group of settings, not 3"),
    ({"env": {"level": 3}}, "env.level takes one of 1, 2, not 3"),
    ({"seed": True}, "seed takes a whole number, not True"),
    ({"policies": "6"}, "policies takes a whole number, not '6'"),
    ({"env": {"noise": 1}}, "env.noise takes true or false, not 1"),
    ({"env": {"limit": "x"}}, "env.limit takes a whole number, not 'x'"),
    ({"env": {"scale": [1.0]}}, "env.scale takes 2 values, not 1: 1.0"),
    ({"model": {"hidden": 64}}, "model.hidden takes a list, not 64"),
    ({"model": {"hidden": [64, "x"]}}, "model.hidden takes a whole number, not 'x'"),
    ({"num_envs": 0}, "--num-envs must be at least 1, not 0"),
    ({"policies": 0}, "--policies must be at least 1, not 0"),
    ({"update": {"mini_epochs": 2**31}}, "--update.mini-epochs must be at most 1,000, not 2147483648"),
    (
        {"update": {"entropy_coef": -1e13}},
        "--update.entropy-coef must be at least -1,000,000,000,000, not -10000000000000.0",
    ),
    ({"env_steps": 10**400}, "--env-steps must be at most 1e+15, not a number of 401 digits"),
    ({"seed": -1}, "--seed must be at least 0, not -1"),
    ({"update": {"discount": 1.01}}, "--update.discount must be at most 1, not 1.01"),
    ({"update": {"clip": 0.0}}, "--update.clip must be above 0, not 0.0"),
    ({"update": {"learning_rate": float("nan")}}, "--update.learning-rate must be finite, not nan"),
    ({"env": {"friction": {"slide": float("nan")}}}, "--env.friction.slide must be finite, not nan"),
    ({"model": {"hidden": []}}, "--model.hidden needs at least one value"),
    ({"model": {"hidden": [8, 0]}}, "--model.hidden must be at least 1, not 0"),
    (
        {"model": {"lstm": 8}, "update": {"horizon": 16, "sequence": 5}},
        "--update.sequence 5 does not divide --update.horizon 16, which training an LSTM needs; change one of them",
    ),
]


def test_what_does_not_fit_or_makes_no_sense_is_one_sentence() -> None:
    """First types and names, then values."""

    def said(data: dict[str, Any]) -> str:
        try:
            check(from_dict(TEMPLATE, data))
        except UserError as error:
            return str(error)
        return ""

    assert [(data, said(data)) for data, sentence in WRONG if said(data) != sentence] == []


WIDTHS = {"start_spread", "joint_spread", "start_angle", "start_position", "start_velocity", "start_noise", "start_yaw"}
"""Settings of tasks that starts are drawn within."""


def test_settings_of_tasks_and_values_of_another_type_are_refused_before_anything_is_built() -> None:
    """A field that a task overrides keeps its range."""
    taken: list[str] = []
    for config in map(preset, TASKS):
        check(config)
        for name in {f.name for f in fields(config.env)} & (WIDTHS | {"episode_length"}):
            with contextlib.suppress(UserError):
                check(replace(config, env=replace(config.env, **{name: -1})))
                taken.append(f"{config.task}: {name}")
    for change in ({"env_steps": 1e5}, {"algo": 3}, {"variant": "x"}, {"seed": "a"}, {"policies": "4"}):
        with contextlib.suppress(UserError):
            check(replace(TrainConfig(), **change))  # pyright: ignore[reportArgumentType]  # from Python too
            taken.append(str(change))
    assert taken == []


def test_every_field_has_a_docstring_for_its_flag() -> None:
    """A flag's help is the string below its field, or below the field it overrides; in one line, since tyro keeps
    breaks. A group leaves it to its class."""
    configs = [config for task in TASKS for config in (preset(task), *vars(preset(task)).values())]
    kinds: set[type[Any]] = {type(x) for x in configs if is_dataclass(x)} | set(map(find, COMMANDS))
    missing: list[str] = []
    for kind in kinds:
        assert not (kind.__doc__ or "").startswith(f"{kind.__name__}("), kind
        source = "".join(inspect.getsource(owner) for owner in kind.__mro__ if is_dataclass(owner))
        explained = set(re.findall(r'^    (\w+): .*\n    """[^\n]+"""$', source, re.MULTILINE))
        groups = set(re.findall(r"^    (\w+): (?:\w+Config|TrainFlags)\b", source, re.MULTILINE))
        missing += [f"{kind.__name__}.{x.name}" for x in fields(kind) if x.name not in explained | groups]
    assert missing == []


def test_derived_numbers_and_valid_settings() -> None:
    config = TrainConfig(num_envs=10, env_steps=1001, update=UpdateConfig(horizon=10))
    assert config.num_iterations == 11  # 100 steps an iteration, rounded up
    assert replace(config, iterations=3).num_iterations == 3
    assert replace(config, policies=2).num_policies == 2
    assert config.steps_per_iteration == 100
    assert (config.method, replace(config, variant=("a", "b")).method) == ("ppo", "a+b")
    check(TrainConfig())
    check(TrainConfig(algo="ppo", num_envs=1))
    check(replace(TEMPLATE, update=UpdateConfig(horizon=16, sequence=5)))  # sequences matter only to an LSTM
