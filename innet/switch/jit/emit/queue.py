"""The emitted function of programs that clone, resubmit or recirculate.

Such a program can make any number of packets of one, and each may come by again. Its shape, with
names as in the emitted source:

    while i < len(length):                   # packets, in arrival order
        ... its bytes to data
        work = RECEIVED
        while True:
            if work < DECIDE:                # from outside, or once more
                ... zero the fields, parse
                if this is no CLONE:
                    ... verify checksums, ingress, digest
                ... put the variables into a row
                if this is a CLONE:
                    ... reset the metadata of that row, append it to queue
                elif clone_session >= 0:
                    work = CLONE             # the received bytes are parsed again
            elif work == DECIDE:
                ... resubmit (work = REENTERED), or append the row to queue, or drop it
            elif head == tail:
                break                        # nothing waits
            else:
                ... take the variables from the first row of queue
                ... egress, clone, update checksums, deparse to out
                ... recirculate (the bytes back to data, work = REENTERED), or send

That is the order of simple_switch with packets one at a time: a packet that comes again is served
before those that wait for egress, which are served in the order in which they were made.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.engine import DROP_PORT, MAX_LOOPS, InstanceType
from innet.switch.ir.tree import mentions
from innet.switch.jit import lowered
from innet.switch.jit.emit.headers import emit_clear_varbits, varbit_headers
from innet.switch.jit.emit.layout import ArrayVariable
from innet.switch.jit.emit.packet import UNLIMITED, PacketLoop
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.emit.writer import Writer
from innet.switch.jit.lower.actions import (
    CLONE_LIST,
    CLONE_SESSION,
    MAX_LENGTH,
    RECIRCULATE_LIST,
    REQUESTS,
    RESUBMIT_LIST,
)
from innet.switch.jit.lower.headers import PACKET_LENGTH, packet_scalars
from innet.switch.jit.lowered import START, WIDTH
from innet.switch.jit.runtime import queue

#: What is told of each packet that leaves.
SENT = ("out_length", "out_port", "out_origin")


class QueueLoop(PacketLoop):
    """Packets that wait in a queue between ingress and egress, and that may come again."""

    def __init__(self, statements: Statements, rolled: lowered.Program, scratch: int) -> None:
        super().__init__(statements, rolled, scratch)
        self.rows = Rows(self)
        self.row = self.rows.row

    def emit(self) -> None:
        """All packets of a batch."""
        line = self.writer.line
        line(f"scratch = np.empty({self.scratch}, np.uint8)")
        line("stride = packets.shape[1]")
        line("data = np.empty(2 * stride, np.uint8)")
        # int64(): Numba compiles a callee anew for each number that it is told.
        for place, name in enumerate((PACKET, CLONE, REENTERED)):
            line(f"{name} = int64({place} * ROW)")
        line("zero, one = int64(0), int64(1)")
        line("rows = np.zeros(3 * ROW, np.int64)")
        line("queue = np.empty(4 * ROW, np.int64)")
        line("produced = i = zero")
        with self.writer.block("while i < len(length):"):
            line("base = loops = head = tail = mirror = mirror_list = zero")
            line("size = used = int64(length[i])")
            line("arrived = int64(port[i])")
            line("data = reserve(data, zero, size)")
            line("copy(data, 0, packets, i * stride, size)")
            self._make_scratch()
            line("i += 1")
            self.receive()
            line("work = int64(RECEIVED)")
            with self.writer.block("while True:"):
                with self.writer.block("if work < DECIDE:"):
                    self._ingress()
                with self.writer.block("elif work == DECIDE:"):
                    self._decide()
                with self.writer.block("elif head == tail:"):
                    line("break")
                with self.writer.block("else:"):
                    self._egress()

    def _make_scratch(self) -> None:
        self.writer.line(f"scratch = reserve(scratch, zero, size + {self.scratch})")

    # ── Ingress ──

    def _ingress(self) -> None:
        """A packet from outside, one that comes again, or the received bytes for a clone."""
        line = self.writer.line
        clones = mentions((self.lowered.parser, self.lowered.ingress), CLONE_SESSION)
        line("turn = work")
        line("# where a failed assertion leads")
        line("work = int64(DECIDE) if turn == CLONE else int64(EGRESS)")
        # Fields: what was kept, or what is said of a packet from outside.
        self.reset()
        with self.writer.block("if turn == REENTERED:"):
            self._load_kept_fields()
        with self.writer.block("else:"):
            self.set_ingress_port()
        with self.writer.block("if turn == RECEIVED:"):
            self.set_ingress_timestamp()
        with self.writer.block("if turn != CLONE:"):
            self.set_packet_length()
        self.parse()
        self.zero_arrays_of_absent_headers()
        # A clone is the packet as it was received, without ingress; then both wait in rows.
        if clones:
            line(f"place = {CLONE}")
            with self.writer.block("if turn != CLONE:"):
                line(f"place = {PACKET}")
                self._main_ingress()
            self.rows.save("place")
            line("work = int64(DECIDE)")
            self._clone_ingress()
        else:
            self._main_ingress()
            self.rows.save(PACKET)
            line("work = int64(DECIDE)")

    def _load_kept_fields(self) -> None:
        """The metadata of a packet that comes again."""
        kind = self.row.variable(self.program.standard.instance_type)
        kept = {*self.rows.listed, *([kind] if kind else [])}
        emit_load(self.writer, "rows", REENTERED, sorted(kept, key=lambda each: each.column))

    def _main_ingress(self) -> None:
        """Ingress of the packet itself."""
        line = self.writer.line
        standard = self.program.standard
        self.set_parser_error()
        self.verify()
        self.ingress()
        self.digest()
        # Parsing a clone changes the variables, so what the program wants is put aside.
        line(f"leaves = {self.expressions.field_text(standard.egress_spec)}")
        if standard.mcast_grp is not None:
            line(f"group = {self.expressions.field_text(standard.mcast_grp)}")
        if self.uses(RESUBMIT_LIST):
            line(f"resubmit = {RESUBMIT_LIST.name}")

    def _clone_ingress(self) -> None:
        """Queue the clone that was parsed just now, or parse one if ingress asked for it."""
        line = self.writer.line
        with self.writer.block("if turn == CLONE:"):
            self.rows.enqueue_clone("mirror_list", "mirror", InstanceType.INGRESS_CLONE)
        with self.writer.block(f"elif {HAS_SESSION}:"):
            line(f"mirror = {CLONE_SESSION.name}")
            line(f"mirror_list = {CLONE_LIST.name}")
            with self.rows.limit_loops():
                line("work = int64(CLONE)")

    def _decide(self) -> None:
        """Where the packet itself goes, once its clone is made."""
        standard = self.program.standard
        self.writer.line("work = int64(EGRESS)")
        word = "if"
        if self.uses(RESUBMIT_LIST):
            with self.writer.block("if resubmit != 0:"), self.rows.limit_loops("dropped_ingress"):
                self.count("resubmitted")
                self.rows.reenter("resubmit", InstanceType.RESUBMITTED)
            word = "elif"
        if standard.mcast_grp is not None:
            with self.writer.block(f"{word} group != 0:"):
                self.rows.put(PACKET, standard.instance_type, InstanceType.REPLICATED)
                self.rows.clear_requests(PACKET)
                self.rows.enqueue_group(PACKET, "group")
            word = "elif"
        with self.writer.block(f"{word} leaves == {DROP_PORT}:"):
            self.count("dropped_ingress")
        with self.writer.block("else:"):
            self.rows.put(PACKET, standard.instance_type, InstanceType.NORMAL)
            self.rows.enqueue(PACKET, "leaves")

    # ── Egress ──

    def _egress(self) -> None:
        line = self.writer.line
        self._dequeue()
        self.set_egress_metadata()
        line("# egress")
        self.egress()
        if mentions(self.lowered.egress, CLONE_SESSION):
            self._clone_egress()
        self.update()
        line("out = reserve_row(out, produced, size + GROWTH)")
        self.deparse("produced * out.shape[1]")
        if self.uses(RECIRCULATE_LIST):
            self._recirculate()
        for name in SENT:
            line(f"{name} = reserve({name}, produced, one)")
        self.send()

    def _dequeue(self) -> None:
        """The first packet that waits, or the next copy of it."""
        line = self.writer.line
        line("row = head * ROW")
        for name in PLACE:
            line(f"{name} = get(queue, row + {name.upper()})")
        emit_load(self.writer, "queue", "row", self.row.variables)
        for request, nothing in REQUESTS.items():
            if request != RECIRCULATE_LIST and mentions(self.lowered.egress, request):
                line(f"{request.name} = {nothing}")
        line("leaves = get(queue, row + PORT)")
        line("head += 1")
        with self.writer.block("if leaves < 0:"):
            line("replica = get(queue, row + FIRST)")
            line("leaves = get(replica_port, replica)")
            rid = self.program.standard.egress_rid
            self.statements.set_field(rid, "get(replica_rid, replica)", 0, 0xFFFF)
            emit_clear_varbits(self.writer, self.expressions)
            line("put(queue, row + FIRST, replica + 1)")
            with self.writer.block("if replica + 1 < get(queue, row + LAST):"):
                line("head -= 1")

    def _clone_egress(self) -> None:
        with self.writer.block(f"if {HAS_SESSION}:"), self.rows.limit_loops():
            self.rows.save(CLONE)
            self.rows.clear_varbits_of_absent(CLONE)
            emit_save(self.writer, "rows", PACKET, self.rows.listed)
            self.rows.enqueue_clone(CLONE_LIST.name, CLONE_SESSION.name, InstanceType.EGRESS_CLONE)

    def _recirculate(self) -> None:
        line = self.writer.line
        with self.writer.block(f"if {RECIRCULATE_LIST.name} != 0:"):
            with self.rows.limit_loops("dropped_egress"):
                self.count("recirculated")
                emit_save(self.writer, "rows", PACKET, self.rows.listed)
                self.rows.reenter(RECIRCULATE_LIST.name, InstanceType.RECIRCULATED)
                line("size = to - start")
                with self.writer.block("if used + size > len(data):"):
                    line("data, used = compact(data, size, queue, head, tail, ROW)")
                line("copy(data, used, out, start, size)")
                line("base = used")
                line("used += size")
                self._make_scratch()
            line("continue")


# ── Rows: the packet, its clone, and what a packet that comes again keeps ────────────────────────
#
# ``rows`` in emitted text holds three of them side by side, ``queue`` those that wait for egress.

#: Places in ``rows``: the packet, its clone, and what the packet keeps when it comes again.
PACKET, CLONE, REENTERED = "packet_row", "clone_row", "reentry_row"
#: Variables that say where the packet's bytes are, which stand first in a row.
PLACE = ("base", "size", "at")
#: Whether a clone was asked for, to a session that there is.
HAS_SESSION = f"{CLONE_SESSION.name} >= 0 and has_session(sessions, {CLONE_SESSION.name})"


class Rows:
    """Writes what happens to rows.

    Args:
        loop: that they belong to.

    Attributes:
        row: where each variable stands in a row.
        listed: what field lists may keep.
    """

    def __init__(self, loop: PacketLoop) -> None:
        self.loop = loop
        self.layout = loop.layout
        self.writer = loop.writer
        self.program = loop.program
        self.row = PacketRow(loop)
        self.listed = sorted(
            {each for found in self.program.field_lists for each in self._kept(found)},
            key=lambda each: each.column,
        )

    def _kept(self, field_list: ir.FieldList) -> list[Variable]:
        """What a field list keeps, less what nothing reads."""
        references = [each for each in field_list.elements if isinstance(each, ir.FieldRef)]
        return [found for each in references if (found := self.row.variable(each))]

    def emit_keep(self) -> None:
        """A function of its own: what a field list keeps, from one row to another."""
        with self.writer.block("def keep_fields(field_list, rows, source, target):"):
            for field_list in self.program.field_lists:
                with self.writer.block(f"if field_list == {field_list.id}:  # {field_list.name}"):
                    for kept in self._kept(field_list):
                        for column in range(kept.column, kept.column + kept.words):
                            cell = f"rows, target + {column}"
                            self.writer.line(f"put({cell}, get(rows, source + {column}))")

    # ── Clones, and packets that come again ──

    @contextmanager
    def limit_loops(self, otherwise: str | None = None) -> Iterator[None]:
        """A block for what may be done only so often for one received packet.

        ``otherwise`` is counted when it is not done.
        """
        with self.writer.block(f"if loops == {MAX_LOOPS}:"):
            self.loop.count("looped")
            if otherwise is not None:
                self.loop.count(otherwise)
        with self.writer.block("else:"):
            self.writer.line("loops += 1")
            yield

    def reenter(self, field_list: str, kind: InstanceType) -> None:
        """Make the metadata that the packet comes again with."""
        self.writer.line(f"clear(rows, {REENTERED}, {REENTERED} + ROW)")
        self.writer.line(f"keep_fields({field_list}, rows, {PACKET}, {REENTERED})")
        self.put(REENTERED, self.program.standard.instance_type, kind)
        self.writer.line("work = int64(REENTERED)")

    def enqueue_clone(self, field_list: str, session: str, kind: InstanceType) -> None:
        """Make the metadata of a clone and send it to its session's group and port."""
        line = self.writer.line
        line(f"clear(rows, {CLONE} + {self.row.metadata}, {REENTERED})")
        line(f"keep_fields({field_list}, rows, {PACKET}, {CLONE})")
        self.put(CLONE, self.program.standard.instance_type, kind)
        self.clear_requests(CLONE)
        self.loop.count("cloned")
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

    def clear_requests(self, place: str) -> None:
        """A copy is not cut where its original is, nor does it come again."""
        for scalar, nothing in ((MAX_LENGTH, UNLIMITED), (RECIRCULATE_LIST, "0")):
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
        self.loop.find_copies(group)
        with self.writer.block("if copies == 0:"):
            self.loop.count("unknown_groups")
        with self.writer.block("else:"):
            line(f"put(rows, {place} + FIRST, first_copy)")
            line(f"put(rows, {place} + LAST, last_copy)")
            self.enqueue(place, "-1", "copies")

    def enqueue(self, place: str, port: str, copies: str = "1") -> None:
        """Append a row; simple_switch has one queue per port and drops what asks for another."""
        push = f"queue, head, tail = push(queue, head, tail, rows, {place}, ROW)"
        priority = self.row.column(self.program.standard.priority)
        self.writer.line(f"put(rows, {place} + PORT, {port})")
        if priority is None:
            self.writer.line(push)
            return
        with self.writer.block(f"if get(rows, {place} + {priority}) == 0:"):
            self.writer.line(push)
        with self.writer.block("else:"):
            self.loop.count("dropped_ingress", copies)

    def clear_varbits_of_absent(self, place: str) -> None:
        """``emit_clear_varbits`` of a row, where the packet itself goes on."""
        for header in varbit_headers(self.program):
            column = self.row.width_column(header)
            with self.writer.block(f"if not {self.layout.name(header, ir.VALID)}:"):
                self.writer.line(f"put(rows, {place} + {column}, 0)")


# ── A row: every variable of a packet as words ───────────────────────────────────────────────────
#
# Positions in ``data`` are kept relative to the packet's first byte, since the bytes of packets
# that wait may move. Metadata stands at the end of the row. ``runtime.queue`` names the first
# words.


class Form(enum.Enum):
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
    form: Form
    column: int
    words: int


class PacketRow:
    """Where each variable stands in a row.

    Attributes:
        width: words of a row.
        metadata: the first of those that hold metadata.
        variables: all of them.
    """

    def __init__(self, loop: PacketLoop) -> None:
        self.loop = loop
        self.layout = loop.layout
        self.program = loop.program
        self.width = queue.LAST + 1
        self.variables: list[Variable] = []
        self._fields: dict[tuple[int, int], Variable] = {}
        self._widths: dict[int, int] = {}
        self._scalars()
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

    def _scalars(self) -> None:
        used = [each for each in (MAX_LENGTH, RECIRCULATE_LIST) if self.loop.uses(each)]
        if self.loop.counts_length:
            used.append(PACKET_LENGTH)
        for scalar in (*used, *packet_scalars(self.program, self.loop.lowered.bodies)):
            self._add(scalar.name, Form.NUMBER)

    def _header(self, header: int) -> None:
        layout = self.layout
        self._add(layout.name(header, ir.VALID), Form.FLAG)
        if header in layout.passthrough:
            self._add(layout.name(header, START), Form.BYTE)
        if self.program.type_of(header).variable is not None:
            self._widths[header] = self._add(layout.name(header, WIDTH), Form.NUMBER).column
        self._header_fields(header)

    def _header_fields(self, header: int) -> None:
        layout = self.layout
        done: dict[str, Variable] = {}
        for field, spec in enumerate(self.program.type_of(header).fields):
            array = layout.array(header, field)
            if array is not None:
                if array.name not in done:
                    done[array.name] = self._add(array.name, Form.ARRAY, array.count)
                self._fields[header, field] = self._element(done[array.name], array, field)
            elif ir.FieldRef(header, field) in layout.live:
                words = layout.limbs(header, field)
                form = Form.BIT if spec.variable else Form.NUMBER if words == 1 else Form.WIDE
                name = layout.name(header, field)
                self._fields[header, field] = self._add(name, form, words)

    def _add(self, name: str, form: Form, words: int = 1) -> Variable:
        variable = Variable(name, form, self.width, words)
        self.variables.append(variable)
        self.width += words
        return variable

    @staticmethod
    def _element(whole: Variable, array: ArrayVariable, field: int) -> Variable:
        """One field of an array."""
        position = field - array.first
        return Variable(f"{whole.name}[{position}]", Form.NUMBER, whole.column + position, 1)


def emit_save(writer: Writer, rows: str, place: str, variables: Iterable[Variable]) -> None:
    """Write variables to the row that starts at word ``place`` of ``rows``."""
    for each in variables:
        cell = f"{rows}, {place} + {each.column}"
        match each.form:
            case Form.NUMBER:
                writer.line(f"put({cell}, {each.name})")
            case Form.WIDE:
                writer.line(f"put_words({cell}, {each.name})")
            case Form.FLAG:
                writer.line(f"put({cell}, 1 if {each.name} else 0)")
            case Form.BYTE:
                writer.line(f"put({cell}, {each.name} - base)")
            case Form.BIT:
                writer.line(f"put({cell}, {each.name} - 8 * base if {each.name} >= 0 else -1)")
            case Form.ARRAY:
                with writer.lanes(each.words):
                    writer.line(f"put({cell} + k, int64({each.name}[k]))")


def emit_load(writer: Writer, rows: str, place: str, variables: Sequence[Variable]) -> None:
    """Read variables back, for the packet whose first byte is ``base`` now."""
    for each in variables:
        cell = f"{rows}, {place} + {each.column}"
        match each.form:
            case Form.NUMBER:
                writer.line(f"{each.name} = get({cell})")
            case Form.WIDE:
                writer.line(f"{each.name} = get_words({cell}, {each.words})")
            case Form.FLAG:
                writer.line(f"{each.name} = get({cell}) != 0")
            case Form.BYTE:
                writer.line(f"{each.name} = get({cell}) + base")
            case Form.BIT:
                writer.line(f"{each.name} = get({cell})")
                with writer.block(f"if {each.name} >= 0:"):
                    writer.line(f"{each.name} += 8 * base")
            case Form.ARRAY:
                with writer.lanes(each.words):
                    writer.line(f"{each.name}[k] = get({cell} + k)")
