"""The colour of each method, the same in the page, in the figures and in every report.

Hues are those of Okabe and Ito, which can be told apart with any common colour blindness; lines differ in their dashes
too. The page's style sheet has the same list, with lighter hues for dark mode.
"""

from collections.abc import Sequence

from echelon.report.methods import Method

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#B4568A", "#B07D00", "#6E5AA8", "#5C6470", "#2A8CA8")
DASHES = tuple((0, dashes) for dashes in ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (4, 1), (1, 1), (6, 1, 1, 1), (3, 3)))


def colour_numbers(methods: Sequence[Method]) -> list[int]:
    """Index into `COLOURS` per method: its algorithm's colour if no method has it yet, otherwise the next free one."""
    taken = [method.colour for method in methods if method.colour is not None]
    free = [index for index in range(len(COLOURS)) if index not in taken]
    numbers: list[int] = []
    for method in methods:
        if method.colour is not None and method.colour not in numbers:
            numbers.append(method.colour)
        else:
            numbers.append(free.pop(0) if free else len(numbers) % len(COLOURS))
    return numbers
