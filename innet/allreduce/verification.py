"""Was the sum right? What all workers' outcomes say together, against oracles.

Gradients are gone through in blocks, so that no oracle takes memory as large as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from innet.codecs import Outcome

_BLOCK = 1 << 17  # elements; one of float64 is a megabyte


class _Listed:
    """An array, or what of it is not zero, to be read in blocks.

    Args:
        indices: shape (m,), int32, ascending, distinct: where the values belong; None for all.
        values: shape (m,).
        size: elements of the whole array.
    """

    def __init__(self, indices: NDArray[np.int32] | None, values: NDArray[Any], size: int) -> None:
        self._indices, self._values = indices, values
        if indices is not None:
            edges = np.minimum(np.arange(0, size + _BLOCK, _BLOCK), size)
            self._ends = np.searchsorted(indices, edges.astype(indices.dtype))

    def add_to(self, total: NDArray[Any], begin: int) -> None:
        """Add the elements from ``begin`` on, a multiple of the block, to as many of ``total``."""
        if self._indices is None:
            total += self._values[begin : begin + total.size]
        else:
            first, last = self._ends[begin // _BLOCK : begin // _BLOCK + 2]
            # Indices are distinct, so this adds each once.
            total[self._indices[first:last] - begin] += self._values[first:last]


def is_exact(outcomes: Sequence[Outcome]) -> bool:
    """Whether every worker decoded the sum of the workers' integers, taken in int64."""
    size = outcomes[0].contribution.size
    sent, decoded = [], []
    for outcome in outcomes:
        own, total = outcome.contribution, outcome.total
        if own.size != size or (total.indices is None and total.integers.size != size):
            return False
        sent.append(_Listed(own.indices, own.integers, size))
        decoded.append(_Listed(total.indices, total.integers, size))
    for begin in range(0, size, _BLOCK):
        oracle = _block(sent, begin, size, np.int64)
        for each in decoded:
            if not np.array_equal(_block([each], begin, size, np.int64), oracle):
                return False
    return True


def errors(
    gradients: Sequence[NDArray[np.float32]], outcomes: Sequence[Outcome]
) -> tuple[float, float]:
    """Largest differences of the decoded sum: from the inputs' sum, from that of what was sent.

    Args:
        gradients: the workers', flat, shape (d,) each.
        outcomes: what each worker has after the all-reduce.
    """
    size, applied = len(gradients[0]), outcomes[0].applied
    given = [_Listed(None, gradient, size) for gradient in gradients]
    picked = [_Listed(outcome.indices, outcome.sent, size) for outcome in outcomes]
    counting = None if applied is None else _Listed(applied, np.ones(applied.size, np.bool_), size)
    of_inputs = of_sent = 0.0
    for begin in range(0, size, _BLOCK):
        inputs = _block(given, begin, size, np.float64)
        sent = _block(picked, begin, size, np.float64)
        if counting is not None:
            sent[~_block([counting], begin, size, np.bool_)] = 0.0
        decoded = outcomes[0].sum[begin : begin + _BLOCK]
        of_inputs = max(of_inputs, float(np.abs(decoded - inputs).max()))
        of_sent = max(of_sent, float(np.abs(decoded - sent).max()))
    return of_inputs, of_sent


def _block(arrays: Sequence[_Listed], begin: int, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """The sum of the arrays, of ``size`` elements each, from ``begin`` to the end of the block."""
    total = np.zeros(min(_BLOCK, size - begin), dtype)
    for each in arrays:
        each.add_to(total, begin)
    return total


def selections(outcomes: Sequence[Outcome], size: int) -> tuple[int, int]:
    """Elements that the workers selected, all together, and coordinates that at least one did.

    Args:
        outcomes: what each worker has after the all-reduce.
        size: elements of the gradient.
    """
    chosen = np.zeros(size, np.bool_)
    selected = 0
    for outcome in outcomes:
        places = slice(None) if outcome.indices is None else outcome.indices
        chosen[places] = True
        selected += size if outcome.indices is None else outcome.indices.size
    return selected, int(np.count_nonzero(chosen))
