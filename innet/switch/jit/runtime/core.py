"""What all emitted code calls: bytes of packets, elements of arrays, integers of 64 bits.

Every integer of emitted code is an int64 that holds a field's value modulo 2**64, so that literals
need no types. So fields of up to 63 bits are never negative. The few operations for which 64-bit
fields differ (order, right shift, division) are functions here, and so are those that may overflow
(``wrapped_add`` and so on), since LLVM takes an overflow of int64 itself for undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from innet.core.numba_cache import njit
from innet.switch.engine import MAX_BACKWARD_JUMPS
from innet.switch.jit.native import ENDLESS

__all__ = [  # what emitted code may import
    "SIGN",
    "append_bits",
    "append_from",
    "bits_and32",
    "bits_at",
    "bits_or32",
    "bits_xor32",
    "bump",
    "choose32",
    "clamp",
    "copy",
    "count_jump",
    "divide",
    "equal32",
    "get",
    "less",
    "less32",
    "load8",
    "load16",
    "load32",
    "load64",
    "low32",
    "modulo",
    "opaque",
    "peek",
    "put",
    "reserve",
    "same_numbers",
    "saturating_add32",
    "saturating_subtract32",
    "shift_left",
    "shift_left32",
    "shift_right",
    "shift_right32",
    "shift_right_signed32",
    "shift_right_unsigned",
    "store8",
    "store16",
    "store32",
    "store64",
    "wrapped_add",
    "wrapped_multiply",
    "wrapped_subtract",
]

Function = TypeVar("Function", bound=Callable[..., Any])

int64: Any = types.int64
uint64: Any = types.uint64
SIGN = -(1 << 63)


def inlined(function: Function) -> Function:
    """Compile for emitted code: no bounds checks, no Python errors, merged into the caller."""
    compiled = njit(cache=True, boundscheck=False, error_model="numpy", nogil=True)
    return compiled(function)


# ── Bytes of packets ─────────────────────────────────────────────────────────────────────────────


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the elements of an array of type ``kind`` are.

    Numba's ``make_array`` would put the array into memory first, and take a millisecond for it.
    """
    return context.data_model_manager[kind].get(builder, array, "data")


def _address(context: Any, builder: Any, signature: Any, arguments: Any, bits: int) -> Any:
    """The byte of an array (the first two arguments) as a pointer to ``bits`` bits."""
    data = data_of(context, builder, signature.args[0], arguments[0])
    start = builder.bitcast(data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(bits).as_pointer())


def _loader(bits: int) -> Any:
    """A big-endian load of ``bits`` bits at a byte offset, of any alignment.

    An intrinsic, because LLVM turns an unaligned load and ``bswap`` into vector shuffles but does
    not recognize a byte-wise composition inside a loop.
    """

    def load(_typing: Any, array: Any, _offset: Any) -> Any:
        signature = types.int64(array, types.int64)

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_address(context, builder, signature, arguments, bits), align=1)
            if bits > 8:
                value = builder.bswap(value)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return signature, emit

    return intrinsic(load)


def _storer(bits: int) -> Any:
    """A big-endian store of the low ``bits`` bits at a byte offset, of any alignment."""

    def store(_typing: Any, array: Any, _offset: Any, _value: Any) -> Any:
        signature = types.void(array, types.int64, types.int64)

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = arguments[2]
            if bits < 64:
                value = builder.trunc(value, ir.IntType(bits))
            if bits > 8:
                value = builder.bswap(value)
            builder.store(value, _address(context, builder, signature, arguments, bits), align=1)
            return context.get_dummy_value()

        return signature, emit

    return intrinsic(store)


load8, store8 = _loader(8), _storer(8)
load16, store16 = _loader(16), _storer(16)
load32, store32 = _loader(32), _storer(32)
load64, store64 = _loader(64), _storer(64)


def _copy(_typing: Any, target: Any, _at: Any, source: Any, _start: Any, _count: Any) -> Any:
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        pointers = []
        for kind, array, offset in (
            (signature.args[0], arguments[0], arguments[1]),
            (signature.args[2], arguments[2], arguments[3]),
        ):
            start = builder.bitcast(data_of(context, builder, kind, array), byte)
            pointers.append(builder.gep(start, [offset]))
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        builder.call(memcpy, [*pointers, arguments[4], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return signature, emit


# copy(target, at, source, start, count): bytes between arrays that do not overlap.
copy: Any = intrinsic(_copy)


# ── Elements of flat arrays ──────────────────────────────────────────────────────────────────────


def _get(_typing: Any, array: Any, _index: Any) -> Any:
    signature = types.int64(array, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = data_of(context, builder, signature.args[0], arguments[0])
        value = builder.load(builder.gep(data, [arguments[1]]))
        narrow = signature.args[0].dtype.bitwidth < 64
        return builder.zext(value, ir.IntType(64)) if narrow else value

    return signature, emit


def _put(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    signature = types.void(array, types.int64, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = data_of(context, builder, signature.args[0], arguments[0])
        bits = signature.args[0].dtype.bitwidth
        value = arguments[2]
        if bits < 64:
            value = builder.trunc(value, ir.IntType(bits))
        builder.store(value, builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return signature, emit


# get(array, index), put(array, index, value). Without the case of a negative index, which costs
# instructions in every access to state.
get: Any = intrinsic(_get)
put: Any = intrinsic(_put)


@inlined
def bump(array: Any, index: int, by: int) -> None:
    """Add to an element."""
    put(array, index, get(array, index) + by)


@inlined
def reserve(array: Any, used: int, more: int) -> Any:
    """``array``, or a longer one that starts with its ``used`` elements, with room for ``more``."""
    if used + more <= len(array):
        return array
    longer = np.empty(2 * (used + more), array.dtype)
    copy(longer, 0, array, 0, used * array.itemsize)
    return longer


# ── Integers ─────────────────────────────────────────────────────────────────────────────────────


def _wrapped(operation: str) -> Any:
    """An operation of two int64 modulo 2**64.

    Numba's own tell LLVM that the result has no more than 64 bits, from which LLVM concludes about
    the operands.
    """

    def wrap(_typing: Any, _left: Any, _right: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return getattr(builder, operation)(*arguments)

        return types.int64(types.int64, types.int64), emit

    return intrinsic(wrap)


wrapped_add, wrapped_subtract = _wrapped("add"), _wrapped("sub")
wrapped_multiply = _wrapped("mul")


def _low32(_typing: Any, _number: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.trunc(arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), emit


# low32(number): number & 0xffffffff. LLVM computes what is cut to 32 bits with 32 bits, of which a
# vector has twice as many; what is masked it computes with 64.
low32: Any = intrinsic(_low32)


def _with_32_bits(
    compute: Callable[[Any, Any, Any], Any], returned: Any = types.int64, *, signed: bool = False
) -> Any:
    """An operation of two int64 of which only the low 32 bits count, computed with as many.

    Of sums and products that are cut to 32 bits LLVM finds that out by itself (``low32``).
    """

    def narrow(_typing: Any, _left: Any, _right: Any) -> Any:
        def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            left, right = (builder.trunc(each, _HALF) for each in arguments)
            result = compute(builder, left, right)
            if returned is not types.int64:
                return result
            return (builder.sext if signed else builder.zext)(result, ir.IntType(64))

        return returned(types.int64, types.int64), emit

    return intrinsic(narrow)


_HALF = ir.IntType(32)


def _plain32(operation: str, *first: str) -> Any:
    return lambda builder, left, right: getattr(builder, operation)(*first, left, right)


def _shift32(operation: str) -> Any:
    """A shift by an unsigned number, which leaves nothing from 32 on."""

    def compute(builder: Any, value: Any, amount: Any) -> Any:
        inside = builder.icmp_unsigned("<", amount, _HALF(32))
        return builder.select(inside, getattr(builder, operation)(value, amount), _HALF(0))

    return compute


def _shift_signed32(builder: Any, value: Any, amount: Any) -> Any:
    """From 31 on, copies of the sign are left."""
    inside = builder.icmp_unsigned("<", amount, _HALF(31))
    return builder.ashr(value, builder.select(inside, amount, _HALF(31)))


def _saturating32(operation: str) -> Any:
    """A saturating operation of unsigned numbers."""

    def compute(builder: Any, left: Any, right: Any) -> Any:
        function = builder.module.declare_intrinsic(
            f"llvm.{operation}.sat", [_HALF], ir.FunctionType(_HALF, [_HALF, _HALF])
        )
        return builder.call(function, [left, right])

    return compute


def _choose32(_typing: Any, _condition: Any, _left: Any, _right: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        condition, left, right = arguments
        chosen = builder.select(condition, builder.trunc(left, _HALF), builder.trunc(right, _HALF))
        return builder.zext(chosen, ir.IntType(64))

    return types.int64(types.boolean, types.int64, types.int64), emit


# Of two unsigned numbers of 32 bits; of shifts, the amount is one.
bits_and32, bits_or32, bits_xor32 = (
    _with_32_bits(_plain32(each)) for each in ("and_", "or_", "xor")
)
equal32, less32 = (
    _with_32_bits(_plain32("icmp_unsigned", symbol), types.boolean) for symbol in ("==", "<")
)
shift_left32, shift_right32 = (_with_32_bits(_shift32(each)) for each in ("shl", "lshr"))
saturating_add32 = _with_32_bits(_saturating32("uadd"))
saturating_subtract32 = _with_32_bits(_saturating32("usub"))
# choose32(condition, left, right): one of them. Both are computed.
choose32: Any = intrinsic(_choose32)
# Of a number of 32 bits with a sign.
shift_right_signed32 = _with_32_bits(_shift_signed32, signed=True)


def _opaque(_typing: Any, _number: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        nothing = ir.InlineAsm(ir.FunctionType(word, [word]), "", "=r,0")
        return builder.call(nothing, arguments)

    return types.int64(types.int64), emit


# opaque(number): the number, without the compiler knowing it. A short loop of known length is
# unrolled into scalar code before the vectorizer sees it; one of unknown length is not.
opaque: Any = intrinsic(_opaque)


def _count_jump(_typing: Any, _jumps: Any, _site: Any) -> Any:
    signature = types.int64(types.int64, types.int64)

    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word, (jumps, site) = ir.IntType(64), arguments
        counted = builder.add(jumps, word(1))
        late = builder.icmp_signed(">", counted, word(MAX_BACKWARD_JUMPS))
        with builder.if_then(late, likely=False):
            number = builder.sub(word(ENDLESS), site)
            # As an exception does: whatever called this function returns the same number.
            context.call_conv._return_errcode_raw(builder, builder.trunc(number, ir.IntType(32)))
        return counted

    return signature, emit


# count_jump(jumps, site): one jump back more. One too many ends the whole call with error number
# ENDLESS - site.
count_jump: Any = intrinsic(_count_jump)


@inlined
def less(left: int, right: int) -> bool:
    """``left < right`` of two unsigned 64-bit numbers."""
    return (left ^ SIGN) < (right ^ SIGN)


@inlined
def shift_left(value: int, amount: int) -> int:
    """As P4 defines it: a shift by the width or more leaves nothing."""
    if amount < 0 or amount > 63:
        return 0
    return value << amount


@inlined
def shift_right(value: int, amount: int) -> int:
    """Of a number that is not negative, or of a signed one (the sign moves in)."""
    if amount < 0 or amount > 63:
        return -1 if value < 0 else 0
    return value >> amount


@inlined
def shift_right_unsigned(value: int, amount: int) -> int:
    """Of an unsigned 64-bit number."""
    if amount < 0 or amount > 63:
        return 0
    if amount == 0:
        return value
    return (value >> amount) & ((1 << (64 - amount)) - 1)


@inlined
def clamp(value: int, low: int, high: int) -> int:
    """The number of low .. high that is nearest to ``value``."""
    return min(max(value, low), high)


@inlined
def divide(left: int, right: int) -> Any:
    """Of unsigned 64-bit numbers; 0 for a divisor of 0."""
    if right == 0:
        return 0
    return int64(uint64(left) // uint64(right))


@inlined
def modulo(left: int, right: int) -> Any:
    """Of unsigned 64-bit numbers; 0 for a divisor of 0."""
    if right == 0:
        return 0
    return int64(uint64(left) % uint64(right))


# ── Bits at any position: lookahead, varbit fields, inputs of hashes ─────────────────────────────
#
# ``start`` is the position of a first bit, in bits; a negative one stands for bits that are all 0.


@inlined
def peek(data: Any, start: int, end: int, offset: int, width: int) -> int:
    """``width`` bits that begin ``offset`` bits after byte ``start``; 0 from byte ``end`` on."""
    value = 0
    for bit in range(offset, offset + width):
        byte = start + (bit >> 3)
        value <<= 1
        if byte < end:
            value |= (load8(data, byte) >> (7 - (bit & 7))) & 1
    return value


@inlined
def bits_at(data: Any, start: int, width: int) -> int:
    """The last 64 of ``width`` bits as a number; 0 where there are none."""
    if start < 0 or width <= 0:
        return 0
    end = start + width
    at = max(start, end - 64)
    value = 0
    while at < end:
        used = at & 7
        count = min(8 - used, end - at)
        bits = (load8(data, at >> 3) >> (8 - used - count)) & ((1 << count) - 1)
        value = (value << count) | bits
        at += count
    return value


@inlined
def same_numbers(data: Any, left: int, left_width: int, right: int, right_width: int) -> bool:
    """Whether two runs of bits are the same number."""
    for above in range(0, max(left_width, right_width), 64):
        one = bits_at(data, left, left_width - above)
        if one != bits_at(data, right, right_width - above):
            return False
    return True


@inlined
def append_bits(data: Any, at: int, value: int, width: int) -> int:
    """Write ``width`` bits at bit ``at``, zeros up to the next byte, and return where they end."""
    while width > 0:
        byte, used = at >> 3, at & 7
        count = min(8 - used, width)
        bits = ((value >> (width - count)) & ((1 << count) - 1)) << (8 - used - count)
        kept = load8(data, byte) & (0xFF00 >> used) if used else 0
        store8(data, byte, kept | bits)
        at += count
        width -= count
    return at


@inlined
def append_from(target: Any, at: int, data: Any, start: int, width: int) -> int:
    """As ``append_bits``, of bits that stand in ``data``."""
    if start >= 0 and (at | start | width) & 7 == 0:
        copy(target, at >> 3, data, start >> 3, width >> 3)
        return at + width
    end = start + width
    while width > 0:
        count = min(width, 64)
        value = 0 if start < 0 else bits_at(data, end - width, count)
        at = append_bits(target, at, value, count)
        width -= count
    return at
