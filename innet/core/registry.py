"""Named plug-ins: one class for codecs' parts, programs, transports and whatever else has names.

A registry holds ``name -> "module:attribute"`` and imports the module when the name is first used,
so that a part whose dependencies are missing costs nothing until it is asked for. Other
distributions add to it by an entry point in the group that the registry names, and a user's own
files by ``innet.core.user_modules``.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Generic, TypeVar

from innet.core import user_modules
from innet.core.errors import ConfigError, InputError, UnknownNameError

T = TypeVar("T")


def split_name(text: str) -> tuple[str, dict[str, Any]]:
    """What a person wrote as "name" or "name:key=value,key=value".

    Values are Python's literals (numbers, True, None); whatever else they are stays text. Commas
    inside brackets are part of a value.

    Raises:
        ConfigError: not of that form.
    """
    name, colon, rest = text.partition(":")
    found: dict[str, Any] = {}
    for each in _pieces(rest) if colon else ():
        key, equals, value = each.partition("=")
        if not (name and equals and key.strip() and value.strip()):
            raise ConfigError(
                f"{text[:60]!r} cannot be read; write NAME, or NAME:KEY=VALUE,KEY=VALUE."
            )
        found[key.strip()] = literal(value.strip())
    return name, found


def _pieces(text: str) -> list[str]:
    """The text, cut at its commas, but not at those inside brackets."""
    found, depth = [""], 0
    for each in text:
        depth += (each in "([{") - (each in ")]}")
        if each == "," and depth <= 0:
            found.append("")
        else:
            found[-1] += each
    return found


def literal(text: str) -> Any:
    """What a person wrote as a value: a number or another literal of Python's, else text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        kind: what is registered, as it reads in an error message ("codec", "selector").
        group: entry-point group in which other distributions register more.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._targets: dict[str, str] = {}
        self._loaded: dict[str, T] = {}
        self._others: dict[str, str] = {}  # of names from entry points, the distribution
        self._entry_points_read = False

    def register(self, name: str, target: str | T) -> None:
        """Add ``name``. ``target`` is "module:attribute", imported on first use, or the object.

        Raises:
            InputError: the name is taken.
        """
        if name in self._targets or name in self._loaded:
            raise InputError(f"{self.kind} {name!r} is registered already; choose another name.")
        if isinstance(target, str):
            self._targets[name] = target
        else:
            self._loaded[name] = target

    def get(self, name: str) -> T:
        """What ``name`` stands for.

        Raises:
            UnknownNameError: nothing of that name; the message lists what there is.
            ConfigError: what was registered is not where it was said to be.
        """
        if name not in self._loaded:
            self._read_entry_points()
            if name not in self._targets:
                own = (
                    f"Add your own by innet --import FILE, by an entry point {self.group}, or in "
                    "Python by register (innet help extending)."
                )
                raise UnknownNameError(self.kind, name, self.names(), own=own)
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        target = self._targets[name]
        module, _, attribute = target.partition(":")
        imported = None
        try:
            imported = importlib.import_module(module)
            loaded: T = attrgetter(attribute)(imported)
        except (ImportError, AttributeError) as error:
            if name in self._others:
                raise ConfigError(
                    f"{self.kind} {name!r} cannot be loaded from {target!r}, an entry point of "
                    f"{self._others[name]} in the group {self.group!r}: {error}. Mend that "
                    "distribution, or uninstall it."
                ) from error
            absent = isinstance(error, ModuleNotFoundError) and error.name is not None
            if imported is None and not (absent and f"{module}.".startswith(f"{error.name}.")):
                raise  # the module is there, and fails itself
            raise ConfigError(
                f"{self.kind} {name!r} is registered as {target!r}: {error}. Mend the line that "
                'registers it, as "module:class".'
            ) from error
        return loaded

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self._read_entry_points()
        return sorted({*self._targets, *self._loaded})

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: object) -> bool:
        self._read_entry_points()
        return name in self._targets or name in self._loaded

    def _read_entry_points(self) -> None:
        user_modules.import_all()
        if self._entry_points_read:
            return
        self._entry_points_read = True
        for point in _installed(tuple(sys.path)).select(group=self.group):
            # A name of innet itself wins: installing a package must not change what a run means.
            if point.name not in self._targets and point.name not in self._loaded:
                self._targets[point.name] = point.value
                self._others[point.name] = point.dist.name if point.dist else "a distribution"


@cache
def _installed(path: tuple[str, ...]) -> Any:  # noqa: ARG001 - where they are looked for
    """Those of all distributions. Reading them takes long, and each registry has a group."""
    return entry_points()
