"""One training run, step by step, while it happens and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, field_validator, model_validator

from innet.records.machine import ACCURACY, Metric
from innet.records.report import Frozen, Report, Seconds


class Step(Frozen):
    """One iteration of a training run.

    Attributes:
        iteration: counts from 1.
        loss: mean over the workers' batches, before the step.
        score: on the test set after the step, in the run's metric; None where not evaluated.
        exact: as in ``Report``, and so the fields that follow; None or 0 where nothing was sent.
    """

    iteration: int
    loss: float
    score: float | None = None
    exact: bool | None = None
    selected: int = 0
    union: int = 0
    rounds: int = 0
    packets_sent: int = 0
    packets_received: int = 0
    switch_packets: int = 0
    retransmissions: int = 0
    bytes_sent: int = 0
    bytes_dense: int = 0
    max_abs_error: float | None = None
    max_abs_error_sent: float | None = None
    seconds: Seconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_version_1(cls, data: object) -> object:
        """Records of version 1 knew accuracies only."""
        if isinstance(data, dict) and "accuracy" in data:
            data = {**data, "score": data["accuracy"]}
            del data["accuracy"]
        return data

    @classmethod
    def of(cls, iteration: int, loss: float, score: float | None, report: Report | None) -> Step:
        """The step whose gradients ``report`` tells of; None: they were summed on the spot."""
        if report is None:
            return cls(iteration=iteration, loss=loss, score=score)
        shared = cls.model_fields.keys() & Report.model_fields.keys()
        taken = {name: getattr(report, name) for name in shared}
        return cls(iteration=iteration, loss=loss, score=score, **taken)


class Progress(Frozen):
    """An event for whoever watches a run: one more step, or something that is being prepared.

    Attributes:
        run: the run's key in the record.
        title: its name for people.
        iterations: how many steps the run will take.
        step: the step just made; None while the run is prepared.
        note: what is being prepared.
        metric: what the step's score is.
    """

    run: str
    title: str
    iterations: int
    step: Step | None = None
    note: str = ""
    metric: Metric = ACCURACY


Watcher = Callable[[Progress], None]


class Run(Frozen):
    """All steps of one run.

    Attributes:
        name: key, unique in its record: "plain", "dense", "topk".
        title: the same for people.
        codec: description of the codec; "" where none was used.
        elements: of the gradient.
        metric: what the steps' scores are.
        settings: those of this run alone.
        steps: one for each iteration, in order.
        wall_seconds: of the whole run, gradients and evaluation included.
    """

    name: str
    title: str
    codec: str = ""
    elements: int
    metric: Metric = ACCURACY
    settings: dict[str, Any] = Field(default_factory=dict)
    steps: tuple[Step, ...]
    wall_seconds: float

    @field_validator("steps")
    @classmethod
    def _in_order(cls, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        if not steps:
            raise ValueError("a run has at least one step")
        if [step.iteration for step in steps] != list(range(1, len(steps) + 1)):
            raise ValueError("iterations must count from 1 without a gap")
        return steps

    @property
    def summed_by_network(self) -> bool:
        """Whether the gradients went through packets."""
        return any(step.packets_sent for step in self.steps)

    @property
    def final_score(self) -> float | None:
        """The last score that was evaluated."""
        known = [step.score for step in self.steps if step.score is not None]
        return known[-1] if known else None

    @property
    def exact_steps(self) -> int:
        """Iterations in which the decoded integer sum equalled the oracle's."""
        return sum(step.exact is True for step in self.steps)

    @property
    def compression(self) -> float:
        """As in ``Report``, over all steps."""
        sent = self.total("bytes_sent")
        return self.total("bytes_dense") / sent if sent else 1.0

    def total(self, field: str) -> int:
        """Sum over the steps of one of their integer fields, such as "bytes_sent"."""
        return sum(int(getattr(step, field)) for step in self.steps)

    def total_seconds(self, field: str) -> float:
        """Sum over the steps of one of the fields of ``Seconds``; unknown counts as none."""
        return sum(
            getattr(step.seconds, field) or 0.0 for step in self.steps if step.seconds is not None
        )
