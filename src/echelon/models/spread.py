"""The rest of the first layer after its matrix product: lay units out for their evaluations, add the policy's part,
activate. Later layers share its activation kernels.
"""

import torch
from torch import Tensor
from torch.nn.functional import elu, relu, silu

from echelon.models.linear import linear, product
from echelon.models.lookup import lookup
from echelon.models.sharing import Sharing

ACTIVATIONS = {"elu": elu, "relu": relu, "silu": silu, "tanh": torch.tanh}
KERNEL_TYPES = (torch.float32, torch.bfloat16)
"""Types the kernels support; they sum in float32."""


def spread(
    projected: Tensor, cond: Tensor | None, policy_id: Tensor, sharing: Sharing | None, *, activate: bool
) -> Tensor:
    """`share(projected) + cond[policy_id]`, through ELU if `activate`: `[L, n, W]` to `[L, B, W]`.

    cond `[M, W]`, a row per policy; policy_id `[B]`. Without a `sharing`, units are evaluations. What is compiled for
    CUDA takes one kernel each way (`spread_kernel.py`), which reads the policies off the sharing instead.
    """
    if sharing is not None and cond is not None and _has_kernel(projected):
        from echelon.models.spread_kernel import spread_in_one  # imports Triton, which not every machine has

        return spread_in_one(projected, cond, sharing, activate)
    x = projected if sharing is None else sharing.share(projected)
    if cond is not None:
        x = x + lookup(cond, policy_id)
    return elu(x) if activate else x


def dense(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "elu") -> Tensor:
    """A layer of G networks, `elu(x·Wᵀ + b)`: `[L, G·n, V]` to `[L, G·n, W]`.

    Compiled for CUDA it takes the kernels of `spread`: the backward one adds up the bias's gradient on its way. Other
    activations have no kernel here.
    """
    if activation != "elu":
        return ACTIVATIONS[activation](linear(x, weight, bias))
    if _has_kernel(x):
        from echelon.models.spread_kernel import activate_in_one

        if torch.is_autocast_enabled(x.device.type):  # autocast does not reach into `product`
            return activate_in_one(linear(x, weight), bias)
        return activate_in_one(product(x, weight), bias)
    return elu(linear(x, weight, bias), inplace=True)


def _has_kernel(x: Tensor) -> bool:
    """True when compiling for CUDA, which needs Triton anyway."""
    return torch.compiler.is_compiling() and x.is_cuda and x.dtype in KERNEL_TYPES
