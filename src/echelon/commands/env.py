"""`echelon env check`: whether an environment keeps the contract, before it is trained in."""

from dataclasses import dataclass
from operator import itemgetter
from typing import Annotated

import tyro

from echelon.commands.command import Command, TrainFlags, names_flag, place
from echelon.commands.train import configure
from echelon.config.checks import choose_device
from echelon.errors import UserError
from echelon.tasks import maker

NUM_ENVS = 16
"""Environments that are tried unless a number is given: enough for different ends, few enough to be quick."""


@dataclass(frozen=True)
class Env(Command):
    """Try an environment out: shapes, types and devices, resets, final_obs, logs, repeatability, state. Prints a
    sentence per problem (the exit code is then 1) and per optional part that is missing. All flags are those
    of echelon train: --env-arg NAME=VALUE, --num-envs 16, --device cpu, --seed 0"""

    action: Annotated[tyro.conf.Positional[str], place("check")]
    """What to do."""
    source: Annotated[tyro.conf.Positional[str], place("SOURCE")] = ""
    """A task, gymnasium:, mjlab:, isaaclab:, maniskill: or playground:NAME, or mypackage.module:make."""
    train_flags: TrainFlags = ()

    def check(self) -> None:
        if self.action != "check" or not self.source:
            raise UserError("env takes check and a source, as in echelon env check gymnasium:Walker2d-v5")

    def run(self) -> int:
        config = configure(self.source, self.train_flags, command="env check")
        num_envs = config.num_envs if names_flag(self.train_flags, "--num-envs") else NUM_ENVS

        from echelon.envs.inspection import inspect_env

        found = [*inspect_env(maker(config), num_envs, choose_device(config.device), config.seed)]
        for kind, sentence in sorted(found, key=itemgetter(0)):
            print({"fact": "", "note": "note: ", "problem": "WRONG: "}[kind] + sentence)
        wrong = any(kind == "problem" for kind, _ in found)
        print(f"{self.source} {'does not keep' if wrong else 'keeps'} the contract")
        return 1 if wrong else 0
