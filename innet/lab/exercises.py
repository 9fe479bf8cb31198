"""Packets for the student's switch alone, one after the other: what each level is about."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from innet.lab.findings import LabFinding
from innet.lab.packets import SLOTS, VALUES, LabChunk, contribution
from innet.lab.switch_part import SwitchUnderTest
from innet.switch import ir

Step = tuple[int, int]
"""Worker, number of the chunk in the vector."""


class Exercise(NamedTuple):
    """Packets.

    Attributes:
        title: what they are about.
        steps: who sends which chunk; a negative number: a packet that is not of the lab.
        workers: how many take part.
        most: absolute value of elements at most.
    """

    title: str
    steps: Sequence[Step]
    workers: int = 3
    most: int = 1000


_NEXT = SLOTS  # of chunk 0, in the same slot
_SUMS = (
    Exercise("three workers send a chunk", [(0, 0), (1, 0), (2, 0)]),
    Exercise(
        "a slot is used again for the next chunk, and again",
        [(w, n) for n in (0, _NEXT, 2 * _NEXT, 3 * _NEXT) for w in (0, 1, 2)],
    ),
    Exercise(
        "chunks in several slots at once",
        [(0, 1), (0, 2), (2, 1), (1, 2), (0, SLOTS - 1), (1, 1), (2, 2), (2, SLOTS - 1),
         (1, SLOTS - 1)],
    ),
    Exercise("workers in another order", [(2, 3), (0, 3), (1, 3), (1, 3 + _NEXT), (2, 3 + _NEXT),
                                          (0, 3 + _NEXT)]),
    Exercise("sums that leave 32 bits", [(0, 5), (1, 5), (2, 5)], most=2**31 - 1),
    Exercise("packets that are not of the lab", [(0, 0), (1, -1), (2, 0), (2, -2), (1, 0)]),
    Exercise("two workers", [(0, 0), (1, 0), (1, _NEXT), (0, _NEXT)], workers=2),
)  # fmt: skip
_LOSSES = (
    Exercise(
        "a worker sends again before the others came",
        [(0, 1), (0, 1), (1, 1), (0, 1), (2, 1)],
    ),
    Exercise(
        "a result is lost on the way to a worker, which sends its chunk again",
        [(0, 0), (1, 0), (2, 0), (1, 0), (1, 0), (2, 0)],
    ),
    Exercise(
        "a worker asks for a result while others are one chunk ahead",
        [(0, 0), (1, 0), (2, 0), (0, _NEXT), (1, _NEXT), (2, 0), (0, _NEXT), (2, _NEXT)],
    ),
    Exercise(
        "a duplicate comes two chunks late",
        [(0, 2), (1, 2), (2, 2), (0, 2 + _NEXT), (1, 2 + _NEXT), (2, 2 + _NEXT),
         (0, 2 + 2 * _NEXT), (1, 2), (1, 2 + 2 * _NEXT), (0, 2), (2, 2 + 2 * _NEXT)],
    ),
    Exercise(
        "duplicates in each use of a slot",
        [step for n in range(4) for w in (1, 0, 2) for step in [(w, 4 + n * _NEXT)] * 2],
    ),
)  # fmt: skip


def exercises(level: int) -> Sequence[Exercise]:
    """Those of a level; the ones of level 2 are those of level 1, in UDP datagrams."""
    return _LOSSES if level == 3 else _SUMS


def run_exercises(program: ir.Program, level: int, seed: int) -> tuple[int, LabFinding | None]:
    """Send all packets to the student's switch, until one is wrong.

    Returns:
        how many were sent, and what is wrong.
    """
    sent = 0
    for exercise in exercises(level):
        switch = SwitchUnderTest(program, exercise.workers, level)
        for worker, number in exercise.steps:
            chunk = _chunk(exercise, worker, max(number, 0), seed)
            frame = contribution(chunk, level)
            if number == -1:
                frame = _foreign(chunk, level)
            elif number == -2:
                frame = frame[:12] + b"\x08\x06" + frame[14:]  # an ARP packet's type
            real = chunk if number >= 0 else None
            _, finding = switch.take(exercise.title, worker, frame, real)
            sent += 1
            if finding is not None:
                return sent, finding
    return sent, None


def _foreign(chunk: LabChunk, level: int) -> bytes:
    """A UDP datagram to another port, with what would be a chunk at the lab's."""
    return contribution(chunk, max(level, 2), port=4243)


def _chunk(exercise: Exercise, worker: int, number: int, seed: int) -> LabChunk:
    """A worker's chunk: the same whenever it is sent."""
    values = random.Random(f"{seed} {worker} {number}")  # noqa: S311 - repeatable
    most = exercise.most
    elements = tuple(values.randint(-most, most) for _ in range(VALUES))
    return LabChunk(worker, number, elements)


__all__ = ["Exercise", "exercises", "run_exercises"]
