"""The log of packets that machine code runs: the lines of one packet serve all that are like it.

What the log says about a packet follows from its port, its length, and those of its bits that the
parser, keys, conditions and logged values depend on. ``find_key`` finds these bits in a program.
Packets with the same bits have the same lines, except for their number and the time. So for the
first of them the interpreter makes the lines, without an effect on the state, and machine code runs
all of them.

Some lines depend on more than the packet: on registers that are read, meters, random numbers,
times, copies that come again. Programs with such lines have no key, and the interpreter runs their
packets (``why_not`` says for what reason).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.packets import PacketBatch
from innet.switch import ir
from innet.switch.engine import Engine, SwitchState, backward_jumps, check_lengths
from innet.switch.interpreter.engine import InterpretEngine
from innet.switch.interpreter.packet_log import NUMBER, PacketLog, Prepare, Replay, Write
from innet.switch.ir.tree import walk

_MOST_KINDS = 4096
"""Kinds of packets whose lines are kept; with one more the log begins to learn anew."""
_MOST_POSITIONS = 256
"""Positions in packets at which parser states may begin."""
_STEADY = frozenset(
    [
        *("crc8", "crc16", "crc32", "crc64", "crcCCITT", "csum16", "cksum16", "xor16", "identity"),
        *("crc8_custom", "crc16_custom", "crc32_custom", "crc64_custom"),
    ]
)
"""Hash algorithms whose result follows from their input and the control plane."""


@dataclass(frozen=True, slots=True)
class FlowKey:
    """The bits of a packet that its lines depend on.

    Attributes:
        columns: shape (k,), int64: positions of the bytes with these bits.
        masks: shape (k,), uint8: the bits.
    """

    columns: NDArray[np.int64]
    masks: NDArray[np.uint8]

    def of(self, batch: PacketBatch) -> list[bytes]:
        """For each packet its port, its length and these bits. Bits behind its end are 0."""
        count = len(batch)
        inside = self.columns[self.columns < batch.data.shape[1]]
        keys = np.zeros((count, 8 + len(self.columns)), np.uint8)
        keys[:, 0:4] = np.ascontiguousarray(batch.port).view(np.uint8).reshape(count, 4)
        keys[:, 4:8] = np.ascontiguousarray(batch.length).view(np.uint8).reshape(count, 4)
        bits = batch.data[:, inside] & self.masks[: len(inside)]
        bits[inside >= batch.length[:, None]] = 0
        keys[:, 8 : 8 + len(inside)] = bits
        joined, width = keys.tobytes(), keys.shape[1]
        return [joined[at : at + width] for at in range(0, len(joined), width)]


def why_not(program: ir.Program) -> str | None:
    """Why a program's lines depend on more than bits of the packet; None if they do not."""
    try:
        find_key(program)
    except _DependsError as error:
        return str(error)
    return None


def find_key(program: ir.Program) -> FlowKey:
    """The key of a program for which ``why_not`` has no reason."""
    needed = _Dependencies(program).fields()
    positions = _positions(program)
    masks: dict[int, int] = {}
    for reference in needed:
        field = program.field(reference)
        for start in positions.get(reference.header, ()):
            for bit in range(start + field.offset, start + field.offset + field.width):
                masks[bit // 8] = masks.get(bit // 8, 0) | 0x80 >> bit % 8
    columns = sorted(masks)
    return FlowKey(
        np.array(columns, np.int64), np.array([masks[each] for each in columns], np.uint8)
    )


class _DependsError(Exception):
    """The lines of a program depend on more than bits of the packet."""


class _Dependencies:
    """Which fields the lines depend on: those that they show or that decide what happens, and
    those that are assigned to such fields.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self._needed: set[ir.FieldRef] = set()
        self._flows: list[tuple[ir.FieldRef, set[ir.FieldRef]]] = []
        self._unknown: set[ir.FieldRef] = set()  # what is computed from the payload

    def fields(self) -> set[ir.FieldRef]:
        """The fields; _DependsError where more than fields matter."""
        program = self.program
        if program.meters:
            raise _DependsError("a meter")
        if backward_jumps(program):
            raise _DependsError("a loop in an action")
        for state in program.parser.states:
            self._parser_state(state)
        for body in (*(each.primitives for each in program.actions), program.deparser.operations):
            for primitive in body:
                self._primitive(primitive, shown=False)
        for table in program.tables:
            self._need(tuple(key.field for key in table.keys))
        for conditional in program.conditionals:
            self._need(conditional.condition)
        for profile in program.action_profiles:
            if profile.selector is not None:
                self._needed |= self._inputs(profile.selector)
        for checksum in program.checksums:
            self._checksum(checksum)
        standard = program.standard
        decide = (standard.egress_spec, standard.mcast_grp, standard.priority)
        self._needed.update(each for each in decide if each is not None)
        self._close()
        times = (
            standard.ingress_global_timestamp,
            standard.egress_global_timestamp,
            standard.enq_timestamp,
        )
        if self._needed & set(times):
            raise _DependsError("a time")
        if self._needed & self._unknown:
            raise _DependsError("the payload")
        return {each for each in self._needed if not program.headers[each.header].metadata}

    def _close(self) -> None:
        """Add what needed fields are computed from, until nothing is missing."""
        before = -1
        while len(self._needed) != before:
            before = len(self._needed)
            for target, sources in self._flows:
                if target in self._needed:
                    self._needed |= sources

    def _need(self, node: Any) -> None:
        self._needed |= self._reads(node)

    def _reads(self, node: Any) -> set[ir.FieldRef]:
        """The fields that an expression reads."""
        found: set[ir.FieldRef] = set()
        for each in walk(node):
            match each:
                case ir.FieldRef(_, ir.VALID):
                    pass  # which headers are valid follows from the rest
                case ir.FieldRef():
                    found.add(each)
                case ir.HeaderCompare(_, ir.HeaderRef(left), ir.HeaderRef(right)):
                    found.update(self.program.fields_of(left), self.program.fields_of(right))
                case ir.RegisterElement():
                    raise _DependsError("a register that is read")
                case _ if isinstance(each, _FOUND_AT_RUN_TIME):
                    raise _DependsError("a header that is found at run time")
        return found

    def _inputs(self, calculation: ir.Calculation) -> set[ir.FieldRef]:
        if calculation.algorithm not in _STEADY:
            raise _DependsError(f"the hash algorithm {calculation.algorithm}")
        found: set[ir.FieldRef] = set()
        for part in calculation.inputs:
            match part:
                case ir.HeaderRef(header):
                    found.update(self.program.fields_of(header))
                case ir.Payload():
                    raise _DependsError("the payload")
                case _:
                    found |= self._reads(part)
        return found

    def _checksum(self, checksum: ir.Checksum) -> None:
        if checksum.verify:
            raise _DependsError("a checksum that is verified")
        if checksum.condition is not None:
            self._need(checksum.condition)
        try:
            sources = self._inputs(self.program.calculations[checksum.calculation])
        except _DependsError:
            self._unknown.add(checksum.target)
        else:
            self._flows.append((checksum.target, sources))

    def _parser_state(self, state: ir.ParserState) -> None:
        for operation in state.operations:
            match operation:
                case ir.Extract(ir.HeaderRef(header), None):
                    if self.program.type_of(header).variable is not None:
                        raise _DependsError("a header of variable length")
                case ir.Extract():
                    raise _DependsError("a header stack, or a header of variable length")
                case ir.Verify(condition, error):
                    self._need((condition, error))
                case ir.SetFromLookahead() | ir.Advance():
                    raise _DependsError("a parser that looks ahead or skips")
                case _:
                    self._primitive(operation, shown=True)
        for part in state.key:
            if not isinstance(part.source, ir.FieldRef):
                raise _DependsError("a parser that looks ahead, or at a header stack")
            self._need(part.source)

    def _primitive(self, primitive: ir.Primitive, *, shown: bool) -> None:
        """``shown``: the log tells what is assigned."""
        match primitive:
            case ir.Assign(ir.FieldRef() as target, value):
                self._flows.append((target, self._reads(value)))
                if shown:
                    self._need(value)
            case ir.AssignHeader(ir.HeaderRef(target), ir.HeaderRef(source)):
                targets, sources = map(self.program.fields_of, (target, source))
                self._flows += [(to, {of}) for to, of in zip(targets, sources, strict=False)]
            case ir.Hash(ir.FieldRef(), base, calculation, size):
                self._need((base, size))
                self._needed |= self._inputs(self.program.calculations[calculation])
            case (
                ir.RegisterWrite()
                | ir.Count()
                | ir.Truncate()
                | ir.Assert()
                | ir.LogMessage()
                | ir.JumpIfZero()
            ):
                self._need(primitive)
            case (
                ir.AddHeader(ir.HeaderRef())
                | ir.RemoveHeader(ir.HeaderRef())
                | ir.MarkToDrop()
                | ir.NoOp()
                | ir.Exit()
                | ir.Jump()
            ):
                pass
            case ir.RegisterRead():
                raise _DependsError("a register that is read")
            case _:
                raise _DependsError(f"the primitive {type(primitive).__name__}")


_FOUND_AT_RUN_TIME = (
    ir.StackLastField
    | ir.UnionStackLastField
    | ir.HeaderField
    | ir.StackLastIndex
    | ir.StackSize
    | ir.StackElement
    | ir.UnionMember
    | ir.UnionRef
    | ir.UnionStackElement
    | ir.HeaderChoice
    | ir.UnionCompare
    | ir.UnionValid
)


def _positions(program: ir.Program) -> dict[int, set[int]]:
    """Header to the bits of the packet at which it may begin."""
    found: dict[int, set[int]] = {}
    seen: set[tuple[int, int]] = set()
    pending = [] if program.parser.initial is None else [(program.parser.initial, 0)]
    while pending:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        if len(seen) > _MOST_POSITIONS:
            raise _DependsError("a parser with a long loop")
        number, position = place
        state = program.parser.states[number]
        for operation in state.operations:
            if isinstance(operation, ir.Extract) and isinstance(operation.target, ir.HeaderRef):
                header = operation.target.header
                found.setdefault(header, set()).add(position)
                position += program.type_of(header).width
        following = {*(each.next for each in state.transitions), state.default}
        pending += [(each, position) for each in following if each is not None]
    return found


def writing(write: Write) -> Prepare:
    """A ``Prepare`` that writes line by line."""

    def prepare(lines: Sequence[tuple[str, str]]) -> Replay:
        kept = tuple(lines)

        def replay(numbers: range) -> None:
            for number in numbers:
                for level, text in kept:
                    write(level, text.replace(NUMBER, str(number)))

        return replay

    return prepare


class _Sample(PacketLog):
    """Collects lines with ``NUMBER`` in place of the packet's number."""

    def about(self, number: int, copy: int) -> None:  # noqa: ARG002 - of PacketLog
        self._head = f"[{NUMBER}.{copy}] [cxt 0] "


class FlowLogEngine:
    """An ``engine.Engine`` that runs packets by another one and logs them.

    Packets with times, for which egress queues matter, the interpreter runs and logs.

    Args:
        engine: runs packets without times.
        state: of both.
        key: of the program.
        log: of packets with times.
        document: the program's JSON.
        prepare: takes the lines of a kind of packets.
        received: packets that were logged before.
    """

    def __init__(
        self,
        engine: Engine,
        state: SwitchState,
        *,
        key: FlowKey,
        log: PacketLog,
        document: Mapping[str, Any],
        prepare: Prepare,
        received: int,
    ) -> None:
        program = state.program
        self._engine, self._state, self._key, self._prepare = engine, state, key, prepare
        self._timed = InterpretEngine(program, state, log)
        self._timed.received = received
        self._lines: list[tuple[str, str]] = []
        sample = _Sample(document, program, state, lambda *line: self._lines.append(line))
        self._sampler = InterpretEngine(program, state, sample)
        self._kinds: dict[bytes, Replay] = {}
        self._generation = -1

    @property
    def received(self) -> int:
        """Packets that were logged so far."""
        return self._timed.received

    def process(self, batch: PacketBatch) -> PacketBatch:
        """See ``Engine.process``."""
        check_lengths(batch)
        left = self._engine.process(batch)
        if self._state.generation.value != self._generation:
            self._generation = self._state.generation.value
            self._kinds.clear()
        row = 0
        for key, alike in itertools.groupby(self._key.of(batch)):
            replay = self._kinds.get(key)
            if replay is None:
                replay = self._prepare(self._sampled(batch, row))
                if len(self._kinds) >= _MOST_KINDS:
                    self._kinds.clear()
                self._kinds[key] = replay
            count = sum(1 for _ in alike)
            replay(range(self.received, self.received + count))
            self._timed.received += count
            row += count
        return left

    def _sampled(self, batch: PacketBatch, row: int) -> list[tuple[str, str]]:
        """The lines of one packet."""
        chosen = slice(row, row + 1)
        self._lines.clear()
        with _unchanged(self._state):
            self._sampler.process(
                PacketBatch(batch.data[chosen], batch.length[chosen], batch.port[chosen])
            )
        return self._lines

    def process_timed(
        self, batch: PacketBatch, times: NDArray[np.int64], until: int
    ) -> PacketBatch:
        """See ``Engine.process_timed``."""
        return self._timed.process_timed(batch, times, until)

    @property
    def waiting(self) -> int:
        """See ``Engine.waiting``."""
        return self._timed.waiting

    @property
    def next_departure(self) -> int | None:
        """See ``Engine.next_departure``."""
        return self._timed.next_departure

    @staticmethod
    def unsupported(program: ir.Program) -> list[str]:
        """See ``Engine.unsupported``."""
        reason = why_not(program)
        return [] if reason is None else [f"lines of the log that depend on {reason}"]

    @staticmethod
    def inline(packets: PacketBatch) -> None:
        """None: the lines are written by Python."""

    @staticmethod
    def inline_queues(packets: PacketBatch) -> None:
        """The same."""


@contextmanager
def _unchanged(state: SwitchState) -> Iterator[None]:
    """Take back what a packet counts and writes in the meantime."""
    arrays = [
        *state.counters,
        *(table.counters for table in state.tables if table.counters is not None),
        *(group.matrix for group in state.register_groups),
    ]
    statistics = replace(state.statistics)
    kept = [each.copy() for each in arrays]
    try:
        yield
    finally:
        state.statistics = statistics
        for array, before in zip(arrays, kept, strict=True):
            array[:] = before
