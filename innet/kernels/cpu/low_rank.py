"""Matrices times factors of low rank, and the product of two of these."""

from __future__ import annotations

import numpy as np

from innet.core import buffers
from innet.core.numba_cache import njit
from innet.kernels.arrays import ROW_LANES, Doubles, Floats

_STRIP = 1024  # columns whose sums stay in the L1 cache


def project_rows(x: Floats, columns: int, factor: Floats, /) -> Doubles:
    """See ``innet.kernels.Kernels.project_rows``."""
    vectors = factor.reshape(-1, columns)
    sums = np.empty((vectors.shape[0], x.size // columns))
    _project_rows(x.reshape(-1, columns), vectors, np.empty(ROW_LANES), sums)
    return sums.ravel()


def project_columns(x: Floats, columns: int, factor: Floats, /) -> Doubles:
    """See ``innet.kernels.Kernels.project_columns``."""
    matrix = x.reshape(-1, columns)
    vectors = factor.reshape(-1, matrix.shape[0])
    sums = np.zeros((vectors.shape[0], columns))
    _project_columns(matrix, vectors, sums)
    return sums.ravel()


def factor_product(left: Floats, right: Floats, rank: int, /) -> Floats:
    """See ``innet.kernels.Kernels.factor_product``."""
    product = buffers.empty(left.size // rank * (right.size // rank), np.float32)
    columns = right.size // rank
    _factor_product(
        left.reshape(rank, -1),
        right.reshape(rank, -1),
        np.empty(min(columns, _STRIP)),
        product.reshape(-1, columns),
    )
    return product


@njit(cache=True, nogil=True)
def _project_rows(matrix: Floats, vectors: Floats, lanes: Doubles, sums: Doubles) -> None:
    columns = matrix.shape[1]
    for i in range(matrix.shape[0]):
        row = matrix[i]
        for k in range(vectors.shape[0]):
            vector = vectors[k]
            lanes[:] = 0
            for start in range(0, columns, ROW_LANES):
                a, b = row[start : start + ROW_LANES], vector[start : start + ROW_LANES]
                for j in range(a.size):
                    lanes[j] += np.float64(a[j]) * np.float64(b[j])
            width = ROW_LANES // 2
            while width:
                for j in range(width):
                    lanes[j] += lanes[width + j]
                width //= 2
            sums[k, i] = lanes[0]


@njit(cache=True, nogil=True)
def _project_columns(matrix: Floats, vectors: Floats, sums: Doubles) -> None:
    rows, columns = matrix.shape
    for start in range(0, columns, _STRIP):
        stop = min(start + _STRIP, columns)
        for i in range(rows):
            row = matrix[i, start:stop]
            for k in range(vectors.shape[0]):
                weight = np.float64(vectors[k, i])
                part = sums[k, start:stop]
                for j in range(row.size):
                    part[j] += weight * np.float64(row[j])


@njit(cache=True, nogil=True)
def _factor_product(left: Floats, right: Floats, strip: Doubles, product: Floats) -> None:
    rows, columns = product.shape
    for i in range(rows):
        for start in range(0, columns, _STRIP):
            out = product[i, start : start + _STRIP]
            sums = strip[: out.size]
            sums[:] = 0
            for k in range(left.shape[0]):
                weight = np.float64(left[k, i])
                vector = right[k, start : start + _STRIP]
                for j in range(out.size):
                    sums[j] += weight * np.float64(vector[j])
            for j in range(out.size):
                out[j] = np.float32(sums[j]) + np.float32(0)  # not -0.0
