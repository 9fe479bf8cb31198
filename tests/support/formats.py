"""Kernels that round to number formats, compared with the naive ones."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from innet import kernels
from innet.kernels.layout.formats import FORMATS
from support import gradients
from support.kernels import assert_same

naive = kernels.get("reference")


def check_formats(fast, data, sizes):
    """All kernels of formats, with any format, block, scale and way of rounding."""
    x = data.draw(gradients.vectors(data.draw(sizes)))
    form = FORMATS[data.draw(st.sampled_from(sorted(FORMATS)))]
    block = data.draw(st.sampled_from((1, 2, 31, 32, max(1, x.size))))
    key = data.draw(st.one_of(st.none(), st.integers(0, 2**64 - 1)))
    magnitudes = naive.block_magnitudes(x, block)
    assert_same(fast.block_magnitudes(x, block), magnitudes)

    # Products from 2**highest on, up to the next power of two, and one power beyond.
    exponents = np.maximum(magnitudes >> 23, 1) - 127
    above = data.draw(st.integers(0, 1))
    if form.scaled == "no":
        powers = np.ones(magnitudes.size, np.float32)
        finer = np.ldexp(np.float32(1), np.clip(20 - exponents, -126, 127))
    else:
        powers = np.ldexp(np.float32(1), np.clip(form.highest + above - exponents, -126, 127))
        finer = np.full(magnitudes.size, 2.0 ** (21 - above - form.highest), np.float32)
        finer /= np.float32(2 ** data.draw(st.integers(1, 20)))
    rounded = naive.round_to_format(x, powers, block, form, key)
    assert_same(fast.round_to_format(x, powers, block, form, key), rounded)
    most = data.draw(st.sampled_from((1, 7, 2**22 - 1)))
    arguments = x, powers, finer, block, form, most, key
    integers = naive.quantize_to_format(*arguments)
    assert_same(fast.quantize_to_format(*arguments), integers)
    assert np.abs(integers).max(initial=0) <= most
    steps = data.draw(st.sampled_from((1.0, 1e-3, 1e38))) / powers.astype(np.float64)
    sums = naive.dequantize_blocks(integers, steps, block)
    assert_same(fast.dequantize_blocks(integers, steps, block), sums)
