"""Sleep until a socket can be read or written.

By poll(2): select(2) takes no descriptor above 1023, and a process that trains may have thousands
of files open before it joins a job.
"""

from __future__ import annotations

import select

_LONGEST = 86_400.0  # seconds; poll takes no more than some 24 days


def readable(seconds: float, *descriptors: int) -> list[int]:
    """Those of the descriptors that can be read, or have an error, within so many seconds; none
    then, or after a day.
    """
    return _ready(select.POLLIN, seconds, descriptors)


def writable(seconds: float, *descriptors: int) -> list[int]:
    """The same of those that can be written to."""
    return _ready(select.POLLOUT, seconds, descriptors)


def _ready(what: int, seconds: float, descriptors: tuple[int, ...]) -> list[int]:
    poll = select.poll()
    for each in descriptors:
        poll.register(each, what)
    return [each for each, _ in poll.poll(1000 * min(max(0.0, seconds), _LONGEST))]
