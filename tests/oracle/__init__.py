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
from oracle.losses import Parts, entropy_coefficient, evaluate, loss, pull_weights
from oracle.network import Output, denormalise, entropy, log_prob, network, normalise
from oracle.plan import Evaluation, Sequence, plan, sequences
from oracle.prepare import Prepared, clip_centres, merge, normalised_advantages, prepare
from oracle.problem import GROUPS, Problem
from oracle.step import Adam, Learned, adam_step, behaviour, clip_gradients, gradients, kappa, learn, next_rate
from oracle.targets import Target, targets

__all__ = [
    "GROUPS",
    "Adam",
    "Evaluation",
    "Learned",
    "Output",
    "Parts",
    "Prepared",
    "Problem",
    "Sequence",
    "Target",
    "adam_step",
    "behaviour",
    "clip_centres",
    "clip_gradients",
    "denormalise",
    "entropy",
    "entropy_coefficient",
    "evaluate",
    "gradients",
    "kappa",
    "learn",
    "log_prob",
    "loss",
    "merge",
    "network",
    "next_rate",
    "normalise",
    "normalised_advantages",
    "perturbed",
    "plan",
    "prepare",
    "pull_weights",
    "random_problem",
    "sequences",
    "targets",
]
