"""A unit in one iteration: it gathers its gradients, and gives the means to the buckets."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import StateError
from innet.records import Report
from innet.torch.comm_thread import CommThread
from innet.torch.future import SettableFuture
from innet.torch.tensors import torch
from innet.torch.units import Unit

Vector = NDArray[np.float32]


@dataclass(slots=True)
class Stats:
    """What became of units; see ``innet.torch.HookState``."""

    reports: dict[int, Report] = field(default_factory=dict)
    skipped: int = 0


@dataclass(slots=True)
class WaitingBucket:
    """A bucket, until all units with parameters of it are reduced."""

    buffer: torch.Tensor
    future: SettableFuture
    units: set[int] = field(default_factory=set)

    def unit_done(self, index: int) -> None:
        self.units.discard(index)
        if not self.units and self.future.error is None:
            self.future.set_result(self.buffer)

    def unit_failed(self, error: BaseException) -> None:
        if self.future.error is None:
            self.future.set_exception(error)


class BucketReduction:
    """A unit in one iteration: its gradients, as buckets bring them; then a comm_thread's work."""

    def __init__(self, unit: Unit, workers: int, scale: float, stats: Stats) -> None:
        self.codec = unit.codec
        self._tally = stats
        self._unit = unit
        self._workers = workers
        self._scale = np.float32(scale)
        self._views: list[torch.Tensor | None] = [None] * len(unit.sizes)
        self._missing = len(unit.sizes)
        self._buckets: list[WaitingBucket] = []

    def take(self, position: int, gradient: torch.Tensor, bucket: WaitingBucket) -> bool:
        """Remember a parameter's gradient; whether it was the last one."""
        if self._views[position] is None:
            self._missing -= 1
        self._views[position] = gradient
        if self._unit.index not in bucket.units:
            bucket.units.add(self._unit.index)
            self._buckets.append(bucket)
        return self._missing == 0

    @property
    def meant(self) -> str:
        unit = self._unit
        return f"unit {unit.index} of parameters {list(unit.shapes)}, scaled by {self._scale}"

    def load(self) -> Vector:
        flat = self._unit.gradient
        for part, view in self._parts(flat):
            part.copy_(view.reshape(-1))
        if self._scale != 1:
            flat /= self._scale
        return flat

    def deliver(self, total: Vector, report: Report) -> None:
        self._tally.reports[self._unit.index] = report
        self._give(total, self._scale / np.float32(self._workers))

    def spoiled(self, workers: tuple[int, ...]) -> None:
        del workers
        self._tally.skipped += 1
        self._give(np.full(self._unit.size, np.nan, np.float32), np.float32(1))

    def fail(self, error: BaseException) -> None:
        for bucket in self._buckets:
            bucket.unit_failed(error)

    def _give(self, values: Vector, factor: np.float32) -> None:
        for part, view in self._parts(values):
            if view.dtype == torch.float32 and view.device.type == "cpu":
                torch.mul(part.reshape(view.shape), float(factor), out=view)  # in one pass
            else:
                view.copy_((part * float(factor)).reshape(view.shape))
        for bucket in self._buckets:
            bucket.unit_done(self._unit.index)

    def _parts(self, flat: Vector) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each parameter's part of ``flat``, and its gradient in the bucket."""
        parts = torch.split(torch.from_numpy(flat), self._unit.sizes)
        return [
            (part, view) for part, view in zip(parts, self._views, strict=True) if view is not None
        ]


class Refusal:
    """An work that carries nothing but an error.

    Of the error it keeps what it says: the error itself holds the frames of ``backward`` and with
    them the wrapped model, whose parameters nobody could wrap anew as long as it is there.
    """

    meant = "nothing"

    def __init__(self, error: Exception, comm_thread: CommThread) -> None:
        self.future = SettableFuture()
        self.codec = comm_thread.build_codec("dense")
        self._said = str(error)

    def load(self) -> Vector:
        raise StateError(self._said)

    def deliver(self, total: Vector, report: Report) -> None:
        del total, report
        raise AssertionError("a refusal was summed")

    def spoiled(self, workers: tuple[int, ...]) -> None:
        del workers
        raise AssertionError("a refusal was summed")

    def fail(self, error: BaseException) -> None:
        del error
        self.future.set_result(None)
