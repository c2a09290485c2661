"""`echelon export`: a policy of a run as one file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from echelon.commands.command import OnRun
from echelon.errors import UserError
from echelon.runs.durable import writing


@dataclass(frozen=True)
class Export(OnRun):
    """Write a policy of a run as one file."""

    policy: str = "leader"
    """leader, or a policy's number."""
    format: Literal["auto", "onnx", "numpy"] = "auto"
    """What to write; auto: as --out ends (.onnx, .npz), else onnx."""
    out: str | None = None
    """Where to write it; if unset, into the run folder's export/."""

    def run(self) -> None:
        folder = self.folder()

        from echelon.export.files import ENDINGS, Format, export
        from echelon.export.policy import SavedPolicy

        by_ending: dict[str, Format] = {known: name for name, known in ENDINGS.items()}
        ending = Path(self.out or "policy.onnx").suffix
        found = by_ending.get(ending) if self.format == "auto" else self.format
        if found is None:
            raise UserError(f"--out must end in .onnx or .npz, or give --format; {self.out} does not")
        if self.out and by_ending.get(ending, found) != found:
            raise UserError(f"--out ends in {ending} but --format is {found}; leave out one of them")
        out = Path(self.out) if self.out else folder.path / "export" / f"{self.policy}{ENDINGS[found]}"
        with writing(out, "choose another --out"):
            difference = export(SavedPolicy.load(folder, self.policy, self.which), found, out)
        agreement = f"its actions differ from the network's by at most {difference:.1e} of their size"
        print(f"Written to {out}; on 1,000 observations {agreement}")
