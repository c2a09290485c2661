"""`echelon doctor`: what is installed, what it runs on, and what is missing for what."""

import platform
from dataclasses import dataclass
from importlib import metadata

from echelon import __version__
from echelon.commands.command import Command
from echelon.console.wording import text_table
from echelon.errors import install, is_installed

PARTS = (
    ("built-in tasks on a CPU", {"mujoco.batch": "mujoco"}, "mujoco"),
    ("built-in tasks on CUDA", {"mujoco_warp": "mujoco-warp", "warp": "warp-lang"}, "gpu"),
    ("films (mp4, gif)", {"imageio_ffmpeg": "imageio-ffmpeg", "PIL": "pillow"}, "video"),
    ("export to ONNX", {"onnx": "onnx", "onnxscript": "onnxscript"}, "export"),
    ("Weights & Biases", {"wandb": "wandb"}, "wandb"),
    ("compare --on ray", {"ray": "ray"}, "ray"),
    ("sweep", {"optuna": "optuna"}, "sweep"),
    ("gymnasium:NAME", {"gymnasium": "gymnasium"}, "gymnasium"),
    ("mjlab:NAME", {"mjlab": "mjlab"}, "mjlab"),
    ("playground:NAME", {"mujoco_playground": "playground"}, "playground"),
    ("maniskill:NAME", {"mani_skill": "mani_skill"}, "maniskill"),
)
"""Features that need optional packages: distributions by the modules they bring, and the extra that installs them."""


@dataclass(frozen=True)
class Doctor(Command):
    """Show what is installed, what it runs on, and how to install what is missing."""

    def run(self) -> None:
        print(f"echelon {__version__}, Python {platform.python_version()} on {platform.platform()}")
        print(machine())
        print(text_table(status(*part) for part in PARTS), end="")


def machine() -> str:
    """torch, and where it computes."""
    import torch

    if not torch.cuda.is_available():
        built = "no CUDA GPU is seen" if torch.version.cuda else "built without CUDA"
        return f"torch {torch.__version__}: on the CPU, {torch.get_num_threads()} threads; {built}"
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    names = ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus)
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}: {names}"


def status(name: str, modules: dict[str, str], extra: str) -> tuple[str, str, str]:
    """Whether a feature works, its name, and the versions it has or the command that installs it."""
    if not all(map(is_installed, modules)):
        return "no", name, install(extra)
    try:
        return "yes", name, ", ".join(f"{package} {metadata.version(package)}" for package in modules.values())
    except metadata.PackageNotFoundError:
        return "yes", name, "of unknown version"
