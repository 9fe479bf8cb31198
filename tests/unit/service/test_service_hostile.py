"""Noise and attacks on both ports of a service, while a job runs there."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import socket
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repeating import Repeating
from support.service import (
    all_reduce,
    frames_of,
    joined,
    make_workers,
    serving,
)
from support.tiers import examples

import innet
from innet.service import protocol
from innet.service.statistics import DROP_REASONS
from innet.wire import HEADER

ROUNDS = 6


def mangled(frames, rng):
    """Each with a few wrong bytes; none of them as it was."""
    frames = frames.copy()
    rows = np.arange(len(frames))
    for _ in range(3):
        frames[rows, rng.integers(0, frames.shape[1], len(frames))] ^= rng.integers(
            1, 256, len(frames), np.uint8
        )
    return frames


def noise(rng, count=200):
    return [rng.bytes(int(rng.integers(0, 1500))) for _ in range(count)]


def by_reason(service):
    return service.ask(service.statistics)["drops"]


class Attack(Repeating):
    """Calls a function again and again while the context is open."""

    def __init__(self, function):
        super().__init__()
        self.step = function


def undisturbed(service, stack, attack):
    """Sums of a job under ``attack(memberships)``, which gives a function to call again and again;
    what was dropped meanwhile, by reason.
    """
    pair = joined(service, stack)
    before = by_reason(service)
    reference = innet.Collective(workers=2, codec="lhc", values_per_packet=32, engine="jit", seed=3)
    ends = make_workers(pair, "lhc")
    rng = np.random.default_rng(5)
    with Attack(attack(pair)):
        for _ in range(ROUNDS):
            x = [rng.laplace(size=2000).astype(np.float32) for _ in range(2)]
            expected, _ = reference.all_reduce(x)
            for total, report in all_reduce(ends, x):
                np.testing.assert_array_equal(total, expected)
                assert report.workers == 2
    after = by_reason(service)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_strangers_do_nothing_and_are_counted(service, stack):
    sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sock.connect(service.address)
    rng = np.random.default_rng(1)
    sent = []

    def attack(pair):
        frames = frames_of(pair[0], 7)

        def once():
            datagrams = [*noise(rng, 50), *map(bytes, frames), *map(bytes, mangled(frames, rng))]
            datagrams.append(protocol.HELLO + rng.bytes(protocol.TOKEN))
            for each in datagrams:
                sock.send(each)
                sent.append(each)
            time.sleep(0.01)

        return once

    dropped = undisturbed(service, stack, attack)
    size = HEADER.itemsize + 4 * 32
    fitting = sum(len(each) == size for each in sent)
    assert fitting > 0
    lost = dropped.pop("lost_on_arrival", 0)
    assert set(dropped) <= {"unknown_sender", "wrong_length"}
    assert dropped["unknown_sender"] <= fitting
    assert sum(dropped.values()) + lost == len(sent)


def test_a_workers_own_address_does_nothing_with_wrong_packets(service, stack):
    """Whole frames of other jobs, epochs and workers, and damaged ones."""
    rng = np.random.default_rng(2)
    sent = collections.Counter()

    def attack(pair):
        sock = pair[0].transport._link._socket  # what comes from here is from an admitted address
        job = pair[0].plan.job
        strangers = [
            frames_of(pair[0], 8, worker=1),
            frames_of(pair[0], 8, job=job.number % 0xFFFF + 1),
            frames_of(pair[0], 8, epoch=(job.epoch + 1) % 0x10000),
            frames_of(pair[0], 8, epoch=(job.epoch - 1) % 0x10000),
        ]

        def once():
            for frames in strangers:
                for row in map(bytes, frames):
                    sent["not_admitted"] += sock.send(row) > 0
            for row in map(bytes, mangled(strangers[0], rng)):
                sent["checksum"] += sock.send(row) > 0
            time.sleep(0.01)

        return once

    dropped = undisturbed(service, stack, attack)
    assert sent["not_admitted"] > 0
    assert dropped.pop("lost_on_arrival", 0) == 0
    assert set(dropped) <= set(DROP_REASONS)
    assert dropped["not_admitted"] >= sent["not_admitted"]
    # One in some ten thousand damaged frames has a right checksum; then other checks see it.
    assert sum(dropped.values()) == sent.total()


def test_packets_sent_again_do_nothing(stack, monkeypatch):
    """All that a worker has sent so far, at random, by the worker's own address."""
    # Compiled code would send without showing what.
    monkeypatch.setattr("innet.allreduce.worker.socket_loop", lambda *_: None)
    service = stack.enter_context(
        serving(jobs=100, workers_max=2)
    )  # 8 slots each, so packets are soon stale
    rng = np.random.default_rng(4)
    recorded = []

    def attack(pair):
        transport = pair[0].transport
        send, sock, header = (
            transport.send,
            transport._link._socket,
            pair[0].plan.layout.header_offset,
        )

        def recording(packets, now):
            recorded.extend(bytes(row[header:]) for row in packets.data)
            send(packets, now)

        transport.send = recording

        def once():
            known = len(recorded)
            for row in rng.integers(0, known, 200 if known else 0):
                sock.send(recorded[row])
            time.sleep(0.002)

        return once

    dropped = undisturbed(service, stack, attack)
    assert dropped["stale"] > 0
    assert set(dropped) <= {"stale", "lost_on_arrival"}


@pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
def test_forged_senders_do_nothing_with_wrong_packets(service, stack):
    raw = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW))
    rng = np.random.default_rng(3)

    def forged(source, payload):
        udp = struct.pack("!HHHH", source[1], service.address.udp_port, 8 + len(payload), 0)
        ip = struct.pack(
            "!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0,
            socket.inet_aton(source[0]), socket.inet_aton("127.0.0.1"),
        )  # fmt: skip
        raw.sendto(ip + udp + payload, ("127.0.0.1", 0))

    def attack(pair):
        source = pair[1].transport._link._socket.getsockname()
        frames = frames_of(pair[0], 9)

        def once():
            for payload in [*map(bytes, mangled(frames, rng)), *noise(rng, 20)]:
                forged(source, payload)
            time.sleep(0.01)

        return once

    dropped = undisturbed(service, stack, attack)
    assert dropped["checksum"] > 0
    assert set(dropped) <= {"wrong_length", "lost_on_arrival", *DROP_REASONS}


LINES = st.one_of(
    st.binary(max_size=200),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {
            "request": st.sampled_from(["join", "renew", "read", "leave", "statistics", "x", 1]),
            "service": st.sampled_from([protocol.VERSION, 99, None, "1"]),
            "wire": st.just(protocol.WIRE_VERSION),
        },
        optional={
            "job": st.text(max_size=3) | st.integers() | st.none(),
            "worker": st.integers(-1, 40) | st.floats() | st.text(max_size=2) | st.booleans(),
            "workers": st.integers(-1, 40) | st.integers() | st.none(),
            "proof": st.text(max_size=5) | st.integers(),
            "register": st.text(max_size=5) | st.just("SlotsIngress.dropped"),
            "index": st.integers() | st.booleans() | st.text(max_size=2),
        },
    ).map(lambda value: json.dumps(value).encode()),
)


@pytest.fixture(scope="module")
def guarded():
    with serving(key="k") as running:
        yield running


@pytest.mark.parametrize("key", [False, True], ids=["open", "key"])
@settings(max_examples=examples(100))
@given(lines=st.lists(LINES, min_size=1, max_size=4), cut=st.booleans())
def test_any_lines_are_answered_or_end_the_connection(service, guarded, key, lines, cut):
    service = guarded if key else service
    with socket.create_connection(service.address, 5) as sock:
        sock.sendall(b"\n".join(lines) + (b"" if cut else b"\n"))
        sock.shutdown(socket.SHUT_WR)
        said = sock.makefile("rb").read()
    assert json.loads(said.splitlines()[0])["service"] == protocol.VERSION
    answers = [json.loads(line) for line in said.splitlines()]
    if key:
        assert not any("token" in each or "statistics" in each for each in answers)


@pytest.mark.parametrize(
    "line",
    [b"[" * 60_000, b"x" * 200_000, b"9" * 5000, b"\xff" * 100, b'{"a": 1e999}', b"{}", b""],
    ids=["nested", "long", "digits", "bytes", "infinite", "empty", "nothing"],
)
def test_lines_that_are_none(service, line):
    with socket.create_connection(service.address, 5) as sock, contextlib.suppress(OSError):
        sock.sendall(line + b"\n")
        sock.shutdown(socket.SHUT_WR)
        sock.makefile("rb").read()
    assert service.ask(service.statistics)["switch"]["program"] == "slots-32"


def test_lines_that_nest_as_deep_as_can_just_be_read(guarded):
    """To write them again, for the proof of the key, took more of the stack than there was."""
    for depth in (*range(10, 30), *range(900, 1000)):
        inside = b"[" * depth + b"]" * depth
        with socket.create_connection(guarded.address, 5) as sock:
            sock.sendall(
                b'{"request":"join","service":1,"wire":2,"proof":"","a":' + inside + b"}\n"
            )
            said = sock.makefile("rb").read().splitlines()
        assert "error" in json.loads(said[-1])
    assert guarded.ask(guarded.statistics)["switch"]["program"] == "slots-32"


def test_what_follows_a_line_that_was_refused_is_not_heard(service):
    """It took a session that nobody could free."""
    with socket.create_connection(service.address, 5) as sock:
        lines = sock.makefile("rb")
        nonce = json.loads(lines.readline())["nonce"]
        asked = protocol.request("join", nonce, None, job="x", worker=0, workers=1)
        sock.sendall(b"x\n" + protocol.encode(asked))
        assert [list(json.loads(line)) for line in lines.read().splitlines()] == [["error"]]
    assert not service.ask(service.statistics)["jobs"]


def test_nothing_is_left_of_hostile_clients(service, stack):
    """Connections by the hundred, tokens that are not shown, and silence: a job goes on."""
    clients = []

    def attack(_):
        def once():
            with contextlib.suppress(OSError):
                sock = socket.create_connection(service.address, 5)
                clients.append(sock)
                sock.sendall(protocol.encode(protocol.request("join", "", None, job="x", worker=0)))
            if len(clients) > 300:
                for sock in clients:
                    sock.close()
                clients.clear()

        return once

    dropped = undisturbed(service, stack, attack)
    for sock in clients:
        sock.close()
    assert not dropped
    stack.close()
    deadline = time.monotonic() + 60
    while (now := service.ask(service.statistics))["jobs"] or now["switch"]["clients"]:
        assert time.monotonic() < deadline, now
        time.sleep(0.02)


def test_no_more_clients_than_a_switch_has_ports(service, monkeypatch):
    """One more is sent away; when one has gone, there is room again."""
    assert service._connections._most == 512
    monkeypatch.setattr(service._connections, "_most", 3)

    def client():
        sock = socket.create_connection(service.address, 5)
        sock.settimeout(10)
        return sock, sock.recv(1)

    made = [client() for _ in range(3)]
    assert [greeted for _, greeted in made] == [b"{"] * 3
    sock, greeted = client()
    sock.close()
    assert not greeted  # the connection has ended
    made.pop()[0].close()
    deadline = time.monotonic() + 60
    while not (last := client())[1]:
        last[0].close()
        assert time.monotonic() < deadline
    for sock, _ in (*made, last):
        sock.close()


def test_who_does_not_read_is_let_go(service):
    with socket.create_connection(service.address, 5) as sock:
        sock.sendall(protocol.encode(protocol.request("statistics", "", None)))
        assert sock.recv(10)

        def send_much():
            clients = service._connections
            newest = max(client.number for client in clients)
            for _ in range(2000):
                clients.send(newest, {"text": "x" * 10_000})
            return newest in {client.number for client in clients}

        assert not service.ask(send_much)


def test_who_says_nothing_is_shown_the_door(monkeypatch):
    monkeypatch.setattr("innet.service.connections._GREETED_SECONDS", 0.05)
    with serving() as service, socket.create_connection(service.address, 5) as sock:
        assert b"nonce" in sock.makefile("rb").read()  # ends, so the connection was closed
