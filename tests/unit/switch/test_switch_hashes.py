"""Hash algorithms against published check values and against simple definitions."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from support.switch_cases import CASES, program

from innet.core.errors import ControlError, UnsupportedError
from innet.switch import Switch
from innet.switch.jit.runtime import hashes
from innet.switch.jit.traits import ALGORITHMS
from innet.switch.state.hashes import (
    RESULT_BITS,
    CrcParameters,
    HashState,
    crc,
    csum16,
    reflect,
    toeplitz,
    xxh64,
)

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
    assert HashState(algorithm).value(CHECK) == check


def test_parameters_replace_those_of_a_custom_crc():
    castagnoli = CrcParameters(32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, True, True)
    custom = HashState("crc32_custom")
    custom.set_crc(castagnoli)
    assert custom.value(CHECK) == 0xE3069283
    xmodem = CrcParameters(16, 0x1021, 0, 0, False, False)
    assert crc(CHECK, xmodem) == 0x31C3


@given(st.binary(max_size=100))
def test_crc32_is_zlibs(data):
    assert HashState("crc32").value(data) == zlib.crc32(data)


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


@pytest.mark.parametrize("algorithm", sorted(RESULT_BITS))
@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 65])
def test_every_algorithm_takes_any_bytes(algorithm, data):
    assert 0 <= HashState(algorithm).value(data) < 1 << RESULT_BITS[algorithm]


def test_reflect():
    assert reflect(0b1101, 6) == 0b101100


@pytest.mark.parametrize(
    ("parameters", "check"),
    [
        # From the CRC catalogue: CRC-64/GO-ISO, CRC-64/ECMA-182, CRC-64/XZ, CRC-8/MAXIM-DOW.
        (CrcParameters(64, 0x1B, (1 << 64) - 1, (1 << 64) - 1, True, True), 0xB90956C775A41001),
        (CrcParameters(64, 0x42F0E1EBA9EA3693, 0, 0, False, False), 0x6C40DF5F0B497347),
        (
            CrcParameters(64, 0x42F0E1EBA9EA3693, (1 << 64) - 1, (1 << 64) - 1, True, True),
            0x995DC9BBDF1939FA,
        ),
        (CrcParameters(8, 0x31, 0, 0, True, True), 0xA1),
    ],
)
def test_crcs_of_other_widths(parameters, check):
    assert crc(CHECK, parameters) == check


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        # Test vectors that xxHash's implementations share.
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64(data, digest):
    assert xxh64(data) == digest


RSS_KEY = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        # Microsoft's "Verifying the RSS Hash Calculation": 66.9.149.187:2794 to
        # 161.142.100.80:1766, without and with the ports.
        ("420995bba18e6450", 0x323E8FC2),
        ("420995bba18e64500aea06e6", 0x51CCC178),
    ],
)
def test_toeplitz(data, digest):
    assert toeplitz(bytes.fromhex(data), RSS_KEY) == digest


def test_toeplitz_starts_with_a_key_of_zeros():
    state = HashState("toeplitz")
    assert state.value(CHECK) == 0
    state.set_key(RSS_KEY)
    assert state.value(bytes.fromhex("420995bba18e6450")) == 0x323E8FC2
    for key in (b"", b"abc"):
        with pytest.raises(ControlError, match="multiple of 4"):
            state.set_key(key)
    with pytest.raises(ControlError, match="the hash is crc32, not toeplitz"):
        HashState("crc32").set_key(RSS_KEY)
    assert state.key == RSS_KEY


def test_round_robin_counts_calls_and_its_other_form_inputs():
    calls, inputs = HashState("round_robin"), HashState("round_robin_consistent")
    assert [calls.value(data) for data in (b"a", b"b", b"a")] == [0, 1, 2]
    assert [inputs.value(data) for data in (b"a", b"b", b"a", b"c")] == [0, 1, 0, 2]


# ── Compiled ─────────────────────────────────────────────────────────────────────────────────────


@njit
def compiled_crc(data, size, words, width):
    return hashes.crc_of(data, size, words, width)


@njit
def compiled_toeplitz(data, size, key):
    return hashes.toeplitz(data, size, key)


def scratch(data):
    """``data`` as emitted code holds it."""
    return np.frombuffer(data + bytes(8), np.uint8).copy()


@given(st.data())
def test_compiled_crcs_are_the_same(data):
    width = data.draw(st.sampled_from([8, 16, 32, 64]))
    numbers = data.draw(st.lists(st.integers(0, (1 << width) - 1), min_size=3, max_size=3))
    flags = data.draw(st.lists(st.booleans(), min_size=2, max_size=2))
    state = HashState(f"crc{width}_custom")
    state.set_crc(CrcParameters(width, *numbers, *flags))
    content = data.draw(st.binary(max_size=40))
    got = compiled_crc(scratch(content), len(content), state.words(), width)
    assert got & ((1 << width) - 1) == state.value(content)


@given(st.binary(max_size=60), st.binary(min_size=1, max_size=12))
def test_compiled_toeplitz_is_the_same(content, words):
    state = HashState("toeplitz")
    state.set_key(words * 4)
    assert compiled_toeplitz(scratch(content), len(content), state.words()) == state.value(content)


OF_BYTES_ALONE = sorted(
    each for each in ALGORITHMS - {"toeplitz", "round_robin"} if hasattr(hashes, each)
)


@pytest.mark.parametrize("algorithm", OF_BYTES_ALONE)
def test_every_other_algorithm_is_the_same_compiled(algorithm):
    function = getattr(hashes, algorithm)

    @njit
    def compiled(data, size):
        return function(data, size)

    rng = np.random.default_rng(7)
    for size in (0, 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 63, 64, 100):
        content = rng.bytes(size)
        got = compiled(scratch(content), size) & ((1 << RESULT_BITS[algorithm]) - 1)
        assert got == HashState(algorithm).value(content), size


# ── In programs ──────────────────────────────────────────────────────────────────────────────────


def with_algorithms(*names):
    """The program of hashes with others than p4c names in it, one after the other."""
    document = program("switch_hashes")
    for calculation, name in zip(document["calculations"], names, strict=False):
        calculation["algo"] = name
    return document


def test_algorithms_that_only_the_json_can_name():
    # Compared with simple_switch 1.15.5 once: it computes the same.
    others = ["xxh64", "toeplitz", "crc8_custom", "crc64_custom", "crcCCITT", "xor32", "cksum16"]
    document = with_algorithms(*others, "round_robin", *others)
    sent = []
    for engine in ("interpret", "jit"):
        switch = Switch.load(document, engine=engine)
        switch.command(f"set_toeplitz_hash_key calc_0 {RSS_KEY.hex()}")
        parameters = CrcParameters(64, 0x42F0E1EBA9EA3693, 1 << 63, 5, False, True)
        switch.control.set_crc("calc_2", parameters)
        sent.append(switch.process(CASES["switch_hashes"].packets()))
        sent.append(switch.process(CASES["switch_hashes"].packets()))
    assert sent[:2] == sent[2:]
    assert sent[0] != sent[1], "round_robin goes on where it was"


def test_what_an_engine_does_not_have_is_named():
    remembering = with_algorithms("round_robin_consistent")
    assert len(Switch.load(remembering, "interpret").process([(0, bytes(30))])) == 1
    with pytest.raises(UnsupportedError, match="the hash algorithm round_robin_consistent"):
        Switch.load(remembering, "jit")
    for engine in ("interpret", "jit"):
        with pytest.raises(UnsupportedError, match="algorithm random"):
            Switch.load(with_algorithms("random"), engine)


def test_keys_are_digits():
    switch = Switch.load(with_algorithms("toeplitz"), "interpret")
    for command in ("calc zz", "calc 010203", "calc_0 00000001", "nothing 00000001"):
        with pytest.raises(ControlError):
            switch.command(f"set_toeplitz_hash_key {command}")
    assert switch.state.hashes[0].key == bytes(4)


def test_a_checksum_may_be_held_in_metadata():
    document = program("switch_checksums")
    [checksum] = [each for each in document["checksums"] if each["name"] == "cksum_2"]
    checksum["target"] = ["standard_metadata", "mcast_grp"]
    switches = [Switch.load(document, engine) for engine in ("interpret", "jit")]
    packets = CASES["switch_checksums"].packets()
    assert switches[0].process(packets) == switches[1].process(packets)
    wrong = [switch.statistics.checksum_errors for switch in switches]
    assert wrong[0] == wrong[1] > 100
