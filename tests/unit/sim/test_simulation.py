"""All-reduces in simulated time: closed forms, exact sums under loss, and equal runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.l2 import Ether
from support.capture_files import read_by_scapy
from support.tiers import tiered
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import InputError, StalledError, StateError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.records import Report
from innet.sim import Network, simulation
from innet.sim.captures import LinkCaptures
from innet.sim.network import OVERHEAD, goodput_bound
from innet.topology import EmulatedNetwork, Request, make_plan
from innet.wire.scapy_layers import Innet

VALUES = 32
FRAME = 14 + 20 + 8 + 32 + 4 * VALUES
BITS = 8 * (FRAME + OVERHEAD)
QUIET = Network(rate=10e9, delay=1e-6, switch_latency=5e-7, host_receive=0.0, host_send=0.0)
ON_THE_WIRE = BITS / 10e9


def account(net):
    """No packet is unaccounted for: it was delivered or lost, or is in the ring of a link."""
    sim = net.simulation
    counts, links = sim.counts(), sim._memory.links
    assert counts.unconnected == 0
    assert counts.packets == links["head"].sum() + counts.lost + sim.under_way()
    return counts


def exchanged(workers, chunks, network, program="slots", **options):
    """One round of so many chunks: the seconds that it took, and what happened."""
    plan = make_plan(program, VALUES, Request(workers=workers, **options))
    net = EmulatedNetwork(plan, network=network)
    for worker, end in enumerate(net.workers):
        end.start([Segment(ReduceOp.SUM, np.full(chunks * VALUES, worker, np.int32))], net.now)
    net.run()
    for end in net.workers:
        assert (end.results()[0] == workers * (workers - 1) // 2).all()
    return net.now, account(net)


def reduced(workers, size, network, **options):
    """The report of an all-reduce whose sums are exact, and whose packets are all accounted for."""
    options = {"values_per_packet": VALUES} | options
    collective = innet.Collective(workers=workers, network=network, **options)
    rng = np.random.default_rng(workers)
    gradients = [rng.integers(-99, 99, size).astype(np.float32) for _ in range(workers)]
    total, report = collective.all_reduce(gradients)
    assert report.exact  # equal to the sum of the workers' integers, on all workers
    np.testing.assert_allclose(total, np.sum(gradients, axis=0), atol=1e-3)
    account(collective.network)
    return report


def close(seconds, expected):
    assert seconds == pytest.approx(expected, rel=1e-9, abs=2e-12)


def busy(counts, name):
    """The part of the time that links of a class were busy."""
    ticks, links = counts.busy[name]
    return ticks / (links * counts.ticks)


def test_one_packet_takes_two_wires_two_delays_and_a_pipeline():
    seconds, counts = exchanged(1, 1, QUIET)
    close(seconds, 2 * ON_THE_WIRE + 2 * 1e-6 + 5e-7)
    assert (counts.packets, counts.bytes) == (2, 2 * BITS // 8)


def test_hosts_take_time_for_each_packet():
    """Of four cores, as if one were four times as fast: a microsecond out, two in."""
    network = Network(
        rate=10e9, delay=0.0, switch_latency=0.0, host_receive=8e-6, host_send=4e-6, host_cores=4
    )
    seconds, _ = exchanged(1, 5, network)
    # All five are sent before the first result is taken, and the results have come by then.
    close(seconds, 5 * 1e-6 + 5 * 2e-6)


def test_a_byte_takes_no_whole_picoseconds():
    """Of eight cores, 0.1 ns are 12.5 ps a byte."""
    network = replace(QUIET, host_byte=1e-10, host_cores=8)
    seconds, _ = exchanged(1, 1, network)
    close(seconds, 2 * ON_THE_WIRE + 2 * 1e-6 + 5e-7 + 2 * FRAME * 12.5e-12)


@pytest.mark.parametrize("window", [None, 64])
def test_a_paced_host_sends_at_its_pace(window):
    """A packet every 226 bytes at 2.5 Gbit/s; the last one takes as long as any."""
    chunks = 900
    network = replace(QUIET, host_pace=2.5e9)
    seconds, counts = exchanged(3, chunks, network, window=window)
    close(seconds, (chunks - 1) * BITS / 2.5e9 + 2 * ON_THE_WIRE + 2e-6 + 5e-7)
    assert busy(counts, "host_to_switch") == pytest.approx(0.25, rel=0.01)
    assert counts.packets == 2 * 3 * chunks
    # A pace above the link's rate changes nothing.
    fast, _ = exchanged(3, chunks, replace(QUIET, host_pace=40e9), window=window)
    assert fast == exchanged(3, chunks, QUIET, window=window)[0]


def test_paced_workers_do_not_overfill_a_queue_that_unpaced_ones_do():
    """Four workers in two racks behind trunks of a tenth of their links' rate."""
    short = Network(rate=10e9, trunk_rate=1e9, queue_packets=16)
    options = {"program": "tree", "racks": 2}
    unpaced = reduced(4, 600 * VALUES, short, **options)
    paced = reduced(4, 600 * VALUES, replace(short, host_pace=0.99e9), **options)
    assert unpaced.simulated.dropped > 100
    assert paced.simulated.dropped == paced.simulated.retransmissions == 0
    assert paced.simulated.seconds < unpaced.simulated.seconds
    assert paced.simulated.seconds == pytest.approx(600 * BITS / 0.99e9, rel=0.02)


def test_hosts_that_are_late_by_chance_lose_no_goodput_and_repeat():
    chunks = 900
    seconds, _ = exchanged(4, chunks, QUIET)
    late, other = (
        exchanged(4, chunks, replace(QUIET, host_jitter=jitter))[0] for jitter in (2e-6, 4e-6)
    )
    assert late == exchanged(4, chunks, replace(QUIET, host_jitter=2e-6))[0]
    # The slowest of four, to the switch and back: more than half of the jitter each way.
    assert 2e-6 < late - seconds < 4e-6 < other - seconds < 8e-6


@pytest.mark.parametrize("workers", [2, 8])
def test_a_large_window_fills_the_links(workers):
    """The time of all packets on the wire, and one round trip."""
    chunks = 900
    seconds, counts = exchanged(workers, chunks, QUIET)
    close(seconds, chunks * ON_THE_WIRE + ON_THE_WIRE + 2e-6 + 5e-7)
    goodput = chunks * VALUES * 32 / seconds
    bound = goodput_bound(VALUES, FRAME, 10e9)
    assert 0.98 * bound < goodput < bound
    assert busy(counts, "host_to_switch") > 0.98
    assert counts.packets == 2 * workers * chunks


@pytest.mark.parametrize("window", [1, 4, 16])
def test_a_small_window_is_limited_by_the_round_trip(window):
    chunks = 4096
    seconds, _ = exchanged(2, chunks, QUIET, window=window)
    round_trip = 2 * ON_THE_WIRE + 2e-6 + 5e-7
    expected = chunks / window * max(round_trip, window * ON_THE_WIRE)
    assert seconds == pytest.approx(expected, rel=0.01)


def test_the_round_trip_of_a_tree_has_one_more_switch_each_way():
    seconds, _ = exchanged(2, 1, QUIET, "tree", racks=2)
    close(seconds, 4 * ON_THE_WIRE + 4 * 1e-6 + 3 * 5e-7)


def test_a_slow_trunk_is_what_a_tree_waits_for():
    chunks = 600
    network = Network(rate=10e9, trunk_rate=1e9, delay=1e-6)
    seconds, counts = exchanged(4, chunks, network, "tree", racks=2)
    assert seconds == pytest.approx(chunks * BITS / 1e9, rel=0.01)
    assert busy(counts, "trunk") > 0.98
    assert counts.dropped == 0


def test_a_short_queue_drops_and_workers_recover():
    network = Network(rate=10e9, trunk_rate=1e9, queue_packets=16)
    report = reduced(4, 600 * VALUES, network, program="tree", racks=2)
    assert report.simulated.dropped > 100
    assert report.simulated.retransmissions > 100


@pytest.mark.parametrize("options", [{}, {"program": "tree", "racks": 3}])
def test_loss_is_recovered_and_runs_of_one_seed_are_equal(options):
    network = "100g:loss=0.02"
    reports = [reduced(6, 9000, network, seed=seed, **options) for seed in (1, 1, 2)]
    assert reports[0].simulated.lost > 20
    assert reports[0].simulated == reports[1].simulated
    assert reports[0].simulated != reports[2].simulated
    assert reports[0].simulated.retransmissions >= reports[0].simulated.lost


def test_memory_grows_without_a_trace(monkeypatch):
    before = reduced(5, 3000, "100g:loss=0.01", window=64)
    monkeypatch.setattr(simulation, "_FIRST", 1)
    after = reduced(5, 3000, "100g:loss=0.01", window=64)
    assert before.simulated == after.simulated


def test_epochs_and_further_all_reduces_go_on_in_time():
    collective = innet.Collective(workers=4, network="25g", values_per_packet=VALUES)
    ones = [np.ones(500, np.float32)] * 4
    times = []
    for present in (4, 3, 4):
        total, report = collective.all_reduce(ones[:present])
        assert (total == present).all()
        times.append(collective.network.now)
        refused = [end.counters.refused for end in collective.network.workers]
        assert not any(refused)  # who takes no part ignores the others' results
        assert report.simulated.seconds > 0
        if present == 4 and len(times) == 1:
            collective.leave(2)
        elif present == 3:
            collective.rejoin(2)
    assert times == sorted(times)


def test_a_network_that_loses_nearly_all_is_a_stall_that_names_somebody():
    collective = innet.Collective(
        workers=3,
        network="1g:loss=0.999",
        values_per_packet=VALUES,
        timing=Timing(timeout=1e-3, give_up=0.05),
    )
    with pytest.raises(StalledError, match=r"waits for worker|has counted"):
        collective.all_reduce([np.ones(40, np.float32)] * 3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"engine": "interpret"}, "does not have the engine interpret; choose jit"),
        ({"faults": Faults(corrupt=0.1), "thin": True}, "so corrupt would mean nothing"),
        ({"network": Network(queue_bytes=100)}, "queue_bytes is 100, but a packet has 202 bytes"),
    ],
)
def test_what_simulated_time_does_not_have_is_refused(options, why):
    with pytest.raises(InputError, match=why):
        innet.Collective(workers=2, **{"network": "10g", "values_per_packet": VALUES} | options)


SHORT = Timing(timeout=1e-4, min_timeout=1e-5)


@pytest.mark.parametrize("options", [{}, {"program": "tree", "racks": 2}])
def test_workers_get_partial_results_of_those_who_are_there(options):
    timing = Timing(timeout=1e-4, min_timeout=1e-5, partial_after=2e-3)
    collective = innet.Collective(
        workers=4,
        network="10g",
        values_per_packet=VALUES,
        timing=timing,
        faults=Faults(outages=(Outage(0.0, hosts=(2,)),)),
        **options,
    )
    gradients = [np.full(3000, 1.0 + worker, np.float32) for worker in range(4)]
    total, _ = collective.all_reduce(gradients)
    assert (total == 1 + 3 + 4).all()  # without worker 1
    assert 2e-3 < collective.network.now < 0.1


@pytest.mark.parametrize("begin", [0.0, 4e-6, 3e-5])
def test_only_the_worker_that_dies_is_left_out_whenever_that_is(begin):
    collective = innet.Collective(
        workers=3,
        network="10g",
        values_per_packet=VALUES,
        timing=Timing(timeout=1e-3, min_timeout=1e-3, partial_after=2e-3),
        faults=Faults(outages=(Outage(begin, hosts=(3,)),)),
    )
    gradients = [np.ones(10_000, np.float32)] * 3
    for number in range(2):
        total, report = collective.all_reduce(gradients[: len(collective.present)])
        assert report.details.get("without") == (None if number else [2])
        assert (total == 2).all()
        assert report.exact
    # Nobody waited for it again; the others' time is that of two all-reduces, and the wait.
    assert 2e-3 < collective.network.now < 4e-3


def test_windows_adapt_to_marks_in_simulated_time():
    network = Network(rate=10e9, trunk_rate=1e9, queue_packets=4096)
    seen = []
    for control in ("fixed", "aimd"):
        collective = innet.Collective(
            workers=4,
            network=network,
            values_per_packet=VALUES,
            program="tree",
            racks=2,
            window=256,
            timing=Timing(timeout=5e-3, min_timeout=5e-3, window_control=control),
        )
        _, report = collective.all_reduce([np.ones(60_000, np.float32)] * 4)
        assert report.exact
        seen.append((report.simulated.queue_bytes_max, collective.network.workers[0].window))
    assert seen[1][1].halvings > 0
    assert seen[1][0] < seen[0][0]


def test_a_parameter_server_answers_in_simulated_time():
    for seed in (1, 2):
        report = reduced(5, 9000, "10g:loss=0.01", program="hashed", seed=seed)
        assert report.simulated.lost > 5
        assert report.simulated.retransmissions > 0


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_recirculation_takes_time_of_its_own_port(loss):
    """Each result of harvest passes the pipeline twice, so a slow port is what limits it."""
    fast, slow = (
        reduced(
            3,
            40_000,
            Network(rate=10e9, loss=loss, recirculation_rate=rate),
            program="harvest",
            values_per_packet=64,
            timing=SHORT,
        ).simulated
        for rate in (100e9, 1e9)
    )
    assert slow.seconds > 1.2 * fast.seconds
    assert (fast.lost > 0) == (loss > 0)


def test_a_shared_buffer_and_marks():
    network = Network(rate=10e9, trunk_rate=1e9, buffer_bytes=60_000, ecn_bytes=5_000)
    report = reduced(4, 300 * VALUES, network, program="tree", racks=2)
    assert report.simulated.dropped > 0
    # Half of it, as alpha is 1, and half of the packet that fitted last.
    assert 5_000 < report.simulated.queue_bytes_max <= (60_000 + FRAME) / 2
    adapting = reduced(
        4,
        300 * VALUES,
        network,
        program="tree",
        racks=2,
        timing=Timing(timeout=5e-3, min_timeout=5e-3, window_control="aimd"),
    )
    assert adapting.simulated.marked > 0
    assert report.simulated.marked == 0  # windows that do not adapt do not say they would


def test_an_outage_is_recovered_when_it_is_over():
    quiet = reduced(3, 60_000, "10g", timing=SHORT).simulated.seconds
    faults = Faults(outages=(Outage(quiet / 3, 2 * quiet, hosts=(1,)),))
    report = reduced(3, 60_000, "10g", timing=SHORT, faults=faults)
    assert 2 * quiet < report.simulated.seconds < 4 * quiet
    assert report.simulated.lost > 0


def test_switches_that_lose_their_registers_do_not_change_a_sum():
    quiet = reduced(4, 90_000, "10g", timing=SHORT, program="slots").simulated.seconds
    faults = Faults(loss=1e-3, restarts=(quiet / 3, quiet / 2))
    collective = innet.Collective(
        workers=4, network="10g", values_per_packet=VALUES, timing=SHORT, faults=faults
    )
    gradients = [np.full(90_000, worker, np.float32) for worker in range(4)]
    total, report = collective.all_reduce(gradients)
    assert report.exact
    assert (total == 6).all()
    assert report.simulated.seconds > quiet


def test_workers_that_begin_late_are_waited_for():
    plan = make_plan("slots", VALUES, Request(workers=3))
    net = EmulatedNetwork(plan, network=QUIET)
    for rounds in (1, 2):
        for end in net.workers:
            end.start([Segment(ReduceOp.SUM, np.ones(VALUES, np.int32))], net.now)
        began = net.now
        net.starts = {0: began + 1e-4, 2: began + 5e-4}
        net.run()
        close(net.now - began, 5e-4 + 2 * ON_THE_WIRE + 2 * 1e-6 + 5e-7)
        assert {net.simulation.finished(host) for host in range(3)} == {net.now}
        assert net.simulation.counts().packets == 6 * rounds


class TestStarts:
    def collective(self):
        return innet.Collective(workers=3, network="10g")

    def test_goodput_is_without_the_wait_for_who_begins_last(self):
        collective = self.collective()
        gradients = [np.ones(9_000, np.float32)] * 3
        _, together = collective.all_reduce(gradients)
        collective.network.starts = {1: collective.network.now + 1e-3}
        assert list(collective.network.starts) == [1]
        _, later = collective.all_reduce(gradients)
        close(later.simulated.waited, 1e-3)
        assert together.simulated.waited == 0
        goodput = together.simulated.goodput_gbps
        assert later.simulated.goodput_gbps == pytest.approx(goodput, rel=0.02)
        assert later.simulated.limit.startswith("stragglers (9")
        assert not collective.network.starts

    @pytest.mark.parametrize(
        ("starts", "message"),
        [
            ({1: 1e-6}, "worker 1 is to begin at 1e-06 s, but .* give network.now [+] 1e-06"),
            ({3: 1.0}, "no worker 3 to begin later; the job has 0 to 2"),
            ({"1": 1.0}, "no worker '1' to begin later"),
            ({1: float("inf")}, "worker 1 is to begin at inf"),
        ],
    )
    def test_what_would_be_ignored_is_refused(self, starts, message):
        collective = self.collective()
        collective.all_reduce([np.ones(9_000, np.float32)] * 3)
        with pytest.raises(InputError, match=message):
            collective.network.starts = starts
        with pytest.raises(TypeError):
            collective.network.starts[1] = 1.0

    def test_without_simulated_time_there_are_none(self):
        with pytest.raises(InputError, match="give a network"):
            innet.Collective(workers=2).network.starts = {0: 1.0}


@pytest.mark.repeats("the same with hashed", but=["*-slots"])
@pytest.mark.parametrize(
    "program", tiered(["slots", "tree", "hashed"], ["slots", "hashed"], "slots")
)
@pytest.mark.parametrize(
    ("faults", "counted"),
    [
        (Faults(duplicate=0.05), "duplicated"),
        (Faults(reorder=0.05, hold=3e-5), "held"),
        (Faults(corrupt=0.02), "corrupted"),
        (Faults(truncate=0.02), "truncated"),
        (Faults(mark=0.02), "marked"),
        (Faults(jitter=2e-6, delay=3e-6), None),
        (
            Faults(
                loss=0.01, duplicate=0.02, reorder=0.02, corrupt=0.01, truncate=0.01, jitter=1e-6
            ),
            "lost",
        ),
    ],
    ids=lambda value: None if not isinstance(value, Faults) else "",
)
def test_faults_do_not_change_a_sum(program, faults, counted):
    collective = innet.Collective(
        workers=3,
        network="10g",
        program=program,
        values_per_packet=VALUES,
        # Only windows that adapt say that they can be marked.
        timing=replace(SHORT, window_control="aimd") if faults.mark else SHORT,
        faults=faults,
    )
    gradients = [np.arange(9_000, dtype=np.float32) * worker for worker in range(3)]
    for _ in range(2):
        total, report = collective.all_reduce(gradients)
        assert report.exact
        assert np.allclose(total, 3 * gradients[1], rtol=1e-4, atol=1e-2)
    counts = collective.network.simulation.fault_counts()
    under_way = collective.network.simulation.under_way()
    assert counts.entered + counts.duplicated == counts.arrived + counts.lost + under_way
    if counted is not None:
        assert getattr(counts, counted) > 0
    if program == "slots" and counted is None:
        assert report.simulated.seconds > 2 * 3e-6


def test_packets_are_recorded():
    collective = innet.Collective(workers=2, network="10g", values_per_packet=VALUES)
    gradients = [np.ones(100 * VALUES, np.float32)] * 2
    before = collective.network.simulation.counts()
    with (
        collective.record_packets() as frames,
        pytest.raises(StateError, match="being recorded already"),
        collective.record_packets(),
    ):
        pass
    with collective.record_packets() as frames:
        _, first = collective.all_reduce(gradients)
    assert len(frames) == collective.network.simulation.counts().packets - before.packets
    times = [when for when, _, _ in frames]
    assert times == sorted(times)
    assert 0 < times[-1] < first.simulated.seconds
    assert {port for _, port, _ in frames} == {1, 2}
    assert {len(data) for _, _, data in frames} == {collective.plan.layout.frame_size}
    packets = [Ether(data)[Innet] for _, _, data in frames]
    assert sum(packet.flags.result for packet in packets) == len(packets) / 2
    for (_, port, _), packet in zip(frames, packets, strict=True):
        assert packet.flags.result or packet.worker == port - 1
    with collective.record_packets(limit=7) as some:
        collective.all_reduce(gradients)
    assert len(some) == 7
    assert some[0][0] >= times[-1]
    with collective.record_packets() as none:
        pass
    assert not none


def test_captures_are_read_by_scapy_and_no_packet_is_missing_when_the_trace_is_full(
    tmp_path, monkeypatch
):
    gradients = [np.ones(200 * VALUES, np.float32)] * 2

    def captured(folder):
        net = innet.Collective(workers=2, network="10g", values_per_packet=VALUES)
        captures = LinkCaptures(net.network.simulation, folder)
        net.all_reduce(gradients)
        assert captures.packets == net.network.simulation.counts().packets
        return captures.files

    files = captured(tmp_path / "wide")
    monkeypatch.setattr(simulation, "_TRACED", 8)
    monkeypatch.setattr(simulation, "_TRACED_BYTES", 0)
    for path, again in zip(files, captured(tmp_path / "narrow"), strict=True):
        assert path.read_bytes() == again.read_bytes()
        packets, times = read_by_scapy(path)
        assert len(packets) >= 200
        assert (np.diff(times) >= 0).all()
        sequence = [Ether(data)[Innet].sequence for data in packets]
        assert set(range(1, 201)) <= set(sequence)


def test_the_command(tmp_path):
    command = ["allreduce", "--workers", "3", "--size", "500", "--values-per-packet", "32"]
    shown = CliRunner().invoke(app, [*command, "--network", "10g:loss=0.01", "--json"])
    assert shown.exit_code == 0, shown.output
    report = Report.model_validate_json(shown.output)
    assert report.exact
    assert report.simulated.goodput_gbps > 0
    assert report.transport == "simulated time"
    table = CliRunner().invoke(app, [*command, "--network", "10g"]).output
    assert "goodput, each worker" in table
    assert "Packets through the switch" not in table
    for option in (["--duplicate", "0.1"], ["--reorder", "0.1"]):
        again = CliRunner().invoke(app, [*command, "--network", "10g", *option, "--json"])
        assert Report.model_validate_json(again.output).exact, option
    refused = CliRunner().invoke(app, [*command, "--network", "10h"])
    assert "unknown network '10h'" in str(refused.exception)


@settings(max_examples=12, deadline=None)
@given(
    workers=st.integers(1, 7),
    racks=st.integers(0, 3),
    rate=st.sampled_from([1e9, 10e9, 33.3e9, 400e9]),
    trunk=st.sampled_from([None, 2.5e9, 100e9]),
    delay=st.floats(0, 1e-4).filter(lambda x: x == 0 or x > 1e-12),
    loss=st.sampled_from([0.0, 1e-3, 0.05]),
    queue=st.sampled_from([4, 64, 4096]),
    window=st.sampled_from([1, 8, 64]),
    size=st.integers(1, 4000),
)
def test_any_network_sums_exactly(workers, racks, rate, trunk, delay, loss, queue, window, size):
    network = Network(rate=rate, trunk_rate=trunk, delay=delay, loss=loss, queue_packets=queue)
    racks = min(racks, workers)
    options = {"program": "tree", "racks": racks} if racks else {}
    report = reduced(workers, size, network, window=window, **options)
    assert report.exact
    assert report.simulated.seconds >= 2 * BITS / rate
