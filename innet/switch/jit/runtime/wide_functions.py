"""Shifts, order and division of ``Wide`` integers in emitted code.

Functions whose names say ``unsigned`` take the bits as a number without a sign, the others as two's
complement.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from innet.switch.jit.runtime.core import inlined

__all__ = [  # what emitted code may import
    "wide_clamp",
    "wide_divide",
    "wide_divide_unsigned",
    "wide_modulo",
    "wide_modulo_unsigned",
    "wide_shift_left",
    "wide_shift_right",
    "wide_shift_right_unsigned",
    "wide_unsigned_less",
]

_WORD = ir.IntType(64)


# ── Shifts and order ─────────────────────────────────────────────────────────────────────────────


def _shifter(name: str) -> Any:
    """A shift by an int64; an amount that is negative or at least the width leaves no bit."""

    def shift(_typing: Any, value: Any, _amount: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            number = arguments[0].type
            inside = builder.icmp_unsigned("<", arguments[1], _WORD(number.width))
            last = number.width - 1
            # For a number with a sign, shifting by width - 1 leaves as many signs as any more.
            amount = builder.select(inside, arguments[1], _WORD(last))
            moved = getattr(builder, name)(arguments[0], builder.zext(amount, number))
            return moved if name == "ashr" else builder.select(inside, moved, number(0))

        return value(value, types.int64), emit

    return intrinsic(shift)


wide_shift_left: Any = _shifter("shl")
wide_shift_right: Any = _shifter("ashr")
wide_shift_right_unsigned: Any = _shifter("lshr")


def _unsigned_less(_typing: Any, left: Any, right: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.icmp_unsigned("<", *arguments)

    return types.boolean(left, right), emit


# wide_unsigned_less(left, right): ``left < right`` of numbers without signs.
wide_unsigned_less: Any = intrinsic(_unsigned_less)


@inlined
def wide_clamp(value: Any, low: Any, high: Any) -> Any:
    """The number of low .. high that is nearest to ``value``."""
    if value < low:
        return low
    return high if value > high else value


# ── Division ─────────────────────────────────────────────────────────────────────────────────────


def _top_bit(_typing: Any, value: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = arguments[0].type
        return builder.lshr(arguments[0], number(number.width - 1))

    return value(value), emit


def _width_of(_typing: Any, value: Any) -> Any:
    def emit(_context: Any, _builder: Any, _signature: Any, arguments: Any) -> Any:
        return _WORD(arguments[0].type.width)

    return types.int64(value), emit


_top: Any = intrinsic(_top_bit)
_width: Any = intrinsic(_width_of)


@inlined
def _divided(left: Any, right: Any) -> Any:
    """(quotient, remainder) of unsigned numbers, bit by bit; (0, 0) for a divisor of 0."""
    zero = left ^ left
    if right == zero:
        return zero, zero
    quotient = zero
    rest = zero
    for _ in range(_width(left)):
        over = _top(rest)
        rest = (rest + rest) | _top(left)
        left = left + left
        quotient = quotient + quotient
        if over != zero or not wide_unsigned_less(rest, right):
            rest = rest - right
            quotient = quotient - ~zero
    return quotient, rest


@inlined
def wide_divide_unsigned(left: Any, right: Any) -> Any:
    """Rounded down; 0 for a divisor of 0."""
    return _divided(left, right)[0]


@inlined
def wide_modulo_unsigned(left: Any, right: Any) -> Any:
    """0 for a divisor of 0."""
    return _divided(left, right)[1]


@inlined
def wide_divide(left: Any, right: Any) -> Any:
    """Of two's complement, rounded towards zero; 0 for a divisor of 0."""
    zero = left ^ left
    size = zero - left if left < zero else left
    quotient = _divided(size, zero - right if right < zero else right)[0]
    return quotient if (left < zero) == (right < zero) else zero - quotient


@inlined
def wide_modulo(left: Any, right: Any) -> Any:
    """Of two's complement, with the sign of ``left``; 0 for a divisor of 0."""
    zero = left ^ left
    size = zero - left if left < zero else left
    rest = _divided(size, zero - right if right < zero else right)[1]
    return zero - rest if left < zero else rest
