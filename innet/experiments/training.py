"""Synchronous data-parallel training: every gradient of every iteration goes through a reducer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.errors import InputError
from innet.experiments import cnn
from innet.experiments.data import Digits, batches, shards, steps_per_epoch
from innet.record import Report, Step
from innet.registry import Registry

Vector = NDArray[np.float32]
Gradient = Callable[[Vector, NDArray[np.float32], NDArray[np.int64]], tuple[float, Vector]]
Reducer = Callable[[list[Vector]], tuple[Vector, Report | None]]


# What computes the gradients of the network in ``cnn``. PyTorch is optional, and slow to import
# where it is not asked for; its module raises MissingToolError where it is not installed.
FRAMEWORKS: Registry[Gradient] = Registry("framework", "innet.frameworks")
FRAMEWORKS.register("numpy", "innet.experiments.cnn:gradient")
FRAMEWORKS.register("torch", "innet.torch.cnn:gradient")


@dataclass(frozen=True, slots=True)
class Schedule:
    """How to train.

    Attributes:
        workers: shards and gradients per iteration.
        iterations: optimiser steps.
        batch_size: images per worker and iteration.
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
    schedule: Schedule,
    digits: Digits,
    gradient: Gradient,
    reduce: Reducer,
    seed: int,
) -> Iterator[Step]:
    """Trains, and yields each step when it is made.

    The initial parameters and the batches follow from ``seed`` alone, so that two trainings of one
    seed differ in nothing but their reducer. The test set is evaluated after every epoch and after
    the last step.

    Args:
        schedule: how to train.
        digits: what to train on.
        gradient: computes a worker's gradient.
        reduce: sums the workers' gradients.
        seed: of the parameters and the batches.

    Raises:
        InputError: a batch does not fit a shard, or the training diverged.
    """
    for_parameters, for_batches = np.random.default_rng(seed).spawn(2)
    parameters = cnn.initial(for_parameters)
    velocity = np.zeros_like(parameters)
    parts = shards(digits.train, schedule.workers)
    epoch = steps_per_epoch(parts, schedule.batch_size)
    stream = batches(parts, schedule.batch_size, for_batches)

    for iteration in range(1, schedule.iterations + 1):
        with np.errstate(over="ignore", invalid="ignore"):  # the check below says it better
            results = [gradient(parameters, part.images, part.labels) for part in next(stream)]
        loss = math.fsum(worker_loss for worker_loss, _ in results) / schedule.workers
        _check_finite(loss, iteration, schedule.learning_rate)
        total, report = reduce([worker_gradient for _, worker_gradient in results])
        velocity *= np.float32(schedule.momentum)
        velocity += total / np.float32(schedule.workers)
        parameters -= np.float32(schedule.learning_rate) * velocity
        accuracy = None
        if iteration % epoch == 0 or iteration == schedule.iterations:
            accuracy = cnn.accuracy(parameters, digits.test.images, digits.test.labels)
        yield Step.of(iteration, loss, accuracy, report)


def _check_finite(loss: float, iteration: int, learning_rate: float) -> None:
    if not math.isfinite(loss):
        raise InputError(
            f"the training diverged: the loss of iteration {iteration} is {loss}. "
            f"Choose a learning_rate below {learning_rate:g}."
        )
