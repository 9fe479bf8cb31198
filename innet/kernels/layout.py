"""Where an element lies in a block-hashed sketch: the definition that all kernels follow.

A gradient is cut into blocks of ``lanes`` consecutive elements. A sketch has three parts of
``part`` rows, and a row has ``lanes`` cells, so that with 16 lanes a row is one cache line. A block
is hashed to one row in each part: three rows that cannot coincide. Element ``lane`` of the block
goes to the cell (lane + turn) mod lanes of the row, negated or not; row, turn and sign depend on
the block and on the part.

    z0 = mix(block · 0x9E3779B97F4A7C15 + seed)      all modulo 2**64
    z1 = mix(z0 + 0x9E3779B97F4A7C15)
    row 0 = (low half of z0) · part >> 32
    row 1 = (high half of z0) · part >> 32, plus part
    row 2 = (low half of z1) · part >> 32, plus 2 · part
    sign of part j: negative where bit 32 + j of z1 is set
    turn of part j: bits 35 + 9·j .. 43 + 9·j of z1, modulo lanes

``mix`` is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
generators, OOPSLA 2014, https://doi.org/10.1145/2660193.2660195, section 5).

Differences with the paper on the lossless homomorphic sketch (Li et al., arXiv 2402.07529), which
leaves an element in its lane and lets its three rows coincide: there, every lane is a hypergraph of
its own, with a lanes'th of the elements, and the sketch fails when the unluckiest of these small
hypergraphs does. The turns connect the lanes to one large hypergraph while a block still touches
three cache lines.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.errors import InputError

MAX_LANES = 512  # what the nine bits of a turn can reach


@dataclass(frozen=True, slots=True)
class SketchLayout:
    """Size and seed of a sketch.

    Attributes:
        part: rows of each of the three parts, at least 1.
        lanes: elements per block and cells per row, a power of two up to 512.
        seed: chooses the hash functions, 0 .. 2**63 - 1.

    Raises:
        InputError: a number outside its range.
    """

    part: int
    lanes: int
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.lanes <= MAX_LANES or self.lanes & (self.lanes - 1):
            raise InputError(
                f"a sketch cannot have {self.lanes} lanes; use a power of two up to {MAX_LANES}."
            )
        if not (self.part >= 1 and self.cells < 2**31):
            raise InputError(f"a sketch cannot have parts of {self.part} rows; use at least 1.")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"the seed {self.seed} of a sketch is not in 0 .. 2**63 - 1.")

    @property
    def rows(self) -> int:
        return 3 * self.part

    @property
    def cells(self) -> int:
        return 3 * self.part * self.lanes
