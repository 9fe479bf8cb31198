"""The hand-written loop of the benchmark does all that slots.p4 does for one job.

Otherwise the speed of the compiled program would be measured against something that does less.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.slot_oracle import TRUNCATED, SlotOracle
from support.tiers import seeds
from support.traffic import job_of, traffic

from benchmarks.slots_by_hand import SlotsByHand
from innet.core.packets import PacketBatch
from innet.wire import PacketLayout

VALUES = 32


@pytest.mark.parametrize("seed", seeds(3))
def test_same_packets_and_drops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    job = job_of(3)
    hand, oracle = SlotsByHand(job, VALUES), SlotOracle(VALUES, job.commands())
    layouts = [PacketLayout(VALUES, "udp"), PacketLayout(VALUES, "raw")]
    packets = traffic(rng, layouts, job, chunks=200)
    # Empty packets make room: each of these repeats of repeats may ask for a result.
    sent = hand.process_batch(PacketBatch.from_packets([*packets, *[(500, b"")] * 600]))
    expected = [answer for packet in packets for answer in oracle.one(*packet)]
    assert sent.to_packets() == expected
    assert expected
    oracle.dropped[TRUNCATED] += 600
    assert {i: int(count) for i, count in enumerate(hand.dropped[:, 0]) if count} == oracle.dropped
