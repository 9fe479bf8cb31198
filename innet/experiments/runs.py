"""One run of a training, its gradients summed in one way."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from innet.core.settings import CodecDescription, TrainingSettings
from innet.experiments.models.model import Model, Vector
from innet.experiments.samples import Data
from innet.experiments.training import Schedule, plain_sum, train
from innet.records import Progress, Report, Run, Step, Watcher

Frame = tuple[float, int, bytes]  # virtual time in seconds, switch port, bytes


class Summing(Protocol):
    """What a training needs of ``innet.allreduce.collective.Collective``."""

    def all_reduce(self, gradients: Sequence[Vector]) -> tuple[Vector, Report]:
        """The float32 sum of the workers' gradients, and what it took."""

    def record_packets(self) -> AbstractContextManager[list[Frame]]:
        """While the context is open, packets are added to the list that it yields."""


MakeSumming = Callable[..., Summing]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to sum gradients.

    Attributes:
        name: the run's key in the record.
        title: the same for people.
        codec: None for plain float32 sums without a network.
        own_momentum: the codec adds up momentum itself, so the optimizer must have none.
    """

    name: str
    title: str
    codec: CodecDescription | None
    own_momentum: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """What runs that are compared have in common: all but the way to sum.

    Attributes:
        settings: of the network.
        schedule: how to train.
        seed: of the parameters, the batches and the codec's hashes.
        model: what to train.
        data: what to train on.
        make: makes what sums the gradients.
        watch: called for each step and each preparation.
    """

    settings: TrainingSettings
    schedule: Schedule
    seed: int
    model: Model
    data: Data
    make: MakeSumming
    watch: Watcher


class OverNetwork:
    """A reducer that sends packets; remembers those of its first all-reduce.

    Attributes:
        frames: the packets, both directions.
        codec: description of the codec, from the first report.
    """

    def __init__(self, codec: CodecDescription, trial: Trial) -> None:
        from innet.allreduce.warm_up import rehearse_repairs  # noqa: PLC0415 - it brings Numba

        settings = trial.settings
        self.frames: list[Frame] = []
        self.codec = ""
        arguments = {
            "workers": settings.workers,
            "codec": codec,
            "layers": tuple(trial.model.shapes.values()),
            "values_per_packet": settings.values_per_packet,
            "engine": settings.engine,
            "seed": trial.seed,
        }
        # Numba compiles at the first call. Done here, with other numbers and on another object, it
        # neither counts as time of the first iteration nor leaves a residual behind.
        rng = np.random.default_rng(trial.seed)
        rehearsal = [
            rng.standard_normal(trial.model.size, np.float32) for _ in range(settings.workers)
        ]
        trial.make(**arguments).all_reduce(rehearsal)
        rehearse_repairs(codec)
        self._summing = trial.make(**arguments)

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, Report]:
        if self.frames:
            return self._summing.all_reduce(gradients)
        with self._summing.record_packets() as frames:
            total, report = self._summing.all_reduce(gradients)
        self.frames = frames
        self.codec = report.codec
        return total, report


def one_run(way: Way, trial: Trial) -> tuple[Run, list[Frame]]:
    """One of the runs, and the packets of its first all-reduce, if it sends any."""

    def tell(step: Step | None = None, note: str = "") -> None:
        trial.watch(
            Progress(
                run=way.name,
                title=way.title,
                iterations=trial.schedule.iterations,
                step=step,
                note=note,
                metric=trial.model.metric,
            )
        )

    network = None
    if way.codec is not None:
        tell(note="preparing the switch program and the codec (compiled once, then kept)")
        network = OverNetwork(way.codec, trial)
    schedule = replace(trial.schedule, momentum=0.0) if way.own_momentum else trial.schedule
    begun = time.perf_counter()
    steps = []
    for step in train(schedule, trial.model, trial.data, network or plain_sum, trial.seed):
        steps.append(step)
        tell(step)
    done = Run(
        name=way.name,
        title=way.title,
        codec=network.codec if network else "",
        elements=trial.model.size,
        metric=trial.model.metric,
        settings={} if way.codec is None else {"codec": way.codec},
        steps=tuple(steps),
        wall_seconds=time.perf_counter() - begun,
    )
    return done, network.frames if network else []


def collective(**arguments: Any) -> Summing:
    """The built-in switch with ``slots.p4``."""
    from innet.allreduce.collective import Collective  # noqa: PLC0415 - it brings Numba

    made: Summing = Collective(program="slots", **arguments)
    return made


def one_thread() -> AbstractContextManager[Any]:
    """Makes gradients independent of the number of cores, and so the whole training.

    It costs a tenth of the gradients' time on an idle machine of two cores and saves far more on a
    busy one, where the threads of so small products wait for each other.
    """
    # threadpoolctl comes with scikit-learn; it has no type hints.
    limits = importlib.import_module("threadpoolctl").threadpool_limits
    limited: AbstractContextManager[Any] = limits(limits=1)  # BLAS, and PyTorch's OpenMP
    return limited
