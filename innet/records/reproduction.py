"""What became of the claims of a codec's paper."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from innet.records.record import Record
from innet.records.report import Frozen

REPRODUCE = "innet.reproduce"  # format of the record of ``innet reproduce``
"""Format of the record of ``innet reproduce``."""

Verdict = Literal["reproduced", "direction only", "not reproduced", "not judged"]


class Series(Frozen):
    """Numbers to draw: a line over ``x``, or a bar with its name where ``x`` is empty.

    Attributes:
        label: what it shows.
        x: places, ascending.
        y: one value for each place; one alone for a bar.
        spread: standard deviation of each value, where there are several seeds.
    """

    label: str
    x: tuple[float, ...] = ()
    y: tuple[float, ...]
    spread: tuple[float, ...] = ()


class Finding(Frozen):
    """A claim, and what was measured here.

    Attributes:
        claim: what the paper says, in our words; "" until a measurement is put beside its claim.
        paper_result: the paper's numbers and set-up; likewise.
        setup: ours.
        measured: what was measured, in words.
        criterion: what had to be seen for the claim to hold here, written down before; "" for none.
        holds: whether it was seen; None where there is no criterion, or the run was a quick one.
        direction: whether the effect has at least the paper's direction, such as fewer bytes than
            something else; None where that is not asked.
        why: the reason why a claim does not hold here, where one was found.
        numbers: what was measured, by name.
        series: the same to draw.
        axes: what the series' places and values are.
        logarithmic: which axes are better read in powers.
        seconds: how long the measurement took.
        key: digest of what was measured; a finding of the same key need not be measured again.
    """

    claim: str = ""
    paper_result: str = ""
    setup: str
    measured: str
    criterion: str = ""
    holds: bool | None = None
    direction: bool | None = None
    why: str = ""
    numbers: dict[str, Any] = Field(default_factory=dict)
    series: tuple[Series, ...] = ()
    axes: tuple[str, str] = ("", "")
    logarithmic: tuple[Literal["x", "y"], ...] = ()
    seconds: float | None = None
    key: str = ""

    @property
    def verdict(self) -> Verdict:
        """What became of the claim here."""
        if self.holds is None:
            return "not judged"
        if self.holds:
            return "reproduced"
        return "direction only" if self.direction else "not reproduced"


class ReproductionRecord(Record):
    """All claims of one paper.

    Attributes:
        settings: ``seeds`` of each training, and whether it was a ``quick`` run, made only to see
            that it runs.
        codec: the preset's name.
        paper: who, where, when.
        note: how and why the settings differ from the paper's.
        findings: one for each claim.
        not_reproduced: what was not tried, each with the reason.
    """

    formats: ClassVar[tuple[str, ...]] = (REPRODUCE,)

    format: Literal["innet.reproduce"] = "innet.reproduce"
    codec: str
    paper: str
    note: str = ""
    findings: tuple[Finding, ...]
    not_reproduced: tuple[str, ...]

    @property
    def quick(self) -> bool:
        """Whether nothing may be judged by it."""
        return bool(self.settings.get("quick"))
