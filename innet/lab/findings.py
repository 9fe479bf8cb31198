"""The first wrong packet: what was sent, what came, what should have come, and a hint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from innet.lab.packets import Fields, shown

_LONGEST_TRACE = 60  # lines
_MOST_BEFORE = 8  # packets


class WrongField(NamedTuple):
    """A field of a packet that is not as it should be; None where there is no such field."""

    name: str
    should: int | None
    came: int | None


@dataclass(frozen=True)
class LabFinding:
    """Something that is wrong, at the first packet that shows it.

    Attributes:
        level: 1 to 3.
        part: "switch" or "workers".
        exercise: what the packets are about.
        mistake: a short name of it, for programs.
        hint: a sentence or two for the student.
        packet: what the first wrong packet is, in words.
        sent: its fields, or those of what the switch got; empty if there is no packet.
        should: what should have come, in words.
        came: what came, in words.
        wrong: fields that differ.
        before: packets of the same slot before it, in words.
        trace: the way of the packet through the student's program; or that of ``culprit``.
        culprit: the packet before that was taken wrongly, in words; "" if it is this one.
    """

    level: int
    part: str
    exercise: str
    mistake: str
    hint: str
    packet: str
    sent: Fields = field(default_factory=dict)
    should: str = ""
    came: str = ""
    wrong: Sequence[WrongField] = ()
    before: Sequence[str] = ()
    trace: Sequence[str] = ()
    culprit: str = ""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = dict(vars(self))
        found["wrong"] = [each._asdict() for each in self.wrong]
        found["before"], found["trace"] = list(self.before), list(self.trace)
        return found

    def __str__(self) -> str:
        """For people."""
        lines = [f"level {self.level}, {self.part}: {self.exercise}"]
        if self.before:
            lines.append("packets before it at this slot:")
            left_out = len(self.before) - _MOST_BEFORE
            lines += [f"  ... and {left_out} before these"] if left_out > 0 else []
            lines += [f"  {each}" for each in self.before[-_MOST_BEFORE:]]
        lines.append(f"the first wrong packet: {self.packet}")
        lines += _by_header(self.sent)
        lines += [f"should have come: {self.should}"] if self.should else []
        lines += [f"came:             {self.came}"] if self.came else []
        if self.wrong:
            lines.append(f"  {'field':<22}{'should be':<20}is")
        for name, should, came in self.wrong:
            lines.append(f"  {name:<22}{shown(name, should):<20}{shown(name, came)}")
        if self.trace:
            lines += [f"the packet that your program took wrongly: {self.culprit}"] * bool(
                self.culprit
            )
            lines.append("its way through your program:")
            lines += [f"  {each}" for each in self.trace[:_LONGEST_TRACE]]
            if len(self.trace) > _LONGEST_TRACE:
                lines.append(f"  ... and {len(self.trace) - _LONGEST_TRACE} lines more (--json)")
        return "\n".join([*lines, f"hint: {self.hint} [{self.mistake}]"])


def _by_header(fields: Fields) -> list[str]:
    """A line for each header."""
    headers: dict[str, list[str]] = {}
    for name, value in fields.items():
        header, _, short = name.partition(".")
        headers.setdefault(header, []).append(f"{short} {shown(name, value)}")
    behind = headers.pop("bytes behind", [])
    lines = [f"  {header + ':':<10}{', '.join(each)}" for header, each in headers.items()]
    return lines + [f"  and{each} bytes behind them" for each in behind if each != " 0"]


def differences(
    should: Mapping[str, int], came: Mapping[str, int], ignored: frozenset[str] = frozenset()
) -> list[WrongField]:
    """Fields that differ, in the order of the packet."""
    names = [*should, *(name for name in came if name not in should)]
    return [
        WrongField(name, should.get(name), came.get(name))
        for name in names
        if name not in ignored and should.get(name) != came.get(name)
    ]


__all__ = ["LabFinding", "WrongField", "differences"]
