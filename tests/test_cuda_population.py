"""A population on a CUDA GPU: the numbers of the CPU, one read by the host, and graphs that outlive takeovers."""

import dataclasses
from collections.abc import Iterator

import pytest
import torch
from test_cuda import assert_one_read, on_cuda, tiny

from echelon.algorithms.pbt import Takeover
from echelon.config import PbtConfig, TrainConfig
from echelon.learning.plans import Minibatch
from echelon.tasks import make
from echelon.training.population_trainer import PopulationTrainer

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def population(device: str, lstm: int = 0, capture: bool = True) -> PopulationTrainer:
    """Six members with hyperparameters of their own, none of which is replaced by itself."""
    config: TrainConfig = tiny("pbt", lstm, capture=capture, pbt=PbtConfig(mutation_probability=1.0))
    env = make(config.task, config.env, config.num_envs, torch.device(device), config.seed, spread_clocks=True)
    return PopulationTrainer(env, config)


@pytest.mark.parametrize("lstm", [0, 16])
def test_an_update_equals_the_cpus(lstm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same rollout, same minibatches: targets to 1e-5 and parameters after a whole update to 1e-4, in FP32."""
    cpu, cuda = population("cpu", lstm), population("cuda", lstm)
    cpu.iterate()
    cuda.model.load_state_dict(cpu.model.state_dict())
    cuda.update.hyperparameters.load_state_dict(cpu.update.hyperparameters.state_dict())
    cuda.update.optimizer.load_state_dict(cpu.update.optimizer.state_dict())
    assert cuda.update.passes == cpu.update.passes > 1
    rollout = cpu.collector.collect()
    follower = torch.tensor([1])
    passes = [list(cpu.plan.shuffle(follower, cpu.generator)) for _ in range(cpu.update.passes)]
    targets = []
    for trainer, given in ((cpu, rollout), (cuda, on_cuda(rollout))):
        device, queue = trainer.env.device, iter(passes)

        def shuffle(*_: object, queue=queue, device=device) -> Iterator[Minibatch]:
            return (Minibatch(m.unit.to(device), m.evaluation.to(device)) for m in next(queue))

        monkeypatch.setattr(trainer.plan, "shuffle", shuffle)
        targets.append(trainer.update.targets(given))
        trainer.update.run(given, targets[-1], follower.to(device), trainer.generator)
    torch.testing.assert_close(targets[1].advantage.cpu(), targets[0].advantage, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(cuda.update.optimizer.rate.cpu(), cpu.update.optimizer.rate)
    torch.testing.assert_close(cuda.update.optimizer.steps.cpu(), cpu.update.optimizer.steps)
    torch.testing.assert_close(cuda.model.flat.cpu(), cpu.model.flat, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("lstm", [0, 16])
@pytest.mark.parametrize("capture", [False, True])
def test_the_host_reads_once_per_iteration(capture: bool, lstm: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = population("cuda", lstm, capture)
    for _ in range(3):  # as it is, recorded, replayed
        trainer.iterate()
    assert_one_read(trainer, monkeypatch)


@pytest.mark.parametrize("lstm", [0, 16])
def test_replays_see_takeovers(lstm: int) -> None:
    check_a_takeover(population("cuda", lstm))


def check_a_takeover(trainer: PopulationTrainer) -> None:
    """After a copy in place, recorded graphs act with the copied weights and train with the new hyperparameters."""
    for _ in range(4):
        trainer.iterate()
    after = trainer.hyperparameters()[0] | {"learning_rate": 2e-4, "clip": 0.05, "mini_epochs": 1.0}
    trainer._apply(Takeover(5, 0, True, 0, 0.0, 1.0, {}, after))
    flat, steps = trainer.model.flat, trainer.update.optimizer.steps
    assert flat[5].equal(flat[0])
    log_std, before, taken = trainer.model.log_std[0].detach().clone(), flat.clone(), steps.clone()
    metrics = trainer.iterate().metrics
    assert trainer.collector.rollout.log_std[5].equal(log_std)
    wanted = [row["mini_epochs"] * trainer.plan.minibatches for row in trainer.hyperparameters()]
    assert (steps - taken).tolist() == wanted
    assert wanted[5] == trainer.plan.minibatches < wanted[0]
    assert all(not now.equal(then) for now, then in zip(flat, before, strict=True))
    assert metrics["pbt/clip/policy_5"] == pytest.approx(0.05)


def test_a_run_resumes_on_cuda(tmp_path) -> None:
    from echelon.runs.metrics import read_metrics
    from echelon.training.loop import train

    config = tiny("pbt", 16, device="cuda", out=str(tmp_path / "run"))
    train(dataclasses.replace(config, iterations=3))
    folder = train(dataclasses.replace(config, iterations=6))
    assert [line["iteration"] for line in read_metrics(folder)] == [1, 2, 3, 4, 5, 6]
