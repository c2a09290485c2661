"""Settings as plain data and back, and those of other libraries in ours; what cannot be meant is refused."""

import contextlib
import inspect
import json
import re
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, Optional

import pytest

from echelon import cli
from echelon.cli import COMMANDS
from echelon.commands.command import find
from echelon.config import EnsembleConfig, ModelConfig, TaskConfig, TrainConfig, UpdateConfig, from_dict, to_dict
from echelon.config.checks import check, settings_of
from echelon.config.peers import LIBRARIES, ROWS
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
    env = HandConfig(objects="pen", scale=(0.5, 2.0), names=("a", "b"), noise=True, limit=3, friction=Friction(0.2))
    update, ensemble = UpdateConfig(minibatches=3, learning_rate=1e-5), EnsembleConfig(estimator="vtrace")
    config = TrainConfig(
        "Hand", policies=4, model=ModelConfig(hidden=(8, 4)), env=env, update=update, ensemble=ensemble
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
    ({"env": {"scale": [1.0]}}, "env.scale takes 2 values, not 1: 1.0"),
    ({"model": {"hidden": 64}}, "model.hidden takes a list, not 64"),
    ({"model": {"hidden": [64, "x"]}}, "model.hidden takes a whole number, not 'x'"),
    ({"env_steps": 10**400}, "--env-steps must be at most 1e+15, not a number of 401 digits"),
    ({"env": {"friction": {"slide": float("nan")}}}, "--env.friction.slide must be finite, not nan"),
]


def test_what_does_not_fit_or_makes_no_sense_is_one_sentence() -> None:
    """First types and names, then values, of which `commands/mistakes.txt` has more."""

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


FILES = {
    "rsl_rl": """
seed: 42
num_steps_per_env: 24
max_iterations: 1500
empirical_normalization: false
policy: {class_name: ActorCritic, init_noise_std: 0.8, actor_hidden_dims: [512, 256, 128], activation: relu}
algorithm: {value_loss_coef: 1.0, use_clipped_value_loss: true, clip_param: 0.2, entropy_coef: 0.005,
            num_learning_epochs: 5, num_mini_batches: 4, learning_rate: 1.0e-3, schedule: adaptive, gamma: 0.99,
            lam: 0.95, desired_kl: 0.01, max_grad_norm: 1.0}
device: !!python/object/apply:torch.device ['cuda:0']
""",
    "rl_games": """
params:
  seed: 7
  network: {mlp: {units: [256, 128], activation: elu}, rnn: {name: lstm, units: 64}}
  config: {num_actors: 4096, horizon_length: 16, seq_length: 8, minibatch_size: 16384, mini_epochs: 4, e_clip: 0.1,
           critic_coef: 4, lr_schedule: adaptive, kl_threshold: 0.016, learning_rate: 5e-4,
           reward_shaper: {scale_value: 0.01}, normalize_input: True}
""",
    "skrl": """
agent: {rollouts: 32, learning_epochs: 8, mini_batches: 8, discount_factor: 0.98, lambda: 0.9, ratio_clip: 0.3,
        value_loss_scale: 2.0, learning_rate_scheduler: KLAdaptiveLR,
        learning_rate_scheduler_kwargs: {kl_threshold: 0.01}}
""",
    "Stable-Baselines3": """
{n_envs: 16, n_timesteps: !!float 1e6, n_steps: 128, batch_size: 64, n_epochs: 10, vf_coef: 0.5, learning_rate: 3e-4}
""",
}


SAID = {
    "rsl_rl": "--algo ppo --seed 42 --update.horizon 24 --iterations 1500 --model.hidden 512 256 128 --update.clip 0.2 "
    "--model.initial-sigma 0.8 --model.activation relu --update.critic-coef 2.0 --update.entropy-coef 0.005 "
    "--update.mini-epochs 5 --update.minibatches 4 --update.learning-rate 0.001 --update.rate-schedule minibatch "
    "--update.discount 0.99 --update.gae-lambda 0.95 --update.kl-threshold 0.01 --update.grad-norm 1.0",
    # 4096 · 16 / 16384 minibatches
    "rl_games": "--algo ppo --seed 7 --model.hidden 256 128 --model.activation elu --model.lstm 64 --num-envs 4096 "
    "--update.horizon 16 --update.sequence 8 --update.mini-epochs 4 --update.clip 0.1 --update.critic-coef 4.0 "
    "--update.rate-schedule mini_epoch --update.kl-threshold 0.016 --update.learning-rate 0.0005 "
    "--update.reward-scale 0.01 --update.minibatches 4",
    "skrl": "--algo ppo --update.horizon 32 --update.mini-epochs 8 --update.minibatches 8 --update.discount 0.98 "
    "--update.gae-lambda 0.9 --update.clip 0.3 --update.critic-coef 4.0 --update.rate-schedule mini_epoch "
    "--update.kl-threshold 0.01",
    # 16 · 128 / 64 minibatches
    "Stable-Baselines3": "--algo ppo --num-envs 16 --env-steps 1000000 --update.horizon 128 --update.mini-epochs 10 "
    "--update.critic-coef 1.0 --update.learning-rate 0.0003 --update.minibatches 32 --update.rate-schedule fixed",
}


def test_files_of_other_libraries_as_they_write_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for library, said in SAID.items():
        (tmp_path / "agent.yaml").write_text(FILES[library])
        assert cli.main(["import-config", str(tmp_path / "agent.yaml")]) == 0
        first, flags, *others = capsys.readouterr().out.splitlines()
        assert first == f"# agent.yaml, settings of {library}"
        assert sorted(flags.removeprefix("echelon train TASK ").split(" --")) == sorted(said.split(" --"))
        if library == "rsl_rl":
            names = "empirical_normalization, policy.class_name, algorithm.use_clipped_value_loss, device"
            assert others == [f"# without a counterpart (docs/coming-from.md): {names}"]
        assert "size" not in "".join(others)  # of a minibatch, which is read
    assert {row[0][0] for row in ROWS} <= set(settings_of(TrainConfig()))
    assert all(len(row) == 1 + len(LIBRARIES) for row in ROWS)


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    for text, sentence in {
        '{"lr": 1}': "none of params.config.e_clip (rl_games), num_steps_per_env",
        '{"n_steps": 8, "learning_rate": "lin_3e-4"}': "learning_rate is 'lin_3e-4', which cannot be read as update.",
        "{n_steps: 8, n_timesteps: .inf}": "n_timesteps is inf, which cannot be read as env_steps; change it",
        '{"num_steps_per_env": 8, "activation": "gelu"}': "model.activation takes one of elu, relu, silu, tanh,",
        "{": "is neither YAML nor JSON",
        "[]": "holds no settings",
    }.items():
        file.write_text(text)
        assert cli.main(["import-config", str(file)]) == 2
        assert sentence in capsys.readouterr().err
    assert cli.main(["import-config", str(tmp_path / "nothing.yaml")]) == 2
    assert "cannot be read: No such file" in capsys.readouterr().err


def test_doctor(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for what is there, and the command for what is not."""
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("echelon ")
    assert "\ntorch " in said
    assert "  yes  built-in tasks on a CPU  mujoco " in said
    monkeypatch.setattr("echelon.errors.find_spec", lambda module: None)
    assert cli.main(["doctor"]) == 0
    assert re.search(r"  no +mjlab:NAME +pip install -e '.\[mjlab\]' in Echelon's clone\n", capsys.readouterr().out)
    assert cli.main(["doctor", "now"]) == 2
