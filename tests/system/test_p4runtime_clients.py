"""Clients that others wrote, unchanged, against innet simple-switch-grpc: one session each."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")
pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.client_venvs import SHELL_AND_PTF, python_with, run
from support.p4runtime import Process
from support.switch_cases import PROGRAMS

FORWARD = Path(__file__).parents[2] / "p4" / "examples" / "forward.json"
IO = PROGRAMS / "p4runtime_io.json"


@pytest.fixture
def process():
    made = Process(device_id=1)
    yield made
    made.close()


def p4info(program):
    return program.with_suffix(".p4info.txtpb")


_SHELL = """
import sys
import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeWriteException

port, p4info, program = sys.argv[1:]
sh.setup(
    device_id=1,
    grpc_addr=f"127.0.0.1:{port}",
    election_id=(0, 1),
    config=sh.FwdPipeConfig(p4info, program),
)
te = sh.TableEntry("addresses")(action="forward")
te.match["hdr.ethernet.destination"] = "02:00:00:00:00:01"
te.action["port"] = "3"
te.insert()
te.action["port"] = "4"
te.modify()
for each in te.read():
    print("= entry", str(each.action["port"]).split()[-1])
default = sh.TableEntry("addresses")(action="forward", is_default=True)
default.action["port"] = "5"
default.modify()
ce = sh.CounterEntry("ForwardIngress.forwarded")
ce.index = 4
ce.packet_count = 17
ce.modify()
for each in ce.read():
    print("= counter", each.packet_count)
group = sh.MulticastGroupEntry(6)
group.add(1, 1).add(2, 1)
group.insert()
for each in sh.MulticastGroupEntry().read():
    print("= group", each.group_id, len(each.replicas))
session = sh.CloneSessionEntry(7)
session.add(1, 1)
session.insert()
session.delete()
group.delete()
try:
    te.insert()
except P4RuntimeWriteException as error:
    print("= refused", "ALREADY_EXISTS" in str(error))
te.delete()
print("= left", len(list(sh.TableEntry("addresses").read())))
sh.teardown()
"""


@pytest.mark.timeout(900)  # of which most makes the environment, once
@pytest.mark.repeats("a session of finsy; the tests of the server by gRPC's own client")
def test_p4runtime_shell(process):
    python = python_with("ptf", *SHELL_AND_PTF)
    said = run(python, _SHELL, process.port, p4info(FORWARD), FORWARD)
    assert [line[2:] for line in said.splitlines() if line.startswith("= ")] == [
        'entry "\\004"',
        "counter 17",
        "group 6 2",
        "refused True",
        "left 0",
    ]


_FINSY = """
import asyncio
import contextlib
import sys
from pathlib import Path

import finsy as fy

port, p4info, program = sys.argv[1:]


async def ready(sw):
    await sw.delete_all()
    await sw.write(
        [
            +fy.P4TableEntry(
                "routes",
                match=fy.Match({"m.vrf": "red"}),
                action=fy.Action("to_controller", reason=5),
            ),
            ~fy.P4TableEntry(
                "vrfs", is_default_action=True, action=fy.Action("set_vrf", vrf="red")
            ),
            +fy.P4DigestEntry("learn_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=0),
            ~fy.P4RegisterEntry("seen", index=1, data=41),
            +fy.P4MulticastGroupEntry(multicast_group_id=3, replicas=[1, 2]),
        ]
    )
    async for entry in sw.read(fy.P4TableEntry("routes")):
        print("= entry", entry.match["vrf"], entry.action.args["reason"])
    async for entry in sw.read(fy.P4RegisterEntry("seen", index=1)):
        print("= register", entry.data)
    async for entry in sw.read(fy.P4MulticastGroupEntry()):
        print("= group", entry.multicast_group_id, len(entry.replicas))
    # Out at the CPU port, and so in again: the first two bytes are read as a packet-in's header.
    await sw.write(fy.P4PacketOut(b"\\x01\\x85" + bytes(18), egress_port=255, flags=0))
    async for packet in sw.read_packets():
        print("= packet", packet["ingress_port"], packet["reason"], len(packet.payload))
        break
    fy.Controller.current().stop()


switches = [
    fy.Switch(
        "sw1",
        f"127.0.0.1:{port}",
        fy.SwitchOptions(p4info=Path(p4info), p4blob=Path(program), ready_handler=ready),
    )
]
with contextlib.suppress(asyncio.CancelledError):  # which is how stop() ends it
    asyncio.run(fy.Controller(switches).run())
"""


@pytest.mark.timeout(900)
def test_finsy(process):
    python = python_with("finsy", "finsy==0.30.0", "grpcio==1.85.3", "protobuf==6.33.6")
    said = run(python, _FINSY, process.port, p4info(IO), IO)
    assert [line[2:] for line in said.splitlines() if line.startswith("= ")] == [
        "entry red 5",
        "register 41",
        "group 3 2",
        "packet 3 5 18",
    ]
