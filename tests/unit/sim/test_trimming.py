"""Packets that find their queue full go on as headers, and just these are sent again."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import seeds, tiered
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import InputError
from innet.records import Record
from innet.sim import Network
from innet.sim.baselines import simulate_messages, star
from innet.sim.flows import Flow
from innet.sim.messages import halving_doubling_all_reduce, ring_all_reduce, transfers
from innet.sim.network import SECOND
from innet.sim.simulation import FrameSize, Simulation
from innet.sim.transport import (
    DUPLICATE,
    ECHO,
    NACK,
    TRANSPORTS,
    make_rows,
    on_header,
    on_segment,
    transport_of,
)

SELECTIVE = "roce:recovery=selective"
RATE = 100e9


def incast(senders, size, apart=0.0):
    starts = [apart * sender for sender in range(senders)]
    return transfers(range(senders), [senders] * senders, [size] * senders, starts)


def ideal(senders, size):
    """Seconds that the receiver's link takes for all packets."""
    return senders * 8 * (size + 82 * -(-size // 4096)) / RATE


@pytest.mark.parametrize(
    ("senders", "size", "packets", "most"),
    tiered(
        [
            (2, 1_000_000, 64, 1.03),
            (8, 1_000_000, 64, 1.02),
            (8, 1_000_000, 16, 1.03),
            (32, 1_000_000, 64, 1.03),
            (32, 100_000, 16, 1.10),
            (64, 1_000_000, 64, 1.07),
            (64, 1_000_000, 16, 1.13),
        ],
        [(8, 1_000_000, 16, 1.03), (32, 1_000_000, 64, 1.03)],
        "other numbers of senders, sizes and queues",
    ),
)
def test_an_incast_takes_as_long_as_its_link(senders, size, packets, most):
    """Without a time-out, as every packet that does not fit is asked for at once."""
    graph = incast(senders, size)
    run = simulate_messages(graph, f"100g:queue_packets={packets},trim=true", transport=SELECTIVE)
    assert 1 < run.seconds / ideal(senders, size) < most
    assert run.timeouts == run.counts.dropped == run.counts.lost == 0
    # Each packet that was cut was sent again once for it, and none else was.
    assert run.retransmissions == run.counts.trimmed > 0
    assert run.segments == senders * -(-size // 4096) + run.counts.trimmed
    plain = simulate_messages(graph, f"100g:queue_packets={packets}", transport=SELECTIVE)
    assert plain.seconds > 1.2 * run.seconds
    assert plain.counts.trimmed == 0 < plain.counts.dropped
    if senders > 2:
        assert plain.timeouts > 0


def test_a_header_goes_ahead_to_the_picosecond():
    """Of three packets one is being sent, one waits, and one is cut: its header is next."""
    delay, pipeline, work = 500_000, 600_000, 12_500
    whole, head, ack = (round(8 * size / RATE * SECOND) for size in (4178, 84, 86))
    graph = incast(3, 4096, apart=1e-8)
    run = simulate_messages(graph, "100g:queue_packets=1,trim=true", transport=SELECTIVE)
    assert run.counts.trimmed == run.retransmissions == 1
    at_switch = work + whole + delay + pipeline
    first = at_switch + whole + delay + work
    behind_it = at_switch + whole + head  # when the header's last bit leaves
    second = behind_it + whole + delay + work
    # The host takes the header when it has acknowledged the packet before.
    told = max(behind_it + delay, first + work) + work
    back = told + work + 2 * (ack + delay) + pipeline + work
    third = back + work + 2 * (whole + delay) + pipeline + work
    ticks = np.rint(run.delivered * SECOND).astype(int)
    assert ticks.tolist() == [first, second, third]


def test_what_finds_the_queue_of_headers_full_is_dropped_and_timed_out():
    network = "100g:queue_packets=4,trim=true,trim_packets=4"
    run = simulate_messages(incast(20, 200_000), network, transport=SELECTIVE)
    assert run.counts.trimmed > 0 < run.counts.dropped
    assert run.timeouts > 0
    assert (run.delivered > 0).all()
    wide = simulate_messages(
        incast(20, 200_000), f"{network},trim_packets=2000", transport=SELECTIVE
    )
    assert wide.counts.dropped == wide.timeouts == 0
    assert wide.seconds < run.seconds / 2


@pytest.mark.parametrize("seed", seeds(12, 2))
def test_every_packet_is_accounted_for(seed):
    """In random networks with loss: each message arrives, and links and queues add up."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 24))
    names, cables = star(count)
    net = Simulation(
        Network(
            loss=float(rng.choice([0.0, 1e-3, 2e-2])),
            queue_packets=int(rng.integers(1, 40)),
            trim=True,
            trim_packets=int(rng.integers(1, 200)),
            priorities=int(rng.integers(1, 4)),
            buffer_bytes=int(rng.choice([60_000, 1_000_000])),
            ecn_bytes=20_000,
        ),
        FrameSize(64, 64),
        dict.fromkeys(names),
        cables,
        count,
        seed=seed,
    )
    messages = int(rng.integers(1, 40))
    source = rng.integers(0, count, messages)
    target = (source + rng.integers(1, count, messages)) % count
    size = rng.integers(1, 400_000, messages)
    name = str(rng.choice(["roce", "dcqcn"]))
    net.add_flows(
        [Flow(source=0, destination=1, size=1400, packets=300, rate=90e9)] * int(rng.integers(0, 2))
    )
    graph = transfers(source, target, size, np.zeros(messages))
    group = net.launch_messages(graph, transport_of(f"{name}:recovery=selective"))
    assert net.wait() == group
    assert (net.messenger.delivered > 0).all()
    net.run_until(net.now + 5.0)  # nothing is under way any more
    counts, links = net.counts(), net.link_counts()
    came = sum(each.packets - each.lost for each in links if each.target.startswith("s0"))
    left = sum(each.packets for each in links if each.source.startswith("s0"))
    assert came == left + counts.dropped
    assert counts.lost == sum(each.lost for each in links)
    segments, resent, _ = net.messenger.counts()
    assert segments == resent + sum(-(-each // 4096) for each in size.tolist())
    assert all(not queue.depth for manager in net.managers() for queue in manager.used_queues())


def test_packets_of_a_message_may_take_several_paths():
    """What overtakes others is no sign of loss where headers are."""
    graph, paths = halving_doubling_all_reduce(16, 1_000_000), "100g:paths=spray"
    sprayed = simulate_messages(graph, paths, transport=SELECTIVE, racks=4, spines=4)
    trimmed = simulate_messages(
        graph, f"{paths},queue_packets=64,trim=true", transport=SELECTIVE, racks=4, spines=4
    )
    assert trimmed.timeouts == trimmed.counts.dropped == 0
    assert trimmed.retransmissions == trimmed.counts.trimmed
    assert sprayed.retransmissions > 10 * (1 + trimmed.retransmissions)
    assert trimmed.seconds < sprayed.seconds


def test_dcqcn_repeats_what_is_cut_and_slows_down_for_it():
    graph, network = incast(8, 2_000_000), "100g:queue_packets=64,trim=true"
    run = simulate_messages(graph, network, transport="dcqcn:recovery=selective")
    assert run.timeouts == run.counts.dropped == run.counts.marked == 0
    assert 0 < run.retransmissions == run.counts.trimmed
    assert run.seconds < 1.2 * ideal(8, 2_000_000)
    # A header counts as marked: fewer are cut than by the window alone.
    deaf = simulate_messages(
        graph, network, transport="roce:recovery=selective,window_bytes=4194304"
    )
    assert run.counts.trimmed < deaf.counts.trimmed


def test_packets_of_flows_are_dropped_as_without_it():
    def counts(network):
        _, cables = star(4)
        net = Simulation(Network(queue_packets=8, **network), FrameSize(64, 64), {"s0": None},
                         cables, 4)  # fmt: skip
        net.add_flows(
            [Flow(source=i, destination=3, size=1400, packets=200, rate=90e9) for i in range(3)]
        )
        net.run_until(1e-3)
        return net.flow_counts(), net.counts().dropped

    assert counts({"trim": True}) == counts({})


def test_a_receiver_answers_a_header():
    rules = transport_of(SELECTIVE).rules._replace(trims=1)
    _, receivers = make_rows(rules, 1)
    assert on_header(receivers, rules, 0, 1, 2, 0) == (0, ECHO | NACK)  # before any segment
    assert on_segment(receivers, rules, 0, 1, 5, 0, 4096, False, 1) == (1, 0)
    assert on_segment(receivers, rules, 0, 1, 5, 3, 4096, False, 2) == (1, 0)
    assert on_header(receivers, rules, 0, 1, 0, 3) == (1, ECHO | DUPLICATE)
    assert on_header(receivers, rules, 0, 1, 3, 4) == (1, ECHO | DUPLICATE)
    assert on_header(receivers, rules, 0, 1, 1, 5) == (1, ECHO | NACK)
    assert on_header(receivers, rules, 0, 0, 1, 6) == (-1, 0)  # of an earlier message
    assert on_header(receivers, rules, 0, 2, 1, 7) == (0, ECHO | NACK)  # of a later one


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_transports_that_do_not_repeat_what_is_cut_are_refused(transport):
    with pytest.raises(InputError, match="choose roce:recovery=selective"):
        simulate_messages(ring_all_reduce(2, 10), "100g:trim=true", transport=transport)


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("100g:trim=maybe", "trim is 'maybe'; give true or false"),
        ("100g:trim=true,pfc=true", "leave pfc or trim out"),
        ("100g:trim=true,trim_packets=0", "trim_packets is 0; a queue holds at least 1"),
    ],
)
def test_settings(network, said):
    with pytest.raises(InputError, match=said):
        simulate_messages(ring_all_reduce(2, 10), network, transport=SELECTIVE)


def test_the_command_counts_them(tmp_path):
    path = tmp_path / "record.json"
    arguments = [
        "simulate", "--workers", "8", "--size", "20000", "--thin", "-o", str(path), "--samples",
        "50", "--network", "100g:queue_packets=16,trim=true", "--baseline", "parameter-server",
        "--transport", SELECTIVE,
    ]  # fmt: skip
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False).stdout
    record = Record.load(path)
    run = record.baselines["parameter-server"]
    assert run.simulated.trimmed == run.simulated.retransmissions > 0
    assert record.simulated.trimmed == run.simulated.dropped == 0
    assert "trimmed" in shown
    assert f"{run.simulated.trimmed:,}" in shown
    assert min(map(min, run.samples.windows.values())) < 64  # windows give way
