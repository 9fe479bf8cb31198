"""Waits for sockets, whatever their numbers."""

from __future__ import annotations

import fcntl
import os
import resource
import socket
import time

import pytest

from innet.transport.messages import readable, writable


@pytest.fixture(params=[0, 1024], ids=["few", "many"])
def pair(request):
    """A socket with a number that is no lower, and one that it is connected to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this process may have {hard} files open")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), hard))
    one, other = socket.socketpair()
    with one, other:
        number = fcntl.fcntl(one, fcntl.F_DUPFD, request.param)
        yield number, other
        os.close(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_what_can_be_read_and_written_is_told(pair):
    number, other = pair
    assert writable(60, number) == [number]
    assert readable(0, number, other.fileno()) == []
    assert readable(-1, number) == []
    other.send(b"x")
    assert readable(1e12, number, other.fileno()) == [number]
    other.close()
    assert readable(60, number) == [number]


def test_a_wait_ends_in_time(pair):
    begun = time.monotonic()
    assert readable(0.01, pair[0]) == []
    assert time.monotonic() - begun >= 0.01


def test_what_is_closed_is_an_error(pair):
    for wait in (readable, writable):
        with pytest.raises(ValueError, match="negative"):
            wait(0, -1, pair[0])
