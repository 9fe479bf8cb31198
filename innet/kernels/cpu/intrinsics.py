"""Machine operations that Numba has no name for, as LLVM IR, which every target can compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from innet.kernels.arrays import Floats, Ints

if TYPE_CHECKING:
    # What the intrinsics below are to those who call them from compiled code.
    def magnitude_bits(x: np.float32) -> np.int32:
        """The bits of |x| as an int32, in the order of the magnitudes."""

    def float_of_bits(word: np.int32) -> np.float32:
        """The float32 of these bits."""

    def prefetch(array: Any, index: int) -> None:
        """Ask for the cache line of array[index], which must exist, to be there soon."""

    def trailing_zeros(word: np.uint32) -> int:
        """The position of the lowest set bit, 32 for zero."""

    def set_bits(word: np.uint32) -> int:
        """How many bits are set."""

    def flag_32(array: Floats | Ints, start: int, mask: np.uint32, least: np.uint32) -> np.uint32:
        """Bit j tells whether (word start + j of the array, as unsigned) & mask >= least.

        All 32 words must exist: nothing checks the bounds.
        """

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _I1, _I32, _I64 = (ir.IntType(bits) for bits in (1, 32, 64))
    _VECTOR = ir.VectorType(_I32, 32)

    def _everywhere(builder: Any, word: Any) -> Any:
        """A vector of 32 equal words."""
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, word, ir.Constant(_I32, 0))
        return builder.shuffle_vector(first, undefined, ir.Constant(_VECTOR, [0] * 32))

    @intrinsic
    def magnitude_bits(_typing, _x):
        """An and with all but the sign."""

        def emit(_context, builder, _signature, arguments):
            bits = builder.bitcast(arguments[0], _I32)
            return builder.and_(bits, ir.Constant(_I32, 0x7FFFFFFF))

        return types.int32(types.float32), emit

    @intrinsic
    def float_of_bits(_typing, _word):
        """The same bits under another type."""

        def emit(_context, builder, _signature, arguments):
            return builder.bitcast(arguments[0], ir.FloatType())

        return types.float32(types.int32), emit

    @intrinsic
    def prefetch(_typing, array, _index):
        """The intrinsic llvm.prefetch, for writing, into all caches."""

        def emit(context, builder, signature, arguments):
            array, index = arguments
            data = context.make_array(signature.args[0])(context, builder, array).data
            pointer = builder.bitcast(builder.gep(data, [index]), ir.IntType(8).as_pointer())
            kind = ir.FunctionType(ir.VoidType(), [pointer.type, _I32, _I32, _I32])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
            for_writing, in_all_caches, data_cache = (ir.Constant(_I32, each) for each in (1, 3, 1))
            builder.call(function, [pointer, for_writing, in_all_caches, data_cache])
            return context.get_dummy_value()

        return types.void(array, types.int64), emit

    @intrinsic
    def trailing_zeros(_typing, _word):
        """The instruction cttz."""

        def emit(_context, builder, _signature, arguments):
            defined_at_zero = ir.Constant(_I1, 0)
            return builder.zext(builder.cttz(arguments[0], defined_at_zero), _I64)

        return types.int64(types.uint32), emit

    @intrinsic
    def set_bits(_typing, _word):
        """The instruction ctpop."""

        def emit(_context, builder, _signature, arguments):
            return builder.zext(builder.ctpop(arguments[0]), _I64)

        return types.int64(types.uint32), emit

    @intrinsic
    def flag_32(_typing, array, _start, _mask, _least):
        """A load, and, compare of a vector whose 32 results are looked at as a word."""

        def emit(context, builder, signature, arguments):
            words, start, mask, least = arguments
            data = context.make_array(signature.args[0])(context, builder, words).data
            pointer = builder.bitcast(builder.gep(data, [start]), _VECTOR.as_pointer())
            loaded = builder.load(pointer, align=4)
            masked = builder.and_(loaded, _everywhere(builder, mask))
            flags = builder.icmp_unsigned(">=", masked, _everywhere(builder, least))
            return builder.bitcast(flags, _I32)

        return types.uint32(array, types.int64, types.uint32, types.uint32), emit
