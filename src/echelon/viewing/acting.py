"""A trained policy acting in a single environment."""

from dataclasses import dataclass

import torch

from echelon.diagnostics.propositions import gaussian_kl
from echelon.envs.contract import Env, Simulated, Step
from echelon.errors import UserError
from echelon.evaluation.trained import Trained
from echelon.models.actor_critic import Output
from echelon.rollout.acting import Actor, Player

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Choice:
    """A policy's next action, and how far it is from the leader's."""

    action: torch.Tensor
    """`[A]`, at its mean."""
    kl: float
    """KL divergence from the policy to the leader in this state; 0 for the leader itself."""


class PolicyRunner:
    """One policy acting in one environment, at its means unless `generator` is set. Call `reset` first."""

    def __init__(self, trained: Trained, policy: int, seed: int) -> None:
        self.env: Env = trained.make_env(1, CPU, seed)
        self.generator: torch.Generator | None = None
        """Set to sample actions."""
        self._trained, self._policy = trained, policy
        self._player = Player(self.env, trained.actor(policy))
        self._leader = trained.actor(trained.leader)
        """The policy that it is compared with."""
        self._leads_from = torch.zeros_like(self._player.state)
        """Recurrent state of the leader, had it seen the same observations."""

    @property
    def policy(self) -> int:
        """The acting policy; may be set during an episode."""
        return self._policy

    @policy.setter
    def policy(self, policy: int) -> None:
        self._policy, self._player.actor = policy, self._trained.actor(policy)

    def use(self, trained: Trained) -> None:
        """Act by the policies of another checkpoint from now on."""
        self._trained = trained
        self._player.actor, self._leader = trained.actor(self._policy), trained.actor(trained.leader)

    @property
    def simulated(self) -> Simulated:
        """The environment or its drawing: whichever has an engine to show."""
        shown = drawing() if (drawing := getattr(self.env, "drawing", None)) else self.env
        if not isinstance(shown, Simulated):
            raise UserError(f"{type(self.env).__name__} is not simulated by MuJoCo, so there are no bodies to show")
        return shown

    @property
    def control_s(self) -> float:
        """Simulated seconds of a control step."""
        return self.simulated.substeps * float(self.simulated.engine.model.opt.timestep)

    def reset(self) -> None:
        """Start an episode."""
        self._player.reset()
        self._leads_from.zero_()

    @torch.no_grad()
    def choice(self) -> Choice:
        """What the policy would do now, and how far that is from what the leader would. Call it once before every step,
        because it advances the leader's memory."""
        own = self._output(self._player.actor, self._player.state)
        leader = self._output(self._leader, self._leads_from)
        self._leads_from = leader.state
        kl = gaussian_kl(own.mean[0], own.log_std, leader.mean[0], leader.log_std)
        return Choice(own.mean[0, 0].clamp(-1, 1), float(kl))

    def _output(self, actor: Actor, state: torch.Tensor) -> Output:
        start = torch.zeros(1, 1, dtype=torch.bool)
        return actor.model({name: x[None] for name, x in self._player.obs.items()}, actor.policy_id, state, start)

    def step(self) -> Step:
        """One control step. If it ends the episode, the environment has already started the next."""
        step = self._player.step(self.generator)
        if bool(step.terminated | step.truncated):
            self._leads_from.zero_()
        return step
