"""Rows of packets that wait, as the emitted function makes them: clones, copies, metadata kept.

``rows`` in emitted text holds three of them side by side, ``queue`` those that wait for egress.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from innet.switch import ir
from innet.switch.engine import MAX_LOOPS, InstanceType
from innet.switch.jit import plan
from innet.switch.jit.emit_arrival import ENDLESS
from innet.switch.jit.emit_departure import Departure
from innet.switch.jit.emit_rows import PacketRow, Variable, emit_save
from innet.switch.jit.emit_statements import Statements
from innet.switch.jit.emit_varbits import variable_headers
from innet.switch.jit.lower_actions import LONGEST
from innet.switch.jit.lower_requests import CLONE_SESSION, RECIRCULATE_LIST

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

    def __init__(self, statements: Statements, rolled: plan.Plan, departure: Departure) -> None:
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
