"""Random state of a switch made to fit a program: entries, groups, sessions, registers, meters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from innet.core.errors import ControlError
from innet.switch import SwitchState, ir
from innet.switch.engine import set_cell
from innet.switch.state.meters import MeterRate
from innet.switch.state.tables import ProfileRef, Target
from innet.tools.fuzz import Fuzzer, interesting_number


class StateFuzzer(Fuzzer):
    """Makes packets and control planes for one program; packets hit what the tables hold."""

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
            members = [interesting_number(self.rng, described.width) for _ in range(size)]
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
                value = interesting_number(self.rng, register.width)
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
        return interesting_number(self.rng, width)

    def _match(self, key: ir.TableKey) -> ir.Match:
        if key.field.field != ir.VALID and self.rng.random() < 0.5:
            known = self.known.setdefault((key.field.header, key.field.field), [])
            if len(known) < 6:
                known.append(interesting_number(self.rng, key.width))
            value = known[self.rng.integers(len(known))]
        else:
            value = interesting_number(self.rng, key.width)
        match key.match:
            case ir.MatchKind.LPM:
                return ir.LpmMatch(value, int(self.rng.integers(0, key.width + 1)))
            case ir.MatchKind.TERNARY:
                mask = int(self.rng.choice([0, (1 << key.width) - 1])) if key.width < 63 else 0
                if self.rng.random() < 0.4:
                    mask = interesting_number(self.rng, key.width)
                return ir.TernaryMatch(value & mask, mask)
            case ir.MatchKind.RANGE:
                other = interesting_number(self.rng, key.width)
                return ir.RangeMatch(min(value, other), max(value, other))
            case _:
                return ir.ExactMatch(value)


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


def reference(rng: np.random.Generator, state: SwitchState, table: ir.Table) -> ProfileRef:
    """A member or group that an entry of an indirect table may refer to."""
    profile = state.profile_of(table)
    assert profile is not None, "only indirect tables hold references"
    if table.kind is ir.TableKind.INDIRECT_WS and rng.random() < 0.7:
        return ProfileRef(True, int(rng.choice(list(profile.groups))))
    return ProfileRef(False, int(rng.choice(list(profile.members))))


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
                MeterRate(float(rate), int(burst))
                for rate, burst in zip(rates, bursts, strict=True)
            ]
            for state in states:
                state.meters[index].set_rates([int(cell)], chosen)
