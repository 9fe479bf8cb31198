"""Simulations on several threads: the same results as on one, and others did run."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from support.tiers import tiered

import innet
from innet.network import Faults
from innet.protocol import Timing
from innet.scenarios.traffic import simulate_traffic
from innet.sim import Network, simulation
from innet.sim.baselines import leaf_spine, simulate_messages
from innet.sim.captures import LinkCaptures
from innet.sim.flows import Flow
from innet.sim.gpu_hosts import GpuHosts, gpu_hierarchical_all_reduce, gpu_tree_all_reduce
from innet.sim.messages import (
    halving_doubling_all_reduce,
    nccl_tree_all_reduce,
    parameter_server,
    ring_all_reduce,
    together,
)
from innet.sim.transport import transport_of

PROGRAMS = Path(__file__).parents[2] / "programs"


def several_threads(monkeypatch, threads):
    """Let simulations of any size run on so many; how often others were called. Each of two runs
    its own parts of windows alone, and more of them take what they find.
    """
    ran = [0]

    class Counted(simulation.ThreadPoolExecutor):
        def submit(self, *arguments):
            ran[0] += 1
            return super().submit(*arguments)

    monkeypatch.setattr(simulation, "_HOSTS", 1)
    monkeypatch.setattr(simulation, "_STEALS", threads > 2)
    monkeypatch.setattr(simulation, "ThreadPoolExecutor", Counted)
    monkeypatch.setattr(simulation.os, "cpu_count", lambda: threads)
    return ran


def on_threads(monkeypatch, run, *, most=3):
    """What ``run`` returns on one thread and on several, where others did run."""
    found = [run()]
    for threads in range(2, most + 1):
        ran = several_threads(monkeypatch, threads)
        found.append(run())
        assert ran[0] > 0
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"program": "tree", "racks": 3},
        {"topology": "leaf-spine:racks=3,spines=2,trees=all"},
        {"timing": Timing(timeout=1e-3, partial_after=1.0)},
    ],
)
def test_threads_change_nothing(monkeypatch, options):
    def run():
        collective = innet.Collective(
            workers=6, network="100g:loss=0.01", values_per_packet=32, window=32, **options
        )
        gradients = [np.full(6000, worker, np.float32) for worker in range(6)]
        _, report = collective.all_reduce(gradients)
        assert report.exact
        return report.simulated

    before, after = on_threads(monkeypatch, run, most=2)
    assert before == after


@pytest.mark.parametrize("paths", ["ecmp", "spray", "flowlet"])
def test_threads_change_nothing_with_flows_and_faults(monkeypatch, tmp_path, paths):
    """Counts of a flow are those of many links and switches, which threads run at the same time."""
    background = tmp_path / "background.toml"
    flows = [
        f"[[flow]]\nsource = {n}\ndestination = {(n + 5) % 8}\n"
        "rate = 4e9\nsize = 500\npackets = 400\n"
        for n in range(8)
    ]
    background.write_text("".join(flows))
    settings = {
        "workers": 8, "size": 12_000, "window": 64, "topology": "leaf-spine:racks=4,spines=2",
        "network": f"10g:loss=0.01,queue_packets=16,paths={paths}", "background": str(background),
        "faults": {"duplicate": 0.05, "reorder": 0.1, "hold": 1e-5, "corrupt": 0.01, "mark": 0.05},
    }  # fmt: skip
    first, *others = on_threads(monkeypatch, lambda: innet.simulate(**settings))
    assert (sum(each.dropped for each in first.background) > 0) == (paths != "spray")
    assert sum(each.lost for each in first.background) > 0
    for other in others:
        assert other.simulated == first.simulated
        assert other.background == first.background
        assert other.report.simulated == first.report.simulated


GRAPHS = {
    "ring": ring_all_reduce(12, 30_000),
    "halving-doubling": halving_doubling_all_reduce(12, 30_000),
    "parameter server": parameter_server(12, range(12), 30_000),
    "trees": nccl_tree_all_reduce(12, 60_000),
    "two at once": together([ring_all_reduce(12, 9000), halving_doubling_all_reduce(12, 9000)]),
}
NETWORKS = {
    "loss": "25g:loss=0.01",
    "short queues": "10g:queue_packets=24",
    "spray": "100g:paths=spray",
    "lossless": "100g:pfc=true,buffer_bytes=3500000,trunk_rate=25e9",
    "marks": "40g:ecn_bytes=20000,ecn_max_bytes=200000,ecn_probability=0.2",
    "trimming": "40g:queue_packets=4,trim=true",
}


@pytest.mark.parametrize(
    ("graph", "network", "transport"),
    tiered(
        [
            *itertools.product(GRAPHS, [*NETWORKS][:-1], ["tcp", "roce", "dcqcn"]),
            *itertools.product(GRAPHS, ["trimming"], ["roce:recovery=selective"]),
        ],
        [
            ("parameter server", "trimming", "roce:recovery=selective"),
            ("halving-doubling", "loss", "roce"),
            ("two at once", "spray", "tcp"),
            ("trees", "lossless", "dcqcn"),
        ],
        "other graphs, networks and transports",
    ),
)
def test_threads_change_nothing_with_messages(monkeypatch, graph, network, transport):
    """Each message is delivered at the same picosecond."""
    flows = [
        Flow(source=host, destination=11 - host, size=900, packets=200, rate=2e9)
        for host in range(4)
    ]

    def run():
        run = simulate_messages(
            GRAPHS[graph],
            NETWORKS[network],
            transport=transport,
            racks=3,
            spines=2,
            flows=flows if transport == "tcp" else (),
        )
        return run.delivered.tolist(), run.segments, run.retransmissions, run.timeouts, run.counts

    first, *others = on_threads(monkeypatch, run)
    assert all(other == first for other in others)


@pytest.mark.parametrize("nics", tiered([1, 2, 4], [2], "other numbers of cards"))
def test_threads_change_nothing_with_gpus(monkeypatch, nics):
    """Cards of one host act on each other sooner than on others: they are one thread's."""
    gpus = GpuHosts(3, 4, nics)
    graphs = (
        gpu_tree_all_reduce(gpus, 90_000),
        gpu_hierarchical_all_reduce(gpus, 300_000, nvls=True),
    )

    def run():
        runs = [
            simulate_messages(graph, "100g:loss=0.001", transport="roce", gpus=gpus)
            for graph in graphs
        ]
        return [(each.delivered.tolist(), each.counts) for each in runs]

    first, *others = on_threads(monkeypatch, run)
    assert all(other == first for other in others)


def observed(folder, observe, topology):
    """An all-reduce of which every packet is captured or recorded: what that is, in bytes."""
    collective = innet.Collective(
        workers=6, network="10g:loss=0.01", topology=topology, values_per_packet=32, window=32,
        timing=Timing(timeout=2e-4, min_timeout=2e-5),
        faults=Faults(duplicate=0.05, reorder=0.1, hold=1e-5, corrupt=0.01),
    )  # fmt: skip
    gradients = [np.full(2000, worker, np.float32) for worker in range(6)]
    simulated = collective.network.simulation
    if observe == "links":
        files = LinkCaptures(simulated, folder).files
        collective.all_reduce(gradients)
        return [path.read_bytes() for path in files]
    if observe == "hosts":
        with collective.record_packets(limit=900) as frames:
            collective.all_reduce(gradients)
        return list(frames)
    recorder = collective.record_run(limit=500 if observe == "some" else 100_000)
    collective.all_reduce(gradients)
    return recorder.record("sum").model_dump(exclude={"created", "machine"})


@pytest.mark.parametrize(
    ("observe", "topology", "trace"),
    tiered(
        list(
            itertools.product(["links", "hosts", "all", "some"], ["star", "tree:racks=3"], [8, 300])
        ),
        [
            ("links", "tree:racks=3", 8),
            ("hosts", "tree:racks=3", 300),
            ("all", "star", 300),
            ("some", "star", 8),
        ],
        "other topologies, traces of another length",
    ),
)
def test_threads_change_nothing_that_is_captured_or_recorded(
    monkeypatch, tmp_path, observe, topology, trace
):
    """Traces are handed over at the same times, and a full one is made longer until then."""
    monkeypatch.setattr(simulation, "_TRACED", trace)
    monkeypatch.setattr(simulation, "_TRACED_BYTES", 0)
    first, *others = on_threads(monkeypatch, lambda: observed(tmp_path, observe, topology))
    assert first
    for other in others:
        assert other == first


def test_threads_change_nothing_with_stamped_packets_and_copies_of_them(monkeypatch, tmp_path):
    """A packet comes to all hosts, some of them at the same time, and to some of them twice."""
    lines = ["[topology]", 'kind = "star"', "hosts = 6", 'preset = "10g"', "host_jitter = 1e-6"]
    lines += ["[faults]", "duplicate = 0.1", "jitter = 1e-6", "corrupt = 0.01"]
    for host in range(6):
        lines += ["[[flow]]", f"source = {host}", "stamp = true", "packets = 60", "interval = 3e-7"]
        lines += [f'packet = "0100{host:04x}{bytes(40).hex()}"']
    path = tmp_path / "flows.toml"
    path.write_text("\n".join(lines))
    commands = ["mc_mgrp_create 1", "mc_node_create 0 1 2 3 4 5 6", "mc_node_associate 1 0"]
    (tmp_path / "commands").write_text("\n".join(commands))

    def run():
        record = simulate_traffic(
            path, program=str(PROGRAMS / "fuzz_multicast.json"), commands=tmp_path / "commands"
        )
        return record.flows, record.hosts, record.links

    first, *others = on_threads(monkeypatch, run)
    assert all(other == first for other in others)
    assert all(flow.received > 5 * flow.sent for flow in first[0])


def test_threads_change_nothing_in_captures_of_messages(monkeypatch, tmp_path):
    """Two cards of each of three hosts, of which each rack has three."""
    gpus = GpuHosts(3, 4, 2)
    graph = gpu_tree_all_reduce(gpus, 30_000)
    switches, cables = leaf_spine(6, 2)

    def run():
        net = simulation.Simulation(
            Network(loss=0.002),
            simulation.FrameSize(1500, 1500),
            dict.fromkeys(switches),
            cables,
            6,
        )
        captures = LinkCaptures(net, tmp_path)
        group = net.launch_messages(graph, transport_of("roce"), gpus)
        assert net.wait() == group
        assert captures.packets == net.counts().packets
        return [path.read_bytes() for path in captures.files]

    first, *others = on_threads(monkeypatch, run)
    assert all(other == first for other in others)
