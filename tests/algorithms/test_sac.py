"""SAC against plain loops in float64, its replay, and runs of a second."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from gpu import needs_gpu
from rollout.stub_env import DriftEnv
from tiny import differing, disturbed, timeless
from torch import Tensor
from training.test_loop import Remember

from echelon.algorithms import SacConfig, SacTrainConfig, with_algorithm
from echelon.algorithms.sac import losses
from echelon.algorithms.sac.networks import SacNetworks
from echelon.algorithms.sac.replay import Replay
from echelon.config import TrainConfig, UpdateConfig
from echelon.console.view import NullView
from echelon.envs.contract import State, Step
from echelon.envs.observed import observed
from echelon.errors import UserError
from echelon.evaluation.evaluate import evaluate
from echelon.export.files import export
from echelon.export.policy import SavedPolicy
from echelon.runs.metrics import read_metrics
from echelon.tasks import make, preset
from echelon.training.loop import train, train_seeds
from echelon.training.off_policy import OffPolicyTrainer
from echelon.training.setup import make_trainer

SMALL = SacConfig(updates=2, batch=16, warm_up=4, n_step=3, hidden=(12, 8), critic_width=8, critic_blocks=1, bins=21)
CPU = torch.device("cpu")


def small(sac: SacConfig = SMALL, **changes: object) -> SacTrainConfig:
    config = SacTrainConfig(algo="sac", policies=1, num_envs=6, iterations=4, update=UpdateConfig(horizon=5), sac=sac)
    return replace(config, **changes)


def tiny_run(out: Path, iterations: int, **sac: object) -> SacTrainConfig:
    config = with_algorithm(replace(preset("CartpoleSwingup"), num_envs=4, device="cpu", out=str(out)), "sac")
    assert isinstance(config, SacTrainConfig)
    update = replace(config.update, horizon=4)
    return replace(config, iterations=iterations, checkpoint_every=1, update=update, sac=replace(SMALL, **sac))


# Equations


def normal(x: float) -> float:
    """The share of a standard normal distribution below x."""
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def test_log_prob_of_a_squashed_gaussian_and_bins_that_hold_the_shares_of_a_normal_one() -> None:
    """By the change of variables, where tanh is not flat; and finite where it is."""
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 40, 2, generator=generator, dtype=torch.float64).unbind()
    action, found = losses.sample(mean, 0.5 * log_std, noise)
    for row in range(40):
        expected = 0.0
        for a in range(2):
            std = math.exp(0.5 * log_std[row, a])
            u = float(mean[row, a]) + std * float(noise[row, a])
            density = math.exp(-0.5 * float(noise[row, a]) ** 2) / (std * math.sqrt(2 * math.pi))
            expected += math.log(density) - math.log(1 - math.tanh(u) ** 2)
            assert float(action[row, a]) == pytest.approx(math.tanh(u), abs=1e-14)
        assert float(found[row]) == pytest.approx(expected, abs=1e-9)
    flat = losses.squashed_log_prob(torch.tensor([[40.0]]), torch.tensor([[40.0]]), torch.tensor([[0.0]]))
    assert float(flat) == pytest.approx(-0.9189385 - 2 * (math.log(2) - 40.0), rel=1e-6)
    config = small(replace(SMALL, bins=11, reach=2.0))
    model = SacNetworks({"policy": 3}, 1, config).double()
    width, sigma = 0.4, 0.3
    values = [-5.0, -2.0, -0.13, 0.0, 1.9, 7.0]
    for value, shares in zip(values, model.labels(torch.tensor(values, dtype=torch.float64)), strict=True):
        inside = min(max(value, -2.0), 2.0)
        below = [normal((-2.2 + width * k - inside) / sigma) for k in range(12)]
        expected = [(high - low) / (below[-1] - below[0]) for low, high in pairwise(below)]
        assert shares.tolist() == pytest.approx(expected, abs=1e-6)
        assert float(shares.sum()) == pytest.approx(1)
    middle = losses.expectation(model.labels(torch.tensor([-0.13], dtype=torch.float64)).log(), model.centres)
    assert float(middle) == pytest.approx(-0.13, abs=1e-3)


def twin(model: SacNetworks, critics: torch.nn.Module, which: int, obs: list[float], action: list[float]) -> list:
    """Logits of one critic for one row, by loops."""
    x = affine(critics.first, which, [*obs, *action])
    for norm, up, down in zip(critics.norms, critics.up, critics.down, strict=False):
        inner = [v / (1 + math.exp(-v)) for v in affine(up, which, normed(norm, which, x))]
        x = [a + b for a, b in zip(x, affine(down, which, inner), strict=True)]
    return affine(critics.last, which, normed(critics.norms[-1], which, x))


def affine(layer: torch.nn.Module, which: int, x: list[float]) -> list[float]:
    rows = zip(layer.weight[which].tolist(), layer.bias[which].tolist(), strict=True)
    return [sum(w * v for w, v in zip(weights, x, strict=True)) + bias for weights, bias in rows]


def normed(norm: torch.nn.Module, which: int, x: list[float]) -> list[float]:
    mean = sum(x) / len(x)
    std = math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + 1e-5)
    scales = zip(x, norm.weight[which].tolist(), norm.bias[which].tolist(), strict=True)
    return [(v - mean) / std * weight + bias for v, weight, bias in scales]


def expected_value(logits: list[float], centres: list[float]) -> float:
    largest = max(logits)
    weights = [math.exp(x - largest) for x in logits]
    return sum(w * c for w, c in zip(weights, centres, strict=True)) / sum(weights)


@pytest.fixture
def learning() -> OffPolicyTrainer:
    """A trainer in float64 that has collected enough, with critics that differ from their targets."""
    torch.set_default_dtype(torch.float64)
    try:
        config = small()
        trainer = make_trainer(DriftEnv(6, critic=True), config)
        assert isinstance(trainer, OffPolicyTrainer)
        trainer.iterate()
        generator = torch.Generator().manual_seed(3)
        for parameter in trainer.model.parameters():
            parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
        yield trainer  # pyright: ignore[reportReturnType]
    finally:
        torch.set_default_dtype(torch.float32)


def test_losses_and_their_gradients_are_those_of_loops(learning: OffPolicyTrainer) -> None:
    """Values row by row in plain Python; gradients by differences in a few directions."""
    learner, model = learning.learner, learning.model
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        rows = learner.draw(torch.rand(2, 16, generator=generator))
    noise = torch.randn(16, 2, generator=generator)
    alpha, centres = math.exp(float(model.log_alpha.detach())), model.centres.tolist()

    def acted(obs: Tensor, row: int) -> tuple[list[float], float]:
        mean, log_std = model.actor(obs[row])
        mean, log_std = mean.detach(), log_std.detach()
        before = [float(m + s.exp() * z) for m, s, z in zip(mean, log_std, noise[row], strict=True)]
        spread = zip(before, noise[row].tolist(), log_std.tolist(), strict=True)
        logs = [-0.5 * z * z - s - 0.5 * math.log(2 * math.pi) - math.log(1 - math.tanh(u) ** 2) for u, z, s in spread]
        return [math.tanh(u) for u in before], sum(logs)

    def values(critics: torch.nn.Module, obs: list[float], action: list[float]) -> list[float]:
        return [expected_value(twin(model, critics, which, obs, action), centres) for which in (0, 1)]

    critic, actor = 0.0, 0.0
    for row in range(16):
        action, log_prob = acted(rows.following["policy"], row)
        least = min(values(model.target, rows.following["critic"][row].tolist(), action))
        target = float(rows.reward[row]) + float(rows.factor[row]) * (least - alpha * log_prob)
        shares = model.labels(torch.tensor([target]))[0].tolist()
        for which in (0, 1):
            logits = twin(model, model.critics, which, rows.obs["critic"][row].tolist(), rows.action[row].tolist())
            total = math.log(sum(math.exp(x) for x in logits))
            critic -= sum(share * (x - total) for share, x in zip(shares, logits, strict=True)) / 16
        action, log_prob = acted(rows.obs["policy"], row)
        actor += (alpha * log_prob - min(values(model.critics, rows.obs["critic"][row].tolist(), action))) / 16
        actor += alpha * (-log_prob - 2 * SMALL.entropy) / 16
    assert float(learner.critic_loss(rows, noise)[0].detach()) == pytest.approx(critic, rel=1e-9)
    assert float(learner.actor_loss(rows, noise)[0].detach()) == pytest.approx(actor, rel=1e-9)

    def actor_alone() -> Tensor:
        """Without the temperature's term, whose gradient stops at the actor; `q` of the shared critics."""
        mean, log_std = model.act(rows.obs["policy"])
        action, log_prob = losses.sample(mean, log_std, noise)
        return alpha * log_prob.mean() - model.value(model.critics, rows.obs["critic"], action).amin(0).mean()

    sides = (
        (list(model.critics.parameters()), lambda: learner.critic_loss(rows, noise)[0], None),
        (list(model.actor.parameters()), lambda: learner.actor_loss(rows, noise)[0], actor_alone),
    )
    for parameters, loss, plain in sides:
        gradients = torch.autograd.grad(loss(), parameters)
        directions = [torch.randn(p.shape, generator=generator) for p in parameters]
        slope = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True))
        ends = []
        for side in (1e-6, -1e-6):
            for p, d in zip(parameters, directions, strict=True):
                p.data += side * d
            ends.append(float((plain or loss)().detach()))
            for p, d in zip(parameters, directions, strict=True):
                p.data -= side * d
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)
    (slope,) = torch.autograd.grad(learner.actor_loss(rows, noise)[0], [model.log_alpha])
    entropy = -sum(acted(rows.obs["policy"], row)[1] for row in range(16)) / 16
    assert float(slope) == pytest.approx(alpha * (entropy - 2 * SMALL.entropy), rel=1e-9)


def test_targets_follow_and_nothing_else_does(learning: OffPolicyTrainer) -> None:
    """Per update the targets move by τ, and the critics that judge the actor are the critics themselves."""
    learner, model = learning.learner, learning.model
    learner.updates = 5
    learner.begin()
    learner.learn()
    assert [int(sums[-1]) for sums in learner._sums.values()] == [5, 3]  # the actor learns at every second update
    learner.updates = 1
    before = [x.clone() for x in model.target.parameters()]
    learner.learn()
    pairs = zip(before, model.target.parameters(), model.critics.parameters(), strict=True)
    assert all(torch.allclose(now, old + 0.01 * (new - old), rtol=0, atol=1e-15) for old, now, new in pairs)
    judges = learner._judges.parameters()
    assert all(x.data_ptr() == y.data_ptr() for x, y in zip(judges, model.critics.parameters(), strict=True))


# The replay


def test_a_ring_gives_the_returns_that_loops_give() -> None:
    """Seven steps fit and eleven are stored; ends by failure and by the time limit, one of them the newest step."""
    capacity, envs, n, discount = 7, 3, 3, 0.9
    generator = torch.Generator().manual_seed(0)
    replay = Replay(capacity, envs, {"policy": 1}, 1, CPU)
    history: list[dict] = []
    for t in range(11):
        terminated = torch.rand(envs, generator=generator) < 0.2
        truncated = torch.rand(envs, generator=generator) < 0.2 if t < 10 else torch.tensor([True, False, False])
        place = 10.0 * t + torch.arange(envs)
        step = {
            "obs": {"policy": place[:, None]},
            "following": {"policy": 1000 + place[:, None]},
            "action": -place[:, None],
            "reward": torch.randn(envs, generator=generator),
            "ended": terminated,
            "final": terminated | truncated,
        }
        replay.store(**step)
        history.append(step)
    assert any(bool((s["final"] & ~s["ended"]).any()) for s in history[4:])
    assert any(bool(s["ended"].any()) for s in history[4:])
    drawn = torch.tensor([[(e + 0.5) / envs, (k + 0.5) / 5] for e in range(envs) for k in range(5)]).T
    rows = replay.draw(drawn, n, discount)
    seen = set()
    for row in range(15):
        t, env = divmod(int(rows.obs["policy"][row]), 10)
        seen.add((t, env))
        total, factor = 0.0, 1.0
        for step in range(t, t + n):
            total += factor * float(history[step]["reward"][env])
            factor *= discount
            if history[step]["final"][env]:
                break
        assert float(rows.reward[row]) == pytest.approx(total, rel=1e-6)
        assert float(rows.factor[row]) == pytest.approx(0.0 if history[step]["ended"][env] else factor, rel=1e-6)
        assert float(rows.following["policy"][row]) == 1000 + 10 * step + env
        assert float(rows.action[row]) == -(10 * t + env)
    assert seen == {(t, env) for t in range(4, 9) for env in range(envs)}  # no other has two steps after it

    larger = Replay(20, envs, {"policy": 1}, 1, CPU)
    larger.load_state_dict(replay.state_dict())
    assert not differing(vars(larger.draw(drawn, n, discount)), vars(rows))
    smaller = Replay(5, envs, {"policy": 1}, 1, CPU)
    smaller.load_state_dict(replay.state_dict())
    newest = {int(x) // 10 for x in smaller.draw(drawn, n, discount).obs["policy"]}
    assert newest == {6, 7, 8}

    larger.cut()
    larger.store(**history[0])
    later = larger.draw(torch.tensor([[0.9], [0.0]]), 2, discount)  # the newest but one, of the last environment
    assert float(later.reward) == float(history[10]["reward"][2])
    assert float(later.following["policy"]) == 1000 + 100 + 2


def test_what_is_stored_is_what_happened() -> None:
    """Where an episode ends, what follows is its last observation; without one, the observation before. What an
    environment calls the last observation of an episode that goes on, as where a goal was replaced, is not read."""
    for final, bootstrap in ((True, "final_obs"), (False, "final_obs"), (True, "none")):
        steps = []

        def note(_: int, step: Step, steps: list[Step] = steps, final: bool = final) -> Step:
            assert step.final_obs is not None
            goes_on = ~(step.terminated | step.truncated)[:, None]
            last = {name: x + 1000 * goes_on for name, x in step.final_obs.items()}
            steps.append(replace(step, final_obs=last if final else None))
            return steps[-1]

        env = disturbed(DriftEnv(6, end_rate=0.2), note)
        trainer = make_trainer(env, small(update=UpdateConfig(horizon=5, timeout_bootstrap=bootstrap)))
        for _ in range(4):
            trainer.iterate()
        stored, done = trainer.learner.replay.stored, [s.terminated | s.truncated for s in steps]
        assert trainer.collector.lacks_final_obs == (not final)
        for t in range(1, 20):
            now = steps[t - 1].obs["policy"]
            assert stored["obs/policy"][t].equal(now)
            assert stored["final"][t].equal(done[t])
            assert stored["ended"][t].equal(steps[t].terminated if bootstrap == "final_obs" else done[t])
            last = steps[t].final_obs["policy"] if final and bootstrap == "final_obs" else now
            assert stored["following/policy"][t].equal(torch.where(done[t][:, None], last, steps[t].obs["policy"]))
        assert stored["action"][:20].abs().max() < 1


def test_rewards_of_an_easier_level_are_forgotten() -> None:
    """But for as many of the newest steps as learning begins with, 4: the first of 5 at another level leaves 4."""

    class Curriculum(DriftEnv):
        difficulty = torch.tensor(1.0)

        def adopt(self, state: State, *, fixed: bool) -> None: ...

        def join_ranks(self, mean: Callable[[Tensor], Tensor]) -> None: ...

    env = Curriculum(6)
    trainer, filled = make_trainer(observed(env, ("0:3",), 1), small()), []
    for level in (1.0, 1.0, 1.0, 0.9, 0.9, 0.81):
        env.difficulty.fill_(level)
        trainer.iterate()
        filled.append(int(trainer.collector.replay.filled))
    assert filled == [5, 10, 15, 4 + 4, 13, 4 + 4]
    env.difficulty.fill_(1.0)
    resumed = make_trainer(observed(env, ("0:3",), 1), small()).collector
    resumed.load_state_dict(older := trainer.collector.state_dict())
    assert float(resumed.paid_at) == pytest.approx(0.81)  # or all that a checkpoint holds would be forgotten
    env.difficulty.fill_(0.81)
    del older["paid_at"]  # as if it were younger than the run
    trainer.collector.load_state_dict(older)
    trainer.iterate()
    assert int(trainer.collector.replay.filled) == 8 + 5
    # What is called so where there is no curriculum, as in --env-arg difficulty=3, is not read.
    plain = DriftEnv(6)
    plain.difficulty = 3
    make_trainer(plain, small()).iterate()
    # That of AllegroKuka is its tolerance.
    hand = make("AllegroKukaRegrasping", preset("AllegroKukaRegrasping").env, 2, CPU, 0)
    hand.kept["tolerance"].fill_(0.05)
    assert float(observed(hand, (), 3).difficulty) == pytest.approx(0.05)


# Scale and noise


def test_rewards_are_scaled_by_returns_that_were_observed() -> None:
    steps: list[Step] = []
    env = disturbed(DriftEnv(6), lambda _, step: steps.append(step))
    trainer = make_trainer(env, small(replace(SMALL, reach=0.5)))
    for _ in range(4):
        trainer.iterate()
    returns, seen, largest = [0.0] * 6, [], 0.0
    for step in steps:
        returns = [0.99 * g + float(r) for g, r in zip(returns, step.reward, strict=True)]
        seen += returns
        sizes = torch.tensor(returns).abs()
        largest = max(largest, float(sizes.mean() + 4 * sizes.std()))
        ends = step.terminated | step.truncated
        returns = [0.0 if end else g for g, end in zip(returns, ends, strict=True)]
    assert float(trainer.model.largest) == pytest.approx(largest, rel=1e-5)
    assert float(trainer.model.scale) == pytest.approx(largest / 0.5, rel=1e-5)
    assert float(trainer.model.return_norm.mean) == pytest.approx(sum(seen) / (len(seen) + 1), rel=1e-5)


def test_noise_persists_and_rises_and_updates_follow_the_number_of_environments() -> None:
    sac = replace(SMALL, persistence=0.75, ladder=(0.5, 8.0))
    collector = make_trainer(DriftEnv(5), small(sac, num_envs=5)).collector
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([collector._noise(generator, 5) for _ in range(4000)])
    same = (drawn[1:] == drawn[:-1]).all(-1).float().mean()
    assert float(same) == pytest.approx(0.75, abs=0.02)
    assert drawn.std((0, 2)).tolist() == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0], rel=0.1)
    for envs, *expected in (
        *((1, 1, 256, 5000, 1, 0.0), (32, 32, 256, 157, 1, 0.0), (384, 32, 256, 14, 3, 0.5)),
        *((4096, 7, 4096, 8, 3, 0.5), (24_576, 40, 4096, 8, 3, 0.5)),
    ):
        found = SacConfig().sized(envs)
        assert [found.updates, found.batch, found.warm_up, found.n_step, found.persistence] == expected


# Runs


def test_it_learns_to_hold_still() -> None:
    """The points shall rest at 0.5: reward 1 per step, about -1 for random actions; a few thousand updates."""
    sac = SacConfig(updates=4, batch=64, warm_up=16, hidden=(32,), critic_width=32, critic_blocks=1)
    sac = replace(sac, learning_rate=2e-3, bins=51)
    trainer = make_trainer(DriftEnv(16, end_rate=0.0, episode_length=20), small(sac, num_envs=16, iterations=30))
    first, *_, last = (trainer.iterate().metrics for _ in range(30))
    assert first["loss/critic"] == 0.0
    assert last["return/leader"] > 12  # of 20 steps
    assert last["explained"] > 0.5


def test_a_run_resumes_to_the_bit_with_its_replay_and_fills_it_again_without(tmp_path: Path) -> None:
    for name, iterations in (("whole", (5,)), ("parts", (3, 5))):
        for number in iterations:
            train(tiny_run(tmp_path / name, number, save_replay=True), NullView())
    assert timeless(tmp_path / "whole") == timeless(tmp_path / "parts")

    train(tiny_run(tmp_path / "bare", 3), NullView())
    view = Remember()
    folder = train(tiny_run(tmp_path / "bare", 5), view)
    (said,) = (text for text in view.said if "not to the bit" in text)
    assert "so 16 environment steps fill it first" in said
    assert any(text.startswith("replay: 80 rows, the last 20 steps of 4 environments") for text in view.said)
    assert any("; updates per step: 2, of 16 rows" in text for text in view.said)
    config = folder.config
    assert isinstance(config, SacTrainConfig)
    with pytest.raises(UserError, match=r"sac\.temperature cannot be changed in .*: it is where α began"):
        train(replace(config, sac=replace(config.sac, temperature=0.5)), change=True)
    steps = [line["gradient_steps"] for line in read_metrics(folder)]
    assert steps == [2, 10, 18, 20, 28]  # of four steps, one learns after the warm-up
    view = Remember()
    train(replace(tiny_run(tmp_path / "next", 1), start_from=str(folder.path)), view)
    assert f"started from the networks of {folder.path} after iteration 5" in view.said


def test_every_command_opens_it_and_what_it_refuses_is_one_sentence(tmp_path: Path) -> None:
    """The exported policy is tanh of the actor's mean, in NumPy too, and evaluation acts by it."""
    folder = train(tiny_run(tmp_path / "run", 2), NullView())
    policy = SavedPolicy.load(folder)
    model = policy.trained.model
    obs = torch.randn(50, *policy.sizes["obs"])
    with torch.no_grad():
        mean, _ = model.actor(model.obs_norm["policy"](obs))
        assert torch.allclose(policy(obs), mean.tanh(), atol=1e-6)
        assert float(mean.abs().max()) > 0.001
    assert export(policy, "numpy", tmp_path / "policy.npz") < 1e-5
    scores = evaluate(folder, num_envs=2, device="cpu")
    assert [score.mode for score in scores.scores] == ["deterministic", "sampled"]
    assert scores.scores[0].return_mean != scores.scores[1].return_mean
    config: TrainConfig = tiny_run(tmp_path, 1)
    with pytest.raises(UserError, match=r"without memory; --model\.lstm 0"):
        replace(config, model=replace(config.model, lstm=8)).check()
    with pytest.raises(UserError, match="numbers only"):
        SacNetworks({"policy": 3, "image": (3, 8, 8)}, 1, small())


def test_seeds_take_turns_and_each_is_what_it_is_alone(tmp_path: Path) -> None:
    config = tiny_run(tmp_path / "both", 3)
    for folder, seed in zip(train_seeds(config, (2, 0), NullView()), (2, 0), strict=True):
        alone = train(replace(config, seed=seed, out=str(tmp_path / f"alone_{seed}")), NullView())
        assert timeless(folder.path) == timeless(alone.path)
        assert read_metrics(folder)[-1]["loss/critic"] > 0


def test_everything_is_traced_once(traced: None) -> None:
    """As CUDA would compile it: draws and both losses without a graph break, to the same numbers."""
    found, expected = (make_trainer(DriftEnv(6, critic=True), small(fuse=fuse)) for fuse in (True, False))
    ours, theirs = found.iterate().metrics, expected.iterate().metrics
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5, nan_ok=True)
    assert ours["loss/critic"] > 0


@needs_gpu
@pytest.mark.parametrize("fuse", [False, True])
def test_recorded_equals_eager(fuse: bool) -> None:
    """Graphs of a step and of its updates, replayed, learn what plain calls learn."""
    config = replace(tiny_run(Path("unused"), 6), num_envs=64, device="cuda", fuse=fuse)
    runs = []
    for capture in (True, False):
        env = make(config.task, config.env, 64, torch.device("cuda"), 0, spread_clocks=True)
        trainer = make_trainer(env, replace(config, capture=capture))
        metrics = [trainer.iterate().metrics for _ in range(6)]
        runs.append((metrics, trainer))
    for ours, theirs in zip(runs[0][0], runs[1][0], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4, nan_ok=True)
    states = [trainer.model.state_dict() for _, trainer in runs]
    assert not differing(dict(states[0]), dict(states[1]), rtol=1e-3, atol=1e-4)
