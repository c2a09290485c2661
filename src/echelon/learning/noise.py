"""Exploration noise on a leash: every policy's sigma is held at a target.

A policy's log σ_a of action a does not depend on the state, so "the mean of log σ_a is the log of the target" needs no
dual variable that finds its price over many steps: the constraint is met by shifting all log σ_a of a policy alike.
Which actions are louder than others is left to the gradient. Where only some actions are held, the mean is over those.
"""

import math

import torch
from torch import Tensor

from echelon.config import NoiseConfig
from echelon.config.ranges import places_of


def ladder(config: NoiseConfig, policies: int) -> list[float]:
    """Targets of `policies` policies of a network: from the leader's to the loudest in equal factors."""
    assert config.sigma is not None
    loudest = config.loudest or config.sigma
    shares = [i / max(1, policies - 1) for i in range(policies)]
    return [config.sigma ** (1 - share) * loudest**share for share in shares]


class Noise:
    """Holds sigma at targets that move, geometrically, from where the policies started."""

    def __init__(self, config: NoiseConfig, initial_sigma: float, log_sigma: Tensor) -> None:
        """Hold `log_sigma [G, K, A]` from now on."""
        self.held, self.anneal = config.sigma is not None, config.anneal
        _, policies, actions = log_sigma.shape
        device = log_sigma.device
        if self.held:
            places = {at for word in config.actions for at in places_of("--noise.actions", word, actions, "actions")}
            chosen = [float(not places or at in places) for at in range(actions)]
            self._chosen = torch.tensor(chosen, device=device)
            """`[A]`: 1 for actions whose sigma is held."""
            self._share = self._chosen / self._chosen.sum()
            targets = torch.tensor(ladder(config, policies), device=device).log()[:, None]
            self._first = torch.full_like(targets, math.log(initial_sigma)) if config.anneal else targets
            self._last, self._now = targets, self._first.clone()
        self.hold(log_sigma)

    def advance(self, env_steps: int) -> None:
        """Move the targets to where they are after so many environment steps; a recorded graph reads them there."""
        if self.held and self.anneal:
            torch.lerp(self._first, self._last, min(1.0, env_steps / self.anneal), out=self._now)

    def hold(self, log_sigma: Tensor) -> None:
        """Shift `log_sigma [G, K, A]`, in place, so that every policy's mean is its target."""
        if self.held:
            mean = (self._share * log_sigma).sum(-1, keepdim=True)
            log_sigma += self._chosen * (self._now - mean)
