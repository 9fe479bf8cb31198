"""Tensors that a switch can sum, and saved state as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from innet import kernels
from innet.errors import InputError
from innet.torch.flat import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
"""They are coded as float32, which holds all their values."""


def kernels_for(device: torch.device) -> str:
    """The kernels that code tensors of ``device``.

    Raises:
        MissingToolError: it is a GPU, and numba-cuda cannot use it.
        InputError: it is neither the CPU nor a GPU of NVIDIA's.
    """
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"a model on {device.type!r}; put it on the CPU or on a CUDA device.")
    if device.type == "cuda":
        kernels.get("cuda")
    return device.type


def to_tensors(state: Any) -> Any:
    """The same with tensors for arrays, as ``torch.load`` takes it without trusting the file."""
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
    """What ``to_tensors`` was given."""
    if isinstance(state, torch.Tensor):
        return state.cpu().numpy().copy()
    if isinstance(state, dict):
        return {name: to_arrays(value) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(to_arrays(value) for value in state)
    return state
