"""Hash algorithms against published check values and against simple definitions."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.switch.hashes import ALGORITHMS, CrcParameters, crc, csum16, function, reflect

CHECK = b"123456789"


@pytest.mark.parametrize(
    ("algorithm", "check"),
    [
        # The check values of the CRC catalogue (reveng) for CRC-16/ARC, CRC-32 and
        # CRC-16/CCITT-FALSE; of CRC-8 (SMBUS).
        ("crc16", 0xBB3D),
        ("crc16_custom", 0xBB3D),
        ("crc32", 0xCBF43926),
        ("crc32_custom", 0xCBF43926),
        ("crcCCITT", 0x29B1),
        ("crc8_custom", 0xF4),
        ("identity", 0x3132333435363738),
        ("xor16", 0x3132 ^ 0x3334 ^ 0x3536 ^ 0x3738 ^ 0x3900),
        ("xor32", 0x31323334 ^ 0x35363738 ^ 0x39000000),
    ],
)
def test_check_values(algorithm, check):
    assert function(algorithm)(CHECK) == check


def test_parameters_replace_those_of_a_custom_crc():
    castagnoli = CrcParameters(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True, True)
    assert function("crc32_custom", castagnoli)(CHECK) == 0xE3069283
    xmodem = CrcParameters(16, 0x1021, 0, 0, False, False)
    assert crc(CHECK, xmodem) == 0x31C3


@given(st.binary(max_size=100))
def test_crc32_is_zlibs(data):
    assert function("crc32")(data) == zlib.crc32(data)


def test_csum16_of_rfc_1071():
    # The example of RFC 1071, section 3: the sum is ddf2.
    assert csum16(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
    # An IPv4 header whose checksum is b861.
    assert csum16(bytes.fromhex("450000730000400040110000c0a80001c0a800c7")) == 0xB861


@given(st.binary(max_size=60))
def test_csum16_is_the_one_complement_sum(data):
    total = 0
    padded = data + b"\0" * (len(data) % 2)
    for i in range(0, len(padded), 2):
        total += padded[i] << 8 | padded[i + 1]
        total = (total & 0xFFFF) + (total >> 16)
    assert csum16(data) == 0xFFFF - total


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 65])
def test_every_algorithm_takes_any_bytes(algorithm, data):
    assert 0 <= function(algorithm)(data) < 1 << 64


def test_reflect():
    assert reflect(0b1101, 6) == 0b101100
