"""Kernels for matrices and their factors of low rank; see ``innet.kernels.Kernels``."""

from __future__ import annotations

import numpy as np

from innet.kernels.arrays import ROW_LANES, Doubles, Floats


def project_rows(x: Floats, columns: int, factor: Floats, /) -> Doubles:
    """See ``innet.kernels.Kernels.project_rows``."""
    matrix = x.reshape(-1, columns).astype(np.float64)
    lanes = np.zeros((factor.size // columns, matrix.shape[0], ROW_LANES))
    for part, vector in zip(lanes, factor.reshape(-1, columns).astype(np.float64), strict=True):
        products = matrix * vector
        for start in range(0, columns, ROW_LANES):
            row = products[:, start : start + ROW_LANES]
            part[:, : row.shape[1]] += row
    while lanes.shape[2] > 1:
        half = lanes.shape[2] // 2
        lanes = lanes[:, :, :half] + lanes[:, :, half:]
    return lanes.ravel()


def project_columns(x: Floats, columns: int, factor: Floats, /) -> Doubles:
    """See ``innet.kernels.Kernels.project_columns``."""
    matrix = x.reshape(-1, columns).astype(np.float64)
    vectors = factor.reshape(-1, matrix.shape[0]).astype(np.float64)
    sums = np.zeros((vectors.shape[0], columns))
    for i, row in enumerate(matrix):
        sums += vectors[:, i, np.newaxis] * row
    return sums.ravel()


def factor_product(left: Floats, right: Floats, rank: int, /) -> Floats:
    """See ``innet.kernels.Kernels.factor_product``."""
    sums = np.zeros((left.size // rank, right.size // rank))
    for p, q in zip(left.reshape(rank, -1), right.reshape(rank, -1), strict=True):
        sums += p.astype(np.float64)[:, np.newaxis] * q.astype(np.float64)
    with np.errstate(over="ignore"):
        return sums.ravel().astype(np.float32) + np.float32(0)
