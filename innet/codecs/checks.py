"""Is this a gradient, is this a count? Checked before anything is made or sent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet import kernels
from innet.core.errors import GradientError, InputError
from innet.core.numbers import require_int

_LARGEST = 2**31 - 1  # elements; their indices are int32
_FLOAT32 = np.dtype(np.float32)
_INT32 = np.dtype(np.int32)


class GradientStats(NamedTuple):
    """What the pass that checks a gradient for NaN and infinities also finds: the bits of the
    largest magnitude, the number of non-zero elements and, on request and if they are few, their
    indices and values. See ``innet.kernels.Kernels.absmax_nnz_sparse``.
    """

    magnitude: int
    nonzero: int
    nonzeros: tuple[NDArray[np.int32], NDArray[np.float32]] | None = None


def check_gradient(
    x: NDArray[np.float32], worker: int = 0, one_in: int | None = None
) -> GradientStats:
    """Refuse what no codec can take.

    Args:
        x: must be one-dimensional, float32, finite.
        worker: whose it is, for the message.
        one_in: pick what is not zero if that is at most one element in this number; None: do not.

    Returns:
        What else the pass found, so that no later step has to read it again.

    Raises:
        GradientError: names the worker and what is wrong, with the first index that is not finite.
    """
    check_form(x, worker)
    seen, bad = gradient_stats(kernels.get("cpu"), np.ascontiguousarray(x), one_in)
    if bad >= 0:
        raise GradientError(
            f"the gradient of worker {worker} is {x[bad]} at index {bad}; only finite values can "
            "be summed as integers."
        )
    return seen


def gradient_stats(
    each: kernels.Kernels, x: NDArray[np.float32], one_in: int | None = None
) -> tuple[GradientStats, int]:
    """The statistics by these kernels; and the first index that is not finite, or -1."""
    if one_in is not None:
        magnitude, nonzero, bad, nonzeros = each.absmax_nnz_sparse(x, x.size // one_in)
        return GradientStats(magnitude, nonzero, nonzeros), bad
    magnitude, nonzero, bad = each.absmax_nnz(x)
    return GradientStats(magnitude, nonzero), bad


def check_floats(x: object, worker: int = 0) -> None:
    """Refuse what is no array of float32, of whatever shape.

    Raises:
        GradientError: names the worker and what to pass.
    """
    whose = f"the gradient of worker {worker}"
    if not isinstance(x, np.ndarray):
        way = "np.asarray(gradient, np.float32)"
        if type(x).__module__.startswith("torch"):  # where tensors are not taken
            way = "tensor.detach().float().cpu().numpy()"
        raise GradientError(f"{whose} is a {type(x).__name__}; pass a NumPy array, such as {way}.")
    if isinstance(x, np.ma.MaskedArray):
        raise GradientError(
            f"{whose} is a masked array, and what it hides would be summed, too; pass "
            ".filled(0), or .data to sum all of it."
        )
    if x.dtype != _FLOAT32:
        raise GradientError(
            f"{whose} is {x.dtype}, not float32; convert it with .astype(np.float32)."
        )


def check_form(x: NDArray[np.float32], worker: int = 0) -> None:
    """``check_gradient`` but for what the values are.

    Raises:
        GradientError: names the worker and what is wrong.
    """
    check_floats(x, worker)
    whose = f"the gradient of worker {worker}"
    if x.ndim != 1:
        raise GradientError(f"{whose} has shape {x.shape}; flatten it with .ravel().")
    if x.size > _LARGEST:
        raise GradientError(f"{whose} has {x.size} elements; at most {_LARGEST} fit, split it.")


def check_selected(selected: object, size: int, who: str) -> None:
    """Refuse an invalid selection: a kernel would write outside of its arrays.

    Args:
        selected: a pair: indices, ascending, int32, within 0 .. size - 1, None for all; and as many
            values, float32.
        size: elements of the gradient.
        who: made the choice, for the message.

    Raises:
        InputError: says what was given and what is expected.
    """
    if not isinstance(selected, tuple) or len(selected) != 2:
        raise InputError(
            f"what {who} chose is of type {type(selected).__name__}; expected is a pair of indices "
            "and values."
        )
    indices, values = selected
    if indices is None:
        check_array(values, _FLOAT32, size, f"values from {who}")
        return
    count = next((each.size for each in selected if isinstance(each, np.ndarray)), 0)
    check_indices(indices, count, size, who)
    check_array(values, _FLOAT32, count, f"values from {who}")


def check_indices(indices: Any, count: int, size: int, who: str) -> None:
    """The same of ``count`` indices alone."""
    check_array(indices, _INT32, count, f"indices from {who}")
    if not count:
        return
    if indices[0] < 0 or indices[-1] >= size or not (indices[1:] > indices[:-1]).all():
        raise InputError(
            f"the indices from {who} do not ascend within 0 .. {size - 1}; sort them, each once."
        )


def check_array(array: object, dtype: np.dtype[Any], size: int, what: str) -> None:
    """Refuse what is no array of that dtype and shape (size,), by an InputError."""
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.shape == (size,):
        return
    found = (
        f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
    )
    raise InputError(f"the {what} are {found}; expected is {dtype} ({size},).")


def check_seed(seed: object) -> int:
    """``seed`` as an int.

    Raises:
        InputError: it is no integer, or one that no codec takes.
    """
    number = require_int(seed, "the codec's seed")
    if not 0 <= number < 2**63:
        raise InputError(f"the codec's seed is {number}; use one from 0 to 2**63 - 1.")
    return number
