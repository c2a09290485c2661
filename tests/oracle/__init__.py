"""An oracle of one learning iteration of PPO, SAPG and CPO, in float64 and one row at a time.

Written from the fact sheet `algorithms.md` (cited as "sheet §"), the paper's equations and the decisions of
`DESIGN.md`, and from nothing in `src/echelon`: two readings of the same text that agree to 1e-10 are hard to get wrong
in the same way. Nothing here is fast, and nothing here is batched.

    problem = random_problem(seed=0, policies=3, blocks=(4, 2, 2), horizon=8, sequence=4, lstm=5, algo="cpo")
    prepared = prepare(problem)                      # targets, normalised advantages, value normaliser
    parts = loss(problem, sequences(problem), prepared)
    parts.total.backward()                           # gradients on problem.params
"""

from oracle.generate import perturbed, random_problem
from oracle.losses import behaviour, evaluate, gradients, kappa, learn, loss, next_rate, pull_weights
from oracle.problem import GROUPS, Evaluation, Problem, Sequence, plan, sequences
from oracle.targets import (
    Prepared,
    Target,
    clip_centres,
    denormalise,
    entropy,
    log_prob,
    merge,
    network,
    normalise,
    normalised_advantages,
    prepare,
    targets,
)
