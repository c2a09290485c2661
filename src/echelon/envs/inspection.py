"""Try an environment out against the contract, and say in a sentence each what is wrong and what it lacks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from echelon.envs.checks import find_fault, require_observations, require_step
from echelon.envs.contract import Bounded, Env, Groups, MakeEnv, Stateful, Step, bounded
from echelon.errors import UserError, first_line

LONGEST = 2000
"""Steps after which episodes that have not ended are given up."""
REPLAYED = 5
"""Steps that are made twice, to see whether they are the same."""


@dataclass
class Findings:
    """A sentence per finding."""

    problems: list[str] = field(default_factory=list)
    """Problems that make training fail, or silently learn the wrong thing."""
    notes: list[str] = field(default_factory=list)
    """Optional parts that are missing."""
    facts: list[str] = field(default_factory=list)


def inspect_env(make_env: MakeEnv, num_envs: int, device: torch.device, seed: int) -> Findings:
    """Build it twice, act at random until episodes have ended, and compare."""
    findings = Findings()
    try:
        env = make_env(num_envs, device, seed)
        _members(env, num_envs, device, findings)
        if findings.problems:
            return findings
        player = _RandomPlayer(env, seed)
        player.reset()
        _episodes(player, findings)
        first, second = (_RandomPlayer(make_env(num_envs, device, seed), seed) for _ in range(2))
        starts_equal = _same(first.reset(), second.reset())
        if not (_same(first.steps(), second.steps()) and starts_equal):
            findings.notes.append("two environments of the same seed differ, so a run cannot be repeated to the bit")
        _state(player, findings)
    except UserError as error:
        findings.problems.append(str(error))
    return findings


class _RandomPlayer:
    """Random actions, the same ones for the same seed."""

    def __init__(self, env: Env, seed: int) -> None:
        self.env, self._bounded = env, bounded(env)
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self) -> Groups:
        obs = self.env.reset()
        require_observations(self.env, obs)
        return _copied(obs)

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
        require_step(self.env, step)
        for name, x in [*step.obs.items(), ("reward", step.reward[:, None])]:
            if fault := find_fault(name, x[None].float()):
                raise UserError(fault)
        return step

    def steps(self) -> dict[str, Tensor]:
        """Observations and rewards of the next steps, by name and number."""
        found = {}
        for number in range(REPLAYED):
            step = self.step()
            found |= {f"{name} {number}": x for name, x in _copied({**step.obs, "reward": step.reward}).items()}
        return found


def _members(env: Env, num_envs: int, device: torch.device, findings: Findings) -> None:
    """Check what can be known before the first step."""
    say = findings.problems.append
    if env.num_envs != num_envs:
        say(f"num_envs is {env.num_envs}, though {num_envs} environments were asked for")
    if not isinstance(env.device, torch.device):
        say(f"device is a {type(env.device).__name__}, not a torch.device")
    elif env.device.type != device.type:
        say(f"device is {env.device}, though it was asked to be on {device}")
    if not isinstance(env.obs_spec, Mapping) or not {"policy", "image"} & set(env.obs_spec):
        say("obs_spec has no group called policy, which is what the policy sees")
    if not isinstance(env.episode_length, int) or env.episode_length < 1:
        say(f"episode_length is a whole number of at least 1, not {env.episode_length!r}")
    if isinstance(env, Bounded) and not bool((env.action_low < env.action_high).all()):
        say("action_low is not below action_high everywhere")
    groups = ", ".join(f"{name} {width}" for name, width in env.obs_spec.items())
    findings.facts.append(f"observations {groups}; {env.action_dim} actions; episodes of up to {env.episode_length}")


def _episodes(player: _RandomPlayer, findings: Findings) -> None:
    """Step until every environment has ended an episode: resets, last observations, logs, time."""
    env, say = player.env, findings.problems.append
    longest = getattr(env, "longest_episode", env.episode_length)
    waiting = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    names: set[str] | None = None
    differ_at_ends = differ_elsewhere = False
    ends = lacks = steps = 0
    began = time.perf_counter()
    while bool(waiting.any()) and steps < min(longest, LONGEST):
        step, steps = player.step(), steps + 1
        if names is not None and names != set(step.log):
            odd = ", ".join(sorted(names ^ set(step.log)))
            return say(f"log has {odd} in some steps only; log the same names in every step")
        names = set(step.log)
        done = step.terminated | step.truncated
        ends, waiting = ends + int(done.sum()), waiting & ~done
        lacks += step.final_obs is None
        for name, x in (step.final_obs or {}).items():
            differs = (x != step.obs[name]).flatten(1).any(1)
            differ_at_ends |= bool((differs & done).any())
            differ_elsewhere |= bool((differs & ~done).any())
    seconds = time.perf_counter() - began
    findings.facts.append(f"{steps * env.num_envs / max(seconds, 1e-9):,.0f} steps per second with random actions")
    if bool(waiting.any()) and steps == longest:
        say(
            f"after {steps} steps, its episode_length, {int(waiting.sum())} environments have not ended an episode; "
            "set truncated at the time limit, or longest_episode if some last longer"
        )
    if lacks:
        findings.notes.append("it has no final_obs: where a time limit ends an episode, V(s_t) is used instead")
    elif ends and not differ_at_ends:
        say(
            "final_obs equals obs where episodes ended, so it is the observation after the reset, and the critic would "
            "learn from it; return the one before, or leave it out"
        )
    if differ_elsewhere:
        say("final_obs differs from obs where no episode ended; there it must be the same")


def _state(player: _RandomPlayer, findings: Findings) -> None:
    """Check that a restored state continues as if nothing had happened."""
    env = player.env
    state = env.state_dict() if isinstance(env, Stateful) else {}
    if not isinstance(env, Stateful) or not state:
        findings.notes.append(
            "it has no state_dict: a resumed run starts new episodes and does not continue bit for bit"
        )
        return
    try:
        state = _copied(state)
    except TypeError as wrong:
        findings.problems.append(f"state_dict has {wrong}; a checkpoint stores tensors, numbers, strings and mappings")
        return
    random_state = player.generator.get_state()
    first = player.steps()
    try:
        with torch.inference_mode():
            env.load_state_dict(state)
    except Exception as error:
        raise UserError(f"load_state_dict failed with {type(error).__name__}: {first_line(error)}") from error
    player.generator.set_state(random_state)
    if not _same(first, player.steps()):
        findings.problems.append(
            "after load_state_dict it does not continue as it did before: something that changes is not in state_dict, "
            "such as a random generator"
        )


def _same(a: Groups, b: Groups) -> bool:
    return all(torch.equal(x, b[name]) for name, x in a.items())


def _copied(value: Any, where: str = "") -> Any:
    """Copy a state as a file holds it, on the CPU; a `TypeError` names what no checkpoint can hold."""
    if isinstance(value, Mapping):
        return {key: _copied(item, f"{where}/{key}".strip("/")) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(item, where) for item in value)
    if isinstance(value, Tensor):
        return value.to("cpu", copy=True)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__module__}.{type(value).__name__} at {where or 'its top'}")
