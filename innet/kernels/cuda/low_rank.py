"""Matrices times factors of low rank, and the product of two of these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from innet.kernels.arrays import ROW_LANES
from innet.kernels.cuda.device import Array, back, empty, floats, threads_for, times


def project_rows(x: Any, columns: int, factor: Any, /) -> Any:
    """See ``innet.kernels.Kernels.project_rows``. The lanes are folded on the host."""
    matrix, vectors = floats(x), floats(factor)
    rows, rank = matrix.size // columns, vectors.size // columns
    sums = empty(rank * rows * ROW_LANES, np.float64)
    _project_rows[threads_for(sums.size)](matrix, vectors, rows, columns, sums)
    lanes = sums.copy_to_host().reshape(-1, ROW_LANES)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0].copy()


def project_columns(x: Any, columns: int, factor: Any, /) -> Any:
    """See ``innet.kernels.Kernels.project_columns``."""
    matrix, vectors = floats(x), floats(factor)
    rows = matrix.size // columns
    sums = empty(vectors.size // max(rows, 1) * columns, np.float64)
    _project_columns[threads_for(sums.size)](matrix, vectors, rows, columns, sums)
    return sums.copy_to_host()


def factor_product(left: Any, right: Any, rank: int, /) -> Any:
    """See ``innet.kernels.Kernels.factor_product``."""
    p, q = floats(left), floats(right)
    rows, columns = p.size // rank, q.size // rank
    product = empty(rows * columns, np.float32)
    _factor_product[threads_for(product.size)](p, q, rows, columns, product)
    return back(product, left, right)


@cuda.jit
def _project_rows(matrix: Array, vectors: Array, rows: int, columns: int, sums: Array) -> None:
    """A thread for each lane of each row and vector."""
    for s in range(cuda.grid(1), sums.size, cuda.gridsize(1)):
        lane, at = s % ROW_LANES, s // ROW_LANES
        k, i = at // rows, at % rows
        total = np.float64(0)
        for j in range(lane, columns, ROW_LANES):
            total += times(
                np.float64(matrix[i * columns + j]), np.float64(vectors[k * columns + j])
            )
        sums[s] = total


@cuda.jit
def _project_columns(matrix: Array, vectors: Array, rows: int, columns: int, sums: Array) -> None:
    """A thread for each column and vector, so that neighbors read neighbors."""
    for s in range(cuda.grid(1), sums.size, cuda.gridsize(1)):
        k, j = s // columns, s % columns
        total = np.float64(0)
        for i in range(rows):
            total += times(np.float64(vectors[k * rows + i]), np.float64(matrix[i * columns + j]))
        sums[s] = total


@cuda.jit
def _factor_product(left: Array, right: Array, rows: int, columns: int, product: Array) -> None:
    rank = left.size // rows
    for s in range(cuda.grid(1), product.size, cuda.gridsize(1)):
        i, j = s // columns, s % columns
        total = np.float64(0)
        for k in range(rank):
            total += times(np.float64(left[k * rows + i]), np.float64(right[k * columns + j]))
        product[s] = np.float32(total) + np.float32(0)  # not -0.0
