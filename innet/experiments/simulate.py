"""All-reduces and training iterations in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from innet import __version__
from innet.allreduce.collective import Collective
from innet.codecs import Codec, build_codec
from innet.codecs.build import spec_of_unit
from innet.core.errors import InputError
from innet.core.settings import AllReduceSettings, SimulateSettings, validate
from innet.experiments import workload as workloads
from innet.experiments.allreduce import gradients
from innet.experiments.timeline import IterationTimes, Times, iterate
from innet.experiments.workload import BucketShape, Stragglers, Workload
from innet.records import Machine, Report, Simulated
from innet.records.simulation import (
    Bucket,
    Iteration,
    PerWorker,
    Sensitivity,
    SimulationProgress,
    SimulationRecord,
    merged,
)
from innet.sim import Network, network_of
from innet.sim.network import is_steady

Watch = Callable[[SimulationProgress], None]


def simulate(
    *,
    network: str | Path | Mapping[str, Any] | Network = "100g",
    watch: Watch | None = None,
    created: datetime | None = None,
    **settings: Any,
) -> SimulationRecord:
    """All-reduces of generated gradients, or training iterations of a model, in simulated time.

    Args:
        network: as ``Collective`` takes it.
        watch: called after each all-reduce.
        created: when the run began, for the record; by default now.
        settings: those of ``SimulateSettings``, by name.

    Returns:
        The record. Its ``simulated`` and ``iterations`` depend on the settings alone.

    Raises:
        InputError: a setting that is unknown or cannot be used, by name.
        StalledError: a worker gave up, as too many packets were lost.

    Example:
        >>> record = simulate(workers=2, size=1000, network="100g")
        >>> record.simulated.packets, record.exact
        (68, True)
    """
    begun = time.perf_counter()
    resolved = network_of(network)
    plain = str(network) if isinstance(network, str | Path) else asdict(resolved)
    checked = validate(SimulateSettings, {**settings, "network": plain})
    run = _Run(checked, resolved)
    iterations = run.iterations(watch or (lambda _: None))
    every = [bucket for each in iterations for bucket in each.buckets]
    total = merged([bucket.simulated for bucket in every], sum(each.elements for each in every))
    return SimulationRecord(
        innet=__version__,
        created=created or datetime.now(UTC),
        machine=Machine.here(),
        settings=checked.model_dump(mode="json"),
        workers=checked.workers,
        model=run.workload.title,
        elements=run.workload.elements,
        network=asdict(resolved),
        compute_source=run.workload.source,
        compute_assumed=run.workload.assumed,
        simulated=total,
        seconds=max(iterations[-1].end),
        iterations=tuple(iterations),
        all_reduces=run.network.all_reduces,
        sensitivity=_sensitivity(checked, resolved, run.workload) if checked.sensitivity else (),
        report=run.network.last,
        wall_seconds=time.perf_counter() - begun,
    )


def workload_of(settings: SimulateSettings) -> Workload:
    """What the settings let each iteration compute and sum.

    Raises:
        InputError: a model and a size; no such model; nothing to sum.
    """
    if settings.model is None:
        if not settings.size:
            raise InputError("size = 0; a simulation needs at least 1 element to sum.")
        found = Workload.of_size(settings.size)
    elif "size" in settings.model_fields_set:
        raise InputError(
            f"size = {settings.size}, but the model {settings.model} has a size of its own; leave "
            "size or model out."
        )
    else:
        found = workloads.load(settings.model)
    return found if settings.compute is None else found.with_seconds(settings.compute)


_ASSUMED = ("switch_latency", "queue_packets", "host_receive", "host_send")  # of networks
_ASSUMED_TIMES = ("encode_time", "decode_time")


def _sensitivity(
    settings: SimulateSettings, network: Network, workload: Workload
) -> tuple[Sensitivity, ...]:
    """The simulation again with half and twice of each constant that is assumed, not given."""

    def seconds(changed: SimulateSettings, other: Network) -> float:
        found = _Run(changed, other).iterations(lambda _: None)
        return max(found[-1].end) / len(found)

    rows = []
    times = {name: getattr(settings, name) for name in _ASSUMED_TIMES}
    if workload.assumed:
        times["compute"] = workload.seconds
    for name, value in times.items():
        if name in settings.model_fields_set or not value:
            continue
        halved, doubled = (
            seconds(settings.model_copy(update={name: factor * value}), network)
            for factor in (0.5, 2.0)
        )
        rows.append(Sensitivity(setting=name, value=value, halved=halved, doubled=doubled))
    usual = Network()
    for name in _ASSUMED:
        value = getattr(network, name)
        if value != getattr(usual, name):
            continue
        halved, doubled = (
            seconds(settings, replace(network, **{name: type(value)(factor * value)}))
            for factor in (0.5, 2.0)
        )
        rows.append(
            Sensitivity(setting=f"network.{name}", value=value, halved=halved, doubled=doubled)
        )
    return tuple(rows)


class _Run:
    """A simulation.

    Attributes:
        workload: what an iteration computes and sums.
        network: what sums it.
    """

    def __init__(self, settings: SimulateSettings, network: Network) -> None:
        self.settings = settings
        self.workload = workload_of(settings)
        self._stragglers = Stragglers(
            settings.straggler, settings.pauses, settings.workers, settings.seed
        )
        self._buckets = workloads.buckets(
            self.workload, settings.bucket_cap_mb, settings.first_bucket_mb
        )
        done = self.workload.backward_times(settings.layer_times)
        self._ready = [float(done[bucket.layers[1]]) for bucket in self._buckets]
        self.network = _BucketNetwork(settings, network, self._buckets)

    def iterations(self, watch: Watch) -> list[Iteration]:
        """All iterations, one after the other; each worker begins with its own end."""
        workload, settings = self.workload, self.settings
        sizes = [bucket.elements for bucket in self._buckets]
        begin = np.zeros(settings.workers)
        found: list[Iteration] = []
        total = settings.iterations * len(sizes)
        for number in range(1, settings.iterations + 1):
            taken: list[_Taken] = []

            def reduce(bucket: int, starts: Times, taken: list[_Taken] = taken) -> Times:
                done, what = self.network.all_reduce(bucket, starts)
                taken.append(what)
                before = len(found) * len(sizes)
                watch(
                    SimulationProgress(
                        all_reduces=before + len(taken), of=total, seconds=float(done.max())
                    )
                )
                return done

            times = iterate(
                begin,
                self._stragglers.pauses(number),
                self._stragglers.factors(number),
                forward=workload.forward,
                ready=self._ready,
                backward=workload.seconds - workload.forward,
                encode=[settings.encode_time * size for size in sizes],
                decode=[settings.decode_time * size for size in sizes],
                reduce=reduce,
            )
            found.append(self._recorded(number, times, taken))
            begin = times.end
        return found

    def _recorded(self, number: int, times: IterationTimes, taken: list[_Taken]) -> Iteration:
        names = [layer.name for layer in self.workload.backward]
        buckets = []
        encode = network = waited = decode = np.zeros(self.settings.workers)
        for shape, when, what in zip(self._buckets, times.buckets, taken, strict=True):
            encode = encode + (when.encoded - when.started)
            network = network + (when.summed - when.encoded)
            waited = waited + (when.encoded.max() - when.encoded)
            decode = decode + (when.decoded - when.summed)
            first, last = shape.layers
            buckets.append(
                Bucket(
                    elements=shape.elements,
                    layers=(names[first], names[last]),
                    ready=_listed(when.ready),
                    started=_listed(when.started),
                    encoded=_listed(when.encoded),
                    summed=_listed(when.summed),
                    decoded=_listed(when.decoded),
                    bytes_sent=what.bytes_sent,
                    exact=what.exact,
                    simulated=what.simulated,
                )
            )
        return Iteration(
            number=number,
            begin=_listed(times.begin),
            forward=_listed(times.forward),
            backward=_listed(times.backward),
            end=_listed(times.end),
            compute=_listed(times.backward - times.begin - times.paused),
            encode=_listed(encode),
            network=_listed(network),
            waited=_listed(waited),
            decode=_listed(decode),
            exposed=_listed(times.end - times.backward),
            paused=_listed(times.paused),
            buckets=tuple(buckets),
        )


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the all-reduce of a bucket took."""

    simulated: Simulated
    bytes_sent: int
    exact: bool | None


class _BucketNetwork:
    """The workers, their codecs and the network, on which buckets are summed one after the other.

    Each bucket has codecs of its own, as in ``innet.torch``, and gradients that are the same in all
    iterations. Where nothing is random and all codecs are as they were, an all-reduce of the same
    gradients takes the same time, as every all-reduce ends with an idle network; it is simulated
    once.

    Attributes:
        all_reduces: how many were simulated.
        last: report of the last of them.
    """

    def __init__(
        self, settings: SimulateSettings, network: Network, buckets: list[BucketShape]
    ) -> None:
        self._settings = settings
        self._buckets = buckets
        self._collective = Collective(
            **settings.model_dump(
                include={
                    "workers", "codec", "program", "topology", "racks", "depth", "ports",
                    "values_per_packet", "framing", "window", "seed",
                }
            ),
            network=network,
        )  # fmt: skip
        self._steady = is_steady(network)
        self._codecs: dict[int, list[Codec]] = {}
        self._known: dict[tuple[bool, tuple[tuple[int, ...], ...]], _Taken] = {}
        self.all_reduces = 0
        self.last: Report

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, _Taken]:
        """Sum a bucket.

        Args:
            bucket: its number.
            starts: when each worker can send, simulated seconds.

        Returns:
            When each worker has the sum, and what it took.
        """
        taken = self._taken(bucket)
        # All workers of an all-reduce start together here: none can send before the slowest is
        # ready, and all have the sum with the last result. A network that takes a start for each
        # worker and tells each worker's end replaces these two lines.
        end = float(starts.max()) + taken.simulated.seconds
        return np.full(len(starts), end), taken

    def _taken(self, bucket: int) -> _Taken:
        settings, shapes = self._settings, self._buckets[bucket].shapes
        is_last = bucket == len(self._buckets) - 1
        if (is_last, shapes) in self._known:
            return self._known[is_last, shapes]
        if bucket not in self._codecs:
            # The bucket summed last begins with the model's first parameter. Within a bucket,
            # parameters are in the order of the model, as in innet.torch.
            spec = spec_of_unit(settings.codec, first=is_last)
            self._codecs[bucket] = [
                build_codec(spec, seed=settings.seed, worker=worker, layers=shapes[::-1])
                for worker in range(settings.workers)
            ]
        codecs = self._collective.codecs = self._codecs[bucket]
        before = [codec.state_dict() for codec in codecs]
        _, report = self._collective.all_reduce(
            gradients(
                AllReduceSettings(
                    workers=settings.workers,
                    size=self._buckets[bucket].elements,
                    density=settings.density,
                    seed=settings.seed,
                )
            )
        )
        assert report.simulated is not None
        self.all_reduces += 1
        self.last = report
        taken = _Taken(report.simulated, report.bytes_sent, report.exact)
        as_before = _equal(before, [codec.state_dict() for codec in codecs])
        if self._steady and as_before and not (taken.simulated.dropped or report.retransmissions):
            self._known[is_last, shapes] = taken
        return taken


def _equal(one: Any, other: Any) -> bool:
    """Whether two states are equal: mappings and sequences of arrays and plain values."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _listed(times: Times) -> PerWorker:
    return tuple(times.tolist())
