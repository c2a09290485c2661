"""What follows the first layer's product, in the eager formulation and in one kernel each way.

Without a GPU, Triton's interpreter runs the kernels; `TRITON_INTERPRET=1` has it run them with one, too.
"""

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from echelon.device.capture import Captured
from echelon.models import trunk as module
from echelon.models.sharing import DRAWN, Blocks, Sharing
from echelon.models.trunk import spread

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
NO_TRITON = importlib.util.find_spec("triton") is None
NO_GPU = NO_TRITON or INTERPRETED or not torch.cuda.is_available()
HERE = pytest.mark.skipif(NO_TRITON or not INTERPRETED, reason="needs Triton, and TRITON_INTERPRET=1 beside a GPU")
THERE = pytest.mark.skipif(NO_GPU, reason="needs Triton and a CUDA GPU")
CPU, CUDA = pytest.param("cpu", marks=HERE), pytest.param("cuda", marks=[pytest.mark.cuda, THERE])
BORROW, PULL = (0, DRAWN), [(1, 0), (2, 0)]
CASES = [
    ((3, 2, 2), (BORROW, *PULL)),
    ((3, 2, 2), (BORROW,)),
    ((3, 5, 2), PULL),
    ((3, 2, 4), ()),
    ((2, 3, 4), ((0, 1), (0, 2), *PULL)),
    ((2, 3, 4), ((0, 1), (1, 2), (2, 0))),
    ((5, 4, 4), ((0, 1, 2), (0, 2, 2), (1, 0, 5), (2, 0, 5))),
    ((5, 4, 4), ((*BORROW, 3), (1, 0, 1))),
]
"""Units of three policies, and who borrows from whom, and how many units unless all."""


def sharing(
    units: tuple[int, ...] = (3, 2, 2), pairs: Any = (BORROW, *PULL), networks: int = 1, drawn: int = 2
) -> Sharing:
    """In the first network `drawn` is, in others the first follower."""
    lent = tuple(pair[2] for pair in pairs if len(pair) == 3)
    blocks = Blocks(networks, units, tuple(pair[:2] for pair in pairs), lent)
    chosen = torch.tensor([drawn, *(k * len(units) + 1 for k in range(1, networks))])
    return Sharing(blocks, chosen, blocks.source(chosen))


def moved(how: Sharing, device: str) -> Sharing:
    return replace(how, drawn=how.drawn.to(device), source=how.source.to(device))


def table(how: Sharing) -> tuple[list[int], list[int]]:
    """Unit and policy of every evaluation, counted out."""
    blocks, number, listed = how.blocks, {}, []
    for network in range(blocks.networks):
        for policy, units in enumerate(blocks.units):
            for i in range(units):
                number[network * blocks.policies + policy, i] = len(number)
    for network in range(blocks.networks):
        first = network * blocks.policies
        listed += [(unit, unit[0]) for unit in number if first <= unit[0] < first + blocks.policies]
        for (learner, source), size in zip(blocks.pairs, blocks.sizes, strict=True):
            other = int(how.drawn[network]) if source == DRAWN else first + source
            listed += [((other, i), first + learner) for i in range(size)]
    return [number[unit] for unit, _ in listed], [policy for _, policy in listed]


def inputs(how: Sharing, steps: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Units, conditions, and weights of the outputs in a loss, in float64 but exact in bfloat16."""
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).bfloat16().double()

    blocks = how.blocks
    units, cond = (normal(steps, blocks.networks * blocks.own, width), normal(blocks.networks * blocks.policies, width))
    weight = normal(steps, blocks.networks * blocks.evaluations, width)
    return units.requires_grad_(), cond.requires_grad_(), weight


def expected(how: Sharing, x: Tensor, cond: Tensor, weight: Tensor, activate: bool) -> tuple[Tensor, ...]:
    """Outputs and gradients by plain indexing, an evaluation at a time."""
    outputs = torch.stack([x[:, unit] + cond[policy] for unit, policy in zip(*table(how), strict=True)], dim=1)
    if activate:
        outputs = torch.where(outputs > 0, outputs, torch.expm1(outputs))
    return outputs.detach(), *torch.autograd.grad((outputs * weight).sum(), (x, cond))


def test_the_eager_formulation_by_plain_indexing_and_by_hand() -> None:
    for (units, pairs), networks, activate in product(CASES, (1, 2), (True, False)):
        how = sharing(units, pairs, networks)
        x, cond, weight = inputs(how, 2, 4)
        found = spread(x, cond, torch.tensor(table(how)[1]), how, activate=activate)
        gradients = torch.autograd.grad((found * weight).sum(), (x, cond))
        compare((found, *gradients), expected(how, x, cond, weight, activate), how.blocks, rtol=1e-12, atol=1e-12)
    # Two policies, a unit each: 1 and -1, with 2 and -3 added for the policies; without sharing, or a condition.
    how = sharing((1, 1), (BORROW, (1, 0)), drawn=1)
    x, cond, ids = torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[2.0], [-3.0]]), torch.tensor([1, 0])
    found = spread(x, cond, torch.tensor([0, 1, 0, 1]), how, activate=False)
    # own: 1 + 2, -1 - 3; the leader on the follower's: -1 + 2; the follower on the leader's: 1 - 3
    assert found.flatten().tolist() == [3.0, -4.0, 1.0, -2.0]
    assert spread(x, None, ids, None, activate=False).equal(x)
    assert spread(x, cond, ids, None, activate=False).flatten().tolist() == [-2.0, 1.0]
    assert spread(x, None, ids, how, activate=False).flatten().tolist() == [1.0, -1.0, -1.0, 1.0]


def compare(found: Sequence[Tensor], wanted: Sequence[Tensor], case: Any, rtol: float, atol: float) -> None:
    """What fails names its case."""
    found = [x.cpu().double() for x in found]
    torch.testing.assert_close(found, [*wanted], rtol=rtol, atol=atol, msg=lambda text: f"{case}: {text}")


def in_one(
    how: Sharing, x: Tensor, cond: Tensor, weight: Tensor, activate: bool, device: str, kind: torch.dtype
) -> tuple[Tensor, ...]:
    """Outputs and gradients by the kernels."""
    from echelon.models.spread_kernel import spread_in_one

    leaves = [leaf.detach().to(device, kind).requires_grad_() for leaf in (x, cond)]
    outputs = spread_in_one(leaves[0], leaves[1], moved(how, device), activate)
    (outputs * weight.to(device, kind)).sum().backward()
    results = (outputs.detach(), *[leaf.grad for leaf in leaves if leaf.grad is not None])
    assert [result.dtype for result in results] == [kind] * 3
    return results


LARGE = [
    ((150, 70, 70, 70), (BORROW, *PULL, (3, 0)), 1, 3, 2, 80),
    ((64, 64), (BORROW, (1, 0)), 1, 1, 3, 64),
    ((1, 1, 1, 1, 1, 1), (BORROW,), 1, 4, 1, 300),
    ((150, 70, 20), ((0, 1), (0, 2), (2, 1)), 2, 1, 1, 80),
    ((70, 20), (BORROW, (1, 0)), 3, 1, 2, 40),
]
"""Units, pairs, networks, who is drawn, steps, width: tiles that are not full, blocks of one unit, several steps."""


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_the_kernels(device: str) -> None:
    """float32 against float64 by plain indexing."""
    cases = [*((*case, 1, 1, 1, 4) for case in CASES), *LARGE]
    for number, (units, pairs, networks, drawn, steps, width) in enumerate((*cases, *cases[::6])):
        activate = number < len(cases)
        how = sharing(units, pairs, networks, drawn)
        x, cond, weight = inputs(how, steps, width)
        found = in_one(how, x, cond, weight, activate, device, torch.float32)
        compare(found, expected(how, x, cond, weight, activate), how.blocks, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_the_kernels_activate_a_layer(device: str) -> None:
    """float32 against float64: outputs, the gradient of the rows, and of the biases, which are sums over them."""
    from echelon.models.spread_kernel import activate_in_one

    for steps, rows, width, networks in ((1, 1, 1, 3), (2, 150, 70, 1), (1, 64, 64, 3), (2, 5, 300, 1)):
        generator = torch.Generator().manual_seed(2)
        shapes = (steps, networks * rows, width), (networks, width), (networks * rows, width)
        x, bias, weight = (torch.randn(n, generator=generator) for n in shapes)
        leaves = [leaf.to(device).requires_grad_() for leaf in (x, bias)]
        found = activate_in_one(leaves[0], leaves[1])
        gradients = torch.autograd.grad((found * weight.to(device)).sum(), leaves)
        exact = [leaf.double().requires_grad_() for leaf in (x, bias)]
        summed = exact[0] + exact[1].repeat_interleave(rows, dim=0)
        wanted = torch.where(summed > 0, summed, torch.expm1(summed))
        slopes, case = torch.autograd.grad((wanted * weight).sum(), exact), (steps, rows, width, networks)
        compare((found, *gradients), (wanted, *slopes), case, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_bfloat16_is_rounded_once_and_summed_in_float32(device: str) -> None:
    """8 bits, which the interpreter cuts off: to 2^-7 of each number. Summed in bfloat16, 600 would be off by more."""
    how = sharing((500, 100, 100))
    x, cond, weight = inputs(how, 1, 16)
    found, wanted = in_one(how, x, cond, weight, True, device, torch.bfloat16), expected(how, x, cond, weight, True)
    # The slope comes from the rounded output: off by 2^-9 of the gradient where it is small.
    for a, b, atol in zip(found, wanted, (1e-6, 2**-5, 0.1), strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=2**-7, atol=atol)


@pytest.mark.parametrize("device", [CUDA])  # the interpreter has one order anyway
def test_the_kernels_add_up_in_the_same_order_every_time(device: str) -> None:
    how = sharing((150, 70, 70))
    x, cond, weight = inputs(how, 2, 80)
    first, second = (in_one(how, x, cond, weight, True, device, torch.float32) for _ in range(2))
    assert all(a.equal(b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_the_operators_keep_pytorchs_rules(device: str) -> None:
    """Their shapes without values, their gradients, and that they change and alias nothing."""
    from echelon.models import spread_kernel

    how = sharing()
    x, cond, _ = inputs(how, 2, 8)
    leaves = [leaf.detach().to(device, torch.float32).requires_grad_() for leaf in (x, cond)]
    for activate in (True, False):
        arguments = (*leaves, how.drawn.to(device), how.blocks.numbers, 64, activate)
        torch.library.opcheck(spread_kernel._spread, arguments)


@pytest.mark.parametrize("device", [CUDA])
def test_a_recorded_graph_borrows_from_whoever_is_drawn(device: str) -> None:
    from echelon.models.spread_kernel import spread_in_one

    how = moved(sharing((150, 70, 70, 70), (BORROW, *PULL, (3, 0)), drawn=1), device)
    x, cond, weight = inputs(how, 1, 80)
    leaves = [leaf.detach().to(device, torch.float32).requires_grad_() for leaf in (x, cond)]
    there = weight.to(device, torch.float32)

    def run() -> tuple[Tensor, ...]:
        outputs = spread_in_one(leaves[0], leaves[1], how, True)
        return outputs.detach(), *torch.autograd.grad((outputs * there).sum(), leaves)

    captured = Captured(run, torch.device(device))
    for drawn in (1, 1, 3, 2):  # as it is, recording, and twice replayed
        how.drawn.fill_(drawn)
        compare(captured(), expected(moved(how, "cpu"), x, cond, weight, True), drawn, rtol=1e-5, atol=2e-5)


class Counted:
    """A kernel that tells when it is launched."""

    def __init__(self, kernel: Any, launches: list[str]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: tuple[int]) -> Any:
        self.launches.append(self.kernel.fn.__name__)
        return self.kernel[grid]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Kernels that are launched; the interpreter's are chosen by the rule for CUDA."""
    from echelon.models import spread_kernel

    found: list[str] = []
    for name in ("_forward", "_backward"):
        monkeypatch.setattr(spread_kernel, name, Counted(getattr(spread_kernel, name), found))
    monkeypatch.setattr(module, "_has_kernel", lambda x: torch.compiler.is_compiling())
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return found


def compiled(run: Any, device: str) -> Any:
    return torch.compile(run, fullgraph=True, dynamic=False, backend="aot_eager" if device == "cpu" else "inductor")


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_a_layer_that_is_compiled_takes_the_kernels(device: str, launches: list[str]) -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 6, 5), (2, 3, 5), (2, 3))
    leaves = [torch.randn(n, generator=generator).to(device).requires_grad_() for n in shapes]
    wanted = module.dense(*leaves)
    gradients = torch.autograd.grad(wanted.square().sum(), leaves)
    assert launches == []
    found = compiled(module.dense, device)(*leaves)
    results = (found, *torch.autograd.grad(found.square().sum(), leaves))
    torch.testing.assert_close(results, (wanted, *gradients), rtol=1e-5, atol=1e-5)
    assert launches == ["_forward", "_backward"]


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("activate", [True, False])
def test_what_is_compiled_whole_takes_the_kernels(activate: bool, device: str, launches: list[str]) -> None:
    """In one graph, forwards and backwards, with another follower drawn each time and nothing compiled again."""
    run = compiled(spread, device)
    for drawn in (1, 2):
        how = sharing((5, 3, 3), drawn=drawn)
        x, cond, weight = inputs(how, 2, 8)
        leaves = [leaf.detach().to(device, torch.float32).requires_grad_() for leaf in (x, cond)]
        found = run(*leaves, torch.tensor(table(how)[1], device=device), moved(how, device), activate=activate)
        gradients = torch.autograd.grad((found * weight.to(device).float()).sum(), leaves)
        compare((found, *gradients), expected(how, x, cond, weight, activate), drawn, rtol=1e-5, atol=1e-5)
    assert launches == ["_forward", "_backward"] * 2
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
