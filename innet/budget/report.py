"""What an estimate says: amounts, and findings with places in the source."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Severity(enum.Enum):
    """ERROR: would not fit. WARNING: might not, or is not examined. NOTE: good to know."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason.

    Attributes:
        resource: the name of the ``Usage`` that it is about.
        text: what is the matter.
        remedy: what to change; empty where nothing is to be done.
        where: "file:line" of the P4 source; empty when the JSON has no positions.
    """

    severity: Severity
    resource: str
    text: str
    remedy: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """``used`` of ``available`` (None: there is no limit, the number is information)."""

    resource: str
    used: int
    available: int | None

    @property
    def fits(self) -> bool:
        return self.available is None or self.used <= self.available


@dataclass(frozen=True, slots=True)
class Estimate:
    """Of one program.

    Attributes:
        layout: for every stage that is used, the registers and the tables in it.
    """

    program: str
    usages: tuple[Usage, ...]
    findings: tuple[Finding, ...]
    layout: tuple[tuple[str, ...], ...]

    @property
    def fits(self) -> bool:
        """No resource is exceeded and nothing was found that the hardware cannot do."""
        return all(usage.fits for usage in self.usages) and not any(
            finding.severity is Severity.ERROR for finding in self.findings
        )

    def used(self, resource: str) -> int:
        """How much of ``resource`` is used; KeyError when it is not among the usages."""
        return {usage.resource: usage.used for usage in self.usages}[resource]

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "program": self.program,
            "fits": self.fits,
            "estimate": True,
            "usages": [
                {
                    "resource": each.resource,
                    "used": each.used,
                    "available": each.available,
                    "fits": each.fits,
                }
                for each in self.usages
            ],
            "findings": [
                {
                    "severity": each.severity.value,
                    "resource": each.resource,
                    "text": each.text,
                    "remedy": each.remedy,
                    "where": each.where,
                }
                for each in self.findings
            ],
            "stages": [list(stage) for stage in self.layout],
        }
