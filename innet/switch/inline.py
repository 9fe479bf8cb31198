"""Calls of a compiled program from other compiled code, without Python between batches.

``JitEngine.inline`` prepares a frame with the constant arguments. ``run_inline`` writes the others
and calls the program, as ``jit.native.Frame`` does from Python. ``JitEngine.inline_queues`` and
``run_queues`` do so for the form with egress queues. A call with packets only runs their ingress,
and a call with a time only runs the egress of packets due by then.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from innet.core.numba_cache import njit
from innet.switch import traffic_manager
from innet.switch.record_sink import RecordSink
from innet.switch.traffic_manager import FOREVER, TRAFFIC_WORDS

Words = NDArray[np.int64]

#: Numbers of arguments: those before are the packets received, those between what is sent.
FIRST, CLOCK = 3, 9
#: Words of an array of one or two dimensions, see ``jit.native``.
_ELEMENTS, _ADDRESS, _ROWS, _COLUMNS = 2, 4, 5, 6
#: Numbers of arguments of the form with queues, see ``jit.emit.program``.
_CLOCK, _TIMES, _SERIAL, _UNTIL, _FILLED, _STRIDE, _RECORDS = 11, 13, 15, 16, 18, 19, 28
#: What a recording build returns behind the rest: how many words of records it has written.
_RECORDED = 4
#: The word of ``InlineQueues.traffic`` that says how many copies wait.
TRAFFIC_ENTRIES = TRAFFIC_WORDS.index("entries")
#: How many words of digests it has, and the time of what happened last.
TRAFFIC_DIGESTED = TRAFFIC_WORDS.index("digested")
TRAFFIC_NOW = TRAFFIC_WORDS.index("now")


class InlineProgram(NamedTuple):
    """A compiled program and its frame.

    Attributes:
        entry: address of the program's C function.
        frame: (n,) int64, the words of ``jit.native.Frame``.
        starts: (k + 1,) int64: where in them each of the arguments begins, and what is returned.
        out: (rows, stride) uint8; ``out_length``, ``out_port``: (rows,) int32: what leaves.
    """

    entry: int
    frame: Words
    starts: Words
    out: NDArray[np.uint8]
    out_length: NDArray[np.int32]
    out_port: NDArray[np.int32]


class InlineSwitch(Protocol):
    """A program that other compiled code runs by ``run_inline``.

    Between ``begin`` and ``end`` nothing else may use the switch.
    """

    @property
    def behind(self) -> int:
        """The number of the control plane's changes that ``begin`` will take over."""
        ...

    def begin(self) -> InlineProgram:
        """Take over what the control plane changed."""
        ...

    def end(self) -> None:
        """Take over statistics and clock."""
        ...


def _call(context: Any, entry: Any, frame: Any) -> Any:  # noqa: ARG001 - as Numba calls it
    """Call the C function at the address ``entry`` with the address ``frame``."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:  # noqa: ARG001
        words = ir.IntType(64).as_pointer()
        function = ir.FunctionType(ir.IntType(32), [words]).as_pointer()
        return builder.call(
            builder.inttoptr(values[0], function), [builder.inttoptr(values[1], words)]
        )

    return types.int32(types.int64, types.int64), code


call_at: Any = intrinsic(_call)


@njit(cache=True, nogil=True, allocates=False)
def run_inline(program: InlineProgram, first: int, count: int, clock: int) -> tuple[int, int, int]:
    """Run packets ``first`` .. ``count - 1``, until the output buffer is full.

    They lie in the memory that ``Engine.inline`` was given. Lengths and ports must be right.

    Args:
        program: what ``InlineSwitch.begin`` gave.
        first: number of a packet.
        count: how many there are, those before ``first`` included.
        clock: microseconds.

    Returns:
        which packet is next; how many rows of ``out`` are filled; 0, or not if there was no
        memory for it.
    """
    frame, starts = program.frame, program.starts
    for argument in range(FIRST):
        at = starts[argument]
        is_matrix = argument == 0
        frame[at + _ELEMENTS] = count * (frame[at + _COLUMNS] if is_matrix else 1)
        frame[at + _ROWS] = count
    frame[starts[FIRST]] = first
    frame[starts[CLOCK]] = clock
    frame[-1] = 0
    failed = call_at(program.entry, frame.ctypes.data)
    returned = starts[-1]
    return int(frame[returned]), int(frame[returned + 1]), int(failed)


class InlineQueues(NamedTuple):
    """A compiled program with egress queues, its frame, and what waits.

    Attributes:
        entry, frame, starts, out, out_length, out_port: as those of ``InlineProgram``.
        out_origin: (rows,) int32: the row that each packet came in; -1: in an earlier batch.
        out_time: (rows,) int64, nanoseconds: when each packet leaves.
        out_extra: (rows,) int32: bytes by which it is longer than what it carries.
        times: (n,) int64, nanoseconds, to be filled in: when each packet arrives.
        extra: (n,) int32, likewise: bytes by which it is longer than what it carries.
        traffic, waiting: what the program keeps of its queues.
        received: shape (1,): packets so far.
    """

    entry: int
    frame: Words
    starts: Words
    out: NDArray[np.uint8]
    out_length: NDArray[np.int32]
    out_port: NDArray[np.int32]
    out_origin: NDArray[np.int32]
    out_time: Words
    out_extra: NDArray[np.int32]
    times: Words
    extra: NDArray[np.int32]
    traffic: Words
    waiting: Words
    received: Words


class InlineQueueSwitch(Protocol):
    """A program with egress queues that other compiled code runs by ``run_queues``.

    Between ``begin`` and ``end`` nothing else may use the switch.
    """

    @property
    def behind(self) -> int:
        """See ``InlineSwitch.behind``."""
        ...

    @property
    def pool(self) -> tuple[Words, int]:
        """Slots of packets that wait (``jit.runtime.queue``), flat, and how many words each has."""
        ...

    @property
    def store(self) -> NDArray[np.uint8]:
        """Their bytes as they came, shape (slots, bytes of the longest)."""
        ...

    def begin(self) -> InlineQueues:
        """Take over what the control plane changed."""
        ...

    def make_room(self, wanted: int) -> InlineQueues:
        """Make room for what ``run_queues`` or ``keep_records`` lacked.

        Before it, what ``out`` holds must have been taken. It comes with other arrays.
        """
        ...

    def end(self) -> None:
        """Take over statistics and clocks, and hand over records."""
        ...

    def record(self, recorder: RecordSink | None) -> bool:
        """Let a recording build run the packets from the next ``begin`` on.

        It is compiled if it is not on this machine. ``keep_records`` has to follow ``run_queues``.

        Args:
            recorder: takes the records, by ``end`` and ``make_room``; None: the build without
                records runs them again.

        Returns:
            whether it does; not if packets wait in the queues.
        """
        ...


#: The traffic manager's functions, for compiled code whose own packets share the queues. They are
#: in order of time with what the program sends and receives.
admit = njit(cache=True, nogil=True)(traffic_manager.admit)
is_congested = njit(cache=True, nogil=True)(traffic_manager.is_congested)
postponement = njit(cache=True, nogil=True)(traffic_manager.postponement)
withdraw = njit(cache=True, nogil=True)(traffic_manager.withdraw)


@njit(cache=True, nogil=True, allocates=False)
def next_departure(program: InlineQueues) -> int:
    """The time at which the next packet leaves its queue, in nanoseconds, or is found postponed;
    ``FOREVER`` if none waits.
    """
    return int(program.waiting[0]) if program.traffic[TRAFFIC_ENTRIES] else FOREVER


@njit(cache=True, nogil=True, allocates=False)
def run_queues(
    program: InlineQueues, first: int, count: int, until: int
) -> tuple[int, int, int, int]:
    """Receive packets ``first`` .. ``count - 1``, and run the egress of due packets.

    They lie in the memory that ``Engine.inline_queues`` was given, and arrive at
    ``program.times``, not before what has happened. Lengths, ports and times must be right. What
    leaves stands in the first rows of ``out``.

    Args:
        program: what ``InlineQueueSwitch.begin`` gave.
        first: number of a packet.
        count: how many there are, those before ``first`` included; ``first``: none is received.
        until: nanoseconds: packets that leave their queues later wait for another call. A time
            before the last arrival runs ingress only.

    Returns:
        which packet is next; how many rows of ``out`` are filled; 0, or what there is no room for,
        so that ``InlineQueueSwitch.make_room`` is called before the rest is run; 0, or not if it
        failed.
    """
    frame, starts = program.frame, program.starts
    stride = frame[starts[_STRIDE]]
    frame[starts[0] + _ELEMENTS] = count * stride
    frame[starts[0] + _ROWS] = count * stride
    for argument in range(1, FIRST):
        frame[starts[argument] + _ELEMENTS] = count
        frame[starts[argument] + _ROWS] = count
    serial = program.received[0] - first
    frame[starts[FIRST]] = first
    frame[starts[_SERIAL]] = serial
    frame[starts[_UNTIL]] = until
    frame[starts[_FILLED]] = 0
    frame[-1] = 0
    failed = call_at(program.entry, frame.ctypes.data)
    returned = starts[-1]
    following = int(frame[returned])
    program.received[0] = serial + following
    return following, int(frame[returned + 1]), int(frame[returned + 2]), int(failed)


@njit(cache=True, nogil=True, allocates=False)
def set_clock(program: InlineQueues, clock: int) -> None:
    """The microseconds of ``run_queues`` without times."""
    program.frame[program.starts[_CLOCK]] = clock


@njit(cache=True, nogil=True, allocates=False)
def keep_records(program: InlineQueues) -> int:
    """Let the next ``run_queues`` of a recording build write behind what the last one recorded.

    Returns:
        for how many words there is room; it takes ``jit.records.HAND_OVER_WORDS``, and then the
        rest of a packet's. If there is less, ``InlineQueueSwitch.make_room`` has to be called.
    """
    frame, at = program.frame, program.starts[_RECORDS]
    count = frame[program.starts[-1] + _RECORDED]
    frame[at + _ADDRESS] += 8 * count
    frame[at + _ELEMENTS] -= count
    frame[at + _ROWS] -= count
    return int(frame[at + _ROWS])
