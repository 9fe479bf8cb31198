"""Codecs beside each other: a training for each, and for each of several seeds.

All runs of one seed start from the same parameters and see the same batches in the same order as
that seed's "plain" run, which sums float32 on the spot.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from innet.codecs import build_codec
from innet.config import CodecDescription, TrainSettings
from innet.errors import ConfigError
from innet.experiments.data import load_digits, shards, steps_per_epoch
from innet.experiments.outputs import check_writable
from innet.experiments.runs import (
    Draw,
    MakeSumming,
    Trial,
    Way,
    collective,
    drawn,
    folder_at,
    one_run,
    one_thread,
)
from innet.experiments.training import FRAMEWORKS
from innet.record import TRAIN, ExperimentRecord, Machine, Watcher

RECORD, PLOT = "train.json", "train.png"  # file names in the output folder


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What the trainings made. ``notes`` are remarks for the person who started them."""

    record: ExperimentRecord
    record_path: Path
    plot_path: Path | None
    notes: tuple[str, ...]


def ways(settings: TrainSettings) -> list[Way]:
    """Plain sums, then each codec under its preset's name, or its description where it has none.

    Raises:
        UnknownNameError, ConfigError, CompositionError: a codec that cannot be built, or is given
            twice.
    """
    found = [Way("plain", "plain float32", None)]
    specs: list[object] = []
    for description in settings.codecs:
        built = build_codec(description, seed=settings.seed)
        if built.spec in specs:
            raise ConfigError(f"the codec {built.describe()} is given twice; give each once.")
        specs.append(built.spec)
        name = _name(description) or built.describe()
        if any(way.name == name for way in found):
            name = built.describe()  # one preset with different parameters
        # Lin et al. move momentum from the optimiser into the feedback; twice would be too much.
        own_momentum = built.spec["feedback"]["name"] == "momentum"
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
) -> TrainResult:
    """Trains once for each way and seed, and writes record and plot into ``out_dir``.

    Args:
        settings: see ``TrainSettings``.
        out_dir: made where it is missing; files of an earlier training are replaced.
        created: the time to put into the record, with a time zone.
        watch: called for each step and each preparation.
        draw: draws the plot of the record into a PNG file; where it raises ``MissingToolError``,
            the result carries the message as a note instead.
        make: makes what sums the gradients, called with the keyword arguments of ``Collective``,
            which is the default.

    Raises:
        InputError: settings that do not fit the data, a folder or a file in it that cannot be
            written (found before anything is trained), a training that diverged.
        UnknownNameError, ConfigError, CompositionError: as ``ways``, before anything is trained.
        MissingToolError: the framework is not installed.
    """
    compared = ways(settings)
    digits = load_digits()
    per_epoch = steps_per_epoch(shards(digits.train, settings.workers), settings.batch_size)
    gradient = FRAMEWORKS.get(settings.framework)
    folder = folder_at(out_dir)
    for name in (RECORD, PLOT):
        check_writable(folder / name)
    runs = []
    with one_thread():
        for seed in range(settings.seed, settings.seed + settings.repeats):
            trial = Trial(
                settings=settings,
                iterations=settings.epochs * per_epoch,
                seed=seed,
                digits=digits,
                gradient=gradient,
                make=make or collective,
                watch=watch or (lambda _: None),
            )
            for way in compared:
                named = _of_seed(way, seed) if settings.repeats > 1 else way
                done, _ = one_run(named, trial)
                own = {**done.settings, "way": way.title, "seed": seed}
                runs.append(done.model_copy(update={"settings": own}))
    record = ExperimentRecord(
        format=TRAIN,
        innet=version("innet"),
        created=created,
        machine=Machine.here(),
        settings=settings.model_dump(mode="json") | {"iterations_per_epoch": per_epoch},
        runs=tuple(runs),
    )
    record.save(folder / RECORD)
    plot, notes = drawn(record, folder / PLOT, draw)
    return TrainResult(record, folder / RECORD, plot, notes)


def _name(description: CodecDescription) -> str:
    """The preset's name; "" where parts are given without one."""
    if isinstance(description, str):
        return description
    return str(description.get("preset", ""))


def _of_seed(way: Way, seed: int) -> Way:
    return Way(f"{way.name}-seed-{seed}", f"{way.title}, seed {seed}", way.codec, way.own_momentum)
