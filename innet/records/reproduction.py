"""What became of the claims of a codec's paper: a versioned JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, Field

from innet.records import files
from innet.records.files import REPRODUCE
from innet.records.machine import Machine
from innet.records.report import Frozen


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
        claim: what the paper says, in our words.
        theirs: the paper's numbers and set-up.
        setup: ours.
        ours: what was measured, in words.
        criterion: what had to be seen for the claim to hold here, written down before; "" for none.
        holds: whether it was seen; None where there is no criterion, or the run was a quick one.
        numbers: what was measured, by name.
        series: the same to draw.
        axes: what the series' places and values are.
        logarithmic: which axes are better read in powers.
    """

    claim: str
    theirs: str
    setup: str
    ours: str
    criterion: str = ""
    holds: bool | None = None
    numbers: dict[str, Any] = Field(default_factory=dict)
    series: tuple[Series, ...] = ()
    axes: tuple[str, str] = ("", "")
    logarithmic: tuple[Literal["x", "y"], ...] = ()


class Reproduction(Frozen):
    """All claims of one paper.

    Attributes:
        format: always ``REPRODUCE``.
        version: of the layout.
        innet: version of innet that wrote it.
        created: time in UTC at which it began.
        machine: where it ran.
        codec: the preset's name.
        paper: who, where, when.
        note: how and why the settings differ from the paper's.
        quick: whether it was run only to see that it runs.
        seeds: of each training.
        findings: one for each claim.
        not_reproduced: what was not tried, each with the reason.
    """

    format: Literal["innet.reproduce"] = "innet.reproduce"
    version: int = files.VERSION
    innet: str
    created: AwareDatetime
    machine: Machine
    codec: str
    paper: str
    note: str = ""
    quick: bool
    seeds: int
    findings: tuple[Finding, ...]
    not_reproduced: tuple[str, ...]

    def save(self, path: str | Path) -> None:
        """Writes the record; InputError where that fails."""
        files.write(path, self, self.format)

    @classmethod
    def load(cls, path: str | Path) -> Reproduction:
        """Reads a record; InputError where it is none, or newer than this innet."""
        return files.parsed(path, files.read(path, (REPRODUCE,))[1], cls)
