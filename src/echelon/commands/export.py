"""`echelon export`: a policy of a run as one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from echelon.errors import UserError


@dataclass(frozen=True)
class ExportFlags:
    """Flags of `echelon export`."""

    policy: str = "leader"
    """leader, or a policy's number."""
    format: Literal["auto", "onnx", "numpy"] = "auto"
    """What to write; auto: as --out ends (.onnx, .npz), else onnx."""
    out: str | None = None
    """Where to write it; into the run folder's export/ unless given."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to take it from."""


def run(arguments: list[str]) -> int:
    """Write a policy as one file."""
    from echelon.console.flags import parse_after_run

    run, given = parse_after_run(ExportFlags(), arguments, "export", "Write a policy of a run as one file.")

    from echelon.runs.folder import RunFolder

    folder = RunFolder.open(run)

    from echelon.export.files import ENDINGS, Format, export
    from echelon.export.policy import SavedPolicy
    from echelon.runs.durable import writing

    ending = Path(given.out).suffix if given.out else ".onnx"
    by_ending: dict[str, Format] = {known: name for name, known in ENDINGS.items()}
    if given.format == "auto" and ending not in by_ending:
        raise UserError(f"--out must end in .onnx or .npz, or give --format; {given.out} does not")
    format = by_ending[ending] if given.format == "auto" else given.format
    out = Path(given.out) if given.out else folder.path / "export" / f"{given.policy}{ENDINGS[format]}"
    with writing(out, "choose another --out"):
        difference = export(SavedPolicy.load(folder, given.policy, given.checkpoint), format, out)
    print(f"Written to {out}; on 1,000 observations its actions differ from the network's by {difference:.1e} at most")
    return 0
