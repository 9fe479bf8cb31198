"""The record of a simulation: what each worker did when, in simulated seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, computed_field

from innet.records.record import Record
from innet.records.report import Fabric, Frozen, Report, Simulated, limiting

SIMULATION = "innet.simulation"  # format of the record of ``innet simulate``
"""Format of the record of ``innet simulate``."""
PerWorker = tuple[float, ...]
"""Simulated seconds, one number for each worker."""


class SimulationProgress(Frozen):
    """An event for the watcher of a simulation.

    Attributes:
        all_reduces: how many are done.
        of: how many there will be.
        seconds: of simulated time, since the run began.
    """

    all_reduces: int
    of: int
    seconds: float


class Bucket(Frozen):
    """The all-reduce of one bucket of gradients.

    Times are simulated seconds since the run began, one for each worker.

    Attributes:
        elements: of the bucket.
        layers: names of the first and the last layer with a gradient in it, in the order in which
            the backward pass computes them.
        ready: when the worker had computed the last of the gradients.
        started: when it began to encode: it was ready, and done with the bucket before.
        encoded: when it could send.
        summed: when it had received the sum.
        decoded: when it had decoded the sum.
        bytes_sent: by the worker that sent most, retransmissions included.
        exact: as in ``Report``.
        simulated: what the network did for it.
        without: workers who were late for it, and are left out of it and of all later sums. Where
            the times of a worker that is left out would stand, there are the others' last ones.
    """

    elements: int
    layers: tuple[str, str]
    ready: PerWorker
    started: PerWorker
    encoded: PerWorker
    summed: PerWorker
    decoded: PerWorker
    bytes_sent: int
    exact: bool | None
    simulated: Simulated
    without: tuple[int, ...] = ()


class Iteration(Frozen):
    """One training iteration. All tuples have a number for each worker, in simulated seconds.

    Attributes:
        number: counts from 1.
        begin: when it began, since the run began.
        forward: when the forward pass ended.
        backward: when the backward pass ended.
        end: when the last sum was decoded and the backward pass had ended.
        compute: duration of forward and backward pass.
        encode: of all buckets together.
        network: from what could be sent to the sums, of all buckets together.
        waited: the part of ``network`` in which a slower worker could not send yet.
        decode: of all buckets together.
        exposed: from the end of the backward pass to the end: what the backward pass did not hide.
        paused: in which the worker stood still before the forward pass.
        buckets: in the order in which they were summed.
    """

    number: int
    begin: PerWorker
    forward: PerWorker
    backward: PerWorker
    end: PerWorker
    compute: PerWorker
    encode: PerWorker
    network: PerWorker
    waited: PerWorker
    decode: PerWorker
    exposed: PerWorker
    paused: PerWorker
    buckets: tuple[Bucket, ...]

    @property
    def seconds(self) -> float:
        """From the first worker's begin to the last worker's end."""
        return max(self.end) - min(self.begin)


def iteration_parts(iterations: Sequence[Iteration]) -> dict[str, float]:
    """What iterations are spent on, in the mean over workers: shares of the time, 1 together.

    What the backward pass did not hide is divided among codec, waiting and network in proportion to
    what they take in all.
    """
    taken: dict[str, float] = defaultdict(float)
    for each in iterations:
        network = sum(each.network) - sum(each.waited)
        hidden = {
            "encoding": sum(each.encode),
            "the network": network,
            "decoding": sum(each.decode),
            "stragglers": sum(each.waited),
        }
        exposed, total = sum(each.exposed), sum(hidden.values())
        taken["computing"] += sum(each.compute)
        taken["pauses"] += sum(each.paused)
        for name, seconds in hidden.items():
            taken[name] += exposed * seconds / total if total else 0.0
    whole = sum(taken.values())
    return {name: seconds / whole for name, seconds in taken.items()} if whole else {}


def iteration_limit(
    iterations: Sequence[Iteration], what: Simulated, assumed: Container[str] = ()
) -> str:
    """What limits iterations, in a line: computing, codecs, stragglers, or what limits the network.

    Args:
        iterations: all of a run.
        what: the network, of all of them together.
        assumed: parts whose time innet assumes.
    """
    said = []
    parts = iteration_parts(iterations)
    parts["codecs"] = parts.pop("encoding", 0.0) + parts.pop("decoding", 0.0)
    for name, share in limiting(parts):
        marked = ", assumed" if name in assumed else ""
        said.append(f"{name} ({share * 100:.0f} % of an iteration{marked})")
        if name == "the network":
            said[-1] += f", by {what.limit}" if what.limit else ""
    return " and ".join(said)


class FastForwarded(Frozen):
    """What of a simulation was skipped, as it repeated itself.

    Attributes:
        periods: how many.
        packets: on links in them, which count as if they had been simulated.
        why: why nothing was skipped; "" where something was.
    """

    periods: int = 0
    packets: int = 0
    why: str = ""


class Sensitivity(Frozen):
    """What half and twice of an assumed constant would change.

    Attributes:
        setting: its name, with "network." before those of the network.
        value: in the run.
        halved: mean simulated seconds of an iteration with half of it.
        doubled: the same with twice of it.
    """

    setting: str
    value: float
    halved: float
    doubled: float


class NetworkSamples(Frozen):
    """The network at equal distances of simulated time, during the first iteration.

    Attributes:
        seconds: when each sample was taken, since the run began.
        queue_bytes: bytes that waited, for the ports with the longest queues: "s1:3" is port 3 of
            switch s1.
        utilization: of each class of links, the part of the time since the sample before that they
            were busy: their mean.
        slots: in use at each switch, which have the values of some workers and not of all; of the
            switches with most of them.
        throughput: bits per second since the sample before: "workers", of what was sent to each,
            their mean, with all bytes on the wire; and of each table of packets beside the
            all-reduce, their payload that arrived.
        windows: chunks that a worker, or packets that a connection of a baseline, may have under
            way: "mean", "smallest" and "largest" of those that have something to send; nothing
            where they do not change.
        rates: bits per second on the wire at which rate control (DCQCN) lets a baseline's
            connections send, likewise.
        pauses: how often priority flow control paused a link since the sample before, of the links
            that it paused most: "host 2 to s1:3".
        paused: the part of the time since the sample before in which it did.

    Of a baseline with few connections, "0 to 3" is that from host 0 to host 3, or between GPUs, in
    ``throughput`` its payload that arrived, in ``windows`` and ``rates`` what the message of it may
    do that may do most; 0 where nothing of it is under way.
    """

    seconds: tuple[float, ...]
    queue_bytes: dict[str, tuple[int, ...]]
    utilization: dict[str, tuple[float, ...]]
    slots: dict[str, tuple[int, ...]]
    throughput: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    windows: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    rates: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    pauses: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    paused: dict[str, tuple[float, ...]] = Field(default_factory=dict)

    def lines(self) -> list[tuple[str, str, Sequence[float]]]:
        """What was sampled, the name of a line of it, and its values."""
        kinds: list[tuple[str, Mapping[str, Sequence[float]]]] = [
            ("queue_bytes", self.queue_bytes),
            ("utilization", self.utilization),
            ("slots", self.slots),
            ("throughput", self.throughput),
            ("windows", self.windows),
            ("rates", self.rates),
            ("pauses", self.pauses),
            ("paused", self.paused),
        ]
        return [(kind, name, each) for kind, lines in kinds for name, each in lines.items()]


class BackgroundTraffic(Frozen):
    """Packets beside all-reduces: what became of those of a table, over the whole run.

    Delays and times are simulated seconds. A message is what an incast's host or a random flow
    sends at a time.

    Attributes:
        title: for people.
        sent: packets.
        received: packets.
        dropped: packets that found a queue full.
        lost: packets that were lost on links.
        marked: of the received ones, those that met congestion.
        mean_delay: of the received ones, from when they were due to when their last bit came; None
            if there are none.
        longest_delay: likewise.
        messages: all of whose packets were sent.
        complete: those of them that came without a missing packet.
        mean_completion: from the begin of a complete message to its last packet; None if there are
            none.
        p99_completion: likewise, of which 99 % of them took no longer.
    """

    title: str
    sent: int
    received: int
    dropped: int
    lost: int
    marked: int
    mean_delay: float | None
    longest_delay: float | None
    messages: int
    complete: int
    mean_completion: float | None
    p99_completion: float | None


class BaselineRun(Frozen):
    """The same workload, summed by an all-reduce between hosts.

    Attributes:
        transport: of its messages.
        simulated: of all all-reduces together; its bytes hold acknowledgements.
        seconds: as of the record.
        iterations: likewise. No sums are compared: ``exact`` of their buckets is None.
        all_reduces: how many were simulated; the others were equal to one of them.
        background: packets beside them.
        samples: the network over time; None unless asked for.
    """

    transport: str
    simulated: Simulated
    seconds: float
    iterations: tuple[Iteration, ...]
    all_reduces: int
    background: tuple[BackgroundTraffic, ...] = ()
    samples: NetworkSamples | None = None

    @property
    def iteration_seconds(self) -> float:
        """Mean duration of an iteration."""
        return self.seconds / len(self.iterations)

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def limit(self) -> str:
        """What limits an iteration, in a line."""
        return iteration_limit(self.iterations, self.simulated)


class SimulationRecord(Record):
    """All-reduces or training iterations in simulated time.

    ``simulated`` and ``iterations`` are the same in all runs of the same settings and seed.

    Attributes:
        workers: how many.
        model: title of the model; "" for all-reduces of generated gradients.
        elements: of the gradient in each iteration.
        network: all settings of the network.
        compute_source: where the time of forward and backward pass comes from.
        compute_assumed: whether that time is an assumption rather than a measurement.
        assumed: share of the time of iterations that innet assumes and nobody gave, by its part:
            "computing", "encoding", "decoding".
        simulated: of all all-reduces together; ``seconds`` are those of each, added up.
        seconds: from the begin of the first iteration to the last worker's end of the last.
        iterations: what each worker did when.
        all_reduces: how many were simulated; the others were equal to one of them.
        fast_forward: what was skipped of those that were simulated; None in older records.
        sensitivity: of ``iteration_seconds`` to each assumed constant; empty unless asked for.
        report: of the last all-reduce that was simulated. Its ``seconds``, but for ``simulated``,
            are wall time.
        background: packets beside the all-reduces.
        samples: the network over time; None unless asked for.
        baselines: the same workload without a switch that sums, by the names of the baselines.
        wall_seconds: wall time of the run.
    """

    formats: ClassVar[tuple[str, ...]] = (SIMULATION,)

    format: Literal["innet.simulation"] = "innet.simulation"
    workers: int
    model: str = ""
    elements: int
    network: dict[str, Any] = Field(default_factory=dict)
    compute_source: str = ""
    compute_assumed: bool = False
    assumed: dict[str, float] = Field(default_factory=dict)
    simulated: Simulated
    seconds: float
    iterations: tuple[Iteration, ...]
    all_reduces: int
    fast_forward: FastForwarded | None = None
    sensitivity: tuple[Sensitivity, ...] = ()
    report: Report
    background: tuple[BackgroundTraffic, ...] = ()
    samples: NetworkSamples | None = None
    baselines: dict[str, BaselineRun] = Field(default_factory=dict)
    wall_seconds: float

    @property
    def iteration_seconds(self) -> float:
        """Mean duration of an iteration."""
        return self.seconds / len(self.iterations)

    @computed_field  # type: ignore[prop-decorator]  # pydantic's documented way, mypy's limit
    @property
    def limit(self) -> str:
        """What limits an iteration, in a line."""
        assumed = {"codecs" if name.endswith("coding") else name for name in self.assumed}
        return iteration_limit(self.iterations, self.simulated, assumed)

    @property
    def exact(self) -> bool:
        """Whether every sum that was compared was exact."""
        return all(bucket.exact is not False for each in self.iterations for bucket in each.buckets)


def merged(parts: Sequence[Simulated], elements: int) -> Simulated:
    """Several all-reduces in simulated time as one.

    Counts are added, utilization is weighted by time, and of what is called ``..._max`` the largest
    counts.

    Args:
        parts: at least one.
        elements: of all gradients together.
    """
    if len(parts) == 1:
        return parts[0]
    # Time in which the slowest worker could not send yet is not time of summing.
    seconds = sum(each.seconds for each in parts)
    summing = seconds - sum(each.waited for each in parts)
    rate = elements / summing if summing > 0 else 0.0
    # A field's name and type say how it is merged, so that a new one needs no line here.
    found: dict[str, Any] = {}
    for name in Simulated.model_fields:
        values = [getattr(each, name) for each in parts]
        known = [value for value in values if value is not None]
        if not known:
            found[name] = None
        elif name.endswith("_max"):
            found[name] = max(known)
        elif isinstance(known[0], Fabric | tuple):
            found[name] = known[0]
        elif isinstance(known[0], dict):
            weight = [each.seconds - each.waited * (name == "busiest") for each in parts]
            found[name] = {
                key: sum(w * each.get(key, 0.0) for w, each in zip(weight, values, strict=True))
                / (sum(weight) or 1.0)
                for key in dict.fromkeys(key for each in values for key in each)
            }
        else:
            found[name] = sum(known)
    # Rates follow from the sums.
    found |= {
        "seconds": seconds,
        "elements_per_second": rate,
        "goodput_gbps": 32 * rate / 1e9,
    }
    return Simulated(**found)
