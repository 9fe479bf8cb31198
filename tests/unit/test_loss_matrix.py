"""Every program under loss, duplication, reordering of every link: the oracle's sum, bit for bit.

Every combination of program, loss and codec is met once, with numbers of workers that take turns.
INNET_MATRIX=full runs all 900 combinations (some minutes per hundred).
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import innet
from innet.fabric import Faults
from innet.protocol import Timing

PROGRAMS = {"slots": None, "tree": 2, "hashed": 2}  # and their racks, where there are workers
LOSS = [0.0, 0.001, 0.01, 0.1, 0.5]
WORKERS = [1, 2, 4, 8, 32]
CODECS = ["dense", "lhc", "scalecom"]
OTHERS = [(0.0, 0.0), (0.1, 0.0), (0.0, 0.2), (0.1, 0.2)]  # duplicated, reordered

TURNS = itertools.cycle([4, 2, 8, 1])
CHOSEN = [
    # Half of all packets lost on each of six links: more workers take minutes of a processor.
    (program, loss, codec, 2 if loss == 0.5 else next(TURNS), OTHERS[number % 4])
    for number, (program, loss, codec) in enumerate(itertools.product(PROGRAMS, LOSS, CODECS))
]
ALL = list(itertools.product(PROGRAMS, LOSS, CODECS, WORKERS, OTHERS))
FULL = os.environ.get("INNET_MATRIX") == "full"


@pytest.mark.parametrize(
    ("program", "loss", "codec", "workers", "others"), ALL if FULL else CHOSEN, ids=str
)
def test_exact(program, loss, codec, workers, others):
    duplicate, reorder = others
    rng = np.random.default_rng(workers)
    given = [rng.laplace(size=1000).astype(np.float32) for _ in range(workers)]
    racks = PROGRAMS[program]
    settings = {"codec": codec, "seed": 5, "values_per_packet": 32}
    calm, _ = innet.all_reduce(given, **settings)
    total, report = innet.all_reduce(
        given,
        program=program,
        racks=None if racks is None else min(racks, workers),
        window=32,
        faults=Faults(loss=loss, duplicate=duplicate, reorder=reorder, hold=0.02, tick=1e-3),
        timing=Timing(timeout=5e-3, max_timeout=0.1, give_up=600.0),
        **settings,
    )
    assert report.exact
    assert total.tobytes() == calm.tobytes()
    if loss * report.packets_sent > 20:
        assert report.retransmissions > 0
