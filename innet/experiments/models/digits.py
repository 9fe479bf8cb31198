"""Handwritten digits that need no download: those inside scikit-learn, learnt by a small CNN.

1,797 grey images of 8 × 8 pixels by 43 people (UCI Machine Learning Repository, "Optical
Recognition of Handwritten Digits", test part).
"""

from __future__ import annotations

import numpy as np

from innet.core.registry import Registry
from innet.experiments.models import cnn
from innet.experiments.models.model import Gradient, Model, Part, Recipe, Vector
from innet.experiments.samples import Data, Samples, split
from innet.records import ACCURACY

# What computes the gradients of the network in ``cnn``. PyTorch is optional, and slow to import
# where it is not asked for; its module raises MissingToolError where it is not installed.
FRAMEWORKS: Registry[Gradient] = Registry("framework", "innet.frameworks")
FRAMEWORKS.register("numpy", "innet.experiments.models.cnn:gradient")
FRAMEWORKS.register("torch", "innet.experiments.models.torch_cnn:gradient")

_SPLIT_SEED = 1797  # the split is part of the data set, so that runs of different seeds compare
_ONE_IN = 5  # images are kept for testing
_WHITE = 16.0  # pixels count from 0 to 16


def model(framework: str | None = None) -> Model:
    """The demonstration's network; ``framework`` is numpy unless it is given.

    Raises:
        UnknownNameError: no such framework.
        MissingToolError: the framework is not installed.
    """
    return Model(
        name="digits-cnn",
        title="a CNN learns handwritten digits",
        shapes=cnn.SHAPES,
        metric=ACCURACY,
        recipe=Recipe(batch_size=16, learning_rate=0.05, momentum=0.9, epochs=15),
        load=load,
        initial=cnn.initial,
        gradient=FRAMEWORKS.get(framework or "numpy"),
        evaluate=evaluate,
    )


def load(part: Part = "test") -> Data:
    """1,438 images to train on and 359 to test, the same each time.

    Args:
        part: with "validation" the 1,438 alone, split once more: 1,151 and 287.

    Returns:
        Images, shape (n, 8, 8), float32 in [0, 1], and their labels, shape (n,), int64 in 0..9.
    """
    from sklearn import datasets  # noqa: PLC0415 - a second that no other command needs

    raw = datasets.load_digits()
    samples = Samples(
        (raw.images / _WHITE).astype(np.float32), np.asarray(raw.target, dtype=np.int64)
    )
    data = split(samples, _SPLIT_SEED, _ONE_IN)
    return data if part == "test" else split(data.train, _SPLIT_SEED, _ONE_IN)


def evaluate(parameters: Vector, samples: Samples) -> float:
    """The accuracy."""
    return cnn.accuracy(parameters, samples.inputs, samples.targets)
