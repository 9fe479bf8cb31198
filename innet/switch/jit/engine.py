"""The compiled engine: packets through a program's own machine code."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from innet.errors import InputError, UnsupportedError
from innet.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import SwitchState, allocate_registers, check_lengths, refusal
from innet.switch.jit import cache
from innet.switch.jit.emit_digests import decoded
from innet.switch.jit.emit_hashes import hashes_with_state
from innet.switch.jit.emit_program import Emitted, draws, emit
from innet.switch.jit.emit_queue import queues
from innet.switch.jit.emit_statements import STATISTICS
from innet.switch.jit.lower_program import looked_up
from innet.switch.jit.table_arrays import (
    Argument,
    replica_arrays,
    session_array,
    table_arguments,
    value_set_array,
)
from innet.switch.jit.unsupported import structural_reasons

_Received = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]
"""Data, lengths and ports of a batch."""

#: Lines of emitted code. Numba's time and memory grow faster than the code: 2,000 lines take a
#: minute and a gigabyte, 8,000 more than six minutes and ten gigabytes.
LONGEST_SOURCE = 4000

#: Output buffers kept for reuse; more are in use at a time only when callers hold batches.
_POOL = 4


class JitEngine:
    """Emits Python for a program, compiles it with Numba, and runs batches through it.

    The emitted source is a file (``source_path``), so that tracebacks and profilers show it.
    Compiling takes seconds the first time that a machine meets a program and is kept on disk.

    Raises:
        InputError: Numba is told not to compile.
        UnsupportedError: the program uses something the engine does not have; each use is named.
    """

    def __init__(self, program: ir.Program, state: SwitchState) -> None:
        if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # which numba sets as it starts
            raise InputError(
                "the jit engine compiles with Numba, which NUMBA_DISABLE_JIT turns off; unset it, "
                'or load the program with engine="interpret"'
            )
        if reasons := self.unsupported(program):
            raise UnsupportedError(
                refusal("jit", reasons) + '\nLoad the program with engine="interpret" instead.'
            )
        if not cache.stored(program):
            cache.store(program, _emitted(_Identity(program)).source)
        module = cache.load(program)
        self.source_path = cache.module_path(program)
        self._process: Any = module.process
        self._growth: int = module.GROWTH
        self._queues = queues(program)
        self._program = program
        self._state = state
        self._fixed = [
            *(_integers(group.matrix) for group in state.register_groups),
            *(counter.reshape(-1).view(np.int64) for counter in state.counters),
            *([state.random_state.view(np.int64)] if draws(program) else []),
            *(each.reshape(-1) for meter in state.meters for each in (meter.rates, meter.cells)),
        ]
        self._hashes: list[NDArray[np.int64]] = []
        self._tables: dict[int, list[Argument]] = {i: [] for i in looked_up(program)}
        self._versions = dict.fromkeys(self._tables, -1)
        self._generation = -1
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(program, state)
        self._buffers = _Buffers()
        self._capacity = 0

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """What ``program`` uses that the engine does not have, each with where it is used."""
        if reasons := structural_reasons(program):
            return reasons
        if cache.stored(program):
            return []
        try:
            lines = _emitted(_Identity(program)).source.count("\n")
        except UnsupportedError as error:
            return [str(error)]
        if lines > LONGEST_SOURCE:
            return [
                f"so much that it becomes {lines:,} lines of Python ({program.name}); beyond "
                f"{LONGEST_SOURCE:,}, Numba would take many minutes and gigabytes of memory"
            ]
        return []

    def process(self, batch: PacketBatch) -> PacketBatch:
        """Run packets in arrival order.

        The batch returned belongs to the caller: its memory is used again only after the caller has
        dropped every reference to it.

        Raises:
            InputError: a length that is negative or longer than a row.
        """
        check_lengths(batch)
        self._refresh()
        packets = (_trusted(batch.data), _trusted(batch.length), _trusted(batch.port))
        statistics = np.zeros(len(STATISTICS), np.int64)
        sent = (
            self._queued(packets, statistics) if self._queues else self._direct(packets, statistics)
        )
        self._add(statistics)
        return sent

    def _queued(self, packets: _Received, statistics: NDArray[np.int64]) -> PacketBatch:
        """For emitted code that makes its buffers larger itself."""
        stride = packets[0].shape[1] + self._growth
        out = self._buffers.take(max(self._capacity, len(packets[1])), stride)
        produced, data, length, port, origin, *digests = self._process(
            *packets,
            *out.arrays(),
            statistics,
            self._state.clock,
            *self._groups(),
            self._sessions,
            *self._standing(),
        )
        self._learn(digests)
        self._capacity = produced
        return _Buffer(data, length, port, origin).batch(produced)

    def _direct(self, packets: _Received, statistics: NDArray[np.int64]) -> PacketBatch:
        """For emitted code that fills a buffer as far as it goes."""
        count = len(packets[1])
        room = max(1, self._replicas.largest)
        stride = packets[0].shape[1] + self._growth
        self._capacity = max(self._capacity, count + room)
        parts: list[PacketBatch] = []
        first = 0
        while first < count or not parts:
            out = self._buffers.take(self._capacity, stride)
            first, produced, *digests = self._process(
                *packets,
                first,
                *out.arrays(),
                statistics,
                self._state.clock,
                room,
                *self._groups(),
                *self._standing(),
            )
            parts.append(out.batch(produced))
            self._learn(digests)
        if len(parts) == 1:
            return parts[0]
        # Multicast needed more rows than packets came in; next time there is room at once.
        self._capacity = sum(map(len, parts)) + room
        return PacketBatch.concatenate(parts)

    def _groups(self) -> tuple[NDArray[np.int64], ...]:
        return self._replicas.start, self._replicas.port, self._replicas.rid

    def _standing(self) -> list[Any]:
        """What outlives a batch, in the order of ``emit_program.argument_types``."""
        tables = [each for arguments in self._tables.values() for each in arguments]
        return [*self._fixed, *self._hashes, *tables, *self._value_sets]

    def _learn(self, digests: list[NDArray[np.int64]]) -> None:
        """Take over what emitted code returned besides packets."""
        for words in digests:
            self._state.digests.extend(decoded(self._program, words))

    def _refresh(self) -> None:
        """Take over what the control plane changed since the last batch."""
        state = self._state
        if state.generation.value == self._generation:
            return
        for index in self._tables:
            table = state.tables[index]
            if table.version != self._versions[index]:
                self._tables[index] = table_arguments(
                    self._program, table, state.profile_of(table.table)
                )
                self._versions[index] = table.version
        self._hashes = [state.hashes[i].words() for i in hashes_with_state(self._program)]
        self._replicas = replica_arrays(state.replication)
        self._sessions = session_array(state.replication)
        self._value_sets = _value_sets(self._program, state)
        self._generation = state.generation.value

    def _add(self, counts: NDArray[np.int64]) -> None:
        statistics = self._state.statistics
        for name, position in STATISTICS.items():
            if counts[position]:
                setattr(statistics, name, getattr(statistics, name) + int(counts[position]))


def _value_sets(program: ir.Program, state: SwitchState) -> list[NDArray[np.int64]]:
    sets = zip(program.value_sets, state.value_sets, strict=True)
    return [value_set_array(described, members) for described, members in sets]


def _trusted(array: NDArray[Any]) -> NDArray[Any]:
    """The array as emitted code takes it: a plain one, contiguous, aligned, writeable. It is only
    read, but arrays that may not be written are of another type to Numba.
    """
    plain = np.asarray(array)
    return plain if plain.flags.carray else plain.copy()


def _integers(matrix: NDArray[Any]) -> NDArray[Any]:
    """The matrix as a flat view; uint64 seen as int64, which emitted code computes in."""
    flat = matrix.reshape(-1)
    return flat.view(np.int64) if flat.dtype == np.uint64 else flat


class _Identity:
    """A program as a key: equal when the programs say the same."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and (
            self.program.fingerprint == other.program.fingerprint
        )

    def __hash__(self) -> int:
        return hash(self.program.fingerprint)


@lru_cache(maxsize=4)
def _emitted(identity: _Identity) -> Emitted:
    emitted = emit(identity.program, allocate_registers(identity.program))
    try:
        ast.parse(emitted.source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        # Python reads 200 nested parentheses and 100 nested blocks, and no more.
        raise UnsupportedError(
            f"the compiled engine cannot have expressions or conditions nested so deeply: {error}"
        ) from None
    return emitted


# ── Output buffers ───────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Buffer:
    data: NDArray[np.uint8]
    length: NDArray[np.int32]
    port: NDArray[np.int32]
    origin: NDArray[np.int32]

    def batch(self, count: int) -> PacketBatch:
        return PacketBatch(
            self.data[:count], self.length[:count], self.port[:count], self.origin[:count]
        )

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All of it, in the order of the emitted function's arguments."""
        return self.data, self.length, self.port, self.origin

    def references(self) -> int:
        """Grows with every view of the buffer's arrays that somebody holds."""
        return sum(map(sys.getrefcount, (self.data, self.length, self.port, self.origin)))


class _Buffers:
    """Gives out buffers, and gives one out again once nobody can see it any more.

    Fresh memory for every batch would cost more in page faults than many programs cost per packet.
    """

    def __init__(self) -> None:
        self._pool: list[tuple[_Buffer, int]] = []

    def take(self, rows: int, stride: int) -> _Buffer:
        for buffer, unused in self._pool:
            fits = buffer.data.shape[0] >= rows and buffer.data.shape[1] == stride
            if fits and buffer.references() == unused:
                return buffer
        buffer = _Buffer(
            np.empty((rows, stride), np.uint8), *(np.empty(rows, np.int32) for _ in range(3))
        )
        self._pool = [*self._pool[-(_POOL - 1) :], (buffer, buffer.references())]
        return buffer
