"""Laying out, conditioning and activating the first layer's outputs: compiled from tensor work, or a kernel each way.

    python benchmarks/spread.py                  # AllegroHand's MLP and AllegroKuka's LSTM with CPO, on a CUDA GPU
    python benchmarks/spread.py --bf16
    python benchmarks/spread.py --tiles          # and the kernels alone, in tiles of other shapes
    TRITON_INTERPRET=1 python benchmarks/spread.py --device cpu --shrink 256    # tries the script

Milliseconds of one gradient step, medians of replayed CUDA graphs: forward, and backward as the difference to a graph
of both. Inputs of 0.1 to 1.2 GB do not stay in the cache from one replay to the next, as they would not in training.
The floor is every number read or written once, at the memory rate of `roofline.py`. Values and gradients of both are
compared first; a difference ends the program.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from unittest import mock

import torch
from command import command, options
from roofline import BYTES
from torch import Tensor

from echelon.config.checks import require_device
from echelon.device.capture import Captured
from echelon.models import spread as dispatch
from echelon.models import spread_kernel
from echelon.models.sharing import DRAWN, Blocks, Sharing
from echelon.models.spread import spread
from echelon.models.spread_kernel import Tile, spread_in_one

FOLLOWERS = 5
ROUNDS = 50
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 3e-2}
"""Of the largest number; sums over policies are taken in TF32 by the compiled tensor work."""
TILES = [Tile(r, c, w) for r, c in ((16, 128), (16, 256), (32, 64), (32, 128), (64, 64), (64, 128)) for w in (4, 8)]

Run = Callable[[], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A minibatch of the paper's presets; leader and followers have equally many units."""

    name: str
    steps: int
    block: int
    width: int
    activate: bool


CASES = (Case("MLP", 1, 8192, 512, True), Case("LSTM", 16, 512, 3072, False))


class Problem:
    """Inputs of a case, and a gradient of its outputs."""

    def __init__(self, case: Case, kind: torch.dtype, device: torch.device) -> None:
        self.case = case
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, device=device).to(kind)

        drawn = torch.tensor([FOLLOWERS], device=device)
        pulls = ((follower, 0) for follower in range(1, FOLLOWERS + 1))
        blocks = Blocks(1, (case.block,) * (FOLLOWERS + 1), ((0, DRAWN), *pulls))
        self.sharing = Sharing(blocks, drawn, blocks.source(drawn))
        policies = torch.arange(FOLLOWERS + 1, device=device).repeat_interleave(case.block)
        self.policy_id = torch.cat((policies, torch.zeros_like(policies[: case.block]), policies[case.block :]))
        self.units = normal(case.steps, len(policies), case.width).requires_grad_()
        self.cond = normal(FOLLOWERS + 1, case.width).requires_grad_()
        self.grad = normal(case.steps, len(self.policy_id), case.width)

    def floor(self) -> tuple[float, float]:
        """Seconds of forward and backward by memory traffic."""
        units, outputs = (x.numel() * x.element_size() for x in (self.units, self.grad))
        return (units + outputs) / BYTES, (units + outputs * (1 + self.case.activate)) / BYTES

    def compiled(self, kernel: bool, device: torch.device) -> Callable[[], Tensor]:
        """`spread` as the update has it, with or without the kernel."""
        backend = "inductor" if device.type == "cuda" else "aot_eager"
        run = torch.compile(spread, fullgraph=True, dynamic=False, backend=backend)

        def choose(x: Tensor) -> bool:
            return kernel

        def outputs() -> Tensor:
            with mock.patch.object(dispatch, "_has_kernel", choose):
                return run(self.units, self.cond, self.policy_id, self.sharing, activate=self.case.activate)

        return outputs

    def alone(self) -> Tensor:
        """The kernels, and around them nothing that is compiled."""
        return spread_in_one(self.units, self.cond, self.sharing, self.case.activate)

    def both_ways(self, forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        outputs = forward()
        return outputs, *torch.autograd.grad(outputs, (self.units, self.cond), self.grad)


def milliseconds(run: Run, device: torch.device, rounds: int) -> float:
    """Median of replayed graphs, by the device's own clock; on a CPU, of plain calls."""
    captured, times = Captured(run, device), []
    for _ in range(rounds + 3):
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            captured()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            began = time.perf_counter()
            captured()
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[3:])  # after one as it is, the recording, and a first replay


def require_equal(found: Sequence[Tensor], wanted: Sequence[Tensor], tolerance: float) -> None:
    for name, a, b in zip(("outputs", "gradient of units", "gradient of cond"), found, wanted, strict=True):
        error = ((a - b).abs().max() / b.abs().max()).item()
        print(f"  {name:18} differs by {error:.1e}")
        if error > tolerance:
            raise SystemExit(f"{name}: more than {tolerance}")


def study(case: Case, kind: torch.dtype, device: torch.device, rounds: int, tiles: bool) -> None:
    problem = Problem(case, kind, device)
    print(f"\n{case.name}: {tuple(problem.units.shape)} -> {tuple(problem.grad.shape)}, {kind}")

    def report(name: str, forward: Callable[[], Tensor]) -> None:
        torch._dynamo.reset()
        there = milliseconds(lambda: (forward(),), device, rounds)
        both = milliseconds(lambda: problem.both_ways(forward), device, rounds)
        print(f"  {name:34} {there:8.3f} {both - there:8.3f} {both:8.3f}", flush=True)

    contestants = {"compiled": problem.compiled(False, device), "kernels": problem.compiled(True, device)}
    results = []
    for forward in contestants.values():
        torch._dynamo.reset()
        results.append(problem.both_ways(forward))
    require_equal(results[1], results[0], TOLERANCE[kind])
    there, back = (1e3 * seconds for seconds in problem.floor())
    print(f"  {'ms':34} {'forward':>8} {'backward':>8} {'both':>8}")
    print(f"  {'floor':34} {there:8.3f} {back:8.3f} {there + back:8.3f}")
    for name, forward in contestants.items():
        report(name, forward)
    for tile in TILES if tiles else ():
        with mock.patch.multiple(spread_kernel, FORWARD=tile, BACKWARD=tile):
            report(f"kernels alone, {tile.rows} x {tile.columns}, {tile.warps} warps", problem.alone)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--shrink", type=int, default=1, help="divides the units")
    args = parser.parse_args()
    require_device(args.device)
    device = torch.device(args.device)
    torch.set_float32_matmul_precision("high")
    for case in CASES:
        smaller = replace(case, block=max(case.block // args.shrink, 1))
        study(smaller, torch.bfloat16 if args.bf16 else torch.float32, device, args.rounds, args.tiles)


if __name__ == "__main__":
    command(main)
