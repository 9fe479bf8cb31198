"""The command line: ``innet --help``.

What it takes to run a command is imported within ``main``, so that an interruption is told in one
line even if it comes during the imports, which take longest.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells count


def main() -> None:
    """Run the command line; exit status 0 on success, 1 on an innet error, 2 on wrong usage."""
    try:
        from innet.cli.app import run

        status = run()
        if sys.stdout is not None:
            sys.stdout.flush()  # here and not at exit, where a full disk could not be told
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if error.filename is not None:  # a file's own trouble is a command's to explain
            raise
        status = 1
        _abandon_output()
        if error.errno is None:  # a library's own, such as one that finds its parts no more
            _say(f"error: {error}")
        elif not isinstance(error, BrokenPipeError):  # a reader who has seen enough is no error
            _say(f"error: cannot write the output: {error.strerror or error}.")
    if status == INTERRUPTED:
        _say("interrupted.")
    sys.exit(status)


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
