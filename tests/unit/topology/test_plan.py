"""Plans: what is refused, where hosts are, and that a plan carried out is the network it says."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

from innet import programs
from innet.core.errors import InputError, UnknownNameError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.sim.network import network_of
from innet.topology import (
    AGGREGATIONS,
    EmulatedNetwork,
    PlannedHost,
    PlannedLink,
    Port,
    Request,
    aggregation_of,
    make_plan,
)


@pytest.fixture
def star():
    return make_plan("slots", 32, Request(workers=3, window=8))


def test_a_star_is_one_switch_with_the_workers_at_its_ports(star):
    assert [switch.name for switch in star.switches] == ["s1"]
    assert [host.name for host in star.workers] == ["h1", "h2", "h3"]
    assert [star.attachment(host) for host in star.hosts] == [
        Port("s1", 1),
        Port("s1", 2),
        Port("s1", 3),
    ]
    assert star.attachments() == {number: Port("s1", number) for number in (1, 2, 3)}
    assert star.trunks() == ()
    assert star.servers == ()
    assert star.window == 8
    assert star.layout.values == 32
    assert star.membership(star.hosts[2]).worker == 2
    assert star.switches[0].commands == tuple(star.job.commands())


def test_a_plan_carried_out_sums(star):
    network = EmulatedNetwork(star, engine="interpret")
    for worker, end in enumerate(network.workers):
        end.start([Segment(ReduceOp.SUM, np.arange(100, dtype=np.int32) + worker)], network.now)
    network.run()
    for end in network.workers:
        np.testing.assert_array_equal(end.results()[0], 3 * np.arange(100) + 3)
    assert network.packets_in == 3 * 4
    assert network.switch_seconds > 0


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"faults": Faults(loss=0.01, restarts=(9.0,))},
        {"network": network_of("10g")},
        {"network": network_of("10g"), "faults": Faults(loss=0.01, restarts=(9.0,))},
    ],
    ids=["memory", "faults", "simulated", "simulated with faults"],
)
def test_its_memory_goes_with_it(star, options):
    """Without a search for cycles: registers are megabytes, and some dozens of networks are made
    before Python searches.
    """
    gc.collect()
    gc.disable()
    try:
        network = EmulatedNetwork(star, **options)
        for end in network.workers:
            end.start([Segment(ReduceOp.SUM, np.ones(100, np.int32))], network.now)
        network.run()
        seen = [weakref.ref(network), weakref.ref(network.switches["s1"])]
        del network, end
        assert [each() for each in seen] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda p: {"hosts": p.hosts + p.hosts[:1]}, InputError, "two nodes are called 'h1'"),
        (lambda p: {"links": p.links[1:]}, InputError, "h1 has no link"),
        (lambda p: {"links": p.links + p.links[:1]}, InputError, "port 0 of h1 has 2 links"),
        (
            lambda p: {"links": (*p.links, PlannedLink(Port("s1", 9), Port("s7", 1)))},
            UnknownNameError,
            "unknown node 's7'",
        ),
        (
            lambda p: {"links": (*p.links, PlannedLink(Port("s1", 511), Port("s1", 9)))},
            InputError,
            "s1 has no port 511",
        ),
        (
            lambda p: {"links": (PlannedLink(Port("h1", 0), Port("h2", 0)), *p.links[2:])},
            InputError,
            "h1 and h2 are hosts",
        ),
    ],
)
def test_networks_that_cannot_be_are_refused(star, change, error, match):
    with pytest.raises(error, match=match):
        replace(star, **change(star))


def test_a_host_that_is_no_worker_has_no_membership(star):
    stranger = PlannedHost("x", star.hosts[0].endpoint, star.hosts[0].peer, "server")
    with pytest.raises(InputError, match="x is no worker"):
        star.membership(stranger)
    with pytest.raises(UnknownNameError, match="unknown host 'x'"):
        star.attachment(stranger)
    with pytest.raises(InputError, match="no parameter server"):
        aggregation_of("slots").server_end(star, stranger)


@pytest.mark.parametrize("name", list(AGGREGATIONS))
@pytest.mark.parametrize(
    ("request_", "match"),
    [
        (Request(workers=0), "0 workers"),
        (Request(workers=2**15 + 1), "32769 workers"),
        (Request(workers=2, window=0), "window of 0"),
        (Request(workers=2, window=2**17), "window of"),
        (Request(workers=2, window=12), "power of two"),
    ],
)
def test_what_a_program_has_no_room_for_is_refused(name, request_, match):
    values = min(
        each.parameters["VALUES"]
        for each in programs.available().values()
        if each.program == name and not each.is_header_only
    )
    with pytest.raises(InputError, match=match):
        make_plan(name, values, request_)


def test_a_star_has_one_rack():
    with pytest.raises(InputError, match="slots knows one switch only"):
        make_plan("slots", 32, Request(workers=2, racks=2))
    with pytest.raises(UnknownNameError, match="unknown program"):
        make_plan("slotz", 32, Request(workers=2))
