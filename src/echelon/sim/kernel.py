"""Kernels of one warp of 32 threads per world, from the texts in `kernels/`.

A text is the body of a function of `world`, `lane` and three structs of arrays: `m` of the Model, `d` of the Data and `t` of
tables made for it. Sizes of the model are constants in front of the text, so loops unroll and arrays lie in registers. The
same text runs on a CPU, where Warp's CPU blocks take the place of a warp: that is how it is tested.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import mujoco_warp as mjw
import warp as wp

WARP = 32
TESTED = ("4.0.0",)
"""Versions of MuJoCo Warp whose private fields are known to mean what our kernels read."""


def unknown(*owned: tuple[Any, Iterable[str]]) -> str | None:
    """Say why this MuJoCo Warp cannot be trusted with our kernels: its version, or fields that a Model or Data lacks."""
    if mjw.__version__ not in TESTED:
        return f"MuJoCo Warp {mjw.__version__} is not among the versions that were tested ({', '.join(TESTED)})"
    for owner, names in owned:
        for name in names:
            try:
                fields(owner, [name])
            except AttributeError:
                return f"MuJoCo Warp's {type(owner).__name__} has no field {name}"
    if not wp.get_device().is_cuda and not wp.config.enable_cpu_blocks:
        return "kernels of 32 threads are for CUDA"
    return None


def fields(owner: Any, names: Iterable[str]) -> dict[str, Any]:
    """Arrays of a Model or Data by name; `efc.J` is known to the text as `efc_J`."""
    found = {}
    for name in names:
        value = owner
        for part in name.split("."):
            value = getattr(value, part)
        found[name.replace(".", "_")] = value
    return found


def launch(
    text: str,
    sizes: Mapping[str, object],
    worlds: int,
    m: Mapping[str, Any],
    d: Mapping[str, Any],
    t: Mapping[str, Any],
    *,
    blocks: int | None = None,
    registers: int = 0,
    fast_math: bool = False,
) -> None:
    """Run a text for every world; with fewer `blocks` than worlds, each takes several in turn."""
    groups = (m, d, t)
    kinds = tuple(tuple((name, x.dtype, x.ndim) for name, x in group.items()) for group in groups)
    kernel, structs = _build(text, tuple(sizes.items()), kinds, registers, fast_math)
    arguments = []
    for struct, group in zip(structs, groups, strict=True):
        filled = struct()
        for name, x in group.items():
            setattr(filled, name, x)
        arguments.append(filled)
    blocks = min(worlds, blocks or worlds)
    wp.launch_tiled(kernel, dim=blocks, inputs=[worlds, blocks, *arguments], block_dim=WARP, device=next(iter(d.values())).device)


@cache
def _build(
    text: str, sizes: tuple[tuple[str, Any], ...], kinds: tuple[Any, ...], registers: int, fast_math: bool
) -> tuple[Any, tuple[Any, ...]]:
    """Make the kernel of a text and the structs of its arguments; Warp compiles it when it is first launched."""
    folder = files("echelon.sim") / "kernels"
    constants = "".join(f"#define {name} {value}\n" for name, value in sizes)
    body = constants + (folder / "lanes.h").read_text() + (folder / f"{text}.cu").read_text()
    body += "".join(f"#undef {name}\n" for name, _ in sizes)
    Model, Data, Tables = (
        wp.struct(type(name, (), {"__annotations__": {field: wp.array(dtype=dtype, ndim=ndim) for field, dtype, ndim in group}}))
        for name, group in zip(("Model", "Data", "Tables"), kinds, strict=True)
    )

    @wp.func_native(body)
    def run(world: int, lane: int, m: Model, d: Data, t: Tables): ...  # pyright: ignore[reportInvalidTypeForm]

    options: dict[str, Any] = {"module_options": {"fast_math": fast_math}} | ({"cuda_max_registers": registers} if registers else {})

    def kernel(worlds: int, blocks: int, m: Model, d: Data, t: Tables):  # pyright: ignore[reportInvalidTypeForm]
        block, lane = wp.tid()
        for world in range(block, worlds, blocks):
            run(world, lane, m, d, t)

    kernel.__name__ = kernel.__qualname__ = f"echelon_{text}"
    return wp.kernel(kernel, module="unique", enable_backward=False, grid_stride=False, **options), (Model, Data, Tables)
