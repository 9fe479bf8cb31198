"""simple_switch's log of packets that machine code runs, from their records.

``RecordLog`` tells ``PacketLog`` what the records say, which the interpreter tells it while it runs
packets. So both engines write the same lines.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir, log_tree
from innet.switch.engine import SwitchState
from innet.switch.interpreter.packet_log import LEVELS, Body, PacketLog, Write
from innet.switch.jit.records import (
    BUFFER_WORDS,
    BYTES_BEGIN,
    BYTES_END,
    COPY,
    DROP_REASONS,
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
from innet.switch.log_tree import (
    OWN,
    PACKET,
    Hole,
    LineTree,
    PassWords,
    copy_mark,
    entry_mark,
    table_and_row,
)
from innet.switch.recording import Decoder, ShownValue, joined
from innet.switch.state.entries import word_count
from innet.switch.state.tables import RuntimeEntry

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
_BETWEEN = "\0"  # is in no line
#: Of the task of the ``LineTree``: what is asked of a pass.
_OF_PASS = [log_tree.START, log_tree.COUNT, log_tree.BEFORE, log_tree.COPY, log_tree.MADE]


class LineWriter(Protocol):
    """Where lines go."""

    def heads(self) -> Mapping[str, str]:
        """What lines begin with now, by level; lines of other levels are not written.

        The text of a level has always the same length.
        """
        ...

    def write_text(self, text: bytes) -> None:
        """Write whole lines."""
        ...


class SeparateLines:
    """A ``LineWriter`` for what takes one line after the other, its level and text."""

    def __init__(self, write: Write) -> None:
        self._line = write

    def heads(self) -> Mapping[str, str]:
        """See ``LineWriter.heads``."""
        return {level: f"{_BETWEEN}{level}{_BETWEEN}" for level in LEVELS}

    def write_text(self, text: bytes) -> None:
        """See ``LineWriter.write_text``."""
        parts = text.decode().split(_BETWEEN)[1:]
        for level, line in zip(parts[::2], parts[1::2], strict=True):
            self._line(level, line.removesuffix("\n"))


class _EntryMarks(NamedTuple):
    """Stands for an entry that is not known yet: what is written later."""

    handle: str
    dump: str


class _Collected(PacketLog):
    """Keeps lines: level, text."""

    def __init__(self, document: Mapping[str, Any], state: SwitchState) -> None:
        self.lines: list[tuple[str, str]] = []
        super().__init__(document, state.program, state, lambda *line: self.lines.append(line))

    def dump(self, table: int, entry: RuntimeEntry) -> str:
        """See ``PacketLog.dump``."""
        return entry.dump if isinstance(entry, _EntryMarks) else super().dump(table, entry)


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


class _Copies(NamedTuple):
    """The copies of a packet that a pass makes, as ``log_tree`` numbers them.

    Attributes:
        made: how many.
        queued: which ones were enqueued.
        coming: which ones come again.
    """

    made: int
    queued: tuple[int, ...]
    coming: tuple[int, ...]


class RecordLog:
    """A ``RecordSink`` that writes lines.

    Passes whose records differ only in what is shown have the same lines, up to that. Python makes
    them once for all that are like it; a ``LineTree`` writes them.

    Args:
        document: the program's JSON.
        state: of the switch.
        writer: takes lines.
        received: packets that were logged before.
        is_late: lines are written when ``write`` is called, and not before.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        state: SwitchState,
        writer: LineWriter,
        received: int,
        *,
        is_late: bool = False,
    ) -> None:
        self.buffer = np.zeros(BUFFER_WORDS, np.int64)
        self._program = program = state.program
        self._state, self._writer, self._is_late = state, writer, is_late
        self._kept: list[NDArray[np.int64]] = []  # records that are not written yet
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
        self._words = self.buffer[:0]  # that are written now
        self._tree = LineTree()
        self._task = self._tree.task
        self._task[[log_tree.BEFORE, log_tree.NEWEST]] = received, received - 1
        self._generation = self._beside_tables = -1
        # Which copy of its packet each one is, as simple_switch counts them; the first if it is not
        # here.
        self._made: dict[int, int] = {}  # copies so far, by packet
        self._waiting: dict[int, int] = {}  # by the number of the copy among all
        self._coming: defaultdict[int, deque[int]] = defaultdict(deque)  # that come again
        # Of the pass that is read.
        self._number: int | str = 0
        self._name_of: Callable[[int], int | str] = copy_mark
        self._made_here, self._next, self._clone = 0, OWN, OWN
        self._queued: list[int] = []
        self._recurring: list[int] = []
        self._is_egress = self._was_cloned = False
        # The look-up whose action is not known yet, and the primitive that runs.
        self._found: tuple[int, RuntimeEntry | None] | None = None
        self._node: ir.Node | None = None
        self._exits = False
        self._running: ir.Primitive | None = None
        self._digest: tuple[int, bool] | None = None

    @property
    def received(self) -> int:
        """Packets that were logged so far."""
        self.write()
        return int(self._task[log_tree.NEWEST]) + 1

    def take(self, count: int) -> None:
        """See ``RecordSink.take``."""
        self.buffer[-1] = 0
        if count:
            self._kept.append(self.buffer[:count].copy())
        if not self._is_late:
            self.write()

    def write(self) -> None:
        """Write the lines of what was taken."""
        kept, self._kept = self._kept, []
        for each in kept:
            self._words = each
            self._write_passes()

    def _write_passes(self) -> None:
        self._refresh()
        tree, task, count = self._tree, self._task, len(self._words)
        tree.begin_lines(self._writer.heads())
        task[log_tree.START] = task[log_tree.MADE] = task[log_tree.FILLED] = 0
        task[log_tree.COUNT] = count
        while True:
            task[log_tree.IS_PLAIN] = not (self._made or self._waiting or self._coming)
            match tree.write(self._words):
                case log_tree.DONE:
                    break
                case log_tree.COPIED:
                    self._finish(tree.leaves[task[log_tree.LEAF]])
                case log_tree.LACKS_COPY:
                    self._identify()
                case log_tree.LACKS_LINES:
                    self._learn()
                case log_tree.LACKS_TEXTS:
                    table, row = table_and_row(int(task[log_tree.KEY]))
                    entry = self._state.tables[table].entry_of_row(row)
                    tree.learn_entry((str(entry.handle), self._log.dump(table, entry)))
                case log_tree.LACKS_ROOM:
                    if not self._write_text():  # it is too little for a pass
                        tree.output = np.zeros(2 * len(tree.output), np.uint8)
        self._write_text()

    def _refresh(self) -> None:
        """Forget what the control plane may have changed."""
        generation = self._state.generation
        if self._beside_tables != generation.beside_tables or self._tree.is_full:
            self._beside_tables = generation.beside_tables
            self._tree.clear()
        if self._generation != generation.value:
            self._generation = generation.value
            self._tree.forget_entries()

    def _write_text(self) -> bool:
        """Pass on what was written; whether there was something."""
        filled, self._task[log_tree.FILLED] = int(self._task[log_tree.FILLED]), 0
        if filled:
            self._writer.write_text(self._tree.output[:filled].tobytes())
        return bool(filled)

    # ── Copies ──

    def _identify(self) -> None:
        """Find out which copy of its packet passes."""
        start = int(self._task[log_tree.START])
        word = self._words.item
        number = word(start + NUMBER) + int(self._task[log_tree.BEFORE])
        if split(word(start))[0] == Kind.EGRESS:
            copy = self._waiting.pop(word(start + COPY), 0)
        else:
            copy = self._coming[number].popleft()
            if not self._coming[number]:
                del self._coming[number]
        self._task[[log_tree.COPY, log_tree.MADE]] = copy, self._made.get(number, 1)

    def _finish(self, copies: _Copies) -> None:
        """Count the copies that a pass made, and go on behind it."""
        start, count, before, copy, made = self._task[_OF_PASS].tolist()
        word = self._words.item
        number = word(start + NUMBER) + before
        if copies.made:
            self._made[number] = made + copies.made
            if len(self._made) > _MOST_PACKETS:
                del self._made[next(iter(self._made))]
        for place, each in enumerate(copies.queued, word(start + MADE)):
            if which := copy if each == OWN else made + each:
                self._waiting[place] = which
        if copies.coming:
            self._coming[number].extend(made + each for each in copies.coming)
        following = word(start + FOLLOWING) or count
        self._task[[log_tree.START, log_tree.MADE]] = following, 0

    # ── Passes that are read ──

    def _learn(self) -> None:
        """Read a pass that is like none before; written by Python if it cannot be kept."""
        start, count, before, copy, made = self._task[_OF_PASS].tolist()
        word = self._words.item
        end = word(start + FOLLOWING) or count
        begin_bytes, end_bytes = word(start + BYTES_BEGIN) or end, word(start + BYTES_END) or end
        found = self._words[[*range(start, begin_bytes), *range(end_bytes, end)]].tolist()
        words = PassWords(found, self._log.lines)
        self._number, self._name_of = PACKET, copy_mark
        copies = self._read(words)
        if words.is_kept:
            matters = 2 if copies.made or copies.coming else 1 if copies.queued else 0
            self._tree.learn(words, self._log.lines, copies, matters)
            return
        self._write_text()
        self._number = number = found[NUMBER] + before
        self._name_of = lambda each: copy if each == OWN else made + each
        self._read(found)
        heads = self._writer.heads()
        lines = (heads[level] + text for level, text in self._log.lines if level in heads)
        self._writer.write_text("".join(f"{each}\n" for each in lines).encode())
        self._task[log_tree.NEWEST] = max(number, int(self._task[log_tree.NEWEST]))
        self._finish(copies)

    def _read(self, words: list[int]) -> _Copies:
        """Tell the log what the records of a pass say; returns the copies that it makes."""
        self._log.lines.clear()
        self._queued, self._recurring, self._made_here = [], [], 0
        self._is_egress = split(words[0])[0] == Kind.EGRESS
        self._about(OWN)
        plans, lines, at, count = self._plans, self._log.lines, 0, len(words)
        while at < count:
            word = words[at]
            plan = plans.get(word) or self._plan(word)
            size, said, running, read, site, settles, resumes = plan
            if settles and self._found is not None:
                self._tell_found(None)
            if resumes and self._was_cloned:
                self._was_cloned = False
                self._about(OWN)
            lines += [(level, self._log.head + text) for level, text in said]
            if running is not None:
                self._running = running
            if read is not None:
                read(site, words, at + 1)
            at = at + size if size else self._decoder.end(words, at, *split(word))
        if isinstance(words, PassWords):
            words.end()
        return _Copies(self._made_here, tuple(self._queued), tuple(self._recurring))

    def _about(self, copy: int) -> None:
        """The lines that follow are about this copy."""
        self._log.about(self._number, self._name_of(copy))

    def _plan(self, word: int) -> _Plan:
        """What to do with the records of a head; made once."""
        kind, site = split(word)
        read, running = self._readers.get(kind), None
        lines: tuple[tuple[str, str], ...] = ()
        if kind == Kind.PRIMITIVE:
            running = self._primitives[site]
            lines = tuple(("trace", each) for each in self._texts.primitives[site])
        elif kind in _CONSTANT and read is not None:
            before, head, self._log.head = len(self._log.lines), self._log.head, ""
            read(site, [], 0)
            lines, self._log.head = tuple(self._log.lines[before:]), head
            del self._log.lines[before:]
            read = None
        settles = kind not in _ON_HIT and kind != Kind.ACTION
        size = abs(self._decoder.size_of(word))  # bytes are not among the words
        if kind in (Kind.LOG, Kind.ADVANCE, Kind.MARKED_BYTES):
            size = 0
        plan = _Plan(size, lines, running, read, site, settles, kind in _RESUMED)
        self._plans[word] = plan
        return plan

    # ── Passes ──

    def _tell_ingress(self, _: int, words: list[int], at: int) -> None:
        self._log("ingress", port=_value(words, at + INGRESS_STEPS))
        self._log.line("debug", "Parser 'parser': start")

    def _tell_parse_clone(self, _: int, __: list[int], ___: int) -> None:
        self._clone = self._another()
        self._was_cloned = True
        self._about(self._clone)
        self._log.line("debug", "Parser 'parser': start")

    def _another(self) -> int:
        """One more copy of the packet in hand."""
        self._made_here += 1
        return self._made_here - 1

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
        self._log.line("error", f"VL field bitwidth {_value(words, at)} {why}")

    def _tell_parser_set(self, site: int, words: list[int], at: int) -> None:
        (value,) = _values([self._decoder.settings[site]], words, at)
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
        key = _values(self._decoder.selections[state], words, at + 1)
        self._log.chosen_by(self._program.parser.states[state], key)
        self._log.line("trace", f"Bytes parsed: {_value(words, at)}")

    def _tell_parser_error(self, _: int, words: list[int], at: int) -> None:
        code = words[at]
        self._log("parser_error", error=self._decoder.errors.get(code, str(code)))

    def _tell_checksum(self, site: int, words: list[int], at: int) -> None:
        number, is_correct = divmod(site, 2)
        checksum = self._program.checksums[number]
        width = self._program.field(checksum.target).width
        actual = _value(words, at + 1, word_count(width))
        self._log.checksum(checksum.name, _value(words, at), actual, is_correct=bool(is_correct))

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
        if isinstance(words, PassWords):
            marks = _EntryMarks(*(entry_mark(at, site, each) for each in range(2)))
            self._found = site, cast("RuntimeEntry", marks)
        else:
            self._found = site, self._state.tables[site].entry_of_row(words[at])

    def _tell_miss(self, site: int, words: list[int], at: int) -> None:
        self._look_up(site, words, at)
        self._found = site, None

    def _look_up(self, site: int, words: list[int], at: int) -> None:
        self._log.looking_up(site, _values(self._decoder.keys[site], words, at))

    def _tell_chosen(self, _: int, words: list[int], at: int) -> None:
        member, group = _value(words, at), _value(words, at + 1)
        self._log.line("debug", f"Choosing member {member} from group {group}")

    def _tell_found(self, action: ir.ActionEntry | None) -> None:
        assert self._found is not None
        (table, entry), self._found = self._found, None
        number = None if action is None else action.action
        self._node = self._state.tables[table].next_node(number, hit=entry is not None)
        self._log.found(table, entry, action)

    def _tell_action(self, site: int, words: list[int], at: int) -> None:
        if self._found is not None:
            arguments = _values(self._decoder.parameters[site], words, at)
            self._tell_found(ir.ActionEntry(site, tuple(arguments)))
        elif self._node is not None and self._node.kind is ir.NodeKind.ACTION_CALL:
            self._node = self._program.action_calls[self._node.index].next
        self._log.line("trace", self._log.action(site).title)

    def _tell_log(self, site: int, words: list[int], at: int) -> None:
        self._log("log", text=self._decoder.message(site, words, at, _value))

    # ── State ──

    def _tell_register_read(self, site: int, words: list[int], at: int) -> None:
        if isinstance(self._running, ir.RegisterRead):
            array = self._program.registers[site]
            value = _value(words, at + 1, word_count(array.width))
            self._log.register_read(array, _value(words, at), value)

    def _tell_register_write(self, site: int, words: list[int], at: int) -> None:
        if isinstance(self._running, ir.RegisterWrite):
            array = self._program.registers[site]
            count = word_count(array.width)
            value = _value(words, at + 1 + count, count)
            self._log.register_write(array, _value(words, at), value)

    def _tell_register_out(self, site: int, words: list[int], at: int) -> None:
        array, index = self._program.registers[site], _value(words, at)
        if isinstance(self._running, ir.RegisterRead):
            self._log.register_read(array, index, None)
        elif isinstance(self._running, ir.RegisterWrite):
            self._log.register_write(array, index, None)

    def _tell_counter(self, site: int, words: list[int], at: int) -> None:
        self._log.counted(self._program.counters[site], _value(words, at), is_there=True)

    def _tell_counter_out(self, site: int, words: list[int], at: int) -> None:
        self._log.counted(self._program.counters[site], _value(words, at), is_there=False)

    def _tell_meter(self, site: int, words: list[int], at: int) -> None:
        array, index = self._program.meters[site], _value(words, at)
        self._log.line("debug", f"Executing meter {array.name}[{index}]")
        self._log.metered(array, index, _value(words, at + 1))

    def _tell_meter_out(self, site: int, words: list[int], at: int) -> None:
        self._log.metered(self._program.meters[site], _value(words, at), None)

    def _tell_hash(self, _: int, words: list[int], at: int) -> None:
        size = words[at + 1] & ((1 << 64) - 1)  # there is one more line if it is 0
        self._log.hashed(_value(words, at), size, _value(words, at + 2))

    def _tell_random(self, _: int, words: list[int], at: int) -> None:
        low, high, value = (_value(words, at + each) for each in range(3))
        self._log.line("trace", f"random(lo={low}, hi={high}) = {value}")

    def _tell_random_empty(self, _: int, __: list[int], ___: int) -> None:
        self._log.plain("warn", "random result is not specified when lo > hi")

    # ── Copies ──

    def _tell_clone(self, _: int, __: list[int], ___: int) -> None:
        where = "egress" if self._is_egress else "ingress"
        self._log.line("debug", f"Cloning packet at {where}")

    _tell_unknown_session = _tell_clone

    def _tell_cloned(self, _: int, __: list[int], ___: int) -> None:
        if self._is_egress:
            self._clone = self._another()
            self._was_cloned = True
        self._about(OWN)

    def _tell_mirror_group(self, _: int, words: list[int], at: int) -> None:
        self._log.line("debug", f"Cloning packet to MGID {_value(words, at)}")
        self._about(self._clone)

    def _tell_mirror_port(self, _: int, words: list[int], at: int) -> None:
        self._about(OWN)
        self._log.line("debug", f"Cloning packet to egress port {_value(words, at)}")
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
        self._next = OWN

    def _tell_multicast(self, _: int, words: list[int], at: int) -> None:
        group, copies = _value(words, at), _value(words, at + 1)
        self._log.replicating(group, copies, is_known=True)

    def _tell_unknown_group(self, _: int, words: list[int], at: int) -> None:
        group = words[at]
        self._log.replicating(group, 0, is_known=group in self._state.replication.groups)

    def _tell_replica(self, _: int, words: list[int], at: int) -> None:
        self._log("replica", port=_value(words, at))
        self._next = self._another()

    def _tell_enqueue(self, _: int, __: list[int], ___: int) -> None:
        self._queued.append(self._next)

    def _tell_resubmit(self, _: int, __: list[int], ___: int) -> None:
        self._log("resubmit")
        self._recurring.append(self._another())

    def _tell_recirculate(self, _: int, __: list[int], ___: int) -> None:
        self._log("recirculate")
        self._recurring.append(self._another())

    def _tell_drop(self, site: int, _: list[int], __: int) -> None:
        reason, egress = divmod(site, 2)
        if reason == NO_QUEUE:
            self._log.plain("error", "Priority out of range, dropping packet")
        elif reason == LOOPED:  # it does not come again
            self._recurring.pop()
            self._made_here -= 1
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
        self._log("sent", port=_value(words, at), length=_value(words, at + 1))


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


def _value(words: list[int], at: int, count: int = 1, *, signed: bool = False) -> int:
    """A number that is shown and does not matter else."""
    if isinstance(words, PassWords):
        return cast("int", Hole(words, at, count, signed=signed))
    return joined(words, at, count, signed=signed)


def _values(kinds: Sequence[ShownValue], words: list[int], at: int) -> list[int]:
    """Numbers that stand one after the other from ``at`` on, likewise."""
    starts = accumulate((each.words for each in kinds), initial=at)
    return [
        _value(words, start, each.words, signed=each.signed)
        for start, each in zip(starts, kinds, strict=False)
    ]
