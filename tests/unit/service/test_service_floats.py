"""Dense gradients through a service: words are made of them packet by packet."""

from __future__ import annotations

import numpy as np
import pytest
from support.service import all_reduce, joined, make_workers

import innet
from innet.network import Faults

NASTY = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 1.0, -1.5, 0.5],
    np.float32,
)


@pytest.mark.carriers("udp", "shm")
@pytest.mark.parametrize("codec", ["dense", {"preset": "dense", "quantizer": "optimistic"}])
@pytest.mark.parametrize("faults", [None, Faults(loss=0.1, duplicate=0.1)], ids=["clean", "faults"])
def test_workers_get_what_a_collective_gets(service, stack, codec, faults) -> None:
    """Bit for bit, with every kind of float, packets sent again, and sums that leave int32."""
    rng = np.random.default_rng(4)
    given_ = [np.tile(NASTY, 120), rng.laplace(size=1200).astype(np.float32)]
    given_[1][700:] *= np.float32(1e30)
    given_[1].flags.writeable = False  # words of these are made before
    expected, _ = innet.all_reduce(given_, codec=codec, values_per_packet=32, seed=3)
    workers = make_workers(joined(service, stack), codec, faults=faults)
    for total, _ in all_reduce(workers, given_):
        np.testing.assert_array_equal(total.view(np.int32), expected.view(np.int32))
