"""Draw `docs/images/AllegroKukaRegrasping.gif`, the film in the README: a third of the frames of

echelon record --policy AllegroKukaRegrasping --seed 1008 --format gif
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageSequence

from echelon import cli

EVERY = 3


def main() -> None:
    name = "AllegroKukaRegrasping"
    with tempfile.TemporaryDirectory() as place:
        whole = str(Path(place, "whole.gif"))
        if code := cli.main(["record", "--policy", name, "--seed", "1008", "--format", "gif", "--out", whole]):
            sys.exit(code)
        with Image.open(whole) as film:
            duration = EVERY * film.info["duration"]
            frames = (frame.copy() for frame in ImageSequence.Iterator(film))  # the iterator's is one and the same
            first, *rest = list(frames)[::EVERY]
    out = Path(__file__).parent / "images" / f"{name}.gif"
    first.save(out, save_all=True, append_images=rest, duration=duration, loop=0)


if __name__ == "__main__":
    main()
