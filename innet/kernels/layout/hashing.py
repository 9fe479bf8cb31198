"""The finalizer of SplitMix64: the hash of all sketches, filters and random numbers.

Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014,
https://doi.org/10.1145/2660193.2660195, section 5.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key_of(*what: object) -> int:
    """64 bits that name random numbers, unrelated for any two lists of words and numbers: neither
    seeds nor workers that follow each other share random numbers.
    """
    digest = hashlib.sha256(" ".join(map(str, what)).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each of the words hashed, modulo 2**64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
