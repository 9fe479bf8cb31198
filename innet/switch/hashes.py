"""The hash and checksum algorithms of BMv2, over bytes.

Each is a function of bytes to an unsigned integer below 2**64. The CRCs follow the parameters that
BMv2 documents for its hash names (Williams, "A Painless Guide to CRC Error Detection Algorithms",
1993, gives the meaning of the parameters); ``csum16`` is the Internet checksum of RFC 1071.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

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
"""What each CRC is until the control plane changes it, which only the custom ones permit."""


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


_OTHERS: dict[str, HashFunction] = {
    "csum16": csum16,
    "cksum16": csum16,
    "xor16": _xor(2),
    "xor32": _xor(4),
    "identity": identity,
}

ALGORITHMS = frozenset(_OTHERS) | frozenset(CRC_PARAMETERS)
"""The names, as the JSON uses them, that ``function`` knows."""


def function(algorithm: str, parameters: CrcParameters | None = None) -> HashFunction:
    """The function of an algorithm in ``ALGORITHMS``; ``parameters`` replace those of a CRC."""
    if algorithm in CRC_PARAMETERS:
        return functools.partial(crc, parameters=parameters or CRC_PARAMETERS[algorithm])
    return _OTHERS[algorithm]
