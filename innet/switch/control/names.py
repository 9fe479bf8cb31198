"""Names of the control plane: any ending at a dot that only one thing has names it."""

from __future__ import annotations

from collections.abc import Iterable

from innet.core.errors import ControlError, UnknownNameError


class Names:
    """The names of all things of one kind, such as "table", each standing for its position."""

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        self.kind = kind
        self.names = list(names)
        self._endings: dict[str, int | None] = {}
        for position, name in enumerate(self.names):
            parts = name.split(".")
            for first in range(1, len(parts)):
                ending = ".".join(parts[first:])
                self._endings[ending] = None if ending in self._endings else position
        # A whole name means itself, even where it is the ending of another.
        whole = {name: position for position, name in reversed(list(enumerate(self.names)))}
        self._endings.update(whole)

    def find(self, name: str, *, of: str = "") -> int:
        """The position of what ``name`` names; ControlError when that is nothing, or several.

        ``of`` says whose names these are, for the message.
        """
        position = self._endings.get(name)
        if position is not None:
            return position
        if name in self._endings:
            fitting = [each for each in self.names if each.endswith(f".{name}")]
            more = ", ..." if len(fitting) > 10 else ""
            listed = ", ".join(sorted(fitting)[:10]) + more
            raise ControlError(f"{self.kind} {name!r} is ambiguous: {listed}")
        raise ControlError(str(UnknownNameError(self.kind, name, self.names, of=of)))
