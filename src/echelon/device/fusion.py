"""Fusing tensor work into fewer, larger kernels with `torch.compile`.

What is fused is an ordinary function that runs as it is everywhere else: on a CPU, with `--no-fuse`, or where there is
nothing to compile with. It is compiled for the shapes it meets, which in a run never change, so the first iteration
compiles and a later start with the same shapes finds the result in the cache.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
import torch._functorch.config as autograd_settings

P = ParamSpec("P")
T = TypeVar("T")

DEVICES = ("cuda",)
"""Where it pays."""
BACKEND = "inductor"
SIZES = 64
"""Shapes that one process may meet, in tests and benchmarks, before torch takes recompiling for a mistake."""


def fuses(device: torch.device, enabled: bool) -> bool:
    """Whether anything is compiled."""
    return enabled and device.type in DEVICES and _can_compile()


def fused(run: Callable[P, T], device: torch.device, *, enabled: bool = True) -> Callable[P, T]:
    """`run`, compiled at its first call; or `run` itself where that cannot be."""
    if not fuses(device, enabled):
        return run
    _set_up_compiler()
    return torch.compile(run, fullgraph=True, dynamic=False, backend=BACKEND)


def _set_up_compiler() -> None:
    """Settings of torch's compiler that are not public: left as they are in versions that do not have them."""
    settings = (
        (torch._dynamo.config, "recompile_limit", SIZES),
        # Or what holds a backward pass of ours would be compiled anew at every start.
        (autograd_settings, "autograd_cache_allow_custom_autograd_functions", True),
    )
    for config, name, value in settings:
        if hasattr(config, name):
            setattr(config, name, value)


def cache_folder() -> Path:
    """Where compiled kernels are kept: `TORCHINDUCTOR_CACHE_DIR`, which is set to a lasting place unless it is."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "echelon" / "kernels"))
    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])


@cache
def _can_compile() -> bool:
    """Whether Triton is there, and the C compiler it needs. Says so once if not."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    missing = [] if importlib.util.find_spec("triton") else ["Triton"]
    if not any(name and shutil.which(name) for name in compilers):
        missing.append("a C compiler")
    if missing:
        text = f"GPU kernels are not fused, so training is slower: {' and '.join(missing)} cannot be found"
        print(text, file=sys.stderr, flush=True)
    return not missing
