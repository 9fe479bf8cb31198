"""Packets of network interfaces through a compiled program, without Python between batches.

Python code between two batches costs as much as some dozens of packets, and makes a lone packet
late. What is rare is left to the caller: calls of the control plane, packets to the CPU port, a
socket without room, an interface that went.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from innet.core.numba_cache import is_cached, njit
from innet.core.packets import PacketBatch
from innet.core.side_thread import SideThread
from innet.simple_switch.captures import CaptureFiles, Captures, capture
from innet.switch import Switch
from innet.switch.inline import (
    TRAFFIC_ENTRIES,
    InlineProgram,
    InlineQueues,
    InlineQueueSwitch,
    InlineSwitch,
    keep_records,
    run_inline,
    run_queues,
    set_clock,
)
from innet.transport.raw import CompiledInterfaces, Ports
from innet.transport.system_calls import (
    SendBatch,
    by_port,
    monotonic,
    receive_of_ports,
    send_packets,
    wait_readable,
)

_NO_MEMORY = -1
_NO_CAPTURE = -2
_NO_PORT, _ANY_PORT = -1, -2
_EACH_SEPARATELY = 1  # packets are not joined to one message
_NOTHING = PacketBatch.empty()
_Found = tuple[int, int, int, int, int, int, int, int, int]
_MOST_TURNS = 64  # batches without a look at the clock and at ``descriptor``
_LONGEST = 3600.0  # seconds that another thread goes on without a look at what is to be done
_MOST_LOGGED = 16  # the same with records


class PortForwardResult(NamedTuple):
    """What ``turns`` or ``queued_turn`` did, and what remains for Python.

    Attributes:
        undelivered: packets to ports that do not exist.
        lost: packets that the interfaces' queues had no room for.
        error: the number of a socket's error, 0, ``_NO_MEMORY``, or ``_NO_CAPTURE``.
        place: the position of the port whose socket had it; -1 for none.
        first, received: range of the packets that were received last and must still be run.
        done, produced: those that left the program last are ``produced``; as many as ``done``, in
            the order of ``by_port``, were sent. Without an error, one goes to the CPU port, or
            their lines are to be written first.
        wanted: the memory that the program lacks to go on, or 0.
    """

    undelivered: int
    lost: int
    error: int
    place: int
    first: int
    received: int
    done: int
    produced: int
    wanted: int


class PortForwarding:
    """Forwards packets of ports while nothing else is to be done.

    Args:
        ports: the interfaces.
        switch: runs the compiled program.
        begun: ``time.monotonic()`` when the program's clock was 0.
        cpu_port: a port without an interface, whose packets ``send`` takes; None for none.
        send: sends what left together with a packet to the CPU port; None for ``ports`` itself.
        write_log: called after each batch, of a program that records; None for one that does not.
        is_late: packets leave before ``write_log`` is called, not after it.
        captures: take what arrives and what leaves; None for none.
        threads: how many forward side by side, each what comes from some of the interfaces; only
            where packets share no state, and without a CPU port, records and captures.
        left: called in other threads when Python has something to do, so that ``run`` should end.

    Attributes:
        works: whether the program can be run in this way: not if it has entries that age, or may
            loop for ever; without records also not if it recirculates or sends digests.
    """

    def __init__(
        self,
        ports: Ports,
        switch: Switch,
        begun: float,
        cpu_port: int | None = None,
        send: Callable[[PacketBatch], None] | None = None,
        *,
        write_log: Callable[[], None] | None = None,
        is_late: bool = True,
        captures: Captures | None = None,
        threads: int = 1,
        left: Callable[[], None] = lambda: None,
    ) -> None:
        self._write_log = write_log
        self._write_first = None if is_late else write_log
        self._ending = _NO_PORT if cpu_port is None else cpu_port
        if self._write_first is not None:
            self._ending = _ANY_PORT
        self._send = send or ports.send
        self._ports = ports
        self._switch = switch
        self._begun = begun
        self._packets, self._digests = ports.packets, switch.state.digests
        self._captures = captures
        self._files = CaptureFiles.none() if captures is None else captures.compiled
        self._queued: InlineQueueSwitch | None = None
        self._inline: InlineSwitch | InlineQueueSwitch | None
        self._others: list[_SideForwarding] = []
        self._total = threads
        if write_log is None and threads > 1:
            first, *others = (memory for _, memory in ports.divided(threads))
            self._inline = switch.inline(first)
            for number, memory in enumerate(others if self._inline is not None else (), 1):
                inline = switch.inline(memory, beside=True)
                assert inline is not None, "as is the first"
                self._others.append(_SideForwarding(self, number, inline, memory, left))
        elif write_log is None:
            self._inline = switch.inline(ports.packets)
        else:
            self._inline = self._queued = switch.inline_queues(ports.packets, timed=False)
        self.works = self._inline is not None
        if self.works:
            self.run(-1, 0.0)  # compiled now, not when a packet waits

    @property
    def fits(self) -> bool:
        """Whether the ports still use the memory that the program was given."""
        return self._ports.packets.data is self._packets.data

    @property
    def behind(self) -> int:
        """The number of the control plane's changes that ``run`` takes over first."""
        assert self._inline is not None
        return self._inline.behind

    def run(self, descriptor: int, seconds: float) -> PacketBatch:
        """Forward until a descriptor is readable, or nothing arrives for ``seconds``.

        Args:
            descriptor: what else ends it; -1 for nothing.
            seconds: how long at most without packets.

        Returns:
            Packets that were received and not run, as a socket had an error or a packet went to
            the CPU port first; valid until the next call.
        """
        until = time.monotonic() + seconds
        if self._others:
            return self._run_beside(descriptor, until)
        moved = self._forward(descriptor, until)
        if self._write_log is not None:
            self._write_log()
            for _ in range(_MOST_LOGGED):
                if not moved.received or moved.first < moved.received or self._digests:
                    break
                moved = self._forward(descriptor, until)
                self._write_log()
        if moved.first == moved.received:
            return _NOTHING
        return self._ports.rows(moved.first, moved.received)

    def _run_beside(self, descriptor: int, until: float) -> PacketBatch:
        """``run`` with several threads, which have all stopped at the end."""
        assert self._inline is not None
        program = self._inline.begin()
        for each in self._others:
            each.begin()
        for each in self._others:  # when no other takes over what has changed any more
            each.start()
        try:
            moved = self._run(program, until, descriptor, (0, 0))
        finally:
            found = [each.stop() for each in self._others]
            for inline in (self._inline, *(each.inline for each in self._others)):
                inline.end()
        self._finish(program, moved)
        memory = self._ports.divided(self._total)[0][1]
        rest = [memory.take(np.arange(moved.first, moved.received))]
        for each, its in zip(self._others, found, strict=True):
            self._finish(each.program, its)
            rest.append(each.memory.take(np.arange(its.first, its.received)))
        return PacketBatch.concatenate(rest)

    def close(self) -> None:
        """End the other threads."""
        for each in self._others:
            each.close()
        self._others = []

    def _forward(self, descriptor: int, until: float) -> PortForwardResult:
        """Forward until something ends it; with records one batch."""
        assert self._inline is not None
        program: InlineProgram | InlineQueues = self._inline.begin()
        try:
            moved = self._run(program, until, descriptor, (0, 0))
            while moved.wanted:
                assert self._queued is not None
                before, program = program, self._queued.make_room(moved.wanted)
                self._finish(before, moved)
                moved = self._run(program, until, descriptor, (moved.first, moved.received))
        finally:
            self._inline.end()
        self._finish(program, moved)
        return moved

    def _run(
        self,
        program: InlineProgram | InlineQueues,
        until: float,
        descriptor: int,
        rest: tuple[int, int],
    ) -> PortForwardResult:
        times = self._begun, until
        ports = self._ports.divided(self._total)[0][0] if self._others else self._ports.compiled()
        compiled: Callable[..., _Found] = turns if self._queued is None else queued_turn
        found = compiled(ports, program, times, descriptor, self._ending, rest, self._files)
        moved = PortForwardResult(*found)
        return moved._replace(place=moved.place * self._total) if self._others else moved

    def _finish(self, program: InlineProgram | InlineQueues, moved: PortForwardResult) -> None:
        """Count what was lost, and send what compiled code did not."""
        self._ports.undelivered += moved.undelivered
        self._ports.lose(moved.lost)
        if moved.error == _NO_MEMORY:
            raise MemoryError("the compiled program could not have the memory that it needed")
        if moved.error == _NO_CAPTURE:
            assert self._captures is not None
            self._captures.fail()
        if moved.produced:
            if self._write_first is not None:
                self._write_first()
            rows = slice(moved.produced)
            left = PacketBatch(program.out[rows], program.out_length[rows], program.out_port[rows])
            if moved.error:
                self._ports.send(left, moved.done)
            else:
                self._send(left)
        elif moved.error:
            self._ports.fail(moved.place, moved.error)


class _SideForwarding:
    """One more thread of a ``PortForwarding``.

    Args:
        whole: which it belongs to.
        number: which of its threads.
        inline: the program for it.
        memory: what it receives into.
        left: called in it when it has come to something that it leaves to Python.
    """

    def __init__(
        self,
        whole: PortForwarding,
        number: int,
        inline: InlineSwitch,
        memory: PacketBatch,
        left: Callable[[], None],
    ) -> None:
        self.memory, self.inline = memory, inline
        self._whole, self._number, self._left = whole, number, left
        self._found = PortForwardResult(*[0] * 9)
        self._waker, self._woken = socket.socketpair()
        self._is_stopping = False
        self._thread = SideThread(f"thread {number} of the switch", self._forward, self._after)

    def begin(self) -> None:
        """Take over what the control plane changed."""
        self.program = self.inline.begin()

    def start(self) -> None:
        """Forward, until ``stop``."""
        self._is_stopping = False
        self._ports = self._whole._ports.divided(self._whole._total)[self._number][0]
        self._thread.start()

    def stop(self) -> PortForwardResult:
        """Stop, and say what was done."""
        self._is_stopping = True
        self._waker.send(b"\0")
        self._thread.wait()
        self._woken.recv(1)
        return self._found

    def close(self) -> None:
        """End the thread, which has stopped."""
        self._thread.close()
        self._waker.close()
        self._woken.close()

    def _forward(self) -> None:
        begun, files = self._whole._begun, self._whole._files
        times = begun, time.monotonic() + _LONGEST
        found = turns(
            self._ports, self.program, times, self._woken.fileno(), _NO_PORT, (0, 0), files
        )
        result = PortForwardResult(*found)
        if result.place >= 0:  # among those that this thread receives from
            result = result._replace(place=self._number + result.place * self._whole._total)
        self._found = result

    def _after(self) -> None:
        if not self._is_stopping:
            self._left()


def is_compiled(*, is_logged: bool = False) -> bool:
    """Whether the loop itself is compiled on this machine; otherwise it takes some seconds."""
    return is_cached(queued_turn if is_logged else turns)


@njit(cache=True, nogil=True)
def turns(  # noqa: PLR0917 - compiled functions are called by position
    ports: CompiledInterfaces,
    program: InlineProgram,
    times: tuple[float, float],
    descriptor: int,
    ending: int,
    _: tuple[int, int],
    captures: CaptureFiles,
) -> _Found:
    """Receive, run and send; sleep if nothing has arrived.

    Args:
        ports: a CompiledInterfaces.
        program: what the switch runs.
        times: start of the program's clock; a time that ends it. Both by ``time.monotonic``.
        descriptor: ends it when it is readable.
        ending: what leaves this port ends it, before it is sent; ``_NO_PORT``, ``_ANY_PORT``.
        captures: take what was run and what leaves, before it is sent.

    Returns:
        The fields of ``PortForwardResult``.
    """
    begun, until = times
    words = np.zeros(4, np.int64)
    undelivered, lost, turn = 0, 0, 0
    while True:
        turn += 1
        if turn % _MOST_TURNS == 0 and (
            monotonic(words) >= until or wait_readable(-1, descriptor, 0.0, words)
        ):
            break  # packets that never pause must not keep calls waiting
        received, error, struck = receive_of_ports(
            ports.receiving, ports.most, ports.frames, ports.port
        )
        if error != 0:
            return undelivered, lost, error, struck, 0, received, 0, 0, 0
        if received == 0:
            left = until - monotonic(words)
            if left <= 0 or wait_readable(ports.poll, descriptor, left, words) != 1:
                break
            continue
        clock = int((monotonic(words) - begun) * 1e6)
        first = 0
        while first < received:
            before = first
            first, produced, number = run_inline(program, first, received, clock)
            if number != 0:
                return undelivered, lost, _NO_MEMORY, -1, first, received, 0, 0, 0
            if _capture(captures, ports, program, (before, first, produced)) != 0:
                return undelivered, lost, _NO_CAPTURE, -1, first, received, 0, 0, 0
            if _ends(program, produced, ending):
                return undelivered, lost, 0, -1, first, received, 0, produced, 0
            done, unknown, missing, error = _send(ports, program, produced)
            undelivered += unknown
            lost += missing
            if error != 0:
                return undelivered, lost, error, -1, first, received, done, produced, 0
    return undelivered, lost, 0, -1, 0, 0, 0, 0, 0


@njit(cache=True, nogil=True)
def queued_turn(  # noqa: PLR0917 - compiled functions are called by position
    ports: CompiledInterfaces,
    program: InlineQueues,
    times: tuple[float, float],
    descriptor: int,
    ending: int,
    rest: tuple[int, int],
    captures: CaptureFiles,
) -> _Found:
    """The same for one batch, of a program that records; before it, the rest of the one before."""
    begun, until = times
    words = np.zeros(4, np.int64)
    first, received = rest
    while first == received and program.traffic[TRAFFIC_ENTRIES] == 0:
        first = 0
        received, error, struck = receive_of_ports(
            ports.receiving, ports.most, ports.frames, ports.port
        )
        if error != 0:
            return 0, 0, error, struck, 0, received, 0, 0, 0
        if received == 0:
            left = until - monotonic(words)
            if left <= 0 or wait_readable(ports.poll, descriptor, left, words) != 1:
                return 0, 0, 0, -1, 0, 0, 0, 0, 0
    set_clock(program, int((monotonic(words) - begun) * 1e6))
    before = first
    first, produced, wanted, failed = run_queues(program, first, received, 0)
    if failed != 0:
        return 0, 0, _NO_MEMORY, -1, first, received, 0, 0, 0
    if _capture(captures, ports, program, (before, first, produced)) != 0:
        return 0, 0, _NO_CAPTURE, -1, first, received, 0, 0, 0
    keep_records(program)
    if _ends(program, produced, ending):
        return 0, 0, 0, -1, first, received, 0, produced, wanted
    done, unknown, missing, error = _send(ports, program, produced)
    if error == 0:
        done = produced = 0
    return unknown, missing, error, -1, first, received, done, produced, wanted


@njit(cache=True, nogil=True)
def _ends(program: InlineProgram | InlineQueues, produced: int, ending: int) -> bool:
    """Whether Python sends what left the program."""
    if ending == _NO_PORT:
        return False
    return ending == _ANY_PORT or bool(np.any(program.out_port[:produced] == ending))


@njit(cache=True, nogil=True)
def _capture(
    captures: CaptureFiles,
    ports: CompiledInterfaces,
    program: InlineProgram | InlineQueues,
    done: tuple[int, int, int],
) -> int:
    """``capture`` what was run, rows ``done[0]`` to ``done[1]``, and ``done[2]`` that left."""
    if len(captures.files) == 0:
        return 0
    begin, end, produced = done
    frames, out = ports.frames, program.out
    arrived = frames.data[begin:end], frames.length[begin:end], ports.port[begin:end]
    left = out[:produced], program.out_length[:produced], program.out_port[:produced]
    return int(capture(captures, arrived, left))


@njit(cache=True, nogil=True)
def _send(
    ports: CompiledInterfaces, program: InlineProgram | InlineQueues, produced: int
) -> tuple[int, int, int, int]:
    """Send what left the program, each packet by its port.

    Returns:
        How many were sent, in the order of ``by_port``; to unknown ports; lost; errno or 0.
    """
    length = program.out_length[:produced]
    rows, positions, unknown = by_port(program.out_port[:produced], ports.places)
    lost, begin = 0, 0
    while begin < len(rows):
        end = begin + 1
        while end < len(rows) and positions[end] == positions[begin]:
            end += 1
        leaving = SendBatch(program.out, length, 0, rows[begin:end], ports.names, rows[begin:end])
        done, missing, error = send_packets(
            ports.sockets[positions[begin], 0],
            leaving,
            0,
            _EACH_SEPARATELY,
            ports.transmission,
            True,
        )
        lost += missing
        if error != 0:
            # 0 unknown: Ports.send counts them when it sends the rest.
            return begin + done, 0, lost, error
        begin = end
    return begin, unknown, lost, 0
