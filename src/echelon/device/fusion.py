"""Fusing tensor work into fewer, larger kernels with `torch.compile`.

The function itself stays ordinary Python: it runs uncompiled on a CPU, with `--no-fuse`, or where Triton or a C
compiler is missing. It is compiled once per set of shapes; a run has one set, so its first iteration compiles, and
later runs of the same shapes load the kernels from the cache.
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
"""Types of device on which compiling pays."""
BACKEND = "inductor"
MAX_SHAPES = 64
"""Sets of shapes a process may compile for before torch refuses. A run has one; tests and benchmarks have many."""


def fuses(device: torch.device, enabled: bool) -> bool:
    """Whether functions are compiled on this device."""
    return enabled and device.type in DEVICES and _can_compile()


def fused(run: Callable[P, T], device: torch.device, *, enabled: bool = True) -> Callable[P, T]:
    """`run`, to be compiled at its first call; `run` itself where it cannot be compiled."""
    if not fuses(device, enabled):
        return run
    settings = (
        (torch._dynamo.config, "recompile_limit", MAX_SHAPES),
        # Without it, functions with a custom backward pass are compiled again at every start.
        (autograd_settings, "autograd_cache_allow_custom_autograd_functions", True),
    )
    for config, name, value in settings:
        if hasattr(config, name):  # they are private: another version of torch may lack them
            setattr(config, name, value)
    return torch.compile(run, fullgraph=True, dynamic=False, backend=BACKEND)


def cache_folder() -> Path:
    """The cache of compiled kernels: `TORCHINDUCTOR_CACHE_DIR`, by default a folder under `~/.cache`."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "echelon" / "kernels"))
    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])


@cache
def _can_compile() -> bool:
    """Whether Triton and the C compiler it needs are installed; if not, say so once."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    missing = [] if importlib.util.find_spec("triton") else ["Triton"]
    if not any(name and shutil.which(name) for name in compilers):
        missing.append("a C compiler")
    if missing:
        text = f"GPU kernels are not fused, so training is slower: {' and '.join(missing)} cannot be found"
        print(text, file=sys.stderr, flush=True)
    return not missing
