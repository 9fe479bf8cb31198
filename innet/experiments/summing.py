"""One run of a training: what sums its gradients, what that takes, and its record.

``SummedRun`` is what all trainings use, those of ``innet train`` and those of a script of one's
own (``emulation.py``). It does not know how gradients are computed or what steps are taken.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from innet.codecs import ModelLayers, build_codec
from innet.core.errors import ConfigError, InputError
from innet.core.reduce_op import Segment
from innet.core.settings import (
    CodecDescription,
    SimulatedTrainingSettings,
    TrainingSettings,
    TrainSettings,
)
from innet.experiments.models.model import Vector, layer_type
from innet.experiments.ring_sums import RingReducer, ring_of
from innet.experiments.simulated_time import NetworkCost, TimedNetwork, TimedRing, Timer
from innet.records import Metric, Report, Run, Step
from innet.sim.network import Network

if TYPE_CHECKING:
    from innet.allreduce.collective import Collective
    from innet.allreduce.loop import RoundResult

Shapes = Mapping[str, tuple[int, ...]]
"""The layers' names and shapes, in the order of the gradient."""
Reducer = Callable[[list[Vector]], tuple[Vector, Report | None]]
"""The workers' gradients to their sum, and its report if they were sent."""


def plain_sum(gradients: list[Vector]) -> tuple[Vector, None]:
    """The baseline: a float32 sum in the order of the workers, without a network."""
    total = gradients[0].copy()
    for each in gradients[1:]:
        total += each
    return total, None


Frame = tuple[float, int, bytes]  # virtual time in seconds, switch port, bytes


class AllReducer(Protocol):
    """The part of ``innet.allreduce.collective.Collective`` that a training uses."""

    def all_reduce(self, gradients: Sequence[Vector]) -> tuple[Vector, Report]:
        """The float32 sum of the workers' gradients, and its report."""

    def record_packets(self) -> AbstractContextManager[list[Frame]]:
        """Yield a list, to which packets are added while the context is open."""


MakeAllReducer = Callable[..., AllReducer]


@dataclass(frozen=True, slots=True)
class SumMethod:
    """One way to sum gradients.

    Attributes:
        name: the run's key in the record.
        title: its name for display.
        codec: None for plain float32 sums without a network.
        codec_momentum: the codec has momentum, so the optimizer must have none.
        baseline: a ring, as ``innet.experiments.ring_sums.ring_of`` takes it, whose sums these are;
            "" for plain float32 sums, or a codec's.
    """

    name: str
    title: str
    codec: CodecDescription | None
    codec_momentum: bool = False
    baseline: str = ""


def sum_methods(
    codecs: Sequence[CodecDescription],
    baselines: Sequence[str] = (),
    *,
    seed: int = 0,
    layers: ModelLayers | None = None,
) -> list[SumMethod]:
    """Plain sums, each codec by its preset's name or its description if it has none, and baselines.

    Args:
        codecs: as ``build_codec`` takes them.
        baselines: as ``ring_of`` takes them.
        seed: of the codecs.
        layers: of the model; codecs with parameters for each layer cannot be built without.

    Raises:
        UnknownNameError, ConfigError, CompositionError: a codec that cannot be built, or is given
            twice, as a baseline may not be either, or a baseline that is none.
    """
    if twice := {name for name in baselines if baselines.count(name) > 1}:
        raise ConfigError(f"the baseline {min(twice)} is given twice; give each once.")
    found = [SumMethod("plain", "plain float32", None)]
    specs: list[object] = []
    presets = [_preset_of(description) for description in codecs]
    for description, preset in zip(codecs, presets, strict=True):
        built = build_codec(description, seed=seed, layers=layers)
        if built.spec in specs:
            raise ConfigError(f"the codec {built.describe()} is given twice; give each once.")
        specs.append(built.spec)
        only = presets.count(preset) == 1 or description in (preset, {"preset": preset})
        # No preset's name, or one preset with different parameters
        has_other_name = not (preset and only) or built.by_layer()
        name = built.describe() if has_other_name else preset
        # Lin et al. move momentum from the optimizer into the error feedback; it must not be used
        # twice.
        codec_momentum = built.momentum
        if codec_momentum is None:
            raise ConfigError(
                f"the codec {built.describe()} has the momentum of some layers, and a training can "
                "leave it out of the optimizer for all or for none; give all layers momentum."
            )
        found.append(SumMethod(name, name, description, codec_momentum))
    rings = [(name, ring_of(name).title) for name in baselines]
    return found + [SumMethod(name, title, None, False, name) for name, title in rings]


def _preset_of(description: CodecDescription) -> str:
    """The preset's name; "" if parts or parameters are given."""
    preset = description if isinstance(description, str) else description.get("preset", "")
    return "" if ":" in str(preset) else str(preset)


class NetworkReducer:
    """A reducer that sends packets. It keeps those of its first all-reduce.

    The gradients are summed without simulated time, and their words once more on each network that
    has one.

    Args:
        codec: of all workers.
        settings: of the workers, the packets and the switch.
        shapes: of the model's layers.
        seed: of the codec's hashes, and of the networks.
        networks: by name, those on which sums take simulated time.
        make: makes the object that sums.
        by_rack: the workers of each rack sum for themselves as well.

    Attributes:
        frames: the packets, both directions.
        codec: description of the codec, from the first report.
        taken: what the last all-reduce took in simulated time, by network.
        counted: what the codec's paper counts for it: bits by layer, of all workers together; None
            for layers, or for all, of which it counts bytes on the wire.
    """

    def __init__(
        self,
        codec: CodecDescription,
        settings: TrainingSettings,
        shapes: Shapes,
        *,
        seed: int,
        networks: Mapping[str, Network],
        make: MakeAllReducer,
        by_rack: bool = False,
    ) -> None:
        # Numba, which these bring, takes long to import.
        from innet.allreduce.collective import Collective  # noqa: PLC0415
        from innet.allreduce.warm_up import compile_repairs  # noqa: PLC0415

        self.frames: list[Frame] = []
        self.codec = ""
        self.taken: dict[str, NetworkCost] = {}
        self.counted: Sequence[int | None] | None = None
        arguments: dict[str, Any] = {
            "workers": settings.workers,
            "codec": codec,
            "layers": shapes,
            "values_per_packet": settings.values_per_packet,
            "engine": settings.engine,
            "seed": seed,
        }
        if isinstance(settings, SimulatedTrainingSettings):
            arguments["window"] = settings.window
        if isinstance(settings, TrainSettings) and settings.results is not None:
            arguments["results"] = settings.results
        if by_rack and isinstance(settings, TrainSettings):
            arguments |= {"racks": settings.racks, "rack_codec": settings.rack_codec}
        # Numba compiles at the first call. This call with other numbers and another object keeps
        # that time out of the first iteration, and leaves no residual.
        rng = np.random.default_rng(seed)
        size = sum(map(math.prod, shapes.values()))
        samples = [rng.standard_normal(size, np.float32) for _ in range(settings.workers)]
        first = make(**arguments)
        if isinstance(first, Collective):
            for name, network in networks.items():
                first.on_round = TimedNetwork(name, first.plan, network, seed).repeat
        first.all_reduce(samples)
        if "rack_codec" in arguments:
            _with_racks(first).all_reduce(samples, scope="rack")
        compile_repairs(codec)
        self._collective = make(**arguments)
        self._timed: dict[str, TimedNetwork] = {}
        self._rounds: list[tuple[Mapping[int, list[Segment]], RoundResult]] = []
        if networks:
            if not isinstance(self._collective, Collective):
                raise InputError(
                    f"a {type(self._collective).__name__} has no rounds to repeat on the networks "
                    f"{', '.join(networks)}; leave the networks out."
                )
            self._collective.on_round = self._keep
            self._timed = {
                name: TimedNetwork(name, self._collective.plan, network, seed)
                for name, network in networks.items()
            }

    def _keep(self, segments: Mapping[int, list[Segment]], result: RoundResult) -> None:
        """Keep a round for the networks. Meanwhile the time of the all-reduce is measured."""
        if not all(timed.knows(segments) for timed in self._timed.values()):
            segments = {
                worker: [replace(each, words=each.words.copy()) for each in them]
                for worker, them in segments.items()
            }
            words = {
                worker: [each.copy() for each in them] for worker, them in result.words.items()
            }
            result = replace(result, words=words)
        self._rounds.append((segments, result))

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, Report]:
        self._rounds.clear()
        total, report = self._sum(gradients)
        for timed in self._timed.values():
            for segments, result in self._rounds:
                timed.repeat(segments, result)
        self.taken = {name: timed.take() for name, timed in self._timed.items()}
        self.counted = report.details.get("counted_bits")
        return total, report

    def average(
        self, vectors: list[Vector], scope: Literal["job", "rack"]
    ) -> tuple[list[tuple[Sequence[int], Vector]], Report]:
        """See ``Averager``."""
        if scope == "job":
            total, report = self(vectors)
            return [(range(len(vectors)), total)], report
        collective = _with_racks(self._collective)
        sums, report = collective.all_reduce(vectors, scope="rack")
        self.counted = None  # what papers count is of their codec, not of the racks'
        return list(zip(collective.racks, sums, strict=True)), report

    def _sum(self, gradients: list[Vector]) -> tuple[Vector, Report]:
        if self.frames:
            return self._collective.all_reduce(gradients)
        with self._collective.record_packets() as frames:
            total, report = self._collective.all_reduce(gradients)
        self.frames = frames
        self.codec = report.codec
        return total, report


def _with_racks(reducer: AllReducer) -> Collective:
    """What sums within racks as well.

    Raises:
        InputError: an object of one's own, which is no ``Collective``.
    """
    from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba

    if not isinstance(reducer, Collective):
        raise InputError(
            f"a {type(reducer).__name__} has no sums within racks; leave K1 of local_sgd out."
        )
    return reducer


def by_type(
    shapes: Shapes, counted: Sequence[int | None], workers: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Bits that were counted, and elements of all workers that they stand for, by type of layer.

    Args:
        shapes: of the layers.
        counted: bits of each layer, all workers together; None where they were not counted.
        workers: how many.
    """
    bits: dict[str, int] = {}
    elements: dict[str, int] = {}
    for (name, shape), sent in zip(shapes.items(), counted, strict=True):
        kind = layer_type(name, shape)
        if sent is not None:
            bits[kind] = bits.get(kind, 0) + sent
            elements[kind] = elements.get(kind, 0) + workers * math.prod(shape)
    return bits, elements


def make_collective(**arguments: Any) -> AllReducer:
    """The built-in switch with ``slots.p4``; more than 32 workers are spread over a tree."""
    from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba

    made: AllReducer = Collective(**arguments)
    return made


class SummedRun:
    """One run: sums the gradients by one method, and collects the steps for the record.

    For each iteration, call ``reduce`` or ``average``, then ``add``.

    Args:
        method: how gradients are summed.
        settings: of the workers, the switch and simulated time.
        shapes: of the model's layers.
        metric: of the scores.
        seed: of the codec's hashes, the networks and the stragglers.
        networks: by name, those on which the run takes simulated time.
        make: makes the object that sums; by default a ``Collective``.
        by_rack: the workers of each rack sum for themselves as well.

    Attributes:
        reduce: sums the workers' gradients.
        network: what sends packets; None for plain sums and rings.
        steps: those that were added.
    """

    def __init__(
        self,
        method: SumMethod,
        settings: TrainingSettings,
        shapes: Shapes,
        *,
        metric: Metric,
        seed: int,
        networks: Mapping[str, Network],
        make: MakeAllReducer | None = None,
        by_rack: bool = False,
    ) -> None:
        self._method, self._settings, self._shapes, self._metric = method, settings, shapes, metric
        self._networks = networks
        self.steps: list[Step] = []
        self.network: NetworkReducer | None = None
        if method.codec is not None:
            self.network = NetworkReducer(
                method.codec,
                settings,
                shapes,
                seed=seed,
                networks=networks,
                make=make or make_collective,
                by_rack=by_rack,
            )
        self._sums = RingReducer(method.baseline, seed) if method.baseline else None
        self.reduce: Reducer = self.network or self._sums or plain_sum
        # A ring's time does not depend on values, but for those that are coded without loss.
        self.elements, baseline = sum(map(math.prod, shapes.values())), method.baseline
        self._ring = TimedRing(settings, networks, self.elements, baseline, seed)
        has_codec = bool(self.network or baseline)
        self._timer = Timer(settings, self.elements, has_codec=has_codec, seed=seed)
        self._elements_of: dict[str, int] = {}
        self._begun = time.perf_counter()

    def add(self, trained: Step, passes: int = 1) -> Step:
        """The step with the simulated time until its end, as ``steps`` then has it.

        Args:
            trained: the iteration. Of scope "none", nothing was coded and sent.
            passes: how many gradients each worker has computed for it.
        """
        network = self.network
        if trained.scope == "none":
            found = dict.fromkeys(self._networks, NetworkCost())
        elif network:
            found = network.taken
        elif self._sums:
            found = self._ring.take(self._sums.lossless)
            trained = trained.model_copy(update={"vnmse": self._sums.vnmse})
        else:
            found = self._ring.take()
        step = self._timer.add(trained, found, passes)
        if network and network.counted and step.scope == "job":
            bits, self._elements_of = by_type(self._shapes, network.counted, self._settings.workers)
            step = step.model_copy(update={"counted_bits": bits})
        self.steps.append(step)
        return step

    def score(self, score: float) -> None:
        """Give the last step its score, if that was measured later."""
        self.steps[-1] = self.steps[-1].model_copy(update={"score": score})

    def done(self) -> Run:
        """The run, as records have it."""
        method = self._method
        about: dict[str, Any] = {} if method.codec is None else {"codec": method.codec}
        if method.baseline:
            about["baseline"] = method.baseline
        if self._sums:
            about |= self._sums.about()
        return Run(
            name=method.name,
            title=method.title,
            codec=self.network.codec if self.network else "",
            elements=self.elements,
            metric=self._metric,
            settings=about,
            steps=tuple(self.steps),
            counted_elements=self._elements_of,
            # Nobody who sums in memory waits for the ring that is simulated beside it.
            wall_seconds=time.perf_counter() - self._begun - self._ring.took,
            simulated=self._timer.times,
        )
