"""Units of parameters that are coded together, and their reduction in one iteration.

DistributedDataParallel delivers gradients in buckets, and rebuilds the buckets after the first
iteration in the order in which gradients arrived. The first bucket may hold the whole model. A
codec's error feedback belongs to parameters, so it cannot depend on buckets. Units are built once,
in the first iteration: the buckets that PyTorch is expected to rebuild. Where it does, a unit is a
bucket and is read in place. Elsewhere it is reduced when buckets have brought all of its
parameters, and a bucket is done when all units with its parameters are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, ModelLayers, SumOptions
from innet.core import buffers
from innet.core.errors import StateError
from innet.records import Report
from innet.torch.comm_thread import CommThread
from innet.torch.future import SettableFuture
from innet.torch.tensors import memory_of, torch

Shape = tuple[int, ...]
Vector = NDArray[np.float32]

_LINE = 64  # bytes of a cache line: a codec reads from its beginning a third faster


@dataclass
class Unit:
    """Parameters in the order in which their gradients usually arrive.

    Attributes:
        index: number of the unit, in the order in which units were built.
        shapes: of its parameters; () for one number.
        codec: with its error feedback for these parameters.
        place: index of the bucket from which it was cut, and its number among the units of that.
    """

    index: int
    shapes: tuple[Shape, ...]
    codec: Codec
    place: tuple[int, int] = (0, 0)
    sizes: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.sizes = [numel(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Number of elements of all parameters."""
        return sum(self.sizes)

    @cached_property
    def name(self) -> str:
        """What it is, the same on all workers."""
        return f"unit {self.index} of parameters {list(self.shapes)}"

    @cached_property
    def parts(self) -> list[list[slice]]:
        """The place of each parameter in the unit's gradient."""
        ends = list(accumulate(self.sizes, initial=0))
        return [[slice(*place)] for place in pairwise(ends)]

    @cached_property
    def gradient(self) -> Vector:
        """A buffer for the parameters' gradients, shape (size,), float32; always the same one."""
        # Reused, since page faults of new memory in every iteration take longer than the copy.
        # It begins at a cache line.
        return buffers.empty(self.size, np.float32)


def numel(shape: Shape) -> int:
    """Number of elements of a parameter."""
    return torch.Size(shape).numel()


def layers(shapes: Sequence[Shape], names: Sequence[str]) -> ModelLayers | None:
    """The layers for the codec: a scalar is a layer of one element, and a parameter without
    elements is left out. They have names if the parameters have.
    """
    found = [
        (name, shape or (1,)) for name, shape in zip(names, shapes, strict=True) if numel(shape)
    ]
    if all(name for name, _ in found):
        return dict(found) or None
    return [shape for _, shape in found] or None


def arrival_order(shapes: Sequence[Shape]) -> list[int]:
    """The order in which the gradients of parameters usually become ready, as indices.

    The last layer's come first. Within a layer a linear one's bias comes before its weight, and the
    weight of a convolution or a normalization before its bias. DistributedDataParallel orders its
    buckets so after the first iteration. Where a model differs, gradients are copied.

    Args:
        shapes: of the parameters, in the order of the model.
    """
    order: list[int] = []
    index = len(shapes) - 1
    while index >= 0:
        bias, weight = shapes[index], shapes[index - 1] if index else ()
        if len(bias) == 1 and weight[:1] == bias and len(weight) != 2:
            order += [index - 1, index]
            index -= 2
        else:
            order.append(index)
            index -= 1
    return order


def cut(sizes: Sequence[int], limits: Sequence[float]) -> list[range]:
    """Divide parameters into units, as DistributedDataParallel divides them into buckets.

    A unit ends with the parameter with which it has as many elements as its limit. So it needs
    gradients of one bucket only.

    Args:
        sizes: elements of each parameter, in the order in which gradients arrive.
        limits: elements of the first unit, the second and so on, the last one also of all further
            units; infinity for no limit.

    Returns:
        Positions in ``sizes`` of the parameters of each unit.
    """
    parts: list[range] = []
    start, filled = 0, 0
    for index, size in enumerate(sizes):
        filled += size
        if filled >= limits[min(len(parts), len(limits) - 1)]:
            parts.append(range(start, index + 1))
            start, filled = index + 1, 0
    if start < len(sizes):
        parts.append(range(start, len(sizes)))
    return parts


@dataclass(slots=True)
class ReductionStats:
    """Results of the reductions; see ``innet.torch.HookState``."""

    reports: dict[int, Report] = field(default_factory=dict)
    skipped: int = 0
    squares: dict[int, Mapping[str, float]] = field(default_factory=dict)
    """By unit, what AdaScale's gain needs of reductions since it was computed last."""


@dataclass(slots=True)
class WaitingBucket:
    """A bucket that waits for the reduction of all units with its parameters."""

    buffer: torch.Tensor
    future: SettableFuture
    units: set[int] = field(default_factory=set)

    def unit_done(self, index: int) -> None:
        self.units.discard(index)
        if not self.units and self.future.error is None:
            self.future.complete(self.buffer)

    def unit_failed(self, error: BaseException) -> None:
        if self.future.error is None:
            self.future.fail(error)


class BucketReduction:
    """The reduction of a unit in one iteration. It collects gradients from buckets, runs in the
    communication thread, and writes the means into the buckets: hooks around this one read them
    there.
    """

    name = ""  # DistributedDataParallel hands out buckets in one order

    def __init__(self, unit: Unit, workers: int, scale: float, stats: ReductionStats) -> None:
        self.codec = unit.codec
        factor = np.float32(scale) / np.float32(workers)
        # The bucket is DistributedDataParallel's, and after an error it is used no more.
        self.options = SumOptions(factor=float(factor), overwrite=True)
        self._stats = stats
        self._unit = unit
        self._scale = np.float32(scale)
        self._views: list[torch.Tensor | None] = [None] * len(unit.sizes)
        self._missing = len(unit.sizes)
        self._buckets: list[WaitingBucket] = []

    def take(self, position: int, gradient: torch.Tensor, bucket: WaitingBucket) -> bool:
        """Add a parameter's gradient; returns whether it was the last one."""
        if self._views[position] is None:
            self._missing -= 1
        self._views[position] = gradient
        if self._unit.index not in bucket.units:
            bucket.units.add(self._unit.index)
            self._buckets.append(bucket)
        return self._missing == 0

    @property
    def fingerprint(self) -> str:
        return f"{self._unit.name}, scaled by {self._scale}"

    @property
    def parts(self) -> list[list[slice]]:
        return self._unit.parts

    def load(self) -> Vector:
        """The unit's gradient; where it lies in one piece of a bucket, that memory itself."""
        in_bucket = self._in_bucket
        if in_bucket is not None and self._scale == 1:
            return in_bucket
        flat = self._unit.gradient
        if in_bucket is not None:
            return np.divide(in_bucket, self._scale, out=flat)
        if self._missing:
            flat[:] = 0
        for part, view in self._parts(flat):
            part.copy_(view.reshape(-1))
        if self._scale != 1:
            flat /= self._scale
        return flat

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        self._stats.reports[self._unit.index] = report
        if squares := report.details.get("squares"):
            self._stats.squares[self._unit.index] = squares
        self._give(total, np.float32(factor))

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        self._stats.skipped += 1
        self._give(np.full(self._unit.size, np.nan, np.float32), np.float32(1))

    def set_exception(self, error: BaseException) -> None:
        for bucket in self._buckets:
            bucket.unit_failed(error)

    @cached_property
    def _in_bucket(self) -> Vector | None:
        """The gradient where it lies in one piece; asked once all parameters are there."""
        if self._missing:
            return None
        return joined([view for view in self._views if view is not None])

    def _give(self, values: Vector, factor: np.float32) -> None:
        """Write values times the factor to where the gradients are, if they are not there yet."""
        in_bucket = self._in_bucket
        if in_bucket is None:
            for part, view in self._parts(values):
                _write(part, view, float(factor))
        elif factor != 1 or values.ctypes.data != in_bucket.ctypes.data:
            np.multiply(values, factor, out=in_bucket)  # in one pass
        for bucket in self._buckets:
            bucket.unit_done(self._unit.index)

    def _parts(self, flat: Vector) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """For each parameter, its part of ``flat`` and its gradient in the bucket."""
        parts = torch.split(torch.from_numpy(flat), self._unit.sizes)
        return [
            (part, view) for part, view in zip(parts, self._views, strict=True) if view is not None
        ]


def _write(values: torch.Tensor, view: torch.Tensor, factor: float) -> None:
    """Write values times the factor into a parameter's gradient, which they may already be."""
    if view.dtype != torch.float32 or view.device.type != "cpu":
        view.copy_((values * factor).reshape(view.shape))
    elif factor != 1 or values.data_ptr() != view.data_ptr():
        torch.mul(values.reshape(view.shape), factor, out=view)  # in one pass


def joined(views: Sequence[torch.Tensor]) -> Vector | None:
    """The memory of tensors that lie behind each other, as one vector of float32; None if they do
    not, or not from the beginning of a cache line on, or elsewhere than a CPU reads.
    """
    views = [view for view in views if view.numel()]
    if not views or views[0].data_ptr() % _LINE:
        return None
    begin = views[0].untyped_storage().data_ptr()
    expected = views[0].data_ptr()
    for view in views:
        if (
            view.dtype != torch.float32
            or view.device.type != "cpu"
            or not view.is_contiguous()
            or view.untyped_storage().data_ptr() != begin  # else they are neighbors by chance
            or view.data_ptr() != expected
        ):
            return None
        expected += 4 * view.numel()
    first, size = views[0].detach(), sum(view.numel() for view in views)
    return memory_of(first.as_strided((size,), (1,), first.storage_offset()))


class FailedWork:
    """Work that only reports an error to the other workers.

    It keeps only the message. The exception would keep the frames of ``backward`` alive, and so the
    wrapped model. While the wrapped model exists, its parameters cannot be wrapped again.
    """

    name = ""
    fingerprint = "nothing"
    parts = ()
    options = SumOptions()

    def __init__(self, error: Exception, comm_thread: CommThread) -> None:
        self.future = SettableFuture(comm_thread.callbacks)
        self.codec = comm_thread.build_codec("dense")
        self._said = str(error)

    def load(self) -> Vector:
        raise StateError(self._said)

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        del total, factor, report
        raise AssertionError("a refusal was summed")

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        raise AssertionError("a refusal was summed")

    def set_exception(self, error: BaseException) -> None:
        del error
        self.future.complete(None)
