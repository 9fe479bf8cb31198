"""Sockets of a switch that are opened before the imports of its program."""

from __future__ import annotations

import argparse
import contextlib
import socket
from collections.abc import Sequence
from typing import NamedTuple

from innet.core.errors import InnetError
from innet.core.listening import listen
from innet.transport.packet_socket import open_interface

_WITHOUT_PORTS = ("-h", "--help", "-v", "--version", "--json-version", "--use-files", "--packet-in")


class OpenSockets(NamedTuple):
    """What was opened before the imports.

    Attributes:
        listener: at the control plane's port.
        interfaces: by port.
    """

    listener: socket.socket
    interfaces: dict[int, socket.socket]


def open_sockets(arguments: Sequence[str]) -> OpenSockets | None:
    """The sockets that a command line asks for.

    None if anything is wrong with it, which the program itself will say, or if it runs without
    interfaces.
    """
    if any(each.partition("=")[0] in _WITHOUT_PORTS for each in arguments):
        return None
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("-i", "--interface", action="append", default=[])
    parser.add_argument("--thrift-port", type=int, default=9090)
    with contextlib.ExitStack() as opened:
        try:
            found, _ = parser.parse_known_args([each for each in arguments if each != "--"])
            interfaces: dict[int, socket.socket] = {}
            for each in found.interface:
                port, _, name = each.partition("@")
                if int(port) in interfaces:
                    return None
                interfaces[int(port)] = opened.enter_context(open_interface(name))
            # The last, as scripts send packets once somebody listens.
            listener = opened.enter_context(socket.socket())
            listen(listener, found.thrift_port)
        except (argparse.ArgumentError, InnetError, OSError, OverflowError, ValueError):
            return None
        opened.pop_all()
        return OpenSockets(listener, interfaces)
