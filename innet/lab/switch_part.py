"""The student's switch, packet by packet, beside the model of it."""

from __future__ import annotations

import re

from innet.core.errors import ControlError, ProgramError
from innet.lab.findings import LabFinding
from innet.lab.history import Frames, History, listed
from innet.lab.packets import VALUES, LabChunk, fields_of, ip_of, mac_of, result
from innet.lab.reference import Due, ReferenceSwitch
from innet.lab.switch_hints import judge
from innet.switch import Switch, ir

_MADE_UP = re.compile(r"table tbl_|action [a-z_]+\d+(_\d+)?\(\)|scalars\.tmp")
"""Lines of a trace about what p4c made up, and is not in the source."""


class SwitchUnderTest:
    """The student's program on the built-in switch, or the model in its place.

    Args:
        program: the student's; None: the model alone.
        workers: how many take part, at ports 1, 2, ...
        level: 1 to 3.

    Attributes:
        seen: what came to it.

    Raises:
        ProgramError: the program has not the tables that the lab fills.
    """

    def __init__(self, program: ir.Program | None, workers: int, level: int) -> None:
        self.seen = History(workers, level)
        self._model = ReferenceSwitch(workers)
        self._switch: Switch | None = None
        if program is None:
            return
        # The interpreter: nothing is compiled, and it tells what happens to each packet.
        self._switch = Switch(program, "interpret")
        for line in commands(workers):
            try:
                self._switch.command(line)
            except ControlError as error:
                raise ProgramError(
                    f"the lab's control plane cannot run {line!r}: {error} Keep the tables job and "
                    "addresses, their keys and actions, and apply both."
                ) from None

    def take(
        self, exercise: str, worker: int, frame: bytes, chunk: LabChunk | None
    ) -> tuple[Frames, LabFinding | None]:
        """A packet comes.

        Args:
            exercise: what it is about, for the finding.
            worker: at whose port.
            frame: its bytes.
            chunk: what it has; None: it is not of the lab.

        Returns:
            what leaves, by port, and what is wrong with it.
        """
        seen, due = self.seen, self._model.take(chunk)
        came: dict[int, list[bytes]] = {}
        trace: list[str] = []
        if self._switch is None:
            came = _frames_due(due, seen.level)
        else:
            events = self._switch.trace(worker + 1, frame)
            trace = [line for line in map(str, events) if not _MADE_UP.match(line)]
            for event in events:
                if event.kind == "sent":
                    came.setdefault(event["port"], []).append(event["data"])
        if due.why == "result" and due.chunk is not None:
            seen.results[due.chunk.number] = due.chunk
        packet = f"of worker {worker}, at port {worker + 1}: {told(chunk)}"
        finding = None
        judged = judge(seen, worker, chunk, due, came)
        if judged is not None:
            mistake, hint, wrong, culprit = judged
            finding = LabFinding(
                seen.level,
                "switch",
                exercise,
                mistake,
                hint,
                packet,
                fields_of(frame),
                _ports(due) + (" or nothing" if due.optional else ""),
                _came(came),
                wrong,
                seen.told_of(None if chunk is None else chunk.slot),
                trace if culprit is None else seen.traces[culprit],
                "" if culprit is None else seen.before[culprit],
            )
        seen.chunks.append(chunk)
        seen.traces.append(trace)
        seen.before.append(f"{packet} → {_came(came)}")
        return came, finding


def commands(workers: int) -> list[str]:
    """What the lab's control plane does at the student's switch."""
    everyone = range(workers)
    return [
        f"table_set_default job set_workers {workers}",
        "mc_mgrp_create 1",
        f"mc_node_create 0 {' '.join(str(worker + 1) for worker in everyone)}",
        "mc_node_associate 1 0",
        *(
            f"table_add addresses set_addresses {worker + 1} => {mac_of(worker)} {ip_of(worker)}"
            for worker in everyone
        ),
    ]


def told(chunk: LabChunk | None) -> str:
    """A chunk in a line."""
    if chunk is None:
        return "no packet of the lab"
    values = " ".join(map(str, chunk.values))
    return f"slot {chunk.slot}, version {chunk.version}, offset {chunk.offset}, values {values}"


def _frames_due(due: Due, level: int) -> dict[int, list[bytes]]:
    if due.chunk is None:
        return {}
    return {worker + 1: [result(due.chunk, level, worker)] for worker in due.workers}


def _ports(due: Due) -> str:
    if due.chunk is None:
        return "nothing"
    values = " ".join(map(str, due.chunk.values))
    return f"{values} at {listed('port', [worker + 1 for worker in due.workers])}"


def _came(came: Frames) -> str:
    found: dict[str, list[int]] = {}
    for port, frames in came.items():
        for frame in frames:
            fields = fields_of(frame)
            values = " ".join(str(fields.get(f"values.v{n}", "-")) for n in range(VALUES))
            found.setdefault(values, []).append(port)
    return (
        "; ".join(f"{values} at {listed('port', at)}" for values, at in found.items()) or "nothing"
    )


__all__ = ["SwitchUnderTest", "commands", "told"]
