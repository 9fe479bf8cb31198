"""PTF tests of p4/examples/forward.p4: a controller and packets in one test.

    ptf --test-dir tests/ptf -i 1@veth1 -i 2@veth3 -i 3@veth5 \\
        --test-params "grpc='127.0.0.1:9559';device=0;p4info='forward.p4info.txtpb';json='forward.json'"

Ports are the switch's. ptf has veth1, veth3 and veth5; the switch has their other ends.
"""  # noqa: E501 - a command

from __future__ import annotations

import p4runtime_sh.shell as sh
import ptf
from ptf.base_tests import BaseTest
from ptf.testutils import (
    send_packet,
    simple_tcp_packet,
    test_params_get,
    verify_no_other_packets,
    verify_packet,
    verify_packets,
)

NEAR, FAR = "02:00:00:00:00:01", "02:00:00:00:00:02"


class Forwarding(BaseTest):
    """A switch with the program and no entries."""

    def setUp(self) -> None:
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()
        given = test_params_get()
        sh.setup(
            device_id=given["device"],
            grpc_addr=given["grpc"],
            election_id=(0, 1),
            config=sh.FwdPipeConfig(given["p4info"], given["json"]),
        )

    def tearDown(self) -> None:
        sh.teardown()
        super().tearDown()

    def entry(self, destination: str, port: int) -> sh.TableEntry:
        """An entry that forwards frames to an address."""
        made = sh.TableEntry("addresses")(action="forward")
        made.match["hdr.ethernet.destination"] = destination
        made.action["port"] = str(port)
        return made

    def unknown(self) -> int:
        """How many frames went to addresses without an entry."""
        counter = sh.CounterEntry("ForwardIngress.unknown")
        counter.index = 0
        return next(iter(counter.read())).packet_count


class ForwardsTest(Forwarding):
    """Frames leave at the port of their address, unchanged, and are counted there."""

    def runTest(self) -> None:
        self.entry(NEAR, 2).insert()
        self.entry(FAR, 3).insert()
        for address, port in ((NEAR, 2), (FAR, 3)):
            packet = simple_tcp_packet(eth_dst=address, pktlen=120)
            send_packet(self, 1, packet)
            verify_packets(self, packet, [port])
        counter = sh.CounterEntry("ForwardIngress.forwarded")
        counter.index = 2
        (cell,) = counter.read()
        assert (cell.packet_count, cell.byte_count) == (1, 120)


class FollowsUpdatesTest(Forwarding):
    """Packets meet each change of an entry."""

    def runTest(self) -> None:
        packet = simple_tcp_packet(eth_dst=NEAR)
        entry = self.entry(NEAR, 2)
        entry.insert()
        for port in (2, 3, 2):
            entry.action["port"] = str(port)
            entry.modify()
            send_packet(self, 1, packet)
            verify_packet(self, packet, port)
        entry.delete()
        send_packet(self, 1, packet)
        verify_no_other_packets(self)
        assert self.unknown() == 1


class StartsEmptyTest(Forwarding):
    """What tests before this one wrote is gone with a new config."""

    def runTest(self) -> None:
        assert not list(sh.TableEntry("addresses").read())
        send_packet(self, 1, simple_tcp_packet(eth_dst=FAR))
        verify_no_other_packets(self)
        assert self.unknown() == 1
