"""When workers that train by themselves average their parameters: local SGD, and Hier-AVG.

    LocalSgd.parse("16")       every 16 steps all workers average
    LocalSgd.parse("4,16")     and every 4 steps those of each rack

K1 and K2 of Hier-AVG (Zhou and Cong, 2019, arXiv 1903.05133) are the two numbers. Either may be a
schedule of the step, such as "steps({0: 1, 100: 4}),16".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from innet.core.errors import ConfigError
from innet.core.schedules import Schedule, parse

Scope: TypeAlias = Literal["job", "rack", "none"]
"""Who averages after a step: all workers of the job, those of each rack, or none."""

_COMMA = re.compile(r",(?![^()]*\))")  # outside of parentheses
_MOST = 1_000_000


@dataclass(frozen=True, slots=True)
class LocalSgd:
    """Steps between averages, whole numbers from 1 or schedules of them.

    Attributes:
        every: of all workers: K2.
        rack: of each rack: K1; None if racks do not average for themselves.
    """

    every: int | Schedule
    rack: int | Schedule | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """From "K2" or "K1,K2".

        Raises:
            ConfigError: another text, or numbers that are none; K1 is less than K2.
        """
        words = [word.strip() for word in _COMMA.split(text)]
        if not 1 <= len(words) <= 2:
            raise ConfigError(f"local SGD {text[:80]!r}: write it as K2 or K1,K2, such as 4,16.")
        periods = [_period(word, text) for word in words]
        found = cls(periods[-1], periods[0] if len(periods) > 1 else None)
        rack, every = found.rack, found.every
        if isinstance(rack, int) and isinstance(every, int) and rack >= every:
            raise ConfigError(
                f"local SGD {text!r}: racks average every {rack} steps and all workers every "
                f"{every}; K1 must be less than K2, or leave K1 out."
            )
        return found

    def scopes(self) -> Iterator[Scope]:
        """Who averages after each step, without end. All workers' average is also each rack's."""
        since_all = since_rack = step = 0
        while True:
            since_all, since_rack = since_all + 1, since_rack + 1
            if since_all >= _at(self.every, step):
                since_all = since_rack = 0
                yield "job"
            elif self.rack is not None and since_rack >= _at(self.rack, step):
                since_rack = 0
                yield "rack"
            else:
                yield "none"
            step += 1


def _period(word: str, text: str) -> int | Schedule:
    if (schedule := parse(word)) is not None:
        return schedule
    if not word.isascii() or not word.isdigit() or not 1 <= int(word[:8]) <= _MOST:
        raise ConfigError(
            f"local SGD {text[:80]!r}: {word[:20]!r} is no number of steps; write K2 or K1,K2 as "
            f"whole numbers from 1 to {_MOST:,} or as schedules, such as 4,16."
        )
    return int(word)


def _at(period: int | Schedule, step: int) -> int:
    """The steps between averages; a schedule's number is rounded, and at least 1."""
    return period if isinstance(period, int) else max(1, round(period(step)))
