"""Each ablation changes what its description says, and nothing else."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.algorithms import Preset
from echelon.algorithms.variants import VARIANTS, apply_variants
from echelon.commands.command import parse
from echelon.commands.train import Train, configure
from echelon.config import TrainConfig, to_dict
from echelon.config.checks import check, settings_of
from echelon.config.schema import ROBUST
from echelon.errors import UserError
from echelon.ranks import ALONE
from echelon.tasks import TASKS, preset

CENTRED = {"adversary.coef": 0.0, "update.kl_rows": "own", "ensemble.advantage_scope": "centred"}
CENTRED |= {"pull.normalise": True, "pull.beta": 0.005, "pull.temperature": 1.0}
CENTRED |= {"update.minibatches": 8}  # twice CPO's 4
SLOW, WILD = ("pbt.initial_delay", "pbt.wait"), {"pbt.mutation_low": 1.2, "pbt.mutation_high": 3.0}
LEAST = {"pull.beta": 0.001, "adversary.coef": 0.0}
CHANGES: dict[str, dict[str, Any]] = {
    "no_pull": {"pull.beta": 0.0},
    "no_adversary": {"adversary.coef": 0.0},
    "unpaid_adversary": {"adversary.coef": 0.0, "adversary.watch": True},
    **{f"lambda_f_{x}": LEAST | {"pull.temperature": x} for x in (0.5, 0.2, 0.1, 0.05)},
    "entropy_on": {"update.entropy_scale": 0.005},
    "entropy_off": {"update.entropy_scale": 0.0},
    "policies_1": {"policies": 1, "algo": "ppo"},
    **{f"policies_{m}": {"policies": m} for m in (2, 4, 6, 8, 12)},
    # 20,447,232,000 steps: 3,407,872,000 of each member, a check after each sixtieth.
    "pbt_short": {"algo": "pbt", "pbt.interval": 56_797_866, "pbt.mutation_probability": 0.5}
    | dict.fromkeys(SLOW, 227_191_466)
    | WILD,
    # 2·N·8 rows of CPO in minibatches of 4·N.
    "sapg_cpo_steps": {"algo": "sapg", "update.minibatches": 4},
    # 4 times PPO's N·8 rows in minibatches of 4·N.
    "ppo_x4": {"algo": "ppo", "update.minibatches": 8},
    "ppo_mlp": {"algo": "ppo"},  # the hand has no LSTM to leave out
    "sapg_shifted_clip": {"algo": "sapg", "ensemble.clip_centre": "old_ratio"},
    "cpo_even_pull": {"pull.use_advantage": False},
    # 2·6 blocks of rows against SAPG's 6 + 1.
    "cpo_sapg_scale": {"ensemble.loss_scale": 12 / 7},
    "cpo_centred": CENTRED,
    "cpo_all": {"algo": "cpo", "ensemble.borrow_from": "all"} | CENTRED,
    "robust": dict.fromkeys(
        [f"env.randomise.{x}" for x in ("mass", "friction", "damping", "armature", "gain")], (0.7, 1.3)
    )
    | dict.fromkeys(
        [f"env.randomise.{x}_{y}" for x in ("action", "observation") for y in ("delay", "noise")], (0, 0.02)
    )
    | {"env.randomise.gravity": (0.95, 1.05), "env.randomise.push": (0.0, 0.5)},
}
"""Every variant's effect on AllegroHand, typed from the ablations it stands for."""


def test_variants_do_what_they_say_and_nothing_else() -> None:
    config = preset("AllegroHand")
    before = settings_of(config)
    found = {name: settings_of(variant(config)) for name, variant in VARIANTS.items() if variant.fits(config)}
    assert {name for name, after in found.items() if after != before | CHANGES[name]} == set()
    assert {name for name, after in found.items() if after == before} == {"entropy_off"}  # it has no bonus anyway

    # Those of every preset are valid, and the best are variants.
    for task, info in TASKS.items():
        assert set(info.best) <= set(VARIANTS)
        for variant in (variant for variant in VARIANTS.values() if variant.fits(info.preset)):
            check(variant(preset(task)))
    for task, flag in (("Hopper", "gripped-starts"), ("DeceptiveReach", "randomise")):
        (unfit,) = (variant for variant in VARIANTS.values() if variant.needs == flag.replace("-", "_"))
        with pytest.raises(UserError, match=f"not for {task}: it changes --env.{flag}, which the task lacks"):
            unfit(preset(task))

    for task, hands in (("AllegroKukaRegrasping", ("7:23",)), ("AllegroKukaTwoArmsReorientation", ("7:23", "30:46"))):
        before, after = settings_of(preset(task)), settings_of(VARIANTS["quiet_fingers"](preset(task)))
        quiet = {"algo": "ppo", "noise.sigma": 0.4, "noise.actions": hands, "env.gripped_starts": 0.5}
        steps = {"update.minibatches": 16, "update.clip": 0.2, "update.kl_rows": "own", "update.entropy_scale": 0.0}
        assert after == before | quiet | steps


def test_variants_follow_what_they_find() -> None:
    """Ablations of CPO select it, several policies leave PPO, a memory is left out, and a scale counts policies."""
    sapg, ppo = (replace(preset("ShadowHand"), algo=algo) for algo in ("sapg", "ppo"))
    names = ("no_pull", "no_adversary", "lambda_f_0.2", "cpo_even_pull", "cpo_sapg_scale", "cpo_centred")
    assert {VARIANTS[name](sapg).algo for name in names} == {"cpo"}
    assert [VARIANTS["policies_4"](config).algo for config in (ppo, sapg)] == ["cpo", "sapg"]
    remembers = preset("FrankaCubeStack")
    assert (remembers.model.lstm, VARIANTS["ppo_mlp"](remembers).model.lstm) == (256, 0)
    for policies, scale in ((2, 4 / 3), (6, 12 / 7), (12, 24 / 13)):
        config = VARIANTS["cpo_sapg_scale"](Preset(policies=policies))
        assert config.ensemble.loss_scale == pytest.approx(scale)
    # By horizon and given minibatches: SAPG with CPO's steps, PPO with four times its own, CPO centred.
    expected = {
        (8, None): [4, 8, 8],  # 2·8/4, then 4·(8/4) and 2·(2·8/4)
        (16, None): [8, 16, 16],
        (1, None): [1, 4, 2],  # each has one minibatch, however few its rows
        (16, 3): [3, 12, 6],
    }
    names = ("sapg_cpo_steps", "ppo_x4", "cpo_centred")
    for (horizon, given), steps in expected.items():
        update = replace(Preset().update, minibatch_envs=4.0, horizon=horizon, minibatches=given)
        assert [VARIANTS[name](Preset(update=update)).update.minibatches for name in names] == steps


def test_an_algorithm_is_a_variant_too_and_a_wrong_name_gets_the_nearest() -> None:
    """Alone it needs no other name than its own."""
    config = preset("AllegroHand")
    assert apply_variants(config, ["sapg"]) == replace(config, algo="sapg")
    changed = apply_variants(config, ["sapg", "entropy_on"])
    assert (changed.algo, changed.update.entropy_scale, changed.method) == ("sapg", 0.005, "sapg+entropy_on")
    for name, sentence in (
        ("no_pul", "did you mean no_pull?"),
        ("lambda_f_0.3", "did you mean lambda_f_0"),
        ("sagp", "did you mean sapg?"),
        ("xyz", "echelon variants lists them"),
    ):
        with pytest.raises(UserError, match=re.escape(f"{name} is not a variant; {sentence}")):
            apply_variants(Preset(), [name])


def test_what_is_trained_by_default() -> None:
    """Algorithm, variant, minibatches (four times PPO's two; twice CPO's), and the adversary's coefficient."""
    for task, flags, expected in (
        ("AllegroHand", [], ("ppo", ("ppo_x4",), 8, 0.001)),
        ("FrankaCubeStack", [], ("ppo", ("ppo_mlp",), None, 0.0)),
        ("AllegroHand", ["--preset", "paper"], ("cpo", (), None, 0.001)),
        ("AllegroHand", ["--algo", "cpo"], ("cpo", ("no_adversary",), None, 0.0)),
        ("AllegroHand", ["--algo=cpo", "--preset=paper"], ("cpo", (), None, 0.001)),
        ("AllegroHand", ["--variant", "no_pull"], ("cpo", ("no_pull",), None, 0.001)),
        ("AllegroHand", ["--variant", "robust"], ("ppo", ("ppo_x4", "robust"), 8, 0.001)),
        ("AllegroHand", ["--variant", "no_pull", "robust"], ("cpo", ("no_pull", "robust"), None, 0.001)),
        ("AllegroKukaThrow", [], ("cpo", (), None, 0.0)),
        ("DeceptiveReach", [], ("cpo", ("cpo_all",), 16, 0.0)),
        ("AllegroHand", ["--algo", "cpo", "--adversary.coef", "0.1"], ("cpo", (), None, 0.1)),
        # Named as long as anything of it is left, be it one setting of several.
        ("AllegroHand", ["--variant", "policies_4", "--policies", "2"], ("cpo", (), None, 0.001)),
        ("AllegroHand", ["--variant", "policies_4", "no_pull", "--policies", "2"], ("cpo", ("no_pull",), None, 0.001)),
        ("AllegroHand", ["--variant", "lambda_f_0.5", "--pull.beta", "1"], ("cpo", ("lambda_f_0.5",), None, 0.0)),
        ("AllegroHand", ["--variant", "robust", "--randomise.mass", "1", "1"], ("ppo", ("ppo_x4", "robust"), 8, 0.001)),
    ):
        config = configure(task, flags)
        found = (config.algo, config.variant, config.update.minibatches, config.adversary.coef)
        assert found == expected, (task, flags)
        assert configure(task, [], stored=json.loads(json.dumps(to_dict(config)))) == config  # as a file has it


def test_settings_from_a_file(tmp_path: Path) -> None:
    """Some of them, in YAML, or all that a run has stored; flags win, and a run's own folder is not taken over."""
    some, run = tmp_path / "some.yaml", tmp_path / "config.json"
    some.write_text(
        "task: Hopper\nseed: 4\nout: elsewhere\nwandb: online\nupdate: {clip: 0.1}\nmodel: {hidden: [8, 4]}\n"
    )

    def resolved(*words: str) -> TrainConfig:
        return parse(Train, "train", [*words, "--device", "cpu"]).resolve(ALONE).config

    config = resolved("--config", str(some), "--seed", "3")
    assert (config.task, config.seed, config.out, config.wandb) == ("Hopper", 3, None, "off")
    assert (config.update.clip, config.model.hidden, config.update.horizon) == (0.1, (8, 4), 16)
    run.write_text(json.dumps({"created": "now", "config": to_dict(replace(config, out="runs/a"))}))
    assert resolved("--config", str(run)) == config
    run.write_text(json.dumps(to_dict(resolved("DeceptiveReach"))))
    ppo = resolved("--config", str(run), "--algo", "ppo")
    assert (ppo.method, ppo.policies) == ("ppo", 1)  # no longer the file's variant, cpo_all, and its six policies
    run.write_text(json.dumps(to_dict(ppo)))
    assert resolved("--config", str(run), "--algo", "cpo").policies == 6
    with pytest.raises(UserError, match="the file has settings of --preset best; leave out --preset paper"):
        resolved("--config", str(run), "--preset", "paper")
    uneven = resolved("DeceptiveReach", "--policies", "2", "--num-envs", "96", "--envs-per-policy", "64", "32")
    run.write_text(json.dumps(to_dict(uneven)))
    assert resolved("--config", str(run), "--algo", "ppo").envs_per_policy == ()
    some.write_text("{task: Hopper, variant: [no_pull]}")
    assert resolved("--config", str(some), "--algo", "cpo").method == "no_pull"
    run.write_text(json.dumps(to_dict(resolved("--config", str(some)))))
    assert resolved("--config", str(run), "--algo", "cpo").method == "no_pull"  # what the file says it is
    # One among the flags wins over a file with all settings; what the file's own changed is named while it is left.
    pulled = (("--variant", "robust"), ("--variant", "robust", "--pull.beta", "0.5"), ("--variant", "no_pull"))
    found = [resolved("--config", str(run), *flags) for flags in pulled]
    assert [one.method for one in found] == ["no_pull+robust", "robust", "no_pull"]
    assert [vars(one)["pull"].beta for one in found] == [0.0, 0.5, 0.0]
    assert [vars(one.env)["randomise"] == ROBUST for one in found] == [True, True, False]
    run.write_text(json.dumps(to_dict(resolved("DeceptiveReach"))))
    all_rows = ("--config", str(run), "--variant", "cpo_all")
    assert resolved(*all_rows) == resolved("DeceptiveReach", "--policies", "6")  # not twice the minibatches again
    assert vars(resolved(*all_rows[:2], "--variant", "no_pull"))["pull"].beta == 0
    run.write_text(json.dumps(to_dict(ppo)))
    with pytest.raises(UserError, match="--variant no_pull trains cpo, not ppo; give --algo cpo"):
        resolved("--config", str(run), "--variant", "no_pull")
    sac = resolved("Hopper", "--algo", "sac", "--iterations", "900")
    run.write_text(json.dumps(to_dict(sac)))  # with settings that SAC ignores
    assert resolved("--config", str(run)) == sac
    assert resolved("--config", str(run), "--env-steps", "1e6").num_iterations == 123  # 1e6 / (512 · 16)
    for written in (
        "{env_steps: 2e5, update: {learning_rate: 3e-5}}",
        '{"env_steps": 2.0E+5, "update": {"learning_rate": 3e-05}}',
    ):
        some.write_text(written)  # YAML 1.1, which is what is read, takes most of these for texts
        config = resolved("Hopper", "--config", str(some))
        assert (config.env_steps, config.update.learning_rate) == (200_000, 3e-5)
    some.write_text("env_steps: 2e-1")
    with pytest.raises(UserError, match=r"env_steps takes a whole number, not 0\.2"):
        resolved("Hopper", "--config", str(some))
    some.write_text("update: {clap: 0.1}")
    for words, sentence in (
        ((), "names no task; write one"),
        (("Hopper",), "update.clap is not a setting; did you mean clip"),
    ):
        with pytest.raises(UserError, match=sentence):
            resolved(*words, "--config", str(some))
