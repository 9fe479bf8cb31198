"""Integers wider than 64 bits in emitted code: the Numba type ``Wide(bits)`` and what works on it.

``bits`` is a multiple of 64 from 128 on. A value is ``bits`` bits without a sign of its own, one
LLVM integer; ``+ - * & | ^ ~ ==`` and ``!=`` are the operators of Python, modulo 2**bits, and the
order of ``< <= > >=`` is that of two's complement. Functions have the rest; those whose names say
``unsigned`` take the bits as a number without a sign.

A *word* is an int64 with 64 of the bits; words are listed with the most significant one first. That
is also how wide registers and arguments of actions lie in memory.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model

from innet.switch.jit.runtime.core import data_of, inlined

__all__ = [  # what emitted code may import
    "get_words",
    "low_bits",
    "low_word",
    "put_words",
    "sign_extended",
    "wide",
    "wide_clamp",
    "wide_divide",
    "wide_divide_unsigned",
    "wide_modulo",
    "wide_modulo_unsigned",
    "wide_shift_left",
    "wide_shift_right",
    "wide_shift_right_unsigned",
    "wide_unsigned",
    "wide_unsigned_less",
    "word",
    "words",
]

int64: Any = types.int64
_WORD = ir.IntType(64)

#: Up to here LLVM multiplies well by itself; above, what it writes grows with the square.
_MULTIPLIED_INLINE = 128


class Wide(types.Type):
    """The type of integers of ``bits`` bits."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        super().__init__(name=f"Wide({bits})")


@register_model(Wide)
class _WideModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Wide) -> None:
        super().__init__(manager, kind, ir.IntType(kind.bits))


Emit = Callable[[Any, Any, Any, Any], Any]
"""(context, builder, signature, arguments) to the value."""


def _constant(value: Any) -> int:
    """The number that an argument states."""
    return int(value.literal_value)


def _states(value: Any) -> bool:
    """Whether Numba passes the number itself; it asks a second time with its type only."""
    return isinstance(value, types.IntegerLiteral)


# ── Operators ────────────────────────────────────────────────────────────────────────────────────


def _operator(function: Any, compares: bool, emit: Emit) -> None:
    class Template(AbstractTemplate):
        def generic(self, arguments: Any, _keywords: Any) -> Any:
            if arguments and all(isinstance(each, Wide) for each in arguments):
                assert len(set(arguments)) == 1, "operands of different widths"
                return signature(types.boolean if compares else arguments[0], *arguments)
            return None

    infer_global(function)(Template)
    count = 1 if function is operator.invert else 2
    lower_builtin(function, *[Wide] * count)(emit)


def _method(name: str) -> Emit:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    return emit


def _comparison(symbol: str) -> Emit:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.icmp_signed(symbol, *arguments)

    return emit


def _multiply(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
    bits = kind.return_type.bits
    if bits <= _MULTIPLIED_INLINE:
        return builder.mul(*arguments)
    number = ir.IntType(bits)
    pointers = [cgutils.alloca_once(builder, number) for _ in range(3)]
    for value, pointer in zip(arguments, pointers, strict=False):
        builder.store(value, pointer)
    builder.call(_multiplication(builder.module, bits), pointers)
    return builder.load(pointers[2])


def _multiplication(module: Any, bits: int) -> Any:
    """The function (left, right, product) of that many bits, word by word as at school."""
    name = f"innet_wide_multiply_{bits}"
    if name in module.globals:
        return module.globals[name]
    pointer = ir.IntType(bits).as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * 3), name)
    function.linkage = "linkonce_odr"
    function.attributes.add("noinline")
    builder = ir.IRBuilder(function.append_basic_block())
    count, double = bits // 64, ir.IntType(128)
    left, right, product = (builder.bitcast(each, _WORD.as_pointer()) for each in function.args)
    builder.store(ir.IntType(bits)(0), function.args[2])
    carry = cgutils.alloca_once(builder, double)
    with cgutils.for_range(builder, _WORD(count)) as outer:
        builder.store(double(0), carry)
        factor = builder.zext(builder.load(builder.gep(left, [outer.index])), double)
        with cgutils.for_range(builder, builder.sub(_WORD(count), outer.index)) as inner:
            other = builder.zext(builder.load(builder.gep(right, [inner.index])), double)
            pointer = builder.gep(product, [builder.add(outer.index, inner.index)])
            total = builder.add(builder.mul(factor, other), builder.load(carry))
            total = builder.add(total, builder.zext(builder.load(pointer), double))
            builder.store(builder.trunc(total, _WORD), pointer)
            builder.store(builder.lshr(total, double(64)), carry)
    builder.ret_void()
    return function


for _function, _name in (
    (operator.add, "add"),
    (operator.sub, "sub"),
    (operator.and_, "and_"),
    (operator.or_, "or_"),
    (operator.xor, "xor"),
    (operator.invert, "not_"),
):
    _operator(_function, False, _method(_name))
_operator(operator.mul, False, _multiply)
for _function, _symbol in (
    (operator.eq, "=="),
    (operator.ne, "!="),
    (operator.lt, "<"),
    (operator.le, "<="),
    (operator.gt, ">"),
    (operator.ge, ">="),
):
    _operator(_function, True, _comparison(_symbol))


# ── Between widths ───────────────────────────────────────────────────────────────────────────────


def _resizer(extension: str) -> Any:
    """From int64 or ``Wide`` to ``Wide(bits)``; what is above ``bits`` is cut off."""

    def resize(_typing: Any, value: Any, bits: Any) -> Any:
        if not _states(bits):
            return None
        value = types.int64 if isinstance(value, types.Integer) else value

        def emit(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
            target = ir.IntType(kind.return_type.bits)
            width = arguments[0].type.width
            if width < target.width:
                return getattr(builder, extension)(arguments[0], target)
            return arguments[0] if width == target.width else builder.trunc(arguments[0], target)

        return Wide(_constant(bits))(value, bits), emit

    return intrinsic(prefer_literal=True)(resize)


# wide(value, bits): with the value's sign; wide_unsigned(value, bits): with zeros above.
wide: Any = _resizer("sext")
wide_unsigned: Any = _resizer("zext")


def _low_word(_typing: Any, value: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.trunc(arguments[0], _WORD)

    return types.int64(value), emit


def _word(_typing: Any, value: Any, shift: Any) -> Any:
    if not _states(shift):
        return None

    def emit(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        number = arguments[0].type
        moved = builder.lshr(arguments[0], number(_constant(kind.args[1])))
        return builder.trunc(moved, _WORD)

    return types.int64(value, shift), emit


# low_word(value): the value modulo 2**64; word(value, shift): that of the value shifted right.
low_word: Any = intrinsic(_low_word)
word: Any = intrinsic(prefer_literal=True)(_word)


def _joined(builder: Any, parts: Iterable[Any], bits: int) -> Any:
    """Words, the most significant first, as one number."""
    number = ir.IntType(bits)
    value = number(0)
    shift = bits
    for part in parts:
        shift -= 64
        value = builder.or_(value, builder.shl(builder.zext(part, number), number(shift)))
    return value


def _words(_typing: Any, parts: Any) -> Any:
    def emit(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        return _joined(builder, cgutils.unpack_tuple(builder, arguments[0]), kind.return_type.bits)

    count = len(parts)
    return Wide(64 * count)(types.UniTuple(types.int64, count)), emit


# words((a, b, ...)): a number of as many words.
words: Any = intrinsic(_words)


def _get_words(_typing: Any, array: Any, _index: Any, count: Any) -> Any:
    if not _states(count):
        return None

    def emit(context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        data = data_of(context, builder, kind.args[0], arguments[0])
        pointers = (
            builder.gep(data, [builder.add(arguments[1], _WORD(i))])
            for i in range(_constant(count))
        )
        return _joined(builder, map(builder.load, pointers), kind.return_type.bits)

    return Wide(64 * _constant(count))(array, types.int64, count), emit


def _put_words(_typing: Any, array: Any, _index: Any, value: Any) -> Any:
    def emit(context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        data = data_of(context, builder, kind.args[0], arguments[0])
        number = arguments[2].type
        for i in range(number.width // 64):
            moved = builder.lshr(arguments[2], number(number.width - 64 * (i + 1)))
            pointer = builder.gep(data, [builder.add(arguments[1], _WORD(i))])
            builder.store(builder.trunc(moved, _WORD), pointer)
        return context.get_dummy_value()

    return types.void(array, types.int64, value), emit


# get_words(array, index, count), put_words(array, index, value): words of a flat array of 64-bit
# elements, from ``index`` on.
get_words: Any = intrinsic(prefer_literal=True)(_get_words)
put_words: Any = intrinsic(_put_words)


def _low_bits(_typing: Any, value: Any, width: Any) -> Any:
    if not _states(width):
        return None

    def emit(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        number = arguments[0].type
        return builder.and_(arguments[0], number((1 << _constant(kind.args[1])) - 1))

    return value(value, width), emit


def _sign_extended(_typing: Any, value: Any, width: Any) -> Any:
    if not _states(width):
        return None

    def emit(_context: Any, builder: Any, kind: Any, arguments: Any) -> Any:
        number = arguments[0].type
        above = number(number.width - _constant(kind.args[1]))
        return builder.ashr(builder.shl(arguments[0], above), above)

    return value(value, width), emit


# The low ``width`` bits of a number, as an unsigned number or as two's complement of that width.
low_bits: Any = intrinsic(prefer_literal=True)(_low_bits)
sign_extended: Any = intrinsic(prefer_literal=True)(_sign_extended)


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
