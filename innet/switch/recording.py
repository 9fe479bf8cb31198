"""What happened to packets that machine code ran: its records, and the events that they stand for.

``Switch.record`` runs packets by a build of the program that writes a record for each event
(``jit.records``), at machine code's speed. A ``Recording`` keeps them as they are, and makes
``trace.Event`` of those that are asked for; they are the ones that the interpreter tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.switch import ir
from innet.switch.engine import InstanceType, SwitchState
from innet.switch.ir.text import Text
from innet.switch.jit.records import (
    BUFFER_WORDS,
    DEPTH_BEHIND,
    DROP_REASONS,
    EGRESS_STEPS,
    INGRESS_STEPS,
    NO_TIME,
    NUMBER,
    TIME,
    Kind,
    field_words,
    flag_words,
    is_detail,
    log_messages,
    parameter_words,
    parser_operations,
    split,
)
from innet.switch.state.entries import word_count
from innet.switch.trace import COLORS, Event, notation

_EVERY = (1 << 64) - 1
_INSTANCE_TYPES = {each.value: each.name.lower().replace("_", " ") for each in InstanceType}

Handles = list[list[int]]
"""By table, by row of its entries: the handle of the entry."""


class Way(NamedTuple):
    """What a pass of a packet has in common with others: each step, without its values.

    Attributes:
        steps: heads of records (``jit.records``), each followed by the handle of the entry where it
            is a table's hit.
        first: the number of the first pass that went this way.
    """

    steps: tuple[int, ...]
    first: int


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of packets: each through parser and ingress, or, of a copy, through egress.

    Attributes:
        packet: int64: the packet that was received, as its number in the call.
        time: int64: when, in nanoseconds; -1 without times.
        port: int64: where it came in, or where it goes.
        is_egress: bool.
        way: int64: the number of its way.
    """

    packet: NDArray[np.int64]
    time: NDArray[np.int64]
    port: NDArray[np.int64]
    is_egress: NDArray[np.bool_]
    way: NDArray[np.int64]


class Recording:
    """The records of packets that were run, in the order in which things happened.

    Args:
        decoder: of the program.
        chunks: words of records, each with the handles of entries at the time.
        first: the number of the first packet of the call.
        lost: events for which there was no room.
    """

    def __init__(
        self, decoder: Decoder, chunks: Sequence[Chunk], first: int = 0, lost: int = 0
    ) -> None:
        self._decoder, self._chunks, self._first = decoder, list(chunks), first
        self.lost = lost

    @property
    def words(self) -> int:
        """How many words the records take."""
        return sum(len(each.words) for each in self._chunks)

    def events(self) -> list[Event]:
        """All events, as ``Switch.trace`` tells them."""
        found: list[Event] = []
        reader = self._decoder.reader(self._first)
        for chunk in self._chunks:
            found += reader.events(chunk.words.tolist(), chunk.handles)
        if self.lost:
            found.append(Event("cut", {"left_out": self.lost}))
        return found

    @cached_property
    def _divided(self) -> tuple[Passes, list[Way], list[tuple[int, int, int]]]:
        ways: dict[tuple[int, ...], int] = {}
        firsts: list[int] = []
        rows: list[tuple[int, int, int, bool, int]] = []
        places: list[tuple[int, int, int]] = []
        for number, chunk in enumerate(self._chunks):
            for each in self._decoder.passes(chunk.words.tolist(), chunk.handles):
                way = ways.setdefault(each.steps, len(ways))
                if way == len(firsts):
                    firsts.append(len(rows))
                rows.append((each.packet - self._first, each.time, each.port, each.is_egress, way))
                places.append((number, each.start, each.end))
        columns = np.array(rows, np.int64).reshape(len(rows), 5).T
        packet, time, port, is_egress, way_of = (np.ascontiguousarray(each) for each in columns)
        passes = Passes(packet, time, port, is_egress.astype(bool), way_of)
        known = [Way(steps, first) for steps, first in zip(ways, firsts, strict=True)]
        return passes, known, places

    @property
    def passes(self) -> Passes:
        """The passes of all packets, in their order."""
        return self._divided[0]

    @property
    def ways(self) -> list[Way]:
        """The ways that passes went, each once; ``Passes.way`` has their numbers."""
        return self._divided[1]

    def events_of(self, number: int) -> list[Event]:
        """The events of one pass."""
        chunk, start, end = self._divided[2][number]
        words = self._chunks[chunk].words[start:end].tolist()
        passes = self.passes
        time = int(passes.time[number])
        reader = self._decoder.reader(self._first)
        reader.packet = int(passes.packet[number])
        reader.time = None if time == NO_TIME else time
        return reader.events(words, self._chunks[chunk].handles)


class Chunk(NamedTuple):
    """Records, and by table the handles of the entries that they name by row."""

    words: NDArray[np.int64]
    handles: Handles


class MemoryRecorder:
    """A ``RecordSink`` that keeps everything.

    Args:
        state: of the switch, for the handles of entries.
    """

    def __init__(self, state: SwitchState) -> None:
        self.buffer = np.zeros(BUFFER_WORDS, np.int64)
        self._state = state
        self._chunks: list[Chunk] = []
        self._lost = 0
        self._versions: list[int] = []
        self._handles: Handles = []

    def take(self, count: int) -> None:
        """See ``RecordSink.take``."""
        self._lost += int(self.buffer[-1])
        self.buffer[-1] = 0
        if count:
            self._chunks.append(Chunk(self.buffer[:count].copy(), self._present_handles()))

    def _present_handles(self) -> Handles:
        tables = self._state.tables
        versions = [each.version for each in tables]
        if versions != self._versions:
            self._versions = versions
            self._handles = [each.handles_by_row() for each in tables]
        return self._handles

    def recording(self, decoder: Decoder, first: int = 0) -> Recording:
        """What was recorded since the last call."""
        taken, lost = self._chunks, self._lost
        self._chunks, self._lost = [], 0
        return Recording(decoder, taken, first, lost)


# ── From records to events ───────────────────────────────────────────────────────────────────────


class _Pass(NamedTuple):
    """A pass in its chunk: what ``Passes`` says of it, its steps, and where its records are."""

    packet: int
    time: int
    port: int
    is_egress: bool
    steps: tuple[int, ...]
    start: int
    end: int


class ShownValue(NamedTuple):
    """A value in records: its name, its words, whether it has a sign, and how it is shown."""

    name: str
    words: int
    signed: bool
    show: Callable[[int], int]

    def read(self, words: list[int], at: int) -> int:
        """The value whose words begin at ``at``."""
        return self.show(joined(words, at, self.words, signed=self.signed))


def joined(words: list[int], at: int, count: int, *, signed: bool = False) -> int:
    """The number in ``count`` words, the most significant one first."""
    value = words[at] if signed else words[at] & _EVERY
    for place in range(at + 1, at + count):
        value = value << 64 | words[place] & _EVERY
    return value


class Decoder:
    """Reads the records of one program.

    Args:
        program: whose records.
    """

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        text = Text(program)
        self.fields = [
            _shown(f"{header.name}.{field.name}", field, field_words(field))
            for header in program.headers
            for field in program.header_types[header.type].fields
        ]
        sizes = (len(program.type_of(i).fields) for i in range(len(program.headers)))
        self.first_field = list(accumulate(sizes, initial=0))
        self.keys = [
            [
                ShownValue(k.name, word_count(k.width), False, notation(k.name, k.width))
                for k in t.keys
            ]
            for t in program.tables
        ]
        self.selections = [
            [
                ShownValue("", word_count(p.width), False, notation(text.of(p.source), p.width))
                for p in state.key
            ]
            for state in program.parser.states
        ]
        self.parameters = [
            [
                ShownValue(p.name, parameter_words(p), p.negative, notation(p.name, p.width))
                for p in action.parameters
            ]
            for action in program.actions
        ]
        self.conditions = [text.of(each.condition) for each in program.conditionals]
        self.messages = log_messages(program)
        self.errors = {code: name for name, code in program.errors.items()}
        self.digests = [
            [(word_count(program.field(e).width), program.field(e).width) for e in each.elements]
            for each in program.learn_lists
        ]
        self.settings = [self._setting(*each) for each in parser_operations(program)]
        self.flags = flag_words(len(program.deparser.order))
        self._sizes: dict[int, int] = {}

    def _setting(self, state: int, position: int) -> ShownValue:
        """The field that an operation of the parser sets; for others the first of all."""
        target = getattr(self.program.parser.states[state].operations[position], "target", None)
        if not isinstance(target, ir.FieldRef):
            return self.fields[0]
        return self.fields[self.first_field[target.header] + target.field]

    def reader(self, first: int) -> Reader:
        """Makes events; ``first`` is the number of the first packet."""
        return Reader(self, first)

    def passes(self, words: list[int], handles: Handles) -> Iterator[_Pass]:
        """The passes in a chunk."""
        at, start = 0, 0
        head: list[int] = []
        steps: list[int] = []
        while at < len(words):
            kind, site = split(words[at])
            if kind in (Kind.INGRESS, Kind.EGRESS):
                if steps:
                    yield self._pass(words, head, steps, start, at)
                start, steps = at, []
                head = words[at : at + EGRESS_STEPS + 2]
            if not is_detail(kind):
                steps.append(words[at])
            if kind == Kind.HIT:
                steps.append(handles[site][words[at + 1]])
            at = self.end(words, at, kind, site)
        if steps:
            yield self._pass(words, head, steps, start, at)

    def message(
        self, site: int, words: list[int], at: int, read: Callable[..., int] = joined
    ) -> str:
        """The text of a message, whose values begin at ``at``; ``read`` reads them."""
        message = self.messages[site]
        text = message.text
        for _ in message.values:
            count, signed = divmod(words[at], 2)
            value = read(words, at + 1, count, signed=bool(signed))
            text = text.replace("{}", str(value), 1)
            at += 1 + count
        return text

    def deparsed(self, words: list[int], at: int) -> tuple[str, ...]:
        """The names of the headers that a record of the deparser has."""
        order = self.program.deparser.order
        return tuple(
            self.program.headers[order[i]].name
            for place, each in enumerate(self.flags, at)
            for i in each
            if words[place] >> (i - each.start) & 1
        )

    @staticmethod
    def _pass(words: list[int], head: list[int], steps: list[int], start: int, end: int) -> _Pass:
        is_egress = split(words[start])[0] == Kind.EGRESS
        port = head[1 + (EGRESS_STEPS if is_egress else INGRESS_STEPS)]
        return _Pass(head[NUMBER], head[TIME], port, is_egress, tuple(steps), start, end)

    def size_of(self, word: int) -> int:
        """The words of a record with this head; negative where as many, and then bytes, are part
        of it. What describes its values has more.
        """
        size = self._sizes.get(word)
        if size is None:
            kind, site = split(word)
            size = self._sizes[word] = self._size(Kind(kind), site)
        return size

    def end(self, words: list[int], at: int, kind: int, site: int) -> int:
        """The first word behind a record."""
        size = self.size_of(words[at])
        if size < 0:  # bytes follow
            at -= size
            return at + 1 + (words[at] + 7 >> 3)
        if kind in (Kind.LOG, Kind.ADVANCE):
            at += 1
            for _ in range(len(self.messages[site].values) if kind == Kind.LOG else 1):
                at += 1 + (words[at] >> 1)
            return at
        return at + size

    def _size(self, kind: Kind, site: int) -> int:  # noqa: PLR0911 - one return per kind
        """``size_of`` a kind and a site."""
        match kind:
            case Kind.INGRESS:
                return -(INGRESS_STEPS + 3)
            case Kind.DEPARSE:
                return -(2 + len(self.flags))
            case Kind.MARKED_BYTES:
                return -1
            case Kind.HIT:
                return 2 + sum(each.words for each in self.keys[site])
            case Kind.MISS:
                return 1 + sum(each.words for each in self.keys[site])
            case Kind.SELECT:
                state = site // (len(self.program.parser.states) + 1)
                return 2 + sum(each.words for each in self.selections[state])
            case Kind.ACTION:
                return 1 + sum(each.words for each in self.parameters[site])
            case Kind.FIELD:
                return 1 + 2 * self.fields[site].words
            case Kind.REGISTER_READ | Kind.REGISTER_WRITE:
                cell = word_count(self.program.registers[site].width)
                return 2 + cell * (1 + (kind == Kind.REGISTER_WRITE))
            case Kind.DIGEST:
                return 1 + sum(count for count, _ in self.digests[site])
            case Kind.PARSER_SET:
                return 1 + self.settings[site].words
            case Kind.CHECKSUM:
                target = self.program.checksums[site // 2].target
                return 2 + word_count(self.program.field(target).width)
        return 1 + _WORDS.get(kind, 0)


def _shown(name: str, field: ir.Field, words: int) -> ShownValue:
    return ShownValue(name, words, field.signed, notation(name, field.width))


#: Words after the head, of records in which it is always the same number.
_WORDS = {
    **dict.fromkeys((Kind.PARSE_CLONE, Kind.STATE, Kind.PARSER_ERROR), 1),
    Kind.EGRESS: EGRESS_STEPS + 1,
    Kind.EXTRACT: 2,
    **dict.fromkeys((Kind.COUNTER, Kind.DIRECT_COUNTER), 3),
    **dict.fromkeys((Kind.METER, Kind.DIRECT_METER), 2),
    **dict.fromkeys((Kind.REGISTER_OUT, Kind.COUNTER_OUT, Kind.METER_OUT), 1),
    Kind.REQUEST_CLONE: 2,
    **dict.fromkeys((Kind.REQUEST_RESUBMIT, Kind.REQUEST_RECIRCULATE, Kind.REQUEST_DIGEST), 1),
    Kind.REQUEST_TRUNCATE: 1,
    **dict.fromkeys((Kind.CLONE, Kind.UNKNOWN_SESSION, Kind.UNKNOWN_GROUP), 1),
    **dict.fromkeys((Kind.MULTICAST, Kind.REPLICA, Kind.SENT), 2),
    Kind.ENQUEUE: 4,
    Kind.QUEUE_FULL: 3,
    **dict.fromkeys((Kind.EXTRACTING_NEXT, Kind.BAD_LENGTH, Kind.UNKNOWN_DIGEST), 1),
    Kind.CHOSEN: 2,
    **dict.fromkeys((Kind.HASH, Kind.RANDOM), 3),
    **dict.fromkeys((Kind.ASKED, Kind.MIRROR_GROUP, Kind.MIRROR_PORT), 1),
}


class Reader:
    """Makes events of records, one after the other.

    Attributes:
        packet, time: of the events that come next, as in ``Event``.
    """

    def __init__(self, decoder: Decoder, first: int) -> None:
        self._decoder, self._first = decoder, first
        self._program = decoder.program
        self.packet: int | None = None
        self.time: int | None = None
        self._found: list[Event] = []
        self._received = self._deparsed = b""
        self._digest: Event | None = None
        self._handles: Handles = []

    def events(self, words: list[int], handles: Handles) -> list[Event]:
        """The events of a chunk."""
        self._handles = handles
        self._found = []
        end, at = self._decoder.end, 0
        raw = np.array(words, np.int64).tobytes()
        while at < len(words):
            kind, site = split(words[at])
            after = end(words, at, kind, site)
            if not is_detail(kind):
                self._read(Kind(kind), site, words, at + 1, raw[8 * at : 8 * after])
            at = after
        return self._found

    def _tell(self, name: str, /, **values: Any) -> None:
        self._found.append(Event(name, values, self.packet, self.time))

    def _read(  # noqa: PLR0912, PLR0915 - one branch per kind
        self, kind: Kind, site: int, words: list[int], at: int, raw: bytes
    ) -> None:
        """The events of a record; its words after the head begin at ``at``, ``raw`` are all."""
        tell = self._tell
        decoder, program = self._decoder, self._program
        match kind:  # what is most frequent comes first
            case Kind.FIELD:
                field = decoder.fields[site]
                old, new = field.read(words, at), field.read(words, at + field.words)
                tell("field", field=field.name, old=old, new=new)
            case Kind.REGISTER_READ | Kind.REGISTER_WRITE:
                register = program.registers[site]
                count = word_count(register.width)
                index, value = words[at] & _EVERY, joined(words, at + 1, count)
                if kind == Kind.REGISTER_READ:
                    tell("register_read", register=register.name, index=index, value=value)
                else:
                    new = joined(words, at + 1 + count, count)
                    tell("register_write", register=register.name, index=index, old=value, new=new)
            case Kind.INGRESS:
                instance, port, length = words[at + INGRESS_STEPS - 1 : at + INGRESS_STEPS + 2]
                self._stamp(words[at + NUMBER - 1], words[at + TIME - 1])
                start = 8 * (INGRESS_STEPS + 4)
                self._received = raw[start : start + length]
                tell("ingress", instance_type=_INSTANCE_TYPES[instance], port=port, length=length)
            case Kind.PARSE_CLONE:
                tell("parse_clone", length=words[at])
            case Kind.EGRESS:
                number, time, waited, depth = words[at + NUMBER - 1 : at + DEPTH_BEHIND]
                instance, port = words[at + EGRESS_STEPS - 1 : at + EGRESS_STEPS + 1]
                self._stamp(number, time)
                if time != NO_TIME:
                    tell("dequeue", waited=waited, depth=depth)
                tell("egress", instance_type=_INSTANCE_TYPES[instance], port=port)
            case Kind.STATE:
                tell("state", state=program.parser.states[site].name, position=words[at])
            case Kind.EXTRACT:
                self._extracted(site, words[at], words[at + 1])
            case Kind.SELECT:
                states = program.parser.states
                state, following = divmod(site, len(states) + 1)
                name = states[following - 1].name if following else "accept"
                if decoder.selections[state]:
                    key = tuple(values_at(decoder.selections[state], words, at + 1))
                    tell("select", key=key, next=name)
                else:
                    tell("transition", next=name)
            case Kind.PARSER_ERROR:
                code = words[at]
                tell("parser_error", error=decoder.errors.get(code, str(code)))
            case Kind.CHECKSUMS:
                tell("checksums", correct=bool(site))
            case Kind.IF:
                number, result = divmod(site, 2)
                name, condition = program.conditionals[number].name, decoder.conditions[number]
                tell("if", name=name, condition=condition, result=bool(result))
            case Kind.HIT | Kind.MISS:
                hit = kind == Kind.HIT
                fields = _named(decoder.keys[site], words, at + hit)
                name = program.tables[site].name
                if hit:
                    entry = self._handles[site][words[at]]
                    tell("hit", table=name, key=fields, entry=entry)
                else:
                    tell("miss", table=name, key=fields)
            case Kind.ACTION:
                arguments = _named(decoder.parameters[site], words, at)
                tell("action", action=program.actions[site].name, arguments=arguments)
            case Kind.VALID:
                header, valid = divmod(site, 2)
                name = program.headers[header].name
                tell("set_valid" if valid else "set_invalid", header=name)
            case Kind.LOG:
                tell("log", text=decoder.message(site, words, at))
            case Kind.COUNTER | Kind.DIRECT_COUNTER:
                index, packets, size = (each & _EVERY for each in words[at : at + 3])
                name = self._counter_name(kind, site)
                tell("counter", counter=name, index=index, packets=packets, bytes=size)
            case Kind.METER | Kind.DIRECT_METER:
                index, color = words[at : at + 2]
                shown = COLORS.get(color, str(color))
                tell("meter", meter=program.meters[site].name, index=index, color=shown)
            case Kind.REGISTER_OUT:
                array = f"register {program.registers[site].name}"
                tell("out_of_bounds", array=array, index=words[at] & _EVERY)
            case Kind.COUNTER_OUT:
                array = f"counter {program.counters[site].name}"
                tell("out_of_bounds", array=array, index=words[at] & _EVERY)
            case Kind.METER_OUT:
                array = f"meter {program.meters[site].name}"
                tell("out_of_bounds", array=array, index=words[at] & _EVERY)
            case Kind.DIGEST:
                kept = []
                for count, width in decoder.digests[site]:
                    kept.append(joined(words, at, count) & ((1 << width) - 1))
                    at += count
                name = program.learn_lists[site].name
                told = {"learn_list": name, "values": tuple(kept)}
                self._digest = Event("digest", told, self.packet, self.time)
            case Kind.DECIDED:
                if self._digest is not None:  # the interpreter tells it after the clone
                    self._found.append(self._digest)
                    self._digest = None
            case Kind.DEPARSE:
                self._deparse(words, at, raw)
            case Kind.MARKED_BYTES:
                self._deparsed = raw[16 : 16 + words[at]]
            case Kind.DROP:
                reason, egress = divmod(site, 2)
                pipeline = "egress" if egress else "ingress"
                tell("drop", pipeline=pipeline, reason=DROP_REASONS[reason])
            case Kind.SENT:
                port, length = words[at : at + 2]
                tell("sent", port=port, length=length, data=self._deparsed[:length])
            case Kind.UNKNOWN_GROUP:
                tell("unknown_group", group=words[at], copies=0)
            case Kind.ENQUEUE if words[at + 3] == NO_TIME:
                pass  # nothing waits
            case _:
                names = _NAMES[kind]
                values_of = zip(names, words[at : at + len(names)], strict=True)
                tell(kind.name.lower(), **dict(values_of))

    def _stamp(self, number: int, time: int) -> None:
        self.packet, self.time = number - self._first, None if time == NO_TIME else time

    def _counter_name(self, kind: Kind, site: int) -> str:
        counters = self._program.counters
        if kind == Kind.COUNTER:
            return counters[site].name
        table = self._program.tables[site]
        return table.name if table.counter is None else counters[table.counter].name

    def _extracted(self, header: int, position: int, bits: int) -> None:
        program = self._program
        described = program.type_of(header)
        size = (described.width + bits) // 8
        data = self._received[position : position + size]
        number, left = int.from_bytes(data, "big"), 8 * size
        values = {}
        first = self._decoder.first_field[header]
        for place, field in enumerate(described.fields):
            width = bits if field.variable else field.width
            left -= width
            value = number >> left & ((1 << width) - 1)
            if field.signed and width and value >> (width - 1):
                value -= 1 << width
            values[field.name] = self._decoder.fields[first + place].show(value)
        self._tell("extract", header=program.headers[header].name, fields=values, data=data)

    def _deparse(self, words: list[int], at: int, raw: bytes) -> None:
        flags = self._decoder.flags
        names = self._decoder.deparsed(words, at)
        payload, size = words[at + len(flags) : at + len(flags) + 2]
        start = 8 * (3 + len(flags))
        self._deparsed = raw[start : start + size]
        self._tell("deparse", headers=names, payload=max(0, payload), data=self._deparsed)


def values_at(shown: Sequence[ShownValue], words: list[int], at: int) -> Iterator[int]:
    """The values that stand one after the other from ``at`` on."""
    for each in shown:
        yield each.read(words, at)
        at += each.words


def _named(shown: Sequence[ShownValue], words: list[int], at: int) -> dict[str, int]:
    return dict(zip((each.name for each in shown), values_at(shown, words, at), strict=True))


#: The values of records that have the name of their event, and nothing else.
_NAMES: dict[Kind, tuple[str, ...]] = {
    Kind.REQUEST_CLONE: ("session", "field_list"),
    Kind.REQUEST_RESUBMIT: ("field_list",),
    Kind.REQUEST_RECIRCULATE: ("field_list",),
    Kind.REQUEST_DIGEST: ("learn_list",),
    Kind.REQUEST_TRUNCATE: ("length",),
    Kind.REQUEST_DROP: (),
    Kind.REQUEST_EXIT: (),
    Kind.CLONE: ("session",),
    Kind.UNKNOWN_SESSION: ("session",),
    Kind.MULTICAST: ("group", "copies"),
    Kind.REPLICA: ("port", "rid"),
    Kind.ENQUEUE: ("port", "priority", "depth", "wait"),
    Kind.QUEUE_FULL: ("port", "priority", "depth"),
    Kind.RESUBMIT: (),
    Kind.RECIRCULATE: (),
}
