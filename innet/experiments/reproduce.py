"""``innet reproduce``: the claims of a codec's paper, measured here as far as that is possible."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from innet import __version__
from innet.experiments.comparison import Store
from innet.experiments.models.model import model_of
from innet.experiments.outputs import folder_for
from innet.experiments.papers import Context, ReproduceOptions, paper_of
from innet.records import Machine, ReproductionRecord, Watcher

RUNS = "runs"  # folder of the trainings in the output folder


def run(
    codec: str,
    out_dir: str | Path,
    *,
    options: ReproduceOptions,
    created: datetime,
    watch: Watcher | None = None,
) -> tuple[ReproductionRecord, Path]:
    """Measures all claims and writes the record.

    Args:
        codec: a preset with claims.
        out_dir: made where it is missing; gets ``reproduce-CODEC.json``, and in ``runs`` each
            training, which is not made again as long as it lies there.
        options: how thoroughly.
        created: the time to put into the record, with a time zone.
        watch: called for each step of each training over the switch.

    Raises:
        UnknownNameError: there are no claims for that codec.
        InputError: the file cannot be written (found before anything is measured).
        MissingToolError: a model's framework or data is not installed.
    """
    paper = paper_of(codec)
    path = folder_for(out_dir, [f"reproduce-{codec}.json"]) / f"reproduce-{codec}.json"
    for claim in paper.claims:  # what is missing is told before hours of work
        for model in claim.measure.models:
            model_of(model)
    context = Context(paper, options, Store(path.parent / RUNS, watch))
    findings = []
    for claim in paper.claims:
        measured = claim.measure.finding(context)
        findings.append(
            measured.model_copy(update={"claim": claim.claim, "paper_result": claim.paper_result})
        )
    record = ReproductionRecord(
        innet=__version__,
        created=created,
        machine=Machine.here(),
        codec=codec,
        paper=paper.paper,
        note=paper.note,
        settings={"seeds": 1 if options.quick else options.seeds, "quick": options.quick},
        findings=tuple(findings),
        not_reproduced=paper.not_reproduced,
    )
    record.save(path)
    return record, path
