"""What a simple_switch was built with: one without nanomsg lacks the options for it."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

_HELP_SECONDS = 5.0


@functools.cache
def lacks(switch: Path, option: str) -> bool:
    """Whether a simple_switch does not know an option, such as --notifications-addr, by its help.

    False if it does not tell: whoever starts it then gets its error.
    """
    said = _help(switch)
    return bool(said) and option not in said


@functools.cache
def _help(switch: Path) -> str:
    try:
        return subprocess.run(  # noqa: S603 - the user's own tool, no shell
            [switch, "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_HELP_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def own_notifications(switch: Path, address: str) -> list[str]:
    """The options by which a simple_switch has a nanomsg address of its own for notifications.

    By default the address is the same for all switches of a device id on the machine, and
    simple_switch ends if another one has it. Without nanomsg it needs none, and refuses the option.
    """
    option = "--notifications-addr"
    return [] if lacks(switch, option) else [option, address]
