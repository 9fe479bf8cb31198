"""simple_switch's log of packets that machine code runs, from their records.

``RecordLog`` tells ``PacketLog`` what the records say, which the interpreter tells it while it runs
packets. So both engines write the same lines.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.packet_log import Body, PacketLog
from innet.switch.jit.records import (
    BUFFER_WORDS,
    BYTES_BEGIN,
    BYTES_END,
    COPY,
    COUNTED,
    DROP_REASONS,
    EGRESS_STEPS,
    FOLLOWING,
    INGRESS_STEPS,
    LOOPED,
    MADE,
    MARKED,
    NO_QUEUE,
    NUMBER,
    Kind,
    parser_operations,
    split,
)
from innet.switch.recording import Decoder, joined, values_at
from innet.switch.state.entries import word_count
from innet.switch.state.tables import RuntimeEntry

_Line = tuple[str, int | None, str]
_EVERY = (1 << 64) - 1
#: What comes between a look-up and its action.
_ON_HIT = (Kind.CHOSEN, Kind.DIRECT_COUNTER, Kind.DIRECT_METER, Kind.FIELD)
#: Whose lines only depend on their site.
_CONSTANT = (
    *(Kind.STATE, Kind.EXTRACTING, Kind.PARSED, Kind.CHECKSUM_SKIPPED),
    *(Kind.DEPARSING, Kind.UPDATING, Kind.UPDATE_SKIPPED),
)
#: With these the packet itself goes on, after its clone.
_RESUMED = (Kind.DECIDED, Kind.DEPARSING, Kind.RECIRCULATE, Kind.SENT, Kind.PIPELINE_START)
#: Packets whose copies are known; a program keeps few at a time.
_MOST_PACKETS = 4096
_CELLS, _CELLS_END = 2, 5
"""In the record of a counter: the words that its lines do not depend on."""
_MOST_KINDS = 4096
"""Kinds of passes whose lines are kept; with one more the log begins to learn anew."""


class _Collected(PacketLog):
    """Keeps lines: level, which copy of the packet the text is about (None: no packet), text."""

    def __init__(self, document: Mapping[str, Any], state: SwitchState) -> None:
        self.lines: list[_Line] = []
        self.copy, self.copies = 0, {0}  # those of which is told
        super().__init__(document, state.program, state, self._keep)

    def _keep(self, level: str, text: str) -> None:
        self.lines.append((level, None, text))

    def about(self, number: int, copy: int) -> None:  # noqa: ARG002 - of PacketLog
        """See ``PacketLog.about``; the number is written with the lines."""
        self.copy = copy
        self.copies.add(copy)

    def line(self, level: str, text: str) -> None:
        """See ``PacketLog.line``."""
        self.lines.append((level, self.copy, text))


class _Plan(NamedTuple):
    """What to do with the records of a head.

    Attributes:
        size: words; 0 if it is not always the same number.
        lines: what they always say.
        running: the primitive that runs next.
        read: says what depends on their words; None for nothing.
        site: of the head.
        settles: a look-up before it had no action.
        resumes: the packet itself goes on, after its clone.
    """

    size: int
    lines: tuple[tuple[str, str], ...]
    running: ir.Primitive | None
    read: Callable[[int, list[int], int], None] | None
    site: int
    settles: bool
    resumes: bool


class _Alike(NamedTuple):
    """What is written about passes whose records are the same.

    Attributes:
        lines: as ``_Collected`` keeps them.
        copies: of the packets that a pass through ingress enqueued: which copy each is.
        made: copies of the packet after that.
    """

    lines: tuple[_Line, ...]
    copies: tuple[int, ...]
    made: int


class RecordLog:
    """A ``RecordSink`` that writes lines.

    Passes with the same records have the same lines, except for the number of the packet and of the
    copy. So the lines of one serve all that are like it, until the control plane changes something.

    Args:
        document: the program's JSON.
        state: of the switch.
        write: takes the lines of a pass, each its level and text.
        received: packets that were logged before.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        state: SwitchState,
        write: Callable[[Sequence[tuple[str, str]]], None],
        received: int,
    ) -> None:
        self.buffer = np.zeros(BUFFER_WORDS, np.int64)
        self._program = program = state.program
        self._state, self._write, self._before = state, write, received
        self._log = _Collected(document, state)
        self._decoder = Decoder(program)
        self._operations = parser_operations(program)
        self._primitives = [
            *(each for action in program.actions for each in action.primitives),
            *program.deparser.operations,
        ]
        self._texts = _Texts(program, self._log)
        self._readers: dict[int, Callable[[int, list[int], int], None]] = {
            kind: getattr(self, f"_tell_{kind.name.lower()}")
            for kind in Kind
            if hasattr(self, f"_tell_{kind.name.lower()}")
        }
        self._plans: dict[int, _Plan] = {}
        self._kinds: dict[bytes, _Alike | None] = {}  # None: there was one such pass
        self._generation = -1
        # Which copy of its packet each one is, as simple_switch counts them.
        self._made: dict[int, int] = {}  # copies so far, by packet
        self._waiting: dict[int, int] = {}  # by the number of the copy among all
        self._coming: defaultdict[int, deque[int]] = defaultdict(deque)  # that come again
        self._number = self._copy = self._next = self._clone = self._enqueued = 0
        self._newest = received - 1
        self._is_egress = self._was_cloned = False
        self._copies: list[int] = []
        self._is_plain = True  # no clone, and nothing that comes again
        # The look-up whose action is not known yet, and the primitive that runs.
        self._found: tuple[int, RuntimeEntry | None] | None = None
        self._node: ir.Node | None = None
        self._exits = False
        self._running: ir.Primitive | None = None
        self._digest: tuple[int, bool] | None = None

    @property
    def received(self) -> int:
        """Packets that were logged so far."""
        return self._newest + 1

    def take(self, count: int) -> None:
        """See ``RecordSink.take``."""
        self.buffer[-1] = 0
        if self._state.generation.value != self._generation:
            self._generation = self._state.generation.value
            self._kinds.clear()
        start = 0
        while start < count:
            following = self.buffer.item(start + FOLLOWING) or count
            self._take_pass(start, following)
            start = following

    def _begin(self, start: int) -> bool:
        """Find out whose pass it is; returns whether its packet was received just now."""
        word = self.buffer.item
        self._is_egress = split(word(start))[0] == Kind.EGRESS
        self._number = number = word(start + NUMBER) + self._before
        self._enqueued = word(start + MADE)
        if self._is_egress:
            self._copy = self._waiting.pop(word(start + COPY), 0)
            return False
        if number <= self._newest:
            self._copy = self._coming[number].popleft()
            if not self._coming[number]:
                del self._coming[number]
            return False
        self._newest, self._made[number], self._copy = number, 1, 0
        if len(self._made) > _MOST_PACKETS:
            del self._made[next(iter(self._made))]
        return True

    def _take_pass(self, start: int, end: int) -> None:
        """The lines of a pass."""
        is_new = self._begin(start)
        number = self._number
        key = self._key(start, end)
        known = self._kinds.get(key) if self._is_egress or is_new else None
        about = f"[{number}.{self._copy}] [cxt 0] "
        if known is not None:
            if not self._is_egress:
                self._made[number] = known.made
                for copy in known.copies:
                    self._waiting[self._enqueued] = copy
                    self._enqueued += 1
            self._write(
                [
                    (level, text if told_of is None else about + text)
                    for level, told_of, text in known.lines
                ]
            )
            return
        lines, own = self._log.lines, self._copy
        lines.clear()
        self._read(start, end)
        heads: dict[int | None, str] = {
            told_of: f"[{number}.{told_of}] [cxt 0] " for told_of in self._log.copies
        }
        heads[None] = ""
        self._write([(level, heads[told_of] + text) for level, told_of, text in lines])
        if self._is_plain and (self._is_egress or own == 0):
            self._keep(key)

    def _keep(self, key: bytes) -> None:
        """Remember a pass, and what was read of the second one like it for those that follow."""
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        if key not in self._kinds:
            self._kinds[key] = None
            return
        made = 1 if self._is_egress else self._made[self._number]
        self._kinds[key] = _Alike(tuple(self._log.lines), tuple(self._copies), made)

    def _key(self, start: int, end: int) -> bytes:
        """What the lines of a pass depend on: its records, without the packet's bytes and without
        what counters count.
        """
        word, pieces = self.buffer.item, []
        left_out = [(word(start + BYTES_BEGIN), word(start + BYTES_END))]
        counted = word(start + COUNTED)
        while counted:
            left_out.append((counted + _CELLS, counted + _CELLS_END))
            counted = word(counted + _CELLS)
        at = start + (EGRESS_STEPS if self._is_egress else INGRESS_STEPS)
        for first, last in sorted(left_out):
            if first:
                pieces.append(self.buffer[at:first].tobytes())
                at = last
        pieces.append(self.buffer[at:end].tobytes())
        return b"".join(pieces)

    def _read(self, start: int, end: int) -> None:
        """Tell the log what the records of a pass say."""
        self._copies.clear()
        self._is_plain = True
        self._log.copies.clear()
        self._log.about(self._number, self._copy)
        words = self.buffer[start:end].tolist()
        plans, lines, at, count = self._plans, self._log.lines, 0, end - start
        while at < count:
            plan = plans.get(words[at]) or self._plan(words[at])
            size, said, running, read, site, settles, resumes = plan
            if settles and self._found is not None:
                self._tell_found(None)
            if resumes and self._was_cloned:
                self._was_cloned = False
                self._log.about(self._number, self._copy)
            if said:
                copy = self._log.copy
                lines += [(level, copy, text) for level, text in said]
            if running is not None:
                self._running = running
            if read is not None:
                read(site, words, at + 1)
            at = at + size if size else self._decoder.end(words, at, *split(words[at]))

    def _plan(self, word: int) -> _Plan:
        """What to do with the records of a head; made once."""
        kind, site = split(word)
        read, running = self._readers.get(kind), None
        lines: tuple[tuple[str, str], ...] = ()
        if kind == Kind.PRIMITIVE:
            running = self._primitives[site]
            lines = tuple(("trace", each) for each in self._texts.primitives[site])
        elif kind in _CONSTANT and read is not None:
            before = len(self._log.lines)
            read(site, [], 0)
            lines = tuple((level, text) for level, _, text in self._log.lines[before:])
            del self._log.lines[before:]
            read = None
        settles = kind not in _ON_HIT and kind != Kind.ACTION
        size = max(0, self._decoder.size_of(word))
        if kind in (Kind.LOG, Kind.ADVANCE):
            size = 0
        plan = _Plan(size, lines, running, read, site, settles, kind in _RESUMED)
        self._plans[word] = plan
        return plan

    # ── Passes ──

    def _tell_ingress(self, _: int, words: list[int], at: int) -> None:
        self._log("ingress", port=words[at + INGRESS_STEPS])
        self._log.line("debug", "Parser 'parser': start")

    def _tell_parse_clone(self, _: int, __: list[int], ___: int) -> None:
        self._clone = self._another()
        self._was_cloned = True
        self._log.about(self._number, self._clone)
        self._log.line("debug", "Parser 'parser': start")

    def _another(self) -> int:
        """The number of one more copy of the packet in hand."""
        made = self._made.get(self._number, 1)
        self._made[self._number] = made + 1
        return made

    # ── The parser ──

    def _tell_state(self, site: int, _: list[int], __: int) -> None:
        self._log.entering(self._program.parser.states[site])

    def _tell_extracting(self, site: int, _: list[int], __: int) -> None:
        header, has_length = divmod(site, 2)
        self._log.extracting(header, variable=bool(has_length))

    def _tell_extracting_next(self, site: int, words: list[int], at: int) -> None:
        header, of_unions = divmod(site, 2)
        self._log.extracting_next(words[at], header, of_unions=bool(of_unions))

    def _tell_bad_length(self, _: int, words: list[int], at: int) -> None:
        why = "needs to be a multiple of 8"
        self._log.line("error", f"VL field bitwidth {words[at]} {why}")

    def _tell_parser_set(self, site: int, words: list[int], at: int) -> None:
        value = int(self._decoder.settings[site].read(words, at))
        setting = self._texts.settings[site]
        self._log.line("debug", setting.replace("{}", str(value)))

    def _tell_method(self, site: int, _: list[int], __: int) -> None:
        body = self._texts.methods[site]
        self._log.line("debug", f"Executing method {body.name}")
        self._log.line("trace", body.title)
        self._log.line("trace", body.primitives[0])
        state, position = self._operations[site]
        operation = self._program.parser.states[state].operations[position]
        self._running = operation  # type: ignore[assignment] # others than primitives have no method

    def _tell_advance(self, _: int, words: list[int], at: int) -> None:
        count, signed = divmod(words[at], 2)
        bits = joined(words, at + 1, count, signed=bool(signed))
        if bits % 8:
            why = "must be a multiple of 8"
            self._log.line("error", f"advance bits amount {bits} {why}")
        else:
            self._log.line("debug", f"Advancing by {bits // 8} bytes")

    def _tell_select(self, site: int, words: list[int], at: int) -> None:
        state = site // (len(self._program.parser.states) + 1)
        key = [int(each) for each in values_at(self._decoder.selections[state], words, at + 1)]
        self._log.chosen_by(self._program.parser.states[state], key)
        self._log.line("trace", f"Bytes parsed: {words[at]}")

    def _tell_parser_error(self, _: int, words: list[int], at: int) -> None:
        code = words[at]
        self._log("parser_error", error=self._decoder.errors.get(code, str(code)))

    def _tell_checksum(self, site: int, words: list[int], at: int) -> None:
        checksum = self._program.checksums[site]
        width = self._program.field(checksum.target).width
        actual = joined(words, at + 1, word_count(width))
        self._log.checksum(checksum.name, words[at] & _EVERY, actual)

    def _tell_checksum_skipped(self, site: int, _: list[int], __: int) -> None:
        number, is_there = divmod(site, 2)
        why = "condition not met" if is_there else "target field invalid"
        name = self._program.checksums[number].name
        self._log.checksum_skipped(name, f"verification because {why}")

    def _tell_parsed(self, _: int, __: list[int], ___: int) -> None:
        self._log.line("debug", "Parser 'parser': end")

    # ── Tables and actions ──

    def _pipeline(self, site: int) -> ir.Pipeline:
        return self._program.egress if site else self._program.ingress

    def _tell_pipeline_start(self, site: int, _: list[int], __: int) -> None:
        pipeline = self._pipeline(site)
        self._log.line("debug", f"Pipeline '{pipeline.name}': start")
        self._exits = False
        self._node = pipeline.initial

    def _tell_pipeline_end(self, site: int, _: list[int], __: int) -> None:
        if self._exits and self._node is not None:
            self._log.line("debug", "Packet is marked for exit, interrupting pipeline")
        self._log.line("debug", f"Pipeline '{self._pipeline(site).name}': end")

    def _tell_request_exit(self, _: int, __: list[int], ___: int) -> None:
        self._exits = True

    def _tell_if(self, site: int, _: list[int], __: int) -> None:
        number, result = divmod(site, 2)
        conditional = self._program.conditionals[number]
        self._node = conditional.if_true if result else conditional.if_false
        self._log("if", name=conditional.name, result=bool(result))

    def _tell_hit(self, site: int, words: list[int], at: int) -> None:
        self._look_up(site, words, at + 1)
        self._found = site, self._state.tables[site].entry_of_row(words[at])

    def _tell_miss(self, site: int, words: list[int], at: int) -> None:
        self._look_up(site, words, at)
        self._found = site, None

    def _look_up(self, site: int, words: list[int], at: int) -> None:
        values = [int(each) for each in values_at(self._decoder.keys[site], words, at)]
        self._log.looking_up(site, values)

    def _tell_chosen(self, _: int, words: list[int], at: int) -> None:
        self._log.line("debug", f"Choosing member {words[at]} from group {words[at + 1]}")

    def _tell_found(self, action: ir.ActionEntry | None) -> None:
        assert self._found is not None
        (table, entry), self._found = self._found, None
        number = None if action is None else action.action
        self._node = self._state.tables[table].next_node(number, hit=entry is not None)
        self._log.found(table, entry, action)

    def _tell_action(self, site: int, words: list[int], at: int) -> None:
        if self._found is not None:
            values = values_at(self._decoder.parameters[site], words, at)
            self._tell_found(ir.ActionEntry(site, tuple(map(int, values))))
        elif self._node is not None and self._node.kind is ir.NodeKind.ACTION_CALL:
            self._node = self._program.action_calls[self._node.index].next
        self._log.line("trace", self._log.action(site).title)

    def _tell_log(self, site: int, words: list[int], at: int) -> None:
        self._log("log", text=self._decoder.message(site, words, at))

    # ── State ──

    def _tell_register_read(self, site: int, words: list[int], at: int) -> None:
        if isinstance(self._running, ir.RegisterRead):
            array = self._program.registers[site]
            value = joined(words, at + 1, word_count(array.width))
            self._log.register_read(array, words[at] & _EVERY, value)

    def _tell_register_write(self, site: int, words: list[int], at: int) -> None:
        if isinstance(self._running, ir.RegisterWrite):
            array = self._program.registers[site]
            count = word_count(array.width)
            value = joined(words, at + 1 + count, count)
            self._log.register_write(array, words[at] & _EVERY, value)

    def _tell_register_out(self, site: int, words: list[int], at: int) -> None:
        array, index = self._program.registers[site], words[at] & _EVERY
        if isinstance(self._running, ir.RegisterRead):
            self._log.register_read(array, index, None)
        elif isinstance(self._running, ir.RegisterWrite):
            self._log.register_write(array, index, 0)

    def _tell_counter(self, site: int, words: list[int], at: int) -> None:
        self._log.counted(self._program.counters[site], words[at] & _EVERY)

    _tell_counter_out = _tell_counter

    def _tell_meter(self, site: int, words: list[int], at: int) -> None:
        array, index = self._program.meters[site], words[at] & _EVERY
        self._log.line("debug", f"Executing meter {array.name}[{index}]")
        self._log.metered(array, index, words[at + 1])

    def _tell_meter_out(self, site: int, words: list[int], at: int) -> None:
        self._log.metered(self._program.meters[site], words[at] & _EVERY, 0)

    def _tell_hash(self, _: int, words: list[int], at: int) -> None:
        base, size, value = (each & _EVERY for each in words[at : at + 3])
        self._log.hashed(base, size, value)

    def _tell_random(self, _: int, words: list[int], at: int) -> None:
        low, high, value = (each & _EVERY for each in words[at : at + 3])
        self._log.line("trace", f"random(lo={low}, hi={high}) = {value}")

    def _tell_random_empty(self, _: int, __: list[int], ___: int) -> None:
        self._log.plain("warn", "random result is not specified when lo > hi")

    # ── Copies ──

    def _tell_clone(self, _: int, __: list[int], ___: int) -> None:
        self._is_plain = False
        where = "egress" if self._is_egress else "ingress"
        self._log.line("debug", f"Cloning packet at {where}")

    _tell_unknown_session = _tell_clone

    def _tell_cloned(self, _: int, __: list[int], ___: int) -> None:
        if self._is_egress:
            self._clone = self._another()
            self._was_cloned = True
        self._log.about(self._number, self._copy)

    def _tell_mirror_group(self, _: int, words: list[int], at: int) -> None:
        self._log.line("debug", f"Cloning packet to MGID {words[at]}")
        self._log.about(self._number, self._clone)

    def _tell_mirror_port(self, _: int, words: list[int], at: int) -> None:
        self._log.about(self._number, self._copy)
        self._log.line("debug", f"Cloning packet to egress port {words[at]}")
        self._next = self._clone

    def _tell_digest(self, site: int, _: list[int], __: int) -> None:
        self._digest = self._program.learn_lists[site].id, True

    def _tell_unknown_digest(self, _: int, words: list[int], at: int) -> None:
        self._digest = words[at], False

    def _tell_decided(self, _: int, __: list[int], ___: int) -> None:
        if self._digest is not None:
            number, is_known = self._digest
            self._log.learning(number, is_known=is_known)
            self._digest = None

    def _tell_asked(self, _: int, words: list[int], at: int) -> None:
        port = words[at]
        asked = "Multicast requested for packet" if port < 0 else f"Egress port is {port}"
        self._log.line("debug", asked)
        self._next = self._copy

    def _tell_multicast(self, _: int, words: list[int], at: int) -> None:
        self._log.replicating(words[at], words[at + 1], is_known=True)

    def _tell_unknown_group(self, _: int, words: list[int], at: int) -> None:
        group = words[at]
        self._log.replicating(group, 0, is_known=group in self._state.replication.groups)

    def _tell_replica(self, _: int, words: list[int], at: int) -> None:
        self._log("replica", port=words[at])
        self._next = self._another()

    def _tell_enqueue(self, _: int, __: list[int], ___: int) -> None:
        self._waiting[self._enqueued] = self._next
        self._copies.append(self._next)
        self._enqueued += 1

    def _tell_resubmit(self, _: int, __: list[int], ___: int) -> None:
        self._is_plain = False
        self._log("resubmit")
        self._coming[self._number].append(self._another())

    def _tell_recirculate(self, _: int, __: list[int], ___: int) -> None:
        self._is_plain = False
        self._log("recirculate")
        self._coming[self._number].append(self._another())

    def _tell_drop(self, site: int, _: list[int], __: int) -> None:
        reason, egress = divmod(site, 2)
        if reason == NO_QUEUE:
            self._log.plain("error", "Priority out of range, dropping packet")
        elif reason == LOOPED:  # it does not come again
            self._coming[self._number].pop()
            self._made[self._number] -= 1
        elif reason == MARKED:
            pipeline = "egress" if egress else "ingress"
            self._log("drop", pipeline=pipeline, reason=DROP_REASONS[reason])

    # ── The deparser ──

    def _tell_deparsing(self, _: int, __: list[int], ___: int) -> None:
        self._log.line("debug", "Deparser 'deparser': start")

    def _tell_update_skipped(self, site: int, _: list[int], __: int) -> None:
        name = self._program.checksums[site].name
        self._log.checksum_skipped(name, "update because condition not met")

    def _tell_updating(self, site: int, _: list[int], __: int) -> None:
        self._log.line("debug", f"Updating checksum '{self._program.checksums[site].name}'")

    def _tell_deparse(self, _: int, words: list[int], at: int) -> None:
        for name in self._decoder.deparsed(words, at):
            self._log.line("debug", f"Deparsing header '{name}'")
        self._log.line("debug", "Deparser 'deparser': end")

    def _tell_sent(self, _: int, words: list[int], at: int) -> None:
        self._log("sent", port=words[at], length=words[at + 1])


class _Texts:
    """Lines that are the same for all packets.

    Attributes:
        settings: by number of the parser's operations: the line of an assignment.
        methods: likewise, of primitives.
        primitives: by number of the primitives: what is said before each.
    """

    def __init__(self, program: ir.Program, log: PacketLog) -> None:
        self.settings: dict[int, str] = {}
        self.methods: dict[int, Body] = {}
        for number, (state, position) in enumerate(parser_operations(program)):
            name = program.parser.states[state].name
            match program.parser.states[state].operations[position]:
                case ir.Extract() | ir.Verify() | ir.Advance():
                    pass
                case ir.SetFromLookahead() | ir.Assign() | ir.AssignVariable():
                    self.settings[number] = log.parser_set(name, position)
                case _:
                    self.methods[number] = log.parser_method(name, position)
        self.primitives: list[tuple[str, ...]] = [
            (line,) for i in range(len(program.actions)) for line in log.action(i).primitives
        ]
        bodies = [log.deparser(i) for i in range(len(program.deparser.operations))]
        self.primitives += [(each.title, *each.primitives) for each in bodies]
