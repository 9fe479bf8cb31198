"""The same all-reduces in Mininet and in simulated time, at rates that any machine carries."""

from __future__ import annotations

import json

import pytest
from support.mininet import missing, needs_mininet

from innet.core.errors import InputError

if not missing():
    from innet.mininet.prediction import predict
    from innet.mininet.settings import NetSettings

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]

RATE = 5.0  # Mbit/s: 1,800 packets a second


def test_what_is_sent_is_equal_and_the_links_set_the_pace():
    chosen = NetSettings(workers=2, rate=RATE, queue=64, size=64 * 1000)
    record = predict(chosen)
    measured, simulated = record.mininet, record.simulated
    assert record.exact
    assert record.window == 64
    assert (measured.packets, measured.bytes) == (simulated.packets, simulated.bytes)
    assert measured.dropped == simulated.dropped == 0
    assert measured.retransmissions == simulated.retransmissions == 0
    # A busy machine may be slower than its links, but never faster than what passes at once.
    at_once = 15_000 * 8 / (RATE * 1e6)
    assert measured.seconds[0] > simulated.seconds[0] - 2 * at_once
    assert 0 < record.idle_seconds < 0.1
    assert record.network["rate"] == RATE * 1e6
    assert json.loads(record.model_dump_json())["network"]["queue_packets"] == 64


def test_a_prediction_needs_a_queue():
    with pytest.raises(InputError, match="needs queue"):
        predict(NetSettings(rate=RATE))
