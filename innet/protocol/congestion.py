"""How many chunks a worker has under way: as many as the job has slots, or as congestion allows.

Additive increase, multiplicative decrease (Chiu and Jain, 1989) on marks instead of losses, as in
ATP (NSDI 2021, section 3.6): a lost packet is repeated, but does not shrink the window.
"""

from __future__ import annotations

from innet.protocol.settings import WindowControl


class Window:
    """The window of one worker.

    A window with a mark in it is halved once, however many marks it has: chunks that were under
    way at that moment tell of the same queue.

    Args:
        slots: of the job, the largest window.
        control: "fixed" or "aimd".

    Attributes:
        size: chunks that may be under way, 1 .. slots.
        halvings: how often it shrank.
    """

    def __init__(self, slots: int, control: WindowControl) -> None:
        self.size = slots
        self.halvings = 0
        self.adapts = control == "aimd"
        self._slots = slots
        self._exact = float(slots)
        self._deaf_until = 0  # marks of chunks before this one tell nothing new

    def heard(self, results: int, marked_chunk: int | None, next_chunk: int) -> None:
        """Take up what came.

        Args:
            results: how many results.
            marked_chunk: the newest chunk of those that were marked; None if none was.
            next_chunk: the first chunk that was not sent yet.
        """
        if not self.adapts:
            return
        if marked_chunk is not None and marked_chunk >= self._deaf_until:
            self._exact = max(1.0, self._exact / 2)
            self._deaf_until = next_chunk
            self.halvings += 1
        elif marked_chunk is None:
            self._exact = min(float(self._slots), self._exact + results / self._exact)
        self.size = int(self._exact)
