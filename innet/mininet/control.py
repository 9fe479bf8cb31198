"""Control of a network's switches by commands, the same for both kinds of switch.

The process that runs the network controls its switches. It admits the next epoch of a job, and
reads tables and registers to name missing workers.
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
"""(name of a switch, a command of simple_switch_CLI) -> its output."""

_ENTRY = re.compile(r"(\d+): (.*?) ?=> (.*) priority (\d+)")


class NetworkSwitches:
    """Control of a network's switches for the coordinator of a job.

    Args:
        plan: of the job's first epoch, with which the switches were started.
        command: runs a command on a switch.
        on_epoch: called with the plan of each epoch before the workers get it.

    Attributes:
        plan: of the current epoch.
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
            InputError: no worker is left.
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

    def late_workers(self, job: JobCoordinator) -> frozenset[int]:
        """See ``Switches``.

        Raises:
            ControlError: a register cannot be read.
            NetworkError: a switch is not running.
        """
        del job  # this one
        return aggregation_of(self.plan.aggregation).late_workers(self.plan, self._cells)

    def end_job(self, job: JobCoordinator) -> None:
        """See ``Switches``; the network ends with its job."""

    def _cells(self, switch: str, register: str) -> list[int]:
        return cells(self._command(switch, f"register_read {register}"), switch, register)

    def _entries(self, switch: str, table: str) -> list[int]:
        """Handles of this job's entries. The same table has entries of other jobs."""
        column = _job_column(self.plan, switch, table)
        found = entries(self._command(switch, f"table_dump {table}"))
        return [each.handle for each in found if int(each.key[column], 0) == self.plan.job.number]


def _job_column(plan: Plan, switch: str, table: str) -> int:
    """The position of the job's number among the keys of a table."""
    planned = next(each for each in plan.switches if each.name == switch)
    tables = load_text(planned.program.text()).tables
    found = Names("table", tables)[table]
    return [key.name for key in found.keys].index("hdr.innet.job")


class PrintedEntry(NamedTuple):
    """An entry of a table, as the switch prints it.

    Attributes:
        handle: to change or delete it.
        key: one text for each of the table's keys, in order.
        action: with its arguments.
        priority: of ternary and range tables.
    """

    handle: int
    key: tuple[str, ...]
    action: str
    priority: str


def entries(dump: str) -> Iterator[PrintedEntry]:
    """The entries in the output of ``table_dump``, without the default entry."""
    for found in map(_ENTRY.fullmatch, dump.splitlines()):
        if found is not None:
            handle, key, action, priority = found.groups()
            yield PrintedEntry(int(handle), tuple(key.split()), action, priority)


def read_register(switch: Any, register: str, index: int) -> int:
    """One cell of a register of a running switch.

    Raises:
        ControlError: no such register or cell, or it cannot be read.
        NetworkError: the switch is not running.
    """
    answer = switch.command(f"register_read {register} {index}")
    found = re.search(r"=\s*(\d+)", answer)
    if found is None:
        raise ControlError(f"{switch.name} did not answer register_read {register}: {answer}")
    return exact_value(int(found[1]), f"{register}[{index}] of {switch.name}")


def cells(answer: str, switch: str, register: str) -> list[int]:
    """The values in the output of ``register_read`` for a whole register array.

    Raises:
        ControlError: there is no such register.
    """
    _, equals, values = answer.rpartition("= ")
    if not equals:
        raise ControlError(f"{switch} did not answer register_read {register}: {answer}")
    return [int(value) for value in values.replace(",", " ").split()]


def read_registers(switch: Any, register: str) -> list[int]:
    """A whole register array.

    Raises:
        ControlError: there is no such register.
        NetworkError: the switch is not running.
    """
    return cells(switch.command(f"register_read {register}"), switch.name, register)


def exact_value(value: int, what: str) -> int:
    """The value of a cell.

    Raises:
        ControlError: it is the largest number that simple_switch prints, also for all larger
            values.
    """
    if value == MAX_READ:
        raise ControlError(f"simple_switch cannot print {what}: its value has more than 63 bits.")
    return value
