"""innet simple-switch without interfaces: files, messages, notifications, lines of packets."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.bmv2 import needs_options
from support.nanomsg_peer import Pair, Subscriber, needs_nanomsg
from support.switch_cases import program

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.thrift_fuzz import Process, connected

from innet.bmv2.build import find_simple_switch
from innet.bmv2.thrift_api import EXACT, LPM
from innet.bmv2.thrift_client import ThriftClient
from innet.core.errors import ControlError, InputError, MissingToolError, NetworkError, PacketError
from innet.core.pcap import PcapReader
from innet.simple_switch import nanomsg
from innet.simple_switch.log import Log
from innet.simple_switch.notifications import Notifications
from innet.simple_switch.options import PacketInput
from innet.switch import Switch
from innet.tools.captures import CaptureWriter

FORWARD = json.loads((Path(__file__).parents[3] / "p4" / "examples" / "forward.json").read_text())
ECN = json.loads((Path(__file__).parents[3] / "p4" / "examples" / "ecn.json").read_text())
SECONDS = 20.0
HEAD = 32  # bytes of a notification's head
PACKET_IN, PACKET_OUT, INFO_REQ, INFO_REP = 3, 4, 5, 6
MESSAGE = struct.Struct("<iii")


def until(condition):
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.fixture
def running():
    made = []

    def make(name, **options):
        options = {"engine": "interpret", **options}
        document = program(name) if isinstance(name, str) else name
        made.append(Process(json.dumps(document), **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
        each.switch.log.close()


# ── Capture files ──


def capture(path, packets, first=0):
    """A pcap file with packets a millisecond apart."""
    path.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        + b"".join(
            struct.pack("<IIII", 0, first + 1000 * i, len(data), len(data)) + data
            for i, data in enumerate(packets)
        )
    )


def packets_of(path):
    reader = PcapReader(path)
    found = []
    while (record := reader.read()) is not None:
        found.append(record.data)
    reader.close()
    return found


def test_packets_come_from_files_in_the_order_of_their_times(running, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    packets = {
        1: [bytes([0, 0, 0, 1]) + bytes([i]) * 20 for i in range(6)],
        2: [bytes([1, 1, 1, 1]) + bytes([i]) * 20 for i in range(6)],
        3: [],
    }
    for port, some in packets.items():
        capture(tmp_path / f"v{port}_in.pcap", some, first=port)
    switch = Switch.load(program("switch_state"), "interpret")
    merged = [(port, packets[port][i]) for i in range(6) for port in (1, 2)]
    expected = {port: [d for p, d in switch.process(merged) if p == port] for port in packets}
    interfaces = {port: f"v{port}" for port in packets}
    running("switch_state", interfaces=interfaces, packets=PacketInput(files=0))
    for port, sent in expected.items():
        until(lambda port=port, sent=sent: packets_of(tmp_path / f"v{port}_out.pcap") == sent)
    assert any(expected.values())


def test_it_waits_before_the_first_packet(running, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    capture(tmp_path / "v1_in.pcap", [bytes(20)])
    asked = []
    monkeypatch.setattr(time, "sleep", asked.append)
    running("switch_state", interfaces={1: "v1"}, packets=PacketInput(files=7))
    monkeypatch.undo()
    until(lambda: asked)
    assert asked == [7]


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (None, InputError, "v1_in.pcap cannot be read: No such file"),
        (b"nothing of the kind", PacketError, "is no pcap file"),
        (b"", PacketError, "is no pcap file"),
    ],
)
def test_a_file_that_is_no_capture_is_named(content, error, said, running, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "v1_in.pcap").write_bytes(content)
    with pytest.raises(error, match=said):
        running("switch_state", interfaces={1: "v1"}, packets=PacketInput(files=0))


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (struct.pack("<IIII", 0, 0, 10, 10) + b"short", "ends within a packet"),
        (b"head", "ends within a packet"),
        (struct.pack("<IIII", 0, 0, 10, 99) + bytes(10), "only 10 were captured"),
        (struct.pack("<IIII", 0, 0, 1 << 30, 1 << 30), "claims a packet of"),
    ],
)
def test_damage_is_named(tail, said, tmp_path):
    path = tmp_path / "x.pcap"
    capture(path, [b"good"])
    path.write_bytes(path.read_bytes() + tail)
    reader = PcapReader(path)
    assert reader.read().data == b"good"
    with pytest.raises(PacketError, match=said):
        reader.read()
    reader.close()


def test_what_is_written_is_read_again(tmp_path):
    path = tmp_path / "x.pcap"
    writer = CaptureWriter(path, nano=False)
    for data in (b"one", bytes(1500)):
        writer.write_packet(time.time_ns(), data)
    writer.close()
    assert packets_of(path) == [b"one", bytes(1500)]


def test_ports_of_files_stay(running, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    capture(tmp_path / "v1_in.pcap", [])
    client = ThriftClient(
        running("switch_state", interfaces={1: "v1"}, packets=PacketInput(files=0)).port
    )
    for name, arguments in (
        ("bm_dev_mgr_add_port", ("v2", 2, "")),
        ("bm_dev_mgr_remove_port", (1,)),
    ):
        with pytest.raises(ControlError):
            client.call(name, *arguments)
    assert [each["interface"] for each in client.call("bm_dev_mgr_show_ports")] == ["v1"]
    client.close()


# ── Messages ──


@needs_nanomsg
def test_packets_come_and_go_as_messages(running, tmp_path):
    address = f"ipc://{tmp_path}/packets"
    running("switch_state", packets=PacketInput(messages=address))
    peer = Pair(address)
    model = Switch.load(program("switch_state"), "interpret")
    for number in range(20):
        data = bytes([number % 8, number % 3]) + bytes(range(number, number + 18))
        peer.send(MESSAGE.pack(PACKET_IN, 1, len(data)) + data)
        for port, sent in model.process([(1, data)]):
            assert peer.receive() == MESSAGE.pack(PACKET_OUT, port, len(sent)) + sent
    peer.send(MESSAGE.pack(INFO_REQ, 5, 1))
    assert peer.receive() == MESSAGE.pack(INFO_REP, 5, 1) + struct.pack("<i", 1)
    peer.close()


@needs_nanomsg
def test_messages_that_mean_nothing_are_logged_and_do_no_harm(running, tmp_path):
    address = f"ipc://{tmp_path}/packets"
    log = Log(path=str(tmp_path / "log"), flush=True)
    there = running("switch_state", packets=PacketInput(messages=address), log=log)
    peer = Pair(address)
    for bad in (
        b"",
        b"short",
        MESSAGE.pack(PACKET_IN, 1, 50) + b"less",
        MESSAGE.pack(PACKET_IN, 1 << 20, 4) + b"less",
        MESSAGE.pack(PACKET_IN, 1, -1),
        MESSAGE.pack(PACKET_OUT, 1, 0),
        MESSAGE.pack(99, 1, 0),
        MESSAGE.pack(2, 1, 7),
    ):
        peer.send(bad)
    peer.send(MESSAGE.pack(0, 3, 0))
    client = ThriftClient(there.port)
    until(lambda: client.call("bm_dev_mgr_show_ports"))
    (port,) = client.call("bm_dev_mgr_show_ports")
    assert (port["port"], port["interface"], port["up"]) == (3, "N/A", True)
    peer.send(MESSAGE.pack(2, 3, 0))
    until(lambda: not client.call("bm_dev_mgr_show_ports")[0]["up"])
    peer.send(MESSAGE.pack(1, 3, 0))
    until(lambda: not client.call("bm_dev_mgr_show_ports"))
    client.close()
    peer.close()
    text = (tmp_path / "log.txt").read_text()
    for said in ("has no header", "with 4 of 50 bytes", "Invalid PACKET_OUT", "Unknown message"):
        assert said in text


# ── Notifications ──


class BuiltIn:
    """The built-in switch, in this process."""

    def __init__(self, path, packets, told):
        notifications = Notifications(told, 42)
        config = path.read_text()
        self._there = Process(
            config,
            engine="interpret",
            packets=PacketInput(messages=packets),
            notifications=notifications,
            priority_queues=8,
        )
        self.port = self._there.port

    def close(self):
        self._there.close()


class SimpleSwitch:
    """The real one."""

    def __init__(self, path, packets, told):
        self.port = free_port()
        words = [find_simple_switch()[0], path, "--packet-in", packets, "--device-id", "42"]
        words += ["--notifications-addr", told, "--thrift-port", str(self.port), "-L", "off"]
        words += ["--", "--priority-queues", "8"]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL)

    def close(self):
        self._process.kill()
        self._process.wait()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@pytest.fixture(
    params=[
        BuiltIn,
        pytest.param(
            SimpleSwitch,
            marks=needs_options("--packet-in", "--notifications-addr"),
        ),
    ]
)
def switched(request, tmp_path):
    """Makes a switch of a program: its packets, its notifications and its control plane."""
    opened = []

    def make(name):
        path = tmp_path / "program.json"
        path.write_text(json.dumps(ECN if name == "ecn" else program(name)))
        packets, told = f"ipc://{tmp_path}/packets", f"ipc://{tmp_path}/told"
        switch = request.param(path, packets, told)
        opened.append(switch)
        client = connected(switch.port)
        assert client.call("bm_mgmt_get_info")["notifications_socket"] == told
        made = (Pair(packets), Subscriber(told), client)
        opened.extend(made)
        time.sleep(0.3)  # a subscriber that is not connected yet misses messages
        return made

    yield make
    for each in reversed(opened):
        each.close()


@needs_nanomsg
def test_digests_are_published(switched):
    peer, subscriber, client = switched("jit_digests")

    def send(word):
        data = bytes([64 | 1, 0, 0]) + struct.pack(">hQ", -2, word)
        peer.send(MESSAGE.pack(PACKET_IN, 7, len(data)) + data)
        assert peer.receive() is not None

    def sample(word):
        return struct.pack(">HQh", 7, word, -2)

    def head(buffer, count):
        return b"LEA|" + struct.pack("<qiiQI", 42, 0, 1, buffer, count)

    send(5)
    assert subscriber.receive() == head(0, 1) + sample(5)
    send(5)  # known, until it is acknowledged
    send(6)
    assert subscriber.receive() == head(1, 1) + sample(6)
    client.call("bm_learning_ack_buffer", 0, 1, 0)
    send(5)
    assert subscriber.receive() == head(2, 1) + sample(5)
    client.call("bm_learning_set_buffer_size", 0, 1, 3)
    for word in (7, 8, 9):
        send(word)
    assert subscriber.receive() == head(3, 3) + sample(7) + sample(8) + sample(9)
    client.call("bm_learning_set_timeout", 0, 1, 50)
    send(10)
    assert subscriber.receive() == head(4, 1) + sample(10)


@needs_nanomsg
def test_idle_entries_are_published(switched):
    _, subscriber, client = switched("switch_ageing")
    for number in range(3):
        key = [{"type": EXACT, "exact": {"key": bytes([number])}}]
        handle = client.call("bm_mt_add_entry", 0, "I.small_table", key, "I.mark", [b"\1"], {})
        assert handle == number
    for number in (0, 2):
        client.call("bm_mt_set_entry_ttl", 0, "I.small_table", number, 10)
    handles = []
    buffer = 0
    while len(handles) < 2:  # they may be found by two sweeps
        told = subscriber.receive()
        count = (len(told) - HEAD) // 4
        assert told[:HEAD] == b"AGE|" + struct.pack("<qiQiI", 42, 0, buffer, 1, count)
        handles += struct.unpack(f"<{count}I", told[HEAD:])
        buffer += 1
    assert handles == [0, 2]


# ── The traffic manager, by the clock of packets that arrive ──

RATE = 100  # packets a second
MICROSECONDS = 1_000_000


def request(number, *, op=0, port=1, priority=0, passes=0):
    data = struct.pack(">BBBBHB", op, port, priority, passes, number, 0)
    return MESSAGE.pack(PACKET_IN, 2, len(data)) + data


def records_of(message):
    """The number of a packet, and (instance type, depth before it, microseconds it waited) of each
    of its passes, the latest first.
    """
    port, data = MESSAGE.unpack_from(message)[1], message[MESSAGE.size :]
    number, count = struct.unpack_from(">HB", data, 4)
    found = []
    for place in range(count):
        record = data[7 + 31 * place :][:31]
        depth = int.from_bytes(record[5:8], "big")
        found.append((record[0], depth, int.from_bytes(record[15:19], "big")))
    return port, number, found


def received(peer, least, seconds=1.0):
    """So many messages at least, and those that come within some time after them."""
    found = [peer.receive() for _ in range(least)]
    assert None not in found
    while (message := peer.receive(seconds)) is not None:
        found.append(message)
    return found


@needs_nanomsg
def test_packets_wait_in_queues_with_a_rate(switched):
    peer, _, client = switched("queue_metadata")
    client.call("set_egress_queue_rate", 1, RATE)
    burst = 30
    for number in range(burst):
        peer.send(request(number))
    left = [records_of(each) for each in received(peer, burst)]
    assert [(port, number) for port, number, _ in left] == [(1, number) for number in range(burst)]
    for number, (_, _, ((kind, depth, waited),)) in enumerate(left):
        assert kind == 0
        # At most as many before it as came before it; some may have left already.
        assert number - burst // 3 <= depth <= number
        assert waited >= (depth - 1) * MICROSECONDS // RATE
    client.call("set_egress_queue_depth", 1, 5)
    for number in range(burst):
        peer.send(request(number))
    assert 5 <= len(received(peer, 5)) <= burst // 2


@needs_nanomsg
def test_priorities_have_queues_with_rates_of_their_own(switched):
    peer, _, client = switched("queue_metadata")
    client.call("set_egress_priority_queue_rate", 1, 0, RATE // 2)
    for number in range(16):
        peer.send(request(number, priority=0 if number < 8 else 7))
    order = [number for _, number, _ in map(records_of, received(peer, 16))]
    assert sorted(order) == list(range(16))
    assert [each for each in order if each < 8] == list(range(8))
    assert [each for each in order if each >= 8] == list(range(8, 16))
    assert order[-1] == 7  # it waits for its queue's rate, the other queue has none


@needs_nanomsg
def test_packets_that_come_by_again(switched):
    peer, _, client = switched("queue_metadata")
    client.call("mirroring_session_add", 1, {"port": 3})
    peer.send(request(1, op=4, passes=2))  # recirculate
    ((port, number, passes),) = map(records_of, received(peer, 1))
    assert (port, number, [kind for kind, *_ in passes]) == (1, 1, [0, 0, 0])
    peer.send(request(2, op=5))  # resubmit
    ((port, number, passes),) = map(records_of, received(peer, 1))
    assert (port, number, len(passes)) == (1, 2, 1)
    for op, kind in ((2, 1), (3, 2)):  # clones of ingress and of egress
        peer.send(request(3, op=op))
        found = sorted(map(records_of, received(peer, 2)))
        assert [(port, number) for port, number, _ in found] == [(1, 3), (3, 3)]
        assert found[1][2][0][0] == kind


@needs_nanomsg
def test_a_full_queue_marks_congestion(switched):
    peer, _, client = switched("ecn")
    key = [{"type": LPM, "lpm": {"key": bytes([10, 0, 0, 0]), "prefix": 8}}]
    action = "EcnIngress.forward"
    client.call("bm_mt_add_entry", 0, "EcnIngress.routes", key, action, [b"\0\1"], {})
    client.call("bm_register_write", 0, "EcnEgress.threshold", 0, 5)
    client.call("set_egress_queue_rate", 1, RATE)
    head = bytes.fromhex("020000000001 020000000002 0800 45020014 000100004011 66d4")
    packet = head + bytes.fromhex("0a000002 0a000001")
    burst = 30
    for _ in range(burst):
        peer.send(MESSAGE.pack(PACKET_IN, 2, len(packet)) + packet)
    marks = [each[MESSAGE.size + 15] & 3 for each in received(peer, burst)]
    assert set(marks[:5]) == {2}  # none of them found five before it
    assert marks.count(3) >= burst // 2
    assert client.call("bm_counter_read", 0, "EcnEgress.marked", 1)["packets"] == marks.count(3)


@needs_nanomsg
def test_pynng_does_without_the_library(monkeypatch, tmp_path):
    pytest.importorskip("pynng", reason="pynng is not installed")
    monkeypatch.setattr(nanomsg, "_library", lambda: None)
    address = f"ipc://{tmp_path}/pair"
    here, there = nanomsg.Pair(address), Pair(address)
    there.send(b"in")
    assert until(here.receive) == b"in"
    here.send(b"out")
    assert there.receive() == b"out"
    address = f"ipc://{tmp_path}/told"
    publisher, subscriber = nanomsg.Publisher(address), Subscriber(address)
    time.sleep(0.3)
    publisher.send(b"told")
    assert subscriber.receive() == b"told"
    for each in (here, there, publisher, subscriber):
        each.close()


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(nanomsg, "_library", lambda: None)
    monkeypatch.setitem(sys.modules, "pynng", None)
    monkeypatch.setattr(nanomsg.importlib.util, "find_spec", lambda _: None)
    assert not nanomsg.is_installed()
    with pytest.raises(MissingToolError, match=r"libnanomsg5.*innet\[notifications\]"):
        Notifications("ipc:///tmp/nothing", 0)


@pytest.mark.skipif(not nanomsg.is_installed(), reason="neither libnanomsg nor pynng is installed")
def test_an_address_that_cannot_be_is_named():
    with pytest.raises(NetworkError, match="nothing://here"):
        Notifications("nothing://here", 0)


# ── Lines about packets ──


@needs_nanomsg
def test_each_packet_is_logged(running, tmp_path):
    address = f"ipc://{tmp_path}/packets"
    log = Log(path=str(tmp_path / "log"), flush=True)
    inputs = PacketInput(messages=address)
    running("switch_state", packets=inputs, log=log, dumped=4, engine="interpret")
    peer = Pair(address)
    data = bytes(range(20))
    peer.send(MESSAGE.pack(PACKET_IN, 1, len(data)) + data)
    assert peer.receive() is not None
    text = (tmp_path / "log.txt").read_text()
    assert "[I]" in text
    assert re.search(r"Received packet of length 20 on port 1: 00010203\n", text)
    head = r"\[D\] \[thread \d+\] \[0\.0\] \[cxt 0\] "
    assert re.search(f"{head}Processing packet received on port 1\n", text)
    assert re.search(r"Sending packet of length \d+ on port \d+: [0-9a-f]{8}\n", text)
    peer.close()


@needs_nanomsg
@pytest.mark.parametrize("flush", [False, True])
def test_machine_code_runs_packets_that_are_logged(running, tmp_path, flush):
    address = f"ipc://{tmp_path}/packets"
    log = Log(path=str(tmp_path / "log"), flush=flush)
    there = running(FORWARD, packets=PacketInput(messages=address), log=log, engine="jit")
    assert there.switch.switch.engine_name == "jit"
    client = ThriftClient(there.port)
    key = [{"type": EXACT, "exact": {"key": bytes(6)}}]
    name = "ForwardIngress."
    client.call("bm_mt_add_entry", 0, f"{name}addresses", key, f"{name}forward", [b"\0\2"], {})
    client.close()
    peer = Pair(address)
    for _ in range(3):
        peer.send(MESSAGE.pack(PACKET_IN, 1, 20) + bytes(20))
        assert peer.receive() == MESSAGE.pack(PACKET_OUT, 2, 20) + bytes(20)
    peer.close()
    if not flush:  # packets do not wait for their lines
        until(lambda: "[2.0] [cxt 0] Transmitting" in (tmp_path / "log.txt").read_text())
    text = (tmp_path / "log.txt").read_text()
    assert "bm_table_add_entry" in text
    assert "interpreter" not in text
    for number in range(3):
        head = rf"\[D\] \[thread \d+\] \[{number}\.0\] \[cxt 0\] "
        sent = re.search(f"{head}Transmitting packet of size 20 out of port 2\n", text)
        hit = re.search(f"{head}Table 'ForwardIngress.addresses': hit with handle 0\n", text)
        assert hit.start() < sent.start()


@needs_nanomsg
def test_without_lines_about_packets_the_program_is_compiled(running, tmp_path):
    address = f"ipc://{tmp_path}/packets"
    log = Log("info", path=str(tmp_path / "log"), flush=True)
    there = running(FORWARD, packets=PacketInput(messages=address), log=log, engine="jit")
    assert there.switch.switch.engine_name == "jit"
    client = ThriftClient(there.port)
    key = [{"type": EXACT, "exact": {"key": bytes(6)}}]
    name = "ForwardIngress."
    client.call("bm_mt_add_entry", 0, f"{name}addresses", key, f"{name}forward", [b"\0\2"], {})
    client.close()
    peer = Pair(address)
    peer.send(MESSAGE.pack(PACKET_IN, 1, 20) + bytes(20))
    assert peer.receive() == MESSAGE.pack(PACKET_OUT, 2, 20) + bytes(20)
    peer.close()
    assert "cxt" not in (tmp_path / "log.txt").read_text()
