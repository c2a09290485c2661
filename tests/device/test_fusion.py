"""What is fused is the same as what is not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu import MARKS
from tiny import build, unfused

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import TrainConfig
from echelon.device import compile_progress as compiling
from echelon.device import fusion
from echelon.tasks import preset
from echelon.training.trainer import Trainer

ITERATIONS = 3
FUSED = {"ppo": 7, "cpo": 9, "pbt": 7}
"""Deciding, values, targets, gathering, loss, descending, measuring; with CPO the adversary's scores and lessons."""
CUDA = pytest.param("cuda", marks=MARKS)


def tiny(algo: str, lstm: int, **changes: object) -> TrainConfig:
    """On a CPU, rows cut by the time limit are picked out, and their number changes the shapes: none are here."""
    # At a fixed rate: the KL rule would raise it until Adam makes steps of what is rounding noise in a gradient.
    short = {"horizon": 8, "sequence": 4}  # an LSTM is traced step by step, which takes most of the time
    update = replace(preset("DeceptiveReach").update, timeout_bootstrap="none", rate_schedule="fixed", **short)
    return unfused("DeceptiveReach", algo, lstm, **{"update": update, "precision": "fp32", "fuse": True} | changes)


def trained(config: TrainConfig, device: str) -> tuple[Trainer, list[dict[str, float]], list[int]]:
    """A trainer, the metrics of its iterations, and how many graphs had been compiled after each."""
    trainer, metrics, graphs = build(config, device), [], []
    for _ in range(ITERATIONS):
        metrics.append(trainer.iterate().metrics)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return trainer, metrics, graphs


@pytest.mark.parametrize("device", ["cpu", CUDA])
@pytest.mark.parametrize(("algo", "lstm"), [("ppo", 0), ("cpo", 16), ("pbt", 0), ("pbt", 16)])
def test_training_is_the_same(algo: str, lstm: int, device: str, traced: None) -> None:
    """Three iterations, with everything that is fused in them; and all of it is compiled in the first.

    A later compilation would fall into the recording of a CUDA graph, and fail there.
    """
    adversary = AdversaryConfig(coef=0.01, hidden=(32,))
    config = tiny(algo, lstm, adversary=adversary, pull=PullConfig(reverse_temperature=0.1))
    plain, expected, none = trained(replace(config, fuse=False), device)
    assert none == [0] * ITERATIONS
    fast, found, graphs = trained(config, device)
    assert graphs == [FUSED[algo]] * ITERATIONS
    torch.testing.assert_close(*(dict(x.model.named_parameters()) for x in (fast, plain)), rtol=1e-3, atol=1e-4)
    for before, after in zip(expected, found, strict=True):
        assert before.keys() == after.keys()
        for name in ("loss/actor", "loss/critic", "kl/own", "grad_norm"):
            assert after[name] == pytest.approx(before[name], rel=1e-3, abs=1e-5), name


def test_this_version_of_torch_has_the_compilers_settings(traced: None) -> None:
    """They are private: another version may have renamed them, and then starts are slower again."""
    fusion.fused(abs, torch.device("cpu"))
    assert torch._dynamo.config.recompile_limit == fusion.MAX_SHAPES
    assert fusion.autograd_settings.autograd_cache_allow_custom_autograd_functions


def test_on_a_cpu_nothing_is_fused_and_it_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fusion.fused(abs, torch.device("cpu")) is abs
    monkeypatch.setattr(fusion, "DEVICES", ("cpu",))
    assert fusion.fused(abs, torch.device("cpu"), enabled=False) is abs


def test_nobody_is_told_of_kernels_where_none_are_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """However long the first iteration takes."""
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.0)
    build(tiny("ppo", 0), "cpu").iterate()
    assert capsys.readouterr().err == ""


def test_without_a_compiler_it_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(fusion, "DEVICES", ("cpu",))
    monkeypatch.setattr(fusion.shutil, "which", lambda name: None)
    monkeypatch.setattr(fusion.importlib.util, "find_spec", lambda name: None)
    fusion._can_compile.cache_clear()
    try:
        for _ in range(2):
            assert fusion.fused(abs, torch.device("cpu")) is abs
    finally:
        fusion._can_compile.cache_clear()
    said = "GPU kernels are not fused, so training is slower: Triton and a C compiler cannot be found\n"
    assert capsys.readouterr().err == said


def test_the_cache_is_in_a_lasting_place_unless_another_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    assert fusion.cache_folder() == Path("/elsewhere")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert fusion.cache_folder() == Path.home() / ".cache" / "echelon" / "kernels"
