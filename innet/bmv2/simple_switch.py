"""Run packets through an installed simple_switch, the reference of the built-in switch.

simple_switch reads its packets from capture files and writes its output into others, so neither
root nor network interfaces are needed. ``run`` starts a new switch, runs commands, sends the
packets and reads registers; with ``open_session`` the caller alternates packets and commands.

Source: BMv2's docs/simple_switch.md and docs/runtime_CLI.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.bmv2.build import find_simple_switch, version
from innet.bmv2.session import Packets, Session
from innet.core.errors import ControlError

__all__ = [
    "MAX_READ",
    "RunResult",
    "find_simple_switch",
    "open_session",
    "ports_of",
    "read_register",
    "run",
    "version",
]

_NAMING_PORTS = ("mc_node_create", "mc_node_update", "mc_set_lag_membership", "mirroring_add")
"""Commands whose arguments from the second on are ports."""

MAX_READ = (1 << 63) - 1
"""Larger cells read as this: simple_switch's control plane uses signed 64-bit integers."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run of simple_switch.

    Attributes:
        packets: the output by port and in order; each input or output port has a list.
        registers: the requested ones, by name.
        seconds: between the first and the last output packet, by simple_switch's clock.
    """

    packets: dict[int, list[bytes]]
    registers: dict[str, NDArray[np.uint64]]
    seconds: float


def open_session(
    program: Mapping[str, Any],
    packets: Packets,
    ports: Iterable[int] = (),
    *,
    deadline: float = 120.0,
    path: str | Path | None = None,
    thrift: bool = False,
    priority_queues: int = 1,
) -> Session:
    """A session, to be used in a ``with`` statement; see ``Session`` and ``find_simple_switch``."""
    switch, cli = find_simple_switch(path)
    return Session(
        switch,
        cli,
        json.dumps(program),
        packets,
        ports=ports,
        deadline=deadline,
        thrift=thrift,
        priority_queues=priority_queues,
    )


def run(
    program: Mapping[str, Any],
    packets: Packets,
    commands: Iterable[str] = (),
    registers: Iterable[str] = (),
    deadline: float = 120.0,
    *,
    ports: Iterable[int] = (),
    one_by_one: bool = False,
    priority_queues: int = 1,
) -> RunResult:
    """Run ``packets`` through a new simple_switch.

    Args:
        program: p4c's JSON.
        packets: (port, bytes) in the order in which they arrive.
        commands: commands of simple_switch_CLI.
        registers: names of the register arrays to read at the end.
        deadline: seconds for the whole run.
        ports: additional output ports, besides input ports and ports in commands for multicast and
            mirroring. simple_switch drops packets to other ports, for example from an action's
            argument.
        one_by_one: send each packet after all processing of the one before it has ended. So copies
            and recirculated packets do not interleave with others, and egress registers are used in
            the order of the packets.
        priority_queues: egress queues per port.

    Raises:
        MissingToolError: simple_switch is not installed.
        ControlError: a command was refused.
        ProgramError: simple_switch refused the program.
        StalledError: the deadline passed; says what it waited for.
    """
    commands = list(commands)
    known = {port for port, _ in packets} | ports_of(commands) | set(ports)
    with open_session(
        program, packets, known, deadline=deadline, priority_queues=priority_queues
    ) as session:
        session.commands(commands)
        sent: dict[int, list[bytes]] = {}
        for burst in [1] * len(packets) if one_by_one else [len(packets)]:
            for port, left in session.play(burst).items():
                sent.setdefault(port, []).extend(left)
        values = {each: read_register(session, each) for each in registers}
        times = [seconds for sent in session.departures().values() for seconds, _ in sent]
    return RunResult(
        packets={port: sent.get(port, []) for port in sorted(known)},
        registers=values,
        seconds=max(times) - min(times) if times else 0.0,
    )


def ports_of(commands: Sequence[str]) -> set[int]:
    """Ports that multicast nodes, link aggregation groups and mirror sessions name."""
    ports: set[int] = set()
    for command in commands:
        words = command.partition("|")[0].split()
        if words and words[0] in _NAMING_PORTS:
            ports.update(int(word) for word in words[2:] if word.isdigit())
    return ports


def read_register(session: Session, name: str) -> NDArray[np.uint64]:
    """All cells of a register array; a value above ``MAX_READ`` reads as ``MAX_READ``."""
    answer = session.command(f"register_read {name}")
    match = re.search(re.escape(name) + r"=\s*([\d, ]+)", answer)
    if match is None:
        raise ControlError(f"simple_switch did not answer register_read {name}: {answer}")
    return np.array([int(value) for value in match.group(1).split(",")], np.uint64)
