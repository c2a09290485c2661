"""Absurd values for every flag, of training and of commands that read a run: one sentence, or what was asked for. No
traceback, no hanging, no killed process."""

import itertools
import os
import random
import resource
from pathlib import Path

from chaos.attack import Child, Outcome, run_config

from echelon import cli
from echelon.commands.evaluate import Evaluate
from echelon.commands.export import Export
from echelon.commands.record import Record
from echelon.commands.report import Report
from echelon.config.checks import settings_of, spelling
from echelon.console.flags import flags_of
from echelon.tasks import preset
from echelon.training.loop import train

VALUES = ("-1", "0", "1", "3", "7", "1e-320", "-0.0", "0.5", "1e308", "nan", "inf", "-inf", "2147483648", "9" * 23)
VALUES += ("9" * 400, "", " ", "x", "None", "True", "../..", "\x00", "é\udcff", "1 2 3", "--out", "=", "1e9")
VALUES += ("100000000",)
MEMORY = 12 * 2**30
"""Address space of a child: more than a small run needs, less than many an absurd one wants."""
SMALL = ["--num-envs", "24", "--update.horizon", "8", "--model.hidden", "8", "--device", "cpu", "--policies", "2"]
SMALL += ["--iterations", "1", "--threads", "1"]


READERS = (Evaluate, Export, Record, Report)
"""Without `play`, which waits for a browser; its server is attacked elsewhere."""


def fuzz(place: Path, tries: int, rng: random.Random) -> Outcome:
    """Flags of `echelon train`."""
    names = [name for name in settings_of(preset("CartpoleSwingup")) if name != "out"]
    orders = [["train", "CartpoleSwingup", *SMALL, "--out", "OUT", spelling(name)] for name in names]
    return _try(orders, place, tries, rng)


def fuzz_readers(place: Path, tries: int, rng: random.Random) -> Outcome:
    """Flags of commands that open a run."""
    run = place / "run"
    Child(lambda: train(run_config(run, "cpo", iterations=2))).wait()
    orders = []
    for flags in READERS:
        command = flags.__name__.lower()
        few = ["--num-envs", "2"] if command == "evaluate" else []
        orders += [[command, str(run), *few, word] for word in flags_of(flags)]
    return _try([order for order in orders if order[-1] != "--open"], place, tries, rng)


def _try(orders: list[list[str]], place: Path, tries: int, rng: random.Random) -> Outcome:
    """Run `tries` of the commands with one value each; `OUT` is a folder of its own."""
    outcome = Outcome()
    pairs = list(itertools.product(orders, VALUES))
    rng.shuffle(pairs)
    (deep := place / "some" / "where").mkdir(parents=True)  # so that ../.. is still a folder of ours
    for number, (order, value) in enumerate(pairs[:tries]):
        words = [str(place / str(number)) if word == "OUT" else word for word in [*order, value]]

        def act(words: list[str] = words) -> None:
            os.chdir(deep)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            raise SystemExit(cli.main(words))

        ended = Child(act).wait(60)
        outcome.tries += 1
        training = ended.code is None and "steps/s" in ended.said  # for as long as it was asked to
        what = f"{order[0]} {order[-1]} {value[:30]!r}"
        outcome.check(ended.in_words or training, f"{what}: {ended.code} {ended.said[-400:]}")
    return outcome
