"""Units, the parameters that are coded together, and their reduction in one iteration.

DistributedDataParallel hands out gradients in buckets, and changes them: the first iteration's may
hold the whole model, the others' are made anew in the order in which gradients came. What a codec
holds back belongs to parameters, so it cannot depend on buckets. Units are cut once, from the
buckets of the first iteration; a unit is reduced when buckets have brought all of its parameters,
and a bucket is done when all units are that it has parameters of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import SELECTORS, Codec, CodecSpec, ModelLayers
from innet.codecs.build import normalize
from innet.core import buffers
from innet.core.errors import StateError
from innet.records import Report
from innet.torch.comm_thread import CommThread
from innet.torch.future import SettableFuture
from innet.torch.tensors import torch

Shape = tuple[int, ...]
Vector = NDArray[np.float32]


@dataclass(slots=True)
class Unit:
    """Parameters in the order of the model.

    Attributes:
        index: units are numbered in the order in which they were cut.
        shapes: of its parameters; () for one number.
        codec: with what it holds back of them.
        gradient: room for theirs, shape (size,), float32.
    """

    index: int
    shapes: tuple[Shape, ...]
    codec: Codec
    sizes: list[int] = field(init=False)
    gradient: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [numel(shape) for shape in self.shapes]
        # Kept: to touch fresh memory in every iteration takes longer than to copy into it. At the
        # beginning of a cache line: a codec reads it a third faster than where NumPy might put it.
        self.gradient = buffers.empty(self.size, np.float32)

    @property
    def size(self) -> int:
        """Elements of all its parameters."""
        return sum(self.sizes)


def numel(shape: Shape) -> int:
    """Elements of a parameter."""
    return torch.Size(shape).numel()


def layers(shapes: Sequence[Shape]) -> ModelLayers | None:
    """The shapes as a codec takes them: one number is a layer of one element, and a parameter
    without elements none.
    """
    return [shape or (1,) for shape in shapes if numel(shape)] or None


def cut(sizes: Sequence[int], enough: float) -> list[range]:
    """Where to cut a bucket of parameters into units of ``enough`` elements.

    From the end, since the gradients of the last parameters come first. As in PyTorch's buckets,
    the parameter with which a unit has enough is its last one.

    Args:
        sizes: elements of each parameter, in the order of the model.
        enough: elements; infinity makes one unit of all.

    Returns:
        Indices of the parameters of each unit, that of the last parameters first.
    """
    parts: list[range] = []
    stop, filled = len(sizes), 0
    for index in reversed(range(len(sizes))):
        filled += sizes[index]
        if filled >= enough:
            parts.append(range(index, stop))
            stop, filled = index, 0
    if stop:
        parts.append(range(stop))
    return parts


def spec_of_unit(spec: CodecSpec, *, first: bool) -> CodecSpec:
    """The codec's description for one unit.

    Args:
        spec: as the user gave it, for the whole model.
        first: whether the unit begins with the model's first parameter. Selectors that treat a
            model's first layer in another way (``first_dense``) must not do so in every unit.
    """
    described: dict[str, dict[str, Any]] = normalize(spec)
    selector = described["selector"]
    if not first and "first_dense" in SELECTORS.get(selector["name"]).settings.model_fields:
        selector = {**selector, "first_dense": False}
    return {**described, "selector": selector}


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
    """A unit in one iteration: it collects its gradients from buckets, is reduced by the
    communication thread, and writes the means into the buckets.
    """

    def __init__(self, unit: Unit, workers: int, scale: float, stats: Stats) -> None:
        self.codec = unit.codec
        self._stats = stats
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
    def fingerprint(self) -> str:
        unit = self._unit
        return f"unit {unit.index} of parameters {list(unit.shapes)}, scaled by {self._scale}"

    def load(self) -> Vector:
        flat = self._unit.gradient
        for part, view in self._parts(flat):
            part.copy_(view.reshape(-1))
        if self._scale != 1:
            flat /= self._scale
        return flat

    def set_result(self, total: Vector, report: Report) -> None:
        self._stats.reports[self._unit.index] = report
        self._give(total, self._scale / np.float32(self._workers))

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        self._stats.skipped += 1
        self._give(np.full(self._unit.size, np.nan, np.float32), np.float32(1))

    def set_exception(self, error: BaseException) -> None:
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


class FailedWork:
    """Work that only tells the other workers of an error.

    Of the error it keeps what it says: the error itself holds the frames of ``backward`` and with
    them the wrapped model, whose parameters nobody could wrap anew as long as it is there.
    """

    fingerprint = "nothing"

    def __init__(self, error: Exception, comm_thread: CommThread) -> None:
        self.future = SettableFuture()
        self.codec = comm_thread.build_codec("dense")
        self._said = str(error)

    def load(self) -> Vector:
        raise StateError(self._said)

    def set_result(self, total: Vector, report: Report) -> None:
        del total, report
        raise AssertionError("a refusal was summed")

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        raise AssertionError("a refusal was summed")

    def set_exception(self, error: BaseException) -> None:
        del error
        self.future.set_result(None)
