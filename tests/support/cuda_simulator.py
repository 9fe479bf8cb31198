"""Barriers and shared arrays of numba-cuda's simulator, for blocks whose threads run side by side.

The simulator's own blocks look in a busy loop whether all threads have come to a barrier, and so
take the interpreter from those that have not; here the last to come wakes the others. Its shared
arrays are made by whoever asks first, and two who ask at the same time get one each; here they get
the same.
"""

from __future__ import annotations

import sys
import threading

import numpy as np
from numba.cuda.simulator import kernel, kernelapi


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


class Shared(kernelapi.FakeCUDAShared):
    """The shared memory of a launch: as the simulator's, an array for each line that asks."""

    def __init__(self, dynshared_size):
        super().__init__(dynshared_size)
        self._lock = threading.Lock()

    def array(self, shape, dtype):
        asker = sys._getframe(1)
        line = asker.f_code.co_filename, asker.f_lineno
        with self._lock:
            if line not in self._allocations:
                self._allocations[line] = np.empty(shape, dtype)
            return self._allocations[line]


def install():
    """For all kernels of this process."""
    kernel.BlockManager = Block
    kernelapi.FakeCUDAShared = Shared
