"""Checkpoints of format 1, read as format 2: every tensor of a network gets a leading dimension over networks."""

from collections.abc import Mapping
from typing import Any

State = dict[str, Any]
_POLICIES = {"ppo": 1, "pbt": 6, "sapg": 6, "cpo": 6}


def policies_of_old_run(algo: str) -> int:
    """Number of policies in a run of format 1 whose settings left it open."""
    return _POLICIES.get(algo, 1)


def upgrade(state: State) -> State:
    """A state of format 1 in format 2."""
    if "trainer" not in state:
        return state
    old: State = dict(state["trainer"])
    population, adversary = old.pop("population", None), old.pop("adversary", {})
    old["leader"] = population["best"] if population else 0
    old["selection"] = {name: population[name] for name in ("hyperparameters", "evolution")} if population else {}
    old["extra_reward"] = _adversary(adversary) if adversary else {}
    old["model"] = _stacked(old["model"]) if population else _network(old["model"])
    old["optimizer"] = old["optimizer"] if population else _optimizer(old["optimizer"])
    return {**state, "trainer": old}


def _network(tensors: Mapping[str, Any]) -> State:
    renamed = {"log_sigma" if name == "log_std" else name: x for name, x in tensors.items()}
    return {name: x[None] for name, x in renamed.items()}


def _stacked(tensors: Mapping[str, Any]) -> State:
    """A population's members, which were stored one by one."""
    import torch

    members: dict[int, State] = {}
    for name, x in tensors.items():
        _, number, rest = name.split(".", 2)
        members.setdefault(int(number), {})[rest] = x
    each = [_network(members[number]) for number in sorted(members)]
    return {name: torch.cat([member[name] for member in each]) for name in each[0]}


def _optimizer(state: Mapping[str, Any]) -> State:
    moments = state["moments"]
    names = {"steps": "step", "mean": "exp_avg", "square": "exp_avg_sq"}
    return {"rate": state["rate"][None]} | {new: moments[old][None] for new, old in names.items()}


def _adversary(state: Mapping[str, Any]) -> State:
    network = {name: x[None] for name, x in state["network"].items()}
    return {"network": network, "optimizer": _optimizer(state["optimizer"])}
