"""Settings of other libraries in ours, from files as they write them."""

import re
from pathlib import Path

import pytest

from echelon import cli
from echelon.config import TrainConfig
from echelon.config.checks import settings_of
from echelon.config.peers import LIBRARIES, ROWS

FILES = {
    "rsl_rl": """
seed: 42
num_steps_per_env: 24
max_iterations: 1500
empirical_normalization: false
policy: {class_name: ActorCritic, init_noise_std: 0.8, actor_hidden_dims: [512, 256, 128], activation: relu}
algorithm:
  value_loss_coef: 1.0
  use_clipped_value_loss: true
  clip_param: 0.2
  entropy_coef: 0.005
  num_learning_epochs: 5
  num_mini_batches: 4
  learning_rate: 1.0e-3
  schedule: adaptive
  gamma: 0.99
  lam: 0.95
  desired_kl: 0.01
  max_grad_norm: 1.0
device: !!python/object/apply:torch.device ['cuda:0']
""",
    "rl_games": """
params:
  seed: 7
  network: {mlp: {units: [256, 128], activation: elu}, rnn: {name: lstm, units: 64}}
  config:
    num_actors: 4096
    horizon_length: 16
    seq_length: 8
    minibatch_size: 16384
    mini_epochs: 4
    e_clip: 0.1
    critic_coef: 4
    lr_schedule: adaptive
    kl_threshold: 0.016
    learning_rate: 5e-4
    reward_shaper: {scale_value: 0.01}
    normalize_input: True
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


@pytest.mark.parametrize("library", SAID)
def test_files_as_they_write_them(library: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.yaml").write_text(FILES[library])
    assert cli.main(["import-config", str(tmp_path / "agent.yaml")]) == 0
    first, flags, *others = capsys.readouterr().out.splitlines()
    assert first == f"# agent.yaml, settings of {library}"
    assert sorted(flags.removeprefix("echelon train TASK ").split(" --")) == sorted(SAID[library].split(" --"))
    if library == "rsl_rl":
        names = "empirical_normalization, policy.class_name, algorithm.use_clipped_value_loss, device"
        assert others == [f"# without a counterpart (docs/coming-from.md): {names}"]


def test_every_name_of_ours_is_a_setting() -> None:
    assert {row[0][0] for row in ROWS} <= set(settings_of(TrainConfig()))
    assert all(len(row) == 1 + len(LIBRARIES) for row in ROWS)


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    for text, sentence in {
        '{"lr": 1}': "none of params.config.e_clip (rl_games), num_steps_per_env",
        '{"n_steps": 8, "learning_rate": "lin_3e-4"}': "learning_rate is 'lin_3e-4', which cannot be read as update.",
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
