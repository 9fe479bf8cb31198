"""A worker that is driven in compiled code does what one does that is driven by Python."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import replace

import numpy as np
import pytest

from innet.errors import NetworkError, StalledError
from innet.fabric import Faults, FaultyFabric, MemoryFabric
from innet.fabric.udp import UdpFabric
from innet.packets import PacketBatch
from innet.protocol import Membership, SlotWorker, Timing
from innet.streaming import Streamer, streamer_of
from innet.wire import Endpoint, Flag, Layout, pack
from innet.words import Operation, Segment

LAYOUT = Layout(5)
MEMBER = Membership(worker=1, workers=3, job=7, epoch=9, window=8)
ME, SWITCH = Endpoint.of_worker(1), Endpoint.of_switch()
TIMING = Timing(timeout=5.0, max_timeout=5.0, give_up=20.0)
HEADERS = LAYOUT.header_offset


def new_worker(timing: Timing = TIMING) -> SlotWorker:
    return SlotWorker(LAYOUT, MEMBER, source=ME, switch=SWITCH, timing=timing)


@contextlib.contextmanager
def link(segments: bool):
    """A worker's fabric, and the socket at its other end."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as switch,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        for each in (switch, sock):
            each.bind(("127.0.0.1", 0))
        switch.connect(sock.getsockname())
        sock.connect(switch.getsockname())
        switch.setblocking(False)
        with contextlib.closing(
            UdpFabric(ME, SWITCH, LAYOUT, sock=sock, segments=segments)
        ) as fabric:
            yield fabric, switch


def results_by_chance(rng, chunks: list[int], sent: int) -> np.ndarray:
    """Results of ``chunks`` among results of others, damaged ones and such of other jobs."""
    frames = []
    for chunk in chunks:
        fields = {"job": 7, "flags": Flag.RESULT, "bitmap": 0b111, "count": 3}
        other = rng.integers(6)
        if other == 0:
            fields["job"] = 8
        frames.append(result(rng, chunk, **fields))
        if other == 1:
            frames.append(frames[-1])
        elif other == 2:
            frames[-1][0, -1] ^= 1
        elif other == 3:
            frames.append(result(rng, int(rng.integers(sent + 9)), **fields))
    return np.concatenate(frames) if frames else np.empty((0, LAYOUT.frame_size), np.uint8)


def result(rng, chunk: int, **fields: int) -> np.ndarray:
    values = rng.integers(-(2**31), 2**31, (1, LAYOUT.values)).astype(np.int32)
    more = {"slot": chunk % 8, "slot_version": chunk // 8 % 2, "sequence": chunk + 1}
    more |= {"operation": Operation.SUM, "epoch": 9, "worker": 1}
    more |= {"elements": 2 if chunk == 39 else 5}  # the last one is not full
    return pack(LAYOUT, SWITCH, ME, values, **fields, **more)


def arrived(sock: socket.socket) -> list[bytes]:
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(sock.recv(4096))
    return frames


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_equal_to_what_python_drives(segments: bool, seed: int) -> None:
    """Frames, counters, slots and results, whatever comes."""
    rng = np.random.default_rng(seed)
    words = rng.integers(-99, 99, 5 * 40 - 3).astype(np.int32)
    end, twin = new_worker(), new_worker()
    with link(segments) as (fabric, switch):
        streamer = streamer_of(end, fabric)
        for each in (end, twin):
            each.start([Segment(Operation.SUM, words)], 0.0)
        first = end.outgoing(0.0)
        np.testing.assert_array_equal(first, twin.outgoing(0.0))
        under_way = set(range(8))
        for _ in range(300):
            chosen = [chunk for chunk in sorted(under_way) if rng.random() < 0.5]
            frames = results_by_chance(rng, chosen, max(under_way))
            for frame in frames:
                switch.send(frame[HEADERS:].tobytes())
            assert streamer._turn(0.0, 64) == (len(frames) > 0)
            twin.receive(frames, 0.0)
            expected = twin.outgoing(0.0)
            assert arrived(switch) == [frame[HEADERS:].tobytes() for frame in expected]
            assert end.counters == twin.counters
            for name in ("_chunk", "_state"):
                np.testing.assert_array_equal(getattr(end, name), getattr(twin, name))
            under_way = set(twin._chunk[twin._state == 2].tolist())
            if twin.done:
                break
        assert end.done
        assert twin.counters.refused["job"]
        assert twin.counters.refused["checksum"]
        assert twin.counters.duplicates
        np.testing.assert_array_equal(end.results()[0], twin.results()[0])


def test_timers_of_chunks_that_were_sent_in_compiled_code_run() -> None:
    end = new_worker()
    with link(True) as (fabric, switch):
        streamer = streamer_of(end, fabric)
        end.start([Segment(Operation.SUM, np.zeros(5 * 9, np.int32))], now := fabric.now())
        fabric.send(PacketBatch.uniform(end.outgoing(now), 0), now)
        fields = {"job": 7, "flags": Flag.RESULT, "bitmap": 0b111, "count": 3}
        for chunk in range(8):
            frame = result(np.random.default_rng(0), chunk, **fields)
            switch.send(frame[0, HEADERS:].tobytes())
        assert streamer._turn(now, 64)
        sent = fabric.now()
        assert end.next_deadline() == pytest.approx(sent + 5.0, abs=1.0)
        again = end.outgoing(end.next_deadline())
        assert LAYOUT.view(again)["innet"]["sequence"].tolist() == [9]
        with pytest.raises(StalledError, match="2 transmissions"):
            end.outgoing(sent + 20.0)


def test_who_gets_no_answer_gives_up() -> None:
    end = new_worker(Timing(timeout=0.05, max_timeout=0.05, give_up=0.2))
    with link(True) as (fabric, _):
        end.start([Segment(Operation.SUM, np.zeros(5, np.int32))], now := fabric.now())
        with pytest.raises(StalledError, match="sequence 1"):
            streamer_of(end, fabric).run(now)


def test_a_socket_that_is_gone_is_named() -> None:
    end = new_worker()
    with link(True) as (fabric, _):
        streamer = streamer_of(end, fabric)
        end.start([Segment(Operation.SUM, np.zeros(5, np.int32))], now := fabric.now())
        descriptor = fabric.link()._replace(descriptor=-1)
        fabric.link = lambda: descriptor  # type: ignore[method-assign]
        with pytest.raises(NetworkError, match="receiving packets failed"):
            streamer.run(now)


def test_what_needs_python_between_batches_is_driven_by_it() -> None:
    with link(True) as (fabric, _):
        assert isinstance(streamer_of(new_worker(), fabric), Streamer)
        for timing in (replace(TIMING, window_control="aimd"), replace(TIMING, partial_after=1.0)):
            assert streamer_of(new_worker(timing), fabric) is None
        faulty = FaultyFabric(fabric, Faults(loss=0.1), np.random.default_rng(0))
        assert streamer_of(new_worker(), faulty) is None
        assert streamer_of(new_worker(), MemoryFabric(lambda batch: batch, [1])) is None
