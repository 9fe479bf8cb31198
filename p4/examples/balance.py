"""Load balancing by probes, while a link fails: balance.p4 on two leaves and three spines.

    python p4/examples/balance.py

Hosts at the leaves send probes, which collect the load of links; leaves send each flowlet on the
least loaded way (HULA, SOSR 2016). When a link fails no probe comes by it, and its way is given up.
"""

from __future__ import annotations

import struct
from pathlib import Path

from innet.sim import Testbed
from innet.sim.flows import udp_frame

PROGRAM = Path(__file__).with_suffix(".json")
PROBE = struct.Struct(">6s6sHII")
TYPE = 0x88B8
SPINES = 3
INTERVAL = 100e-6  # of probes


def make(seed: int):
    """Hosts 1 and 2 at leaf 1, hosts 3 and 4 at leaf 2.

    Ports of leaves: 1 and 2 hosts, from 3 on spines. Ports of spines: 1 and 2 leaves.
    """
    bed = Testbed("1g", seed=seed)
    leaves = []
    for leaf in (1, 2):
        mine = [f"table_add hosts to_host 10.0.0.{2 * leaf - 2 + n}/32 => {n}" for n in (1, 2)]
        theirs = [
            f"table_add hosts to_leaf 10.0.0.{4 - 2 * leaf + n}/32 => {3 - leaf}" for n in (1, 2)
        ]
        group = " ".join(str(port) for port in range(3, 3 + SPINES))
        leaves.append(
            bed.switch(
                f"leaf{leaf}",
                PROGRAM,
                commands=[
                    *mine,
                    *theirs,
                    "mc_mgrp_create 1",
                    f"mc_node_create 0 {group}",
                    "mc_node_associate 1 0",
                    "table_add probes replicate 1 => 1",  # from host 1 to all spines
                ],
            )
        )
    spines = []
    for spine in range(SPINES):
        lines = [
            f"table_add hosts to_host 10.0.0.{n}/32 => {1 + (n - 1) // 2}" for n in range(1, 5)
        ]
        for port in (1, 2):  # a probe from a leaf goes to the other one
            lines += [
                f"mc_mgrp_create {port}",
                f"mc_node_create 0 {3 - port}",
                f"mc_node_associate {port} {port - 1}",
                f"table_add probes replicate {port} => {port}",
            ]
        spines.append(bed.switch(f"spine{spine + 1}", PROGRAM, commands=lines))
    hosts = [bed.host(f"h{n}") for n in range(1, 5)]
    for number, host in enumerate(hosts):
        bed.link(host, leaves[number // 2], port=1 + number % 2)
    trunks = [
        [bed.link(leaf, spine, ports=(3 + s, port)) for s, spine in enumerate(spines)]
        for port, leaf in enumerate(leaves, start=1)
    ]
    return bed, leaves, hosts, trunks


def probe(host, leaf: int):
    """Let a host send probes for its leaf."""

    @host.serve
    async def send():
        while True:
            host.send(PROBE.pack(bytes(6), bytes(6), TYPE, leaf, 0))
            await host.sleep(INTERVAL)


def run(packets: int = 400, flows: int = 8, fails: float = 4e-3, seed: int = 1):
    """Send flows from leaf 1 to leaf 2 while a link fails; returns the bed, its trunks, and when
    each packet of which flow came.
    """
    bed, _, (h1, h2, h3, h4), trunks = make(seed)
    probe(h1, 1)
    probe(h3, 2)
    trunks[1][0].down(fails, 1.0)  # spine 1 to leaf 2

    @h2.run
    async def send():
        await h2.sleep(1e-3)  # until probes have passed
        for number in range(packets):
            for flow in range(flows):
                payload = struct.pack(">II", flow, number) + bytes(192)
                h2.send(udp_frame(1, 3, len(payload), ports=(1000 + flow, 9), payload=payload))
            # Bursts with gaps, so that there are flowlets.
            await h2.sleep(20e-6 if number % 10 else 300e-6)

    @h4.run
    async def count():
        seen = []
        is_data = lambda frame: frame[12:14] == b"\x08\x00"  # noqa: E731 - probes come, too
        frame = await h4.receive(match=is_data)
        while frame is not None:
            seen.append((h4.now, *struct.unpack_from(">II", frame, 42)))
            frame = await h4.receive(timeout=2e-3, match=is_data)
        return seen

    bed.run()
    return bed, trunks, send, count.result()


if __name__ == "__main__":
    bed, trunks, _, seen = run()
    for spine, link in enumerate(trunks[0], start=1):
        print(f"leaf 1 sent {link.counts()[0].packets} packets by spine {spine}")
    print(f"{len(seen)} of 3200 packets came; the last at {seen[-1][0] * 1e3:.1f} ms")
