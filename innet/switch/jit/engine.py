"""The compiled engine: batches of packets through a program's own machine code.

The arguments of the emitted function (``emit.program.argument_types``) lie in a frame
(``native.Frame``). Written in each call are the packets, the buffers for what leaves, and the time;
where the control plane changed something, also the arrays of its tables. The rest is written once.
"""

from __future__ import annotations

import importlib
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import UnsupportedError
from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import (
    SwitchState,
    backward_jumps,
    check_lengths,
    endless_loop,
    refusal,
)
from innet.switch.jit import cache
from innet.switch.jit.native import EndlessError, Frame, NativeProgram, Value, address_of
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
    from innet.switch.jit.inline import InlineProgram

_Received = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]
"""Data, lengths and ports of a batch."""

#: Output buffers kept for reuse; more are in use at a time only when callers hold batches.
_POOL_SIZE = 4


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
        native = cache.load(program) or _compile_and_store(program)
        self.source_path = cache.module_path(program)
        self._growth = native.compiled.growth
        self._frame = native.frame()
        self._queues = needs_queue(program)
        self._program = program
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
        # Arguments: packets (the plain loop also takes where to begin), from ``_out`` on four
        # arrays for what leaves, then statistics, the time, and of the plain loop the room that a
        # packet needs. ``_standing_arguments`` are the last.
        self._out = 3 if self._queues else 4
        self._buffers = _BufferPool(self._frame, self._out)
        self._statistics = np.zeros(len(STATISTICS), np.int64)
        self._frame.put(self._out + 4, [self._statistics])
        self._estimate = _SizeEstimate()

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
        packets = (_plain(batch.data), _plain(batch.length), _plain(batch.port))
        self._statistics.fill(0)
        try:
            return self._run_queue_loop(packets) if self._queues else self._run_plain_loop(packets)
        except EndlessError as error:
            jump = backward_jumps(self._program)[error.site]
            raise endless_loop(self._program, *jump) from None
        finally:
            self._add_statistics(self._statistics)

    def inline(self, packets: PacketBatch) -> JitInlineSwitch | None:
        """The program for compiled code to run; see ``Engine.inline``.

        None where packets come round, send digests or hit entries that age, which takes Python in
        between, or where a loop may turn out to have no end.
        """
        program = self._program
        ages = any(table.support_timeout for table in program.tables)
        if self._queues or ages or uses_digests(program) or backward_jumps(program):
            return None
        return JitInlineSwitch(self, packets)

    def _run_queue_loop(self, packets: _Received) -> PacketBatch:
        """All at once: the emitted code makes its buffers larger itself, and returns them."""
        count, width = packets[0].shape
        rows = self._estimate.rows(count, count, width + self._estimate.growth)
        growth = max(self._growth, self._estimate.growth_of(rows, width))
        out = self._buffers.take(rows, width + growth)
        self._frame.put(0, packets)
        self._frame.write(self._out, out.words)
        self._frame.put(self._out + 5, [self._state.time()])
        returned = self._frame.call(out.arrays)
        produced, data, length, port, origin, *digests = cast("list[Any]", returned)
        self._hand_over_digests(digests)
        # Next time there is as much room at once.
        self._estimate.note(count, max(count, produced), data.shape[1], data.shape[1] - width)
        return _Packets(data, length, port, origin).batch(produced)

    def _run_plain_loop(self, packets: _Received) -> PacketBatch:
        """In parts: the emitted code fills a buffer as far as it goes."""
        count = len(packets[1])
        room = max(1, self._replicas.largest)
        stride = packets[0].shape[1] + self._growth
        rows = self._estimate.rows(count, count + room, stride)
        parts: list[PacketBatch] = []
        first = 0
        while first < count or not parts:
            out = self._buffers.take(rows, stride)
            self._frame.put(0, [*packets, first])
            self._frame.write(self._out, out.words)
            self._frame.put(self._out + 5, [self._state.time(), room])
            first, produced, *digests = cast("list[Any]", self._frame.call({}))
            parts.append(out.batch(produced))
            self._hand_over_digests(digests)
        if len(parts) == 1:
            return parts[0]
        # Multicast needed more rows than packets came in; next time there is room at once.
        self._estimate.note(count, sum(map(len, parts)) + room, stride)
        return PacketBatch.concatenate(parts)

    def _standing_arguments(self) -> list[Value]:
        """What outlives a batch, in the order of ``emit.program.argument_types``."""
        return [
            *(self._replicas.start, self._replicas.port, self._replicas.rid),
            *([self._sessions] if self._queues else []),
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
        standing = self._standing_arguments()
        self._frame.put(self._frame.count - len(standing), standing)
        self._generation = state.generation.value

    def _add_statistics(self, counts: NDArray[np.int64]) -> None:
        statistics = self._state.statistics
        for name, count in zip(STATISTICS, counts.tolist(), strict=True):
            if count:
                setattr(statistics, name, getattr(statistics, name) + count)


class JitInlineSwitch:
    """The ``InlineSwitch`` of this engine: a program, and memory for what leaves it."""

    def __init__(self, engine: JitEngine, packets: PacketBatch) -> None:
        self._engine = engine
        self._rows, stride = packets.data.shape
        self._stride = stride + engine._growth
        self._packets = packets
        self._words = engine._frame.words(0, [packets.data, packets.length, packets.port, 0])
        self._starts = np.array(engine._frame.starts)
        self._out: _OutputBuffer | None = None
        # As the compiler: only who runs a program inline waits for Numba.
        module = importlib.import_module("innet.switch.jit.inline")
        self._program_type: type[InlineProgram] = module.InlineProgram

    def begin(self) -> InlineProgram:
        """Take over what the control plane changed; packets may be run until ``end``."""
        engine = self._engine
        engine._refresh()
        frame, room = engine._frame, max(1, engine._replicas.largest)
        if self._out is None or len(self._out.length) < self._rows + room:
            self._out = _OutputBuffer(frame, engine._out, self._rows + room, self._stride)
        frame.write(0, self._words)
        frame.write(engine._out, self._out.words)
        frame.put(engine._out + 5, [engine._state.time(), room])
        engine._statistics.fill(0)
        out = self._out
        return self._program_type(
            frame.entry, frame.memory, self._starts, out.data, out.length, out.port
        )

    def end(self) -> None:
        """Count the packets that were run, and keep the time that was passed last."""
        engine = self._engine
        engine._state.clock = int(engine._frame.memory[self._starts[engine._out + 5]])
        engine._add_statistics(engine._statistics)


def _compile_and_store(program: ir.Program) -> NativeProgram:
    """Compile a program and keep it."""
    compiler = _compiler()
    source = compiler.source_of(program)
    return cache.store(program, source, compiler.compile_source(source, cache.module_path(program)))


def _compiler() -> Any:
    # Imported when it is needed: Numba takes longer to import than what was compiled to load.
    return importlib.import_module("innet.switch.jit.compiler")


def _value_sets(program: ir.Program, state: SwitchState) -> list[NDArray[np.int64]]:
    sets = zip(program.value_sets, state.value_sets, strict=True)
    return [value_set_array(described, members) for described, members in sets]


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


# ── Output buffers ───────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _SizeEstimate:
    """How large output buffers must be, from batches that needed more than a row for each packet.

    Never more memory than one of those batches needed. Otherwise a few long packets, or one that
    became very many, would make the buffers of all later batches large in both directions.
    """

    per_packet: float = 0.0
    growth: int = 0
    size: int = 0

    def rows(self, count: int, least: int, stride: int) -> int:
        """Rows of ``stride`` bytes for ``count`` packets, ``least`` or more."""
        return max(least, min(math.ceil(count * self.per_packet), self.size // max(1, stride)))

    def growth_of(self, rows: int, width: int) -> int:
        """Bytes by which ``rows`` should be longer than the packets received, of ``width``."""
        return self.growth if rows * (width + self.growth) <= self.size else 0

    def note(self, count: int, produced: int, stride: int, growth: int = 0) -> None:
        """A batch of ``count`` packets became ``produced`` rows of ``stride`` bytes."""
        self.per_packet = max(self.per_packet, produced / max(1, count))
        self.growth = max(self.growth, growth)
        self.size = max(self.size, produced * stride)


@dataclass(slots=True)
class _Packets:
    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    port: NDArray[np.int32]
    origin: NDArray[np.int32]

    def batch(self, count: int) -> PacketBatch:
        return PacketBatch(
            self.data[:count], self.length[:count], self.port[:count], self.origin[:count]
        )


class _OutputBuffer(_Packets):
    """A buffer for the emitted function: ``words`` are its arguments, ``arrays`` by address."""

    def __init__(self, frame: Frame, first: int, rows: int, stride: int) -> None:
        numbers = (np.empty(rows, np.int32) for _ in range(3))
        super().__init__(np.empty((rows, stride), np.uint8), *numbers)
        arrays: list[NDArray[Any]] = [self.data, self.length, self.port, self.origin]
        self.words = frame.words(first, arrays)
        self.arrays = {address_of(each): each for each in arrays}
        del arrays
        self._unused = self._references()

    def _references(self) -> int:
        return sum(map(sys.getrefcount, self.arrays.values()))

    def is_held(self) -> bool:
        """Whether somebody holds a view of the buffer's arrays."""
        return self._references() != self._unused


class _BufferPool:
    """Gives out buffers, and gives one out again once nobody can see it any more.

    Fresh memory for every batch would cost more in page faults than many programs cost per packet.
    """

    def __init__(self, frame: Frame, first: int) -> None:
        self._frame = frame
        self._first = first
        self._pool: list[_OutputBuffer] = []

    def take(self, rows: int, stride: int) -> _OutputBuffer:
        for output in self._pool:
            fits = output.data.shape[0] >= rows and output.data.shape[1] == stride
            if fits and not output.is_held():
                return output
        output = _OutputBuffer(self._frame, self._first, rows, stride)
        self._pool = [*self._pool[-(_POOL_SIZE - 1) :], output]
        return output
