"""Training data that needs no download: the handwritten digits inside scikit-learn.

1,797 grey images of 8 × 8 pixels by 43 people (UCI Machine Learning Repository, "Optical
Recognition of Handwritten Digits", test part).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.errors import InputError

_SPLIT_SEED = 1797  # the split is part of the data set, so that runs of different seeds compare
_TEST_SHARE = 5  # one image in five is kept for testing
_WHITE = 16.0  # pixels count from 0 to 16


@dataclass(frozen=True, slots=True)
class Samples:
    """Images, shape (n, 8, 8), float32 in [0, 1], and their labels, shape (n,), int64 in 0..9."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> Samples:
        """The samples at ``rows``, in that order."""
        return Samples(self.images[rows], self.labels[rows])


@dataclass(frozen=True, slots=True)
class Digits:
    """The data set, split once and for all: 1,438 images to train on, 359 to test."""

    train: Samples
    test: Samples


def load_digits() -> Digits:
    """The digits, in the same split each time."""
    # Imported here: scikit-learn takes a second to import and no other command needs it.
    from sklearn import datasets  # noqa: PLC0415

    raw = datasets.load_digits()
    samples = Samples(
        (raw.images / _WHITE).astype(np.float32), np.asarray(raw.target, dtype=np.int64)
    )
    order = np.random.default_rng(_SPLIT_SEED).permutation(len(samples))
    held_out = len(samples) // _TEST_SHARE
    return Digits(train=samples.take(order[held_out:]), test=samples.take(order[:held_out]))


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
            f"a batch of {batch_size} images does not fit a shard of {smallest}; "
            f"choose batch_size from 1 to {smallest}, or fewer workers."
        )
    return smallest // batch_size


def batches(
    parts: list[Samples], batch_size: int, rng: np.random.Generator
) -> Iterator[list[Samples]]:
    """Endless batches, one per worker and iteration, each shard shuffled anew for each epoch.

    Args:
        parts: one shard per worker.
        batch_size: images per worker and iteration.
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
