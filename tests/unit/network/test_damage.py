"""Damage on the way: burst errors, cut packets, marks, outages and restarts, all counted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.core.errors import InputError
from innet.core.packets import PacketBatch
from innet.network import Faults, FaultyTransport, Outage
from innet.network.faults import LONGEST_BURST, corrupt, mark, truncate
from innet.transport.memory import MemoryTransport
from innet.wire import CONGESTED, Endpoint, FrameRefusal, PacketLayout, pack, parse

LAYOUT = PacketLayout(4)


def packets(count: int, listens: bool = True) -> PacketBatch:
    frames = pack(
        LAYOUT,
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        np.arange(4 * count, dtype=np.int32).reshape(count, 4),
        operation=1,
        job=1,
        epoch=0,
        sequence=1,
        slot=0,
        slot_version=0,
        worker=0,
        listens=listens,
    )
    return PacketBatch.uniform(frames, 1)


@given(st.integers(0, 2**32))
def test_corruption_is_one_short_burst_in_the_chosen_rows(seed: int) -> None:
    before = packets(5)
    after = corrupt(before, np.array([1, 3]), np.random.default_rng(seed))
    for row in range(5):
        wrong = int.from_bytes(before.data[row].tobytes(), "big") ^ int.from_bytes(
            after.data[row].tobytes(), "big"
        )
        if row in (1, 3):
            width = wrong.bit_length() - (wrong & -wrong).bit_length() + 1
            assert 1 <= width <= LONGEST_BURST
        else:
            assert wrong == 0
    assert after.length.tolist() == before.length.tolist()


def test_bursts_have_any_length_any_bits_inside_and_are_anywhere() -> None:
    before = packets(3000)
    after = corrupt(before, np.arange(3000), np.random.default_rng(0))
    flipped = np.unpackbits(before.data ^ after.data, axis=1)
    first = flipped.argmax(axis=1)
    width = flipped.shape[1] - flipped[:, ::-1].argmax(axis=1) - first
    often = np.bincount(width, minlength=LONGEST_BURST + 1)
    assert often[0] == 0
    assert len(often) == LONGEST_BURST + 1
    assert ((often[1:] > 130) & (often[1:] < 270)).all()  # 200, and five standard deviations
    inside = flipped.sum() - 2 * (width > 1).sum() - (width == 1).sum()
    assert 0.48 < inside / np.maximum(width - 2, 0).sum() < 0.52
    assert first.min() < 10
    assert (first + width).max() > flipped.shape[1] - 10


def test_corruption_of_short_packets() -> None:
    short = PacketBatch.from_packets([(1, b""), (1, b"\x00"), (1, b"\x00\x00")])
    for seed in range(50):
        after = corrupt(short, np.arange(3), np.random.default_rng(seed)).to_packets()
        assert after[0] == (1, b"")
        assert after[1][1] != b"\x00"
        assert after[2][1] != b"\x00\x00"


def test_truncated_packets_are_shorter_by_any_amount() -> None:
    before = packets(300)
    after = truncate(before, np.arange(200), np.random.default_rng(0))
    assert (after.length[:200] < LAYOUT.frame_size).all()
    assert len(set(after.length[:200].tolist())) > 50
    assert (after.length[200:] == LAYOUT.frame_size).all()


def test_marks_are_for_those_who_listen_and_the_header_stays_right() -> None:
    listening, deaf = packets(3), packets(3, listens=False)
    after, number = mark(listening, np.array([0, 2]))
    assert number == 2
    assert after.data[:, 15].tolist() == [CONGESTED, 2, CONGESTED]
    assert parse(LAYOUT, after).valid.all()
    again, _ = mark(after, np.arange(3))
    assert parse(LAYOUT, again).valid.all()
    after, number = mark(deaf, np.arange(3))
    assert number == 0
    assert after.to_packets() == deaf.to_packets()
    assert mark(PacketBatch.from_packets([(1, b"short")]), np.array([0]))[1] == 0


def test_marks_find_those_who_listen_among_others_and_any_checksum_stays_right() -> None:
    raw = pack(PacketLayout(4, "raw"), Endpoint.of_worker(0), Endpoint.of_switch(),
               np.zeros((1, 4), np.int32), operation=1, job=1, epoch=0, sequence=1, slot=0,
               slot_version=0, worker=0)  # fmt: skip
    together = [(1, bytes(raw[0]))]
    for worker in range(50):
        frame = packets(1).data[0].copy()
        frame[29], frame[24:26] = worker, 0  # another address, so another checksum
        words = frame[14:34].view(">u2").astype(np.int64).sum()
        frame[24:26] = np.array([~(words % 0xFFFF) & 0xFFFF], ">u2").view(np.uint8)
        together.append((1, bytes(frame)))
    after, number = mark(PacketBatch.from_packets(together), np.arange(51))
    assert number == 50
    assert after.to_packets()[0] == together[0]
    sums = after.data[1:, 14:34].copy().view(">u2").astype(np.int64).sum(axis=1)
    assert (sums % 0xFFFF == 0).all()  # RFC 1071


def echo(batch: PacketBatch) -> PacketBatch:
    return batch


def through(faults: Faults, batch: PacketBatch, now: float = 0.0, **more):
    transport = FaultyTransport(
        MemoryTransport(echo, [1, 2]),
        faults,
        np.random.default_rng(1),
        to_hosts=Faults(tick=0.0),
        **more,
    )
    transport.send(batch, now)
    return transport, transport.receive(now)


@pytest.mark.parametrize("name", ["corrupt", "truncate", "mark"])
def test_probabilities_are_met_and_counted(name: str) -> None:
    transport, arrived = through(Faults(**{name: 0.3}), packets(5000))
    counted = {"corrupt": "corrupted", "truncate": "truncated", "mark": "marked"}[name]
    number = getattr(transport.to_switch_faults, counted)
    assert 1300 < number < 1700
    assert len(arrived) == 5000
    batch = parse(LAYOUT, arrived)
    if name == "mark":
        assert batch.valid.all()
        assert int((arrived.data[:, 15] == CONGESTED).sum()) == number
    elif name == "truncate":
        assert batch.refusals() == {FrameRefusal.LENGTH: number}
    else:
        # What is not refused was damaged where nothing depends on it: addresses, UDP checksum.
        assert 0.7 * number < len(batch) - int(batch.valid.sum()) <= number


def test_damage_does_not_change_which_packets_are_lost() -> None:
    fates = [
        through(Faults(loss=0.5, corrupt=share), packets(100))[0].to_switch_faults.lost
        for share in (0.0, 0.9)
    ]
    assert fates[0] == fates[1]


def test_outages_cut_their_hosts_off_for_their_time() -> None:
    faults = Faults(outages=(Outage(1.0, 2.0, (2,)), Outage(5.0)), tick=0.0)
    sent = PacketBatch(packets(4).data, packets(4).length, np.array([1, 2, 1, 2], np.int32))
    for now, arrived in ((0.9, 4), (1.0, 2), (1.9, 2), (2.0, 4), (5.0, 0), (1e9, 0)):
        transport, came = through(faults, sent, now)
        assert len(came) == arrived
        assert transport.to_switch_faults.cut_off == 4 - arrived
        assert transport.to_switch_faults.lost == 0


def test_restarts_happen_once_each_at_their_time() -> None:
    happened: list[float] = []
    clock = [0.0]
    transport = FaultyTransport(
        MemoryTransport(echo, [1]),
        Faults(restarts=(2.0, 1.0)),
        np.random.default_rng(0),
        on_restart=lambda: happened.append(clock[0]),
    )
    for now in (0.5, 1.0, 1.5, 3.0, 9.0):
        clock[0] = now
        transport.receive(now)
    assert happened == [1.0, 3.0]


def test_impossible_faults_are_refused() -> None:
    with pytest.raises(InputError, match="corrupt is 2"):
        Faults(corrupt=2)
    with pytest.raises(InputError, match="outage from 3 to 2"):
        Outage(3, 2)
    for never in (-1.0, float("inf")):
        with pytest.raises(InputError, match=f"restart at {never}"):
            Faults(restarts=(never,))
        with pytest.raises(InputError, match=f"hold is {never}"):
            Faults(hold=never)
    with pytest.raises(InputError, match="pass on_restart"):
        through(Faults(restarts=(1.0,)), packets(1))
