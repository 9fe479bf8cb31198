"""``innet allreduce``."""

from __future__ import annotations

import contextlib

from innet.cli.options import (
    JsonOption,
    OutputOption,
    RecordingOption,
    WatchOption,
    watches_of,
    with_settings,
)
from innet.cli.output import out, say_json
from innet.core.errors import InnetError, InputError
from innet.core.settings import ALL_REDUCE, AllReduceSettings

_WARM_UP = 4096  # elements of the all-reduce that compiles what this machine has not compiled yet


@with_settings(AllReduceSettings)
def allreduce(
    settings: AllReduceSettings,
    *,
    output: OutputOption = None,
    recording: RecordingOption = None,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sum gradients over the emulated network, once, and report what it took.

    Or do another collective (--collective). An all-gather is of each worker's part of its tensor.
    """
    # Imported here, as Numba takes longer to import than a mistake in an option should.
    from innet.allreduce import collective
    from innet.reports.outputs import check_writable, save_array
    from innet.reports.tables import report_table
    from innet.scenarios.allreduce import faults_of, gradients, run_collective, timing_of
    from innet.sim import network_of

    for file in (output, recording):
        if file is not None:
            check_writable(file)
    if output is not None and settings.collective == "barrier":
        raise InputError("a barrier has no result; leave --output out.")
    if settings.results is not None and settings.collective != ALL_REDUCE:
        raise InputError("--results is of all-reduces; leave it or --collective out.")
    watched = watches_of(watch or [], recording)
    if recording is not None and settings.network is None:
        raise InputError("--record is of simulated time; add --network, such as 100g.")
    given = gradients(settings)
    settings = settings.with_workers(len(given))
    network = settings.model_dump(
        include={
            "codec", "program", "topology", "racks", "depth", "ports", "engine",
            "values_per_packet", "framing", "window", "seed", "network", "results",
        }
    )  # fmt: skip
    simulated = None if settings.network is None else network_of(settings.network)
    # Errors are suppressed here because the all-reduce below raises them again.
    with contextlib.suppress(InnetError):
        collective.all_reduce([each.reshape(-1)[:_WARM_UP] for each in given], **network)
    summing = collective.Collective(
        workers=len(given),
        **network,
        faults=faults_of(settings.faults, settings.workers),
        timing=timing_of(settings, simulated),
        attempts=settings.attempts,
    )
    recorder = None if recording is None else summing.record_run(watched)
    total, report = run_collective(summing, settings.collective, given)
    if recorder is not None:
        assert recording is not None
        title = f"{settings.collective} of {settings.workers} workers, {report.codec}"
        title = title[0].upper() + title[1:]
        recorder.save(recording, title, settings.model_dump(mode="json", exclude_unset=True))
    try:
        if output is not None and total is not None:
            save_array(output, total)
    finally:  # also where the disk is full
        if as_json:
            say_json(report.model_dump(mode="json"))
        else:
            out.print(report_table(report))
