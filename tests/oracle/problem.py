"""What an iteration learns from: parameters, one rollout, a value normaliser and the settings; and which rows of it are
trained on, under which policy, and why (sheet §3.2, DESIGN §2)."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Group = Literal["own", "leader_borrows", "follower_pull"]
GROUPS: tuple[Group, ...] = ("own", "leader_borrows", "follower_pull")


@dataclass
class Problem:
    """One iteration's input. Tensors are float64; T = `horizon`, N = environments, M = `policies`, A = actions.

    `params` are the parameters that collected the rollout, leaf tensors that require gradients:

    - `phi` [M, P]: vector that tells the network which policy it is (sheet §1.2); absent when M = 1
    - `log_std` [M, A]: free log sigma of every policy (sheet §1.3)
    - `w_ih` [4h, D+P], `w_hh` [4h, h], `b_ih`, `b_hh` [4h] (PyTorch's gate order i, f, g, o), `ln_w`, `ln_b` [h]: the
      LSTM and its LayerNorm; absent in an MLP
    - `w0`, `b0`, `w1`, `b1`, ...: ELU layers on concat(obs, phi), or on LayerNorm(LSTM output)
    - `w_mu` [A, H], `b_mu` [A], `w_v` [1, H], `b_v` [1]: the heads
    """

    policies: int
    policy_id: list[int]
    """Collector of every environment, contiguous blocks, the leader 0 first."""
    horizon: int
    sequence: int
    """Rows of a training sequence: 1 for an MLP, a divisor of the horizon for an LSTM."""
    params: dict[str, Tensor]

    obs: Tensor
    """[T+1, N, D], normalised."""
    action: Tensor
    """[T, N, A], as sampled, not clamped."""
    log_prob: Tensor
    """[T, N], of the collector."""
    mean: Tensor
    """[T, N, A], of the collector."""
    log_std: Tensor
    """[T, N, A], of the collector."""
    value: Tensor
    """[T+1, N], of the collector in raw units; the last row is the bootstrap V(s_T)."""
    reward: Tensor
    """[T, N], the environment's, scaled."""
    adversarial: Tensor
    """[T, N], added to the reward in own targets only (sheet §4.7)."""
    terminated: Tensor
    """[T, N] bool. A row that is both terminated and truncated counts as terminated."""
    truncated: Tensor
    """[T, N] bool."""
    final_value: Tensor
    """[T, N], the collector's raw value of `final_obs`; meaningless where not truncated.

    The settings `timeout_bootstrap="current_obs"` and `"none"` are this tensor set to `value[:T]` and to 0."""
    start: Tensor
    """[T+1, N] bool: an episode begins at this row, the LSTM's state is zeroed before it."""
    state_h: Tensor | None = None
    """[T+1, N, h], the collector's state before step t, already zeroed where `start`; None for an MLP."""
    state_c: Tensor | None = None

    value_mean: float = 0.0
    value_var: float = 1.0
    value_count: float = 1.0

    algo: Literal["ppo", "sapg", "cpo"] = "cpo"
    follower: int = 1
    """The follower j in 1..M-1 whose rows the leader borrows."""
    borrows_all: bool = False
    """The leader borrows the rows of every follower instead of those of one."""
    discount: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    clips: tuple[float, ...] = ()
    """Each policy's own, instead of `clip` for all."""
    critic_coef: float = 4.0
    bounds_coef: float = 1e-4
    entropy_coef: float = 0.0
    entropy_scale: float = 0.0
    estimator: Literal["td", "gae", "vtrace"] = "td"
    clip_centre: Literal["one", "old_ratio"] = "one"
    advantage_scope: Literal["global", "group", "policy", "centred"] = "global"
    loss_scale: float = 1.0
    own_weight: float = 1.0
    borrow_weight: float = 1.0
    beta: float = 1e-3
    temperature: float = 0.2
    cap: float = 100.0
    pull_normalise: bool = False
    use_advantage: bool = True
    reverse_temperature: float = 0.0

    @property
    def recurrent(self) -> bool:
        """Whether the network has an LSTM."""
        return "w_ih" in self.params

    def state(self, t: int, env: int) -> tuple[Tensor, Tensor] | None:
        """The LSTM's (h, c) before row (t, env); None in an MLP."""
        if self.state_h is None or self.state_c is None:
            return None
        return self.state_h[t, env], self.state_c[t, env]

    def clip_of(self, policy: int) -> float:
        """ε of a learner."""
        return self.clips[policy] if self.clips else self.clip

    @property
    def num_envs(self) -> int:
        """N."""
        return len(self.policy_id)


@dataclass(frozen=True)
class Evaluation:
    """Row (t, env), evaluated under `policy` because of `group`."""

    t: int
    env: int
    policy: int
    group: Group


@dataclass(frozen=True)
class Sequence:
    """Rows chunk·L .. chunk·L+L-1 of `env`, unrolled under `policy` because of `group`."""

    chunk: int
    env: int
    policy: int
    group: Group

    def evaluations(self, length: int) -> list[Evaluation]:
        """The sequence's rows in time order."""
        first = self.chunk * length
        return [Evaluation(t, self.env, self.policy, self.group) for t in range(first, first + length)]


Item = Evaluation | Sequence
"""A minibatch is a list of these: evaluations with an MLP, sequences with an LSTM."""


def pairs(problem: Problem) -> list[tuple[int, int, Group]]:
    """(env, policy, group) of everything learned from: PPO N, SAPG N + b_j, CPO N + b_j + (M-1)·b_leader."""
    found: list[tuple[int, int, Group]] = [(env, policy, "own") for env, policy in enumerate(problem.policy_id)]
    if problem.algo in ("sapg", "cpo") and problem.policies > 1:
        for env in range(problem.num_envs):
            collector = problem.policy_id[env]
            if collector == problem.follower or (problem.borrows_all and collector != 0):
                found.append((env, 0, "leader_borrows"))
    if problem.algo == "cpo":
        for policy in range(1, problem.policies):
            for env in range(problem.num_envs):
                if problem.policy_id[env] == 0:
                    found.append((env, policy, "follower_pull"))
    return found


def plan(problem: Problem) -> list[Evaluation]:
    """All evaluations of the iteration, each once."""
    return [Evaluation(t, *pair) for pair in pairs(problem) for t in range(problem.horizon)]


def sequences(problem: Problem) -> list[Sequence]:
    """The same plan in sequences of `problem.sequence` rows."""
    return [Sequence(chunk, *pair) for pair in pairs(problem) for chunk in range(problem.horizon // problem.sequence)]


def rows(problem: Problem, minibatch: list[Item]) -> list[Evaluation]:
    """The evaluations a minibatch consists of."""
    pieces = (item.evaluations(problem.sequence) if isinstance(item, Sequence) else [item] for item in minibatch)
    found = [row for piece in pieces for row in piece]
    if len(set(found)) != len(found):
        raise ValueError("a minibatch holds the same evaluation twice")
    return found
