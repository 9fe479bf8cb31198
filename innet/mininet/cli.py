"""Mininet's command line, with commands that inspect running switches."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from innet.core.errors import ControlError, InnetError, UnknownNameError
from innet.mininet import inspect
from innet.mininet.debian import CLI, setLogLevel
from innet.mininet.nodes import P4Switch
from innet.reports.console import TableConsole

if TYPE_CHECKING:
    from rich.table import Table


USAGE = """innet slots SWITCH            the slots that hold a chunk, and who is in
innet registers SWITCH [NAME [INDEX]]
                              its register arrays; the cells of one that are not 0; one cell
innet tables SWITCH [NAME]    its tables; the entries of one
innet counters SWITCH         its counters that are not 0
innet who-waits               slots of any switch in which somebody is missing"""


def show(net: Any, words: Sequence[str]) -> Table:
    """The output of an ``innet`` command.

    Args:
        net: Mininet's running network.
        words: of the command, such as ["registers", "s1"].

    Raises:
        ControlError: the command does not exist, or the switch refused it.
        UnknownNameError: there is no such switch.
        InnetError: a switch is not running, or the network runs no job.
    """
    switches = {each.name: each for each in net.switches if isinstance(each, P4Switch)}
    if list(words) == ["who-waits"]:
        return inspect.who_waits(list(switches.values()), inspect.shared_plan(net.topo))
    if len(words) < 2:
        raise ControlError(f"usage:\n{USAGE}")
    what, name, *rest = words
    if name not in switches:
        raise UnknownNameError("switch", name, switches)
    switch = switches[name]
    if what == "slots" and not rest:
        return inspect.slots(switch, inspect.shared_plan(net.topo))
    if what == "registers" and len(rest) <= 2:
        index = _index(rest[1]) if len(rest) == 2 else None
        return inspect.registers(switch, rest[0] if rest else None, index)
    if what == "tables" and len(rest) <= 1:
        return inspect.tables(switch, *rest)
    if what == "counters" and not rest:
        return inspect.counters(switch)
    raise ControlError(f"usage:\n{USAGE}")


def do_switch(cli: Any, line: str) -> None:
    """Run a command of simple_switch_CLI: switch s1 register_read SlotsIngress.pool.count 0"""
    name, _, command = line.partition(" ")
    node = cli.mn.nameToNode.get(name)
    if not isinstance(node, P4Switch) or not command.strip():
        known = ", ".join(each.name for each in cli.mn.switches)
        print(f"usage: switch NAME COMMAND; switches are {known}")
        return
    _say(lambda: print(node.command(command.strip())))


def do_innet(cli: Any, line: str) -> None:
    """Inspect switches: innet slots s1; `innet` alone lists the commands."""
    if not line.strip():
        print(USAGE)
        return
    console = TableConsole(highlight=False, emoji=False)

    def say() -> None:
        table = show(cli.mn, shlex.split(line))
        console.print(table.title, style="bold", soft_wrap=True)
        table.title = None  # a narrow table would wrap it
        console.print(table)

    _say(say)


def extend(cli: type[Any]) -> None:
    """Add these commands to a command line of Mininet; for ``mn --custom``."""
    cli.do_switch, cli.do_innet = do_switch, do_innet


class SwitchCLI(CLI):
    """Mininet's command line with innet's commands."""

    prompt = "innet> "
    do_switch, do_innet = do_switch, do_innet

    def __init__(self, net: Any, **options: Any) -> None:
        setLogLevel("output")  # the output of Mininet's commands
        super().__init__(net, **options)


def _say(action: Callable[[], None]) -> None:
    try:
        action()
    except (InnetError, ValueError) as error:  # shlex raises ValueError for an unclosed quote
        print(f"error: {error}")


def _index(word: str) -> int:
    try:
        return int(word, 0)
    except ValueError:
        raise ControlError(f"{word!r} is no index") from None
