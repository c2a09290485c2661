"""M networks that share nothing, evaluated as one: DexPBT's population on one device."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from echelon.config import ModelConfig
from echelon.envs.contract import Groups
from echelon.models.actor_critic import ActorCritic, Output, Projected
from echelon.models.flat import places
from echelon.models.normaliser import EPSILON


class Population(nn.Module):
    """Member k drives policy k's block of environments. To a collector it looks like an `ActorCritic`.

    Every member is an ordinary `ActorCritic` of one policy, with normalisers of its own. Its tensors are row k of
    stacked ones, so a forward pass is one batched product per layer for all members (`vmap`), while whatever concerns
    one member, such as copying it or merging its statistics, works on the member itself.
    """

    def __init__(
        self, obs_spec: dict[str, int], action_dim: int, policies: int, config: ModelConfig, *, bf16: bool = False
    ) -> None:
        super().__init__()
        self.policies = policies
        self.members = nn.ModuleList(ActorCritic(obs_spec, action_dim, 1, config, bf16=bf16) for _ in range(policies))
        self.state_dim = self.member(0).state_dim
        self._stack()

    def member(self, index: int) -> ActorCritic:
        member = self.members[index]
        assert isinstance(member, ActorCritic)
        return member

    def _stack(self) -> None:
        """Move all members into rows: of `flat` `[M, P]`, which `weights` look into, and of stacked statistics."""
        tables = [list(member.parameters()) for member in self.members]
        self.places, length = places(p.numel() for p in tables[0])
        self.flat = tables[0][0].new_zeros(self.policies, length)
        self.weights: dict[str, Tensor] = {}
        """Every parameter of all members, `[M, ...]`: the leaves that gradients are taken of."""
        for position, (name, parameter) in enumerate(self.member(0).named_parameters()):
            leaf = self.flat[:, self.places[position]].unflatten(1, parameter.shape)
            for table, values in zip(tables, leaf, strict=True):
                table[position].data = values.copy_(table[position].detach())
            self.weights[name] = leaf.requires_grad_()
        self._statistics: dict[str, Tensor] = {}
        for name, _ in self.member(0).named_buffers():
            path, _, last = name.rpartition(".")
            owners = [member.get_submodule(path) for member in self.members]
            stacked = torch.stack([owner.get_buffer(last) for owner in owners])
            for owner, values in zip(owners, stacked, strict=True):
                setattr(owner, last, values)
            self._statistics[name] = stacked

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Population":
        """Another device or precision gives the members tensors of their own: stack them again."""
        super()._apply(fn, recurse)
        self._stack()
        return self

    @torch.no_grad()
    def copy(self, donor: int, member: int) -> None:
        """The member becomes the donor: weights and statistics."""
        for x in (self.flat, *self._statistics.values()):
            x[member].copy_(x[donor])

    @property
    def log_std(self) -> Tensor:
        """`[M, A]`"""
        return self.weights["log_std"].squeeze(1)

    def project(self, obs: Groups) -> Projected:
        """Members share no first layer, so the observations pass as they are, and `evaluate` does it all."""
        return Projected(obs["policy"], obs.get("critic"))

    def evaluate(self, projected: Projected, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """As `ActorCritic.evaluate`; `policy_id` `[B]` in blocks, equally many rows of each member in turn.

        Rows in any other order are understood on a CPU only, where the collector picks some out.
        """
        obs = {"policy": projected.actor} | ({} if projected.critic is None else {"critic": projected.critic})
        if self.policies == 1:  # the very operations of PPO, to the bit
            tensors = {name: x[0] for name, x in (self.weights | self._statistics).items()}
            return functional_call(self.member(0), tensors, (obs, policy_id, state, start))
        if not policy_id.is_cuda and not self._in_blocks(policy_id):
            return self._scattered(obs, policy_id, state, start)
        return self._batched(obs, state, start)

    def forward(self, obs: Groups, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """`evaluate` from raw observations `[L, B, D]`."""
        return self.evaluate(self.project(obs), policy_id, state, start)

    def _batched(self, obs: Groups, state: Tensor, start: Tensor) -> Output:
        """Every member on its block: one pass for all."""

        def member(parameters: Any, buffers: Any, obs: Groups, state: Tensor, start: Tensor) -> tuple[Tensor, ...]:
            ids = torch.zeros(state.shape[0], dtype=torch.int64, device=state.device)
            return _parts(functional_call(self.member(0), (parameters, buffers), (obs, ids, state, start)))

        blocks = (self.policies, state.shape[0] // self.policies)
        rows = {name: x.unflatten(1, blocks) for name, x in obs.items()}
        mean, log_std, value, state = vmap(member, in_dims=(0, 0, 1, 0, 1), out_dims=(1, 0, 1, 0))(
            self.weights,
            self._statistics,
            rows,
            state.unflatten(0, blocks),
            start.unflatten(1, blocks),
        )
        spread = log_std.expand(-1, blocks[1], -1).flatten(0, 1)
        return Output(mean.flatten(1, 2), spread, value.flatten(1, 2), state.flatten(0, 1))

    def _scattered(self, obs: Groups, policy_id: Tensor, state: Tensor, start: Tensor) -> Output:
        """Every member on all rows, of which each row keeps one: for a handful of rows."""

        def member(parameters: Any, buffers: Any) -> tuple[Tensor, ...]:
            ids = torch.zeros_like(policy_id)
            return _parts(functional_call(self.member(0), (parameters, buffers), (obs, ids, state, start)))

        mean, log_std, value, state = vmap(member)(self.weights, self._statistics)
        rows = torch.arange(len(policy_id))
        return Output(
            mean[policy_id, :, rows].transpose(0, 1),
            log_std[policy_id, 0],
            value[policy_id, :, rows].T,
            state[policy_id, rows],
        )

    def raw_value(self, value: Tensor, policy_id: Tensor) -> Tensor:
        """Values `[..., B]` in the units of (scaled) rewards, each by the statistics of its own member."""
        clip = self.member(0).value_norm.clip
        mean, var = (self._statistics[f"value_norm.{name}"].squeeze(1) for name in ("mean", "var"))
        std = torch.sqrt(var + EPSILON)
        mean, std = (x.to(value.dtype).index_select(0, policy_id) for x in (mean, std))
        return value.clamp(-clip, clip) * std + mean

    def merge_observations(self, obs: Groups) -> None:
        """Take each block's collected observations `[T, N, D]` into its member's normalisers."""
        blocks = {name: x.unflatten(1, (self.policies, -1)).unbind(1) for name, x in obs.items()}
        for index in range(self.policies):
            self.member(index).merge_observations({name: x[index] for name, x in blocks.items()})

    def _in_blocks(self, policy_id: Tensor) -> bool:
        rows = len(policy_id)
        return rows % self.policies == 0 and policy_id.equal(torch.arange(rows) * self.policies // max(rows, 1))


Model = ActorCritic | Population
"""What acts and learns in a run."""


def _parts(output: Output) -> tuple[Tensor, ...]:
    return output.mean, output.log_std, output.value, output.state
