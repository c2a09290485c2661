"""What is fused is the same as what is not; compiling is announced when it takes long, and only then."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gpu import MARKS
from tiny import build, unfused

from echelon.algorithms import AdversaryConfig, PullConfig
from echelon.config import TrainConfig
from echelon.device import compile_progress as compiling, fusion
from echelon.tasks import preset
from echelon.training.trainer import Trainer

ITERATIONS = 3
FUSED = {"ppo": 7, "cpo": 9, "pbt": 7}
"""Deciding, values, targets, gathering, loss, descending, measuring; with CPO the adversary's scores and lessons."""


def tiny(algo: str, lstm: int, **changes: object) -> TrainConfig:
    """On a CPU, rows cut by the time limit are picked out, and their number changes the shapes: none are here."""
    # At a fixed rate: the KL rule would raise it until Adam makes steps of what is rounding noise in a gradient.
    # Few steps and policies: targets, an LSTM and pairs of policies are traced one by one, which takes long.
    short = {"horizon": 4, "sequence": 2, "minibatches": 2}
    update = replace(preset("DeceptiveReach").update, timeout_bootstrap="none", rate_schedule="fixed", **short)
    settings = {"update": update, "precision": "fp32", "fuse": True, "policies": 1 if algo == "ppo" else 3}
    return unfused("DeceptiveReach", algo, lstm, **settings | changes)


def trained(config: TrainConfig, device: str) -> tuple[Trainer, list[dict[str, float]], list[int]]:
    """A trainer, the metrics of its iterations, and how many graphs had been compiled after each."""
    trainer, metrics, graphs = build(config, device), [], []
    for _ in range(ITERATIONS):
        metrics.append(trainer.iterate().metrics)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    return trainer, metrics, graphs


CASES = [("cpo", 16), ("pbt", 0), ("ppo", 0), ("pbt", 16)]


@pytest.mark.parametrize(
    ("algo", "lstm", "device"),
    [*((*case, "cpu") for case in CASES[:2]), *(pytest.param(*case, "cuda", marks=MARKS) for case in CASES)],
)
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


def test_nothing_is_fused_on_a_cpu_without_a_compiler_or_if_not_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert fusion.fused(abs, torch.device("cpu")) is abs
    monkeypatch.setattr(fusion, "DEVICES", ("cpu",))
    assert fusion.fused(abs, torch.device("cpu"), enabled=False) is abs
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/elsewhere")
    assert fusion.cache_folder() == Path("/elsewhere")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    assert fusion.cache_folder() == Path.home() / ".cache" / "echelon" / "kernels"
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


def test_this_version_of_torch_has_the_compilers_settings(traced: None) -> None:
    """They are private: another version may have renamed them, and then starts are slower again."""
    fusion.fused(abs, torch.device("cpu"))
    assert torch._dynamo.config.recompile_limit == fusion.MAX_SHAPES
    assert fusion.autograd_settings.autograd_cache_allow_custom_autograd_functions


def compile_something(cache: Path, seconds: float) -> None:
    with compiling.announced(cache, "for this scene"):
        (cache / "module").mkdir(exist_ok=True)
        (cache / "module" / f"{len(list(cache.glob('*/*')))}.ptx").touch()
        time.sleep(seconds)


def test_a_long_compilation_is_announced_and_timed_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "POLL_SECONDS", 0.02)
    compile_something(tmp_path, 0.0)  # at once
    with compiling.announced(tmp_path / "none", "for these sizes"):  # there is no cache yet
        pass
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.02)
    with compiling.announced(tmp_path, "for this scene"):  # kernels that load slowly
        time.sleep(0.15)
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.0)
    build(tiny("ppo", 0), "cpu").iterate()  # no kernels at all, however long the first iteration takes
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(compiling, "QUIET_SECONDS", 0.05)
    for _ in range(2):  # the second time into a folder that was there already
        compile_something(tmp_path, 0.2)
        first, last = capsys.readouterr().err.splitlines()
        assert first == "compiling GPU kernels, once for this scene"
        assert last == f"compiled GPU kernels in 0 s; the next start finds them in {tmp_path}"
