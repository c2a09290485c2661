"""A trained policy acting in a single environment."""

import torch
from torch import Tensor

from echelon.diagnostics.propositions import gaussian_kl
from echelon.envs.contract import Simulated, Step
from echelon.errors import UserError
from echelon.evaluation.trained import Trained
from echelon.models.actor_critic import Output
from echelon.rollout.acting import Actor, Player


class PolicyRunner:
    """One policy acting in one environment, at its means unless `generator` is set. Call `reset` first."""

    def __init__(self, trained: Trained, policy: int, seed: int) -> None:
        self.env = trained.make_env(1, torch.device("cpu"), seed)
        shown = drawing() if (drawing := getattr(self.env, "drawing", None)) else self.env
        if not isinstance(shown, Simulated):
            raise UserError(f"{type(self.env).__name__} is not simulated by MuJoCo, so there are no bodies to show")
        self.engine = shown.engine
        self.control_s = shown.substeps * float(self.engine.model.opt.timestep)
        """Simulated seconds per control step."""
        self.generator: torch.Generator | None = None
        """Set to sample actions."""
        self._player = Player(self.env, trained.actor(policy))
        self._leader_state = torch.zeros_like(self._player.state)
        """Recurrent state of the leader, had it seen the same observations."""
        self.use(trained, policy)

    def use(self, trained: Trained, policy: int) -> None:
        """Act by another policy, or by one of another checkpoint, from now on."""
        self.trained, self.policy = trained, policy
        self._player.actor, self._leader = trained.actor(policy), trained.actor(trained.leader)

    def reset(self) -> None:
        """Start an episode."""
        self._player.reset()
        self._leader_state.zero_()

    @torch.no_grad()
    def choice(self) -> tuple[Tensor, float]:
        """The next action at the policy's mean, `[A]`, and the KL divergence from the policy to the leader in this
        state. Call it once before every step, because it advances the leader's memory."""
        own = self._output(self._player.actor, self._player.state)
        leader = self._output(self._leader, self._leader_state)
        self._leader_state = leader.state
        kl = gaussian_kl(own.mean[0], own.log_std, leader.mean[0], leader.log_std)
        return own.mean[0, 0].clamp(-1, 1), float(kl)

    def _output(self, actor: Actor, state: Tensor) -> Output:
        start = torch.zeros(1, 1, dtype=torch.bool)
        return actor.model({name: x[None] for name, x in self._player.obs.items()}, actor.policy_id, state, start)

    def step(self) -> Step:
        """One control step. If it ends the episode, the environment has already started the next."""
        step = self._player.step(self.generator)
        if bool(step.terminated | step.truncated):
            self._leader_state.zero_()
        return step
