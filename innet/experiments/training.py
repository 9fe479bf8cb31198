"""Synchronous data-parallel training: every gradient of every iteration goes through a reducer.

The loop comes first, then the shards and batches of the workers, then one run, whose reducer is
plain float32 sums or an all-reduce over the switch.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from innet.codecs.checks import check_array
from innet.core.errors import DivergedError, InputError
from innet.core.local_sgd import LocalSgd
from innet.core.settings import Decay, TrainingSettings, TrainSettings
from innet.experiments.models.model import Data, Model, Samples, Vector
from innet.experiments.summing import (
    Frame,
    MakeAllReducer,
    Reducer,
    SummedRun,
    SumMethod,
    plain_sum,
)
from innet.records import Progress, Report, Run, Step, Watcher
from innet.sim.network import Network

_OF_NUMPY = ("sgd", "adam")  # optimizers that need no PyTorch
_BETAS, _EPSILON = (0.9, 0.999), np.float32(1e-8)  # of Adam, as in its paper and in PyTorch
EVALUATIONS = 10  # of a training at least, if it has as many iterations

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
        optimizer: "sgd"; "adam" (Kingma and Ba, ICLR 2015, without weight decay); or one of
            ``torch.optim``, such as "adamw:weight_decay=0.1". ``momentum`` counts for "sgd" alone.
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
    optimizer: str = "sgd"

    def rate(self, iteration: int) -> float:
        """The learning rate of an iteration, counted from 1."""
        rate = self.learning_rate
        if iteration < self.warmup:
            rate *= iteration / self.warmup
        if self.decay == "constant":
            return rate
        share = (iteration - 1) / self.iterations
        return rate * (1 + math.cos(math.pi * share)) / 2


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
    flat = None
    if schedule.optimizer not in _OF_NUMPY:
        from innet.torch.optimizers import FlatOptimizer  # noqa: PLC0415 - PyTorch may be missing

        flat = FlatOptimizer(schedule.optimizer, parameters, model.shapes, schedule.learning_rate)
    velocity, second = np.zeros_like(parameters), np.zeros_like(parameters)
    parts = shards(data.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)

    for iteration in range(1, schedule.iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            loss, found = gradients(parameters, next(stream))
        _check_finite(loss, "loss of", iteration, schedule.learning_rate)
        total, report = reduce(found)
        if flat is not None:
            flat.step(total / np.float32(schedule.workers), schedule.rate(iteration))
        elif schedule.optimizer == "adam":
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


def optimizer_rate(optimizer: str) -> float:
    """The learning rate of an optimizer other than SGD where none is given.

    Raises:
        UnknownNameError, ConfigError: no such optimizer, or setting of it.
        MissingToolError: it is one of PyTorch's, which is not installed.
    """
    if optimizer in _OF_NUMPY:
        return 0.001  # Adam's, as in its paper
    from innet.torch.optimizers import default_rate  # noqa: PLC0415 - PyTorch may be missing

    return default_rate(optimizer)


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
    if method.codec is not None:
        tell(note="preparing the switch program and the codec (compiled once, then kept)")
    schedule = replace(trial.schedule, momentum=0.0) if method.codec_momentum else trial.schedule
    local = schedule.local_sgd
    summed = SummedRun(
        method,
        trial.settings,
        trial.model.shapes,
        metric=trial.model.metric,
        seed=trial.seed,
        networks=trial.networks,
        make=trial.make,
        by_rack=local is not None and local.rack is not None,
    )
    network = summed.network
    if local is None:
        training = train(schedule, trial.model, trial.data, summed.reduce, trial.seed)
    else:
        average = network.average if network else PlainAverager(racks_of(trial.settings))
        training = train_local(schedule, trial.model, trial.data, average, trial.seed)
    # Step 2: the training, each step with its simulated time.
    for trained in training:
        tell(summed.add(trained))
    return summed.done(), network.frames if network else []


def racks_of(settings: TrainingSettings) -> list[Sequence[int]]:
    """The workers of each rack, as the topology tree has them."""
    from innet.topology.topologies import shape  # noqa: PLC0415 - takes long

    racks = settings.racks if isinstance(settings, TrainSettings) else None
    root = shape("tree", settings.workers, {"racks": racks, "depth": None, "ports": None}).root
    return [node.local_workers for node, _ in root.with_parents() if node.local_workers]


def one_thread() -> AbstractContextManager[Any]:
    """Run BLAS in one thread, so that gradients do not depend on the number of cores.

    On an idle machine of two cores it costs a tenth of the gradients' time. On a busy machine it
    saves far more, as threads for such small products wait for each other.
    """
    # threadpoolctl comes with scikit-learn; it has no type hints.
    limits = importlib.import_module("threadpoolctl").threadpool_limits
    limited: AbstractContextManager[Any] = limits(limits=1)  # BLAS, and PyTorch's OpenMP
    return limited
