"""Values of the control plane: numbers, addresses and matches, checked for where they go."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from innet.core.errors import ControlError
from innet.core.numbers import require_int
from innet.switch import ir

Key = int | str | tuple[int, int] | ir.Match | None
"""One field of a match: an integer (all its bits must be equal), (value, prefix length) for lpm,
(value, mask) for ternary, (low, high) for range, None for anything at all, or text as
simple_switch_CLI reads it."""

Plain = int | str | tuple[int, int] | None

Number = int | str
"""An integer, or text: decimal, 0x..., an IPv4, IPv6 or Ethernet address where the width fits."""


_VALIDITY: dict[str, Number] = {"true": 1, "valid": 1, "false": 0, "invalid": 0}
"""What the validity of a header may be called in a key."""

_ADDRESSES = {32: ", or 10.0.0.1", 48: ", or 02:00:00:00:00:01", 128: ", or 2001:db8::1"}
"""By width: how a value may be written, too."""


def number(value: Number, width: int, what: str) -> int:
    """A value of ``width`` bits; ControlError, which calls it ``what``, when it does not fit."""
    parsed = _parse(value, width, what) if isinstance(value, str) else require_int(value, what)
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


#: The kinds of key fields that each class of match is for.
_KINDS: Mapping[type, tuple[ir.MatchKind, ...]] = {
    ir.ExactMatch: (ir.MatchKind.EXACT, ir.MatchKind.VALID),
    ir.LpmMatch: (ir.MatchKind.LPM,),
    ir.TernaryMatch: (ir.MatchKind.TERNARY,),
    ir.RangeMatch: (ir.MatchKind.RANGE,),
}


def match_of(key: Key, field: ir.TableKey) -> ir.Match:
    """What ``key`` says about ``field``; ControlError when it cannot say that."""
    what = f"key field {field.name}"
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
            prefix = integer(second, f"the prefix length of {what}")
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


def _plain(key: Key, field: ir.TableKey, what: str) -> Plain:
    """``key`` without its class, which must be that of the field's kind."""
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
    key: Plain,
    separator: str,
    anything: tuple[int, int],
    other: int = 0,
    *,
    first_again: bool = False,
) -> tuple[Number, Number]:
    """Both parts of a key. The second part of a key of one part is ``other``, or the first."""
    if key is None:
        return anything
    if isinstance(key, tuple):
        return key
    if isinstance(key, str) and separator in key:
        first, _, second = key.partition(separator)
        return first.strip(), second.strip()
    return key, key if first_again else other


def integer(value: Number, what: str) -> int:
    """A whole number, of any size, decimal where it is text."""
    if not isinstance(value, str):
        return require_int(value, what)
    try:
        return int(value)
    except ValueError:
        raise ControlError(f"{value!r} is no integer for {what}") from None


def inside(index: int, size: int, name: str) -> int:
    """``index`` when it is one of ``size`` cells of ``name``."""
    index = require_int(index, f"the index of {name}")
    if not 0 <= index < size:
        raise ControlError(f"index {index} is not in 0..{size - 1} of {name}")
    return index


def describe_match(match: ir.Match) -> str:
    """A match in the words of table_add."""
    if isinstance(match, ir.ExactMatch):
        return hex(match.value)
    if isinstance(match, ir.LpmMatch):
        return f"{match.value:#x}/{match.prefix}"
    if isinstance(match, ir.TernaryMatch):
        return f"{match.value:#x}&&&{match.mask:#x}"
    return f"{match.low:#x}->{match.high:#x}"
