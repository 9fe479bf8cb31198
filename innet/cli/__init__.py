"""The command line: ``innet --help``.

``main`` imports what a command needs. So an interruption is reported in one line even if it comes
during the imports, which take longest.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT, as shells count
TERMINATED = 143  # 128 + SIGTERM
_TWICE_SECONDS = 5.0  # a termination that comes so soon after another is the same one
_LAST_WORDS = {INTERRUPTED: "interrupted.", TERMINATED: "terminated."}


def main() -> None:
    """Run the command line; exit status 0 on success, 1 on a failure, 2 on wrong usage."""
    # What is imported stays, and looking for garbage in it takes a tenth of a short command.
    gc.set_threshold(100_000, 50, 100)
    with _terminated_like_interrupted() as terminations:
        status = _status()
        if status == INTERRUPTED and terminations:
            status = TERMINATED
        if status in _LAST_WORDS:
            _say(_LAST_WORDS[status])
        sys.exit(status)


class _Terminated(KeyboardInterrupt):
    """SIGTERM; with a type of its own, as CPython ends by SIGINT after a bare KeyboardInterrupt
    that comes out of exec().
    """


@contextlib.contextmanager
def _terminated_like_interrupted() -> Iterator[list[float]]:
    """SIGTERM ends a command as Ctrl-C does: open files are closed, complete results are kept.

    Yields:
        When it came; ``timeout`` for one sends it twice, to the process and to its group.
    """
    came: list[float] = []

    def terminate(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signal asks
        now = time.monotonic()
        if not came or now - came[-1] > _TWICE_SECONDS:
            came.append(now)
            raise _Terminated

    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:  # a parent may ignore it
        yield came
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _status() -> int:
    try:
        from innet.cli.app import run

        status = run()
        if sys.stdout is not None:
            sys.stdout.flush()  # here and not at exit, where a full disk could not be reported
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # a file's own trouble is a command's to explain
            raise
        _abandon_output()
        if isinstance(error, FileNotFoundError) and (advice := folder_advice()):
            _say(f"error: {error.strerror or error}.\n{advice}")
        elif error.errno is None:  # a library's own, such as one that finds its parts no more
            _say(f"error: {error}")
        elif not isinstance(error, BrokenPipeError):  # a reader that closes the pipe is no error
            from innet.core.errors import OutputError

            _say(f"error: {OutputError.of('the output', error)}")
        return 1


def folder_advice() -> str:
    """What helps where the folder that this process works in was deleted; else nothing."""
    try:
        os.getcwd()  # noqa: PTH109 - pathlib may not be there yet
    except FileNotFoundError:
        return "The folder that this was started in was deleted: go to another (cd) and try again."
    return ""


def _say(message: str) -> None:
    """One line; ``innet.cli.output`` may not be there yet."""
    print(message, file=sys.stderr)


def _abandon_output() -> None:
    """What waits in standard output's buffer goes nowhere, so that the exit does not try again."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


__all__ = ["main"]
