"""Gradients of other forms than float32 arrays: float16, bfloat16, and tensors of PyTorch.

Codecs compute in float32, which represents every float16 and every bfloat16 exactly. The sum is
converted back to the dtype of the gradients: rounded to nearest, ties to even, and infinite beyond
that dtype's largest number (65,504 for float16).
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import GradientError

Gradient = TypeVar("Gradient")
"""A NumPy array or a tensor of PyTorch, of float32, float16 or bfloat16. bfloat16 arrays are those
of the package ml_dtypes."""

_NARROW = ("float16", "bfloat16")
_TENSORS = ("torch.float32", "torch.float16", "torch.bfloat16")


def to_float32(gradient: object, worker: int = 0) -> object:
    """The gradient as a float32 array, if it is of a form above; otherwise itself.

    Raises:
        GradientError: a tensor of another dtype or layout; names the worker and what to pass.
    """
    if _is_tensor(gradient):
        return _array_of(gradient, worker)
    if isinstance(gradient, np.ndarray) and gradient.dtype.name in _NARROW:
        return gradient.astype(np.float32)
    return gradient


def kind_of(gradient: object) -> str:
    """What must be the same on all workers: "float32", "bfloat16", ..., of arrays and tensors."""
    return str(getattr(gradient, "dtype", type(gradient).__name__)).removeprefix("torch.")


def like(total: NDArray[np.float32], gradient: Gradient) -> Gradient:
    """The sum in the form of a gradient that ``to_float32`` took.

    A tensor is on the gradient's device.
    """
    given: Any = gradient
    converted: Any = total
    if _is_tensor(given):
        tensor = sys.modules["torch"].from_numpy(total)
        converted = tensor.to(device=given.device, dtype=given.dtype)
    elif given.dtype != np.float32:
        with np.errstate(over="ignore"):
            converted = total.astype(given.dtype)
    result: Gradient = converted
    return result


def _is_tensor(gradient: object) -> bool:
    # PyTorch is not imported for it: a caller with a tensor has imported it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(gradient, torch.Tensor)


def _array_of(tensor: Any, worker: int) -> Any:
    whose = f"the gradient of worker {worker}"
    if str(tensor.layout) != "torch.strided":
        raise GradientError(f"{whose} is a sparse tensor; pass tensor.to_dense().")
    if str(tensor.dtype) not in _TENSORS:
        raise GradientError(
            f"{whose} is a tensor of {tensor.dtype}; pass {', '.join(_TENSORS)}, such as "
            "tensor.float()."
        )
    return tensor.detach().float().cpu().numpy()
