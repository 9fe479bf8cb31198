"""Baselines in simulated time: message graphs over a reliable transport, through plain switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import is_int
from innet.records import Fabric
from innet.sim.flows import Flow
from innet.sim.gpu_hosts import GpuHosts
from innet.sim.messages import MessageGraph
from innet.sim.network import SECOND, Network, network_of
from innet.sim.simulation import Cable, NetworkCounts, Simulation
from innet.sim.transport import ReliableTransport, transport_of
from innet.switch.traffic_manager import PORTS
from innet.wire import PacketLayout

_LAYOUT = PacketLayout(1)  # of the program's packets; there are none


@dataclass(frozen=True, slots=True)
class MessageRun:
    """What a message graph took.

    Attributes:
        seconds: until the last message was delivered.
        delivered: float64 (n,), seconds until each message was.
        segments: packets with payload that hosts sent, those that were sent again included.
        retransmissions: of them, those that were sent again.
        timeouts: of the transport.
        counts: what links and queues did.
        fabric: hosts, switches and links.
    """

    seconds: float
    delivered: NDArray[np.float64]
    segments: int
    retransmissions: int
    timeouts: int
    counts: NetworkCounts
    fabric: Fabric

    def goodput_gbps(self, size: float) -> float:
        """Gbit/s at which ``size`` bytes of a gradient were summed."""
        return 8 * size / self.seconds / 1e9


def star(hosts: int) -> tuple[list[str], list[Cable]]:
    """All hosts at one switch: its name, and the cables."""
    return ["s0"], [Cable("s0", port, port) for port in range(hosts)]


def leaf_spine(hosts: int, racks: int, spines: int = 1) -> tuple[list[str], list[Cable]]:
    """Racks of the same size, and spines with a trunk to each; switches and cables.

    Host h is in rack h // (hosts / racks).
    """
    if hosts % racks:
        raise InputError(f"{hosts} hosts do not fill {racks} racks; give a divisor.")
    size = hosts // racks
    cables = [Cable(f"leaf{h // size}", h % size, h) for h in range(hosts)]
    cables += [
        Cable(f"leaf{rack}", size + spine, None, f"spine{spine}", rack)
        for rack in range(racks)
        for spine in range(spines)
    ]
    return [f"leaf{r}" for r in range(racks)] + [f"spine{s}" for s in range(spines)], cables


def simulate_messages(
    graph: MessageGraph,
    network: str | Path | Network | Mapping[str, Any] = "100g",
    *,
    transport: str | ReliableTransport | Mapping[str, Any] = "tcp",
    racks: int = 1,
    spines: int = 1,
    flows: Sequence[Flow] = (),
    gpus: GpuHosts | None = None,
    seed: int = 0,
) -> MessageRun:
    """Run a message graph over a network in simulated time.

    Args:
        graph: of ``innet.sim.messages``.
        network: as for ``innet.all_reduce``.
        transport: of all messages: "tcp", "dctcp", "roce" or "dcqcn", with or without settings.
        racks: one for a star; otherwise as many racks, joined by spines. Hosts that are no divisor
            of the racks are made up to one.
        spines: paths between racks, chosen by a hash of source and destination.
        flows: traffic beside the messages.
        gpus: where the graph's ends are GPUs: how many a host has, and how they are joined. Hosts
            of the network are then their cards.
        seed: of losses and flows.

    Raises:
        InputError, UnknownNameError, ConfigError: arguments that are none.
        StalledError: nothing will ever happen again.
    """
    for name, number in (("racks", racks), ("spines", spines)):
        if not is_int(number) or number < 1:
            raise InputError(f"{name} is {number!r}; give 1 or more.")
    hosts = max(2, graph.hosts if gpus is None else gpus.hosts * gpus.nics)
    hosts = -(-hosts // racks) * racks
    switches, cables = star(hosts) if racks == 1 else leaf_spine(hosts, racks, spines)
    if hosts // racks + (spines if racks > 1 else 0) > PORTS or racks > PORTS:
        raise InputError(
            f"a switch has {PORTS} ports; {hosts} hosts in {racks} racks need more; give more "
            "racks or fewer hosts."
        )
    simulation = Simulation(
        network_of(network), _LAYOUT, dict.fromkeys(switches), cables, hosts, seed=seed
    )
    if flows:
        simulation.add_flows(flows)
    group = simulation.launch_messages(graph, transport_of(transport), gpus)
    while simulation.wait() != group:
        pass
    messenger = simulation.messenger
    assert messenger is not None, "it was launched"
    segments, resent, timeouts = messenger.counts()
    return MessageRun(
        seconds=simulation.now,
        delivered=messenger.delivered / SECOND,
        segments=segments,
        retransmissions=resent,
        timeouts=timeouts,
        counts=simulation.counts(),
        fabric=simulation.fabric,
    )
