"""The cells of an element in a block-hashed sketch, as all kernels compute them.

A gradient is cut into blocks of ``lanes`` consecutive elements. A sketch consists of segments of
``part`` rows, and a row has ``lanes`` cells, so that with 16 lanes a row is one cache line. A block
is hashed to a first segment and to one row in it and in each of the ``hashes - 1`` segments that
follow: rows that cannot coincide. Element ``lane`` of the block goes to the cell (lane + turn) mod
lanes of the row, negated or not; row, turn and sign depend on the block and on the row's number j.

    z0 = mix(block · 0x9E3779B97F4A7C15 + seed)      all modulo 2**64
    z1 = mix(z0 + 0x9E3779B97F4A7C15)
    z2 = mix(z1 + 0x9E3779B97F4A7C15)
    first segment = (low half of z0) · starts >> 32
    row j = (first segment + j) · part + (half j · part >> 32)
        with the halves low of z1, high of z1, low of z2, high of z2
    sign j: negative where bit 32 + j of z0 is set
    turn j: bits 36 + 7·j .. 42 + 7·j of z0, modulo lanes

``mix`` is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014, https://doi.org/10.1145/2660193.2660195, section 5).

With ``starts`` = 1, *plain* hashing, row j is anywhere in the j-th of ``hashes`` parts. With more,
the hashing is *spatially coupled* (Walzer: Peeling close to the orientability threshold, SODA 2021,
https://doi.org/10.1137/1.9781611976465.131; Graf, Lemire: Binary fuse filters, JEA 2022,
https://doi.org/10.1145/3510449): the first and last segments hold fewer elements than the others,
so that peeling starts there and moves inwards, at densities at which it could not start elsewhere.
A wave of peeling only touches a few segments.

Differences with the paper on the lossless homomorphic sketch (Li et al., arXiv 2402.07529): the
paper uses plain hashing, keeps an element in its lane, and lets its rows coincide. So every lane is
a separate hypergraph with 1 / lanes of the elements, and the sketch fails if any of these small
hypergraphs does. Here the turns connect the lanes to one large hypergraph, and a block still
touches one cache line per hash.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.core.errors import InputError

MAX_LANES = 128  # limited by the seven bits of a turn
HASHES = (3, 4)


@dataclass(frozen=True, slots=True)
class SketchLayout:
    """Size and seed of a sketch.

    Attributes:
        part: rows of each segment, at least 1.
        lanes: elements per block and cells per row, a power of two up to 128.
        seed: chooses the hash functions, 0 .. 2**63 - 1.
        hashes: cells of an element, 3 or 4.
        starts: segments that an element's first row may lie in, at least 1; 1 is plain hashing.

    Raises:
        InputError: a number outside its range.
    """

    part: int
    lanes: int
    seed: int
    hashes: int = 3
    starts: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MAX_LANES or self.lanes & (self.lanes - 1):
            raise InputError(
                f"a sketch cannot have {self.lanes} lanes; use a power of two up to {MAX_LANES}."
            )
        if self.hashes not in HASHES:
            raise InputError(f"a sketch cannot have {self.hashes} hashes; use 3 or 4.")
        if not (self.part >= 1 and self.starts >= 1 and self.cells < 2**31):
            raise InputError(
                f"a sketch cannot have {self.starts} starts in segments of {self.part} rows; use "
                "at least 1 of each, and fewer than 2**31 cells in all."
            )
        if not 0 <= self.seed < 2**63:
            raise InputError(f"the seed {self.seed} of a sketch is not in 0 .. 2**63 - 1.")

    @property
    def rows(self) -> int:
        return (self.starts + self.hashes - 1) * self.part

    @property
    def cells(self) -> int:
        return self.rows * self.lanes

    @property
    def coupled(self) -> bool:
        return self.starts > 1
