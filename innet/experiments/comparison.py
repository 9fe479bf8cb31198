"""Codecs beside each other: a training for each, and for each of several seeds.

All runs of one seed start from the same parameters and see the same batches in the same order as
that seed's "plain" run, which sums float32 on the spot.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from innet.codecs import ModelLayers, build_codec
from innet.core.errors import ConfigError, DivergedError
from innet.core.settings import CodecDescription, TrainSettings
from innet.experiments.models.model import Model, data_of, model_of
from innet.experiments.outputs import Draw, Result, folder_for, record_of, saved
from innet.experiments.runs import MakeSumming, Trial, Way, collective, one_run, one_thread
from innet.experiments.samples import Data, shards, steps_per_epoch
from innet.experiments.training import Schedule
from innet.records import TRAIN, Run, Watcher

RECORD, PLOT = "train.json", "train.png"  # file names in the output folder


def ways(settings: TrainSettings, layers: ModelLayers | None = None) -> list[Way]:
    """Plain sums, then each codec under its preset's name, or its description where it has none.

    Args:
        settings: see ``TrainSettings``.
        layers: of the model; codecs with parameters for each layer cannot be built without.

    Raises:
        UnknownNameError, ConfigError, CompositionError: a codec that cannot be built, or is given
            twice.
    """
    found = [Way("plain", "plain float32", None)]
    specs: list[object] = []
    presets = [_name(description) for description in settings.codecs]
    for description in settings.codecs:
        built = build_codec(description, seed=settings.seed, layers=layers)
        if built.spec in specs:
            raise ConfigError(f"the codec {built.describe()} is given twice; give each once.")
        specs.append(built.spec)
        name = _name(description)
        only = presets.count(name) == 1 or description in (name, {"preset": name})
        if not (name and only):
            name = built.describe()  # no preset's name, or one preset with different parameters
        # Lin et al. move momentum from the optimizer into the error feedback; twice would be too
        # much.
        own_momentum = built.spec["error_feedback"]["name"] == "momentum"
        found.append(Way(name, name, description, own_momentum))
    return found


def run(
    settings: TrainSettings,
    out_dir: str | Path,
    *,
    created: datetime,
    watch: Watcher | None = None,
    draw: Draw | None = None,
    make: MakeSumming | None = None,
) -> Result:
    """Trains once for each way and seed, and writes record and plot into ``out_dir``.

    Args:
        settings: see ``TrainSettings``.
        out_dir: made where it is missing; files of an earlier training are replaced.
        created: the time to put into the record, with a time zone.
        watch: called for each step and each preparation.
        draw: see ``outputs.saved``.
        make: makes what sums the gradients, called with the keyword arguments of ``Collective``,
            which is the default.

    Raises:
        InputError: settings that do not fit the data, a folder or a file in it that cannot be
            written (found before anything is trained).
        DivergedError: a training diverged; says which. Those before it are in the record.
        KeyboardInterrupt: it was interrupted; a note says where those before are. So does one of
            any other error that comes of a training, as of a codec.
        UnknownNameError, ConfigError, CompositionError: as ``ways``, or the model, before anything
            is trained.
        MissingToolError: the framework or the data is not installed.
    """
    model = model_of(settings.model, settings.framework)
    compared = ways(settings, tuple(model.shapes.values()))
    settings = completed(settings, model)
    data = data_of(model, settings.evaluate)
    per_epoch = epoch_of(settings, data)
    folder = folder_for(out_dir, (RECORD, PLOT))
    runs: list[Run] = []
    about = {"title": model.title, "iterations_per_epoch": per_epoch}

    def kept() -> Result:
        record = record_of(TRAIN, settings.model_dump(mode="json") | about, runs, created)
        return saved(record, folder / RECORD, folder / PLOT, draw)

    try:
        with one_thread():
            for seed in range(settings.seed, settings.seed + settings.repeats):
                trial = trial_of(
                    settings, model=model, data=data, seed=seed, watch=watch, make=make
                )
                for way in compared:
                    runs.append(_named(way, trial))  # noqa: PERF401 - kept where a later one fails
    except DivergedError as error:
        if not runs:
            raise
        path = kept().record_path
        raise DivergedError(f"{error} What was trained before it is in {path}.") from None
    except (KeyboardInterrupt, Exception) as stop:  # a codec of somebody's own may raise anything
        if runs:
            stop.add_note(f"What was trained before is in {kept().record_path}.")
        raise
    return kept()


def _named(way: Way, trial: Trial) -> Run:
    """``run_of_seed``; if it diverges, the error says what did."""
    try:
        return run_of_seed(way, trial)
    except DivergedError as error:
        raise DivergedError(f"{way.title}, seed {trial.seed}: {error}") from None


def completed(settings: TrainSettings, model: Model) -> TrainSettings:
    """The settings with what they leave to the model."""
    recipe = {
        key: getattr(model.recipe, key)
        for key in ("batch_size", "learning_rate", "momentum", "epochs")
        if getattr(settings, key) is None
    }
    return settings.model_copy(update=recipe)


def epoch_of(settings: TrainSettings, data: Data) -> int:
    """Iterations of an epoch, of completed settings; InputError where a batch does not fit."""
    assert settings.batch_size is not None
    return steps_per_epoch(shards(data.train, settings.workers), settings.batch_size)


def trial_of(
    settings: TrainSettings,
    *,
    model: Model,
    data: Data,
    seed: int,
    watch: Watcher | None = None,
    make: MakeSumming | None = None,
) -> Trial:
    """What the runs of one seed share, of completed settings."""
    assert settings.epochs is not None
    assert settings.batch_size is not None
    assert settings.learning_rate is not None
    assert settings.momentum is not None
    return Trial(
        settings=settings,
        schedule=Schedule(
            workers=settings.workers,
            iterations=settings.epochs * epoch_of(settings, data),
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
        ),
        seed=seed,
        model=model,
        data=data,
        make=make or collective,
        watch=watch or (lambda _: None),
    )


def run_of_seed(way: Way, trial: Trial) -> Run:
    """One run, under a name with its seed: a record may hold several."""
    named = Way(
        f"{way.name}-seed-{trial.seed}",
        f"{way.title}, seed {trial.seed}",
        way.codec,
        way.own_momentum,
    )
    done, _ = one_run(named, trial)
    own = {**done.settings, "way": way.title, "seed": trial.seed}
    return done.model_copy(update={"settings": own})


def _name(description: CodecDescription) -> str:
    """The preset's name; "" where parts are given without one."""
    if isinstance(description, str):
        return description
    return str(description.get("preset", ""))
