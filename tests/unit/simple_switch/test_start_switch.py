"""Sockets that are open before the switch's program is loaded."""

from __future__ import annotations

import socket

import pytest

from innet.simple_switch.open_sockets import open_sockets


def test_the_port_listens():
    opened = open_sockets(["--thrift-port", "0", "program.json", "--", "--enable-swap"])
    with opened.listener:
        with socket.create_connection(("127.0.0.1", opened.listener.getsockname()[1])):
            pass
        assert opened.interfaces == {}


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--json-version"],
        ["--use-files", "0", "-i", "1@a"],
        ["--thrift-port"],
        ["--thrift-port", "70000"],
        ["-i", "veth1"],
        ["-i", "1@no-such-one"],
    ],
)
def test_what_the_program_refuses_or_does_not_need_opens_nothing(words):
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert (
        open_sockets(
            [*(words if "--thrift-port" in words else [*words, "--thrift-port", str(free)])]
        )
        is None
    )
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", free)) != 0
