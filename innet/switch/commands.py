"""Control commands as text, in the dialect of simple_switch_CLI.

One command per line; what it prints is returned. Unlike there, a value that is too wide and a
parameter too many are refused rather than cut.
"""

from __future__ import annotations

from innet.errors import ControlError, UnknownNameError
from innet.switch import commands_meters as _meters  # noqa: F401 - it registers commands
from innet.switch import commands_profiles as _profiles  # noqa: F401 - likewise
from innet.switch import ir
from innet.switch.command_table import COMMANDS, Arguments, after_arrow, command, integer, truth
from innet.switch.control import ControlPlane
from innet.switch.control_entries import describe, describe_target
from innet.switch.engine import cell_value
from innet.switch.hashes import CrcParameters


def run(control: ControlPlane, line: str) -> str:
    """Run one command; an empty line or a comment (#) does nothing.

    Raises:
        ControlError: it was refused, and nothing was changed.
    """
    words = line.split("#", 1)[0].split()
    if not words:
        return ""
    found = COMMANDS.get(words[0])
    if found is None:
        raise ControlError(str(UnknownNameError("command", words[0], COMMANDS)))
    arguments = words[1:]
    if len(arguments) < found.least or (found.most is not None and len(arguments) > found.most):
        raise ControlError(f"usage: {found.name} {found.usage}".rstrip())
    return found.handler(control, arguments)


def run_all(control: ControlPlane, text: str) -> str:
    """Run the lines of a text in order, up to the first that is refused.

    Raises:
        ControlError: names the line; those before it stay in effect.
    """
    printed = []
    for position, line in enumerate(text.splitlines(), 1):
        try:
            printed.append(run(control, line))
        except ControlError as error:
            raise ControlError(f"line {position}: {line.strip()}: {error}") from error
    return "\n".join(each for each in printed if each)


# ── Tables ──


@command("table_add", "TABLE ACTION KEY ... => [PARAMETER ...] [PRIORITY]", 3, None)
def _table_add(control: ControlPlane, words: Arguments) -> str:
    table, action, *rest = words
    priority = None
    if control.table(table).table.match in (ir.MatchKind.TERNARY, ir.MatchKind.RANGE):
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
    lines = []
    for table in control.program.tables:
        keys = ", ".join(f"{each.name}({each.match.value}, {each.width})" for each in table.keys)
        lines.append(f"{table.name} [{keys}] {table.max_size}")
    return "\n".join(lines)


# ── Registers and counters ──


@command("register_read", "REGISTER [INDEX]", 1, 2)
def _register_read(control: ControlPlane, words: Arguments) -> str:
    if len(words) == 1:
        array, cells = control.register(words[0])
        values = (cell_value(cells, index) for index in range(array.size))
        return f"{words[0]}= " + ", ".join(map(str, values))
    index = integer(words[1], "the index")
    return f"{words[0]}[{index}]= {control.register_read(words[0], index)}"


@command("register_write", "REGISTER INDEX VALUE", 3, 3)
def _register_write(control: ControlPlane, words: Arguments) -> str:
    index, value = integer(words[1], "the index"), integer(words[2], "the value")
    control.register_write(words[0], index, value)
    return ""


@command("register_reset", "REGISTER", 1, 1)
def _register_reset(control: ControlPlane, words: Arguments) -> str:
    control.register_reset(words[0])
    return ""


@command("counter_read", "COUNTER INDEX", 2, 2)
def _counter_read(control: ControlPlane, words: Arguments) -> str:
    index = integer(words[1], "the index")
    packets, size = control.counter_read(words[0], index)
    return f"{words[0]}[{index}]= ({size} bytes, {packets} packets)"


@command("counter_write", "COUNTER INDEX PACKETS BYTES", 4, 4)
def _counter_write(control: ControlPlane, words: Arguments) -> str:
    index, packets, size = (integer(word, "a counter") for word in words[1:])
    control.counter_write(words[0], index, packets, size)
    return ""


@command("counter_reset", "COUNTER", 1, 1)
def _counter_reset(control: ControlPlane, words: Arguments) -> str:
    control.counter_reset(words[0])
    return ""


# ── Replication ──


@command("mc_mgrp_create", "GROUP", 1, 1)
def _mc_mgrp_create(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.create_group(integer(words[0], "the group"))
    return ""


@command("mc_mgrp_destroy", "GROUP", 1, 1)
def _mc_mgrp_destroy(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.destroy_group(integer(words[0], "the group"))
    return ""


def _ports_and_lags(words: Arguments) -> tuple[list[int], list[int]]:
    split = words.index("|") if "|" in words else len(words)
    ports = [integer(word, "a port") for word in words[:split]]
    return ports, [integer(word, "a lag") for word in words[split + 1 :]]


@command("mc_node_create", "RID PORT ... [ | LAG ...]", 1, None)
def _mc_node_create(control: ControlPlane, words: Arguments) -> str:
    rid = integer(words[0], "the replication id")
    handle = control.state.replication.create_node(rid, *_ports_and_lags(words[1:]))
    return f"node was created with handle {handle}"


@command("mc_node_update", "NODE PORT ... [ | LAG ...]", 2, None)
def _mc_node_update(control: ControlPlane, words: Arguments) -> str:
    ports, lags = _ports_and_lags(words[1:])
    if lags:
        raise ControlError("link aggregation groups are not supported; name ports instead")
    control.state.replication.update_node(integer(words[0], "the node"), ports)
    return ""


@command("mc_node_associate", "GROUP NODE", 2, 2)
def _mc_node_associate(control: ControlPlane, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    control.state.replication.associate(group, node)
    return ""


@command("mc_node_dissociate", "GROUP NODE", 2, 2)
def _mc_node_dissociate(control: ControlPlane, words: Arguments) -> str:
    group, node = integer(words[0], "the group"), integer(words[1], "the node")
    control.state.replication.dissociate(group, node)
    return ""


@command("mc_node_destroy", "NODE", 1, 1)
def _mc_node_destroy(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.destroy_node(integer(words[0], "the node"))
    return ""


@command("mc_dump", "", 0, 0)
def _mc_dump(control: ControlPlane, _: Arguments) -> str:
    replication = control.state.replication
    return "\n".join(
        f"group {group}: " + ", ".join(f"port {p} rid {r}" for p, r in replication.replicas(group))
        for group in sorted(replication.groups)
    )


@command("mirroring_add", "SESSION PORT", 2, 2)
def _mirroring_add(control: ControlPlane, words: Arguments) -> str:
    session, port = integer(words[0], "the session"), integer(words[1], "the port")
    control.state.replication.set_session(session, port, None)
    return ""


@command("mirroring_add_mc", "SESSION GROUP", 2, 2)
def _mirroring_add_mc(control: ControlPlane, words: Arguments) -> str:
    session, group = integer(words[0], "the session"), integer(words[1], "the group")
    control.state.replication.set_session(session, None, group)
    return ""


@command("mirroring_delete", "SESSION", 1, 1)
def _mirroring_delete(control: ControlPlane, words: Arguments) -> str:
    control.state.replication.delete_session(integer(words[0], "the session"))
    return ""


# ── Parser value sets and hashes ──


@command("pvs_add", "VALUE_SET VALUE", 2, 2)
def _pvs_add(control: ControlPlane, words: Arguments) -> str:
    control.value_set_add(words[0], words[1])
    return ""


@command("pvs_remove", "VALUE_SET VALUE", 2, 2)
def _pvs_remove(control: ControlPlane, words: Arguments) -> str:
    control.value_set_remove(words[0], words[1])
    return ""


@command("pvs_get", "VALUE_SET", 1, 1)
def _pvs_get(control: ControlPlane, words: Arguments) -> str:
    return "\n".join(hex(value) for value in sorted(control.value_set(words[0])[1]))


@command("pvs_clear", "VALUE_SET", 1, 1)
def _pvs_clear(control: ControlPlane, words: Arguments) -> str:
    control.value_set_clear(words[0])
    return ""


_CRC_USAGE = "CALCULATION POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REMAINDER"


def _set_crc(control: ControlPlane, words: Arguments, width: int) -> str:
    polynomial, initial, final_xor = (integer(word, "a CRC parameter") for word in words[1:4])
    reflect_data, reflect_remainder = (truth(word) for word in words[4:6])
    control.set_crc(
        words[0],
        CrcParameters(width, polynomial, initial, final_xor, reflect_data, reflect_remainder),
    )
    return ""


@command("set_crc16_parameters", _CRC_USAGE, 6, 6)
def _set_crc16(control: ControlPlane, words: Arguments) -> str:
    return _set_crc(control, words, 16)


@command("set_crc32_parameters", _CRC_USAGE, 6, 6)
def _set_crc32(control: ControlPlane, words: Arguments) -> str:
    return _set_crc(control, words, 32)


@command("set_toeplitz_hash_key", "CALCULATION KEY", 2, 2)
def _set_toeplitz_key(control: ControlPlane, words: Arguments) -> str:
    try:
        key = bytes.fromhex(words[1])
    except ValueError:
        raise ControlError(f"{words[1]!r} is no key in hexadecimal digits") from None
    control.set_toeplitz_key(words[0], key)
    return ""
