"""The lines that simple_switch logs about packets, for scripts that read them.

An interpreter that is made with a ``PacketLog`` as its ``Trace`` tells it each step; for machine
code ``innet.switch.record_log`` does. Texts that only depend on the program are made once. As in
simple_switch's log, a line begins with the number of the packet and that of its copy, such as
``[3.0] [cxt 0]``.

Source: the messages of BMv2's log macros, as its logs have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Concatenate

from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.interpreter.packet import Packet
from innet.switch.interpreter.tracing import Rest, Result, Trace
from innet.switch.ir.text import match_text
from innet.switch.state.tables import ProfileRef, RuntimeEntry, Target
from innet.switch.trace import MARKED_TO_DROP

LEVELS = ("trace", "debug", "info", "warn", "error")
"""Of lines."""

Write = Callable[[str, str], None]
"""Takes a line: its level, one of ``LEVELS``, and its text."""

_NAME_WIDTH = 20  # of a key's name, at least
_KIND_WIDTH = 10  # of the way in which it is matched


@dataclass(frozen=True, slots=True)
class Body:
    """The texts of an action: the line of its start, and one for each of its primitives."""

    name: str
    title: str
    primitives: tuple[str, ...]


class PacketLog(Trace):
    """A ``Trace`` that writes lines and keeps no events.

    Args:
        document: BMv2 JSON of the program, for the places in its source.
        program: the same, loaded.
        state: of the switch, for the members of action profiles.
        write: takes the lines.
    """

    def __init__(
        self, document: Mapping[str, Any], program: ir.Program, state: SwitchState, write: Write
    ) -> None:
        super().__init__(program)
        self.plain = write
        """Writes a line about no packet."""
        self._profile_of = state.profile_of
        self.head = ""
        """What lines about the present packet begin with."""
        self._parser = _named(document["parsers"], "parser")
        self._actions = [_body(each["name"], each, each) for each in document["actions"]]
        self._deparser = [
            _body(each["op"], {}, {"primitives": [each]})
            for each in _named(document["deparsers"], "deparser").get("primitives", [])
        ]
        self._conditions = {
            each["name"]: _condition(each)
            for pipeline in document["pipelines"]
            for each in pipeline.get("conditionals", [])
        }
        self._stacks = _numbers(document, "header_stacks", "header_union_stacks")
        self._headers = _numbers(document, "headers")
        self._names = [_padded([key.name for key in table.keys]) for table in program.tables]

    def about(self, number: int | str, copy: int | str) -> None:
        """The lines that follow are about a copy of a packet."""
        self.head = f"[{number}.{copy}] [cxt 0] "

    def line(self, level: str, text: str) -> None:
        """Write a line about the present packet."""
        self.plain(level, self.head + text)

    # ── As a Trace ──

    def __call__(self, kind: str, /, **values: Any) -> None:
        match kind:
            case "ingress":
                self.line("debug", f"Processing packet received on port {values['port']}")
            case "parser_error":
                self.line("error", f"Exception while parsing: {values['error']}")
            case "if":
                result = "true" if values["result"] else "false"
                self.line("trace", f"{self._conditions[values['name']]} is {result}")
            case "log":
                self.plain("info", values["text"])
            case "replica":
                self.line("debug", f"Replicating packet on port {values['port']}")
            case "resubmit":
                self.line("debug", "Resubmitting packet")
            case "recirculate":
                self.line("debug", "Recirculating packet")
            case "drop" if values["reason"] == MARKED_TO_DROP:
                self.line("debug", f"Dropping packet at the end of {values['pipeline']}")
            case "sent":
                size = f"size {values['length']} out of port {values['port']}"
                self.line("debug", f"Transmitting packet of {size}")

    def changes(
        self,
        run: Callable[Concatenate[Packet, Rest], Result],
        primitive: object = None,  # noqa: ARG002 - of Trace
    ) -> Callable[Concatenate[Packet, Rest], Result]:
        """``run`` itself: no line tells a change."""
        return run

    def tell_changes(self, packet: Packet, fields: list[int], valid: list[bool]) -> None:
        """Nothing, likewise."""

    def extracted(self, packet: Packet, header: int, first: int, data: bytes) -> None:
        """Nothing: ``extracting`` has logged it."""

    # ── The parser ──

    def entering(self, state: ir.ParserState) -> None:
        self.line("debug", f"Parser 'parser' entering state '{state.name}'")

    def extracting(self, header: int, *, variable: bool) -> None:
        """A header is extracted next."""
        kind = "variable-sized header" if variable else "header"
        self.line("debug", f"Extracting {kind} '{self.program.headers[header].name}'")

    def extracting_next(self, stack: int, header: int, *, of_unions: bool) -> None:
        """The next element of a stack is."""
        stacks = self.program.union_stacks if of_unions else self.program.stacks
        kind = "header union stack" if of_unions else "header stack"
        number = self._headers[self.program.headers[header].name]
        self.line(
            "debug",
            f"Extracting to {kind} {self._stacks[stacks[stack].name]}, next header is {number}",
        )

    def parser_set(self, state: str, position: int) -> str:
        """The line of a state's assignment, with {} for the new value."""
        operation = _named(self._parser["parse_states"], state)["parser_ops"][position]
        return _setting(operation["parameters"])

    def parser_method(self, state: str, position: int) -> Body:
        """A primitive that a state runs."""
        operation = _named(self._parser["parse_states"], state)["parser_ops"][position]
        primitive = operation["parameters"][0]
        return _body(primitive["op"], {}, {"primitives": [primitive]})

    def checksum_skipped(self, name: str, why: str) -> None:
        self.line("trace", f"Skipping checksum '{name}' {why}")

    def checksum(self, name: str, computed: int, actual: int, *, is_correct: bool) -> None:
        """A checksum is verified."""
        both = f"computed {computed:#x} - actual {actual:#x}"
        self.line("debug", f"Checksum '{name}': {both}")
        passed = "passed" if is_correct else "failed"
        self.line("debug", f"Verified checksum '{name}': {passed}")
        if not is_correct:
            self.line("error", f"Checksum '{name}' is not correct")

    def chosen_by(self, state: ir.ParserState, values: Sequence[int]) -> None:
        """The key that a state chooses by."""
        if not state.key:
            why = "has no switch, going to default next state"
            self.line("debug", f"Parser state '{state.name}' {why}")
            return
        parts = zip(values, state.key, strict=True)
        key = "".join(_hexadecimal(value, part.width) for value, part in parts)
        self.line("debug", f"Parser state '{state.name}': key is {key}")

    # ── Primitives ──

    def register_read(self, array: ir.RegisterArray, index: int, value: int | None) -> None:
        """None: the index is out of bounds."""
        if value is None:
            self._out_of_bounds("read register", array, index, "  Dest field was not updated.")
        else:
            read = f"at index {index} read value {value}"
            self.line("trace", f"Read register '{array.name}' {read}")

    def register_write(self, array: ir.RegisterArray, index: int, value: int | None) -> None:
        """Likewise."""
        if value is None:
            nothing = "  No register array elements were updated."
            self._out_of_bounds("write register", array, index, nothing)
        else:
            kept = value & ((1 << array.width) - 1)
            wrote = f"at index {index} with value {kept}"
            self.line("trace", f"Wrote register '{array.name}' {wrote}")

    def counted(self, array: ir.CounterArray, index: int, *, is_there: bool) -> None:
        if not is_there:
            self._out_of_bounds("update counter", array, index, "  No counters were updated.")
        else:
            self.line("trace", f"Updated counter '{array.name}' at index {index}")

    def metered(self, array: ir.MeterArray, index: int, color: int | None) -> None:
        """None: the index is out of bounds."""
        if color is None:
            nothing = "  No meters were updated, and neither was dest field."
            self._out_of_bounds("update meter", array, index, nothing)
        else:
            result = f"assigning dest field the color result {color}"
            self.line("trace", f"Updated meter '{array.name}' at index {index}, {result}")

    def _out_of_bounds(
        self,
        what: str,
        array: ir.RegisterArray | ir.CounterArray | ir.MeterArray,
        index: int,
        consequence: str,
    ) -> None:
        place = f"with size {array.size} at out-of-bounds index {index}."
        self.line("error", f"Attempted to {what} '{array.name}' {place}{consequence}")

    def hashed(self, base: int, size: int, value: int) -> None:
        if not size:
            self.plain("warn", "hash max given as 0, but treating it as 1")
        self.line("trace", f"hash(base={base}, max={size}) = {value}")

    # ── Tables and actions ──

    def looking_up(self, table: int, values: Sequence[int]) -> None:
        """A table is applied: this key is looked up in it."""
        described = self.program.tables[table]
        self.line("trace", f"Applying table '{described.name}'")
        text = "Looking up key:\n"
        for key, name, value in zip(described.keys, self._names[table], values, strict=True):
            masked = value if key.mask is None else value & key.mask
            text += f"* {name}{_hexadecimal(masked, key.width)}\n"
        self.line("debug", text)

    def found(self, table: int, entry: RuntimeEntry | None, action: ir.ActionEntry | None) -> None:
        """What a look-up found, and the action that follows."""
        name = self.program.tables[table].name
        if entry is None:
            self.line("debug", f"Table '{name}': miss")
        else:
            self.line("debug", f"Table '{name}': hit with handle {entry.handle}")
            self.line("debug", self.dump(table, entry))
        self.line("debug", f"Action entry is {self.action_entry(action)}")

    def dump(self, table: int, entry: RuntimeEntry) -> str:
        """An entry, as simple_switch dumps it."""
        described = self.program.tables[table]
        text = f"Dumping entry {entry.handle}\nMatch key:\n"
        parts = zip(described.keys, self._names[table], entry.matches, strict=True)
        for key, name, match in parts:
            kind = key.match.name.ljust(_KIND_WIDTH)
            written = partial(_hexadecimal, width=key.width)
            stated = match_text(match, number=written, and_mask=" &&& ", to=" -> ")
            text += f"* {name}{kind}{stated}\n"
        if described.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE):
            text += f"Priority: {entry.priority}\n"
        return text + self._target(described, entry.action)

    def _target(self, table: ir.Table, target: Target) -> str:
        if not isinstance(target, ProfileRef):
            return f"Action entry: {self.action_entry(target)}\n"
        profile = self._profile_of(table)
        assert profile is not None, "only indirect tables hold references"
        members = profile.members
        if not target.group:
            entry = self.action_entry(members[target.handle])
            return f"Index: member({target.handle})\nAction entry: {entry}\n"
        text = f"Index: group({target.handle})\nGroup members:\n"
        for member in profile.groups[target.handle]:
            text += f"  mbr {member}: {self.action_entry(members[member])}\n"
        return text

    def action_entry(self, action: ir.ActionEntry | None) -> str:
        """An action with its arguments; "NULL" for none."""
        if action is None:
            return "NULL"
        arguments = "".join(f"{value:x}," for value in action.arguments)
        return f"{self.program.actions[action.action].name} - {arguments}"

    def action(self, number: int) -> Body:
        """An action of the program."""
        return self._actions[number]

    def deparser(self, position: int) -> Body:
        """A primitive of the deparser."""
        return self._deparser[position]

    # ── Copies ──

    def replicating(self, group: int, copies: int, *, is_known: bool) -> None:
        """A multicast group's copies are made next."""
        if is_known:
            self.plain("debug", f"number of packets replicated : {copies} for MGID: {group}")
        else:
            why = "which is not known to the PRE"
            self.plain("warn", f"Replication requested for mgid {group}, {why}")

    def learning(self, learn_list: int, *, is_known: bool) -> None:
        """A digest is sent."""
        if is_known:
            self.plain("trace", f"Learning sample for list id {learn_list}")
        else:
            self.line("error", f"Trying to learn for invalid list id {learn_list}")


# ----------------------------------------------------------------------------
# Texts.


def _named(sections: Iterable[Mapping[str, Any]], name: str) -> Mapping[str, Any]:
    return next(each for each in sections if each["name"] == name)


def _numbers(document: Mapping[str, Any], *sections: str) -> dict[str, int]:
    """The ids of what these sections hold, by name."""
    return {each["name"]: each["id"] for name in sections for each in document.get(name, [])}


def _place(described: Mapping[str, Any]) -> str:
    """Where it is in the source, such as "forward.p4(39) "; "" if the JSON does not say."""
    found = described.get("source_info")
    return "" if found is None else f"{found.get('filename', '')}({found.get('line', 0)}) "


def _fragment(described: Mapping[str, Any], otherwise: str) -> str:
    found = described.get("source_info")
    return otherwise if found is None else str(found.get("source_fragment", ""))


def _body(name: str, source: Mapping[str, Any], action: Mapping[str, Any]) -> Body:
    primitives = tuple(
        f"{_place(each)}Primitive {_fragment(each, '(no source info)')}"
        for each in action["primitives"]
    )
    return Body(name, f"{_place(source)}Action {name}", primitives)


def _condition(described: Mapping[str, Any]) -> str:
    name = described["name"]
    return f'{_place(described)}Condition "{_fragment(described, name)}" ({name})'


def _setting(parameters: Sequence[Mapping[str, Any]]) -> str:
    """The text of an assignment in the parser; {} stands for the new value."""
    target, source = (each["value"] for each in parameters)
    name = ".".join(target)
    head = f"Parser set: setting field '{name}'"
    match parameters[1]["type"]:
        case "field":
            return f"{head} from field '{'.'.join(source)}' ({{}})"
        case "lookahead":
            offset, width = source
            return f"{head} from lookahead ({offset % 8}, {width}), new value is {{}}"
        case "expression":
            return f"{head} from expression, new value is {{}}"
    return f"{head} to {{}}"


def _padded(names: Sequence[str]) -> list[str]:
    """The names of a key, as wide as the widest."""
    width = max([_NAME_WIDTH, *map(len, names)])
    return [f"{name.ljust(width)}: " if name else "" for name in names]


def _hexadecimal(value: int, width: int) -> str:
    """The bytes of a field with this number of bits."""
    size = (width + 7) // 8
    return f"{value & ((1 << 8 * size) - 1):0{2 * size}x}"
