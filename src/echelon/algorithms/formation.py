"""Followers in formation: each is held at the distance from the leader that was asked for.

The pull's strength β_i of follower i is not set but moved, in every iteration, by how far off its distance d_i is:

    e = clamp(ln(d_i / d*_i), -1, 1)
    u_i <- clamp(u_i + gain · e, lowest, highest)
    β_i = β_min · exp(max(u_i + e, 0))

That is a proportional-integral controller of ln β, with limits inside of which the integral stays (no wind-up). d_i is the
means' part of KL(π_i ‖ π_leader) on states of the follower's own rollout, E[Σ (μ_i - μ_L)²/(2σ_L²)]: sigmas have their
own bound, and where followers are paid for entropy a pull could not win against it.

A follower that stands too near although nothing pulls it has u_i < 0. An adversary, if there is one, then pays it to
differ: λ_adv·(1 - exp(u_i)). So diversity is as large as was asked for, and no larger.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from echelon.algorithms.adversary import Adversary
from echelon.config import FormationConfig, TrainConfig
from echelon.envs.contract import State
from echelon.learning.settings import Settings
from echelon.models.actor_critic import ActorCritic
from echelon.rollout.buffer import Rollout
from echelon.rollout.layout import LEADER, Layout

STATES = 1024
"""Of each policy, on which distances are measured: enough for a few per cent."""
PAID = -5.0
"""Lowest u with an adversary: it then pays 0.993 of its coefficient."""


class Formation:
    """Moves each follower's β, and what an adversary pays it, in place."""

    def __init__(self, config: TrainConfig, settings: Settings, adversary: Adversary | None) -> None:
        self.layout, self.config = settings.layout, config.formation
        layout, (weakest, strongest) = self.layout, self.config.beta_range
        targets = torch.tensor(asked_distances(self.config, layout.each - 1, config.update.clip))
        self.target = torch.cat((torch.ones(1), targets)).repeat(layout.networks).to(layout.device)
        """`[M]` d*; the leader's counts for nothing."""
        start = math.log(max(config.pull.beta, weakest) / weakest)
        self.level = torch.full((layout.policies,), start, device=layout.device)
        """`[M]` u"""
        self.beta = torch.full_like(self.level, max(config.pull.beta, weakest), dtype=torch.float64)
        settings.vectors["beta"] = self.beta
        self.weakest, self.highest = weakest, math.log(strongest / weakest)
        self.paid = None if adversary is None else adversary.coef
        self.most, self.lowest = config.adversary.coef, 0.0 if adversary is None else PAID
        if self.paid is not None:
            self.paid.zero_()

    @torch.no_grad()
    def keep(self, model: ActorCritic, rollout: Rollout) -> dict[str, Tensor]:
        """Measure all distances at the parameters that collected a rollout, and move the pulls; 0-d metrics."""
        distance = mean_distances(model, rollout, self.layout)
        raw = (distance.clamp(min=1e-9) / self.target).log()
        error = raw.clamp(-1, 1)
        self.level.copy_((self.level + self.config.gain * error).clamp(self.lowest, self.highest))
        now = (self.level + error).clamp(self.lowest, self.highest)
        self.beta.copy_(self.weakest * now.clamp(min=0).exp())
        if self.paid is not None:
            self.paid.copy_(self.most * -torch.expm1(now.clamp(max=0)))
        return self._metrics(distance, raw)

    def _metrics(self, distance: Tensor, error: Tensor) -> dict[str, Tensor]:
        followers = [k for k in range(self.layout.policies) if k % self.layout.each != LEADER]
        found = {f"distance/policy_{k}": distance[k] for k in followers}
        found |= {f"beta/policy_{k}": self.beta[k].clone() for k in followers}
        if self.paid is not None:
            found |= {f"adversary/coef/policy_{k}": self.paid[k].clone() for k in followers}
        return found | {"distance/error": torch.stack([error[k].abs() for k in followers]).mean()}

    def state_dict(self) -> State:
        return {"level": self.level, "beta": self.beta} | ({} if self.paid is None else {"paid": self.paid})

    def load_state_dict(self, state: Any) -> None:
        for name, x in self.state_dict().items():
            assert isinstance(x, Tensor)
            x.copy_(state[name])


@torch.no_grad()
def mean_distances(model: ActorCritic, rollout: Rollout, layout: Layout) -> Tensor:
    """E[Σ (μ_i - μ_leader)²/(2σ_leader²)] on up to `STATES` states of each policy's own rows: `[M]`, the leaders' 0.

    A recurrent network takes a single step from the collector's stored state. Nothing random is drawn.
    """
    rows = layout.spread_rows(rollout.horizon, STATES)
    flat = rows.flatten()
    obs = {name: x[:-1].flatten(0, 1)[flat][None] for name, x in rollout.obs.items()}
    state = rollout.state[:-1].flatten(0, 1)[flat]
    leaders = torch.arange(layout.policies, device=flat.device) // layout.each * layout.each
    start = torch.zeros(1, len(flat), dtype=torch.bool, device=flat.device)
    output = model(obs, leaders.repeat_interleave(rows.shape[1]), state, start)
    apart = (rollout.mean.flatten(0, 1)[flat] - output.mean[0]).view(*rows.shape, -1)
    return 0.5 * (apart * torch.exp(-model.log_std[leaders])[:, None]).square().sum(-1).mean(1)


def asked_distances(config: FormationConfig, followers: int, clip: float) -> list[float]:
    """KL divergences of every follower, from those asked for in any unit; between two they are spread evenly in ln."""
    convert: dict[str, Callable[[float], float]] = {
        "kl": lambda d: d,
        "ess": lambda ess: -0.5 * math.log(ess),
        "clip_fraction": lambda share: distance_of_clip_fraction(share, clip),
    }
    found = [convert[config.unit](x) for x in config.distance]
    if len(found) == followers:
        return found
    if len(found) == 1:
        return found * followers
    near, far = (math.log(x) for x in found)
    return [math.exp(near + (far - near) * k / (followers - 1)) for k in range(followers)]


def distance_of_clip_fraction(share: float, clip: float) -> float:
    """The KL divergence at which this share of rows has a ratio outside 1 ± ε.

    Between Gaussians of one covariance at distance d, ln r is N(-d, 2d) on the collector's rows.
    """

    def outside(d: float) -> float:
        spread = 2.0 * math.sqrt(d)  # √2 times the deviation √(2d)
        above, below = (math.log1p(clip) + d) / spread, (math.log1p(-clip) + d) / spread
        return 0.5 * (math.erfc(above) + math.erfc(-below))

    low, high = 1e-9, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if outside(middle) < share else (low, middle)
    return low


def make_formation(config: TrainConfig, settings: Settings, extra_reward: object) -> Formation | None:
    """For an ensemble whose settings ask for a distance."""
    if not config.formation.distance or settings.layout.each == 1:
        return None
    return Formation(config, settings, extra_reward if isinstance(extra_reward, Adversary) else None)
