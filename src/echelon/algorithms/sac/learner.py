"""The updates of SAC: draw rows, step the critics, every so often the actor and the temperature, move the targets."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from echelon.algorithms import SacTrainConfig
from echelon.algorithms.sac import losses
from echelon.algorithms.sac.networks import SacNetworks
from echelon.algorithms.sac.replay import ReplayCollector, Rows
from echelon.device.fusion import fused
from echelon.envs.contract import Env, State
from echelon.learning.optimizer import Adam
from echelon.rollout.layout import Layout

FIGURES = {
    "critics": ("loss/critic", "target", "explained", "grad_norm"),
    "actor": ("loss/actor", "entropy/policy_0", "sigma/policy_0", "q"),
}
"""What is logged of an update."""


@dataclass
class Optimizers:
    """Adam for the critics, and for actor and temperature. Rates are those of the settings, so they are not loaded."""

    critics: Adam
    actor: Adam

    def state_dict(self) -> State:
        return {"critics": self.critics.state_dict(), "actor": self.actor.state_dict()}

    def load_state_dict(self, state: Any) -> None:
        for adam, name in ((self.critics, "critics"), (self.actor, "actor")):
            adam.load_state_dict({**state[name], "rate": adam.rate})


class SacLearner:
    """Collects steps into a replay and learns from it. Each of several ranks draws its part of a batch from its own."""

    def __init__(
        self, model: SacNetworks, env: Env, layout: Layout, config: SacTrainConfig, generator: torch.Generator
    ) -> None:
        self.model, self.generator, self.ranks = model, generator, layout.ranks
        self.discount, self.device = config.update.discount, env.device
        self.sac = sac = config.sac.sized(config.num_envs)
        self.collector = ReplayCollector(env, model, layout, replace(config, sac=sac), generator)
        self.replay = self.collector.replay
        assert sac.batch is not None
        assert sac.updates is not None
        assert sac.warm_up is not None
        assert sac.n_step is not None
        self.updates, self.batch, self.needed = sac.updates, max(1, sac.batch // layout.ranks.size), sac.warm_up
        self.n_step = sac.n_step
        self.entropy = sac.entropy * env.action_dim
        adam = partial(Adam, rate=sac.learning_rate, fuse=config.fuse, ranks=layout.ranks)
        actor = [*model.actor.parameters(), model.log_alpha]
        self.optimizer = Optimizers(adam(model.critics.parameters()), adam(actor))
        steps, envs = self.replay.capacity, env.num_envs
        room = sum(x.nbytes for x in self.replay.stored.values()) / 2**30
        rows = f"{steps * envs:,} rows, the last {steps:,} steps of {envs:,} environments, in {room:.2g} GiB"
        learns = f"updates per step: {self.updates:,}, of {self.batch:,} rows"
        self.preface = f"replay: {rows} of the {env.device.type}'s memory; {learns}"
        self._judges = shared(model.critics)
        self._moving: list[Tensor] = [*model.target.parameters()]
        self._leading: list[Tensor] = [*model.critics.parameters()]
        self._draw = fused(self.draw, env.device, enabled=config.fuse)
        self._critic_loss = fused(self.critic_loss, env.device, enabled=config.fuse)
        self._actor_loss = fused(self.actor_loss, env.device, enabled=config.fuse)
        self._sums = {name: torch.zeros(len(figures) + 1, device=env.device) for name, figures in FIGURES.items()}
        """Sums over the updates of this iteration, and their number."""

    def missing(self) -> int:
        """Steps to collect before it can learn, after a resume too; none if negative. Waits for the device."""
        return self.needed - int(self.replay.filled)

    def begin(self) -> None:
        """Begin an iteration: figures are averaged from here."""
        self.collector.episodes.begin()
        for sums in (self.collector.far, *self._sums.values()):
            sums.zero_()

    def learn(self) -> None:
        """All updates of a step. Recorded as a graph."""
        for number in range(self.updates):
            rows = self._rows()
            self._step_critics(rows)
            if number % self.sac.delay == 0:
                self._step_actor(rows)
            with torch.no_grad():
                torch._foreach_lerp_(self._moving, self._leading, self.sac.target_rate)  # pyright: ignore[reportPrivateImportUsage]

    def pieces(self) -> dict[str, tuple[int, Callable[[], object]]]:
        """What `learn` spends its time on, by name: how often, and a call that does it once."""
        rows = self._rows()
        critics, actor = partial(self._step_critics, rows), partial(self._step_actor, rows)
        slow = -(-self.updates // self.sac.delay)
        return {"rows": (self.updates, self._rows), "critics": (self.updates, critics), "actor": (slow, actor)}

    def _rows(self) -> Rows:
        with torch.no_grad():
            return self._draw(torch.rand(2, self.batch, generator=self.generator, device=self.device))

    def _step_critics(self, rows: Rows) -> None:
        loss, figures = self._critic_loss(rows, self._randn())
        norm = self.optimizer.critics.step(loss)
        self._note("critics", torch.cat((figures, norm.mean()[None])))

    def _step_actor(self, rows: Rows) -> None:
        loss, figures = self._actor_loss(rows, self._randn())
        self.optimizer.actor.step(loss)
        self._note("actor", figures)

    def _note(self, name: str, values: Tensor) -> None:
        self._sums[name][:-1] += values
        self._sums[name][-1] += 1

    def _randn(self) -> Tensor:
        shape = (self.batch, self.collector.env.action_dim)
        return torch.randn(shape, generator=self.generator, device=self.device)

    def draw(self, drawn: Tensor) -> Rows:
        """Rows with normalised observations and scaled rewards; `drawn` is `[2, B]` in [0, 1)."""
        rows, norms = self.replay.draw(drawn, self.n_step, self.discount), self.model.obs_norm
        rows.obs = {name: norms[name](x) for name, x in rows.obs.items()}
        rows.following = {name: norms[name](x) for name, x in rows.following.items()}
        rows.reward = rows.reward / self.model.scale[0, 0]
        return rows

    def critic_loss(self, rows: Rows, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The critics' loss and figures; `noise` `[B, A]` draws the actions that targets are of."""
        model, group = self.model, self.model.critic_group
        with torch.no_grad():
            action, log_prob = losses.sample(*model.act(rows.following["policy"]), noise)
            q = model.value(model.target, rows.following[group], action)
            value = losses.target(rows.reward, rows.factor, q, log_prob, model.log_alpha.exp()[0, 0])
            labels = model.labels(value)
        logits = model.logits(model.critics, rows.obs[group], rows.action)
        loss = losses.critic_loss(logits, labels)
        error = losses.expectation(logits.detach(), model.centres).mean(0) - value
        explained = 1 - error.var(correction=0) / value.var(correction=0).clamp(min=1e-9)
        return loss, torch.stack((loss.detach(), value.mean(), explained))

    def actor_loss(self, rows: Rows, noise: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of actor and temperature together, and figures; `noise` `[B, A]` draws the actions."""
        model, alpha = self.model, self.model.log_alpha.exp()[0, 0]
        mean, log_std = model.act(rows.obs["policy"])
        action, log_prob = losses.sample(mean, log_std, noise)
        q = model.value(self._judges, rows.obs[model.critic_group], action)
        loss = losses.actor_loss(q, log_prob, alpha) + losses.temperature_loss(alpha, log_prob, self.entropy)
        figures = (loss, -log_prob.mean(), log_std.exp().mean(), q.mean())
        return loss, torch.stack([x.detach() for x in figures])

    def metrics(self) -> dict[str, Tensor]:
        """Figures of the iteration, 0-d each; 0 where there was no update."""
        found = self.collector.episodes.metrics()
        for name, sums in self._sums.items():
            means = sums[:-1] / sums[-1].clamp(min=1)
            found |= dict(zip(FIGURES[name], means.unbind(), strict=True))
        far = self.collector.far * self.ranks.size
        found |= {"clipped/observations": far[0], "clipped/returns": far[1], "lr": self.optimizer.actor.rate[0]}
        model = self.model
        found |= {"temperature": model.log_alpha.detach().exp()[0, 0], "return_scale": model.scale[0, 0]}
        return found | {"replay/rows": self.replay.filled[0] * (self.replay.num_envs * self.ranks.size)}


def shared(module: nn.Module) -> Any:
    """The same weights, in the same memory, without gradients: a gradient through it does not compute theirs."""
    twin = copy.deepcopy(module)
    for ours, theirs in zip(twin.parameters(), module.parameters(), strict=True):
        ours.data = theirs.data
    return twin.requires_grad_(False)
