"""``innet simulate --switch sharp`` and ``nvls``: closed forms, what is compared, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import innet
from innet.core.errors import InputError
from innet.records import Record
from innet.scenarios.fixed_function import LATENCY, WORDS
from innet.sim.gpu_hosts import GpuHosts, gpu_hierarchical_all_reduce
from innet.sim.links import wire_time
from innet.sim.messages import ring_all_reduce, with_protocol
from innet.sim.network import SECOND

SIZE = 36_000
GPUS = {"workers": 8, "gpus_per_host": 4}


def ticks(**settings):
    return round(innet.simulate(**{"size": SIZE, "network": "100g", **settings}).seconds * SECOND)


def test_sharp_takes_a_packet_up_and_down_at_first_and_then_the_links_rate():
    """One packet: two links, hosts and a switch. All more: what their bits take, in packets of
    4,096 bytes."""
    network = {"delay": 5e-7, "rate": 100e9, "host_send": 0.0, "host_receive": 0.0}
    frame = wire_time(4 * WORDS + 74, int(100e9))
    one = ticks(workers=8, switch="sharp", size=WORDS, network=network)
    assert one == 2 * (frame + 500_000) + round(LATENCY * SECOND)
    many = ticks(workers=8, switch="sharp", size=20 * WORDS, network=network)
    assert many == one + 19 * frame
    # bfloat16 are half of the bytes; a switch that is stated takes what is stated.
    assert ticks(workers=8, switch="sharp", size=40 * WORDS, network=network, codec="bf16") > many
    slower = ticks(
        workers=8, switch="sharp", size=WORDS, network={**network, "switch_latency": 1e-6}
    )
    assert slower == one + SECOND // 1_000_000 - round(LATENCY * SECOND)


def test_sharp_sums_for_cards_what_hosts_have_summed_by_their_switches():
    """To the picosecond, as with a program: but the hosts' switches sum, too."""
    found = ticks(switch="sharp", nics_per_host=1, **GPUS)
    cards = ticks(workers=2, switch="sharp")
    whole, part = (SIZE // each * 32 * SECOND // int(3.6e12) for each in (1, 4))
    assert found == cards + 2 * (whole + part + 600_000)


def test_nvls_is_its_baseline(tmp_path):
    record = innet.simulate(
        switch="nvls", baselines=("nvls-ring",), size=SIZE, iterations=2, network="100g", **GPUS
    )
    assert record.seconds == record.baselines["nvls-ring"].seconds
    assert (record.report.program, record.all_reduces) == ("nvls", 1)
    record.save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json") == record
    half = innet.simulate(switch="nvls", codec="bf16", size=SIZE, network="100g", samples=5, **GPUS)
    assert half.samples.slots == {}
    assert max(half.samples.throughput["workers"]) > 50e9
    assert half.report.bytes_sent < 0.6 * record.report.bytes_sent


def test_one_flag_compares_a_program_with_sharp():
    times = {
        switch: ticks(switch=switch, size=200_000, network="400g:host=rdma", **GPUS)
        for switch in ("p4", "sharp", "nvls")
    }
    assert times["sharp"] < times["p4"]
    assert times["sharp"] < times["nvls"]


def test_nccls_protocols_take_their_time_for_each_hop():
    """To the picosecond: 14 microseconds of each of a ring's steps, and a flag beside the data.

    The second step no longer waits for the host, which acknowledges what has come.
    """
    plain, simple = (
        innet.simulate(workers=2, size=500, baselines=(name,), transport="roce", network="100g")
        .baselines[name]
        .seconds
        for name in ("ring", "ring:protocol=simple")
    )
    assert round((simple - plain) * SECOND) == 2 * 14_000_000 - 12_500
    gpus = GpuHosts(2, 2)
    graph = gpu_hierarchical_all_reduce(gpus, 4000)
    sent = with_protocol(graph, "ll128", gpus.is_local(graph))
    np.testing.assert_array_equal(sent.bytes, -(-graph.bytes * 128 // 120))
    assert set(sent.delay[gpus.is_local(graph)]) == {1_900_000}
    assert set(sent.delay[~gpus.is_local(graph)]) == {4_000_000}
    ring = ring_all_reduce(4, 4000)
    as_tree = with_protocol(ring, "ll", np.zeros(len(ring), bool), tree=True)
    assert set(as_tree.delay) == {5_000_000}
    assert (as_tree.bytes == 2 * ring.bytes).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"switch": "nvls"}, "nvls sums within hosts with several GPUs; give gpus_per_host"),
        ({"switch": "sharp", "codec": "topk"}, "sharp adds elements of gradients .* choose one"),
        ({"switch": "nvls", "codec": "exact", **GPUS}, "nvls adds elements"),
        ({"switch": "sharp", "program": "tree"}, "sharp has no program"),
        ({"switch": "sharp", "values_per_packet": 64}, "sharp has no values_per_packet"),
        ({"switch": "sharp", "network": "100g:loss=1e-4"}, "its links lose nothing"),
        ({"switch": "sharp", "faults": {"duplicate": 0.1}}, "its links lose nothing"),
        ({"switch": "sharp", "network": "100g:rate=8e11"}, "up to 400 Gbit/s"),
        ({"switch": "sharp", "workers": 256, "gpus_per_host": 8}, "has 256 ports, .* has 64"),
        ({"switch": "p5"}, "switch"),
    ],
)
def test_what_they_do_not_do_is_refused_by_name(settings, said):
    with pytest.raises(InputError, match=said):
        innet.simulate(size=10, **settings)


def test_captures_of_nvls_are_refused(tmp_path):
    with pytest.raises(InputError, match="nvls has no captures"):
        innet.simulate(size=10, switch="nvls", pcap=tmp_path, **GPUS)
