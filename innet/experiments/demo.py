"""The demonstration: one training, with its gradients summed in three ways.

All three runs start from the same parameters and see the same batches in the same order. "plain"
sums float32 on the spot and is what the others are measured against; "dense" sends every element
as a fixed-point integer through the switch; "topk" sends the largest elements of each worker, the
rest being kept for later (error feedback), as a lossless homomorphic sketch.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from innet.config import DemoSettings
from innet.experiments.data import load_digits
from innet.experiments.outputs import check_writable
from innet.experiments.runs import (
    Draw,
    Frame,
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
from innet.record import DEMO, ExperimentRecord, Machine, Watcher

RECORD, PLOT, CAPTURE = "demo.json", "demo.png", "demo.pcap"  # file names in the output folder


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
    folder = folder_at(out_dir)
    for name in (RECORD, PLOT, CAPTURE):
        check_writable(folder / name)
    trial = Trial(
        settings=settings,
        iterations=settings.iterations,
        seed=settings.seed,
        digits=load_digits(),
        gradient=FRAMEWORKS.get(settings.framework),
        make=make or collective,
        watch=watch or (lambda _: None),
    )
    runs, frames = [], list[Frame]()
    with one_thread():
        for way in ways(settings):
            done, seen = one_run(way, trial)
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
    plot, notes = drawn(record, folder / PLOT, draw)
    return DemoResult(record, folder / RECORD, folder / CAPTURE, plot, notes)


def _save_capture(path: Path, frames: list[Frame]) -> None:
    # Imported here: Scapy takes long to import.
    from innet.dissect import write_pcap  # noqa: PLC0415

    # Virtual time stands still while a fabric without delay hands packets over: a microsecond for
    # each shows their order in tools that sort by time.
    times = [when + index * 1e-6 for index, (when, _, _) in enumerate(frames)]
    write_pcap(path, [payload for _, _, payload in frames], times)
