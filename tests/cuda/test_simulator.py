"""The simulator's blocks, as ``support.cuda_simulator`` makes them."""

from __future__ import annotations

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
