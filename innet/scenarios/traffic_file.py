"""TOML files that describe traffic: a topology, its switches' programs, and flows of packets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, get_args, get_type_hints

import numpy as np
from pydantic import AfterValidator, Field, create_model, model_validator

from innet.core.errors import ConfigError, InputError
from innet.core.packets import MAX_PORT
from innet.core.pcap import ETHERNET, link_name
from innet.core.settings import Settings, load_toml
from innet.network import Faults
from innet.sim.flows import HEADERS, UDP_PORT, Flow, PacketFlow, udp_frame
from innet.sim.network import SECOND, Network, network_of
from innet.sim.simulation import Cable
from innet.sim.state import STAMP_BYTES, STAMPED_FLOWS
from innet.tools.captures import CaptureReader
from innet.topology import Shape, topology_of, with_bottleneck
from innet.topology.topologies import traffic_shape

_MOST_PACKETS = 10_000_000  # of a capture that is sent again
Number = int | float
Byte = Annotated[int, Field(ge=0, le=255)]
UdpPort = Annotated[int, Field(ge=0, le=65535)]


def _address(text: str, separator: str, count: int, base: int, example: str) -> str:
    parts = text.split(separator)
    try:
        values = [int(part, base) for part in parts]
    except ValueError:
        values = []
    if len(values) != count or any(not 0 <= value < 256 for value in values):
        raise ValueError(f"give an address such as {example}")
    return text


def _mac(text: str) -> str:
    return _address(text, ":", 6, 16, "02:00:00:00:00:01")


def _ip(text: str) -> str:
    return _address(text, ".", 4, 10, "10.0.0.1")


def _hex(text: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError:
        raise ValueError("give the packet's bytes in hexadecimal digits") from None
    return text


Mac = Annotated[str, AfterValidator(_mac)]
Ip = Annotated[str, AfterValidator(_ip)]


def _table_of(declared: type, leave_out: Collection[str] = ()) -> type[Settings]:
    """A table with the fields of a dataclass, which checks their ranges itself.

    What a file does not state is None. A number without a fraction stays an integer.
    """
    hints = get_type_hints(declared)
    made: dict[str, Any] = {}
    for field in fields(declared):
        if field.name not in leave_out:
            hint = hints[field.name]
            is_float = float in (hint, *get_args(hint))
            made[field.name] = ((int | hint if is_float else hint) | None, None)
    return create_model(f"{declared.__name__}Table", __base__=Settings, **made)


_Network: Any = _table_of(Network)
_Faults: Any = _table_of(Faults, leave_out=("loss", "delay", "tick", "outages", "restarts"))


class TopologyTable(_Network):  # type: ignore[misc]  # its class is made here
    """``[topology]``: switches and hosts by the kind of network, and the network's settings.

    The kind is the name of a topology, with or without options. The other fields here are options
    of topologies; ``leaves`` are the ``racks`` of a leaf-spine.
    """

    kind: str | None = None
    hosts: Annotated[int, Field(ge=1, le=1 << 15)] | None = None
    leaves: Annotated[int, Field(ge=1, le=4096)] | None = None
    spines: Annotated[int, Field(ge=1, le=256)] | None = None
    racks: int | None = None
    depth: int | None = None
    ports: int | None = None
    preset: str | None = None


class LinkTable(Settings):
    """``[[link]]``: the two ends of a cable, "host 0" or "s1:3", a switch's name and port.

    The others are for this cable, in the place of the network's.
    """

    ends: Annotated[tuple[str, str], Field(strict=False)]
    rate: Number | None = None
    delay: Number | None = None
    loss: Number | None = None


class FaultsTable(_Faults):  # type: ignore[misc]  # likewise
    """``[faults]``: of all links, see ``innet.network.Faults``."""


class SwitchTable(Settings):
    """``[switch.NAME]``: files, relative to this one, in the place of those of the command line."""

    program: str | None = None
    commands: str | None = None
    priority_queues: Annotated[int, Field(ge=1, le=32)] | None = None


class TrafficFlowTable(Settings):
    """``[[flow]]``: packets that a host sends."""

    source: Annotated[int, Field(ge=0)]
    destination: Annotated[int, Field(ge=0)] | None = None
    size: Annotated[int, Field(ge=0, le=0xFFFF - 28)] | None = None
    packets: Annotated[int, Field(ge=1)] | None = None
    rate: Annotated[Number, Field(gt=0)] | None = None
    interval: Annotated[Number, Field(ge=0)] | None = None
    times: Annotated[tuple[Number, ...], Field(strict=False)] | None = None
    start: Annotated[Number, Field(ge=0)] = 0
    poisson: bool = False
    spine: Annotated[int, Field(ge=0)] | None = None
    priority: Annotated[int, Field(ge=0)] = 0
    background: bool = False
    stamp: bool | None = None
    packet: Annotated[str, AfterValidator(_hex)] | None = None
    pcap: str | None = None
    source_mac: Mac | None = None
    destination_mac: Mac | None = None
    source_ip: Ip | None = None
    destination_ip: Ip | None = None
    source_port: UdpPort = UDP_PORT
    destination_port: UdpPort = UDP_PORT
    dscp: Annotated[int, Field(ge=0, le=63)] = 0
    ecn: Annotated[int, Field(ge=0, le=3)] = 0
    ttl: Byte = 64

    @model_validator(mode="after")
    def _one_kind_of_packet(self) -> Self:
        given = [name for name in ("size", "packet", "pcap") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a flow's packets are given by one of size, packet and pcap, not by "
                f"{' and '.join(given) or 'none of them'}"
            )
        if self.size is not None and self.destination is None:
            raise ValueError("name the flow's destination")
        paced = [name for name in ("rate", "interval", "times") if getattr(self, name) is not None]
        if len(paced) != (self.pcap is None):
            raise ValueError(
                "a capture's packets have their own times: leave rate, interval and times out"
                if self.pcap
                else "give one of rate, interval and times"
            )
        if (self.packets is None) != (self.times is not None or self.pcap is not None):
            raise ValueError("give packets with rate or interval, and only there")
        return self


class TrafficTable(Settings):
    """A file that describes traffic."""

    topology: TopologyTable = TopologyTable()
    link: tuple[LinkTable, ...] = Field(default=(), strict=False)
    switch: dict[str, SwitchTable] = Field(default_factory=dict)
    faults: FaultsTable = FaultsTable()
    flow: tuple[TrafficFlowTable, ...] = Field(strict=False, min_length=1)
    seconds: Annotated[Number, Field(gt=0, le=1e6)] | None = None
    seed: Annotated[int, Field(ge=0)] | None = None


class SwitchFiles(NamedTuple):
    """What a switch runs.

    Attributes:
        program: the path of compiled P4, or the name of a program of innet; None: the switch
            only forwards flows without bytes.
        commands: path of the commands for its tables.
        priority_queues: per port.
    """

    program: str | None
    commands: Path | None
    priority_queues: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a file describes.

    Attributes:
        network: rates, delays and queues.
        hosts: how many; they are 0, 1, ...
        switches: by name.
        cables: all links.
        faults: what links do to packets, beside losing them.
        flows: in the file's order.
        seconds: when to stop; None: when nothing is under way any more.
        seed: of losses and random flows; None: not stated.
    """

    network: Network
    hosts: int
    switches: Mapping[str, SwitchFiles]
    cables: tuple[Cable, ...]
    faults: Faults
    flows: tuple[Flow | PacketFlow, ...]
    seconds: float | None
    seed: int | None

    @property
    def longest(self) -> int:
        """Bytes of the longest packet that a flow sends."""
        return max(flow.frame_size for flow in self.flows)


def read_scenario(
    path: str | Path,
    *,
    program: str | None = None,
    commands: Path | None = None,
    priority_queues: int = 1,
    network: str | Path | Network | Mapping[str, Any] | None = None,
) -> Scenario:
    """Read a file that describes traffic.

    Args:
        path: the file.
        program: of switches for which the file states none.
        commands: path of the commands for their tables.
        priority_queues: per port, likewise.
        network: for what the file does not state of rates, delays and queues; in the place of its
            ``preset``.

    Raises:
        ConfigError: the file cannot be read, or something in it cannot be used; by its name.
    """
    table = load_toml(path, TrafficTable)
    usual = SwitchFiles(program, commands, priority_queues)
    try:
        return _scenario(table, Path(path).parent, usual, network)
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None


def _scenario(
    table: TrafficTable,
    folder: Path,
    usual: SwitchFiles,
    network: str | Path | Network | Mapping[str, Any] | None,
) -> Scenario:
    topology = table.topology
    base: Any = (topology.preset or {}) if network is None else network
    stated = topology.model_dump(include=_Network.model_fields.keys(), exclude_unset=True)
    settings = network_of({**asdict(network_of(base)), **stated})
    if topology.kind is None:
        cables = _listed(table)
        if settings.trunk_rate is None:  # of links that are listed each is as it says
            settings = replace(settings, trunk_rate=settings.rate)
    elif table.link:
        raise InputError("both topology.kind and [[link]] are given; leave one of them out.")
    else:
        kind = _KINDS.get(topology.kind, topology.kind)
        cables = _cables_of(_shape_of(kind, topology))
        settings = with_bottleneck(settings, kind)
    names = list(dict.fromkeys(n for c in cables for n in (c.switch, c.other) if n))
    for name in table.switch:
        if name not in names:
            raise InputError(f"there is no switch {name}; there are {', '.join(names)}.")
    switches = {name: _files(table.switch.get(name), folder, usual) for name in names}
    hosts = sum(cable.host is not None for cable in cables)
    runs = any(files.program is not None for files in switches.values())
    if not runs and (lost := [n for n, files in switches.items() if files.commands is not None]):
        raise InputError(f"switch {lost[0]} has commands and no program; add --program.")
    flows = []
    for number, each in enumerate(table.flow):
        try:
            flows.append(_flow(each, hosts, folder, runs=runs))
        except InputError as error:
            raise InputError(f"flow {number}: {error}") from None
    if len(flows) > STAMPED_FLOWS and any(isinstance(f, PacketFlow) and f.stamp for f in flows):
        raise InputError(
            f"{len(flows)} flows; stamps tell {STAMPED_FLOWS} apart: set stamp = false."
        )
    faults = Faults(**table.faults.model_dump(exclude_unset=True))
    return Scenario(
        settings, hosts, switches, cables, faults, tuple(flows), table.seconds, table.seed
    )


def _files(table: SwitchTable | None, folder: Path, usual: SwitchFiles) -> SwitchFiles:
    if table is None:
        return usual
    program = usual.program if table.program is None else _beside(table.program, folder)
    commands = usual.commands
    if table.commands is not None:
        commands = folder / table.commands
    elif table.program is not None:
        commands = None  # those of the command line are for the program there
    return SwitchFiles(program, commands, table.priority_queues or usual.priority_queues)


def _beside(program: str, folder: Path) -> str:
    """A program's file beside the scenario's, or the name of one of innet's programs."""
    is_file = program.endswith((".json", ".gz", ".xz")) or "/" in program
    return str(folder / program) if is_file else program


# ----------------------------------------------------------------------------
# Topologies


_KINDS = {"leaf_spine": "leaf-spine"}
"""Names of topologies that files used before they were those of all commands."""


def _shape_of(kind: str, topology: TopologyTable) -> Shape:
    """The network of a kind, with the options that the table states."""
    if topology.hosts is None:
        raise InputError(f"topology.hosts is missing; say how many hosts the {kind} has.")
    options = topology.model_dump(include={"leaves", "spines", "racks", "depth", "ports"})
    if topology.leaves is not None and "racks" in topology_of(kind).options:
        if topology.racks is not None:
            raise InputError("leaves and racks are the same; leave one of them out.")
        options |= {"racks": topology.leaves, "leaves": None}
    return traffic_shape(kind, topology.hosts, options)


def _cables_of(shape: Shape) -> tuple[Cable, ...]:
    """The cables of a topology. The ports of a switch are 1, 2, ... without gaps.

    They are for its hosts first, in order, then for other switches: those with hosts in the order
    of their hosts, then the others of the tree, those nearest to hosts first, then those outside
    of it. So those of a leaf are for its hosts and the spines, and those of a spine by leaf.
    """
    # Step 1: the switch of each host, and the ends of each link between switches.
    nodes = list(shape.root.descend())
    switch_of = {host: node.name for node in nodes for host in node.local_workers}
    links = [(child.name, node.name) for node in nodes for child in node.children]
    links += [(link.a.node, link.b.node) for link in shape.unused_links]
    # Step 2: an order of the switches, from which the order of links and so all ports follow.
    with_hosts = [switch_of[host] for host in range(len(switch_of))]
    others = [node.name for node in sorted(nodes, key=lambda node: node.height)]
    names = dict.fromkeys(
        [*with_hosts, *others, *shape.spare, *(n for pair in links for n in pair)]
    )
    place = {name: number for number, name in enumerate(names)}
    used = Counter([*with_hosts, *(name for pair in links for name in pair)])
    if max(used.values()) > MAX_PORT:
        raise InputError(
            f"a switch would need {max(used.values())} ports, and has {MAX_PORT}; give more "
            "switches, or fewer hosts."
        )
    # Step 3: cables, which take the next free port at each end.
    next_port = {name: count(1) for name in names}
    cables = [Cable(name, next(next_port[name]), host) for host, name in enumerate(with_hosts)]
    near_first = (sorted(pair, key=place.__getitem__) for pair in links)
    for near, far in sorted(near_first, key=lambda pair: [place[name] for name in pair]):
        cables.append(Cable(near, next(next_port[near]), None, far, next(next_port[far])))
    return tuple(cables)


def _listed(table: TrafficTable) -> tuple[Cable, ...]:
    """The cables of ``[[link]]``."""
    if not table.link:
        raise InputError("there are no links; give topology.kind, or [[link]] with ends.")
    cables: list[Cable] = []
    for number, link in enumerate(table.link):
        try:
            hosts, ports = [], []
            for end in link.ends:
                word, _, rest = end.partition(" ")
                if word == "host":
                    hosts.append(_number(rest, end, table.topology.hosts or 1 << 15))
                else:
                    switch, _, port = end.rpartition(":")
                    ports.append((switch, _number(port if switch else "", end, MAX_PORT + 1)))
            if len(hosts) > 1:
                raise InputError("no switch is at either end; name one, such as s1:1.")
            own = {name: getattr(link, name) for name in ("rate", "delay", "loss")}
            network_of({name: value for name, value in own.items() if value is not None})
        except InputError as error:
            raise InputError(f"link {number}: {error}") from None
        other = ports[1] if not hosts else ("", 0)
        cables.append(Cable(*ports[0], hosts[0] if hosts else None, *other, **own))
    _check_ends(cables)
    return tuple(cables)


def _number(text: str, end: str, limit: int) -> int:
    if not text.strip().isdecimal() or int(text) >= limit:
        raise InputError(
            f"{end!r} is no end of a link; give 'host 0', or a switch's name and port: 's1:3'."
        )
    return int(text)


def _check_ends(cables: list[Cable]) -> None:
    ends = [(c.switch, c.port) for c in cables]
    ends += [(c.other, c.other_port) for c in cables if c.host is None]
    if len(set(ends)) < len(ends):
        twice = next(end for end in ends if ends.count(end) > 1)
        raise InputError(f"port {twice[1]} of switch {twice[0]} has two links; use another port.")
    hosts = sorted(cable.host for cable in cables if cable.host is not None)
    if hosts != list(range(len(hosts))) or not hosts:
        raise InputError(
            f"hosts {hosts} have links; they are to be 0, 1, 2 and so on, each with one link."
        )


# ----------------------------------------------------------------------------
# Flows


def _flow(table: TrafficFlowTable, hosts: int, folder: Path, *, runs: bool) -> Flow | PacketFlow:
    for name in ("source", "destination"):
        host = getattr(table, name)
        if host is not None and host >= hosts:
            raise InputError(f"{name} = {host}, and there are hosts 0 to {hosts - 1}.")
    has_bytes = table.packet is not None or table.pcap is not None
    if not runs and has_bytes:
        raise InputError(
            "packets with bytes run a program, and no switch has one; give --program, or the "
            "flow's size."
        )
    if table.pcap is not None:
        return _captured(table, folder / table.pcap)
    if not runs or (table.background and not has_bytes):
        return _plain(table)
    if table.background:
        raise InputError("background packets have no bytes; leave packet or background out.")
    if table.priority:
        raise InputError(
            "priority is for flows without bytes; here the program chooses queues, such as by dscp."
        )
    if table.spine is not None:
        raise InputError("spine is for flows without bytes; here the program chooses the way.")
    if table.packet is not None:
        frame = bytes.fromhex(table.packet)
        bits, stamp = 8 * len(frame), bool(table.stamp)
    else:
        assert table.size is not None, "checked by TrafficFlowTable"
        assert table.destination is not None, "likewise"
        frame = udp_frame(
            table.source,
            table.destination,
            table.size,
            ethernet=(_value(table.source_mac, ":", 16), _value(table.destination_mac, ":", 16)),
            ipv4=(_value(table.source_ip, ".", 10), _value(table.destination_ip, ".", 10)),
            ports=(table.source_port, table.destination_port),
            traffic_class=4 * table.dscp + table.ecn,
            ttl=table.ttl,
        )
        bits = 8 * table.size
        stamp = table.size >= STAMP_BYTES if table.stamp is None else table.stamp
        if stamp and table.size < STAMP_BYTES:
            raise InputError(f"a stamp takes {STAMP_BYTES} bytes of payload; size = {table.size}.")
    return PacketFlow(
        source=table.source,
        frames=(frame,),
        stamp=stamp,
        poisson=table.poisson,
        record_delays=stamp,
        **_pace(table, bits),
    )


def _value(text: str | None, separator: str, base: int) -> int | None:
    if text is None:
        return None
    return int.from_bytes(bytes(int(part, base) for part in text.split(separator)), "big")


def _plain(table: TrafficFlowTable) -> Flow:
    assert table.size is not None, "checked by TrafficFlowTable"
    assert table.destination is not None, "likewise"
    return Flow(
        source=table.source,
        destination=table.destination,
        size=table.size,
        poisson=table.poisson,
        record_delays=True,
        path=table.spine,
        priority=table.priority,
        **_pace(table, 8 * table.size),
    )


def _pace(table: TrafficFlowTable, bits: int) -> dict[str, Any]:
    """When packets of ``bits`` are sent: settings of ``Flow`` and ``PacketFlow``."""
    if table.times is not None:
        return {"times": tuple(map(float, table.times))}
    assert table.packets is not None, "checked by TrafficFlowTable"
    if table.rate is not None and not bits:
        raise InputError("empty packets have no rate; give their interval.")
    interval = bits / table.rate if table.rate is not None else table.interval
    assert interval is not None, "checked by TrafficFlowTable"
    if interval == 0:
        return {"times": np.full(table.packets, float(table.start))}
    # Whole ticks of the clock, so that the n-th packet is due n intervals after the first.
    return {
        "packets": table.packets,
        "interval": max(1, round(interval * SECOND)) / SECOND,
        "start": float(table.start),
    }


def _captured(table: TrafficFlowTable, path: Path) -> PacketFlow:
    """The packets of a capture, at its times after its first packet."""
    if table.poisson or table.background or table.priority or table.spine is not None:
        raise InputError("a capture's packets have no poisson, background, priority or spine.")
    frames: list[bytes] = []
    times: list[int] = []
    with CaptureReader(path) as capture:
        for block in capture.blocks():
            if capture.link_type != ETHERNET:
                raise InputError(
                    f"{path} has packets of link type {link_name(capture.link_type)}; the links of "
                    "a simulated network carry Ethernet frames (1)."
                )
            data = block.data.tobytes()
            ends = block.start + block.length
            frames += [data[a:b] for a, b in zip(block.start.tolist(), ends.tolist(), strict=True)]
            times += block.time.tolist()
            if len(frames) > _MOST_PACKETS:
                raise InputError(f"{path} has more than {_MOST_PACKETS} packets; split it.")
    if not frames:
        raise InputError(f"{path} has no packets.")
    order = np.argsort(times, kind="stable")
    since = (np.asarray(times, np.int64)[order] - min(times)) / 1e9 + float(table.start)
    return PacketFlow(
        source=table.source,
        frames=tuple(frames[at] for at in order),
        times=since,  # type: ignore[arg-type]  # an array is a sequence of floats here
        stamp=bool(table.stamp),
        record_delays=bool(table.stamp),
    )


__all__ = ["HEADERS", "Scenario", "SwitchFiles", "read_scenario"]
