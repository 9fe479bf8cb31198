"""Traffic beside all-reduces: flows at a rate, incast, and flows whose sizes come from a file.

It is described by tables, in a separate TOML file or beside the settings of a network:
``[[flow]]``, ``[[incast]]`` and ``[[random]]``. Packets have no bytes. Switches forward them
without the P4 program, through the same queues as the job's packets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from innet.core.errors import ConfigError, InputError
from innet.core.files import read_toml
from innet.core.settings import Settings, validate
from innet.records.simulation import BackgroundTraffic
from innet.sim.flows import HEADERS, Flow, FlowCounts
from innet.sim.network import OVERHEAD, SECOND, Network

_ENDLESS = 1 << 40  # packets of a flow without a number of them: more than a run will see
_MOST_PACKETS = 20_000_000  # of incasts and random flows, whose times are listed
_STREAM = 0xBAC6  # keeps the draws apart from others of the same seed

Number = int | float
Host = Annotated[int, Field(ge=0)]
Payload = Annotated[int, Field(ge=1, le=0xFFFF - 28)]
Bytes = Annotated[int, Field(ge=1, le=1 << 40)]
Seconds = Annotated[Number, Field(ge=0, le=1e6)]


class BackgroundFlowTable(Settings):
    """``[[flow]]``: packets of one host, at a rate or with an interval.

    Attributes:
        source, destination: workers, by index.
        size: bytes of UDP payload of each packet; frames have 42 more.
        rate: bits of payload per second.
        interval: seconds from one packet to the next.
        packets: how many; by default without end.
        start: seconds before the first one.
        poisson: whether intervals are drawn from an exponential distribution with that mean.
        path: which of several shortest paths; by default by a hash (ECMP).
        priority: of the queues that the packets take; the network has to have ``priorities``.
    """

    source: Host
    destination: Host
    size: Payload = 1458
    rate: Annotated[Number, Field(gt=0)] | None = None
    interval: Annotated[Number, Field(gt=0)] | None = None
    packets: Annotated[int, Field(ge=1)] | None = None
    start: Seconds = 0
    poisson: bool = False
    path: Annotated[int, Field(ge=0)] | None = None
    priority: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _one_pace(self) -> Self:
        if (self.rate is None) == (self.interval is None):
            raise ValueError("give one of rate and interval")
        return self


class IncastTable(Settings):
    """``[[incast]]``: hosts send to one at the same time.

    Attributes:
        destination: worker, by index.
        sources: by default all others.
        bytes: of each source, each time.
        size: bytes of UDP payload of each packet.
        start: seconds before the first time.
        times: how often.
        interval: seconds from one time to the next.
        priority: as of ``[[flow]]``.
    """

    destination: Host
    sources: Annotated[tuple[Host, ...], Field(strict=False, min_length=1)] | None = None
    bytes: Bytes
    size: Payload = 1458
    start: Seconds = 0
    times: Annotated[int, Field(ge=1)] = 1
    interval: Seconds = 1e-3
    priority: Annotated[int, Field(ge=0)] = 0


class RandomTable(Settings):
    """``[[random]]``: flows between random hosts, which begin at random, of sizes from a file.

    Attributes:
        cdf: a file with a size in bytes and its cumulative probability, from 0 to 1 or to 100 (per
            cent), in each line; or a list of such pairs. Between them, sizes are interpolated.
        load: bits on the wire that each host sends, in the mean, as a share of its link's rate.
        seconds: for how long flows begin.
        start: seconds before that.
        size: bytes of UDP payload of each packet.
        sources, destinations: by default all workers.
        priority: as of ``[[flow]]``.
    """

    cdf: str | Annotated[tuple[Any, ...], Field(strict=False, min_length=2)]
    load: Annotated[Number, Field(gt=0, lt=1)]
    seconds: Annotated[Number, Field(gt=0, le=1e6)]
    start: Seconds = 0
    size: Payload = 1458
    sources: Annotated[tuple[Host, ...], Field(strict=False, min_length=1)] | None = None
    destinations: Annotated[tuple[Host, ...], Field(strict=False, min_length=1)] | None = None
    priority: Annotated[int, Field(ge=0)] = 0


class BackgroundTables(Settings):
    """All tables of a file."""

    flow: tuple[BackgroundFlowTable, ...] = Field(default=(), strict=False)
    incast: tuple[IncastTable, ...] = Field(default=(), strict=False)
    random: tuple[RandomTable, ...] = Field(default=(), strict=False)


def read_tables(
    given: str | Path | Mapping[str, Any], folder: Path | None = None
) -> dict[str, Any]:
    """The tables of a file, with what is in the files that they name.

    Args:
        given: path of a TOML file, or the tables.
        folder: what paths in them are relative to; by default that of the file.

    Raises:
        ConfigError: a file that cannot be read or is no TOML; a table or a setting that is none.
    """
    source = ""
    if not isinstance(given, Mapping):
        source, folder = str(given), Path(given).parent
        given = read_toml(Path(given))
    tables = validate(BackgroundTables, given, source)
    found: dict[str, Any] = tables.model_dump(mode="json", exclude_unset=True)
    for each in found.get("random", []):
        if isinstance(each["cdf"], str):
            each["cdf"] = read_cdf((folder or Path()) / each["cdf"])
        _checked_cdf(each["cdf"])
    return found


def read_cdf(path: Path) -> list[list[float]]:
    """The pairs of size and cumulative probability of a file; "#" begins a remark.

    Raises:
        ConfigError: the file cannot be read, or a line has no two numbers.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            size, share = map(float, words)
        except ValueError:
            raise ConfigError(
                f"{path}:{number}: {line.strip()[:40]!r} is not a size in bytes and a cumulative "
                "probability."
            ) from None
        pairs.append([size, share])
    return pairs


def _checked_cdf(pairs: Sequence[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sizes and cumulative probabilities to 1.

    Raises:
        ConfigError: they are not ascending, or do not end with 1 or 100.
    """
    try:
        sizes, shares = np.array(pairs, np.float64).T
    except (ValueError, TypeError):
        raise ConfigError("cdf: give pairs of a size in bytes and a probability.") from None
    rising = bool((np.diff(sizes) >= 0).all() and (np.diff(shares) >= 0).all())
    if not rising or len(sizes) < 2 or sizes[0] < 0 or shares[0] < 0:
        raise ConfigError("cdf: sizes and cumulative probabilities are to rise from line to line.")
    if shares[-1] not in {1.0, 100.0} or sizes[-1] < 1 or not math.isfinite(sizes[-1]):
        raise ConfigError(
            f"cdf: the last cumulative probability is {shares[-1]:g}; it is to be 1, or 100 per "
            "cent, of a size of at least 1 byte."
        )
    return sizes, shares / shares[-1]


@dataclass(frozen=True, slots=True)
class _Part:
    """The flows of a table.

    Attributes:
        title: for people.
        flows: as the simulation has them.
        marks: of each flow, for each message in it: when it begins, in seconds, and its packets.
            Empty where packets do not belong together.
    """

    title: str
    flows: list[Flow]
    marks: list[list[tuple[float, NDArray[np.int64]]]]


class Background:
    """The flows that tables describe.

    Args:
        tables: of ``read_tables``.
        network: rates of links.
        hosts: how many workers there are.
        seed: of random flows.

    Attributes:
        flows: all of them.

    Raises:
        InputError: a host that does not exist, or too many packets; names the table.
    """

    def __init__(
        self, tables: Mapping[str, Any], network: Network, hosts: int, seed: int = 0
    ) -> None:
        given = validate(BackgroundTables, tables)
        self._parts: list[_Part] = []
        for name, make in _MAKERS.items():
            for number, table in enumerate(getattr(given, name)):
                rng = np.random.default_rng([seed, _STREAM, number])
                try:
                    self._parts.append(make(table, network, hosts, rng))
                except InputError as error:
                    raise InputError(f"{name} {number} beside the all-reduce: {error}") from None
        self.flows = [flow for part in self._parts for flow in part.flows]

    def results(self, counts: Sequence[FlowCounts]) -> tuple[BackgroundTraffic, ...]:
        """What became of them, by table; ``counts`` are those of ``flows``."""
        left = iter(counts)
        return tuple(
            _result(part, [next(left) for _ in part.flows], part.marks) for part in self._parts
        )

    def received_bits(self, counts: Sequence[FlowCounts]) -> dict[str, int]:
        """Payload that has arrived, by the titles of the tables, in bits."""
        left, found = iter(counts), dict.fromkeys((part.title for part in self._parts), 0)
        for part in self._parts:
            for flow in part.flows:
                found[part.title] += 8 * flow.size * next(left).received
        return found


def _result(
    part: _Part,
    counts: list[FlowCounts],
    marks: list[list[tuple[float, NDArray[np.int64]]]],
) -> BackgroundTraffic:
    received = sum(each.received for each in counts)
    taken, begun = [], 0
    for flow, count, messages in zip(part.flows, counts, marks, strict=True):
        due = flow.ticks()
        for start, packets in messages:
            if packets[-1] >= count.sent or count.delays is None:
                continue
            begun += 1
            delays = count.delays[packets]
            if (delays >= 0).all():
                last = int((due[packets] + delays).max())
                taken.append((last - round(start * SECOND)) / SECOND)
    return BackgroundTraffic(
        title=part.title,
        sent=sum(each.sent for each in counts),
        received=received,
        dropped=sum(each.dropped for each in counts),
        lost=sum(each.lost for each in counts),
        marked=sum(each.marked for each in counts),
        mean_delay=sum(each.mean_delay * each.received for each in counts) / received
        if received
        else None,
        longest_delay=max(each.longest_delay for each in counts) if received else None,
        messages=begun,
        complete=len(taken),
        mean_completion=float(np.mean(taken)) if taken else None,
        p99_completion=float(np.percentile(taken, 99)) if taken else None,
    )


def _check_hosts(hosts: int, *names: int) -> None:
    for name in names:
        if name >= hosts:
            raise InputError(f"there is no worker {name}; there are 0 to {hosts - 1}.")


def _flow(
    table: BackgroundFlowTable, _network: Network, hosts: int, _rng: np.random.Generator
) -> _Part:
    _check_hosts(hosts, table.source, table.destination)
    flow = Flow(
        source=table.source,
        destination=table.destination,
        size=table.size,
        packets=_ENDLESS if table.packets is None else table.packets,
        rate=table.rate,
        interval=table.interval,
        start=table.start,
        poisson=table.poisson,
        path=table.path,
        priority=table.priority,
    )
    return _Part(f"worker {table.source} to {table.destination}", [flow], [[]])


def _incast(table: IncastTable, _network: Network, hosts: int, _rng: np.random.Generator) -> _Part:
    sources = table.sources or [host for host in range(hosts) if host != table.destination]
    _check_hosts(hosts, table.destination, *sources)
    packets = math.ceil(table.bytes / table.size)
    _check_packets(packets * table.times * len(sources))
    starts = table.start + table.interval * np.arange(table.times)
    flows = [
        Flow(
            source=source,
            destination=table.destination,
            size=table.size,
            times=np.repeat(starts, packets),  # type: ignore[arg-type] # an array is a sequence
            record_delays=True,
            priority=table.priority,
        )
        for source in sources
    ]
    marks = [
        [
            (float(start), np.arange(n * packets, (n + 1) * packets))
            for n, start in enumerate(starts)
        ]
        for _ in sources
    ]
    return _Part(f"incast of {len(sources)} to worker {table.destination}", flows, marks)


def _random(table: RandomTable, network: Network, hosts: int, rng: np.random.Generator) -> _Part:
    sources = table.sources or range(hosts)
    targets = table.destinations or range(hosts)
    _check_hosts(hosts, *sources, *targets)
    sizes, shares = _checked_cdf(table.cdf)
    # The mean of a linear interpolation.
    mean = float(((sizes[1:] + sizes[:-1]) / 2 * np.diff(shares)).sum()) + sizes[0] * shares[0]
    on_wire = (table.size + HEADERS + OVERHEAD) / table.size
    each = table.load * network.rate / (8 * mean * on_wire)  # flows of a host per second
    flows, marks, total = [], [], 0
    for source in sources:
        others = [host for host in targets if host != source]
        if not others:
            raise InputError(f"worker {source} has no destination; name other destinations.")
        count = int(rng.poisson(each * table.seconds))
        starts = np.sort(rng.uniform(0, table.seconds, count)) + table.start
        drawn = np.interp(rng.random(count), shares, sizes)
        packets = np.maximum(1, np.ceil(drawn / table.size)).astype(np.int64)
        total += int(packets.sum())
        _check_packets(total)
        chosen = rng.choice(others, count)
        for target in np.unique(chosen).tolist():
            mine = chosen == target
            last = np.cumsum(packets[mine])
            flows.append(
                Flow(
                    source=source,
                    destination=target,
                    size=table.size,
                    times=np.repeat(starts[mine], packets[mine]),  # type: ignore[arg-type] # likewise
                    record_delays=True,
                    priority=table.priority,
                )
            )
            ranges = zip(starts[mine], last - packets[mine], last, strict=True)
            marks.append([(float(start), np.arange(a, b)) for start, a, b in ranges])
    return _Part(f"random flows, load {table.load:g}", flows, marks)


def _check_packets(number: int) -> None:
    if number > _MOST_PACKETS:
        raise InputError(
            f"there are {number:,} packets or more, and at most {_MOST_PACKETS:,} are listed; give "
            "a shorter time, fewer times, or a lower load."
        )


_MAKERS: Mapping[str, Callable[..., _Part]] = {
    "flow": _flow,
    "incast": _incast,
    "random": _random,
}
