"""The bits of an element in a Bloom filter, as all kernels compute them.

Elements are hashed by blocks of 32, those that share a word of a bitmap. For block b

    z       = mix(b · 0x9E3779B97F4A7C15 + seed)     modulo 2**64; mix as in ``layout``
    place j = (low half of z + j · (high half of z, made odd)) mod 2**32
    word j  = place j · words >> 32
    turn j  = place j mod 32

for j = 0 .. probes - 1 (Kirsch, Mitzenmacher: Less hashing, same performance, RSA 2008,
https://doi.org/10.1002/rsa.20208). The element at bit i of the bitmap's word has bit (i + turn j)
mod 32 of word j. So a word of the bitmap is rotated and put into the filter as a whole, and looking
up 32 elements takes as many words as looking up one.

The OR of filters is the filter of the union. Every element of the union is found in it. The false
positive rate is s**probes, where s is the share of bits that are set: about 2**-probes if half are
set. It holds for every element: because of the turns, an element's bits do not depend on others of
its block. But elements of a block are looked up in the same words, so that false positives are
correlated: if the union consists of whole blocks, they come 32 at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from innet.core.errors import InputError

MAX_PROBES = 31
MAX_WORDS = 2**26 - 1  # so that bit numbers fit 31 bits


@dataclass(frozen=True, slots=True)
class Filter:
    """Size and seed of a Bloom filter.

    Attributes:
        words: of 32 bits, at least 1 and below 2**26.
        probes: bits of an element, 1 .. 31.
        seed: chooses the hash functions, 0 .. 2**63 - 1.

    Raises:
        InputError: a number outside its range.
    """

    words: int
    probes: int
    seed: int

    def __post_init__(self) -> None:
        if not (1 <= self.words <= MAX_WORDS and 1 <= self.probes <= MAX_PROBES):
            raise InputError(
                f"a filter cannot have {self.words} words and {self.probes} probes; use 1 to "
                f"{MAX_WORDS} and 1 to {MAX_PROBES}."
            )
        if not 0 <= self.seed < 2**63:
            raise InputError(f"the seed {self.seed} of a filter is not in 0 .. 2**63 - 1.")
