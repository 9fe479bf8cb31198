"""What a service does with datagrams that come together, in compiled code and by Python."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import numpy as np
import pytest
from support.service import LOOPBACK, frames_of, joined, serving

from innet.core.errors import NetworkError
from innet.core.settings import ServiceSettings
from innet.service.server import SwitchService
from innet.transport import peers
from innet.wire import PacketLayout

LAYOUT = PacketLayout(32)
SO_NO_CHECK = 11


def words_of(datagrams):
    """The values in datagrams."""
    at = LAYOUT.values_offset - LAYOUT.header_offset
    values = np.ascontiguousarray(datagrams[:, at : at + 4 * LAYOUT.values])
    return values.view(">i4").astype(np.int64)


def answers(membership, count):
    """The values of so many results that a worker gets, in order; no more come at once."""
    transport, found = membership.transport, []
    deadline = time.monotonic() + 30
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline
        now = transport.wait(transport.now(), transport.now() + 1)
        found.append(words_of(transport.receive(now).data[:, LAYOUT.header_offset :]))
    assert not len(transport.receive(transport.now()))
    return np.concatenate(found)


@contextlib.contextmanager
def held(service):
    """The service does nothing meanwhile, so that what is sent arrives together."""
    begun, done = threading.Event(), threading.Event()

    def wait():
        begun.set()
        done.wait(30)

    service._asked.put(wait)
    service._rouse()
    assert begun.wait(30)
    yield
    done.set()


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_each_datagram_is_passed_or_counted(stack, engine):
    service = stack.enter_context(serving(engine=engine))
    pair = joined(service, stack)
    sent = [frames_of(each, seed, 10) for seed, each in enumerate(pair)]
    stranger = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    stranger.connect(service.address)
    first, second = (each.transport._link._socket for each in pair)
    with held(service):
        for row in range(10):
            first.send(sent[0][row])
            if row % 3 == 0:
                stranger.send(sent[0][row])
            if row % 4 == 1:
                stranger.send(b"of another length")
                first.send(bytes(300))
        for row in sent[1][:7]:
            second.send(row)
    expected = words_of(sent[0][:7]) + words_of(sent[1][:7])
    for each in pair:
        np.testing.assert_array_equal(answers(each, 7), expected)
    for row in sent[1][7:]:  # among nothing but whole frames, a stranger's as well
        stranger.send(row)
        second.send(row)
    for each in pair:
        answers(each, 3)
    after = service.ask(service.statistics)
    size = sent[0].shape[1]
    bytes_each_way = {"bytes_in": 20 * size, "bytes_out": 20 * size}
    assert after["packets"] == {"in": 20, "out": 20, **bytes_each_way}
    assert {name: count for name, count in after["drops"].items() if count} == {
        "unknown_sender": 7, "wrong_length": 6,
    }  # fmt: skip
    for member in after["jobs"][0]["members"]:
        assert (member["packets_in"], member["packets_out"]) == (10, 10)
        assert 0 <= member["silent_seconds"] < 60
    assert 0 < service._switch.switch.state.clock < 300e6


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("checked", [True, False])
def test_more_leaves_than_there_is_room_for(stack, monkeypatch, checked, threads):
    """A packet of the last worker becomes four, which the kernel takes together or refuses to.

    With two threads, results of slots of different threads may pass each other.
    """
    monkeypatch.setattr(peers, "_ROWS", 100)
    service = stack.enter_context(serving(jobs=1, threads=threads))
    assert len(service.ports.packets) < 300
    four = joined(service, stack, 4)
    sent = [frames_of(each, seed, 100) for seed, each in enumerate(four)]
    for each, frames in zip(four, sent, strict=True):
        if each is four[-1] and not checked:  # with which the kernel cuts no datagram
            service.ports._socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        with held(service):
            for row in frames:
                each.transport._link._socket.send(row)
    expected = sum(map(words_of, sent))
    for each in four:
        found = answers(each, 100)
        if threads > 1:
            found, expected = (x[np.lexsort(x.T)] for x in (found, expected))
        np.testing.assert_array_equal(found, expected)
    said = service.ask(service.statistics)
    assert (said["packets"]["in"], said["packets"]["out"]) == (400, 400)
    assert said["packets"]["bytes_out"] == 400 * sent[0].shape[1]
    assert said["drops"]["lost_on_departure"] == 0
    assert service.ports._outbox.segments == checked


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_a_socket_that_is_gone_is_told(engine):
    service = SwitchService(ServiceSettings(listen=LOOPBACK, values_per_packet=32, engine=engine))
    with contextlib.closing(service):
        service.ports.close()
        with pytest.raises(NetworkError, match="receiving packets failed: Bad file descriptor"):
            service._forward()


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_frames_that_come_one_by_one_do_not_wake_the_rest(stack, engine, monkeypatch):
    service = stack.enter_context(serving(engine=engine))
    pair = joined(service, stack)
    sent = [frames_of(each, seed, 20) for seed, each in enumerate(pair)]
    service.ask(lambda: None)  # what joining has left to do is done
    turns, turn = [], service._turn
    monkeypatch.setattr(service, "_turn", lambda ready: (turns.append(ready), turn(ready)))
    begun = time.monotonic()
    for rows in zip(*sent, strict=True):
        for each, row in zip(pair, rows, strict=True):
            each.transport._link._socket.send(row)
        for each in pair:
            np.testing.assert_array_equal(answers(each, 1)[0], sum(words_of(np.array(rows))))
        time.sleep(0.002)
    assert len(turns) <= 2 + (time.monotonic() - begun)
