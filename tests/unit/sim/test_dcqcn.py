"""DCQCN and RED: rates and marks beside the models of ``support.dcqcn``, and fair shares."""

from __future__ import annotations

import numpy as np
import pytest
from support.dcqcn import Parameters, fluid_rate, marking_of, renewal_rate
from support.tiers import tiered

from innet.core.errors import ControlError, InputError
from innet.network import Faults
from innet.sim import Network
from innet.sim.baselines import simulate_messages, star
from innet.sim.messages import parameter_server, ring_all_reduce, transfers
from innet.sim.simulation import FrameSize, Simulation
from innet.sim.transport import ReliableTransport, transport_of
from innet.switch.traffic_manager import (
    BYTES,
    QUEUE_WORDS,
    TrafficManager,
    is_congested,
)

BITS = 8 * (4096 + 82)  # of a full packet, on the wire
KMIN, KMAX = 5_000, 2_000_000
BATCHES, STUDENT = 16, 2.131  # Student's t of 15 degrees of freedom


def hosts(count, transfer, transport="dcqcn", seed=1, **settings):
    """Hosts at one switch that send messages, and nothing has happened yet."""
    net = Simulation(
        Network(**settings), FrameSize(64, 64), {"s0": None}, star(count)[1], count, seed=seed
    )
    source, target = transfer
    size = [1 << 37] * len(source)
    net.launch_messages(
        transfers(source, target, size, [0.0] * len(source)), transport_of(transport)
    )
    return net


def packets_up(net, senders):
    """That hosts have put onto their links."""
    return np.array([each.packets for each in net.link_counts()[::2]])[:senders]


@pytest.mark.parametrize(
    ("interval", "p"),
    tiered(
        [(i, p) for i in (5e-6, 50e-6) for p in (0.001, 0.00324, 0.01, 0.03)],
        [(50e-6, 0.01)],
        "other probabilities and intervals",
    ),
)
def test_mean_rate_at_a_probability_of_marks(interval, p):
    """Of 8 pairs of hosts whose packets are marked at random, whatever the queues are."""
    pairs, begin, end = 8, 0.05, 0.25
    net = hosts(
        2 * pairs,
        (range(pairs), range(pairs, 2 * pairs)),
        f"dcqcn:cnp_interval={interval},window_bytes=32000000",
    )
    net.set_faults(Faults(mark=p), range(pairs, 2 * pairs))
    net.run_until(begin)
    before = packets_up(net, pairs)
    net.run_until(end)
    rates = (packets_up(net, pairs) - before) / (end - begin)
    given = Parameters(cnp_interval=interval)
    error = 3 * rates.std() / np.sqrt(pairs) / rates.mean()  # of the mean, at three sigma
    assert rates.mean() == pytest.approx(renewal_rate(p, given), rel=0.01 + error)
    if interval < 1e-5:
        assert rates.mean() == pytest.approx(fluid_rate(p, given), rel=0.1)
    else:  # what the fluid model leaves out
        assert 1.15 < rates.mean() / fluid_rate(p, given) < 1.27


def into_one_link(senders, rate, most, interval, seconds, seed=1):
    """Hosts that send to one: what happened in each batch of the time, after a while.

    Returns:
        packets of each host, (batches, senders); packets marked and mean bytes waiting, (batches,).
    """
    net = hosts(
        senders + 1,
        (range(senders), [senders] * senders),
        f"dcqcn:cnp_interval={interval}",
        seed=seed,
        rate=rate,
        ecn_bytes=KMIN,
        ecn_max_bytes=KMAX,
        ecn_probability=most,
    )
    begin, looks = 0.1, 200 if seconds < 1 else 1000
    net.run_until(begin)
    sent, marked, waiting = [packets_up(net, senders)], [net.counts().marked], []
    for end in np.linspace(begin, begin + seconds, BATCHES + 1)[1:]:
        found = []
        for time in np.linspace(end - seconds / BATCHES, end, looks + 1)[1:]:
            net.run_until(time)
            found.append(net.managers()[0].waiting_bytes(senders))
        waiting.append(np.mean(found))
        sent.append(packets_up(net, senders))
        marked.append(net.counts().marked)
    assert net.counts().dropped == 0
    return np.diff(sent, axis=0), np.diff(marked), np.array(waiting)


def interval_of(batches):
    """The mean over batches, and half of its confidence interval, at 95 %."""
    assert len(batches) == BATCHES
    return np.mean(batches, axis=0), STUDENT * np.std(batches, axis=0, ddof=1) / np.sqrt(BATCHES)


@pytest.mark.parametrize(
    ("senders", "rate", "most", "interval", "model", "seconds"),
    tiered(
        [
            (2, 40e9, 0.1, 50e-6, renewal_rate, 0.4),
            (2, 100e9, 0.1, 50e-6, renewal_rate, 0.4),
            (4, 40e9, 0.2, 50e-6, renewal_rate, 32.0),
            (2, 40e9, 0.1, 5e-6, fluid_rate, 16.0),
            (4, 40e9, 0.2, 5e-6, fluid_rate, 32.0),
            (8, 50e9, 0.4, 5e-6, fluid_rate, 24.0),
        ],
        [(2, 40e9, 0.1, 50e-6, renewal_rate, 0.4)],
        "other numbers of senders and intervals, over longer times",
    ),
)
def test_senders_share_a_link(senders, rate, most, interval, model, seconds):
    """Mean rates within 1 % of the fair share; marks and the mean queue, with their confidence
    intervals, within 10 % of the model, where no queue comes near the upper threshold.
    """
    sent, marked, waiting = into_one_link(senders, rate, most, interval, seconds)
    shares, half = interval_of(sent / sent.mean(axis=1, keepdims=True))
    assert shares == pytest.approx(1.0, abs=0.01)
    if seconds > 1:  # as precise as that
        assert half.max() < 0.01
    assert sent.sum() * BITS / seconds > 0.97 * rate
    p = marking_of(rate / senders / BITS, model, Parameters(cnp_interval=interval))
    queue = KMIN + p * (KMAX - KMIN) / most
    for (mean, half), expected in (
        (interval_of(marked / sent.sum(axis=1)), p),
        (interval_of(waiting), queue),
    ):
        assert half < 0.1 * expected
        assert abs(mean - expected) + half * (seconds > 1) < 0.1 * expected


def test_two_hosts_to_one_as_in_the_paper():
    """The parameters of figure 14 at 40 Gbit/s: fair shares, marks, no losses, a busy link."""
    graph = transfers([0, 1], [2, 2], [100_000_000] * 2, [0.0, 5e-3])
    run = simulate_messages(
        graph,
        "40g:ecn_bytes=5000,ecn_max_bytes=200000,pfc=true",
        transport="dcqcn",
    )
    assert run.counts.dropped == run.retransmissions == 0 < run.counts.marked
    first, second = run.delivered
    # Both had a half from 5 ms on: the second could not have ended before.
    alone = 100e6 * (1 + 82 / 4096) * 8 / 40e9
    assert 1.5 * alone < first < second < 1.35 * 2 * alone
    fixed = simulate_messages(graph, "40g:ecn_bytes=5000", transport="roce:window_bytes=4194304")
    assert run.counts.marked < fixed.counts.marked / 10


def test_it_keeps_queues_shorter_than_pauses_alone():
    graph = parameter_server(16, [16], 500_000)
    network = "100g:pfc=true,ecn_bytes=5000,ecn_max_bytes=200000,buffer_bytes=4000000"
    alone = simulate_messages(graph, network, transport="roce:window_bytes=4194304")
    both = simulate_messages(graph, network, transport="dcqcn")
    assert both.counts.dropped == both.retransmissions == 0
    assert both.counts.pauses < alone.counts.pauses / 2


def test_red_marks_as_many_as_it_says():
    """By the bytes that a packet finds, over many draws; and all from the upper threshold on."""
    manager = TrafficManager()
    manager.set_ecn_threshold(1000, 0)
    manager.set_red(8000, 0.25, seed=3)
    queues, draws = manager.queues, 20_000
    for waits, p in ((1000, 0.0), (3000, 0.0625), (8999, 0.25), (9000, 1.0), (20_000, 1.0)):
        queues[BYTES] = waits
        share = sum(is_congested(queues, 0) for _ in range(draws)) / draws
        assert share == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / draws))
    assert QUEUE_WORDS == 16
    with pytest.raises(ControlError, match="probability of marks is 0 to 1, not 2"):
        manager.set_red(1, 2)


def test_settings():
    for settings, message in (
        ({"ecn_bytes": 5000, "ecn_max_bytes": 5000}, "give more than ecn_bytes, which is 5000"),
        ({"ecn_max_bytes": 5000}, "give more than ecn_bytes, which is None"),
        ({"ecn_probability": 1.5}, "ecn_probability is 1.5"),
    ):
        with pytest.raises(InputError, match=message):
            Network(**settings)
    for settings, message in (
        ({"gain": 0}, "gain is 0"),
        ({"rate_increase": 0}, "rate_increase is 0"),
        ({"rate_timer": 0}, "rate_timer is 0"),
        ({"byte_counter": 0}, "byte_counter is 0"),
    ):
        with pytest.raises(InputError, match=message):
            ReliableTransport(congestion="dcqcn", **settings)


def test_selective_repeat_sends_what_is_lost_again():
    """Over lossy links, and no more than that; go-back-N sends all that is under way."""
    graph, network = ring_all_reduce(4, 4_000_000), "100g:loss=1e-3"
    lost = simulate_messages(graph, network, transport="roce:recovery=selective", seed=3)
    back = simulate_messages(graph, network, transport="roce", seed=3)
    assert lost.seconds < back.seconds
    assert 0 < lost.retransmissions <= lost.counts.lost
    assert back.retransmissions > 4 * lost.retransmissions
