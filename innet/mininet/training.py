"""A training on a Mininet network. Every worker is a process that computes its gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from innet.allreduce.report import is_exact, selections
from innet.core.errors import InputError
from innet.core.settings import TrainSettings
from innet.experiments.comparison import make_trial, methods, run_seed, with_recipe
from innet.experiments.models.model import data_of, model_of
from innet.experiments.summing import SumMethod
from innet.experiments.training import Trial, one_thread
from innet.mininet.allreduce import combined_counts, packets
from innet.mininet.network import make_folder, network, temporary_folder
from innet.mininet.settings import NetSettings
from innet.mininet.worker_pool import WorkerPool
from innet.processes.outcomes import load
from innet.processes.settings import SessionSettings
from innet.processes.training import TrainingWorkerSettings
from innet.records import TRAIN, Progress, Report, Run, Step, Watcher
from innet.reports.outputs import Draw, Result, folder_for, record_of, saved

RECORD, PLOT = "net-train.json", "net-train.png"  # file names in the output folder


def run(
    settings: NetSettings,
    training: TrainSettings,
    out_dir: str | Path,
    *,
    created: datetime,
    watch: Watcher = lambda _: None,
    draw: Draw | None = None,
    inspect: Callable[[Any], None] | None = None,
) -> Result:
    """Train with plain sums in this process, then over a network; write the record and the plot.

    Args:
        settings: of the network and the codec.
        training: the training; workers, codecs, seed and values per packet come from ``settings``.
        out_dir: created if missing.
        created: the time for the record, with a time zone.
        watch: called for each step.
        draw: see ``innet.reports.outputs.saved``.
        inspect: called with Mininet's network before it is stopped.

    Raises:
        InnetError: something is invalid, such as several jobs, or a part of the network failed. The
            network is stopped.
    """
    training = training.model_copy(
        update={
            "workers": settings.workers,
            "codecs": (settings.codec,),
            "seed": settings.seed,
            "values_per_packet": settings.values_per_packet,
            "repeats": 1,
        }
    )
    if settings.jobs > 1:
        raise InputError(f"{settings.jobs} jobs: a training is a single job; leave --jobs out.")
    if settings.partial_after is not None:
        raise InputError(
            "a training is of all its workers, each with a part of the samples; leave "
            "--partial-after out."
        )
    settings = settings.completed()
    if settings.pcap is not None:
        settings = settings.model_copy(update={"pcap": make_folder(settings.pcap)})
    model = model_of(training.model, training.framework)
    plain, compressed = methods(training, model.shapes)
    training = with_recipe(training, model)
    data = data_of(model, training.evaluate)
    trial = make_trial(training, model=model, data=data, seed=settings.seed, watch=watch)
    folder = folder_for(out_dir, (RECORD, PLOT))
    with one_thread():
        baseline = run_seed(plain, trial)
    trained = _on_network(settings, training, trial, compressed, inspect)
    about = {
        "title": model.title,
        "iterations_per_epoch": _epoch(trial, training),
        "chance": model.chance,
    }
    record = record_of(
        TRAIN, training.model_dump(mode="json") | about, [baseline, trained], created
    )
    return saved(record, folder / RECORD, folder / PLOT, draw)


def _epoch(trial: Trial, training: TrainSettings) -> int:
    assert training.epochs is not None
    return trial.schedule.iterations // training.epochs


def _on_network(
    settings: NetSettings,
    training: TrainSettings,
    trial: Trial,
    method: SumMethod,
    inspect: Callable[[Any], None] | None,
) -> Run:
    plan = settings.plan()
    schedule = trial.schedule
    title = f"{method.title} in Mininet"
    name = f"{method.name}-net-seed-{trial.seed}"
    of_worker = TrainingWorkerSettings.model_validate(
        {
            **settings.of_worker().model_dump(include=set(SessionSettings.model_fields)),
            "model": training.model,
            "framework": training.framework,
            "iterations": schedule.iterations,
            "batch_size": schedule.batch_size,
            "learning_rate": schedule.learning_rate,
            "momentum": 0.0 if method.codec_momentum else schedule.momentum,
            "decay": schedule.decay,
            "evaluate": training.evaluate,
        }
    )

    def tell(step: Step | None = None, note: str = "") -> None:
        trial.watch(
            Progress(
                run=name,
                title=title,
                iterations=schedule.iterations,
                step=step,
                note=note,
                metric=trial.model.metric,
            )
        )

    links = {"links": settings.links} if settings.links else {}
    begun = time.perf_counter()
    steps: list[Step] = []
    codec = ""
    tell(note="starting the network and the workers")
    with temporary_folder() as folder:
        topo = settings.mininet_topo(plan, folder)
        with network(topo, limited=settings.limited) as net:
            with WorkerPool(net, plan, of_worker, folder, "innet.processes.training") as workers:
                for iteration in range(1, schedule.iterations + 1):
                    before = packets(net)
                    events = workers.round()
                    step, codec = _step(iteration, events, workers, packets(net) - before)
                    steps.append(step)
                    tell(step)
            if inspect is not None:
                inspect(net)
    return Run(
        name=name,
        title=f"{title}, seed {trial.seed}",
        codec=codec,
        elements=trial.model.size,
        metric=trial.model.metric,
        settings={"codec": method.codec, "method": title, "seed": trial.seed} | links,
        steps=tuple(steps),
        wall_seconds=time.perf_counter() - begun,
    )


def _step(
    iteration: int, events: list[dict[str, Any]], workers: WorkerPool, switch_packets: int
) -> tuple[Step, str]:
    """One iteration from the workers' parts, and the codec's description."""
    reports = [Report.model_validate(event["report"]) for event in events]
    outcomes = [load(workers.outcome(worker)) for worker in range(len(events))]
    selected, union = selections(outcomes, reports[0].elements)
    report = combined_counts(reports, switch_packets).model_copy(
        update={"exact": is_exact(outcomes), "selected": selected, "union": union}
    )
    loss = math.fsum(float(event["loss"]) for event in events) / len(events)
    return Step.of(iteration, loss, events[0]["score"], report), report.codec
