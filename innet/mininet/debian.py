"""Finds the system's Mininet. The rest of this package imports its names from here.

Mininet is a package of the distribution (Debian, Ubuntu: ``mininet``). It is installed in the
folder of the system's Python, which a virtual environment does not search. This module adds that
folder to the search path for this import only, so that nothing else is imported from it.

Raises:
    MissingToolError: on import, if Mininet is not installed; says how to install it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from innet.core.errors import MissingToolError

_FOLDERS = ("/usr/lib/python3/dist-packages", "/usr/local/lib/python3/dist-packages")


#: The folders of ifconfig and tc. They are on root's PATH, except after ``su``.
_PROGRAMS = ("/usr/sbin", "/sbin")


def _see_programs() -> None:
    """Mininet and the programs that it starts search PATH."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path += [folder for folder in _PROGRAMS if folder not in path]
    os.environ["PATH"] = os.pathsep.join(path)


@contextmanager
def _system_packages() -> Iterator[None]:
    before = list(sys.path)
    sys.path += [folder for folder in _FOLDERS if Path(folder, "mininet").is_dir()]
    try:
        yield
    finally:
        sys.path[:] = before


_see_programs()
with _system_packages():
    try:
        from mininet.cli import CLI
        from mininet.link import Link, TCIntf
        from mininet.log import error as log_error
        from mininet.log import setLogLevel
        from mininet.net import VERSION, Mininet
        from mininet.node import Host, Switch
        from mininet.topo import Topo
    except ImportError as error:
        raise MissingToolError(
            "Mininet",
            "networks of namespaces",
            f"On Debian or Ubuntu: sudo apt install mininet ({error}).",
        ) from None

__all__ = [
    "CLI",
    "VERSION",
    "Host",
    "Link",
    "Mininet",
    "Switch",
    "TCIntf",
    "Topo",
    "log_error",
    "setLogLevel",
]
