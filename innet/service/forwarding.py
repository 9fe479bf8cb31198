"""Batches of frames from the ports of a service through its program and back to the ports.

For a compiled program the whole loop is compiled: receive, run, send, count, and sleep if nothing
arrives. Python code between two batches would cost as much as some dozens of packets, and more if
other processes use the processor. Python handles what is rare: messages of clients, datagrams of
another length, a full socket, an interpreted program.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.service.hosted_switch import Hosted
from innet.service.statistics import PortCounts, PortTraffic, count_arrived, count_left
from innet.switch.inline import InlineProgram, run_inline
from innet.transport.messages import failed, readable
from innet.transport.peers import CompiledPorts, PeerPorts
from innet.transport.rings import fall_asleep, put_into_rings, take_from_rings, wake_up
from innet.transport.system_calls import (
    SendBatch,
    by_port,
    filter_senders,
    monotonic,
    receive_datagrams,
    send_packets,
    wait_readable_of,
    yield_processor,
)
from innet.transport.transports import SwitchEnd

_SOCKET_TURN = 16  # every so many looks the socket comes first, however busy the rings are
# What rings hold is copied, run, and copied again by pieces that stay near the processor.
_NEAR, _LEAST_AT_ONCE = 192 << 10, 16  # bytes, packets
_YIELDS = 8  # in vain: what comes next is often being made on the same processor
_EAGAIN = errno.EAGAIN
_NO_MEMORY = -1


class Wake(NamedTuple):
    """What ends a sleep, besides frames.

    Attributes:
        descriptor: a file descriptor that becomes readable; -1 for none.
        until: a time by ``time.monotonic``; after it there is no sleep.
    """

    descriptor: int
    until: float


NEVER_ASLEEP = Wake(-1, 0.0)


class ForwardResult(NamedTuple):
    """What ``turns`` did, and what remains for Python.

    Attributes:
        looks: reads of the socket since the last sleep.
        received: datagrams received.
        unknown_senders: frames of senders that were not admitted.
        wrong_length: packets of a wrong length from rings.
        lost: packets that did not fit the interface's queue.
        no_room: packets that a worker's ring had no room for.
        error: the number of the socket's last error, 0, or ``_NO_MEMORY``.
        unsorted: how many datagrams were received last but not processed, as some do not have the
            length of a frame.
        first, kept: range of the frames that were received last and must still be run.
        done, produced: range of the packets, in the order of their ports, that left the program
            last and must be sent before that.
    """

    looks: int
    received: int
    unknown_senders: int
    wrong_length: int
    lost: int
    no_room: int
    error: int
    unsorted: int
    first: int
    kept: int
    done: int
    produced: int


class Forwarding:
    """Moves frames.

    Args:
        ports: source and destination of frames.
        switch: runs the program.
        traffic: counts frames.
        ends: the switch's ends of transports, which also get what leaves the program.
    """

    def __init__(
        self,
        ports: PeerPorts,
        switch: Hosted,
        traffic: PortTraffic,
        ends: Collection[SwitchEnd] = (),
    ) -> None:
        self._ports = ports
        self._switch = switch
        self._traffic = traffic
        self._ends = ends
        self._inline = switch.inline(ports.packets)
        self.run(0)  # compiled now, not when a packet waits

    def run(self, most: int, wake: Wake = NEVER_ASLEEP) -> int:
        """Move frames that have arrived or arrive meanwhile; sleep if there are none.

        Args:
            most: how often to read the socket without a sleep, which checks ``wake``.
            wake: what ends a sleep, and this call.

        Returns:
            How many reads are left; 0 if there is something else to do, or nothing arrived.

        Raises:
            NetworkError: the socket's interface is gone.
        """
        if self._inline is None:
            return self._interpret(most, wake)
        counts = self._traffic.counts
        program = self._inline.begin()
        try:
            begun, ports = self._switch.begun, self._ports.compiled()
            moved = ForwardResult(*turns(most, ports, program, begun, counts, wake))
        finally:
            self._inline.end()
        self._ports.counts.received += moved.received
        self._ports.counts.unknown_senders += moved.unknown_senders
        self._ports.counts.wrong_length += moved.wrong_length
        self._ports.lose(moved.lost)
        self._ports.rings.dropped += moved.no_room
        if moved.error == _NO_MEMORY:
            raise MemoryError("the compiled program could not have the memory that it needed")
        if moved.unsorted:
            self.process(self._ports.sort(moved.unsorted))
            return most - moved.looks
        if moved.produced:  # the socket had no room, or cannot do it in this way
            rows = slice(moved.produced)
            left = PacketBatch(program.out[rows], program.out_length[rows], program.out_port[rows])
            self._ports.send(left, moved.done)
            self._run(self._ports.rows(moved.first, moved.kept))
            return most - moved.looks
        if moved.error not in (0, _EAGAIN):
            raise failed("receiving", moved.error)
        return 0

    def _interpret(self, most: int, wake: Wake) -> int:
        looks, idle = 0, 0
        while looks < most:
            looks += 1
            before = self._ports.counts.received
            self.process(self._ports.receive())
            if self._ports.unknown_datagrams:
                return most - looks
            if self._ports.counts.received > before:
                continue
            if idle < _YIELDS:
                idle += 1
                os.sched_yield()
            elif self._sleeps(wake):
                looks, idle = 0, 0
            else:
                break
        return 0

    def _sleeps(self, wake: Wake) -> bool:
        """Whether it slept, and only frames ended the sleep."""
        left = wake.until - time.monotonic()
        if left <= 0:
            return False
        rings = self._ports.rings.compiled()
        frames = [each for each in (self._ports.fileno(), rings.bell) if each >= 0]
        sources = [*frames, *(each for each in (wake.descriptor,) if each >= 0)]
        if not fall_asleep(rings):
            left = 0.0
        found = readable(left, *sources)
        wake_up(rings, rings.bell in found, np.zeros(4, np.int64))
        return left == 0.0 or (bool(found) and wake.descriptor not in found)

    def process(self, packets: PacketBatch) -> None:
        """Run frames of workers through the program, and send what leaves it."""
        self._traffic.arrive(packets)
        self._run(packets)

    def _run(self, packets: PacketBatch) -> None:
        if len(packets):
            left = self._switch.process(packets)
            self._ports.send(left)
            for end in self._ends:
                end.send(left)
            self._traffic.leave(left)


@njit(cache=True, nogil=True)
def turns(  # noqa: PLR0915, PLR0917 - one loop; compiled functions are called by position
    most: int,
    ports: CompiledPorts,
    program: InlineProgram,
    begun: float,
    counts: PortCounts,
    wake: Wake,
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int]:
    """Receive, run, send and count; sleep if nothing has arrived for a while.

    Args:
        most: how often to read the socket without a sleep.
        ports: CompiledPorts.
        program: what the switch runs.
        begun: start of the program's clock.
        counts: a PortCounts.
        wake: a Wake.

    Returns:
        The fields of ``ForwardResult``.
    """
    segment = ports.segment
    at_once = min(len(ports.port), max(_LEAST_AT_ONCE, _NEAR // segment))
    words = np.zeros(5, np.int64)
    idle = 0
    looks, received, error, unsorted = 0, 0, 0, 0
    unknown_senders, wrong_length, lost, no_room = 0, 0, 0, 0
    first, kept, done, produced = 0, 0, 0, 0
    while looks < most:
        looks += 1
        read = 0
        if looks % _SOCKET_TURN != 0:
            kept, read, unknown, wrong = take_from_rings(
                ports.rings, ports.arrival.data, ports.port, ports.offset, segment, at_once
            )
            unknown_senders += unknown
            wrong_length += wrong
        if read == 0:
            read, error = receive_datagrams(
                ports.descriptor, ports.arrival, ports.reception, ports.offset, segment
            )
            if read == 0 and error != _EAGAIN:
                break
            if not np.all(ports.arrival.length[:read] == segment):
                received += read
                unsorted = read
                break
            kept, unknown = filter_senders(read, ports.arrival, ports.port, segment, ports.senders)
            unknown_senders += unknown
        received += read
        if read == 0:
            if idle < _YIELDS:
                idle += 1
                yield_processor()
                continue
            left = wake.until - monotonic(words)
            if left <= 0:
                break
            found = 1
            if fall_asleep(ports.rings):
                places = (ports.descriptor, ports.rings.bell, wake.descriptor)
                found = wait_readable_of(places, left, words)
            wake_up(ports.rings, found & 2 != 0, words)
            if found == 0 or found & 4 != 0:
                break
            looks, idle = 0, 0
            continue
        idle = 0
        now = monotonic(words)
        count_arrived(ports.port[:kept], segment, now, counts)
        clock = int((now - begun) * 1e6)
        first, done, produced, missing, full, error = _pass(
            kept, clock, ports, program, counts, words
        )
        lost += missing
        no_room += full
        if error != 0:
            break
    return (
        looks, received, unknown_senders, wrong_length, lost, no_room, error, unsorted,
        first, kept, done, produced,
    )  # fmt: skip


@njit(cache=True, inner=True, nogil=True)
def _pass(  # noqa: PLR0917 - likewise
    kept: int,
    clock: int,
    ports: CompiledPorts,
    program: InlineProgram,
    counts: PortCounts,
    words: NDArray[np.int64],
) -> tuple[int, int, int, int, int, int]:
    """Run ``kept`` frames at time ``clock``, and send the packets that leave.

    Returns:
        first, done, produced, lost, no_room and error of ``ForwardResult``.
    """
    first, lost, no_room = 0, 0, 0
    while first < kept:
        first, produced, number = run_inline(program, first, kept, clock)
        if number != 0:
            return first, 0, 0, lost, no_room, _NO_MEMORY
        port, length = program.out_port[:produced], program.out_length[:produced]
        count_left(port, length, ports.offset, counts)
        found, full = put_into_rings(program.out, length, port, ports.offset, ports.rings, words)
        no_room += full
        if found == produced:
            continue
        rows, positions, _ = by_port(port, ports.positions)
        leaving = SendBatch(program.out, length, ports.offset, rows, ports.names, positions)
        done, missing, error = send_packets(
            ports.descriptor, leaving, 0, ports.segments, ports.transmission, False
        )
        lost += missing
        if error != 0:
            return first, done, produced, lost, no_room, error
    return first, 0, 0, lost, no_room, 0
