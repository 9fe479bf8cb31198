"""What a training computes and sums in each iteration: layers, their times, buckets, stragglers.

The models are data: ``workloads/*.toml`` beside this file, one for each, with the shapes of all
parameters as the paper or the public code of the architecture has them. Nothing here runs a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from innet.core.errors import ConfigError, InputError, UnknownNameError
from innet.core.files import read_toml
from innet.core.registry import split_name
from innet.core.settings import Duration, Settings, load_toml, validate

MIB = 1 << 20
FLOAT = 4  # bytes of a gradient's element
BUCKET_CAP_MB = 25.0
"""MiB of a bucket, as PyTorch's DistributedDataParallel has it (``bucket_cap_mb``)."""
FIRST_BUCKET_MB = 1.0
"""MiB of the first bucket, unless ``bucket_cap_mb`` is given
(``torch.distributed._DEFAULT_FIRST_BUCKET_BYTES``)."""
_FORWARD = 1 / 3  # assumed: the backward pass has two products for each one of the forward pass
_STRAGGLER_STREAM = 0x57A6  # keeps the draws apart from others of the same seed
_JITTER_STREAM = 0x51A7  # likewise, of start jitter

# ----------------------------------------------------------------------------
# The files.


class ParameterEntry(Settings):
    """A parameter in a model's file.

    Attributes:
        name: the layer's name, a dot, and the parameter's.
        shape: of the tensor; ``[0]`` for a layer without its own parameters.
        positions: for how many positions of a sample each element is multiplied: the pixels that a
            convolution computes, the tokens of a sequence. 0 where that is next to nothing.
        macs: multiplications of a sample beside those, such as of attention.
    """

    name: str
    shape: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1, strict=False)
    positions: Annotated[int, Field(ge=0)] = 0
    macs: Annotated[int, Field(ge=0)] = 0


class BlockEntry(Settings):
    """Parameters that a model has once, or in several equal parts.

    Attributes:
        name: comes before the parameters' names; "{}" in it stands for the part's number.
        numbers: of the parts.
        parameters: in the order of the model.
    """

    name: str = ""
    numbers: tuple[Annotated[int, Field(ge=0)], ...] = Field(default=(0,), strict=False)
    parameters: tuple[ParameterEntry, ...] = Field(min_length=1, strict=False)


class ComputeEntry(Settings):
    """How long an iteration computes.

    Attributes:
        seconds: forward and backward pass together.
        forward: seconds of the forward pass; by default a third of ``seconds`` (assumed).
        source: where the numbers come from.
        assumed: they come from nowhere.
    """

    seconds: Annotated[float, Field(gt=0)]
    forward: Duration | None = None
    source: str
    assumed: bool = False


class ModelFile(Settings):
    """A model's file.

    Attributes:
        title: for people.
        source: paper or public code of the architecture.
        parameters: how many it is known to have.
        sample: what ``positions`` and ``macs`` count for.
        compute: the default times.
        blocks: all parameters, in the order in which the model defines them.
    """

    panel: ClassVar[str] = "Model"

    title: str
    source: str
    parameters: Annotated[int, Field(ge=1)]
    sample: str = ""
    compute: ComputeEntry
    blocks: tuple[BlockEntry, ...] = Field(min_length=1, strict=False)


# ----------------------------------------------------------------------------
# A workload.


@dataclass(frozen=True, slots=True)
class WorkloadLayer:
    """Parameters whose gradients the backward pass computes together.

    Attributes:
        name: as in the model.
        shapes: of the parameters, in the order of the model.
        macs: multiplications of a sample in the forward pass.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    macs: int = 0

    @property
    def elements(self) -> int:
        """Elements of all parameters."""
        return sum(map(math.prod, self.shapes))


@dataclass(frozen=True, slots=True)
class BucketShape:
    """Gradients that are summed together.

    Attributes:
        shapes: of the parameters, in the order in which their gradients are computed.
        layers: indices into ``Workload.backward``: of the first and the last of their layers.
    """

    shapes: tuple[tuple[int, ...], ...]
    layers: tuple[int, int]

    @property
    def elements(self) -> int:
        """Elements of all parameters."""
        return sum(map(math.prod, self.shapes))


@dataclass(frozen=True)
class Workload:
    """The layers of a model and the time that an iteration computes.

    Attributes:
        title: for people; "" for none.
        layers: in the order of the model, at least one.
        seconds: of forward and backward pass, of a worker that nothing slows.
        forward: seconds of the forward pass, part of these.
        source: where the times come from.
        assumed: whether they come from nowhere.
    """

    title: str
    layers: tuple[WorkloadLayer, ...]
    seconds: float
    forward: float
    source: str
    assumed: bool

    @classmethod
    def of_size(cls, elements: int) -> Workload:
        """Gradients without a model, which take no time to compute."""
        return cls("", (WorkloadLayer("gradient", ((elements,),)),), 0.0, 0.0, "", False)

    @cached_property
    def backward(self) -> tuple[WorkloadLayer, ...]:
        """The layers in the order in which the backward pass computes their gradients.

        That is the reverse of the model's order, as DistributedDataParallel assumes too.
        """
        return self.layers[::-1]

    @property
    def elements(self) -> int:
        """Elements of the whole gradient."""
        return sum(layer.elements for layer in self.layers)

    def with_seconds(self, seconds: float) -> Workload:
        """The same with another time, divided between forward and backward pass as before."""
        share = self.forward / self.seconds if self.seconds else _FORWARD
        return Workload(
            self.title, self.layers, seconds, share * seconds, "given with the settings", False
        )

    def backward_times(self, by: Literal["flops", "parameters"] = "flops") -> NDArray[np.float64]:
        """When the backward pass has computed each of its layers, shape (layers,).

        Args:
            by: what the time of a layer is in proportion to: its multiplications (if the model
                counts any), or its parameters.

        Returns:
            Seconds since the backward pass began; the last is its duration.
        """
        weights = np.array([layer.macs for layer in self.backward], np.float64)
        if by == "parameters" or not weights.any():
            weights = np.array([layer.elements for layer in self.backward], np.float64)
        duration = self.seconds - self.forward
        if not weights.any():
            return np.full(len(weights), duration)
        done: NDArray[np.float64] = np.cumsum(weights) / weights.sum() * duration
        done[-1] = duration
        return done


def buckets(
    workload: Workload, cap_mb: float | None = None, first_mb: float | None = None
) -> list[BucketShape]:
    """The buckets of gradients that PyTorch's DistributedDataParallel would sum.

    It takes the parameters in the reverse of the model's order, and ends a bucket with the
    parameter with which it holds ``cap_mb`` or more, so that no parameter is divided. These are its
    buckets from the second iteration on: in the first iteration it has one bucket for all, unless
    ``find_unused_parameters`` is set.

    Args:
        workload: the model.
        cap_mb: MiB of float32 gradients; by default 25.
        first_mb: of the first bucket; by default 1, or ``cap_mb`` if that is given.
    """
    if first_mb is None:
        first_mb = FIRST_BUCKET_MB if cap_mb is None else cap_mb
    limit, later = int(first_mb * MIB), int((BUCKET_CAP_MB if cap_mb is None else cap_mb) * MIB)
    found: list[BucketShape] = []
    shapes: list[tuple[int, ...]] = []
    filled, first = 0, 0
    for index, layer in enumerate(workload.backward):
        for shape in reversed(layer.shapes):
            if not math.prod(shape):
                continue
            if not shapes:
                first = index
            shapes.append(shape)
            filled += FLOAT * math.prod(shape)
            if filled >= limit:
                found.append(BucketShape(tuple(shapes), (first, index)))
                shapes, filled, limit = [], 0, later
            last = index
    if shapes:
        found.append(BucketShape(tuple(shapes), (first, last)))
    return found


def _folder() -> Any:
    return resources.files("innet.scenarios").joinpath("workloads")


def names() -> list[str]:
    """Names of the models that innet has."""
    return sorted(
        each.name.removesuffix(".toml")
        for each in _folder().iterdir()
        if each.name.endswith(".toml")
    )


def load(model: str | Path) -> Workload:
    """A model by its name, or from a TOML file.

    Raises:
        UnknownNameError: no model of that name.
        ConfigError: a file that cannot be used, or whose shapes do not have the ``parameters`` that
            it says.
    """
    if isinstance(model, Path) or model.endswith(".toml"):
        file = load_toml(model, ModelFile)
    elif model in names():
        with resources.as_file(_folder().joinpath(f"{model}.toml")) as path:
            file = validate(ModelFile, read_toml(path), source=path.name)
    else:
        raise UnknownNameError("model", model, names())
    layers: dict[str, list[ParameterEntry]] = {}
    for block in file.blocks:
        for number in block.numbers:
            prefix = block.name.replace("{}", str(number))
            for entry in block.parameters:
                name = f"{prefix}.{entry.name}" if prefix else entry.name
                layers.setdefault(name.rpartition(".")[0] or name, []).append(entry)
    workload = Workload(
        file.title,
        tuple(
            WorkloadLayer(
                name,
                tuple(entry.shape for entry in entries),
                sum(entry.macs + entry.positions * math.prod(entry.shape) for entry in entries),
            )
            for name, entries in layers.items()
        ),
        file.compute.seconds,
        file.compute.seconds * _FORWARD if file.compute.forward is None else file.compute.forward,
        file.compute.source,
        file.compute.assumed,
    )
    if workload.elements != file.parameters:
        raise ConfigError(
            f"{model}: the shapes have {workload.elements:,} elements, but parameters = "
            f"{file.parameters}; correct one of them."
        )
    if workload.forward > workload.seconds:
        raise ConfigError(
            f"{model}: compute.forward = {workload.forward!r} is longer than compute.seconds = "
            f"{workload.seconds!r}, of which it is a part."
        )
    return workload


# ----------------------------------------------------------------------------
# Workers that are slower than others.

_Factor = Annotated[float, Field(ge=0, le=1000)]
_Per = Annotated[Literal["iteration", "run"], Field(description="how often it is drawn")]


class _None(Settings):
    """All workers are equally fast."""

    def factors(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.ones(workers)

    per: _Per = "run"


class _Exponential(Settings):
    """A tail: an iteration takes 1 + x times as long, x exponential."""

    mean: _Factor = 0.1
    per: _Per = "iteration"

    def factors(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:
        return 1 + rng.exponential(self.mean, workers)


class _Lognormal(Settings):
    """An iteration takes x times as long, log x normal with mean 0."""

    sigma: Annotated[float, Field(ge=0, le=10)] = 0.1
    per: _Per = "iteration"

    def factors(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:
        return rng.lognormal(0.0, self.sigma, workers)


class _Fixed(Settings):
    """One worker always takes ``factor`` times as long."""

    worker: Annotated[int, Field(ge=0)] = 0
    factor: Annotated[float, Field(gt=0, le=1000)] = 2.0
    per: _Per = "run"

    def factors(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        found = np.ones(workers)
        found[self.worker] = self.factor
        return found


_STRAGGLERS: Mapping[str, type[_None | _Exponential | _Lognormal | _Fixed]] = {
    "none": _None,
    "exponential": _Exponential,
    "lognormal": _Lognormal,
    "fixed": _Fixed,
}

_Late = Annotated[float, Field(ge=0, le=10)]


class _Together(Settings):
    """All workers begin when they can."""

    def draw(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        return np.zeros(workers)


class _Uniform(Settings):
    """Up to ``seconds`` later."""

    seconds: _Late

    def draw(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:
        return rng.uniform(0.0, self.seconds, workers)


class _ExponentiallyLater(Settings):
    """``mean`` seconds later in the mean."""

    mean: _Late

    def draw(self, rng: np.random.Generator, workers: int) -> NDArray[np.float64]:
        return rng.exponential(self.mean, workers)


_JITTERS: Mapping[str, type[_Together | _Uniform | _ExponentiallyLater]] = {
    "none": _Together,
    "uniform": _Uniform,
    "exponential": _ExponentiallyLater,
}


class StartJitter:
    """By how much later each worker begins, in each iteration.

    Args:
        described: a distribution's name, with settings.
        workers: how many there are.
        seed: of the draws; an iteration's do not depend on how many there are before it.
        job: keeps the draws of several jobs apart.

    Raises:
        UnknownNameError: no such distribution.
        ConfigError: a setting that it does not have, or out of range.
    """

    def __init__(self, described: str, workers: int, seed: int, job: int = 0) -> None:
        name, settings = split_name(described)
        if name not in _JITTERS:
            raise UnknownNameError("distribution of start jitter", name, _JITTERS)
        self._distribution = validate(_JITTERS[name], settings, source=f"start jitter {name}")
        self._workers, self._key = workers, [seed, _JITTER_STREAM, job]

    def seconds(self, iteration: int) -> NDArray[np.float64]:
        """Of each worker, shape (workers,); iterations count from 1."""
        rng = np.random.default_rng([*self._key, iteration])
        return self._distribution.draw(rng, self._workers)


class Stragglers:
    """By how much each worker is slower, in each iteration.

    Args:
        described: a distribution's name, with or without settings.
        pauses: "WORKER:ITERATION:SECONDS" each.
        workers: how many there are.
        seed: of the draws; an iteration's do not depend on how many there are before it.

    Raises:
        UnknownNameError: no such distribution.
        ConfigError: a setting that it does not have, or out of range; or a pause of another form.
        InputError: a worker that does not exist.
    """

    def __init__(self, described: str, pauses: Sequence[str], workers: int, seed: int) -> None:
        name, settings = split_name(described)
        if name not in _STRAGGLERS:
            raise UnknownNameError("distribution of stragglers", name, _STRAGGLERS)
        self._distribution = validate(_STRAGGLERS[name], settings, source=f"straggler {name}")
        if isinstance(self._distribution, _Fixed) and self._distribution.worker >= workers:
            raise InputError(
                f"there is no worker {self._distribution.worker} to be slow; the job has {workers}."
            )
        self._workers = workers
        self._seed = seed
        self._pauses: dict[tuple[int, int], float] = {}
        for text in pauses:
            worker, iteration, seconds = _pause(text)
            if worker >= workers:
                raise InputError(f"there is no worker {worker} to pause; the job has {workers}.")
            key = (iteration, worker)
            self._pauses[key] = self._pauses.get(key, 0.0) + seconds

    def factors(self, iteration: int) -> NDArray[np.float64]:
        """How many times as long each worker computes, shape (workers,).

        Args:
            iteration: counts from 1.
        """
        drawn = iteration if self._distribution.per == "iteration" else 0
        rng = np.random.default_rng([self._seed, _STRAGGLER_STREAM, drawn])
        return self._distribution.factors(rng, self._workers)

    def pauses(self, iteration: int) -> NDArray[np.float64]:
        """Seconds for which each worker stands still before the iteration, shape (workers,)."""
        return np.array(
            [self._pauses.get((iteration, worker), 0.0) for worker in range(self._workers)]
        )


def _pause(text: str) -> tuple[int, int, float]:
    try:
        first, second, third = text.split(":")
        worker, iteration, seconds = int(first), int(second), float(third)
    except ValueError:
        worker, iteration, seconds = -1, 0, math.nan
    if worker < 0 or iteration < 1 or not 0 <= seconds < math.inf:
        raise ConfigError(
            f"the pause {text!r} cannot be read; write WORKER:ITERATION:SECONDS, such as 3:1:0.5 "
            "for worker 3 before iteration 1."
        )
    return worker, iteration, seconds
