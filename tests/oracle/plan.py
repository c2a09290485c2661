"""Which rows an iteration trains on, under which policy, and why (sheet §3.2, DESIGN §2)."""

from dataclasses import dataclass

from oracle.problem import Group, Problem


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
    found: list[tuple[int, int, Group]] = []
    for env in range(problem.num_envs):
        found.append((env, problem.policy_id[env], "own"))
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
    found = []
    for env, policy, group in pairs(problem):
        for t in range(problem.horizon):
            found.append(Evaluation(t, env, policy, group))
    return found


def sequences(problem: Problem) -> list[Sequence]:
    """The same plan in sequences of `problem.sequence` rows."""
    found = []
    for env, policy, group in pairs(problem):
        for chunk in range(problem.horizon // problem.sequence):
            found.append(Sequence(chunk, env, policy, group))
    return found


def rows(problem: Problem, minibatch: list[Item]) -> list[Evaluation]:
    """The evaluations a minibatch consists of."""
    found: list[Evaluation] = []
    for item in minibatch:
        if isinstance(item, Sequence):
            found.extend(item.evaluations(problem.sequence))
        else:
            found.append(item)
    if len(set(found)) != len(found):
        raise ValueError("a minibatch holds the same evaluation twice")
    return found
