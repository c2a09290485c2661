"""Deterministic scores of runs as a Markdown table: python3 table.py FILE.jsonl ..."""

import json
import sys
from pathlib import Path

print("| run | M steps | training, s | updates | return, deterministic | successes | return in training | explained |")
print("|---|---|---|---|---|---|---|---|")
for path in map(Path, sys.argv[1:]):
    last: dict = {}
    for line in map(json.loads, path.read_text().splitlines()):
        if "evaluation" not in line:
            last = line
            continue
        cells = [
            f"{line['steps'] / 1e6:.1f}",
            f"{line['seconds']:.0f}",
            last.get("updates", ""),
            f"{line['return']:,.0f} ± {line['return_std'] / line['episodes'] ** 0.5:,.0f}",
            f"{line.get('successes', float('nan')):.2f}",
            f"{last.get('return', float('nan')):,.0f}",
            f"{last.get('explained', float('nan')):.2f}",
        ]
        print("|", path.stem, "|", " | ".join(map(str, cells)), "|")
