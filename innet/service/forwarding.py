"""Batches of frames from the ports of a service through its program and back to the ports.

For a compiled program the whole loop is compiled: receive, run, send, count, and sleep if nothing
arrives. Python code between two batches would cost as much as some dozens of packets, and more if
other processes use the processor. Python handles what is rare: messages of clients, datagrams of
another length, a full socket, an interpreted program.
"""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.core.packets import PacketBatch
from innet.core.side_thread import SideThread
from innet.service.hosted_switch import Hosted
from innet.service.statistics import PortCounts, PortTraffic, count_arrived, count_left
from innet.switch.inline import InlineProgram, InlineSwitch, run_inline
from innet.transport.messages import failed, readable
from innet.transport.peers import CompiledPorts, PeerPorts
from innet.transport.rings import (
    fall_asleep,
    hand_over,
    must_stop,
    put_into_rings,
    take_from_rings,
    wake_up,
)
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
_EVER = 1 << 60
_LONGEST_SLEEP = 3600.0


class Wake(NamedTuple):
    """What ends a sleep, besides frames.

    Attributes:
        descriptor: a file descriptor that becomes readable; -1 for none.
        until: a time by ``time.monotonic``; after it there is no sleep.
    """

    descriptor: int
    until: float


NEVER_ASLEEP = Wake(-1, 0.0)
_ENDLESS = Wake(-1, math.inf)


class ForwardResult(NamedTuple):
    """What ``forward_batches`` did, and what remains for Python.

    Compiled code writes it into an array of int64, a field after the other: to return it as a
    ``NamedTuple`` would run Python, which a signal could interrupt.

    Attributes:
        looks: reads of the socket since the last sleep.
        received: datagrams received.
        unknown_senders: frames of senders that were not admitted.
        wrong_length: packets of a wrong length from rings.
        lost: packets that did not fit the interface's queue.
        no_room: packets that a worker's ring had no room for.
        missed: packets of another thread that there was no room for.
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
    missed: int
    error: int
    unsorted: int
    first: int
    kept: int
    done: int
    produced: int


(
    _LOOKED, _RECEIVED, _UNKNOWN, _WRONG, _LOST, _NO_ROOM, _MISSED, _ERROR, _UNSORTED,
    _FIRST, _KEPT, _DONE, _PRODUCED,
) = range(_FIELDS := len(ForwardResult._fields))  # fmt: skip


class _Thread:
    """One of those that forward.

    Args:
        ports: source and destination of frames.
        inline: the program for this thread.
        begun: start of its clock.
        traffic: counts frames.
        number: which of the threads it is; the first, 0, is whose calls these are.
        left: called when another thread has come to something that it leaves to Python.
    """

    def __init__(  # noqa: PLR0917 - the parts of one thread
        self,
        ports: PeerPorts,
        inline: InlineSwitch,
        begun: float,
        traffic: PortTraffic,
        number: int,
        left: Callable[[], None],
    ) -> None:
        self.number, self.traffic, self.inline = number, traffic, inline
        self._ports, self._begun, self._left = ports, begun, left
        self._result = np.zeros(_FIELDS, np.int64)
        self._thread = SideThread(f"thread {number} of the switch", self._run, self._after)
        self.start, self.wait, self.close = (
            self._thread.start,
            self._thread.wait,
            self._thread.close,
        )

    def begin(self) -> None:
        """Take over what the control plane changed."""
        self.program = self.inline.begin()

    def forward(self, most: int, wake: Wake) -> None:
        """Move frames here."""
        ports = self._ports.compiled(self.number)
        counts = self.traffic.counts
        forward_batches(most, ports, self.program, self._begun, counts, wake, self._result)

    def _run(self) -> None:
        self.forward(_EVER, _ENDLESS)

    def _after(self) -> None:
        if self._result[[_ERROR, _PRODUCED]].any():
            self._left()

    def result(self) -> ForwardResult:
        """What was done since the last call."""
        found = ForwardResult(*self._result.tolist())
        self._result[:] = 0
        return found


class Forwarding:
    """Moves frames.

    Args:
        ports: source and destination of frames.
        switch: runs the program.
        traffic: counts frames.
        ends: the switch's ends of transports, which also get what leaves the program.
        memory: what each thread receives into, see ``PeerPorts.open_lanes``; by default there is
            one.
        left: called in other threads when Python has something to do, so that ``run`` returns.
    """

    def __init__(  # noqa: PLR0917 - the parts of a service
        self,
        ports: PeerPorts,
        switch: Hosted,
        traffic: PortTraffic,
        ends: Collection[SwitchEnd] = (),
        memory: Sequence[PacketBatch] = (),
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._ports = ports
        self._switch = switch
        self._traffic = traffic
        self._ends = ends
        self._threads: list[_Thread] = []
        self._is_running = False
        for number, packets in enumerate(memory or (ports.packets,)):
            inline = switch.inline(packets, beside=number > 0)
            if inline is not None:
                counted = traffic.beside() if number else traffic
                made = _Thread(ports, inline, switch.begun, counted, number, left)
                self._threads.append(made)
        self.run(0)  # compiled now, not when a packet waits
        self.pause()

    def run(self, most: int, wake: Wake = NEVER_ASLEEP) -> int:
        """Move frames that have arrived or arrive meanwhile; sleep if there are none.

        Other threads go on when this returns, until ``pause``.

        Args:
            most: how often to read the socket without a sleep, which checks ``wake``.
            wake: what ends a sleep, and this call.

        Returns:
            How many reads are left; 0 if there is something else to do, or nothing arrived.

        Raises:
            NetworkError: the socket's interface is gone.
        """
        if not self._threads:
            return self._interpret(most, wake)
        first, *others = self._threads
        if not self._is_running:
            for each in self._threads:
                each.begin()
            self._is_running = True
            self._ports.rings.stop_lanes(False)
            for each in others:
                each.start()
        try:
            first.forward(most, wake)
        except BaseException:
            self.pause()
            raise
        moved = first.result()
        self._count(moved)
        if moved.unsorted or moved.produced or moved.error not in (0, _EAGAIN) or not others:
            self.pause()
        if moved.unsorted:
            self.process(self._ports.sort(moved.unsorted))
            return most - moved.looks
        if self._finish(moved, first):
            return most - moved.looks
        return 0

    def pause(self) -> None:
        """Stop all threads, so that the switch and the ports may be used and changed.

        Raises:
            StalledError: one of them does not stop.
        """
        if not self._is_running:
            return
        self._is_running = False
        _, *others = self._threads
        self._ports.rings.stop_lanes(True)
        for each in others:
            each.wait()
        for each in self._threads:
            each.inline.end()
        for each in others:
            self._traffic.add(each.traffic)
            moved = each.result()
            self._count(moved)
            self._finish(moved, each)

    def close(self) -> None:
        """End all threads."""
        self.pause()
        for each in self._threads[1:]:
            each.close()
        self._threads = self._threads[:1]

    def _count(self, moved: ForwardResult) -> None:
        self._ports.counts.received += moved.received
        self._ports.counts.unknown_senders += moved.unknown_senders
        self._ports.counts.wrong_length += moved.wrong_length
        self._ports.lose(moved.lost)
        self._ports.rings.dropped += moved.no_room
        self._ports.rings.missed += moved.missed

    def _finish(self, moved: ForwardResult, thread: _Thread) -> bool:
        """Send and run what compiled code did not, if there is something; nothing else runs."""
        if moved.error == _NO_MEMORY:
            raise MemoryError("the compiled program could not have the memory that it needed")
        if moved.produced:  # the socket had no room, or cannot do it in this way
            rows, program = slice(moved.produced), thread.program
            left = PacketBatch(program.out[rows], program.out_length[rows], program.out_port[rows])
            self._ports.send(left, moved.done)
            self._run(self._ports.rows(moved.first, moved.kept, thread.number))
            return True
        if moved.error not in (0, _EAGAIN):
            raise failed("receiving", moved.error)
        return False

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
        packets = self._ports.hand_over(packets)
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
def forward_batches(  # noqa: PLR0917 - compiled functions are called by position
    most: int,
    ports: CompiledPorts,
    program: InlineProgram,
    begun: float,
    counts: PortCounts,
    wake: Wake,
    result: NDArray[np.int64],
) -> None:
    """Receive, run, send and count; sleep if nothing has arrived for a while.

    Args:
        most: how often to read the socket without a sleep.
        ports: CompiledPorts.
        program: what the switch runs.
        begun: start of the program's clock.
        counts: a PortCounts.
        wake: a Wake.
        result: filled in: the fields of a ``ForwardResult``.
    """
    words = np.zeros(5, np.int64)
    result[:] = 0
    links = np.zeros(len(program.out_length) + 2 * len(ports.rings.table), np.int64)
    idle = 0
    while result[_LOOKED] < most and not must_stop(ports.rings.lanes):
        # Step 1: the frames of peers, from the rings or from the socket, into rows.
        result[_LOOKED] += 1
        read = _receive(ports, words, result)
        if read < 0:
            break
        result[_RECEIVED] += read
        # Step 2: without any, let others work, then sleep; whoever wakes it may want Python.
        if read == 0:
            if idle < _YIELDS:
                idle += 1
                yield_processor()
                continue
            if not _sleep(ports, wake, words):
                break
            result[_LOOKED], idle = 0, 0
            continue
        # Step 3: through the program, and out to the rings and the socket.
        idle = 0
        now = monotonic(words)
        kept = result[_KEPT]
        count_arrived(ports.port[:kept], ports.length[:kept], ports.offset, now, counts)
        _forward(int((now - begun) * 1e6), ports, program, counts, links, words, result)
        if result[_ERROR] != 0:
            break


@njit(cache=True, nogil=True)
def _receive(ports: CompiledPorts, words: NDArray[np.int64], result: NDArray[np.int64]) -> int:
    """Receive frames, and put those of peers into the first rows; ``result`` says how many.

    The first thread reads the socket for all.

    Returns:
        How many packets came, or -1 if Python has to go on.
    """
    segment, bare, _ = ports.sizes
    packets = ports.port, ports.length
    lanes = ports.rings.lanes
    # The socket comes first now and then, however busy the rings are.
    if result[_LOOKED] % _SOCKET_TURN != 0 or lanes.mine > 0:
        at_once = min(len(ports.port), max(_LEAST_AT_ONCE, _NEAR // segment))
        kept, taken, unknown, wrong = take_from_rings(
            ports.rings, ports.arrival.data, packets, ports.sizes, at_once, words
        )
        result[_KEPT] = kept
        result[_UNKNOWN] += unknown
        result[_WRONG] += wrong
        if taken > 0 or lanes.mine > 0:
            return int(taken)
    read, error = receive_datagrams(
        ports.descriptor, ports.arrival, ports.reception, ports.offset, segment
    )
    result[_ERROR] = error
    if read == 0 and error != _EAGAIN:
        return -1
    length = ports.arrival.length[:read]
    if not np.all((length == segment) | (length == bare)):
        result[_RECEIVED] += read
        result[_UNSORTED] = read
        return -1
    kept, unknown = filter_senders(read, ports.arrival, packets, ports.sizes, ports.senders)
    result[_UNKNOWN] += unknown
    if lanes.total > 1:
        before = kept
        data = ports.arrival.data
        kept, missed = hand_over(ports.rings, 0, data, packets, before, ports.offset, words)
        result[_MISSED] += missed
        result[_RECEIVED] -= before - kept - missed  # whoever takes the others counts them
    result[_KEPT] = kept
    return int(read)


@njit(cache=True, nogil=True)
def _sleep(ports: CompiledPorts, wake: Wake, words: NDArray[np.int64]) -> bool:
    """Sleep until there are frames; whether nothing else ended it."""
    left = min(wake.until - monotonic(words), _LONGEST_SLEEP)
    if left <= 0 or (ports.rings.lanes.mine > 0 and ports.rings.bell < 0):  # it is closed
        return False
    found = 1
    if fall_asleep(ports.rings):
        places = (ports.descriptor, ports.rings.bell, wake.descriptor)
        found = wait_readable_of(places, left, words)
    wake_up(ports.rings, found & 2 != 0, words)
    return bool(found != 0 and found & 4 == 0)


@njit(cache=True, nogil=True)
def _forward(  # noqa: PLR0917 - likewise
    clock: int,
    ports: CompiledPorts,
    program: InlineProgram,
    counts: PortCounts,
    links: NDArray[np.int64],
    words: NDArray[np.int64],
    result: NDArray[np.int64],
) -> None:
    """Run the frames that were kept at time ``clock``, and send the packets that leave.

    The program stops when its room for packets that leave is full, and is then called again.
    """
    kept, first = result[_KEPT], 0
    result[_DONE], result[_PRODUCED], result[_ERROR] = 0, 0, 0
    while first < kept:
        first, produced, number = run_inline(program, first, kept, clock)
        if number != 0:
            result[_ERROR] = _NO_MEMORY
            break
        port, length = program.out_port[:produced], program.out_length[:produced]
        count_left(port, length, ports.offset, counts)
        found, full = put_into_rings(
            program.out, length, port, ports.offset, ports.rings, links, words
        )
        result[_NO_ROOM] += full
        if found == produced:
            continue
        rows, positions, _ = by_port(port, ports.positions)
        leaving = SendBatch(program.out, length, ports.offset, rows, ports.names, positions)
        done, missing, error = send_packets(
            ports.descriptor, leaving, 0, ports.segments, ports.transmission, False
        )
        result[_LOST] += missing
        if error != 0:  # Python sends the rest
            result[_DONE], result[_PRODUCED], result[_ERROR] = done, produced, error
            break
    result[_FIRST] = first
