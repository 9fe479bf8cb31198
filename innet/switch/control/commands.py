"""The command language of simple_switch_CLI, for any ``ControlPlane``.

A line has one command, and its output is returned. A command is a line of ``_METHODS`` if it is a
method of ``ControlPlane`` with the same name, else a function with ``@command``. Both state the
command's arguments by its ``usage``. Unlike in simple_switch_CLI, values that are too wide and
additional parameters are refused rather than truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from innet.core.errors import ControlError, InputError, UnknownNameError
from innet.core.numbers import not_an_int
from innet.switch import ir
from innet.switch.control.control_plane import ControlPlane, InstalledEntry
from innet.switch.ir.text import match_text
from innet.switch.state.hashes import CrcParameters
from innet.switch.state.meters import MeterRate
from innet.switch.state.tables import ProfileRef, Target, is_ordered

Words = list[str]
Convert = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        usage: its arguments: ``[X]`` is optional, ``X ...`` may be repeated.
        help: a sentence on what it does.
        handler: called with the control plane, the arguments before the repeated one, and a list of
            all others; returns the output, or None.
        least, most: number of arguments; ``most`` is None for any number.
        converters: by position, for arguments that are not text.
        converter: for each argument in the list.
    """

    name: str
    usage: str
    help: str
    handler: Callable[..., str | None]
    least: int
    most: int | None
    converters: tuple[Convert | None, ...]
    converter: Convert | None

    def run(self, control: ControlPlane, words: Words) -> str:
        """Its output for these arguments."""
        if len(words) < self.least or (self.most is not None and len(words) > self.most):
            raise ControlError(f"usage: {self.name} {self.usage}".rstrip())
        arguments: list[Any] = [
            word if convert is None else convert(word)
            for word, convert in zip(words, self.converters, strict=False)
        ]
        if self.most is None:
            rest = words[len(self.converters) :]
            convert = self.converter
            arguments.append(rest if convert is None else [convert(word) for word in rest])
        return self.handler(control, *arguments) or ""


COMMANDS: dict[str, Command] = {}
"""The commands by name."""


def run(control: ControlPlane, line: str) -> str:
    """Run one command; an empty line or a comment does nothing.

    A comment begins with a word that begins with #; inside a name # is an ordinary character.

    Raises:
        InputError: it is not a string.
        ControlError: it was refused, and nothing was changed.
    """
    if not isinstance(line, str):
        raise InputError(f"a command is a line of text, not {type(line).__name__}")
    words = list(takewhile(lambda word: not word.startswith("#"), line.split()))
    if not words:
        return ""
    return _find(control, words.pop(0)).run(control, words)


def _find(control: ControlPlane, name: str) -> Command:
    found = COMMANDS.get(name)
    if found is None:
        reason = control.unavailable.get(name)
        known = [*COMMANDS, *control.unavailable]
        raise ControlError(reason or str(UnknownNameError("command", name, known)))
    return found


def run_all(control: ControlPlane, text: str) -> str:
    """Run the lines of a text in order, up to the first refused one.

    Raises:
        InputError: it is not a string.
        ControlError: a command was refused; names the line. Earlier lines stay in effect.
    """
    if not isinstance(text, str):
        raise InputError(f"commands are text, one on each line, not {type(text).__name__}")
    printed = []
    for position, line in enumerate(text.splitlines(), 1):
        try:
            printed.append(run(control, line))
        except ControlError as error:
            raise ControlError(f"line {position}: {line.strip()}: {error}") from error
    return "\n".join(each for each in printed if each)


# ── Arguments ──


def _integer(text: str, what: str) -> int:
    """A number of any size: decimal, 0x..., 0b..."""
    try:
        return int(text, 0)
    except ValueError:
        raise not_an_int(text, what, ControlError) from None


def _integer_for(what: str) -> Convert:
    return lambda text: _integer(text, what)


def _boolean(text: str) -> bool:
    """A truth value: true, false, or a number that is nonzero or 0."""
    if text.lower() in ("1", "true", "yes"):
        return True
    if text.lower() in ("0", "false", "no"):
        return False
    raise ControlError(f"{text!r} is neither true nor false")


def _rate(text: str) -> MeterRate:
    """A meter's rate, written RATE:BURST."""
    per_microsecond, separator, burst = text.partition(":")
    try:
        if separator:
            return MeterRate(float(per_microsecond), int(burst))
    except ValueError:
        pass
    raise ControlError(f"{text!r} is no RATE:BURST, such as 0.5:100, with the rate per microsecond")


_CONVERTERS: dict[str, Convert] = {
    "INDEX": _integer_for("the index"),
    "HANDLE": _integer_for("the handle"),
    "MEMBER": _integer_for("the member"),
    "GROUP": _integer_for("the group"),
    "NODE": _integer_for("the node"),
    "RID": _integer_for("the replication id"),
    "PORT": _integer_for("the port"),
    "LAG": _integer_for("the lag"),
    "SESSION": _integer_for("the session"),
    "VALUE": _integer_for("the value"),
    "PACKETS": _integer_for("the number of packets"),
    "BYTES": _integer_for("the number of bytes"),
    "NB_PKTS": _integer_for("the number of packets"),
    "RATE_PPS": _integer_for("the rate"),
    "EGRESS_PORT": _integer_for("the port"),
    "PRIORITY": _integer_for("the priority"),
    "MILLISECONDS": _integer_for("the timeout"),
    "POLYNOMIAL": _integer_for("a CRC parameter"),
    "INITIAL": _integer_for("a CRC parameter"),
    "FINAL_XOR": _integer_for("a CRC parameter"),
    "REFLECT_DATA": _boolean,
    "REFLECT_REMAINDER": _boolean,
    "RATE:BURST": _rate,
}
"""Converters by the argument's name in ``Command.usage``; other arguments are text."""


def _register(
    name: str, usage: str, description: str | None, handler: Callable[..., str | None]
) -> None:
    """Add a command to ``COMMANDS``; ``Command.run`` checks arguments against its usage."""
    words = usage.replace("[", " [ ").replace("]", " ] ").split()
    names = [word for word in words if word not in ("[", "]", "...")]
    # The minimum is the arguments outside brackets. The handler itself checks =>.
    depth = least = 0
    for word in words:
        depth += (word == "[") - (word == "]")
        least += not depth and word not in ("]", "...", "=>")
    # The repeated argument and all after it are one list.
    many = words.index("...") if "..." in words else None
    fixed = names if many is None else [each for each in words[: many - 1] if each not in "[]"]
    mixed = (
        "=>" in names or "|" in names
    )  # the list has several parts, and the handler converts them
    COMMANDS[name] = Command(
        name,
        usage,
        (description or "").strip().partition("\n")[0],
        handler,
        least,
        None if many is not None else len(names),
        tuple(_CONVERTERS.get(each) for each in fixed),
        None if many is None or mixed else _CONVERTERS.get(words[many - 1]),
    )


def command(name: str, usage: str) -> Callable[[Callable[..., str | None]], None]:
    """Register a function as a command."""

    def register(handler: Callable[..., str | None]) -> None:
        _register(name, usage, handler.__doc__, handler)

    return register


def _without_arrow(words: Words) -> Words:
    """simple_switch_CLI accepts => before parameters if nothing is before it."""
    return words[1:] if words[:1] == ["=>"] else words


def _method(name: str, answer: str) -> Callable[..., str | None]:
    """A command that is a method of the control plane."""

    def handler(control: ControlPlane, *arguments: Any) -> str:
        if arguments and isinstance(arguments[-1], list):
            arguments = (*arguments[:-1], _without_arrow(arguments[-1]))
        return answer.format(getattr(control, name)(*arguments))

    return handler


_METHODS = (
    # command, its arguments, what it prints
    ("table_set_default", "TABLE ACTION [PARAMETER ...]", ""),
    ("table_reset_default", "TABLE", ""),
    ("table_modify", "TABLE ACTION HANDLE [PARAMETER ...]", ""),
    ("table_delete", "TABLE HANDLE", ""),
    ("table_clear", "TABLE", ""),
    ("table_num_entries", "TABLE", "{}"),
    ("table_set_timeout", "TABLE HANDLE MILLISECONDS", ""),
    ("table_indirect_delete", "TABLE HANDLE", ""),
    ("table_indirect_set_default", "TABLE MEMBER", ""),
    ("table_indirect_set_default_with_group", "TABLE GROUP", ""),
    ("table_indirect_reset_default", "TABLE", ""),
    (
        "act_prof_create_member",
        "PROFILE ACTION [PARAMETER ...]",
        "Member has been created with handle {}",
    ),
    ("act_prof_modify_member", "PROFILE ACTION MEMBER [PARAMETER ...]", ""),
    ("act_prof_delete_member", "PROFILE MEMBER", ""),
    ("act_prof_create_group", "PROFILE", "Group has been created with handle {}"),
    ("act_prof_delete_group", "PROFILE GROUP", ""),
    ("act_prof_add_member_to_group", "PROFILE MEMBER GROUP", ""),
    ("act_prof_remove_member_from_group", "PROFILE MEMBER GROUP", ""),
    ("register_write", "REGISTER INDEX VALUE", ""),
    ("register_reset", "REGISTER", ""),
    ("counter_write", "COUNTER INDEX PACKETS BYTES", ""),
    ("counter_reset", "COUNTER", ""),
    ("meter_set_rates", "METER INDEX RATE:BURST ...", ""),
    ("meter_array_set_rates", "METER RATE:BURST ...", ""),
    ("mc_mgrp_create", "GROUP", ""),
    ("mc_mgrp_destroy", "GROUP", ""),
    ("mc_node_associate", "GROUP NODE", ""),
    ("mc_node_dissociate", "GROUP NODE", ""),
    ("mc_node_destroy", "NODE", ""),
    ("mc_set_lag_membership", "LAG PORT ...", ""),
    ("mirroring_delete", "SESSION", ""),
    ("set_queue_depth", "NB_PKTS [EGRESS_PORT [PRIORITY]]", ""),
    ("set_queue_rate", "RATE_PPS [EGRESS_PORT [PRIORITY]]", ""),
    ("get_time_elapsed", "", "{}"),
    ("get_time_since_epoch", "", "{}"),
    ("switch_info", "", "{}"),
    ("show_ports", "", "{}"),
    ("reset_state", "", ""),
)
for _name, _usage, _answer in _METHODS:
    _register(_name, _usage, getattr(ControlPlane, _name).__doc__, _method(_name, _answer))


@command("help", "[COMMAND]")
def _help(control: ControlPlane, name: str | None = None) -> str:
    """List the commands, or describe one."""
    if name is None:
        return "\n".join(f"{each.name} {each.usage}".rstrip() for each in COMMANDS.values())
    found = _find(control, name)
    return f"{name} {found.usage}".rstrip() + f"\n  {found.help}"


# ── Tables ──


def _take_priority(control: ControlPlane, table: str, words: Words) -> int | None:
    """Remove and return the last of ``words``, if entries of the table have priorities."""
    if not is_ordered(control.table(table)):
        return None
    if not words:
        raise ControlError("expected the priority, which comes last")
    return _integer(words.pop(), "the priority, which comes last")


@command("table_add", "TABLE ACTION KEY ... => [PARAMETER ...] [PRIORITY]")
def _table_add(control: ControlPlane, table: str, action: str, words: Words) -> str:
    """Add an entry."""
    priority = _take_priority(control, table, words)
    if "=>" not in words:
        raise ControlError("expected => between the key fields and the action's parameters")
    split = words.index("=>")
    handle = control.table_add(table, action, words[:split], words[split + 1 :], priority)
    return f"Entry has been added with handle {handle}"


def _indirect_entry(
    control: ControlPlane, table: str, words: Words
) -> tuple[str, Words, int, int | None]:
    """Table, key, member or group, and priority of an entry of a table with an action profile."""
    control.profile_of_table(table)
    priority = _take_priority(control, table, words)
    if len(words) < 2 or words[-2] != "=>":
        raise ControlError("expected => and one handle after the key fields")
    return table, words[:-2], _integer(words[-1], "the handle"), priority


@command("table_indirect_add", "TABLE KEY ... => MEMBER [PRIORITY]")
def _table_indirect_add(control: ControlPlane, table: str, words: Words) -> str:
    """Add an entry that runs a member of the table's action profile."""
    handle = control.table_indirect_add(*_indirect_entry(control, table, words))
    return f"Entry has been added with handle {handle}"


@command("table_indirect_add_with_group", "TABLE KEY ... => GROUP [PRIORITY]")
def _table_indirect_add_with_group(control: ControlPlane, table: str, words: Words) -> str:
    """Add an entry that runs one member of a group of the table's action profile."""
    handle = control.table_indirect_add_with_group(*_indirect_entry(control, table, words))
    return f"Entry has been added with handle {handle}"


@command("table_dump", "TABLE")
def _table_dump(control: ControlPlane, table: str) -> str:
    """Show the entries and the default of a table."""
    lines = [_describe(entry, control.program) for entry in control.table_entries(table)]
    default = control.table_default(table)
    if default is not None:
        lines.append(f"default: {_describe_target(default, control.program)}".rstrip())
    return "\n".join(lines)


@command("table_dump_entry", "TABLE HANDLE")
def _table_dump_entry(control: ControlPlane, table: str, handle: int) -> str:
    """Show the entry of a handle."""
    return _describe(control.table_entry(table, handle), control.program)


@command("table_dump_entry_from_key", "TABLE KEY ... [PRIORITY]")
def _table_dump_entry_from_key(control: ControlPlane, table: str, keys: Words) -> str:
    """Show the entry that was added with a key."""
    priority = _take_priority(control, table, keys)
    return _describe(control.table_find(table, keys, priority), control.program)


@command("show_tables", "")
def _show_tables(control: ControlPlane) -> str:
    """Show all tables: key fields and size."""
    return "\n".join(map(_describe_table, control.program.tables))


@command("show_actions", "")
def _show_actions(control: ControlPlane) -> str:
    """Show all actions and their parameters."""
    return "\n".join(map(_describe_action, control.program.actions))


@command("table_show_actions", "TABLE")
def _table_show_actions(control: ControlPlane, table: str) -> str:
    """Show the actions of a table."""
    actions = control.program.actions
    return "\n".join(_describe_action(actions[each]) for each in control.table(table).actions)


@command("table_info", "TABLE")
def _table_info(control: ControlPlane, table: str) -> str:
    """Show the key fields, the size and the actions of a table."""
    actions = [control.program.actions[each] for each in control.table(table).actions]
    return "\n".join([_describe_table(control.table(table)), *map(_describe_action, actions)])


def _describe_table(table: ir.Table) -> str:
    keys = ", ".join(f"{each.name}({each.match.value}, {each.width})" for each in table.keys)
    return f"{table.name} [{keys}] {table.max_size}"


def _describe_action(action: ir.Action) -> str:
    parameters = ", ".join(f"{each.name}({each.width})" for each in action.parameters)
    return f"{action.name} [{parameters}]"


def _describe(entry: InstalledEntry, program: ir.Program) -> str:
    """An entry on one line as for table_add, then a line with its age if it has one."""
    keys = " ".join(match_text(match) for match in entry.matches)
    target = _describe_target(entry.action, program)
    line = f"{entry.handle}: {keys} => {target} priority {entry.priority}"
    return line if entry.life is None else f"{line}\nLife: {entry.life}"


def _describe_target(target: Target, program: ir.Program) -> str:
    """The target of an entry as for table_add."""
    if isinstance(target, ProfileRef):
        return f"{'group' if target.group else 'member'} {target.handle}"
    arguments = " ".join(hex(value) for value in target.arguments)
    return f"{program.actions[target.action].name} {arguments}"


# ── Action profiles ──


def _describe_member(control: ControlPlane, member: int, entry: ir.ActionEntry) -> str:
    return f"member {member}: {_describe_target(entry, control.program)}".rstrip()


def _describe_group(group: int, members: Sequence[int]) -> str:
    return f"group {group}: members [{', '.join(map(str, members))}]"


@command("act_prof_dump", "PROFILE")
def _dump_profile(control: ControlPlane, profile: str) -> str:
    """Show the members and groups of an action profile."""
    members = control.act_prof_members(profile).items()
    lines = [_describe_member(control, *each) for each in members]
    lines += [_describe_group(*each) for each in control.act_prof_groups(profile).items()]
    return "\n".join(lines)


@command("act_prof_dump_member", "PROFILE MEMBER")
def _dump_member(control: ControlPlane, profile: str, member: int) -> str:
    """Show what a member runs."""
    return _describe_member(control, member, control.act_prof_member(profile, member))


@command("act_prof_dump_group", "PROFILE GROUP")
def _dump_group(control: ControlPlane, profile: str, group: int) -> str:
    """Show the members of a group."""
    return _describe_group(group, control.act_prof_group(profile, group))


def _of_table(of_profile: Command) -> Callable[..., str]:
    """A command with the table as argument instead of its action profile."""

    def handler(control: ControlPlane, *arguments: Any) -> str:
        table, *rest = arguments[0] if of_profile.most is None else arguments
        return of_profile.run(control, [control.profile_of_table(table), *rest])

    return handler


# Older commands of profiles named the table, since a profile had only one.
for _old, _new in {
    "table_indirect_create_member": "act_prof_create_member",
    "table_indirect_modify_member": "act_prof_modify_member",
    "table_indirect_delete_member": "act_prof_delete_member",
    "table_indirect_create_group": "act_prof_create_group",
    "table_indirect_delete_group": "act_prof_delete_group",
    "table_indirect_add_member_to_group": "act_prof_add_member_to_group",
    "table_indirect_remove_member_from_group": "act_prof_remove_member_from_group",
    "table_dump_member": "act_prof_dump_member",
    "table_dump_group": "act_prof_dump_group",
}.items():
    _found = COMMANDS[_new]
    COMMANDS[_old] = Command(
        _old,
        _found.usage.replace("PROFILE", "TABLE"),
        f"As {_new}, of the table's action profile.",
        _of_table(_found),
        _found.least,
        _found.most,
        () if _found.most is None else (None,) * _found.most,
        None,
    )


# ── Registers, counters and meters ──


@command("register_read", "REGISTER [INDEX]")
def _register_read(control: ControlPlane, name: str, index: int | None = None) -> str:
    """Show a cell of a register array, or all."""
    if index is None:
        return f"{name}= " + ", ".join(map(str, control.register_read_all(name)))
    return f"{name}[{index}]= {control.register_read(name, index)}"


@command("counter_read", "COUNTER INDEX")
def _counter_read(control: ControlPlane, name: str, index: int) -> str:
    """Show a cell of a counter array; INDEX is an entry's handle for those of a table."""
    packets, size = control.counter_read(name, index)
    return f"{name}[{index}]= ({size} bytes, {packets} packets)"


@command("meter_get_rates", "METER INDEX")
def _meter_get_rates(control: ControlPlane, name: str, index: int) -> str:
    """Show the rates of a cell of a meter array."""
    return "\n".join(
        f"{position}: info rate = {rate.per_microsecond}, burst size = {rate.burst}"
        for position, rate in enumerate(control.meter_get_rates(name, index))
    )


# ── Multicast and mirroring ──


def _ports_and_lags(words: Words) -> tuple[list[int], list[int]]:
    split = words.index("|") if "|" in words else len(words)
    ports = [_integer(word, "a port") for word in words[:split]]
    return ports, [_integer(word, "a lag") for word in words[split + 1 :]]


@command("mc_node_create", "RID [PORT ...] [| LAG ...]")
def _mc_node_create(control: ControlPlane, rid: int, words: Words) -> str:
    """Create a node, which copies to ports and link aggregation groups."""
    return f"node was created with handle {control.mc_node_create(rid, *_ports_and_lags(words))}"


@command("mc_node_update", "NODE PORT ... [| LAG ...]")
def _mc_node_update(control: ControlPlane, node: int, words: Words) -> None:
    """Change the ports and link aggregation groups of a node."""
    control.mc_node_update(node, *_ports_and_lags(words))


@command("mc_dump", "")
def _mc_dump(control: ControlPlane) -> str:
    """Show multicast groups and link aggregation groups."""
    replication = control.replication()
    lines = [
        f"group {group}: " + ", ".join(f"port {p} rid {r}" for p, r in replication.replicas(group))
        for group in sorted(replication.groups)
    ]
    lines += [
        f"lag {lag}: ports {', '.join(map(str, ports)) or 'none'}"
        for lag, ports in sorted(replication.lags.items())
    ]
    return "\n".join(lines)


@command("mirroring_add", "SESSION PORT")
def _mirroring_add(control: ControlPlane, session: int, port: int) -> None:
    """Send clones of a session to a port."""
    control.mirroring_add(session, port)


@command("mirroring_add_mc", "SESSION GROUP")
def _mirroring_add_mc(control: ControlPlane, session: int, group: int) -> None:
    """Send clones of a session to a multicast group."""
    control.mirroring_add(session, group=group)


@command("mirroring_get", "SESSION")
def _mirroring_get(control: ControlPlane, session: int) -> str:
    """Show where clones of a session go."""
    found = control.mirroring_get(session)
    return f"port {found.port}, multicast group {found.group}"


# ── Egress queues ──


@command("queue_read", "[EGRESS_PORT [PRIORITY]]")
def _queue_read(control: ControlPlane, port: int | None = None, priority: int | None = None) -> str:
    """Show egress queues of the built-in switch; innet's own command, not simple_switch_CLI's."""
    lines = [
        f"port {each.port} priority {each.priority}: depth {each.depth}, capacity "
        f"{each.capacity}, rate {each.rate or 'unlimited'}, dropped {each.dropped}"
        for each in control.queue_read(port, priority)
    ]
    return "\n".join(lines) or "no queue was used so far, or set by its port"


# ── Parser value sets and hash parameters ──


@command("show_pvs", "")
def _show_pvs(control: ControlPlane) -> str:
    """Show all parser value sets and their widths."""
    return "\n".join(f"{each.name} {each.width} bits" for each in control.program.value_sets)


@command("pvs_add", "VALUE_SET NUMBER")
def _pvs_add(control: ControlPlane, name: str, value: str) -> None:
    """Put a value into a parser value set."""
    control.value_set_add(name, value)


@command("pvs_remove", "VALUE_SET NUMBER")
def _pvs_remove(control: ControlPlane, name: str, value: str) -> None:
    """Take a value out of a parser value set."""
    control.value_set_remove(name, value)


@command("pvs_get", "VALUE_SET")
def _pvs_get(control: ControlPlane, name: str) -> str:
    """Show the values in a parser value set."""
    return "\n".join(map(hex, sorted(control.value_set(name))))


@command("pvs_clear", "VALUE_SET")
def _pvs_clear(control: ControlPlane, name: str) -> None:
    """Take all values out of a parser value set."""
    control.value_set_clear(name)


_CRC = "CALCULATION POLYNOMIAL INITIAL FINAL_XOR REFLECT_DATA REFLECT_REMAINDER"


@command("set_crc16_parameters", _CRC)
def _set_crc16(control: ControlPlane, calculation: str, *parameters: Any) -> None:
    """Change the CRC of a calculation whose algorithm is crc16_custom."""
    control.set_crc(calculation, CrcParameters(16, *parameters))


@command("set_crc32_parameters", _CRC)
def _set_crc32(control: ControlPlane, calculation: str, *parameters: Any) -> None:
    """Change the CRC of a calculation whose algorithm is crc32_custom."""
    control.set_crc(calculation, CrcParameters(32, *parameters))


@command("set_toeplitz_hash_key", "CALCULATION KEY")
def _set_toeplitz_key(control: ControlPlane, calculation: str, key: str) -> None:
    """Change the key, in hexadecimal digits, of a calculation whose algorithm is toeplitz."""
    try:
        found = bytes.fromhex(key)
    except ValueError:
        raise ControlError(f"{key!r} is no key in hexadecimal digits") from None
    control.set_toeplitz_key(calculation, found)
