"""Networks on a testbed and in Mininet: the same frames come to hosts, in the same order."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from support.mininet import KINDS, missing, needs_mininet

from innet.core.reduce_op import ReduceOp, Segment
from innet.sim import Testbed as Bed
from innet.sim.flows import udp_frame
from innet.topology.aggregation import Request, aggregation_of, make_plan

if not missing():
    from innet.mininet.beds import play

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "p4/examples"
L3 = ROOT / "benchmarks/programs/l3.json"

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]


def example(name):
    spec = importlib.util.spec_from_file_location(f"mininet_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def spread(listed, first=0.0):
    """Frames of a host at times of its own: in Mininet one is sent after the other."""
    return [(first + number * 1e-3, frame) for number, frame in enumerate(listed)]


def forwarding():
    """Two hosts at a switch that forwards, and frames to nobody."""
    bed = Bed("10g")
    switch = bed.switch("s1", EXAMPLES / "forward.json", commands=EXAMPLES / "forward.commands")
    for port in (1, 2):
        bed.link(bed.host(f"h{port}"), switch, port=port)
    there = [udp_frame(0, 1 + number % 2, 20, payload=bytes([number] * 20)) for number in range(20)]
    back = [udp_frame(1, 0, number) for number in range(10)]
    return bed, {"h1": spread(there), "h2": spread(back, 5e-4)}


def routed():
    """Three hosts at two routers with two links between them."""
    bed = Bed("1g")
    switches = []
    for name, ports in (("s1", (1, 2, 3)), ("s2", (5, 1, 6))):
        lines = []
        for host, port in enumerate(ports, start=1):
            lines.append(f"table_add routes route 10.0.0.{host}/32 => {host}")
            mac = f"02:00:00:00:00:0{host}"
            lines.append(f"table_add next_hops forward {host} => {port} 02:00:00:00:ff:01 {mac}")
        switches.append(bed.switch(name, L3, commands=lines))
    hosts = [bed.host(f"h{n}") for n in (1, 2, 3)]
    bed.link(hosts[0], switches[0], port=1)
    bed.link(hosts[1], switches[1], port=1)
    bed.link(hosts[2], switches[1], port=6)
    bed.link(switches[0], switches[1], ports=(2, 5))
    bed.link(switches[0], switches[1], ports=(3, 7))
    frames = {
        f"h{source + 1}": spread(
            [udp_frame(source, (source + 1 + n) % 4, 40 + n, ttl=1 + n % 5) for n in range(15)],
            source * 3e-4,
        )
        for source in range(3)
    }
    return bed, frames


def slots():
    """innet's own program: three workers, whose sums are multicast."""
    plan = make_plan("slots", 32, Request(workers=3))
    bed = Bed("10g")
    switch = bed.switch("s1", "slots-32", commands=plan.switches[0].commands)
    frames = {}
    for number, host in enumerate(plan.workers):
        bed.link(bed.host(host.name), switch, port=number + 1)
        client = aggregation_of("slots").worker_end(plan, host)
        client.start([Segment(ReduceOp.SUM, np.arange(100, dtype=np.int32) * (number + 1))], 0.0)
        frames[host.name] = spread([each.tobytes() for each in client.outgoing(0.0)], number * 3e-4)
    return bed, frames


def aggregation():
    """A protocol of its own: chunks of two workers, and some that are sent again."""
    module = example("aggregation")
    bed, _ = module.make(2, 0.0, 1)
    frames = {}
    for worker in (0, 1):
        listed = []
        for slot in (0, 1, 2, 1, 0):
            head = module.HEADER.pack(bytes(6), bytes(6), module.TYPE, worker, 0, slot, slot)
            listed.append(head + np.arange(8, dtype=">i4").tobytes())
        frames[f"h{worker + 1}"] = spread(listed, worker * 3e-4)
    return bed, frames


def cache():
    """Reads and writes of a key that has a place in the switch."""
    module = example("cache")
    bed = Bed("10g")
    lines = [f"table_add hosts forward 02:00:00:00:00:0{n} => {n}" for n in (1, 2)]
    switch = bed.switch(
        "s1", EXAMPLES / "cache.json", commands=[*lines, "table_add cache cached 7 => 3"]
    )
    server, client = bed.host("h1"), bed.host("h2")
    bed.link(server, switch, port=1)
    bed.link(client, switch, port=2)

    def message(here, there, operation, request, value=0):
        head = module.mac(there), module.mac(here), module.TYPE
        return module.MESSAGE.pack(*head, operation, 0, request, 7, value)

    get = [message(client, server, module.GET, n) for n in range(6)]
    put = message(client, server, module.PUT, 9, 99)
    answers = [
        message(server, client, module.GOT, 0, 55),
        message(server, client, module.DID, 9, 99),
    ]
    frames = {
        "h2": [(1e-4 * n, frame) for n, frame in enumerate([get[0], get[1], put, *get[2:]])],
        "h1": [(1.5e-4, answers[0]), (3.5e-4, answers[1])],
    }
    return bed, frames


def consensus():
    """Five switches: requests by two coordinators, and votes of three acceptors."""
    module = example("consensus")
    bed, *_ = module.make(1)
    listed = [module.message(module.REQUEST, value=value) for value in range(1, 11)]
    return bed, {"client": spread(listed)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(forwarding),
        *(
            pytest.param(make, marks=pytest.mark.repeats("other networks of testbeds in Mininet"))
            for make in (routed, slots, aggregation, cache, consensus)
        ),
    ],
)
def test_the_same_arrives(make, kind):
    bed, frames = make()
    simulated = bed.play(frames)
    bed, frames = make()
    # Frames of two hosts would change places where the machine has little time for them.
    real = play(bed, frames, switch=kind, gap=2e-2, quiet=2.0)
    assert sum(map(len, simulated.values())) > 5
    if make is consensus:  # votes of three acceptors, which race in Mininet
        simulated = {name: sorted(found) for name, found in simulated.items()}
        real = {name: sorted(found) for name, found in real.items()}
    assert real == simulated
