"""Runs that skip what repeats itself are equal to those that do not, in every count and time."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
from rich.console import Console

import innet
from innet.core.reduce_op import ReduceOp, SizedSegment
from innet.protocol import Timing
from innet.reports.tables import simulation_table
from innet.sim import network_of
from innet.sim.flows import Flow
from innet.topology import EmulatedNetwork, Request, make_plan

RATES = (1e9, 10e9, 25e9, 37e9, 100e9, 400e9)


def drawn(seed):
    """A random network, its workers, and what they sum: arguments of ``network_after``."""
    draw = random.Random(seed)
    pick = draw.choice
    program = pick(["slots", "tree"])
    workers = pick([1, 2, 3, 4, 5, 8, 16] if program == "slots" else [2, 3, 4, 6, 8, 12, 24])
    window, values = pick([1, 2, 4, 8, 16, 32, 64]), pick([1, 16, 32, 64, 256, 367])
    chunks = min(pick([600, 3000, 4000, 4000]), 40_000 // workers)
    size = chunks * values - draw.randrange(values)
    sizes = [size // 2, draw.randrange(1, 5000), size // 2] if draw.random() < 0.2 else [size]
    rate = pick(RATES)
    network = {
        "rate": rate,
        "delay": pick([0, 100e-9, 500e-9, 5e-6, 123.457e-9]),
        "switch_latency": pick([0, 600e-9, 333e-9]),
        "host_receive": pick([0, 100e-9, 2.7e-6, 1e-9 * draw.randrange(1, 500)]),
        "host_send": pick([0, 100e-9, 2.7e-6]),
        "host_byte": pick([0, 0, 1e-10]),
        "host_cores": pick([1, 8]),
    }
    rarely = {
        "trunk_rate": (0.4 if program == "tree" else 0, rate * pick([0.1, 0.5, 0.77, 1, 2])),
        "host_pace": (0.15, rate * pick([0.1, 0.5, 0.9])),
        "queue_packets": (0.1, pick([1, 4, 64])),
        "ecn_bytes": (0.1, pick([1000, 20_000])),
        "priorities": (0.1, pick([2, 8])),
    }
    network |= {name: number for name, (often, number) in rarely.items() if draw.random() < often}
    options = {}
    if program == "tree":
        shapes = [{"racks": pick([1, 2, 3]) if workers > 2 else 1}, {"depth": 3}, {}]
        shapes.append({"topology": f"leaf-spine:spines={pick([1, 2, 3])}"})
        options = pick(shapes[: 4 if workers > 3 else 1])
    starts = {}
    if draw.random() < 0.4:
        late = [0, 1e-6, 20e-6, 1e-3, 1e-4 * draw.random(), 5e-3]
        starts = {worker: pick(late) for worker in range(workers) if draw.random() < 0.4}
    plan = make_plan(program, values, Request(workers=workers, thin=True, window=window, **options))
    return plan, network, sizes, starts


def network_after(plan, network, sizes, starts, *, fast_forward, rounds=1, timing=None):
    """The network after all-reduces of segments of these sizes, which workers begin later."""
    found = EmulatedNetwork(plan, network=network_of(network), timing=timing)
    found.timed.fast_forward = fast_forward
    for _ in range(rounds):
        for end in found.workers:
            end.start([SizedSegment(ReduceOp.SUM, size) for size in sizes], found.now)
        found.run({worker: found.now + late for worker, late in starts.items()})
    return found


def known(network):
    """All that there is to know of a network and its workers."""
    simulation, switches, workers = network.timed, network.switches.values(), network.workers
    return {
        "counts": simulation.counts(),
        "links": simulation.link_counts(),
        "finished": [simulation.finished(host) for host in range(len(workers))],
        "switches": [simulation.switch_counts(number) for number in range(len(switches))],
        "statistics": [switch.statistics for switch in switches],
        "queues": [manager.queues.tolist() for manager in simulation.managers()],
        "clocks": [(each.traffic_manager.now, each.state.clock) for each in switches],
        "registers": [[cells.tolist() for cells in each.registers.values()] for each in switches],
        "counters": [[each.tolist() for each in switch.state.counters] for switch in switches],
        "workers": [end.counters for end in workers],
        "chunks": [(end.next_chunk, end.bitmaps.tolist()) for end in workers],
        "timers": [(end.round_trip.timeout, end._timers.first_sent.tolist()) for end in workers],
        "memory": (simulation._memory.hosts.tolist(), simulation._memory.links.tolist()),
    }


def check_equal(seeds):
    """Each random network is as after a full run; returns how many have skipped something."""
    skipped = 0
    for seed in seeds:
        case = drawn(seed)
        full = network_after(*case, fast_forward=False, rounds=1 + seed % 2)
        forwarded = network_after(*case, fast_forward=True, rounds=1 + seed % 2)
        skipped += forwarded.timed.forwarded.periods > 0
        before, after = known(full), known(forwarded)
        for name, each in before.items():
            assert after[name] == each, (seed, name)
    return skipped


def test_equal_to_the_full_run():
    assert check_equal(range(25)) >= 13


@pytest.mark.repeats("the same with other networks")
@pytest.mark.parametrize("part", range(5))
def test_equal_to_the_full_run_of_many_networks(part):
    assert check_equal(range(100 * part, 100 * part + 100)) >= 60


SIMPLE = make_plan("slots", 64, Request(workers=3, window=8, thin=True))


@pytest.mark.parametrize(
    ("plan", "network", "sizes", "why"),
    [
        (SIMPLE, {}, [64 * 40], "a period is longer than what is left"),
        (SIMPLE, {"host_jitter": 1e-6}, [64_000], "late or marked at random"),
        (SIMPLE, {"ecn_bytes": 500, "ecn_max_bytes": 900}, [64_000], "late or marked at random"),
        (SIMPLE, {"loss": 1e-4}, [64_000], "lose or change packets"),
        (SIMPLE, {"pfc": True}, [64_000], "priority flow control"),
        (
            make_plan("harvest", 64, Request(workers=3, window=8, thin=True)),
            {},
            [64_000],
            "does not say where it keeps sequence numbers",
        ),
    ],
)
def test_says_why_nothing_was_skipped(plan, network, sizes, why):
    found = network_after(plan, network, sizes, {}, fast_forward=True).timed.forwarded
    assert why in found.why
    assert found.periods == found.packets == 0


def test_says_that_it_is_off():
    found = network_after(SIMPLE, {}, [64_000], {}, fast_forward=False).timed.forwarded
    assert found.why == "it is switched off"


def test_flows_are_not_skipped():
    network = EmulatedNetwork(SIMPLE, network=network_of("100g"))
    network.timed.add_flows([Flow(source=0, destination=1, size=100, packets=5, interval=1e-6)])
    for end in network.workers:
        end.start([SizedSegment(ReduceOp.SUM, 64_000)], network.now)
    network.run()
    assert "flows" in network.timed.forwarded.why


def test_not_where_a_timer_may_expire():
    timing = Timing(timeout=1e-3, min_timeout=1e-6)  # less than a round trip takes
    found = [
        network_after(SIMPLE, {}, [64 * 4000], {}, fast_forward=each, timing=timing)
        for each in (False, True)
    ]
    assert "time-outs" in found[1].timed.forwarded.why
    assert known(found[0]) == known(found[1])


def test_sequence_numbers_that_begin_again():
    ends = []
    for fast_forward in (False, True):
        network = EmulatedNetwork(SIMPLE, network=network_of("100g"))
        network.timed.fast_forward = fast_forward
        for end in network.workers:
            end._cursor = (1 << 32) - 512  # as if so many chunks had been summed
            end._chunk[:] = end._cursor - 8 + np.arange(8)
            end.start([SizedSegment(ReduceOp.SUM, 64 * 4000)], network.now)
        network.run()
        ends.append(network)
    assert ends[1].timed.forwarded.periods == 0
    assert known(ends[0]) == known(ends[1])


def test_simulate_is_equal_without_it():
    settings = {"workers": 4, "size": 300_000, "thin": True, "window": 32, "iterations": 2}
    skipped = innet.simulate(**settings)
    full = innet.simulate(**settings, fast_forward=False)
    assert skipped.simulated == full.simulated
    assert skipped.iterations == full.iterations
    assert skipped.fast_forward.periods > 0
    assert 0 < skipped.fast_forward.packets < skipped.simulated.packets
    assert full.fast_forward.why == "it is switched off"
    for record, said in ((skipped, "periods"), (full, "nothing: it is switched off")):
        console = Console(width=120, file=io.StringIO())
        console.print(simulation_table(record))
        assert said in console.file.getvalue()
