"""P4Info beside the program that is loaded: what each id stands for.

Source: P4Runtime 1.5, section "The P4Info Message".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from innet.p4runtime.messages import config
from innet.p4runtime.status import invalid, unimplemented
from innet.p4runtime.values import DataType, StringMap, ValueCodec
from innet.switch import ir
from innet.switch.control.values import Names

_TYPES = config.MatchField
EXACT, LPM, TERNARY = _TYPES.EXACT, _TYPES.LPM, _TYPES.TERNARY
RANGE, OPTIONAL = _TYPES.RANGE, _TYPES.OPTIONAL
_KINDS = {
    EXACT: (ir.MatchKind.EXACT, ir.MatchKind.VALID),
    LPM: (ir.MatchKind.LPM,),
    TERNARY: (ir.MatchKind.TERNARY,),
    RANGE: (ir.MatchKind.RANGE,),
    OPTIONAL: (ir.MatchKind.TERNARY,),
}


@dataclass(frozen=True, slots=True)
class MatchFieldInfo:
    """A match field."""

    id: int
    name: str
    kind: int
    codec: ValueCodec
    padding: int = 0
    """Bits that lpm prefixes of BMv2 count in addition, those that fill the field's first byte."""
    static: int = -1
    """The mask of the program's key, which all values pass."""
    every: int = field(init=False)
    """A mask of all bits."""
    anything: tuple[int, int] | None = field(init=False)
    """What an entry that leaves the field out has, as ``RuntimeEntry`` says; None if none may."""

    def __post_init__(self) -> None:
        every = (1 << self.codec.width) - 1
        object.__setattr__(self, "every", every)
        anything = {EXACT: None, RANGE: (0, every)}.get(self.kind, (0, 0))
        object.__setattr__(self, "anything", anything)


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """An action and its parameters: codec and name by id, and the ids in the action's order."""

    id: int
    name: str
    codecs: Mapping[int, tuple[ValueCodec, str]]
    order: tuple[int, ...]


@dataclass(slots=True)
class TableInfo:
    """A table.

    Attributes:
        position: in the program.
        scopes: of each action that entries may have, by id.
        by_action: actions by their position in the program.
        is_constant: whether its entries stay: also those of ``entries`` without const, as for BMv2.
        positions: these positions by the actions' ids.
        counter, meter: P4Info of its direct counter and meter.
        profile: its action profile's id; 0 for none.
    """

    id: int
    name: str
    position: int
    info: Any
    table: ir.Table
    fields: tuple[MatchFieldInfo, ...]
    scopes: Mapping[int, int]
    actions: Mapping[int, ActionInfo]
    by_action: Mapping[int, ActionInfo]
    has_priority: bool
    counter: Any = None
    meter: Any = None
    profile: int = 0
    places: dict[int, int] = field(default_factory=dict)
    positions: dict[int, int] = field(init=False)
    is_constant: bool = field(init=False)
    has_timeout: bool = field(init=False)

    def __post_init__(self) -> None:
        self.positions = {action.id: position for position, action in self.by_action.items()}
        self.is_constant = bool(self.info.is_const_table) or self.table.immutable
        self.has_timeout = bool(self.info.idle_timeout_behavior)


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A counter, meter or register array: its name in the program, its size, and its P4Info."""

    id: int
    name: str
    position: int
    size: int
    info: Any
    index: ValueCodec | None = None
    """For indices that are translated."""
    type: DataType | None = None


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """An action profile."""

    id: int
    name: str
    position: int
    info: Any
    actions: Mapping[int, ActionInfo]
    tables: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ValueSetInfo:
    """A parser value set."""

    id: int
    name: str
    size: int
    fields: tuple[MatchFieldInfo, ...]


@dataclass(frozen=True, slots=True)
class DigestInfo:
    """A digest; ``position`` in the program's learn lists."""

    id: int
    name: str
    position: int
    type: DataType


@dataclass(frozen=True, slots=True)
class HeaderInfo:
    """A controller header: its fields as (id, name, bits in the packet, codec), in order.

    ``unknown``: why its fields are not known, which only packets need; empty if they are.
    """

    name: str
    fields: tuple[tuple[int, str, int, ValueCodec], ...]
    unknown: str = ""

    @property
    def length(self) -> int:
        """Bytes of the header."""
        return (sum(width for _, _, width, _ in self.fields) + 7) // 8

    @property
    def padding(self) -> int:
        """Bits behind the fields that fill the last byte. Only a header that no packet of the
        program has needs them.
        """
        return -sum(width for _, _, width, _ in self.fields) % 8


class P4Index:
    """What the ids of a P4Info stand for in a program.

    Args:
        info: a P4Info.
        program: compiled from the same source.
        cpu_port: where SDN_PORT_CPU is; None for nowhere.

    Attributes:
        removed: names of tables by id that P4Info has and the program lacks: p4c writes P4Info
            before it removes tables that no packet reaches.

    Raises:
        StatusError: INVALID_ARGUMENT where both do not belong together.
    """

    def __init__(self, info: Any, program: ir.Program, cpu_port: int | None = None) -> None:
        self.info = info
        self.program = program
        self._cpu_port = cpu_port
        self._strings: dict[str, StringMap] = {}
        self._require_unique_ids()
        self.actions = {each.preamble.id: self._action(each) for each in info.actions}
        self._direct = {
            each.preamble.id: each for each in (*info.direct_counters, *info.direct_meters)
        }
        self.removed = self._removed()
        self.tables = {
            each.preamble.id: self._table(each)
            for each in info.tables
            if each.preamble.id not in self.removed
        }
        self.profiles = {each.preamble.id: self._profile(each) for each in info.action_profiles}
        self.counters = self._arrays("counter", info.counters, program.counters)
        self.meters = self._arrays("meter", info.meters, program.meters)
        self.registers = self._arrays("register", info.registers, program.registers)
        self.value_sets = {each.preamble.id: self._value_set(each) for each in info.value_sets}
        self.digests = {each.preamble.id: self._digest(each) for each in info.digests}
        self.headers = {
            each.preamble.name: self._header(each) for each in info.controller_packet_metadata
        }
        self.table_of_name = {each.name: each for each in self.tables.values()}
        self.table_of_counter = {
            each.counter.preamble.id: each for each in self.tables.values() if each.counter
        }

    def _require_unique_ids(self) -> None:
        seen: set[int] = set()
        groups = ("tables", "actions", "action_profiles", "counters", "direct_counters", "meters")
        more = ("direct_meters", "value_sets", "registers", "digests", "controller_packet_metadata")
        for group in (*groups, *more):
            for each in getattr(self.info, group):
                number = each.preamble.id
                if number == 0 or number in seen:
                    what = "0 is" if number == 0 else f"0x{number:08x} is used twice as"
                    raise invalid(f"P4Info: {what} the id of {each.preamble.name!r}")
                seen.add(number)

    def find(self, kind: str, among: Mapping[int, Any], number: int) -> Any:
        """What has an id; INVALID_ARGUMENT if nothing has it, UNIMPLEMENTED if it was removed."""
        found = among.get(number)
        if found is None:
            if number in self.removed:
                raise unimplemented(
                    f"table {self.removed[number]} is in P4Info, but not in the program: p4c "
                    "removed it, as no packet reaches it"
                )
            zero = " (0 stands for all, and only where something is read)" if number == 0 else ""
            raise invalid(f"P4Info has no {kind} with id 0x{number:08x}{zero}")
        return found

    # ── How it is made ──

    def _removed(self) -> dict[int, str]:
        """See ``removed``; INVALID_ARGUMENT where the program has other tables instead."""
        ours = {table.name for table in self.program.tables}
        named = {each.preamble.id: each.preamble.name for each in self.info.tables}
        removed = {number: name for number, name in named.items() if name not in ours}
        # p4c's own tables have no dot in their names. Tables of the source are in its P4Info.
        other = sorted(name for name in ours - set(named.values()) if "." in name)
        if removed and other:
            raise invalid(
                f"P4Info has table {next(iter(removed.values()))}, which the program of the device "
                f"config lacks, and lacks its table {other[0]}"
            )
        return removed

    def _position(self, kind: str, things: Any, name: str) -> int:
        for position, each in enumerate(things):
            if each.name == name:
                return position
        raise invalid(f"P4Info has {kind} {name}, which the program of the device config lacks")

    def _codec(self, each: Any, width: int, what: str) -> ValueCodec:
        """The codec of what has ``bitwidth`` and perhaps ``type_name``."""
        translated = self._translation(each.type_name.name)
        if translated is None:
            if each.bitwidth != width:
                raise invalid(f"P4Info gives {what} {each.bitwidth} bits, and the program {width}")
            return ValueCodec(width)
        return self._translated(translated, width)

    def _translation(self, type_name: str) -> Any:
        new_types = self.info.type_info.new_types
        if type_name and type_name in new_types:
            found = new_types[type_name]
            if found.WhichOneof("representation") == "translated_type":
                return found.translated_type
        return None

    def _translated(self, translated: Any, width: int) -> ValueCodec:
        if translated.HasField("sdn_string"):
            key = translated.uri
            if key not in self._strings:
                self._strings[key] = StringMap(key, width)
            return ValueCodec(width, strings=self._strings[key])
        is_port = "/PortId" in translated.uri
        return ValueCodec(width, translated.sdn_bitwidth, None, self._cpu_port if is_port else None)

    def _action(self, each: Any) -> ActionInfo:
        name = each.preamble.name
        # p4c may drop actions that no table uses; those that one uses are looked at there.
        found = next((a for a in self.program.actions if a.name == name), None)
        widths = {p.name: p.width for p in found.parameters} if found else {}
        if found and len(found.parameters) != len(each.params):
            raise invalid(
                f"P4Info gives action {name} {len(each.params)} parameters, and the program "
                f"{len(found.parameters)}"
            )
        codecs = {}
        for param in each.params:
            what = f"parameter {param.name} of action {name}"
            width = widths.get(param.name, param.bitwidth)
            codecs[param.id] = (self._codec(param, width, what), what)
        by_name = {param.name: param.id for param in each.params}
        order = tuple(by_name.get(p.name, 0) for p in found.parameters) if found else ()
        if 0 in order:
            raise invalid(f"P4Info and the program name the parameters of action {name} unalike")
        return ActionInfo(each.preamble.id, name, codecs, order)

    def _table(self, each: Any) -> TableInfo:
        # Step 1: the table of this name in the program, which has as many fields and a profile or
        # none, as P4Info says.
        name = each.preamble.name
        position = self._position("table", self.program.tables, name)
        table = self.program.tables[position]
        if len(table.keys) != len(each.match_fields):
            raise invalid(
                f"P4Info gives table {name} {len(each.match_fields)} match fields, and the "
                f"program {len(table.keys)}"
            )
        if bool(each.implementation_id) != (table.action_profile is not None):
            raise invalid(f"P4Info and the program disagree on the action profile of table {name}")
        # Step 2: its key, field by field.
        pairs = zip(each.match_fields, table.keys, strict=True)
        fields = tuple(self._field(field, key, name) for field, key in pairs)
        # Step 3: its actions are in both, though the program's may be more.
        scopes = {ref.id: ref.scope for ref in each.action_refs}
        for number in scopes:
            if number not in self.actions:
                raise invalid(
                    f"P4Info: table {name} has an action 0x{number:08x} that is not there"
                )
        actions = {number: self.actions[number] for number in scopes}
        named = {action.name: action for action in actions.values()}
        by_action = {}
        for action in table.actions:
            found = named.get(self.program.actions[action].name)
            if found is not None:
                by_action[action] = found
        missing = set(actions) - {found.id for found in by_action.values()}
        if missing:
            lacking = ", ".join(sorted(actions[number].name for number in missing))
            raise invalid(f"the program's table {name} has no action {lacking}")
        # Step 4: its direct counter and meter, of which v1model has one each.
        ids = each.direct_resource_ids
        direct = [self._direct[number] for number in ids if number in self._direct]
        counters = [d for d in direct if d.DESCRIPTOR.name == "DirectCounter"]
        meters = [d for d in direct if d.DESCRIPTOR.name == "DirectMeter"]
        return TableInfo(
            each.preamble.id,
            name,
            position,
            each,
            table,
            fields,
            scopes,
            actions,
            by_action,
            any(field.kind in (TERNARY, RANGE, OPTIONAL) for field in fields),
            next(iter(counters), None),
            next(iter(meters), None),
            each.implementation_id,
            {field.id: place for place, field in enumerate(fields)},
        )

    def _field(self, each: Any, key: ir.TableKey, table: str) -> MatchFieldInfo:
        what = f"match field {each.name} of table {table}"
        if each.WhichOneof("match") != "match_type" or each.match_type not in _KINDS:
            raise unimplemented(f"{what}: only v1model's match kinds work here")
        if key.match not in _KINDS[each.match_type]:
            raise invalid(f"P4Info and the program disagree on the match kind of {what}")
        codec = self._codec(each, key.width, what)
        static = -1 if key.mask is None else key.mask
        return MatchFieldInfo(each.id, what, each.match_type, codec, -key.width % 8, static)

    def _profile(self, each: Any) -> ProfileInfo:
        name = each.preamble.name
        position = self._position("action profile", self.program.action_profiles, name)
        actions: dict[int, ActionInfo] = {}
        for number in each.table_ids:
            if number not in self.removed:
                actions |= self.find("table", self.tables, number).actions
        return ProfileInfo(each.preamble.id, name, position, each, actions, tuple(each.table_ids))

    def _arrays(self, kind: str, among: Any, things: Any) -> dict[int, ArrayInfo]:
        found = {}
        for each in among:
            name = each.preamble.name
            position = self._position(kind, things, name)
            translated = self._translation(each.index_type_name.name)
            index = None
            if translated is not None and not translated.HasField("sdn_string"):
                size = things[position].size
                index = self._translated(translated, max(1, (size - 1).bit_length()))
            kind_of = None
            if kind == "register":
                kind_of = DataType(each.type_spec, self.info)
                if sum(kind_of.widths) != things[position].width:
                    raise invalid(
                        f"P4Info gives the cells of register {name} {sum(kind_of.widths)} bits, "
                        f"and the program {things[position].width}"
                    )
            found[each.preamble.id] = ArrayInfo(
                each.preamble.id, name, position, things[position].size, each, index, kind_of
            )
        return found

    def _value_set(self, each: Any) -> ValueSetInfo:
        name = each.preamble.name
        position = Names("parser value set", self.program.value_sets).find(name)
        if position is None:
            raise invalid(f"P4Info has value set {name}, which the program lacks")
        found = self.program.value_sets[position]
        fields = []
        for part in each.match:
            what = f"field {part.name or part.id} of value set {name}"
            if part.match_type != EXACT:
                raise unimplemented(f"{what}: members of value sets are matched exactly here")
            translated = self._translation(part.type_name.name)
            width = part.bitwidth
            if translated is not None and len(each.match) == 1:
                width = found.width
            fields.append(MatchFieldInfo(part.id, what, EXACT, self._codec(part, width, what)))
        if sum(field.codec.width for field in fields) != found.width:
            raise invalid(f"P4Info and the program disagree on the width of value set {name}")
        return ValueSetInfo(each.preamble.id, found.name, each.size, tuple(fields))

    def _digest(self, each: Any) -> DigestInfo:
        name = each.preamble.name
        lists = self.program.learn_lists
        kind = DataType(each.type_spec, self.info)
        position = next((i for i, e in enumerate(lists) if e.name == name), None)
        if position is None and len(lists) == len(self.info.digests):
            position = list(self.info.digests).index(each)
        if position is None:
            raise invalid(f"P4Info has digest {name}, which the program lacks")
        widths = [self.program.field(e).width for e in lists[position].elements]
        if widths != kind.widths:
            raise invalid(
                f"P4Info gives digest {name} fields of {kind.widths} bits, the program {widths}"
            )
        return DigestInfo(each.preamble.id, name, position, kind)

    def _header(self, each: Any) -> HeaderInfo:
        fields = []
        for part in each.metadata:
            translated = self._translation(part.type_name.name)
            if translated is None:
                width, codec = part.bitwidth, ValueCodec(part.bitwidth)
            else:
                found = self._width_in_header(each, part.name)
                if found is None:
                    names = ", ".join(part.name for part in each.metadata)
                    why = (
                        f"the program has no header with the fields {names} of controller header "
                        f"{each.preamble.name}, so the bits of {part.name} in packets are not known"
                    )
                    return HeaderInfo(each.preamble.name, (), why)
                width, codec = found, self._translated(translated, found)
            fields.append((part.id, part.name, width, codec))
        return HeaderInfo(each.preamble.name, tuple(fields))

    def _width_in_header(self, header: Any, name: str) -> int | None:
        """Bits of a translated field in packets, which P4Info does not tell. None if the program
        has no such header.

        P4Info has the name of the annotation ``@controller_header``, but not the header's own. So
        the header is known by the names of its fields, and first by its name where it is the same.
        """
        wanted = [part.name for part in header.metadata]
        instances = self.program.headers
        for instance in sorted(instances, key=lambda each: each.name != header.preamble.name):
            described = self.program.header_types[instance.type]
            widths = {each.name: each.width for each in described.fields}
            if all(each in widths for each in wanted):
                return widths[name]
        return None
