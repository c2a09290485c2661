"""Runs of the last version that wrote checkpoints of format 1 go on, and mean what they meant.

`format_1/` holds two iterations of PPO, of CPO with its adversary, and of PBT, written at revision a8c9da3, and in
`computed.json` what that version computed right after loading them: of every policy on a few rows of observations, and
the sums of Adam's moments by parameter.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from echelon.algorithms.adversary import Adversary
from echelon.algorithms.pbt import Population
from echelon.evaluation.evaluate import evaluate
from echelon.learning.optimizer import Adam
from echelon.models.flat import aligned_slices
from echelon.runs import checkpoint
from echelon.runs.folder import RunFolder
from echelon.runs.metrics import read_metrics
from echelon.tasks import make
from echelon.training.loop import train
from echelon.training.trainer import Trainer

RUNS = Path(__file__).parent / "format_1"
ALGORITHMS = ("ppo", "cpo", "pbt")
POLICIES = {"ppo": 1, "cpo": 3, "pbt": 3}
CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-6}


@pytest.fixture
def folder(algo: str, tmp_path: Path) -> RunFolder:
    """A copy, to be written to."""
    shutil.copytree(RUNS / algo, tmp_path / algo)
    return RunFolder.open(tmp_path / algo)


@pytest.fixture
def loaded(folder: RunFolder) -> Trainer:
    config, found = folder.config, checkpoint.load(folder, "newest")
    trainer = Trainer(make(config.task, config.env, config.num_envs, torch.device("cpu"), config.seed), config)
    trainer.load_state_dict(found.state["trainer"])
    return trainer


@pytest.fixture
def computed(algo: str) -> Any:
    return json.loads((RUNS / algo / "computed.json").read_text())


def check_optimizer(optimizer: Adam, module: torch.nn.Module, expected: Sequence[dict[str, Any]]) -> None:
    """Rate, step count and the sums of both moments by parameter, of each network."""
    named = [(name.replace("log_sigma", "log_std"), p[0].numel()) for name, p in module.named_parameters()]
    places, _ = aligned_slices(size for _, size in named)
    for network, figures in enumerate(expected):
        assert (optimizer.rate[network].item(), optimizer.steps[network].item()) == (figures["rate"], figures["steps"])
        assert {name for name, _ in named} == set(figures) - {"rate", "steps"}
        for (name, _), place in zip(named, places, strict=True):
            found = [x[network, place].double().sum().item() for x in (optimizer.mean, optimizer.square)]
            assert found == pytest.approx(figures[name], rel=1e-6), name


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_networks_compute_what_they_did(loaded: Trainer, computed: Any) -> None:
    """Three steps of two sequences, with a memory from before, one of which begins anew."""
    obs, state, start = (torch.tensor(computed[name]) for name in ("obs", "state", "start"))
    each = loaded.model.policies // loaded.model.networks
    assert len(computed["policies"]) == loaded.model.policies
    for policy, expected in enumerate(computed["policies"]):
        model = loaded.model.only(policy // each)
        with torch.no_grad():
            output = model({"policy": obs}, torch.full((2,), policy % each), state, start)
        found = {"mean": output.mean, "value": model.raw_value(output.value), "state": output.state}
        found["log_std"] = loaded.model.log_std[policy].detach()
        for name, x in found.items():
            torch.testing.assert_close(x, torch.tensor(expected[name]), **CLOSE)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_optimizers_go_on_where_they_were(loaded: Trainer, computed: Any) -> None:
    check_optimizer(loaded.update.optimizer, loaded.model, computed["optimizers"])


@pytest.mark.parametrize("algo", ["cpo"])
def test_the_discriminator_is_the_one_that_it_was(loaded: Trainer, computed: Any) -> None:
    adversary, expected = loaded.extra_reward, computed["discriminator"]
    assert isinstance(adversary, Adversary)
    with torch.no_grad():
        logits = adversary.logits(torch.tensor([expected["inputs"]]))[0]
    torch.testing.assert_close(logits, torch.tensor(expected["logits"]), **CLOSE)
    check_optimizer(adversary.optimizer, adversary.network, [expected["optimizer"]])


@pytest.mark.parametrize("algo", ["pbt"])
def test_the_members_keep_their_hyperparameters(loaded: Trainer, computed: Any) -> None:
    population, expected = loaded.selection, computed["population"]
    assert isinstance(population, Population)
    assert population.leader == expected["leader"]
    for name, values in expected["hyperparameters"].items():
        assert population.vectors[name].tolist() == values, name
    assert loaded.update.passes == max(expected["hyperparameters"]["mini_epochs"])


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_is_resumed_and_evaluated(algo: str, folder: RunFolder) -> None:
    """Two more iterations, of four gradient steps each: two passes of two minibatches, and more in a population."""
    before = (evaluation := evaluate(folder, num_envs=2, device="cpu")).scores
    assert (evaluation.iteration, evaluation.leader) == (2, 1 if algo == "pbt" else 0)
    assert [score.policy for score in before] == 2 * list(range(POLICIES[algo]))  # both ways of acting
    train(replace(folder.config, iterations=4, out=str(folder.path)))
    lines = read_metrics(folder)
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    passes = max((value for name, value in lines[-1].items() if name.startswith("pbt/mini_epochs/")), default=2)
    assert [line["gradient_steps"] for line in lines[2:]] == [3 * passes * 2, 4 * passes * 2]
    body = json.loads((checkpoint.load(folder, "newest").path / "state.json").read_text())["body"]
    assert (body["format"], body["iteration"]) == (checkpoint.FORMAT, 4)
    assert evaluate(folder, num_envs=2, device="cpu").scores != before
