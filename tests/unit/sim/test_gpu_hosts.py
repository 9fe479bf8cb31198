"""Hosts with several GPUs: sums by their graphs, closed forms to the picosecond, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from support.messages import run_on_arrays

import innet
from innet.core.errors import InputError
from innet.reports.tables import _simulation_rows
from innet.scenarios.gpu_hosts import LocalSteps
from innet.sim.baselines import simulate_messages
from innet.sim.gpu_hosts import (
    GpuHosts,
    gpu_hierarchical_all_reduce,
    gpu_ring_all_reduce,
    gpu_tree_all_reduce,
)
from innet.sim.messages import hierarchical_all_reduce, ring_all_reduce, transfers
from innet.sim.network import SECOND

RATE, LATENCY = 3.6e12, 600_000  # bits per second, picoseconds
SIZE = 36_000
SHAPES = [(1, 1, 1), (1, 4, 2), (3, 1, 1), (2, 2, 2), (3, 4, 1), (4, 3, 3)]


def on_link(elements):
    """Picoseconds of so many float32 on a local link; 36,000 take a whole number."""
    return elements * 32 * SECOND // int(RATE)


def ticks(run):
    return round(run.seconds * SECOND)


def simulated(graph, gpus, network="100g"):
    return simulate_messages(graph, network, transport="roce", gpus=gpus)


def network_ticks(**settings):
    record = innet.simulate(encode_time=0.0, decode_time=0.0, **settings)
    return round(record.seconds * SECOND)


def in_pieces(gpus, elements, *, pieces, nvls):
    groups = np.arange(gpus.total).reshape(gpus.hosts, -1).tolist()
    switches = range(gpus.total, gpus.ends) if nvls else ()
    return hierarchical_all_reduce(groups, elements, pieces=pieces, switches=switches)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_gpus_get_the_sum_in_any_order_of_events(shape):
    gpus = GpuHosts(*shape)
    for elements in (0, 37, 120):
        values = np.random.default_rng(elements).integers(-999, 999, (gpus.total, elements))
        for graph in (
            gpu_ring_all_reduce(gpus, elements),
            gpu_tree_all_reduce(gpus, elements, chunk=16),
            in_pieces(gpus, elements, pieces=1, nvls=True),
            in_pieces(gpus, elements, pieces=4, nvls=True),
            in_pieces(gpus, elements, pieces=4, nvls=False),
        ):
            # The hosts' switches, which come after the GPUs, begin with nothing.
            arrays = np.vstack([values, np.zeros((gpus.hosts, elements), values.dtype)])
            assert run_on_arrays(graph, arrays, elements) == len(graph)
            expected = np.tile(values.sum(axis=0), (gpus.total, 1))
            np.testing.assert_array_equal(arrays[: gpus.total], expected)
            assert gpus.nics_of(graph) <= gpus.hosts * gpus.nics


def test_a_ring_enters_and_leaves_a_host_once_for_each_card():
    gpus = GpuHosts(4, 8, 4)
    graph = gpu_ring_all_reduce(gpus, SIZE)
    across = gpus.host(graph.source) != gpus.host(graph.destination)
    for ends in (graph.source, graph.destination):
        sent = np.bincount(gpus.nic(ends[across]), weights=graph.bytes[across], minlength=16)
        assert sent == pytest.approx(2 * 31 / 32 * 4 * SIZE / 4, rel=0.01)


def test_a_host_alone_takes_what_its_local_links_take():
    """Rings have n - 1 steps each way; through a switch all goes once, and a part of it back."""
    gpus, step = GpuHosts(1, 4), on_link(SIZE // 4) + LATENCY
    assert ticks(simulated(gpu_ring_all_reduce(gpus, SIZE), gpus)) == 6 * step
    assert ticks(simulated(gpu_hierarchical_all_reduce(gpus, SIZE), gpus)) == 6 * step
    there = on_link(SIZE) + LATENCY // 2 + on_link(SIZE // 4) + LATENCY // 2
    nvls = gpu_hierarchical_all_reduce(gpus, SIZE, nvls=True)
    assert ticks(simulated(nvls, gpus)) == 2 * there
    assert LocalSteps(gpus, 4 * SIZE).step == 3 * step
    assert LocalSteps(gpus, 4 * SIZE, nvls=True).step == there


def test_local_links_take_one_message_after_the_other_each_way():
    gpus, each = GpuHosts(1, 3), on_link(SIZE)
    size = [4 * SIZE] * 2
    for source, target in ([0, 0], [1, 2]), ([1, 2], [0, 0]):
        run = simulated(transfers(source, target, size, [0.0, 0.0]), gpus)
        delivered = np.rint(run.delivered * SECOND).astype(int)
        assert sorted(delivered) == [each + LATENCY, 2 * each + LATENCY]
    both_ways = simulated(transfers([0, 1], [1, 0], size, [0.0, 0.0]), gpus)
    assert ticks(both_ways) == each + LATENCY


def test_messages_between_two_gpus_have_their_turn():
    """Two of a connection at a time; hosts without GPUs send all at once, which end together."""
    graph = transfers([0] * 6, [1] * 6, [400_000] * 6, [0.0] * 6)
    in_turn = simulated(graph, GpuHosts(2, 1)).delivered
    shared = simulate_messages(graph, "100g", transport="roce").delivered
    assert in_turn.max() == pytest.approx(shared.max(), rel=0.02)
    pairs = in_turn.reshape(3, 2)
    assert (np.diff(pairs.max(axis=1)) > 0.9 * 2 * 8 * 400_000 / 100e9).all()
    assert shared.min() > 0.8 * shared.max()


@pytest.mark.parametrize("nics", [1, 2])
def test_between_hosts_the_network_takes_the_time_that_it_takes(nics):
    """Reduce-scatter, rings across hosts, all-gather: they add up where there is one piece."""
    # So long a latency that no event of local links falls into the rings: a card that wakes up also
    # looks what it can send, and may send a packet before an acknowledgement for that.
    latency = 20_000_000
    gpus = GpuHosts(2, 2, nics, latency=latency / SECOND)
    found = ticks(simulated(gpu_hierarchical_all_reduce(gpus, SIZE), gpus))
    across = found - 2 * (on_link(SIZE // 2) + latency)
    half, whole = (
        ticks(simulate_messages(ring_all_reduce(2, each), "100g", transport="roce"))
        for each in (SIZE // 2, SIZE)
    )
    if nics == 2:  # each GPU's half has a card
        assert across == half
    else:  # both rings share one, but not their latencies
        assert half < across < whole


def test_one_gpu_a_host_is_a_host():
    """Also where windows of simulated time are shorter, for the latency of links that none uses."""
    run = simulate_messages(ring_all_reduce(3, SIZE), "10g", transport="tcp")
    for latency in (6e-7, 1e-8):
        gpus = GpuHosts(3, 1, latency=latency)
        same = simulate_messages(gpu_ring_all_reduce(gpus, SIZE), "10g", transport="tcp", gpus=gpus)
        np.testing.assert_array_equal(same.delivered, run.delivered)
        assert same.segments == run.segments


def test_pieces_keep_local_links_and_the_network_busy_at_once():
    """Eight GPUs send 100 MB through one card: local steps are a tenth of it, and mostly hidden."""
    gpus, elements = GpuHosts(2, 8), 25_000_000
    found = simulated(gpu_hierarchical_all_reduce(gpus, elements), gpus)
    network = 8 * 4 * elements / 100e9
    local = 2 * 7 / 8 * 8 * 4 * elements / RATE
    assert network < found.seconds < 1.05 * network + local / 8


@pytest.mark.parametrize("nics", [1, 4])
def test_switches_sum_what_hosts_have_summed(nics):
    """To the picosecond: the cards' all-reduce between the GPUs' reduce-scatter and all-gather."""
    common = {"network": "100g", "window": 128, "program": "slots"}
    found = network_ticks(workers=8, gpus_per_host=4, nics_per_host=nics, size=SIZE, **common)
    cards = network_ticks(workers=2, size=SIZE // nics, thin=True, **common)
    assert found == cards + 2 * 3 * (on_link(SIZE // 4) + LATENCY)


def test_a_late_gpu_holds_its_host_and_all_others():
    common = {"workers": 8, "gpus_per_host": 4, "size": SIZE, "window": 128, "network": "100g"}
    together = network_ticks(**common)
    record = innet.simulate(
        encode_time=0.0, decode_time=0.0, pauses=("5:1:1e-4",), baselines=("ring",), **common
    )
    late = round(record.seconds * SECOND)
    assert late == together + SECOND // 10_000
    (iteration,) = record.iterations
    assert max(iteration.waited) == pytest.approx(1e-4)
    assert iteration.waited[5] == 0
    assert record.baselines["ring"].seconds > 1e-4
    assert record.report.workers == record.workers == len(iteration.end) == 8


def test_iterations_of_gpus_are_simulated_once_and_codecs_code_their_parts():
    record = innet.simulate(
        workers=8, gpus_per_host=4, size=SIZE, iterations=3, codec="topk:ratio=0.1", network="100g",
        encode_time=1e-9, decode_time=0.0, baselines=("hierarchical-ring-bfloat16",),
        transport="roce",
    )  # fmt: skip
    assert record.all_reduces == 1
    assert record.iterations[0].encode[0] == pytest.approx(1e-9 * SIZE / 4)
    assert record.baselines["hierarchical-ring-bfloat16"].all_reduces == 1
    assert record.report.details["sizes"] == "codec"
    assert record.settings["thin"]
    assert ("  GPUs of a host", "4, with 4 network cards") in _simulation_rows(record)
    dense = innet.simulate(workers=8, gpus_per_host=4, size=SIZE, network="100g")
    assert dense.simulated.packets > record.simulated.packets > 0


def test_cards_links_and_slots_over_time():
    record = innet.simulate(
        workers=8, gpus_per_host=4, size=SIZE, iterations=2, samples=10, network="100g",
        pauses=("5:1:2e-5",),
    )  # fmt: skip
    assert record.samples is not None
    assert len(record.samples.seconds) >= 10
    assert any(map(any, record.samples.slots.values()))
    assert record.all_reduces == 2


def test_half_and_twice_of_what_is_assumed():
    record = innet.simulate(
        workers=4, gpus_per_host=2, size=SIZE, sensitivity=True, network="100g", switch="sharp"
    )
    rows = {each.setting: each for each in record.sensitivity}
    assert {"network.host_send", "network.host_receive"} < rows.keys()
    assert "network.recirculation_latency" not in rows
    assert rows["network.host_send"].halved <= record.seconds <= rows["network.host_send"].doubled


def test_other_traffic_is_between_cards():
    """Card 5 is the second of host 1: what it sends to card 1 slows no other one's all-reduce."""
    common = {"workers": 8, "gpus_per_host": 4, "size": SIZE, "window": 64, "network": "10g"}
    flow = {"source": 5, "destination": 1, "rate": 9e9, "size": 1400, "packets": 300}
    record = innet.simulate(
        background={"flow": [flow]}, encode_time=0.0, baselines=("hierarchical-ring",),
        transport="roce", **common,
    )  # fmt: skip
    (beside,) = record.background
    assert 0 < beside.received <= beside.sent
    assert record.simulated.seconds > 1.3 * innet.simulate(**common).simulated.seconds
    ring = record.baselines["hierarchical-ring"]
    alone = innet.simulate(baselines=("hierarchical-ring",), transport="roce", **common)
    assert ring.seconds > 1.3 * alone.baselines["hierarchical-ring"].seconds
    with pytest.raises(InputError, match="0 to 1"):  # two hosts have a card each
        innet.simulate(background={"flow": [flow]}, nics_per_host=1, **common)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 6, "gpus_per_host": 4}, "6 workers do not fill hosts of 4 GPUs"),
        ({"workers": 8, "gpus_per_host": 4, "nics_per_host": 3}, "3 network cards for 4 GPUs"),
        ({"workers": 8, "nics_per_host": 2}, "nics_per_host = 2, but a host has one GPU"),
        ({"baselines": ("nvls-ring",)}, "nvls-ring is for hosts with several GPUs"),
        (
            {"workers": 8, "gpus_per_host": 4, "baselines": ("parameter-server",)},
            "choose sharded-parameter-server",
        ),
        ({"workers": 8, "gpus_per_host": 4, "partial_after": 1e-3}, "partial_after is not for"),
        ({"network": "100g:local_latency=0"}, "local_latency is 0"),
        ({"network": "100g:local_rate=0"}, "local_rate is 0"),
    ],
)
def test_what_is_none_is_refused_by_name(settings, said):
    with pytest.raises(InputError, match=said):
        innet.simulate(size=10, **settings)


def test_messages_that_no_host_can_send_are_refused():
    gpus = GpuHosts(2, 2)
    for source, target, said in ((0, 6, "names GPU 6"), (0, 5, "its own host alone")):
        with pytest.raises(InputError, match=said):
            simulated(transfers([source], [target], [4], [0.0]), gpus)
    with pytest.raises(InputError, match="gpus is 0"):
        GpuHosts(2, 0)
    with pytest.raises(InputError, match="1 switches of 2 groups"):
        hierarchical_all_reduce([[0, 1], [2, 3]], 4, switches=[4])
    with pytest.raises(InputError, match="pieces is 0"):
        hierarchical_all_reduce([[0, 1]], 4, pieces=0)
