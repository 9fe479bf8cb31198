"""Imports PyTorch, and converts between tensors and NumPy arrays.

It has models' gradients as a flat vector, the dtypes that can be coded, and saved state as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet import kernels
from innet.core.errors import InputError, MissingToolError

try:
    import torch
except ImportError as error:
    raise MissingToolError(
        "PyTorch",
        "innet.torch and for training other models than digits-cnn",
        f"Install it by: pip install 'innet[torch]' ({error}).",
    ) from error

__all__ = [
    "DTYPES",
    "Loss",
    "Parameters",
    "gradient_of",
    "kernels_for",
    "memory_of",
    "premultiplier",
    "tensor",
    "to_arrays",
    "to_tensors",
    "torch",
    "unflatten",
]

Parameters = Mapping[str, torch.Tensor]
Loss = Callable[[Parameters, torch.Tensor, torch.Tensor], torch.Tensor]
"""(parameters, inputs, targets) -> mean loss of the batch."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""Dtypes that can be coded: float32 represents all their values."""


def kernels_for(device: torch.device) -> str:
    """The kernels for tensors on ``device``.

    Raises:
        MissingToolError: it is a GPU that numba-cuda cannot use.
        InputError: it is neither the CPU nor an NVIDIA GPU.
    """
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"a model on {device.type!r}; put it on the CPU or on a CUDA device.")
    if device.type == "cuda":
        kernels.get("cuda")
    return device.type


def memory_of(tensor: torch.Tensor) -> NDArray[np.float32]:
    """The memory of a tensor of float32 on the CPU, contiguous and not empty, shape (numel,).

    Unlike ``tensor.numpy()`` it leaves the tensor resizable, as hooks beside innet's may need it.
    """
    return np.asarray(_TensorMemory(tensor.detach()))


class _TensorMemory:
    """For NumPy; an array of it keeps it, and so the tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(np.float32).str,
            "shape": (tensor.numel(),),
            "data": (tensor.data_ptr(), False),
        }


def premultiplier(operation: Any) -> float:
    """The factor of a PREMUL_SUM of PyTorch, by which each rank's tensor is multiplied before.

    Raises:
        InputError: it has none.
    """
    state = operation.__getstate__()
    if not isinstance(state, tuple):  # the constant
        raise InputError("PREMUL_SUM is without a factor; torch.distributed makes one with it.")
    return float(state[1])


def to_tensors(state: Any) -> Any:
    """Replace arrays by tensors, so that ``torch.load`` reads it with ``weights_only``."""
    if isinstance(state, np.ndarray):
        return torch.from_numpy(state.copy())
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, dict):
        return {name: to_tensors(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(to_tensors(value) for value in state)
    return state


def to_arrays(state: Any) -> Any:
    """The inverse of ``to_tensors``."""
    if isinstance(state, torch.Tensor):
        return state.cpu().numpy().copy()
    if isinstance(state, dict):
        return {name: to_arrays(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(to_arrays(value) for value in state)
    return state


def unflatten(flat: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The named parts of a flat vector as views."""
    ends = accumulate((int(np.prod(shape)) for shape in shapes.values()), initial=0)
    return {
        name: flat[start:end].reshape(shape)
        for (name, shape), (start, end) in zip(shapes.items(), pairwise(ends), strict=True)
    }


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """A copy. torch would share the memory, and warns of read-only arrays."""
    return torch.from_numpy(array.copy())


def gradient_of(
    loss: Loss, shapes: Mapping[str, tuple[int, ...]]
) -> Callable[[NDArray[np.float32], NDArray[Any], NDArray[Any]], tuple[float, NDArray[np.float32]]]:
    """The gradient of ``loss`` as an ``innet.experiments.models.model.Gradient``.

    It is computed in the parameters' dtype, also float64; floating inputs and targets are converted
    to it.
    """

    def gradient(
        flat: NDArray[np.float32], inputs: NDArray[Any], targets: NDArray[Any]
    ) -> tuple[float, NDArray[np.float32]]:
        leaf = tensor(flat).requires_grad_()

        def like(array: NDArray[Any]) -> torch.Tensor:
            found = tensor(array)
            return found.to(leaf.dtype) if found.is_floating_point() else found

        found = loss(unflatten(leaf, shapes), like(inputs), like(targets))
        (result,) = torch.autograd.grad(found, leaf)
        array: NDArray[np.float32] = result.numpy()
        return float(found.detach()), array

    return gradient
