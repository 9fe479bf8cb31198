"""Links between switches: what hosts may send through them, and how fast they are by default."""

from __future__ import annotations

import numpy as np
import pytest

import innet
from innet.core.errors import InputError
from innet.records.report import bit_rate, fabric_text
from innet.sim import Network, network_of
from innet.sim.baselines import simulate_messages
from innet.sim.fabric import loads
from innet.sim.links import wire_time
from innet.sim.messages import halving_doubling_all_reduce, parameter_server
from innet.sim.network import MOST_RATE, OVERHEAD, SHORTEST


def of(hosts, trunks):
    return loads(np.array(hosts, float), trunks).tolist()


class TestLoads:
    @pytest.mark.parametrize(
        ("hosts", "trunks", "needed"),
        [
            ([0, 32, 32], [(1, 0), (2, 0)], [32, 32]),  # two racks below a root
            ([0, 32, 32, 32], [(1, 0), (2, 0), (3, 0)], [32, 32, 32]),
            ([0, 4, 12], [(1, 0), (2, 0)], [4, 4]),  # no more than the smaller side
            ([1, 32, 32], [(1, 0), (2, 0)], [32, 32]),  # a server at the root
            ([3, 5], [(0, 1)], [3]),  # a dumbbell
            ([2, 2, 2], [(0, 1), (1, 2)], [2, 2]),  # a chain
            ([0, 0, 0, 8, 8, 8, 8], [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)],
             [16, 16, 8, 8, 8, 8]),
            ([0, 9], [(0, 1)], [0]),  # nobody is on the other side
            ([4, 4], [(0, 1), (0, 1)], [2, 2]),  # parallel trunks
            ([], [], []),
        ],
    )  # fmt: skip
    def test_of_networks(self, hosts, trunks, needed):
        assert of(hosts, trunks) == pytest.approx(needed)

    def test_spines_share_what_leaves_send(self):
        trunks = [(leaf, spine) for leaf in range(4) for spine in range(4, 7)]
        assert of([6, 6, 6, 6, 0, 0, 0], trunks) == pytest.approx([2.0] * 12)

    def test_a_fat_tree_needs_no_more_than_hosts_links(self):
        half = 2  # edges 0 to 7, then aggregation 8 to 15, then cores 16 to 19
        trunks = [
            (pod * half + i, 8 + pod * half + j)
            for pod in range(4) for i in range(half) for j in range(half)
        ]  # fmt: skip
        trunks += [
            (8 + pod * half + i, 16 + i * half + j)
            for pod in range(4) for i in range(half) for j in range(half)
        ]  # fmt: skip
        assert of([2] * 8 + [0] * 12, trunks) == pytest.approx([1.0] * 32)

    def test_too_many_paths_to_follow_are_taken_by_each_switchs_own(self):
        leaves, spines = 120, 100
        trunks = [(leaf, leaves + spine) for leaf in range(leaves) for spine in range(spines)]
        assert of([50] * leaves + [0] * spines, trunks) == pytest.approx([0.5] * len(trunks))


class TestDefault:
    def test_more_workers_than_a_switch_has_ports_for_are_not_slower(self):
        def seconds(network, **options):
            graph = halving_doubling_all_reduce(64, 64_000)
            return simulate_messages(graph, network, transport="roce", **options).seconds

        flat, racks = seconds("100g"), seconds("100g", racks=2)
        assert racks < 1.3 * flat
        assert seconds("100g:trunk_rate=100e9", racks=2) > 5 * racks

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"workers": 64}, "3 switches (2 leaves), 2 trunks of 3.2 Tbit/s: non-blocking"),
            ({"workers": 8, "topology": "tree"}, "2 trunks of 400 Gbit/s: non-blocking"),
            ({"workers": 8, "topology": "leaf-spine"}, "4 trunks of 200 Gbit/s: non-blocking"),
            ({"workers": 16, "topology": "fat-tree"}, "32 trunks of 100 Gbit/s: non-blocking"),
            ({"workers": 8, "topology": "dumbbell"}, "100 Gbit/s: oversubscribed 4:1"),
            ({"workers": 8, "racks": 2, "program": "tree", "network": "100g:trunk_rate=50e9"},
             "2 trunks of 50 Gbit/s: oversubscribed 8:1"),
            ({"workers": 3}, "3 hosts, links of 100 Gbit/s, one switch"),
        ],
    )  # fmt: skip
    def test_what_a_network_rests_on_is_said(self, options, said):
        record = innet.simulate(**{"size": 64, "thin": True, "baselines": ("ring",), **options})
        assert said in record.simulated.fabric.text
        assert record.baselines["ring"].simulated.fabric == record.simulated.fabric
        assert record.report.simulated.fabric == record.simulated.fabric

    def test_of_messages(self):
        run = simulate_messages(parameter_server(8, [8], 1000), "10g", racks=3)
        assert run.fabric.text.endswith("3 trunks of 30 Gbit/s: non-blocking")

    def test_a_trunk_is_never_slower_than_a_hosts_link(self):
        run = simulate_messages(parameter_server(2, [0], 1000), "10g", racks=2, spines=4)
        assert run.fabric.trunk_rate == 10e9


class TestRates:
    def test_32_links_of_400_gbits_and_more(self):
        assert network_of("400g:trunk_rate=12.8e12").trunk_rate == 12.8e12
        assert Network(rate=MOST_RATE).rate == 1e15
        with pytest.raises(InputError, match=r"rate is 2.*; give bits per second, from 1e3"):
            Network(rate=2e15)

    def test_no_packet_takes_no_time_and_the_longest_fits_the_clock(self):
        assert wire_time(0, int(MOST_RATE)) == 1
        longest = 4 * 65_535 + 100
        assert wire_time(longest, 1000) == 8 * (longest + OVERHEAD) * 10**9
        assert wire_time(SHORTEST, 12_800_000_000_000) == -(-84 * 8 * 10**12 // (12_800 * 10**9))

    def test_sums_at_the_fastest(self):
        gradients = [np.full(5_000, worker, np.float32) for worker in range(5)]
        network = {"rate": 4e14, "trunk_rate": 1e15}
        total, report = innet.all_reduce(gradients, program="tree", racks=2, network=network)
        assert report.exact
        assert total[0] == 10
        assert report.simulated.fabric.trunk_rate == 1e15


def test_several_networks_in_a_line():
    texts = [innet.simulate(workers=n, size=64, thin=True).simulated.fabric for n in (4, 64)]
    assert fabric_text(texts) == (
        "4 to 64 hosts, links of 100 Gbit/s, 1 to 3 switches (1 to 2 leaves), 2 trunks of "
        "3.2 Tbit/s: non-blocking"
    )
    assert fabric_text([None]) == ""
    assert [bit_rate(each) for each in (5, 1e3, 2.5e9, 12.8e12)] == [
        "5 bit/s", "1 kbit/s", "2.5 Gbit/s", "12.8 Tbit/s",
    ]  # fmt: skip
