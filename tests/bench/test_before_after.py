"""Two source trees in turn: what is reported of them."""

import pytest
from before_after import compare, find, table

A = [{"iteration": [10.0, 12.0, 11.0], "collect": [4.0, 4.0, 4.0]}, {"iteration": [20.0, 22.0, 24.0], "collect": [8.0]}]
B = [
    {"iteration": [11.0, 13.2, 12.1], "collect": [2.0, 2.0, 2.0]},
    {"iteration": [33.0], "collect": [4.0], "new": [1.0]},
]


def test_ratios_are_of_turns_beside_each_other() -> None:
    # Medians of the turns: A 11 and 22, B 12.1 and 33. The second turn met a busier machine, on both sides.
    before, after, ratios = compare(A, B)
    assert (before, after) == (16.5, pytest.approx(22.55))
    assert ratios == [pytest.approx(1.1), pytest.approx(1.5)]
    line = table([{"case": "Task:ppo", "a": A, "b": B}]).splitlines()[-1]
    assert line == "| Task:ppo | 16.50 | 22.55 | 1.300 | 1.100 to 1.500 | collect 0.500 |"


def test_the_first_place_that_a_tree_has_is_taken() -> None:
    import statistics

    assert find("no_such_module:median", "statistics:no_such_name", "statistics:median") is statistics.median
    with pytest.raises(ImportError, match="tell `build`"):
        find("no_such_module:median")
