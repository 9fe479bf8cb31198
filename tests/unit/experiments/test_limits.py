"""What limits a simulated result, what it rests on, and what of it is assumed."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

import innet
from innet.records import Record, Simulated
from innet.records.report import limiting, network_limit
from innet.reports.plots import jobs_figure, simulation_figure, sweep_figure
from innet.reports.tables import jobs_table, report_table, simulation_table, sweep_table
from innet.scenarios.jobs import simulate_jobs


def shown(table):
    """A table as text, without the line breaks within captions."""
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    return " ".join(console.file.getvalue().split())


def simulated(**changes):
    usual = {
        "seconds": 1.0, "goodput_gbps": 1.0, "elements_per_second": 1.0, "packets": 1, "bytes": 1,
        "lost": 0, "dropped": 0, "marked": 0, "retransmissions": 0, "queue_bytes_max": 0,
        "utilization": {}, "windows_max": 8.0,
    }  # fmt: skip
    return Simulated(**{**usual, **changes})


class TestNetworks:
    @pytest.mark.parametrize(
        ("options", "limit"),
        [
            ({"network": "100g"}, "host links (99 % of the time)"),
            ({"network": "400g"}, "host processors (99 % of the time; assumed: host_send, host_r"),
            ({"network": "400g:host=rdma"}, "host processors (98 % of the time; assumed: "),
            ({"network": "400g:host_send=0,host_receive=0"}, "host links (9"),
            ({"network": "100g", "window": 32}, "the window (host links are busy for 5"),
            ({"network": "100g:loss=1e-3"}, "lost packets ("),
            ({"network": "100g:trunk_rate=10e9", "topology": "tree"}, "trunks (100 % of the time)"),
            ({"network": "100g", "size": 640}, "latency (9"),
            (
                {"network": "100g:recirculation_rate=25e9", "program": "harvest"},
                "recirculation (100 % of the time; assumed: recirculation_latency)",
            ),
            ({"network": "100g", "pauses": ("1:1:1.0",)}, "stragglers (100 % of the time)"),
        ],
    )
    def test_what_limits_is_named(self, options, limit):
        record = innet.simulate(**{"workers": 8, "size": 640_000, "thin": True, **options})
        assert record.simulated.limit.startswith(limit)

    def test_what_is_as_near_is_named_too(self):
        found = simulated(busiest={"host links": 0.96, "host processors": 0.9, "trunks": 0.5})
        assert network_limit(found) == (
            "host links (96 % of the time) and host processors (90 % of the time)"
        )
        assert limiting({"a": 0.5, "b": 0.39, "c": 0.45}) == [("a", 0.5), ("c", 0.45)]

    def test_a_long_window_is_not_blamed_for_the_first_round_trip(self):
        found = simulated(busiest={"host links": 0.7}, windows_max=2.0, assumed=("switch_latency",))
        assert network_limit(found) == "host links (70 % of the time)"
        shorter = found.model_copy(update={"windows_max": 20.0})
        assert network_limit(shorter) == (
            "the window (host links are busy for 70 % of the time; assumed: switch_latency)"
        )

    def test_records_of_older_versions_say_nothing(self):
        assert network_limit(simulated()) == ""
        assert simulated().limit == ""


class TestIterations:
    def test_computing_codecs_stragglers_and_the_network(self):
        def limit(**options):
            return innet.simulate(workers=4, size=100_000, thin=True, **options).limit

        assert limit(network="10g", compute=1.0).startswith("computing (100 % of an iteration)")
        assert limit(network="10g", encode_time=1e-7).startswith("codecs (")
        network = limit(network="10g")
        assert network.startswith("the network (")
        assert "of an iteration), by host links (" in network
        late = limit(network="10g", compute=1e-3, straggler="fixed:worker=0,factor=9")
        assert late.startswith("stragglers (")

    def test_assumed_parts_come_first_if_they_are_much(self):
        record = innet.simulate(workers=4, size=100_000, thin=True, network="400g")
        assert set(record.assumed) == {"encoding", "decoding"}
        text = shown(simulation_table(record))
        assert text.startswith("Assumed, of the time below encoding ")
        assert "%; give --encode-time, --decode-time Network" in text
        given = innet.simulate(
            workers=4, size=100_000, thin=True, network="400g", encode_time=1e-10, decode_time=1e-10
        )
        assert given.assumed == {}
        assert "Assumed" not in shown(simulation_table(given))

    def test_little_that_is_assumed_is_marked_where_it_is_printed(self):
        record = innet.simulate(workers=4, model="resnet20", thin=True, network="100g")
        text = shown(simulation_table(record))
        assert "compute *" in text
        assert "encode *" in text
        record = innet.simulate(
            workers=4, model="resnet20", thin=True, network="100g", compute=10e-3
        )
        text = shown(simulation_table(record))
        assert not text.startswith("Assumed")
        assert "*: assumed; give --encode-time, --decode-time." in text

    def test_waiting_is_apart_from_the_network(self):
        record = innet.simulate(
            workers=16, model="resnet20", thin=True, network="25g",
            straggler="lognormal:sigma=0.3", baselines=("ring",),
        )  # fmt: skip
        alone = innet.simulate(workers=16, model="resnet20", thin=True, network="25g")
        what = record.simulated
        assert what.waited > 0.5 * what.seconds
        assert what.goodput_gbps == pytest.approx(
            32e-9 * record.elements / (what.seconds - what.waited)
        )
        assert what.goodput_gbps == pytest.approx(alone.simulated.goodput_gbps, rel=0.2)
        assert record.baselines["ring"].simulated.waited > 0
        text = shown(simulation_table(record))
        assert "waited for others" in text
        assert "network what follows" in text
        assert record.limit.startswith("computing (")


class TestWhereItIsSaid:
    FABRIC = "64 hosts, links of 10 Gbit/s, 3 switches (2 leaves), 2 trunks of 320 Gbit/s"

    def test_tables_records_and_plots(self, tmp_path):
        options = {"workers": 64, "size": 640, "thin": True, "network": "10g"}
        record = innet.simulate(**options)
        assert f"{self.FABRIC}: non-blocking" in shown(simulation_table(record))
        assert "Limited by" in shown(simulation_table(record))
        assert self.FABRIC in simulation_figure(record).get_suptitle()
        assert self.FABRIC in shown(report_table(record.report))
        document = json.loads(record.model_dump_json())
        assert self.FABRIC in document["simulated"]["fabric"]["text"]
        assert document["limit"] == record.limit
        record.save(tmp_path / "record.json")
        assert Record.load(tmp_path / "record.json") == record
        swept = innet.sweep(options, {"seed": [1, 2]}, jobs=1)
        assert self.FABRIC in shown(sweep_table(swept))
        assert "limited by" in shown(sweep_table(swept))
        assert self.FABRIC in sweep_figure(swept).get_suptitle()
        jobs = simulate_jobs(
            [{"workers": 40}, {"workers": 24}], size=640, network="10g", program="tree"
        )
        assert "64 hosts" in shown(jobs_table(jobs))
        assert "64 hosts" in jobs_figure(jobs).get_suptitle()
