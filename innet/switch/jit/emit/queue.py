"""The emitted function with queues between ingress and egress.

Programs that clone, resubmit or recirculate use it, since one packet may become any number of
packets. All programs use it for calls with times. Its shape, with names as in the emitted source:

    while True:
        if work == NEXT:                     # which event is next
            limit = ...                      # the time of the next packet, then the call's end
            if pending != 0: work = REENTERED
            elif due(waiting, entries, limit): work = EGRESS  # or it is postponed
            elif i == len(length): break
            else: work = RECEIVED
            if shortage(...): break           # the caller makes room and calls again
        if work < DECIDE:                    # RECEIVED, REENTERED, or the parser for a CLONE
            ... its bytes to a slot; zero the fields, parse
            if this is no CLONE:
                ... verify checksums, ingress, digest
            ... put the variables into the slot
            if this is a CLONE:
                ... reset its metadata, enqueue it
            elif clone_session >= 0:
                work = CLONE                 # the received bytes are parsed again
        elif work == DECIDE:
            ... resubmit (pending), or enqueue, or drop
        else:                                # EGRESS
            ... take the first entry, and the variables from its slot
            ... egress, clone, update checksums, deparse to out
            ... recirculate (pending), or send

So a resubmitted or recirculated packet is processed before those that wait for egress, and a packet
is received when nothing is due before it. Where recirculation takes time, such a packet waits in
the heap of those that wait for egress, until it is due. Without times (``timed`` is 0) every copy
is due at once, which is the order of simple_switch with single packets.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.engine import MAX_LOOPS, InstanceType
from innet.switch.ir.tree import mentions
from innet.switch.jit import lowered
from innet.switch.jit.analysis import live_fields, written_fields
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
from innet.switch.jit.records import (
    BYTES_END,
    FOLLOWING,
    HAND_OVER_WORDS,
    LOOPED,
    MARKED,
    NO_QUEUE,
    NO_TIME,
    TAIL_WORDS,
    Kind,
    drop_site,
)
from innet.switch.jit.runtime import queue
from innet.switch.jit.traits import digest_room, resizes
from innet.switch.traffic_manager import TRAFFIC_WORDS

#: The output columns of each packet that leaves, besides its bytes.
SENT = ("out_length", "out_port", "out_origin")

#: Rows in ``pool`` for a packet, its clone, and a packet that is resubmitted or recirculated. The
#: scratch row is that of slot 0.
PACKET, CLONE, AGAIN, SCRATCH = "row", "clone_row", "again_row", "zero"
#: Whether a clone to an existing session was requested.
HAS_SESSION = f"{CLONE_SESSION.name} >= 0 and has_session(sessions, {CLONE_SESSION.name})"


class QueueLoop(PacketLoop):
    """The loop with queues between ingress and egress, and with packets that recirculate."""

    digests_grow = False

    def __init__(self, statements: Statements, rolled: lowered.Regions, scratch: int) -> None:
        super().__init__(statements, rolled, scratch)
        self.rows = Rows(self)
        self.row = self.rows.row
        self.comes_again = self.uses(RESUBMIT_LIST) or self.uses(RECIRCULATE_LIST)
        self.clones_ingress = mentions((rolled.parser, rolled.ingress), CLONE_SESSION)
        self.resizes = resizes(self.program)
        # Packets may be longer than what they carry: see ``PacketBatch.extra``.
        self.expressions.length = "size + beyond"

    def emit(self) -> None:
        """Run all packets of a batch and due copies, until memory is needed."""
        line = self.writer.line
        line(f"scratch = np.empty(span + {self.scratch}, np.uint8)")
        line("out_stride = out.shape[1]")
        # The bytes of the packet in hand: as received, or those of its slot.
        line("data = packets")
        line("zero, one = int64(0), int64(1)")
        for position, name in enumerate(TRAFFIC_WORDS):
            line(f"{name} = get(traffic, {position})")
        line("i = first")
        line("produced = filled")
        if self.writer.recording:
            line("recorded = zero")
            line(f"pass_start = len(events) - {TAIL_WORDS}")
        line("wanted = needed = zero")
        line("held = clone_slot = loaded = int64(-1)")
        line("slot = row = base = size = beyond = number = arrived = origin = entry = zero")
        line("again_slot = again_row = clone_row = mirror = mirror_list = zero")
        line("work = int64(NEXT)")
        with self.writer.block("while True:"):
            with self.writer.block("if work == NEXT:"):
                self._choose()
            with self.writer.block("if work < DECIDE:"):
                self._ingress()
            with self.writer.block("elif work == DECIDE:"):
                self._decide()
            with self.writer.block("else:"):
                self._egress()
        for position, name in enumerate(TRAFFIC_WORDS):
            line(f"put(traffic, {position}, {name})")

    def _choose(self) -> None:
        """Choose the next event, and check the memory that it needs."""
        line = self.writer.line
        with self.writer.block("if held >= 0:"):
            self.rows.release("held")
            line("held = int64(-1)")
        line("limit = now")
        with self.writer.block("if timed != 0:"):
            line("limit = until")
            with self.writer.block("if i < len(length):"):
                line("limit = get(times, i)")
        line("needed = stride")
        with self.writer.block("if pending != 0:"):
            line("work = int64(REENTERED)")
        with self.writer.block("elif due(waiting, entries, limit):"):
            line("work = int64(EGRESS)")
            # Departures change as packets of higher priorities come, and lengths in egress.
            later = "timed != 0" if self.resizes else "timed != 0 and priorities != 1"
            rare = self.writer.block(f"if {later}:")
            with rare, self.writer.block("if postpone(waiting, entries, queues, priorities):"):
                line("work = int64(NEXT)")
                line("continue")
            line("needed = get(pool, entry_word(waiting, zero, SLOT) * ROW + SIZE) + GROWTH")
            if self.comes_again:
                with self.writer.block("if entry_priority(waiting, zero, priorities) < 0:"):
                    line("work = int64(REENTERED)")
        with self.writer.block("elif i == len(length):"):
            line("break")
        with self.writer.block("else:"):
            line("work = int64(RECEIVED)")
        if room := digest_room(self.program):
            with self.writer.block(f"if digested + {room} > len(digests):"):
                line("wanted = int64(NEED_DIGESTS)")
                line("break")
        if self.writer.recording:
            with self.writer.block(f"if recorded > {HAND_OVER_WORDS}:"):
                line("wanted = int64(NEED_RECORDS)")
                line("break")
        line("wanted = shortage(")
        line("    spare, len(waiting) - entries * ENTRY_WORDS, (room + 1) * ENTRY_WORDS,")
        line("    len(out_length) - produced, needed, span, out_stride")
        line(")")
        with self.writer.block("if wanted != 0:"):
            line("break")

    def _set_time(self, time: str) -> None:
        """Advance the time to ``time``."""
        with self.writer.block("if timed != 0:"):
            self.writer.line(f"now = max(now, {time})")
            self.writer.line("clock = clock_of(queues, now)")

    # ── Ingress ──

    def _ingress(self) -> None:
        """A packet from outside, one that comes again, or the received bytes for a clone."""
        line = self.writer.line
        line("turn = work")
        line("loaded = int64(-1)")
        line("# where a failed assertion leads")
        line("work = int64(DECIDE) if turn == CLONE else int64(NEXT)")
        with self.writer.block("if turn == RECEIVED:"):
            self._receive()
        with self.writer.block("elif turn == REENTERED:"):
            self._take_pending()
        # Fields: those that were kept, or the metadata of a received packet.
        self.reset()
        with self.writer.block("if turn == REENTERED:"):
            self._load_kept_fields()
        with self.writer.block("else:"):
            self.set_ingress_port()
        with self.writer.block("if turn == RECEIVED:"):
            self.set_ingress_timestamp()
        with self.writer.block("if turn != CLONE:"):
            self.set_packet_length()
        if self.writer.recording:
            self._note_arrival()
        self.parse()
        if self.writer.recording:
            with self.writer.block(f"if parser_error != {self.program.errors['NoError']}:"):
                self.writer.note(Kind.PARSER_ERROR, 0, "parser_error")
        self.zero_arrays_of_absent_headers()
        # A clone is the packet as it was received, without ingress.
        if self.clones_ingress:
            with self.writer.block("if turn == CLONE:"):
                if self.writer.recording:
                    self._note_verified()
                self.rows.save(CLONE)
                self.rows.enqueue_clone("mirror_list", "mirror", InstanceType.INGRESS_CLONE, PACKET)
            with self.writer.block("else:"):
                self._main_ingress()
                line(f"cloned = 1 if {HAS_SESSION} else 0")
                self._note_session()
                self._end_ingress(f"cloned == 0 and {self._is_dropped()}")
        else:
            self._main_ingress()
            self._end_ingress(self._is_dropped())

    # ── Records ──

    def _instance_type(self) -> str:
        """Source of the instance type of the packet in hand."""
        reference = self.program.standard.instance_type
        return "zero" if reference is None else self.expressions.field_text(reference)

    def _note_arrival(self) -> None:
        """A packet enters ingress, or its bytes are parsed again for a clone."""
        with self.writer.block("if turn != CLONE:"):
            self._note_pass(Kind.INGRESS, self._instance_type(), "arrived", "size")
            self.note_pass_bytes("data", "base", "size")
        with self.writer.block("else:"):
            self.writer.note(Kind.PARSE_CLONE, 0, "size")

    def _note_pass(self, kind: Kind, *words: str) -> None:
        """A pass begins: the one before it knows where."""
        line = self.writer.line
        line(f"put(events, pass_start + {FOLLOWING}, recorded)")
        line("pass_start = recorded")
        time = f"now if timed != 0 else {NO_TIME}"
        self.writer.note(kind, 0, *["zero"] * BYTES_END, "made", "number", time, *words)

    def _note_verified(self) -> None:
        """The checksums of a clone, which only the log tells."""
        self.statements.body(self.lowered.verify)
        self.writer.note(Kind.PARSED)

    def _note_session(self) -> None:
        """The session of a clone that the packet asked for."""
        if not self.writer.recording:
            return
        with self.writer.block(f"if {CLONE_SESSION.name} >= 0:"):
            with self.writer.block(f"if {HAS_SESSION}:"):
                self.writer.note(Kind.CLONE, 0, CLONE_SESSION.name)
            with self.writer.block("else:"):
                self.writer.note(Kind.UNKNOWN_SESSION, 0, CLONE_SESSION.name)

    def _note_departure(self) -> None:
        """A copy leaves its queue for egress."""
        waited = f"now - entry_word(waiting, entries, ENQUEUED) if timed != 0 else {NO_TIME}"
        copy = (waited, "depth_after", "copy_made(waiting, entries)")
        self._note_pass(Kind.EGRESS, *copy, self._instance_type(), "leaves")

    def _end_ingress(self, ended: str) -> None:
        """Save the packet in its slot, unless its processing is complete (``ended``)."""
        line = self.writer.line
        with self.writer.block(f"if {ended}:"):
            self.count("dropped_ingress")
            self.writer.note(Kind.DECIDED)
            self.writer.note(Kind.ASKED, 0, "leaves")
            self.writer.note(Kind.DROP, drop_site(MARKED, "dropped_ingress"))
        with self.writer.block("else:"):
            self._save_packet()
            line("loaded = slot")
            line("work = int64(DECIDE)")
            if self.clones_ingress:
                self._clone_ingress()

    def _save_packet(self) -> None:
        """Save the current packet in its slot."""
        self.rows.save(PACKET)
        with self.writer.block("if turn == RECEIVED:"):
            self.writer.line("copy(store, slot * span, data, base, size)")

    def _take_pending(self) -> None:
        """The packet that was resubmitted or recirculated last, or whose time has come."""
        line = self.writer.line
        if self.comes_again:
            with self.writer.block("if pending == 0:"):
                line("entries = pop_entry(waiting, entries)")
                self._set_time("entry_word(waiting, entries, DEPARTURE)")
                line("pending = entry_word(waiting, entries, SLOT)")
        line("slot = held = pending")
        line("pending = zero")
        line("row = slot * ROW")
        self.rows.use_slot("slot")
        for name in ("size", "number", "arrived", "origin", "beyond"):
            line(f"{name} = get(pool, row + {name.upper()})")

    def _receive(self) -> None:
        """The next packet, and a slot for it."""
        line = self.writer.line
        self._set_time("get(times, i)")
        line("size = int64(length[i])")
        line("beyond = int64(extra[i])")
        line("arrived = int64(port[i])")
        line("number = serial + i")
        line("origin = free_origin")
        line("free_origin = get(origins, origin + SLOTS)")
        line("put(origins, origin + SLOTS, 0)")
        line("put(origins, origin + LOOPS, 0)")
        self.rows.take("slot", PACKET)
        line("held = slot")
        # Its bytes stay where they are unless it waits.
        line("data = packets")
        line("base = i * stride")
        line("i += 1")
        self.receive()

    def _load_kept_fields(self) -> None:
        """The metadata of a packet that comes again."""
        kind = self.row.variable(self.program.standard.instance_type)
        kept = {*self.rows.field_list_variables, *([kind] if kind else [])}
        emit_load(self.writer, PACKET, sorted(kept, key=lambda each: each.column))

    def _main_ingress(self) -> None:
        """Ingress of the packet itself."""
        line = self.writer.line
        standard = self.program.standard
        self.set_parser_error()
        self.verify()
        self.writer.note(Kind.PARSED)
        self.ingress()
        self.digest()
        # Parsing a clone changes the variables, so the requests are saved.
        line(f"leaves = {self.expressions.field_text(standard.egress_spec)}")
        if standard.mcast_grp is not None:
            line(f"group = {self.expressions.field_text(standard.mcast_grp)}")
        if self.uses(RESUBMIT_LIST):
            line(f"resubmit = {RESUBMIT_LIST.name}")

    def _is_dropped(self) -> str:
        """Whether ingress only drops the packet."""
        conditions = [f"leaves == {self.program.drop_port}"]
        if self.program.standard.mcast_grp is not None:
            conditions.append("group == 0")
        if self.uses(RESUBMIT_LIST):
            conditions.append("resubmit == 0")
        return " and ".join(conditions)

    def _clone_ingress(self) -> None:
        """Parse a clone next if ingress asked for it."""
        line = self.writer.line
        with self.writer.block("if cloned == 1:"):
            line(f"mirror = {CLONE_SESSION.name}")
            line(f"mirror_list = {CLONE_LIST.name}")
            with self.rows.limit_loops():
                self.rows.take("clone_slot", CLONE)
                line("copy(store, clone_slot * span, data, base, size)")
                self.rows.use_slot("clone_slot")
                line("work = int64(CLONE)")

    def _decide(self) -> None:
        """Write the packet's destination, after its clone is made."""
        line = self.writer.line
        standard = self.program.standard
        line("work = int64(NEXT)")
        if self.clones_ingress:
            with self.writer.block("if clone_slot >= 0:"):
                self.rows.release("clone_slot")
                line("clone_slot = int64(-1)")
                self.rows.use_slot("slot")
        self.writer.note(Kind.DECIDED)
        word = "if"
        if self.uses(RESUBMIT_LIST):
            with self.writer.block("if resubmit != 0:"):
                self.writer.note(Kind.RESUBMIT)
                with self.rows.limit_loops("dropped_ingress"):
                    self.count("resubmitted")
                    self.rows.take("again_slot", AGAIN)
                    line("copy(store, again_slot * span, data, base, size)")
                    self.rows.reenter("resubmit", InstanceType.RESUBMITTED, PACKET)
            word = "elif"
        if standard.mcast_grp is not None:
            with self.writer.block(f"{word} group != 0:"):
                self.writer.note(Kind.ASKED, 0, "-1")
                self.rows.put(PACKET, standard.instance_type, InstanceType.REPLICATED)
                self.rows.clear_requests(PACKET)
                self.rows.enqueue_group("slot", PACKET, "group")
            word = "elif"
        with self.writer.block(f"{word} leaves == {self.program.drop_port}:"):
            self.count("dropped_ingress")
            self.writer.note(Kind.ASKED, 0, "leaves")
            self.writer.note(Kind.DROP, drop_site(MARKED, "dropped_ingress"))
        with self.writer.block("else:"):
            self.writer.note(Kind.ASKED, 0, "leaves")
            self.rows.put(PACKET, standard.instance_type, InstanceType.NORMAL)
            self.rows.enqueue("slot", PACKET, "leaves", "int64(-1)")

    # ── Egress ──

    def _egress(self) -> None:
        line = self.writer.line
        line("work = int64(NEXT)")
        self._dequeue()
        if self.writer.recording:
            self._note_departure()
        self.set_egress_metadata(queued=True)
        line("# egress")
        self.expressions.hit_time = "enqueued"  # as in simple_switch
        self.egress()
        self.expressions.hit_time = "clock"
        if mentions(self.lowered.egress, CLONE_SESSION):
            self._clone_egress()
        self.update()
        self.deparse("produced * out_stride")
        with self.writer.block("if held_bytes & 1:"):
            line("mark_congestion(")
            line("    out, start, to - start, queues, queue_of(leaves, priorities, priority)")
            line(")")
            self.writer.note(Kind.MARKED_BYTES)
            self.writer.note_bytes("out", "start", "to - start")
        if self.uses(RECIRCULATE_LIST):
            self._recirculate()
        line("put(out_time, produced, now)")
        left = "beyond"
        if self.resizes:
            line("left = stand_in(queues, size, to - start, beyond)")
            left = "left"
        if self.uses(MAX_LENGTH):  # truncated behind what the packet carries, or before its end
            line(f"left = max(zero, min(left, {MAX_LENGTH.name} - (to - start)))")
        line(f"put(out_extra, produced, {left})")
        self.send("number - serial if number >= serial else -1")
        if self.resizes:
            with self.writer.block("if timed != 0:"):
                line("resize(")
                line("    waiting, entries, queues, priorities,")
                line("    queue_of(leaves, priorities, priority), held_bytes >> 1, sent + left")
                line(")")

    def _dequeue(self) -> None:
        """The first copy that waits: its variables, port and replication id."""
        line = self.writer.line
        line("entries = pop_entry(waiting, entries)")
        self._set_time("entry_word(waiting, entries, DEPARTURE)")
        line("slot = entry_word(waiting, entries, SLOT)")
        line("held = slot")
        line("row = slot * ROW")
        # Copies of one packet often follow each other, and the first of them its ingress.
        with self.writer.block("if slot == loaded:"):
            emit_load(self.writer, PACKET, self._changed_by_egress())
        with self.writer.block("else:"):
            line("loaded = slot")
            self.rows.use_slot("slot")
            for name in ("size", "at", "number", "arrived", "origin", "beyond"):
                line(f"{name} = get(pool, row + {name.upper()})")
            emit_load(self.writer, PACKET, self.row.variables)
        for request, nothing in REQUESTS.items():
            if request != RECIRCULATE_LIST and mentions(self.lowered.egress, request):
                line(f"{request.name} = {nothing}")
        line("leaves = entry_port(waiting, entries)")
        line("replica = entry_rid(waiting, entries)")
        with self.writer.block("if replica >= 0:"):
            self.statements.set_field(self.program.standard.egress_rid, "replica", 0, 0xFFFF)
            emit_clear_varbits(self.writer, self.expressions)
        line("enqueued = clock")
        line("depth_before = depth_after = held_bytes = zero")
        line("priority = entry_priority(waiting, entries, priorities)")
        with self.writer.block("if timed != 0:"):
            line("enqueued = clock_of(queues, entry_word(waiting, entries, ENQUEUED))")
            line("depth_before = entry_word(waiting, entries, DEPTH)")
            line("held_bytes = entry_word(waiting, entries, LENGTH)")
            line("depth_after = withdraw(")
            line("    queues, queue_of(leaves, priorities, priority), now, held_bytes >> 1")
            line(")")

    def _changed_by_egress(self) -> list[Variable]:
        """Variables that differ from the row after ingress or an earlier copy."""
        standard = self.program.standard
        fields, headers = written_fields((self.lowered.egress, self.lowered.update))
        changed = {self.layout.name(header, ir.VALID) for header in headers}
        changed |= {self.layout.name(header, WIDTH) for header in varbit_headers(self.program)}
        changed |= {MAX_LENGTH.name, RECIRCULATE_LIST.name, PACKET_LENGTH.name}
        changed |= {each.name for each in packet_scalars(self.program, self.lowered.bodies)}
        fields |= {each for each in (standard.instance_type, standard.egress_rid) if each}
        for field in fields:
            if field.field >= 0:
                array = self.layout.array(field.header, field.field)
                name = self.layout.name(field.header, field.field) if array is None else array.name
                changed.add(name)
        return [each for each in self.row.variables if each.name in changed]

    def _clone_egress(self) -> None:
        self._note_session()
        with self.writer.block(f"if {HAS_SESSION}:"), self.rows.limit_loops():
            self.rows.take("clone_slot", CLONE)
            self.writer.line("copy(store, clone_slot * span, data, base, size)")
            self.rows.save(CLONE)
            self.rows.clear_varbits_of_absent(CLONE)
            emit_save(self.writer, SCRATCH, self.rows.field_list_variables)
            self.rows.enqueue_clone(
                CLONE_LIST.name, CLONE_SESSION.name, InstanceType.EGRESS_CLONE, SCRATCH
            )
            self.rows.release("clone_slot")
            self.writer.line("clone_slot = int64(-1)")

    def _recirculate(self) -> None:
        line = self.writer.line
        with self.writer.block(f"if {RECIRCULATE_LIST.name} != 0:"):
            self.writer.note(Kind.RECIRCULATE)
            with self.rows.limit_loops("dropped_egress"):
                self.count("recirculated")
                emit_save(self.writer, SCRATCH, self.rows.field_list_variables)
                line("size = to - start")
                line("loaded = int64(-1)")  # other copies have the size that was received
                self.rows.take("again_slot", AGAIN)
                line("copy(store, again_slot * span, out, start, size)")
                self.rows.reenter(RECIRCULATE_LIST.name, InstanceType.RECIRCULATED, SCRATCH)
            line("continue")


# ── Rows: the packet, its clone, and what a packet that comes again keeps ────────────────────────


class Rows:
    """Writes what happens to slots and their rows.

    Args:
        loop: that they belong to.

    Attributes:
        row: where each variable stands in a row.
        field_list_variables: the variables of all field lists.
    """

    def __init__(self, loop: QueueLoop) -> None:
        self.loop = loop
        self.layout = loop.layout
        self.writer = loop.writer
        self.program = loop.program
        self.row = PacketRow(loop)
        self.field_list_variables = sorted(
            {each for found in self.program.field_lists for each in self._kept(found)},
            key=lambda each: each.column,
        )

    def _kept(self, field_list: ir.FieldList) -> list[Variable]:
        """The live variables of a field list."""
        references = [each for each in field_list.elements if isinstance(each, ir.FieldRef)]
        return [found for each in references if (found := self.row.variable(each))]

    def emit_keep(self) -> None:
        """Write a function that copies the variables of a field list from one row to another."""
        with self.writer.block("def keep_fields(field_list, pool, source, target):"):
            for field_list in self.program.field_lists:
                with self.writer.block(f"if field_list == {field_list.id}:  # {field_list.name}"):
                    for kept in self._kept(field_list):
                        for column in range(kept.column, kept.column + kept.words):
                            cell = f"pool, target + {column}"
                            self.writer.line(f"put({cell}, get(pool, source + {column}))")
            self.writer.line("return")

    # ── Slots ──

    def take(self, slot: str, row: str) -> None:
        """Take a free slot for the current packet or its clone; ``shortage`` has checked that there
        is one.
        """
        line = self.writer.line
        line(f"{slot} = free")
        line(f"{row} = {slot} * ROW")
        line(f"free = get(pool, {row} + REFERENCES)")
        line("spare -= 1")
        line(f"start_row(pool, {row}, size, number, arrived, beyond, origins, origin)")

    def use_slot(self, slot: str) -> None:
        """Make the packet of a slot the current one."""
        self.writer.line("data = store")
        self.writer.line(f"base = {slot} * span")

    def release(self, slot: str) -> None:
        """Release a step's reference to a slot."""
        self.writer.line(
            f"free, spare, free_origin = release("
            f"pool, int64(ROW), {slot}, free, spare, origins, free_origin)"
        )

    # ── Clones, and packets that come again ──

    @contextmanager
    def limit_loops(self, otherwise: str | None = None) -> Iterator[None]:
        """A block for what may be done only so often for one received packet.

        ``otherwise`` is counted when it is not done.
        """
        with self.writer.block(f"if get(origins, origin + LOOPS) >= {MAX_LOOPS}:"):
            self.loop.count("looped")
            if otherwise is not None:
                self.loop.count(otherwise)
                self.writer.note(Kind.DROP, drop_site(LOOPED, otherwise))
        with self.writer.block("else:"):
            self.writer.line("put(origins, origin + LOOPS, get(origins, origin + LOOPS) + 1)")
            yield

    def reenter(self, field_list: str, kind: InstanceType, source: str) -> None:
        """Make the slot that was taken the packet that comes again; the old one is done with."""
        line = self.writer.line
        line(f"clear(pool, {AGAIN} + {queue.BEYOND + 1}, {AGAIN} + ROW)")
        line(f"keep_fields({field_list}, pool, {source}, {AGAIN})")
        self.put(AGAIN, self.program.standard.instance_type, kind)
        # It is an event of its own, since each pass may need slots and entries.
        line("arrival = int64(-1)")
        with self.writer.block("if timed != 0:"):
            line("arrival = recirculate(queues, now, size + beyond)")
        with self.writer.block("if arrival < 0:"):
            line("pending = again_slot")
        with self.writer.block("else:"):
            line("entries, made = enter_later(")
            line("    waiting, entries, made, priorities, arrival, again_slot")
            line(")")

    def enqueue_clone(self, field_list: str, session: str, kind: InstanceType, source: str) -> None:
        """Make the metadata of a clone and send it to its session's group and port."""
        line = self.writer.line
        line(f"clear(pool, {CLONE} + {self.row.metadata}, {CLONE} + ROW)")
        line(f"keep_fields({field_list}, pool, {source}, {CLONE})")
        self.put(CLONE, self.program.standard.instance_type, kind)
        self.clear_requests(CLONE)
        self.loop.count("cloned")
        self.writer.note(Kind.CLONED)
        line(f"clones = get(sessions, 2 * {session} + 1)")
        with self.writer.block("if clones >= 0:"):
            self.writer.note(Kind.MIRROR_GROUP, 0, "clones")
            self.enqueue_group("clone_slot", CLONE, "clones")
            rid = self.row.column(self.program.standard.egress_rid)
            if rid is not None:
                # The copy to the session's port comes after the group's and says what they did.
                with self.writer.block("if last_copy > first_copy:"):
                    line(f"put(pool, {CLONE} + {rid}, get(replica_rid, last_copy - 1))")
        line(f"clones = get(sessions, 2 * {session})")
        with self.writer.block("if clones >= 0:"):
            self.writer.note(Kind.MIRROR_PORT, 0, "clones")
            self.enqueue("clone_slot", CLONE, "clones", "int64(-1)")

    def clear_requests(self, row: str) -> None:
        """Clear a copy's requests to truncate, resubmit or recirculate."""
        for scalar, nothing in ((MAX_LENGTH, UNLIMITED), (RECIRCULATE_LIST, "0")):
            column = self.row.scalar(scalar)
            if column is not None:
                self.writer.line(f"put(pool, {row} + {column}, {nothing})")

    def put(self, row: str, reference: ir.FieldRef | None, value: int) -> None:
        """Set a field of a row, if the row has it."""
        column = self.row.column(reference)
        if column is not None:
            self.writer.line(f"put(pool, {row} + {column}, {int(value)})")

    def save(self, row: str) -> None:
        """The packet's variables to a row."""
        self.writer.line(f"put(pool, {row} + AT, at)")
        emit_save(self.writer, row, self.row.variables)

    # ── The queues ──

    def enqueue_group(self, slot: str, row: str, group: str) -> None:
        """Enqueue each copy of a multicast group."""
        line = self.writer.line
        self.loop.find_copies(group)
        with self.writer.block("if copies == 0:"):
            self.loop.count("unknown_groups")
            self.writer.note(Kind.UNKNOWN_GROUP, 0, group)
        if self.writer.recording:
            with self.writer.block("else:"):
                self.writer.note(Kind.MULTICAST, 0, group, "copies")
        with self.writer.block("for copy_number in range(first_copy, last_copy):"):
            line("copy_port = get(replica_port, copy_number)")
            line("copy_rid = get(replica_rid, copy_number)")
            self.writer.note(Kind.REPLICA, 0, "copy_port", "copy_rid")
            self.enqueue(slot, row, "copy_port", "copy_rid")

    def enqueue(self, slot: str, row: str, port: str, rid: str) -> None:
        """Enqueue a copy for its port."""
        column = self.row.column(self.program.standard.priority)
        given = "zero" if column is None else f"get(pool, {row} + {column})"
        bytes_of_it = f"store, {slot} * span, get(pool, {row} + SIZE)"
        priority = f"class_priority({given}, queues, {bytes_of_it})"
        length_column = self.row.scalar(PACKET_LENGTH)
        if length_column is None:  # no header comes or goes
            length = f"get(pool, {row} + SIZE) + get(pool, {row} + BEYOND)"
        else:
            length = f"get(pool, {row} + {length_column})"
            if resizes(self.program):
                before, beyond = f"get(pool, {row} + SIZE)", f"get(pool, {row} + BEYOND)"
                carried = f"{length} - {beyond}"
                length = f"{carried} + stand_in(queues, {before}, {carried}, {beyond})"
        call = "entries, made = enqueue("
        if self.writer.recording:
            self.writer.line(f"copy_priority = {priority}")
            priority = "copy_priority"
            call = "entries, made, copy_depth, copy_leaves = enqueue_and_tell("
        for text in (
            call,
            "    waiting, entries, made, queues, priorities, timed, now, statistics, pool,",
            f"    int64(ROW), {slot}, {port}, {rid}, {priority}, {length}",
            ")",
        ):
            self.writer.line(text)
        if self.writer.recording:
            self._note_enqueued(port)

    def _note_enqueued(self, port: str) -> None:
        """What became of a copy for a port."""
        where = (port, "copy_priority", "copy_depth")
        with self.writer.block("if copy_depth < 0:"):
            self.writer.note(Kind.DROP, drop_site(NO_QUEUE, "dropped_ingress"))
        with self.writer.block("elif copy_leaves < 0:"):
            self.writer.note(Kind.QUEUE_FULL, 0, *where)
        with self.writer.block("else:"):
            wait = f"copy_leaves - now if timed != 0 else {NO_TIME}"
            self.writer.note(Kind.ENQUEUE, 0, *where, wait)

    def clear_varbits_of_absent(self, row: str) -> None:
        """``emit_clear_varbits`` of a row, where the packet itself goes on."""
        for header in varbit_headers(self.program):
            column = self.row.width_column(header)
            with self.writer.block(f"if not {self.layout.name(header, ir.VALID)}:"):
                self.writer.line(f"put(pool, {row} + {column}, 0)")


# ── A row: every variable of a packet as words ───────────────────────────────────────────────────
#
# A row has only variables that egress, the deparser and field lists read. Positions in ``data`` are
# relative to the packet's first byte. Metadata is at the end of the row. ``runtime.queue`` names
# the first words.


class Form(enum.Enum):
    """How a variable is stored in words."""

    NUMBER = enum.auto()
    WIDE = enum.auto()
    FLAG = enum.auto()
    BYTE = enum.auto()
    """A byte's position in ``data``."""
    BIT = enum.auto()
    """A bit's position in ``data``, or a negative number that is none."""
    ARRAY = enum.auto()
    """A word for each element."""
    BYTES = enum.auto()
    """An array, as its bytes."""


@dataclass(frozen=True, slots=True)
class Variable:
    """``words`` words of a row from ``column`` on; of an array as bytes, ``size`` bytes."""

    name: str
    form: Form
    column: int
    words: int
    size: int = 0


class PacketRow:
    """The columns of variables in a row.

    Attributes:
        width: words of a row.
        metadata: the first of those that hold metadata.
        variables: all of them.
    """

    def __init__(self, loop: PacketLoop) -> None:
        self.loop = loop
        self.layout = loop.layout
        self.program = loop.program
        self.width = queue.BEYOND + 1
        self._needed = self._needed_fields()
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
        """The first word of a field; None if the row lacks it."""
        found = None if reference is None else self.variable(reference)
        return None if found is None else found.column

    def variable(self, reference: ir.FieldRef) -> Variable | None:
        """A field as a part of the row; None if nothing reads it."""
        return self._fields.get((reference.header, reference.field))

    def scalar(self, scalar: lowered.IntVariable) -> int | None:
        """The word of a variable that is not a field; None if the row lacks it."""
        return next((each.column for each in self.variables if each.name == scalar.name), None)

    def width_column(self, header: int) -> int:
        """The word with the width of a header's varbit field."""
        return self._widths[header]

    # ── Layout of the row ──

    def _needed_fields(self) -> set[ir.FieldRef]:
        """Fields that are read after ingress, or kept when a packet recirculates."""
        program, standard = self.program, self.program.standard
        copied = {
            ir.FieldRef(header, field)
            for header, runs in self.layout.passthrough.items()
            for first, last in runs
            for field in range(first, last + 1)
        }
        bodies = (self.loop.lowered.egress, self.loop.lowered.update)
        needed = live_fields(program, bodies, copied)
        for field_list in program.field_lists:
            needed.update(each for each in field_list.elements if isinstance(each, ir.FieldRef))
        written = (standard.instance_type, standard.priority, standard.egress_rid)
        needed.update(each for each in written if each is not None)
        return needed & self.layout.live

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
                if not self._is_needed(array):
                    continue
                if self.program.headers[header].metadata:
                    if array.name not in done:
                        done[array.name] = self._add(array.name, Form.ARRAY, array.count)
                    self._fields[header, field] = self._element(done[array.name], array, field)
                elif array.name not in done:
                    words = (array.count * array.item + 63) // 64
                    done[array.name] = self._add(array.name, Form.BYTES, words, array.bytes)
            elif ir.FieldRef(header, field) in self._needed:
                words = layout.limbs(header, field)
                form = Form.BIT if spec.variable else Form.NUMBER if words == 1 else Form.WIDE
                name = layout.name(header, field)
                self._fields[header, field] = self._add(name, form, words)

    def _is_needed(self, array: ArrayVariable) -> bool:
        fields = range(array.first, array.last + 1)
        return any(ir.FieldRef(array.header, field) in self._needed for field in fields)

    def _add(self, name: str, form: Form, words: int = 1, size: int = 0) -> Variable:
        variable = Variable(name, form, self.width, words, size)
        self.variables.append(variable)
        self.width += words
        return variable

    @staticmethod
    def _element(variable: Variable, array: ArrayVariable, field: int) -> Variable:
        """One field of an array."""
        position = field - array.first
        return Variable(f"{variable.name}[{position}]", Form.NUMBER, variable.column + position, 1)


def emit_save(writer: Writer, row: str, variables: Iterable[Variable]) -> None:
    """Write variables to the row that starts at word ``row`` of ``pool``."""
    for each in variables:
        cell = f"pool, {row} + {each.column}"
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
            case Form.BYTES:
                writer.line(f"copy(pool, 8 * ({row} + {each.column}), {each.name}, 0, {each.size})")


def emit_load(writer: Writer, row: str, variables: Sequence[Variable]) -> None:
    """Read variables back, for the packet whose first byte is ``base`` now."""
    for each in variables:
        cell = f"pool, {row} + {each.column}"
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
            case Form.BYTES:
                writer.line(f"copy({each.name}, 0, pool, 8 * ({row} + {each.column}), {each.size})")
