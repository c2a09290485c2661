"""`echelon import-config`: the settings of another library's PPO, as flags of `echelon train`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from echelon.commands.command import Command, place
from echelon.config import TrainConfig
from echelon.config.checks import check, setting, with_settings
from echelon.config.peers import translate
from echelon.errors import UserError, first_line


@dataclass(frozen=True)
class ImportConfig(Command):
    """Translate the settings of another library's PPO, and print the flags to give echelon train, and what has no
    counterpart here."""

    file: Annotated[tyro.conf.Positional[str], place("FILE")]
    """YAML or JSON of rsl_rl, rl_games, skrl or the zoo of Stable-Baselines3."""

    def run(self) -> None:
        path = Path(self.file)
        library, settings, others = translate(read(path))
        check(with_settings(TrainConfig(), settings))
        print(f"# {path.name}, settings of {library}")
        print("echelon train TASK " + " ".join(setting(name, value) for name, value in settings.items()))
        if others:
            print(f"# without a counterpart (docs/coming-from.md): {', '.join(others)}")


def read(path: Path) -> dict[str, Any]:
    """Read a file's settings; JSON is YAML, too."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        """Isaac Lab writes Python objects into its files; only their plain values matter. 1e5 and 3e-4, which JSON has
        and YAML 1.1 takes for texts, are numbers, whole ones where nothing is after the point, as they are in flags."""

    def number(loader: PlainLoader, node: Any) -> int | float:
        value = loader.construct_yaml_float(node)
        return int(value) if "e" in node.value.lower() and value.is_integer() else value

    PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    PlainLoader.add_constructor("tag:yaml.org,2002:float", number)
    exponents = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
    PlainLoader.add_implicit_resolver("tag:yaml.org,2002:float", exponents, [*"-+.0123456789"])
    try:
        data = yaml.load(path.read_text(), PlainLoader)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError) as error:  # not text, or an impossible date
        raise UserError(f"{path} is neither YAML nor JSON: {first_line(error)}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path} holds no settings; a line of them is env_steps: 1000000")
    return data
