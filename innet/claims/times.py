"""Claims about time: all-reduces and iterations of large models, in simulated time.

A claim compares methods at points: a model, a network, a number of workers and a time of computing.
What a method takes at a point is

- its computing, as the workload's file or the claim says,
- encoding and decoding, which are parameters: seconds an element,
- the network: rounds of a switch program in thin packets, or messages of an all-reduce between
  hosts, simulated packet by packet.

No gradient is as large as the model's. The codec runs on gradients of 131,072 elements with the
claim's share of elements that are not zero; its words grow from there as ``innet.allreduce.sizes``
says. Rounds and messages of more than ``LARGEST`` elements are simulated at that size and at twice
of it, and go on in a line: links are full from there on, so each further packet takes as long as
the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import product, zip_longest
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from innet.claims.claim import TIMES, ClaimContext, Measure
from innet.codecs import build_codec
from innet.core.errors import ConfigError
from innet.core.reduce_op import SizedSegment
from innet.core.settings import CodecDescription, Duration, Settings
from innet.records import Fabric, Finding, Series
from innet.records.report import fabric_text
from innet.scenarios import workload as workloads
from innet.scenarios.timeline import Times, iterate
from innet.scenarios.workload import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from innet.allreduce.sizes import RoundSizes

LARGEST = 1 << 20
"""Words of a round, or elements of a message graph, that are simulated as they are."""
SAMPLE = 1 << 17
"""Elements of the gradients on which codecs run."""
RACK = 32
"""Workers at a switch; more are in racks of as many, with a switch above them."""
NEAR = 0.25
"""Ranges of the paper and of ours agree if both ends differ by no more than this part."""
_FASTER = 1.05  # below it nothing is faster

Algorithm = Literal["switch", "ring", "halving-doubling", "gtopk-tree", "all-gather", "server"]
Share = Annotated[float, Field(gt=0, le=1)]


# ----------------------------------------------------------------------------
# Claims as data.


class Support(Settings):
    """Which elements of a gradient are not zero.

    Attributes:
        density: share of each worker's.
        union: share of those of any worker, with as many workers as the claim has. By default all
            workers' are the same ones.
    """

    density: Share
    union: Share | None = None


class Stage(Settings):
    """A part of an all-reduce.

    Attributes:
        algorithm: "switch" sums what the codec sends; others are messages between hosts, see
            ``innet.sim.messages``. "server" is one parameter server on a separate host.
        codec: for "switch".
        dtype: of messages' elements.
        share: elements that a worker sends, as a share of the gradient's. With an index of 32 bits
            each, count two. For "switch", what the codec takes, as a share.
    """

    algorithm: Algorithm = "switch"
    codec: CodecDescription = "dense"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    share: Annotated[float, Field(gt=0)] = 1.0


class TimedMethod(Settings):
    """How gradients are summed.

    Attributes:
        stages: one after the other.
        encode, decode: seconds an element of the gradient.
    """

    stages: Annotated[tuple[Stage, ...], Field(strict=False, min_length=1)]
    encode: Duration = 0.0
    decode: Duration = 0.0


class TimeRatios(Measure):
    """A comparison in simulated time.

    Attributes:
        workloads: by name. If there are several, each is a line of the picture.
        networks: as ``innet allreduce --network`` takes them.
        workers: how many.
        compute: seconds of forward and backward pass; by default the workload's.
        of: "aggregation" is encoding, the network and decoding, for the whole gradient at once;
            "iteration" adds computing.
        overlap: buckets of DistributedDataParallel are summed while the backward pass goes on.
        supports: by model and pattern of layers' names, elements that are not zero; others are
            dense. The first pattern that matches counts.
        methods: by label.
        subject, against: labels. A ratio is the time of ``against`` divided by ``subject``'s.
        min_ratio: the paper's "up to": reproduced if the largest ratio is at least this.
        ratio_range: the paper's smallest and largest ratio: reproduced if ours are near them.
        max_network_share: the network's share of the subject's time that the paper has:
            reproduced if ours is no larger at any point.
        transport: of messages.
        values_per_packet, window: of the switch program's packets.
    """

    kind: Literal["time"]
    workloads: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    networks: Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    workers: Annotated[tuple[int, ...], Field(strict=False, min_length=1)] = (8,)
    compute: Annotated[tuple[float, ...], Field(strict=False)] = ()
    of: Literal["aggregation", "iteration"] = "iteration"
    overlap: bool = False
    supports: dict[str, dict[str, Support]] = Field(default_factory=dict)
    methods: Annotated[dict[str, TimedMethod], Field(min_length=2)]
    subject: str
    against: str
    min_ratio: float | None = None
    ratio_range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    max_network_share: Share | None = None
    transport: str = "roce"
    values_per_packet: Annotated[int, Field(ge=1, le=65535)] = 256
    window: Annotated[int, Field(ge=1)] = 512

    def measure(self, context: ClaimContext) -> Finding:
        return timing(self, seed=context.options.seed, quick=context.options.quick)


def time_claims(document: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The claims of ``times.toml``, by preset, with their methods in place of the labels.

    Args:
        document: of the file: ``methods`` by label, ``supports`` by name, and for each preset its
            claims, whose measures name them.

    Raises:
        ConfigError: a label that stands for nothing.
    """

    def named(table: str, label: str) -> Any:
        if label not in document[table]:
            raise ConfigError(
                f"times.toml has no {table} {label!r}; it has {', '.join(document[table])}."
            )
        return document[table][label]

    return {
        preset: [
            {
                **claim,
                "measure": {
                    "kind": "time",
                    **claim["measure"],
                    "methods": {
                        label: named("methods", label) for label in claim["measure"]["methods"]
                    },
                    "supports": {
                        model: named("supports", given)
                        for model, given in claim["measure"].get("supports", {}).items()
                    },
                },
            }
            for claim in entry["claims"]
        ]
        for preset, entry in document.items()
        if preset not in ("methods", "supports")
    }


# ----------------------------------------------------------------------------
# What the network takes.


class NetworkTimes:
    """Seconds of rounds and messages on networks, each simulated once.

    Args:
        values_per_packet, window: of the switch program's packets.
        transport: of messages between hosts.

    Attributes:
        fabrics: of the networks that were simulated.
    """

    def __init__(
        self, values_per_packet: int = 256, window: int = 512, transport: str = "roce"
    ) -> None:
        self._values, self._window, self._transport = values_per_packet, window, transport
        self._collectives: dict[tuple[str, int], Any] = {}
        self._known: dict[tuple[Any, ...], float] = {}
        self.fabrics: list[Fabric] = []

    def rounds(self, sizes: RoundSizes, network: str, workers: int) -> float:
        """Seconds of a codec's rounds, one after the other, through switches that sum."""
        return sum(self._round(each, network, workers) for each in sizes.rounds)

    def _round(self, segments: tuple[SizedSegment, ...], network: str, workers: int) -> float:
        words = sum(segment.size for segment in segments)

        def simulated(size: int) -> float:
            resized = tuple(
                replace(each, size=math.ceil(each.size * size / words)) for each in segments
            )
            key = (network, workers, tuple((each.operation, each.size) for each in resized))
            if key not in self._known:
                self._known[key] = self._simulate_round(resized, network, workers)
            return self._known[key]

        return _in_a_line(simulated, words, LARGEST)

    def _simulate_round(
        self, segments: tuple[SizedSegment, ...], network: str, workers: int
    ) -> float:
        from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba
        from innet.allreduce.sizes import RoundSizes  # noqa: PLC0415

        if (network, workers) not in self._collectives:
            racks = -(-workers // RACK)
            self._collectives[network, workers] = Collective(
                workers=workers,
                network=network,
                thin=True,
                values_per_packet=self._values,
                window=self._window,
                racks=racks if racks > 1 else None,
            )
        elements = sum(segment.size for segment in segments)
        report = self._collectives[network, workers].all_reduce_sizes(
            RoundSizes(elements, (segments,))
        )
        self.fabrics.append(report.simulated.fabric)
        seconds: float = report.simulated.seconds
        return seconds

    def messages(self, stage: Stage, elements: int, network: str, workers: int) -> float:
        """Seconds of messages between hosts.

        Args:
            stage: whose algorithm is not "switch".
            elements: that a worker sends.
            network: its name.
            workers: how many.
        """

        def simulated(size: int) -> float:
            key = (network, workers, stage.algorithm, stage.dtype, size)
            if key not in self._known:
                self._known[key] = self._simulate_messages(stage, size, network, workers)
            return self._known[key]

        # Chunks of whole packets, so that twice the elements are twice the packets.
        unit = workers * 1024
        return _in_a_line(simulated, elements, max(LARGEST // unit, 1) * unit)

    def _simulate_messages(self, stage: Stage, elements: int, network: str, workers: int) -> float:
        from innet.sim import messages  # noqa: PLC0415 - it brings Numba
        from innet.sim.baselines import simulate_messages  # noqa: PLC0415

        if stage.algorithm == "all-gather":
            graph = messages.all_gather(workers, np.full(workers, elements), dtype=stage.dtype)
        elif stage.algorithm == "server":
            graph = messages.parameter_server(workers, [workers], elements, dtype=stage.dtype)
        else:
            graph = messages.ALGORITHMS[stage.algorithm](workers, elements, dtype=stage.dtype)
        racks = -(-workers // RACK)
        run = simulate_messages(graph, network, transport=self._transport, racks=racks)
        self.fabrics.append(run.fabric)
        return run.seconds


def _in_a_line(simulated: Any, size: int, largest: int) -> float:
    """Seconds for ``size``: simulated, or beyond twice ``largest`` in a line with two smaller."""
    if size <= 2 * largest:
        return float(simulated(size))
    one, two = simulated(largest), simulated(2 * largest)
    return float(two + (size - 2 * largest) / largest * (two - one))


# ----------------------------------------------------------------------------
# What the codec sends.


def gradients(
    elements: int, support: Support | None, workers: int, seed: int = 0
) -> Iterator[NDArray[np.float32]]:
    """Gradients of all workers, with Gaussian values where they are not zero.

    A part of each worker's elements is every worker's, and the others are drawn by each alone, so
    that density and union are met on average.
    """
    rng = np.random.default_rng(seed)
    shared, alone = (1.0, 0.0) if support is None else shares(support, workers)
    everybody = rng.random(elements) < shared
    for _ in range(workers):
        gradient = rng.standard_normal(elements, np.float32)
        gradient[~(everybody | (rng.random(elements) < alone))] = 0
        yield gradient


def shares(support: Support, workers: int) -> tuple[float, float]:
    """Shares of elements that are every worker's, and of the others that one worker draws.

    Raises:
        ConfigError: a union that no workers of that density have.
    """
    density, union = support.density, support.union
    if union is None or workers == 1 or union == density:
        return density, 0.0
    if not density <= union <= 1 - (1 - density) ** workers + 1e-9:
        raise ConfigError(
            f"{workers} workers of density {density:g} have no union of {union:g}; give "
            f"{density:g} to {1 - (1 - density) ** workers:g}."
        )

    def reached(shared: float) -> float:
        alone = (density - shared) / (1 - shared)
        return 1 - (1 - shared) * (1 - alone) ** workers

    low, high = 0.0, density  # the union shrinks as more is shared
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) > union else (low, middle)
    return low, (density - low) / (1 - low)


class CodecSizes:
    """What codecs send, by runs on small gradients."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._samples: dict[str, tuple[RoundSizes, RoundSizes]] = {}

    def of(
        self, codec: CodecDescription, parts: Sequence[tuple[Support | None, int]], workers: int
    ) -> RoundSizes:
        """The rounds of a gradient whose parts have their own codecs, in the same rounds.

        Args:
            codec: of each part.
            parts: which elements of it are not zero, and how many it has.
            workers: how many.
        """
        from innet.allreduce.sizes import MODELLED, RoundSizes, extrapolated  # noqa: PLC0415

        found = []
        for support, elements in parts:
            key = f"{codec!r} {support!r} {workers}"
            if key not in self._samples:
                small, large = (
                    self._run(codec, support, size, workers) for size in (SAMPLE // 8, SAMPLE)
                )
                self._samples[key] = small, large
            found.append(extrapolated(*self._samples[key], elements))
        rounds = zip_longest(*(each.rounds for each in found), fillvalue=())
        return RoundSizes(
            sum(each.elements for each in found),
            tuple(tuple(segment for part in each for segment in part) for each in rounds),
            MODELLED,
        )

    def _run(
        self, codec: CodecDescription, support: Support | None, elements: int, workers: int
    ) -> RoundSizes:
        """The second all-reduce of new codecs, which know more of the union than the first."""
        from innet.allreduce.sizes import round_sizes  # noqa: PLC0415 - it brings Numba

        codecs = [
            build_codec(codec, seed=self._seed, worker=worker, layers=[(elements,)])
            for worker in range(workers)
        ]
        vectors = list(gradients(elements, support, workers, self._seed))
        round_sizes(codecs, vectors)
        return round_sizes(codecs, vectors)


# ----------------------------------------------------------------------------
# Points.


@dataclass(frozen=True, slots=True)
class TimePoint:
    """Where methods are compared."""

    model: str
    network: str
    workers: int
    compute: float | None


@dataclass(frozen=True, slots=True)
class MethodSeconds:
    """What a method takes at a point, simulated seconds.

    Attributes:
        compute, encode, network, decode: the parts, each added up over buckets.
        seconds: all; less than the sum of the parts where they overlap.
    """

    compute: float
    encode: float
    network: float
    decode: float
    seconds: float


class TimeComparison:
    """The points of a claim."""

    def __init__(self, claim: TimeRatios, seed: int = 0) -> None:
        for label in (claim.subject, claim.against):
            if label not in claim.methods:
                raise ConfigError(
                    f"there is no method {label!r}; the claim has {', '.join(claim.methods)}."
                )
        self.claim = claim
        self._network = NetworkTimes(claim.values_per_packet, claim.window, claim.transport)
        self._sizes = CodecSizes(seed)
        self._workloads = {model: workloads.load(model) for model in claim.workloads}

    @property
    def fabrics(self) -> Sequence[Fabric]:
        """Of the networks that were simulated so far."""
        return self._network.fabrics

    def points(self) -> list[TimePoint]:
        """All of them."""
        claim = self.claim
        computes: tuple[float | None, ...] = claim.compute or (None,)
        every = product(claim.workloads, claim.networks, claim.workers, computes)
        return [TimePoint(*each) for each in every]

    def title(self, model: str) -> str:
        """A model's title."""
        return self._workloads[model].title

    def taken(
        self, label: str, point: TimePoint, *, codec: float = 1.0, compute: float = 1.0
    ) -> MethodSeconds:
        """What a method takes.

        Args:
            label: of the method.
            point: where.
            codec: factor of the times of encoding and decoding.
            compute: factor of the time of computing.
        """
        # Step 1: what is summed, in which parts, and when each is ready.
        claim, method = self.claim, self.claim.methods[label]
        work = self._workloads[point.model]
        if point.compute is not None:
            work = work.with_seconds(point.compute)
        work = work.with_seconds(work.seconds * compute)
        if claim.of == "iteration" and claim.overlap:
            shapes = workloads.buckets(work)
            done = work.backward_times()
            ready = [float(done[each.layers[1]]) for each in shapes]
            parts = [self._parts(point.model, work, *each.layers) for each in shapes]
            sizes = [each.elements for each in shapes]
        else:
            ready = [work.seconds - work.forward]
            parts = [self._parts(point.model, work, 0, len(work.layers) - 1)]
            sizes = [work.elements]
        # The last parameters of a layer may be in the next bucket, so parts are scaled to buckets.
        summed = [
            self._summed(method, _scaled(part, size), point)
            for part, size in zip(parts, sizes, strict=True)
        ]
        # Step 2: an iteration of one worker, all being alike, with these sums.
        computing = claim.of == "iteration"
        encode = [codec * method.encode * size for size in sizes]
        decode = [codec * method.decode * size for size in sizes]

        def reduce(bucket: int, starts: Times) -> Times:
            return starts + summed[bucket]

        times = iterate(
            np.zeros(1),
            np.zeros(1),
            np.ones(1),
            forward=work.forward if computing else 0.0,
            ready=ready if computing else [0.0],
            backward=work.seconds - work.forward if computing else 0.0,
            encode=encode,
            decode=decode,
            reduce=reduce,
        )
        return MethodSeconds(
            compute=work.seconds if computing else 0.0,
            encode=sum(encode),
            network=sum(summed),
            decode=sum(decode),
            seconds=float(times.end[0]),
        )

    def ratio(self, point: TimePoint, **factors: float) -> float:
        """The time of ``against`` divided by the subject's; the factors are those of ``taken``."""
        other, subject = (
            self.taken(label, point, **factors).seconds
            for label in (self.claim.against, self.claim.subject)
        )
        return other / subject

    def _parts(
        self, model: str, work: Workload, first: int, last: int
    ) -> list[tuple[Support | None, int]]:
        """Elements of the layers of the backward pass from first to last, by their support."""
        found: dict[Support | None, int] = {}
        patterns = self.claim.supports.get(model, {})
        for layer in work.backward[first : last + 1]:
            support = next(
                (each for pattern, each in patterns.items() if fnmatchcase(layer.name, pattern)),
                None,
            )
            found[support] = found.get(support, 0) + layer.elements
        return [(support, size) for support, size in found.items() if size]

    def _summed(
        self, method: TimedMethod, parts: Sequence[tuple[Support | None, int]], point: TimePoint
    ) -> float:
        """Seconds of the network for one bucket."""
        total = 0.0
        elements = sum(size for _, size in parts)
        for stage in method.stages:
            if stage.algorithm == "switch":
                sent = [(support, math.ceil(stage.share * size)) for support, size in parts]
                sizes = self._sizes.of(stage.codec, sent, point.workers)
                total += self._network.rounds(sizes, point.network, point.workers)
            else:
                total += self._network.messages(
                    stage, math.ceil(stage.share * elements), point.network, point.workers
                )
        return total


def _scaled(
    parts: Sequence[tuple[Support | None, int]], elements: int
) -> list[tuple[Support | None, int]]:
    total = sum(size for _, size in parts)
    return [(support, max(1, round(size * elements / total))) for support, size in parts]


# ----------------------------------------------------------------------------
# A claim's finding.


def timing(claim: TimeRatios, *, seed: int = 0, quick: bool = False) -> Finding:
    """Compare the methods at all points.

    Args:
        claim: what to compare.
        seed: of generated gradients.
        quick: only the first point, and nothing is judged.
    """
    comparison = TimeComparison(claim, seed)
    # Step 1: all methods at each point.
    points = comparison.points()[: 1 if quick else None]
    rows = []
    ratios = []
    for point in points:
        found = {label: comparison.taken(label, point) for label in claim.methods}
        subject, other = found[claim.subject], found[claim.against]
        ratios.append(other.seconds / subject.seconds)
        rows.append(
            {
                "model": point.model,
                "network": point.network,
                "workers": point.workers,
                "ratio": ratios[-1],
                # With codecs that take no time: what the bytes allow.
                "bound": comparison.ratio(point, codec=0),
                "methods": {label: asdict(taken) for label, taken in found.items()},
            }
        )
    # Step 2: the verdict, and how much it hangs on what is assumed, where the gain is largest.
    best = int(np.argmax(ratios))
    networks = {label: _network_shares(rows, label) for label in (claim.subject, claim.against)}
    criterion, near, faster = _judge(claim, ratios, networks)
    judged = bool(criterion) and not quick
    sensitivity = _sensitivity(comparison, points[best])
    series, axes = _series(comparison, points, ratios)
    return Finding(
        setup=_setup(comparison),
        measured=f"{claim.subject} is {_span(ratios)} as fast as {claim.against}"
        + "".join(f", {_span(each)} as {label}" for label, each in _others(claim, rows).items())
        + f"; {_described(rows[best], claim)}; "
        + _reached(claim, rows)
        + (
            "the network takes "
            + " and ".join(
                f"{min(each):.1%} to {max(each):.1%} of {label}" for label, each in networks.items()
            )
            + "; "
            if claim.max_network_share is not None
            else ""
        )
        + ", ".join(f"{name} {_span(each)}" for name, each in sensitivity.items())
        + " there",
        criterion=criterion,
        holds=near if judged else None,
        direction=faster if judged else None,
        numbers={"points": rows, "sensitivity": sensitivity},
        series=series,
        axes=axes,
        logarithmic=("x", "y"),
    )


def _network_shares(rows: Sequence[Mapping[str, Any]], label: str) -> list[float]:
    taken = [row["methods"][label] for row in rows]
    return [each["network"] / each["seconds"] for each in taken]


def _others(claim: TimeRatios, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Ratios to the methods that the claim is not about."""
    return {
        label: [
            row["methods"][label]["seconds"] / row["methods"][claim.subject]["seconds"]
            for row in rows
        ]
        for label in claim.methods
        if label not in (claim.subject, claim.against)
    }


def _judge(
    claim: TimeRatios, ratios: Sequence[float], networks: Mapping[str, Sequence[float]]
) -> tuple[str, bool, bool]:
    """The criterion, whether it is met, and whether the effect has the paper's direction."""
    low, high = min(ratios), max(ratios)
    if claim.max_network_share is not None:
        most, other = max(networks[claim.subject]), max(networks[claim.against])
        criterion = f"the network takes at most {claim.max_network_share:.0%} everywhere"
        return criterion, most <= claim.max_network_share, most < other
    if claim.ratio_range is not None:
        least, largest = claim.ratio_range
        criterion = f"from {least:g} to {largest:g}{TIMES}, both within {NEAR:.0%}"
        near = abs(low / least - 1) <= NEAR and abs(high / largest - 1) <= NEAR
        return criterion, near, median(ratios) >= _FASTER
    if claim.min_ratio is not None:
        criterion = f"at least {claim.min_ratio:g}{TIMES} at one point"
        return criterion, high >= claim.min_ratio, high >= _FASTER
    return "", False, False


def _span(ratios: Sequence[float]) -> str:
    low, high = min(ratios), max(ratios)
    if f"{low:.2f}" == f"{high:.2f}":
        return f"{high:.2f}{TIMES}"
    return f"{low:.2f} to {high:.2f}{TIMES}"


def _reached(claim: TimeRatios, rows: Sequence[Mapping[str, Any]]) -> str:
    """Where ours is at least the paper's largest."""
    if claim.min_ratio is None or max(row["ratio"] for row in rows) < claim.min_ratio:
        return ""
    places: dict[str, list[str]] = {}
    for row in rows:
        if row["ratio"] >= claim.min_ratio:
            places.setdefault(row["model"], []).append(row["network"])
    named = [f"{model} at {', '.join(networks)}" for model, networks in places.items()]
    return f"{claim.min_ratio:g}{TIMES} is reached with {'; '.join(named)}; "


def _described(row: Mapping[str, Any], claim: TimeRatios) -> str:
    def parts(label: str) -> str:
        taken = row["methods"][label]
        named = [
            f"{name} {taken[name] * 1e3:.3g}"
            for name in ("compute", "encode", "network", "decode")
            if taken[name]
        ]
        return f"{label} {taken['seconds'] * 1e3:.3g} ms ({', '.join(named)})"

    return (
        f"most with {row['model']}, {row['workers']} workers, {row['network']}: "
        f"{parts(claim.against)}, {parts(claim.subject)}; {row['bound']:.2f}{TIMES} if codecs "
        "took no time"
    )


def _sensitivity(comparison: TimeComparison, point: TimePoint) -> dict[str, list[float]]:
    """The ratio at a point with half and twice of the assumed times."""
    names = ("codec", "compute") if comparison.claim.of == "iteration" else ("codec",)
    return {
        f"{name} / 2 and {TIMES} 2": [
            comparison.ratio(point, **{name: factor}) for factor in (0.5, 2.0)
        ]
        for name in names
    }


def _setup(comparison: TimeComparison) -> str:
    claim = comparison.claim
    what = "iterations" if claim.of == "iteration" else "aggregation of the whole gradient"
    overlap = ", buckets overlap the backward pass" if claim.overlap else ""
    return (
        f"simulated {what}{overlap}; {', '.join(map(comparison.title, claim.workloads))}; "
        f"{', '.join(claim.networks)}; {', '.join(map(str, claim.workers))} workers; switch "
        f"packets of {claim.values_per_packet} values, messages by {claim.transport}; encode + "
        "decode, ns an element: "
        + ", ".join(
            f"{label} {method.encode * 1e9:g} + {method.decode * 1e9:g}"
            for label, method in claim.methods.items()
        )
        + f"; {fabric_text(comparison.fabrics)}"
    )


def _series(
    comparison: TimeComparison, points: Sequence[TimePoint], ratios: Sequence[float]
) -> tuple[tuple[Series, ...], tuple[str, str]]:
    """A line of ratios for each combination of what is not on the x axis."""
    from innet.sim.network import network_of  # noqa: PLC0415 - it brings Numba

    claim = comparison.claim
    if len(claim.compute) > 1:
        axis = "computing, ms"
    elif len(claim.workers) > 1:
        axis = "workers"
    else:
        axis = "Gbit/s"

    def place(point: TimePoint) -> float:
        if axis == "workers":
            return float(point.workers)
        if axis == "Gbit/s":
            return network_of(point.network).rate / 1e9
        assert point.compute is not None
        return point.compute * 1e3

    lines: dict[str, list[tuple[float, float]]] = {}
    for point, ratio in zip(points, ratios, strict=True):
        names = [comparison.title(point.model)] if len(claim.workloads) > 1 else []
        if axis != "Gbit/s" and len(claim.networks) > 1:
            names.append(point.network)
        if axis == "computing, ms" and len(claim.workers) > 1:
            names.append(f"{point.workers} workers")
        label = ", ".join(names) or claim.subject
        lines.setdefault(label, []).append((place(point), ratio))
    series = tuple(
        Series(
            label=label,
            x=tuple(x for x, _ in sorted(line)),
            y=tuple(y for _, y in sorted(line)),
        )
        for label, line in lines.items()
    )
    return series, (axis, f"times as fast as {claim.against}")
