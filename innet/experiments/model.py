"""What a training needs to know of a model, and the models that have names.

A model is a function of one flat float32 vector, since that is what an all-reduce sums. Another
distribution adds one by an entry point in the group "innet.models": a function like those named
here, which is given the framework that was asked for, or None, and returns a ``Model``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from innet.errors import ConfigError
from innet.experiments.samples import Data, Samples
from innet.record import Metric
from innet.registry import Registry

Vector = NDArray[np.float32]
Part = Literal["test", "validation"]
"""What a model is judged by: its test set, or a part of the training set that is then left out of
the training, to choose hyper-parameters by.
"""

Gradient = Callable[[Vector, NDArray[Any], NDArray[Any]], tuple[float, Vector]]
"""(parameters, inputs, targets) to the batch's mean loss and its gradient, float32."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model learns with plain sums; every codec starts from this.

    Attributes:
        batch_size: samples per worker and iteration.
        learning_rate: of SGD, for the mean gradient of the workers.
        momentum: of SGD.
        epochs: passes over the training set.
    """

    batch_size: int
    learning_rate: float
    momentum: float
    epochs: int


@dataclass(frozen=True, slots=True)
class Model:
    """A model with its data.

    Attributes:
        name: under which it is registered.
        title: what learns what, as in "a CNN learns handwritten digits".
        shapes: the layers' names and shapes, in the order of the flat vector.
        metric: what ``evaluate`` returns.
        recipe: how it learns.
        load: the data, the same each time; see ``Part``.
        initial: fresh parameters, shape (size,).
        gradient: of a batch.
        evaluate: the score of parameters on samples.
    """

    name: str
    title: str
    shapes: Mapping[str, tuple[int, ...]]
    metric: Metric
    recipe: Recipe
    load: Callable[[Part], Data]
    initial: Callable[[np.random.Generator], Vector]
    gradient: Gradient
    evaluate: Callable[[Vector, Samples], float]

    @property
    def size(self) -> int:
        """How many parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())


MODELS: Registry[Callable[[str | None], Model]] = Registry("model", "innet.models")
MODELS.register("digits-cnn", "innet.experiments.digits:model")
MODELS.register("mnist5k-cnn", "innet.torch.mnist5k:model")
MODELS.register("charlm", "innet.torch.charlm:model")
MODELS.register("ncf", "innet.torch.ncf:model")


def check_framework(model: str, framework: str | None, only: str) -> None:
    """Refuse a framework that a model does not have.

    Raises:
        ConfigError: it was asked for another one than ``only``.
    """
    if framework not in {None, only}:
        raise ConfigError(
            f"framework = {framework!r} cannot be used: {model} has {only} alone; leave it out."
        )
