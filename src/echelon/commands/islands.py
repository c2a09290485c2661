"""`echelon islands`: what runs that exchange networks have found."""

from pathlib import Path

from echelon.errors import UserError, first_line

USAGE = """\
usage: echelon islands PLACE

Show the islands that meet in PLACE (a folder, or an address such as s3://bucket/place): the newest and the best score
of each, who took over whose network, and where the best one comes from. Nothing is changed.
A run becomes an island by echelon train TASK --islands.place PLACE
"""


def run(arguments: list[str]) -> int:
    """Print the chronicle of a store."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if len(arguments) != 1:
        raise UserError("echelon islands takes one place, a folder or an address; see echelon islands --help")
    (place,) = arguments
    if "://" not in place and not Path(place).is_dir():
        raise UserError(f"there is no folder {place}")

    from echelon.islands.chronicle import read_chronicle, written
    from echelon.islands.store import open_store

    store = open_store(place)
    try:
        chronicle = read_chronicle(store)
    except Exception as error:  # of any store's library
        raise UserError(f"{place} cannot be read: {first_line(error)}") from None
    if not chronicle.events:
        raise UserError(f"there are no islands in {place}")
    print(written(chronicle))
    return 0
