"""Tables by name and the parts of their entries, from what the control plane is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache

from innet.core.errors import ControlError
from innet.core.numbers import require_int
from innet.switch import ir
from innet.switch.control.names import Names
from innet.switch.control.values import Key, Number, describe_match, match_of, number
from innet.switch.engine import SwitchState
from innet.switch.state.tables import Reference, RuntimeEntry, TableState, Target, is_ordered


class TableControl:
    """The tables of a switch by name."""

    state: SwitchState

    @cached_property
    def _tables(self) -> Names:
        return Names("table", (each.table.name for each in self.state.tables))

    def table(self, name: str) -> TableState:
        """The table called ``name``."""
        return self.state.tables[self._tables.find(name)]


def action_entry(
    program: ir.Program,
    actions: Iterable[int],
    name: str,
    parameters: Sequence[Number],
    *,
    of: str,
) -> ir.ActionEntry:
    """The one of ``actions``, those of a table or profile ``of``, that is called ``name``."""
    candidates = tuple(actions)
    names = _names(tuple(program.actions[each].name for each in candidates))
    index = candidates[names.find(name, of=of)]
    wanted = program.actions[index].parameters
    if len(parameters) != len(wanted):
        described = ", ".join(f"{each.name} ({each.width} bits)" for each in wanted)
        raise ControlError(
            f"action {program.actions[index].name} needs {len(wanted)} parameters, not "
            f"{len(parameters)}: {described or 'none'}"
        )
    return ir.ActionEntry(
        index,
        tuple(
            number(value, each.width, f"parameter {each.name}")
            for value, each in zip(parameters, wanted, strict=True)
        ),
    )


@lru_cache(maxsize=256)
def _names(actions: tuple[str, ...]) -> Names:
    return Names("action", actions)


def matches_of(table: ir.Table, keys: Sequence[Key]) -> list[ir.Match]:
    """What ``keys`` say about the fields of a table's key."""
    if len(keys) != len(table.keys):
        described = ", ".join(f"{each.name} ({each.match.value})" for each in table.keys)
        raise ControlError(
            f"table {table.name} needs {len(table.keys)} key fields, not {len(keys)}: "
            f"{described or 'none'}"
        )
    return [match_of(key, field) for key, field in zip(keys, table.keys, strict=True)]


def checked(table: ir.Table, priority: int | None) -> int:
    """The priority of an entry; ControlError when the table needs one, or for no such number."""
    if priority is None:
        if is_ordered(table):
            raise ControlError(
                f"table {table.name} is {table.match.value}, so its entries need a priority"
            )
        return 0
    if not 0 <= require_int(priority, "the priority") < 1 << 31:
        raise ControlError(f"priority {priority} is not in 0..2147483647")
    return priority


def describe(entry: RuntimeEntry, program: ir.Program) -> str:
    """An entry on one line, in the words of table_add."""
    keys = " ".join(describe_match(match) for match in entry.matches)
    target = describe_target(entry.action, program)
    return f"{entry.handle}: {keys} => {target} priority {entry.priority}"


def describe_target(target: Target, program: ir.Program) -> str:
    """What an entry runs, in the words of table_add."""
    if isinstance(target, Reference):
        return f"{'group' if target.group else 'member'} {target.handle}"
    arguments = " ".join(hex(value) for value in target.arguments)
    return f"{program.actions[target.action].name} {arguments}"
