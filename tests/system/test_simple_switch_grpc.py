"""innet simple-switch-grpc between interfaces: packets to and from a controller, and digests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")
pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.p4runtime import INSERT, MODIFY, Client, Controller, Process

from innet.p4runtime.messages import p4, p4info_from_text
from innet.p4runtime.status import Code
from innet.simple_switch.port_forwarding import PortForwarding
from innet.switch import Switch
from innet.transport.raw import Ports

IO = "p4runtime_io"
ETHERTYPE = 0x88B5
FRAME = bytes.fromhex("020000000002 020000000001 88b5") + bytes(46)
REASON = b"\x05"
EXAMPLES = Path(__file__).parents[2] / "p4" / "examples"


def _missing():
    if os.geteuid() != 0:
        return "network interfaces need root"
    return "" if shutil.which("ip") else "ip is not installed"


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())


@pytest.fixture
def cable():
    """The ends of a cable: the host's and the switch's."""
    near, far = (f"g{os.getpid() % 100000:x}{end}" for end in "ab")
    subprocess.run(
        ["ip", "link", "add", near, "type", "veth", "peer", "name", far], check=True, timeout=30
    )
    try:
        for each in (near, far):
            Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
            subprocess.run(["ip", "link", "set", each, "up"], check=True, timeout=30)
        yield near, far
    finally:
        subprocess.run(["ip", "link", "del", near], check=False, timeout=30)


@pytest.fixture
def host(cable):
    # With a protocol already here it would receive from all interfaces until it is bound.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind((cable[0], ETHERTYPE))
    sock.settimeout(60.0)
    yield sock
    sock.close()


@pytest.fixture
def controller(cable):
    made = Process(interfaces={1: cable[1]})
    try:
        with Controller(made.port) as controller:
            assert controller.arbitrate().status.code == Code.OK
            controller.set_config(IO)
            yield controller
    finally:
        made.close()


def test_packets_to_and_from_a_controller_and_digests(controller, host):
    names = Client(IO)
    vrf = names.entry("I.vrfs", {}, names.action("I.set_vrf", b"v"), is_default_action=True)
    route = names.entry("I.routes", {1: b"v"}, names.action("I.to_controller", REASON))
    known = names.entry("I.sources", {1: FRAME[6:12]}, names.action("NoAction"))
    controller.write(
        (MODIFY, p4.Entity(table_entry=vrf)),
        (INSERT, p4.Entity(table_entry=route)),
        (INSERT, p4.Entity(table_entry=known)),
    )

    # In: with the header that the program gives it, taken apart into metadata.
    host.send(FRAME)
    packet = controller.receive().packet
    assert packet.payload == FRAME
    assert {each.metadata_id: each.value for each in packet.metadata} == {1: b"\x01", 2: REASON}

    # Out: at the port that the metadata names.
    message = p4.StreamMessageRequest()
    message.packet.payload = FRAME
    message.packet.metadata.add(metadata_id=1, value=b"\x01")
    message.packet.metadata.add(metadata_id=2, value=b"\0")
    controller.send(message)
    assert host.recv(2048) == FRAME

    # A source that no entry knows is told.
    digest = p4.DigestEntry(digest_id=names.info.digests[0].preamble.id)
    controller.write((INSERT, p4.Entity(digest_entry=digest)))
    stranger = FRAME[:6] + bytes.fromhex("0a0000000009") + FRAME[12:]
    host.send(stranger)
    messages = [controller.receive(), controller.receive()]
    (found,) = (each.digest for each in messages if each.HasField("digest"))
    (data,) = found.data
    members = [each.bitstring for each in data.struct.members[:2]]
    assert members == [stranger[6:12], b"\x01"]
    assert found.digest_id == digest.digest_id
    (packet,) = (each.packet for each in messages if each.HasField("packet"))
    assert packet.payload == stranger


def test_the_compiled_loop_has_a_cpu_port(cable, host):
    """Frames to the controller leave the compiled loop; those behind them in a batch go on."""
    ports = Ports({}, lambda *_: None)  # compiled now, so that no deadline passes for it
    PortForwarding(ports, Switch.load(EXAMPLES / "forward.json", engine="jit"), 0.0)
    ports.close()
    made = Process(interfaces={1: cable[1]}, engine="jit")
    to_host, to_controller = bytes(5) + b"\1", bytes(5) + b"\2"
    try:
        with Controller(made.port) as controller:
            assert controller.arbitrate().status.code == Code.OK
            text = (EXAMPLES / "forward.p4info.txtpb").read_text()
            info = p4info_from_text(text, "forward")
            data = (EXAMPLES / "forward.json").read_bytes()
            controller.set_config("forward", info=info, data=data)
            table, action = info.tables[0], info.actions[1]
            for address, port in ((to_host, 1), (to_controller, 255)):
                entry = p4.TableEntry(table_id=table.preamble.id)
                entry.match.add(field_id=1).exact.value = address
                entry.action.action.action_id = action.preamble.id
                entry.action.action.params.add(param_id=1, value=bytes([port]))
                controller.write((INSERT, p4.Entity(table_entry=entry)))
            frames = [
                (to_controller if number % 3 == 1 else to_host) + FRAME[6:20] + bytes([number]) * 40
                for number in range(30)
            ]
            for frame in frames:
                host.send(frame)
            here = [each for each in frames if each.startswith(to_host)]
            assert [host.recv(2048) for _ in here] == here
            there = [each for each in frames if each.startswith(to_controller)]
            assert [controller.receive().packet.payload for _ in there] == there
            forwarding = made.switch._forwarding
            assert forwarding is not None
            assert forwarding.works
            assert made.switch.statistics()["undelivered"] == 0
    finally:
        made.close()
