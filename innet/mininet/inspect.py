"""The state of running switches as readable tables, the same for both kinds of switch."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from rich.table import Table

from innet.core.errors import ControlError, InputError
from innet.mininet.control import entries, exact_value, read_registers
from innet.protocol import SlotReader, SlotRegisters
from innet.switch import load_program
from innet.switch.control.values import Names
from innet.topology import Plan, Probe, SharedPlan, aggregation_of

if TYPE_CHECKING:
    from innet.mininet.nodes import P4Switch
    from innet.switch.ir import Program

_SHOWN = 200  # rows of a table that are shown; the rest is counted

Cells: TypeAlias = Callable[[str, str], Sequence[int] | Mapping[int, int]]
"""(name of a switch, name of a register) -> the values of its cells."""


def program_of(switch: P4Switch) -> Program:
    """The program of a switch."""
    return load_program(json.loads(switch.program.read_text(encoding="utf-8")))


def registers(switch: P4Switch, name: str | None = None, index: int | None = None) -> Table:
    """The register arrays of a switch; the nonzero cells of one array; or one cell.

    Raises:
        ControlError: there is no such register or cell.
        NetworkError: the switch is not running.
    """
    arrays = program_of(switch).registers
    if name is None:
        table = _table(f"Registers of {switch.name}", "name", ">cells", ">bits", ">not 0")
        for array in arrays:
            used = sum(map(bool, read_registers(switch, array.name)))
            table.add_row(array.name, str(array.size), str(array.width), str(used))
        return table
    register = Names("register", arrays)[name].name
    cells = list(enumerate(read_registers(switch, register)))
    if index is not None:
        if not 0 <= index < len(cells):
            raise ControlError(f"index {index} is not in 0..{len(cells) - 1} of {register}")
        cells = cells[index : index + 1]
    else:
        cells = [(position, value) for position, value in cells if value]
    table = _table(f"{register} of {switch.name}", ">index", ">value", ">hexadecimal")
    _fill(table, [(str(position), str(value), hex(value)) for position, value in cells])
    return table


def tables(switch: P4Switch, name: str | None = None) -> Table:
    """The tables of a switch with their numbers of entries; or the entries of one table.

    Raises:
        ControlError: there is no such table.
        NetworkError: the switch is not running.
    """
    found = program_of(switch).tables
    if name is None:
        table = _table(f"Tables of {switch.name}", "name", "key", ">entries", ">at most")
        for each in found:
            if each.keys:
                key = ", ".join(f"{key.name} ({key.match.value})" for key in each.keys)
                number = switch.command(f"table_num_entries {each.name}")
                table.add_row(each.name, key, number, str(each.max_size))
        return table
    chosen = Names("table", found)[name]
    keys = [key.name.rpartition(".")[2] for key in chosen.keys]
    title = f"{chosen.name} of {switch.name}"
    table = _table(title, ">handle", *keys, "action", ">priority")
    dump = switch.command(f"table_dump {chosen.name}")
    _fill(
        table, [(str(each.handle), *each.key, each.action, each.priority) for each in entries(dump)]
    )
    defaults = [line for line in dump.splitlines() if line.startswith("default: ")]
    table.caption = defaults[-1] if defaults else "default: none"
    return table


def counters(switch: P4Switch) -> Table:
    """The nonzero cells of a switch's counters.

    Raises:
        NetworkError: the switch is not running.
    """
    program = program_of(switch)
    table = _table(f"Counters of {switch.name}", "name", ">index", ">packets", ">bytes")
    rows = []
    for array in program.counters:
        positions: Sequence[str] = [str(position) for position in range(array.size)]
        if array.table is not None:  # a direct counter: a cell for each entry of its table
            dump = switch.command(f"table_dump {program.tables[array.table].name}")
            positions = [str(entry.handle) for entry in entries(dump)]
        for position in positions:
            said = switch.command(f"counter_read {array.name} {position}")
            values = re.search(r"\((\d+) bytes, (\d+) packets\)", said)
            if values is not None and int(values[2]):
                rows.append((array.name, position, values[2], values[1]))
    _fill(table, rows)
    return table


def slots(switch: P4Switch, shared: SharedPlan) -> Table:
    """The slots of a switch that hold a chunk: the job, and the workers that contributed.

    Raises:
        NetworkError: the switch is not running.
    """
    table = _table(
        f"Slots of {switch.name}", ">job", ">slot", ">version", ">chunk", "in", "waits for"
    )
    rows = []
    for plan in shared.jobs:
        read = cache(lambda _, register: read_registers(switch, register))
        for slot, version, found in occupied_slots(plan, _only(switch.name, read)):
            rows.append((str(plan.job.number), str(slot), str(version), *_who(plan, found)))
    _fill(table, rows)
    return table


def who_waits(switches: Sequence[P4Switch], shared: SharedPlan) -> Table:
    """The slots of all jobs and switches in which a worker is missing.

    Raises:
        NetworkError: a switch is not running.
    """
    by_name = {switch.name: switch for switch in switches}
    read = cache(lambda name, register: read_registers(by_name[name], register))
    table = _table("Who waits for whom", ">job", ">slot", ">version", ">chunk", "in", "waits for")
    rows = []
    for plan in shared.jobs:
        for slot, version, found in occupied_slots(plan, read):
            who = _who(plan, found)
            if who[-1]:
                rows.append((str(plan.job.number), str(slot), str(version), *who))
    _fill(table, rows)
    if not rows:
        table.caption = "no slot waits for a worker"
    return table


def occupied_slots(plan: Plan, read: Cells) -> list[tuple[int, int, SlotRegisters]]:
    """The copies of slots that hold a chunk of the job: slot, version, and content.

    Raises:
        ControlError: simple_switch cannot print a cell.
    """
    registers_of = Probe(
        lambda switch, register, index: exact_value(
            read(switch, register)[index], f"{register}[{index}] of {switch}"
        )
    )
    reader: SlotReader = aggregation_of(plan.aggregation).slot_reader(plan, registers_of)
    copies = [(slot, version) for slot in range(plan.job.slots) for version in (0, 1)]
    found = [(*copy, reader(*copy)) for copy in copies]
    return [each for each in found if each[2].sequence]


def shared_plan(topo: object) -> SharedPlan:
    """The innet jobs on a network.

    Raises:
        InputError: there are none.
    """
    found = getattr(topo, "plan", None)
    if isinstance(found, SharedPlan):
        return found
    raise InputError("no job of innet's runs on this network; look at its registers instead.")


def _only(name: str, read: Cells) -> Cells:
    """Reads one switch; registers of the others read as 0."""
    zeros: Mapping[int, int] = defaultdict(int)
    return lambda switch, register: read(switch, register) if switch == name else zeros


def _who(plan: Plan, found: SlotRegisters) -> tuple[str, str, str]:
    """The chunk, counted from 1 as on the wire, the workers that contributed, and those missing."""
    inside = [worker for worker in plan.job.present if found.bitmap >> worker & 1]
    missing = [worker for worker in plan.job.present if worker not in inside]
    return str(found.sequence), worker_ranges(inside), worker_ranges(missing)


def worker_ranges(workers: Sequence[int]) -> str:
    """Ascending numbers as text, such as "0-31, 33, 35"."""
    runs: list[list[int]] = []
    for worker in workers:
        if runs and worker == runs[-1][-1] + 1:
            runs[-1].append(worker)
        else:
            runs.append([worker])
    return ", ".join(
        f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )


def _table(title: str, *columns: str) -> Table:
    """Columns whose names begin with > hold numbers."""
    table = Table(title=title, title_justify="left", caption_justify="left", box=None)
    for column in columns:
        justify = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


def _fill(table: Table, rows: Sequence[Sequence[str]]) -> None:
    for row in rows[:_SHOWN]:
        table.add_row(*row)
    if len(rows) > _SHOWN:
        table.caption = f"and {len(rows) - _SHOWN} more"
