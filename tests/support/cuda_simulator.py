"""Blocks of numba-cuda's simulator whose last thread at a barrier wakes the others.

The simulator's own blocks look in a busy loop whether all threads have come, and so take the
interpreter from those that have not. Threads run side by side here too.
"""

from __future__ import annotations

import threading

import numpy as np
from numba.cuda.simulator import kernel


class Thread(kernel.BlockThread):
    """One of a block's."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.woken = threading.Semaphore(0)

    def run(self):
        super().run()
        self._manager.leave(self)

    def syncthreads(self):
        self._manager.arrive(self)
        self.woken.acquire()
        if self.abort:
            raise RuntimeError("another thread of the block has failed")


class Block(kernel.BlockManager):
    """A block. A barrier waits for all threads that have not ended, as the simulator's does."""

    def run(self, grid_point, *arguments):
        self._lock = threading.Lock()
        self._waiting = []
        self._failed = None
        threads = [
            Thread(lambda: self._f(*arguments), self, grid_point, place, self._debug)
            for place in np.ndindex(*self._block_dim)
        ]
        self._running = len(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failed is not None:
            raise self._failed[0].with_traceback(self._failed[1])

    def arrive(self, thread):
        with self._lock:
            self._waiting.append(thread)
            self._go_on()

    def leave(self, thread):
        with self._lock:
            self._running -= 1
            self._failed = self._failed or thread.exception
            self._go_on()

    def _go_on(self):
        if self._failed or len(self._waiting) == self._running:
            waiting, self._waiting = self._waiting, []
            for thread in waiting:
                thread.abort = self._failed is not None
                thread.woken.release()


def install():
    """For all kernels of this process."""
    kernel.BlockManager = Block
