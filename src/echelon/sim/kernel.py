"""Kernels of one warp of 32 threads per world, from the texts in `kernels/`.

A text is the body of a function of `world`, `lane` and three structs of arrays: `m` for the Model, `d` for the Data and
`t` for tables made for it. A struct holds the fields that the text names, `d.efc_J` being the Data's `efc.J`. Sizes of
the model are constants in front of the text, so loops unroll and arrays lie in registers. The same text runs on a CPU,
where Warp's CPU blocks take the place of a warp: that is how it is tested.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from operator import is_not
from typing import Any

import mujoco_warp as mjw
import warp as wp

WARP = 32
TESTED = ("4.0.0",)
"""Versions of MuJoCo Warp whose private fields are known to mean what the kernels read."""


class Kernel:
    """A text of `kernels/` for one Model and Data."""

    def __init__(
        self,
        name: str,
        sizes: Mapping[str, object],
        m: Any,
        d: Any,
        tables: Mapping[str, Any] | None = None,
        *,
        blocks: int | None = None,
        registers: int = 0,
        fast_math: bool = False,
    ) -> None:
        """With fewer `blocks` than worlds, each block takes several in turn."""
        self._name, self._sizes, self._fields = name, tuple(sizes.items()), _fields(name)
        self._owners, self._tables = {"m": m, "d": d}, tables or {}
        self._blocks, self._options = min(d.nworld, blocks or d.nworld), (blocks is not None, registers, fast_math)
        self._arrays: list[Any] | None = None

    def launch(self) -> None:
        """Run it for every world."""
        arrays = [self._tables[field] if of == "t" else _field(self._owners[of], field) for of, field in self._fields]
        if self._arrays is None or any(map(is_not, self._arrays, arrays)):  # a field was expanded
            named = list(zip(self._fields, arrays, strict=True))
            own = ((f"OWN_{field}", int(x.shape[0] > 1)) for (of, field), x in named if of == "m")
            kinds = tuple((x.dtype, x.ndim) for x in arrays)
            self._kernel, structs = _build(self._name, (*self._sizes, *own), kinds, *self._options)
            inputs = {of: struct() for of, struct in structs.items()}
            for (of, field), x in named:
                setattr(inputs[of], field, x)
            self._arrays, self._inputs = arrays, list(inputs.values())
        d, blocks = self._owners["d"], self._blocks
        inputs = [d.nworld, blocks, *self._inputs]
        wp.launch_tiled(self._kernel, dim=blocks, inputs=inputs, block_dim=WARP, device=d.qpos.device)


def unknown(m: Any, d: Any, *names: str) -> str | None:
    """Say why texts cannot be trusted with this MuJoCo Warp: its version, or a field that they read and it lacks."""
    if mjw.__version__ not in TESTED:
        return f"MuJoCo Warp {mjw.__version__} is not among the versions that were tested ({', '.join(TESTED)})"
    for of, field in (field for name in names for field in _fields(name)):
        try:
            _field({"m": m, "d": d, "t": None}[of], field)
        except AttributeError:
            if of != "t":
                return f"MuJoCo Warp's {'Model' if of == 'm' else 'Data'} has no field {field}"
    if not d.qpos.device.is_cuda and not wp.config.enable_cpu_blocks:
        return "kernels of 32 threads are for CUDA"
    return None


def _field(owner: Any, name: str) -> Any:
    """A field of Model or Data, `opt_x`, `efc_x` and `contact_x` from the structs in them."""
    inner, _, rest = name.partition("_")
    return getattr(getattr(owner, inner), rest) if inner in ("opt", "efc", "contact") else getattr(owner, name)


@cache
def _text(file: str) -> str:
    return (files("echelon.sim") / "kernels" / file).read_text()


@cache
def _fields(name: str) -> list[tuple[str, str]]:
    """Fields that a text names: `m.x` or `MODEL(x)` of Model, `d.x` of Data, `t.x` of tables."""
    code = re.sub(r"\bMODEL\((\w+)\)", r"m.\1", re.sub(r"//.*", "", _text(f"{name}.cu")))
    return sorted(set(re.findall(r"\b([mdt])\.([a-zA-Z]\w*)", code)))


@cache
def _build(
    name: str,
    sizes: tuple[tuple[str, Any], ...],
    kinds: tuple[Any, ...],
    several: bool,
    registers: int,
    fast_math: bool,
) -> tuple[Any, dict[str, Any]]:
    """Make the kernel of a text and the structs of its arguments by name; Warp compiles it at its first launch."""
    text = "".join(f"#define {size} {value}\n" for size, value in sizes) + _text("lanes.h") + _text(f"{name}.cu")
    types: dict[str, dict[str, Any]] = {"d": {}, "m": {}, "t": {}}
    for (of, field), (dtype, ndim) in zip(_fields(name), kinds, strict=True):
        types[of][field] = wp.array(dtype=dtype, ndim=ndim)
    structs: dict[str, Any] = {
        of: wp.struct(type(f"{name}_{of}", (), {"__annotations__": fields})) for of, fields in types.items()
    }
    Data, Model, Tables = structs.values()

    @wp.func_native(text)
    def run(world: int, lane: int, d: Data, m: Model, t: Tables): ...  # pyright: ignore[reportInvalidTypeForm]

    def one(worlds: int, blocks: int, d: Data, m: Model, t: Tables):  # pyright: ignore[reportInvalidTypeForm]
        world, lane = wp.tid()
        run(world, lane, d, m, t)

    def in_turn(worlds: int, blocks: int, d: Data, m: Model, t: Tables):  # pyright: ignore[reportInvalidTypeForm]
        block, lane = wp.tid()
        for world in range(block, worlds, blocks):
            run(world, lane, d, m, t)

    kernel = in_turn if several else one  # a loop keeps addresses in registers, so it is only there where it is needed
    kernel.__name__ = kernel.__qualname__ = f"echelon_{name}"  # as profilers show it
    options: dict[str, Any] = {"cuda_max_registers": registers} if registers else {}
    options["module_options"] = {"fast_math": fast_math}
    return wp.kernel(kernel, module="unique", enable_backward=False, grid_stride=False, **options), structs
