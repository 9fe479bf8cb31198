"""The demonstration: one training, with its gradients summed in three ways.

All three runs have the same initial parameters and the same batches in the same order. "plain" adds
float32 gradients without a network and is the baseline. "dense" sends every element as a
fixed-point integer through the switch. "topk" sends the largest elements of each worker as a
lossless homomorphic sketch, and keeps the rest for later (error feedback).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from innet.core.pcap import write_pcap
from innet.core.settings import DemoSettings
from innet.experiments.models.model import data_of, model_of
from innet.experiments.simulated_time import described, networks_of
from innet.experiments.summing import Frame, MakeAllReducer, SumMethod, make_collective
from innet.experiments.training import TrainingSchedule, Trial, one_thread, run_method
from innet.records import DEMO, Watcher, units
from innet.reports.outputs import Draw, Result, folder_for, record_of, saved
from innet.reports.player import write_player
from innet.sim.network import Network

# File names in the output folder.
RECORD, PLOT, CAPTURE, PAGE = "demo.json", "demo.png", "demo.pcap", "demo.html"


@dataclass(frozen=True, slots=True)
class DemoResult(Result):
    """Results of the demonstration.

    Attributes:
        page_path: of the page that plays an all-reduce; None without simulated networks.
    """

    capture_path: Path
    page_path: Path | None = None


def methods(settings: DemoSettings) -> list[SumMethod]:
    """The three runs."""
    sparse = {"preset": "topk", "selector": {"ratio": settings.ratio}}
    return [
        SumMethod("plain", "plain float32", None),
        SumMethod("dense", "dense", "dense"),
        SumMethod("topk", f"top-{settings.ratio * 100:g} % LHC", sparse),
    ]


def run(
    settings: DemoSettings,
    out_dir: str | Path,
    *,
    created: datetime,
    watch: Watcher | None = None,
    draw: Draw | None = None,
    make: MakeAllReducer | None = None,
) -> DemoResult:
    """Trains three times and writes record, packet capture, plot and page into ``out_dir``.

    Args:
        settings: see ``DemoSettings``.
        out_dir: created if it does not exist; files of an earlier demonstration are replaced.
        created: the time to put into the record, with a time zone.
        watch: called for each step and each preparation.
        draw: see ``outputs.saved``.
        make: makes the object that sums the gradients, from the keyword arguments of
            ``Collective``, which is the default.

    Raises:
        InputError: settings that do not fit the data, a folder or a file in it that cannot be
            written (found before anything is trained), a training that diverged.
        UnknownNameError: no such framework.
        MissingToolError: the framework is not installed.
    """
    model = model_of("digits-cnn", settings.framework)
    networks = networks_of(settings)
    folder = folder_for(out_dir, (RECORD, PLOT, CAPTURE, PAGE))
    trial = Trial(
        settings=settings,
        schedule=TrainingSchedule(
            workers=settings.workers,
            iterations=settings.iterations,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
        ),
        seed=settings.seed,
        model=model,
        data=data_of(model, "test"),
        make=make or make_collective,
        watch=watch or (lambda _: None),
        networks=networks,
    )
    runs, frames = [], list[Frame]()
    with one_thread():
        for method in methods(settings):
            done, seen = run_method(method, trial)
            runs.append(done)
            frames = seen or frames  # the capture shows the last method that sends packets
    about = settings.model_dump(mode="json") | described(networks)
    record = record_of(DEMO, about, runs, created)
    made = saved(record, folder / RECORD, folder / PLOT, draw)
    _save_capture(folder / CAPTURE, frames)
    page = None
    for network in [*networks.values()][:1] if make is None else []:
        page = folder / PAGE
        _save_page(page, settings, model.size, network)
    paths = made.record_path, made.plot_path
    return DemoResult(made.record, *paths, made.notes, folder / CAPTURE, page)


def _save_page(path: Path, settings: DemoSettings, elements: int, network: Network) -> None:
    """A page that plays one all-reduce of the last method, with gradients as large as the model."""
    # Numba, which it brings, takes long to import.
    from innet.allreduce.collective import Collective  # noqa: PLC0415

    method = methods(settings)[-1]
    assert method.codec is not None
    collective = Collective(
        workers=settings.workers,
        codec=method.codec,
        values_per_packet=settings.values_per_packet,
        window=settings.window,
        network=network,
        seed=settings.seed,
    )
    recorder = collective.record_run()
    rng = np.random.default_rng(settings.seed)
    collective.all_reduce(
        [rng.standard_normal(elements, np.float32) for _ in range(settings.workers)]
    )
    workers = units.plural(settings.workers, "worker")
    write_player(recorder.record(f"All-reduce of {workers}, {method.title}"), path)


def _save_capture(path: Path, frames: list[Frame]) -> None:
    # Without delays all packets of a step have the same virtual time. A microsecond for each shows
    # their order in tools that sort by time.
    times = [when + index * 1e-6 for index, (when, _, _) in enumerate(frames)]
    write_pcap(path, [payload for _, _, payload in frames], times)
