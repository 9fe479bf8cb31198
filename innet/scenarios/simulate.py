"""All-reduces and training iterations in simulated time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from innet._version import __version__
from innet.allreduce.collective import Collective
from innet.allreduce.sizes import RoundSizes, extrapolated, sampled_sizes
from innet.codecs import Codec, CodecSpec, build_codec
from innet.codecs.build import spec_of_unit
from innet.core.errors import InputError
from innet.core.settings import AllReduceSettings, SimulateSettings, validate
from innet.records import Machine, Report, Seconds, Simulated
from innet.records.simulation import (
    BackgroundTraffic,
    BaselineRun,
    Bucket,
    FastForwarded,
    Iteration,
    NetworkSamples,
    PerWorker,
    Sensitivity,
    SimulationProgress,
    SimulationRecord,
    iteration_parts,
    merged,
)
from innet.scenarios import workload as workloads
from innet.scenarios.allreduce import faults_of, gradients, timing_of
from innet.scenarios.background import Background, read_tables
from innet.scenarios.baselines import (
    Baseline,
    Exchanged,
    MessageNetwork,
    Snapshot,
    baselines_of,
    network_fields,
    with_fields,
)
from innet.scenarios.fixed_function import ELEMENT_TYPES, with_fixed_function
from innet.scenarios.gpu_hosts import HostsNetwork, gpu_hosts_of, plan_of_hosts
from innet.scenarios.samples import Sampler
from innet.scenarios.timeline import IterationTimes, Times, iterate
from innet.scenarios.workload import BucketShape, Stragglers, Workload
from innet.sim import Network, network_of
from innet.sim.captures import LinkCaptures
from innet.sim.fast_forward import Forwarded
from innet.sim.gpu_hosts import GpuHosts
from innet.sim.network import SECOND, assumed_settings, is_steady, read_network
from innet.sim.transport import transport_of
from innet.topology import Plan, with_bottleneck
from innet.topology.plan import SharedPlan

Watch = Callable[[SimulationProgress], None]
Shapes = tuple[tuple[int, ...], ...]

_CODEC_ELEMENTS = 1 << 26  # of all workers together; with more, thin packets have modelled sizes
_SAMPLE = 1 << 12  # elements of the smallest gradient by which sizes are modelled


def simulate(
    *,
    network: str | Path | Mapping[str, Any] | Network = "100g",
    watch: Watch | None = None,
    created: datetime | None = None,
    pcap: str | Path | None = None,
    **settings: Any,
) -> SimulationRecord:
    """All-reduces of generated gradients, or training iterations of a model, in simulated time.

    Args:
        network: as ``Collective`` takes it.
        watch: called after each all-reduce.
        created: when the run began, for the record; by default now.
        pcap: folder for a capture of each link in each direction, of the all-reduces that are
            simulated.
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
    resolved, tables = _network_of(network)
    if tables:
        if settings.get("background") is not None:
            raise InputError(
                "both background and the network's file have traffic beside all-reduces; leave one "
                "of them out."
            )
        settings["background"] = read_tables(tables, Path(str(network)).parent)
    as_named = isinstance(network, str | Path) and not tables
    plain = str(network) if as_named else asdict(resolved)
    checked = validate(SimulateSettings, {**settings, "network": plain})
    resolved = with_bottleneck(resolved, checked.topology)
    if checked.gpus_per_host > 1:
        checked = checked.model_copy(update={"thin": True})  # all that such hosts have
    if checked.switch != "p4":
        checked, resolved = with_fixed_function(checked, resolved)
    baselines = baselines_of(checked)
    if baselines and checked.faults != SimulateSettings().faults:
        raise InputError(
            "baselines meet no faults; leave one of them out, or let the network lose packets, as "
            "in 100g:loss=1e-4."
        )
    for each in baselines:
        each.check_hosts(gpu_hosts_of(checked, resolved))
    if baselines and resolved.trim:  # now, not after the all-reduce before them
        transport_of(checked.transport).check_trimming()
    run = _SimulationRun(checked, resolved)
    if pcap is not None:
        run.network.capture(Path(pcap))
    progress = _Progress(watch, (1 + len(baselines)) * run.all_reduces)
    iterations, samples = run.iterations(progress), run.samples
    beside = {each.name: run.baseline(each, progress) for each in baselines}
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
        assumed=_assumed(checked, run.workload, iterations),
        simulated=_total(iterations),
        seconds=run.end_of(iterations[-1]),
        iterations=tuple(iterations),
        all_reduces=run.network.all_reduces,
        fast_forward=FastForwarded(**run.network.forwarded._asdict()),
        sensitivity=_sensitivity(checked, resolved, run) if checked.sensitivity else (),
        report=run.network.last,
        background=run.network.background(),
        samples=samples,
        baselines=beside,
        wall_seconds=time.perf_counter() - begun,
    )


def _network_of(
    given: str | Path | Mapping[str, Any] | Network,
) -> tuple[Network, dict[str, Any]]:
    """The network, and the traffic that its file describes."""
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".toml")):
        return read_network(given)
    return network_of(given), {}


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
            f"size = {settings.size}, but the model {settings.model} sets the size itself; leave "
            "size or model out."
        )
    else:
        found = workloads.load(settings.model)
    return found if settings.compute is None else found.with_seconds(settings.compute)


_ASSUMED_TIMES = ("encode_time", "decode_time")


def _sensitivity(
    settings: SimulateSettings, network: Network, done: _SimulationRun
) -> tuple[Sensitivity, ...]:
    """The simulation again with half and twice of each constant that is assumed, not given."""
    workload = done.workload

    def seconds(changed: SimulateSettings, other: Network) -> float:
        run = _SimulationRun(changed, other)
        found = run.iterations(_Progress(None, 0))
        return run.end_of(found[-1]) / len(found)

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
    for name in assumed_settings(network):
        value = getattr(network, name)
        if value == 1:
            continue  # of one core there is no half
        if name == "recirculation_latency" and not done.network.recirculates:
            continue
        halved, doubled = (
            seconds(settings, replace(network, **{name: type(value)(factor * value)}))
            for factor in (0.5, 2.0)
        )
        rows.append(
            Sensitivity(setting=f"network.{name}", value=value, halved=halved, doubled=doubled)
        )
    return tuple(rows)


def _assumed(
    settings: SimulateSettings, workload: Workload, iterations: Sequence[Iteration]
) -> dict[str, float]:
    """Shares of an iteration whose time is assumed, as ``SimulationRecord`` has them."""
    parts = iteration_parts(iterations)
    given = settings.model_fields_set
    is_assumed = {
        "computing": workload.assumed,
        "encoding": "encode_time" not in given,
        "decoding": "decode_time" not in given,
    }
    return {name: parts[name] for name, is_so in is_assumed.items() if is_so and parts.get(name)}


def _total(iterations: Sequence[Iteration]) -> Simulated:
    """All all-reduces together."""
    every = [bucket for each in iterations for bucket in each.buckets]
    return merged([bucket.simulated for bucket in every], sum(each.elements for each in every))


class _Progress:
    """Tells a watcher how far a simulation is.

    Args:
        watch: called with each event; None for no calls.
        total: all-reduces that there will be.
    """

    def __init__(self, watch: Watch | None, total: int) -> None:
        self._watch, self._total, self._done = watch, total, 0

    def add(self, seconds: float) -> None:
        """An all-reduce is done, at a simulated time."""
        self._done += 1
        if self._watch is not None:
            self._watch(SimulationProgress(all_reduces=self._done, of=self._total, seconds=seconds))


class _Reducer(Protocol):
    """What sums buckets in simulated time."""

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, Exchanged]:
        """Sum a bucket.

        Args:
            bucket: its number.
            starts: when each worker can send, simulated seconds.

        Returns:
            When each worker has the sum, and what it took.
        """

    def end_samples(self) -> NetworkSamples | None:
        """Sample the network no longer; what was sampled, if it was."""


class _SimulationRun:
    """A simulation.

    Attributes:
        workload: what an iteration computes and sums.
        network: what sums it.
        samples: of the network that was the last to sum, in the first iteration, if they were asked
            for.
    """

    samples: NetworkSamples | None = None

    def __init__(self, settings: SimulateSettings, network: Network) -> None:
        self.settings = settings
        self.workload = workload_of(settings)
        self._stragglers = Stragglers(
            settings.straggler, settings.pauses, settings.workers, settings.seed
        )
        self._jitter = workloads.StartJitter(settings.start_jitter, settings.workers, settings.seed)
        self._buckets = workloads.buckets(
            self.workload, settings.bucket_cap_mb, settings.first_bucket_mb
        )
        done = self.workload.backward_times(settings.layer_times)
        self._ready = [float(done[bucket.layers[1]]) for bucket in self._buckets]
        self._network = network
        self._gpus = gpu_hosts_of(settings, network)
        background = background_of(settings, network, self._gpus)
        self.network: _BucketNetwork | HostsNetwork | _NvlsNetwork
        if settings.switch == "nvls" and self._gpus is not None:
            self.network = _NvlsNetwork(settings, network, self._buckets, self._gpus)
        elif self._gpus is None and settings.switch == "p4":
            self.network = _BucketNetwork(settings, network, self._buckets, background)
        else:
            gpus = self._gpus or GpuHosts(settings.workers, 1)
            self.network = HostsNetwork(settings, network, self._buckets, gpus, background)

    @property
    def all_reduces(self) -> int:
        """Of all iterations."""
        return self.settings.iterations * len(self._buckets)

    def end_of(self, iteration: Iteration) -> float:
        """When the last worker was done with the last iteration, of those not left out."""
        return max(iteration.end[worker] for worker in self.network.present)

    def baseline(self, baseline: Baseline, progress: _Progress) -> BaselineRun:
        """The same iterations, summed by hosts."""
        network = _BaselineNetwork(
            self.settings,
            self._network,
            self._buckets,
            baseline,
            self.network.plan,
            gpus=self._gpus,
        )
        found = self.iterations(progress, network, is_encoded=baseline.is_encoded)
        return BaselineRun(
            transport=self.settings.transport,
            simulated=_total(found),
            seconds=max(found[-1].end),
            iterations=tuple(found),
            all_reduces=network.all_reduces,
            background=network.background(),
            samples=self.samples,
        )

    def iterations(
        self,
        progress: _Progress,
        reducer: _Reducer | None = None,
        *,
        is_encoded: bool | None = None,
    ) -> list[Iteration]:
        """All iterations, one after the other; each worker begins with its own end.

        Args:
            progress: is called for each all-reduce.
            reducer: what sums buckets; by default the network.
            is_encoded: whether workers encode and decode them; by default unless switches sum what
                they have as it is.
        """
        workload, settings = self.workload, self.settings
        summing = self.network if reducer is None else reducer
        if is_encoded is None:
            is_encoded = settings.switch == "p4" or settings.codec != "dense"
        # GPUs of a host code the parts that they sum for it.
        parts = 1 if self._gpus is None or reducer is not None else self._gpus.gpus
        sizes = [bucket.elements / parts for bucket in self._buckets]
        begin = np.zeros(settings.workers)
        found: list[Iteration] = []
        for number in range(1, settings.iterations + 1):
            taken: list[Exchanged] = []

            def reduce(bucket: int, starts: Times, taken: list[Exchanged] = taken) -> Times:
                done, what = summing.all_reduce(bucket, starts)
                taken.append(what)
                progress.add(float(done.max()))
                return done

            pauses = self._stragglers.pauses(number) + self._jitter.seconds(number)
            factors = self._stragglers.factors(number)
            if summing is self.network:  # no worker waits for one that was left out
                here = self.network.present
                gone = np.setdiff1d(np.arange(settings.workers), here)
                for each in (begin, pauses, factors):
                    each[gone] = each[here].min()
            times = iterate(
                begin,
                pauses,
                factors,
                forward=workload.forward,
                ready=self._ready,
                backward=workload.seconds - workload.forward,
                encode=[is_encoded * settings.encode_time * size for size in sizes],
                decode=[is_encoded * settings.decode_time * size for size in sizes],
                reduce=reduce,
            )
            found.append(self._recorded(number, times, taken))
            begin = times.end
            if number == 1:
                self.samples = summing.end_samples()
        return found

    def _recorded(self, number: int, times: IterationTimes, taken: list[Exchanged]) -> Iteration:
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
                    without=what.without,
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


class _BucketNetwork:
    """The workers, their codecs and the network, on which buckets are summed one after the other.

    Each bucket has its own codecs, as in ``innet.torch``, and gradients that are the same in all
    iterations. Every all-reduce ends with an idle network. So if nothing is random, all codecs have
    the same state as before and all workers begin together, an all-reduce of the same gradients
    takes the same time. It is then simulated once.

    Attributes:
        all_reduces: how many were simulated.
        last: report of the last of them.
    """

    def __init__(
        self,
        settings: SimulateSettings,
        network: Network,
        buckets: list[BucketShape],
        background: Background,
    ) -> None:
        if settings.elements_per_packet is not None and not settings.thin:
            raise InputError(
                f"elements_per_packet = {settings.elements_per_packet} is for thin packets; choose "
                "thin, or give values_per_packet."
            )
        self._settings = settings
        self._buckets = buckets
        faults = faults_of(settings.faults, settings.workers)
        self._collective = Collective(
            **settings.model_dump(
                include={
                    "workers", "codec", "program", "topology", "racks", "depth", "ports",
                    "framing", "window", "seed", "thin",
                }
            ),
            values_per_packet=settings.elements_per_packet or settings.values_per_packet,
            network=network,
            faults=faults,
            timing=timing_of(settings, network),
        )  # fmt: skip
        self._background = background
        self._steady = is_steady(network) and faults is None and not self._background.flows
        simulation = self._collective.network.timed
        simulation.fast_forward = settings.fast_forward
        if self._background.flows and settings.partial_after is not None:
            raise InputError(
                "packets beside all-reduces would have gone on until a late worker gave up; leave "
                "partial_after or background out."
            )
        if self._background.flows:
            simulation.add_flows(self._background.flows)
        self._sampler: Sampler | None = None
        if settings.samples:
            self._sampler = Sampler(
                network,
                workers=settings.workers,
                background=self._background,
                wanted=settings.samples,
                elements=max(bucket.elements for bucket in buckets),
                interval=settings.sample_interval,
                switches=self._collective.network.switches,
                ends=self._collective.network.workers,
            )
        self._codecs: dict[int, list[Codec]] = {}
        self._known: dict[tuple[bool, Shapes], Exchanged] = {}
        self._sizes: dict[Shapes, RoundSizes] = {}
        self._sampled: dict[tuple[str, int], tuple[RoundSizes, RoundSizes]] = {}
        self.all_reduces = 0
        self.last: Report

    def capture(self, folder: Path) -> None:
        """Write a capture of each link in each direction into a folder from now on."""
        LinkCaptures(self._collective.network.timed, folder)

    @property
    def plan(self) -> Plan:
        """Of the job."""
        return self._collective.plan

    @property
    def recirculates(self) -> bool:
        """Whether packets have passed a switch again."""
        switches = self._collective.network.switches.values()
        return any(switch.statistics.recirculated for switch in switches)

    @property
    def forwarded(self) -> Forwarded:
        """What was skipped."""
        return self._collective.network.timed.forwarded

    @property
    def present(self) -> list[int]:
        """Workers who were not left out."""
        return list(self._collective.present)

    def end_samples(self) -> NetworkSamples | None:
        """Sample the network no longer; what was sampled, if it was."""
        sampler, self._sampler = self._sampler, None
        return None if sampler is None else sampler.end()

    def background(self) -> tuple[BackgroundTraffic, ...]:
        """What became of the packets beside the all-reduces."""
        return self._background.results(self._collective.network.timed.flow_counts())

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, Exchanged]:
        """As of ``_Reducer``."""
        here = starts[self.present]
        begin = float(here.min())
        together = begin == float(here.max())
        key = (bucket == len(self._buckets) - 1, self._buckets[bucket].shapes)
        if together and key in self._known and self._sampler is None:
            taken = self._known[key]
        else:
            taken, is_as_before = self._simulated(bucket, starts, begin)
            lasting = not (taken.simulated.dropped or taken.simulated.retransmissions)
            if together and self._steady and is_as_before and lasting:
                self._known[key] = taken
        return begin + np.array(taken.ends) / SECOND, taken

    def _simulated(self, bucket: int, starts: Times, begin: float) -> tuple[Exchanged, bool]:
        """What the all-reduce of a bucket takes, and whether the codecs are as before it."""
        before_us = self.present
        network = self._collective.network
        simulation = network.timed
        network.start_each(dict(enumerate(starts.tolist())))
        before_it = Snapshot(simulation, begin)
        if self._sampler is not None:
            self._sampler.begin(simulation, begin)
        size = self._buckets[bucket].elements
        is_as_before = True
        if self._settings.thin and self._settings.workers * size > _CODEC_ELEMENTS:
            report = self._collective.all_reduce_sizes(self._sizes_of(bucket))
        else:
            codecs = self._collective.codecs = self._codecs_of(bucket)
            before = [codec.state_dict() for codec in codecs] if self._steady else None
            _, report = self._collective.all_reduce(self._gradients(size, self._settings.workers))
            is_as_before = _equal(before, [codec.state_dict() for codec in codecs])
        first = round(begin * SECOND)
        done = {
            worker: round(simulation.finished(worker) * SECOND) - first for worker in self.present
        }
        waited = round((max(starts[self.present]) - begin) * SECOND)
        # Who was left out has no sum; the others go on when the last of them has it.
        ends = tuple(
            done.get(worker, max(done.values())) for worker in range(self._settings.workers)
        )
        # The report counts from the end of the all-reduce before.
        counts = simulation.counts().since(before_it.counts)
        longest = simulation.queue_bytes_max()
        fields = network_fields(report.elements, max(ends), waited, counts, longest)
        self.last = with_fields(report, fields)
        self.all_reduces += 1
        assert self.last.simulated is not None
        without = tuple(sorted(set(before_us).difference(self.present)))
        taken = Exchanged(ends, self.last.simulated, report.bytes_sent, report.exact, without)
        return taken, is_as_before

    def _gradients(self, size: int, workers: int) -> list[NDArray[Any]]:
        settings = self._settings
        return gradients(
            AllReduceSettings(
                workers=workers, size=size, density=settings.density, seed=settings.seed
            )
        )

    def _spec(self, bucket: int) -> CodecSpec:
        # The bucket summed last begins with the model's first parameter.
        return spec_of_unit(self._settings.codec, first=bucket == len(self._buckets) - 1)

    def _codecs_of(self, bucket: int) -> list[Codec]:
        if bucket not in self._codecs:
            # Within a bucket, parameters are in the order of the model, as in innet.torch.
            layers = self._buckets[bucket].shapes[::-1]
            self._codecs[bucket] = [
                build_codec(
                    self._spec(bucket), seed=self._settings.seed, worker=worker, layers=layers
                )
                for worker in range(self._settings.workers)
            ]
        return self._codecs[bucket]

    def _sizes_of(self, bucket: int) -> RoundSizes:
        """What the workers send of a bucket that is too large to run all codecs on it."""
        workers, shapes = self._settings.workers, self._buckets[bucket].shapes
        if shapes not in self._sizes:
            elements = self._buckets[bucket].elements
            sample = min(elements, max(_SAMPLE, min(_CODEC_ELEMENTS // workers, 1 << 17)))
            # Buckets of one codec are modelled by the same sample.
            key = str(self._spec(bucket)), sample
            if key not in self._sampled:
                self._sampled[key] = sampled_sizes(
                    self._spec(bucket),
                    lambda size: self._gradients(size, workers),
                    sample,
                    seed=self._settings.seed,
                )
            small, large = self._sampled[key]
            is_larger = elements > sample
            self._sizes[shapes] = extrapolated(small, large, elements) if is_larger else large
        return self._sizes[shapes]


class _BaselineNetwork:
    """The workers and the network, on which buckets are summed without a switch that sums.

    What takes equally long is simulated once, as with codecs.

    Attributes:
        all_reduces: how many were simulated.
    """

    def __init__(
        self,
        settings: SimulateSettings,
        network: Network,
        buckets: list[BucketShape],
        baseline: Baseline,
        plan: Plan | SharedPlan,
        *,
        gpus: GpuHosts | None,
    ) -> None:
        self._buckets = buckets
        self._background = background_of(settings, network, gpus)
        self._network = MessageNetwork(
            baseline,
            plan,
            network,
            transport_of(settings.transport),
            gpus=gpus,
            flows=self._background.flows,
            density=settings.density,
            hop_cost=(settings.encode_time + settings.decode_time) * SECOND,
            seed=settings.seed,
        )
        if settings.samples:
            self._network.sampler = Sampler(
                network,
                workers=settings.workers if gpus is None else gpus.hosts * gpus.nics,
                background=self._background,
                wanted=settings.samples,
                elements=max(bucket.elements for bucket in buckets),
                interval=settings.sample_interval,
            )
        self._steady = is_steady(network) and not self._background.flows
        self._known: dict[int, Exchanged] = {}
        self.all_reduces = 0

    def end_samples(self) -> NetworkSamples | None:
        """Sample the network no longer; what was sampled, if it was."""
        sampler, self._network.sampler = self._network.sampler, None
        return None if sampler is None else sampler.end()

    def background(self) -> tuple[BackgroundTraffic, ...]:
        """What became of the packets beside the all-reduces."""
        return self._background.results(self._network.simulation.flow_counts())

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, Exchanged]:
        """As of ``_Reducer``."""
        size, begin = self._buckets[bucket].elements, float(starts.min())
        together = begin == float(starts.max())
        if together and size in self._known and self._network.sampler is None:
            taken = self._known[size]
        else:
            taken = self._network.all_reduce(size, starts)
            self.all_reduces += 1
            if together and self._steady:
                self._known[size] = taken
        return begin + np.array(taken.ends) / SECOND, taken


class _NvlsNetwork(_BaselineNetwork):
    """Hosts with several GPUs whose switches sum, and rings between hosts: NCCL's NVLS.

    Attributes:
        plan: a job for each network card of a host.
        last: report of the last all-reduce that was simulated.
        present: all workers.
    """

    recirculates = False
    forwarded = Forwarded(why="messages are not skipped")
    last: Report

    def __init__(
        self,
        settings: SimulateSettings,
        network: Network,
        buckets: list[BucketShape],
        gpus: GpuHosts,
    ) -> None:
        self.plan = plan_of_hosts(settings, gpus)
        dtype = ELEMENT_TYPES[str(settings.codec)]
        name = "nvls-ring" if dtype == "float32" else f"nvls-ring-{dtype}"
        super().__init__(settings, network, buckets, Baseline.of(name), self.plan, gpus=gpus)
        self._codec, self._transport_name = str(settings.codec), settings.transport
        self.present = list(range(settings.workers))

    def capture(self, folder: Path) -> None:
        """Refused, as each all-reduce has a network of its own."""
        raise InputError(
            f"nvls has no captures; leave pcap = {str(folder)!r} out, or choose sharp."
        )

    def all_reduce(self, bucket: int, starts: Times) -> tuple[Times, Exchanged]:
        """As of ``_Reducer``."""
        begun = time.perf_counter()
        done, taken = super().all_reduce(bucket, starts)
        what, seconds = taken.simulated, time.perf_counter() - begun
        self.last = Report(
            exact=None,
            workers=len(self.present),
            codec=self._codec,
            program="nvls",
            engine="messages",
            transport=self._transport_name,
            values_per_packet=0,
            elements=self._buckets[bucket].elements,
            rounds=1,
            packets_sent=what.packets,
            packets_received=what.packets - what.lost - what.dropped,
            bytes_sent=taken.bytes_sent,
            bytes_dense=4 * self._buckets[bucket].elements,
            retransmissions=what.retransmissions,
            seconds=Seconds(
                encode=0.0, network=seconds, decode=0.0, total=seconds, simulated=what.seconds
            ),
            max_abs_error=None,
            max_abs_error_sent=None,
            simulated=what,
        )
        return done, taken


def background_of(
    settings: SimulateSettings, network: Network, gpus: GpuHosts | None
) -> Background:
    """What hosts send beside all-reduces, or the network cards of hosts with several GPUs."""
    given = {} if settings.background is None else read_tables(settings.background)
    hosts = settings.workers if gpus is None else gpus.hosts * gpus.nics
    return Background(given, network, hosts, settings.seed)


def _equal(one: Any, other: Any) -> bool:
    """Whether two states are equal: mappings and sequences of arrays and plain values."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping):
        if one.get("numbers") == {}:  # a codec without schedules, for which steps do not count
            one, other = ({**each, "step": 0} for each in (one, other))
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _listed(times: Times) -> PerWorker:
    return tuple(times.tolist())
