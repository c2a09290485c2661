"""The scripts in `benchmarks/` are modules here. None may have the name of a folder of tests, which it would hide."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
