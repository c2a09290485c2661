"""From a checkpoint to the policies in it: shared by evaluating, viewing and exporting."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from echelon.algorithms import complete, find
from echelon.config import TrainConfig
from echelon.config.schema import ForeignSettings, RandomiseConfig
from echelon.envs.contract import Adaptive, Env, MakeEnv, State, interface_of
from echelon.envs.observed import innermost, observed
from echelon.errors import UserError
from echelon.models.actor_critic import Networks
from echelon.rollout.acting import Actor
from echelon.runs.checkpoint import Which, fitting, load as load_checkpoint, require_fit
from echelon.runs.folder import RunFolder
from echelon.tasks import maker


@dataclass(frozen=True)
class Trained:
    """The trained networks of a run, on the CPU and in float32. Loading them builds no environment."""

    folder: RunFolder
    config: TrainConfig
    model: Networks
    iteration: int
    leader: int
    """Number of the policy that represents the run."""
    interface: dict[str, Any]
    """Sizes and bounds of the environment it was trained in (`interface_of`)."""
    env_state: State
    source: MakeEnv | None
    """Builds its environments; unset: the task that the run names."""

    @staticmethod
    def load(run: RunFolder | str | Path, checkpoint: Which = "newest", make_env: MakeEnv | None = None) -> "Trained":
        """Load a run's checkpoint, whichever device it was trained on."""
        folder = run if isinstance(run, RunFolder) else RunFolder.open(run)
        found, config = load_checkpoint(folder, checkpoint), complete(folder.config)
        require_fit(found, config)
        state = found.state["trainer"]
        interface = state["interface"]
        with fitting(found):
            model = find(config.algo).make_networks(interface["obs_spec"], interface["action_dim"], config)
            model.load_state_dict(state["model"])
        inner = innermost(state["env"])
        return Trained(folder, config, model, found.iteration, state["leader"], interface, inner, make_env)

    def make_env(self, num_envs: int, device: torch.device, seed: int, blocks: int = 1) -> Env:
        """Build environments to act in. Equal `blocks` of a built-in task's draw the same random numbers."""
        torch.set_num_threads(self.config.threads)
        return self.adapted((self.source or maker(self.config, blocks=blocks))(num_envs, device, seed))

    def randomised(self, ranges: RandomiseConfig) -> "Trained":
        """The same policies, in environments that draw their physics from `ranges` instead of those of training."""
        env, there = self.config.env, False
        if isinstance(env, ForeignSettings):
            there, env = "randomise" in env.values, ForeignSettings(env.values | {"randomise": asdict(ranges)})
        elif hasattr(env, "randomise"):
            there, env = True, replace(env, randomise=ranges)  # pyright: ignore[reportCallIssue]  # a MuJoCo task's
        if there and self.source is None:
            return replace(self, config=replace(self.config, env=env))
        if ranges.active():
            raise UserError(f"only tasks on Echelon's MuJoCo can be randomised here, and {self.config.task} is none")
        return self

    def adapted(self, env: Env) -> Env:
        """The environment as the policies see it, at the difficulty that training had reached; a `UserError` if the
        networks do not fit it."""
        env = observed(env, self.config.obs, self.config.history)
        here = interface_of(env)
        if any(here[name] != self.interface.get(name) for name in ("obs_spec", "action_dim")):
            raise UserError(
                f"the network of this run does not fit {self.config.task}; if it was trained in an environment of your "
                "own, pass the same make_env"
            )
        if isinstance(env, Adaptive):
            env.adopt(self.env_state, fixed=True)
        return env

    def actor(self, policy: int, num_envs: int = 1) -> Actor:
        """One policy, to act in `num_envs` environments on the networks' device."""
        model, each = self.model, self.model.policies // self.model.networks
        ids = torch.full((num_envs,), policy % each, device=next(model.parameters()).device)
        return Actor(model.only(policy // each), ids)

    def name(self, policy: int) -> str:
        """A policy's label in pictures; in a population there are members instead of followers."""
        if policy == self.leader:
            return "leader"
        return f"policy {policy}" if self.model.networks > 1 else f"follower {policy}"

    def number(self, policy: str | int, known: str = "leader") -> int:
        """The number of a policy, given as `leader` or a number; `known` lists the words of an error's sentence."""
        last = self.model.policies - 1
        if policy == "leader":
            return self.leader
        if str(policy).isdecimal() and int(policy) <= last:
            return int(policy)
        raise UserError(f"--policy is {known} or {f'a number from 0 to {last}' if last else '0'}, not {policy}")

    def chosen(self, policies: str | int) -> tuple[int, ...]:
        """Numbers of the policies that `leader`, `all` or a number stands for."""
        return tuple(range(self.model.policies)) if policies == "all" else (self.number(policies, "leader, all"),)
