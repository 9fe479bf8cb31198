"""``innet net predict`` without Mininet: a description's simulated network, record and table."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from rich.console import Console

from innet.core.errors import InputError
from innet.core.settings import MininetSettings
from innet.protocol import network_timing
from innet.records import Machine, NetworkRun, PredictionRecord, Record
from innet.reports.tables import prediction_table
from innet.scenarios.prediction import (
    Calibration,
    calibration_of,
    check_predictable,
    simulate_jobs,
    simulated_network,
)
from innet.topology import Request, plan_jobs

WIRE = 8 * 354  # bits of a packet of 64 values: 330 bytes, preamble, check sequence, gap


def settings(**chosen):
    return MininetSettings(**{"workers": 2, "rate": 100.0, "queue": 64, **chosen})


def plan(chosen, window=64):
    request = Request(workers=chosen.workers, window=window, topology=chosen.topology)
    return plan_jobs(chosen.program, chosen.values_per_packet, request, chosen.jobs)


def gradients(chosen, size=64 * 500):
    rng = np.random.default_rng(0)
    return {
        job: [rng.standard_normal(size, np.float32) for _ in range(chosen.workers)]
        for job in range(1, chosen.jobs + 1)
    }


def simulate(chosen, shared, idle=0.0):
    network = simulated_network(chosen, shared, idle)
    return simulate_jobs(chosen, shared, network, gradients(chosen), network_timing())


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"rate": None, "queue": None}, "needs rate"),
        ({"queue": None}, "needs queue"),
        ({"duplicate": 0.1}, "no duplicate; it has loss"),
        ({"reorder": 0.1}, "no reorder; it has loss"),
        ({"partial_after": 1.0}, "no partial_after"),
        ({"switch": "bmv2"}, "switch = 'bmv2'"),
        ({"engine": "interpret"}, "engine = 'interpret'"),
        ({"priority_queues": 2}, "priority_queues = 2"),
    ],
)
def test_what_the_two_do_not_share_is_refused_by_name(chosen, said):
    with pytest.raises(InputError, match=said):
        check_predictable(settings(**chosen))
    check_predictable(settings(loss=0.01, link_delay=1.0))
    check_predictable(settings(program="hashed"))


def test_rates_queues_and_delays_are_those_of_the_description():
    chosen = settings(link_delay=2.0, delay_by="workers")
    network = simulated_network(chosen, plan(chosen), 5e-4)
    assert (network.rate, network.queue_packets, network.delay) == (100e6, 64, 2e-3)
    assert network.host_send == network.host_receive == network.loss == 0
    # By netem the measured time has the delay already.
    netem = simulated_network(settings(link_delay=2.0, delay_by="netem"), plan(chosen), 5e-3)
    assert netem.switch_latency == pytest.approx(5e-3 - 2 * (WIRE / 100e6 + 2e-3))


@pytest.mark.parametrize(
    ("topology", "links", "passes"), [("star", 2, 1), ("tree", 4, 3), ("dumbbell", 4, 3)]
)
def test_a_packet_on_idle_links_takes_what_was_measured(topology, links, passes):
    chosen = settings(topology=topology, workers=4)
    network = simulated_network(chosen, plan(chosen), 1e-3)
    assert passes * network.switch_latency + links * WIRE / 100e6 == pytest.approx(1e-3)
    one_at_a_time = simulate_jobs(
        chosen, plan(chosen, 1), network, gradients(chosen, 640), network_timing()
    )
    # Ten packets after the one by which the workers agree on a scale.
    assert one_at_a_time.seconds == (pytest.approx(11e-3, rel=1e-6),)


def test_a_packet_of_hashed_goes_to_the_server_and_back():
    chosen = settings(program="hashed")
    network = simulated_network(chosen, plan(chosen), 1e-3)
    one_at_a_time = simulate_jobs(
        chosen, plan(chosen, 1), network, gradients(chosen, 640), network_timing()
    )
    assert one_at_a_time.seconds == (pytest.approx(11e-3, rel=1e-6),)


@pytest.mark.parametrize("workers", [2, 4])
def test_processes_that_share_the_cores_are_what_limits_where_these_are_slow(workers):
    """Two cores, 50 µs of one for a packet: a chunk takes that for each worker.

    At a tenth of that the links are the limit, as without.
    """
    chosen = settings(workers=workers)

    def goodput(calibration):
        network = simulated_network(chosen, plan(chosen, 256), 1e-4, calibration)
        return simulate_jobs(
            chosen, plan(chosen, 256), network, gradients(chosen, 64 * 3000), network_timing()
        ).goodput_mbps

    chunk = 2 * workers * 50e-6 / 2
    assert goodput(Calibration(50e-6, 2.0)) == pytest.approx(32e-6 * 64 / chunk, rel=0.02)
    assert goodput(Calibration(5e-6, 2.0)) == pytest.approx(goodput(None), rel=0.01)


def test_calibrations_are_records_of_busy_cores(tmp_path):
    path = tmp_path / "record.json"
    a_record(busy=0.9).save(path)
    assert calibration_of(path) == Calibration(3.0 / 1000, 1.5)
    a_record(busy=0.5).save(path)
    with pytest.raises(InputError, match=r"busy for 50% of the time.* at a higher rate"):
        calibration_of(path)
    a_record(busy=0.9).model_copy(update={"processor_seconds": 0.0}).save(path)
    with pytest.raises(InputError, match=r"is no record of innet net predict"):
        calibration_of(path)


def test_workers_of_several_jobs_are_late_by_chance():
    chosen = settings(jobs=2, topology="dumbbell")
    alone = simulated_network(settings(topology="dumbbell"), plan(settings()), 1e-3)
    network = simulated_network(chosen, plan(chosen), 1e-3)
    assert alone.host_jitter == 0
    # Half of the measured time; the mean time of a packet on idle links is still the measured.
    rest = 1e-3 - 4 * WIRE / 100e6
    assert network.host_jitter == 0.5e-3
    assert 3 * network.switch_latency + network.host_jitter == pytest.approx(rest)


def test_they_are_late_where_the_wire_should_have_taken_longer_than_was_measured():
    """The kernel's bucket lets single packets through at once; jobs still must not lock step."""
    chosen = settings(jobs=2, topology="dumbbell", rate=1.0)
    network = simulated_network(chosen, plan(chosen), 1e-4)
    assert (network.host_jitter, network.switch_latency) == (0.5e-4, 0)


def test_a_measured_time_below_that_of_the_wire_leaves_no_latency():
    chosen = settings(rate=1.0)
    assert simulated_network(chosen, plan(chosen), 1e-4).switch_latency == 0


def test_full_links_give_the_goodput_of_the_wire():
    chosen = settings(rounds=2)
    found = simulate(chosen, plan(chosen))
    assert len(found.seconds) == 2
    assert found.goodput_mbps == pytest.approx(100 * 32 * 64 / WIRE, rel=0.01)
    assert found.packets == 2 * 2 * 2 * 501  # rounds, workers, directions
    assert found.bytes == 354 * found.packets
    assert found.dropped == found.lost == found.retransmissions == 0


def test_losses_are_of_hosts_links_and_made_good():
    chosen = settings(topology="dumbbell", workers=2, loss=0.02)
    found = simulate(chosen, plan(chosen))
    assert found.dropped == 0 < found.lost
    assert found.retransmissions > 0
    assert found == simulate(chosen, plan(chosen))


def test_jobs_share_the_trunk_and_overfill_its_queue():
    chosen = settings(topology="dumbbell", jobs=2, queue=16)
    wide, narrow = (simulate(chosen, plan(chosen, window)) for window in (8, 64))
    assert len(narrow.seconds) == 2
    assert wide.dropped == 0
    assert narrow.dropped > 0
    # Each gets half of the trunk.
    assert wide.goodput_mbps == pytest.approx(50 * 32 * 64 / WIRE, rel=0.02)


def a_record(busy=0.5):
    counts = {"packets": 1000, "bytes": 354_000, "lost": 0, "retransmissions": 0}
    return PredictionRecord(
        innet="0",
        created=datetime.now(UTC),
        machine=Machine.here(),
        workers=2,
        jobs=2,
        elements=10_000,
        window=64,
        idle_seconds=2e-4,
        network={"rate": 1e8},
        busy=busy,
        network_seconds=2.0,
        processor_seconds=3.0,
        exact=True,
        mininet=NetworkRun.of((0.5, 0.1, 0.2), 10_000, dropped=0, **counts),
        simulated=NetworkRun.of((0.16, 0.16, 0.16), 10_000, dropped=3, **counts),
    )


def test_the_record_holds_both_and_their_difference(tmp_path):
    record = a_record()
    assert record.mininet.goodput_mbps == pytest.approx(1.6)  # by the median
    document = json.loads(record.model_dump_json())
    assert document["mininet"]["seconds"] == [0.5, 0.1, 0.2]
    assert document["difference_percent"] == {
        "goodput_mbps": pytest.approx(25),
        "packets": 0,
        "bytes": 0,
        "dropped": None,  # above nothing
        "lost": 0,
        "retransmissions": 0,
    }
    record.save(tmp_path / "prediction.json")
    assert Record.load(tmp_path / "prediction.json") == record


def test_the_table_has_both_side_by_side():
    def shown(record):
        console = Console(width=80, record=True)
        console.print(prediction_table(record))
        return console.export_text()

    text = shown(a_record())
    lines = {line[:31].strip(): line[31:].split() for line in text.splitlines()}
    assert lines["Goodput of a worker, Mbit/s"] == ["1.60", "2.00", "+25.0", "%"]
    assert lines["Time of an all-reduce"] == ["200", "ms", "160", "ms", "-20.0", "%"]
    assert lines["Packets over links"] == ["1,000", "1,000", "0", "%"]
    assert lines["Packets dropped by full queues"] == ["0", "3"]
    assert "2 jobs. Sums in Mininet: exact." in text
    assert "busy" not in text
    assert "100% busy" in shown(a_record(busy=1.0))
