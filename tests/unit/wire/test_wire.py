"""innet.wire against bytes written by hand, in both directions; impossible packets are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError, PacketError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.wire import (
    HEADER,
    MAX_VALUES,
    WITHOUT_VALUES,
    Endpoint,
    FrameRefusal,
    HeaderFlag,
    PacketLayout,
    internet_checksum,
    layout,
    pack,
    parse,
    parse_strict,
    seal,
)

WORKER = Endpoint("02:00:00:00:00:03", "10.0.0.3", 4000)
SWITCH = Endpoint("02:00:00:00:ff:fe", "10.0.255.254")

INNET_BYTES = bytes.fromhex(
    "494e 03 02"  # magic, version, operation OR
    "1234 00ff"  # job, epoch
    "fffffffe"  # sequence
    "0203 01 15"  # slot, slot version, flags result | resend | overflow
    "80000001"  # bitmap
    "0002 0120"  # worker, count
    "0002 8001"  # elements, exponent
    # The sum of all other words is 6e3ba, folded e3c0; this is the complement.
    "0000 1c3f"  # message, checksum
    "00000001 fffffffe 7fffffff"  # 1, -2, 2**31 - 1
)
FIELDS = {
    "operation": ReduceOp.OR,
    "job": 0x1234,
    "epoch": 0xFF,
    "sequence": 0xFFFFFFFE,
    "slot": 0x203,
    "slot_version": 1,
    "flags": HeaderFlag.RESULT | HeaderFlag.RESEND | HeaderFlag.OVERFLOW,
    "bitmap": 0x80000001,
    "worker": 2,
    "count": 0x120,
    "elements": 2,
    "exponent": 0x8001,
}
VALUES = np.array([[1, -2, 2**31 - 1]], np.int32)
LITERAL = {
    "udp": bytes.fromhex(
        "02000000fffe 020000000003 0800"
        # Sum of the words but the checksum: 4500+0048+4000+4011+0a00+0003+0a00+fffe = 1d95a,
        # folded d95b, complement 26a4.
        "45 00 0048 0000 4000 40 11 26a4 0a000003 0a00fffe"
        "0fa0 beef 0034 0000"
    )
    + INNET_BYTES,
    "raw": bytes.fromhex("02000000fffe 020000000003 88b5") + INNET_BYTES,
}
REASONABLE = {
    "operation": 1,
    "job": 1,
    "epoch": 0,
    "sequence": 1,
    "slot": 0,
    "slot_version": 0,
    "worker": 0,
}


def literal_frame(framing: str) -> np.ndarray:
    return np.frombuffer(LITERAL[framing], np.uint8)[None].copy()


@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_packs_to_literal_bytes(framing: str) -> None:
    frames = pack(PacketLayout(3, framing), WORKER, SWITCH, VALUES, **FIELDS)
    assert frames.dtype == np.uint8
    assert frames.tobytes() == LITERAL[framing]


@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_parses_literal_bytes(framing: str) -> None:
    batch = parse(PacketLayout(3, framing), literal_frame(framing))
    assert batch.valid.tolist() == [True]
    assert {name: int(batch.header[name][0]) for name in FIELDS} == {
        name: int(value) for name, value in FIELDS.items()
    }
    assert batch.values.dtype == np.int32
    assert batch.values.dtype.isnative
    np.testing.assert_array_equal(batch.values, VALUES)
    assert batch.refusals() == {}


def test_sizes() -> None:
    assert HEADER.itemsize == 32
    assert PacketLayout(64).frame_size == 14 + 20 + 8 + 32 + 256
    assert PacketLayout(64, "raw").frame_size == 14 + 32 + 256
    assert PacketLayout(64).values_offset == 74
    assert PacketLayout(64, "raw").header_offset == 14
    assert (
        PacketLayout(MAX_VALUES).frame_size - 14
        <= 0xFFFF
        < PacketLayout(MAX_VALUES).frame_size - 14 + 4
    )


def test_arrays_and_scalars_fill_every_row() -> None:
    layout = PacketLayout(4)
    values = np.arange(20, dtype=np.int32).reshape(5, 4)
    frames = pack(
        layout, WORKER, SWITCH, values, **{**REASONABLE, "slot": np.arange(5), "worker": 9}
    )
    batch = parse_strict(layout, frames)
    assert batch.header["slot"].tolist() == [0, 1, 2, 3, 4]
    assert batch.header["worker"].tolist() == [9] * 5
    assert batch.header["elements"].tolist() == [4] * 5
    np.testing.assert_array_equal(batch.values, values)


def test_empty_batch() -> None:
    layout = PacketLayout(32)
    frames = pack(layout, WORKER, SWITCH, np.empty((0, 32), np.int32), **REASONABLE)
    assert frames.shape == (0, layout.frame_size)
    assert len(parse(layout, frames)) == 0
    assert len(parse(layout, PacketBatch.empty())) == 0


# One damaged place each: (framing, offset of the byte, new byte, reason, what the message names).
DAMAGE = [
    ("udp", 12, 0x86, FrameRefusal.ETHERTYPE, "ethernet.ethertype is 34304"),
    ("udp", 14, 0x46, FrameRefusal.IP_VERSION, "ipv4.version_ihl is 70"),
    ("udp", 17, 0x49, FrameRefusal.IP_LENGTH, "ipv4.total_length is 73 (0x49); expected 72"),
    ("udp", 20, 0x20, FrameRefusal.IP_FRAGMENT, "ipv4.fragment is 8192"),
    ("udp", 21, 0x01, FrameRefusal.IP_FRAGMENT, "ipv4.fragment is 16385"),
    ("udp", 23, 6, FrameRefusal.IP_PROTOCOL, "ipv4.protocol is 6 (0x6); expected 17"),
    ("udp", 29, 4, FrameRefusal.IP_CHECKSUM, "checksum 9892"),
    ("udp", 36, 0, FrameRefusal.UDP_PORT, "source 4000, destination 239"),
    ("udp", 39, 0x33, FrameRefusal.UDP_LENGTH, "udp.length is 51 (0x33); expected 52"),
    ("udp", 42, 0, FrameRefusal.MAGIC, "innet.magic is 78 (0x4e); expected 0x494e"),
    ("raw", 13, 0xB6, FrameRefusal.ETHERTYPE, "expected 0x88b5"),
    ("raw", 14, 0, FrameRefusal.MAGIC, "innet.magic"),
    ("raw", 16, 1, FrameRefusal.VERSION, "innet.version is 1 (0x1); expected 3"),
    ("udp", 44, 2, FrameRefusal.VERSION, "innet.version is 2 (0x2); expected 3"),
    ("raw", 17, 0, FrameRefusal.OPERATION, "innet.operation is 0 (0x0); expected 1 .. 3"),
    ("raw", 17, 4, FrameRefusal.OPERATION, "innet.operation is 4"),
    ("raw", 28, 2, FrameRefusal.SLOT_VERSION, "innet.slot_version is 2 (0x2); expected 0 .. 1"),
    ("raw", 39, 0, FrameRefusal.ELEMENTS, "innet.elements is 0 (0x0); expected 1 .. 3"),
    ("raw", 39, 4, FrameRefusal.ELEMENTS, "innet.elements is 4"),
    ("raw", 40, 0, FrameRefusal.CHECKSUM, "innet.checksum is"),
    ("raw", 57, 0, FrameRefusal.CHECKSUM, "expected what RFC 1071 makes of header and values"),
]


@pytest.mark.parametrize(("framing", "offset", "byte", "reason", "message"), DAMAGE)
def test_damage_is_named(
    framing: str, offset: int, byte: int, reason: FrameRefusal, message: str
) -> None:
    layout = PacketLayout(3, framing)
    frames = np.repeat(literal_frame(framing), 3, axis=0)
    frames[1, offset] = byte
    batch = parse(layout, frames)
    assert batch.reason.tolist() == [0, reason, 0]
    assert batch.valid.tolist() == [True, False, True]
    assert batch.refusals() == {reason: 1}
    with pytest.raises(PacketError, match="packet 1: ") as caught:
        parse_strict(layout, frames)
    assert message in str(caught.value)


def test_either_udp_port_may_be_the_switchs() -> None:
    values = np.zeros((1, 3), np.int32)
    for source, destination in ((WORKER, SWITCH), (SWITCH, WORKER)):
        frames = pack(PacketLayout(3), source, destination, values, **REASONABLE)
        assert parse(PacketLayout(3), frames).valid.all()
    frames = pack(PacketLayout(3), WORKER, WORKER, values, **REASONABLE)
    assert parse(PacketLayout(3), frames).refusals() == {FrameRefusal.UDP_PORT: 1}


def test_outermost_reason_wins() -> None:
    frames = literal_frame("udp")
    frames[0, [12, 42, 46]] = 0
    assert parse(PacketLayout(3), frames).reason.tolist() == [FrameRefusal.ETHERTYPE]


@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_every_truncation_and_extension_is_refused(framing: str) -> None:
    literal = LITERAL[framing]
    layout = PacketLayout(3, framing)
    packets = [(0, literal[:length]) for length in range(len(literal))]
    packets += [(0, literal), (0, literal + b"\0"), (0, literal * 2)]
    batch = parse(layout, PacketBatch.from_packets(packets))
    expected = (
        [FrameRefusal.LENGTH] * len(literal) + [FrameRefusal.NONE] + [FrameRefusal.LENGTH] * 2
    )
    assert batch.reason.tolist() == expected
    assert batch.header["job"][len(literal)] == 0x1234
    only_short = parse(layout, PacketBatch.from_packets(packets[: len(literal)]))
    assert set(only_short.reason.tolist()) == {FrameRefusal.LENGTH}
    with pytest.raises(PacketError, match=rf"length is {len(literal) - 1} bytes; expected"):
        parse_strict(layout, literal[:-1])


def test_another_number_of_values_or_framing_is_refused() -> None:
    assert parse(PacketLayout(4), literal_frame("udp")).refusals() == {FrameRefusal.LENGTH: 1}
    # A raw frame as long as a UDP one is told apart by its EtherType.
    assert parse(PacketLayout(10, "raw"), literal_frame("udp")).refusals() == {
        FrameRefusal.ETHERTYPE: 1
    }


@given(st.integers(0, 32 + 12 + 42), st.binary(min_size=0, max_size=100), st.booleans())
def test_garbage_never_raises(start: int, garbage: bytes, udp: bool) -> None:
    framing = "udp" if udp else "raw"
    damaged = (LITERAL[framing][:start] + garbage)[:200]
    batch = parse(PacketLayout(3, framing), PacketBatch.from_packets([(0, damaged)]))
    assert batch.reason[0] in list(FrameRefusal)
    if batch.valid[0]:
        assert parse_strict(PacketLayout(3, framing), damaged).valid.all()
    else:
        with pytest.raises(PacketError):
            parse_strict(PacketLayout(3, framing), damaged)


@given(st.data(), st.sampled_from(["udp", "raw"]))
def test_every_burst_of_up_to_15_bits_is_caught(data: st.DataObject, framing: str) -> None:
    """Between the innet header's first bit and the last value's last, whatever they hold."""
    layout = PacketLayout(3, framing)
    words = data.draw(st.tuples(*[st.integers(-(2**31), 2**31 - 1)] * 3))
    frame = pack(layout, WORKER, SWITCH, np.array([words], np.int32), **REASONABLE)
    whole = int.from_bytes(frame.tobytes(), "big")
    burst = data.draw(st.integers(1, 2**15 - 1))
    place = data.draw(st.integers(0, 8 * (32 + 12) - burst.bit_length()))
    damaged = (whole ^ burst << place).to_bytes(layout.frame_size, "big")
    assert not parse(layout, PacketBatch.from_packets([(0, damaged)])).valid.any()


def test_sealed_frames_are_right_again() -> None:
    layout = PacketLayout(3)
    frames = np.repeat(literal_frame("udp"), 2, axis=0)
    layout.view(frames)["innet"]["job"] = [1, 2]
    assert parse(layout, frames).refusals() == {FrameRefusal.CHECKSUM: 2}
    seal(layout, frames)
    assert parse(layout, frames).header["job"].tolist() == [1, 2]
    assert parse(layout, frames).valid.all()


# A packet of a REDUCE from its owner, worker 2, and one that the owner gets of it.
BARE_BYTES = bytes.fromhex(
    "494e 03 84  0001 0000  00000001  0000 00 00  00000000"
    "0002 0000  0003 0002"  # worker, count; elements, owner
    # The sum of all other words: 494e + 0384 + 1 + 1 + 2 + 3 + 2 = 4cdb.
    "0000 b324"
)
BARE = {
    "udp": bytes.fromhex(
        "02000000fffe 020000000003 0800"
        # As above, with a total length of 12 bytes less.
        "45 00 003c 0000 4000 40 11 26b0 0a000003 0a00fffe"
        "0fa0 beef 0028 0000"
    )
    + BARE_BYTES,
    "raw": bytes.fromhex("02000000fffe 020000000003 88b5") + BARE_BYTES,
}
OWNED = {"operation": 4, "job": 1, "epoch": 0, "sequence": 1, "slot": 0, "slot_version": 0,
         "exponent": 2, "worker": 2}  # fmt: skip


@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_packets_that_end_with_the_header(framing: str) -> None:
    layout = PacketLayout(3, framing, has_owners=True)
    assert len(BARE[framing]) == layout.bare_size == layout.frame_size - 12
    batch = parse_strict(layout, BARE[framing])
    assert batch.header["operation"].tolist() == [WITHOUT_VALUES | CollectiveOp.REDUCE]
    assert batch.header["exponent"].tolist() == [2]
    # Beside packets with values, in either order, and in rows that are longer.
    whole = pack(layout, SWITCH, WORKER, VALUES, **OWNED, flags=HeaderFlag.RESULT)[0].tobytes()
    both = [(0, BARE[framing]), (0, whole), (0, BARE[framing]), (0, bytes(200))]
    batch = parse(layout, PacketBatch.from_packets(both))
    assert batch.valid.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(batch.values[1:2], VALUES)
    # A program whose chunks have no owners has no such packets, and no such operation.
    assert parse(PacketLayout(3, framing), PacketBatch.from_packets(both[:3])).refusals() == {
        FrameRefusal.LENGTH: 2,
        FrameRefusal.OPERATION: 1,
    }


@pytest.mark.parametrize(
    ("framing", "offset", "byte", "reason", "message"),
    [
        ("udp", 17, 0x44, FrameRefusal.IP_LENGTH, "total_length is 68 (0x44); expected 60"),
        ("udp", 25, 0xA4, FrameRefusal.IP_CHECKSUM, "checksum 9892"),
        ("udp", 39, 0x33, FrameRefusal.UDP_LENGTH, "udp.length is 51 (0x33); expected 40"),
        ("raw", 17, 0x80, FrameRefusal.OPERATION, "operation is 128 (0x80); expected 1 .. 6"),
        ("raw", 17, 0x87, FrameRefusal.OPERATION, "operation is 135"),
        ("raw", 41, 3, FrameRefusal.CHECKSUM, "innet.checksum is 45860"),
    ],
)
def test_damage_without_values_is_named(
    framing: str, offset: int, byte: int, reason: FrameRefusal, message: str
) -> None:
    layout = PacketLayout(3, framing, has_owners=True)
    damaged = bytearray(BARE[framing])
    damaged[offset] = byte
    with pytest.raises(PacketError, match="packet 0: ") as caught:
        parse_strict(layout, bytes(damaged))
    assert message in str(caught.value)
    assert parse(layout, np.frombuffer(damaged, np.uint8)[None]).refusals() == {reason: 1}


def test_behind_a_socket_outer_headers_are_those_of_packets_with_values() -> None:
    """Sockets take them off; what is put in their place says nothing of a datagram's length."""
    layout = PacketLayout(3, has_owners=True)
    outer = LITERAL["udp"][: layout.header_offset]
    assert parse_strict(layout, outer + BARE_BYTES).header["exponent"].tolist() == [2]
    with pytest.raises(PacketError, match="total_length is 60"):
        parse_strict(layout, BARE["udp"][: layout.header_offset] + INNET_BYTES)


@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_no_packet_ends_within_its_values(framing: str) -> None:
    layout = PacketLayout(3, framing, has_owners=True)
    whole = pack(layout, WORKER, SWITCH, VALUES, **OWNED)[0].tobytes()
    for data in (whole, BARE[framing] + bytes(12)):
        cut = [(0, data[:length]) for length in range(len(data)) if length != layout.bare_size]
        batch = parse(layout, PacketBatch.from_packets([*cut, (0, data + b"\0")]))
        assert batch.refusals() == {FrameRefusal.LENGTH: len(cut) + 1}
        assert batch.valid.sum() == 0
    # A whole packet cut at the header is no packet without values.
    assert not parse(layout, PacketBatch.from_packets([(0, whole[: layout.bare_size])])).valid.any()
    size = rf"{layout.frame_size} \(3 values, framing '{framing}'\), or {layout.bare_size} without"
    with pytest.raises(PacketError, match=rf"length is {len(whole) - 1} bytes; expected {size}"):
        parse_strict(layout, whole[:-1])


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("operation", 0),
        ("operation", 4),
        ("job", 0x10000),
        ("epoch", -1),
        ("sequence", 2**32),
        ("slot", 0x10000),
        ("slot_version", 2),
        ("worker", -1),
        ("elements", 0),
        ("elements", 4),
        ("flags", 256),
        ("bitmap", 2**32),
        ("count", 0x10000),
        ("exponent", 0x10000),
    ],
)
@pytest.mark.parametrize("as_array", [False, True])
def test_impossible_fields_are_refused(field: str, wrong: int, as_array: bool) -> None:
    value = np.array([1, wrong]) if as_array else wrong
    with pytest.raises(InputError, match=rf"header field {field} cannot be {wrong};"):
        pack(
            PacketLayout(3),
            WORKER,
            SWITCH,
            np.zeros((2, 3), np.int32),
            **{**REASONABLE, field: value},
        )


@pytest.mark.parametrize(
    "values", [np.zeros((2, 4), np.int32), np.zeros(3, np.int32), np.zeros((2, 3), np.int64)]
)
def test_impossible_values_are_refused(values: np.ndarray) -> None:
    with pytest.raises(InputError, match=r"expected int32 of shape \(n, 3\)"):
        pack(PacketLayout(3), WORKER, SWITCH, values, **REASONABLE)


@pytest.mark.parametrize("values", [0, -1, MAX_VALUES + 1])
def test_impossible_layouts_are_refused(values: int) -> None:
    with pytest.raises(InputError, match=f"{values} values per packet"):
        PacketLayout(values)


def test_unknown_framing_is_refused() -> None:
    with pytest.raises(InputError, match="unknown framing 'tcp'; choose 'udp' or 'raw'"):
        PacketLayout(3, "tcp")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mac", "ip", "port"),
    [
        ("02:00:00:00:00", "10.0.0.1", 1),
        ("02-00-00-00-00-01", "10.0.0.1", 1),
        ("02:00:00:00:00:01", "10.0.0.256", 1),
        ("02:00:00:00:00:01", "::1", 1),
        ("02:00:00:00:00:01", "10.0.0.1", 0),
        ("02:00:00:00:00:01", "10.0.0.1", 65536),
    ],
)
def test_impossible_endpoints_are_refused(mac: str, ip: str, port: int) -> None:
    with pytest.raises(InputError):
        Endpoint(mac, ip, port)


def test_default_endpoints() -> None:
    assert Endpoint.of_worker(0) == Endpoint("02:00:00:00:00:01", "10.0.0.1")
    assert Endpoint.of_worker(299) == Endpoint("02:00:00:00:01:2c", "10.0.1.44")
    assert Endpoint.of_switch(252) == Endpoint("02:00:00:00:ff:02", "10.0.255.2")
    assert Endpoint.of_switch(253) == Endpoint("02:00:00:01:00:01", "10.1.0.1")
    everyone = [Endpoint.of_worker(index) for index in range(0xFF00)]
    everyone += [Endpoint.of_switch(index) for index in range(4096)] + [Endpoint.of_server()]
    count = 0xFF00 + 4096 + 1
    assert len({each.mac for each in everyone}) == len({each.ip for each in everyone}) == count
    with pytest.raises(InputError, match="worker index -1"):
        Endpoint.of_worker(-1)
    with pytest.raises(InputError, match="switch index -1"):
        Endpoint.of_switch(-1)
    Endpoint.of_switch(65532)
    with pytest.raises(InputError, match=r"switch index 65533 is not in 0 \.\. 65532"):
        Endpoint.of_switch(65533)


def test_internet_checksum_of_rfc_1071() -> None:
    # The example of RFC 1071 section 3: the sum is ddf2.
    data = np.frombuffer(bytes.fromhex("0001f203f4f5f6f7"), np.uint8)[None]
    assert internet_checksum(data).tolist() == [0xFFFF - 0xDDF2]


@given(st.lists(st.binary(min_size=20, max_size=20), min_size=1, max_size=5))
def test_internet_checksum_is_the_naive_sum(rows: list[bytes]) -> None:
    expected = []
    for row in rows:
        total = sum(int.from_bytes(row[i : i + 2], "big") for i in range(0, 20, 2))
        while total > 0xFFFF:
            total = (total & 0xFFFF) + (total >> 16)
        expected.append(total ^ 0xFFFF)
    data = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, 20)
    assert internet_checksum(data).tolist() == expected


def test_views_do_not_copy() -> None:
    layout = PacketLayout(3)
    frames = np.zeros((2, layout.frame_size + 5), np.uint8)
    layout.view(frames)["innet"]["sequence"][1] = 0x01020304
    start = layout.header_offset + 8
    assert frames[1, start : start + 4].tolist() == [1, 2, 3, 4]
    assert not frames[0].any()


def test_a_thin_packet_stands_for_a_longer_one():
    thin = PacketLayout(1, "udp", stands_for=2229)
    assert thin.is_header_only
    assert not PacketLayout(64).is_header_only
    assert (thin.values, thin.elements) == (1, 2229)
    assert thin.frame_size == PacketLayout(1).frame_size
    assert thin.wire_size == PacketLayout(2229).frame_size
    assert PacketLayout(64).wire_size == PacketLayout(64).frame_size
    assert PacketLayout(64).elements == 64


def test_a_thin_packet_names_the_elements_of_the_one_it_stands_for():
    thin = PacketLayout(1, "raw", stands_for=256)

    def packed(*elements):
        fields = {**FIELDS, "elements": np.array(elements, np.uint16)}
        values = np.zeros((len(elements), 1), np.int32)
        return pack(thin, Endpoint.of_worker(0), Endpoint.of_switch(), values, **fields)

    frames = packed(256, 200, 1)
    assert parse_strict(thin, frames).header["elements"].tolist() == [256, 200, 1]
    assert not parse(PacketLayout(1, "raw"), frames).valid[:2].any()
    with pytest.raises(InputError, match="elements cannot be 257"):
        packed(257)


@pytest.mark.parametrize("number", [0, MAX_VALUES + 1, 65535])
def test_a_thin_packet_stands_for_one_that_ipv4_has(number):
    size = f"{PacketLayout(1).frame_size + 4 * (number - 1):,}"
    with pytest.raises(InputError, match=rf"stands for one with 1 to 16368, .* be {size} bytes"):
        PacketLayout(1, "udp", stands_for=number)


def test_packets_longer_than_jumbo_frames_are_said(caplog):
    layout._tell_long.cache_clear()
    PacketLayout(1, "udp", stands_for=2229)  # 8,976 bytes after the Ethernet header
    assert not caplog.messages
    for _ in range(2):
        PacketLayout(1, "udp", stands_for=2236)
    (said,) = caplog.messages
    assert said.startswith("packets of 2236 elements have 9,004 bytes; jumbo frames")
