"""Scores of a run's policies against a plain loop over environments; in changed physics, each point is what an
evaluation with that value fixed would be."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from gpu import MARKS
from rich.console import Console
from rollout.stub_env import DriftEnv, ScriptedEnv
from tiny import disturbed, tiny

from echelon import cli
from echelon.algorithms import complete, find
from echelon.config import ModelConfig, TaskConfig, TrainConfig
from echelon.config.schema import PLAIN, RandomiseConfig
from echelon.envs.contract import Env, Groups, interface_of
from echelon.errors import UserError
from echelon.evaluation import evaluate as module
from echelon.evaluation.evaluate import evaluate, robustness, verdict
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.acting import Actor
from echelon.runs import checkpoint
from echelon.runs.evaluations import (
    Axis,
    Evaluation,
    PolicyScore,
    Robustness,
    read_evaluation,
    read_robustness,
    write_evaluation,
)
from echelon.runs.folder import RunFolder
from echelon.runs.trained import Trained
from echelon.tasks import make
from echelon.training.loop import train

POLICIES = 3


def run_config(out: Path, lstm: int = 0) -> TrainConfig:
    return tiny("CartpoleSwingup", out, lstm=lstm, env={"episode_length": 15})


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return train(run_config(tmp_path_factory.mktemp("runs") / "cartpole"))


def drift(num_envs: int, device: torch.device, seed: int) -> DriftEnv:
    """Episodes of at most 8 steps. Without noise, environment i takes the same course in any company."""
    return DriftEnv(num_envs, seed, end_rate=0.15, episode_length=8, noise=False)


@pytest.fixture(scope="module", params=[0, 5], ids=["mlp", "lstm"])
def drifting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    config = run_config(tmp_path_factory.mktemp("runs") / "drift", request.param)
    return train(replace(config, task="Drift", env=TaskConfig()), make_env=drift)


def scores_of(evaluation: Evaluation, mode: str) -> list[PolicyScore]:
    scores = [score for score in evaluation.scores if score.mode == mode]
    assert [score.policy for score in scores] == list(range(POLICIES))
    return scores


def first_episode(folder: RunFolder, env: Env, env_index: int, policy: int) -> tuple[float, int, bool, float]:
    """Return, length, whether it ended by itself, and successes of one environment, one step after another."""
    model = Trained.load(folder).model
    obs, state = env.reset(), torch.zeros(env.num_envs, model.state_dim)
    total, never = 0.0, torch.zeros(1, env.num_envs, dtype=torch.bool)
    for length in range(1, env.episode_length + 1):
        with torch.no_grad():
            output = model({"policy": obs["policy"][None]}, torch.full((env.num_envs,), policy), state, never)
        step = env.step(output.mean[0].clamp(-1, 1))
        total += step.reward[env_index].item()
        if (step.terminated | step.truncated)[env_index]:
            successes = step.log.get("episode/successes", torch.zeros(env.num_envs))[env_index].item()
            return total, length, bool(step.terminated[env_index]), successes
        obs, state = step.obs, output.state
    raise AssertionError("no episode is longer than its limit")


@pytest.mark.parametrize("num_envs", [1, 7])
def test_every_environment_counts_once(drifting: RunFolder, num_envs: int) -> None:
    """Environments go on after their first episode; nothing of the second may count."""
    evaluation = evaluate(drifting, num_envs=num_envs, device="cpu", make_env=drift)
    lengths = []
    for score in scores_of(evaluation, "deterministic"):
        envs = (drift(num_envs, torch.device("cpu"), 0) for _ in range(num_envs))
        episodes = [first_episode(drifting, env, i, score.policy) for i, env in enumerate(envs)]
        returns, steps, ended, successes = (np.array(column, float) for column in zip(*episodes, strict=True))
        lengths += list(steps)
        assert score.episodes == num_envs
        assert score.return_mean == pytest.approx(returns.mean(), rel=1e-4, abs=1e-5)
        assert score.return_std == pytest.approx(returns.std(), rel=1e-4, abs=1e-5)
        assert score.length_mean == pytest.approx(steps.mean())
        assert score.terminated == pytest.approx(ended.mean())
        assert score.extra == {"successes": pytest.approx(successes.mean(), rel=1e-4, abs=1e-5)}
    if num_envs == 7:
        assert min(lengths) < 8  # some end early, others at the limit
        assert max(lengths) == 8


def test_a_policys_score_does_not_depend_on_which_are_scored_beside_it(drifting: RunFolder) -> None:
    results = []
    for policies in ([0], [0, 2], [0, 1, 2]):
        env = drift(7 * len(policies), torch.device("cpu"), 0)
        ids = torch.tensor(policies).repeat_interleave(7)
        results.append(module.first_episodes(env, Actor(Trained.load(drifting).model, ids), lambda: None))
    for name, x in results[0].items():
        for other in results[1:]:
            torch.testing.assert_close(other[name][:7], x, rtol=1e-5, atol=1e-6)


def test_every_policy_meets_the_same_starts(cartpole: RunFolder) -> None:
    """Six environments, one for each policy and way of acting, all reset to the same observations."""
    starts = []

    def watched(num_envs: int, device: torch.device, seed: int) -> Env:
        env = make("CartpoleSwingup", cartpole.config.env, num_envs, device, seed)
        reset = env.reset

        def kept() -> Groups:
            starts.append(reset())
            return starts[-1]

        env.reset = kept  # pyright: ignore[reportAttributeAccessIssue]
        return env

    evaluate(cartpole, num_envs=3, device="cpu", make_env=watched)
    assert len(starts) == 2 * POLICIES
    assert all(torch.equal(start["policy"], starts[0]["policy"]) for start in starts)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=MARKS)])
@pytest.mark.parametrize(("algo", "lstm"), [("cpo", 0), ("cpo", 5), ("pbt", 0)])
def test_side_by_side_is_what_one_after_another_is(tmp_path: Path, algo: str, lstm: int, device: str) -> None:
    """The first is for GPUs, the second for the rest; both meet the same starts and the same noise."""
    config = complete(replace(run_config(tmp_path, lstm), algo=algo))
    env = make("CartpoleSwingup", config.env, 1, torch.device("cpu"), 0)
    torch.manual_seed(1)
    networks = find(algo).networks(POLICIES)
    model = ActorCritic(env.obs_spec, env.action_dim, POLICIES, config.model, networks=networks)
    for x in model.parameters():
        x.data += 0.3 * torch.randn_like(x)  # policies that differ
    folder, where = RunFolder(tmp_path, config), torch.device(device)
    trained = Trained(folder, config, model.to(where), 0, 0, interface_of(env), {}, None)
    expected, found = (act(trained, 4, where, 5) for act in (module.one_after_another, module.side_by_side))
    assert found.keys() == expected.keys()
    for key, figures in expected.items():
        for name, x in figures.items():
            torch.testing.assert_close(found[key][name], x, rtol=1e-4, atol=1e-5 if device == "cpu" else 1e-3)
    returns = torch.stack([figures["return"] for figures in expected.values()])
    assert len(returns.unique()) == 2 * POLICIES * 4  # each policy, mode and start its own


@pytest.mark.parametrize(("longest", "expected", "taken"), [(None, [20.0, 20.0], 20), (90, [40.0, 70.0], 80)])
def test_a_clock_that_starts_anew_is_waited_for(longest: int | None, expected: list[float], taken: int) -> None:
    """Episodes of 40 and 70 steps beyond a clock of 20: counted whole, and then it stops, at the next look."""
    ends = torch.zeros(100, 2, dtype=torch.bool)
    ends[39, 0] = ends[69, 1] = True
    rest = torch.zeros(100, 2)
    env = ScriptedEnv(torch.zeros(101, 2), rest, ends, torch.zeros_like(ends), rest, episode_length=20)
    if longest is not None:
        env.longest_episode = longest
    model = ActorCritic(env.obs_spec, 1, 1, ModelConfig(hidden=(4,)))
    figures = module.first_episodes(env, Actor(model, torch.zeros(2, dtype=torch.int64)), lambda: None)
    assert figures["length"].tolist() == expected
    assert env.t == taken


def test_a_figure_counts_when_the_episode_ends_whatever_it_was_before() -> None:
    """As a share of tries, which is 0/0 until the first: one of one at the ends, after 2 and 3 steps."""
    ends, rest = torch.tensor([[0, 0], [1, 0], [0, 1], [0, 0]], dtype=torch.bool), torch.zeros(4, 2)
    env = ScriptedEnv(torch.zeros(5, 2), rest, ends, torch.zeros_like(ends), rest, episode_length=4)
    env = disturbed(env, lambda t, step: replace(step, log={"episode/share": ends[t - 1] / ends[t - 1].float()}))
    model = ActorCritic(env.obs_spec, 1, 1, ModelConfig(hidden=(4,)))
    figures = module.first_episodes(env, Actor(model, torch.zeros(2, dtype=torch.int64)), lambda: None)
    assert figures["share"].tolist() == [1.0, 1.0]


def test_the_seed_decides_starts_and_sampled_actions(cartpole: RunFolder, drifting: RunFolder) -> None:
    """In an environment without noise, it decides nothing but the sampled actions."""
    first, again, other = (evaluate(cartpole, num_envs=4, seed=seed, device="cpu") for seed in (1, 1, 2))
    assert first == again
    assert (first.task, first.algo, first.iteration, first.env_steps) == ("CartpoleSwingup", "cpo", 2, 2 * 4 * 6)
    assert {(one.length_mean, one.terminated, one.episodes) for one in first.scores} == {(15.0, 0.0, 4)}
    assert first.scores[0].return_mean != other.scores[0].return_mean
    for mean, sampled in zip(scores_of(first, "deterministic"), scores_of(first, "sampled"), strict=True):
        assert mean.return_mean != sampled.return_mean
    first, again, other = (evaluate(drifting, 4, seed, device="cpu", make_env=drift) for seed in (1, 1, 2))
    assert first == again
    assert scores_of(other, "deterministic") == scores_of(first, "deterministic")
    for one, another in zip(scores_of(other, "sampled"), scores_of(first, "sampled"), strict=True):
        assert one.return_mean != another.return_mean
    with pytest.raises(UserError, match="only tasks on Echelon's MuJoCo can be randomised here, and Drift is none"):
        evaluate(drifting, 4, make_env=drift, randomise=RandomiseConfig(mass=(1.0, 2.0)))


def test_best_and_newest_checkpoints_are_told_apart_and_mistakes_are_told(tmp_path: Path) -> None:
    folder = train(run_config(tmp_path / "run"))
    newest = checkpoint.find(folder)
    assert newest is not None
    checkpoint.save(folder, 1, newest.state, score=1e9)
    assert evaluate(folder, num_envs=1, device="cpu", checkpoint="newest").iteration == 2
    assert evaluate(folder, num_envs=1, device="cpu", checkpoint="best").iteration == 1
    assert evaluate(folder, num_envs=1, device="cpu", checkpoint=1).iteration == 1
    with pytest.raises(UserError, match="has no checkpoint of iteration 250; the nearest is 2"):
        evaluate(folder, num_envs=1, device="cpu", checkpoint=250)
    with pytest.raises(UserError, match="--num-envs must be at least 1, not 0"):
        evaluate(folder, num_envs=0)
    with pytest.raises(UserError, match="has no checkpoint yet; train it first"):
        evaluate(RunFolder(tmp_path, folder.config))


def test_scores_that_cannot_be_written_are_one_sentence(tmp_path: Path) -> None:
    """So a disk that is full while a run is evaluated does not end its training."""
    folder = train(run_config(tmp_path / "run"))
    folder.evaluation.mkdir()
    with pytest.raises(UserError, match="run cannot be written: Is a directory; make room, then resume"):
        module.evaluate_every(num_envs=1).on_checkpoint(folder, None)


def test_scores_of_another_checkpoint_lie_beside_those_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reports and comparisons read the newest checkpoint's; that checkpoint given by its number is the newest, too."""
    run = train(tiny("Hopper", tmp_path / "run", env={"episode_length": 5}))
    changed, pulled = ["--robustness", "--randomise.gravity", "0.5", "1"], ["--randomise.gravity", "0.5", "0.5"]
    for name, flags in {"evaluation": [], "robustness": changed, "evaluation-randomised": pulled}.items():
        iterations = {}
        for which in ("newest", "1", "2"):
            assert cli.main(["evaluate", str(run.path), "--num-envs", "1", "--checkpoint", which, *flags]) == 0
            last = capsys.readouterr().out.splitlines()[-1]
            own, other = run.path / f"{name}.json", run.path / f"{name}-iteration-1.json"
            aside = f"{other}; {own.name} is for the newest checkpoint, of iteration 2"
            assert last == f"Written to {aside if which == '1' else own}"
            iterations[which] = [json.loads(file.read_text())["iteration"] for file in (own, other) if file.exists()]
        assert iterations == {"newest": [2], "1": [2, 1], "2": [2, 1]}
    found = read_evaluation(run.path)
    assert found is not None
    assert found.iteration == 2


def test_scores_as_people_and_programs_read_them(tmp_path: Path) -> None:
    """The table marks the leader and fits a terminal; the file has every figure and no NaN, and comes back."""
    scores = (
        PolicyScore(0, "deterministic", 64, 812.3, 12.0, 500.0, 0.02, {"successes": 3.0}),
        PolicyScore(0, "sampled", 64, 790.0, 20.0, 480.0, 0.05, {"successes": 2.5}),
        PolicyScore(1, "deterministic", 64, math.nan, math.nan, 10.0, 1.0),
    )
    evaluation = Evaluation("Hopper", "cpo", 1200, 4_915_200, 3, scores)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as captured:
        console.print(module.score_table(evaluation))
    lines = [line.split() for line in captured.get().splitlines()]
    assert lines[0] == ["policy", "actions", "return", "length", "ended", "early", "successes"]
    assert lines[1] == ["0", "leader", "deterministic", "812.3", "±", "12.0", "500.0", "2%", "3.00"]
    assert lines[3] == ["1", "deterministic", "-", "±", "-", "10.0", "100%", "-"]
    words = "Hopper, cpo, after 1,200 iterations (4.92 M steps), 64 episodes each"
    assert module.headline(evaluation) == words
    path = tmp_path / "run" / "evaluation.json"
    write_evaluation(evaluation, path)
    data = json.loads(path.read_text())
    assert (data["task"], data["env_steps"], data["scores"][0]["extra"]) == ("Hopper", 4_915_200, {"successes": 3.0})
    assert data["scores"][2]["return_mean"] is None
    assert "NaN" not in path.read_text()
    read = read_evaluation(path.parent)
    assert read is not None
    assert replace(read, scores=read.scores[:2]) == replace(evaluation, scores=scores[:2])
    assert (read.of("successes/leader"), read.of("return", 0, "sampled")) == (3.0, 790.0)
    assert math.isnan(read.of("return", policy=1))


def test_physics_is_plain_unless_it_is_asked_for(tmp_path: Path) -> None:
    """A run trained on the moon: its evaluation is that of the same policies trained on earth, until told otherwise."""
    moon = {"randomise": RandomiseConfig(gravity=(0.17, 0.17))}
    run = train(tiny("Hopper", tmp_path / "moon", env={"episode_length": 15} | moon))
    lengths = [evaluate(run, 4, randomise=x).scores[0].length_mean for x in (PLAIN, None, moon["randomise"])]
    assert lengths[0] < lengths[1] == lengths[2]
    assert cli.main(["evaluate", str(run.path), "--num-envs", "4", "--randomise.gravity", "0.17", "0.17"]) == 0
    assert cli.main(["evaluate", str(run.path), "--num-envs", "4"]) == 0
    files = (run.path / "evaluation-randomised.json", run.evaluation)
    assert [json.loads(file.read_text())["scores"][0]["length_mean"] for file in files] == [lengths[1], lengths[0]]


def test_each_value_is_scored_as_an_evaluation_with_it_would_be(tmp_path: Path) -> None:
    """Gravity from the moon's to the earth's: the last value is plain, and the first an evaluation of its own."""
    run = train(tiny("Hopper", tmp_path / "run", env={"episode_length": 15}))
    found = robustness(run, 4, ranges=RandomiseConfig(gravity=(0.2, 1.0), friction=(0.5, 1.5)))
    gravity = found.parameters["gravity"]
    assert gravity.values == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    moon = evaluate(run, 4, randomise=RandomiseConfig(gravity=(0.2, 0.2), friction=(1.0, 1.0)))
    for policy in range(3):
        assert gravity.scores[policy][-1] == found.parameters["friction"].scores[policy][2] == found.plain[policy]
        assert gravity.scores[policy][0] != found.plain[policy]
    assert [evaluate(run, 4).of("return", k) for k in range(3)] == pytest.approx(found.plain)
    with pytest.raises(UserError, match="ranges change nothing of the physics"):
        robustness(run, 4, ranges=PLAIN)
    write_evaluation(found, run.path / "robustness.json")
    assert read_robustness(run.path) == found
    assert [moon.of("return", k) for k in range(3)] == pytest.approx([scores[0] for scores in gravity.scores])


def test_the_most_robust_policy_is_named() -> None:
    scores = Robustness(3, 0, 8, "return", (9.0, 8.0), {"mass": Axis((0.5, 1.5), ((4.0, 6.0), (7.0, 8.0)))})
    assert (scores.mean(0), scores.mean(1), scores.best) == (5.0, 7.5, 1)
    assert verdict(scores, "runs/a").endswith("7.50 against 5.00; echelon export runs/a --policy 1 takes it along.")
    assert "export runs/a --policy 1 --checkpoint best takes" in verdict(scores, "runs/a", "best")
    alone = Robustness(3, 0, 8, "return", (9.0,), {"mass": Axis((0.5, 1.5), ((4.0, 6.0),))})
    assert verdict(alone, "runs/a") == "In changed physics it scores 5.00 over all values, in plain physics 9.00."
    fell = Robustness(3, 0, 8, "return", (9.0, 8.0), {"mass": Axis((1.0,), ((math.nan,), (7.0,)))})
    assert fell.best == 1
    equal = Robustness(3, 1, 8, "return", (9.0, 8.0), {"mass": Axis((0.5, 1.5), ((4.0, 6.0), (5.0, 5.0)))})
    assert equal.best == 1


def test_a_score_that_is_not_finite_is_written_and_read_and_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    found = Robustness(3, 0, 8, "return", (math.nan,), {"mass": Axis((1.0, 2.0), ((4.0, math.nan),))})
    write_evaluation(found, tmp_path / "robustness.json")
    assert repr(read_robustness(tmp_path)) == repr(found)
    counts, mass = (
        '{"iteration": 1, "episodes": 1, "score": "", "plain": [1], "leader": ',
        '{"values": [], "scores": [[]]}',
    )
    for text in ("", "{}", f"{counts} 2}}", f'{counts} 0, "parameters": {{"mass": {mass}}}}}'):
        (tmp_path / "robustness.json").write_text(text)
        with pytest.raises(UserError, match=r"its robustness\.json is damaged"):
            read_robustness(tmp_path)
