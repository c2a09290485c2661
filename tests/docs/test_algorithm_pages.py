"""The pages on algorithms name settings, variants and functions that exist."""

import re
from pathlib import Path

import pytest

from echelon.algorithms import Preset
from echelon.algorithms.variants import VARIANTS
from echelon.config.checks import settings_of

ROOT = Path(__file__).parents[2]
PAGES = ("sapg.md", "cpo.md", "pbt.md", "paper-vs-code.md")
GROUPS = "model|update|ensemble|pull|adversary|pbt|diagnostics"


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_settings_exist(name: str) -> None:
    named = set(re.findall(rf"`((?:{GROUPS})\.\w+)", page(name)))
    assert named
    assert named <= set(settings_of(Preset()))


@pytest.mark.parametrize("name", ["cpo.md", "paper-vs-code.md"])
def test_variants_exist(name: str) -> None:
    prefixes = "|".join({variant.split("_")[0] for variant in VARIANTS})
    named = set(re.findall(rf"`((?:{prefixes})_\w+)`", page(name)))
    assert named
    assert named <= set(VARIANTS)


@pytest.mark.parametrize("name", ["ppo.md", "sapg.md", "cpo.md", "pbt.md", "your-algorithm.md"])
def test_functions_exist(name: str) -> None:
    pointers = re.findall(r"((?:`\w+`(?:, )?)+) in `([\w/]+\.py)`", page(name))
    pointers += [(f"`{name}`", path) for path, name in re.findall(r"`([\w/]+\.py): (\w+)", page(name))]
    assert pointers
    for functions, path in pointers:
        source = (ROOT / "src" / "echelon" / path).read_text()
        for function in re.findall(r"`(\w+)`", functions):
            assert re.search(rf"^(def|class) {function}\b", source, re.MULTILINE), f"{function} in {path}"
