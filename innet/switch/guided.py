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


class Guide:
    """Makes packets and control planes for one program."""

    def __init__(self, program: ir.Program, rng: np.random.Generator) -> None:
        self.program = program
        self.rng = rng
        #: Values that keys were given, so that packets hit what the tables hold.
        self.known: dict[tuple[int, int], list[int]] = {}

    # ── Packets ──

    def packet(self) -> bytes:
        """A packet for which the parser goes some way that the program foresees."""
        bits: list[tuple[int, int]] = []
        places: dict[tuple[int, int], int] = {}
        state = self.program.parser.initial
        for _ in range(12):
            if state is None:
                break
            current = self.program.parser.states[state]
            for operation in current.operations:
                if isinstance(operation, ir.Extract) and isinstance(operation.target, ir.HeaderRef):
                    self._header(operation.target.header, bits, places)
                elif isinstance(operation, ir.Advance):
                    bits.extend((number(self.rng, 8), 8) for _ in range(3))
            state = self._follow(current, bits, places)
        total = sum(width for _, width in bits)
        value = 0
        for part, width in bits:
            value = value << width | part
        packed = (value << (-total % 8)).to_bytes((total + 7) // 8, "big")
        return packed + self.rng.bytes(int(self.rng.integers(0, 20)))

    def _header(
        self, header: int, bits: list[tuple[int, int]], places: dict[tuple[int, int], int]
    ) -> None:
        for i, field in enumerate(self.program.type_of(header).fields):
            known = self.known.get((header, i))
            if known and self.rng.random() < 0.7:
                value = known[self.rng.integers(len(known))]
            else:
                value = number(self.rng, field.width)
            places[header, i] = len(bits)
            bits.append((value & ((1 << field.width) - 1), field.width))

    def _follow(
        self,
        state: ir.ParserState,
        bits: list[tuple[int, int]],
        places: dict[tuple[int, int], int],
    ) -> int | None:
        if not state.key or not state.transitions or self.rng.random() < 0.2:
            return state.default
        wanted = state.transitions[self.rng.integers(len(state.transitions))]
        for part, value, mask in zip(state.key, wanted.values, wanted.masks, strict=True):
            if isinstance(part.source, ir.FieldRef):
                place = places.get((part.source.header, part.source.field))
                if place is not None:
                    old, width = bits[place]
                    bits[place] = ((old & ~mask | value) & ((1 << width) - 1), width)
            elif isinstance(part.source, ir.Lookahead):
                bits.append((value, part.width))
                bits.append((number(self.rng, -part.width % 8 or 8), -part.width % 8 or 8))
        return wanted.next

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
