"""What ``innet p4 check`` prints."""

from __future__ import annotations

from rich.table import Table

from innet.cli.output import out
from innet.tofino import Estimate, Severity

_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "blue"}


def show(estimate: Estimate, *, stages: bool) -> None:
    """Amounts, reasons and the verdict; on request the stages."""
    table = Table(box=None)
    for column in ("of one Tofino 1 pipe", "used", "available", ""):
        table.add_column(column, no_wrap=True, justify="right" if column == "used" else "left")
    for usage in estimate.usages:
        limit = "" if usage.available is None else str(usage.available)
        table.add_row(usage.resource, str(usage.used), limit, "" if usage.fits else "[red]exceeded")
    out.print(table)
    for finding in estimate.findings:
        out.print(f"[{_COLORS[finding.severity]}]{finding.severity.value}[/]: ", end="")
        _say(f"{finding.resource}: {finding.text}.")
        if finding.remedy:
            _say(f"  To change: {finding.remedy}.")
        if finding.where:
            _say(f"  At {finding.where}")
    if stages:
        for number, names in enumerate(estimate.layout):
            _say(f"stage {number}: {', '.join(names)}")
    verdict = "fits" if estimate.fits else "does not fit"
    _say(f"{estimate.program} {verdict}, by this estimate (which is not the vendor's compiler).")


def _say(text: str) -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True)
