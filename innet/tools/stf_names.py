"""Names and values as STF tests write them, found in a program.

Tests use the names of P4 sources, with as much of the path before them as the writer saw fit.
Values of keys and arguments are text; a key's kind of match says how it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from innet.core.errors import ControlError, UnknownNameError
from innet.switch import ir
from innet.tools.stf_syntax import number


class Names:
    """What the names in a test mean."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program

    def table(self, name: str) -> ir.Table:
        tables = self.program.tables
        return tables[_find("table", name, [each.name for each in tables])]

    def action(self, table: ir.Table, name: str) -> ir.Action:
        """One of the table's actions."""
        actions = [self.program.actions[each] for each in table.actions]
        names = [each.name for each in actions]
        return actions[_find("action", name, names, of=f"table {table.name}")]

    def counter(self, name: str) -> ir.CounterArray:
        counters = self.program.counters
        return counters[_find("counter", name, [each.name for each in counters])]

    def key(self, table: ir.Table, name: str) -> int:
        """The position of a key field.

        ``stack$1.f`` is ``stack[1].f``; a header alone stands for its validity; and parts of the
        path may be missing at the front.
        """
        head, dollar, tail = name.partition("$")
        digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
        if dollar and digits:
            name = f"{head}[{digits}]{tail[len(digits) :]}"
        names = [each.name for each in table.keys]
        wanted = [name, f"{name}$", f"{name}.$valid$"]
        if name.endswith("valid"):
            wanted.append(f"{name.removesuffix('valid')}$valid$")
        if name.endswith(("$valid", "isValid")):
            wanted.append(f"{name.rpartition('.')[0]}.$valid$")
        for each in wanted:
            if each in names:
                return names.index(each)
        for each in wanted:
            for position, known in enumerate(names):
                if known.endswith(f".{each}"):
                    return position
        raise ControlError(str(UnknownNameError("key field", name, names, of=table.name)))


def _find(kind: str, name: str, names: Sequence[str], *, of: str = "") -> int:
    """The position of the name that is ``name``, or else the only one that ends so."""
    if name in names:
        return names.index(name)
    for ending in (f".{name}", name):
        fitting = [i for i, each in enumerate(names) if each.endswith(ending)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            listed = ", ".join(sorted(names[i] for i in fitting))
            raise ControlError(f"{kind} {name!r} is ambiguous: {listed}")
    raise ControlError(str(UnknownNameError(kind, name, names, of=of)))


# ── Values ──


def arguments_of(action: ir.Action, given: Iterable[tuple[str, str]]) -> list[int]:
    """The arguments in the order of the action's parameters.

    Raises:
        ControlError: one that is missing, stated twice, of no such name, or no number.
    """
    values: dict[str, int] = {}
    names = [each.name for each in action.parameters]
    for name, text in given:
        if name not in names:
            raise ControlError(str(UnknownNameError("parameter", name, names, of=action.name)))
        if name in values:
            raise ControlError(f"parameter {name} of {action.name} is given twice")
        values[name] = _plain(text, f"parameter {name}")
    if missing := [name for name in names if name not in values]:
        raise ControlError(f"action {action.name} needs {', '.join(missing)} as well")
    return [values[name] for name in names]


def match_of(key: ir.TableKey, text: str | None) -> ir.Match:
    """What ``text`` says of a key field; None: anything, or 0 where the match is exact.

    Raises:
        ControlError: it says nothing that the key's kind of match knows.
    """
    what = f"key field {key.name}, which is {key.match.value}"
    every = (1 << key.width) - 1
    match key.match:
        case ir.MatchKind.EXACT | ir.MatchKind.VALID:
            return ir.ExactMatch(_plain(text or "0", what))
        case ir.MatchKind.TERNARY:
            value, mask = _masked(text or "0&&&0", what)
            return ir.TernaryMatch(value, every if mask is None else mask & every)
        case ir.MatchKind.LPM:
            first, slash, second = (text or "0/0").partition("/")
            if slash:
                return ir.LpmMatch(_plain(first, what), _plain(second, what))
            return ir.LpmMatch(_starred(first, what), min(_digits(first, key.width), key.width))
        case ir.MatchKind.RANGE:
            first, dots, second = (text or f"0..{every}").partition("..")
            return ir.RangeMatch(_plain(first, what), _plain(second if dots else first, what))


def _plain(text: str, what: str) -> int:
    try:
        return number(text)
    except ValueError:
        raise ControlError(f"{text!r} is no value for {what}") from None


def _starred(text: str, what: str) -> int:
    """The number with 0 for each star."""
    return _plain(text.replace("*", "0"), what)


_BITS = {"x": 4, "o": 3, "b": 1}


def _masked(text: str, what: str) -> tuple[int, int | None]:
    """Value and mask. A number of digits masks as many digits as were written; a decimal number
    everything (None).
    """
    value, amps, mask = text.partition("&&&")
    if amps:
        return _plain(value, what), _plain(mask, what)
    if text[1:2].lower() not in _BITS:
        return _plain(text, what), None
    bits = _BITS[text[1].lower()]
    found = 0
    for digit in text[2:]:
        found = found << bits | (0 if digit == "*" else (1 << bits) - 1)
    return _starred(text, what) & found, found


def _digits(text: str, width: int) -> int:
    """How many bits the digits before the stars have; of a decimal number, all."""
    bits = _BITS.get(text[1:2].lower())
    return width if bits is None else bits * (len(text) - 2 - text.count("*"))
