"""In-band telemetry: where packets wait in a network of three switches: telemetry.p4.

    python p4/examples/telemetry.py

Each switch adds its number, its queue and its time to a packet; the host at the end reads them.
Two hosts send to one, so that packets wait where their ways meet.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from pathlib import Path

from innet.sim import Testbed
from innet.sim.flows import udp_frame

PROGRAM = Path(__file__).with_suffix(".json")
HOP = struct.Struct(">III6s")
TYPE = 0x88B9


def make(seed: int, network: str = "1g"):
    """h1 - s1 - s2 - s3 - h2, and h3 at s2."""
    bed = Testbed(network, seed=seed)
    macs = {n: f"02:00:00:00:00:0{n}" for n in (1, 2, 3)}
    ways = {1: {1: 1, 2: 2, 3: 2}, 2: {1: 1, 2: 2, 3: 3}, 3: {1: 1, 2: 2, 3: 1}}
    switches = [
        bed.switch(
            f"s{number}",
            PROGRAM,
            commands=[
                f"table_set_default identity number {number}",
                *(f"table_add hosts forward {macs[n]} => {port}" for n, port in way.items()),
            ],
        )
        for number, way in ways.items()
    ]
    hosts = [bed.host(f"h{n}") for n in (1, 2, 3)]
    bed.link(hosts[0], switches[0], port=1)
    bed.link(hosts[1], switches[2], port=2)
    bed.link(hosts[2], switches[1], port=3)
    bed.link(switches[0], switches[1], ports=(2, 1))
    bed.link(switches[1], switches[2], ports=(2, 1))
    return bed, hosts


def read(frame: bytes):
    """The hops of a packet, (switch, packets in its queue, microseconds waited, time), the first
    one first; and the packet without them.
    """
    type_, hops = struct.unpack_from(">HB", frame, 14)
    found = []
    for n in range(hops):
        number, depth, waited, left = HOP.unpack_from(frame, 17 + n * HOP.size)
        found.insert(0, (number, depth, waited, int.from_bytes(left, "big")))
    plain = frame[:12] + type_.to_bytes(2, "big") + frame[17 + hops * HOP.size :]
    return found, plain


def run(packets: int = 100, seed: int = 1, network: str = "1g"):
    """Returns the bed and, for each packet that came, its payload's number and its hops."""
    bed, (h1, h2, h3) = make(seed, network)
    macs = 0x020000000001, 0x020000000002, 0x020000000003

    def begin(host, number):
        @host.run
        async def send():
            for n in range(packets):
                payload = struct.pack(">II", number, n) + bytes(992)
                frame = udp_frame(
                    0, 1, len(payload), ethernet=(macs[number], macs[1]), payload=payload
                )
                host.send(frame)
                await host.sleep(12e-6)

    begin(h1, 0)
    begin(h3, 2)

    @h2.run
    async def collect():
        seen = []
        while len(seen) < 2 * packets:
            hops, plain = read(await h2.receive())
            seen.append((*struct.unpack_from(">II", plain, 42), hops))
        return seen

    bed.run()
    return bed, collect.result()


if __name__ == "__main__":
    bed, seen = run()
    depths = defaultdict(list)
    for _, _, hops in seen:
        for number, depth, *_ in hops:
            depths[number].append(depth)
    for number, found in sorted(depths.items()):
        print(f"s{number}: {max(found)} packets in the queue at most")
