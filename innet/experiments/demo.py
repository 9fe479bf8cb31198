"""The demonstration: one training, with its gradients summed in three ways.

All three runs start from the same parameters and see the same batches in the same order. "plain"
sums float32 on the spot and is what the others are measured against; "dense" sends every element
as a fixed-point integer through the switch; "topk" sends the largest elements of each worker, the
rest being kept for later (error feedback), as a lossless homomorphic sketch.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from innet.config import CodecDescription, DemoSettings
from innet.errors import InputError, MissingToolError
from innet.experiments import cnn
from innet.experiments.data import Digits, load_digits
from innet.experiments.outputs import check_writable
from innet.experiments.training import (
    FRAMEWORKS,
    Gradient,
    Schedule,
    Vector,
    plain_sum,
    train,
)
from innet.record import DEMO, ExperimentRecord, Machine, Progress, Report, Run, Step, Watcher

RECORD, PLOT, CAPTURE = "demo.json", "demo.png", "demo.pcap"  # file names in the output folder

Frame = tuple[float, int, bytes]  # virtual time in seconds, switch port, bytes


class Summing(Protocol):
    """What the demonstration needs of ``innet.collective.Collective``."""

    def all_reduce(self, gradients: Sequence[Vector]) -> tuple[Vector, Report]:
        """The float32 sum of the workers' gradients, and what it took."""

    def record_packets(self) -> AbstractContextManager[list[Frame]]:
        """While the context is open, packets are added to the list that it yields."""


MakeSumming = Callable[..., Summing]
Draw = Callable[[ExperimentRecord, Path], None]


@dataclass(frozen=True, slots=True)
class Way:
    """One way to sum gradients: a run's name, its title for people, and its codec, if any."""

    name: str
    title: str
    codec: CodecDescription | None


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demonstration made. ``notes`` are remarks for the person who started it."""

    record: ExperimentRecord
    record_path: Path
    capture_path: Path
    plot_path: Path | None
    notes: tuple[str, ...]


def ways(settings: DemoSettings) -> list[Way]:
    """The three runs."""
    sparse: dict[str, Any] = {
        "selector": {"name": "topk", "ratio": settings.ratio},
        "quantiser": "fixed",
        "carrier": "lhc",
        "feedback": "residual",
    }
    return [
        Way("plain", "plain float32", None),
        Way("dense", "dense", "dense"),
        Way("topk", f"top-{settings.ratio * 100:g} % LHC", sparse),
    ]


def run(
    settings: DemoSettings,
    out_dir: str | Path,
    *,
    created: datetime,
    watch: Watcher | None = None,
    draw: Draw | None = None,
    make: MakeSumming | None = None,
) -> DemoResult:
    """Trains three times and writes record, packet capture and plot into ``out_dir``.

    Args:
        settings: see ``DemoSettings``.
        out_dir: made where it is missing; files of an earlier demonstration are replaced.
        created: the time to put into the record, with a time zone.
        watch: called for each step and each preparation.
        draw: draws the plot of the record into a PNG file; where it raises ``MissingToolError``,
            the result carries the message as a note instead.
        make: makes what sums the gradients, called with the keyword arguments of ``Collective``,
            which is the default.

    Raises:
        InputError: settings that do not fit the data, a folder or a file in it that cannot be
            written (found before anything is trained), a training that diverged.
        MissingToolError: the framework is not installed.
    """
    folder = _folder(out_dir)
    for name in (RECORD, PLOT, CAPTURE):
        check_writable(folder / name)
    trial = _Trial(
        settings=settings,
        digits=load_digits(),
        gradient=FRAMEWORKS.get(settings.framework),
        make=make or _collective,
        watch=watch or (lambda _: None),
    )
    runs, frames = [], list[Frame]()
    with _one_thread():
        for way in ways(settings):
            done, seen = _one(way, trial)
            runs.append(done)
            frames = seen or frames  # the capture shows the last way that sends packets
    record = ExperimentRecord(
        format=DEMO,
        innet=version("innet"),
        created=created,
        machine=Machine.here(),
        settings=settings.model_dump(mode="json"),
        runs=tuple(runs),
    )
    record.save(folder / RECORD)
    _save_capture(folder / CAPTURE, frames)
    plot, notes = _draw(record, folder / PLOT, draw)
    return DemoResult(record, folder / RECORD, folder / CAPTURE, plot, notes)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the three runs have in common."""

    settings: DemoSettings
    digits: Digits
    gradient: Gradient
    make: MakeSumming
    watch: Watcher


class _OverNetwork:
    """A reducer that sends packets; remembers those of its first all-reduce.

    Attributes:
        frames: the packets, both directions.
        codec: description of the codec, from the first report.
    """

    def __init__(self, codec: CodecDescription, settings: DemoSettings, make: MakeSumming) -> None:
        self.frames: list[Frame] = []
        self.codec = ""
        arguments = {
            "workers": settings.workers,
            "codec": codec,
            "values_per_packet": settings.values_per_packet,
            "engine": settings.engine,
            "seed": settings.seed,
        }
        # Numba compiles at the first call. Done here, with other numbers and on another object, it
        # neither counts as time of the first iteration nor leaves a residual behind.
        rng = np.random.default_rng(settings.seed)
        rehearsal = [rng.standard_normal(cnn.SIZE, np.float32) for _ in range(settings.workers)]
        make(**arguments).all_reduce(rehearsal)
        self._summing = make(**arguments)

    def __call__(self, gradients: list[Vector]) -> tuple[Vector, Report]:
        if self.frames:
            return self._summing.all_reduce(gradients)
        with self._summing.record_packets() as frames:
            total, report = self._summing.all_reduce(gradients)
        self.frames = frames
        self.codec = report.codec
        return total, report


def _one(way: Way, trial: _Trial) -> tuple[Run, list[Frame]]:
    """One of the runs, and the packets of its first all-reduce, if it sends any."""
    settings = trial.settings

    def tell(step: Step | None = None, note: str = "") -> None:
        trial.watch(
            Progress(
                run=way.name,
                title=way.title,
                iterations=settings.iterations,
                step=step,
                note=note,
            )
        )

    network = None
    if way.codec is not None:
        tell(note="preparing the switch program and the codec (compiled once, then kept)")
        network = _OverNetwork(way.codec, settings, trial.make)
    schedule = Schedule(
        workers=settings.workers,
        iterations=settings.iterations,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
    )
    begun = time.perf_counter()
    steps = []
    for step in train(schedule, trial.digits, trial.gradient, network or plain_sum, settings.seed):
        steps.append(step)
        tell(step)
    done = Run(
        name=way.name,
        title=way.title,
        codec=network.codec if network else "",
        elements=cnn.SIZE,
        settings={} if way.codec is None else {"codec": way.codec},
        steps=tuple(steps),
        wall_seconds=time.perf_counter() - begun,
    )
    return done, network.frames if network else []


def _collective(**arguments: Any) -> Summing:
    # Imported here: it brings Numba, which --help and an error in the settings can do without.
    from innet.collective import Collective  # noqa: PLC0415

    made: Summing = Collective(program="slots", **arguments)
    return made


def _one_thread() -> AbstractContextManager[Any]:
    """Makes gradients independent of the number of cores, and so the whole training.

    It costs a tenth of the gradients' time on an idle machine of two cores and saves far more on a
    busy one, where the threads of so small products wait for each other.
    """
    # threadpoolctl comes with scikit-learn; it has no type hints.
    limits = importlib.import_module("threadpoolctl").threadpool_limits
    limited: AbstractContextManager[Any] = limits(limits=1)  # BLAS, and PyTorch's OpenMP
    return limited


def _folder(path: str | Path) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror or error}.") from None
    return folder


def _save_capture(path: Path, frames: list[Frame]) -> None:
    # Imported here: Scapy takes long to import.
    from innet.dissect import write_pcap  # noqa: PLC0415

    # Virtual time stands still while a fabric without delay hands packets over: a microsecond for
    # each shows their order in tools that sort by time.
    times = [when + index * 1e-6 for index, (when, _, _) in enumerate(frames)]
    write_pcap(path, [payload for _, _, payload in frames], times)


def _draw(
    record: ExperimentRecord, path: Path, draw: Draw | None
) -> tuple[Path | None, tuple[str, ...]]:
    if draw is None:
        return None, ()
    try:
        draw(record, path)
    except MissingToolError as error:
        return None, (f"No plot was drawn: {error}",)
    return path, ()
