"""Random packets, table entries and groups made to fit a program, whatever program it is.

Packets are made by walking the parser: headers of random bytes, with the fields that a transition
looks at set to what one of the transitions wants. Then some are cut, lengthened or damaged.
"""

from __future__ import annotations

import numpy as np

from innet.errors import ControlError
from innet.switch import ir
from innet.switch.engine import SwitchState
from innet.switch.guided_meters import fill_meters

INTERESTING = (0, 1, 2, 3, 7, 8, 15, 127, 128, 255)


def number(rng: np.random.Generator, width: int) -> int:
    """A number of ``width`` bits: small, an end of the range, or any."""
    top = (1 << width) - 1
    choice = rng.integers(0, 4)
    if choice == 0:
        return int(rng.choice(INTERESTING)) & top
    if choice == 1:
        return top - (int(rng.choice(INTERESTING)) & top)
    if choice == 2:
        return 1 << int(rng.integers(0, width))
    return int.from_bytes(rng.bytes((width + 7) // 8), "big") & top


class _Way:
    """What a packet has so far: ``bits`` are (value, width), ``places`` says where fields are."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.bits: list[tuple[int, int]] = []
        self.places: dict[tuple[int, int], int] = {}
        self.last: dict[int, int] = {}
        self.last_union: dict[int, int] = {}

    def extracted(self, target: ir.HeaderRef | ir.StackNext | ir.UnionStackNext) -> int | None:
        """The header that an extraction fills; None of a full stack."""
        if isinstance(target, ir.HeaderRef):
            return target.header
        if isinstance(target, ir.StackNext):
            elements, last, stack = (
                self.program.stacks[target.stack].headers,
                self.last,
                target.stack,
            )
        else:
            unions = self.program.union_stacks[target.union_stack].unions
            elements = tuple(self.program.unions[u].headers[target.position] for u in unions)
            last, stack = self.last_union, target.union_stack
        position = last.get(stack, -1) + 1
        if position == len(elements):
            return None
        last[stack] = position
        return elements[position]

    def field(
        self, source: ir.FieldRef | ir.StackLastField | ir.UnionStackLastField
    ) -> tuple[int, int]:
        """(header, field) of a part of a key; an empty stack's first element where it has none."""
        if isinstance(source, ir.FieldRef):
            return source.header, source.field
        if isinstance(source, ir.StackLastField):
            elements = self.program.stacks[source.stack].headers
            return elements[self.last.get(source.stack, 0)], source.field
        unions = self.program.union_stacks[source.union_stack].unions
        union = unions[self.last_union.get(source.union_stack, 0)]
        return self.program.unions[union].headers[source.position], source.field

    def packed(self) -> bytes:
        """The bits as bytes."""
        total = sum(width for _, width in self.bits)
        value = 0
        for part, width in self.bits:
            value = value << width | part
        return (value << (-total % 8)).to_bytes((total + 7) // 8, "big")


class Guide:
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
        way = _Way(self.program)
        state = self.program.parser.initial
        for _ in range(12):
            if state is None:
                break
            current = self.program.parser.states[state]
            for operation in current.operations:
                if isinstance(operation, ir.Extract):
                    header = way.extracted(operation.target)
                    if header is not None:
                        self._header(header, way)
                elif isinstance(operation, ir.Advance):
                    way.bits.extend((number(self.rng, 8), 8) for _ in range(3))
            state = self._follow(current, way)
        return way.packed() + self.rng.bytes(int(self.rng.integers(0, 20)))

    def _header(self, header: int, way: _Way) -> None:
        for i, field in enumerate(self.program.type_of(header).fields):
            known = self.known.get((header, i))
            if known and self.rng.random() < 0.7:
                value = known[self.rng.integers(len(known))]
            else:
                value = number(self.rng, field.width)
            way.places[header, i] = len(way.bits)
            way.bits.append((value & ((1 << field.width) - 1), field.width))

    def _follow(self, state: ir.ParserState, way: _Way) -> int | None:
        if not state.key or not state.transitions or self.rng.random() < 0.2:
            return state.default
        wanted = state.transitions[self.rng.integers(len(state.transitions))]
        values = wanted.values or self._member(wanted, state.key)
        for part, value, mask in zip(state.key, values, wanted.masks, strict=True):
            if isinstance(part.source, ir.Lookahead):
                way.bits.append((value, part.width))
                way.bits.append((number(self.rng, -part.width % 8 or 8), -part.width % 8 or 8))
                continue
            place = way.places.get(way.field(part.source))
            if place is not None:
                old, width = way.bits[place]
                way.bits[place] = ((old & ~mask | value & mask) & ((1 << width) - 1), width)
        return wanted.next

    def _member(self, transition: ir.Transition, key: tuple[ir.KeyPart, ...]) -> tuple[int, ...]:
        """A member of the value set that a transition looks at, by the parts of the key."""
        members = self.members[transition.value_set or 0]
        left = members[self.rng.integers(len(members))] if members else 0
        values = []
        for part in reversed(key):
            values.append(left & ((1 << part.width) - 1))
            left >>= part.width
        return tuple(reversed(values))

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
        return packet

    def packets(self, count: int, ports: int = 6) -> list[tuple[int, bytes]]:
        """``count`` packets from random ports."""
        return [
            (int(self.rng.integers(0, ports)), self.damaged(self.packet())) for _ in range(count)
        ]

    # ── Control plane ──

    def fill(self, states: list[SwitchState], entries: int, ports: int = 6) -> None:
        """The same random entries, defaults, groups and registers for all ``states``."""
        for index, table in enumerate(self.program.tables):
            if table.keys and not table.immutable:
                for _ in range(int(self.rng.integers(0, min(entries, table.max_size) + 1))):
                    self._add(states, index)
            if not table.default_entry_const and not table.default_action_const:
                entry = self._action(table)
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
        fill_meters(self.rng, states)

    def registers(self, states: list[SwitchState]) -> None:
        """The same random contents of all registers."""
        for index, register in enumerate(self.program.registers):
            for cell in range(min(register.size, 64)):
                value = number(self.rng, register.width)
                for state in states:
                    state.registers[index][cell] = value

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
        entry, priority = self._action(table), int(self.rng.integers(0, 5))
        for state in states:
            try:
                state.tables[index].add(matches, entry, priority)
            except ControlError:  # a duplicate or a full table: so for the others
                if state is not states[0]:
                    raise
                return

    def _action(self, table: ir.Table) -> ir.ActionEntry:
        action = table.actions[self.rng.integers(len(table.actions))]
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
