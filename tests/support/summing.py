"""A stand-in for the collective: the oracle's sum, with made-up packets, of any codec's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from innet.core.reduce_op import ReduceOp, combine
from innet.records import Report
from support.records import a_report

SCALE = 2.0**20


class OracleSumming:
    """Sums fixed-point words by ``innet.core.reduce_op.combine``; a mapping codec keeps the top-k
    only.
    """

    def __init__(self, codec: Any, workers: int, **arguments: Any) -> None:
        self.ratio = codec["selector"]["ratio"] if isinstance(codec, dict) else None
        self.workers = workers
        self.arguments = arguments
        self.residuals = [np.float32(0)] * workers
        self.calls = 0
        self._tape: list[tuple[float, int, bytes]] | None = None

    def all_reduce(self, gradients: Sequence[np.ndarray]) -> tuple[np.ndarray, Report]:
        assert len(gradients) == self.workers
        self.calls += 1
        sent = [self._select(worker, each) for worker, each in enumerate(gradients)]
        words = [np.rint(each * SCALE).astype(np.int32) for each in sent]
        total = combine(ReduceOp.SUM, words)
        if self._tape is not None:
            self._tape.append((self.calls * 1e-3, 1, bytes([self.calls]) * 60))
        size = gradients[0].size
        report = a_report(
            codec="oracle" if self.ratio is None else "oracle top-k",
            elements=size,
            bytes_sent=4 * size if self.ratio is None else int(8 * self.ratio * size),
            bytes_dense=4 * size,
        )
        return (total / SCALE).astype(np.float32), report

    def _select(self, worker: int, gradient: np.ndarray) -> np.ndarray:
        if self.ratio is None:
            return gradient
        whole = gradient + self.residuals[worker]
        kept = max(1, int(self.ratio * whole.size))
        threshold = np.partition(np.abs(whole), -kept)[-kept]
        sent = np.where(np.abs(whole) >= threshold, whole, np.float32(0))
        self.residuals[worker] = whole - sent
        return sent

    @contextmanager
    def record_packets(self) -> Iterator[list[tuple[float, int, bytes]]]:
        self._tape = []
        try:
            yield self._tape
        finally:
            self._tape = None
