"""Synchronous data-parallel training: every gradient of every iteration goes through a reducer.

The loop comes first, then the shards and batches of the workers, then one run, whose reducer is
plain float32 sums or an all-reduce over the switch.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np

from innet.codecs.checks import check_array
from innet.core.errors import DivergedError, InputError
from innet.core.local_sgd import LocalSgd
from innet.core.reduce_op import Segment
from innet.core.settings import (
    CodecDescription,
    Decay,
    SimulatedTrainingSettings,
    TrainingSettings,
    TrainSettings,
)
from innet.experiments.models.model import Data, Model, Samples, Vector
from innet.experiments.simulated_time import RINGS, NetworkCost, TimedNetwork, TimedRing, Timer
from innet.records import Progress, Report, Run, Step, Watcher
from innet.sim.network import Network

if TYPE_CHECKING:
    from innet.allreduce.collective import Collective
    from innet.allreduce.loop import RoundResult

ADAM_RATE = 0.001
"""Adam's learning rate where none is given."""
_BETAS, _EPSILON = (0.9, 0.999), np.float32(1e-8)  # of Adam, as in its paper and in PyTorch
EVALUATIONS = 10  # of a training at least, if it has as many iterations

Reducer = Callable[[list[Vector]], tuple[Vector, Report | None]]
Found = TypeVar("Found")  # the gradients of all workers, or of one


@dataclass(frozen=True, slots=True)
class TrainingSchedule:
    """How to train.

    Attributes:
        workers: shards and gradients per iteration.
        iterations: optimizer steps.
        batch_size: samples per worker and iteration.
        learning_rate: for the mean of the workers' gradients.
        momentum: v ← momentum · v + mean; parameters ← parameters − learning_rate · v.
        optimizer: "sgd", or "adam" (Kingma and Ba, ICLR 2015, without weight decay), for which
            ``momentum`` does not count.
        decay: "constant", or "cosine": iteration i of n has learning_rate · (1 + cos(π i / n)) / 2,
            i from 0 (Loshchilov and Hutter, ICLR 2017, without restarts).
        warmup: iterations in which the learning rate rises linearly to that of ``decay``, as
            large batches need it (Goyal et al., 2017, arXiv 1706.02677); 0 for none.
        local_sgd: workers train by themselves, each with its own momentum, and average their
            parameters at these steps; None: they average their gradients at every step.
    """

    workers: int
    iterations: int
    batch_size: int
    learning_rate: float
    momentum: float
    decay: Decay = "constant"
    warmup: int = 0
    local_sgd: LocalSgd | None = None
    optimizer: Literal["sgd", "adam"] = "sgd"

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration, counted from 1."""
        rate = self.learning_rate
        if iteration < self.warmup:
            rate *= iteration / self.warmup
        if self.decay == "constant":
            return rate
        share = (iteration - 1) / self.iterations
        return rate * (1 + math.cos(math.pi * share)) / 2


def plain_sum(gradients: list[Vector]) -> tuple[Vector, None]:
    """The baseline: a float32 sum in the order of the workers, without a network."""
    total = gradients[0].copy()
    for each in gradients[1:]:
        total += each
    return total, None


def train(
    schedule: TrainingSchedule, model: Model, data: Data, reduce: Reducer, seed: int
) -> Iterator[Step]:
    """Train, and yield each step when it is done.

    The initial parameters and the batches depend on ``seed`` alone, so that two trainings with one
    seed differ only in their reducer. The test set is evaluated after every epoch, or
    more often in trainings of fewer than EVALUATIONS epochs, and after the last step.

    Args:
        schedule: how to train.
        model: what to train.
        data: what to train on.
        reduce: sums the workers' gradients.
        seed: of the parameters and the batches.

    Raises:
        InputError: a batch does not fit a shard; or parameters or a gradient do not have the
            model's shapes.
        DivergedError: the loss or the score is not finite.
    """

    def gradients(parameters: Vector, parts: list[Samples]) -> tuple[float, list[Vector]]:
        results = [_gradient(model, parameters, part) for part in parts]
        loss = math.fsum(worker_loss for worker_loss, _ in results) / schedule.workers
        return loss, [worker_gradient for _, worker_gradient in results]

    return _train(schedule, model, data, gradients, reduce, seed=seed, evaluates=True)


class Averager(Protocol):
    """Sums vectors of the workers over all of them, or over each rack."""

    def __call__(
        self, vectors: list[Vector], scope: Literal["job", "rack"]
    ) -> tuple[list[tuple[Sequence[int], Vector]], Report | None]:
        """Each sum with its workers, and the report."""


class PlainAverager:
    """Float32 sums in the order of the workers, without a network.

    Args:
        racks: the workers of each rack.
    """

    def __init__(self, racks: Sequence[Sequence[int]]) -> None:
        self._racks = racks

    def __call__(
        self, vectors: list[Vector], scope: Literal["job", "rack"]
    ) -> tuple[list[tuple[Sequence[int], Vector]], None]:
        groups = self._racks if scope == "rack" else [range(len(vectors))]
        return [(group, plain_sum([vectors[i] for i in group])[0]) for group in groups], None


def train_local(
    schedule: TrainingSchedule, model: Model, data: Data, average: Averager, seed: int
) -> Iterator[Step]:
    """Local SGD, and Hier-AVG if racks average, too (Zhou and Cong, 2019, arXiv 1903.05133).

    Each worker takes steps of SGD with its own gradients and its own momentum. When workers
    average, each sends how its parameters differ from those that they shared last: after the last
    average of all, or for an average of a rack after the last one of either kind. So what a codec's
    error feedback keeps is added to the next difference of the same kind.

    Scores are those of the mean of all workers' parameters, whether they have averaged or not.

    Args:
        schedule: how to train; its ``local_sgd`` says when who averages.
        model: what to train.
        data: what to train on.
        average: sums the workers' differences.
        seed: of the parameters and the batches, which are the same as those of ``train``.

    Raises:
        InputError, DivergedError: as ``train``.
    """
    assert schedule.local_sgd is not None
    for_parameters, for_batches = np.random.default_rng(seed).spawn(2)
    shared_by_all = _initial(model, for_parameters)
    parameters = [shared_by_all.copy() for _ in range(schedule.workers)]
    shared_by_rack = [shared_by_all] * schedule.workers
    velocities = [np.zeros_like(shared_by_all) for _ in parameters]
    parts = shards(data.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)
    alone = replace(schedule, workers=1)
    scopes = schedule.local_sgd.scopes()

    for iteration in range(1, schedule.iterations + 1):
        # 1. A step of each worker.
        losses = []
        for own, velocity, part in zip(parameters, velocities, next(stream), strict=True):
            with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
                loss, gradient = _gradient(model, own, part)
            losses.append(loss)
            _sgd_step(alone, own, velocity, gradient, schedule.rate(iteration))
        loss = math.fsum(losses) / schedule.workers
        _check_finite(loss, "loss of", iteration, schedule.learning_rate)
        # 2. An average, if it is time for one.
        scope, report = next(scopes), None
        if scope != "none":
            shared = [shared_by_all] * len(parameters) if scope == "job" else shared_by_rack
            moved = [own - before for own, before in zip(parameters, shared, strict=True)]
            sums, report = average(moved, scope)
            for workers, total in sums:
                mean = shared[workers[0]] + total / np.float32(len(workers))
                for worker in workers:
                    parameters[worker] = mean.copy()
                    shared_by_rack[worker] = mean
                if scope == "job":
                    shared_by_all = mean
        # 3. The score of all together.
        score = None
        if _is_evaluated(iteration, epoch, schedule):
            together = np.stack(parameters).mean(axis=0, dtype=np.float64).astype(np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                score = _score(model, together, data.test)
            _check_finite(score, f"{model.metric.name} after", iteration, schedule.learning_rate)
        yield Step.of(iteration, loss, score, report).model_copy(update={"scope": scope})


def train_replica(
    schedule: TrainingSchedule,
    model: Model,
    data: Data,
    reduce: Callable[[Vector], tuple[Vector, Report]],
    *,
    seed: int,
    worker: int,
) -> Iterator[Step]:
    """One worker's part of ``train``: its gradients, and the sum of all.

    All workers' replicas of one seed stay equal, bit for bit, to each other and to ``train``.

    Args:
        schedule: how to train, all workers together.
        model: what to train.
        data: what to train on, all workers together.
        reduce: sums this worker's gradient with the others'.
        seed: of the parameters and the batches.
        worker: whose part it is. Worker 0 evaluates.

    Yields:
        Each step when it is done. The loss is that of this worker's batch.

    Raises:
        InputError: a batch does not fit a shard, parameters or a gradient do not have the model's
            shapes, or the training diverged.
    """

    def gradient(parameters: Vector, parts: list[Samples]) -> tuple[float, Vector]:
        return _gradient(model, parameters, parts[worker])

    return _train(schedule, model, data, gradient, reduce, seed=seed, evaluates=worker == 0)


def _train(
    schedule: TrainingSchedule,
    model: Model,
    data: Data,
    gradients: Callable[[Vector, list[Samples]], tuple[float, Found]],
    reduce: Callable[[Found], tuple[Vector, Report | None]],
    *,
    seed: int,
    evaluates: bool,
) -> Iterator[Step]:
    """The loop of both, with ``gradients`` of all workers or of one, summed by ``reduce``."""
    for_parameters, for_batches = np.random.default_rng(seed).spawn(2)
    parameters = _initial(model, for_parameters)
    velocity, second = np.zeros_like(parameters), np.zeros_like(parameters)
    parts = shards(data.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)

    for iteration in range(1, schedule.iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            loss, found = gradients(parameters, next(stream))
        _check_finite(loss, "loss of", iteration, schedule.learning_rate)
        total, report = reduce(found)
        if schedule.optimizer == "adam":
            _adam_step(schedule, parameters, (velocity, second), total, iteration)
        else:
            _sgd_step(schedule, parameters, velocity, total, schedule.rate(iteration))
        score = None
        if evaluates and _is_evaluated(iteration, epoch, schedule):
            with np.errstate(over="ignore", invalid="ignore"):
                score = _score(model, parameters, data.test)
            _check_finite(score, f"{model.metric.name} after", iteration, schedule.learning_rate)
        yield Step.of(iteration, loss, score, report)


def _sgd_step(
    schedule: TrainingSchedule, parameters: Vector, velocity: Vector, total: Vector, rate: float
) -> None:
    """One step of SGD with momentum, in place."""
    velocity *= np.float32(schedule.momentum)
    velocity += total / np.float32(schedule.workers)
    parameters -= np.float32(rate) * velocity


def _adam_step(
    schedule: TrainingSchedule,
    parameters: Vector,
    moments: tuple[Vector, Vector],
    total: Vector,
    iteration: int,
) -> None:
    """One step of Adam, in place."""
    mean = total / np.float32(schedule.workers)
    for moment, beta, new in zip(moments, _BETAS, (mean, mean * mean), strict=True):
        moment[:] += np.float32(1 - beta) * (new - moment)
    first, second = (
        moment / np.float32(1 - beta**iteration)
        for moment, beta in zip(moments, _BETAS, strict=True)
    )
    parameters -= np.float32(schedule.rate(iteration)) * first / (np.sqrt(second) + _EPSILON)


def _is_evaluated(iteration: int, epoch: int, schedule: TrainingSchedule) -> bool:
    every = max(1, min(epoch, schedule.iterations // EVALUATIONS))
    return iteration % every == 0 or iteration == schedule.iterations


def _initial(model: Model, rng: np.random.Generator) -> Vector:
    parameters = model.initial(rng)
    check_array(
        parameters, np.dtype(np.float32), model.size, f"first parameters of model {model.name!r}"
    )
    return parameters


def _gradient(model: Model, parameters: Vector, part: Samples) -> tuple[float, Vector]:
    answer: object = model.gradient(parameters, part.inputs, part.targets)
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise InputError(
            f"gradient of model {model.name!r} returned a {type(answer).__name__}; expected is a "
            "tuple of the loss and the gradient."
        )
    loss, gradient = answer
    check_array(gradient, parameters.dtype, parameters.size, f"gradients of model {model.name!r}")
    return _number(loss, f"loss of model {model.name!r}"), gradient


def _score(model: Model, parameters: Vector, samples: Samples) -> float:
    return _number(model.evaluate(parameters, samples), f"score of model {model.name!r}")


def _number(value: object, what: str) -> float:
    """A number, or an array or tensor with one number, as a float."""
    try:
        return float(value)  # type: ignore[arg-type]  # what else it is gets refused
    except (TypeError, ValueError):
        raise InputError(f"the {what} is {value!r:.80}; expected is a number.") from None


def _check_finite(number: float, what: str, iteration: int, learning_rate: float) -> None:
    """Raise DivergedError unless the number is finite. A perplexity, the exponential of the loss,
    becomes infinite long before the loss.
    """
    if not math.isfinite(number):
        raise DivergedError(
            f"the training diverged: the {what} iteration {iteration} is {number}. "
            f"Choose a learning_rate below {learning_rate:g}."
        )


def shards(samples: Samples, workers: int) -> list[Samples]:
    """``samples`` assigned to the workers round-robin. Sizes differ by at most one.

    Raises:
        InputError: fewer samples than workers, or no workers.
    """
    if not 1 <= workers <= len(samples):
        raise InputError(
            f"{len(samples)} samples cannot be dealt out to {workers} workers; "
            f"choose from 1 to {len(samples)} workers."
        )
    rows = np.arange(len(samples))
    return [samples.take(rows[worker::workers]) for worker in range(workers)]


def steps_per_epoch(parts: list[Samples], batch_size: int) -> int:
    """Iterations of one pass over each shard, without an incomplete last batch.

    Raises:
        InputError: a batch is larger than the smallest shard.
    """
    smallest = min(map(len, parts))
    if not 1 <= batch_size <= smallest:
        raise InputError(
            f"a batch of {batch_size} samples does not fit a shard of {smallest}; "
            f"choose batch_size from 1 to {smallest}, or fewer workers."
        )
    return smallest // batch_size


def batches(
    parts: list[Samples], batch_size: int, rng: np.random.Generator
) -> Iterator[list[Samples]]:
    """Endless batches, one per worker and iteration. Each shard is shuffled for each epoch.

    Args:
        parts: one shard per worker.
        batch_size: samples per worker and iteration.
        rng: determines the order. Equal generators give equal batches.

    Raises:
        InputError: a batch is larger than the smallest shard.
    """
    steps = steps_per_epoch(parts, batch_size)
    while True:
        orders = [rng.permutation(len(part)) for part in parts]
        for step in range(steps):
            rows = slice(step * batch_size, (step + 1) * batch_size)
            yield [part.take(order[rows]) for part, order in zip(parts, orders, strict=True)]


# ----------------------------------------------------------------------------
# One run of a training, with one method of summing gradients.

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
        baseline: a name of ``innet.experiments.simulated_time.RINGS``, whose sums these are; "" for
            plain float32 sums, or a codec's.
    """

    name: str
    title: str
    codec: CodecDescription | None
    codec_momentum: bool = False
    baseline: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """What compared runs have in common: everything but the method.

    Attributes:
        settings: of the network.
        schedule: how to train.
        seed: of the parameters, the batches and the codec's hashes.
        model: what to train.
        data: what to train on.
        make: makes the object that sums the gradients.
        watch: called for each step and each preparation.
        networks: by name, those on which the runs take simulated time.
    """

    settings: TrainingSettings
    schedule: TrainingSchedule
    seed: int
    model: Model
    data: Data
    make: MakeAllReducer
    watch: Watcher
    networks: Mapping[str, Network] = field(default_factory=dict)


class NetworkReducer:
    """A reducer that sends packets. It keeps those of its first all-reduce.

    The gradients are summed without simulated time, and their words once more on each network that
    has one.

    Attributes:
        frames: the packets, both directions.
        codec: description of the codec, from the first report.
        taken: what the last all-reduce took in simulated time, by network.
        counted: what the codec's paper counts for it: bits by layer, of all workers together; None
            for layers, or for all, of which it counts bytes on the wire.
    """

    def __init__(self, codec: CodecDescription, trial: Trial) -> None:
        # Numba, which these bring, takes long to import.
        from innet.allreduce.collective import Collective  # noqa: PLC0415
        from innet.allreduce.warm_up import compile_repairs  # noqa: PLC0415

        settings = trial.settings
        self.frames: list[Frame] = []
        self.codec = ""
        self.taken: dict[str, NetworkCost] = {}
        self.counted: Sequence[int | None] | None = None
        arguments: dict[str, Any] = {
            "workers": settings.workers,
            "codec": codec,
            "layers": trial.model.shapes,
            "values_per_packet": settings.values_per_packet,
            "engine": settings.engine,
            "seed": trial.seed,
        }
        if isinstance(settings, SimulatedTrainingSettings):
            arguments["window"] = settings.window
        local = trial.schedule.local_sgd
        if isinstance(settings, TrainSettings) and local is not None and local.rack is not None:
            arguments |= {"racks": settings.racks, "rack_codec": settings.rack_codec}
        # Numba compiles at the first call. This call with other numbers and another object keeps
        # that time out of the first iteration, and leaves no residual.
        rng = np.random.default_rng(trial.seed)
        samples = [
            rng.standard_normal(trial.model.size, np.float32) for _ in range(settings.workers)
        ]
        first = trial.make(**arguments)
        if isinstance(first, Collective):
            for name, network in trial.networks.items():
                first.on_round = TimedNetwork(name, first.plan, network, trial.seed).repeat
        first.all_reduce(samples)
        if "rack_codec" in arguments:
            _with_racks(first).all_reduce(samples, scope="rack")
        compile_repairs(codec)
        self._collective = trial.make(**arguments)
        self._timed: dict[str, TimedNetwork] = {}
        self._rounds: list[tuple[Mapping[int, list[Segment]], RoundResult]] = []
        if trial.networks:
            if not isinstance(self._collective, Collective):
                raise InputError(
                    f"a {type(self._collective).__name__} has no rounds to repeat on the networks "
                    f"{', '.join(trial.networks)}; leave the networks out."
                )
            self._collective.on_round = self._keep
            self._timed = {
                name: TimedNetwork(name, self._collective.plan, network, trial.seed)
                for name, network in trial.networks.items()
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


def run_method(method: SumMethod, trial: Trial) -> tuple[Run, list[Frame]]:
    """One run, and the packets of its first all-reduce, if it sends any."""

    def tell(step: Step | None = None, note: str = "") -> None:
        trial.watch(
            Progress(
                run=method.name,
                title=method.title,
                iterations=trial.schedule.iterations,
                step=step,
                note=note,
                metric=trial.model.metric,
            )
        )

    # Step 1: what sums the gradients: the network, a ring's arithmetic, or plain float32 sums.
    network = None
    if method.codec is not None:
        tell(note="preparing the switch program and the codec (compiled once, then kept)")
        network = NetworkReducer(method.codec, trial)
    schedule = replace(trial.schedule, momentum=0.0) if method.codec_momentum else trial.schedule
    elements, baseline = trial.model.size, method.baseline
    if schedule.local_sgd is None:
        reduce: Reducer = network or (RINGS[baseline].sum if baseline else plain_sum)
        training = train(schedule, trial.model, trial.data, reduce, trial.seed)
    else:
        average = network.average if network else PlainAverager(racks_of(trial.settings))
        training = train_local(schedule, trial.model, trial.data, average, trial.seed)
    # Step 2: the training, each step with its simulated time. A ring's does not depend on values.
    ring = TimedRing(trial.settings, trial.networks, elements, baseline, trial.seed)
    timer = Timer(trial.settings, elements, has_codec=bool(network or baseline), seed=trial.seed)
    begun = time.perf_counter()
    steps = []
    elements_of: dict[str, int] = {}
    for trained in training:
        step = timer.add(trained, network.taken if network else ring.take())
        if network and network.counted and step.scope == "job":
            bits, elements_of = by_type(trial.model, network.counted, trial.settings.workers)
            step = step.model_copy(update={"counted_bits": bits})
        steps.append(step)
        tell(step)
    # Step 3: the run, as records have it.
    about: dict[str, Any] = {} if method.codec is None else {"codec": method.codec}
    if baseline:
        about["baseline"] = baseline
    done = Run(
        name=method.name,
        title=method.title,
        codec=network.codec if network else "",
        elements=trial.model.size,
        metric=trial.model.metric,
        settings=about,
        steps=tuple(steps),
        counted_elements=elements_of,
        # Nobody who sums in memory waits for the ring that is simulated beside it.
        wall_seconds=time.perf_counter() - begun - ring.took,
        simulated=timer.times,
    )
    return done, network.frames if network else []


def racks_of(settings: TrainingSettings) -> list[Sequence[int]]:
    """The workers of each rack, as the topology tree has them."""
    from innet.topology.topologies import shape  # noqa: PLC0415 - takes long

    racks = settings.racks if isinstance(settings, TrainSettings) else None
    root = shape("tree", settings.workers, {"racks": racks, "depth": None, "ports": None}).root
    return [node.local_workers for node, _ in root.with_parents() if node.local_workers]


def by_type(
    model: Model, counted: Sequence[int | None], workers: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Bits that were counted, and elements of all workers that they stand for, by type of layer.

    Args:
        model: whose layers.
        counted: bits of each layer, all workers together; None where they were not counted.
        workers: how many.
    """
    bits: dict[str, int] = {}
    elements: dict[str, int] = {}
    for kind, shape, sent in zip(model.layer_types, model.shapes.values(), counted, strict=True):
        if sent is not None:
            bits[kind] = bits.get(kind, 0) + sent
            elements[kind] = elements.get(kind, 0) + workers * math.prod(shape)
    return bits, elements


def make_collective(**arguments: Any) -> AllReducer:
    """The built-in switch with ``slots.p4``; more than 32 workers are spread over a tree."""
    from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba

    made: AllReducer = Collective(**arguments)
    return made


def one_thread() -> AbstractContextManager[Any]:
    """Run BLAS in one thread, so that gradients do not depend on the number of cores.

    On an idle machine of two cores it costs a tenth of the gradients' time. On a busy machine it
    saves far more, as threads for such small products wait for each other.
    """
    # threadpoolctl comes with scikit-learn; it has no type hints.
    limits = importlib.import_module("threadpoolctl").threadpool_limits
    limited: AbstractContextManager[Any] = limits(limits=1)  # BLAS, and PyTorch's OpenMP
    return limited
