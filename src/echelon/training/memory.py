"""Estimate the memory of a run before it starts, and say what would fit.

An estimate instead of a try, because Linux overcommits memory and then kills the process without a message.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from echelon.config import TrainConfig
from echelon.envs.contract import Env, MakeEnv
from echelon.errors import UserError
from echelon.rollout.buffer import Rollout
from echelon.training.trainer import make_model

MANY_ENVS = 100_000
"""Environments from which on a few are built first, to see what one takes."""
PROBE_ENVS = 256
ROLLOUT_COPIES = 3
"""Memory for the rollout, its targets and its minibatches, in multiples of the rollout."""
NUMBERS_PER_WEIGHT = 4
"""Numbers per weight: itself, its gradient and Adam's two moments."""
OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory", "bad_alloc", "cannot allocate memory")


def require_room_for_envs(config: TrainConfig, make_env: MakeEnv, device: torch.device) -> None:
    """Raise a `UserError` if so many environments cannot be built on a CPU."""
    free = available_bytes()
    if config.num_envs < MANY_ENVS or device.type != "cpu" or free is None:
        return
    few = make_env(1, device, config.seed)  # loads libraries, which must not count as an environment's memory
    before = resident_bytes()
    env = make_env(PROBE_ENVS, device, config.seed)
    each = max(0, resident_bytes() - before) / PROBE_ENVS + ROLLOUT_COPIES * rollout_bytes(env, config, 1)
    del few, env
    gc.collect()
    if each * config.num_envs > free:
        raise _too_many(config, each * config.num_envs, free, int(0.8 * free / each))


def require_room_for_training(env: Env, config: TrainConfig) -> None:
    """Raise a `UserError` if rollout and networks do not fit beside the environments."""
    free = available_bytes() if env.device.type == "cpu" else torch.cuda.mem_get_info(env.device)[0]
    if free is None:
        return
    with torch.device("meta"):
        parameters = list(make_model(env, config).parameters())
    networks = NUMBERS_PER_WEIGHT * sum(x.numel() * x.element_size() for x in parameters)
    each = ROLLOUT_COPIES * rollout_bytes(env, config, 1)
    if networks > free:
        raise UserError(
            f"networks with --model.hidden {' '.join(map(str, config.model.hidden))} need about "
            f"{_gib(networks)} of memory with their moments, and {_gib(free)} are free; make them smaller"
        )
    if each * config.num_envs + networks > free:
        fitting = int(0.8 * (free - networks) / each)
        raise _too_many(config, each * config.num_envs + networks, free, fitting)


@contextmanager
def explain_full_memory(config: TrainConfig) -> Iterator[None]:
    """Turn an out-of-memory error into a `UserError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error).lower() for words in OUT_OF_MEMORY):
            raise
        raise UserError(
            f"{config.num_envs:,} environments and a horizon of {config.update.horizon} do not fit into the memory of "
            f"the {config.device}; try --num-envs {max(1, config.num_envs // 2)}"
        ) from None


def rollout_bytes(env: Env, config: TrainConfig, num_envs: int) -> int:
    """Bytes of a rollout of so many environments."""
    shape = (config.update.horizon, num_envs, env.obs_spec, env.action_dim, config.model.lstm)
    rollout = Rollout.allocate(*shape, config.num_policies, torch.device("meta"))
    tensors = [*rollout.obs.values(), *(x for x in vars(rollout).values() if isinstance(x, torch.Tensor))]
    return sum(x.numel() * x.element_size() for x in tensors)


def available_bytes() -> int | None:
    """Memory that this process may still allocate, by the system's and the container's limit; None if unknown."""
    lines = _lines("/proc/meminfo")
    found = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    limit, used = _lines("/sys/fs/cgroup/memory.max"), _lines("/sys/fs/cgroup/memory.current")
    if limit and used and limit[0].isdigit():
        found.append(int(limit[0]) - int(used[0]))
    return min(found, default=None)


def resident_bytes() -> int:
    """Resident memory of this process; 0 if unknown."""
    lines = [line for line in _lines("/proc/self/status") if line.startswith("VmRSS:")]
    return 1024 * int(lines[0].split()[1]) if lines else 0


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _too_many(config: TrainConfig, needed: float, free: int, fitting: int) -> UserError:
    horizon = config.update.horizon
    what = f"{config.num_envs:,} environments" + (f" and a horizon of {horizon}" if horizon > 1 else "")
    advice = f"about {fitting:,} would fit" if fitting > config.num_policies else "make the horizon shorter"
    return UserError(f"{what} need about {_gib(needed)} of memory, and {_gib(free)} are free; {advice}")


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"
