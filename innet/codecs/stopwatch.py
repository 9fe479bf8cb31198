"""Where the seconds of an exchange go. The clock is passed in."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]  # seconds, from any origin, never going back


class Stopwatch:
    """Adds up seconds by phase; stands still while the network has its turn.

    Attributes:
        seconds: by phase.
        rounds: how often the network had its turn.
    """

    def __init__(self, clock: Clock, phase: str) -> None:
        self.seconds: dict[str, float] = {}
        self.rounds = 0
        self._clock = clock
        self._phase = phase
        self._since: float | None = None

    def enter(self, phase: str) -> None:
        """What follows counts for this phase."""
        running = self._since is not None
        self.stop()
        self._phase = phase
        if running:
            self.start()

    def start(self) -> None:
        self._since = self._clock()

    def pause(self) -> None:
        """The network has its turn, until ``start``."""
        self.stop()
        self.rounds += 1

    def stop(self) -> None:
        if self._since is not None:
            spent = self._clock() - self._since
            self.seconds[self._phase] = self.seconds.get(self._phase, 0.0) + spent
            self._since = None
