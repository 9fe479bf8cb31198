"""The installed simple_switch: where it is, its version, and what it was built with.

One without nanomsg lacks the options for it.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from innet.core.errors import InputError, MissingToolError

_REMEDY = (
    "Install BMv2 (https://github.com/p4lang/behavioral-model#installing-bmv2) so that "
    "simple_switch is on PATH. The built-in switch does not need it."
)

_HELP_SECONDS = 5.0


def find_simple_switch(path: str | Path | None = None) -> tuple[Path, Path | None]:
    """simple_switch and simple_switch_CLI on PATH; None for a missing CLI.

    Args:
        path: simple_switch's path; by default it is searched on PATH.

    Raises:
        MissingToolError: something is not installed; says how to install it.
    """
    names = (str(path or "simple_switch"), "simple_switch_CLI")
    switch, cli = (shutil.which(name) for name in names)
    if switch is None:
        raise MissingToolError(names[0], "running a program on BMv2", _REMEDY)
    return Path(switch), None if cli is None else Path(cli)


def version() -> str:
    """The version of the installed simple_switch, such as "1.15.5".

    Raises:
        MissingToolError: there is none.
        InputError: it cannot be run.
    """
    switch, _ = find_simple_switch()
    try:
        result = subprocess.run(  # noqa: S603 - the user's own tool, no shell
            [switch, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "unknown"
    except OSError as error:  # for example because it was built for another processor
        raise InputError(f"{switch} cannot be run: {error.strerror or error}.") from error
    return result.stdout.strip().splitlines()[-1] if result.stdout.strip() else "unknown"


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
