"""Trainings that are kept: each run a record of its own, found again by what it was asked for.

So work that was stopped goes on where it was, and the claims of several codecs share the trainings
with plain sums. A run is found by the model, the settings, the codec's full description, the seed
and innet's version; whoever changes the code beneath should start with an empty folder.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from innet import __version__
from innet.codecs import build_codec
from innet.core.errors import DivergedError, InputError
from innet.core.files import whole
from innet.core.settings import TrainSettings
from innet.experiments.comparison import completed, epoch_of, run_of_seed, trial_of
from innet.experiments.models.model import Model, data_of, model_of
from innet.experiments.outputs import folder_for, record_of
from innet.experiments.runs import Way, one_thread
from innet.experiments.samples import Data
from innet.records import TRAIN, ExperimentRecord, Progress, Watcher

_DIGITS = 10  # of the digest: enough for one folder


class Store:
    """A folder of runs, made when the first one is kept; None keeps nothing.

    Args:
        folder: where the records lie.
        watch: called for each step of a run that is not there yet.
    """

    def __init__(self, folder: Path | None, watch: Watcher | None = None) -> None:
        self.folder = folder
        self._watch = watch
        self._loaded: dict[str, tuple[Model, Data]] = {}

    def run(
        self, settings: TrainSettings, way: Way, seed: int, steps: int | None = None
    ) -> ExperimentRecord:
        """The record of one run, from the folder or made now.

        Args:
            settings: of the training; codecs, seed and repeats do not matter.
            way: how gradients are summed.
            seed: of parameters, batches and hashes.
            steps: at most so many; None: as the epochs say.

        Raises:
            DivergedError: the training diverged, now or when it was tried before.
            InputError: as ``comparison.run``; what is in the folder is no record; or nothing can be
                kept there, found before anything is trained.
            MissingToolError: as ``comparison.run``.
        """
        model, data = self._model(settings)
        settings = completed(settings, model)
        path = self.path(settings, way, seed, steps)
        if path is not None and path.exists():
            return _kept(path)
        failure = None if path is None else path.with_suffix(".diverged")
        if failure is not None and failure.exists():
            raise DivergedError(failure.read_text(encoding="utf-8").strip())
        if path is not None:
            folder_for(path.parent, (path.name,))
        watch = self._named(model)
        trial = trial_of(settings, model=model, data=data, seed=seed, watch=watch)
        if steps is not None:
            few = min(steps, trial.schedule.iterations)
            trial = replace(trial, schedule=replace(trial.schedule, iterations=few))
        created = datetime.now(UTC)
        try:
            with one_thread():
                done = run_of_seed(way, trial)
        except DivergedError as error:
            if failure is not None:
                with whole(failure) as place:
                    place.write_text(f"{error}\n", encoding="utf-8")
            raise
        about = settings.model_dump(mode="json", exclude={"codecs", "seed", "repeats"})
        about |= {"title": model.title, "iterations_per_epoch": epoch_of(settings, data)}
        record = record_of(TRAIN, about, [done], created)
        if path is not None:
            record.save(path)
        return record

    def _named(self, model: Model) -> Watcher | None:
        """The watcher, told of the model too: it must not take one's run for another's."""
        watch = self._watch
        if watch is None:
            return None

        def tell(event: Progress) -> None:
            run, title = f"{model.name}-{event.run}", f"{model.name}, {event.title}"
            watch(event.model_copy(update={"run": run, "title": title}))

        return tell

    def path(
        self, settings: TrainSettings, way: Way, seed: int, steps: int | None = None
    ) -> Path | None:
        """Where a run is kept; None where none are."""
        if self.folder is None:
            return None
        model, _ = self._model(settings)
        asked = completed(settings, model).model_dump(
            mode="json", exclude={"codecs", "seed", "repeats"}
        )
        codec = None
        if way.codec is not None:
            codec = build_codec(way.codec, layers=tuple(model.shapes.values())).spec
        key = [asked, codec, way.own_momentum, seed, steps, __version__]
        text = json.dumps(key, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        preset = way.name.partition("(")[0].partition(" ")[0]
        return self.folder / f"{model.name}-{settings.workers}-{preset}-{seed}-{digest}.json"

    def _model(self, settings: TrainSettings) -> tuple[Model, Data]:
        if settings.model not in self._loaded:
            model = model_of(settings.model, settings.framework)
            self._loaded[settings.model] = model, data_of(model, settings.evaluate)
        return self._loaded[settings.model]


def _kept(path: Path) -> ExperimentRecord:
    try:
        return ExperimentRecord.load(path, TRAIN)
    except InputError as error:
        raise InputError(f"{error} Remove this file, and the run is made again.") from None
