"""Schedules: numbers that depend on how many all-reduces are complete.

    innet.Collective(codec={"preset": "topk", "selector": {"ratio": Exponential(0.25, 0.01, 40)}})
    innet.Collective(codec="topk:ratio=exponential(0.25, 0.01, steps=40)")

Any numeric parameter of a codec's part may be a schedule, as an object or as the same text. Steps
are counted from 0, and are the same on all workers. Computed numbers are rounded to nine decimal
digits, so that they are the same on machines whose mathematical libraries differ in the last bit.
"""

from __future__ import annotations

import ast
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from innet.core.errors import ConfigError, InputError
from innet.core.numbers import is_int, is_real

_CALL = re.compile(r"\s*[A-Za-z_]\w*\s*\(.*\)\s*", re.DOTALL)
_DIGITS = 9


class Schedule(ABC):
    """A number for each step. Schedules of equal parameters are equal, and can be pickled."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The number in all-reduce ``step``, from 0."""

    @property
    def turns(self) -> tuple[int, ...]:
        """Steps among whose numbers are the smallest and the largest, as far as they are known."""
        return (0,)

    def __str__(self) -> str:
        """The text that ``parse`` reads."""
        given = (_text(getattr(self, each.name)) for each in fields(self))  # type: ignore[arg-type]  # all are dataclasses
        return f"{type(self).__name__.lower()}({', '.join(given)})"


@dataclass(frozen=True)
class _Ramp(Schedule):
    """From ``start`` at step 0 to ``end`` at step ``steps``, and ``end`` from then on."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        _check_numbers(self, start=self.start, end=self.end)
        _check_count(self, "steps", self.steps)

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return self.end
        return self.start if step <= 0 else _rounded(self._between(step / self.steps))

    @property
    def turns(self) -> tuple[int, ...]:
        return (0, self.steps)

    @abstractmethod
    def _between(self, share: float) -> float: ...


class Linear(_Ramp):
    """start + (end - start) · step / steps."""

    def _between(self, share: float) -> float:
        return self.start + (self.end - self.start) * share


class Cosine(_Ramp):
    """end + (start - end) · (1 + cos(π · step / steps)) / 2."""

    def _between(self, share: float) -> float:
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * share)) / 2


class Exponential(_Ramp):
    """start · (end / start)^(step / steps).

    It is the warm-up of DGC (Lin et al., ICLR 2018), whose ratio falls exponentially.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.start > 0 and self.end > 0):
            raise InputError(f"{self}: an exponential schedule goes from and to numbers above 0.")

    def _between(self, share: float) -> float:
        return self.start * math.pow(self.end / self.start, share)


@dataclass(frozen=True, init=False)
class Steps(Schedule):
    """Constant between steps.

    Args:
        values: by the step from which each holds, such as {0: 0.25, 40: 0.01}; the first is 0.
    """

    values: tuple[tuple[int, float], ...]

    def __init__(self, values: Mapping[int, float]) -> None:
        pairs = tuple(sorted(values.items())) if _are_steps(values) else ()
        if not pairs or pairs[0][0] != 0:
            raise InputError(
                f"steps({values!r}): give the numbers by the step from which each holds, such as "
                "steps({0: 0.25, 40: 0.01}), the first from step 0."
            )
        object.__setattr__(self, "values", pairs)

    def __call__(self, step: int) -> float:
        return max((start, value) for start, value in self.values if start <= max(0, step))[1]

    @property
    def turns(self) -> tuple[int, ...]:
        return tuple(start for start, _ in self.values)

    def __str__(self) -> str:
        inside = ", ".join(f"{start}: {_text(value)}" for start, value in self.values)
        return f"steps({{{inside}}})"


@dataclass(frozen=True)
class WarmUp(Schedule):
    """From ``start`` linearly to what follows, within ``steps``; ``then`` is a number or another
    schedule, whose step 0 that is.
    """

    then: float | Schedule
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.then, Schedule):
            _check_numbers(self, then=self.then)
        _check_numbers(self, start=self.start)
        _check_count(self, "steps", self.steps)

    def __call__(self, step: int) -> float:
        if step >= self.steps:
            return self.then(step - self.steps) if isinstance(self.then, Schedule) else self.then
        first = self.then(0) if isinstance(self.then, Schedule) else self.then
        return Linear(self.start, first, self.steps)(step)

    @property
    def turns(self) -> tuple[int, ...]:
        later = self.then.turns if isinstance(self.then, Schedule) else (0,)
        return (0, *(self.steps + each for each in later))


@dataclass(frozen=True)
class Function(Schedule):
    """A function of the step, the same on all workers.

    Its code is not compared: workers compare its numbers in each all-reduce.
    """

    function: Callable[[int], float]

    def __call__(self, step: int) -> float:
        found: object = self.function(step)
        if not is_real(found) or not math.isfinite(found):
            raise InputError(f"{self} gave {found!r} at step {step}; it must give a number.")
        return found

    def __str__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"function({name})"


KINDS: Mapping[str, type[Schedule]] = {
    each.__name__.lower(): each for each in (Linear, Cosine, Exponential, Steps, WarmUp)
}
"""The schedules that have a text, by its first word."""


def is_schedule(value: object) -> bool:
    """Whether it is a schedule or the text of one, also that of a function."""
    if isinstance(value, Schedule):
        return True
    named = isinstance(value, str) and _CALL.fullmatch(value)
    return bool(named) and str(value).partition("(")[0].strip().lower() in (*KINDS, "function")


def parse(value: object) -> Schedule | None:
    """A schedule from an object or a text such as "linear(1, 0.1, steps=20)"; None for others.

    Raises:
        ConfigError: a text of that form that describes no schedule.
    """
    if isinstance(value, Schedule):
        return value
    if not isinstance(value, str) or not _CALL.fullmatch(value):
        return None
    try:
        return _built(ast.parse(value.strip(), mode="eval").body)
    except (InputError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise ConfigError(
            f"{value[:80]!r} is no schedule: {str(error).rstrip('.')}. Write one of "
            "linear(START, END, steps=N), cosine(START, END, steps=N), "
            "exponential(START, END, steps=N), steps({0: A, N: B}), "
            "warmup(NUMBER_OR_SCHEDULE, steps=N, start=A)."
        ) from None


def _built(node: ast.expr) -> Schedule:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise InputError("it is not NAME(...)")
    if node.func.id.lower() not in KINDS:
        raise InputError(f"there is no {node.func.id}")
    positional = [_argument(each) for each in node.args]
    named = {each.arg: _argument(each.value) for each in node.keywords if each.arg is not None}
    kind: Callable[..., Schedule] = KINDS[node.func.id.lower()]
    return kind(*positional, **named)


def _argument(node: ast.expr) -> Any:
    return _built(node) if isinstance(node, ast.Call) else ast.literal_eval(node)


def _text(value: object) -> str:
    if isinstance(value, Schedule):
        return str(value)
    return repr(value if is_int(value) or not is_real(value) else float(value))


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _are_steps(values: object) -> bool:
    return isinstance(values, Mapping) and all(
        is_int(step) and step >= 0 and is_real(value) and math.isfinite(value)
        for step, value in values.items()
    )


def _check_numbers(schedule: Schedule, **numbers: object) -> None:
    for name, number in numbers.items():
        if not is_real(number) or not math.isfinite(number):
            kind = type(schedule).__name__.lower()
            raise InputError(f"{kind}: {name} is {number!r}; give a number.")


def _check_count(schedule: Schedule, name: str, count: object) -> None:
    if not is_int(count) or count < 1:
        kind = type(schedule).__name__.lower()
        raise InputError(f"{kind}: {name} is {count!r}; give a number of all-reduces from 1 on.")
