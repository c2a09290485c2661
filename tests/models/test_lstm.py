"""The LSTM's unroll and its hand-written backward pass, against PyTorch's cell stepped under autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpu import MARKS
from torch import Tensor, nn

from echelon.models import lstm
from echelon.models.lstm import unroll

TIGHT = {"rtol": 1e-12, "atol": 1e-12}
NAMES = ("projected", "state", "weight")


def tensors(steps: int, rows: int, units: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(steps)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    shapes = (steps, rows, 4 * units), (rows, 2 * units), (4 * units, units)
    return {name: normal(*shape) for name, shape in zip(NAMES, shapes, strict=True)}


def run(parts: dict[str, Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    return unroll(parts["projected"], parts["state"], start, parts["weight"][None])


def stepped(parts: dict[str, Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """`nn.LSTMCell` with the identity as its input product, its state replaced by zeros where an episode starts."""
    units = parts["weight"].shape[1]
    cell = nn.LSTMCell(4 * units, units, dtype=torch.float64)
    none = torch.zeros(4 * units, dtype=torch.float64)
    weights = {"weight_ih": torch.diag(none + 1), "bias_ih": none, "weight_hh": parts["weight"], "bias_hh": none}
    h, c = parts["state"][:, :units], parts["state"][:, units:]
    outputs = []
    for x, begins in zip(parts["projected"], start, strict=True):
        h, c = (torch.where(begins[:, None], torch.zeros_like(s), s) for s in (h, c))
        h, c = torch.func.functional_call(cell, weights, (x, (h, c)))
        outputs.append(h)
    return torch.stack(outputs), torch.cat((h, c), dim=1)


def gradients(parts: dict[str, Tensor], outputs: Tensor, state: Tensor) -> list[Tensor]:
    """Gradients of a loss that weighs every output and every entry of the last state differently."""
    first, second = (torch.linspace(-1, 2, x.numel()).view_as(x).to(x) for x in (outputs, state))
    loss = (outputs.square() * first).sum() + (state * second).sum()
    return list(torch.autograd.grad(loss, [parts[name] for name in NAMES]))


def starts(kind: str, steps: int, rows: int) -> Tensor:
    """Where episodes start."""
    start = torch.zeros(steps, rows, dtype=torch.bool)
    where = {"first": (0,), "middle": (steps // 2, slice(None, None, 2)), "last": (-1, 1), "every": ()}
    if kind in where:
        start[where[kind]] = True
    elif kind == "mixed":
        start = torch.rand(steps, rows, generator=torch.Generator().manual_seed(5)) < 0.3
        assert start.any()
    return start


@pytest.mark.parametrize("kind", ["none", "first", "middle", "last", "every", "mixed"])
def test_values_and_gradients_are_those_of_pytorchs_cell(kind: str) -> None:
    for steps in (1, 2, 7):
        parts, start = tensors(steps, 5, 3), starts(kind, steps, 5)
        found, expected = run(parts, start), stepped(parts, start)
        results = (*found, *gradients(parts, *found))
        torch.testing.assert_close(results, (*expected, *gradients(parts, *expected)), **TIGHT)
        for which in (0, 1):  # a loss may read the outputs or the last state alone
            pair = run(parts, start)[which], stepped(parts, start)[which]
            slopes = [torch.autograd.grad(x.square().sum(), [parts[name] for name in NAMES]) for x in pair]
            torch.testing.assert_close(*slopes, **TIGHT)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_same_is_said_and_nothing_kept(
    mode: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, start = tensors(3, 5, 3), starts("mixed", 3, 5)
    expected = run(parts, start)
    monkeypatch.setattr(lstm._Unroll, "apply", None)  # calling it would raise
    with mode():
        found = run(parts, start)
    assert all(a.equal(b) and not a.requires_grad for a, b in zip(found, expected, strict=True))


def test_the_gradient_costs_one_product_a_step_and_has_none_of_its_own() -> None:
    """Autograd's own would take two a step, and a tensor of the whole sequence's size for each of them."""
    steps = 6
    parts, start = tensors(steps, 5, 3), starts("mixed", steps, 5)
    outputs, _ = run(parts, start)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        outputs.sum().backward()
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::mm"] == steps + 1
    assert counts.get("aten::select_backward", 0) == 0
    assert counts.get("aten::zeros_like", 0) == 1  # the last state's, which the loss did not read
    # What the forward pass kept is constant to autograd, so it would be wrong without a word.
    parts, start = tensors(3, 5, 3), starts("mixed", 3, 5)
    (gradient,) = torch.autograd.grad(run(parts, start)[0].sum(), parts["projected"], create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(gradient.sum(), parts["weight"])


@pytest.mark.parametrize(
    ("steps", "rows", "units", "device", "backend"),
    [
        (1, 5, 3, "cpu", "aot_eager"),
        (4, 5, 3, "cpu", "aot_eager"),
        pytest.param(7, 64, 32, "cuda", "inductor", marks=MARKS),
        pytest.param(7, 64, 32, "cuda", None, marks=MARKS),
    ],
)
def test_compiled_whole_and_on_cuda(steps: int, rows: int, units: int, device: str, backend: str | None) -> None:
    """In one graph, forwards and backwards: a fused kernel a step is what makes it fast on a GPU."""
    parts, start = tensors(steps, rows, units), starts("mixed", steps, rows)
    moved = {name: x.detach().to(device).requires_grad_() for name, x in parts.items()}
    function = torch.compile(unroll, fullgraph=True, dynamic=False, backend=backend) if backend else unroll
    found = function(moved["projected"], moved["state"], start.to(device), moved["weight"][None])
    expected = stepped(parts, start)
    close = TIGHT if device == "cpu" else {"rtol": 1e-9, "atol": 1e-9}
    results = [x.cpu() for x in (*found, *gradients(moved, *found))]
    torch.testing.assert_close(results, [*expected, *gradients(parts, *expected)], **close)


def test_lowered_products_leave_the_state_as_it_was() -> None:
    """As under autocast: gates in bfloat16, 8 bits; hidden, cell and the parameters' gradients in float32.

    To 2 % of their size, gradients to within 3 degrees.
    """
    exact, start = tensors(8, 32, 16), starts("mixed", 8, 32)
    with torch.no_grad():
        exact["weight"] *= 0.25  # as initialised: rounding would otherwise grow from step to step
    parts = {name: x.detach().float().requires_grad_() for name, x in exact.items()}
    with torch.backends.mkldnn.flags(enabled=False), torch.autocast("cpu", torch.bfloat16):
        # oneDNN's bfloat16 kernels need instructions that virtual machines announce and do not have.
        lowered = parts["projected"].bfloat16()
        outputs, state = unroll(lowered, parts["state"], start, parts["weight"][None])
    assert outputs.dtype == state.dtype == torch.float32
    expected = stepped(exact, start)
    for a, b in zip((outputs, state), expected, strict=True):
        assert 1e-4 * b.norm() < (a - b).norm() < 0.02 * b.norm()
    with torch.backends.mkldnn.flags(enabled=False):
        found = gradients(parts, outputs, state)
    for name, a, b in zip(NAMES, found, gradients(exact, *expected), strict=True):
        assert a.dtype == torch.float32, name
        assert torch.cosine_similarity(a.double().flatten(), b.flatten(), dim=0) > 0.9986, name
        assert a.norm().item() == pytest.approx(b.norm().item(), rel=0.02), name
