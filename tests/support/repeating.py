"""What runs beside a test, in a thread."""

from __future__ import annotations

import threading


class Repeating:
    """Takes one ``step`` after the other while the context is open; a step is soon over."""

    def __init__(self) -> None:
        self._open = True
        self._thread = threading.Thread(target=self._run)

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called after the last step."""

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._open = False
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.close()

    def _run(self) -> None:
        while self._open:
            self.step()
