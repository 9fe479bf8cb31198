"""Walking and rebuilding immutable trees of dataclasses, whatever their classes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

_MEMBERS: dict[Any, tuple[str, ...] | None] = {}
_PLAIN = frozenset((bool, bytes, int, str, type(None)))  # most of what fields hold


def members(kind: Any) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None for any other class."""
    if kind not in _MEMBERS:
        plain = dataclasses.is_dataclass(kind)
        _MEMBERS[kind] = tuple(each.name for each in dataclasses.fields(kind)) if plain else None
    return _MEMBERS[kind]


def walk(node: Any) -> Iterator[Any]:
    """All dataclass instances in ``node`` and in its tuples, ``node`` first, in field order."""
    pending = [node]
    while pending:
        current = pending.pop()
        names = members(type(current))
        if names is not None:
            yield current
            for name in reversed(names):
                part = getattr(current, name)
                if type(part) not in _PLAIN:
                    pending.append(part)
        elif isinstance(current, tuple):
            pending.extend(reversed(current))


def mentions(tree: Any, node: Any) -> bool:
    """Whether ``tree`` contains ``node``."""
    return any(each == node for each in walk(tree))


def rebuild(node: Any, replace: Callable[[Any], Any]) -> Any:
    """``node`` with each dataclass instance in it replaced by ``replace``, innermost first.

    Parts that do not change are not copied.
    """
    if isinstance(node, tuple):
        parts = tuple(rebuild(part, replace) for part in node)
        same = all(new is old for new, old in zip(parts, node, strict=True))
        return node if same else parts
    names = members(type(node))
    if names is None:
        return node
    changes = {}
    for name in names:
        old = getattr(node, name)
        new = rebuild(old, replace)
        if new is not old:
            changes[name] = new
    return replace(dataclasses.replace(node, **changes) if changes else node)
