"""Commands of tables, in the dialect of simple_switch_CLI."""

from __future__ import annotations

from innet.core.errors import ControlError
from innet.switch import ir
from innet.switch.control.command_table import Arguments, after_arrow, command, integer
from innet.switch.control.control_plane import ControlPlane
from innet.switch.control.entries import describe, describe_target
from innet.switch.state.tables import is_ordered


@command("table_add", "TABLE ACTION KEY ... => [PARAMETER ...] [PRIORITY]", 3, None)
def _table_add(control: ControlPlane, words: Arguments) -> str:
    table, action, *rest = words
    priority = None
    if is_ordered(control.table(table).table):
        priority = integer(rest.pop(), "the priority, which comes last")
    if "=>" not in rest:
        raise ControlError("expected => between the key fields and the action's parameters")
    split = rest.index("=>")
    handle = control.table_add(table, action, rest[:split], rest[split + 1 :], priority)
    return f"Entry has been added with handle {handle}"


@command("table_set_default", "TABLE ACTION [PARAMETER ...]", 2, None)
def _table_set_default(control: ControlPlane, words: Arguments) -> str:
    control.table_set_default(words[0], words[1], after_arrow(words[2:]))
    return ""


@command("table_reset_default", "TABLE", 1, 1)
def _table_reset_default(control: ControlPlane, words: Arguments) -> str:
    control.table(words[0]).reset_default()
    return ""


@command("table_modify", "TABLE ACTION HANDLE [PARAMETER ...]", 3, None)
def _table_modify(control: ControlPlane, words: Arguments) -> str:
    handle = integer(words[2], "the handle")
    control.table_modify(words[0], words[1], handle, after_arrow(words[3:]))
    return ""


@command("table_delete", "TABLE HANDLE", 2, 2)
def _table_delete(control: ControlPlane, words: Arguments) -> str:
    control.table(words[0]).delete(integer(words[1], "the handle"))
    return ""


@command("table_clear", "TABLE", 1, 1)
def _table_clear(control: ControlPlane, words: Arguments) -> str:
    control.table(words[0]).clear()
    return ""


@command("table_num_entries", "TABLE", 1, 1)
def _table_num_entries(control: ControlPlane, words: Arguments) -> str:
    return str(len(control.table(words[0])))


@command("table_dump", "TABLE", 1, 1)
def _table_dump(control: ControlPlane, words: Arguments) -> str:
    table = control.table(words[0])
    lines = [describe(entry, control.program) for entry in table]
    if table.default is not None:
        lines.append(f"default: {describe_target(table.default, control.program)}".rstrip())
    return "\n".join(lines)


@command("show_tables", "", 0, 0)
def _show_tables(control: ControlPlane, _: Arguments) -> str:
    return "\n".join(_table_line(table) for table in control.program.tables)


def _table_line(table: ir.Table) -> str:
    keys = ", ".join(f"{each.name}({each.match.value}, {each.width})" for each in table.keys)
    return f"{table.name} [{keys}] {table.max_size}"


def _action_line(action: ir.Action) -> str:
    parameters = ", ".join(f"{each.name}({each.width})" for each in action.parameters)
    return f"{action.name} [{parameters}]"


@command("show_actions", "", 0, 0)
def _show_actions(control: ControlPlane, _: Arguments) -> str:
    return "\n".join(map(_action_line, control.program.actions))


@command("table_show_actions", "TABLE", 1, 1)
def _table_show_actions(control: ControlPlane, words: Arguments) -> str:
    table = control.table(words[0]).table
    return "\n".join(_action_line(control.program.actions[each]) for each in table.actions)


@command("table_info", "TABLE", 1, 1)
def _table_info(control: ControlPlane, words: Arguments) -> str:
    line = _table_line(control.table(words[0]).table)
    return f"{line}\n{_table_show_actions(control, words)}"


@command("table_dump_entry", "TABLE HANDLE", 2, 2)
def _table_dump_entry(control: ControlPlane, words: Arguments) -> str:
    entry = control.table(words[0]).get(integer(words[1], "the handle"))
    return describe(entry, control.program)


@command("table_dump_entry_from_key", "TABLE KEY ... [PRIORITY]", 1, None)
def _table_dump_entry_from_key(control: ControlPlane, words: Arguments) -> str:
    table, *keys = words
    priority = None
    if is_ordered(control.table(table).table):
        if not keys:
            raise ControlError("expected the key fields and the priority, which comes last")
        priority = integer(keys.pop(), "the priority, which comes last")
    return describe(control.table_find(table, keys, priority), control.program)


@command("table_set_timeout", "TABLE HANDLE MILLISECONDS", 3, 3)
def _table_set_timeout(control: ControlPlane, words: Arguments) -> str:
    handle, timeout = integer(words[1], "the handle"), integer(words[2], "the timeout")
    control.table_set_timeout(words[0], handle, timeout)
    return ""
