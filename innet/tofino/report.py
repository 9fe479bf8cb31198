"""Resources of a pipe, and an estimate: usages, and findings with positions in the source."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from innet.switch.frontend.json_tree import source_of


@dataclass(frozen=True, slots=True)
class Pipe:
    """Resources per stage, unless the comment says otherwise. Ingress and egress share stages."""

    stages: int = 12
    stateful_alus: int = 4
    alu_word_bits: int = 32  # a cell is one word or a pair of them
    alu_inputs: int = 2  # words of the packet's header vector
    alu_comparisons: int = 2  # with the cell
    alu_instructions: int = 4  # different operations on one array
    logical_tables: int = 16
    sram_blocks: int = 80
    sram_bits: int = 1024 * 128
    tcam_blocks: int = 24
    tcam_entries: int = 512
    tcam_bits: int = 44
    containers: tuple[tuple[int, int], ...] = ((8, 64), (16, 96), (32, 64))  # of the whole pipe
    # Of the whole pipe: containers that go around the stages (p4c, bf-p4c/specs/phv_spec.cpp).
    tagalong_bits: int = 32 * 8 + 48 * 16 + 32 * 32
    egress_parser_bytes: int = 160
    resubmit_bytes: int = 8

    @property
    def header_vector_bits(self) -> int:
        """Bits of all containers together."""
        return sum(width * count for width, count in self.containers)


PIPE = Pipe()


# ----------------------------------------------------------------------------
# Positions in the P4 source, from ``source_info`` in p4c's JSON.

Document = Mapping[str, Any]


class SourcePlaces:
    """Positions ("file:line") by index or name; "" if the JSON has none."""

    def __init__(self, document: Document) -> None:
        self._actions = [
            (source_of(action), [source_of(each) for each in action.get("primitives", ())])
            for action in document.get("actions", ())
        ]
        self._nodes: dict[str, str] = {}
        for pipeline in document.get("pipelines", ()):
            for kind in ("tables", "conditionals", "action_calls"):
                for each in pipeline.get(kind) or ():
                    self._nodes[each["name"]] = source_of(each)
        self._registers = {
            each["name"]: source_of(each) for each in document.get("register_arrays", ())
        }

    def primitive(self, action: int, position: int) -> str:
        """Position of a statement of an action."""
        start, primitives = self._actions[action]
        return primitives[position] or start if position < len(primitives) else start

    def node(self, name: str) -> str:
        """Position of a table, condition or call."""
        return self._nodes.get(name, "")

    def register(self, name: str) -> str:
        """Position of a register array's declaration."""
        return self._registers.get(name, "")


# ----------------------------------------------------------------------------
# An estimate: usages, and findings with positions in the source.


class Severity(enum.Enum):
    """ERROR: does not fit. WARNING: may not fit, or was not examined. NOTE: information."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class FitFinding:
    """One finding.

    Attributes:
        resource: the name of the ``Usage`` that it is about.
        text: the finding, as a sentence.
        remedy: what to change; empty if nothing needs to change.
        where: "file:line" of the P4 source; empty when the JSON has no positions.
    """

    severity: Severity
    resource: str
    text: str
    remedy: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """``used`` of ``available`` (None: no limit, the number is information)."""

    resource: str
    used: int
    available: int | None

    @property
    def fits(self) -> bool:
        return self.available is None or self.used <= self.available


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one program.

    Attributes:
        layout: the registers and the tables in each stage that is used.
        translation: why p4c's Tofino compiler would refuse the program as it is written, for
            v1model, whether its pipe has room or not; see ``innet.tofino.translation``.
    """

    program: str
    usages: tuple[Usage, ...]
    findings: tuple[FitFinding, ...]
    layout: tuple[tuple[str, ...], ...]
    translation: tuple[FitFinding, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether no resource is exceeded and the hardware supports everything found."""
        return all(usage.fits for usage in self.usages) and not any(
            finding.severity is Severity.ERROR for finding in self.findings
        )

    @property
    def accepted(self) -> bool:
        """Whether p4c's Tofino compiler would take the program as it is written for v1model."""
        return self.fits and not self.translation

    def used(self, resource: str) -> int:
        """How much of ``resource`` is used; KeyError if it is not among the usages."""
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
            "findings": [_listed(each) for each in self.findings],
            "translation": [_listed(each) for each in self.translation],
            "stages": [list(stage) for stage in self.layout],
        }


def _listed(finding: FitFinding) -> dict[str, str]:
    return {
        "severity": finding.severity.value,
        "resource": finding.resource,
        "text": finding.text,
        "remedy": finding.remedy,
        "where": finding.where,
    }
