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

from innet.switch.engine import DROP_PORT, InstanceType
from innet.switch.jit import lowered
from innet.switch.jit.emit.arrival import Arrival
from innet.switch.jit.emit.bytes import emit_forgotten
from innet.switch.jit.emit.departure import Departure
from innet.switch.jit.emit.digests import emit_digest
from innet.switch.jit.emit.rows import (
    AGAIN,
    CLONE,
    HAS_SESSION,
    PACKET,
    PLACE,
    Rows,
    emit_load,
    emit_save,
)
from innet.switch.jit.emit.statements import Statements
from innet.switch.jit.lower.requests import (
    CLONE_LIST,
    CLONE_SESSION,
    LEARN_LIST,
    RECIRCULATE_LIST,
    REQUESTS,
    RESUBMIT_LIST,
)
from innet.switch.jit.tree import mentions

#: What is told of each packet that leaves.
SENT = ("out_length", "out_port", "out_origin")


class Queue:
    """Writes the function's body.

    Args:
        statements: writes bodies, and knows where everything is.
        rolled: the whole program.
        scratch: how many bytes hashes need besides a packet's own.
    """

    def __init__(self, statements: Statements, rolled: lowered.Plan, scratch: int) -> None:
        self.statements = statements
        self.plan = rolled
        self.scratch = scratch
        self.writer = statements.writer
        self.expressions = statements.expressions
        self.program = statements.program
        self.arrival = Arrival(statements, rolled)
        self.departure = Departure(statements, rolled)
        self.rows = Rows(statements, rolled, self.departure)
        self.row = self.rows.row

    def body(self) -> None:
        """All packets of a batch."""
        line = self.writer.line
        line(f"scratch = np.empty({self.scratch}, np.uint8)")
        line("stride = packets.shape[1]")
        line("data = np.empty(2 * stride, np.uint8)")
        # int64(): Numba compiles a callee anew for each number that it is told.
        for place, name in enumerate((PACKET, CLONE, AGAIN)):
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
            line("work = int64(RECEIVED)")
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
        line("# where a failed assertion leads")
        line("work = int64(LEAVE) if turn == CLONE else int64(EGRESS)")
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
            line(f"place = {CLONE}")
            with self.writer.block("if turn != CLONE:"):
                line(f"place = {PACKET}")
                self._main_ingress()
            self.rows.save("place")
            line("work = int64(LEAVE)")
            self._clone_ingress()
        else:
            self._main_ingress()
            self.rows.save(PACKET)
            line("work = int64(LEAVE)")

    def _load_kept(self) -> None:
        """The metadata of a packet that comes again."""
        kind = self.row.variable(self.program.standard.instance_type)
        kept = {*self.rows.listed, *([kind] if kind else [])}
        emit_load(self.writer, "rows", AGAIN, sorted(kept, key=lambda each: each.column))

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
            self.rows.finish_clone("mirror_list", "mirror", InstanceType.INGRESS_CLONE)
        with self.writer.block(f"elif {HAS_SESSION}:"):
            line(f"mirror = {CLONE_SESSION.name}")
            line(f"mirror_list = {CLONE_LIST.name}")
            with self.rows.within_loops():
                line("work = int64(CLONE)")

    def _leave(self) -> None:
        """Where the packet itself goes, once its clone is made."""
        standard = self.program.standard
        self.writer.line("work = int64(EGRESS)")
        word = "if"
        if mentions(self.plan.bodies, RESUBMIT_LIST):
            with self.writer.block("if resubmit != 0:"), self.rows.within_loops("dropped_ingress"):
                self.departure.count("resubmitted")
                self.rows.come_again("resubmit", InstanceType.RESUBMITTED)
            word = "elif"
        if standard.mcast_grp is not None:
            with self.writer.block(f"{word} group != 0:"):
                self.rows.put(PACKET, standard.instance_type, InstanceType.REPLICATED)
                self.rows.forget_requests(PACKET)
                self.rows.enqueue_group(PACKET, "group")
            word = "elif"
        with self.writer.block(f"{word} leaves == {DROP_PORT}:"):
            self.departure.count("dropped_ingress")
        with self.writer.block("else:"):
            self.rows.put(PACKET, standard.instance_type, InstanceType.NORMAL)
            self.rows.enqueue(PACKET, "leaves")

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
        for name in PLACE:
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
        with self.writer.block(f"if {HAS_SESSION}:"), self.rows.within_loops():
            self.rows.save(CLONE)
            self.rows.forget_absent(CLONE)
            emit_save(self.writer, "rows", PACKET, self.rows.listed)
            self.rows.finish_clone(CLONE_LIST.name, CLONE_SESSION.name, InstanceType.EGRESS_CLONE)

    def _recirculate(self) -> None:
        line = self.writer.line
        with self.writer.block(f"if {RECIRCULATE_LIST.name} != 0:"):
            with self.rows.within_loops("dropped_egress"):
                self.departure.count("recirculated")
                emit_save(self.writer, "rows", PACKET, self.rows.listed)
                self.rows.come_again(RECIRCULATE_LIST.name, InstanceType.RECIRCULATED)
                line("size = to - start")
                with self.writer.block("if used + size > len(data):"):
                    line("data, used = packed(data, size, queue, head, tail, ROW)")
                line("copy(data, used, out, start, size)")
                line("base = used")
                line("used += size")
                self._make_scratch()
            line("continue")
