"""Refusals by gRPC's canonical codes.

Source: google.rpc.Code; the codes of P4Runtime 1.5's sections on each entity.
"""

from __future__ import annotations

import enum

from innet.core.errors import ControlError, InnetError, Refusal


class Code(enum.IntEnum):
    """Canonical codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class StatusError(InnetError):
    """A request that is refused, with a canonical code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(code, message)  # both, as unpickling makes the error from them
        self.code = code

    def __str__(self) -> str:
        return str(self.args[1])


_CODES = {
    Refusal.TABLE_FULL: Code.RESOURCE_EXHAUSTED,
    Refusal.DUPLICATE_ENTRY: Code.ALREADY_EXISTS,
    Refusal.BAD_KEY: Code.NOT_FOUND,
    Refusal.UNKNOWN_HANDLE: Code.NOT_FOUND,
    Refusal.EXPIRED_HANDLE: Code.NOT_FOUND,
    Refusal.UNKNOWN_MEMBER: Code.NOT_FOUND,
    Refusal.UNKNOWN_GROUP: Code.NOT_FOUND,
    Refusal.MEMBER_USED: Code.FAILED_PRECONDITION,
    Refusal.GROUP_USED: Code.FAILED_PRECONDITION,
    Refusal.EMPTY_GROUP: Code.FAILED_PRECONDITION,
    Refusal.CONSTANT_ENTRIES: Code.PERMISSION_DENIED,
    Refusal.CONSTANT_DEFAULT_ACTION: Code.PERMISSION_DENIED,
    Refusal.CONSTANT_DEFAULT_ENTRY: Code.PERMISSION_DENIED,
}


def status_of(error: Exception) -> StatusError:
    """What a client receives of an error: its code and its message."""
    if isinstance(error, StatusError):
        return error
    if isinstance(error, ControlError):
        return StatusError(_CODES.get(error.reason, Code.INVALID_ARGUMENT), str(error))
    if isinstance(error, InnetError):
        return StatusError(Code.INVALID_ARGUMENT, str(error))
    return StatusError(Code.INTERNAL, f"the switch failed: {error!r}")


# ── Errors of the codes that are most frequent ──


def invalid(message: str) -> StatusError:
    """INVALID_ARGUMENT."""
    return StatusError(Code.INVALID_ARGUMENT, message)


def not_found(message: str) -> StatusError:
    """NOT_FOUND."""
    return StatusError(Code.NOT_FOUND, message)


def already_exists(message: str) -> StatusError:
    """ALREADY_EXISTS."""
    return StatusError(Code.ALREADY_EXISTS, message)


def permission_denied(message: str) -> StatusError:
    """PERMISSION_DENIED."""
    return StatusError(Code.PERMISSION_DENIED, message)


def resource_exhausted(message: str) -> StatusError:
    """RESOURCE_EXHAUSTED."""
    return StatusError(Code.RESOURCE_EXHAUSTED, message)


def failed_precondition(message: str) -> StatusError:
    """FAILED_PRECONDITION."""
    return StatusError(Code.FAILED_PRECONDITION, message)


def unimplemented(message: str) -> StatusError:
    """UNIMPLEMENTED."""
    return StatusError(Code.UNIMPLEMENTED, message)
