"""What collectives take by closed forms, over the same networks that packets are simulated on.

They know no loss and no other traffic. A simulation of the packets takes at least as long, but for
what it overlaps.
"""

from __future__ import annotations

import math

from innet.core.errors import InputError
from innet.core.numbers import require_int
from innet.sim.network import OVERHEAD, Network

MTU = 1500
"""Bytes of an IP packet: that of Ethernet."""
HEADERS = 14 + 20 + 32
"""Bytes of a packet before its data: Ethernet, IPv4, TCP with time stamps (RFC 7323)."""
DATA = MTU + 14 - HEADERS
"""Bytes of data in a full packet: 1,448, so that at most 94.1 % of a link's bits are data."""


def ring_seconds(network: Network, workers: int, size: int, *, switches: int = 1) -> float:
    """Seconds of a ring all-reduce.

    In each of 2 (n - 1) steps every worker sends 1/n of its data to the next worker, and waits for
    as much from the one before it. Adding takes no time.

    Args:
        network: its rates, delays and hosts.
        workers: n; one has nothing to send.
        size: bytes of each worker's data.
        switches: that a packet passes to the next worker: the most.

    Raises:
        InputError: no worker, no switch, fewer than 0 bytes, or a network that loses packets.
    """
    if require_int(workers, "the number of workers") < 1:
        raise InputError(f"{workers} workers; a ring has at least 1.")
    if require_int(size, "the number of bytes") < 0:
        raise InputError(f"{size} bytes; give 0 or more.")
    if require_int(switches, "the number of switches") < 1:
        raise InputError(f"{switches} switches; the way to the next worker has at least 1.")
    if network.loss:
        raise InputError(
            f"loss is {network.loss}: the closed form of a ring knows no loss; give 0."
        )
    if workers == 1 or size == 0:
        return 0.0
    part = -(-size // workers)
    packets = -(-part // DATA)
    rate = network.rate if switches == 1 else min(network.rate, network.of_trunks)
    receive, send = (
        each / network.host_cores for each in (network.host_receive, network.host_send)
    )
    # The slowest of the link and the two hosts decides how fast the packets of a step follow.
    sent = max(8 * _on_wire(part, packets) / rate, packets * send, packets * receive)
    # The last packet is received whole by each switch before the next link has it.
    last = 8 * _on_wire(part - (packets - 1) * DATA, 1)
    forwarded = last / network.rate + (switches - 1) * last / network.of_trunks
    latency = math.fsum(
        (
            (switches + 1) * network.delay,
            switches * network.switch_latency,
            send,
            receive,
            forwarded,
        )
    )
    return 2 * (workers - 1) * (sent + latency)


def _on_wire(data: int, packets: int) -> int:
    """Bytes on the wire of so much data in so many packets, which are never too short."""
    return data + packets * (HEADERS + OVERHEAD)
