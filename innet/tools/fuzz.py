"""Random packets, table entries and groups made to fit a program, whatever program it is.

Packets are made by walking the parser: headers of random bytes, with the fields that a transition
looks at set to what one of the transitions wants. Then some are cut, lengthened or damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.engine import SwitchState, set_cell
from innet.switch.state.meters import Rate
from innet.switch.state.tables import Reference, Target

__all__ = ["Fuzzer", "number"]


class Fuzzer:
    """Makes packets and control planes for one program."""

    def __init__(self, program: ir.Program, rng: np.random.Generator) -> None:
        self.program = program
        self.rng = rng
        #: Values that keys were given, so that packets hit what the tables hold.
        self.known: dict[tuple[int, int], list[int]] = {}
        #: What parser value sets hold.
        self.members: list[list[int]] = [[] for _ in program.value_sets]

    # ── Packets ──

    def packet(self) -> bytes:
        """A packet for which the parser goes some way that the program foresees."""
        walk = Walk(self.program, self.rng, self.known, self.members)
        return walk.run() + self.rng.bytes(int(self.rng.integers(0, 20)))

    def damaged(self, packet: bytes) -> bytes:
        """``packet`` as it may arrive: whole, cut short, longer, or with bytes changed."""
        choice = self.rng.integers(0, 8)
        if choice == 0:
            return packet[: self.rng.integers(0, len(packet) + 1)]
        if choice == 1:
            return packet + self.rng.bytes(int(self.rng.integers(0, 100)))
        if choice == 2 and packet:
            changed = bytearray(packet)
            for _ in range(self.rng.integers(1, 4)):
                changed[self.rng.integers(len(changed))] = int(self.rng.integers(0, 256))
            return bytes(changed)
        if choice == 3 and self.rng.random() < 0.2:
            return self.rng.bytes(int(self.rng.integers(0, 2000)))
        if choice == 4 and self.rng.random() < 0.05:
            return packet + self.rng.bytes(10_000 - len(packet))
        return packet

    def packets(self, count: int, ports: int = 6) -> list[tuple[int, bytes]]:
        """``count`` packets from random ports."""
        return [
            (int(self.rng.integers(0, ports)), self.damaged(self.packet())) for _ in range(count)
        ]

    # ── Control plane ──

    def fill(self, states: list[SwitchState], entries: int, ports: int = 6) -> None:
        """The same random entries, defaults, groups and mirror sessions for all ``states``."""
        fill_profiles(self.rng, states, self._action)
        for index, table in enumerate(self.program.tables):
            if table.keys and not table.immutable:
                for _ in range(int(self.rng.integers(0, min(entries, table.max_size) + 1))):
                    self._add(states, index)
            if not table.default_entry_const and not table.default_action_const:
                entry = self._target(states[0], table)
                for state in states:
                    state.tables[index].set_default(entry)
        for number_of_set, described in enumerate(self.program.value_sets):
            size = int(self.rng.integers(0, 6))
            members = [number(self.rng, described.width) for _ in range(size)]
            self.members[number_of_set] = members
            for state in states:
                state.value_sets[number_of_set].clear()
                state.value_sets[number_of_set].update(members)
                state.generation.bump()
        self._replicate(states, ports)
        fill_meters(self.rng, states)

    def _replicate(self, states: list[SwitchState], ports: int) -> None:
        """Multicast groups 1 .. 3, and some of the mirror sessions 0 .. 7."""
        for group in range(1, 4):
            pairs = [
                (int(self.rng.integers(0, 6)), int(self.rng.integers(0, ports)))
                for _ in range(self.rng.integers(0, 5))
            ]
            for state in states:
                state.replication.create_group(group)
                for rid, port in pairs:
                    node = state.replication.create_node(rid, [port])
                    state.replication.associate(group, node)
        for session in range(8):  # as many as three bits name
            target = int(self.rng.integers(0, ports)) if self.rng.random() < 0.6 else None
            copies = int(self.rng.integers(0, 5)) if self.rng.random() < 0.4 else None
            if target is not None or copies is not None:
                for state in states:
                    state.replication.set_session(session, target, copies)

    def registers(self, states: list[SwitchState]) -> None:
        """The same random contents of all registers."""
        for index, register in enumerate(self.program.registers):
            for cell in range(min(register.size, 64)):
                value = number(self.rng, register.width)
                for state in states:
                    set_cell(state.registers[index], cell, value)

    def delete_some(self, states: list[SwitchState]) -> None:
        """Remove the same entries from all states."""
        for index, table in enumerate(self.program.tables):
            for entry in list(states[0].tables[index]):
                if not table.immutable and self.rng.random() < 0.4:
                    for state in states:
                        state.tables[index].delete(entry.handle)

    def _add(self, states: list[SwitchState], index: int) -> None:
        table = self.program.tables[index]
        matches = tuple(self._match(key) for key in table.keys)
        entry, priority = self._target(states[0], table), int(self.rng.integers(0, 5))
        for state in states:
            try:
                state.tables[index].add(matches, entry, priority)
            except ControlError:  # a duplicate or a full table: so for the others
                if state is not states[0]:
                    raise
                return

    def _target(self, state: SwitchState, table: ir.Table) -> Target:
        if table.kind is not ir.TableKind.SIMPLE:
            return reference(self.rng, state, table)
        return self._action(table.actions)

    def _action(self, actions: Sequence[int]) -> ir.ActionEntry:
        action = actions[int(self.rng.integers(len(actions)))]
        parameters = self.program.actions[action].parameters
        return ir.ActionEntry(action, tuple(self._argument(each.width) for each in parameters))

    def _argument(self, width: int) -> int:
        """Mostly a small number, so that ports and groups are some that exist."""
        if self.rng.random() < 0.7:
            return int(self.rng.integers(0, 6)) & ((1 << width) - 1)
        return number(self.rng, width)

    def _match(self, key: ir.TableKey) -> ir.Match:
        if key.field.field != ir.VALID and self.rng.random() < 0.5:
            known = self.known.setdefault((key.field.header, key.field.field), [])
            if len(known) < 6:
                known.append(number(self.rng, key.width))
            value = known[self.rng.integers(len(known))]
        else:
            value = number(self.rng, key.width)
        match key.match:
            case ir.MatchKind.LPM:
                return ir.LpmMatch(value, int(self.rng.integers(0, key.width + 1)))
            case ir.MatchKind.TERNARY:
                mask = int(self.rng.choice([0, (1 << key.width) - 1])) if key.width < 63 else 0
                if self.rng.random() < 0.4:
                    mask = number(self.rng, key.width)
                return ir.TernaryMatch(value & mask, mask)
            case ir.MatchKind.RANGE:
                other = number(self.rng, key.width)
                return ir.RangeMatch(min(value, other), max(value, other))
            case _:
                return ir.ExactMatch(value)


# ----------------------------------------------------------------------------
# One packet for a program: a walk through its parser (see ``guided``).

INTERESTING = (0, 1, 2, 3, 7, 8, 15, 127, 128, 255)

Known = Mapping[tuple[int, int], Sequence[int]]
"""(header, field) to values that something looks for."""

_MOST_STATES = 12


def number(rng: np.random.Generator, width: int) -> int:
    """A number of ``width`` bits: small, an end of the range, or any."""
    top = (1 << width) - 1
    choice = rng.integers(0, 4)
    if choice == 0 or width == 0:
        return int(rng.choice(INTERESTING)) & top
    if choice == 1:
        return top - (int(rng.choice(INTERESTING)) & top)
    if choice == 2:
        return 1 << int(rng.integers(0, width))
    return int.from_bytes(rng.bytes((width + 7) // 8), "big") & top


@dataclass(slots=True)
class Walk:
    """The bits of a packet as the parser would take them, state by state.

    Attributes:
        bits: (value, width) of each field so far.
        places: where in ``bits`` the fields of a header are; the latest, where it is taken twice.
        counts: how many elements of a stack, or of a stack of unions, are taken.
        ahead: (value, width) that a lookahead wants to find next.
        value_sets: the members of each of the parser's value sets.
    """

    program: ir.Program
    rng: np.random.Generator
    known: Known
    value_sets: Sequence[Sequence[int]] = ()
    bits: list[tuple[int, int]] = field(default_factory=list)
    places: dict[tuple[int, int], int] = field(default_factory=dict)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    ahead: tuple[int, int] | None = None

    def run(self) -> bytes:
        """The packet, of whole bytes."""
        state = self.program.parser.initial
        for _ in range(_MOST_STATES):
            if state is None:
                break
            current = self.program.parser.states[state]
            for operation in current.operations:
                if isinstance(operation, ir.Extract):
                    self._extract(operation.target)
                elif isinstance(operation, ir.Advance):
                    self.bits.extend((number(self.rng, 8), 8) for _ in range(3))
            state = self._follow(current)
        self._flush()
        total = sum(width for _, width in self.bits)
        value = 0
        for part, width in self.bits:
            value = value << width | part
        return (value << (-total % 8)).to_bytes((total + 7) // 8, "big")

    def _flush(self) -> None:
        """What a lookahead wants to find, where nothing was extracted there."""
        if self.ahead is not None:
            value, width = self.ahead
            self.ahead = None
            self.bits.append((value, width))
            self.bits.append((0, -width % 8))

    def _extract(self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext) -> None:
        header = self._next(target)
        if header is None:
            return
        begin = len(self.bits)
        for i, each in enumerate(self.program.type_of(header).fields):
            self.places[header, i] = len(self.bits)
            if each.variable:
                length = 8 * int(self.rng.integers(0, each.width // 8 + 1))
                self.bits.append((number(self.rng, length), length))
                continue
            known = self.known.get((header, i))
            if known and self.rng.random() < 0.7:
                value = known[int(self.rng.integers(len(known)))]
            else:
                value = number(self.rng, each.width)
            self.bits.append((value & ((1 << each.width) - 1), each.width))
        if self.ahead is not None and self.program.type_of(header).variable is None:
            self._overwrite(begin, *self.ahead)
            self.ahead = None

    def _next(self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext) -> int | None:
        """The header that is taken; None where a stack is full."""
        if isinstance(target, ir.HeaderRef):
            return target.header
        if isinstance(target, ir.StackNext):
            headers = self.program.stacks[target.stack].headers
            return self._count(("stack", target.stack), headers)
        unions = self.program.union_stacks[target.union_stack].unions
        union = self._count(("union", target.union_stack), unions)
        return None if union is None else self.program.unions[union].headers[target.position]

    def _count(self, key: tuple[str, int], elements: Sequence[int]) -> int | None:
        taken = self.counts[key]
        self.counts[key] += 1
        return elements[taken] if taken < len(elements) else None

    def _overwrite(self, begin: int, value: int, width: int) -> None:
        """Put ``width`` bits of ``value`` over what was appended from ``begin`` on."""
        for place in range(begin, len(self.bits)):
            if width <= 0:
                return
            old, own = self.bits[place]
            if own <= width:
                self.bits[place] = (value >> (width - own) & ((1 << own) - 1), own)
            else:
                rest = own - width
                self.bits[place] = (old & ((1 << rest) - 1) | value << rest, own)
            width -= own
            value &= (1 << max(width, 0)) - 1

    def _follow(self, state: ir.ParserState) -> int | None:
        if not state.key or not state.transitions or self.rng.random() < 0.2:
            return state.default
        wanted = state.transitions[self.rng.integers(len(state.transitions))]
        values, masks = wanted.values, wanted.masks
        if wanted.value_set is not None:
            values, masks = self._from_value_set(state, wanted.value_set)
        for part, value, mask in zip(state.key, values, masks, strict=True):
            if isinstance(part.source, ir.Lookahead):
                self.ahead = (value, part.width)
                continue
            place = self._place(part.source)
            if place is not None:
                old, width = self.bits[place]
                self.bits[place] = ((old & ~mask | value) & ((1 << width) - 1), width)
        return wanted.next

    def _place(
        self, source: ir.FieldRef | ir.StackLastField | ir.UnionStackLastField
    ) -> int | None:
        """Where the field that a key looks at was put."""
        if isinstance(source, ir.FieldRef):
            return self.places.get((source.header, source.field))
        if isinstance(source, ir.StackLastField):
            elements = self.program.stacks[source.stack].headers
            count = min(self.counts["stack", source.stack], len(elements))
            return self.places.get((elements[count - 1], source.field)) if count else None
        unions = self.program.union_stacks[source.union_stack].unions
        count = min(self.counts["union", source.union_stack], len(unions))
        if not count:
            return None
        header = self.program.unions[unions[count - 1]].headers[source.position]
        return self.places.get((header, source.field))

    def _from_value_set(
        self, state: ir.ParserState, value_set: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """One of its members, cut into the parts of the key; nothing is asked of an empty one."""
        members = self.value_sets[value_set] if self.value_sets else ()
        if not members:
            return (0,) * len(state.key), (0,) * len(state.key)
        rest = members[int(self.rng.integers(len(members)))]
        values: list[int] = []
        for part in reversed(state.key):
            values.insert(0, rest & ((1 << part.width) - 1))
            rest >>= part.width
        return tuple(values), tuple((1 << part.width) - 1 for part in state.key)


# ----------------------------------------------------------------------------
# Random members, groups and references to them, made to fit a program (see ``guided``).

MakeEntry = Callable[[Sequence[int]], ir.ActionEntry]
"""Makes an action of those given, with random arguments."""


def fill_profiles(rng: np.random.Generator, states: Sequence[SwitchState], make: MakeEntry) -> None:
    """The same members and groups for every profile of all ``states``: some are new, some change.

    Groups that are in use may become empty.
    """
    for index, profile in enumerate(states[0].profiles):
        actions = tuple(profile.actions.values())
        if not actions:  # no table uses the profile, so that it holds nothing
            continue
        for _ in range(4):
            entry = make(actions)
            for state in states:
                state.profiles[index].create_member(entry)
        changed = int(rng.choice(list(profile.members)))
        entry = make(actions)
        for state in states:
            state.profiles[index].modify_member(changed, entry)
        if profile.profile.selector is not None:
            for state in states:
                state.profiles[index].create_group()
            _change_groups(rng, states, index)


def _change_groups(rng: np.random.Generator, states: Sequence[SwitchState], index: int) -> None:
    first = states[0].profiles[index]
    for group in list(first.groups):
        for member in rng.permutation(list(first.members))[: rng.integers(0, 6)]:
            inside = int(member) in first.groups[group]
            for state in states:
                profile = state.profiles[index]
                change = profile.remove_from_group if inside else profile.add_to_group
                change(int(member), group)


def reference(rng: np.random.Generator, state: SwitchState, table: ir.Table) -> Reference:
    """A member or group that an entry of an indirect table may refer to."""
    profile = state.profile_of(table)
    assert profile is not None, "only indirect tables hold references"
    if table.kind is ir.TableKind.INDIRECT_WS and rng.random() < 0.7:
        return Reference(True, int(rng.choice(list(profile.groups))))
    return Reference(False, int(rng.choice(list(profile.members))))


# ----------------------------------------------------------------------------
# Random meter rates made to fit a program (see ``guided``).


def fill_meters(rng: np.random.Generator, states: Sequence[SwitchState]) -> None:
    """The same rates for some cells of every meter of all ``states``.

    Bursts of a few packets and rates that give back a few in a thousand microseconds, so that all
    colors occur.
    """
    for index, meter in enumerate(states[0].meters):
        array = meter.array
        scale = 60 if array.bytes else 1
        for cell in rng.permutation(min(array.size, 256))[:128]:
            rates = np.sort(rng.choice([0.0, 0.001, 0.0125, 2.0], array.rates)) * scale
            bursts = rng.integers(0, 12, array.rates) * scale
            chosen = [
                Rate(float(rate), int(burst)) for rate, burst in zip(rates, bursts, strict=True)
            ]
            for state in states:
                state.meters[index].set_rates([int(cell)], chosen)
