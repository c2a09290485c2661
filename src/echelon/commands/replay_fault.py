"""`echelon replay-fault`: the first simulations of a run that went wrong, in 3D."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ReplayFaultFlags:
    """Flags of `echelon replay-fault`."""

    out: str | None = None
    """The page to write; diagnostics/faults.html in the run folder unless given."""


def run(arguments: list[str]) -> int:
    """Play the first simulations of a run that went wrong again, and write a page that shows them."""
    from echelon.console.flags import parse_after_run

    words = "Show the first simulations of a run that went wrong, in 3D."
    run, given = parse_after_run(ReplayFaultFlags(), arguments, "replay-fault", words)

    from echelon.runs.durable import writing
    from echelon.runs.folder import RunFolder

    folder = RunFolder.open(run)
    out = Path(given.out) if given.out else folder.path / "diagnostics" / "faults.html"

    from echelon.viewing.faults import replay_faults
    from echelon.viewing.page import write_page

    replay, sentences = replay_faults(folder)
    for sentence in sentences:
        print(sentence)
    with writing(out, "choose another --out"):
        write_page(replay, out)
    print(f"Written to {out}")
    return 0
