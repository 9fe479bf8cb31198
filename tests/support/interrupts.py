"""Interrupting child processes, wherever the tests run."""

from __future__ import annotations

import signal


def hear_interrupts() -> None:
    """For ``preexec_fn``: shells start what runs in the background deaf to SIGINT, and so deaf are
    its children.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
