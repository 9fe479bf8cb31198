"""Whether tests can run programs on BMv2's simple_switch."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path

import pytest

from innet.bmv2.build import find_simple_switch, lacks
from innet.bmv2.simple_switch import open_session
from innet.core.errors import MissingToolError, ProgramError

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


def missing(*options: str) -> str:
    """What is not installed; empty if nothing is missing.

    Args:
        options: that simple_switch must have. Builds without nanomsg lack --packet-in and
            --notifications-addr.
    """
    try:
        switch, _ = find_simple_switch()
    except MissingToolError as error:
        return str(error)
    for option in ("--thrift-port", *options):
        if lacks(switch, option):
            return f"this build of simple_switch has no {option}"
    return ""


needs_simple_switch = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


def needs_options(*options: str) -> pytest.MarkDecorator:
    """As ``needs_simple_switch``, for a build with these options."""
    return pytest.mark.skipif(bool(missing(*options)), reason=missing(*options) or "never")


def checked_simple_switch() -> str | None:
    """``simple_switch_checked`` on PATH, by convention a build with assertions; None without."""
    return shutil.which("simple_switch_checked")


@functools.cache
def checks_indices() -> bool:
    """Whether simple_switch goes on after an index that is out of bounds. One that was built with
    NDEBUG, as by CMake's Release, writes outside of its memory.
    """
    document = json.loads((PROGRAMS / "fuzz_registers.json").read_text(encoding="utf-8"))
    write = [
        {"type": "register_array", "value": document["register_arrays"][0]["name"]},
        {"type": "hexstr", "value": "0x7fffffff"},
        {"type": "hexstr", "value": "0x01"},
    ]
    for action in document["actions"]:
        action["primitives"].append({"op": "register_write", "parameters": write})
    try:
        with open_session(
            document, [(0, bytes(64))], path=checked_simple_switch(), thrift=True
        ) as session:
            session.play()
    except ProgramError:
        return False
    return True


def require_checked_indices() -> None:
    """Skip a test that needs what ``checks_indices`` says."""
    if not checks_indices():
        pytest.skip("simple_switch was built with NDEBUG, so an index out of bounds crashes it")
