"""Packets beside all-reduces: ``innet simulate --background``."""

from __future__ import annotations

import math

import numpy as np
import pytest

import innet
from innet.core.errors import ConfigError, InputError
from innet.records import Record
from innet.reports.tables import simulation_table
from innet.scenarios.background import Background, read_cdf, read_tables
from innet.scenarios.sweeps import sweep
from innet.sim import Network
from innet.sim.flows import FlowCounts

TEN = Network(rate=10e9)
FLOW = {"source": 1, "destination": 0, "rate": 4e9, "size": 1458}
QUIET = {"host_receive": 0.0, "host_send": 0.0, "rate": 10e9}


def beside(tables, **settings):
    settings = {"workers": 3, "size": 50_000, "network": "10g", "window": 64, **settings}
    return innet.simulate(background=tables, **settings)


def test_a_flow_takes_its_share_of_a_link():
    """Worker 0's link has 4 Gbit/s of payload, 4.18 on the wire, less for the sum."""
    alone, both = (
        beside(tables, size=200_000, encode_time=0.0) for tables in ({}, {"flow": [FLOW]})
    )
    assert both.exact
    assert both.simulated.seconds == pytest.approx(alone.simulated.seconds / 0.582, rel=0.03)
    (flow,) = both.background
    assert flow.title == "worker 1 to 0"
    assert flow.sent == pytest.approx(4e9 / 8 / 1458 * both.simulated.seconds, abs=2)
    assert flow.dropped == flow.lost == flow.messages == 0
    assert both.simulated.packets > alone.simulated.packets + 1.9 * flow.sent
    assert both.simulated.utilization["switch_to_host"] < 1


def test_counts_of_an_all_reduce_are_those_of_its_time():
    """What flows send while workers compute is not the all-reduce's."""
    record = beside({"flow": [FLOW]}, compute=2e-3, iterations=2, straggler="none")
    assert record.all_reduces == 2  # they are not equal any more
    for each in record.iterations:
        (bucket,) = each.buckets
        assert 0.5 < bucket.simulated.utilization["switch_to_host"] < 1
        assert bucket.simulated.packets < 12_000
    assert record.background[0].sent > 2 * 4e9 / 8 / 1458 * 2e-3


def test_incast_comes_in_bursts_and_has_completion_times():
    """Two hosts send 14,580 bytes each at the same time: 20 packets that wait for one link."""
    tables = {"incast": [{"destination": 2, "bytes": 14_580, "times": 2, "interval": 5e-5}]}
    network = {**QUIET, "delay": 0.0, "switch_latency": 0.0}
    record = beside(tables, network=network)
    (found,) = record.background
    assert (found.sent, found.received, found.messages, found.complete) == (40, 40, 4, 4)
    packet = (1458 + 42 + 24) * 8 / 10e9
    # It waits for the all-reduce's packets, too.
    assert found.mean_completion > 15 * packet
    assert found.mean_completion <= found.p99_completion <= found.longest_delay


def test_a_paced_incast_loses_nothing_where_an_unpaced_one_does():
    """Two hosts send 100 packets each at the same time to one, whose queue holds 20."""
    tables = {"incast": [{"destination": 2, "bytes": 145_800}]}
    short = {**QUIET, "queue_packets": 20}
    unpaced, paced = (
        beside(tables, size=64 * 400, network={**short, **more}).background[0]
        for more in ({}, {"host_pace": 4e9})
    )
    assert unpaced.dropped > 50
    assert (paced.dropped, paced.received, paced.complete) == (0, 200, 2)


def test_a_flow_of_a_priority_needs_a_queue():
    tables = {"flow": [{**FLOW, "priority": 3}]}
    with pytest.raises(InputError, match=r"priority 3, but .*priorities=4"):
        beside(tables, size=640)
    record = beside(tables, size=640, network="10g:priorities=4")
    assert record.network["priorities"] == 4
    assert record.background[0].received > 0


def test_sizes_of_random_flows_come_from_a_file(tmp_path):
    path = tmp_path / "sizes.cdf"
    path.write_text("# bytes, per cent\n1000 0\n2000 50\n\n10000 100\n")
    assert read_cdf(path) == [[1000, 0], [2000, 50], [10_000, 100]]
    table = {"cdf": "sizes.cdf", "load": 0.5, "seconds": 0.05, "size": 1000}
    tables = read_tables({"random": [table]}, tmp_path)
    flows = Background(tables, TEN, 4, seed=1).flows
    assert {flow.source for flow in flows} == {0, 1, 2, 3}
    packets = sum(flow.count for flow in flows)
    # Of uniform sizes in both halves, rounded up to packets of 1,000 bytes.
    on_wire = 8 * (1000 + 42 + 24) * packets / 0.05 / 4
    mean, rounded = (1500 + 6000) / 2, (2 + np.ceil(np.arange(2001, 10_001) / 1000).mean()) / 2
    assert on_wire / 10e9 == pytest.approx(0.5 * rounded * 1000 / mean, rel=0.05)
    for flow in flows:
        assert (np.diff(flow.times) >= 0).all()
    again = Background(tables, TEN, 4, seed=1).flows
    assert [list(flow.times) for flow in again] == [list(flow.times) for flow in flows]
    other = Background(tables, TEN, 4, seed=2).flows
    assert [list(flow.times) for flow in other] != [list(flow.times) for flow in flows]


def test_a_message_is_complete_when_its_last_packet_has_come():
    background = Background(
        {"incast": [{"destination": 0, "sources": [1], "bytes": 20, "size": 10, "times": 3}]},
        TEN,
        2,
    )
    delays = np.array([5, 9, 7, -1, 1, 1], np.int64)  # the third one's last was not sent yet
    counts = FlowCounts(5, 4, 1, 0, 0, 2e-12, 9e-12, delays)
    (found,) = background.results([counts])
    assert (found.messages, found.complete) == (2, 1)
    assert found.mean_completion == pytest.approx(9e-12)
    assert found.mean_delay == pytest.approx(2e-12)
    assert background.results([counts._replace(received=0, sent=0)])[0].mean_delay is None


def test_a_networks_file_may_have_traffic(tmp_path):
    (tmp_path / "sizes.cdf").write_text("100 0\n100 1\n")
    path = tmp_path / "net.toml"
    path.write_text(
        'preset = "10g"\n[[flow]]\nsource = 1\ndestination = 0\nrate = 4e9\n'
        '[[random]]\ncdf = "sizes.cdf"\nload = 0.1\nseconds = 1e-4\n'
    )
    settings = {"workers": 2, "size": 2000, "baselines": ("ring",)}
    record = innet.simulate(network=path, **settings)
    assert [each.title for each in record.background] == ["worker 1 to 0", "random flows, load 0.1"]
    assert record.baselines["ring"].background[0].sent > 0
    assert record.settings["background"]["random"][0]["cdf"] == [[100, 0], [100, 1]]
    again = innet.simulate(**record.settings)
    assert (again.simulated, again.background) == (record.simulated, record.background)
    swept = sweep({"network": str(path), **settings}, {"loss": [0]}, jobs=1)
    assert swept.points[0].record["background"][0]["sent"] == record.background[0].sent
    record.save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json") == record
    assert simulation_table(record).renderables
    with pytest.raises(InputError, match="both background and the network's file"):
        innet.simulate(network=path, background={"flow": [FLOW]}, **settings)
    with pytest.raises(ConfigError, match=r"\[\[flow\]\] is traffic beside all-reduces"):
        innet.Collective(workers=2, network=path)


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"flow": [{**FLOW, "source": 3}]}, r"flow 0 .* there is no worker 3; there are 0 to 2"),
        ({"flow": [{**FLOW, "interval": 1.0}]}, "give one of rate and interval"),
        ({"flow": [{**FLOW, "rate": 0}]}, "rate"),
        ({"flow": [{**FLOW, "source": 0}]}, "from host 0 to itself"),
        ({"flow": [{**FLOW, "speed": 1}]}, "speed"),
        ({"flows": [FLOW]}, "flows"),
        ({"incast": [{"destination": 0, "bytes": 0}]}, "bytes"),
        ({"incast": [{"destination": 0, "bytes": 1 << 36}]}, "at most 20,000,000 are listed"),
        ({"random": [{"cdf": "none.cdf", "load": 0.1, "seconds": 1}]}, "none.cdf cannot be read"),
        ({"random": [{"cdf": [[1, 0], [2, 0.5]], "load": 0.1, "seconds": 1}]}, "is 0.5; it is to"),
        ({"random": [{"cdf": [[2, 0], [1, 1]], "load": 0.1, "seconds": 1}]}, "are to rise"),
        ({"random": [{"cdf": [[1, 0], [2, 1]], "load": 1.5, "seconds": 1}]}, "load"),
        ("none.toml", r"cannot read none\.toml"),
    ],
)
def test_what_is_none_is_refused_by_name(tables, said):
    with pytest.raises((ConfigError, InputError), match=said):
        beside(tables, size=10)


def test_files_of_sizes_are_checked_line_by_line(tmp_path):
    path = tmp_path / "sizes.cdf"
    path.write_text("1 0\n2 much\n")
    with pytest.raises(ConfigError, match=r"sizes\.cdf:2: '2 much' is not a size"):
        read_cdf(path)
    path.write_text(f"1 0\n{math.inf} 1\n")
    with pytest.raises(ConfigError, match="size of at least 1 byte"):
        read_tables({"random": [{"cdf": str(path), "load": 0.1, "seconds": 1}]})
