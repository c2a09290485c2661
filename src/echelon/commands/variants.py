"""`echelon variants`: named changes of settings."""

import shlex

from echelon.errors import UserError

USAGE = """\
usage: echelon variants

List the variants that echelon train TASK --variant and echelon compare --variants take. Several follow one another:
--variant no_adversary entropy_off, or in a comparison --variants cpo no_adversary+entropy_off
"""


def run(arguments: list[str]) -> int:
    """List the variants."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments:
        raise UserError(f"echelon variants takes no arguments, but got {shlex.join(arguments)}")

    from echelon.algorithms.variants import VARIANTS
    from echelon.console.tables import text_table

    print(text_table((name, variant.description) for name, variant in VARIANTS.items()), end="")
    return 0
