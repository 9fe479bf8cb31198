"""Machine operations that Numba has no name for, as LLVM IR, which every target can compile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from innet.core.numba_cache import njit
from innet.kernels.arrays import Floats, Ints, Longs

if TYPE_CHECKING:
    # The intrinsics below, as compiled code calls them.
    def magnitude_bits(x: np.float32) -> np.int32:
        """The bits of |x| as an int32, in the order of the magnitudes."""

    def float_of_bits(word: np.int32) -> np.float32:
        """The float32 of these bits."""

    def prefetch(array: Any, index: int) -> None:
        """Prefetch the cache line of array[index], which must exist."""

    def trailing_zeros(word: np.uint32 | np.uint64) -> int:
        """The position of the lowest set bit, for zero the number of bits."""

    def set_bits(word: np.uint32 | np.uint64) -> int:
        """How many bits are set."""

    def flag_32(array: Floats | Ints, start: int, mask: np.uint32, least: np.uint32) -> np.uint32:
        """Bit j tells whether (word start + j of the array, as unsigned) & mask >= least.

        All 32 words must exist; bounds are not checked.
        """

    def split_sum_64(  # noqa: PLR0917 - compiled functions are called by position
        x: Floats,
        y: Floats,
        start: int,
        least: np.uint32,
        cleared: np.uint32,
        rest: Floats,
        past: bool,
    ) -> np.uint64:
        """Bit j tells whether the bits of |x + y| at start + j reach ``least`` > 0, j = 0 .. 63.

        If they reach ``cleared``, rest[start + j] becomes 0, otherwise x + y. It can be written
        past the caches; then the address of rest[start] must be a multiple of 64 bytes. Bounds
        are not checked.
        """

    def absmax_nnz_64(x: Floats, start: int, maxima: Ints) -> np.uint64:
        """Bit j tells whether x[start + j] is not zero, for j = 0 .. 63. The bits of their
        magnitudes raise maxima[l], l = 0 .. 15, for each j that is l modulo 16, where they are
        larger. Nothing checks the bounds.
        """

    def add_scaled_16(  # noqa: PLR0917 - compiled functions are called by position
        x: Floats,
        y: Floats,
        start: int,
        weight: np.float32,
        total: Floats,
        past: bool,
        maxima: Ints,
    ) -> None:
        """Set total[start + l] to x + weight · y, rounded twice, for l = 0 .. 15; likewise. The
        bits of its magnitude raise maxima[l] where they are larger.
        """

    def copy_16(
        x: Floats | Ints, start: int, target: Floats | Ints, position: int, past: bool
    ) -> None:
        """Set target[place + l] to x[start + l] for l = 0 .. 15; likewise."""

    def add_signed_16(  # noqa: PLR0917 - compiled functions are called by position
        x: Floats, start: int, scale: float, signs: np.uint64, sums: Longs, position: int
    ) -> None:
        """Add round(x[start + l] · scale), below 2**51, to sums[place + l] for l = 0 .. 15, negated
        where bit l of the signs is set. Nothing checks the bounds.
        """

    def take_signed_16(
        words: Ints, position: int, signs: np.uint64, taken: Ints, start: int
    ) -> None:
        """Set taken[start + l] to words[place + l] for l = 0 .. 15, negated where bit l of the
        signs is set. Nothing checks the bounds.
        """

    def largest_16(x: Floats, start: int) -> np.int32:
        """The bits of the largest |x[start + l]| for l = 0 .. 15. Nothing checks the bounds."""

    def largest_sum_16(x: Floats, y: Floats, start: int) -> np.int32:
        """The bits of the largest |x + y| at start + l, for l = 0 .. 15. Nothing checks the
        bounds.
        """

    def sum_flags_16(x: Floats, y: Floats, start: int, bits: np.int32) -> np.uint64:
        """Bit l tells whether |x + y| has these bits at start + l, for l = 0 .. 15. Nothing checks
        the bounds.
        """

    def threshold_flags_16(
        x: Floats, y: Floats, start: int, weight: float, least: float
    ) -> np.uint64:
        """Bit l tells whether |x + weight · y| >= least at start + l, in float64, for l = 0 .. 15.
        Nothing checks the bounds.
        """

    def below_16(array: Ints, start: int, value: np.int32) -> int:
        """How many of array[start + l] are below the value, for l = 0 .. 15. Nothing checks the
        bounds.
        """

else:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    _I1, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 16, 32, 64))
    _VECTOR = ir.VectorType(_I32, 32)
    # 1.5 · 2**52, as in ``innet.kernels.cpu.fixed_point``; the bits of a sum with it, less its own,
    # are the rounded integer.
    _ROUNDER = 6755399441055744.0
    _ROUNDER_BITS = 0x4338000000000000

    def _everywhere(builder: Any, word: Any, lanes: int = 32) -> Any:
        """A vector of equal words."""
        undefined = ir.Constant(ir.VectorType(word.type, lanes), ir.Undefined)
        first = builder.insert_element(undefined, word, ir.Constant(_I32, 0))
        zeros = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
        return builder.shuffle_vector(first, undefined, zeros)

    def _vector_at(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
        """A pointer to the vector that begins at an element of the array, and the vector's type."""
        data = context.make_array(kind)(context, builder, array).data
        element = context.get_data_type(kind.dtype)
        vector = ir.VectorType(element, 16)
        return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())

    def _store(builder: Any, vector: Any, pointer: Any, past: Any) -> None:
        """Store a vector, past the caches if ``past``: then the line is not read first, and nothing
        else is evicted.
        """
        with builder.if_else(past) as (streaming, plain):
            with streaming:
                stored = builder.store(vector, pointer, align=64)
                one = builder.module.add_metadata([ir.Constant(_I32, 1)])
                stored.set_metadata("nontemporal", one)
            with plain:
                builder.store(vector, pointer, align=4)

    def _magnitudes(builder: Any, floats: Any) -> Any:
        """The bits of the vector's magnitudes."""
        words = ir.VectorType(_I32, floats.type.count)
        mask = ir.Constant(words, [0x7FFFFFFF] * words.count)
        return builder.and_(builder.bitcast(floats, words), mask)

    def _largest(builder: Any, words: Any) -> Any:
        """The maximum across a vector."""
        kind = ir.FunctionType(_I32, [words.type])
        name = f"llvm.vector.reduce.smax.v{words.type.count}i32"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [words])

    def _sums_at(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """The vector of 16 sums of the first two arguments, arrays, from the third on."""
        start = arguments[2]
        terms = []
        for array, kind in zip(arguments[:2], signature.args[:2], strict=True):
            pointer = _vector_at(context, builder, kind, array, start)
            terms.append(builder.load(pointer, align=4))
        return builder.fadd(*terms)

    def _negated(builder: Any, vector: Any, signs: Any) -> Any:
        """The vector of 16, negated where the lowest bits of the signs are set."""
        flags = builder.bitcast(builder.trunc(signs, _I16), ir.VectorType(_I1, 16))
        zero = ir.Constant(vector.type, [0] * 16)
        return builder.select(flags, builder.sub(zero, vector), vector)

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
    def trailing_zeros(_typing, word):
        """The instruction cttz."""

        def emit(_context, builder, _signature, arguments):
            defined_at_zero = ir.Constant(_I1, 0)
            return builder.zext(builder.cttz(arguments[0], defined_at_zero), _I64)

        return types.int64(word), emit

    @intrinsic
    def set_bits(_typing, word):
        """The instruction ctpop."""

        def emit(_context, builder, _signature, arguments):
            return builder.zext(builder.ctpop(arguments[0]), _I64)

        return types.int64(word), emit

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

    @intrinsic
    def split_sum_64(_typing, x, y, _start, _least, _cleared, rest, _past):
        """Four times a sum, two comparisons, a selection and a store of sixteen."""

        def emit(context, builder, signature, arguments):
            x, y, start, least, cleared, rest, past = arguments
            word = ir.Constant(_I64, 0)
            for part in range(0, 64, 16):
                position = builder.add(start, ir.Constant(_I64, part))
                sums = _sums_at(context, builder, signature, (x, y, position))
                bits = _magnitudes(builder, sums)
                zero = ir.Constant(sums.type, [0.0] * 16)
                clear = builder.icmp_unsigned(">=", bits, _everywhere(builder, cleared, 16))
                pointer = _vector_at(context, builder, signature.args[5], rest, position)
                _store(builder, builder.select(clear, zero, sums), pointer, past)
                flags = builder.icmp_unsigned(">=", bits, _everywhere(builder, least, 16))
                flags = builder.zext(builder.bitcast(flags, _I16), _I64)
                word = builder.or_(word, builder.shl(flags, ir.Constant(_I64, part)))
            return word

        bounds = types.uint32, types.uint32
        return types.uint64(x, y, types.int64, *bounds, rest, types.boolean), emit

    def _larger(builder: Any, words: Any, others: Any) -> Any:
        """Of each two the larger."""
        return builder.select(builder.icmp_signed(">", words, others), words, others)

    def _noted(context: Any, builder: Any, kind: Any, maxima: Any, bits: Any) -> None:
        """Raise the maxima to these bits of magnitudes."""
        pointer = _vector_at(context, builder, kind, maxima, ir.Constant(_I64, 0))
        before = builder.load(pointer, align=4)
        builder.store(_larger(builder, bits, before), pointer, align=4)

    @intrinsic
    def absmax_nnz_64(_typing, x, _start, maxima):
        """Four times a load, an and with all but the signs, a comparison; a maximum of them."""

        def emit(context, builder, signature, arguments):
            x, start, maxima = arguments
            word, largest = ir.Constant(_I64, 0), None
            for part in range(0, 64, 16):
                position = builder.add(start, ir.Constant(_I64, part))
                pointer = _vector_at(context, builder, signature.args[0], x, position)
                bits = _magnitudes(builder, builder.load(pointer, align=4))
                flags = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, [0] * 16))
                flags = builder.zext(builder.bitcast(flags, _I16), _I64)
                word = builder.or_(word, builder.shl(flags, ir.Constant(_I64, part)))
                largest = bits if largest is None else _larger(builder, bits, largest)
            _noted(context, builder, signature.args[2], maxima, largest)
            return word

        return types.uint64(x, types.int64, maxima), emit

    def _terms(
        context: Any, builder: Any, signature: Any, arguments: Any, weight: Any
    ) -> tuple[Any, Any]:
        """Sixteen elements of the first of two arrays, and of the second times the weight."""
        start = arguments[2]
        values = []
        for array, kind in zip(arguments[:2], signature.args[:2], strict=True):
            pointer = _vector_at(context, builder, kind, array, start)
            values.append(builder.load(pointer, align=4))
        return values[0], builder.fmul(values[1], _everywhere(builder, weight, 16))

    @intrinsic
    def add_scaled_16(_typing, x, y, _start, _weight, total, _past, maxima):
        """A product, a sum, which are not fused, a store; a maximum."""

        def emit(context, builder, signature, arguments):
            _, _, start, weight, total, past, maxima = arguments
            sums = builder.fadd(*_terms(context, builder, signature, arguments, weight))
            pointer = _vector_at(context, builder, signature.args[4], total, start)
            _store(builder, sums, pointer, past)
            _noted(context, builder, signature.args[6], maxima, _magnitudes(builder, sums))
            return context.get_dummy_value()

        numbers = types.int64, types.float32
        return types.void(x, y, *numbers, total, types.boolean, maxima), emit

    @intrinsic
    def copy_16(_typing, x, _start, target, _place, _past):
        """A load and a store."""

        def emit(context, builder, signature, arguments):
            x, start, target, position, past = arguments
            source = _vector_at(context, builder, signature.args[0], x, start)
            pointer = _vector_at(context, builder, signature.args[2], target, position)
            _store(builder, builder.load(source, align=4), pointer, past)
            return context.get_dummy_value()

        return types.void(x, types.int64, target, types.int64, types.boolean), emit

    @intrinsic
    def add_signed_16(_typing, x, _start, _scale, _signs, sums, _place):
        """Sixteen products, rounded by an addition, and one read and write of sixteen sums."""

        def emit(context, builder, signature, arguments):
            x, start, scale, signs, sums, position = arguments
            double, longs = ir.VectorType(ir.DoubleType(), 16), ir.VectorType(_I64, 16)
            pointer = _vector_at(context, builder, signature.args[0], x, start)
            values = builder.fpext(builder.load(pointer, align=4), double)
            products = builder.fmul(values, _everywhere(builder, scale, 16))
            rounder = ir.Constant(ir.DoubleType(), _ROUNDER)
            rounded = builder.fadd(products, _everywhere(builder, rounder, 16))
            less = _everywhere(builder, ir.Constant(_I64, _ROUNDER_BITS), 16)
            integers = builder.sub(builder.bitcast(rounded, longs), less)
            pointer = _vector_at(context, builder, signature.args[4], sums, position)
            total = builder.add(builder.load(pointer, align=8), _negated(builder, integers, signs))
            builder.store(total, pointer, align=8)
            return context.get_dummy_value()

        numbers = types.int64, types.float64, types.uint64
        return types.void(x, *numbers, sums, types.int64), emit

    @intrinsic
    def take_signed_16(_typing, words, _place, _signs, taken, _start):
        """A load, a subtraction from zero where the sign says so, a store."""

        def emit(context, builder, signature, arguments):
            words, position, signs, taken, start = arguments
            source = _vector_at(context, builder, signature.args[0], words, position)
            target = _vector_at(context, builder, signature.args[3], taken, start)
            loaded = builder.load(source, align=4)
            builder.store(_negated(builder, loaded, signs), target, align=4)
            return context.get_dummy_value()

        return types.void(words, types.int64, types.uint64, taken, types.int64), emit

    @intrinsic
    def largest_16(_typing, x, _start):
        """A load, an and with all but the signs, a maximum across the vector."""

        def emit(context, builder, signature, arguments):
            x, start = arguments
            pointer = _vector_at(context, builder, signature.args[0], x, start)
            return _largest(builder, _magnitudes(builder, builder.load(pointer, align=4)))

        return types.int32(x, types.int64), emit

    @intrinsic
    def largest_sum_16(_typing, x, y, _start):
        """A sum, an and with all but the signs, a maximum across the vector."""

        def emit(context, builder, signature, arguments):
            sums = _sums_at(context, builder, signature, arguments)
            return _largest(builder, _magnitudes(builder, sums))

        return types.int32(x, y, types.int64), emit

    @intrinsic
    def sum_flags_16(_typing, x, y, _start, _bits):
        """A sum, an and with all but the signs, a comparison."""

        def emit(context, builder, signature, arguments):
            words = _magnitudes(builder, _sums_at(context, builder, signature, arguments))
            flags = builder.icmp_signed("==", words, _everywhere(builder, arguments[3], 16))
            return builder.zext(builder.bitcast(flags, _I16), _I64)

        return types.uint64(x, y, types.int64, types.int32), emit

    @intrinsic
    def threshold_flags_16(_typing, x, y, _start, _weight, _least):
        """A product, a sum, an and with all but the signs, a comparison; none of them fused."""

        def emit(context, builder, signature, arguments):
            x, y, start, weight, least = arguments
            double, longs = ir.VectorType(ir.DoubleType(), 16), ir.VectorType(_I64, 16)
            values = []
            for array, kind in ((x, signature.args[0]), (y, signature.args[1])):
                pointer = _vector_at(context, builder, kind, array, start)
                values.append(builder.fpext(builder.load(pointer, align=4), double))
            product = builder.fmul(values[1], _everywhere(builder, weight, 16))
            bits = builder.bitcast(builder.fadd(values[0], product), longs)
            bits = builder.and_(bits, ir.Constant(longs, [2**63 - 1] * 16))
            magnitudes = builder.bitcast(bits, double)
            flags = builder.fcmp_ordered(">=", magnitudes, _everywhere(builder, least, 16))
            return builder.zext(builder.bitcast(flags, _I16), _I64)

        return types.uint64(x, y, types.int64, types.float64, types.float64), emit

    @intrinsic
    def below_16(_typing, array, _start, _value):
        """A load, a comparison, a count of the bits of its result."""

        def emit(context, builder, signature, arguments):
            array, start, value = arguments
            pointer = _vector_at(context, builder, signature.args[0], array, start)
            loaded = builder.load(pointer, align=4)
            flags = builder.icmp_signed("<", loaded, _everywhere(builder, value, 16))
            return builder.zext(builder.ctpop(builder.bitcast(flags, _I16)), _I64)

        return types.int64(array, types.int64, types.int32), emit


# ----------------------------------------------------------------------------
# Functions that several families of kernels use.

STRETCH = 1024  # elements; a multiple of those that fill a cache line


@njit(cache=True, nogil=True)
def put(stretch: Floats | Ints, array: Floats | Ints, start: int, end: int, past: bool) -> None:
    """Copy a stretch to its place in the array, past the caches or not. Only the last stretch of
    the array is shorter.
    """
    full = start + (end - start) // 16 * 16
    for i in range(start, full, 16):
        copy_16(stretch, i - start, array, i, past)
    for i in range(full, end):
        array[i] = stretch[i - start]


@njit(cache=True, nogil=True)
def mix(z: np.uint64) -> np.uint64:
    """The finalizer of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
