"""Synchronous data-parallel training: every gradient of every iteration goes through a reducer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from innet.codecs.checks import check_array
from innet.core.errors import DivergedError, InputError
from innet.experiments.models.model import Model, Vector
from innet.experiments.samples import Data, Samples, batches, shards, steps_per_epoch
from innet.records import Report, Step

Reducer = Callable[[list[Vector]], tuple[Vector, Report | None]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train.

    Attributes:
        workers: shards and gradients per iteration.
        iterations: optimizer steps.
        batch_size: samples per worker and iteration.
        learning_rate: for the mean of the workers' gradients.
        momentum: v ← momentum · v + mean; parameters ← parameters − learning_rate · v.
    """

    workers: int
    iterations: int
    batch_size: int
    learning_rate: float
    momentum: float


def plain_sum(gradients: list[Vector]) -> tuple[Vector, None]:
    """The baseline: a float32 sum in the order of the workers, without a network."""
    total = gradients[0].copy()
    for each in gradients[1:]:
        total += each
    return total, None


def train(
    schedule: Schedule, model: Model, data: Data, reduce: Reducer, seed: int
) -> Iterator[Step]:
    """Trains, and yields each step when it is made.

    The initial parameters and the batches follow from ``seed`` alone, so that two trainings of one
    seed differ in nothing but their reducer. The test set is evaluated after every epoch and after
    the last step.

    Args:
        schedule: how to train.
        model: what to train.
        data: what to train on.
        reduce: sums the workers' gradients.
        seed: of the parameters and the batches.

    Raises:
        InputError: a batch does not fit a shard; or parameters or a gradient are not as the model's
            shapes say.
        DivergedError: the loss or the score is not finite any more.
    """
    for_parameters, for_batches = np.random.default_rng(seed).spawn(2)
    parameters = _initial(model, for_parameters)
    velocity = np.zeros_like(parameters)
    parts = shards(data.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)

    for iteration in range(1, schedule.iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            results = [_gradient(model, parameters, part) for part in next(stream)]
        loss = math.fsum(worker_loss for worker_loss, _ in results) / schedule.workers
        _check_finite(loss, "loss of", iteration, schedule.learning_rate)
        total, report = reduce([worker_gradient for _, worker_gradient in results])
        _descend(schedule, parameters, velocity, total)
        score = None
        if iteration % epoch == 0 or iteration == schedule.iterations:
            score = _score(model, parameters, data.test)
            _check_finite(score, f"{model.metric.name} after", iteration, schedule.learning_rate)
        yield Step.of(iteration, loss, score, report)


def replica(
    schedule: Schedule,
    model: Model,
    data: Data,
    reduce: Callable[[Vector], tuple[Vector, Report]],
    *,
    seed: int,
    worker: int,
) -> Iterator[Step]:
    """One worker's part of ``train``: its own gradients, and everybody's sum.

    All workers' replicas of one seed stay equal, bit for bit, to each other and to ``train``.

    Args:
        schedule: how to train, all workers together.
        model: what to train.
        data: what to train on, all workers together.
        reduce: sums this worker's gradient with the others'.
        seed: of the parameters and the batches.
        worker: whose part it is. Worker 0 evaluates.

    Yields:
        Each step when it is made; the loss is that of this worker's batch.

    Raises:
        InputError: a batch does not fit a shard, parameters or a gradient are not as the model's
            shapes say, or the training diverged.
    """
    for_parameters, for_batches = np.random.default_rng(seed).spawn(2)
    parameters = _initial(model, for_parameters)
    velocity = np.zeros_like(parameters)
    parts = shards(data.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)
    for iteration in range(1, schedule.iterations + 1):
        part = next(stream)[worker]
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            loss, gradient = _gradient(model, parameters, part)
        _check_finite(loss, "loss of", iteration, schedule.learning_rate)
        total, report = reduce(gradient)
        _descend(schedule, parameters, velocity, total)
        score = None
        if worker == 0 and (iteration % epoch == 0 or iteration == schedule.iterations):
            score = _score(model, parameters, data.test)
            _check_finite(score, f"{model.metric.name} after", iteration, schedule.learning_rate)
        yield Step.of(iteration, loss, score, report)


def _descend(schedule: Schedule, parameters: Vector, velocity: Vector, total: Vector) -> None:
    """One step of SGD with momentum, in place."""
    velocity *= np.float32(schedule.momentum)
    velocity += total / np.float32(schedule.workers)
    parameters -= np.float32(schedule.learning_rate) * velocity


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
    """Also of an array or a tensor that is one number."""
    try:
        return float(value)  # type: ignore[arg-type]  # what else it is gets refused
    except (TypeError, ValueError):
        raise InputError(f"the {what} is {value!r:.80}; expected is a number.") from None


def _check_finite(number: float, what: str, iteration: int, learning_rate: float) -> None:
    """A perplexity is infinite long before the loss, whose exponential it is."""
    if not math.isfinite(number):
        raise DivergedError(
            f"the training diverged: the {what} iteration {iteration} is {number}. "
            f"Choose a learning_rate below {learning_rate:g}."
        )
