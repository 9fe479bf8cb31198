"""Every error that innet raises on purpose.

    InnetError
    ├── InputError            what the caller passed cannot be used (also a ValueError)
    │   ├── GradientError     a tensor: dtype, shape, NaN or infinity, named by worker and index
    │   ├── ConfigError       an experiment description: an unknown key, a value out of range
    │   └── UnknownNameError  a name that no registry holds; lists the names that exist
    ├── CompositionError      codec parts that cannot work together, with the reason
    ├── PacketError           bytes that are no innet packet
    ├── ProgramError          a compiled P4 program that cannot be loaded
    │   └── UnsupportedError  ... because it uses a construct the switch model does not have
    ├── ControlError          a control-plane command that was refused; nothing was changed
    ├── StateError            saved or remembered state that does not fit what it is used with
    ├── StalledError          a wait that reached its deadline; says whom it waited for
    └── MissingToolError      a tool or package that is not installed; says how to get it

Catch ``InnetError`` to catch them all. The command line prints the message alone, so each message
names the offending thing and says what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InnetError(Exception):
    """Base class of all errors that innet raises on purpose."""


class InputError(InnetError, ValueError):
    """An argument that cannot be used."""


class GradientError(InputError):
    """A gradient of the wrong dtype or shape, or with a value that is not finite."""


class ConfigError(InputError):
    """An experiment description that cannot be used."""


class UnknownNameError(InputError):
    """A name that is not registered. ``known`` holds the names that are."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        close = difflib.get_close_matches(name, self.known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        super().__init__(
            f"unknown {kind} {name!r}.{hint} Known: {', '.join(self.known) or 'none'}."
        )


class CompositionError(InnetError):
    """A combination of codec parts that cannot work; the message gives the reason."""


class PacketError(InnetError, ValueError):
    """Bytes that do not follow the wire format."""


class ProgramError(InnetError):
    """A compiled P4 program that cannot be loaded."""


class UnsupportedError(ProgramError):
    """A P4 construct that the switch model does not have."""


class ControlError(InnetError):
    """A control-plane command that was refused. The state of the switch is unchanged."""


class StateError(InnetError):
    """State that does not fit: a residual of another tensor layout, a cursor of another job."""


class StalledError(InnetError, TimeoutError):
    """A wait reached its deadline. The message says which slots wait for which workers."""


class MissingToolError(InnetError):
    """Something that is not installed.

    Args:
        what: the tool or package, as people know it.
        needed_for: what innet wanted to do with it.
        remedy: how to get it.
    """

    def __init__(self, what: str, needed_for: str, remedy: str) -> None:
        self.what = what
        self.needed_for = needed_for
        self.remedy = remedy
        super().__init__(f"{what} is not installed; it is needed for {needed_for}. {remedy}")
