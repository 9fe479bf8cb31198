"""The hash and checksum algorithms of BMv2, and the random numbers of ``random()``.

A hash is a function of bytes to an unsigned integer below 2**64. The CRCs follow the parameters
that BMv2 documents for its hash names (Williams, "A Painless Fuzzer to CRC Error Detection
Algorithms", 1993, gives the meaning of the parameters); ``csum16`` is the Internet checksum of
RFC 1071. Two algorithms of simple_switch are not hashes: ``round_robin`` counts its calls, and
``round_robin_consistent`` numbers its distinct inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ControlError

HashFunction = Callable[[bytes], int]


@dataclass(frozen=True, slots=True)
class CrcParameters:
    """A CRC of ``width`` bits in Williams' model."""

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflect_data: bool
    reflect_remainder: bool


CRC_PARAMETERS = {
    "crc16": CrcParameters(16, 0x8005, 0, 0, True, True),
    "crc32": CrcParameters(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True, True),
    "crcCCITT": CrcParameters(16, 0x1021, 0xFFFF, 0, False, False),
    "crc8_custom": CrcParameters(8, 0x07, 0, 0, False, False),
    "crc16_custom": CrcParameters(16, 0x8005, 0, 0, True, True),
    "crc32_custom": CrcParameters(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True, True),
    "crc64_custom": CrcParameters(64, 0x1B, 0, 0, True, True),
}
"""The initial parameters of each CRC. The control plane can change the custom ones only."""


def reflect(value: int, width: int) -> int:
    """The bits of ``value`` in reverse order."""
    return int(f"{value:0{width}b}"[::-1], 2)


@functools.cache
def _crc_table(width: int, polynomial: int) -> tuple[int, ...]:
    """The remainder of each byte followed by ``width`` zeros, high bit first."""
    top, every = 1 << (width - 1), (1 << width) - 1
    table = []
    for byte in range(256):
        remainder = byte << (width - 8)
        for _ in range(8):
            remainder = (remainder << 1 ^ (polynomial if remainder & top else 0)) & every
        table.append(remainder)
    return tuple(table)


_REFLECTED_BYTES = bytes(reflect(byte, 8) for byte in range(256))


def crc(data: bytes, parameters: CrcParameters) -> int:
    """The CRC of ``data``."""
    width, every = parameters.width, (1 << parameters.width) - 1
    table = _crc_table(width, parameters.polynomial)
    if parameters.reflect_data:
        data = data.translate(_REFLECTED_BYTES)
    remainder = parameters.initial
    for byte in data:
        remainder = table[byte ^ remainder >> (width - 8)] ^ (remainder << 8 & every)
    if parameters.reflect_remainder:
        remainder = reflect(remainder, width)
    return remainder ^ parameters.final_xor


def csum16(data: bytes) -> int:
    """The complement of the one's complement sum of 16-bit words; an odd byte is the upper half."""
    if len(data) % 2:
        data += b"\0"
    # A sum that is a positive multiple of 0xFFFF folds to 0xFFFF, not to 0.
    total = int.from_bytes(data, "big")
    return 0xFFFF - (total % 0xFFFF or (0xFFFF if total else 0))


def _xor(size: int) -> HashFunction:
    def xor(data: bytes) -> int:
        data += bytes(-len(data) % size)
        result = 0
        for start in range(0, len(data), size):
            result ^= int.from_bytes(data[start : start + size], "big")
        return result

    return xor


def identity(data: bytes) -> int:
    """The first 8 bytes as one number (of fewer bytes, those)."""
    return int.from_bytes(data[:8], "big")


_LANE = (1 << 64) - 1
_XXH = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _LANE


def _xxh_round(accumulator: int, lane: int) -> int:
    return _rotated(accumulator + lane * _XXH[1] & _LANE, 31) * _XXH[0] & _LANE


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0 (xxHash fast digest algorithm, version 0.1.1)."""
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data) - 7, 8)]
    stripes = len(data) // 32
    if stripes:
        lanes = [_XXH[0] + _XXH[1] & _LANE, _XXH[1], 0, -_XXH[0] & _LANE]
        for i, word in enumerate(words[: 4 * stripes]):
            lanes[i % 4] = _xxh_round(lanes[i % 4], word)
        state = sum(map(_rotated, lanes, (1, 7, 12, 18))) & _LANE
        for lane in lanes:
            state = (state ^ _xxh_round(0, lane)) * _XXH[0] + _XXH[3] & _LANE
    else:
        state = _XXH[4]
    state = state + len(data) & _LANE
    for word in words[4 * stripes :]:
        state = _rotated(state ^ _xxh_round(0, word), 27) * _XXH[0] + _XXH[3] & _LANE
    tail = data[8 * len(words) :]
    if len(tail) >= 4:
        half = int.from_bytes(tail[:4], "little")
        state = _rotated(state ^ half * _XXH[0] & _LANE, 23) * _XXH[1] + _XXH[2] & _LANE
        tail = tail[4:]
    for byte in tail:
        state = _rotated(state ^ byte * _XXH[4] & _LANE, 11) * _XXH[0] & _LANE
    state = (state ^ state >> 33) * _XXH[1] & _LANE
    state = (state ^ state >> 29) * _XXH[2] & _LANE
    return state ^ state >> 32


def toeplitz(data: bytes, key: bytes) -> int:
    """The Toeplitz hash of receive side scaling; a key shorter than the data is used again."""
    size = (len(data) + 3) // 4 * 4
    number = int.from_bytes(data.ljust(size, b"\0"), "big")
    repeated = (key * (size // len(key) + 2))[: size + 4]
    windows = int.from_bytes(repeated, "big")
    result = 0
    for bit in range(8 * size):
        if number >> (8 * size - 1 - bit) & 1:
            result ^= windows >> (8 * size - bit) & 0xFFFFFFFF
    return result


_PLAIN: dict[str, HashFunction] = {
    "csum16": csum16,
    "cksum16": csum16,
    "xor16": _xor(2),
    "xor32": _xor(4),
    "identity": identity,
    "xxh64": xxh64,
}

RESULT_BITS = {
    **{name: parameters.width for name, parameters in CRC_PARAMETERS.items()},
    "csum16": 16,
    "cksum16": 16,
    "xor16": 16,
    "xor32": 32,
    "identity": 64,
    "xxh64": 64,
    "toeplitz": 32,
    "round_robin": 64,
    "round_robin_consistent": 64,
}
"""The algorithms by their names in the JSON, and the width of their results."""


@dataclass(slots=True)
class HashState:
    """One hash of a program: its algorithm and the parameters that the control plane may change.

    Attributes:
        name: for messages.
        parameters: of a CRC; only those of the custom ones can be changed.
        key: of ``toeplitz``, a multiple of 4 bytes. BMv2 starts with zeros.
        count: uint64 (1,): the next value of ``round_robin`` and ``round_robin_consistent``.
        seen: the values of ``round_robin_consistent`` so far, by data.
    """

    algorithm: str
    name: str = "the hash"
    parameters: CrcParameters | None = field(init=False)
    key: bytes = field(init=False, default=bytes(4))
    count: NDArray[np.uint64] = field(init=False)
    seen: dict[bytes, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.parameters = CRC_PARAMETERS.get(self.algorithm)
        self.count = np.zeros(1, np.uint64)

    def value(self, data: bytes) -> int:
        """The hash of ``data``; KeyError for an algorithm that is not in ``RESULT_BITS``."""
        if self.parameters is not None:
            return crc(data, self.parameters)
        if self.algorithm == "toeplitz":
            return toeplitz(data, self.key)
        if self.algorithm == "round_robin":
            return self._next()
        if self.algorithm == "round_robin_consistent":
            if data not in self.seen:
                self.seen[data] = self._next()
            return self.seen[data]
        return _PLAIN[self.algorithm](data)

    def words(self) -> NDArray[np.int64]:
        """The argument of compiled code: ``crc_words``, the words of the key, or the count."""
        if self.parameters is not None:
            return np.array(crc_words(self.parameters), np.uint64).view(np.int64)
        if self.algorithm == "toeplitz":
            return np.frombuffer(self.key, ">u4").astype(np.int64)
        return self.count.view(np.int64)

    def _next(self) -> int:
        number = int(self.count[0])
        self.count[0] = number + 1 & _LANE
        return number

    def set_crc(self, parameters: CrcParameters) -> None:
        """Change a custom CRC; ControlError if this is not a custom CRC of that width."""
        if self.algorithm != f"crc{parameters.width}_custom":
            wanted = f"crc{parameters.width}_custom"
            raise ControlError(f"{self.name} is {self.algorithm}, not {wanted}")
        self.parameters = parameters

    def set_key(self, key: bytes) -> None:
        """Change the key of ``toeplitz``; ControlError for another hash or an invalid key."""
        if self.algorithm != "toeplitz":
            raise ControlError(f"{self.name} is {self.algorithm}, not toeplitz")
        if not key or len(key) % 4:
            raise ControlError(f"a key of {len(key)} bytes; toeplitz takes a multiple of 4")
        self.key = key


CRC_INITIAL, CRC_FINAL_XOR, CRC_REFLECTED, CRC_TURNED = 256, 257, 258, 259
"""Indices in ``crc_words`` after the table."""


def crc_words(parameters: CrcParameters) -> list[int]:
    """A CRC as compiled code computes it: the table of 256 bytes' remainders, then four numbers.

    Reflected data is processed with a reflected register, whose final value is the reflected
    remainder. So bytes need not be reversed; the register is reversed at the end if ``CRC_TURNED``
    is 1.
    """
    width = parameters.width
    table = list(_crc_table(width, parameters.polynomial))
    initial = parameters.initial
    if parameters.reflect_data:
        table = [reflect(table[reflect(byte, 8)], width) for byte in range(256)]
        initial = reflect(initial, width)
    turned = parameters.reflect_data != parameters.reflect_remainder
    return [*table, initial, parameters.final_xor, int(parameters.reflect_data), int(turned)]


# ----------------------------------------------------------------------------
# The stream of numbers behind ``random()``: splitmix64, the same from both engines.
#
# One word of state, which may start anywhere (Steele, Lea and Flood, "Fast splittable pseudorandom
# number generators", OOPSLA 2014, figure 17; Java's SplittableRandom). simple_switch draws from a
# generator of its own, seeded by chance, so that no program can depend on the numbers.

INCREMENT = 0x9E3779B97F4A7C15
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

_EVERY = (1 << 64) - 1


def next_word(state: NDArray[np.uint64]) -> int:
    """The next 64 random bits; updates ``state``, shape (1,)."""
    word = (int(state[0]) + INCREMENT) & _EVERY
    state[0] = word
    word = (word ^ word >> 30) * MULTIPLIERS[0] & _EVERY
    word = (word ^ word >> 27) * MULTIPLIERS[1] & _EVERY
    return word ^ word >> 31


def uniform(state: NDArray[np.uint64], low: int, high: int) -> int:
    """A uniform random number of low .. high, 0 <= low <= high < 2**64.

    Draws words, truncated to the bits of high - low, until one is not above it: at most two on
    average.
    """
    span = high - low
    every = (1 << span.bit_length()) - 1
    while True:
        word = next_word(state) & every
        if word <= span:
            return low + word
