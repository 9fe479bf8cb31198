"""One worker of an all-reduce, as a process on a host of the network.

    python -m innet.processes.allreduce worker0.toml
    python -m innet.processes.allreduce --set service=127.0.0.1:48879 --set workers=2 --set worker=0

The file and ``--set`` fill ``innet.processes.settings.WorkerSettings``. The workers of a job differ
only in ``worker`` and their gradients. Each all-reduce prints one line of JSON: {"report": ...}. An
error ends the process with status 1 and a message on standard error.

With --wait, another process coordinates the workers. This process first prints {"ready": true}, and
begins each all-reduce when it reads a line from standard input. It writes requests to standard
output and reads the answers, like a client of a switch service (``innet.service.protocol``):

    {"request": "renew", "epoch": 7, "without": [2]}          sums lack workers who were late
    {"plan": {"epoch": 8, "absent": [2]}, "newcomers": []}    the job's next epoch has begun
    {"request": "read", "switch": "s1", "register": ..., "index": 0}   it waited too long: for whom?
    {"value": 7}                                              or null, where it cannot be read

An error is also printed as {"error": message, "stalled": whether it waited too long}.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.warm_up import warm_up
from innet.allreduce.worker import Worker
from innet.core.errors import (
    ControlError,
    InnetError,
    MembershipError,
    NetworkError,
    StalledError,
)
from innet.core.settings import Model
from innet.processes.commandline import parsed, parser_of, say, settings_from
from innet.processes.outcomes import save
from innet.processes.session import ask, worker_session
from innet.processes.settings import WorkerSettings
from innet.reports.outputs import check_writable, save_array
from innet.scenarios import allreduce
from innet.topology import RegisterReader

Result = TypeVar("Result")


def run(settings: WorkerSettings, *, wait: bool = False) -> Iterator[dict[str, Any]]:
    """Take part in the all-reduces; yields the messages to print.

    Args:
        settings: of this worker.
        wait: yield {"ready": True} first, and wait for a line of standard input before each
            all-reduce.

    Raises:
        InnetError: a setting is invalid, or the network failed.
    """
    check_files(settings.output, settings.outcome)
    gradient = _gradient(settings)
    what = f"{settings.collective}s of {gradient.size} elements, rounds {settings.rounds}"
    with worker_session(settings, what, coordinated=wait) as session:
        worker = session.worker(settings)
        if wait:
            warm_up(settings.codec, gradient)  # compiled before the first packet, not after
            yield {"ready": True}
        for _ in range(settings.rounds):
            doing = functools.partial(allreduce.take_part, worker, settings.collective, gradient)
            total, report = take_turn(worker, doing, wait=wait, read=session.read)
            if settings.outcome is not None and worker.outcome is not None:
                save(settings.outcome, worker.outcome)
            if settings.output is not None and total is not None:
                save_array(settings.output, total)
            yield {"report": report.model_dump(mode="json")}


def check_files(*paths: Path | None) -> None:
    """Refuse output files that cannot be written, before the work begins."""
    for path in paths:
        if path is not None:
            check_writable(path)


def take_turn(
    worker: Worker,
    doing: Callable[[], Result],
    *,
    wait: bool,
    read: RegisterReader | None = None,
) -> Result:
    """One collective; with ``wait`` it first waits for a line of standard input.

    Args:
        worker: the worker that takes part.
        doing: what it does.
        wait: for a line; the process that writes it can also read registers of the switches.
        read: reads registers of the switches; None if this process cannot.

    Raises:
        EOFError: standard input ended: the process that started this one is gone.
        InnetError: of ``doing``. If it has waited too long, the error says for whom.
    """
    if wait and not sys.stdin.readline():
        raise EOFError
    try:
        return doing()
    except StalledError as error:
        if read is None and wait:
            read = _asking
        if read is None or isinstance(error, MembershipError):
            raise
        raise StalledError(_diagnosis(worker, read) or str(error)) from None


def _diagnosis(worker: Worker, read: RegisterReader) -> str | None:
    """The workers that this one waits for, if registers can be read."""
    try:
        return worker.diagnose(read)
    except (ControlError, NetworkError, StalledError):
        return None


def _asking(switch: str, register: str, index: int) -> int:
    """Request a register from the process that started this one."""
    fields = {"switch": switch, "register": register, "index": index}
    value = ask({"request": "read", **fields})["value"]
    if value is None:
        raise ControlError(f"{switch} cannot be asked for {register}.")
    return int(value)


def _gradient(settings: WorkerSettings) -> NDArray[np.float32]:
    if settings.input is not None:
        return allreduce.read([settings.input])[0]
    rng = np.random.default_rng(settings.seed)
    count = (
        settings.worker + 1
    )  # the draws are sequential: those of the workers before this one, too
    return allreduce.generate(count, settings.size, settings.density, rng)[-1]


def main_of(
    what: str,
    description: str,
    model: type[Model],
    run_one: Callable[..., Iterator[dict[str, Any]]],
    arguments: Sequence[str] | None,
) -> int:
    """Run the command line of a worker's program; its exit status.

    Args:
        what: the program's name in this package.
        description: what it does, in a sentence.
        model: the model of its settings.
        run_one: takes the settings and ``wait``; yields the messages to print.
        arguments: those of the command line.
    """
    parser = parser_of(what, description, model, "for a line before each all-reduce")
    options = parsed(parser, arguments)
    try:
        for line in run_one(settings_from(options, model), wait=options.wait):
            say(line)
    except InnetError as error:
        print(f"error: {error}", file=sys.stderr)
        if options.wait:
            stalled = isinstance(error, StalledError)
            with contextlib.suppress(EOFError, InnetError):  # the reader may be gone
                say({"error": str(error), "stalled": stalled})
        return 1
    except EOFError:
        return 0
    except KeyboardInterrupt:
        return 130
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    does = "One worker of a job: sums its gradient with the others', one or more times."
    return main_of("allreduce", does, WorkerSettings, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
