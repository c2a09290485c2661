"""What each study trains, and what it keeps of a run."""

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from running import Row, Study
from train_until import first_to_meet

from echelon.algorithms import PbtConfig
from echelon.algorithms.variants import VARIANTS, with_settings
from echelon.config import DiagnosticsConfig, ModelConfig, TrainConfig
from echelon.diagnostics import nearest_policy
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import DISTANCES, read_lines, read_metrics
from echelon.tasks import preset
from echelon.tasks.cartpole.task import CartpoleConfig


# Does CPO hold the followers near the leader, and the more so the smaller its temperature λ_f? The paper's second
# table on other tasks.
def coupling(base: TrainConfig, workers: int) -> Study:
    coupled = {
        f"cpo λ_f={value}": replace(base, algo="cpo", pull=replace(base.pull, temperature=value))
        for value in (0.5, 0.2, 0.1, 0.05)
    }
    kept = ["return/leader", "is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader", "lr", "pull/weight"]
    shown = ["final_is_deviation", "final_ess", "kl_to_leader", "kl_to_nearest_follower", "final_return/leader"]
    goals = {"all 5 followers nearest to the leader": ("followers_nearest_to_leader", 5)}
    methods = {"sapg": replace(base, algo="sapg")} | coupled
    return Study(methods, kept, shown, goals=goals, figures=nearest, episodes=0, workers=workers)


MEASUREMENTS = 11
"""The paper averages over eleven iterations; so do we, over the last eleven measurements."""


def nearest(run: RunFolder, folder: Path) -> Row:
    """KL of followers to the leader, and to the nearest other follower, from the mean of the last matrices."""
    kl = torch.tensor([line["kl"] for line in read_lines(run.path / DISTANCES)[-MEASUREMENTS:]]).mean(0)
    others = kl[1:, 1:].clone().fill_diagonal_(float("inf")).min(1).values
    return {
        "followers_nearest_to_leader": int((nearest_policy(kl)[1:] == 0).sum()),
        "kl_to_leader": f"{kl[1:, 0].mean():.4g}",
        "kl_to_nearest_follower": f"{others.mean():.4g}",
    }


HOPPER = replace(preset("Hopper"), env_steps=600_000, device="cpu", diagnostics=DiagnosticsConfig(every=2))
ALLEGRO_HAND = replace(
    VARIANTS["lambda_f_0.2"](preset("AllegroHand")),  # the paper's ablation: β 0.001 and no adversarial reward
    num_envs=6144,
    iterations=150,
    device="cuda",
    diagnostics=DiagnosticsConfig(every=5),
)


# PPO, SAPG and CPO where the dense reward leads into a trap, and controls that say why it came out as it did. With
# OMP_NUM_THREADS=1.
def deceptive_reach() -> Study:
    base = replace(preset("DeceptiveReach"), device="cpu")
    steps = VARIANTS["sapg_cpo_steps"](base)  # as many optimizer steps per iteration as CPO takes

    def group_scope(config: TrainConfig) -> TrainConfig:
        """Advantages normalised within each group of rows, instead of over all of them together."""
        return replace(config, ensemble=replace(config.ensemble, advantage_scope="group"))

    ppo, cpo = replace(base, algo="ppo"), replace(base, algo="cpo")
    methods = {"ppo": ppo, "sapg": replace(base, algo="sapg"), "sapg_cpo_steps": steps, "cpo": cpo}
    controls = {
        # The entropy bonus that the ensemble's policies get on average.
        "ppo_entropy": replace(ppo, update=replace(base.update, entropy_coef=base.update.entropy_scale / 4)),
        "ppo_cpo_steps": replace(ppo, update=steps.update),
        "no_pull": VARIANTS["no_pull"](base),
        "cpo_group": group_scope(cpo),
        "sapg_cpo_steps_group": group_scope(steps),
    }
    pairs = (
        ("cpo", "sapg"),
        ("cpo", "sapg_cpo_steps"),
        ("cpo", "ppo"),
        ("sapg", "ppo"),
        ("sapg_cpo_steps", "sapg"),
        ("sapg_cpo_steps", "ppo_cpo_steps"),
        ("cpo_group", "cpo"),
        ("cpo_group", "sapg_cpo_steps_group"),
    )
    return Study(
        methods,
        ["return/leader", "successes/leader"],
        ["return", "return_sampled", *AVERAGED, "sigma_leader", "sigma_followers", "cpu_s"],
        controls=controls,
        goals={"the leader solves it": ("successes", 0.5), "a policy reached the goal": ("first_success_steps", 0)},
        pairs=pairs,
        seeds=dict.fromkeys([*methods, *controls], 20),
        figures=course,
        episodes=256,
        points=20,
    )


AVERAGED = ("is_deviation", "ess", "kl/follower_to_leader", "nearest_is_leader", "pull/weight", "pull/at_cap")


def course(run: RunFolder, folder: Path) -> Row:
    """Milestones in environment steps, spread of the policies, and diagnostics averaged over the run.

    What did not happen, and what a method does not have, is left out.
    """
    metrics = read_metrics(run)
    anybody = (line for line in metrics if any(line[name] > 0 for name in line if name.startswith("successes/")))
    leader = (line for line in metrics if line["successes/leader"] >= 0.5)
    sigmas = [[line[name] for name in line if name.startswith("sigma/")] for line in metrics]
    row: Row = {"sigma_leader": statistics.fmean(sigma[0] for sigma in sigmas)}
    if len(sigmas[0]) > 1:
        row["sigma_followers"] = statistics.fmean(statistics.fmean(sigma[1:]) for sigma in sigmas)
    for name in AVERAGED:
        if values := [line[name] for line in metrics if name in line]:
            row[name] = statistics.fmean(values)
    row = {name: f"{value:.6g}" for name, value in row.items()}
    for name, lines in (("first_success_steps", anybody), ("leader_half_steps", leader)):
        if (line := next(lines, None)) is not None:
            row[name] = int(line["env_steps"])
    return row


# Does a population find its way out of a learning rate that is thirty times too small, where PPO does not? The KL rule,
# which would repair it, is off. Every method has the same environment steps in all, so a member has a sixth of them.
# The rate is the only number that mutates, in steps large enough for the few takeovers of a run of a minute.
def pbt_recovery() -> Study:
    good, bad, members, envs = 3e-3, 1e-4, 6, 252
    iteration = envs // members * 16  # a member's environment steps; an episode is twelve and a half of these
    pbt = PbtConfig(
        interval=4 * iteration,
        initial_delay=13 * iteration,
        wait=13 * iteration,
        mutation_probability=1.0,
        mutation_low=1.5,
        mutation_high=4.0,
        mutable=("learning_rate",),
    )

    def config(algo: Any, rate: float) -> TrainConfig:
        base = replace(preset("CartpoleSwingup"), algo=algo, num_envs=envs, pbt=pbt)
        return replace(base, update=replace(base.update, learning_rate=rate, rate_schedule="fixed"))

    kept = ["return/leader", "upright_late/leader", "lr"]
    kept += [f"{name}/policy_{i}" for name in ("pbt/learning_rate", "objective") for i in range(members)]
    methods = {"ppo-good": config("ppo", good), "ppo-bad": config("ppo", bad), "pbt-bad": config("pbt", bad)}
    shown = ["return", "final_return/leader", "final_lr", "takeovers", "copies"]
    return Study(methods, kept, shown, figures=takeovers, workers=2)


def takeovers(run: RunFolder, folder: Path) -> Row:
    """How often members were replaced; the genealogy itself goes beside the results."""
    if run.config.algo != "pbt":
        return {}
    genealogy = run.path / "population/genealogy.jsonl"
    shutil.copy(genealogy, folder / f"genealogy-s{run.config.seed}.jsonl")
    lines = [line for line in read_lines(genealogy) if "donor" in line]
    return {"takeovers": len(lines), "copies": sum(line["copied"] for line in lines)}


# Does learning suffer from cheaper matrix products? Three runs share the GPU; `speed.py --precision` times an update.
# On a CPU there is only FP32: `--methods fp32 --device cpu` tries the study.
def precision(task: str, threshold: float) -> Study:
    base, names = replace(preset(task), device="cuda"), ("tf32", "fp32", "bf16")
    return Study(
        {name: replace(base, precision=name) for name in names},
        ["return/leader", "loss/critic", "kl/rate", "lr"],
        ["final_return/leader", "steps_to_threshold"],
        seeds=dict.fromkeys(names, 3),
        figures=partial(reached, "return/leader", threshold),
        episodes=0,
        workers=3,
    )


def reached(metric: str, threshold: float, run: RunFolder, folder: Path) -> Row:
    """Environment steps after which a metric, averaged over five iterations, first met the threshold."""
    met = first_to_meet(read_metrics(run), metric, threshold, window=5)
    return {"steps_to_threshold": int(met["env_steps"]) if met else ""}


# What does each change of the paper's CPO do alone, and all of them together? Beside PPO with as many optimizer steps.
# The adversary is off but where it is named, because nothing else shows beside it on AllegroHand.
def changes(task: str, env_steps: int, metric: str, threshold: float) -> Study:
    paper = replace(preset(task), env_steps=env_steps, device="cuda")
    steps = VARIANTS["sapg_cpo_steps"](paper).update.minibatches or 1  # as many as CPO takes
    base = {"algo": "cpo", "adversary.coef": 0.0, "update.minibatches": steps}
    normalised: Settings = {"pull.normalise": True}
    mean_weight = 20  # of the paper's pull, so that dividing by it leaves the strength as it was
    changed: dict[str, Settings] = {
        "kl_own": {"update.kl_rows": "own"},
        "centred": {"ensemble.advantage_scope": "centred"},
        "pull_divided": normalised | {"pull.beta": mean_weight * paper.pull.beta},
        "pull_normalised": normalised | {"pull.beta": 0.005, "pull.temperature": 1.0},
        "part_of_each": {"ensemble.borrow_from": "part_of_each"},
        "all": {"ensemble.borrow_from": "all"},
        **{f"adversary_{part}": {"adversary.coef": 0.001 / part} for part in (1, 10, 100)},
        **{f"lambda_f_{x}": {"pull.temperature": x} for x in (0.5, 0.2, 0.1, 0.05) if x != paper.pull.temperature},
    }
    # A flock asked for no distance. Arms that were asked for one were trained at 1ef1125 and before.
    centred: Settings = {"update.kl_rows": "own", "ensemble.advantage_scope": "centred", "ensemble.borrow_from": "all"}
    flock = with_settings(paper, centred | {"algo": "sapg", "update.minibatches": 2 * steps})
    gae = with_settings(flock, {"ensemble.estimator": "gae"})
    methods = {
        "cpo": with_settings(paper, base),
        **{name: with_settings(paper, base | settings) for name, settings in changed.items()},
        **{name: VARIANTS[name](paper) for name in ("cpo_centred", "cpo_all", "ppo_x4")},
        "flock": flock,
        "flock_gae": gae,
    }
    methods |= {f"steps_x{n}": with_settings(paper, base | {"update.minibatches": n * steps}) for n in (2, 4)}
    as_many: Settings = {"update.minibatches": 4 * steps}  # as steps_x4, twice as many as they take
    methods |= {"ppo_x8": with_settings(methods["ppo_x4"], as_many), "flock_gae_x2": with_settings(gae, as_many)}
    # All arms move by the same KL divergence an iteration, whatever they learn from. These by twice or half of that, or
    # twice or half as often, in minibatches of as many rows or fewer.
    rule, half = paper.update, paper.update.horizon // 2
    for arm in ("ppo_x4", "flock_gae"):
        minibatches = methods[arm].update.minibatches or 1
        moves: dict[str, Settings] = {
            "wide": {"update.kl_threshold": 2 * rule.kl_threshold, "update.clip": 2 * rule.clip},
            "narrow": {"update.kl_threshold": rule.kl_threshold / 2, "update.clip": rule.clip / 2},
            "short": {"update.horizon": half, "update.sequence": min(rule.sequence, half)},
            "long": {"update.horizon": 2 * rule.horizon, "update.minibatches": 2 * minibatches},
        }
        methods |= {f"{arm}_{name}": with_settings(methods[arm], settings) for name, settings in moves.items()}
    if paper.model.lstm:  # memory held FrankaCubeStack back
        methods["flock_gae_mlp"] = with_settings(gae, {"model.lstm": 0})
    return Study(
        methods,
        [
            "return/leader",
            "successes/leader",
            "env/reward/success",
            "held/leader",
            "env/lifted",
            "ess",
            "pull/weight",
            "lr",
        ],
        [f"final_{metric}", "final_return/leader", "final_ess", "steps_to_threshold"],
        seeds=dict.fromkeys(methods, 1),
        figures=partial(reached, metric, threshold),
        episodes=0,
    )


Settings = dict[str, Any]
"""New values by dotted name."""


# Do the quick tasks learn, how fast, and does memory help where velocities are hidden? One run at a time, because wall
# time is part of the claim.
def quick_tasks() -> Study:
    cartpole, hopper = preset("CartpoleSwingup"), preset("Hopper")
    # At the preset's larger KL threshold two of three LSTMs ended upright and centred, and curves swung.
    hidden = replace(cartpole, algo="ppo", env=CartpoleConfig(velocities=False))
    hidden = replace(hidden, update=replace(hidden.update, kl_threshold=0.008))
    methods = {
        "cartpole-ppo": replace(cartpole, algo="ppo"),
        "cartpole-cpo": cartpole,
        "hopper-ppo": replace(hopper, algo="ppo"),
        "hopper-cpo": hopper,
        "cartpole-hidden-mlp": replace(hidden, model=ModelConfig(hidden=(64, 64), lstm=0)),
        "cartpole-hidden-lstm": replace(hidden, model=ModelConfig(hidden=(64, 64), lstm=64)),
    }
    kept: Sequence[str] = ["return/leader", "upright_late/leader", "distance/leader", "fps/total"]
    seeds = {"hopper-ppo": 2, "hopper-cpo": 2, "cartpole-hidden-mlp": 3, "cartpole-hidden-lstm": 3}
    shown = ["seconds", "return", "ended_early", "upright_late", "distance"]
    return Study(methods, kept, shown, seeds=seeds)


STUDIES = {
    "coupling_hopper": coupling(HOPPER, workers=2),
    "coupling_allegro_hand": coupling(ALLEGRO_HAND, workers=5),
    "changes/AllegroHand": changes("AllegroHand", 46_000_000, "successes/leader", 1.0),
    "changes/AllegroKukaRegrasping": changes("AllegroKukaRegrasping", 60_000_000, "return/leader", 150.0),
    "deceptive_reach": deceptive_reach(),
    "pbt_recovery": pbt_recovery(),
    # Thresholds are returns that a run of the preset passes on its way: about five sixths of where it ends.
    "precision/Hopper": precision("Hopper", 1000.0),
    "precision/CartpoleSwingup": precision("CartpoleSwingup", 140.0),
    "quick_tasks": quick_tasks(),
}
