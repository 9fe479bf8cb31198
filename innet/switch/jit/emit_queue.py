"""The emitted function of programs that clone, resubmit or recirculate.

Such a program can make any number of packets of one, and each may come by again. Its shape, with
names as in the emitted source:

    while i < len(length):                   # packets, in arrival order
        ... its bytes to data
        work = RECEIVED
        while True:
            if work < LEAVE:                 # from outside, or once more
                ... zero the fields, parse
                if this is no CLONE:
                    ... verify checksums, ingress, digest
                ... put the variables into a row
                if this is a CLONE:
                    ... reset the metadata of that row, append it to queue
                elif clone_session >= 0:
                    work = CLONE             # the received bytes are parsed again
            elif work == LEAVE:
                ... resubmit (work = AGAIN), or append the row to queue, or drop it
            elif head == tail:
                break                        # nothing waits
            else:
                ... take the variables from the first row of queue
                ... egress, clone, update checksums, deparse to out
                ... recirculate (the bytes back to data, work = AGAIN), or send

That is the order of simple_switch with packets one at a time: a packet that comes again is served
before those that wait for egress, which are served in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from innet.switch import ir
from innet.switch.engine import DROP_PORT, MAX_LOOPS, InstanceType
from innet.switch.jit import plan
from innet.switch.jit.emit_arrival import ENDLESS, Arrival
from innet.switch.jit.emit_departure import Departure
from innet.switch.jit.emit_digests import emit_digest
from innet.switch.jit.emit_rows import PacketRow, Variable, emit_load, emit_save
from innet.switch.jit.emit_statements import Statements
from innet.switch.jit.emit_varbits import emit_forgotten, variable_headers
from innet.switch.jit.lower_actions import LONGEST
from innet.switch.jit.lower_requests import (
    CLONE_LIST,
    CLONE_SESSION,
    LEARN_LIST,
    RECIRCULATE_LIST,
    REQUESTS,
    RESUBMIT_LIST,
)
from innet.switch.jit.tree import mentions, walk


def queues(program: ir.Program) -> bool:
    """Whether a program needs this shape."""
    code = (program.parser.states, program.actions, program.deparser.operations)
    return any(isinstance(node, ir.Clone | ir.Resubmit | ir.Recirculate) for node in walk(code))


#: Places in ``rows``: the packet, its clone, and what the packet keeps when it comes again.
_PACKET, _CLONE, _AGAIN = "packet_row", "clone_row", "again_row"
#: Variables that say where the packet's bytes are, which stand first in a row.
_PLACE = ("base", "size", "at")
#: What is told of each packet that leaves.
SENT = ("out_length", "out_port", "out_origin")
_HAS_SESSION = f"{CLONE_SESSION.name} >= 0 and has_session(sessions, {CLONE_SESSION.name})"


class Queue:
    """Writes the function's body.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
        scratch: how many bytes hashes need besides a packet's own.
    """

    def __init__(self, statements: Statements, rolled: plan.Plan, scratch: int) -> None:
        self.statements = statements
        self.plan = rolled
        self.scratch = scratch
        self.writer = statements.writer
        self.expressions = statements.expressions
        self.program = statements.program
        self.arrival = Arrival(statements, rolled)
        self.departure = Departure(statements, rolled)
        self.row = PacketRow(statements.layout, rolled)
        #: What field lists may keep.
        self.listed = sorted(
            {each for found in self.program.field_lists for each in self._kept(found)},
            key=lambda each: each.column,
        )

    def _kept(self, field_list: ir.FieldList) -> list[Variable]:
        """What a field list keeps, less what nothing reads."""
        references = [each for each in field_list.elements if isinstance(each, ir.FieldRef)]
        return [found for each in references if (found := self.row.variable(each))]

    # ── The parts of the module ──

    def keep(self) -> None:
        """A function of its own: what a field list keeps, from one row to another."""
        with self.writer.block("def keep(field_list, rows, source, target):"):
            for field_list in self.program.field_lists:
                with self.writer.block(f"if field_list == {field_list.id}:  # {field_list.name}"):
                    for kept in self._kept(field_list):
                        for column in range(kept.column, kept.column + kept.words):
                            cell = f"rows, target + {column}"
                            self.writer.line(f"put({cell}, get(rows, source + {column}))")

    def body(self) -> None:
        """All packets of a batch."""
        line = self.writer.line
        line(f"scratch = np.empty({self.scratch}, np.uint8)")
        line("stride = packets.shape[1]")
        line("data = np.empty(2 * stride, np.uint8)")
        # int64(): Numba compiles a callee anew for each number that it is told.
        for place, name in enumerate((_PACKET, _CLONE, _AGAIN)):
            line(f"{name} = int64({place} * ROW)")
        line("zero, one = int64(0), int64(1)")
        line("rows = np.zeros(3 * ROW, np.int64)")
        line("queue = np.empty(4 * ROW, np.int64)")
        line("produced = i = zero")
        with self.writer.block("while i < len(length):"):
            line("base = loops = head = tail = mirror = mirror_list = zero")
            line("size = used = int64(length[i])")
            line("arrived = int64(port[i])")
            line("data = with_room(data, zero, size)")
            line("copy(data, 0, packets, i * stride, size)")
            self._make_scratch()
            line("i += 1")
            self.arrival.count()
            line("work = RECEIVED")
            with self.writer.block("while True:"):
                with self.writer.block("if work < LEAVE:"):
                    self._ingress()
                with self.writer.block("elif work == LEAVE:"):
                    self._leave()
                with self.writer.block("elif head == tail:"):
                    line("break")
                with self.writer.block("else:"):
                    self._egress()

    def _make_scratch(self) -> None:
        self.writer.line(f"scratch = with_room(scratch, zero, size + {self.scratch})")

    # ── Ingress ──

    def _ingress(self) -> None:
        line = self.writer.line
        standard = self.program.standard
        clones = mentions((self.plan.parser, self.plan.ingress), CLONE_SESSION)
        line("turn = work")
        line("work = LEAVE if turn == CLONE else EGRESS  # where a failed assertion leads")
        self.arrival.zero()
        with self.writer.block("if turn == AGAIN:"):
            self._load_kept()
        with self.writer.block("else:"):
            self.arrival.set_ingress_port()
        with self.writer.block("if turn == RECEIVED:"):
            self.statements.set_field(standard.ingress_global_timestamp, "clock", 0, (1 << 63) - 1)
        with self.writer.block("if turn != CLONE:"):
            self.statements.set_field(standard.packet_length, "size", 0, (1 << 31) - 1)
        self.arrival.parse()
        self.arrival.zero_arrays_of_absent_headers()
        if clones:
            line(f"place = {_CLONE}")
            with self.writer.block("if turn != CLONE:"):
                line(f"place = {_PACKET}")
                self._main_ingress()
            self._save("place")
            line("work = LEAVE")
            self._clone_ingress()
        else:
            self._main_ingress()
            self._save(_PACKET)
            line("work = LEAVE")

    def _load_kept(self) -> None:
        """The metadata of a packet that comes again."""
        kind = self.row.variable(self.program.standard.instance_type)
        kept = {*self.listed, *([kind] if kind else [])}
        emit_load(self.writer, "rows", _AGAIN, sorted(kept, key=lambda each: each.column))

    def _main_ingress(self) -> None:
        line = self.writer.line
        standard = self.program.standard
        self.arrival.set_parser_error()
        self.arrival.verify()
        line("# ingress")
        self.statements.pipeline(self.plan.ingress)
        self.statements.drop_failed(self.plan.ingress, "dropped_ingress")
        if mentions(self.plan.bodies, LEARN_LIST):
            emit_digest(self.writer, self.expressions)
        # Parsing a clone changes the variables, so what the program wants is put aside.
        line(f"leaves = {self.expressions.field_text(standard.egress_spec)}")
        if standard.mcast_grp is not None:
            line(f"group = {self.expressions.field_text(standard.mcast_grp)}")
        if mentions(self.plan.bodies, RESUBMIT_LIST):
            line(f"resubmit = {RESUBMIT_LIST.name}")

    def _clone_ingress(self) -> None:
        line = self.writer.line
        with self.writer.block("if turn == CLONE:"):
            self._finish_clone("mirror_list", "mirror", InstanceType.INGRESS_CLONE)
        with self.writer.block(f"elif {_HAS_SESSION}:"):
            line(f"mirror = {CLONE_SESSION.name}")
            line(f"mirror_list = {CLONE_LIST.name}")
            with self._within_loops():
                line("work = CLONE")

    def _leave(self) -> None:
        """Where the packet itself goes, once its clone is made."""
        standard = self.program.standard
        self.writer.line("work = EGRESS")
        word = "if"
        if mentions(self.plan.bodies, RESUBMIT_LIST):
            with self.writer.block("if resubmit != 0:"), self._within_loops("dropped_ingress"):
                self.departure.count("resubmitted")
                self._come_again("resubmit", InstanceType.RESUBMITTED)
            word = "elif"
        if standard.mcast_grp is not None:
            with self.writer.block(f"{word} group != 0:"):
                self._put(_PACKET, standard.instance_type, InstanceType.REPLICATED)
                self._forget_requests(_PACKET)
                self._enqueue_group(_PACKET, "group")
            word = "elif"
        with self.writer.block(f"{word} leaves == {DROP_PORT}:"):
            self.departure.count("dropped_ingress")
        with self.writer.block("else:"):
            self._put(_PACKET, standard.instance_type, InstanceType.NORMAL)
            self._enqueue(_PACKET, "leaves")

    # ── Egress ──

    def _egress(self) -> None:
        line = self.writer.line
        self._take()
        self.departure.set_metadata()
        line("# egress")
        self.statements.pipeline(self.plan.egress)
        self.statements.drop_failed(self.plan.egress, "dropped_egress")
        if mentions(self.plan.egress, CLONE_SESSION):
            self._clone_egress()
        spec = self.expressions.field_text(self.program.standard.egress_spec)
        with self.writer.block(f"if {spec} == {DROP_PORT}:"):
            self.departure.count("dropped_egress")
            line("continue")
        self.statements.pipeline(self.plan.update)
        self.statements.drop_failed(self.plan.update, "dropped_egress")
        line("out = with_row(out, produced, size + GROWTH)")
        self.departure.deparse("produced * out.shape[1]")
        if mentions(self.plan.bodies, RECIRCULATE_LIST):
            self._recirculate()
        for name in SENT:
            line(f"{name} = with_room({name}, produced, one)")
        self.departure.send()

    def _take(self) -> None:
        """The first packet that waits, or the next copy of it."""
        line = self.writer.line
        line("row = head * ROW")
        for name in _PLACE:
            line(f"{name} = get(queue, row + {name.upper()})")
        emit_load(self.writer, "queue", "row", self.row.variables)
        for request, nothing in REQUESTS.items():
            if request != RECIRCULATE_LIST and mentions(self.plan.egress, request):
                line(f"{request.name} = {nothing}")
        line("leaves = get(queue, row + PORT)")
        line("head += 1")
        with self.writer.block("if leaves < 0:"):
            line("replica = get(queue, row + FIRST)")
            line("leaves = get(replica_port, replica)")
            rid = self.program.standard.egress_rid
            self.statements.set_field(rid, "get(replica_rid, replica)", 0, 0xFFFF)
            emit_forgotten(self.writer, self.expressions)
            line("put(queue, row + FIRST, replica + 1)")
            with self.writer.block("if replica + 1 < get(queue, row + LAST):"):
                line("head -= 1")

    def _clone_egress(self) -> None:
        with self.writer.block(f"if {_HAS_SESSION}:"), self._within_loops():
            self._save(_CLONE)
            self._forget_absent(_CLONE)
            emit_save(self.writer, "rows", _PACKET, self.listed)
            self._finish_clone(CLONE_LIST.name, CLONE_SESSION.name, InstanceType.EGRESS_CLONE)

    def _forget_absent(self, place: str) -> None:
        """``emit_forgotten`` of a row, where the packet itself goes on."""
        for header in variable_headers(self.program):
            column = self.row.width_column(header)
            with self.writer.block(f"if not {self.expressions.layout.name(header, ir.VALID)}:"):
                self.writer.line(f"put(rows, {place} + {column}, 0)")

    def _recirculate(self) -> None:
        line = self.writer.line
        with self.writer.block(f"if {RECIRCULATE_LIST.name} != 0:"):
            with self._within_loops("dropped_egress"):
                self.departure.count("recirculated")
                emit_save(self.writer, "rows", _PACKET, self.listed)
                self._come_again(RECIRCULATE_LIST.name, InstanceType.RECIRCULATED)
                line("size = to - start")
                with self.writer.block("if used + size > len(data):"):
                    line("data, used = packed(data, size, queue, head, tail, ROW)")
                line("copy(data, used, out, start, size)")
                line("base = used")
                line("used += size")
                self._make_scratch()
            line("continue")

    # ── Clones, and packets that come again ──

    @contextmanager
    def _within_loops(self, otherwise: str | None = None) -> Iterator[None]:
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

    def _come_again(self, field_list: str, kind: InstanceType) -> None:
        """Make the metadata that the packet comes again with."""
        self.writer.line(f"cleared(rows, {_AGAIN}, {_AGAIN} + ROW)")
        self.writer.line(f"keep({field_list}, rows, {_PACKET}, {_AGAIN})")
        self._put(_AGAIN, self.program.standard.instance_type, kind)
        self.writer.line("work = AGAIN")

    def _finish_clone(self, field_list: str, session: str, kind: InstanceType) -> None:
        """Make the metadata of a clone and send it to its session's group and port."""
        line = self.writer.line
        line(f"cleared(rows, {_CLONE} + {self.row.metadata}, {_AGAIN})")
        line(f"keep({field_list}, rows, {_PACKET}, {_CLONE})")
        self._put(_CLONE, self.program.standard.instance_type, kind)
        self._forget_requests(_CLONE)
        self.departure.count("cloned")
        line(f"clones = get(sessions, 2 * {session} + 1)")
        with self.writer.block("if clones >= 0:"):
            self._enqueue_group(_CLONE, "clones")
            rid = self.row.column(self.program.standard.egress_rid)
            if rid is not None:
                # The copy to the session's port comes after the group's and says what they did.
                with self.writer.block("if last_copy > first_copy:"):
                    line(f"put(rows, {_CLONE} + {rid}, get(replica_rid, last_copy - 1))")
        line(f"clones = get(sessions, 2 * {session})")
        with self.writer.block("if clones >= 0:"):
            self._enqueue(_CLONE, "clones")

    def _forget_requests(self, place: str) -> None:
        """A copy is not cut where its original is, nor does it come again."""
        for scalar, nothing in ((LONGEST, ENDLESS), (RECIRCULATE_LIST, "0")):
            column = self.row.scalar(scalar)
            if column is not None:
                self.writer.line(f"put(rows, {place} + {column}, {nothing})")

    def _put(self, place: str, reference: ir.FieldRef | None, value: int) -> None:
        column = self.row.column(reference)
        if column is not None:
            self.writer.line(f"put(rows, {place} + {column}, {int(value)})")

    def _save(self, place: str) -> None:
        for name in _PLACE:
            self.writer.line(f"put(rows, {place} + {name.upper()}, {name})")
        emit_save(self.writer, "rows", place, self.row.variables)

    # ── The queue ──

    def _enqueue_group(self, place: str, group: str) -> None:
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
            self._enqueue(place, "-1", "copies")

    def _enqueue(self, place: str, port: str, copies: str = "1") -> None:
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
