"""Trainings: the steps of a run while it happens, and the record of runs that are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from innet.core.errors import InputError
from innet.records.record import Machine, Record
from innet.records.report import Fabric, Frozen, Report, Seconds

DEMO = "innet.demo"  # format of the demonstration's record
"""Format of the record of ``innet demo``."""
TRAIN = "innet.train"  # of the record of ``innet train``
"""Format of the record of ``innet train``."""


class Metric(Frozen):
    """The number that an evaluation yields.

    Attributes:
        name: for people: "accuracy", "perplexity".
        unit: "share" of one, which people read in per cent, or a plain "number".
        higher_is_better: whether more is better.
    """

    name: str
    unit: Literal["share", "number"] = "share"
    higher_is_better: bool = True

    @property
    def factor(self) -> float:
        """From the number to what people read: 100 for a share, in per cent."""
        return 100.0 if self.unit == "share" else 1.0


ACCURACY = Metric(name="accuracy")
"""The metric of classifiers."""
PERPLEXITY = Metric(name="perplexity", unit="number", higher_is_better=False)
"""The metric of language models; lower is better."""
HIT_RATE = Metric(name="hit rate at 10")
"""The metric of recommenders."""


class SimulatedTime(Frozen):
    """Simulated seconds of all iterations of a run on one network, by what they were spent on.

    Attributes:
        compute: gradients; the workers compute at the same time.
        encode: codec, float32 to words, of one worker.
        network: all-reduces.
        decode: codec, words to float32, of one worker.
        lost: packets that were lost on links.
        dropped: packets that found an egress queue full.
        retransmissions: packets sent again, all workers together.
        fabric: hosts, switches and links of the network; None in records of older versions.
    """

    compute: float = 0.0
    encode: float = 0.0
    network: float = 0.0
    decode: float = 0.0
    lost: int = 0
    dropped: int = 0
    retransmissions: int = 0
    fabric: Fabric | None = None

    @property
    def seconds(self) -> float:
        """All together: nothing overlaps."""
        return self.compute + self.encode + self.network + self.decode


class Step(Frozen):
    """One iteration of a training run.

    Attributes:
        iteration: counts from 1.
        loss: mean over the workers' batches, before the step.
        score: on the test set after the step, in the run's metric; None where not evaluated.
        exact: as in ``Report``, and so the fields below; None or 0 where nothing was sent.
        selected: elements that the workers' selectors chose, all workers together.
        union: coordinates that at least one worker chose.
        rounds: exchanges one after the other.
        packets_sent: by all workers, retransmissions included.
        packets_received: by all workers.
        switch_packets: packets that the switch processed.
        retransmissions: packets sent again, all workers together.
        bytes_sent: by the worker that sent most.
        bytes_dense: what one worker would have sent as dense float32.
        max_abs_error: largest difference from the float64 sum of the gradients.
        max_abs_error_sent: the same from the float64 sum of what the selectors sent.
        vnmse, vnmse_sent: squared errors by squares of these sums, as in ``Report``.
        scope: which workers were summed after the step: all of the "job", each "rack", or "none",
            as in local SGD.
        counted_bits: what the codec's paper counts for what all workers sent, by type of layer;
            empty where the paper counts no other than bytes on the wire.
        seconds: wall time.
        simulated_seconds: from the beginning of the training to the end of this step, by the name
            of the network.
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
    vnmse: float | None = None
    vnmse_sent: float | None = None
    scope: Literal["job", "rack", "none"] = "job"
    counted_bits: dict[str, int] = Field(default_factory=dict)
    seconds: Seconds | None = None
    simulated_seconds: dict[str, float] = Field(default_factory=dict)

    @classmethod
    def of(cls, iteration: int, loss: float, score: float | None, report: Report | None) -> Step:
        """The step of ``report``; None if the gradients were summed without a switch."""
        if report is None:
            return cls(iteration=iteration, loss=loss, score=score)
        shared = cls.model_fields.keys() & Report.model_fields.keys()
        taken = {name: getattr(report, name) for name in shared}
        return cls(iteration=iteration, loss=loss, score=score, **taken)


class Progress(Frozen):
    """An event for the watcher of a run: one more step, or a preparation.

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
"""A function that is called with each step's progress."""


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
        counted_elements: of all workers' gradients together, by type of layer, of the layers that
            the steps' ``counted_bits`` are of.
        wall_seconds: of the whole run, gradients, evaluation and simulated networks included.
        simulated: what the run takes in simulated time, by the name of the network.
    """

    name: str
    title: str
    codec: str = ""
    elements: int
    metric: Metric = ACCURACY
    settings: dict[str, Any] = Field(default_factory=dict)
    steps: tuple[Step, ...]
    counted_elements: dict[str, int] = Field(default_factory=dict)
    wall_seconds: float
    simulated: dict[str, SimulatedTime] = Field(default_factory=dict)

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
    def summed_steps(self) -> int:
        """Iterations with a sum over the network; in local SGD there are some without."""
        return sum(step.scope != "none" for step in self.steps)

    @property
    def compression(self) -> float:
        """As in ``Report``, over all steps."""
        sent = self.total("bytes_sent")
        return self.total("bytes_dense") / sent if sent else 1.0

    def counted_rates(self, steps: slice = slice(None)) -> dict[str, float]:
        """The compression as the codec's paper counts it, by type of layer.

        Args:
            steps: which steps; by default all.

        Returns:
            Bits of float32 over the counted bits, infinite where nothing was sent; empty where the
            paper counts no other than bytes on the wire.
        """
        chosen = [step for step in self.steps[steps] if step.scope == "job"]
        rates = {}
        for kind, elements in self.counted_elements.items():
            sent = sum(step.counted_bits.get(kind, 0) for step in chosen)
            rates[kind] = 32 * elements * len(chosen) / sent if sent else math.inf
        return rates

    def total(self, field: str) -> int:
        """Sum over the steps of one of their integer fields, such as "bytes_sent"."""
        return sum(int(getattr(step, field)) for step in self.steps)

    def total_seconds(self, field: str) -> float:
        """Sum over the steps of one of the fields of ``Seconds``; unknown counts as none."""
        return sum(
            getattr(step.seconds, field) or 0.0 for step in self.steps if step.seconds is not None
        )


class TrainingRecord(Record):
    """Trainings that are compared: those of the demonstration, or of ``innet train``.

    Attributes:
        settings: those that all runs share.
        runs: at least one, with unique names.
    """

    formats: ClassVar[tuple[str, ...]] = (DEMO, TRAIN)

    format: Literal["innet.demo", "innet.train"]
    runs: tuple[Run, ...]

    @field_validator("runs")
    @classmethod
    def _named(cls, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        names = [run.name for run in runs]
        if not names or len(set(names)) != len(names):
            raise ValueError("a record needs runs, each with a unique name")
        return runs

    @property
    def networks(self) -> tuple[str, ...]:
        """Networks on which some run has a simulated time, in order of appearance."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.simulated))

    def run(self, name: str) -> Run:
        """The run of that name.

        Raises:
            InputError: there is none.
        """
        for run in self.runs:
            if run.name == name:
                return run
        names = ", ".join(run.name for run in self.runs)
        raise InputError(f"the record has no run {name!r}; it has {names}.")


def merge(records: Sequence[TrainingRecord]) -> TrainingRecord:
    """One record with the runs of all, in order; settings that differ move into the runs.

    Raises:
        InputError: nothing to merge, or the records differ in format, in innet's version or in
            the machine, or have runs of the same name.
    """
    # Step 1: only what one machine and one version measured can be compared.
    if not records:
        raise InputError("there are no records to merge; give at least one.")
    first = records[0]
    for other in records[1:]:
        _check_mergeable(first, other)
    # Step 2: settings that all share stay those of the record, the others become those of runs. A
    # run's own setting counts more.
    shared = {
        key: value
        for key, value in first.settings.items()
        if all(key in each.settings and each.settings[key] == value for each in records)
    }
    runs = [
        run.model_copy(
            update={
                "settings": {k: v for k, v in each.settings.items() if k not in shared}
                | run.settings
            }
        )
        for each in records
        for run in each.runs
    ]
    # Step 3: tables and plots know runs by their names.
    names = [run.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"runs of the same name cannot be merged: {', '.join(twice)}.")
    return first.model_copy(
        update={
            "created": min(each.created for each in records),
            "settings": shared,
            "runs": tuple(runs),
        }
    )


def _check_mergeable(first: TrainingRecord, other: TrainingRecord) -> None:
    differing = [
        (f"machine.{name}", getattr(first.machine, name), getattr(other.machine, name))
        for name in Machine.model_fields
    ]
    differing += [
        (name, getattr(first, name), getattr(other, name)) for name in ("format", "innet")
    ]
    found = [f"{name} ({one!r} and {two!r})" for name, one, two in differing if one != two]
    if found:
        raise InputError(
            f"these records cannot be merged, they differ in {', '.join(found)}; "
            "run the experiments again on one machine with one version."
        )
