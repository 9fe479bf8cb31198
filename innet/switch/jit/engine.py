"""The compiled engine: batches of packets through a program's own machine code.

The arguments of the emitted function (``emit.program.argument_types``) lie in a frame
(``native.Frame``). Written in each call are the packets, the buffers for what leaves, and the time;
where the control plane changed something, also the arrays of its tables. The rest is written once.

A program has two forms. The plain one runs each packet to its end. The one with queues
(``queued.QueuedProgram``) is for calls with times, and for programs whose packets come by again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import UnsupportedError
from innet.core.packets import PacketBatch
from innet.core.process_lock import process_lock
from innet.switch import ir
from innet.switch.engine import (
    SwitchState,
    backward_jumps,
    check_lengths,
    endless_loop,
    refusal,
)
from innet.switch.jit import cache
from innet.switch.jit.buffers import BufferPool, OutputBuffer, SizeEstimate
from innet.switch.jit.native import EndlessError, Frame, NativeProgram, Value
from innet.switch.jit.queued import CLOCK, OUT, QueuedProgram, Received
from innet.switch.jit.tables.arrays import (
    Argument,
    replica_arrays,
    session_array,
    table_arguments,
    value_set_array,
)
from innet.switch.jit.traits import (
    STATISTICS,
    decode_digests,
    needs_queue,
    searched_tables,
    stateful_hashes,
    uses_digests,
    uses_random,
)

if TYPE_CHECKING:
    from innet.switch.jit.inline import InlineProgram, InlineQueues

#: Of the plain form: the time, behind what is sent and statistics.
_CLOCK = 9


class JitEngine:
    """Emits Python for a program, compiles it with Numba, and runs batches through it.

    The emitted source is a file (``source_path``), so that tracebacks and profilers show it.
    Compiling takes seconds the first time that a machine meets a program and is kept on disk.

    Raises:
        InputError: Numba is told not to compile.
        UnsupportedError: the program uses something the engine does not have; each use is named.
    """

    def __init__(self, program: ir.Program, state: SwitchState) -> None:
        if reasons := self.unsupported(program):
            raise UnsupportedError(refusal("jit", reasons))
        self.source_path = cache.module_path(program)
        self._program = program
        self._statistics = np.zeros(len(STATISTICS), np.int64)
        # At most one of both is missing: the form that no call needed yet.
        self._plain: _PlainProgram | None = None
        self._queued: QueuedProgram | None = None
        self._state = state
        # State that lives as long as the switch and is never moved.
        self._fixed: list[NDArray[Any]] = [
            *(_flat_int64(group.matrix) for group in state.register_groups),
            *(counter.reshape(-1).view(np.int64) for counter in state.counters),
            *([state.random_state.view(np.int64)] if uses_random(program) else []),
            *(each.reshape(-1) for meter in state.meters for each in (meter.rates, meter.cells)),
        ]
        self._hashes: list[NDArray[np.int64]] = []
        self._tables: dict[int, list[Argument]] = {i: [] for i in searched_tables(program)}
        self._versions = dict.fromkeys(self._tables, -1)
        self._generation = -1
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(program, state)
        if needs_queue(program):
            self._with_queues()
        else:
            self._plain = _PlainProgram(_native(program, queued=False), self._statistics)

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """What ``program`` uses that the engine does not have, each with where it is used."""
        if cache.load(program) is not None:
            return []
        reasons: list[str] = _compiler().reasons_against(program)
        return reasons

    def process(self, batch: PacketBatch) -> PacketBatch:
        """Run packets in arrival order.

        The batch returned belongs to the caller: its memory is used again only after the caller has
        dropped every reference to it.

        Raises:
            InputError: a length that is negative or longer than a row.
            EndlessLoopError: see ``Engine.process``.
        """
        check_lengths(batch)
        self._refresh()
        self._statistics.fill(0)
        received = _received(batch)
        with self._counted():
            if self._plain is not None:
                clock, room = self._state.time(), max(1, self._replicas.largest)
                return self._plain.run(received, clock, room, self._hand_over_digests)
            queued = self._with_queues()
            return queued.run(received, None, 0, self._room)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Add up statistics behind a call, and name the loop that had no end."""
        try:
            yield
        except BaseException as error:
            if self._queued is not None:
                self._queued.forget()  # it stopped in the middle of a packet
            if isinstance(error, EndlessError):
                jump = backward_jumps(self._program)[error.site]
                raise endless_loop(self._program, *jump) from None
            raise
        finally:
            self._add_statistics(self._statistics)

    def process_timed(
        self, batch: PacketBatch, times: NDArray[np.int64], until: int
    ) -> PacketBatch:
        """Run packets as they arrive, and what waits; see ``Engine.process_timed``."""
        check_lengths(batch)
        queued = self._with_queues()
        self._refresh()
        self._statistics.fill(0)
        received = _received(batch)
        times = _plain(times)
        with self._counted():
            return queued.run(received, times, until, self._room)

    @property
    def waiting(self) -> int:
        """Copies that wait for egress."""
        return 0 if self._queued is None else self._queued.waiting

    @property
    def next_departure(self) -> int | None:
        """When the next of them leaves, in nanoseconds."""
        return None if self._queued is None else self._queued.next_departure

    @property
    def _room(self) -> int:
        """Entries that one packet may become at once: its own copies and its clone's."""
        return 2 * self._replicas.largest + 2

    def _with_queues(self) -> QueuedProgram:
        """The form with queues, compiled the first time that it is needed."""
        if self._queued is None:
            native = _native(self._program, queued=True)
            self._queued = QueuedProgram(native, self._state, self._statistics)
            self._generation = -1  # its frame lacks what the control plane has set so far
        return self._queued

    def inline(self, packets: PacketBatch) -> JitInlineSwitch | None:
        """The program for compiled code to run; see ``Engine.inline``.

        None where packets come round, send digests or hit entries that age, which takes Python in
        between, or where a loop may turn out to have no end.
        """
        program = self._program
        ages = any(table.support_timeout for table in program.tables)
        if self._plain is None or ages or uses_digests(program) or backward_jumps(program):
            return None
        return JitInlineSwitch(self, packets)

    def inline_queues(self, packets: PacketBatch) -> JitInlineQueues | None:
        """The form with egress queues for compiled code to run; see ``Engine.inline_queues``."""
        program = self._program
        if any(table.support_timeout for table in program.tables) or backward_jumps(program):
            return None
        return JitInlineQueues(self, packets)

    def _state_arguments(self, queued: bool) -> list[Value]:
        """What outlives a batch, in the order of ``emit.program.argument_types``."""
        return [
            self._state.traffic_manager.priorities,
            *(self._replicas.start, self._replicas.port, self._replicas.rid),
            *([self._sessions] if queued else []),
            *self._fixed,
            *self._hashes,
            *(each for arguments in self._tables.values() for each in arguments),
            *self._value_sets,
        ]

    def _hand_over_digests(self, digests: list[NDArray[np.int64]]) -> None:
        """Give the control plane what emitted code returned besides packets."""
        for words in digests:
            self._state.digests.extend(decode_digests(self._program, words))

    def _refresh(self) -> None:
        """Take over what the control plane changed since the last batch."""
        state = self._state
        if state.generation.value == self._generation:
            return
        # Only tables that changed are laid out anew; all else costs little.
        for index in self._tables:
            table = state.tables[index]
            if table.version != self._versions[index]:
                self._tables[index] = table_arguments(
                    self._program, table, state.profile_of(table.table)
                )
                self._versions[index] = table.version
        self._hashes = [state.hashes[i].words() for i in stateful_hashes(self._program)]
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(self._program, state)
        # All in one go, since the frame holds addresses, which may have changed.
        for form in (self._plain, self._queued):
            if form is not None:
                values = self._state_arguments(form is self._queued)
                form.frame.put(form.frame.count - len(values), values)
        self._generation = state.generation.value

    def _add_statistics(self, counts: NDArray[np.int64]) -> None:
        statistics = self._state.statistics
        for name, count in zip(STATISTICS, counts.tolist(), strict=True):
            if count:
                setattr(statistics, name, getattr(statistics, name) + count)


class JitInlineSwitch:
    """The ``InlineSwitch`` of this engine: a program, and memory for what leaves it."""

    def __init__(self, engine: JitEngine, packets: PacketBatch) -> None:
        assert engine._plain is not None, "inline() made sure"
        self._engine, self._plain = engine, engine._plain
        frame = self._plain.frame
        self._rows, stride = packets.data.shape
        self._stride = stride + self._plain.growth
        self._packets = packets
        self._words = frame.words(0, [packets.data, packets.length, packets.port, 0])
        self._starts = np.array(frame.starts)
        self._out: OutputBuffer | None = None
        # As the compiler: only who runs a program inline waits for Numba.
        module = importlib.import_module("innet.switch.jit.inline")
        self._program_type: type[InlineProgram] = module.InlineProgram

    def begin(self) -> InlineProgram:
        """Take over what the control plane changed; packets may be run until ``end``."""
        engine = self._engine
        engine._refresh()
        frame, room = self._plain.frame, max(1, engine._replicas.largest)
        if self._out is None or len(self._out.length) < self._rows + room:
            self._out = OutputBuffer(frame, OUT, self._rows + room, self._stride, timed=False)
        frame.write(0, self._words)
        frame.write(OUT, self._out.words)
        frame.put(_CLOCK, [engine._state.time(), room])
        engine._statistics.fill(0)
        out = self._out
        return self._program_type(
            frame.entry, frame.memory, self._starts, out.data, out.length, out.port
        )

    def end(self) -> None:
        """Count the packets that were run, and keep the time that was passed last."""
        engine = self._engine
        engine._state.clock = int(self._plain.frame.memory[self._starts[_CLOCK]])
        engine._add_statistics(engine._statistics)


class JitInlineQueues:
    """The ``InlineQueueSwitch`` of this engine."""

    def __init__(self, engine: JitEngine, packets: PacketBatch) -> None:
        self._engine, self._queued = engine, engine._with_queues()
        self._packets = packets
        rows, self._width = packets.data.shape
        self._times = np.zeros(rows, np.int64)
        self._out = self._queued.buffers.take(rows + 1, self._queued.room_for(self._width))
        self._out.batch(0)
        module = importlib.import_module("innet.switch.jit.inline")
        self._program_type: type[InlineQueues] = module.InlineQueues

    def begin(self) -> InlineQueues:
        """Take over what the control plane changed; packets may be run until ``end``."""
        engine, queued, packets = self._engine, self._queued, self._packets
        engine._refresh()
        engine._statistics.fill(0)
        manager = engine._state.traffic_manager
        queued.traffic[0] = manager.now
        frame, out = queued.frame, self._out
        frame.put(0, [packets.data.reshape(-1), packets.length, packets.port, 0])
        frame.write(OUT, out.words)
        frame.put(CLOCK, [engine._state.time(), engine._room, self._times, 0, 0, 1, 0, self._width])
        queued.write_persistent()
        assert out.time is not None
        return self._program_type(
            entry=frame.entry,
            frame=frame.memory,
            starts=np.array(frame.starts),
            out=out.data,
            out_length=out.length,
            out_port=out.port,
            out_origin=out.origin,
            out_time=out.time,
            times=self._times,
            traffic=queued.traffic,
            waiting=queued.heap,
            received=queued.received,
        )

    def make_room(self, wanted: int) -> InlineQueues:
        """Make room for what ``run_queues`` lacked; what has left must have been taken."""
        queued = self._queued
        needed = int(queued.frame.memory[queued.frame.starts[-1] + 3])
        self._out = queued.make_room(wanted, needed, self._engine._room, self._out, 0)
        self.end()
        return self.begin()

    def end(self) -> None:
        """Count the packets that were run, hand over digests, and let the clocks follow."""
        self._queued.take_time()
        self._queued.hand_over_digests()
        self._engine._add_statistics(self._engine._statistics)


class _PlainProgram:
    """Calls of a compiled program whose packets run to their end one after the other."""

    def __init__(self, native: NativeProgram, statistics: NDArray[np.int64]) -> None:
        self.frame: Frame = native.frame()
        self.growth = native.compiled.growth
        self._buffers = BufferPool(self.frame, OUT)
        self._estimate = SizeEstimate()
        self.frame.put(_CLOCK - 1, [statistics])

    def run(
        self,
        packets: Received,
        clock: int,
        room: int,
        hand_over: Callable[[list[Any]], None],
    ) -> PacketBatch:
        """In parts: the emitted code fills a buffer as far as it goes."""
        count = len(packets[1])
        stride = packets[0].shape[1] + self.growth
        rows = self._estimate.rows(count, count + room, stride)
        parts: list[PacketBatch] = []
        first = 0
        while first < count or not parts:
            out = self._buffers.take(rows, stride)
            self.frame.put(0, [*packets, first])
            self.frame.write(OUT, out.words)
            self.frame.put(_CLOCK, [clock, room])
            first, produced, *digests = cast("list[Any]", self.frame.call({}))
            parts.append(out.batch(produced))
            hand_over(digests)
        if len(parts) == 1:
            return parts[0]
        # Multicast needed more rows than packets came in; next time there is room at once.
        self._estimate.note(count, sum(map(len, parts)) + room, stride)
        return PacketBatch.concatenate(parts)


def _native(program: ir.Program, *, queued: bool) -> NativeProgram:
    """One form of a program, compiled and kept if nobody did so before. Of several processes that
    need it, one compiles it.
    """
    if (found := cache.load(program, queued)) is not None:
        return found
    compiler = _compiler()
    source = compiler.source_of(program, queued)
    path = cache.module_path(program, queued)
    with process_lock(path.with_suffix(".lock")):
        if (found := cache.load(program, queued)) is not None:
            return found
        return cache.store(program, source, compiler.compile_source(source, path), queued)


def _compiler() -> Any:
    # Imported when it is needed: Numba takes longer to import than what was compiled to load.
    return importlib.import_module("innet.switch.jit.compiler")


def _value_sets(program: ir.Program, state: SwitchState) -> list[NDArray[np.int64]]:
    sets = zip(program.value_sets, state.value_sets, strict=True)
    return [value_set_array(described, members) for described, members in sets]


def _received(batch: PacketBatch) -> Received:
    return (_plain(batch.data), _plain(batch.length), _plain(batch.port))


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array as emitted code takes it: a plain one, contiguous, aligned, writeable. It is only
    read, but arrays that may not be written are of another type to Numba.
    """
    plain = np.asarray(array)
    return plain if plain.flags.carray else plain.copy()


def _flat_int64(matrix: NDArray[Any]) -> NDArray[Any]:
    """The matrix as a flat view; uint64 seen as int64, which emitted code computes in."""
    flat = matrix.reshape(-1)
    return flat.view(np.int64) if flat.dtype == np.uint64 else flat
