"""What a policy sees of an environment: all of it, chosen parts, or the last few of them together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from echelon.config.ranges import places_of
from echelon.envs.contract import TARGET, Adaptive, Env, Groups, Size, State, Stateful, Step, dtype_of, shape_of
from echelon.errors import UserError

PASSED_ON = ("num_envs", "action_dim", "episode_length", "device", "longest_episode", "config", "objective")
PASSED_ON += ("reward_scales", "take_faults", "action_low", "action_high", "engine", "substeps", "drawing", "kept")
PASSED_ON += ("generator", "capturing", "fuse", "join_ranks", "privileged", "randomiser", "controls", "difficulty")
PASSED_ON += ("teacher_clock",)
"""What a wrapped environment has if the one inside has it."""


class Observer:
    """Chooses from an environment's observations, and remembers the last `history` of what it chose.

    Words are `image`, `critic`, `policy` without what the environment calls privileged, or numbers of `policy` by
    place, as in `0:5`; without words the policy sees what it is given. The value function sees everything.
    """

    def __init__(self, env: Env, words: Sequence[str], history: int) -> None:
        spec, columns = dict(env.obs_spec), _columns(env, words)
        self.places = () if "critic" in columns else tuple(sorted(columns.get("policy", ())))
        """Numbers of the group `policy` that are seen, if none of another group are."""
        self._columns = {name: torch.tensor(sorted(found), device=env.device) for name, found in columns.items()}
        whole = "critic" if "critic" in spec else "policy"
        sees_all = list(columns) == [whole] and len(columns[whole]) == spec[whole]
        self._whole = None if sees_all or whole not in spec else whole
        self.spec: dict[str, Size] = {name: size for name, size in spec.items() if name not in ("policy", "critic")}
        """Sizes of the groups that are seen."""
        if words and "image" not in words:
            self.spec.pop("image", None)
        if columns:
            self.spec["policy"] = sum(map(len, columns.values()))
        self.last: Groups = {}
        """`[N, history, ...]` each, the newest last; empty without a history."""
        for name in {"policy", "image"} & set(self.spec) if history > 1 else ():
            size = self.spec[name]
            shape = env.num_envs, history, *shape_of(size)
            self.last[name] = torch.zeros(shape, dtype=dtype_of(size), device=env.device)
            self.spec[name] = history * size if isinstance(size, int) else (history * size[0], *size[1:])
        if self._whole:
            self.spec["critic"] = spec[self._whole]

    def observe(self, obs: Groups, start: Tensor) -> Groups:
        """What is seen now; where an episode starts, `[N]`, as if it had been seen all along."""
        seen = self._choose(obs)
        for name, last in self.last.items():
            first = start.view(-1, *[1] * (last.dim() - 1))
            moved = torch.where(first, seen[name][:, None], self._moved(name, seen[name]))
            last.copy_(moved)
            seen[name] = moved.flatten(1, 2)
        return seen

    def final(self, obs: Groups) -> Groups:
        """What is seen of an episode's last observation, which is not remembered."""
        seen = self._choose(obs)
        return seen | {name: self._moved(name, seen[name]).flatten(1, 2) for name in self.last}

    def _choose(self, obs: Groups) -> Groups:
        parts = [obs[name].index_select(1, columns) for name, columns in self._columns.items()]
        own = {"policy": torch.cat(parts, dim=1)} if parts else {}
        own |= {"critic": obs[self._whole]} if self._whole else {}
        return own | {name: obs[name] for name in self.spec if name not in ("policy", "critic")}

    def _moved(self, name: str, now: Tensor) -> Tensor:
        return torch.cat((self.last[name][:, 1:], now[:, None]), dim=1)


def _columns(env: Env, words: Sequence[str]) -> dict[str, set[int]]:
    """Which numbers of which group the words name; all of `policy` without words."""
    hidden, found = getattr(env, "privileged", ()), dict[str, set[int]]()
    spec = {name: size for name, size in env.obs_spec.items() if name != TARGET}
    numbers = {name: size for name, size in spec.items() if isinstance(size, int)}
    if not words:
        return {"policy": set(range(numbers["policy"]))} if "policy" in numbers else {}
    for word in words:
        place = re.fullmatch(r"(\d*):(\d*)", word)
        group = "policy" if place else word
        if group not in ("policy", "critic", "image") or group not in spec:
            groups = " and ".join(f"{name} ({size})" for name, size in spec.items())
            raise UserError(f"--obs takes groups of observations, or places as in 0:5, not {word!r}; there is {groups}")
        if word == "policy" and not hidden and len(spec) == 1:
            plain = "the environment calls none of its observations privileged, so --obs policy would be all of them"
            raise UserError(f"{plain}; choose some of its {spec['policy']} numbers by their places, as in --obs 0:5")
        if group != "image":
            named = word if place else ":", *(hidden if word == "policy" else ())
            chosen, *unseen = (set(places_of("--obs", one, numbers[group], "numbers of policy")) for one in named)
            found.setdefault(group, set()).update(chosen.difference(*unseen))
    return found


class Wrapped:
    """An environment inside another. It is what the one inside is: bounded, simulated, adaptive, capturable."""

    num_envs: int
    action_dim: int
    episode_length: int
    device: torch.device

    def __init__(self, env: Env, own: Mapping[str, Tensor]) -> None:
        """`own` is saved with the state of the environment inside."""
        self.env, self._own = env, own
        for name in PASSED_ON:
            if hasattr(env, name):
                setattr(self, name, getattr(env, name))
        if isinstance(env, Adaptive):
            self.adopt = lambda state, *, fixed: env.adopt(innermost(state), fixed=fixed)

    def state_dict(self) -> State:
        inner = self.env.state_dict() if isinstance(self.env, Stateful) else {}
        return {"inner": inner, "own": {name: x.clone() for name, x in self._own.items()}} if inner else {}

    def load_state_dict(self, state: Any) -> None:
        self.env.load_state_dict(state["inner"])  # pyright: ignore[reportAttributeAccessIssue]  # it saved it
        for name, x in self._own.items():
            x.copy_(state["own"][name])


def innermost(state: Any) -> Any:
    """The state of the environment itself, out of that of what it is wrapped in."""
    return innermost(state["inner"]) if isinstance(state, Mapping) and set(state) == {"inner", "own"} else state


class Observed(Wrapped):
    """An environment of which a policy sees a part."""

    def __init__(self, env: Env, words: Sequence[str], history: int) -> None:
        self.observer = Observer(env, words, history)
        super().__init__(env, self.observer.last)
        self.obs_spec = self.observer.spec
        self._everywhere = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)

    def reset(self) -> Groups:
        return self.observer.observe(self.env.reset(), self._everywhere)

    def step(self, action: Tensor) -> Step:
        step = self.env.step(action)
        final_obs = None if step.final_obs is None else self.observer.final(step.final_obs)
        obs = self.observer.observe(step.obs, step.terminated | step.truncated)
        return replace(step, obs=obs, final_obs=final_obs)


def observed(env: Any, words: Sequence[str], history: int) -> Env:
    """`env`, or if a policy does not see it as it is, that policy's view of it."""
    return Observed(env, words, history) if words or history > 1 else env
