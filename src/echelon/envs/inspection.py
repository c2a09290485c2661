"""Try an environment out against the contract, and say in a sentence each what is wrong and what it lacks."""

import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from echelon.envs import contract
from echelon.envs.contract import Env, MakeEnv, Stateful, Step
from echelon.errors import UserError, first_line

Finding = tuple[Literal["fact", "note", "problem"], str]
"""A sentence. A note names an optional part that is missing; a problem makes training fail, or silently learn the wrong
thing."""
LONGEST = 2000
"""Steps after which episodes that have not ended are given up."""
REPLAYED = 5
"""Steps that are made twice, to see whether they are the same."""


def inspect_env(make_env: MakeEnv, num_envs: int, device: torch.device, seed: int) -> Iterator[Finding]:
    """Build it three times, act at random until episodes have ended, and compare."""
    try:
        env = make_env(num_envs, device, seed)
        problems = [*contract.misfits(env, num_envs, device)]
        for problem in problems:
            yield "problem", problem
        if problems:
            return
        yield from _describe(env)
        player = _RandomPlayer(env, seed)
        player.reset()
        yield from _inspect_episodes(player)
        first, second = (_RandomPlayer(make_env(num_envs, device, seed), seed) for _ in range(2))
        if not all(map(torch.equal, [*first.reset(), *first.steps()], [*second.reset(), *second.steps()])):
            yield "note", "two environments of the same seed differ, so a run cannot be repeated to the bit"
        yield from _inspect_state(player)
    except UserError as error:
        yield "problem", str(error)


class _RandomPlayer:
    """Random actions, the same ones for the same seed."""

    def __init__(self, env: Env, seed: int) -> None:
        self.env, self._bounded = env, contract.bounded(env)
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self) -> list[Tensor]:
        obs = self.env.reset()
        contract.require_observations(self.env, obs)
        return [x.clone() for x in obs.values()]

    @torch.inference_mode()
    def step(self) -> Step:
        """One control step, as training makes them; the result is checked."""
        action = torch.randn(self.env.num_envs, self.env.action_dim, generator=self.generator).to(self.env.device)
        try:
            step = self.env.step(self._bounded(action))
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"step failed with {type(error).__name__}: {first_line(error)}") from error
        contract.require_step(self.env, step)
        for name, x in [*step.obs.items(), ("reward", step.reward[:, None])]:
            if fault := contract.find_fault(name, x[None].float()):
                raise UserError(fault)
        return step

    def steps(self) -> list[Tensor]:
        """Observations and rewards of the next steps."""
        steps = (self.step() for _ in range(REPLAYED))
        return [x.clone() for step in steps for x in (*step.obs.values(), step.reward)]


def _describe(env: Env) -> Iterator[Finding]:
    """Say what is seen and done."""
    groups = ", ".join(f"{name} {width}" for name, width in env.obs_spec.items())
    yield "fact", f"observations {groups}; {env.action_dim} actions; episodes of up to {env.episode_length}"
    if (controls := getattr(env, "controls", None)) is not None:
        yield "fact", controls()


def _inspect_episodes(player: _RandomPlayer) -> Iterator[Finding]:
    """Step until every environment has ended an episode: resets, last observations, logs, time."""
    env, names, steps, began = player.env, set[str](), 0, time.perf_counter()
    longest = getattr(env, "longest_episode", env.episode_length)
    waiting = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    differ_at_ends = differ_elsewhere = lacks = False
    while bool(waiting.any()) and steps < min(longest, LONGEST):
        step, steps = player.step(), steps + 1
        if steps > 1 and (odd := names ^ set(step.log)):
            yield "problem", f"log has {', '.join(sorted(odd))} in some steps only; log the same names in every step"
            return
        names, done = set(step.log), step.terminated | step.truncated
        waiting, lacks = waiting & ~done, lacks or step.final_obs is None
        for name, x in (step.final_obs or {}).items():
            differs = (x != step.obs[name]).flatten(1).any(1)
            differ_at_ends |= bool((differs & done).any())
            differ_elsewhere |= bool((differs & ~done).any())
    seconds = max(time.perf_counter() - began, 1e-9)
    yield "fact", f"{steps * env.num_envs / seconds:,.0f} steps per second with random actions"
    if bool(waiting.any()) and steps == longest:
        late = f"after {steps} steps, its episode_length, {int(waiting.sum())} environments have not ended an episode"
        yield "problem", f"{late}; set truncated at the time limit, or longest_episode if some last longer"
    if lacks:
        yield "note", "it has no final_obs: where a time limit ends an episode, V(s_t) is used instead"
    elif not (waiting.all() or differ_at_ends):
        same = "final_obs equals obs where episodes ended, so it is the observation after the reset"
        yield "problem", f"{same}, and the critic would learn from it; return the one before, or leave it out"
    if differ_elsewhere:
        yield "problem", "final_obs differs from obs where no episode ended; there it must be the same"


def _inspect_state(player: _RandomPlayer) -> Iterator[Finding]:
    """Check that a restored state continues as if nothing had happened."""
    env = player.env
    state = _copied(env.state_dict()) if isinstance(env, Stateful) else {}
    if not isinstance(env, Stateful) or not state:
        yield "note", "it has no state_dict: a resumed run starts new episodes and does not continue bit for bit"
        return
    random_state, first = player.generator.get_state(), player.steps()
    try:
        with torch.inference_mode():
            env.load_state_dict(state)
    except Exception as error:
        raise UserError(f"load_state_dict failed with {type(error).__name__}: {first_line(error)}") from error
    player.generator.set_state(random_state)
    if not all(map(torch.equal, first, player.steps())):
        differs = "after load_state_dict it does not continue as it did before"
        yield "problem", f"{differs}: something that changes is not in state_dict, such as a random generator"


def _copied(value: Any, where: str = "") -> Any:
    """Copy a state as a file holds it, on the CPU; a `UserError` names what no checkpoint can hold."""
    if isinstance(value, Mapping):
        return {key: _copied(item, f"{where}/{key}".strip("/")) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item, where) for item in value)
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    found = f"a {type(value).__module__}.{type(value).__name__} at {where or 'its top'}"
    raise UserError(f"state_dict has {found}; a checkpoint stores tensors, numbers, strings and mappings")
