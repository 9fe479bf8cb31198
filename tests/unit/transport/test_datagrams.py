"""Batches of UDP datagrams over the loopback interface, with many packets in one and without."""

from __future__ import annotations

import contextlib
import select
import socket
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from innet.core.errors import InputError, NetworkError
from innet.core.packets import PacketBatch
from innet.transport.messages import Outbox, SegmentInbox, enable_gro
from innet.transport.peers import Address, PeerCounts, PeerPorts, UnknownDatagram
from innet.transport.system_calls import Arrival, SenderTable, by_port, filter_senders, find_slot
from innet.transport.udp import UdpTransport
from innet.wire import ETHERNET_HEADER, Endpoint, PacketLayout

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as _probe:
    HAS_GRO = enable_gro(_probe)
SEGMENT = 160
SEGMENTS = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(not HAS_GRO, reason="the kernel has no UDP GSO")),
]
LAYOUT = PacketLayout(32, "raw")
SO_NO_CHECK = 11


@contextlib.contextmanager
def pair():
    """A socket, and another one that is connected to it; the first takes long datagrams."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
    ):
        there.bind(("127.0.0.1", 0))
        here.bind(("127.0.0.1", 0))
        here.connect(there.getsockname())
        enable_gro(there)
        yield here, there


def received(inbox, sock, wanted):
    """What arrives until there are ``wanted`` packets, without their offset of 10 bytes."""
    found = []
    sock.settimeout(5)
    while len(found) < wanted:
        sock.recv(1, socket.MSG_PEEK)  # waits
        sock.setblocking(False)
        count = inbox.receive(sock)
        sock.settimeout(5)
        found += [
            row[10 : 10 + length].tobytes()
            for row, length in zip(inbox.data[:count], inbox.length[:count], strict=True)
        ]
    return found


@pytest.mark.parametrize("values", [32, 64, 256, 1024])
def test_as_many_frames_can_wait_as_there_is_said_to_be_room_for(values, monkeypatch):
    """Each in a datagram of its own, at a socket as a user who is not root gets it."""
    monkeypatch.setattr(
        "innet.transport.peers.widen_buffers",
        lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 106_496),
    )
    layout = PacketLayout(values, "raw")
    there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    there.bind(("127.0.0.1", 0))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here,
        contextlib.closing(PeerPorts(there, layout)) as ports,
    ):
        here.connect(there.getsockname())
        room = ports.room
        assert room > 20
        for _ in range(room):
            here.send(bytes(layout.frame_size - ETHERNET_HEADER.itemsize))
        assert ports.lost == 0
        for _ in range(room):  # and not by far
            here.send(bytes(layout.frame_size - ETHERNET_HEADER.itemsize))
        assert ports.lost > 0


@pytest.mark.parametrize("segments", SEGMENTS)
@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.sampled_from([SEGMENT, SEGMENT, SEGMENT, 1, 150, 161]), max_size=150),
    seed=st.integers(0, 1000),
)
def test_packets_arrive_as_they_were_sent(segments, lengths, seed):
    data = np.random.default_rng(seed).integers(0, 256, (len(lengths), 200), np.uint8)
    length = np.array(lengths, np.int32) + np.int32(3)
    packets = PacketBatch(data, length, np.zeros(len(lengths), np.int32))
    outbox, inbox = Outbox(segments), SegmentInbox(SEGMENT, 10, 64)
    with pair() as (here, there):
        outbox.send(here, packets, 3)
        arrived = received(inbox, there, len(lengths))
        assert inbox.receive(there) == 0
    assert arrived == [row[3:end].tobytes() for row, end in zip(data, length, strict=True)]
    assert outbox.segments == segments
    assert outbox.dropped == 0


@pytest.mark.skipif(not HAS_GRO, reason="the kernel has no UDP GSO")
@pytest.mark.parametrize("part", [100, 159, 161, 180, 400])
def test_packets_of_another_length_are_cut_apart(part):
    payload = np.random.default_rng(part).integers(0, 256, 7 * part + 5, np.uint8).tobytes()
    inbox = SegmentInbox(SEGMENT, 10)
    width = inbox.data.shape[1] - 10
    with pair() as (here, there):
        control = [(socket.IPPROTO_UDP, 103, struct.pack("=H", part))]
        here.sendmsg([payload], control)
        here.send(b"x" * SEGMENT)
        arrived = received(inbox, there, 9)
    expected = [payload[start : start + part][:width] for start in range(0, len(payload), part)]
    assert arrived == [*expected, b"x" * SEGMENT]


@pytest.mark.skipif(not HAS_GRO, reason="the kernel has no UDP GSO")
def test_a_refused_datagram_goes_in_single_packets():
    packets = PacketBatch.uniform(np.arange(5 * SEGMENT).astype(np.uint8).reshape(5, SEGMENT), 0)
    outbox, inbox = Outbox(segments=True), SegmentInbox(SEGMENT, 10)
    with pair() as (here, there):
        here.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)  # with which the kernel cuts nothing
        outbox.send(here, packets)
        arrived = received(inbox, there, 5)
    assert arrived == [row.tobytes() for row in packets.data]
    assert not outbox.segments


def test_errors_of_the_socket_are_told():
    packets = PacketBatch.uniform(np.zeros((1, 10), np.uint8), 0)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nowhere,
        pytest.raises(NetworkError, match="sending packets failed: Destination address"),
    ):
        Outbox().send(nowhere, packets)
    with pytest.raises(NetworkError, match="receiving packets failed: Bad file descriptor"):
        SegmentInbox(SEGMENT, 0).receive(nowhere)


@given(
    ports=st.lists(st.integers(-2, 8), max_size=50),
    places=st.permutations([-1, -1, 0, 1, 2, 3]),
)
def test_rows_by_port(ports, places):
    rows, ordered, unknown = by_port(np.array(ports, np.int32), np.array(places, np.int64))
    known = [
        (places[port], row) for row, port in enumerate(ports) if 0 <= port < 6 and places[port] >= 0
    ]
    assert list(zip(ordered.tolist(), rows.tolist(), strict=True)) == sorted(known)
    assert unknown == len(ports) - len(known)


# ---------------------------------------------------------------------- the ports of a switch


def peer_ports(segments=True):
    """A switch's side of datagrams, on a free port of the loopback interface."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return PeerPorts(sock, LAYOUT, segments=segments), sock.getsockname()


def connected(address):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    sock.connect(address)
    return sock, Address(*sock.getsockname())


def frames_of(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, LAYOUT.frame_size), np.uint8)


def taken(ports, wanted):
    """Payloads and ports of what arrives, until there are ``wanted`` packets."""
    found = []
    while len(found) < wanted:
        readable, _, _ = select.select([ports], [], [], 5)
        assert readable
        found += [(port, data[14:]) for port, data in ports.receive().to_packets()]
    return found


@pytest.mark.parametrize("segments", SEGMENTS)
def test_who_sends_is_known_by_the_address(segments):
    ports, address = peer_ports(segments)
    one, two = (connected(address) for _ in range(2))
    sent = [frames_of(70, 1), frames_of(3, 2)]
    outbox = Outbox(segments)
    with contextlib.closing(ports), one[0], two[0]:
        enable_gro(one[0])
        ports.admit(7, one[1])
        outbox.send(two[0], PacketBatch.uniform(sent[1], 0), 14)
        two[0].send(b"hello")
        outbox.send(one[0], PacketBatch.uniform(sent[0], 0), 14)
        assert taken(ports, 70) == [(7, frame[14:].tobytes()) for frame in sent[0]]
        assert ports.counts == PeerCounts(received=74, unknown_senders=3, wrong_length=1)
        assert ports.unknown_datagrams == [UnknownDatagram(two[1], b"hello")]
        ports.dismiss(7)
        ports.admit(3, two[1])
        ports.admit(7, one[1])
        # One among others whose length is wrong is left out, and nothing else is moved.
        one[0].send(sent[0][0, 14:].tobytes())
        one[0].send(b"long" * 200)
        one[0].send(sent[0][1, 14:].tobytes())
        assert taken(ports, 2) == [(7, frame[14:].tobytes()) for frame in sent[0][:2]]
        # And back: to each its own, in order; what is for nobody is lost.
        mixed = np.concatenate([sent[0], sent[1]])
        to = np.array([7] * 70 + [3, 4, 3], np.int32)
        ports.send(PacketBatch(mixed, np.full(73, mixed.shape[1], np.int32), to))
        assert ports.dropped == 0
        for (sock, _), expected in ((one, sent[0]), (two, sent[1][[0, 2]])):
            inbox = SegmentInbox(LAYOUT.frame_size - 14, 10)
            arrived = received(inbox, sock, len(expected))
            assert arrived == [frame[14:].tobytes() for frame in expected]


@pytest.mark.parametrize("segments", SEGMENTS)
def test_the_type_of_service_and_a_missing_checksum_are_those_of_the_first_frame(segments):
    layout = PacketLayout(32)
    worker, switch = Endpoint.of_worker(0), Endpoint.of_switch()
    with pair() as (here, there):
        there.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        there.settimeout(5)
        transport = UdpTransport(worker, switch, layout, sock=here, segments=segments)
        for service, checksum in ((2, 0), (2, 7), (0x2E << 2 | 1, 0), (0, 0)):
            frame = bytearray(layout.frame_size)
            frame[ETHERNET_HEADER.itemsize + 1] = service
            frame[layout.header_offset - 1] = checksum
            transport.send(PacketBatch.from_packets([(0, bytes(frame))]), 0.0)
            told = {each[:2]: each[2] for each in there.recvmsg(4096, 64)[1]}
            assert told[socket.IPPROTO_IP, socket.IP_TOS][0] == service
            # Many frames as one datagram always have one.
            without = here.getsockopt(socket.SOL_SOCKET, SO_NO_CHECK)
            assert without == int(not segments and checksum == 0)


def test_who_has_left_is_a_stranger_and_a_port_has_one_address():
    ports, address = peer_ports()
    one, two = (connected(address) for _ in range(2))
    (first,), (second,) = frames_of(1, 4), frames_of(1, 5)
    with contextlib.closing(ports), one[0], two[0]:

        def arrives():
            """Whose frames are taken, and for which port, if each sends one."""
            one[0].send(first[14:].tobytes())
            two[0].send(second[14:].tobytes())
            before = ports.counts.unknown_senders
            found = []
            while len(found) + ports.counts.unknown_senders - before < 2:
                assert select.select([ports], [], [], 5)[0]
                found += ports.receive().to_packets()
            whose = {first[14:].tobytes(): "one", second[14:].tobytes(): "two"}
            return [(whose[data[14:]], port) for port, data in found]

        ports.admit(7, one[1])
        ports.admit(3, two[1])
        assert arrives() == [("one", 7), ("two", 3)]
        for number, whose, message in ((-1, one, "not in 0"), (4, two, "is at port 3 already")):
            with pytest.raises(InputError, match=message):
                ports.admit(number, whose[1])
        ports.dismiss(3)
        assert arrives() == [("one", 7)]
        ports.admit(7, two[1])  # in place of who was there
        assert arrives() == [("two", 7)]
        assert ports.counts.unknown_senders == 2
        ports.dismiss(7)
        assert arrives() == []


def test_what_cannot_be_delivered_is_lost():
    ports, address = peer_ports()
    one = connected(address)
    with contextlib.closing(ports), one[0]:
        ports.admit(1, one[1])
        ports.admit(2, Address("192.0.2.1", 9))  # which a socket of the loopback cannot reach
        frames = frames_of(4, 3)
        to = np.array([1, 2, 2, 1], np.int32)
        ports.send(PacketBatch(frames, np.full(4, frames.shape[1], np.int32), to))
        assert ports.dropped == 2
        inbox = SegmentInbox(LAYOUT.frame_size - 14, 10)
        assert received(inbox, one[0], 2) == [frame[14:].tobytes() for frame in frames[[0, 3]]]


@given(
    senders=st.lists(st.integers(0, 5), max_size=60),
    known=st.sets(st.integers(0, 5)),
    seed=st.integers(0, 1000),
)
def test_only_known_senders_and_right_lengths_are_kept(senders, known, seed):
    rng = np.random.default_rng(seed)
    count = len(senders)
    data = rng.integers(0, 256, (count, 20), np.uint8)
    length = rng.choice(np.array([20, 20, 8, 3], np.int32), count)
    expected = [
        (10 + each, row.tobytes(), size)
        for each, row, size in zip(senders, data, length, strict=True)
        if each in known and size in {20, 8}
    ]
    table = SenderTable(np.zeros(8, np.int64), np.zeros(8, np.int32))
    for each in known:
        place = find_slot(each + 1000, table.keys)
        table.keys[place], table.ports[place] = each + 1000, 10 + each
    unknown_senders = sum(
        each not in known and size in {20, 8} for each, size in zip(senders, length, strict=True)
    )
    packets = np.zeros(count, np.int32), np.zeros(count, np.int32)
    arrival = Arrival(data, length, np.array(senders, np.int64) + 1000)
    kept, unknown = filter_senders(count, arrival, packets, (20, 8, 14), table)
    found = [(int(packets[0][row]), data[row].tobytes()) for row in range(kept)]
    assert found == [(port, row) for port, row, _ in expected]
    assert (packets[1][:kept] - 14).tolist() == [size for _, _, size in expected]
    assert unknown == unknown_senders
