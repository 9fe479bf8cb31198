"""The baselines' reliable transport: closed forms, the loss matrix, fairness, time-outs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reliable import Line, chance
from support.tiers import examples

from innet.core.errors import InputError, UnknownNameError
from innet.sim import transport as t
from innet.sim.network import SECOND
from innet.sim.transport import TRANSPORTS, ReliableTransport, transport_of

RATE, DELAY = 10e9, 5e-6
SEGMENT = 8 * (1448 + 66) / RATE
ROUND_TRIP = SEGMENT + 2 * DELAY

EVERY = {
    "newreno": ReliableTransport(),
    "dctcp": ReliableTransport(congestion="dctcp"),
    "fixed": ReliableTransport(congestion="fixed", window_bytes=32 * 1448),
    "no probe": ReliableTransport(tail_probe=False),
    "go_back_n": ReliableTransport(
        recovery="go_back_n", congestion="fixed", window_bytes=32 * 1448
    ),
    "go_back_n, newreno": ReliableTransport(recovery="go_back_n"),
    "roce": TRANSPORTS["roce"],
    "dcqcn": TRANSPORTS["dcqcn"],
    "paced": ReliableTransport(congestion="fixed", pacing=2e9),
}


def sent(settings, size, **options):
    """One message; the line, and the seconds until it was complete."""
    line = Line(settings, **options)
    line.begin(0, size)
    line.run()
    assert set(line.complete) == set(line.done) == {(0, 1)}
    return line, line.complete[0, 1] / SECOND


@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_a_window_that_does_not_fill_the_line_gets_itself_in_a_round_trip(window):
    segments = 4000
    _, seconds = sent(
        ReliableTransport(congestion="fixed", window_bytes=window * 1448), segments * 1448
    )
    assert 1448 * segments / seconds == pytest.approx(window * 1448 / ROUND_TRIP, rel=0.01)


@pytest.mark.repeats("the same with the other controls", but=["newreno"])
@pytest.mark.parametrize("congestion", ["fixed", "newreno", "dctcp"])
def test_a_window_that_fills_it_gets_the_whole_rate(congestion):
    size = 10_000_000
    line, seconds = sent(ReliableTransport(congestion=congestion), size)
    frames = -(-size // 1448)
    assert seconds == pytest.approx(8 * (size + 66 * frames) / RATE + DELAY, rel=0.01)
    assert line.senders.state[0]["resent"] == 0
    assert line.senders.state[0]["sent"] == frames


def test_one_segment_takes_its_bits_and_the_delay():
    for size in (0, 1, 1448):
        _, seconds = sent(ReliableTransport(), size)
        assert seconds == pytest.approx(8 * (size + 66) / RATE + DELAY, abs=1e-12)


def test_slow_start_doubles_in_each_round_trip():
    # 1, 2, 4, 8 segments in four round trips; the last of them is there half a round trip earlier.
    _, seconds = sent(ReliableTransport(initial_window=1), 15 * 1448)
    assert seconds == pytest.approx(3 * ROUND_TRIP + 8 * SEGMENT + DELAY, rel=1e-6)


def test_pacing_spreads_the_segments_of_a_message():
    _, seconds = sent(ReliableTransport(congestion="fixed", pacing=1e9), 1000 * 1448)
    assert seconds == pytest.approx(999 * 8 * 1448 / 1e9 + SEGMENT + DELAY, rel=1e-6)


@pytest.mark.repeats(
    "each transport at each rate of loss", but=["*-0.01", "newreno-*", "roce-0.05"]
)
@pytest.mark.parametrize("loss", [0, 1e-4, 1e-3, 1e-2, 5e-2])
@pytest.mark.parametrize("kind", EVERY)
def test_messages_arrive_once_whatever_is_lost_late_or_doubled(kind, loss):
    fate = chance(7, loss, loss, duplicate=loss, late=loss)
    line = Line(EVERY[kind], fate=fate, queue=64)
    for row, size in enumerate((1_000_000, 100_000, 1448, 1, 0, 50_000, 33_333, 200_000)):
        line.begin(row, size, row * 1e-6)
    line.run()
    assert set(line.done) == set(line.complete) == {(row, 1) for row in range(8)}


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(sorted(EVERY)),
    st.integers(0, 120_000),
    st.lists(st.sampled_from([(), (0.0,), (2e-5,), (0.0, 0.0), (0.0, 1e-3), (1e-2,)]), max_size=80),
    st.integers(1, 50),
)
def test_any_pattern_of_losses_ends_with_the_message_there(kind, size, pattern, queue):
    def fate(is_ack, number):
        at = 2 * number + is_ack
        return list(pattern[at]) if at < len(pattern) else [0.0]

    sent(EVERY[kind], size, fate=fate, queue=queue)


def lost(*numbers):
    return lambda is_ack, number: [] if not is_ack and number in numbers else [0.0]


def test_a_lost_segment_is_sent_again_after_three_that_overtook_it():
    line, seconds = sent(ReliableTransport(congestion="fixed"), 100 * 1448, fate=lost(10))
    flow = line.senders.state[0]
    assert (flow["resent"], flow["timeouts"]) == (1, 0)
    # All 100 are on the line when it is found out.
    assert seconds == pytest.approx(101 * SEGMENT + DELAY, rel=1e-6)


def test_a_lost_tail_takes_a_probe_or_a_time_out():
    size, fate = 50 * 1448, lost(48, 49)
    line, seconds = sent(ReliableTransport(congestion="fixed"), size, fate=fate)
    assert line.senders.state[0]["timeouts"] == 0
    assert seconds < 5e-4
    line, slow = sent(ReliableTransport(congestion="fixed", tail_probe=False), size, fate=fate)
    assert line.senders.state[0]["timeouts"] == 1
    assert 1e-3 < slow < 1.2e-3


def test_time_outs_double_until_a_segment_arrives():
    given = ReliableTransport(timeout=1e-3, min_timeout=1e-3)
    line, seconds = sent(given, 1, fate=lost(0, 1, 2))
    assert seconds == pytest.approx((1 + 2 + 4) * 1e-3 + 8 * 67 / RATE + DELAY, rel=1e-6)
    assert line.senders.state[0]["timeouts"] == 3


def test_go_back_n_sends_again_what_had_arrived():
    given = ReliableTransport(recovery="go_back_n", congestion="fixed", window_bytes=32 * 1448)
    line, _ = sent(given, 100 * 1448, fate=lost(10))
    flow = line.senders.state[0]
    assert 8 <= flow["resent"] <= 32
    assert flow["timeouts"] == 0


def test_a_loss_halves_the_window_and_a_time_out_closes_it():
    line = Line(ReliableTransport(initial_window=40), fate=lost(5))
    line.begin(0, 40 * 1448)
    line.run()
    # Found out when 5 are acknowledged in order and 2 more beside: 33 are in flight.
    assert line.senders.state[0]["threshold"] == 33 // 2
    line = Line(ReliableTransport(initial_window=4, tail_probe=False), fate=lost(0, 1, 2, 3))
    line.begin(0, 4 * 1448)
    line.advance(0.010015)
    assert line.senders.state[0]["window"] == 2  # 1, and another for the first that arrived
    assert line.senders.state[0]["threshold"] == 2


def shares(settings, seconds, flows=2, **options):
    """Segments of each of some endless messages, from a tenth of the time on."""
    line = Line(settings, **options)
    for row in range(flows):
        line.begin(row, 1 << 40, row * 1e-4)
    line.advance(seconds / 10)
    before = line.senders.state["una"][:flows].copy()
    line.advance(seconds)
    return line, line.senders.state["una"][:flows] - before


@pytest.mark.repeats("the same with the other control", but=["dctcp"])
@pytest.mark.parametrize("congestion", ["newreno", "dctcp"])
def test_two_messages_share_a_bottleneck_fairly(congestion):
    given = ReliableTransport(congestion=congestion)
    mark = {"mark": 15} if congestion == "dctcp" else {}
    line, got = shares(given, 0.3, rate=1e9, delay=2e-5, queue=50, **mark)
    assert (line.dropped > 0) == (congestion == "newreno")
    assert got.max() / got.min() < 1.25
    assert got.sum() * 8 * (1448 + 66) / 1e9 == pytest.approx(0.9 * 0.3, rel=0.05)


def test_dctcp_keeps_the_queue_short_without_drops():
    line, got = shares(
        ReliableTransport(congestion="dctcp"), 0.1, rate=1e9, delay=2e-5, queue=60, mark=15
    )
    assert line.dropped == 0
    assert len(line._waiting) < 45
    assert got.sum() * 8 * (1448 + 66) / 1e9 == pytest.approx(0.9 * 0.1, rel=0.05)


def test_marks_halve_newrenos_window():
    line, _ = shares(ReliableTransport(), 0.1, rate=1e9, delay=2e-5, queue=1000, mark=20)
    assert line.dropped == 0
    assert line.senders.state["resent"].sum() == 0


def test_rows_are_used_again_and_old_packets_ignored():
    # A copy of each segment and of each acknowledgement comes when the row has another message.
    line = Line(ReliableTransport(), fate=lambda is_ack, number: [0.0, 3e-4])
    for turn in range(5):
        line.begin(0, 20_000 + turn, turn * 2e-4)
    line.run()
    assert set(line.done) == {(0, turn + 1) for turn in range(5)}
    assert line.senders.state[0]["resent"] == 0


def test_a_connection_keeps_its_window_and_its_round_trip():
    line, _ = sent(ReliableTransport(initial_window=2), 300 * 1448)
    kept = np.zeros(1, t.CONNECTION)
    fresh = Line(ReliableTransport(initial_window=2))
    fresh.begin(0, 1448, resume=kept)
    fresh.run()  # nothing was kept yet
    t.keep(line.senders, 0, kept, 0)
    assert kept[0]["window"] > 20
    again = Line(ReliableTransport(initial_window=2))
    again.begin(0, 20 * 1448, resume=kept)
    again.run()
    assert again.complete[0, 1] / SECOND == pytest.approx(20 * SEGMENT + DELAY, rel=1e-6)


def test_more_rows_keep_the_messages():
    line = Line(ReliableTransport(), rows=1)
    line.begin(0, 500_000)
    line.advance(1e-4)
    line.senders, line.receivers = t.more_rows(line.senders, line.receivers, 3)
    line.begin(2, 100_000, 1e-4)
    line.run()
    assert set(line.done) == {(0, 1), (2, 1)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"payload": 0}, "payload is 0"),
        ({"window_bytes": 100}, "window_bytes is 100"),
        ({"min_timeout": 0.0}, "min_timeout is 0.0"),
        ({"min_timeout": 2.0}, "more than max_timeout"),
        ({"pacing": 1.0}, "pacing is 1.0"),
        ({"initial_window": 0}, "initial_window is 0"),
    ],
)
def test_settings_that_no_transport_has_are_named(options, words):
    with pytest.raises(InputError, match=words):
        ReliableTransport(**options)


def test_transports_have_names_and_settings():
    assert transport_of("tcp") == ReliableTransport()
    assert transport_of("roce:window_bytes=8192").window_bytes == 8192
    assert transport_of({"congestion": "fixed"}) == replace(ReliableTransport(), congestion="fixed")
    for wrong in ("quic", "tcp:windows=3", {"congestion": "cubic"}, "tcp:recovery=none"):
        with pytest.raises(UnknownNameError):
            transport_of(wrong)
    with pytest.raises(InputError, match="give a name"):
        transport_of(3)
