"""Memory that processes share, in compiled code: atomic loads and stores, and copies by address.

An index that one process writes and another reads needs an order: what was written before a
``store_release`` is seen by whoever has read its value by ``load_acquire``. A ``fence`` also keeps
a load from passing an earlier store, which a sleeper and its waker need of each other.

Source: LLVM Language Reference Manual, "Atomic Memory Ordering Constraints".
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD, _HALF, _BYTE = ir.IntType(64), ir.IntType(32), ir.IntType(8)


def _load(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(values[0], _WORD.as_pointer()), "acquire", 8)

    return types.int64(types.int64), emit


def _store(_typing: Any, _address: Any, _value: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], _WORD.as_pointer())
        builder.store_atomic(values[1], place, "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _exchange(_typing: Any, _address: Any, _value: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], _WORD.as_pointer())
        return builder.atomic_rmw("xchg", place, values[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


def _compare(_typing: Any, _address: Any, _expected: Any, _value: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], _WORD.as_pointer())
        found = builder.cmpxchg(place, values[1], values[2], "seq_cst")
        return builder.zext(builder.extract_value(found, 1), _WORD)

    return types.int64(types.int64, types.int64, types.int64), emit


def _fence(_typing: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


def _get_half(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        # Volatile: another process may write it meanwhile, so it is to be read once.
        place = builder.inttoptr(values[0], _HALF.as_pointer())
        found = builder.load_atomic(place, "monotonic", 4)
        return builder.sext(found, _WORD)

    return types.int64(types.int64), emit


def _put_half(_typing: Any, _address: Any, _value: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        place = builder.inttoptr(values[0], _HALF.as_pointer())
        builder.store_atomic(builder.trunc(values[1], _HALF), place, "monotonic", 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


def _move(_typing: Any, _target: Any, _source: Any, _count: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        byte = _BYTE.as_pointer()
        target, source = (builder.inttoptr(each, byte) for each in values[:2])
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, _WORD])
        builder.call(memcpy, [target, source, values[2], ir.IntType(1)(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


#: (address) -> the 64-bit word there, at a multiple of 8.
load_acquire: Any = intrinsic(_load)
#: (address, word): write it.
store_release: Any = intrinsic(_store)
#: (address, word) -> the word that was there before.
exchange: Any = intrinsic(_exchange)
#: (address, expected, word) -> whether the word there was the expected one, and is now the other.
compare_exchange: Any = intrinsic(_compare)
#: (): all loads and stores before it come before all after it.
fence: Any = intrinsic(_fence)
#: (address) -> the 32-bit number there, read once; and (address, number).
load_half: Any = intrinsic(_get_half)
store_half: Any = intrinsic(_put_half)
#: (target, source, bytes): copy between addresses that do not overlap.
copy_bytes: Any = intrinsic(_move)
