"""`echelon export`: a policy of a run as one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from echelon.commands.command import Command, RunPath
from echelon.errors import UserError


@dataclass(frozen=True)
class Export(Command):
    """Write a policy of a run as one file."""

    run_folder: RunPath
    """The run."""
    policy: str = "leader"
    """leader, or a policy's number."""
    format: Literal["auto", "onnx", "numpy"] = "auto"
    """What to write; auto: as --out ends (.onnx, .npz), else onnx."""
    out: str | None = None
    """Where to write it; into the run folder's export/ unless given."""
    checkpoint: Literal["newest", "best"] = "newest"
    """Which checkpoint to take it from."""

    def run(self) -> int:
        from echelon.runs.folder import RunFolder

        folder = RunFolder.open(self.run_folder)

        from echelon.export.files import ENDINGS, Format, export
        from echelon.export.policy import SavedPolicy
        from echelon.runs.durable import writing

        ending = Path(self.out).suffix if self.out else ".onnx"
        by_ending: dict[str, Format] = {known: name for name, known in ENDINGS.items()}
        if self.format == "auto" and ending not in by_ending:
            raise UserError(f"--out must end in .onnx or .npz, or give --format; {self.out} does not")
        format = by_ending[ending] if self.format == "auto" else self.format
        out = Path(self.out) if self.out else folder.path / "export" / f"{self.policy}{ENDINGS[format]}"
        with writing(out, "choose another --out"):
            difference = export(SavedPolicy.load(folder, self.policy, self.checkpoint), format, out)
        found = f"on 1,000 observations its actions differ from the network's by {difference:.1e} at most"
        print(f"Written to {out}; {found}")
        return 0
