"""The compiled engine: runs batches of packets through a program's machine code.

The arguments of the emitted function (``emit.program.argument_types``) are in a frame
(``native.Frame``). Each call writes the packets, the output buffers and the time. After control
plane changes it also writes the arrays of tables. The rest is written once.

A program has two forms. The plain one runs each packet to completion. The one with queues
(``queued.QueuedProgram``) is for calls with times, and for programs that clone, resubmit or
recirculate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
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
    TableArguments,
    replica_arrays,
    session_array,
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
    from innet.switch.inline import InlineProgram, InlineQueues
    from innet.switch.record_sink import RecordSink

#: Argument of the plain form: the time, after output buffers and statistics.
_CLOCK = 9

#: Seconds without a change after which small tables are prepared for many look-ups.
_QUIET = 0.1


class JitEngine:
    """Emits Python for a program, compiles it with Numba, and runs batches through it.

    The emitted source is a file (``source_path``), so that tracebacks and profilers show it.
    The first compilation of a program takes seconds; the result is cached on disk.

    Args:
        program: what it runs.
        state: of the switch.
        recorder: takes the records of what happens to packets; by default nothing is recorded. A
            recording build is another one, which is compiled when it is asked for.

    Raises:
        InputError: NUMBA_DISABLE_JIT is set.
        UnsupportedError: the program uses constructs that the engine lacks; all are named.
    """

    def __init__(
        self, program: ir.Program, state: SwitchState, recorder: RecordSink | None = None
    ) -> None:
        if reasons := self.unsupported(program):
            raise UnsupportedError(refusal("jit", reasons))
        self.source_path = cache.module_path(program, recording=recorder is not None)
        self._program = program
        self._recorder = recorder
        self._statistics = np.zeros(len(STATISTICS), np.int64)
        # Forms that no call has needed yet are None.
        self._made_plain: _PlainProgram | None = None
        self._queued: QueuedProgram | None = None
        self._state = state
        # Arrays that live as long as the switch and are never moved.
        self._fixed: list[NDArray[Any]] = [
            *(_flat_int64(group.matrix) for group in state.register_groups),
            *(counter.reshape(-1).view(np.int64) for counter in state.counters),
            *([state.random_state.view(np.int64)] if uses_random(program) else []),
            *(each.reshape(-1) for meter in state.meters for each in (meter.rates, meter.cells)),
        ]
        self._hashes: list[NDArray[np.int64]] = []
        self._searches = {
            i: TableArguments(program, state.tables[i], state.profile_of(program.tables[i]))
            for i in searched_tables(program)
        }
        self._tables: dict[int, list[Argument]] = {i: [] for i in self._searches}
        self._versions = dict.fromkeys(self._tables, -1)
        self._generation = -1
        self._beside_tables = -1
        self._unsettled: set[int] = set()  # tables that ``TableArguments.settle`` may improve
        self._changed = 0.0  # when a table did
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(program, state)
        self._has_plain = recorder is None and not needs_queue(program)
        self._beside: list[_PlainProgram] = []  # for other threads, with counters of their own

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """Constructs of ``program`` that the engine lacks, each with where it is used."""
        if any(cache.load(program, recording=each) is not None for each in (False, True)):
            return []
        from innet.switch.jit.compiler import reasons_against  # noqa: PLC0415 - as in _native

        return reasons_against(program)

    @property
    def _plain(self) -> _PlainProgram | None:
        """The form without queues, if the program has one."""
        if self._made_plain is None and self._has_plain:
            native = _native(self._program, queued=False)
            self._made_plain = _PlainProgram(native, self._statistics)
            self._generation = -1  # its frame lacks the control plane's state
        return self._made_plain

    def process(self, batch: PacketBatch) -> PacketBatch:
        """Run packets in arrival order.

        The memory of the returned batch is reused only after the caller has dropped every reference
        to it.

        Raises:
            InputError: a length is negative or longer than a row.
            EndlessLoopError: see ``Engine.process``.
        """
        check_lengths(batch)
        # The plain form knows no packets that are longer than what they carry.
        is_queued = batch.extra is not None or self._plain is None
        if is_queued:
            self._with_queues()
        self._refresh()
        self._statistics.fill(0)
        received = _received(batch)
        with self._counted():
            if not is_queued and self._plain is not None:
                clock, room = self._state.time(), max(1, self._replicas.largest)
                return self._plain.run(received, clock, room, self._hand_over_digests)
            return self._with_queues().run(received, _extra(batch), None, 0, self._room)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Add statistics after a call, and translate the error of an endless loop."""
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
        """Run packets at their arrival times, and due copies; see ``Engine.process_timed``."""
        check_lengths(batch)
        queued = self._with_queues()
        self._refresh()
        self._statistics.fill(0)
        received = _received(batch)
        times = _plain(times)
        with self._counted():
            return queued.run(received, _extra(batch), times, until, self._room)

    @property
    def received(self) -> int:
        """Packets so far of the form with queues; the next one is recorded by this number."""
        return 0 if self._queued is None else int(self._queued.received[0])

    @property
    def waiting(self) -> int:
        """The number of copies that wait for egress."""
        return 0 if self._queued is None else self._queued.waiting

    @property
    def next_departure(self) -> int | None:
        """The departure time of the next copy, in nanoseconds."""
        return None if self._queued is None else self._queued.next_departure

    @property
    def _room(self) -> int:
        """Most queue entries of one packet at a time: its copies and its clone's."""
        return 2 * self._replicas.largest + 2

    def _with_queues(self) -> QueuedProgram:
        """The form with queues, compiled at its first use."""
        if self._queued is None:
            recorder = self._recorder
            native = _native(self._program, queued=True, recording=recorder is not None)
            self._queued = QueuedProgram(native, self._state, self._statistics, recorder)
            self._generation = -1  # its frame lacks the control plane's state
        return self._queued

    def inline(self, packets: PacketBatch, *, beside: bool = False) -> JitInlineSwitch | None:
        """The program for compiled code to run; see ``Engine.inline``.

        None if packets recirculate, send digests or hit entries that age, which needs Python
        between packets, or if a loop may be endless.
        """
        program = self._program
        ages = any(table.support_timeout for table in program.tables)
        if ages or uses_digests(program) or backward_jumps(program) or self._plain is None:
            return None
        if not beside:
            return JitInlineSwitch(self, packets, self._plain)
        counters = [np.zeros_like(counter) for counter in self._state.counters]
        statistics = np.zeros_like(self._statistics)
        form = _PlainProgram(self._plain.native, statistics, counters)
        self._beside.append(form)
        self._generation = -1  # its frame lacks the control plane's state
        return JitInlineSwitch(self, packets, form)

    def inline_queues(self, packets: PacketBatch, *, timed: bool = True) -> JitInlineQueues | None:
        """The form with egress queues for compiled code to run; see ``Engine.inline_queues``."""
        program = self._program
        ages = any(table.support_timeout for table in program.tables)
        if (timed and self._recorder is not None) or ages or backward_jumps(program):
            return None
        return JitInlineQueues(self, packets, timed=timed)

    def _record_queues(self, recorder: RecordSink | None) -> None:
        """Let a build that records, or not, be the form with queues; nothing waits."""
        received, queues = self.received, self._state.traffic_manager.queues
        before = queues.copy()  # lines are busy, and packets without bytes wait
        native = _native(self._program, queued=True, recording=recorder is not None)
        self._queued = QueuedProgram(native, self._state, self._statistics, recorder)
        self._queued.received[0] = received
        queues[:] = before
        self._generation = -1  # its frame lacks the control plane's state

    def _forms(self) -> list[_PlainProgram | QueuedProgram]:
        """All that have frames."""
        both = (self._made_plain, self._queued)
        return [*(form for form in both if form is not None), *self._beside]

    def _state_arguments(self, form: _PlainProgram | QueuedProgram) -> list[Value]:
        """The arguments that persist between batches, in the order of
        ``emit.program.argument_types``.
        """
        fixed, begin = list(self._fixed), len(self._state.register_groups)
        if isinstance(form, _PlainProgram):
            own = [counter.reshape(-1).view(np.int64) for counter in form.counters]
            fixed[begin : begin + len(own)] = own
        return [
            self._state.traffic_manager.priorities,
            *(self._replicas.start, self._replicas.port, self._replicas.rid),
            *([self._sessions] if form is self._queued else []),
            *fixed,
            *self._hashes,
            *(each for arguments in self._tables.values() for each in arguments),
            *self._value_sets,
        ]

    def _hand_over_digests(self, digests: list[NDArray[np.int64]]) -> None:
        """Pass the digests that emitted code returned to the control plane."""
        for words in digests:
            self._state.digests.extend(decode_digests(self._program, words))

    def _refresh(self) -> None:
        """Update the arguments after control plane changes since the last batch."""
        state = self._state
        if state.generation.value == self._generation:
            if self._unsettled and monotonic() - self._changed > _QUIET:
                self._settle()
            return
        changed = self._changed_tables()
        beside = state.generation.beside_tables
        if self._generation >= 0 and beside == self._beside_tables:
            self._write_tables(changed)
            self._generation = state.generation.value
            return
        self._beside_tables = beside
        self._hashes = [state.hashes[i].words() for i in stateful_hashes(self._program)]
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(self._program, state)
        # Write all arguments, since the addresses in the frame may have changed.
        for form in self._forms():
            values = self._state_arguments(form)
            form.frame.put(form.frame.count - len(values), values)
        self._generation = state.generation.value

    def _changed_tables(self) -> dict[int, list[int]]:
        """Update the arguments of tables that changed.

        Returns:
            by table: which of its arguments are others than before.
        """
        changed: dict[int, list[int]] = {}
        for index, search in self._searches.items():
            version = self._state.tables[index].version
            if version == self._versions[index]:
                continue
            had = self._tables[index]
            if self._versions[index] < 0:  # at first, before packets come
                self._tables[index] = search.settle()
            else:
                self._tables[index] = search.update()
                if search.unsettled:
                    self._unsettled.add(index)
                    self._changed = monotonic()
            self._versions[index] = version
            changed[index] = [
                i
                for i, each in enumerate(self._tables[index])
                if i >= len(had) or each is not had[i]
            ]
        return changed

    def _settle(self) -> None:
        """Improve what was changed a while ago."""
        for index in self._unsettled:
            self._tables[index] = self._searches[index].settle()
        self._write_tables({i: range(len(self._tables[i])) for i in self._unsettled})
        self._unsettled = set()

    def _write_tables(self, changed: Mapping[int, Iterable[int]]) -> None:
        """Write arguments of tables to the frames, which hold all others already."""
        for form in self._forms():
            behind = sum(map(len, self._tables.values())) + len(self._value_sets)
            first = form.frame.count - behind
            for index, arguments in self._tables.items():
                for each in changed.get(index, ()):
                    form.frame.put(first + each, [arguments[each]])
                first += len(arguments)

    def _add_statistics(self, counts: NDArray[np.int64]) -> None:
        statistics = self._state.statistics
        for name, count in zip(STATISTICS, counts.tolist(), strict=True):
            if count:
                setattr(statistics, name, getattr(statistics, name) + count)


class JitInlineSwitch:
    """The ``InlineSwitch`` of this engine: a program and its output buffer."""

    def __init__(self, engine: JitEngine, packets: PacketBatch, form: _PlainProgram) -> None:
        self._engine, self._plain = engine, form
        frame = self._plain.frame
        self._rows, stride = packets.data.shape
        self._stride = stride + self._plain.growth
        self._packets = packets
        self._words = frame.words(0, [packets.data, packets.length, packets.port, 0])
        self._starts = np.array(frame.starts)
        self._out: OutputBuffer | None = None
        # Imported here like the compiler, so that only inline programs wait for Numba.
        from innet.switch.inline import InlineProgram  # noqa: PLC0415

        self._program_type = InlineProgram

    @property
    def behind(self) -> int:
        """See ``InlineSwitch.behind``."""
        return self._engine._state.generation.value - self._engine._generation

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
        self._plain.statistics.fill(0)
        out = self._out
        return self._program_type(
            frame.entry, frame.memory, self._starts, out.data, out.length, out.port
        )

    def end(self) -> None:
        """Count the packets that were run, and record the last time."""
        state, form = self._engine._state, self._plain
        state.clock = int(form.frame.memory[self._starts[_CLOCK]])
        self._engine._add_statistics(form.statistics)
        for own, counter in zip(form.counters, state.counters, strict=False):
            if own.any():
                np.add(counter, own, out=counter)
                own.fill(0)


class JitInlineQueues:
    """The ``InlineQueueSwitch`` of this engine."""

    def __init__(self, engine: JitEngine, packets: PacketBatch, *, timed: bool) -> None:
        self._engine, self._timed = engine, timed
        self._packets = packets
        rows, self._width = packets.data.shape
        self._program: InlineQueues
        self._times = np.zeros(rows, np.int64)
        self._extra = np.zeros(rows, np.int32)
        self._use(engine._with_queues())
        from innet.switch.inline import InlineQueues  # noqa: PLC0415

        self._program_type = InlineQueues

    def _use(self, queued: QueuedProgram) -> None:
        self._queued = queued
        self._out = queued.buffers.take(len(self._times) + 1, queued.room_for(self._width))
        self._out.batch(0)

    @property
    def behind(self) -> int:
        """See ``InlineSwitch.behind``."""
        return self._engine._state.generation.value - self._engine._generation

    @property
    def pool(self) -> tuple[NDArray[np.int64], int]:
        """See ``InlineQueueSwitch.pool``."""
        return self._queued.slots

    @property
    def store(self) -> NDArray[np.uint8]:
        """See ``InlineQueueSwitch.store``."""
        return self._queued.store

    def record(self, recorder: RecordSink | None) -> bool:
        """See ``InlineQueueSwitch.record``."""
        if self._engine.waiting:
            return False
        self._engine._record_queues(recorder)
        return True

    def begin(self) -> InlineQueues:
        """Take over what the control plane changed; packets may be run until ``end``."""
        engine, packets = self._engine, self._packets
        if engine._queued is not self._queued:
            self._use(engine._with_queues())
        queued = self._queued
        engine._refresh()
        engine._statistics.fill(0)
        manager = engine._state.traffic_manager
        queued.traffic[0] = manager.now
        prepared = self, engine._generation
        if not self._timed and queued.is_prepared(prepared):
            return self._program
        frame, out = queued.frame, self._out
        frame.put(0, [packets.data.reshape(-1), packets.length, packets.port, 0])
        frame.write(OUT, out.words)
        numbers = [0, 0, int(self._timed), 0, self._width]
        arguments = [engine._state.time(), engine._room, self._times, self._extra, *numbers]
        frame.put(CLOCK, arguments)
        queued.write_persistent()
        queued.prepared = prepared
        assert out.time is not None
        assert out.extra is not None
        self._program = self._program_type(
            entry=frame.entry,
            frame=frame.memory,
            starts=np.array(frame.starts),
            out=out.data,
            out_length=out.length,
            out_port=out.port,
            out_origin=out.origin,
            out_time=out.time,
            out_extra=out.extra,
            times=self._times,
            extra=self._extra,
            traffic=queued.traffic,
            waiting=queued.heap,
            received=queued.received,
        )
        return self._program

    def make_room(self, wanted: int) -> InlineQueues:
        """Provide the memory that ``run_queues`` lacked. The caller must have taken its output."""
        queued = self._queued
        needed = int(queued.frame.memory[queued.frame.starts[-1] + 3])
        self._out = queued.make_room(wanted, needed, self._engine._room, self._out, 0)
        queued.prepared = None
        self.end()
        return self.begin()

    def end(self) -> None:
        """Count the packets that were run, deliver digests, and advance the clocks."""
        frame = self._queued.frame
        if self._timed:
            self._queued.take_time()
        else:
            self._engine._state.clock = int(frame.memory[frame.starts[CLOCK]])
        self._queued.hand_over_digests()
        self._queued.take_records()
        self._engine._add_statistics(self._engine._statistics)


class _PlainProgram:
    """Calls of a compiled program in its plain form.

    Args:
        native: the program.
        statistics: the array of emitted code's counters.
        counters: in place of the switch's, for a form that runs beside another one.
    """

    def __init__(
        self,
        native: NativeProgram,
        statistics: NDArray[np.int64],
        counters: Sequence[NDArray[np.uint64]] = (),
    ) -> None:
        self.native, self.statistics, self.counters = native, statistics, counters
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
        """Run packets in parts: each call of the emitted code fills a buffer."""
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
        # Multicast needed more rows than there were packets; the next buffer is larger.
        self._estimate.note(count, sum(map(len, parts)) + room, stride)
        return PacketBatch.concatenate(parts)


def _native(program: ir.Program, *, queued: bool, recording: bool = False) -> NativeProgram:
    """One form of a program, from the cache or compiled; only one process compiles it."""
    if (found := cache.load(program, queued, recording=recording)) is not None:
        return found
    # Imported when needed, since importing Numba takes longer than loading a cached program.
    from innet.switch.jit import compiler  # noqa: PLC0415

    source = compiler.source_of(program, queued, recording=recording)
    path = cache.module_path(program, queued, recording=recording)
    with process_lock(path.with_suffix(".lock")):
        if (found := cache.load(program, queued, recording=recording)) is not None:
            return found
        compiled = compiler.compile_source(source, path)
        return cache.store(program, source, compiled, queued, recording=recording)


def _value_sets(program: ir.Program, state: SwitchState) -> list[NDArray[np.int64]]:
    sets = zip(program.value_sets, state.value_sets, strict=True)
    return [value_set_array(described, members) for described, members in sets]


def _received(batch: PacketBatch) -> Received:
    return (_plain(batch.data), _plain(batch.length), _plain(batch.port))


def _extra(batch: PacketBatch) -> NDArray[np.int32] | None:
    return None if batch.extra is None else _plain(batch.extra)


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """The array as emitted code requires it: contiguous, aligned, writeable. It is only read, but
    read-only arrays have another type in Numba.
    """
    plain = np.asarray(array)
    return plain if plain.flags.carray else plain.copy()


def _flat_int64(matrix: NDArray[Any]) -> NDArray[Any]:
    """The matrix as a flat view, with uint64 as int64, the integer type of emitted code."""
    flat = matrix.reshape(-1)
    return flat.view(np.int64) if flat.dtype == np.uint64 else flat
