"""A worker that is driven in compiled code does what one does that is driven by Python."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from support.rings import ring_link
from support.tiers import seeds

from innet.core.errors import MembershipError, NetworkError, StalledError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults, FaultyTransport
from innet.protocol import JobMembership, SlotClient, Timing
from innet.protocol.timers import PROBES
from innet.transport.memory import MemoryTransport
from innet.transport.packet_socket import widen_buffers
from innet.transport.socket_loop import SocketLoop, socket_loop
from innet.transport.udp import UdpTransport, Watch
from innet.wire import Endpoint, HeaderFlag, PacketLayout, pack

LAYOUT = PacketLayout(5)
MEMBER = JobMembership(worker=1, workers=3, job=7, epoch=9, window=8)
ME, SWITCH = Endpoint.of_worker(1), Endpoint.of_switch()
TIMING = Timing(timeout=5.0, max_timeout=5.0, give_up=20.0, adaptive=False)
HEADERS = LAYOUT.header_offset


def new_worker(timing: Timing = TIMING) -> SlotClient:
    return SlotClient(LAYOUT, MEMBER, source=ME, switch=SWITCH, timing=timing)


@contextlib.contextmanager
def link(carrier: bool | str, layout: PacketLayout = LAYOUT):
    """A worker's transport, and what is at its other end: a socket, or for "shm" rings."""
    if carrier == "shm":
        with ring_link(layout, ME, SWITCH) as ends:
            yield ends
        return
    segments = bool(carrier)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as switch,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
    ):
        for each in (switch, sock):
            each.bind(("127.0.0.1", 0))
            widen_buffers(each)
        switch.connect(sock.getsockname())
        sock.connect(switch.getsockname())
        switch.setblocking(False)
        with contextlib.closing(
            UdpTransport(ME, SWITCH, layout, sock=sock, segments=segments)
        ) as transport:
            yield transport, switch


def results_by_chance(rng, chunks: list[int], sent: int) -> np.ndarray:
    """Results of ``chunks`` among results of others, damaged ones and such of other jobs."""
    frames = []
    for chunk in chunks:
        fields = {"job": 7, "flags": HeaderFlag.RESULT, "bitmap": 0b111, "count": 3}
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
    more |= {"operation": ReduceOp.SUM, "epoch": 9, "worker": 1}
    more |= {"elements": 2 if chunk == 39 else 5}  # the last one is not full
    return pack(LAYOUT, SWITCH, ME, values, **more | fields)


def at_once(now: float) -> Watch:
    """Nothing is waited for."""
    return Watch(-1, now, True)


def arrived(sock: socket.socket) -> list[bytes]:
    frames = []
    with contextlib.suppress(BlockingIOError):
        while True:
            frames.append(sock.recv(4096))
    return frames


CARRIERS = pytest.mark.parametrize("carrier", [True, "shm"])


@pytest.mark.parametrize("carrier", [True, False, "shm"])
@pytest.mark.parametrize("seed", seeds(5))
def test_equal_to_what_python_drives(carrier: bool | str, seed: int) -> None:
    """Frames, counters, slots and results, whatever comes."""
    rng = np.random.default_rng(seed)
    words = rng.integers(-99, 99, 5 * 40 - 3).astype(np.int32)
    end, twin = new_worker(), new_worker()
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        for each in (end, twin):
            each.start([Segment(ReduceOp.SUM, words)], transport.now())
        loop._turn(now := transport.now(), at_once(now))
        first = twin.outgoing(now)
        assert arrived(switch) == [frame[HEADERS:].tobytes() for frame in first]
        under_way = set(range(8))
        for _ in range(300):
            chosen = [chunk for chunk in sorted(under_way) if rng.random() < 0.5]
            frames = results_by_chance(rng, chosen, max(under_way))
            for frame in frames:
                switch.send(frame[HEADERS:].tobytes())
            loop._turn(now := transport.now(), at_once(now))
            twin.receive(frames, now)
            expected = twin.outgoing(now)
            assert arrived(switch) == [frame[HEADERS:].tobytes() for frame in expected]
            assert end.counters == twin.counters
            for name in ("_chunk", "_state"):
                np.testing.assert_array_equal(getattr(end, name), getattr(twin, name))
            under_way = set(twin._chunk[twin._state == 2].tolist())
            if twin.done:
                break
            loop._turn(now := transport.now(), at_once(now))  # nothing has come
        assert end.done
        assert twin.counters.refused["job"]
        assert twin.counters.refused["checksum"]
        assert twin.counters.duplicates
        np.testing.assert_array_equal(end.results()[0], twin.results()[0])


@CARRIERS
def test_timers_of_chunks_that_were_sent_in_compiled_code_run(carrier: bool | str) -> None:
    end = new_worker()
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 9, np.int32))], now := transport.now())
        fields = {"job": 7, "flags": HeaderFlag.RESULT, "bitmap": 0b111, "count": 3}
        for chunk in range(8):
            frame = result(np.random.default_rng(0), chunk, **fields)
            switch.send(frame[0, HEADERS:].tobytes())
        loop._turn(now, at_once(now))
        sent = transport.now()
        assert end.counters.sent == 9
        assert end.next_deadline() == pytest.approx(sent + 5.0, abs=1.0)
        again = end.outgoing(end.next_deadline())
        assert LAYOUT.view(again)["innet"]["sequence"].tolist() == [9]
        with pytest.raises(StalledError, match="2 transmissions"):
            end.outgoing(sent + 20.0)


@CARRIERS
def test_who_gets_no_answer_gives_up(carrier: bool | str) -> None:
    end = new_worker(Timing(timeout=0.02, max_timeout=0.02, give_up=1.0))
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5, np.int32))], now := transport.now())
        with pytest.raises(StalledError, match="sequence 1"):
            loop.run(now)
        assert transport.now() >= now + 1.0
        # What it says it has sent, it has.
        assert len(arrived(switch)) == end.counters.sent == 1 + end.counters.retransmissions > 1


def test_a_socket_that_is_gone_is_named() -> None:
    end = new_worker()
    with link(True) as (transport, _):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5, np.int32))], now := transport.now())
        gone = transport.link(end.compiled_state(now).head)._replace(descriptor=-1)
        transport.link = lambda _: gone  # type: ignore[method-assign]
        with pytest.raises(NetworkError, match="receiving packets failed"):
            loop.run(now)


def answer(switch: socket.socket, chunks, **fields: int) -> None:
    """Send results of ``chunks``."""
    fields = {"job": 7, "flags": HeaderFlag.RESULT, "bitmap": 0b111, "count": 3} | fields
    for chunk in chunks:
        frame = result(np.random.default_rng(chunk), chunk, **fields)
        switch.send(frame[0, HEADERS:].tobytes())


@CARRIERS
def test_all_results_end_the_wait_for_more(carrier: bool | str) -> None:
    """Sent, slept and taken without a step of Python between."""
    end = new_worker()
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 8, np.int32))], now := transport.now())
        end._timers.heard(now, -1.0)  # so the first result ends no silence
        late = threading.Timer(0.1, answer, (switch, range(8)))
        late.start()
        after = loop._turn(now, Watch(-1, now + 60.0, True))
        late.join()
        assert end.done
        assert 0.1 <= after - now < 30.0


@CARRIERS
def test_what_later_results_overtook_is_sent_again_in_compiled_code(carrier: bool | str) -> None:
    """And nothing else; the time-out alone would be longer than the worker is patient."""
    end = new_worker(Timing(timeout=60.0, max_timeout=60.0, give_up=20.0, reordering=0.05))
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 8, np.int32))], now := transport.now())

        def serve() -> None:
            """Lose the second chunk once, and answer it only when it has come again."""
            switch.settimeout(10.0)
            for _ in range(8):
                switch.recv(4096)
            answer(switch, [0, *range(2, 8)])
            again = np.frombuffer(switch.recv(4096), np.uint8)
            header = LAYOUT.view(np.concatenate([np.zeros(HEADERS, np.uint8), again])[None])
            assert header["innet"]["sequence"].tolist() == [2]
            assert HeaderFlag(int(header["innet"]["flags"][0])) == HeaderFlag.RESEND
            answer(switch, [1])

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(serve)
            loop.run(now)
            served.result()
        assert end.done
        assert end.counters.retransmissions == 1


@CARRIERS
def test_what_was_lost_at_the_end_is_found_in_compiled_code(carrier: bool | str) -> None:
    """By its last chunk, which is sent again before anybody's patience ends."""
    end = new_worker(
        replace(TIMING, timeout=60.0, max_timeout=60.0, reordering=0.01, tail_probe=0.02)
    )
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 40 - 3, np.int32))], now := transport.now())

        def serve() -> None:
            """Lose the last three chunks once."""
            switch.settimeout(10.0)
            lost, again = {37, 38, 39}, []
            while len(again) < 3:
                frame = np.concatenate([np.zeros(HEADERS, np.uint8), received(switch)])
                header = LAYOUT.view(frame[None])["innet"]
                chunk = int(header["sequence"][0]) - 1
                if chunk not in lost:
                    answer(switch, [chunk])
                elif header["flags"][0] & HeaderFlag.RESEND and chunk not in again:
                    again.append(chunk)
                    answer(switch, [chunk])
            assert again[0] == 39

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(serve)
            loop.run(now)
            served.result()
        assert end.done


def received(sock: socket.socket) -> np.ndarray:
    return np.frombuffer(sock.recv(4096), np.uint8)


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Shells start what runs in the background deaf to SIGINT, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@CARRIERS
@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_the_wait(carrier: bool | str) -> None:
    end = new_worker()
    with link(carrier) as (transport, _):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5, np.int32))], now := transport.now())
        pressed = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))

        def run() -> None:
            pressed.start()
            loop.run(now)

        with pytest.raises(KeyboardInterrupt):  # wherever a busy machine is by then
            run()
        pressed.join()
        assert transport.now() < now + 4.0


@CARRIERS
def test_what_the_switch_says_ends_the_wait(carrier: bool | str) -> None:
    end = new_worker()
    here, there = socket.socketpair()
    with link(carrier) as (transport, _), here, there:
        transport.watch = lambda now: Watch(here.fileno(), now + 60.0, True)  # type: ignore[method-assign]
        heard = []

        def wait(now: float, until: float) -> float:
            heard.append(here.recv(1))
            raise MembershipError("somebody is gone")

        transport.wait = wait  # type: ignore[method-assign]
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5, np.int32))], now := transport.now())
        there.send(b"x")
        with pytest.raises(MembershipError):
            loop.run(now)
        assert heard == [b"x"]


@CARRIERS
def test_packets_end_a_wait_that_they_may_change(carrier: bool | str) -> None:
    """Where somebody is gone, the transport measures how long it has been silent since."""
    end = new_worker()
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 8, np.int32))], now := transport.now())
        end._timers.heard(now, -1.0)
        told = []
        transport.heard = lambda: told.append(transport.now())  # type: ignore[method-assign]
        loop._turn(now, at_once(now))
        assert told == []
        answer(switch, [0])
        after = loop._turn(now, Watch(-1, now + 60.0, False))
        assert len(told) == end.counters.results == 1
        assert after < now + 4.0  # and the time-out is 5 s


@CARRIERS
def test_the_first_results_after_a_silence_let_the_chunks_go_on_that_were_held_back(
    carrier: bool | str,
) -> None:
    timing = Timing(timeout=0.05, max_timeout=60.0, give_up=90.0, adaptive=False)
    member = replace(MEMBER, window=16)
    end = SlotClient(LAYOUT, member, source=ME, switch=SWITCH, timing=timing)
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        end.start([Segment(ReduceOp.SUM, np.zeros(5 * 16, np.int32))], now := transport.now())
        loop._turn(now, at_once(now))
        again = end.outgoing(now := now + 1.0)
        assert len(again) == PROBES
        assert np.isfinite(end._timers.resend_at).sum() == PROBES
        end._timers.timeout[:] = 60.0
        answer(switch, [0], slot=0, slot_version=0)
        loop._turn(now, at_once(now))
        assert end.counters.results == 1
        assert np.isfinite(end._timers.resend_at).sum() == 15


def test_a_window_goes_in_pieces_and_what_a_socket_refuses_is_not_lost() -> None:
    layout, member = PacketLayout(300), replace(MEMBER, window=256)
    rng = np.random.default_rng(0)
    words = rng.integers(-99, 99, 300 * 256).astype(np.int32)
    end, twin = (
        SlotClient(layout, member, source=ME, switch=SWITCH, timing=TIMING) for _ in range(2)
    )
    with link(True, layout) as (transport, switch):
        loop = socket_loop(end, transport)
        for each in (end, twin):
            each.start([Segment(ReduceOp.SUM, words)], now := transport.now())
        find = transport.link
        transport.link = lambda head: find(head)._replace(descriptor=-1)  # type: ignore[method-assign]
        loop._turn(now, at_once(now))
        first = end.counters.sent
        assert 0 < first < 256
        transport.link = find  # type: ignore[method-assign]
        loop._turn(now, at_once(now))
        assert end.counters.sent == 256
        expected = [frame[HEADERS:].tobytes() for frame in twin.outgoing(now)]
        assert arrived(switch) == expected


@CARRIERS
def test_a_sum_that_lacks_somebody_ends_the_sending(carrier: bool | str) -> None:
    """As where Python drives, with others who have asked for such sums."""
    end, twin = new_worker(), new_worker()
    with link(carrier) as (transport, switch):
        loop = socket_loop(end, transport)
        for each in (end, twin):
            each.all_or_none = True
            each.start([Segment(ReduceOp.SUM, np.zeros(5 * 40 - 3, np.int32))], transport.now())
        loop._turn(now := transport.now(), at_once(now))
        twin.outgoing(now)
        fields = {
            "job": 7,
            "bitmap": 0b11,
            "count": 2,
            "flags": HeaderFlag.RESULT | HeaderFlag.PARTIAL,
        }
        for chunks in ([3, 5], [0, 1, 2, 4], [6, 7]):
            answer(switch, chunks, **fields)
            loop._turn(now := transport.now(), at_once(now))
            frames = [result(np.random.default_rng(chunk), chunk, **fields) for chunk in chunks]
            twin.receive(np.concatenate(frames), now)
            assert len(twin.outgoing(now)) == 0
            assert end.done == twin.done == (7 in chunks)
            assert end.late == twin.late == (2,)
            assert end.counters == twin.counters
        assert end.counters.sent == 8


@CARRIERS
def test_what_needs_python_between_batches_is_driven_by_it(carrier: bool | str) -> None:
    with link(carrier) as (transport, _):
        assert isinstance(socket_loop(new_worker(), transport), SocketLoop)
        for timing in (replace(TIMING, window_control="aimd"), replace(TIMING, partial_after=1.0)):
            assert socket_loop(new_worker(timing), transport) is None
        faulty = FaultyTransport(transport, Faults(loss=0.1), np.random.default_rng(0))
        assert socket_loop(new_worker(), faulty) is None
        assert socket_loop(new_worker(), MemoryTransport(lambda batch: batch, [1])) is None


@pytest.mark.parametrize("segments", [False, True])
def test_of_frames_that_are_cut_within_their_headers_nothing_is_sent(segments):
    """As ``Faults(truncate=...)`` cuts them: the kernel refuses datagrams of less than nothing."""
    rng = np.random.default_rng(2)
    frames = np.concatenate([result(rng, chunk, job=7) for chunk in range(4)])
    length = np.array([LAYOUT.frame_size, 3, HEADERS, LAYOUT.frame_size - 1], np.int32)
    with link(segments) as (transport, switch):
        transport.send(PacketBatch(frames, length, np.zeros(4, np.int32)), 0.0)
        transport.send(PacketBatch(frames[:1], length[1:2], np.zeros(1, np.int32)), 0.0)
        sizes = [len(switch.recv(2000)) for _ in range(3)]
        assert sizes == [LAYOUT.frame_size - HEADERS, 0, LAYOUT.frame_size - 1 - HEADERS]
        with pytest.raises(BlockingIOError):
            switch.recv(2000)


def test_time_in_which_a_worker_was_stopped_does_not_count(monkeypatch) -> None:
    """As by Ctrl-Z, and fg when its patience is over."""
    end = new_worker(Timing(timeout=5.0, max_timeout=5.0, give_up=0.2, adaptive=False))
    fields = {"job": 7, "flags": HeaderFlag.RESULT, "bitmap": 0b111, "count": 3}
    answer = result(np.random.default_rng(1), 0, **fields)
    with link(False) as (transport, switch), ThreadPoolExecutor() as pool:
        watch, late = transport.watch, [30.0]

        def watched(now: float) -> Watch:
            return Watch(-1, now - late.pop(), True) if late else watch(now)

        monkeypatch.setattr(transport, "watch", watched)
        loop = socket_loop(end, transport)
        began = transport.now()
        end.start([Segment(ReduceOp.SUM, np.arange(5, dtype=np.int32))], began)
        running = pool.submit(loop.run, began)
        while late or transport.now() < began + 0.4:
            assert not running.done()
            time.sleep(0.01)  # pytest's timeout ends it
        switch.send(answer[0, HEADERS:].tobytes())
        running.result()
    assert end.done


def test_compiled_code_does_not_send_in_the_place_of_a_class_derived_from_one() -> None:
    class Counted(UdpTransport):
        """One that may do something else in ``send``."""

    with link(True) as (transport, _):
        assert socket_loop(new_worker(), transport) is not None
        transport.__class__ = Counted
        assert socket_loop(new_worker(), transport) is None
