"""`echelon import-config`: the settings of another library's PPO, as flags of `echelon train`."""

import json
from pathlib import Path
from typing import Any

from echelon.errors import UserError, first_line

USAGE = """\
usage: echelon import-config FILE

Translate the settings of another library's PPO, a YAML or JSON file of rsl_rl, rl_games, skrl or the zoo of
Stable-Baselines3, and print the flags to give echelon train, what has no counterpart, and what was not understood.
"""


def run(arguments: list[str]) -> int:
    """Read, translate, print."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    if len(arguments) > 1:
        raise UserError(f"import-config takes one file, not {len(arguments)}")

    from echelon.config import TrainConfig, from_dict
    from echelon.config.checks import validate
    from echelon.config.peers import translate
    from echelon.config.spelling import setting

    path = Path(arguments[0])
    found = translate(read(path))
    groups: dict[str, Any] = {}
    for name, value in found.settings.items():
        group, _, last = name.rpartition(".")
        (groups.setdefault(group, {}) if group else groups)[last] = value
    validate(from_dict(TrainConfig(), groups))
    print(f"# {path.name}, settings of {found.library}")
    print("echelon train TASK " + " ".join(setting(name, value) for name, value in found.settings.items()))
    for name, reason in found.needless.items():
        print(f"# {name}: {reason}")
    if found.unknown:
        print(f"# not translated: {', '.join(found.unknown)}")
    return 0


def read(path: Path) -> dict[str, Any]:
    """Read a file's settings."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Isaac Lab writes Python objects into its files; only their plain values matter."""

    PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    try:
        text = path.read_text()
        data = json.loads(text) if path.suffix == ".json" else yaml.load(text, PlainLoader)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # not text, or not JSON, or an impossible date
        raise UserError(f"{path} is neither YAML nor JSON: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no settings")
    return data
