"""Samples to train on, dealt out to workers and handed out in batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Samples:
    """Inputs and targets, arrays of n samples each; what a sample is, is the model's affair."""

    inputs: NDArray[Any]
    targets: NDArray[Any]

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: NDArray[np.int64]) -> Samples:
        """The samples at ``rows``, in that order."""
        return Samples(self.inputs[rows], self.targets[rows])


@dataclass(frozen=True, slots=True)
class Data:
    """What a model trains on, and what it is judged by and never trains on."""

    train: Samples
    test: Samples


def split(samples: Samples, seed: int, one_in: int) -> Data:
    """One sample in ``one_in`` is kept for testing, chosen by chance; the same for equal seeds."""
    order = np.random.default_rng(seed).permutation(len(samples))
    held_out = len(samples) // one_in
    return Data(train=samples.take(order[held_out:]), test=samples.take(order[:held_out]))


def shards(samples: Samples, workers: int) -> list[Samples]:
    """``samples`` dealt out to the workers in turn: sizes differ by one at most.

    Raises:
        InputError: fewer samples than workers, or no worker.
    """
    if not 1 <= workers <= len(samples):
        raise InputError(
            f"{len(samples)} samples cannot be dealt out to {workers} workers; "
            f"choose from 1 to {len(samples)} workers."
        )
    rows = np.arange(len(samples))
    return [samples.take(rows[worker::workers]) for worker in range(workers)]


def steps_per_epoch(parts: list[Samples], batch_size: int) -> int:
    """Iterations in which every worker sees its shard once, but for an incomplete last batch.

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
    """Endless batches, one per worker and iteration, each shard shuffled anew for each epoch.

    Args:
        parts: one shard per worker.
        batch_size: samples per worker and iteration.
        rng: decides the order; equal generators give equal batches.

    Raises:
        InputError: a batch is larger than the smallest shard.
    """
    steps = steps_per_epoch(parts, batch_size)
    while True:
        orders = [rng.permutation(len(part)) for part in parts]
        for step in range(steps):
            rows = slice(step * batch_size, (step + 1) * batch_size)
            yield [part.take(order[rows]) for part, order in zip(parts, orders, strict=True)]
