"""`echelon env check`: whether an environment keeps the contract, before hours are spent on training in it."""

from echelon.errors import UserError

USAGE = """\
usage: echelon env check SOURCE [flags]

Try an environment out: shapes, types and devices, resets, final_obs, logs, repeatability, state. A sentence for each
thing that is wrong (the exit code then is 1), and for each that training will do without.

SOURCE is gymnasium:Walker2d-v5, mjlab:NAME, isaaclab:NAME, maniskill:NAME, playground:NAME, mypackage.module:make, or
the name of a task. Flags are those of echelon train: --env-arg NAME=VALUE, --num-envs 16, --device cpu, --seed 0
"""
NUM_ENVS = 16
"""Environments that are tried unless a number is given: enough for different ends, few enough to be quick."""


def run(arguments: list[str]) -> int:
    """Try, and print what was found."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(USAGE, end="")
        return 0
    if arguments[0] != "check" or len(arguments) < 2 or arguments[1].startswith("-"):
        raise UserError("env takes check and a source, as in echelon env check gymnasium:Walker2d-v5")
    source, flags = arguments[1], arguments[2:]

    from echelon.commands.train import configure, names_flag

    config = configure(source, flags)
    num_envs = config.num_envs if names_flag(flags, "--num-envs") else NUM_ENVS

    from echelon.config.checks import choose_device
    from echelon.envs.inspection import inspect_env
    from echelon.tasks import maker

    findings = inspect_env(maker(config), num_envs, choose_device(config.device), config.seed)
    for mark, sentences in (("", findings.facts), ("note: ", findings.notes), ("WRONG: ", findings.problems)):
        for sentence in sentences:
            print(mark + sentence)
    print(f"{source} keeps the contract" if not findings.problems else f"{source} does not keep the contract")
    return 1 if findings.problems else 0
