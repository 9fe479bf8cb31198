"""Outages as options of a command: who is cut off, from when to when."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from innet.core.errors import ConfigError
from innet.core.settings import shortened


def outages(crashes: Iterable[str], partitions: Iterable[str]) -> list[dict[str, Any]]:
    """The settings of what ``--crash`` and ``--partition`` say.

    Args:
        crashes: such as "2:0.5" (worker 2 is cut off from 0.5 s on) and "2:0.5:0.9".
        partitions: such as "0.5:0.9", of all workers.

    Raises:
        ConfigError: one that is not of that form.
    """
    found = []
    for text in crashes:
        worker, *interval = text.split(":")
        if len(interval) not in (1, 2) or not worker.isdecimal():
            raise ConfigError(
                f"--crash {shortened(text)}: write it as WORKER:BEGIN or WORKER:BEGIN:END, such as "
                "2:0.5:0.9."
            )
        found.append(_interval("--crash", text, interval) | {"workers": [int(worker)]})
    for text in partitions:
        interval = text.split(":")
        if len(interval) != 2:
            raise ConfigError(
                f"--partition {shortened(text)}: write it as BEGIN:END, such as 0.5:0.9."
            )
        found.append(_interval("--partition", text, interval))
    return found


def _interval(option: str, text: str, words: list[str]) -> dict[str, Any]:
    try:
        return dict(zip(("begin", "end"), map(float, words), strict=False))
    except ValueError:
        raise ConfigError(f"{option} {shortened(text)}: give times in seconds.") from None
