"""`echelon doctor`: what is installed, what it runs on, and what is missing for what."""

import platform
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec

from echelon.commands.command import Command
from echelon.errors import install


@dataclass(frozen=True)
class Part:
    """A feature that needs optional packages."""

    name: str
    modules: dict[str, str]
    """Names of distributions by the modules they bring."""
    extra: str


PARTS = (
    Part("built-in tasks on a CPU", {"mujoco.batch": "mujoco"}, "mujoco"),
    Part("built-in tasks on CUDA", {"mujoco_warp": "mujoco-warp", "warp": "warp-lang"}, "gpu"),
    Part("films (mp4, gif)", {"imageio_ffmpeg": "imageio-ffmpeg", "PIL": "pillow"}, "video"),
    Part("export to ONNX", {"onnx": "onnx", "onnxscript": "onnxscript"}, "export"),
    Part("Weights & Biases", {"wandb": "wandb"}, "wandb"),
    Part("compare --on ray", {"ray": "ray"}, "ray"),
    Part("gymnasium:NAME", {"gymnasium": "gymnasium"}, "gymnasium"),
    Part("mjlab:NAME", {"mjlab": "mjlab"}, "mjlab"),
    Part("playground:NAME", {"mujoco_playground": "playground"}, "playground"),
    Part("maniskill:NAME", {"mani_skill": "mani_skill"}, "maniskill"),
)


@dataclass(frozen=True)
class Doctor(Command):
    """Show what is installed, what it runs on, and how to install what is missing."""

    def run(self) -> int:
        from echelon import __version__
        from echelon.console.tables import text_table

        print(f"echelon {__version__}, Python {platform.python_version()} on {platform.platform()}")
        print(machine())
        print(text_table(map(status, PARTS)), end="")
        return 0


def machine() -> str:
    """torch, and where it computes."""
    import torch

    if not torch.cuda.is_available():
        built = "no CUDA GPU is seen" if torch.version.cuda else "built without CUDA"
        return f"torch {torch.__version__}: on the CPU, {torch.get_num_threads()} threads; {built}"
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    names = ", ".join(f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus)
    return f"torch {torch.__version__}, CUDA {torch.version.cuda}: {names}"


def status(part: Part) -> tuple[str, str, str]:
    """Whether a part works, its name, and the versions it has or the command that installs it."""
    missing = [name for module, name in part.modules.items() if not is_there(module)]
    if missing:
        return "no", part.name, install(part.extra)
    return "yes", part.name, ", ".join(f"{name} {version(name)}" for name in part.modules.values())


def is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"
