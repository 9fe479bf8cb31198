"""Sleep until a socket can be read or written.

select(2) sleeps no longer than it is told, but takes no descriptor above 1023, and a process that
trains may have thousands of files open before it joins a job. poll(2) takes them all; Python's
sleeps whole milliseconds.
"""

from __future__ import annotations

import select

_SELECTABLE = 1024  # FD_SETSIZE of select(2)
_LONGEST = 86_400.0  # seconds; poll takes no more than some 24 days


def readable(seconds: float, *descriptors: int) -> list[int]:
    """Those of the descriptors that can be read, or have an error, within so many seconds; none
    then, or after a day.
    """
    seconds = min(max(0.0, seconds), _LONGEST)
    if max(descriptors) < _SELECTABLE:
        return select.select(descriptors, [], [], seconds)[0]
    return _polled(select.POLLIN, seconds, descriptors)


def writable(seconds: float, *descriptors: int) -> list[int]:
    """The same of those that can be written to."""
    seconds = min(max(0.0, seconds), _LONGEST)
    if max(descriptors) < _SELECTABLE:
        return select.select([], descriptors, [], seconds)[1]
    return _polled(select.POLLOUT, seconds, descriptors)


def _polled(what: int, seconds: float, descriptors: tuple[int, ...]) -> list[int]:
    poll = select.poll()
    for each in descriptors:
        poll.register(each, what)
    return [each for each, _ in poll.poll(1000 * seconds)]
