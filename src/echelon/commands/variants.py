"""`echelon variants`: named changes of settings."""

from dataclasses import dataclass

from echelon.commands.command import Command


@dataclass(frozen=True)
class Variants(Command):
    """List the variants that echelon train TASK --variant and echelon compare --variants take. Several follow one
    another: --variant no_adversary entropy_off, or in a comparison --variants cpo no_adversary+entropy_off"""

    def run(self) -> int:
        from echelon.algorithms.variants import VARIANTS
        from echelon.console.tables import text_table

        print(text_table((name, variant.description) for name, variant in VARIANTS.items()), end="")
        return 0
