"""Words of memory that several threads use at the same time, by their addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _place(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


def _load(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(builder, arguments[0]), "acquire", 8)

    return types.int64(types.int64), emit


def _add(_typing: Any, _address: Any, _amount: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = _place(builder, arguments[0])
        return builder.atomic_rmw("add", place, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


def _raise_to(_typing: Any, _address: Any, _value: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = _place(builder, arguments[0])
        return builder.atomic_rmw("max", place, arguments[1], "acq_rel")

    return types.int64(types.int64, types.int64), emit


def _replace(_typing: Any, _address: Any, _old: Any, _new: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = _place(builder, arguments[0])
        pair = builder.cmpxchg(place, *arguments[1:], "acq_rel", "acquire")
        return builder.zext(builder.extract_value(pair, 1), ir.IntType(64))

    return types.int64(types.int64, types.int64, types.int64), emit


load: Any = intrinsic(_load)
"""``load(address)``: what other threads have written before it, too, is there then."""
add: Any = intrinsic(_add)
"""``add(address, amount)``: returns what was there before."""
raise_to: Any = intrinsic(_raise_to)
"""``raise_to(address, value)``: makes what is there at least the value."""
replace: Any = intrinsic(_replace)
"""``replace(address, old, new)``: returns 1 if the old value was there and was replaced, or 0."""
