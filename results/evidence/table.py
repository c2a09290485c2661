"""What the ledger says so far: its table, and paired comparisons within blocks with the tests of the plan.

PYTHONPATH=benchmarks python results/evidence/table.py
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from command import markdown
from evidence import Plan, Rows, load, over, read_ledger, tries

ByTask = Mapping[str, Sequence[float]]
"""Differences between two arms, one for each seed."""


def mean_of_tasks(differences: ByTask) -> float:
    """Mean over a task's seeds, then over tasks."""
    return float(np.mean([np.mean(values) for values in differences.values()]))


def permutation_p(differences: ByTask) -> float:
    """Two-sided: the share of all sign flips of blocks whose mean is at least as far from zero."""
    weighted = [value / len(values) for values in differences.values() for value in values]
    sums = np.zeros(1)
    for value in weighted:
        sums = np.concatenate([sums + value, sums - value])
    return float(np.mean(np.abs(sums) >= abs(sum(weighted)) - 1e-9 * sum(map(abs, weighted))))


def holm(p: Sequence[float], tests: int) -> list[float]:
    """Adjusted p values in the order given; tests of the plan that have no p value yet count as well."""
    adjusted, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        largest = max(largest, min(1.0, (tests - rank) * p[i]))
        adjusted[i] = largest
    return adjusted


def interval(differences: ByTask, draws: int = 10_000) -> tuple[float, float]:
    """95 % by bootstrap of blocks within tasks."""
    random = np.random.default_rng(0)
    means = [random.choice(values, (draws, len(values))).mean(1) for values in map(np.array, differences.values())]
    low, high = np.quantile(np.mean(means, 0), (0.025, 0.975))
    return float(low), float(high)


def within_arms(scores: Sequence[Sequence[float]]) -> float:
    """Standard deviation of a task's scores around the means of their arms; NaN while no arm has two."""
    free = sum(len(arm) - 1 for arm in scores if arm)
    squares = sum(float(np.var(arm)) * len(arm) for arm in scores if arm)
    return math.sqrt(squares / free) if free else math.nan


Outcome = tuple[float, float]
"""Steps to the threshold, the cap if it was not met; score at the cap."""


def outcomes(plan: Plan, ledger: Rows) -> dict[tuple[str, str, int], Outcome]:
    """By task, arm and seed. A run that failed twice did not meet the threshold and has the worst score of its task."""
    found: dict[tuple[str, str, int], Outcome] = {}
    for task, seed in plan.blocks():
        scores = [
            float(row["evaluated_score"]) for row in ledger if row["task"] == task.name and row["status"] == "done"
        ]
        for arm in plan.order(task, seed):
            lines = tries(ledger, task, seed, arm)
            done = [line for line in lines if line["status"] == "done"]
            if done:
                steps = float(done[0]["threshold_env_steps"] or task.cap)
                found[task.name, arm, seed] = min(steps, task.cap), float(done[0]["evaluated_score"])
            elif over(lines) and scores:
                found[task.name, arm, seed] = task.cap, (min if task.more else max)(scores)
    return found


def differences(plan: Plan, found: dict[tuple[str, str, int], Outcome], pair: tuple[str, str], by: str) -> ByTask:
    """First arm minus second in each block that has both: ln(steps), or scores in standard deviations within arms."""
    result: dict[str, list[float]] = {}
    for task in plan.tasks:
        both = [[found.get((task.name, arm, seed)) for arm in pair] for seed in plan.seeds]
        blocks = [(a, b) for a, b in both if a and b]
        if by == "steps":
            values = [math.log(a[0] / b[0]) for a, b in blocks]
        else:
            arms = [[found[key][1] for key in found if key[:2] == (task.name, arm)] for arm in plan.arms]
            spread = within_arms(arms) * (1 if task.more else -1)
            # With one seed the spread is NaN, which is not above 0 either.
            values = [(a[1] - b[1]) / spread for a, b in blocks if abs(spread) > 0]
        if values:
            result[task.name] = values
    return result


def table(plan: Plan, ledger: Rows) -> str:
    """Every run by task and arm, then the plan's comparisons."""
    found = outcomes(plan, ledger)
    if not found:
        return "nothing yet"
    rows: list[list[str]] = []
    for task in plan.tasks:
        for arm in plan.arms:
            runs = [found[task.name, arm, seed] for seed in plan.seeds if (task.name, arm, seed) in found]
            steps = [f"{s / 1e6:.4g}" if s < task.cap else f"> {task.cap / 1e6:.4g}" for s, _ in runs]
            if runs:
                rows.append([task.name, arm, ", ".join(steps), ", ".join(f"{score:.4g}" for _, score in runs)])
    parts = [markdown(("task", "arm", "M steps to the threshold", "score at the cap"), rows)]
    tests = [(pair, by, differences(plan, found, pair, by)) for pair in plan.comparisons for by in ("steps", "score")]
    tests = [test for test in tests if test[2]]
    if not tests:
        return parts[0] + "\n\nNo two arms that the plan compares have a block in common yet."
    p = [permutation_p(values) for _, _, values in tests]
    compared: list[list[str]] = []
    for ((a, b), by, values), raw, adjusted in zip(tests, p, holm(p, 2 * len(plan.comparisons)), strict=True):
        other = {name: x for name, x in values.items() if name != plan.chosen_on}
        blocks = sum(map(len, values.values()))
        estimates = [estimate(values), f"{raw:.3g}", f"{adjusted:.3g}", estimate(other) if other else ""]
        compared.append([f"{a} − {b}", "ln steps" if by == "steps" else "score, in sd", str(blocks), *estimates])
    headings = ("arms", "by", "blocks", "mean (95 %)", "p", f"p, Holm of {2 * len(plan.comparisons)}")
    parts.append(markdown((*headings, f"mean without {plan.chosen_on}"), compared))
    parts.append("Below 0 in steps is sooner, above 0 in score is better. Scores need a second seed of a task.")
    return "\n\n".join(parts)


def estimate(values: ByTask) -> str:
    low, high = interval(values)
    return f"{mean_of_tasks(values):+.3g} ({low:+.3g} to {high:+.3g})"


if __name__ == "__main__":
    HERE = Path(__file__).parent
    print(table(load(HERE / "plan.py").PLAN, read_ledger(HERE)))
