"""Lines of Python with their indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from innet.switch.jit.records import head, head_text


class Writer:
    """Collects source; ``fresh`` makes names that occur once.

    Args:
        recording: whether ``note`` writes anything.
    """

    def __init__(self, *, recording: bool = False) -> None:
        self.recording = recording
        self.lines: list[str] = []
        self.depth = 0
        self.loop_counts: set[int] = set()
        self._numbers: dict[str, int] = {}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def blank(self) -> None:
        self.lines.append("")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is written inside stands under ``head``; an empty block gets a ``pass``."""
        self.line(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1

    def lanes(self, count: int) -> AbstractContextManager[None]:
        """A block that runs for k = 0 .. count-1, in vectors where it can.

        ``lanes_<count>`` holds the number; see ``runtime.core.opaque``.
        """
        self.loop_counts.add(count)
        return self.block(f"for k in range(lanes_{count}):")

    def fresh(self, stem: str) -> str:
        """A name that starts with ``stem`` and was not given out before."""
        number = self._numbers.get(stem, 0)
        self._numbers[stem] = number + 1
        return f"{stem}_{number}"

    def note(self, kind: int, site: int | str = 0, *words: str) -> None:
        """In a recording build: append a record to ``events``. ``words`` are int64 each."""
        if not self.recording:
            return
        first = str(head(kind, site)) if isinstance(site, int) else head_text(kind, site)
        self.line(f"recorded = note(events, recorded, {', '.join((first, *words))})")

    def note_bytes(self, data: str, start: str, size: str) -> None:
        """Append bytes to a record."""
        if self.recording:
            self.line(f"recorded = note_bytes(events, recorded, {data}, {start}, {size})")

    def source(self) -> str:
        return "\n".join(self.lines) + "\n"
