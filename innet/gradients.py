"""Gradients as users pass them: one for each worker, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from innet.codecs import check_floats, check_gradient
from innet.errors import GradientError

Vector = NDArray[np.float32]


def flattened(gradients: Mapping[int, Vector]) -> dict[int, Vector]:
    """By worker: flat, contiguous, all alike, all finite."""
    first = next(iter(gradients))
    for worker, gradient in gradients.items():
        check_floats(gradient, worker)
        if gradient.shape != gradients[first].shape:
            raise GradientError(
                f"the gradient of worker {worker} has shape {gradient.shape}, that of worker "
                f"{first} {gradients[first].shape}; all workers must reduce the same tensor."
            )
    flat = {
        worker: np.ascontiguousarray(gradient).reshape(-1) for worker, gradient in gradients.items()
    }
    for worker, vector in flat.items():
        check_gradient(vector, worker)
    return flat


def listed(gradients: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """The gradients of any iterable, such as a generator, which can be read only once."""
    try:
        found = iter(gradients)
    except TypeError:
        raise GradientError(
            f"the gradients are of type {type(gradients).__name__}; pass a list with one NumPy "
            "array for each worker."
        ) from None
    return list(found)
