"""Arguments of the control plane: names, numbers, addresses and keys, and their checks."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

from innet.core.errors import ControlError, UnknownNameError
from innet.core.numbers import not_an_int, require_int
from innet.switch import ir
from innet.switch.state.meters import MAX_TOKENS, MeterRate

Key = int | str | tuple[int, int] | ir.Match | None
"""One field of a match: an integer (all its bits must be equal), (value, prefix length) for lpm,
(value, mask) for ternary, (low, high) for range, None for anything at all, or text as
simple_switch_CLI reads it."""

Number = int | str
"""An integer, or text: decimal, 0x..., an IPv4, IPv6 or Ethernet address where the width fits."""


# ── Names ──


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_T = TypeVar("_T", bound=_Named)


class Names(Generic[_T]):
    """The objects of one kind in a program, by name.

    A name may be shortened to a unique part after a dot: ``ingress.pool.admit`` may be written
    ``pool.admit`` or ``admit``.

    Args:
        kind: the name of the kind in messages, such as "table".
        things: names in the order of the program.
        of: their owner, for messages.
    """

    def __init__(self, kind: str, things: Iterable[_T], *, of: str = "") -> None:
        self.kind, self.of = kind, of
        self.things = tuple(things)
        self._positions: dict[str, int | None] = {}
        for position, thing in enumerate(self.things):
            parts = thing.name.split(".")
            for first in range(1, len(parts)):
                ending = ".".join(parts[first:])
                self._positions[ending] = None if ending in self._positions else position
        # A full name takes precedence over shortened ones.
        for position, thing in reversed([*enumerate(self.things)]):
            self._positions[thing.name] = position

    def find(self, name: str) -> int | None:
        """The position of ``name``; None if it is unknown or ambiguous."""
        return self._positions.get(name)

    def index(self, name: str) -> int:
        """As ``find``; ControlError if it is unknown or ambiguous."""
        position = self._positions.get(name)
        if position is not None:
            return position
        known = [thing.name for thing in self.things]
        if name in self._positions:
            fitting = sorted(each for each in known if each.endswith(f".{name}"))
            more = ", ..." if len(fitting) > 10 else ""
            raise ControlError(
                f"{self.kind} {name!r} is ambiguous: {', '.join(fitting[:10])}{more}"
            )
        raise ControlError(str(UnknownNameError(self.kind, name, known, of=self.of)))

    def __getitem__(self, name: str) -> _T:
        """The object ``name``; ControlError as in ``index``."""
        return self.things[self.index(name)]


# ── Numbers ──

_ADDRESSES = {32: ", or 10.0.0.1", 48: ", or 02:00:00:00:00:01", 128: ", or 2001:db8::1"}
"""Additional forms of a value, by width."""


def number(value: Number, width: int, what: str) -> int:
    """A value of ``width`` bits; ControlError, which names ``what``, if it does not fit."""
    parsed = (
        _parse(value, width, what)
        if isinstance(value, str)
        else require_int(value, what, ControlError)
    )
    if parsed < 0 or parsed >> width:
        raise ControlError(f"{value} does not fit the {width} bits of {what}")
    return parsed


def _parse(text: str, width: int, what: str) -> int:
    try:
        if width == 32 and "." in text:
            return int(ipaddress.IPv4Address(text))
        if width == 48 and ":" in text:
            parts = [int(part, 16) for part in text.split(":")]
            if len(parts) != 6 or not all(0 <= part <= 0xFF for part in parts):
                raise ValueError
            return int.from_bytes(bytes(parts), "big")
        if width == 128 and ":" in text:
            return int(ipaddress.IPv6Address(text))
        return int(text, 0)
    except ValueError:
        forms = f"42, 0x2a or 0b101{_ADDRESSES.get(width, '')}"
        raise ControlError(f"{text!r} is no number for {what}; write {forms}") from None


def in_range(value: object, last: int, what: str) -> int:
    """``value`` as an integer; ControlError, which names ``what``, if it is not in 0..last."""
    found = require_int(value, f"the {what}", ControlError)
    if not 0 <= found <= last:
        raise ControlError(f"{what} {found} is not in 0..{last}")
    return found


def cell_index(index: object, size: int, name: str) -> int:
    """``index``, checked against the ``size`` cells of array ``name``."""
    found = require_int(index, f"the index of {name}", ControlError)
    if not 0 <= found < size:
        raise ControlError(f"index {found} is not in 0..{size - 1} of {name}")
    return found


def distinct(values: Iterable[object], last: int, what: str) -> tuple[int, ...]:
    """Integers in 0..last, in ascending order; ControlError if one is repeated."""
    found = sorted(require_int(value, f"a {what}", ControlError) for value in values)
    for value in found:
        in_range(value, last, what)
    if len(set(found)) != len(found):
        raise ControlError(f"a {what} is named twice in {found}")
    return tuple(found)


def check_rates(array: ir.MeterArray, rates: Sequence[MeterRate]) -> None:
    """Raise ControlError unless these are valid rates for a cell of ``array``."""
    if len(rates) != array.rates:
        raise ControlError(f"meter {array.name} has {array.rates} rates, not {len(rates)}")
    for rate in rates:
        if not (math.isfinite(rate.per_microsecond) and rate.per_microsecond >= 0):
            raise ControlError(f"{rate.per_microsecond} is no rate of meter {array.name}")
        in_range(rate.burst, MAX_TOKENS, "burst size")
    for low, high in pairwise(rates):
        if low.per_microsecond > high.per_microsecond:
            raise ControlError(f"the rates of meter {array.name} must ascend")


# ── Keys ──

_Plain = int | str | tuple[int, int] | None

_VALIDITY: dict[str, Number] = {"true": 1, "valid": 1, "false": 0, "invalid": 0}
"""The spellings of a header's validity in a key."""

_KINDS: Mapping[type, tuple[ir.MatchKind, ...]] = {
    ir.ExactMatch: (ir.MatchKind.EXACT, ir.MatchKind.VALID),
    ir.LpmMatch: (ir.MatchKind.LPM,),
    ir.TernaryMatch: (ir.MatchKind.TERNARY,),
    ir.RangeMatch: (ir.MatchKind.RANGE,),
}
"""The kinds of key fields of each class of match."""


def matches_of(table: ir.Table, keys: Sequence[Key]) -> list[ir.Match]:
    """The matches of ``keys`` for the fields of a table's key; ControlError if they are invalid."""
    if len(keys) != len(table.keys):
        described = ", ".join(f"{each.name} ({each.match.value})" for each in table.keys)
        raise ControlError(
            f"table {table.name} needs {len(table.keys)} key fields, not {len(keys)}: "
            f"{described or 'none'}"
        )
    return [_match_of(key, field) for key, field in zip(keys, table.keys, strict=True)]


def _match_of(key: Key, field: ir.TableKey) -> ir.Match:
    what = f"key field {field.name}"
    if type(key) is int and field.match is ir.MatchKind.EXACT:  # the most frequent, so first
        return ir.ExactMatch(number(key, field.width, what))
    plain = _plain(key, field, what)
    every = (1 << field.width) - 1
    match field.match:
        case ir.MatchKind.EXACT | ir.MatchKind.VALID:
            if plain is None or isinstance(plain, tuple):
                raise ControlError(f"{what} is {field.match.value}: it needs one value")
            if field.field.field == ir.VALID and isinstance(plain, str):
                plain = _VALIDITY.get(plain.lower(), plain)
            return ir.ExactMatch(number(plain, field.width, what))
        case ir.MatchKind.LPM:
            first, second = _pair(plain, "/", (0, 0), field.width)
            prefix = _prefix_length(second, f"the prefix length of {what}")
            if not 0 <= prefix <= field.width:
                raise ControlError(f"prefix length {prefix} is not in 0..{field.width} of {what}")
            return ir.LpmMatch(number(first, field.width, what), prefix)
        case ir.MatchKind.TERNARY:
            first, second = _pair(plain, "&&&", (0, 0), every)
            mask = number(second, field.width, f"the mask of {what}")
            return ir.TernaryMatch(number(first, field.width, what), mask)
        case ir.MatchKind.RANGE:
            first, second = _pair(plain, "->", (0, every), first_again=True)
            low, high = number(first, field.width, what), number(second, field.width, what)
            if low > high:
                raise ControlError(f"{low}->{high} is an empty range for {what}")
            return ir.RangeMatch(low, high)


def _plain(key: Key, field: ir.TableKey, what: str) -> _Plain:
    """``key`` without its class, which must fit the field's kind."""
    if field.match not in _KINDS.get(type(key), (field.match,)):
        raise ControlError(f"{what} is {field.match.value}, which {type(key).__name__} is not")
    if isinstance(key, tuple) and len(key) != 2:
        raise ControlError(f"{what} is {field.match.value}: it takes one value or two, not {key}")
    match key:
        case ir.ExactMatch(value):
            return value
        case ir.LpmMatch(first, second) | ir.TernaryMatch(first, second):
            return (first, second)
        case ir.RangeMatch(low, high):
            return (low, high)
    return key


def _pair(
    key: _Plain,
    separator: str,
    anything: tuple[int, int],
    other: int = 0,
    *,
    first_again: bool = False,
) -> tuple[Number, Number]:
    """Both parts of a key. If it has only one, the second is ``other``, or the first."""
    if key is None:
        return anything
    if isinstance(key, tuple):
        return key
    if isinstance(key, str) and separator in key:
        first, _, second = key.partition(separator)
        return first.strip(), second.strip()
    return key, key if first_again else other


def _prefix_length(value: Number, what: str) -> int:
    """An integer; text is read as decimal."""
    if not isinstance(value, str):
        return require_int(value, what, ControlError)
    try:
        return int(value)
    except ValueError:
        raise not_an_int(value, what, ControlError) from None
