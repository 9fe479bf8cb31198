"""A packet's variables as a row of words, for packets that wait (see ``runtime_queue``).

Positions in ``data`` are kept relative to the packet's first byte, since the bytes of packets that
wait may move. What a program calls metadata stands at the end of the row.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.jit import plan, runtime_queue
from innet.switch.jit.layout import START, WIDTH, ArrayVariable, Layout
from innet.switch.jit.lower_actions import LONGEST, PACKET_LENGTH
from innet.switch.jit.lower_requests import RECIRCULATE_LIST
from innet.switch.jit.lower_stacks import packet_scalars
from innet.switch.jit.tree import mentions
from innet.switch.jit.writer import Writer


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

    def __init__(self, layout: Layout, rolled: plan.Plan) -> None:
        self.layout = layout
        self.program = layout.program
        self.width = runtime_queue.LAST + 1
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

    def scalar(self, scalar: plan.Scalar) -> int | None:
        """The word of a variable that is no field, None where it is not kept."""
        return next((each.column for each in self.variables if each.name == scalar.name), None)

    def width_column(self, header: int) -> int:
        """The word with the width of a header's varbit field."""
        return self._widths[header]

    # ── Layout of the row ──

    def _scalars(self, rolled: plan.Plan) -> None:
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
