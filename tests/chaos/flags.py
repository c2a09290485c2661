"""Absurd values for every flag: one sentence, or a run that trains. No traceback, no hanging, no killed process."""

import itertools
import random
import resource
from pathlib import Path

from chaos.attack import Child, Outcome

from echelon import cli
from echelon.config.checks import settings_of
from echelon.config.spelling import spelling
from echelon.presets import preset

VALUES = ("-1", "0", "1", "3", "7", "1e-320", "-0.0", "0.5", "1e308", "nan", "inf", "-inf", "2147483648", "9" * 23)
VALUES += (
    "9" * 400,
    "",
    " ",
    "x",
    "None",
    "True",
    "../..",
    "\x00",
    "é\udcff",
    "1 2 3",
    "--out",
    "=",
    "1e9",
    "100000000",
)
MEMORY = 12 * 2**30
"""Address space of a child: more than a small run needs, less than many an absurd one wants."""
SMALL = ["--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--policies", "2"]
SMALL += ["--iterations", "1", "--threads", "1"]


def fuzz(place: Path, tries: int, rng: random.Random) -> Outcome:
    outcome = Outcome()
    names = [name for name in settings_of(preset("CartpoleSwingup")) if name != "out"]
    pairs = list(itertools.product(names, VALUES))
    rng.shuffle(pairs)
    for number, (name, value) in enumerate(pairs[:tries]):
        words = ["train", "CartpoleSwingup", *SMALL, "--out", str(place / str(number)), spelling(name), value]

        def act(words: list[str] = words) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            raise SystemExit(cli.main(words))

        ended = Child(act).wait(60)
        outcome.tries += 1
        training = ended.code is None and "steps/s" in ended.said  # for as long as it was asked to
        outcome.check(ended.in_words or training, f"{spelling(name)} {value[:30]!r}: {ended.code} {ended.said[-400:]}")
    return outcome
