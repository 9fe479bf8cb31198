"""Every error that innet raises on purpose.

    InnetError
    ├── InputError            what the caller passed cannot be used (also a ValueError)
    │   ├── GradientError     a tensor: dtype, shape, NaN or infinity, named by worker and index
    │   ├── ConfigError       an experiment description: an unknown key, a value out of range
    │   ├── DivergedError     a training whose loss or score is no finite number any more
    │   ├── OutputError       a file that cannot be written, such as on a full disk
    │   └── UnknownNameError  a name that no registry holds; lists the names that exist
    ├── CompositionError      codec parts that cannot work together, with the reason
    ├── PacketError           bytes that are no innet packet
    ├── ProgramError          a compiled P4 program that cannot be loaded
    │   ├── UnsupportedError  ... because it uses a construct the switch model does not have
    │   └── EndlessLoopError  an action that jumped back so often that it may never end
    ├── ControlError          a control-plane command that was refused; nothing was changed
    ├── StateError            saved or remembered state that does not fit what it is used with
    ├── StalledError          a wait that reached its deadline; says whom it waited for
    │   └── MembershipError   ... or is in vain: a worker left the job, or the switch is gone
    ├── OverflowedError       a sum that left int32; codecs catch it and begin again
    ├── NetworkError          an interface, a socket or a process of a network that failed
    └── MissingToolError      a tool or package that is not installed; says how to get it

Catch ``InnetError`` to catch them all. The command line prints the message alone, so each message
names the offending thing and says what to do.
"""

from __future__ import annotations

import difflib
import enum
import errno
from collections.abc import Iterable
from typing import Any


class InnetError(Exception):
    """Base class of all errors that innet raises on purpose.

    All can be pickled, whatever they are made from: a pool of processes whose worker raises what
    cannot be unpickled waits for ever.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, vars(self))


def _remade(
    kind: type[InnetError], said: tuple[Any, ...], attributes: dict[str, Any]
) -> InnetError:
    error = kind.__new__(kind, *said)
    vars(error).update(attributes)
    return error


class InputError(InnetError, ValueError):
    """An argument that cannot be used."""


class GradientError(InputError):
    """A gradient of the wrong dtype or shape, or with a value that is not finite."""


class ConfigError(InputError):
    """An experiment description that cannot be used."""


class DivergedError(InputError):
    """A training whose loss or score is not finite any more; says when, and what to change."""


class OutputError(InputError):
    """A file, a folder or a stream that cannot be written."""

    @classmethod
    def of(cls, what: object, error: OSError) -> OutputError:
        """What to raise where writing ``what`` failed."""
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = "the disk is full" if full else error.strerror or error
        return cls(f"cannot write {what}: {why}.")


class UnknownNameError(InputError):
    """A name that is not registered. ``known`` holds the names that are; the message lists some.

    Args:
        kind: what it would be the name of.
        name: what was asked for.
        known: the names that exist; with dots where they are nested.
        of: what it was looked for in, as in "unknown action 'x' of table t".
        own: how a name of the user's gets there, said where the name is like no other.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, of: str = "", own: str = ""
    ) -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        close = _close(str(name), self.known)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        where = f" of {of}" if of else ""
        how = f" {own}" if own and not close else ""
        super().__init__(
            f"unknown {kind} {name!r}{where}.{hint} Known{_listed(self.known, close)}.{how}"
        )


_MOST_LISTED = 10


def _listed(known: list[str], close: list[str]) -> str:
    if len(known) <= _MOST_LISTED:
        return f": {', '.join(known) or 'none'}"
    first = [*close, *(name for name in known if name not in close)][:_MOST_LISTED]
    return f" ({_MOST_LISTED} of {len(known)}): {', '.join(first)}, ..."


def _close(name: str, known: list[str]) -> list[str]:
    """Names like ``name``, the most alike first: whole ones, or else ones that end like it."""
    if close := difflib.get_close_matches(name, known):
        return close
    parts = name.count(".") + 1
    endings: dict[str, list[str]] = {}
    for each in known:
        endings.setdefault(".".join(each.split(".")[-parts:]), []).append(each)
    alike = difflib.get_close_matches(name, endings)
    return [each for ending in alike for each in endings[ending]][:_MOST_LISTED]


class CompositionError(InnetError):
    """A combination of codec parts that cannot work; the message gives the reason."""


class PacketError(InnetError, ValueError):
    """Bytes that do not follow the wire format."""


class ProgramError(InnetError):
    """A compiled P4 program that cannot be loaded."""


class UnfinishedError(ProgramError, TimeoutError):
    """A compiler took too long: nobody knows whether it takes the program."""


class UnsupportedError(ProgramError):
    """A P4 construct that the switch model does not have."""


class EndlessLoopError(ProgramError):
    """A loop in an action that goes round without end for a packet. Says where it is."""


class Refusal(enum.IntEnum):
    """Why tables and action profiles refuse a command.

    The numbers are those of TableOperationErrorCode in BMv2's Thrift interface.
    """

    TABLE_FULL = 1
    UNKNOWN_HANDLE = 2
    EXPIRED_HANDLE = 3
    NO_COUNTERS = 4
    NO_METERS = 5
    NO_AGEING = 6
    UNKNOWN_TABLE = 7
    UNKNOWN_ACTION = 8
    WRONG_TABLE_TYPE = 9
    UNKNOWN_MEMBER = 10
    MEMBER_USED = 11
    MEMBER_IN_GROUP = 12
    MEMBER_NOT_IN_GROUP = 13
    UNKNOWN_GROUP = 14
    GROUP_USED = 15
    EMPTY_GROUP = 16
    DUPLICATE_ENTRY = 17
    BAD_KEY = 18
    BAD_METER_OPERATION = 19
    CONSTANT_DEFAULT_ACTION = 20
    CONSTANT_DEFAULT_ENTRY = 21
    NO_DEFAULT_ENTRY = 22
    UNKNOWN_PROFILE = 23
    NO_SELECTOR = 24
    CONSTANT_ENTRIES = 25
    BAD_PARAMETERS = 26
    NO_KEY = 27
    OTHER = 100


class ControlError(InnetError):
    """A control-plane command that was refused. The state of the switch is unchanged.

    Attributes:
        reason: which of BMv2's reasons it is, for tables and action profiles.
    """

    def __init__(self, message: str = "", reason: Refusal = Refusal.OTHER) -> None:
        super().__init__(message)
        self.reason = reason


class StateError(InnetError):
    """State that does not fit: a residual of another tensor layout, a cursor of another job."""


class StalledError(InnetError, TimeoutError):
    """A wait reached its deadline. The message says which slots wait for which workers.

    Attributes:
        at: when, by the clock of a transport that was driven; None elsewhere.
    """

    at: float | None = None


class MembershipError(StalledError):
    """A worker left a job on a switch service, or the switch is gone: it is said who. Renew."""


class NetworkError(InnetError):
    """An interface, a socket or a process of a network that failed. The message says which."""


class OverflowedError(InnetError, OverflowError):
    """A sum has left int32. Thrown to a codec whose quantizer hoped that none would."""


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
