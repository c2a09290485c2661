"""What both labs share: deterministic evaluation, recording that may fail, and JSON lines."""

import gc
import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from echelon.config import TrainConfig
from echelon.device.capture import Captured
from echelon.envs.contract import Env
from echelon.tasks import maker


class RecordingFailed(RuntimeError):
    """A CUDA graph could not be recorded or replayed."""


class CompilingFailed(RuntimeError):
    """The first, ordinary call of a function that is compiled failed."""


def add_arguments(p: ArgumentParser) -> None:
    p.add_argument("--evaluate-at", type=float, nargs="*", default=[], help="steps to evaluate at; always at the end")
    p.add_argument("--evaluate-envs", type=int, default=None, help="1,024 on CUDA, 32 on a CPU")
    p.add_argument("--evaluate-seed", type=int, default=1000)


class Recorded:
    """`Captured` that names what failed: the first call, which compiles, or the recording."""

    def __init__(
        self,
        run: Callable[[], Any],
        device: torch.device,
        generators: list[torch.Generator],
        *,
        env: Env | None = None,
        enabled: bool,
        compiles: bool = False,
    ) -> None:
        around = {} if env is None else {"around": env.capturing}
        able = enabled and device.type == "cuda" and (env is None or hasattr(env, "capturing"))
        more = [] if env is None or not hasattr(env, "generator") else [env.generator]
        self._run = Captured(run, device, [*generators, *more], enabled=able, **(around if able else {}))
        self._able, self._compiles, self._calls = able, compiles and device.type == "cuda", 0

    def __call__(self) -> Any:
        self._calls += 1
        if self._calls > 2:
            return self._run()
        try:
            result = self._run()
            if self._able:
                torch.cuda.synchronize()
            return result
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            if self._calls == 1 and self._compiles:
                raise CompilingFailed(f"{type(error).__name__}: {error}") from error
            if self._calls == 2 and self._able:
                raise RecordingFailed(f"{type(error).__name__}: {error}") from error
            raise


class Evaluation:
    """One whole episode in each of its own environments at the mean action of the leader, as `echelon evaluate` counts.

    Made before anything is recorded, and stepped as a graph of its own. Later evaluations go on drawing new starts.
    """

    def __init__(self, config: TrainConfig, act: Callable[[Tensor], Tensor], o: Namespace) -> None:
        dev = torch.device(o.device)
        n = o.evaluate_envs or (1024 if dev.type == "cuda" else 32)
        self.env, self._act = maker(config)(n, dev, o.evaluate_seed), act
        self._obs = torch.zeros(n, int(self.env.obs_spec["policy"]), device=dev)
        self._running = torch.ones(n, device=dev)
        self._figures = {name: torch.zeros(n, device=dev) for name in ("return", "length", "terminated")}
        self._step = Recorded(self._advance, dev, [], env=self.env, enabled=bool(o.capture))
        self._begin()
        for _ in range(3):  # allocates, records, replays: what can fail fails before training
            self._step()

    @torch.inference_mode()
    def _begin(self) -> None:
        self._obs.copy_(self.env.reset()["policy"])
        self._running.fill_(1.0)
        for x in self._figures.values():
            x.zero_()

    @torch.inference_mode()
    def _advance(self) -> None:
        step = self.env.step(self._act(self._obs))
        self._obs.copy_(step.obs["policy"])
        done, running = (step.terminated | step.truncated).float(), self._running
        self._figures["return"] += running * step.reward
        self._figures["length"] += running
        self._figures["terminated"] += running * step.terminated
        for name, x in step.log.items():
            if name.startswith("episode/"):
                name = name.removeprefix("episode/")
                if name not in self._figures:  # in the first call, which is not recorded
                    self._figures[name] = torch.zeros_like(running)
                self._figures[name] += running * done * x
        running *= 1 - done

    def __call__(self) -> dict[str, float]:
        self._begin()
        for t in range(getattr(self.env, "longest_episode", self.env.episode_length)):
            if t % 16 == 0 and not self._running.any():
                break
            self._step()
        returns = self._figures["return"].double()
        means = {name: x.double().mean().item() for name, x in self._figures.items()}
        found = means | {"return_std": returns.std(correction=0).item(), "episodes": len(returns)}
        return {name: float(f"{x:.5g}") for name, x in found.items()}


class Schedule:
    """When to evaluate: at each of some numbers of steps, and at the end."""

    def __init__(self, evaluation: Evaluation, marks: list[float], write: Callable[[dict[str, Any]], None]) -> None:
        self._evaluation, self._marks, self._write, self._last = evaluation, sorted(marks), write, -1

    def __call__(self, steps: int, seconds: float, *, end: bool = False) -> None:
        """`seconds` are those of training, which evaluation does not add to."""
        due = end and self._last != steps
        while self._marks and steps >= self._marks[0]:
            self._marks.pop(0)
            due = True
        if due:
            self._last = steps
            self._write(
                {"evaluation": "deterministic", "steps": steps, "seconds": round(seconds, 3)} | self._evaluation()
            )


class Lines:
    """JSON lines to standard output and to a file."""

    def __init__(self, path: str | None) -> None:
        self._file = open(path, "w") if path else None  # noqa: SIM115  # until the process ends

    def __call__(self, line: dict[str, Any]) -> None:
        for file in (sys.stdout, self._file):
            if file:
                print(json.dumps(line), file=file, flush=True)


def start(lab: Callable[[Namespace], Any], o: Namespace) -> None:
    """Run a lab; if recording or compiling fails, start again without it in a fresh process."""
    if o.device == "cpu":
        torch.set_num_threads(o.threads)
    else:
        torch.set_float32_matmul_precision("high")
    try:
        lab(o).run()
        return
    except (RecordingFailed, CompilingFailed) as error:
        which = "--capture" if isinstance(error, RecordingFailed) else "--compile"
        print(json.dumps({"fallback": f"{which} 0", "error": str(error)[:1500]}), flush=True)
    gc.collect()  # outside of the handler, whose traceback holds all tensors; the context may be broken
    with suppress(Exception):
        torch.cuda.empty_cache()
    sys.exit(subprocess.call([sys.executable, *sys.argv, which, "0"]))
