"""Numbers as people read them: counts, bytes, rates, times, shares, scores."""

from __future__ import annotations

from collections.abc import Callable

from innet.records.training import Metric

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SMALL = 0.995  # below, all three digits are behind the point
_LARGE = ((1e9, " billion"), (1e6, " million"))


def count(number: int) -> str:
    """An integer with separators: 1,234,567."""
    return f"{number:,}"


def plural(number: object, noun: str) -> str:
    """A number of things: 1 worker, 4 workers; ? workers if unknown."""
    said = count(number) if isinstance(number, int) else "?"
    return f"{said} {noun}" + ("" if number == 1 else "s")


def size(number: float) -> str:
    """Bytes with a decimal prefix and three digits: 1.23 MB; below 1000, whole bytes."""
    for factor, prefix in _PREFIXES:
        if number >= 0.9995 * factor:  # what would be rounded to 1000 takes the next prefix
            return f"{_three_digits(number / factor)} {prefix}B"
    return f"{number:.0f} B"


def rate(number: float) -> str:
    """Events per second: 1.23 million/s, 45,600/s."""
    for factor, word in _LARGE:
        if number >= 0.9995 * factor:
            return f"{_three_digits(number / factor)}{word}/s"
    if number >= 100:
        return f"{float(f'{number:.3g}'):,.0f}/s"
    return f"{number:.3g}/s"


def duration(seconds: float) -> str:
    """Three digits in the unit that fits: 1.23 s, 45.6 ms, 789 µs."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns" if seconds else "0 s"


def rough_duration(seconds: float) -> str:
    """What is said of work that may take hours: 45 s, 12 min, 3 h 20 min."""
    if seconds < 99.5:
        return duration(seconds)
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def setting(value: object) -> str:
    """The value of a setting, as it is typed: 0.001, 1e+10, topk."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def percent(share: float) -> str:
    """A share in per cent, with one decimal: 97.8 %."""
    return f"{share * 100:.1f} %"


def score(number: float, metric: Metric) -> str:
    """A score: per cent for a share (97.8 %), otherwise three digits (4.20, 0.0123)."""
    if metric.unit == "share":
        return percent(number)
    if abs(number) < _SMALL:
        return f"{number:.3g}"
    return f"{'-' if number < 0 else ''}{_three_digits(abs(number))}"


def score_like(typical: float, metric: Metric) -> Callable[[float], str]:
    """A function that formats scores and their spread with the decimals of ``typical``, without the
    unit.
    """
    if metric.unit == "share":
        return lambda number: f"{number:.1f}"
    if 0 < abs(typical) < _SMALL:
        return lambda number: f"{number:.3g}"
    return lambda number: f"{number:.2f}"


def times(factor: float) -> str:
    """A ratio: 11.5×, 0.99×, 1,230×."""
    text = f"{factor:,.0f}" if factor >= 999.5 else _three_digits(factor)
    return text + "\N{MULTIPLICATION SIGN}"


def _three_digits(number: float) -> str:
    """1.23, 12.3, 123; 1,235 if there is no larger unit."""
    if number >= 99.95:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"
