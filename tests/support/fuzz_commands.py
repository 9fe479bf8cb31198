"""Random control commands, as text, that fit a program and what its switch holds.

Each command is run on a switch as soon as it is made, so that later ones name entries, nodes and
members that exist. Some are meant to be refused: duplicates, full tables, handles of nothing.
Nothing is made that simple_switch_CLI leaves undefined: no value too wide, no parameter too many.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from innet.core.errors import ControlError
from innet.switch import Switch, ir
from support.fuzz_profiles import ProfileCommands
from support.state_fuzzer import StateFuzzer, interesting_number

SESSIONS, GROUPS, RIDS = 6, 5, 6


class Controller:
    """Makes commands for ``switch``; ``ports`` is how many ports replication may name."""

    def __init__(
        self, switch: Switch, fuzzer: StateFuzzer, rng: np.random.Generator, ports: int
    ) -> None:
        self.switch, self.fuzzer, self.rng, self.ports = switch, fuzzer, rng, ports
        program = switch.program
        self.program = program
        self._tables = [each for each in program.tables if each.keys and not each.immutable]
        self._defaults = [
            each
            for each in program.tables
            if not each.default_entry_const
            and not each.default_action_const
            and each.kind is ir.TableKind.SIMPLE
            and not each.immutable
        ]
        self._crcs = [each for each in program.calculations if each.algorithm.endswith("_custom")]
        self._makers = self._chosen_makers()

    def run(self, count: int) -> list[tuple[str, str | None]]:
        """``count`` commands, each with what the switch printed; None: it was refused."""
        done: list[tuple[str, str | None]] = []
        while self._makers and len(done) < count:
            command = self._makers[self.rng.integers(len(self._makers))]()
            if command is not None:
                done.append((command, outcome(self.switch, command)))
        return done

    def _chosen_makers(self) -> list[Callable[[], str | None]]:
        """Kinds of commands that the program has something for; often those that matter most."""
        program = self.program
        makers: list[Callable[[], str | None]] = []
        simple = [each for each in self._tables if each.kind is ir.TableKind.SIMPLE]
        if simple:
            makers += [self._table_add] * 8 + [self._table_modify] * 2 + [self._table_delete] * 2
        if self._defaults:
            makers += [self._table_set_default]
        if [each for each in program.registers if each.width <= 32]:
            makers += [self._register_write] * 2
        if program.registers:
            makers += [self._register_reset]
        if [each for each in program.counters if each.table is None]:
            makers += [self._counter_write]
        if program.counters:
            makers += [self._counter_reset]
        if program.standard.mcast_grp is not None:
            makers += [self._group] * 2 + [self._node] * 4 + [self._associate] * 5
            makers += [self._dissociate, self._node_update, self._destroy]
        if any(isinstance(p, ir.Clone) for a in program.actions for p in a.primitives):
            makers += [self._mirroring] * 6
        if program.value_sets:
            makers += [self._value_set] * 4
        if self._crcs:
            makers += [self._crc] * 3
        if program.meters:
            makers += [self._meter] * 6
        return makers + ProfileCommands(self).makers()

    def _pick(self, choices):
        return choices[self.rng.integers(len(choices))]

    def _small(self, below: int) -> int:
        return int(self.rng.integers(0, below))

    # ── Tables ──

    def _simple_table(self, choices) -> ir.Table | None:
        table = self._pick(choices)
        return table if table.kind is ir.TableKind.SIMPLE else None

    def _table_add(self) -> str | None:
        table = self._simple_table(self._tables)
        if table is None:
            return None
        action, arguments = self._action(table)
        return f"table_add {table.name} {action} {self.keys(table)} => {arguments}" + (
            f" {self._small(5)}" if self.ordered(table) else ""
        )

    def ordered(self, table: ir.Table) -> bool:
        """Whether its entries have priorities."""
        return table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE)

    def keys(self, table: ir.Table) -> str:
        return " ".join(key_text(self.fuzzer._match(key)) for key in table.keys)

    def _action(self, table: ir.Table) -> tuple[str, str]:
        entry = self.fuzzer._action(table.actions)
        return self.program.actions[entry.action].name, " ".join(map(hex, entry.arguments))

    def _handle(self, table: ir.Table) -> int:
        """Of an entry; now and then of none."""
        handles = [each.handle for each in self.switch.table_entries(table.name)]
        if not handles or self.rng.random() < 0.1:
            return self._small(40) + (self._small(3) << 24)
        return self._pick(handles)

    def _table_modify(self) -> str | None:
        table = self._simple_table(self._tables)
        if table is None:
            return None
        action, arguments = self._action(table)
        return f"table_modify {table.name} {action} {self._handle(table)} => {arguments}"

    def _table_delete(self) -> str | None:
        table = self._simple_table(self._tables)
        if table is None:
            return None
        if self.rng.random() < 0.05:
            return f"table_clear {table.name}"
        return f"table_delete {table.name} {self._handle(table)}"

    def _table_set_default(self) -> str | None:
        table = self._pick(self._defaults)
        if self.rng.random() < 0.2:
            return f"table_reset_default {table.name}"
        action, arguments = self._action(table)
        return f"table_set_default {table.name} {action} {arguments}".rstrip()

    # ── Arrays ──

    def _register_write(self) -> str | None:
        register = self._pick(self.program.registers)
        if register.width > 32:  # simple_switch_CLI cuts what is written to 32 bits and a sign
            return None
        value = interesting_number(self.rng, min(register.width, 31))
        return f"register_write {register.name} {self._small(register.size + 1)} {value}"

    def _register_reset(self) -> str:
        return f"register_reset {self._pick(self.program.registers).name}"

    def _counter_write(self) -> str | None:
        counter = self._pick(self.program.counters)
        if counter.table is not None:
            return None
        packets, size = self._small(1000), self._small(100000)
        return f"counter_write {counter.name} {self._small(counter.size + 1)} {packets} {size}"

    def _counter_reset(self) -> str:
        return f"counter_reset {self._pick(self.program.counters).name}"

    def _meter(self) -> str | None:
        """Rates of 0, so that bursts alone decide."""
        meter = self._pick(self.program.meters)
        scale = 60 if meter.bytes else 1
        rates = " ".join(f"0.0:{self._small(12) * scale}" for _ in range(meter.rates))
        if meter.table is None:
            if self.rng.random() < 0.2:
                return f"meter_array_set_rates {meter.name} {rates}"
            return f"meter_set_rates {meter.name} {self._small(meter.size)} {rates}"
        entries = self.switch.table_entries(self.program.tables[meter.table].name)
        if not entries:
            return None
        return f"meter_set_rates {meter.name} {self._pick(entries).handle} {rates}"

    # ── Replication ──

    def _group(self) -> str:
        return f"mc_mgrp_create {1 + self._small(GROUPS)}"

    def _some_ports(self) -> str:
        chosen = self.rng.permutation(self.ports)[: self.rng.integers(1, 4)]
        return " ".join(map(str, chosen))

    def _node(self) -> str | None:
        if len(self.switch.state.replication.nodes) >= 12:
            return None
        return f"mc_node_create {self._small(RIDS)} {self._some_ports()}"

    def _any_node(self) -> int:
        nodes = list(self.switch.state.replication.nodes)
        return self._pick(nodes) if nodes and self.rng.random() < 0.95 else self._small(20)

    def _any_group(self) -> int:
        groups = list(self.switch.state.replication.groups)
        return self._pick(groups) if groups and self.rng.random() < 0.95 else self._small(20)

    def _associate(self) -> str | None:
        node = self._any_node()
        known = self.switch.state.replication.nodes.get(node)
        if known is not None and known.group is not None:
            return None  # simple_switch takes a node into two groups, and then forgets the first
        return f"mc_node_associate {self._any_group()} {node}"

    def _dissociate(self) -> str | None:
        node = self._any_node()
        known = self.switch.state.replication.nodes.get(node)
        if known is None or known.group is None:
            return None
        return f"mc_node_dissociate {known.group} {node}"

    def _node_update(self) -> str:
        return f"mc_node_update {self._any_node()} {self._some_ports()}"

    def _destroy(self) -> str | None:
        if self.rng.random() < 0.7:
            return f"mc_node_destroy {self._any_node()}"
        # simple_switch forgets a group's nodes without telling them, and destroys what is not.
        empty = [each for each, nodes in self.switch.state.replication.groups.items() if not nodes]
        return f"mc_mgrp_destroy {self._pick(empty)}" if empty else None

    def _mirroring(self) -> str:
        session = self._small(SESSIONS)
        choice = self.rng.random()
        if choice < 0.6:
            return f"mirroring_add {session} {self._small(self.ports)}"
        if choice < 0.85:
            return f"mirroring_add_mc {session} {1 + self._small(GROUPS)}"
        return f"mirroring_delete {session}"

    # ── Value sets and hashes ──

    def _value_set(self) -> str | None:
        value_set = self._pick(self.program.value_sets)
        if value_set.width % 8 != 1:
            return None  # simple_switch_CLI would encode it in a byte too many
        choice = self.rng.random()
        if choice < 0.1:
            return f"pvs_clear {value_set.name}"
        value = interesting_number(self.rng, value_set.width)
        members = sorted(self.switch.control.value_set(value_set.name))
        if choice < 0.3 and members:
            return f"pvs_remove {value_set.name} {self._pick(members):#x}"
        return f"pvs_add {value_set.name} {value:#x}"

    def _crc(self) -> str:
        calculation = self._pick(self._crcs)
        width = 16 if "16" in calculation.algorithm else 32
        numbers = " ".join(hex(interesting_number(self.rng, width)) for _ in range(3))
        flags = f"{self._small(2)} {self._small(2)}"
        return f"set_crc{width}_parameters {calculation.name} {numbers} {flags}"


def key_text(match: ir.Match) -> str:
    if isinstance(match, ir.LpmMatch):
        return f"{match.value:#x}/{match.prefix}"
    if isinstance(match, ir.TernaryMatch):
        return f"{match.value:#x}&&&{match.mask:#x}"
    if isinstance(match, ir.RangeMatch):
        return f"{match.low:#x}->{match.high:#x}"
    return hex(match.value)


def outcome(switch: Switch, command: str) -> str | None:
    """What the switch prints; None when it refuses."""
    try:
        return switch.command(command)
    except ControlError:
        return None
