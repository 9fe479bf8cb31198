"""The parameter server of a job, as a process on a host of the network.

    python -m innet.processes.parameter_server server.toml

The file holds ``innet.processes.settings.ServerSettings``: the settings of the job's workers, and
for raw Ethernet the server's interface. The process prints {"ready": true} when it listens. It
serves until standard input ends (with --wait) or it is interrupted, then prints its counters. A
line {"plan": {"absent": [workers that take no part]}} on standard input begins the job's next
epoch; the server answers it by {"ready": true}. An error ends the process with status 1 and a
message on standard error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
import sys
from collections.abc import Callable, Sequence
from typing import Any

from innet.allreduce.worker import connect_host
from innet.core.errors import InnetError, InputError
from innet.network import ClockedTransport, Host, at_port
from innet.processes.commandline import parsed, parser_of, say, settings_from
from innet.processes.settings import ServerSettings
from innet.protocol.parameter_server import ParameterServer
from innet.service.protocol import decode
from innet.topology import Plan, PlannedHost, aggregation_of, next_epoch_plan

_TURN = 0.2  # seconds between two checks whether to end


def server_of(plan: Plan) -> PlannedHost:
    """The host of the job's server.

    Raises:
        InputError: the job's program has no server.
    """
    if not plan.servers:
        raise InputError(
            f"{plan.aggregation} has no parameter server; choose a program that has one: hashed."
        )
    return plan.servers[0]


def serve(end: Host, transport: ClockedTransport, told: Callable[[], str | None]) -> str:
    """Serve until ``told`` returns a line; it is called a few times a second."""
    now = transport.now()
    look = now + _TURN
    while True:
        arrived = transport.receive(now)
        if len(arrived):
            end.receive(arrived, now)
            frames = end.outgoing(now)
            if len(frames):
                transport.send(at_port(frames, 0), now)
        if now >= look:
            line = told()
            if line is not None:
                return line
            look = now + _TURN
        now = transport.wait(now, look)


def run(settings: ServerSettings, told: Callable[[], str | None]) -> dict[str, Any]:
    """Serve a job; returns the server's counters.

    Args:
        settings: of the server.
        told: returns a line that begins the next epoch, "" to end, or None.

    Raises:
        InnetError: a setting is invalid, or the network failed.
    """
    plan = settings.plan()
    host = server_of(plan)
    end = _end(plan, host)
    with connect_host(plan, host, settings.interface) as transport:
        say({"ready": True})
        while line := serve(end, transport, told):
            plan = next_epoch_plan(plan, decode(line.encode())["plan"]["absent"])
            before, end = end, _end(plan, host)
            end.counters, end.collisions = before.counters, before.collisions
            say({"ready": True})
    return {"counters": dataclasses.asdict(end.counters), "collisions": end.collisions}


def _end(plan: Plan, host: PlannedHost) -> ParameterServer:
    end = aggregation_of(plan.aggregation).server_end(plan, host)
    if not isinstance(end, ParameterServer):
        raise InputError(
            f"the parameter server of {plan.aggregation} is of type {type(end).__name__}; this "
            "process runs one that is derived from innet.protocol.parameter_server.ParameterServer."
        )
    return end


def _from_input() -> str | None:
    """A line from the process that started this one; "" if it is gone or requests the end."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return sys.stdin.readline() if readable else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    does = "The parameter server of a job, for programs that have one: hashed."
    parser = parser_of("parameter_server", does, ServerSettings, "until standard input ends")
    options = parsed(parser, arguments)
    try:
        told = _from_input if options.wait else (lambda: None)
        say(run(settings_from(options, ServerSettings), told))
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        if options.wait:
            with contextlib.suppress(EOFError, InnetError):  # the reader may be gone
                say({"error": str(error), "stalled": False})
        return 1
    except EOFError:
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
