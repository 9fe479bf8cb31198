"""Integers wider than 64 bits in emitted code, against Python's."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support.tiers import examples

from innet.switch import ir
from innet.switch.interpreter.expressions import OPERATORS
from innet.switch.jit.runtime import core, wide

WIDTHS = [128, 192, 1024]
KEPT = 77

#: One kernel for each width: every operation of two numbers and an amount, as rows of words.
KERNEL = """
from numba import njit
from innet.switch.jit.runtime.wide import *

@njit(error_model="numpy")
def kernel(numbers, amount, out):
    left = get_words(numbers, 0, {count})
    right = get_words(numbers, {count}, {count})
    put_words(out, {count} * 0, left + right)
    put_words(out, {count} * 1, left - right)
    put_words(out, {count} * 2, left * right)
    put_words(out, {count} * 3, (left & right) ^ ~(left | right))
    put_words(out, {count} * 4, wide_shift_left(left, amount))
    put_words(out, {count} * 5, wide_shift_right(left, amount))
    put_words(out, {count} * 6, wide_shift_right_unsigned(left, amount))
    put_words(out, {count} * 7, wide_divide(left, right))
    put_words(out, {count} * 8, wide_modulo(left, right))
    put_words(out, {count} * 9, wide_divide_unsigned(left, right))
    put_words(out, {count} * 10, wide_modulo_unsigned(left, right))
    put_words(out, {count} * 11, low_bits(left, {kept}))
    put_words(out, {count} * 12, sign_extended(left, {kept}))
    put_words(out, {count} * 13, wide_clamp(left, wide(amount, {bits}), right))
    put_words(out, {count} * 14, wide_unsigned(amount, {bits}))
    put_words(out, {count} * 15, wide(wide_unsigned(wide(left, {half}), {more}), {bits}))
    put_words(out, {count} * 16, words((amount, {zeros} word(left, 64))))
    orders = (left < right, left <= right, left == right, wide_unsigned_less(left, right))
    for position, holds in enumerate(orders):
        out[{count} * 17 + position] = holds
    out[{count} * 17 + 4] = low_word(left)
"""


@cache
def kernel(bits: int) -> Any:
    names: dict[str, Any] = {}
    sizes = {"bits": bits, "count": bits // 64, "half": bits - 64, "more": bits + 64}
    sizes["half"] = max(sizes["half"], 128)
    zeros = "0, " * (bits // 64 - 2)
    exec(KERNEL.format(kept=KEPT, zeros=zeros, **sizes), names)
    return names["kernel"]


def to_words(number: int, bits: int) -> list[int]:
    data = (number % (1 << bits)).to_bytes(bits // 8, "big")
    return [int(word) for word in np.frombuffer(data, ">i8")]


def signed(number: int, bits: int) -> int:
    number %= 1 << bits
    return number - (1 << bits) if number >> (bits - 1) else number


def expected(left: int, right: int, amount: int, bits: int) -> list[int]:
    """What the kernel computes of two unsigned numbers, modulo 2**bits."""
    minus, other = signed(left, bits), signed(right, bits)
    inside = 0 <= amount < bits
    low = (1 << max(bits - 64, 128)) - 1
    middle = 64 * (bits // 64 - 2)
    return [
        left + right,
        left - right,
        left * right,
        (left & right) ^ ~(left | right),
        left << amount if inside else 0,
        minus >> (amount if inside else bits),
        left >> amount if inside else 0,
        OPERATORS[ir.DataOperator.DIV](minus, other),
        OPERATORS[ir.DataOperator.MOD](minus, other),
        left // right if right else 0,
        left % right if right else 0,
        left % (1 << KEPT),
        signed(left, KEPT),
        amount if minus < amount else min(minus, other),
        amount % (1 << 64),
        left & low,
        (amount % (1 << 64)) << (middle + 64) | (left >> 64) % (1 << 64),
    ]


@pytest.mark.repeats("the same with other widths", but=["192"])
@pytest.mark.parametrize("bits", WIDTHS)
def test_operations(bits: int) -> None:
    ends = [0, 1, 2, 3, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 1 << 64]
    number = st.one_of(st.sampled_from(ends), st.integers(0, (1 << bits) - 1), st.integers(0, 99))
    amounts = st.one_of(st.integers(0, bits + 2), st.integers(-(1 << 63), (1 << 63) - 1))

    @settings(max_examples=examples(200))
    @given(number, number, amounts)
    def check(left: int, right: int, amount: int) -> None:
        numbers = np.array(to_words(left, bits) + to_words(right, bits), np.int64)
        count = bits // 64
        out = np.zeros(count * 17 + 5, np.int64)
        kernel(bits)(numbers, amount, out)
        for position, value in enumerate(expected(left, right, amount, bits)):
            got = out[count * position : count * (position + 1)].tolist()
            assert got == to_words(value, bits), position
        minus, other = signed(left, bits), signed(right, bits)
        orders = [minus < other, minus <= other, minus == other, left < right]
        assert out[count * 17 :].tolist() == [*orders, signed(left, 64)]

    check()


@njit
def sums(value: Any, other: Any) -> Any:
    total = core.wrapped_add(value, core.SIGN)
    product = core.wrapped_multiply(value, other)
    return total, core.wrapped_subtract(other, value), product


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
def test_overflow_wraps_around(value: int, other: int) -> None:
    """LLVM turns an int64 sum with ``SIGN`` into an or, since it need not care about overflow."""
    found = [value + core.SIGN, other - value, value * other]
    assert list(sums(value, other)) == [signed(each, 64) for each in found]


def test_all_names_are_there() -> None:
    for module in (wide, wide):
        assert all(hasattr(module, name) for name in module.__all__)
