"""The normalized squared error of sums, against NumPy on whole arrays."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from innet.core.vnmse import vnmse


@pytest.mark.parametrize("size", [1, 7, (1 << 17) + 5])  # also over the edge of a block
def test_it_is_that_of_whole_arrays(size):
    rng = np.random.default_rng(size)
    gradients = rng.standard_normal((3, size)).astype(np.float32)
    total = (gradients.sum(axis=0) + rng.standard_normal(size)).astype(np.float32)
    true = gradients.sum(axis=0, dtype=np.float64)
    expected = ((total - true) ** 2).sum() / (true**2).sum()
    assert vnmse(total, list(gradients)) == pytest.approx(expected, rel=1e-12)


def test_the_ends():
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    assert vnmse(zeros, [zeros, zeros]) == 0
    assert vnmse(zeros[:0], [zeros[:0]]) == 0
    assert vnmse(ones, [ones, -ones]) == math.inf
    assert vnmse(ones, [ones, zeros]) == 0
    assert vnmse(zeros, [ones, ones]) == 1
    # The true sum is no float32's: it is beyond them, and has more digits.
    large = np.full(4, 3e38, np.float32)
    assert vnmse(large, [large, large]) == 0.25
    assert vnmse(ones, [ones, np.full(4, 1e-9, np.float32)]) == pytest.approx(1e-18, rel=1e-6)
    assert vnmse(np.full(4, np.inf, np.float32), [large, large]) == math.inf


def test_memory_stays_flat():
    ones = np.ones(2_000_000, np.float32)
    tracemalloc.start()
    try:
        assert vnmse(ones, [ones, ones]) == 0.25
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < ones.nbytes
