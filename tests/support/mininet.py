"""What tests that build Mininet networks share: when they can run, and what they must not leave."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import time
from pathlib import Path

import pytest

from innet.core.errors import MissingToolError
from support.bmv2 import needs_simple_switch

SECONDS = 10.0  # within which what was killed must be gone


def missing() -> str:
    """What keeps tests from building networks here; "" for nothing."""
    if os.geteuid() != 0:
        return "networks of namespaces need root"
    try:
        importlib.import_module("innet.mininet.debian")
    except MissingToolError as error:
        return str(error)
    return "" if shutil.which("mnexec") else "mnexec, a part of Mininet, is not on PATH"


needs_mininet = pytest.mark.skipif(bool(missing()), reason=missing() or "never")


NEEDS_BMV2 = [pytest.mark.bmv2, needs_simple_switch]
#: The switches that a test is about.
KINDS = ["builtin", pytest.param("bmv2", marks=NEEDS_BMV2)]
#: Those of a test about something else, which runs with one of them in the first tier.
EITHER_KIND = [
    "builtin",
    pytest.param(
        "bmv2", marks=[*NEEDS_BMV2, pytest.mark.repeats("the same with the built-in switch")]
    ),
]


#: Whoever is started from here inherits it, also where its parent is gone meanwhile.
_MARK = f"INNET_TESTS={os.getpid()}"
os.environ.update([_MARK.split("=")])


def started() -> set[int]:
    """The processes that this one has started, directly or not, wherever they belong by now."""
    found = children()
    for process in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if _MARK.encode() in process.read_bytes().split(b"\0"):
                found.add(int(process.parent.name))
    return found - {os.getpid()}


def namespaces() -> set[str]:
    """The network namespaces in which they run."""
    found = set()
    for process in started():
        with contextlib.suppress(OSError):
            found.add(str(Path(f"/proc/{process}/ns/net").readlink()))
    return found


def children(parent: int | None = None) -> set[int]:
    """The processes that descend from ``parent``, or this one."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = process.read_text()
            parents[int(process.parent.name)] = int(text[text.rindex(")") :].split()[2])
    found: set[int] = set()
    grown = {parent or os.getpid()}
    while grown:
        grown = {each for each, of in parents.items() if of in grown} - found
        found |= grown
    return found


def state() -> tuple[set[str], set[int], set[str], set[str]]:
    """Namespaces and processes that began here, interfaces, and our folders in /tmp."""
    return (
        namespaces(),
        started(),
        {each.name for each in Path("/sys/class/net").iterdir()},
        {each.name for each in Path("/tmp").glob(f"innet-net-{os.getpid()}-*")},
    )


@pytest.fixture
def nothing_left():
    """Fails a test that leaves a process, an interface, a namespace or a folder behind."""
    before = state()
    yield
    end = time.monotonic() + SECONDS
    while True:  # what was told to end may take a moment
        added = [now - then for now, then in zip(state(), before, strict=True)]
        if not any(added) or time.monotonic() > end:
            break
        time.sleep(0.05)
    assert not any(added)
