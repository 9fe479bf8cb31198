"""``check``: a student's switch and workers at each level, and the first wrong packet of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from innet.core.errors import InputError, ProgramError
from innet.lab.exercises import run_exercises
from innet.lab.findings import LabFinding
from innet.lab.folder import WORKER, program_of, sum_vector_of
from innet.lab.packets import LEVELS
from innet.lab.worker_part import SumVector, WorkerRun
from innet.switch import ir


@dataclass(frozen=True)
class CheckedLevel:
    """A level that was checked.

    Attributes:
        level: 1 to 3.
        switch: what is wrong with the switch alone; None if nothing is.
        workers: what is wrong where the workers sum vectors by it. If the switch alone is wrong,
            they do so by the lab's own.
        packets: that the switch and the workers were checked with.
    """

    level: int
    switch: LabFinding | None
    workers: LabFinding | None
    packets: tuple[int, int]

    @property
    def findings(self) -> list[LabFinding]:
        return [each for each in (self.switch, self.workers) if each is not None]


@dataclass(frozen=True)
class LabReport:
    """What was checked.

    Attributes:
        seed: of vectors and faults.
        levels: in order.
        error: why there is no program or worker to check; "" if there is.
    """

    seed: int
    levels: Sequence[CheckedLevel]
    error: str = ""

    @property
    def passed(self) -> bool:
        return not self.error and not any(each.findings for each in self.levels)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        levels = [
            {
                "level": each.level,
                "passed": not each.findings,
                "packets": {"switch": each.packets[0], "workers": each.packets[1]},
                "findings": [finding.document() for finding in each.findings],
            }
            for each in self.levels
        ]
        return {"passed": self.passed, "seed": self.seed, "error": self.error, "levels": levels}


def check(
    folder: str | Path,
    levels: Iterable[int] = LEVELS,
    seed: int = 0,
    *,
    p4c: str | None = None,
    warn: Callable[[str], object] = lambda _: None,
) -> LabReport:
    """Check a student's folder.

    The same seed gives the same packets, losses, duplicates and delays.

    Args:
        folder: with aggregate.p4 and worker.py.
        levels: which ones.
        seed: of vectors and faults.
        p4c: the compiler; by default searched on PATH.
        warn: gets what p4c says of a program that it compiles.

    Raises:
        InputError: no such folder, or a level that there is not.
        MissingToolError: no p4c, and no compiled program that is newer than the source.
    """
    folder, levels = Path(folder), sorted(set(levels))
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder; `innet lab new {folder}` writes one.")
    if unknown := [each for each in levels if each not in LEVELS]:
        raise InputError(f"there is no level {unknown[0]!r}; levels are 1, 2 and 3.")
    try:
        program = program_of(folder, p4c, warn)
        sum_vector = sum_vector_of(folder / WORKER)
        checked = [check_level(program, sum_vector, level, seed) for level in levels]
    except (ProgramError, InputError) as error:
        return LabReport(seed, (), str(error))
    return LabReport(seed, checked)


def check_level(
    program: ir.Program, sum_vector: SumVector, level: int, seed: int = 0
) -> CheckedLevel:
    """Check one level.

    Raises:
        ProgramError: the program has not the tables that the lab fills.
    """
    sent, wrong = run_exercises(program, level, seed)
    run = WorkerRun(sum_vector, program if wrong is None else None, level, seed)
    finding = run.run()
    return CheckedLevel(level, wrong, finding, (sent, run.packets))


__all__ = ["CheckedLevel", "LabReport", "check", "check_level"]
