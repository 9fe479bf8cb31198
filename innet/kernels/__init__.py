"""Kernels: functions from arrays to arrays, in three implementations, without codecs or packets.

``get("reference")`` is the oracle: plain NumPy and Python that can be checked by reading.
``get("cpu")`` is compiled by Numba, ``get("cuda")`` by numba-cuda for a GPU. All take the same
arguments and return the same bits; ``cuda`` also takes arrays on the GPU.

Common to all: arrays are one-dimensional and C-contiguous. Inputs are not modified unless the
method says so. Floats are finite unless the method looks for those that are not. Arrays have fewer
than 2**31 elements, so that an index fits an int32. A *bitmap* of n elements is ceil(n / 32) int32
words, element i at bit i mod 32 (the least significant is 0) of word i div 32. Scratch memory stays
below twice the gradient, except for peels of more than a quarter of its elements.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import SimpleNamespace
from typing import Protocol, cast

from innet.core.errors import InputError, UnknownNameError
from innet.kernels import gpu
from innet.kernels.arrays import Doubles, Floats, Ints, Longs
from innet.kernels.layout.bloom import Filter
from innet.kernels.layout.count_sketch import CountLayout
from innet.kernels.layout.formats import NumberFormat
from innet.kernels.layout.lhc import SketchLayout
from innet.kernels.layout.limbs import Limbs

__all__ = ["CountLayout", "Filter", "Kernels", "Limbs", "SketchLayout", "get", "names"]

#: Each name is a folder of ``innet.kernels`` with a file for every family of kernels.
_NAMES = ("cpu", "cuda", "reference")
_FAMILIES = (
    "bitmap",
    "blocks",
    "bloom",
    "chunks",
    "count_sketch",
    "fixed_point",
    "formats",
    "hadamard",
    "lhc",
    "limbs",
    "low_rank",
    "packing",
    "residual",
    "statistics",
    "topk",
)


class Kernels(Protocol):
    """What every implementation provides; the modules named in ``names()`` are implementations."""

    def absmax_nnz(self, x: Floats, /) -> tuple[int, int, int]:
        """What a quantizer and an input check need to know of x, shape (n,), from one pass.

        Returns:
            The bits of max |x| as an integer (the bits of non-negative floats have the order of the
            floats); how many elements are not zero; the index of the first element that is NaN or
            infinite, or -1. If there is one, the first two are undefined.
        """
        ...

    def absmax_nnz_sparse(
        self, x: Floats, most: int, /
    ) -> tuple[int, int, int, tuple[Ints, Floats] | None]:
        """``absmax_nnz``, and from the same pass the elements that are not zero: their indices,
        ascending, and their values, both of shape (m,). None if there are more than ``most``.
        """
        ...

    def top_k(self, x: Floats, k: int, /) -> tuple[Ints, Floats]:
        """The k elements of largest magnitude, 0 <= k <= n; of equal ones the first.

        Returns:
            Their indices, ascending, shape (k,), and their values, shape (k,).
        """
        ...

    def add_scaled(self, x: Floats, y: Floats, weight: float, /) -> tuple[Floats, int]:
        """X + weight · y, and the bits of its largest magnitude, as in ``absmax_nnz``.

        The weight is rounded to float32, and so is the product before it is added. The sum may be
        infinite.
        """
        ...

    def low_pass(
        self, memory: Floats, gradient: Floats, weight: float, indices: Ints, taken: Floats, /
    ) -> tuple[Floats, Floats, int]:
        """Add a share of the gradient to a memory, except where the sum of both is sent.

        Args:
            memory: shape (n,).
            gradient: shape (n,).
            weight: the share, above 0, at most 1; rounded to float32.
            indices: shape (m,), ascending and distinct: where memory + gradient is sent.
            taken: shape (n,), what ``add_scaled`` of these three returned. It may be overwritten.

        Returns:
            The new memory, shape (n,): ``taken``, but (1 - weight) · memory + 0 at the indices,
            each operation rounded; memory + gradient at the indices, shape (m,); the bits of the
            largest magnitude of the new memory at the indices.
        """
        ...

    def top_k_residual(
        self, gradient: Floats, residual: Floats, k: int, /
    ) -> tuple[Ints, Floats, Floats]:
        """``top_k`` of gradient + residual, and that sum with the selected set to zero.

        Elements whose sum is infinite or NaN count as the largest, NaN as larger than infinity.

        Returns:
            Indices and values as ``top_k``, and the rest, shape (n,): a new array.
        """
        ...

    def select_threshold(self, x: Floats, threshold: float, /) -> tuple[Ints, Floats]:
        """The elements with |x| >= threshold > 0, compared without rounding.

        Returns:
            Their indices, ascending, and their values, both of shape (m,).
        """
        ...

    def select_threshold_residual(
        self, gradient: Floats, residual: Floats, threshold: float, /
    ) -> tuple[Ints, Floats, Floats]:
        """``select_threshold`` of gradient + residual, and that sum with the selected set to zero.

        A sum that is infinite or NaN reaches every threshold.

        Returns:
            Indices and values as ``select_threshold``, and the rest, shape (n,): a new array.
        """
        ...

    def chunk_argmax(self, x: Floats, chunk: int, /) -> Ints:
        """The index of the largest magnitude in each of the ceil(n / chunk) chunks of consecutive
        elements, of which the last may be shorter; of equal ones the first.
        """
        ...

    def add_scaled_argmax(
        self, x: Floats, y: Floats, weight: float, parts: Longs, /
    ) -> tuple[Floats, int, Ints]:
        """``add_scaled``, and ``chunk_argmax`` of parts of x + y, which may be infinite.

        Args:
            x: shape (n,).
            y: shape (n,).
            weight: of y in the sum that is returned.
            parts: shape (p, 3): begin, end and length of a chunk of each part, ascending, none of
                them empty.

        Returns:
            X + weight · y and the bits of its largest magnitude; the index of the largest |x + y|
            of each chunk, ascending.
        """
        ...

    def select_above_chunk_max(
        self, x: Floats, gradient: Floats, weight: float, chunk: int, /
    ) -> tuple[Ints, Floats]:
        """The elements with |x + weight · gradient| >= m > 0, computed in float64, m the largest
        |x| of the element's chunk of consecutive elements (the last may be shorter).

        Returns:
            Their indices, ascending, and m of each chunk, shape (ceil(n / chunk),).
        """
        ...

    def absmin_count(self, x: Floats, least: float, /) -> tuple[float, int]:
        """The smallest |x| >= least, or infinity if there is none; and how many there are.

        Compared without rounding. Least is 0.0 for all elements.
        """
        ...

    def moments(self, x: Floats, shift: float, least: float, /) -> tuple[float, float]:
        """The sums of |x| - shift and of its square over the elements with |x| >= least, in
        float64; each term is rounded once.

        Every implementation returns the same bits: element i is added to lane i mod ``LANES``
        (512), in ascending order; then the upper half of the lanes is added to the lower half until
        one is left.
        """
        ...

    def abs_product(self, x: Floats, /) -> tuple[float, int]:
        """The product of all |x| that are not zero as f · 2**e with 1 <= f < 2.

        f is multiplied in float64 in the order in which ``moments`` adds, so that every
        implementation returns the same bits. Sums of logarithms would differ.
        """
        ...

    def quantize(self, x: Floats, scale: float, /) -> Ints:
        """round(x · scale) in float64, half to even; the caller keeps the results in int32."""
        ...

    def quantize_stochastic(self, x: Floats, scale: float, key: int, /) -> Ints:
        """Round x · scale towards or away from zero by chance, without bias.

        t = floor(fl(|x| · scale · 2**32)), below 2**63, and for element i, modulo 2**64, r =
        mix(key + (i + 1) · 0x9E3779B97F4A7C15) >> 32, with ``mix`` of
        ``innet.kernels.layout.hashing``. The magnitude is (t + r) >> 32, rounded up with a
        probability of (t mod 2**32) / 2**32; the sign is that of x. The caller keeps the results in
        int32.

        Args:
            x: shape (n,).
            scale: at least 0.
            key: names the random numbers, 0 .. 2**64 - 1.
        """
        ...

    def dequantize(self, integers: Ints, step: float, /) -> Floats:
        """Integers · step, computed in float64 and rounded to float32.

        Infinite where too large, and 0.0, never -0.0, where too small.
        """
        ...

    def block_magnitudes(self, x: Floats, block: int, /) -> Ints:
        """The bits of the largest magnitude of each of the ceil(n / block) blocks of consecutive
        elements, of which the last may be shorter.
        """
        ...

    def round_to_format(
        self, x: Floats, powers: Floats, block: int, form: NumberFormat, key: int | None, /
    ) -> Floats:
        """X · power, a float32, rounded to a format's number; what is larger becomes the largest.

        Args:
            x: shape (n,).
            powers: of each of the ceil(n / block) blocks.
            block: elements of a block.
            form: a format of ``innet.kernels.layout.formats``.
            key: None rounds to the nearest number, of two to the even one. Otherwise, with steps of
                the format at the product, rounding is by chance and without bias, as in
                ``quantize_stochastic`` with this key; below 2**-126 with bf16's lowest step.
        """
        ...

    def quantize_to_format(  # noqa: PLR0917 - kernels are called by position
        self,
        x: Floats,
        powers: Floats,
        finer: Floats,
        block: int,
        form: NumberFormat,
        most: int,
        key: int | None,
        /,
    ) -> Ints:
        """X · power, rounded to a format without an end, times ``finer``, rounded once more to an
        integer; what is larger than ``most`` becomes that.

        By chance both roundings are one, to a multiple of the larger of the format's step and the
        integer's: that has the distribution of one after the other.

        Args:
            x: shape (n,).
            powers: of each of the ceil(n / block) blocks.
            finer: of each block, integers in 1, a power of two; products are below 2**22.
            block: elements of a block.
            form: as for ``round_to_format``.
            most: below 2**22.
            key: as for ``round_to_format``.
        """
        ...

    def dequantize_blocks(self, integers: Ints, steps: Doubles, block: int, /) -> Floats:
        """``dequantize``, with a step for each of the ceil(n / block) blocks."""
        ...

    def lowest_exponent(self, x: Floats, /) -> int:
        """The exponent of the lowest bit that is set in any element, -149 .. 127; 128 for zeros.

        All elements are multiples of 2**exponent.
        """
        ...

    def split_limbs(self, x: Floats, limbs: Limbs, /) -> Ints:
        """The limbs of every element, shape (count · n,): all lowest ones, then the next."""
        ...

    def join_limbs(self, sums: Ints, limbs: Limbs, /) -> Floats:
        """The float32 nearest to the number whose limbs add up to ``sums``, shape (count · n,).

        Rounded once, half to even, for any number of limbs; infinite where IEEE 754 rounds to
        infinity, and 0.0, never -0.0, if the number is zero.
        """
        ...

    def pack(self, integers: Ints, lanes: int, bits: int, /) -> Ints:
        """Words of several small integers each, shape (ceil(n / lanes),) = (w,).

        Word j is the sum of its integers j, w + j, 2·w + j, ..., the l-th of them times
        2**(l · bits). So sums of words are the words of the sums. If the magnitudes of the sums
        are below 2**(bits - 1), no lane carries into another, and no word overflows int32.

        Args:
            integers: shape (n,), of such magnitudes.
            lanes: integers in a word, 1 .. 32 div bits.
            bits: of each.
        """
        ...

    def unpack(self, words: Ints, size: int, lanes: int, bits: int, /) -> Ints:
        """The inverse of ``pack``, shape (size,)."""
        ...

    def pack_bits(self, integers: Ints, bits: int, /) -> Ints:
        """Integers of a few bits each, one after the other, shape (ceil(n · bits / 32),).

        Bit b of integer i is bit i · bits + b of a stream; bit s of the stream is bit s mod 32 of
        word s div 32. Bits after the last integer are zero.

        Args:
            integers: shape (n,), from 0 to 2**bits - 1.
            bits: of each, 1 .. 31.
        """
        ...

    def unpack_bits(self, words: Ints, size: int, bits: int, /) -> Ints:
        """The inverse of ``pack_bits``, shape (size,)."""
        ...

    def block_squares(self, x: Floats, block: int, /) -> Doubles:
        """The sum of squares of each of the ceil(n / block) blocks of consecutive elements.

        Every implementation returns the same bits: element i of a block is added, in float64, to
        lane i mod ``SQUARES_LANES`` (32) in ascending order; then the upper half of the lanes is
        added to the lower half until one is left.
        """
        ...

    def hadamard(self, x: Floats, scales: Doubles, block: int, key: int, /) -> Ints:
        """The randomized Hadamard transform of round(x · scale), not scaled itself.

        Args:
            x: shape (n,).
            scales: of each of the ceil(n / block) blocks; so small that the magnitudes of a block's
                rounded elements add up to less than 2**31.
            block: elements of a block, a power of two, at most 8192.
            key: names the signs, 0 .. 2**64 - 1; see ``innet.kernels.layout.hadamard``.

        Returns:
            Shape (padded(n, block),): the last block is filled up to a power of two.
        """
        ...

    def hadamard_inverse(
        self, integers: Ints, steps: Doubles, block: int, key: int, size: int, /
    ) -> Floats:
        """The first ``size`` elements of D · H · integers · step, in float64, rounded to float32.

        H · H is the block's length, which the steps, one for each block, must hold.
        Infinite where too large, and 0.0, never -0.0, where too small. The magnitudes of a block's
        integers add up to less than 2**31.
        """
        ...

    def quantize_to_table(
        self, integers: Ints, scales: Doubles, table: Ints, block: int, key: int, /
    ) -> Ints:
        """Round each element at random, without bias, to one of its two neighbors in a table.

        For element i, p = integer · scale + g / 2, clamped to 0 .. g, lies between neighboring
        entries a <= p < b of the table (the last two if p = g). Let r be the low half, for odd i
        the high half, of mix(key + (i div 2 + 1) · 0x9E3779B97F4A7C15). The result is b if
        r · (b - a) < (p - a) · 2**32, else a. The comparison is exact in float64.

        Args:
            integers: shape (n,).
            scales: of each block of consecutive elements.
            table: ascending, from 0 to g, at least two entries.
            block: elements of a block.
            key: names the random numbers, 0 .. 2**64 - 1.
        """
        ...

    def project_rows(self, x: Floats, columns: int, factor: Floats, /) -> Doubles:
        """A matrix times several vectors, in float64: sum k · rows + i is row i times vector k.

        Products of two float32 are exact. Every implementation returns the same bits: the product
        in column j is added to lane j mod ``ROW_LANES`` (32) in ascending order; then the upper
        half of the lanes is added to the lower half until one is left.

        Args:
            x: shape (rows · columns,), row by row.
            columns: at least 1.
            factor: shape (rank · columns,), vector by vector.
        """
        ...

    def project_columns(self, x: Floats, columns: int, factor: Floats, /) -> Doubles:
        """The transposed matrix times several vectors, in float64: sum k · columns + j is column j
        times vector k. Rows are added in ascending order.

        Args:
            x: shape (rows · columns,), row by row.
            columns: at least 1.
            factor: shape (rank · rows,), vector by vector.
        """
        ...

    def factor_product(self, left: Floats, right: Floats, rank: int, /) -> Floats:
        """The product of two factors, shape (rows · columns,), row by row.

        Element (i, j) is the sum over k, ascending, of left[k · rows + i] · right[k · columns + j]
        in float64, rounded to float32: infinite where too large, and 0.0, never -0.0, where too
        small.
        """
        ...

    def scatter(self, indices: Ints, integers: Ints, size: int, out: Ints | None = None, /) -> Ints:
        """A dense array, shape (size,), with integers at indices and 0 elsewhere.

        Args:
            indices: shape (m,), ascending and distinct.
            integers: shape (m,).
            size: how many elements there are.
            out: takes them, on the CPU; by default a new array.
        """
        ...

    def nonzero_bitmap(self, indices: Ints | None, integers: Ints, size: int, /) -> Ints:
        """A bitmap, ceil(size / 32) words, of the elements whose integers are not zero.

        Args:
            indices: shape (m,), ascending and distinct; None stands for 0 .. size - 1.
            integers: shape (m,).
            size: how many elements there are.
        """
        ...

    def gather_sparse(self, indices: Ints, integers: Ints, positions: Ints, /) -> Ints:
        """The integers at the positions, 0 where there is none.

        Args:
            indices: shape (m,), ascending and distinct, of the integers.
            integers: shape (m,).
            positions: shape (p,), ascending and distinct.

        Returns:
            Shape (p,).
        """
        ...

    def popcount(self, bitmap: Ints, /) -> int:
        """How many bits are set."""
        ...

    def bitmap_to_indices(self, bitmap: Ints, size: int, /) -> Ints:
        """The indices of the set bits below size, ascending."""
        ...

    def block_bitmap(self, integers: Ints, block: int, /) -> Ints:
        """A bitmap of the ceil(n / block) blocks of consecutive integers (the last may be shorter):
        a bit is set where a block has an integer that is not zero.
        """
        ...

    def gather_blocks(self, integers: Ints, blocks: Ints, block: int, /) -> Ints:
        """The integers of the blocks with these indices, ascending, one block after the other."""
        ...

    def scatter_blocks(self, blocks: Ints, words: Ints, block: int, size: int, /) -> Ints:
        """The inverse of ``gather_blocks``: a dense array, shape (size,), with 0 elsewhere."""
        ...

    def count_sketch_encode(self, x: Floats, layout: CountLayout, /) -> Floats:
        """The cells of x's count sketch, shape (layout.cells,): signed sums of the elements.

        The sums are of integers, round(x · 2**s) in int64. 2**s is the power of two that brings the
        largest magnitude into 2**30 .. 2**31. So fewer than 2**31 elements cannot overflow, and the
        order does not matter. Each sum becomes a float32, at most the largest finite one.
        """
        ...

    def count_sketch_estimate(self, sketch: Ints, size: int, layout: CountLayout, /) -> Floats:
        """For each element the median of its cells over the rows, with its signs; shape (size,).

        The cells are above -2**31. The median is an integer, which is then rounded to float32.
        """
        ...

    def lhc_encode(
        self, indices: Ints | None, integers: Ints, size: int, layout: SketchLayout, /
    ) -> tuple[Ints, Ints]:
        """Bitmap and sketch of a worker's integers; zeros do not change them.

        Args:
            indices: shape (m,), ascending and distinct; None stands for 0 .. size - 1.
            integers: shape (m,).
            size: how many elements the whole gradient has.
            layout: where an element goes in the sketch.

        Returns:
            The bitmap, ceil(size / 32) words, and the sketch, ``layout.cells`` words: each cell
            holds the signed sum, modulo 2**32, of the elements that hash to it.
        """
        ...

    def lhc_occupancy(self, bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
        """How many elements of the bitmap each cell holds; shape (layout.cells,)."""
        ...

    def lhc_peel(
        self, bitmap: Ints, sketch: Ints, size: int, layout: SketchLayout, /
    ) -> tuple[tuple[Ints, Ints], Ints]:
        """The integers behind the sum of sketches and the OR of bitmaps.

        While some cell holds only one element, that element is read off and subtracted from its
        other cells. The elements that remain, the 2-core of the hypergraph, do not depend on the
        order. Exact modulo 2**32.

        Returns:
            The bitmap's elements below size, ascending, with their integers, 0 if not recovered;
            and the bitmap of those that were not recovered, all zero if all were.
        """
        ...

    def bloom_insert(self, bitmap: Ints, shape: Filter, /) -> Ints:
        """The Bloom filter of the bitmap's elements, ``shape.words`` words."""
        ...

    def bloom_query(self, words: Ints, size: int, shape: Filter, /) -> Ints:
        """A bitmap of the elements below size whose bits are all set in the filter."""
        ...

    def lhc_unblock(self, bitmap: Ints, size: int, layout: SketchLayout, /) -> Ints:
        """A bitmap of elements without which a sketch of the bitmap can be peeled completely.

        Peel, take the first element that remains, and repeat until none remains. When the values
        of the taken elements are known, a peel of the others cannot get stuck.
        """
        ...


def get(name: str) -> Kernels:
    """The kernels of that name.

    Raises:
        UnknownNameError: no such kernels; the message lists the names.
        MissingToolError: they cannot run here; the message says what is missing.
        InputError: NUMBA_DISABLE_JIT is set.
    """
    if name not in _NAMES:
        raise UnknownNameError("kernels", name, _NAMES)
    if name == "cpu":
        _refuse_without_compiler()
    if name == "cuda" and (error := gpu.missing()):
        raise error
    return _loaded(name)


@cache
def _refuse_without_compiler() -> None:
    from numba import config  # noqa: PLC0415 - the oracle needs no Numba

    if config.DISABLE_JIT:  # type: ignore[attr-defined] # which numba sets when it is imported
        raise InputError(
            'the kernels "cpu" are compiled with Numba, which NUMBA_DISABLE_JIT turns off; unset it'
        )


@cache
def _loaded(name: str) -> Kernels:
    """All methods of ``Kernels``, each from the file of its family."""
    wanted = {each for each in vars(Kernels) if not each.startswith("_")}
    found: dict[str, object] = {}
    for family in _FAMILIES:
        module = vars(importlib.import_module(f"innet.kernels.{name}.{family}"))
        # Skip functions that a file imports from another family.
        here = {
            each for each in wanted & module.keys() if module[each].__module__ == module["__name__"]
        }
        found.update((each, module[each]) for each in here)
    assert found.keys() == wanted, f"{name} lacks {sorted(wanted - found.keys())}"
    return cast("Kernels", SimpleNamespace(__name__=name, **found))


def names() -> list[str]:
    """The names of the kernels that can run here."""
    return [name for name in _NAMES if name != "cuda" or gpu.missing() is None]
