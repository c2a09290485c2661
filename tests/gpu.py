"""Marks of tests that need a CUDA GPU; `pytest -m cuda` runs them alone."""

from collections.abc import Callable

import pytest
import torch

MARKS = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]


def needs_gpu(test: Callable) -> Callable:
    for mark in MARKS:
        test = mark(test)
    return test
