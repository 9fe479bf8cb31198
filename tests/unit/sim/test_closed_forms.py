"""Times of collectives by closed forms, against sums made by hand."""

from __future__ import annotations

import pytest

from innet.core.errors import InputError
from innet.sim import PRESETS, Network
from innet.sim.closed_forms import DATA, ring_seconds

QUIET = {"delay": 0.0, "switch_latency": 0.0, "host_receive": 0.0, "host_send": 0.0}


def test_a_ring_of_large_gradients_takes_its_bytes_over_the_rate() -> None:
    size, workers = 1_000_000_000, 8
    expected = 2 * (workers - 1) / workers * 8 * size / (100e9 * DATA / 1538)
    assert ring_seconds(Network(**QUIET), workers, size) == pytest.approx(expected, rel=1e-4)


def test_a_link_carries_941_of_1000_megabits() -> None:
    """What is known of TCP with time stamps over Ethernet of one Gbit/s."""
    seconds = ring_seconds(Network(rate=1e9, **QUIET), 2, 2 * DATA * 100_000)
    assert 8 * 2 * DATA * 100_000 / seconds == pytest.approx(941e6, rel=1e-3)


def test_one_packet_a_step_by_hand() -> None:
    network = Network(
        rate=1e9, delay=1e-6, switch_latency=2e-6, host_receive=3e-6, host_send=5e-6, host_cores=2
    )
    serialized = 8 * (100 + 66 + 24) / 1e9
    step = serialized * 2 + 2 * 1e-6 + 2e-6 + 1.5e-6 + 2.5e-6
    # The host needs longer for the packet than the link.
    step += 2.5e-6 - serialized
    assert ring_seconds(network, 3, 300) == pytest.approx(4 * step, rel=1e-12)


def test_further_switches_add_their_latency_and_the_slowest_link_decides() -> None:
    network = Network(rate=100e9, trunk_rate=10e9)
    near, far = (ring_seconds(network, 4, 10**8, switches=each) for each in (1, 3))
    assert far == pytest.approx(10 * near, rel=0.01)
    small = [ring_seconds(Network(**QUIET | {"delay": 1e-3}), 2, 2, switches=n) for n in (1, 3)]
    assert small == pytest.approx([2 * 2e-3, 2 * 4e-3], rel=1e-3)


def test_nothing_to_send_takes_no_time() -> None:
    assert ring_seconds(PRESETS["10g"], 1, 1000) == 0
    assert ring_seconds(PRESETS["10g"], 4, 0) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Network(loss=0.1), 4, 100), "loss is 0.1: the closed form of a ring knows no loss"),
        ((Network(), 0, 100), "0 workers; a ring has at least 1"),
        ((Network(), 4, -1), "-1 bytes"),
        ((Network(), 4, 1.5), "number of bytes"),
    ],
)
def test_what_is_refused(arguments: tuple[Network, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ring_seconds(*arguments)


def test_a_way_without_a_switch_is_refused() -> None:
    with pytest.raises(InputError, match="0 switches"):
        ring_seconds(Network(), 4, 100, switches=0)
