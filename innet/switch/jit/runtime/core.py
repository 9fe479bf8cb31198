"""What emitted code calls: packet bytes, unsigned comparisons, table look-ups, checksums.

Every integer of emitted code is an int64 that holds a field's value modulo 2**64, so that literals
need no types. Fields of up to 63 bits are therefore never negative; the few operations for which
64-bit fields differ (order, right shift, division) are functions here, and those that may overflow
(``wrapped_add`` and so on), which int64 itself leaves undefined.

The look-ups work on the arrays that ``table_arrays`` builds; row 0 of a table is its default entry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from innet.core.numba_cache import undisturbed
from innet.switch.state.hash_index import MULTIPLIER

__all__ = [  # what emitted code may import
    "SIGN",
    "bump",
    "clamp",
    "copy",
    "divide",
    "find_exact",
    "get",
    "hidden",
    "in_set",
    "less",
    "load8",
    "load16",
    "load32",
    "load64",
    "modulo",
    "peek",
    "put",
    "shift_left",
    "shift_right",
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


#: What Python or C would call a function by takes a third of the time to compile. Numba's types do
#: not know these options.
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inlined(function: Function) -> Function:
    """Compile for emitted code: no bounds checks, no Python errors, merged into the caller.

    Only compiled code may call it: a call from Python would end the process.
    """
    compile_ = numba.njit(boundscheck=False, error_model="numpy", nogil=True, **_NO_WRAPPERS)
    dispatcher = compile_(function)
    if dispatcher is not function:
        dispatcher.compile = undisturbed(dispatcher.compile)
    return cast("Function", dispatcher)


def _loader(bits: int) -> Any:
    """A big-endian load of ``bits`` bits at a byte offset, of any alignment.

    An intrinsic, because LLVM turns an unaligned load and ``bswap`` into vector shuffles but does
    not recognise a byte-wise composition inside a loop.
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


def _address(context: Any, builder: Any, signature: Any, arguments: Any, bits: int) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    start = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(start, [arguments[1]]), ir.IntType(bits).as_pointer())


def _get(_typing: Any, array: Any, _index: Any) -> Any:
    signature = types.int64(array, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        value = builder.load(builder.gep(data, [arguments[1]]))
        narrow = signature.args[0].dtype.bitwidth < 64
        return builder.zext(value, ir.IntType(64)) if narrow else value

    return signature, emit


def _put(_typing: Any, array: Any, _index: Any, _value: Any) -> Any:
    signature = types.void(array, types.int64, types.int64)

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        bits = signature.args[0].dtype.bitwidth
        value = arguments[2]
        if bits < 64:
            value = builder.trunc(value, ir.IntType(bits))
        builder.store(value, builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return signature, emit


# Elements of flat arrays without the case of a negative index, which costs instructions in every
# access to state: get(array, index), put(array, index, value).
get: Any = intrinsic(_get)
put: Any = intrinsic(_put)

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
            start = context.make_array(kind)(context, builder, array).data
            pointers.append(builder.gep(builder.bitcast(start, byte), [offset]))
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
        builder.call(memcpy, [*pointers, arguments[4], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return signature, emit


def _hidden(_typing: Any, _number: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        nothing = ir.InlineAsm(ir.FunctionType(word, [word]), "", "=r,0")
        return builder.call(nothing, arguments)

    return types.int64(types.int64), emit


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

# hidden(number): the number, without the compiler knowing it. A short loop of known length is
# unrolled into scalar code before the vectoriser sees it; one of unknown length is not.
hidden: Any = intrinsic(_hidden)


# copy(target, at, source, start, count): bytes between arrays that do not overlap.
copy: Any = intrinsic(_copy)


@inlined
def bump(array: Any, index: int, by: int) -> None:
    """Add to an element."""
    put(array, index, get(array, index) + by)


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


# ── Look-ups ─────────────────────────────────────────────────────────────────────────────────────


@inlined
def scatter(key: Any, seed: int) -> int:
    """A hash of a tuple of words, as ``hash_index`` computes it."""
    state = seed
    for word in key:
        state = wrapped_multiply(state ^ word, MULTIPLIER)
        state ^= (state >> 32) & 0xFFFFFFFF
    return state


@inlined
def slot_of(state: int, slots: int) -> int:
    """Where a hash leads to among so many slots, as ``hash_index`` computes it."""
    return ((state & 0xFFFFFFFF) * slots) >> 32


@inlined
def find_exact(keys: Any, rows: Any, seed: int, key: Any) -> Any:
    """As ``HashIndex.find``: ``rows`` are its slots, ``keys`` (rows x words) its matrix."""
    slot = slot_of(scatter(key, seed), len(rows))
    while True:
        row = get(rows, slot)
        if row == 0:
            return 0
        same = True
        for position in range(len(key)):
            same &= get(keys, row * len(key) + position) == key[position]
        if same:
            return row
        slot = slot + 1 if slot + 1 < len(rows) else 0


@inlined
def in_set(members: Any, key: Any, masks: Any) -> bool:
    """Whether a member of a parser value set equals ``key`` where ``masks`` have ones."""
    for member in range(len(members) // len(key)):
        same = True
        for position in range(len(key)):
            different = get(members, member * len(key) + position) ^ key[position]
            same &= different & masks[position] == 0
        if same:
            return True
    return False
