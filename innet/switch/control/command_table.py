"""The commands that there are: modules that have some register them here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from innet.core.errors import ControlError
from innet.switch.control.control_plane import ControlPlane

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

OF_PROFILES_BY_TABLE = {
    "table_indirect_create_member": "act_prof_create_member",
    "table_indirect_modify_member": "act_prof_modify_member",
    "table_indirect_delete_member": "act_prof_delete_member",
    "table_indirect_create_group": "act_prof_create_group",
    "table_indirect_delete_group": "act_prof_delete_group",
    "table_indirect_add_member_to_group": "act_prof_add_member_to_group",
    "table_indirect_remove_member_from_group": "act_prof_remove_member_from_group",
    "table_dump_member": "act_prof_dump_member",
    "table_dump_group": "act_prof_dump_group",
}
"""The names that commands of profiles had when each profile belonged to one table, which they then
name; and what they are called now.
"""


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


def indirect_entry(words: Arguments, *, ordered: bool) -> tuple[Arguments, int, int | None]:
    """Key, handle and priority of KEY ... => HANDLE [PRIORITY], of a table with an action profile.

    Args:
        words: after the table's name.
        ordered: its entries have priorities.
    """
    rest, priority = words, None
    if ordered and words:
        *rest, last = words
        priority = integer(last, "the priority, which comes last")
    if len(rest) < 2 or rest[-2] != "=>":
        raise ControlError("expected => and one handle after the key fields")
    return rest[:-2], integer(rest[-1], "the handle"), priority
