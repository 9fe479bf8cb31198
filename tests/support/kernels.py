"""What tests of kernels share: cases, and equality to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from innet.kernels import SketchLayout
from support import gradients


def assert_same(one, other):
    """Equal types and bits: -0.0 is not 0.0 here."""
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same(a, b)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()
    elif one is None:
        assert other is None
    else:
        assert type(one) is type(other) is int
        assert one == other


def bitmap_of(flags):
    """The bitmap of the elements whose flags are set."""
    padded = np.pad(flags, (0, -flags.size % 32))
    return np.packbits(padded, bitorder="little").view(np.int32)


@st.composite
def sparse_integers(draw, sizes=None):
    """Integers of the whole range at some places of a dense array, and a layout for them."""
    size = draw(gradients.sizes() if sizes is None else sizes)
    rng = np.random.default_rng(draw(gradients.seeds))
    dense = rng.integers(-(2**31), 2**31, size).astype(np.int32)
    dense[rng.random(size) >= draw(gradients.densities())] = 0
    items = int(np.count_nonzero(dense))
    lanes = draw(st.sampled_from((1, 2, 16, 128)))
    hashes = draw(st.sampled_from((3, 4)))
    starts = draw(st.sampled_from((1, 2, 7, 40)))
    cells_per_item = draw(st.sampled_from((0.1, 0.7, 1.1, 1.25, 2.0)))
    part = max(1, int(cells_per_item * items / (starts + hashes - 1) / lanes))
    return dense, SketchLayout(part, lanes, draw(st.integers(0, 2**63 - 1)), hashes, starts)


def too_small(kernels, size):
    """What kernels make of negative numbers that are too small for a float32."""
    step, negative = 2.0**-200, np.full(size, -1, np.int32)
    factor = np.full(33, -1e-30, np.float32)
    yield kernels.dequantize(negative, step)
    yield kernels.hadamard_inverse(np.resize(negative, 64), np.array([step]), 64, 5, 64)
    yield kernels.factor_product(factor, -factor, 1)
