"""Codecs without a network: the words of all workers combined on the spot.

For what a training over the switch would tell as well, but not for so many workers: how selections
grow together.
"""

from __future__ import annotations

from collections.abc import Sequence

from innet.allreduce.report import selections
from innet.codecs import CodecSpec, Outcome, build_codec
from innet.core.reduce_op import combine
from innet.experiments.models.model import Vector


class Offline:
    """A reducer for ``training.train`` that remembers what was selected.

    Args:
        codec: what all workers use.
        workers: how many.
        layers: shapes of the model's layers.
        seed: of the codec's hashes.

    Attributes:
        selected: for each all-reduce so far, elements selected by all workers together.
        unions: for each, coordinates selected by at least one.
    """

    def __init__(
        self, codec: CodecSpec, workers: int, layers: Sequence[Sequence[int]], seed: int = 0
    ) -> None:
        self._codecs = [
            build_codec(codec, seed=seed, worker=worker, layers=layers) for worker in range(workers)
        ]
        self.selected: list[int] = []
        self.unions: list[int] = []

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, None]:
        outcomes = self._exchange(gradients)
        selected, union = selections(outcomes, gradients[0].size)
        self.selected.append(selected)
        self.unions.append(union)
        return outcomes[0].sum, None

    def _exchange(self, gradients: list[Vector]) -> list[Outcome]:
        """All workers' exchanges in lock-step."""
        workers = len(self._codecs)
        exchanges = [
            codec.exchange(gradient, workers)
            for codec, gradient in zip(self._codecs, gradients, strict=True)
        ]
        outcomes: list[Outcome] = []
        answers = None
        while not outcomes:
            rounds = []
            for exchange in exchanges:
                try:
                    rounds.append(next(exchange) if answers is None else exchange.send(answers))
                except StopIteration as stop:
                    outcomes.append(stop.value)
            answers = [
                combine(column[0].operation, [each.words for each in column])
                for column in zip(*rounds, strict=True)
            ]
        return outcomes
