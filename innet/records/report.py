"""What one all-reduce did: counts, times and errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

#: One attribute, or several that are described together.
_ATTRIBUTES = re.compile(
    r"^(\w+(?:, \w+)*): (.+?)(?=\n\w+(?:, \w+)*: |\Z)", re.DOTALL | re.MULTILINE
)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Complete the JSON schema of ``model`` from the sections "Attributes" of its docstrings."""
    schema["description"] = _sections(model)[0]
    for each in reversed(model.__mro__):
        for names, text in _ATTRIBUTES.findall(_sections(each)[1]):
            for name in names.split(", "):
                if name in schema["properties"]:
                    schema["properties"][name]["description"] = " ".join(text.split())


def _sections(documented: type) -> tuple[str, str]:
    """The first paragraph of a class's docstring, and its attributes."""
    text, _, rest = (inspect.getdoc(documented) or "").partition("\nAttributes:\n")
    attributes = rest.partition("\n\n")[0]
    return " ".join(text.partition("\n\n")[0].split()), inspect.cleandoc(" \n" + attributes)


class Frozen(BaseModel):
    """Base of everything in a record: never changed once written, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra=_describe)

    @model_validator(mode="before")
    @classmethod
    def _recompute(cls, data: object) -> object:
        """Lets JSON with computed fields be read back; they follow from the others."""
        if isinstance(data, dict) and not data.keys().isdisjoint(cls.model_computed_fields):
            return {k: each for k, each in data.items() if k not in cls.model_computed_fields}
        return data


class Seconds(Frozen):
    """Times of one all-reduce; all but ``simulated`` are wall time on this machine.

    Attributes:
        encode: codec, float32 to words: the mean of the workers.
        network: protocol, transport and switch, of all workers together.
        decode: codec, words to float32: the mean of the workers, who all decode the same words.
        total: from the call to its return. Where one process runs all workers, it also holds the
            codecs' time of the others.
        switch: the part of ``network`` spent in the switch program; None where it runs apart.
        simulated: what the exchange took in the time of simulated links; None where packets are
            real. It is 0 where links have no delay and lose nothing.
    """

    encode: float
    network: float
    decode: float
    total: float
    switch: float | None = None
    simulated: float | None = None


class Fabric(Frozen):
    """Hosts, switches and links of a network in simulated time.

    Attributes:
        hosts, switches: how many.
        leaves: switches with hosts.
        trunks: links between switches.
        rate, rate_max: bits per second of the slowest and the fastest of the hosts' links.
        trunk_rate, trunk_rate_max: of the trunks; 0 without one.
        oversubscription: how many times as much as a trunk carries the hosts may send through it,
            of the trunk where that is most; 1: the fabric does not block.
    """

    hosts: int
    switches: int
    leaves: int
    trunks: int
    rate: float
    rate_max: float
    trunk_rate: float
    trunk_rate_max: float
    oversubscription: float

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def text(self) -> str:
        """All of it in a line, for people."""
        return fabric_text([self])


def fabric_text(fabrics: Iterable[Fabric | None]) -> str:
    """What networks rest on, in a line: "8 hosts, links of 100 Gbit/s, one switch"; "" of none."""
    known = [each for each in fabrics if each is not None]
    if not known:
        return ""

    def between(low: float, high: float, said: Callable[[float], str], unit: str = "") -> str:
        text = said(low) if low == high else f"{said(low)} to {said(high)}"
        return f"{text} {unit}{'' if high == 1 else 's'}" if unit else text

    def counted(name: str, unit: str, least: int = 0) -> str:
        numbers = [getattr(each, name) for each in known if getattr(each, name) >= least]
        return between(min(numbers), max(numbers), lambda number: f"{number:,.0f}", unit)

    slow, fast = min(each.rate for each in known), max(each.rate_max for each in known)
    said = f"{counted('hosts', 'host')}, links of {between(slow, fast, bit_rate)}, "
    if max(each.switches for each in known) == 1:
        return said + "one switch"
    wired = [each for each in known if each.trunks]
    said += f"{counted('switches', 'switch').replace('switchs', 'switches')} "
    said += f"({counted('leaves', 'leaf').replace('leafs', 'leaves')})"
    if not wired:
        return said
    slow, fast = min(e.trunk_rate for e in wired), max(e.trunk_rate_max for e in wired)
    said += f", {counted('trunks', 'trunk', 1)} of {between(slow, fast, bit_rate)}: "
    low, high = (pick(each.oversubscription for each in wired) for pick in (min, max))
    if high == 1:
        return said + "non-blocking"
    return f"{said}oversubscribed {between(low, high, lambda number: f'{number:.3g}')}:1"


def bit_rate(rate: float) -> str:
    """Bits per second, with up to four digits: 3.2 Tbit/s, 100 Gbit/s."""
    for factor, unit in ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate >= factor:
            return f"{rate / factor:.4g} {unit}"
    return f"{rate:.4g} bit/s"


class Simulated(Frozen):
    """One all-reduce in simulated time; two runs with the same seed have the same.

    Attributes:
        seconds: from the first packet to the last result.
        waited: the part of ``seconds`` in which the slowest worker could not send yet.
        goodput_gbps: bits of the gradient, 32 per element, that each worker got summed per second
            without ``waited``, in units of 1e9.
        elements_per_second: of the gradient, likewise.
        packets: put onto links, over all of them.
        bytes: of them, with preamble, frame check sequence and gap.
        lost: packets that were lost on links.
        dropped: packets that found an egress queue full.
        marked: packets that were marked as they met congestion.
        retransmissions: packets that workers sent again.
        queue_bytes_max: the most bytes that waited in an egress queue, the packet that is sent
            next included.
        utilization: of each class of links, the part of the time that they were busy: their mean.
        busiest: the same of what was busiest, without ``waited``: "host links", "trunks", "host
            processors" and "recirculation" (of switches), as far as there are some.
        windows_max: how many windows a worker sent in a round, at most; up to 1 all is under way at
            once. 0 where no window of slots is.
        assumed: settings of the network that have values which innet assumes.
        pauses: how often priority flow control paused a link.
        paused: seconds in which it did, of the link and priority where that is most.
        trimmed: packets that found an egress queue full, and went on without their payload.
        fabric: of the network; None in records of older versions.
    """

    seconds: float
    waited: float = 0.0
    goodput_gbps: float
    elements_per_second: float
    packets: int
    bytes: int
    lost: int
    dropped: int
    marked: int
    retransmissions: int
    queue_bytes_max: int
    utilization: dict[str, float]
    busiest: dict[str, float] = Field(default_factory=dict)
    windows_max: float = 0.0
    assumed: tuple[str, ...] = ()
    pauses: int = 0
    paused: float = 0.0
    trimmed: int = 0
    fabric: Fabric | None = None

    @computed_field  # type: ignore[prop-decorator]  # likewise
    @property
    def limit(self) -> str:
        """What limits it, in a line; "" where that is not known."""
        return network_limit(self)


_ALIKE = 0.1  # of the time: what is this near to the most limits with it
_HOSTS = ("host_send", "host_receive", "host_byte", "host_cores")
_RESTS_ON = {  # settings of the network, on which it depends how long each takes
    "host processors": _HOSTS,
    "recirculation": ("recirculation_latency",),
    "latency": ("switch_latency", "host_send", "host_receive"),
    "the window": ("switch_latency", "host_send", "host_receive"),
}


def limiting(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """What takes the largest share of the time, and what takes almost as much, in that order."""
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    return [each for each in ordered if each[1] > 0 and each[1] >= ordered[0][1] - _ALIKE]


def network_limit(what: Simulated) -> str:
    """What limits all-reduces: links, hosts, switches, stragglers, lost packets or the window.

    The busiest of each kind counts. While none of them is busy, packets are under way and nothing
    else may be sent. If a window were long enough, that would be the case for one round trip, which
    is at most what a window takes: of n windows 1 / (n + 1) of the time.
    """
    if not what.busiest or not what.seconds:
        return ""
    waited = what.waited / what.seconds
    shares = {name: (1 - waited) * share for name, share in what.busiest.items()}
    idle = 1 - max(what.busiest.values())
    windows = what.windows_max
    if what.lost or what.dropped:
        shares["lost packets"] = (1 - waited) * idle
    elif windows > 1 and idle > 1 / (windows + 1):
        shares = {"the window": 1 - waited}  # longer, it would keep something else busy
    else:
        shares["latency"] = (1 - waited) * idle
    shares["stragglers"] = waited
    said = []
    for name, share in limiting(shares):
        part = f"{share * 100:.0f} % of the time"
        if name == "the window":
            busy = max(what.busiest, key=lambda kind: what.busiest[kind])
            part = f"{busy} are busy for {100 - idle * 100:.0f} % of the time"
        assumed = [each for each in _RESTS_ON.get(name, ()) if each in what.assumed]
        said.append(f"{name} ({part}{'; assumed: ' if assumed else ''}{', '.join(assumed)})")
    return " and ".join(said)


VERBATIM = "none"
"""The codec of a report of bytes that travel as they are: of an all-gather, for example."""


class Report(Frozen):
    """What one all-reduce did.

    Attributes:
        version: of these fields.
        exact: whether the decoded integer sum equalled the oracle's; None where not compared. Of
            floats that the switch added: False if no order of arrival explains the sum, else None.
        workers: how many took part.
        codec: name or description, or ``VERBATIM``.
        program: name of the P4 program.
        engine: what ran the program.
        transport: what carried the packets.
        values_per_packet: int32 values in each packet.
        elements: of each worker's gradient.
        selected: elements that the workers' selectors chose, all workers together.
        union: coordinates that at least one worker chose.
        rounds: exchanges one after the other that it took; a codec may need several.
        packets_sent: by all workers, retransmissions included.
        packets_received: by all workers.
        bytes_sent: by the worker that sent most, from Ethernet header to the last value, without
            preamble, frame check sequence and gap; retransmissions included.
        bytes_dense: what one worker would send, in the same framing and packets of the same number
            of values, if each element travelled once as a float32.
        retransmissions: packets sent again, all workers together.
        seconds: wall time.
        switch_packets: packets that the switch processed.
        max_abs_error: largest difference, of any element, from the float64 sum of the inputs.
            Includes what the selectors left for later. None where not compared.
        max_abs_error_sent: the same from the float64 sum of what the selectors sent; what
            quantization costs. None where not compared.
        vnmse: squared errors by squares of the sum, |sum - true sum|² / |true sum|², the true sum
            that in float64 of the inputs; of the sums of several racks the largest. None where not
            compared, or infinite: where only the true sum is zero.
        vnmse_sent: the same, the true sum that of what the selectors sent.
        order_error: largest difference between sums of the same words in eight random orders of
            arrival, of up to 65,536 words; None of integers, whose sums have no order.
        infinite: elements of the decoded sum that lie beyond float32 and so are infinite, although
            their integers were summed. The errors are infinite then, in JSON null.
        simulated: what it took in simulated time; None without a network that has one.
        details: what codec, program or transport add, by name.
    """

    version: Literal[1] = 1
    exact: bool | None
    workers: int
    codec: str
    program: str
    engine: str
    transport: str
    values_per_packet: int
    elements: int
    selected: int = 0
    union: int = 0
    rounds: int
    packets_sent: int
    packets_received: int
    bytes_sent: int
    bytes_dense: int
    retransmissions: int = 0
    seconds: Seconds
    switch_packets: int = 0
    max_abs_error: float | None
    max_abs_error_sent: float | None
    vnmse: float | None = None
    vnmse_sent: float | None = None
    order_error: float | None = None
    infinite: int = 0
    simulated: Simulated | None = None
    details: dict[str, Any] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def compression(self) -> float:
        """bytes_dense / bytes_sent; 1 where nothing had to be sent."""
        return self.bytes_dense / self.bytes_sent if self.bytes_sent else 1.0
