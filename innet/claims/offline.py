"""Trainings without a network, for claims about what codecs select, send and remember.

The workers' words are combined as a switch does, also for more workers than its program serves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from innet.allreduce import report
from innet.codecs import CodecSpec, ExchangeOutcome, build_codec
from innet.core.reduce_op import combine
from innet.experiments.models.model import Data, Model, Vector, data_of, model_of
from innet.experiments.summing import Reducer, plain_sum
from innet.experiments.training import TrainingSchedule, one_thread, train
from innet.records import Step


def model_with_data(name: str) -> tuple[Model, Data]:
    """A model and its data."""
    model = model_of(name)
    return model, data_of(model, "test")


def batch_size(model: Model, data: Data, workers: int) -> int:
    """That of the model's recipe, or what a worker has."""
    return min(model.recipe.batch_size, len(data.train) // workers)


def steps_of(
    model: Model, data: Data, reduce: Reducer, *, workers: int, steps: int, seed: int
) -> Iterator[Step]:
    """The steps of a training by the model's recipe, without its scores."""
    recipe = model.recipe
    batch = batch_size(model, data, workers)
    schedule = TrainingSchedule(workers, steps, batch, recipe.learning_rate, recipe.momentum)
    few = Data(data.train, data.test.take(np.arange(1)))  # the score does not matter
    with one_thread():
        yield from train(schedule, model, few, reduce, seed)


def selections(
    model: Model, data: Data, codec: CodecSpec, *, workers: int, steps: int, seed: int
) -> tuple[list[int], list[int]]:
    """Elements selected by all workers, and in the union, in the second half of a training."""
    reducer = OfflineReducer(codec, workers, tuple(model.shapes.values()), seed)
    for _ in steps_of(model, data, reducer, workers=workers, steps=steps, seed=seed):
        pass
    return reducer.selected[steps // 2 :], reducer.unions[steps // 2 :]


def gradients_of(model: Model, data: Data, workers: int, seed: int) -> list[Vector]:
    """Each worker's gradient after a few steps of plain training."""
    found: list[Vector] = []

    def reduce(gradients: list[Vector]) -> tuple[Vector, None]:
        found[:] = [each.copy() for each in gradients]
        return plain_sum(gradients)

    for _ in steps_of(model, data, reduce, workers=workers, steps=8, seed=seed):
        pass
    return found


class OfflineReducer:
    """A reducer that combines the workers' words without a network, and records the selections.

    Args:
        codec: codec of all workers.
        workers: number of workers.
        layers: shapes of the model's layers.
        seed: of the codec's hashes.

    Attributes:
        selected: for each all-reduce, the number of elements selected by all workers together.
        unions: for each, the number of coordinates selected by at least one worker.
        words: words that one worker has sent, in all of them together.
        codecs: of all workers.
        outcomes: of the last all-reduce.
    """

    def __init__(
        self, codec: CodecSpec, workers: int, layers: Sequence[Sequence[int]], seed: int = 0
    ) -> None:
        self.codecs = [
            build_codec(codec, seed=seed, worker=worker, layers=layers) for worker in range(workers)
        ]
        self.selected: list[int] = []
        self.unions: list[int] = []
        self.words = 0
        self.outcomes: list[ExchangeOutcome] = []

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, None]:
        outcomes = self.outcomes = self._exchange(gradients)
        selected, union = report.selections(outcomes, gradients[0].size)
        self.selected.append(selected)
        self.unions.append(union)
        return outcomes[0].sum, None

    def _exchange(self, gradients: list[Vector]) -> list[ExchangeOutcome]:
        """All workers' exchanges in lock-step."""
        workers = len(self.codecs)
        exchanges = [
            codec.exchange(gradient, workers)
            for codec, gradient in zip(self.codecs, gradients, strict=True)
        ]
        outcomes: list[ExchangeOutcome] = []
        answers = None
        while not outcomes:
            rounds = []
            for exchange in exchanges:
                try:
                    rounds.append(next(exchange) if answers is None else exchange.send(answers))
                except StopIteration as stop:
                    outcomes.append(stop.value)
            self.words += sum(each.words.size for each in rounds[0]) if rounds else 0
            answers = [
                combine(column[0].operation, [each.words for each in column])
                for column in zip(*rounds, strict=True)
            ]
        return outcomes
