"""The record of traffic over a simulated network: what became of packets, and where."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from innet.records.record import Record
from innet.records.report import Fabric, Frozen

TRAFFIC = "innet.traffic"  # format of the record of ``innet simulate traffic``
"""Format of the record of ``innet simulate traffic``."""


class FlowTraffic(Frozen):
    """A flow.

    Attributes:
        source, destination: hosts; None: where the program sends its packets.
        runs_program: its packets have bytes and run the program; otherwise switches forward them.
        sent: packets.
        received: of them, those that hosts received, copies included; None: packets without a
            stamp, which hosts cannot tell apart.
        dropped: by full queues; None for packets that run the program: see the switches.
        lost: on links; None likewise.
        mean_delay, longest_delay: simulated seconds, from when a packet was due to be sent to the
            arrival of its last bit; None: none was received or can be told.
    """

    source: int
    destination: int | None
    runs_program: bool
    sent: int
    received: int | None
    dropped: int | None
    lost: int | None
    mean_delay: float | None
    longest_delay: float | None


class HostTraffic(Frozen):
    """A host.

    Attributes:
        sent, received: packets.
        sent_bytes, received_bytes: of frames, without check sequence.
    """

    sent: int
    sent_bytes: int
    received: int
    received_bytes: int


class QueueTraffic(Frozen):
    """An egress queue.

    Attributes:
        port, priority: which one.
        dropped: packets that found it full.
        bytes_max: the most bytes that waited.
        marked: packets that it marked with "congestion experienced" itself.
    """

    port: int
    priority: int
    dropped: int
    bytes_max: int
    marked: int


class SwitchTraffic(Frozen):
    """A switch.

    Attributes:
        name: of the switch.
        program: what it runs; "" for one that only forwards flows without bytes.
        packets_in: packets that came.
        packets_out: packets that were put onto links.
        dropped_program: packets and copies that the program dropped.
        dropped_queue: packets and copies that found a queue full.
        unconnected: packets that left by ports without a link.
        no_program: packets of programs that came to a switch without one, and were dropped.
        replicated, cloned, resubmitted, recirculated: by the program.
        queues: those of its links, and others in which packets waited.
    """

    name: str
    program: str
    packets_in: int
    packets_out: int
    dropped_program: int
    dropped_queue: int
    unconnected: int
    no_program: int
    replicated: int
    cloned: int
    resubmitted: int
    recirculated: int
    queues: tuple[QueueTraffic, ...]


class LinkTraffic(Frozen):
    """A link, in one direction.

    Attributes:
        source, target: its ends, such as "host 0" and "s1:1".
        packets: put onto it, lost ones included.
        bytes: of them, with preamble, check sequence and gap.
        lost: packets.
        utilization: part of the simulated time in which it was busy.
        pauses: how often priority flow control paused it, by priority.
        paused: seconds in which it did, likewise.
        capture: the file with its packets; "" without one.
    """

    source: str
    target: str
    packets: int
    bytes: int
    lost: int
    utilization: float
    pauses: dict[int, int] = Field(default_factory=dict)
    paused: dict[int, float] = Field(default_factory=dict)
    capture: str = ""


class TrafficRecord(Record):
    """Flows of packets over a network in simulated time.

    All but ``created``, ``machine`` and ``wall_seconds`` depends on the settings alone.

    Attributes:
        network: all settings of the network.
        fabric: its hosts, switches and links; None in records of older versions.
        seconds: simulated, until the last packet had arrived, or the end that was asked for.
        under_way: packets that were on links or in queues then.
        flows, switches, links: in the order of the file.
        hosts: by number.
        packets: put onto links.
        wall_seconds: wall time of the run.
    """

    formats: ClassVar[tuple[str, ...]] = (TRAFFIC,)

    format: Literal["innet.traffic"] = "innet.traffic"
    network: dict[str, Any] = Field(default_factory=dict)
    fabric: Fabric | None = None
    seconds: float
    under_way: int
    flows: tuple[FlowTraffic, ...]
    hosts: tuple[HostTraffic, ...]
    switches: tuple[SwitchTraffic, ...]
    links: tuple[LinkTraffic, ...]
    packets: int
    wall_seconds: float
