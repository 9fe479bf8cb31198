"""``innet reproduce``: the claims of a codec's paper, measured here as far as that is possible."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from innet._version import __version__
from innet.claims.claim import Claim, ClaimContext, Paper, ReproduceOptions
from innet.claims.papers import paper_of
from innet.core.errors import InnetError, InputError
from innet.experiments.comparison import Store
from innet.experiments.models.model import model_of
from innet.records import Finding, Machine, ReproductionRecord, Watcher
from innet.reports.outputs import folder_for

RUNS = "runs"  # folder of the trainings in the output folder
_DIGITS = 16  # of a finding's key


@dataclass(frozen=True, slots=True)
class ClaimDone:
    """A claim that was measured, or was kept from an earlier run.

    Attributes:
        codec: of the paper.
        number: of the claim among all that are asked for, from 1.
        of: how many these are.
        finding: what was measured.
        kept: it was measured earlier.
        seconds_left: estimated time for the remaining claims, from the durations of the measured
            ones; None if there are none.
    """

    codec: str
    number: int
    of: int
    finding: Finding
    kept: bool
    seconds_left: float | None


Tell = Callable[[ClaimDone], None]


def run(
    codec: str,
    out_dir: str | Path,
    *,
    options: ReproduceOptions,
    created: datetime,
    watch: Watcher | None = None,
    tell: Tell | None = None,
    about: str = "",
) -> tuple[ReproductionRecord, Path]:
    """Measures the claims, and writes the whole record after each claim.

    What an earlier run with the same options left in the folder is not measured again.

    Args:
        codec: a preset with claims.
        out_dir: made where it is missing; gets ``reproduce-CODEC.json``, and in ``runs`` each
            training, which is not made again as long as it lies there.
        options: how thoroughly.
        created: the time to put into the record, with a time zone.
        watch: called for each step of each training over the switch.
        tell: called after each claim.
        about: words of the claims to measure; "" for all. The record has others only where an
            earlier run measured them.

    Raises:
        UnknownNameError: there are no claims for that codec.
        InputError: no claim has these words; or the file cannot be written (found before anything
            is measured).
        MissingToolError: a model's framework or data is not installed.
    """
    asked = [each for each in paper_of(codec).claims if about.casefold() in each.claim.casefold()]
    if not asked:
        said = "; ".join(each.claim for each in paper_of(codec).claims)
        raise InputError(f"no claim of {codec} has the words {about!r}; its claims: {said}.")
    pace = _Pace({codec: asked}, tell)
    return _run(codec, Path(out_dir), options, created=created, watch=watch, pace=pace)


def run_all(
    codecs: Iterable[str],
    out_dir: str | Path,
    *,
    options: ReproduceOptions,
    created: datetime,
    watch: Watcher | None = None,
    tell: Tell | None = None,
) -> tuple[list[tuple[ReproductionRecord, Path]], dict[str, InnetError]]:
    """``run`` for several codecs. One that cannot be measured does not stop the others.

    Returns:
        Each record with its path, and the errors of codecs without one, by codec.

    Raises:
        UnknownNameError: there are no claims for one of the codecs.
    """
    found = {codec: paper_of(codec) for codec in codecs}
    pace = _Pace({codec: paper.claims for codec, paper in found.items()}, tell)
    done, failed = [], {}
    for codec in found:
        try:
            one = _run(codec, Path(out_dir), options, created=created, watch=watch, pace=pace)
        except InnetError as error:
            failed[codec] = error
        else:
            done.append(one)
    return done, failed


def _run(
    codec: str,
    out_dir: Path,
    options: ReproduceOptions,
    *,
    created: datetime,
    watch: Watcher | None,
    pace: _Pace,
) -> tuple[ReproductionRecord, Path]:
    paper = paper_of(codec)
    path = folder_for(out_dir, [f"reproduce-{codec}.json"]) / f"reproduce-{codec}.json"
    for claim in pace.claims[codec]:  # report what is missing before hours of work
        for model in claim.measure.models:
            model_of(model)
    kept = _kept(path)
    context = ClaimContext(paper, options, Store(path.parent / RUNS, watch))
    findings: list[Finding] = []
    for claim in paper.claims:
        key = _key(paper, claim, options)
        finding = kept.get(key)
        asked = claim in pace.claims[codec]
        if finding is None and not asked:
            continue
        if finding is None:
            begun = time.perf_counter()
            finding = claim.measure.finding(context).model_copy(
                update={"key": key, "seconds": time.perf_counter() - begun}
            )
        said = {"claim": claim.claim, "paper_result": claim.paper_result, "why": claim.why}
        findings.append(finding.model_copy(update=said))
        record = ReproductionRecord(
            innet=__version__,
            created=created,
            machine=Machine.here(),
            codec=codec,
            paper=paper.paper,
            note=paper.note,
            settings={"seeds": len(options.training_seeds), "quick": options.quick},
            findings=tuple(findings),
            not_reproduced=paper.not_reproduced,
        )
        record.save(path)
        if asked:
            pace.add(codec, claim, findings[-1], kept=key in kept)
    return record, path


def _kept(path: Path) -> dict[str, Finding]:
    """The findings of an earlier run by their keys."""
    if not path.exists():
        return {}
    try:
        found = ReproductionRecord.load(path).findings
    except InputError as error:
        raise InputError(f"{error} Remove this file, and its claims are measured again.") from None
    return {each.key: each for each in found if each.key}


def _key(paper: Paper, claim: Claim, options: ReproduceOptions) -> str:
    codecs = paper.model_dump(mode="json", include={"codec", "codecs"})
    measured = claim.measure.model_dump(mode="json")
    about = [codecs, measured, asdict(options), __version__]
    text = json.dumps(about, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


class _Pace:
    """How many claims are done, and how long the others may take.

    A claim is taken to last as long as those of its kind on the same models did on average, or of
    its kind, or all of them.

    Args:
        claims: all that are asked for, by codec.
        tell: called after each claim.
    """

    def __init__(self, claims: Mapping[str, Sequence[Claim]], tell: Tell | None) -> None:
        self.claims = claims
        self._left = [
            (codec, claim.measure.kind, claim.measure.models)
            for codec, found in claims.items()
            for claim in found
        ]
        self._of = len(self._left)
        self._tell = tell
        self._seconds: dict[tuple[object, ...], list[float]] = {}

    def add(self, codec: str, claim: Claim, finding: Finding, *, kept: bool) -> None:
        """A claim is done."""
        kind, models = claim.measure.kind, claim.measure.models
        self._left.remove((codec, kind, models))
        if finding.seconds is not None:
            for group in ((kind, models), (kind,), ()):
                self._seconds.setdefault(group, []).append(finding.seconds)
        if self._tell is not None:
            number = self._of - len(self._left)
            self._tell(ClaimDone(codec, number, self._of, finding, kept, self._seconds_left()))

    def _seconds_left(self) -> float | None:
        if () not in self._seconds:
            return None
        total = 0.0
        for _, kind, models in self._left:
            groups = ((kind, models), (kind,), ())
            known = next(self._seconds[group] for group in groups if group in self._seconds)
            total += sum(known) / len(known)
        return total
