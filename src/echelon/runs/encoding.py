"""Nested state as JSON plus a flat dict of tensors, and back without loss.

JSON has no tensors, tuples, integer keys (Adam's state has them) or infinities. Each becomes an object with one key
that starts with `$`: `{"$tensor": "model/phi"}`, `{"$tuple": [...]}`, `{"$map": [[key, value], ...]}`,
`{"$float": "nan"}`. A mapping whose own keys start with `$` is written as `$map` too.
"""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def encode(value: object, tensors: "dict[str, Tensor]", where: str = "") -> Any:
    """`value` as JSON data. Tensors are copied to the CPU and put into `tensors`, named after their path."""
    import torch

    if isinstance(value, torch.Tensor):
        # safetensors wants dense tensors that share no memory.
        tensors[where] = value.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": where}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, list):
        return [encode(item, tensors, _join(where, index)) for index, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, tensors, _join(where, index)) for index, item in enumerate(value)]}
    if isinstance(value, Mapping):
        items = [(key, encode(item, tensors, _join(where, key))) for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key, _ in items):
            return dict(items)
        return {"$map": [[encode(key, tensors, where), item] for key, item in items]}
    raise TypeError(
        f"a checkpoint holds tensors, numbers, strings, None, lists, tuples and mappings; "
        f"{where or 'the state'} is {type(value).__name__}"
    )


def decode(data: Any, tensors: "Mapping[str, Tensor]") -> Any:
    """The inverse of `encode`."""
    if isinstance(data, list):
        return [decode(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    match data:
        case {"$tensor": name}:
            return tensors[name]
        case {"$tuple": items}:
            return tuple(decode(item, tensors) for item in items)
        case {"$map": pairs}:
            return {decode(key, tensors): decode(item, tensors) for key, item in pairs}
        case {"$float": text}:
            return float(text)
    return {key: decode(item, tensors) for key, item in data.items()}


def tensors_of(value: object, where: str = "") -> "Iterator[tuple[str, Tensor]]":
    """All tensors in nested state, by their paths."""
    import torch

    if isinstance(value, torch.Tensor):
        yield where, value
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, item in items:
        yield from tensors_of(item, _join(where, key))


def _join(where: str, key: object) -> str:
    """The path of an item in the state, joined by `/`; a `/` inside a key is doubled so that no two paths collide."""
    part = str(key).replace("/", "//")
    return f"{where}/{part}" if where else part
