"""Comparison of codecs: a training for each codec and each seed.

All runs of one seed have the same initial parameters and the same batches as that seed's "plain"
run, which adds float32 gradients without a network. A ``Store`` keeps runs in a folder, so that
they are not repeated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from innet._version import __version__
from innet.codecs import ModelLayers, build_codec
from innet.core.errors import ConfigError, DivergedError, InputError
from innet.core.files import atomic_write
from innet.core.local_sgd import LocalSgd
from innet.core.settings import TrainSettings
from innet.experiments.models.model import Data, Model, data_of, model_of
from innet.experiments.simulated_time import described, networks_of
from innet.experiments.summing import MakeAllReducer, SumMethod, make_collective, sum_methods
from innet.experiments.training import (
    TrainingSchedule,
    Trial,
    one_thread,
    optimizer_rate,
    run_method,
    shards,
    steps_per_epoch,
)
from innet.records import TRAIN, Progress, Run, TrainingRecord, Watcher
from innet.records.units import plural
from innet.reports.outputs import Draw, Result, folder_for, record_of, saved
from innet.reports.tables import training_notes
from innet.sim.network import Network

RECORD, PLOT = "train.json", "train.png"  # file names in the output folder


def methods(settings: TrainSettings, layers: ModelLayers | None = None) -> list[SumMethod]:
    """``sum_methods`` of these settings, whose optimizer they fit.

    Args:
        settings: see ``TrainSettings``.
        layers: of the model.

    Raises:
        UnknownNameError, ConfigError, CompositionError: as ``sum_methods``.
    """
    found = sum_methods(settings.codecs, settings.baselines, seed=settings.seed, layers=layers)
    for method in found:
        if method.codec_momentum and settings.optimizer != "sgd":
            raise ConfigError(
                f"the codec {method.title} has the momentum of SGD, and cannot stand beside "
                f"the optimizer {settings.optimizer}; leave one of them out."
            )
    return found


def run(
    settings: TrainSettings,
    out_dir: str | Path | None,
    *,
    created: datetime,
    watch: Watcher | None = None,
    draw: Draw | None = None,
    make: MakeAllReducer | None = None,
) -> Result:
    """Train once for each method and seed, and write record and plot into ``out_dir``.

    Args:
        settings: see ``TrainSettings``.
        out_dir: created if it does not exist; files of an earlier training are replaced. None
            writes nothing.
        created: the time to put into the record, with a time zone.
        watch: called for each step and each preparation.
        draw: see ``outputs.saved``.
        make: makes the object that sums the gradients, from the keyword arguments of
            ``Collective``, which is the default.

    Raises:
        InputError: settings that do not fit the data, a folder or a file in it that cannot be
            written (found before anything is trained).
        DivergedError: a training diverged; says which. Those before it are in the record.
        KeyboardInterrupt: it was interrupted. A note of the exception says where finished runs are,
            as for any other error of a training, such as of a codec.
        UnknownNameError, ConfigError, CompositionError: as ``methods``, or the model, before
            anything is trained.
        MissingToolError: the framework or the data is not installed.
    """
    model = model_of(settings.model, settings.framework)
    compared = methods(settings, model.shapes)
    networks = networks_of(settings)
    settings = with_recipe(settings, model)
    data = data_of(model, settings.evaluate)
    per_epoch = iterations_per_epoch(settings, data)
    folder = None if out_dir is None else folder_for(out_dir, (RECORD, PLOT))
    runs: list[Run] = []
    about = {"title": model.title, "iterations_per_epoch": per_epoch, "chance": model.chance}
    about |= described(networks)

    def kept() -> Result:
        record = record_of(TRAIN, settings.model_dump(mode="json") | about, runs, created)
        if folder is None:
            return Result(record, None, None, training_notes(record))
        return saved(record, folder / RECORD, folder / PLOT, draw)

    try:
        with one_thread():
            for seed in range(settings.seed, settings.seed + settings.repeats):
                trial = make_trial(
                    settings,
                    model=model,
                    data=data,
                    seed=seed,
                    watch=watch,
                    make=make,
                    networks=networks,
                )
                for method in compared:
                    runs.append(_named(method, trial))  # noqa: PERF401 - kept where a later one fails
    except DivergedError as error:
        if not runs or folder is None:
            raise
        path = kept().record_path
        raise DivergedError(f"{error} What was trained before it is in {path}.") from None
    except (KeyboardInterrupt, Exception) as stop:  # a codec of somebody's own may raise anything
        if runs and folder is not None:
            stop.add_note(f"What was trained before is in {kept().record_path}.")
        raise
    return kept()


def _named(method: SumMethod, trial: Trial) -> Run:
    """``run_seed``; the error of a divergence names the method and the seed."""
    try:
        return run_seed(method, trial)
    except DivergedError as error:
        raise DivergedError(f"{method.title}, seed {trial.seed}: {error}") from None


def with_recipe(settings: TrainSettings, model: Model) -> TrainSettings:
    """The settings, completed by the model's recipe.

    Raises:
        UnknownNameError, ConfigError, MissingToolError: as ``optimizer_rate``.
    """
    recipe = model.recipe_for(settings.schedule)
    if settings.optimizer != "sgd":  # recipes are of SGD
        rate = optimizer_rate(settings.optimizer)
        recipe = replace(recipe, learning_rate=rate, momentum=0.0)
    return settings.model_copy(
        update={
            key: getattr(recipe, key)
            for key in ("batch_size", "learning_rate", "momentum", "epochs", "decay")
            if getattr(settings, key) is None
        }
    )


def iterations_per_epoch(settings: TrainSettings, data: Data) -> int:
    """Iterations of an epoch, from completed settings; InputError if a batch does not fit."""
    assert settings.batch_size is not None
    return steps_per_epoch(shards(data.train, settings.workers), settings.batch_size)


def make_trial(
    settings: TrainSettings,
    *,
    model: Model,
    data: Data,
    seed: int,
    watch: Watcher | None = None,
    make: MakeAllReducer | None = None,
    networks: Mapping[str, Network] | None = None,
) -> Trial:
    """What the runs of one seed share, from completed settings."""
    assert settings.epochs is not None
    assert settings.batch_size is not None
    assert settings.learning_rate is not None
    assert settings.momentum is not None
    assert settings.decay is not None
    return Trial(
        settings=settings,
        schedule=TrainingSchedule(
            workers=settings.workers,
            iterations=settings.epochs * iterations_per_epoch(settings, data),
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            decay=settings.decay,
            optimizer=settings.optimizer,
            local_sgd=None if settings.local_sgd is None else LocalSgd.parse(settings.local_sgd),
        ),
        seed=seed,
        model=model,
        data=data,
        make=make or make_collective,
        watch=watch or (lambda _: None),
        networks=networks or {},
    )


def run_seed(method: SumMethod, trial: Trial) -> Run:
    """One run. Its name has the seed, as a record may hold several."""
    named = SumMethod(
        f"{method.name}-seed-{trial.seed}",
        f"{method.title}, seed {trial.seed}",
        method.codec,
        method.codec_momentum,
        method.baseline,
    )
    done, _ = run_method(named, trial)
    kept = {**done.settings, "method": method.title, "seed": trial.seed}
    return done.model_copy(update={"settings": kept})


# ----------------------------------------------------------------------------
# Runs that are kept in a folder.

_DIGITS = 10  # of the digest: enough for one folder


class Store:
    """A folder of runs, each a separate record. It is created when the first run is kept.

    Interrupted work continues where it was, and claims of several codecs share the runs with plain
    sums. The key of a run is the model, the settings, the codec's full description, the seed and
    innet's version. After a change of the code, start with an empty folder.

    Args:
        folder: where the records are; None keeps nothing.
        watch: called for each step of a run that is not in the folder.
    """

    def __init__(self, folder: Path | None, watch: Watcher | None = None) -> None:
        self.folder = folder
        self._watch = watch
        self._loaded: dict[str, tuple[Model, Data]] = {}
        self._told = 0  # runs that the watcher was called for

    def run(
        self, settings: TrainSettings, method: SumMethod, seed: int, steps: int | None = None
    ) -> TrainingRecord:
        """The record of one run, from the folder or made now.

        Args:
            settings: of the training; codecs, seed and repeats are ignored.
            method: how gradients are summed.
            seed: of parameters, batches and hashes.
            steps: the most steps; None for all steps of the epochs.

        Raises:
            DivergedError: the training diverged, now or when it was tried before.
            InputError: as ``comparison.run``; a file in the folder is not a record; or the folder
                cannot be written, which is found before anything is trained.
            MissingToolError: as ``comparison.run``.
        """
        model, data = self._model(settings)
        settings = with_recipe(settings, model)
        path = self.path(settings, method, seed, steps)
        if path is not None and path.exists():
            return _kept(path)
        failure = None if path is None else path.with_suffix(".diverged")
        if failure is not None and failure.exists():
            raise DivergedError(failure.read_text(encoding="utf-8").strip())
        if path is not None:
            folder_for(path.parent, (path.name,))
        watch = self._named(model, settings.workers)
        trial = make_trial(settings, model=model, data=data, seed=seed, watch=watch)
        if steps is not None:
            few = min(steps, trial.schedule.iterations)
            trial = replace(trial, schedule=replace(trial.schedule, iterations=few))
        created = datetime.now(UTC)
        try:
            with one_thread():
                done = run_seed(method, trial)
        except DivergedError as error:
            if failure is not None:
                with atomic_write(failure) as temporary:
                    temporary.write_text(f"{error}\n", encoding="utf-8")
            raise
        about = settings.model_dump(mode="json", exclude={"codecs", "seed", "repeats"})
        about |= {
            "title": model.title,
            "iterations_per_epoch": iterations_per_epoch(settings, data),
        }
        record = record_of(TRAIN, about, [done], created)
        if path is not None:
            record.save(path)
        return record

    def _named(self, model: Model, workers: int) -> Watcher | None:
        """A watcher whose events also name model and workers, so that runs differ."""
        watch = self._watch
        if watch is None:
            return None

        self._told += 1
        number, about = self._told, f"{model.name}, {plural(workers, 'worker')}"

        def tell(event: Progress) -> None:
            run, title = f"{number}-{event.run}", f"{about}, {event.title}"
            watch(event.model_copy(update={"run": run, "title": title}))

        return tell

    def path(
        self, settings: TrainSettings, method: SumMethod, seed: int, steps: int | None = None
    ) -> Path | None:
        """The path of a run; None if no runs are kept."""
        if self.folder is None:
            return None
        model, _ = self._model(settings)
        asked = with_recipe(settings, model).model_dump(
            mode="json", exclude={"codecs", "seed", "repeats"}
        )
        codec = None
        if method.codec is not None:
            codec = build_codec(method.codec, layers=model.shapes).spec
        # A training as it was before there were schedules is known as it was.
        if asked.pop("schedule") == "short" and asked["decay"] == "constant":
            del asked["decay"]
        if asked["results"] is None:  # likewise, before there were results in another format
            del asked["results"]
        if asked["local_sgd"] is None:  # likewise, before there was local SGD
            for name in ("local_sgd", "racks", "rack_codec"):
                del asked[name]
        for name, usual in (("optimizer", "sgd"), ("straggler", "none"), ("pauses", [])):
            if asked[name] == usual:  # likewise, before there were these
                del asked[name]
        key = [asked, codec, method.codec_momentum, seed, steps, __version__]
        text = json.dumps(key, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
        preset = method.name.partition("(")[0].partition(" ")[0]
        return self.folder / f"{model.name}-{settings.workers}-{preset}-{seed}-{digest}.json"

    def _model(self, settings: TrainSettings) -> tuple[Model, Data]:
        if settings.model not in self._loaded:
            model = model_of(settings.model, settings.framework)
            self._loaded[settings.model] = model, data_of(model, settings.evaluate)
        return self._loaded[settings.model]


def _kept(path: Path) -> TrainingRecord:
    try:
        return TrainingRecord.load(path, TRAIN)
    except InputError as error:
        raise InputError(f"{error} Remove this file, and the run is made again.") from None
