"""Networks of a ``Testbed`` in Mininet: the same switches, programs, tables and links.

Rates, delays and losses of links are those of veth pairs: what arrives is compared, not when.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from innet.core.errors import InputError, StalledError
from innet.core.settings import SwitchKind
from innet.mininet.debian import Topo
from innet.mininet.network import network, temporary_folder
from innet.mininet.nodes import P4Host, network_namespace_of
from innet.mininet.topologies import SWITCHES
from innet.testbed import Testbed
from innet.testbed.bed import Frames

_ALL = 0x0003  # ETH_P_ALL
_LONGEST = 1 << 16


class BedTopo(Topo):
    """A bed's hosts, switches and links, under their names."""

    def build(self, bed: Testbed, folder: Path, switch: SwitchKind = "bmv2") -> None:
        """Called by Mininet's ``Topo``.

        Args:
            bed: the network.
            folder: for programs and logs.
            switch: what runs the programs.

        Raises:
            InputError: a switch without a program, or with one that is no JSON.
        """
        for name, host in bed.hosts.items():
            self.addHost(name, cls=P4Host, ip=f"{host.ip}/16", mac=host.mac, mtu=9000)
        for number, (name, each) in enumerate(bed.switches.items(), start=1):
            if each.document is None:
                raise InputError(f"switch {name} has no program that Mininet could run.")
            path = folder / f"{name}.json"
            path.write_text(json.dumps(each.document), encoding="utf-8")
            options: dict[str, Any] = {"device_id": number} if switch == "bmv2" else {}
            self.addSwitch(
                name,
                cls=SWITCHES[switch],
                program=path,
                commands=[line for line in each.commands if line.partition("#")[0].strip()],
                folder=folder,
                mtu=9000,
                **options,
            )
        for link in bed.links:
            (a, port_a), (b, port_b) = link.ports
            self.addLink(a, b, port1=port_a, port2=port_b)


def play(
    bed: Testbed,
    frames: Frames,
    *,
    switch: SwitchKind = "bmv2",
    gap: float = 2e-3,
    quiet: float = 0.5,
    deadline: float = 120.0,
) -> dict[str, list[bytes]]:
    """Let hosts send frames in Mininet, one after the other in the order of their times.

    Args:
        bed: the network. Its controllers, flows and coroutines do nothing here.
        frames: by a host's name: when it sends, and what, as for ``Testbed.play``.
        switch: what runs the programs: "bmv2", a simple_switch, or "builtin", innet's.
        gap: real seconds from one frame to the next.
        quiet: real seconds without a frame, after which no more is waited for.
        deadline: real seconds for all.

    Returns:
        what came to each host, by name, in order.

    Raises:
        InputError: not root, or a switch that cannot be in Mininet.
        StalledError: frames still come at the deadline.
        InnetError: a switch did not start.
    """
    order = sorted(
        (seconds, number, name, frame)
        for name, listed in frames.items()
        for number, (seconds, frame) in enumerate(listed)
    )
    with temporary_folder() as folder, network(BedTopo(bed, folder, switch)) as net:
        sockets = {name: sockets_of(net.get(name)) for name in bed.hosts}
        try:
            return _exchange(sockets, [each[2:] for each in order], gap, quiet, deadline)
        finally:
            for opened in sockets.values():
                for each in opened:
                    each.close()


def sockets_of(host: Any) -> list[socket.socket]:
    """A socket for all frames of each interface of a host, whose kernel answers none of them."""
    found = []
    for name in host.intfNames():
        host.cmd(f"ip address flush dev {name}")
    with network_namespace_of(host.pid):
        for name in host.intfNames():
            if name != "lo":
                opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL))
                opened.bind((name, 0))
                opened.setblocking(False)
                found.append(opened)
    return found


def _exchange(
    sockets: Mapping[str, Sequence[socket.socket]],
    order: Sequence[tuple[str, bytes]],
    gap: float,
    quiet: float,
    deadline: float,
) -> dict[str, list[bytes]]:
    """Send frames one after the other, and take what comes, until nothing does."""
    found: dict[str, list[bytes]] = {name: [] for name in sockets}
    owners = {each: name for name, opened in sockets.items() for each in opened}
    ends, last, following = time.monotonic() + deadline, time.monotonic(), 0
    due = last
    while following < len(order) or time.monotonic() - last < quiet:
        now = time.monotonic()
        if now > ends:
            raise StalledError(f"after {deadline:g} s frames still come; {following} were sent.")
        if following < len(order) and now >= due:
            name, frame = order[following]
            sockets[name][0].send(frame)
            following, due, last = following + 1, now + gap, now
        wait = max(0.0, due - now) if following < len(order) else 0.05
        for ready in select.select(list(owners), [], [], wait)[0]:
            frame, address = ready.recvfrom(_LONGEST)
            if address[2] != socket.PACKET_OUTGOING:
                found[owners[ready]].append(frame)
                last = time.monotonic()
    return found
