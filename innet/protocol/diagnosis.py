"""Diagnosis of a stall: the worker's state, and the missing workers from registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from innet.core.numbers import number_list
from innet.protocol.message import serial_distance
from innet.protocol.settings import JobMembership


class SlotRegisters(NamedTuple):
    """The switch's registers for one copy of a slot.

    Attributes:
        sequence: register ``sequence``: the chunk in the copy.
        bitmap: register ``bitmap``: the bits of the workers whose packets were added.
        lost: switches that have lost their registers in this epoch, as far as they know it.
    """

    sequence: int
    bitmap: int
    lost: tuple[str, ...] = ()


SlotReader: TypeAlias = Callable[[int, int], SlotRegisters]
"""(job-local slot, slot version) -> the switch's registers. Their index is
((slot_base | slot) << 1) | slot_version."""


@dataclass(frozen=True, slots=True)
class Stall:
    """The oldest chunk without a result, as its worker knows it.

    Attributes:
        member: the waiting worker.
        slot: job-local slot.
        slot_version: copy of the slot.
        sequence: sequence number of the chunk.
        waited: seconds since the chunk was first sent.
        sends: how often it was sent.
        stuck: number of waiting slots, with this one.
        silence: seconds since the last result of this job was accepted; None if there was none.
        refused: refused packets by reason. The reasons show where workers disagree.
    """

    member: JobMembership
    slot: int
    slot_version: int
    sequence: int
    waited: float
    sends: int
    stuck: int
    silence: float | None
    refused: Mapping[str, int]

    def __str__(self) -> str:
        return (
            f"{self._what()} Who is missing stands in the switch's register worker_bitmap (with "
            f"tree and hashed: bitmap) at index ((slot_base | {self.slot}) << 1) | "
            f"{self.slot_version}."
        )

    def diagnose(self, read: SlotReader) -> Diagnosis:
        """Read the switch's registers, and name the workers whose packets are missing."""
        held = read(self.slot, self.slot_version)
        found = self._diagnosis(held)
        if not held.lost:
            return found
        plural = ("es", "have", "their", "refuse", "they")
        singular = ("", "has", "its", "refuses", "it")
        end, have, their, refuse, they = plural if len(held.lost) > 1 else singular
        text = (
            f"{found.text} Switch{end} {', '.join(held.lost)} {have} lost {their} registers since "
            f"the epoch began, and {refuse} what {they} might answer wrongly: go on under the next "
            "epoch (Job.next_epoch)."
        )
        return Diagnosis(found.missing, text)

    def _diagnosis(self, held: SlotRegisters) -> Diagnosis:
        member = self.member
        ahead = serial_distance(held.sequence, self.sequence)
        everybody = member.present
        if ahead > 0:
            return Diagnosis(
                (),
                f"{self._what()} The switch's copy already belongs to chunk {held.sequence}: "
                f"another run uses job {member.job}, epoch {member.epoch}, or the others went on "
                "without this worker, as partial results allow. Give one of the runs another "
                "number, or go on under the next epoch (Job.next_epoch).",
            )
        if ahead < 0:
            return Diagnosis(
                everybody,
                f"{self._what()} The switch has counted no packet of this chunk, not even this "
                f"worker's own: check the links, and that the switch admits job {member.job}, "
                f"epoch {member.epoch}.",
            )
        missing = tuple(index for index in everybody if not held.bitmap >> index & 1)
        if not missing:
            return Diagnosis(
                (),
                f"{self._what()} The switch has counted all workers: its results do not reach "
                f"worker {member.worker}, or do not fit (see what was refused).",
            )
        plural = "s" if len(missing) > 1 else ""
        names = number_list(missing)
        text = f"{self._what()} It waits for worker{plural} {names}."
        if member.worker in missing:
            text += (
                f" None of what worker {member.worker} sent was counted: it does not reach the "
                "switch, or is refused since the others' codec or gradient is another one."
            )
        return Diagnosis(missing, text)

    def _what(self) -> str:
        member = self.member
        since = "never" if self.silence is None else f"{self.silence:.4g} s ago"
        others = f"; {self.stuck} slots wait" if self.stuck > 1 else ""
        refused = ", ".join(f"{why} {number}" for why, number in sorted(self.refused.items()))
        return (
            f"job {member.job}, epoch {member.epoch}, worker {member.worker} of {member.workers}: "
            f"slot {self.slot}, version {self.slot_version}, sequence {self.sequence} has no "
            f"result after {self.waited:.4g} s and {self.sends} transmissions{others}; "
            f"last result: {since}" + (f"; refused packets: {refused}." if refused else ".")
        )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The missing workers, and a description.

    Attributes:
        missing: indices of the workers that the oldest waiting slot lacks.
        text: a paragraph with job, slot, version, sequence and the missing workers.
    """

    missing: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text
