"""Networks and flows of UDP packets, as recorded with ns-3: what a scenario's TOML file means.

A scenario is a topology, and flows over it. Everything becomes whole numbers here: picoseconds,
bytes on the wire, directed links. So each simulator is given the same, and only what it does with
it can differ. Needs the standard library alone: record_ns3.py runs where innet is not installed.
"""

from __future__ import annotations

import gzip
import json
import random
import tomllib
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

SECOND = 1_000_000_000_000
"""Picoseconds."""
HEADERS = 42
"""Bytes of Ethernet's, IPv4's and UDP's headers."""
OVERHEAD = 24
"""Bytes of preamble, frame check sequence and gap between frames."""
SHORTEST = 60
"""Bytes of the shortest frame, without the check sequence."""
UNLIMITED = 1_000_000
"""Packets that the queue of a host's network card holds."""


def wire_bytes(size: int) -> int:
    """Bytes on the wire of a UDP packet of ``size`` payload bytes."""
    return max(size + HEADERS, SHORTEST) + OVERHEAD


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link and the queue before it.

    Attributes:
        source, target: nodes.
        rate: bits per second.
        delay: propagation, picoseconds.
        queue: packets that may wait, beside the one on the wire.
    """

    source: int
    target: int
    rate: int
    delay: int
    queue: int


@dataclass(frozen=True, slots=True)
class Flow:
    """Packets of one size from a host to a host.

    Attributes:
        size: UDP payload bytes of a packet.
        path: the directed links that it takes.
        times: when each packet is sent, picoseconds; not decreasing.
    """

    size: int
    path: tuple[int, ...]
    times: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Nodes, links in pairs (2i and 2i + 1 are the two directions of a cable), and flows."""

    hosts: int
    nodes: int
    links: tuple[Link, ...]
    flows: tuple[Flow, ...]


@dataclass(slots=True)
class Outcome:
    """What became of a flow's packets.

    Attributes:
        delays: from the send to the last bit's arrival, picoseconds; None for a dropped packet.
        dropped_at: the link whose queue dropped a packet, by the packet's number.
    """

    delays: list[int | None] = field(default_factory=list)
    dropped_at: dict[int, int] = field(default_factory=dict)


def read_scenario(path: Path) -> Scenario:
    """A scenario from its TOML file."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    topology = document["topology"]
    hosts, nodes, links = _TOPOLOGIES[topology["kind"]](topology)
    draw = random.Random(document.get("seed", 0))
    flows = tuple(_flow(given, topology, links, draw) for given in document["flow"])
    return Scenario(hosts, nodes, links, flows)


def _flow(
    given: dict[str, Any], topology: dict[str, Any], links: tuple[Link, ...], draw: random.Random
) -> Flow:
    size, packets, now = given["size"], given["packets"], _ticks(given.get("start", 0))
    interval = _ticks(given.get("interval", 0))
    if "rate" in given:
        interval = round(8 * size * SECOND / given["rate"])
    times = []
    for _ in range(packets):
        times.append(now)
        now += round(draw.expovariate(1 / interval)) if given.get("poisson") else interval
    by = {(link.source, link.target): number for number, link in enumerate(links)}
    nodes = _route(given, topology)
    return Flow(size, tuple(by[pair] for pair in pairwise(nodes)), tuple(times))


def _ticks(seconds: float) -> int:
    return round(seconds * SECOND)


def _cable(a: int, b: int, rate: float, delay: float, queues: tuple[int, int]) -> list[Link]:
    ticks = _ticks(delay)
    return [Link(a, b, int(rate), ticks, queues[0]), Link(b, a, int(rate), ticks, queues[1])]


def _star(topology: dict[str, Any]) -> tuple[int, int, tuple[Link, ...]]:
    """Hosts at one switch."""
    return _racks({**topology, "leaves": 1, "spines": 0})


def _dumbbell(topology: dict[str, Any]) -> tuple[int, int, tuple[Link, ...]]:
    """Half of the hosts at one switch, half at another, and a trunk between the two."""
    hosts, nodes, links = _racks({**topology, "leaves": 2, "spines": 0})
    queue = topology["queue_packets"]
    rate = topology.get("trunk_rate", topology["rate"])
    return (
        hosts,
        nodes,
        links + tuple(_cable(hosts, hosts + 1, rate, topology["delay"], (queue,) * 2)),
    )


def _racks(topology: dict[str, Any]) -> tuple[int, int, tuple[Link, ...]]:
    """Hosts at leaves, as many at each, and a trunk from each leaf to each spine."""
    hosts, leaves, spines = topology["hosts"], topology["leaves"], topology["spines"]
    delay, queue = topology["delay"], topology["queue_packets"]
    links: list[Link] = []
    for host in range(hosts):
        leaf = hosts + host * leaves // hosts
        links += _cable(host, leaf, topology["rate"], delay, (UNLIMITED, queue))
    for leaf in range(hosts, hosts + leaves):
        for spine in range(hosts + leaves, hosts + leaves + spines):
            rate = topology.get("trunk_rate", topology["rate"])
            links += _cable(leaf, spine, rate, delay, (queue, queue))
    return hosts, hosts + leaves + spines, tuple(links)


_TOPOLOGIES = {"star": _star, "dumbbell": _dumbbell, "leaf_spine": _racks}


def _route(given: dict[str, Any], topology: dict[str, Any]) -> list[int]:
    """The nodes that a flow passes; over leaves and spines, by way of its ``spine``."""
    source, destination, hosts = given["source"], given["destination"], topology["hosts"]
    leaves = {"star": 1, "dumbbell": 2}.get(topology["kind"], topology.get("leaves", 0))
    first, last = (hosts + host * leaves // hosts for host in (source, destination))
    if first == last:
        return [source, first, destination]
    if topology["kind"] == "dumbbell":
        return [source, first, last, destination]
    return [source, first, hosts + leaves + given["spine"], last, destination]


# ------------------------------------------------------------------ golden data


def write_golden(path: Path, scenario: Scenario, outcomes: list[Outcome], ns3: str) -> int:
    """Write a scenario and what ns-3 made of it, as differences; returns the file's bytes."""
    document = {
        "ns3": ns3,
        "hosts": scenario.hosts,
        "nodes": scenario.nodes,
        "links": [asdict(link) for link in scenario.links],
        "flows": [
            {"size": flow.size, "path": flow.path, "times": _differences(flow.times)}
            for flow in scenario.flows
        ],
        "outcomes": [
            {
                "sent": len(outcome.delays),
                "received": len(outcome.delays) - len(outcome.dropped_at),
                "delays": _differences([each for each in outcome.delays if each is not None]),
                "dropped": _differences(sorted(outcome.dropped_at)),
                "dropped_at": [outcome.dropped_at[each] for each in sorted(outcome.dropped_at)],
            }
            for outcome in outcomes
        ],
    }
    data = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)
    path.write_bytes(data)
    return len(data)


def read_golden(path: Path) -> tuple[Scenario, list[Outcome], str]:
    """What ``write_golden`` wrote, and ns-3's version."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    flows = tuple(
        Flow(each["size"], tuple(each["path"]), tuple(_sums(each["times"])))
        for each in document["flows"]
    )
    outcomes = []
    for each in document["outcomes"]:
        dropped = dict(zip(_sums(each["dropped"]), each["dropped_at"], strict=True))
        received = iter(_sums(each["delays"]))
        delays = [None if number in dropped else next(received) for number in range(each["sent"])]
        outcomes.append(Outcome(delays, dropped))
    links = tuple(Link(**each) for each in document["links"])
    return Scenario(document["hosts"], document["nodes"], links, flows), outcomes, document["ns3"]


def _differences(numbers: list[int] | tuple[int, ...]) -> list[int]:
    return [b - a for a, b in zip((0, *numbers), numbers, strict=False)]


def _sums(differences: list[int]) -> list[int]:
    total, sums = 0, []
    for each in differences:
        total += each
        sums.append(total)
    return sums
