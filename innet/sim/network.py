"""Networks in simulated time: rates, delays and queues, as settings and as presets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.core.files import read_toml
from innet.core.numbers import is_int, is_real
from innet.core.registry import split_name

SECOND = 1_000_000_000_000
"""Ticks of the clock: picoseconds."""
OVERHEAD = 24  # bytes on the wire beside a frame: preamble, check sequence, gap between frames
SHORTEST = 60  # bytes of a frame without its check sequence; shorter ones are padded
RESOLUTION = 1 / SECOND
"""Seconds of the clock's tick, a picosecond."""


UNITS: Mapping[str, int] = MappingProxyType({"us": 1_000_000, "ns": 1_000_000_000})
"""Of the times that P4 programs see: how many a second has."""

_DURATIONS = (
    "delay",
    "switch_latency",
    "recirculation_latency",
    "host_receive",
    "host_send",
    "host_jitter",
    "flowlet_gap",
    "pfc_watchdog",
    "local_latency",
)
_ON_OR_OFF = ("pfc", "trim")
BALANCING: Mapping[str, int] = MappingProxyType(
    {"ecmp": -1, "spray": -2, "adaptive": -3, "flowlet": -4}
)
"""How switches choose one of several shortest paths, and the word of a flow that says so."""
_SHORTEST_LOCAL = 1e-9  # seconds; simulated time advances by half of a local latency at most
_MOST_PER_BYTE = 1e-3  # seconds
MOST_RATE = 1e15
"""Bits per second of a link. The shortest packet then takes a picosecond, the clock's tick."""
PFC_BUFFER = 32 << 20
"""Bytes of a switch's buffer with flow control by default (assumed)."""
MOST_PRIORITIES = 8
"""Egress queues of a port: as many as the class selectors of IPv4's DSCP tell apart (RFC 2474)."""


def _finite(number: object) -> bool:
    return is_real(number) and math.isfinite(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What links, switches and hosts of a network take, the same for all of a kind.

    Args:
        rate: bits per second of the links between hosts and switches, each way.
        trunk_rate: of the links between switches; by default each is as fast as all hosts that
            send through it at once need, so that the fabric does not block (``innet.sim.fabric``).
        delay: propagation delay of each link, seconds. 500 ns: some 100 m of fiber.
        loss: probability that a packet is lost on a link, by bit errors.
        switch_latency: seconds that the pipeline of a switch takes. 600 ns (assumed: what makers of
            such switches state is between 0.4 and 1 microsecond).
        queue_packets: packets that an egress queue holds. 4,096 (assumed).
        queue_bytes: bytes that an egress queue holds; with None only packets are limited.
        priorities: egress queues of each port, from 1 to 8, which share its link: whenever it is
            free, the highest priority that waits leaves first. Each holds ``queue_packets`` and
            ``queue_bytes``.
        buffer_bytes: bytes of the buffer that all queues of a switch share; None: each has its own.
        buffer_alpha: of a shared buffer, a queue holds at most this multiple of the free bytes
            (Choudhury and Hahne, 1998).
        ecn_bytes: a packet that may be marked and finds more bytes in its queue is marked with
            "congestion experienced"; None: none is.
        ecn_max_bytes: with this, packets are marked by chance (RED) where a queue has more bytes
            than ``ecn_bytes`` and fewer than this: with a probability that grows from 0 to
            ``ecn_probability``. All are from this on.
        ecn_probability: 1 %, DCQCN's (Zhu et al., SIGCOMM 2015, figure 14).
        trim: switches cut packets of messages that find their queue full to their headers (NDP,
            Handley et al., SIGCOMM 2017). Each port then has one queue more, of the highest
            priority, for headers and acknowledgements. What finds that full is dropped, and so are
            packets of programs and of flows, as without it.
        trim_packets: packets that this queue holds. 1,024 (assumed: about as many bytes of headers
            as in NDP's queues, which have room for eight packets of 9,000 bytes).
        timestamp_unit: of the times that P4 programs see and that meters count: "us", as in BMv2,
            or "ns". In nanoseconds, fields of 32 bits (``enq_timestamp``, ``deq_timedelta``) wrap
            after 4.29 s, those of 48 bits after 78 hours.
        recirculation_rate: bits per second of the port through which packets pass the pipeline
            again; None: that of ``rate``.
        recirculation_latency: seconds from there to the next pass. 600 ns (assumed: the pipeline).
        host_receive: seconds of a core of a host per packet that it receives. 100 ns (assumed: ten
            million packets a second, what drivers in user space such as DPDK reach on a core).
        host_send: the same per packet that it sends. 100 ns (assumed likewise).
        host_byte: seconds of a core of a host per byte that it sends or receives. 0 (assumed: the
            network card copies).
        host_cores: cores of a host that share its packets. As one server, they are modelled as a
            core that is faster by this factor. 8 (assumed).
        host_jitter: seconds by which a packet is late in a host, both ways: drawn for each packet
            from 0 to this, evenly; those behind it wait. No core is busy meanwhile. 0: no two hosts
            differ, and those that send to one short queue may lock each other out (Floyd and
            Jacobson, 1992).
        host_pace: bits per second at which a host's packets leave, evenly spaced, as network cards
            and drivers in user space pace them; with None they
            are sent as fast as the host and its link can.

        pfc: priority flow control (IEEE 802.1Qbb): a switch pauses who sends to it, by priorities,
            before its buffer is full. Then only the buffer limits queues, not ``queue_packets``.
        pfc_alpha: a sender is paused while packets of a priority that came by its link take more
            than this multiple of what is free in the shared buffer. 1/8 (Zhu et al., SIGCOMM
            2015, section 4).
        pfc_xon: bytes by which they must be fewer before it is resumed; None: two packets.
        pfc_headroom: bytes of the buffer, for each link and priority, for what comes until its
            sender is paused; None: what the link carries in twice its delay and the pipeline's,
            and two packets of 9,216 bytes.
        pfc_watchdog: seconds for which a host may pause its link before that is an error. 200 ms,
            as SONiC's watchdog has it.
        local_rate: bits per second of the links between the GPUs of a host, each way of each GPU.
            3.6e12: NVLink 4, 450 GB/s (NVIDIA H100 Tensor Core GPU architecture, 2022).
        local_latency: seconds from a message's last bit on such a link to its delivery. 600 ns:
            what NCCL counts for a hop over NVLink (hwLatencies of its src/graph/tuning.cc, LL).
        paths: how switches choose one of several shortest paths for packets that they forward, of
            flows and messages. "ecmp": by a hash of the flow, so that its packets keep their order
            (RFC 2992). "spray": at random for each packet (Dixit et al., INFOCOM 2013).
            "adaptive": the port that is free first, for each packet. "flowlet": at random whenever
            a flow has paused for ``flowlet_gap`` (Vanini et al., NSDI 2017).
        flowlet_gap: seconds. 50 microseconds (assumed; packets keep their order if it is longer
            than paths differ in delay, Sinha, Kandula and Katabi, HotNets 2004).

    Raises:
        InputError: a number that no network has, by the setting's name.
    """

    rate: float = 100e9
    trunk_rate: float | None = None
    delay: float = 500e-9
    loss: float = 0.0
    switch_latency: float = 600e-9
    queue_packets: int = 4096
    queue_bytes: int | None = None
    priorities: int = 1
    buffer_bytes: int | None = None
    buffer_alpha: float = 1.0
    ecn_bytes: int | None = None
    ecn_max_bytes: int | None = None
    ecn_probability: float = 0.01
    trim: bool = False
    trim_packets: int = 1024
    timestamp_unit: str = "us"
    recirculation_rate: float | None = None
    recirculation_latency: float = 600e-9
    host_receive: float = 100e-9
    host_send: float = 100e-9
    host_byte: float = 0.0
    host_cores: int = 8
    host_jitter: float = 0.0
    host_pace: float | None = None
    paths: str = "ecmp"
    flowlet_gap: float = 50e-6
    pfc: bool = False
    pfc_alpha: float = 0.125
    pfc_xon: int | None = None
    pfc_headroom: int | None = None
    pfc_watchdog: float = 0.2
    local_rate: float = 3.6e12
    local_latency: float = 600e-9

    def __post_init__(self) -> None:
        for name in ("rate", "trunk_rate", "recirculation_rate", "host_pace", "local_rate"):
            rate = getattr(self, name)
            if rate is not None and not (_finite(rate) and 1e3 <= rate <= MOST_RATE):
                raise InputError(
                    f"{name} is {rate!r}; give bits per second, from 1e3 to {MOST_RATE:g}, such as "
                    "100e9."
                )
        for name in _DURATIONS:
            seconds = getattr(self, name)
            if not (_finite(seconds) and 0 <= seconds <= 10):
                raise InputError(f"{name} is {seconds!r}; give seconds, from 0 to 10.")
            if 0 < seconds < RESOLUTION:
                raise InputError(
                    f"{name} is {seconds!r} s, below the clock's resolution of a picosecond; give "
                    "0 or more than that."
                )
        if self.local_latency < _SHORTEST_LOCAL:
            raise InputError(
                f"local_latency is {self.local_latency!r}; give seconds, {_SHORTEST_LOCAL} or more."
            )
        if not (_finite(self.host_byte) and 0 <= self.host_byte <= _MOST_PER_BYTE):
            raise InputError(
                f"host_byte is {self.host_byte!r}; give seconds, from 0 to {_MOST_PER_BYTE}."
            )
        if not (_finite(self.loss) and 0 <= self.loss < 1):
            raise InputError(f"loss is {self.loss!r}; give a probability, 0 or more and below 1.")
        self._check_counts()

    def _check_counts(self) -> None:
        if not is_int(self.host_cores) or not 1 <= self.host_cores <= 1024:
            raise InputError(f"host_cores is {self.host_cores!r}; give 1 to 1024.")
        if self.timestamp_unit not in UNITS:
            raise InputError(f"timestamp_unit is {self.timestamp_unit!r}; give us or ns.")
        if self.paths not in BALANCING:
            raise InputError(f"paths is {self.paths!r}; give one of {', '.join(BALANCING)}.")
        if not is_int(self.priorities) or not 1 <= self.priorities <= MOST_PRIORITIES:
            raise InputError(
                f"priorities is {self.priorities!r}; give 1 to {MOST_PRIORITIES} queues of a port."
            )
        self._check_queues()
        self._check_marks()

    def _check_queues(self) -> None:
        for name in ("queue_packets", "trim_packets"):
            packets = getattr(self, name)
            if not is_int(packets) or not 1 <= packets < 1 << 31:
                raise InputError(
                    f"{name} is {packets!r}; a queue holds at least 1 packet, or nothing would "
                    "pass."
                )
        for name in _ON_OR_OFF:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is {getattr(self, name)!r}; give true or false.")
        if self.pfc and self.trim:
            raise InputError(
                "with pfc no queue is full, so that no packet would be cut; leave pfc or trim out."
            )
        if self.pfc and self.queue_bytes is not None:
            raise InputError(
                "with pfc the buffer that all queues share limits them; set buffer_bytes instead "
                "of queue_bytes."
            )
        for name in (
            "queue_bytes", "buffer_bytes", "ecn_bytes", "ecn_max_bytes", "pfc_xon", "pfc_headroom",
        ):  # fmt: skip
            size = getattr(self, name)
            if size is not None and not (is_int(size) and 1 <= size < 1 << 40):
                raise InputError(f"{name} is {size!r}; give bytes, from 1, or leave it out.")
        for name in ("buffer_alpha", "pfc_alpha"):
            alpha = getattr(self, name)
            if not (_finite(alpha) and 1 / 128 <= alpha <= 128):
                raise InputError(f"{name} is {alpha!r}; give 1/128 to 128.")

    def _check_marks(self) -> None:
        if self.ecn_max_bytes is not None and self.ecn_max_bytes <= (self.ecn_bytes or 1 << 40):
            raise InputError(
                f"ecn_max_bytes is {self.ecn_max_bytes}; give more than ecn_bytes, which is "
                f"{self.ecn_bytes}."
            )
        if not (_finite(self.ecn_probability) and 0 <= self.ecn_probability <= 1):
            raise InputError(f"ecn_probability is {self.ecn_probability!r}; give 0 to 1.")

    def check_frame(self, size: int) -> None:
        """Check that queues hold a packet of ``size`` bytes.

        Raises:
            InputError: a queue or a buffer is smaller than a packet.
        """
        for name in ("queue_bytes", "buffer_bytes"):
            room = getattr(self, name)
            if room is not None and room < size:
                raise InputError(
                    f"{name} is {room}, but a packet has {size} bytes: none would pass; give "
                    "more, or fewer values per packet."
                )

    def check_priority(self, priority: int) -> None:
        """Check that ports have a queue for a job's or a flow's priority.

        Raises:
            InputError: they have fewer.
        """
        if priority >= self.priorities:
            raise InputError(
                f"priority {priority}, but the ports of switches have {self.priorities} egress "
                f"queues; let the network have priorities={priority + 1}."
            )

    @property
    def queues(self) -> int:
        """Egress queues of each port of a switch without a program."""
        return self.priorities + self.trim

    @property
    def shared_buffer(self) -> int:
        """Bytes of a switch's buffer with flow control."""
        return PFC_BUFFER if self.buffer_bytes is None else self.buffer_bytes

    @property
    def of_recirculation(self) -> float:
        """Bits per second of a switch's recirculation port."""
        return self.rate if self.recirculation_rate is None else self.recirculation_rate

    @property
    def slowest(self) -> float:
        """Bits per second of the slowest links, or at which hosts send if that is less."""
        known = (self.rate, self.trunk_rate, self.host_pace)
        return min(rate for rate in known if rate is not None)


PRESETS: Mapping[str, Network] = MappingProxyType(
    {
        "1g": Network(rate=1e9),
        "10g": Network(rate=10e9),
        "25g": Network(rate=25e9),
        "40g": Network(rate=40e9),
        "100g": Network(rate=100e9),
        "400g": Network(rate=400e9),
    }
)
"""Networks by name: "1g" to "400g"."""


HOSTS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        # Assumed: 370,000 packets a second of a core, the order of what a UDP socket receives
        # (Majkowski, "How to receive a million packets per second", blog.cloudflare.com, 2015), and
        # sends; copies at 10 GB/s.
        "kernel-udp": {
            "host_receive": 2.7e-6,
            "host_send": 2.7e-6,
            "host_byte": 1e-10,
            "host_cores": 8,
        },
        # The defaults: ten million packets a second of a core (assumed).
        "dpdk": {"host_receive": 1e-7, "host_send": 1e-7, "host_byte": 0.0, "host_cores": 8},
        # The network card does all: 200 million messages a second (assumed; the order of what
        # makers state of cards for 100 Gbit/s).
        "rdma": {"host_receive": 5e-9, "host_send": 5e-9, "host_byte": 0.0, "host_cores": 1},
    }
)
"""What packets take of a host's cores, by how a host sends and receives them."""
ASSUMED = (
    "switch_latency", "queue_packets", "recirculation_latency",
    "host_receive", "host_send", "host_byte", "host_cores",
)  # fmt: skip
"""Settings of networks whose defaults, and whose values in ``HOSTS``, are assumed."""
HOST = "host"
"""The name by which settings choose one of ``HOSTS``."""
TABLES = ("flow", "incast", "random")
"""Tables of a network's file that describe traffic, not the network."""


def network_of(given: str | Path | Network | Mapping[str, Any]) -> Network:
    """A network from what a user gives.

    Args:
        given: a ``Network``; its settings by name, among them ``host``, the name of one of
            ``HOSTS``; a preset with or without settings, such as "100g" or
            "100g:loss=1e-4,host=rdma"; or the path of a TOML file with settings, among them
            ``preset`` for those that it leaves out.

    Raises:
        UnknownNameError: no such preset or setting.
        InputError: a number that no network has, or something that names no network.
        ConfigError: a file that cannot be read, or is no TOML.
    """
    if isinstance(given, Network):
        return given
    if isinstance(given, Mapping):
        return _with(Network(), given)
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".toml")):
        return _from_file(Path(given))
    if not isinstance(given, str):
        raise InputError(
            f"the network is {given!r}; give a preset such as '100g', the path of a TOML file, a "
            "mapping of settings, or an innet.sim.Network."
        )
    name, settings = split_name(given)
    if name not in PRESETS:
        raise UnknownNameError("network", name, PRESETS)
    return _with(PRESETS[name], settings)


def read_network(path: str | Path) -> tuple[Network, dict[str, Any]]:
    """The network of a TOML file, and the ``TABLES`` that the file has.

    Raises:
        UnknownNameError, ConfigError: as ``network_of``.
    """
    path = Path(path)
    settings = read_toml(path)
    tables = {name: settings.pop(name) for name in TABLES if name in settings}
    preset = settings.pop("preset", None)
    if preset is not None and not (isinstance(preset, str) and preset in PRESETS):
        raise UnknownNameError("network", str(preset), PRESETS)
    try:
        return _with(Network() if preset is None else PRESETS[preset], settings), tables
    except InputError as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_file(path: Path) -> Network:
    network, tables = read_network(path)
    if tables:
        raise ConfigError(
            f"{path}: [[{next(iter(tables))}]] is traffic beside all-reduces, which innet simulate "
            "has; leave it out here."
        )
    return network


def without_host(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of ``HOSTS`` in the place of ``HOST``; what is stated stays.

    Raises:
        UnknownNameError: no such host.
    """
    found = dict(settings)
    if HOST in found:
        name = found.pop(HOST)
        if not isinstance(name, str) or name not in HOSTS:
            raise UnknownNameError("host", str(name), HOSTS)
        found = {**HOSTS[name], **found}
    return found


def _with(network: Network, settings: Mapping[str, Any]) -> Network:
    settings = without_host(settings)
    known = [field.name for field in fields(Network)]
    for name in settings:
        if name not in known:
            raise UnknownNameError("setting of a network", name, [HOST, *known])
    for name in _ON_OR_OFF:
        if str(settings.get(name)).lower() in {"true", "false"}:  # as other than Python writes it
            settings[name] = str(settings[name]).lower() == "true"
    return replace(network, **settings)


def assumed_settings(network: Network) -> tuple[str, ...]:
    """Those of ``ASSUMED`` that have their defaults, or the values of one of ``HOSTS``."""
    usual = Network()
    hosts = [
        host
        for host in HOSTS.values()
        if all(getattr(network, name) == value for name, value in host.items())
    ]
    return tuple(
        name
        for name in ASSUMED
        if getattr(network, name)  # 0 of something is no assumption
        and (getattr(network, name) == getattr(usual, name) or any(name in host for host in hosts))
    )


# Settings that leave a network idle between all-reduces, and equal for equal ones.
_STEADY = frozenset(
    {
        "rate", "trunk_rate", "delay", "switch_latency", "queue_packets", "host_receive",
        "host_send", "host_cores", "host_pace", "priorities", "timestamp_unit", "flowlet_gap",
        "local_rate", "local_latency", "trim", "trim_packets",
    }
)  # fmt: skip


def is_steady(network: Network) -> bool:
    """Whether an all-reduce takes as long as another with as many words, if none is sent again.

    A setting that is not known to leave it so must have its default.
    """
    usual = Network()
    return all(
        field.name in _STEADY or getattr(network, field.name) == getattr(usual, field.name)
        for field in fields(network)
    )


def goodput_bound(values: int, frame: int, rate: float) -> float:
    """Bits of values per second that a link of ``rate`` can carry in frames of ``frame`` bytes."""
    return rate * 32 * values / (8 * (max(frame, SHORTEST) + OVERHEAD))
