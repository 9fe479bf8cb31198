"""The commands that there are: modules that have some register them here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from innet.errors import ControlError
from innet.switch.control import ControlPlane

Arguments = list[str]
Handler = Callable[[ControlPlane, Arguments], str]


@dataclass(frozen=True, slots=True)
class Command:
    """``usage`` is its arguments for people; ``most`` None: any number from ``least`` up."""

    name: str
    usage: str
    least: int
    most: int | None
    handler: Handler


COMMANDS: dict[str, Command] = {}


def command(name: str, usage: str, least: int, most: int | None) -> Callable[[Handler], Handler]:
    """Register a handler under the name of its command."""

    def register(handler: Handler) -> Handler:
        COMMANDS[name] = Command(name, usage, least, most, handler)
        return handler

    return register


def integer(text: str, what: str) -> int:
    """A whole number: decimal, 0x..., 0b..."""
    try:
        return int(text, 0)
    except ValueError:
        raise ControlError(f"{text!r} is no integer for {what}") from None


def truth(text: str) -> bool:
    """True or false, or a number that is or is not 0."""
    if text.lower() in ("1", "true", "yes"):
        return True
    if text.lower() in ("0", "false", "no"):
        return False
    raise ControlError(f"{text!r} is neither true nor false")


def after_arrow(words: Arguments) -> Arguments:
    """simple_switch_CLI tolerates => where nothing stands before it."""
    return words[1:] if words[:1] == ["=>"] else words
