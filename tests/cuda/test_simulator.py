"""The simulator's blocks, as ``support.cuda_simulator`` makes them."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numba import cuda

from innet.kernels.cuda.device import SIMULATED

pytestmark = pytest.mark.skipif(not SIMULATED, reason="these are a GPU's own")


def test_a_barrier_waits_for_all_that_have_not_ended():
    @cuda.jit
    def shift(array):
        if cuda.threadIdx.x >= 20:
            return
        for _ in range(3):
            left = array[(cuda.threadIdx.x + 1) % 20]
            cuda.syncthreads()
            array[cuda.threadIdx.x] = left
            cuda.syncthreads()

    array = np.arange(20)
    shift[1, 32](array)
    assert array.tolist() == np.roll(np.arange(20), -3).tolist()


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_error_of_a_thread_ends_its_block(blocks):
    @cuda.jit
    def fail(array):
        if cuda.threadIdx.x == 5:
            raise ValueError("of thread 5")
        cuda.syncthreads()
        array[0] = 1

    array = np.zeros(1)
    with pytest.raises(ValueError, match="of thread 5"):
        fail[blocks, 32](array)
    assert not array.any()


def test_threads_that_ask_at_the_same_time_share_their_memory(monkeypatch):
    @cuda.jit
    def count(array):
        votes = cuda.shared.array(32, np.int32)
        votes[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            array[0] = votes.sum()

    def slow(*arguments, empty=np.empty):
        time.sleep(0.01)  # all others ask meanwhile
        return empty(*arguments)

    monkeypatch.setattr(np, "empty", slow)
    array = np.zeros(1, np.int32)
    count[1, 32](array)
    assert array.tolist() == [32]
