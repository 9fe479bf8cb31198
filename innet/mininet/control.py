"""What innet has the switches of a network do by commands, both kinds of switch alike.

Whoever runs a network controls its switches. So it lets the next epoch of a job in, and reads
tables and registers to say who is missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from innet.bmv2.simple_switch import MAX_READ
from innet.core.errors import ControlError
from innet.service.coordinator import JobCoordinator
from innet.service.protocol import Message
from innet.switch import load_text
from innet.switch.control.values import Names
from innet.topology import Plan, aggregation_of

Command = Callable[[str, str], str]
"""(name of a switch, a command in the words of simple_switch_CLI) -> what it answers."""

_ENTRY = re.compile(r"(\d+): (.*?) ?=> (.*) priority (\d+)")


class NetworkSwitches:
    """The switches of a network as a job's coordinator controls them.

    Args:
        plan: of the job's first epoch, which the switches have been started with.
        command: runs a command on a switch.
        on_epoch: called with the plan of each epoch before its workers are told.

    Attributes:
        plan: of the present epoch.
    """

    def __init__(
        self, plan: Plan, command: Command, on_epoch: Callable[[Plan], None] = lambda _: None
    ) -> None:
        self.plan = plan
        self._command = command
        self._on_epoch = on_epoch

    def begin_epoch(self, job: JobCoordinator) -> Message:
        """See ``Switches``.

        Raises:
            InputError: nobody is left.
            ControlError: a switch refused a command.
            NetworkError: a switch is not running.
        """
        self.plan, commands = aggregation_of(self.plan.aggregation).next_epoch(
            self.plan, job.absent, self._entries
        )
        for switch, lines in commands.items():
            for line in lines:
                self._command(switch, line)
        self._on_epoch(self.plan)
        return {"epoch": self.plan.job.epoch, "absent": sorted(job.absent)}

    def end_job(self, job: JobCoordinator) -> None:
        """See ``Switches``; the network ends with its job."""

    def _entries(self, switch: str, table: str) -> list[int]:
        """Handles of this job's entries; other jobs have theirs in the same table."""
        column = _job_column(self.plan, switch, table)
        found = entries(self._command(switch, f"table_dump {table}"))
        return [each.handle for each in found if int(each.key[column], 0) == self.plan.job.number]


def _job_column(plan: Plan, switch: str, table: str) -> int:
    """Which key of a table is the job's number."""
    planned = next(each for each in plan.switches if each.name == switch)
    tables = load_text(planned.program.text()).tables
    found = Names("table", tables)[table]
    return [key.name for key in found.keys].index("hdr.innet.job")


class Entry(NamedTuple):
    """An entry of a table, in the words of the switch.

    Attributes:
        handle: by which it is changed or deleted.
        key: a word for each of the table's keys, in their order.
        action: with its arguments.
        priority: of ternary and range tables.
    """

    handle: int
    key: tuple[str, ...]
    action: str
    priority: str


def entries(dump: str) -> Iterator[Entry]:
    """The entries of a table, but for its default, in what ``table_dump`` answers."""
    for found in map(_ENTRY.fullmatch, dump.splitlines()):
        if found is not None:
            handle, key, action, priority = found.groups()
            yield Entry(int(handle), tuple(key.split()), action, priority)


def read_register(switch: Any, register: str, index: int) -> int:
    """One cell of a register of a running switch.

    Raises:
        ControlError: no such register or cell, or one that cannot be read.
        NetworkError: the switch is not running.
    """
    answer = switch.command(f"register_read {register} {index}")
    found = re.search(r"=\s*(\d+)", answer)
    if found is None:
        raise ControlError(f"{switch.name} did not answer register_read {register}: {answer}")
    return exact_value(int(found[1]), f"{register}[{index}] of {switch.name}")


def read_registers(switch: Any, register: str) -> list[int]:
    """A whole register array.

    Raises:
        ControlError: there is no such register.
        NetworkError: the switch is not running.
    """
    answer = switch.command(f"register_read {register}")
    _, equals, values = answer.rpartition("= ")
    if not equals:
        raise ControlError(f"{switch.name} did not answer register_read {register}: {answer}")
    return [int(value) for value in values.replace(",", " ").split()]


def exact_value(value: int, what: str) -> int:
    """What a cell holds, unless simple_switch cannot say it.

    Raises:
        ControlError: it is the largest number that simple_switch names, for any that is larger.
    """
    if value == MAX_READ:
        raise ControlError(f"simple_switch cannot say what {what} holds: more than 63 bits.")
    return value
