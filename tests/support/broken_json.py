"""Compiled programs damaged in one place, as a bug in a compiler or a careless hand might."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

HUGE = (2**31 - 1, 2**32 - 1, 2**32, 2**63, 2**64, 10**30, 10**400)
NUMBERS = (-1, 0, 1, 2, 3, 7, 8, 9, 64, 65, 255, 511, 512, 4096, 65536, *HUGE)
OTHERS = (None, True, False, "", "x", "0x", "0xzz", "-0x1", "$valid$", 1.5, [], {}, [[]], [None])

Place = tuple[Any, Any]
"""A container and the key or index of one of its members."""


def broken(document: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A copy of ``document`` with one or two damages."""
    changed = copy.deepcopy(document)
    for _ in range(rng.integers(1, 3)):
        places = list(_places(changed))
        if places:
            _damage(changed, places[rng.integers(len(places))], places, rng)
    return changed


def _places(value: Any) -> Iterator[Place]:
    members = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in list(members):
        yield value, key
        if isinstance(member, dict | list):
            yield from _places(member)


def _pick(rng: np.random.Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def _damage(
    document: dict[str, Any],
    place: Place,
    places: list[Place],
    rng: np.random.Generator,
) -> None:
    container, key = place
    old = container[key]
    other_container, other_key = _pick(rng, places)
    match rng.integers(0, 10):
        case 0:
            del container[key]
        case 1:
            container[key] = _pick(rng, OTHERS)
        case 2 if isinstance(old, int):
            container[key] = _pick(rng, NUMBERS)
        case 3 if isinstance(old, int):
            container[key] = old + int(rng.integers(-3, 4))
        case 4 if isinstance(old, str):
            container[key] = _name_elsewhere(places, rng)
        case 5 if isinstance(container, list):
            container.insert(int(rng.integers(len(container) + 1)), copy.deepcopy(old))
        case 6:
            # From elsewhere; a copy, so that nothing holds itself.
            container[key] = copy.deepcopy(other_container[other_key])
        case 7 if isinstance(old, str):
            container[key] = old[: int(rng.integers(len(old) + 1))] + _pick(rng, ("", "0", "f"))
        case 8 if isinstance(old, list) and old:
            rng.shuffle(old)
        case 9:
            document["__meta__"] = {"version": [int(rng.integers(0, 4)), int(rng.integers(0, 30))]}


def _name_elsewhere(places: list[Place], rng: np.random.Generator) -> str:
    """A string that stands somewhere in the document: often a name of another kind of thing."""
    for _ in range(50):
        container, key = _pick(rng, places)
        if isinstance(container[key], str):
            return container[key]
    return "nothing"
