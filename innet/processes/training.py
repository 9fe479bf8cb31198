"""One worker of a training, as a process on a host of the network.

    python -m innet.processes.training worker0.toml

The file and ``--set NAME=VALUE`` fill ``TrainingWorkerSettings``. Each iteration prints one line of
JSON: {"report": ..., "loss": of this worker's batch, "score": of the model, from worker 0 after
each epoch}. For --wait and errors see ``innet.processes.allreduce``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from innet.allreduce.warm_up import warm_up
from innet.core.settings import Decay
from innet.experiments.models.model import Part, Vector, data_of, model_of
from innet.experiments.training import TrainingSchedule, one_thread, train_replica
from innet.processes.allreduce import check_files, main_of, take_turn
from innet.processes.outcomes import save
from innet.processes.session import worker_session
from innet.processes.settings import SessionSettings
from innet.records import Report


class TrainingWorkerSettings(SessionSettings):
    """One worker of a training.

    Attributes:
        model: a registered model's name.
        framework: of the gradients' computation; by default the model's.
        iterations: optimizer steps.
        batch_size: samples per worker and step.
        learning_rate: applies to the mean of the workers' gradients.
        momentum: of the optimizer; 0 for codecs with momentum.
        decay: of the learning rate.
        evaluate: the data of the score: the test set, or "validation", a held-out part of the
            training set.
        seed: of weights, batches, the codec's hashes and the faults.
    """

    model: str = "digits-cnn"
    framework: str | None = None
    iterations: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    learning_rate: Annotated[float, Field(gt=0)]
    momentum: Annotated[float, Field(ge=0, lt=1)]
    decay: Decay = "constant"
    evaluate: Part = "test"


def run(settings: TrainingWorkerSettings, *, wait: bool = False) -> Iterator[dict[str, Any]]:
    """Take part in the training; yields the messages to print.

    Args:
        settings: of this worker.
        wait: yield {"ready": True} first, and wait for a line of standard input before each
            all-reduce.

    Raises:
        InnetError: a setting is invalid, or the network failed.
    """
    check_files(settings.outcome)
    model = model_of(settings.model, settings.framework)
    data = data_of(model, settings.evaluate)
    layers = model.shapes
    schedule = TrainingSchedule(
        workers=settings.workers,
        iterations=settings.iterations,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        decay=settings.decay,
    )
    last: list[Report] = []
    what = (
        f"a training of {settings.model}, iterations {settings.iterations}, batch_size "
        f"{settings.batch_size}, learning_rate {settings.learning_rate}, momentum "
        f"{settings.momentum}, decay {settings.decay}, evaluate {settings.evaluate}"
    )
    with one_thread(), worker_session(settings, what, layers, coordinated=wait) as session:
        worker = session.worker(settings, layers)

        def reduce(gradient: Vector) -> tuple[Vector, Report]:
            total, report = take_turn(
                worker, functools.partial(worker.all_reduce, gradient), wait=wait, read=session.read
            )
            last[:] = [report]
            return total, report

        if wait:
            rng = np.random.default_rng(settings.seed)
            warm_up(settings.codec, rng.standard_normal(model.size, np.float32), layers)
            yield {"ready": True}
        steps = train_replica(
            schedule, model, data, reduce, seed=settings.seed, worker=settings.worker
        )
        for step in steps:
            if settings.outcome is not None and worker.outcome is not None:
                save(settings.outcome, worker.outcome)
            report = last[0].model_dump(mode="json")
            yield {"report": report, "loss": step.loss, "score": step.score}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status."""
    does = "One worker of a training: computes gradients of its shard, descends by their sum."
    return main_of("training", does, TrainingWorkerSettings, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
