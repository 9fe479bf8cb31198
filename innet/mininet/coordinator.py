"""Leads the workers of a job on a network to its next epoch: who takes part, and what switches do.

Whoever runs the network controls its switches, so it decides: when all who go on have asked for it,
the switches let the next epoch in and no longer the one before, and each is told who takes part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from innet.mininet.table_dump import entries
from innet.switch import load_program
from innet.switch.control.names import Names
from innet.topology import Plan, aggregation_of

Command = Callable[[str, str], str]
"""(name of a switch, a command in the words of simple_switch_CLI) -> what it answers."""


class Leader:
    """One job's. No processes and no clock.

    Args:
        plan: of the job's first epoch.
        command: tells a switch something.

    Attributes:
        plan: of the present epoch.
        asked: workers who wait for the next one.
    """

    def __init__(self, plan: Plan, command: Command) -> None:
        self.plan = plan
        self.asked: list[int] = []
        self._command = command
        self._without: set[int] = set()
        self._gone: set[int] = set()

    @property
    def present(self) -> tuple[int, ...]:
        """Workers who take part and have not gone."""
        return tuple(each for each in self.plan.job.present if each not in self._gone)

    @property
    def without(self) -> tuple[int, ...]:
        """Workers without whom the others want to go on."""
        return tuple(each for each in self.present if each in self._without)

    @property
    def awaited(self) -> tuple[int, ...]:
        """Who has to ask for the next epoch as well, so that it begins; nobody if nobody has."""
        there = {*self.asked, *self._without}
        return tuple(each for each in self.present if self.asked and each not in there)

    def ask(self, worker: int, without: Iterable[int]) -> None:
        """A worker asks for the next epoch.

        Args:
            worker: which.
            without: those that it goes on without; all who received the same name the same.
        """
        if worker not in self._without:
            self.asked.append(worker)
            self._without.update(set(without) - set(self.asked))

    def depart(self, worker: int) -> None:
        """A worker takes part no more, in whatever it was."""
        self._gone.add(worker)
        self.asked = [each for each in self.asked if each != worker]

    def begin(self) -> Plan:
        """Let the next epoch in at all switches, without those who have gone or were late.

        Raises:
            InputError: nobody is left.
            ControlError: a switch refused a command.
            NetworkError: a switch is not running.
        """
        absent = self.plan.job.absent | self._gone | self._without
        self.plan, commands = aggregation_of(self.plan.aggregation).next_epoch(
            self.plan, absent, self._entries
        )
        for switch, lines in commands.items():
            for line in lines:
                self._command(switch, line)
        self.asked = []
        self._without.clear()
        return self.plan

    def _entries(self, switch: str, table: str) -> list[int]:
        """Handles of this job's entries; other jobs have theirs in the same table."""
        column = _job_column(self.plan, switch, table)
        found = entries(self._command(switch, f"table_dump {table}"))
        return [each.handle for each in found if int(each.key[column], 0) == self.plan.job.number]


def _job_column(plan: Plan, switch: str, table: str) -> int:
    """Which key of a table is the job's number."""
    planned = next(each for each in plan.switches if each.name == switch)
    tables = load_program(planned.program.json()).tables
    whole = tables[Names("table", (each.name for each in tables)).find(table)]
    return [key.name for key in whole.keys].index("hdr.innet.job")
