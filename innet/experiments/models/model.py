"""What a training needs to know of a model, and the models that have names.

A model is a function of one flat float32 vector, since that is what an all-reduce sums. Another
distribution adds one by an entry point in the group "innet.models": a function like those named
here, which is given the framework that was asked for, or None, and returns a ``Model``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import ConfigError, InputError
from innet.core.registry import Registry
from innet.core.settings import Decay
from innet.records import Metric

Vector = NDArray[np.float32]
Part = Literal["test", "validation"]
"""What a model is judged by: its test set, or a part of the training set that is then left out of
the training, to choose hyper-parameters by.
"""

Gradient = Callable[[Vector, NDArray[Any], NDArray[Any]], tuple[float, Vector]]
"""(parameters, inputs, targets) to the batch's mean loss and its gradient, float32."""


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


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model learns with plain sums; every codec starts from this.

    Attributes:
        batch_size: samples per worker and iteration.
        learning_rate: of SGD, for the mean gradient of the workers.
        momentum: of SGD.
        epochs: passes over the training set.
        decay: of the learning rate; see ``innet.experiments.training.TrainingSchedule``.
    """

    batch_size: int
    learning_rate: float
    momentum: float
    epochs: int
    decay: Decay = "constant"


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
        chance: the score of guessing, where it is known: what ends there has learnt nothing.
        long: the recipe of a training after which more epochs hardly improve plain sums; None
            where no such recipe is known.
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
    chance: float | None = None
    long: Recipe | None = None

    def recipe_for(self, schedule: str) -> Recipe:
        """The recipe of a schedule, "short" or "long".

        Raises:
            ConfigError: the model has no long one.
        """
        if schedule == "short":
            return self.recipe
        if self.long is None:
            raise ConfigError(
                f"model {self.name!r} has no long schedule; leave schedule out, and give epochs "
                "and decay."
            )
        return self.long

    @property
    def size(self) -> int:
        """How many parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def layer_type(name: str, shape: tuple[int, ...]) -> str:
    """One of "convolution", "recurrent", "matrix" (fully connected, embeddings) and "vector"."""
    if len(shape) > 2:
        return "convolution"
    if len(shape) < 2:
        return "vector"
    return "recurrent" if any(each in name for each in ("lstm", "gru", "rnn")) else "matrix"


_EXAMPLE = 'docs/extending.md, "A model to train", has a whole one (innet help extending).'

MODELS: Registry[Callable[[str | None], Model]] = Registry("model", "innet.models")
MODELS.register("digits-cnn", "innet.experiments.models.digits_cnn:model")
MODELS.register("mnist5k-cnn", "innet.experiments.models.mnist5k:model")
MODELS.register("charlm", "innet.experiments.models.charlm:model")
MODELS.register("mnist5k-resnet", "innet.experiments.models.mnist5k_resnet:model")
MODELS.register("docs-gpt", "innet.experiments.models.docs_gpt:model")
MODELS.register("ncf", "innet.experiments.models.ncf:model")


def model_of(name: str, framework: str | None = None) -> Model:
    """The model of that name, checked as far as it can be before it is used.

    Raises:
        UnknownNameError: no such model, or framework.
        ConfigError: the framework cannot be used, or what is registered is not as it has to be.
        MissingToolError: the framework is not installed.
    """
    make: object = MODELS.get(name)
    _check_call(make, 1, f"model {name!r}", "a framework's name or None")
    model: object = make(framework)  # type: ignore[operator]  # it can be called
    if not isinstance(model, Model):
        raise ConfigError(
            f"model {name!r} is made as {type(model).__name__}; its function must return an "
            f"innet.experiments.models.model.Model. {_EXAMPLE}"
        )
    shapes: object = model.shapes
    if not isinstance(shapes, Mapping) or not all(map(_is_shape, shapes.values())):
        raise ConfigError(
            f"model {name!r} has the shapes {shapes!r:.80}; they must be a mapping of the layers' "
            f"names to tuples of integers. {_EXAMPLE}"
        )
    for attribute, kind, such in (
        ("metric", Metric, "an innet.records.Metric, such as innet.records.ACCURACY"),
        ("recipe", Recipe, "an innet.experiments.models.model.Recipe"),
    ):
        if not isinstance(found := getattr(model, attribute), kind):
            raise ConfigError(
                f"the {attribute} of model {name!r} is {found!r:.80}; expected is {such}. "
                f"{_EXAMPLE}"
            )
    _check_call(model.load, 1, f"load of model {name!r}", 'a part, "test" or "validation"')
    _check_call(model.initial, 1, f"initial of model {name!r}", "a NumPy generator")
    _check_call(model.gradient, 3, f"gradient of model {name!r}", "parameters, inputs, targets")
    _check_call(model.evaluate, 2, f"evaluate of model {name!r}", "parameters and samples")
    return model


def data_of(model: Model, part: Part) -> Data:
    """The model's data.

    Raises:
        InputError: they are not as they have to be.
        MissingToolError: what they are read with is not installed.
    """
    data: object = model.load(part)
    if not isinstance(data, Data):
        raise InputError(
            f"the data of model {model.name!r} are of type {type(data).__name__}; load must return "
            "an innet.experiments.models.model.Data."
        )
    for what, samples in (("train", data.train), ("test", data.test)):
        counts = len(samples.inputs), len(samples.targets)
        if counts[0] != counts[1] or not counts[0]:
            raise InputError(
                f"the data of model {model.name!r} have {counts[0]} inputs and {counts[1]} targets "
                f"in {what}; there must be as many, and one at least."
            )
    return data


def _check_call(function: object, arguments: int, what: str, expected: str) -> None:
    """Refuse what cannot be called with this number of arguments."""
    if callable(function):
        try:
            inspect.signature(function).bind(*[None] * arguments)
        except TypeError:
            pass
        except ValueError:  # Python does not know its arguments
            return
        else:
            return
    raise ConfigError(f"{what} is no function that takes {expected}: {function!r:.80}. {_EXAMPLE}")


def _is_shape(shape: object) -> bool:
    return isinstance(shape, tuple) and all(isinstance(each, int) for each in shape)


def check_framework(model: str, framework: str | None, only: str) -> None:
    """Refuse a framework that a model does not have.

    Raises:
        ConfigError: it was asked for another one than ``only``.
    """
    if framework not in {None, only}:
        raise ConfigError(
            f"framework = {framework!r} cannot be used: {model} has {only} alone; leave it out."
        )
