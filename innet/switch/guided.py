"""Random packets, table entries and groups made to fit a program, whatever program it is.

Packets are made by walking the parser: headers of random bytes, with the fields that a transition
looks at set to what one of the transitions wants. Then some are cut, lengthened or damaged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from innet.errors import ControlError
from innet.switch import ir
from innet.switch.engine import SwitchState, set_cell
from innet.switch.guided_meters import fill_meters
from innet.switch.guided_packets import Walk, number
from innet.switch.guided_profiles import fill_profiles, reference
from innet.switch.tables import Target

__all__ = ["Guide", "number"]


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
