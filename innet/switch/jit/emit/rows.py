"""A packet's variables as a row of words, for packets that wait (see ``runtime_queue``).

Positions in ``data`` are kept relative to the packet's first byte, since the bytes of packets that
wait may move. What a program calls metadata stands at the end of the row.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.engine import MAX_LOOPS, InstanceType
from innet.switch.jit import lowered
from innet.switch.jit.emit.arrival import ENDLESS
from innet.switch.jit.emit.bytes import variable_headers
from innet.switch.jit.emit.departure import Departure
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.layout import START, WIDTH, ArrayVariable, Layout
from innet.switch.jit.lower.actions import LONGEST, PACKET_LENGTH
from innet.switch.jit.lower.requests import CLONE_SESSION, RECIRCULATE_LIST
from innet.switch.jit.lower.stacks import packet_scalars
from innet.switch.jit.runtime import queue
from innet.switch.jit.tree import mentions


class Kind(enum.Enum):
    """How a variable becomes words."""

    NUMBER = enum.auto()
    WIDE = enum.auto()
    FLAG = enum.auto()
    BYTE = enum.auto()
    """A byte's position in ``data``."""
    BIT = enum.auto()
    """A bit's position in ``data``, or a negative number that is none."""
    ARRAY = enum.auto()


@dataclass(frozen=True, slots=True)
class Variable:
    """``words`` words of a row from ``column`` on."""

    name: str
    kind: Kind
    column: int
    words: int


class PacketRow:
    """Where each variable stands in a row.

    Attributes:
        width: words of a row.
        metadata: the first of those that hold metadata.
        variables: all of them.
    """

    def __init__(self, layout: Layout, rolled: lowered.Plan) -> None:
        self.layout = layout
        self.program = layout.program
        self.width = queue.LAST + 1
        self.variables: list[Variable] = []
        self._fields: dict[tuple[int, int], Variable] = {}
        self._widths: dict[int, int] = {}
        self._scalars(rolled)
        metadata = [i for i, each in enumerate(self.program.headers) if each.metadata]
        for header in range(len(self.program.headers)):
            if header not in metadata:
                self._header(header)
        self.metadata = self.width
        for header in metadata:
            self._header_fields(header)

    def column(self, reference: ir.FieldRef | None) -> int | None:
        """The first word of a field; None where it has no place."""
        found = None if reference is None else self.variable(reference)
        return None if found is None else found.column

    def variable(self, reference: ir.FieldRef) -> Variable | None:
        """A field as a part of the row; None where nothing reads it."""
        return self._fields.get((reference.header, reference.field))

    def scalar(self, scalar: lowered.Scalar) -> int | None:
        """The word of a variable that is no field, None where it is not kept."""
        return next((each.column for each in self.variables if each.name == scalar.name), None)

    def width_column(self, header: int) -> int:
        """The word with the width of a header's varbit field."""
        return self._widths[header]

    # ── Layout of the row ──

    def _scalars(self, rolled: lowered.Plan) -> None:
        used = [each for each in (LONGEST, RECIRCULATE_LIST) if mentions(rolled.bodies, each)]
        counts = mentions(rolled.bodies, PACKET_LENGTH)
        if counts or self.program.standard.packet_length in self.layout.live:
            used.append(PACKET_LENGTH)
        for scalar in (*used, *packet_scalars(self.program, rolled.bodies)):
            self._add(scalar.name, Kind.NUMBER)

    def _header(self, header: int) -> None:
        layout = self.layout
        self._add(layout.name(header, ir.VALID), Kind.FLAG)
        if header in layout.untouched:
            self._add(layout.name(header, START), Kind.BYTE)
        if self.program.type_of(header).variable is not None:
            self._widths[header] = self._add(layout.name(header, WIDTH), Kind.NUMBER).column
        self._header_fields(header)

    def _header_fields(self, header: int) -> None:
        layout = self.layout
        done: dict[str, Variable] = {}
        for field, spec in enumerate(self.program.type_of(header).fields):
            array = layout.array(header, field)
            if array is not None:
                if array.name not in done:
                    done[array.name] = self._add(array.name, Kind.ARRAY, array.count)
                self._fields[header, field] = self._element(done[array.name], array, field)
            elif ir.FieldRef(header, field) in layout.live:
                words = layout.limbs(header, field)
                kind = Kind.BIT if spec.variable else Kind.NUMBER if words == 1 else Kind.WIDE
                name = layout.name(header, field)
                self._fields[header, field] = self._add(name, kind, words)

    def _add(self, name: str, kind: Kind, words: int = 1) -> Variable:
        variable = Variable(name, kind, self.width, words)
        self.variables.append(variable)
        self.width += words
        return variable

    @staticmethod
    def _element(whole: Variable, array: ArrayVariable, field: int) -> Variable:
        """One field of an array."""
        position = field - array.first
        return Variable(f"{whole.name}[{position}]", Kind.NUMBER, whole.column + position, 1)


def emit_save(writer: Writer, rows: str, place: str, variables: Iterable[Variable]) -> None:
    """Write variables to the row that starts at word ``place`` of ``rows``."""
    for each in variables:
        cell = f"{rows}, {place} + {each.column}"
        match each.kind:
            case Kind.NUMBER:
                writer.line(f"put({cell}, {each.name})")
            case Kind.WIDE:
                writer.line(f"put_words({cell}, {each.name})")
            case Kind.FLAG:
                writer.line(f"put({cell}, 1 if {each.name} else 0)")
            case Kind.BYTE:
                writer.line(f"put({cell}, {each.name} - base)")
            case Kind.BIT:
                writer.line(f"put({cell}, {each.name} - 8 * base if {each.name} >= 0 else -1)")
            case Kind.ARRAY:
                with writer.lanes(each.words):
                    writer.line(f"put({cell} + k, int64({each.name}[k]))")


def emit_load(writer: Writer, rows: str, place: str, variables: Sequence[Variable]) -> None:
    """Read variables back, for the packet whose first byte is ``base`` now."""
    for each in variables:
        cell = f"{rows}, {place} + {each.column}"
        match each.kind:
            case Kind.NUMBER:
                writer.line(f"{each.name} = get({cell})")
            case Kind.WIDE:
                writer.line(f"{each.name} = get_words({cell}, {each.words})")
            case Kind.FLAG:
                writer.line(f"{each.name} = get({cell}) != 0")
            case Kind.BYTE:
                writer.line(f"{each.name} = get({cell}) + base")
            case Kind.BIT:
                writer.line(f"{each.name} = get({cell})")
                with writer.block(f"if {each.name} >= 0:"):
                    writer.line(f"{each.name} += 8 * base")
            case Kind.ARRAY:
                with writer.lanes(each.words):
                    writer.line(f"{each.name}[k] = get({cell} + k)")


# ----------------------------------------------------------------------------
# Rows of packets that wait, as the emitted function makes them: clones, copies, metadata kept.
#
# ``rows`` in emitted text holds three of them side by side, ``queue`` those that wait for egress.

#: Places in ``rows``: the packet, its clone, and what the packet keeps when it comes again.
PACKET, CLONE, AGAIN = "packet_row", "clone_row", "again_row"
#: Variables that say where the packet's bytes are, which stand first in a row.
PLACE = ("base", "size", "at")
#: Whether a clone was asked for, to a session that there is.
HAS_SESSION = f"{CLONE_SESSION.name} >= 0 and has_session(sessions, {CLONE_SESSION.name})"


class Rows:
    """Writes what happens to rows.

    Args:
        statements: knows where everything is.
        rolled: the whole program.
        departure: counts.

    Attributes:
        row: where each variable stands in a row.
        listed: what field lists may keep.
    """

    def __init__(self, statements: Statements, rolled: lowered.Plan, departure: Departure) -> None:
        self.layout = statements.layout
        self.writer = statements.writer
        self.program = statements.program
        self.departure = departure
        self.row = PacketRow(statements.layout, rolled)
        self.listed = sorted(
            {each for found in self.program.field_lists for each in self._kept(found)},
            key=lambda each: each.column,
        )

    def _kept(self, field_list: ir.FieldList) -> list[Variable]:
        """What a field list keeps, less what nothing reads."""
        references = [each for each in field_list.elements if isinstance(each, ir.FieldRef)]
        return [found for each in references if (found := self.row.variable(each))]

    def keep(self) -> None:
        """A function of its own: what a field list keeps, from one row to another."""
        with self.writer.block("def keep(field_list, rows, source, target):"):
            for field_list in self.program.field_lists:
                with self.writer.block(f"if field_list == {field_list.id}:  # {field_list.name}"):
                    for kept in self._kept(field_list):
                        for column in range(kept.column, kept.column + kept.words):
                            cell = f"rows, target + {column}"
                            self.writer.line(f"put({cell}, get(rows, source + {column}))")

    # ── Clones, and packets that come again ──

    @contextmanager
    def within_loops(self, otherwise: str | None = None) -> Iterator[None]:
        """A block for what may be done only so often for one received packet.

        ``otherwise`` is counted when it is not done.
        """
        with self.writer.block(f"if loops == {MAX_LOOPS}:"):
            self.departure.count("looped")
            if otherwise is not None:
                self.departure.count(otherwise)
        with self.writer.block("else:"):
            self.writer.line("loops += 1")
            yield

    def come_again(self, field_list: str, kind: InstanceType) -> None:
        """Make the metadata that the packet comes again with."""
        self.writer.line(f"cleared(rows, {AGAIN}, {AGAIN} + ROW)")
        self.writer.line(f"keep({field_list}, rows, {PACKET}, {AGAIN})")
        self.put(AGAIN, self.program.standard.instance_type, kind)
        self.writer.line("work = int64(AGAIN)")

    def finish_clone(self, field_list: str, session: str, kind: InstanceType) -> None:
        """Make the metadata of a clone and send it to its session's group and port."""
        line = self.writer.line
        line(f"cleared(rows, {CLONE} + {self.row.metadata}, {AGAIN})")
        line(f"keep({field_list}, rows, {PACKET}, {CLONE})")
        self.put(CLONE, self.program.standard.instance_type, kind)
        self.forget_requests(CLONE)
        self.departure.count("cloned")
        line(f"clones = get(sessions, 2 * {session} + 1)")
        with self.writer.block("if clones >= 0:"):
            self.enqueue_group(CLONE, "clones")
            rid = self.row.column(self.program.standard.egress_rid)
            if rid is not None:
                # The copy to the session's port comes after the group's and says what they did.
                with self.writer.block("if last_copy > first_copy:"):
                    line(f"put(rows, {CLONE} + {rid}, get(replica_rid, last_copy - 1))")
        line(f"clones = get(sessions, 2 * {session})")
        with self.writer.block("if clones >= 0:"):
            self.enqueue(CLONE, "clones")

    def forget_requests(self, place: str) -> None:
        """A copy is not cut where its original is, nor does it come again."""
        for scalar, nothing in ((LONGEST, ENDLESS), (RECIRCULATE_LIST, "0")):
            column = self.row.scalar(scalar)
            if column is not None:
                self.writer.line(f"put(rows, {place} + {column}, {nothing})")

    def put(self, place: str, reference: ir.FieldRef | None, value: int) -> None:
        """Set a field of a row, if it has a place."""
        column = self.row.column(reference)
        if column is not None:
            self.writer.line(f"put(rows, {place} + {column}, {int(value)})")

    def save(self, place: str) -> None:
        """The packet's variables to a row."""
        for name in PLACE:
            self.writer.line(f"put(rows, {place} + {name.upper()}, {name})")
        emit_save(self.writer, "rows", place, self.row.variables)

    # ── The queue ──

    def enqueue_group(self, place: str, group: str) -> None:
        """Append a row for all copies of a multicast group."""
        line = self.writer.line
        line("first_copy = last_copy = 0")
        with self.writer.block(f"if {group} < len(group_start) - 1:"):
            line(f"first_copy = group_start[{group}]")
            line(f"last_copy = group_start[{group} + 1]")
        line("copies = last_copy - first_copy")
        self.departure.count("replicated", "copies")
        with self.writer.block("if copies == 0:"):
            self.departure.count("unknown_groups")
        with self.writer.block("else:"):
            line(f"put(rows, {place} + FIRST, first_copy)")
            line(f"put(rows, {place} + LAST, last_copy)")
            self.enqueue(place, "-1", "copies")

    def enqueue(self, place: str, port: str, copies: str = "1") -> None:
        """Append a row; simple_switch has one queue per port and drops what asks for another."""
        push = f"queue, head, tail = pushed(queue, head, tail, rows, {place}, ROW)"
        priority = self.row.column(self.program.standard.priority)
        self.writer.line(f"put(rows, {place} + PORT, {port})")
        if priority is None:
            self.writer.line(push)
            return
        with self.writer.block(f"if get(rows, {place} + {priority}) == 0:"):
            self.writer.line(push)
        with self.writer.block("else:"):
            self.departure.count("dropped_ingress", copies)

    def forget_absent(self, place: str) -> None:
        """``emit_forgotten`` of a row, where the packet itself goes on."""
        for header in variable_headers(self.program):
            column = self.row.width_column(header)
            with self.writer.block(f"if not {self.layout.name(header, ir.VALID)}:"):
                self.writer.line(f"put(rows, {place} + {column}, 0)")
