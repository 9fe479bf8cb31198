"""A training script of one's own with emulated workers: ``innet.EmulatedTraining``.

The script keeps its model, its optimizer and its loop. Workers, codecs, networks and what they take
in simulated time are here; a step's sum, its time and the record are those of ``innet train``
(``summing.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from innet.codecs.build import descriptions, normalize, scheduled_settings
from innet.core.errors import ConfigError, DivergedError, InputError, StateError
from innet.core.settings import CodecDescription, EmulationSettings, validate
from innet.experiments.simulated_time import described, networks_of
from innet.experiments.summing import Shapes, SummedRun, SumMethod, sum_methods
from innet.records import ACCURACY, TRAIN, Metric, Run, Step, TrainingRecord
from innet.records.units import duration, plural
from innet.reports.console import TableConsole
from innet.reports.outputs import folder_for, record_of, saved
from innet.reports.registry import draw, table_of
from innet.sim.network import Network
from innet.torch.emulated_workers import EmulatedWorkers, LossOf, WorkerBatches, seed_all, split

if TYPE_CHECKING:
    from innet.torch.tensors import torch

__all__ = ["EmulatedRun", "EmulatedTraining"]

RECORD, PLOT = "emulation.json", "emulation.png"  # file names in the output folder
_SAME_LOSS = 1e-3  # of itself; kernels of a GPU may add in another order each time


class EmulatedTraining:
    """A training, once with plain float32 sums and once with each codec, for each of some seeds.

    It is iterated over. Each turn of the loop is a whole training, from fresh parameters on:

        emulation = innet.EmulatedTraining(workers=16, codecs=["dense", "topk"], networks="25g")
        for run in emulation:
            model = Net()
            optimizer = torch.optim.AdamW(model.parameters())
            run.attach(model, optimizer)
            for inputs, targets in loader:
                optimizer.zero_grad()
                run.backward(lambda x, y: loss_of(model(x), y), inputs, targets)
                optimizer.step()
            run.score(accuracy(model))
        emulation.report("innet-out")

    Before each turn the generators of Python, NumPy and PyTorch are seeded with ``run.seed``. So
    what the turn makes (parameters, batches, dropout) is the same for all codecs of a seed. A turn
    that attaches no model is skipped: ``if run.codec is None: continue`` leaves plain sums out.

    Args:
        workers: into how many parts a batch is divided, at least 1.
        codecs: names of codecs, or mappings of their parts; a single one, too.
        networks: presets ("1g" to "400g"), with settings as in "25g:delay=2e-6", or TOML files; a
            single one, too. () for no simulated time.
        seeds: number of seeds, from ``seed`` on.
        metric: what ``EmulatedRun.score`` is given: shares from 0 to 1 by default.
        title: of table and figure; by default the class of the model.
        **settings: the other fields of ``innet.core.settings.EmulationSettings``: ``compute``
            (seconds of a worker for a gradient), ``straggler``, ``pauses``, ``encode_time`` and
            ``decode_time`` (seconds of an element), ``codec_times``, ``baselines``, ``window``,
            ``values_per_packet``, ``seed``.

    Raises:
        ConfigError, UnknownNameError, InputError: a setting that does not exist or has no such
            value.
    """

    def __init__(
        self,
        workers: int = 4,
        codecs: CodecDescription | Sequence[CodecDescription] = ("dense", "topk"),
        networks: str | Sequence[str] = "100g",
        *,
        seeds: int = 1,
        metric: Metric = ACCURACY,
        title: str = "",
        **settings: Any,
    ) -> None:
        given: Any = codecs
        many = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
        if classes := [each.__name__ for each in many if isinstance(each, type)]:
            raise ConfigError(
                f"the codec {classes[0]} is a class; give it a name, such as "
                f"innet.codecs.SELECTORS.register('mine', {classes[0]}), and name it in a codec: "
                "'topk:selector=mine'."
            )
        asked = {
            "workers": workers,
            "codecs": many,
            "networks": (networks,) if isinstance(networks, str) else networks,
            "seeds": seeds,
            **settings,
        }
        if not isinstance(metric, Metric):
            raise ConfigError(
                f"metric = {metric!r:.60} cannot be used; allowed is an innet.records.Metric, such "
                "as innet.records.ACCURACY or PERPLEXITY."
            )
        checked = validate(EmulationSettings, asked, "EmulatedTraining()")
        for codec in checked.codecs:  # as far as possible without the model's layers
            for each in descriptions(codec):
                scheduled_settings(normalize(each))
        self._shared = _Shared(checked, networks_of(checked), metric, title)
        self._runs: list[Run] = []
        self._left_out: list[str] = []
        self._created = datetime.now(UTC)

    def __iter__(self) -> Iterator[EmulatedRun]:
        shared, settings = self._shared, self._shared.settings
        self._runs, self._left_out, self._created = [], [], datetime.now(UTC)
        shared.beginnings.clear()
        ways = ["plain float32", *settings.codecs, *settings.baselines]
        for seed in range(settings.seed, settings.seed + settings.seeds):
            for position, way in enumerate(ways):
                seed_all(seed)
                run = EmulatedRun(shared, position, seed, way)
                yield run
                if run.diverged:
                    self._left_out.append(f"{run.title}, seed {seed}, diverged and is left out.")
                elif run.attached:
                    self._runs.append(run.done())

    @property
    def record(self) -> TrainingRecord:
        """The runs that are complete, as ``innet train`` records its runs.

        Raises:
            InputError: no run is complete, or the runs of one codec have different numbers of
                iterations, or scores at different iterations.
        """
        if not self._runs:
            raise InputError(
                "no run is complete yet; iterate over the EmulatedTraining, and train in each turn."
            )
        first: dict[str, Run] = {}
        for run in self._runs:
            before = first.setdefault(run.settings["method"], run)
            if (len(run.steps), _scored(run)) != (len(before.steps), _scored(before)):
                raise InputError(
                    f"{run.title}, has {plural(len(run.steps), 'iteration')} and "
                    f"{plural(len(_scored(run)), 'score')}, but {before.title}, "
                    f"{len(before.steps)} and {len(_scored(before))}, or at other iterations; "
                    "train and score all seeds of a codec alike, so that they have a mean."
                )
        settings, shared = self._shared.settings, self._shared
        scored = _scored(self._runs[-1])
        about = settings.model_dump(mode="json") | described(shared.networks)
        about |= {
            "title": shared.title,
            "iterations": len(self._runs[-1].steps),
            "iterations_per_epoch": int(np.diff([0, *scored])[-1]) if scored else 1,
        }
        return record_of(TRAIN, about, self._runs, self._created)

    @property
    def notes(self) -> tuple[str, ...]:
        """What one should know of the runs: those left out, and seeds that do not differ."""
        seeds = self._shared.beginnings
        alike = len(seeds) > 1 and len(set(seeds.values())) == 1
        note = (
            "All seeds begin with the same parameters and the same first loss. If that is not "
            "intended, leave torch.manual_seed out of the loop, or give it run.seed."
        )
        return (*self._left_out, *[note] * alike)

    def report(self, out_dir: str | Path | None = None) -> TrainingRecord:
        """Print the tables, and write the record and its plot.

        Args:
            out_dir: folder for ``emulation.json`` and, where matplotlib is installed,
                ``emulation.png``; None writes nothing.

        Raises:
            InputError: as ``record``.
            OutputError: a file cannot be written.
        """
        record, out = self.record, TableConsole()
        out.print(table_of(record))
        notes = self.notes
        if out_dir is not None:
            folder = folder_for(out_dir, (RECORD, PLOT))
            result = saved(record, folder / RECORD, folder / PLOT, draw)
            notes += result.notes
            for path in (result.record_path, result.plot_path):
                if path is not None:
                    out.print(f"written: {path}", highlight=False, soft_wrap=True)
        for note in notes:
            out.print(note, markup=False, highlight=False, soft_wrap=True)
        return record


def _scored(run: Run) -> list[int]:
    """Iterations with a score."""
    return [step.iteration for step in run.steps if step.score is not None]


@dataclass(slots=True)
class _Shared:
    """What the runs of an emulation have in common.

    Attributes:
        settings: of all.
        networks: by name.
        metric: of the scores.
        title: of the record; empty until a model is attached, if none was given.
        beginnings: digest of the first parameters and the first loss, by seed.
    """

    settings: EmulationSettings
    networks: Mapping[str, Network]
    metric: Metric
    title: str
    beginnings: dict[int, tuple[bytes, float | None]] = field(default_factory=dict)

    def method(self, position: int, shapes: Shapes) -> SumMethod:
        """How a run sums. All codecs are checked, so that a mistake is found in the first run."""
        settings = self.settings
        return sum_methods(settings.codecs, settings.baselines, seed=settings.seed, layers=shapes)[
            position
        ]


class EmulatedRun:
    """One training of an ``EmulatedTraining``: one codec, one seed.

    Attributes:
        title: the codec's name, or "plain float32".
        codec: the codec as it was given; None for plain sums and baselines.
        seed: with which the generators were seeded.
        diverged: whether a loss or a score was not finite.
    """

    def __init__(self, shared: _Shared, position: int, seed: int, way: CodecDescription) -> None:
        codecs = shared.settings.codecs
        self.title = way if isinstance(way, str) else str(way.get("preset", way))
        self.codec = codecs[position - 1] if 1 <= position <= len(codecs) else None
        self.seed = seed
        self.diverged = False
        self._shared, self._position = shared, position
        self._parts: tuple[EmulatedWorkers, SummedRun] | None = None
        self._digest = b""
        self._losses: list[float] = []  # of this iteration so far
        self._not_finite = ""  # what came before a loss that is not finite

    def __str__(self) -> str:
        at = "".join(f", {duration(self.seconds)} on {name}" for name in self._names[:1])
        return f"{self.title}, seed {self.seed}, iteration {self.iteration}{at}"

    @property
    def _names(self) -> list[str]:
        return list(self._shared.networks)

    def attach(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None
    ) -> None:
        """Let the workers train a model; call it once, before the first ``backward``.

        The parameters that require a gradient now are those whose gradients are summed.

        Args:
            model: fresh, made in this turn of the loop.
            optimizer: of the model. A codec with momentum (``dgc``, ``sketched-sgd``) needs it: it
                must be SGD, and its momentum becomes 0, as the codec has the momentum.

        Raises:
            InputError: a model or an optimizer that cannot be used, or that is not as it was in
                another run of this seed.
            UnknownNameError, ConfigError, CompositionError: a codec that cannot be built.
        """
        if self._parts is not None:
            raise StateError("this run has its model already; attach one model in each turn.")
        shared, settings = self._shared, self._shared.settings
        workers = EmulatedWorkers(model, settings.workers)
        method = shared.method(self._position, workers.shapes)
        self.title = method.codec if isinstance(method.codec, str) else method.title
        if optimizer is not None:
            workers.check_optimizer(optimizer)
        if method.codec_momentum:
            workers.take_momentum(optimizer, self.title)
        self._digest = workers.digest()
        if shared.beginnings.get(self.seed, (self._digest, None))[0] != self._digest:
            raise InputError(
                f"the model of {self.title}, seed {self.seed}, begins with other parameters than "
                "that of plain float32; make the model inside of the loop over the emulation, "
                "where random numbers are the same for all codecs of a seed."
            )
        shared.title = shared.title or type(model).__name__
        named = SumMethod(
            f"{method.name}-seed-{self.seed}",
            f"{self.title}, seed {self.seed}",
            method.codec,
            method.codec_momentum,
            method.baseline,
        )
        summed = SummedRun(
            named,
            settings,
            workers.shapes,
            metric=shared.metric,
            seed=self.seed,
            networks=shared.networks,
        )
        self._parts = workers, summed

    def backward(
        self,
        loss_of: LossOf,
        *batch: Any,
        batches: Sequence[Any] | None = None,
        scaler: Any = None,
        synchronize: bool = True,
    ) -> torch.Tensor:
        """Compute each worker's gradient, sum them, and add their mean to the parameters' ``grad``.

        It takes the place of ``loss.backward()``. ``optimizer.zero_grad()`` and ``step()``,
        clipping and schedules stay as they are.

        Args:
            loss_of: is called once for each worker, with its part of ``batch``; returns the mean
                loss of its samples, a tensor of one element.
            *batch: the whole batch. Tensors are divided in their first dimension, see
                ``innet.torch.emulated_workers.split``.
            batches: instead of ``batch`` the arguments of each worker: a list of as many tuples as
                there are workers. Each worker's loss counts the same then.
            scaler: a ``torch.amp.GradScaler``. Codecs get unscaled gradients.
            synchronize: False keeps each worker's gradient for the next call, which adds its own:
                accumulation, with one sum for several batches.

        Returns:
            The mean loss of the batch, detached, of shape ().

        Raises:
            InputError: a batch that cannot be divided, or no loss; or the batches are not those of
                another run of this seed.
            StateError: no model is attached, parameters were unfrozen since, or a schedule gave
                the optimizer momentum again that a codec has.
            DivergedError: the loss is not finite. The run is left out of the record.
        """
        workers, _ = self._attached()
        if not callable(loss_of):
            raise InputError(
                f"backward got a {type(loss_of).__name__}; expected is a function of a worker's "
                "part of the batch, such as lambda x, y: loss_of(model(x), y), and then the batch."
            )
        count = self._shared.settings.workers
        parts = split(batch, count) if batches is None else _given(batches, count, batch)
        loss = workers.accumulate(loss_of, parts, scaler)
        self._losses.append(loss.item())
        self._check_finite(self._losses[-1], "loss", self.iteration + 1)
        if synchronize:
            self._sum(scaler)
        return loss

    def _sum(self, scaler: Any) -> None:
        """Sum what the workers have accumulated; the iteration ends."""
        workers, summed = self._attached()
        loss, passes = math.fsum(self._losses) / len(self._losses), len(self._losses)
        self._losses.clear()
        if not summed.steps:
            self._check_beginning(loss)
        gradients = workers.take()
        wrong = workers.not_finite()
        if wrong is None:
            total, report = summed.reduce(gradients)
            mean = total / np.float32(len(gradients))
            step = Step.of(self.iteration + 1, loss, None, report)
            self._not_finite = ""
        else:  # as in the hooks for PyTorch: all get NaN, and no codec remembers anything of it
            mean = np.full(gradients[0].size, np.nan, np.float32)
            step = Step(iteration=self.iteration + 1, loss=loss, scope="none")
            self._not_finite = (
                f" The gradient of worker {wrong} was not finite in iteration {step.iteration}."
            )
        workers.give(mean, scaler)
        summed.add(step, passes)

    def _check_beginning(self, loss: float) -> None:
        """Refuse batches that are not those of the seed's first run."""
        _, before = self._shared.beginnings.setdefault(self.seed, (self._digest, loss))
        if before is not None and not math.isclose(loss, before, rel_tol=_SAME_LOSS):
            raise InputError(
                f"the first loss of {self.title}, seed {self.seed}, is {loss:.6g}, but that of "
                f"plain float32 {before:.6g}: they see other batches. Make what shuffles them (a "
                "DataLoader with a generator, say) inside of the loop over the emulation."
            )

    def score(self, value: Any) -> None:
        """Record a score for the iterations until now, measured by the script.

        Args:
            value: a number, or a tensor of one; in the emulation's metric, accuracy by default.

        Raises:
            InputError: not a number, or a share that is not from 0 to 1.
            StateError: no iteration yet, or gradients wait for their sum.
            DivergedError: it is not finite.
        """
        _, summed = self._attached()
        metric = self._shared.metric
        if self._losses or not summed.steps:
            raise StateError("a score is that of an iteration; call backward before.")
        try:
            number = float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError):
            raise InputError(f"the {metric.name} is {value!r:.60}; expected is a number.") from None
        self._check_finite(number, metric.name, self.iteration)
        if metric.unit == "share" and not 0 <= number <= 1:
            raise InputError(
                f"the {metric.name} is {number:g}; expected is a share from 0 to 1. Give "
                "EmulatedTraining another metric, such as innet.records.PERPLEXITY, if it is none."
            )
        summed.score(number)

    @property
    def attached(self) -> bool:
        """Whether it has a model; a run without is left out of the record."""
        return self._parts is not None

    @property
    def iteration(self) -> int:
        """Sums so far."""
        return 0 if self._parts is None else len(self._parts[1].steps)

    @property
    def simulated_seconds(self) -> dict[str, float]:
        """Simulated seconds from the beginning until now, by network."""
        if self._parts is None or not self._parts[1].steps:
            return dict.fromkeys(self._names, 0.0)
        return dict(self._parts[1].steps[-1].simulated_seconds)

    @property
    def seconds(self) -> float:
        """Simulated seconds on the first network.

        Raises:
            StateError: the emulation has no network.
        """
        if not self._names:
            raise StateError("without networks there is no simulated time; give networks='25g'.")
        return self.simulated_seconds[self._names[0]]

    def done(self) -> Run:
        """The run for the record.

        Raises:
            StateError: it has no iteration, or gradients wait for their sum.
        """
        _, summed = self._attached()
        if self._losses:
            raise StateError(
                f"{self.title}, seed {self.seed}: its last {plural(len(self._losses), 'gradient')} "
                "of each worker wait for a sum; leave synchronize=False out in the last call."
            )
        if not summed.steps:
            raise StateError(
                f"{self.title}, seed {self.seed}, has no iteration; call run.backward(...) in "
                "place of loss.backward()."
            )
        run = summed.done()
        kept = {**run.settings, "method": self.title, "seed": self.seed}
        return run.model_copy(update={"settings": kept})

    def _attached(self) -> tuple[EmulatedWorkers, SummedRun]:
        if self._parts is None:
            raise StateError("no model is attached; call run.attach(model, optimizer) first.")
        return self._parts

    def _check_finite(self, number: float, what: str, iteration: int) -> None:
        if not math.isfinite(number):
            self.diverged = True
            raise DivergedError(
                f"{self.title}, seed {self.seed}: the training diverged: the {what} of iteration "
                f"{iteration} is {number}.{self._not_finite} Choose a smaller learning rate, or "
                "leave this run out by `except DivergedError: continue`."
            )


def _given(batches: Sequence[Any], workers: int, batch: tuple[Any, ...]) -> WorkerBatches:
    """The workers' own batches."""
    if batch:
        raise InputError("a batch and batches are given; leave one of them out.")
    if len(batches) != workers:
        raise InputError(f"{len(batches)} batches for {plural(workers, 'worker')}; give one each.")
    arguments = [each if isinstance(each, tuple) else (each,) for each in batches]
    return WorkerBatches(list(arguments), [1.0] * workers)
