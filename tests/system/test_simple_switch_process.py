"""innet simple-switch between interfaces: packets, the compiler's take-over, faults, its end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.bmv2 import needs_options
from support.capture_files import packets_of
from support.nanomsg_peer import Subscriber, needs_nanomsg
from support.tiers import tiered

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.thrift_fuzz import connected

from innet.bmv2 import shell
from innet.bmv2.build import find_simple_switch
from innet.bmv2.thrift_client import ThriftClient
from innet.core.errors import OutputError
from innet.core.packets import PacketBatch
from innet.simple_switch.captures import Captures
from innet.simple_switch.port_forwarding import PortForwarding
from innet.simple_switch.process import main
from innet.switch import Switch
from innet.transport.raw import Ports, is_up

FORWARD = Path(__file__).parents[2] / "p4" / "examples" / "forward.json"
COMMANDS = FORWARD.with_suffix(".commands").read_text().splitlines()
HEADER = bytes.fromhex("020000000002 020000000001 88b5")
BACK = HEADER[6:12] + HEADER[:6] + HEADER[12:]
SECONDS = (
    120.0  # a busy machine may take more than one minute to compile what the first frame needs
)


def _missing():
    if os.geteuid() != 0:
        return "network interfaces need root"
    return "" if shutil.which("ip") else "ip is not installed"


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())


def ip(command):
    subprocess.run(["ip", *command.split()], check=True, timeout=30)


def tap(interface):
    """A socket that sends and receives whole frames of ours."""
    # With a protocol already here it would receive from all interfaces until it is bound.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((interface, 0x88B5))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    sock.settimeout(SECONDS)  # a first packet may wait until Numba has compiled what sends it
    return sock


@pytest.fixture
def cables():
    """Two cables: the ends of hosts are a0 and b0, those of the switch a1 and b1."""
    tag = f"i{os.getpid() % 100000:x}"
    names = [f"{tag}{end}" for end in ("a0", "a1", "b0", "b1")]
    with contextlib.ExitStack() as stack:
        for near, far in (names[:2], names[2:]):
            connect(near, far)
            stack.callback(
                lambda each=near: subprocess.run(["ip", "link", "del", each], check=False)
            )
        yield names


def connect(near, far):
    ip(f"link add {near} type veth peer name {far}")
    for each in (near, far):
        Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
        ip(f"link set {each} up")
    # The kernel says that an end has a carrier a little later, on a busy machine much later.
    deadline = time.monotonic() + 10
    while not (is_up(near) and is_up(far)):
        assert time.monotonic() < deadline, f"{near} and {far} have no carrier"
        time.sleep(0.001)


class Running:
    """The switch process, with its control plane."""

    def __init__(self, cables, folder, *options):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            self.port = sock.getsockname()[1]
        self.log = folder / "log.txt"
        self.log.unlink(missing_ok=True)
        words = [sys.executable, "-m", "innet.simple_switch.start", str(FORWARD)]
        words += ["-i", f"1@{cables[1]}", "-i", f"2@{cables[3]}", "--thrift-port", str(self.port)]
        words += ["--log-file", str(folder / "log"), "--log-flush", *options]
        self.process = subprocess.Popen(words)

    def commands(self, *lines):
        self.wait_for("Thrift server was started")
        assert shell.run("127.0.0.1", self.port, lines) == 0

    def wait_for(self, text, times=1):
        """Until the log has it, as often as is said."""
        end = time.monotonic() + SECONDS
        while not self.log.exists() or self.log.read_text().count(text) < times:
            assert time.monotonic() < end
            assert self.process.poll() is None
            time.sleep(0.02)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(10)


@pytest.fixture
def switch(cables, tmp_path):
    made = []

    def make(*options):
        made.append(Running(cables, tmp_path, *options))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()
        each.process.wait()


def frame(number):
    return HEADER + number.to_bytes(4, "big") + bytes(46)


def passes(near, far, number=0, header=HEADER):
    """Whether a frame passes from one socket to the other."""
    sent = header + frame(number)[len(header) :]
    near.send(sent)
    try:
        return far.recv(2048) == sent
    except TimeoutError:
        return False


def test_sockets_are_open_before_the_program_is_loaded(cables, switch):
    running = switch("--engine", "interpret")
    end = time.monotonic() + SECONDS
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", running.port)) == 0:
                break
        assert time.monotonic() < end
        time.sleep(0.005)
    assert not running.log.exists()  # which the program makes first
    with tap(cables[0]) as near:
        near.send(frame(1))
    client = ThriftClient(running.port)
    while json.loads(client.call("statistics"))["packets_in"] != 1:
        assert time.monotonic() < end
        time.sleep(0.05)
    client.close()
    assert running.end() == 0


@pytest.mark.parametrize(
    "pause", [0.01, pytest.param(0, marks=pytest.mark.repeats("the same with fewer packets"))]
)
def test_nothing_is_lost_while_the_compiled_program_takes_over(cables, switch, tmp_path, pause):
    os.environ["INNET_CACHE_DIR"], before = str(tmp_path), os.environ.get("INNET_CACHE_DIR")
    try:
        running = switch("-L", "info")
    finally:
        del os.environ["INNET_CACHE_DIR"]
        if before is not None:
            os.environ["INNET_CACHE_DIR"] = before
    running.commands(*COMMANDS)
    running.wait_for("The interpreter runs packets")
    number = after = 0
    with tap(cables[0]) as near, tap(cables[2]) as far:
        while after < 50:
            assert passes(near, far, number), number
            time.sleep(pause)
            number += 1
            after += "The compiled program runs" in running.log.read_text()
    assert number > after  # some passed before it
    assert running.end() == 0


@pytest.mark.parametrize("engine", tiered(["interpret", "jit"], ["jit"], "the same compiled"))
def test_interfaces_that_go_come_back(cables, switch, engine):
    running = switch("--engine", engine, "-L", "info")
    running.commands(*COMMANDS)
    with tap(cables[0]) as near, tap(cables[2]) as far:
        assert passes(near, far)
        ip(f"link set {cables[3]} down")
        running.wait_for("port 2 is down")
        near.send(frame(1))  # lost, and no more than that
        ip(f"link set {cables[3]} up")
        running.wait_for("port 2 is up")
    ip(f"link del {cables[2]}")
    running.wait_for("port 2 is down", 2)
    connect(cables[2], cables[3])
    running.wait_for("port 2 is up", 2)
    with tap(cables[0]) as near, tap(cables[2]) as far:
        assert passes(near, far, 2)
        assert passes(far, near, 3, BACK)
    assert running.process.poll() is None
    assert running.end() == 0


def test_ports_are_forwarded_by_threads_of_their_own(cables, switch):
    """Packets of a port stay in order; calls of the control plane and interfaces that go come
    between.
    """
    running = switch("--engine", "jit", "-L", "info", "--threads", "2")
    running.commands(*COMMANDS)
    running.wait_for("2 threads forward: packets share no state")
    client = ThriftClient(running.port)
    with tap(cables[0]) as near, tap(cables[2]) as far:
        assert passes(near, far)
        assert passes(far, near, 0, BACK)
        for begin in (1, 301, 601):
            numbers = range(begin, begin + 300)
            for number in numbers:
                near.send(frame(number))
                far.send(BACK + frame(number)[len(HEADER) :])
                if number % 50 == 0:
                    client.call("statistics")
            assert [far.recv(2048) for _ in numbers] == [frame(number) for number in numbers]
            back = [BACK + frame(number)[len(HEADER) :] for number in numbers]
            assert [near.recv(2048) for _ in numbers] == back
        counts = json.loads(client.call("statistics"))
        assert (counts["packets_in"], counts["packets_out"]) == (1802, 1802)
        ip(f"link set {cables[3]} down")
        running.wait_for("port 2 is down")
        ip(f"link set {cables[3]} up")
        running.wait_for("port 2 is up")
        assert passes(near, far, 5)
        assert passes(far, near, 6, BACK)
    client.close()
    assert running.end() == 0


@pytest.fixture
def ports(cables):
    """Those of the switch (1, 2), and of the hosts (3, 4)."""
    made = [
        Ports(dict(enumerate(each, first)), lambda *_: None)
        for first, each in ((1, cables[1::2]), (3, cables[0::2]))
    ]
    yield made
    for each in made:
        each.close()


def received(ports, count):
    """So many packets, as (port, bytes), or as many as come."""
    found = []
    end = time.monotonic() + 5
    while len(found) < count and time.monotonic() < end:
        found += ports.receive(0.1).to_packets()
    return found


def test_vlan_tags_stay_on_frames(ports):
    switch, hosts = ports
    plain = frame(1)
    tagged = plain[:12] + bytes.fromhex("8100 a005") + plain[12:]
    twice = plain[:12] + bytes.fromhex("88a8 0007 8100 a005") + plain[12:]
    for sent in ([tagged, plain, tagged], [twice], [plain]):
        hosts.send(PacketBatch.from_packets([(3, each) for each in sent]))
        assert received(switch, len(sent)) == [(1, each) for each in sent]


def test_what_others_send_at_a_port_arrives_as_with_libpcap(ports, cables):
    switch, hosts = ports
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as script:
        script.bind((cables[1], 0))
        script.send(frame(1))
    assert received(switch, 1) == [(1, frame(1))]
    assert received(hosts, 1) == [(3, frame(1))]
    switch.send(PacketBatch.from_packets([(1, frame(2))]))
    assert received(hosts, 1) == [(3, frame(2))]
    assert not len(switch.receive(0)), "what it sends itself does not come back"


def test_packets_that_cannot_be_sent_take_no_others_with_them(ports):
    switch, hosts = ports
    good = [frame(number) for number in range(3)]
    batch = [good[0], bytes(2000), good[1], bytes(10), good[2]]
    switch.send(PacketBatch.from_packets([(2, each) for each in batch]))
    assert received(hosts, 3) == [(4, each) for each in good]
    assert switch.dropped == 2
    assert switch.undelivered == 0


def test_a_larger_mtu_is_noticed(ports, cables):
    switch, hosts = ports
    for each in cables:
        ip(f"link set {each} mtu 9000")
    switch.poll_interfaces()
    hosts.poll_interfaces()
    long = HEADER + bytes(8000)
    hosts.send(PacketBatch.from_packets([(3, long)]))
    assert received(switch, 1) == [(1, long)]


def test_a_port_is_added_while_the_interface_of_another_is_gone(cables):
    told = []
    ports = Ports({1: cables[1], 2: cables[3]}, lambda *change: told.append(change))
    try:
        ip(f"link del {cables[2]}")
        connect(cables[2], f"{cables[3]}x")
        ports.add(3, f"{cables[3]}x")  # before anything noticed
        ports.remove(3)
        ports.poll_interfaces()
        assert told == [(2, cables[3], False)]
    finally:
        ports.close()


def test_the_compiled_loop_records_what_the_log_tells(ports):
    """Also where records need more room than there is for a batch."""
    there, hosts = ports
    document = json.loads(FORWARD.read_text())
    frames = [frame(number).ljust(1400, b"x") for number in range(400)]
    lines = {"jit": [], "interpret": []}
    switches = {engine: Switch.load(document, "interpret") for engine in lines}
    for engine, each in switches.items():
        each.commands("\n".join(COMMANDS))
        each.log_packets(document, lambda *line, e=engine: lines[e].append(line), engine=engine)
    forwarding = PortForwarding(there, switches["jit"], 0.0, write_log=switches["jit"].write_log)
    rooms, make_room = [], forwarding._queued.make_room
    forwarding._queued.make_room = lambda wanted: rooms.append(wanted) or make_room(wanted)
    for some in (frames, frames[:1]):
        hosts.send(PacketBatch.from_packets([(3, each) for each in some]))
        assert not len(forwarding.run(-1, 0.2))
        assert received(hosts, len(some)) == [(4, each) for each in some]
        switches["interpret"].process([(1, each) for each in some])
        assert lines["jit"] == lines["interpret"]
    assert rooms
    assert 0 < switches["jit"].state.clock <= time.monotonic() * 1e6
    assert forwarding.behind == 0
    counts = [each.statistics.as_dict() for each in switches.values()]
    assert counts[0] == counts[1]
    # Python's calls come between, and the control plane's.
    for switch in switches.values():
        switch.table_clear("ForwardIngress.addresses")
        switch.process([(1, frames[0])])
    assert forwarding.behind == 0
    hosts.send(PacketBatch.from_packets([(3, frames[0])]))
    forwarding.run(-1, 0.2)
    switches["interpret"].process([(1, frames[0])])
    assert lines["jit"] == lines["interpret"]


@pytest.mark.parametrize("logged", [False, True])
def test_the_compiled_loop_captures_what_passes(ports, tmp_path, logged):
    """The files are those that Python writes for the same packets."""
    there, hosts = ports
    document = json.loads(FORWARD.read_text())
    switch = Switch.load(document, "interpret" if logged else "jit")
    switch.commands("\n".join(COMMANDS))
    if logged:
        switch.log_packets(document, lambda *_: None, engine="jit", is_late=True)
    names = {1: "a", 2: "b"}
    captures = Captures(tmp_path, names)
    write = switch.write_log if logged else None
    forwarding = PortForwarding(there, switch, 0.0, write_log=write, captures=captures)
    there_and_back = [(3, frame(1)), (4, BACK + bytes(90)), (3, frame(2)), (3, bytes(60))]
    bursts = [there_and_back, [(3, frame(3))]]
    for sent in bursts:
        hosts.send(PacketBatch.from_packets(sent))
        assert not len(forwarding.run(-1, 0.2))
    other = tmp_path / "other"
    other.mkdir()
    python, model = Captures(other, names), Switch.load(document, "interpret")
    model.commands("\n".join(COMMANDS))
    for sent in bursts:
        arrived = PacketBatch.from_packets([(port - 2, data) for port, data in sent])
        python.write(arrived, model.process_batch(arrived))
    for name in ("a_in", "a_out", "b_in", "b_out"):  # no file was closed
        found = packets_of(tmp_path / f"{name}.pcap")
        assert found
        assert [e.data for e in found] == [e.data for e in packets_of(other / f"{name}.pcap")]
        assert abs(time.time() - found[-1].time / 1e9) < SECONDS
    into = packets_of(tmp_path / "a_in.pcap")
    assert len({each.time for each in into}) == len(into)
    assert packets_of(tmp_path / "b_out.pcap")[0].time >= into[0].time
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), captures.compiled.files[0, 0])
    hosts.send(PacketBatch.from_packets([(3, frame(4))]))
    with pytest.raises(OutputError, match=r"a_in\.pcap: the disk is full"):
        forwarding.run(-1, 0.2)
    captures.close()
    python.close()


def test_lines_that_somebody_reads_at_once_come_before_their_packets(ports):
    """Also where records need more room than there is for a batch."""
    there, hosts = ports
    document = json.loads(FORWARD.read_text())
    switch = Switch.load(document, "interpret")
    switch.commands("\n".join(COMMANDS))
    lines, left = [], []

    def send(packets):
        told = sum("Transmitting packet" in text for _, text in lines)
        left.append((len(packets), told))
        there.send(packets)

    switch.log_packets(document, lambda *e: lines.append(e), engine="jit", is_late=True)
    write = switch.write_log
    forwarding = PortForwarding(there, switch, 0.0, None, send, write_log=write, is_late=False)
    frames = [frame(number).ljust(1400, b"x") for number in range(400)]
    for some in (frames, frames[:1]):
        hosts.send(PacketBatch.from_packets([(3, each) for each in some]))
        assert not len(forwarding.run(-1, 0.2))
        assert received(hosts, len(some)) == [(4, each) for each in some]
    sent = 0
    for count, told in left:
        sent += count
        assert told == sent
    assert sent == 401


def test_a_killed_one_starts_again(cables, switch):
    first = switch("--engine", "interpret")
    first.commands(*COMMANDS)
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    second = switch("--engine", "interpret")
    second.commands("show_ports", *COMMANDS)
    with tap(cables[0]) as near, tap(cables[2]) as far:
        assert passes(near, far)
    assert second.end(signal.SIGINT) == 0


def test_a_burst_leaves_in_its_order_and_none_is_left_behind(cables, switch, tmp_path):
    running = switch("--engine", "jit", "-L", "info", f"--pcap={tmp_path}")
    running.commands(*COMMANDS)
    with tap(cables[0]) as near, tap(cables[2]) as far:
        assert passes(near, far)
        for first in range(0, 3000, 300):
            for number in range(first, first + 300):
                near.send(frame(number))
            assert [far.recv(2048) for _ in range(300)] == [
                frame(number) for number in range(first, first + 300)
            ]
    running.commands("show_ports")
    assert running.end() == 0
    arrived, left = (
        packets_of(tmp_path / f"{cables[n]}_{w}.pcap") for n, w in ((1, "in"), (3, "out"))
    )
    passed = [frame(0), *(frame(number) for number in range(3000))]
    assert [each.data for each in arrived] == [each.data for each in left] == passed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--thrift-port", "70000", str(FORWARD)], "--thrift-port is 0 to 65535, not 70000"),
        (["--restore-state", "x", str(FORWARD)], "send the commands again"),
        (["--debugger"], "--debugger: there is no debugger"),
        (["-i", "veth1", "x.json"], "--interface veth1: write it as PORT@NAME"),
        (["-i", "1@a", "-i", "1@b", "x.json"], "port 1 has an interface already"),
        (["--drop-port", "512", "x.json"], "egress_spec is 0 to 511"),
        ([], "name the JSON of a program"),
        (["--pcap=nowhere", str(FORWARD)], "there is no such folder"),
        (["-i", "1@no-such-one", str(FORWARD)], "no-such-one"),
    ],
)
def test_what_cannot_be_is_named(options, said, capsys):
    assert main(["--thrift-port", "0", *options]) == 1
    assert said in capsys.readouterr().err


@needs_nanomsg
@pytest.mark.parametrize(
    "real",
    [
        False,
        pytest.param(True, marks=needs_options("--notifications-addr")),
    ],
)
def test_ports_that_go_and_come_are_published(cables, switch, tmp_path, real):
    address = f"ipc://{tmp_path}/told"
    words = ["--notifications-addr", address, "--device-id", "7"]
    if real:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
        command = [find_simple_switch()[0], FORWARD, "-i", f"1@{cables[1]}", "-i", f"2@{cables[3]}"]
        process = subprocess.Popen([*command, *words, "--thrift-port", str(port), "-L", "off"])
    else:
        running = switch("--engine", "interpret", *words)
        process, port = running.process, running.port
        running.wait_for("Thrift server was started")
    connected(port).close()
    subscriber = Subscriber(address)
    try:
        while subscriber.receive(2) is not None:  # both are up; it may be too late for that
            pass
        states = {1: True, 2: True}
        for is_up in (False, True):
            ip(f"link set {cables[3]} {'up' if is_up else 'down'}")
            changed = {2: is_up}
            while changed:
                told = subscriber.receive()
                assert told[:16] == b"PRT|" + struct.pack("<qI", 7, (len(told) - 32) // 8)
                assert told[16:32] == bytes(16)
                for port, up in struct.iter_unpack("<ii", told[32:]):
                    states[port] = bool(up)
                    if changed.get(port) == bool(up):
                        del changed[port]
        assert states == {1: True, 2: True}
    finally:
        subscriber.close()
        process.kill()
        process.wait()


@needs_nanomsg
def test_ports_are_published_before_the_first_call_is_answered(cables, switch, tmp_path):
    # p4-learning's controllers take every message for a digest, also that ports are up.
    address = f"ipc://{tmp_path}/told"
    running = switch("--engine", "interpret", "--notifications-addr", address)
    running.wait_for("Thrift server was started")
    client = ThriftClient(running.port)
    assert client.call("bm_mgmt_get_info")["notifications_socket"] == address
    client.close()
    subscriber = Subscriber(address)
    try:
        assert subscriber.receive(2) is None
    finally:
        subscriber.close()
