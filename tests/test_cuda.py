"""The iteration on a CUDA GPU: the same numbers as on the CPU, and one read by the host."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from gpu import MARKS
from tiny import build, unfused

import echelon.training.trainer as trainer_module
from echelon.algorithms import AdversaryConfig, PbtConfig
from echelon.algorithms.algorithm import Takeover
from echelon.algorithms.pbt import Population
from echelon.config import DiagnosticsConfig, TrainConfig
from echelon.config.schema import ROBUST
from echelon.learning.plans import Minibatch
from echelon.rollout.buffer import Rollout
from echelon.tasks import make
from echelon.training import off_policy
from echelon.training.off_policy import OffPolicyTrainer
from echelon.training.stacked import StackedTrainer
from echelon.training.trainer import Trainer

pytestmark = MARKS


def reach(algo: str, lstm: int, **changes: object) -> TrainConfig:
    """Members of a population have hyperparameters of their own, and none is replaced by itself."""
    return unfused("DeceptiveReach", algo, lstm, **{"pbt": PbtConfig(mutation_probability=1.0)} | changes)


def on_cuda(rollout: Rollout) -> Rollout:
    values = {name: x.cuda() for name, x in vars(rollout).items() if name != "obs"}
    return Rollout(obs={name: x.cuda() for name, x in rollout.obs.items()}, **values)


def assert_one_read(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in an iteration but the packed read of the metrics runs under PyTorch's synchronisation check."""
    reads = 0
    read, module = trainer_module.read, off_policy if isinstance(trainer, OffPolicyTrainer) else trainer_module

    def counted(*arguments):
        nonlocal reads
        reads += 1
        torch.cuda.set_sync_debug_mode("default")
        return read(*arguments)

    monkeypatch.setattr(module, "read", counted)
    torch.cuda.set_sync_debug_mode("error")
    try:
        results = trainer.iterate_each()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert reads == 1
    learned = ("loss/", "kl/", "lr")
    assert all(x == x for result in results for name, x in result.metrics.items() if name.startswith(learned))


@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize("algo", ["ppo", "sapg", "cpo", "pbt"])
def test_an_update_equals_the_cpus(algo: str, lstm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same rollout, same minibatches: targets to 1e-5 and parameters after a whole update to 1e-4, in FP32."""
    config = reach(algo, lstm)
    cpu, cuda = build(config, "cpu"), build(config, "cuda")
    cpu.iterate()
    cuda.model.load_state_dict(cpu.model.state_dict())
    if cpu.selection is not None and cuda.selection is not None:
        cuda.selection.load_state_dict(cpu.selection.state_dict())
    rollout = cpu.collector.collect()
    follower = cpu.layout.draw_followers(cpu.generator)
    passes = [list(cpu.plan.shuffle(follower, cpu.generator)) for _ in range(cpu.update.passes)]
    results = []
    for trainer, given in ((cpu, rollout), (cuda, on_cuda(rollout))):
        device = trainer.env.device
        drawn = follower.to(device)
        targets = trainer_module.compute_targets(
            trainer.plan, given, trainer.model, drawn, None, trainer.settings, config.ensemble
        )
        queue = iter(passes)

        def shuffle(*_: object, queue=queue, device=device) -> Iterator[Minibatch]:
            return (Minibatch(m.unit.to(device), m.evaluation.to(device)) for m in next(queue))

        monkeypatch.setattr(trainer.plan, "shuffle", shuffle)
        optimizer = trainer.update.optimizer
        optimizer.rate.fill_(5e-4)
        for moment in (optimizer.mean, optimizer.square, optimizer.steps):
            moment.zero_()
        metrics = trainer.update.summary(trainer.update.run(given, targets, drawn, trainer.generator))
        results.append((targets, metrics, dict(trainer.model.named_parameters())))
    (targets_cpu, metrics_cpu, model_cpu), (targets_cuda, metrics_cuda, model_cuda) = results
    torch.testing.assert_close(targets_cuda.advantage.cpu(), targets_cpu.advantage, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(targets_cuda.returns.cpu(), targets_cpu.returns, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(metrics_cuda["lr"].cpu(), metrics_cpu["lr"])
    torch.testing.assert_close(cuda.update.optimizer.steps.cpu(), cpu.update.optimizer.steps)
    for name, parameter in model_cpu.items():
        torch.testing.assert_close(model_cuda[name].cpu(), parameter, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize("algo", ["ppo", "sapg", "cpo", "pbt", "sac"])
def test_the_host_reads_once_per_iteration(algo: str, lstm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = reach(
        algo, lstm, adversary=AdversaryConfig(coef=0.01, hidden=(32,)), diagnostics=DiagnosticsConfig(every=1)
    )
    trainer = build(config, "cuda")
    trainer.iterate()
    trainer.iterate()  # recording waits for the device; replaying does not
    assert_one_read(trainer, monkeypatch)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("lstm", [0, 16])
def test_replays_see_takeovers(lstm: int, fuse: bool) -> None:
    """After a copy in place, recorded graphs act with the copied weights and train with the new hyperparameters."""
    trainer = build(reach("pbt", lstm, fuse=fuse), "cuda")
    for _ in range(4):
        trainer.iterate()
    selection = trainer.selection
    assert isinstance(selection, Population)
    after = selection.start()[0] | {"learning_rate": 2e-4, "clip": 0.05, "mini_epochs": 1.0}
    selection.apply(Takeover(5, 0, True, 0, 0.0, 1.0, {}, after))
    flat, steps = trainer.update.optimizer.flat, trainer.update.optimizer.steps
    assert flat[5].equal(flat[0])
    log_std, before, taken = trainer.model.log_std[0].detach().clone(), flat.clone(), steps.clone()
    metrics = trainer.iterate().metrics
    assert trainer.collector.rollout.log_std[5].equal(log_std)
    wanted = [row["mini_epochs"] * trainer.plan.minibatches for row in selection.start()]
    assert (steps - taken).tolist() == wanted
    assert wanted[5] == trainer.plan.minibatches < wanted[0]
    assert all(not now.equal(then) for now, then in zip(flat, before, strict=True))
    assert metrics["pbt/clip/policy_5"] == pytest.approx(0.05)


@pytest.mark.parametrize("algo", ["cpo", "pbt"])
def test_a_run_resumes_on_cuda(algo: str, tmp_path) -> None:
    """Through a checkpoint and back; on CUDA to rounding, not to the bit."""
    from echelon.runs.metrics import read_metrics
    from echelon.training.loop import train

    config = reach(algo, 16, device="cuda", out=str(tmp_path / "run"))
    train(dataclasses.replace(config, iterations=2))
    folder = train(dataclasses.replace(config, iterations=4))
    assert [line["iteration"] for line in read_metrics(folder)] == [1, 2, 3, 4]


def test_seeds_side_by_side_are_recorded_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seeds of CPO on one engine, recorded as graphs, learn what they learn without, and each has its own
    numbers."""
    adversary, every_other = AdversaryConfig(coef=0.1, hidden=(16,)), DiagnosticsConfig(every=2)
    config = unfused("CartpoleSwingup", "cpo", policies=3, adversary=adversary, diagnostics=every_other)
    seeds, results = (4, 0, 9), []
    for capture in (True, False):
        env = make(config.task, config.env, 3 * config.num_envs, torch.device("cuda"), seeds, spread_clocks=True)
        configs = [dataclasses.replace(config, capture=capture, seed=seed) for seed in seeds]
        trainer = StackedTrainer(env.slices(), configs, whole=env)
        for _ in range(4):
            found = trainer.iterate_each()
        results.append([one.metrics for one in found])
        if capture:
            assert_one_read(trainer, monkeypatch)
    for captured, plain in zip(*results, strict=True):
        for name in ("loss/actor", "loss/critic", "return/leader", "entropy/policy_1", "adversary/loss"):
            assert captured[name] == pytest.approx(plain[name], rel=0.05, abs=0.02), name
    assert len({metrics["loss/critic"] for metrics in results[0]}) == 3


def test_randomised_physics_is_recorded_and_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of 8 steps in a horizon of 16: a replayed iteration draws all masses again."""
    config = unfused("Hopper", "ppo")
    env = dataclasses.replace(config.env, episode_length=8, randomise=ROBUST)
    trainer = build(dataclasses.replace(config, env=env), "cuda")
    trainer.iterate()
    trainer.iterate()
    mass = trainer.env.engine.expand("body_mass")
    before, plain = mass.clone(), torch.tensor(trainer.env.engine.model.body_mass, device="cuda")
    assert_one_read(trainer, monkeypatch)
    assert (mass != before)[:, 1:].all()
    share = (mass / plain)[:, 1:]
    assert 0.699 < share.min() < 0.75
    assert 1.25 < share.max() < 1.301


@pytest.mark.parametrize("algo", ["ppo", "cpo", "pbt"])
def test_images_are_learned_from_on_cuda(algo: str, tmp_path) -> None:
    """Fused and recorded; it learns what the CPU's test learns, and resumes from a checkpoint."""
    import sys
    from pathlib import Path

    from echelon.evaluation.evaluate import evaluate
    from echelon.training.loop import train

    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    from images import SETTINGS, Dots

    policies = None if algo == "ppo" else 3
    config = dataclasses.replace(SETTINGS, algo=algo, policies=policies, device="cuda", num_envs=192)
    config = dataclasses.replace(config, out=str(tmp_path / "run"))
    for steps in (60_000, 200_000):
        folder = train(dataclasses.replace(config, env_steps=steps), make_env=Dots)
    assert evaluate(folder, make_env=Dots).scores[0].return_mean > -15
