"""`echelon import-config`: the settings of another library's PPO, as flags of `echelon train`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from echelon.commands.command import Command, place
from echelon.errors import UserError, first_line


@dataclass(frozen=True)
class ImportConfig(Command):
    """Translate the settings of another library's PPO, and print the flags to give echelon train, what has no
    counterpart, and what was not understood."""

    file: Annotated[tyro.conf.Positional[str], place("FILE")]
    """YAML or JSON of rsl_rl, rl_games, skrl or the zoo of Stable-Baselines3."""

    def run(self) -> int:
        from echelon.config import TrainConfig, with_settings
        from echelon.config.checks import validate
        from echelon.config.peers import translate
        from echelon.config.spelling import setting

        path = Path(self.file)
        found = translate(read(path))
        validate(with_settings(TrainConfig(), found.settings))
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
