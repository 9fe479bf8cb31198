"""Arrays at addresses, for compiled code that works on much memory in small functions.

Numba counts the references to an array's memory with atomic operations, and hands an array over as
seven words. Where many small functions work on the same twenty arrays, that is most of the time. A
record of addresses is handed over as one word, and has nothing to be counted: Numba leaves the
counting out of functions whose arguments are numbers, records and arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic

_pack: Any = cgutils.pack_array


def _make_array(kind: Any) -> Any:
    from numba.np.arrayobj import make_array  # noqa: PLC0415 - slow to import, and needed for compiling alone

    return make_array(kind)


def _populate_array(array: Any, **parts: Any) -> Any:
    from numba.np.arrayobj import populate_array  # noqa: PLC0415 - likewise

    return populate_array(array, **parts)


def viewer(dtype: Any, dimensions: int = 1) -> Any:
    """A function for compiled code: ``view(address, n)``, or ``view(address, n, m)``.

    It makes a C-contiguous array of ``dtype`` over memory that somebody else keeps.
    """
    item = from_dtype(np.dtype(dtype))
    kind = types.Array(item, dimensions, "C")

    def code(
        context: Any,
        builder: Any,
        signature: Any,  # noqa: ARG001 - as Numba calls it
        values: Any,
    ) -> Any:
        word = context.get_value_type(types.intp)
        array = _make_array(kind)(context, builder)
        size = context.get_abi_sizeof(context.get_data_type(item))
        shape = list(values[1:])
        strides = [ir.Constant(word, size)]
        for length in reversed(shape[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        _populate_array(
            array,
            data=builder.inttoptr(values[0], array.data.type),
            shape=_pack(builder, shape),
            strides=_pack(builder, strides),
            itemsize=ir.Constant(word, size),
            meminfo=None,
        )
        return array._getvalue()

    if dimensions == 1:

        def view(context: Any, address: Any, n: Any) -> Any:  # noqa: ARG001 - as Numba calls it
            """An array of one dimension."""
            return kind(types.intp, types.intp), code

        return intrinsic(view)

    def matrix(context: Any, address: Any, n: Any, m: Any) -> Any:  # noqa: ARG001 - likewise
        """An array of two dimensions."""
        return kind(types.intp, types.intp, types.intp), code

    return intrinsic(matrix)


def part_viewer(dtype: Any) -> Any:
    """A function for compiled code: ``view(array, begin, n)``.

    It makes an array of ``n`` items of ``dtype`` over the bytes of a C-contiguous array from byte
    ``begin`` on. It is valid as long as that array is, and nothing checks that the bytes are there.
    ``array[begin:end].view(dtype)`` is the same with checks, which take longer than small parts.
    """
    item = from_dtype(np.dtype(dtype))
    kind = types.Array(item, 1, "C")

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        word = context.get_value_type(types.intp)
        whole = _make_array(signature.args[0])(context, builder, values[0])
        array = _make_array(kind)(context, builder)
        size = ir.Constant(word, context.get_abi_sizeof(context.get_data_type(item)))
        begin = builder.add(builder.ptrtoint(whole.data, word), values[1])
        _populate_array(
            array,
            data=builder.inttoptr(begin, array.data.type),
            shape=_pack(builder, [values[2]]),
            strides=_pack(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    def view(context: Any, array: Any, begin: Any, n: Any) -> Any:  # noqa: ARG001 - as Numba calls it
        """A part of an array."""
        return kind(array, types.intp, types.intp), code

    return intrinsic(view)


def _copier(context: Any, target: Any, source: Any, length: Any) -> Any:  # noqa: ARG001 - as Numba calls it
    """The code of ``copy_few``."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        to, come = (
            _make_array(kind)(context, builder, value).data
            for kind, value in zip(signature.args[:2], values[:2], strict=True)
        )
        cgutils.raw_memcpy(builder, to, come, values[2], 1)
        return context.get_dummy_value()

    return types.void(target, source, types.intp), code


copy_few: Any = intrinsic(_copier)
"""For compiled code: ``copy_few(target, source, length)`` copies the first bytes of an array of
uint8 to another one, both C-contiguous, which do not overlap. Nothing checks that they are there.
"""
