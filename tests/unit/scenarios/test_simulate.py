"""``innet.simulate``: all-reduces and training iterations in simulated time."""

from __future__ import annotations

import json

import pytest

import innet
from innet.core.errors import ConfigError, InputError, StalledError, UnknownNameError
from innet.core.settings import AllReduceSettings
from innet.records import Record, SimulationRecord
from innet.scenarios import simulate
from innet.scenarios.allreduce import gradients
from innet.sim import Network


def same(one, other):
    """Whether all that is simulated is equal."""
    return (one.simulated, one.iterations, one.seconds) == (
        other.simulated,
        other.iterations,
        other.seconds,
    )


def test_one_all_reduce_takes_what_a_collective_says():
    record = innet.simulate(workers=3, size=5000, seed=4, codec="lhc", density=0.1)
    given = gradients(AllReduceSettings(workers=3, size=5000, seed=4, density=0.1))
    _, report = innet.all_reduce(given, codec="lhc", seed=4, network="100g")
    assert record.simulated == report.simulated
    assert record.exact
    assert record.elements == 5000
    assert record.report.bytes_sent == report.bytes_sent


def test_iterations_without_a_model_follow_each_other():
    record = innet.simulate(
        workers=2, size=1000, iterations=3, encode_time=0.0, decode_time=0.0, network="10g"
    )
    one = record.iterations[0].buckets[0].simulated.seconds
    assert [each.end[0] for each in record.iterations] == pytest.approx([one, 2 * one, 3 * one])
    assert record.seconds == pytest.approx(record.simulated.seconds)
    assert record.simulated.packets == 3 * record.iterations[0].buckets[0].simulated.packets
    assert record.all_reduces == 1  # the others are equal to it


def test_slow_links_do_not_make_workers_send_what_waits_for_its_turn():
    record = innet.simulate(workers=2, size=100_000, network="1g:rate=1e8")
    assert record.simulated.retransmissions == 0


def test_two_runs_of_a_seed_are_equal_and_those_of_another_are_not():
    settings = {
        "workers": 3,
        "size": 3000,
        "network": "10g:loss=0.01",
        "straggler": "exponential:mean=0.5",
        "compute": 1e-3,
        "iterations": 2,
    }
    first = innet.simulate(seed=1, **settings)
    assert same(first, innet.simulate(seed=1, **settings))
    assert not same(first, innet.simulate(seed=2, **settings))
    assert first.simulated.lost > 0
    assert first.all_reduces == 2  # with loss, none is taken for another
    assert first.exact


@pytest.mark.parametrize("codec", ["dense", "topk:ratio=0.1", "qsgd"])
def test_equal_all_reduces_take_as_long_as_those_that_are_simulated(codec, monkeypatch):
    settings = {"workers": 2, "size": 2000, "iterations": 3, "codec": codec}
    short = innet.simulate(**settings)
    assert (short.all_reduces == 1) == (codec == "dense")  # the others have a state
    monkeypatch.setattr(simulate, "_equal", lambda *_: False)
    long = innet.simulate(**settings)
    assert long.all_reduces == 3
    assert same(short, long)


def test_the_record_is_read_back_as_it_was_written(tmp_path):
    record = innet.simulate(workers=2, size=100, straggler="fixed:worker=1,factor=3", compute=1.0)
    path = tmp_path / "record.json"
    record.save(path)
    assert Record.load(path) == record
    assert isinstance(Record.load(path), SimulationRecord)
    assert json.loads(path.read_text())["format"] == "innet.simulation"
    (iteration,) = record.iterations
    assert iteration.compute == (1.0, 3.0)
    assert iteration.exposed[1] < iteration.exposed[0]


def test_a_network_may_be_given_in_any_form():
    by_name, by_value, by_mapping = (
        innet.simulate(workers=2, size=100, network=network)
        for network in ("25g", Network(rate=25e9), {"rate": 25e9})
    )
    assert same(by_name, by_value)
    assert same(by_name, by_mapping)
    assert by_value.network["rate"] == by_value.settings["network"]["rate"] == 25e9


MODEL = """
title = "three layers"
source = "here"
parameters = 60_000
[compute]
seconds = {seconds}
source = "here"
[[blocks]]
name = "fc{{}}"
numbers = [0, 1, 2]
parameters = [{{ name = "weight", shape = [100, 200], positions = 1 }}]
"""


def trained(tmp_path, seconds, **settings):
    """Three iterations of a model with three buckets of 20,000 elements."""
    path = tmp_path / "model.toml"
    path.write_text(MODEL.format(seconds=seconds))
    return innet.simulate(model=str(path), workers=2, iterations=3, bucket_cap_mb=0.01, **settings)


def test_where_computing_takes_longest_an_iteration_is_that_and_the_last_bucket(tmp_path):
    record = trained(tmp_path, 1.0, encode_time=1e-9, decode_time=2e-9)
    for each in record.iterations:
        assert [bucket.elements for bucket in each.buckets] == [20_000] * 3
        assert [bucket.layers[0] for bucket in each.buckets] == ["fc2", "fc1", "fc0"]
        last = each.buckets[-1].simulated.seconds + 20_000 * 3e-9
        assert each.seconds == pytest.approx(1 + last, rel=1e-12)
        assert each.exposed == pytest.approx((last, last), rel=1e-6)
    assert record.iteration_seconds == pytest.approx(1 + last)


def test_where_the_network_takes_longest_an_iteration_is_the_sum_of_the_buckets(tmp_path):
    record = trained(tmp_path, 3e-9, encode_time=0.0, decode_time=0.0, network="1g")
    first = record.iterations[0]
    buckets = sum(bucket.simulated.seconds for bucket in first.buckets)
    # 1 ns forward, and 2/3 ns until the first bucket is ready
    assert first.seconds == pytest.approx(1e-9 + 2e-9 / 3 + buckets, rel=1e-12)
    assert record.simulated.seconds == pytest.approx(3 * buckets)
    assert record.elements == 60_000


def test_time_that_is_given_replaces_the_models(tmp_path):
    record = trained(tmp_path, 1.0, compute=0.25)
    assert record.iterations[0].compute == (0.25, 0.25)
    assert record.compute_source == "given with the settings"


def test_sensitivity_is_what_other_constants_take(tmp_path):
    record = trained(tmp_path, 1e-4, sensitivity=True, encode_time=1e-9, network="10g:host_send=0")
    found = {each.setting: each for each in record.sensitivity}
    assert list(found) == [  # and neither what was given nor what is none
        "decode_time",
        "network.switch_latency",
        "network.queue_packets",
        "network.host_receive",
        "network.host_cores",
    ]
    for setting, network in (("decode_time", "10g:host_send=0"), ("network.switch_latency", None)):
        each, name = found[setting], setting.removeprefix("network.")
        for factor, seconds in ((0.5, each.halved), (2, each.doubled)):
            value = factor * each.value
            given = {name: value} if network else {}
            where = network or f"10g:host_send=0,{name}={value}"
            other = trained(tmp_path, 1e-4, encode_time=1e-9, network=where, **given)
            assert other.iteration_seconds == seconds
    assert found["decode_time"].halved < record.iteration_seconds < found["decode_time"].doubled


def sensitivity_of(**settings):
    record = innet.simulate(workers=2, size=500, sensitivity=True, **settings)
    return {each.setting.removeprefix("network."): each for each in record.sensitivity}


def test_what_presets_of_hosts_assume_is_varied_too_and_what_is_given_is_not():
    found = sensitivity_of(network="10g:host=kernel-udp")
    assert found["host_byte"].halved < found["host_byte"].doubled
    assert found["host_cores"].halved > found["host_cores"].doubled
    assert "recirculation_latency" not in found  # no packet passes this switch again
    of_a_card = sensitivity_of(network="10g:host=rdma")
    assert {"host_receive", "host_send"} < set(of_a_card)
    assert not {"host_byte", "host_cores"} & set(of_a_card)  # no byte costs, and there is one core
    assert "host_send" not in sensitivity_of(network="10g:host=rdma,host_send=1e-6")


def test_passes_of_a_program_that_recirculates_are_varied():
    found = sensitivity_of(network="10g", program="harvest")
    assert found["recirculation_latency"].halved < found["recirculation_latency"].doubled


DEATH = {"outages": [{"begin": 3e-5, "workers": [2]}]}


def test_a_worker_that_dies_stalls_the_others_by_name():
    with pytest.raises(StalledError, match="It waits for worker 2"):
        innet.simulate(workers=3, size=20_000, network="10g", faults=DEATH)


def test_others_go_on_without_a_worker_that_dies():
    settings = {"straggler": "fixed:worker=2,factor=9", "compute": 1e-4, "iterations": 3}
    record = innet.simulate(
        workers=3, size=20_000, network="10g", partial_after=2e-3, faults=DEATH, **settings
    )
    assert [each.buckets[0].without for each in record.iterations] == [(2,), (), ()]
    assert record.exact
    first, second, third = record.iterations
    assert first.end[0] > 2e-3  # that is how long the others wait for it
    assert second.end == third.begin
    assert third.compute == pytest.approx([1e-4] * 3)  # who is gone no longer holds others up
    assert third.seconds == pytest.approx(second.seconds)
    assert third.seconds < first.end[0] / 2
    assert record.seconds == max(third.end[:2])
    again = innet.simulate(
        workers=3, size=20_000, network="10g", partial_after=2e-3, faults=DEATH, **settings
    )
    assert same(record, again)


def test_a_worker_that_is_back_in_time_holds_up_the_sum():
    faults = {"outages": [{"begin": 5e-5, "end": 3e-3, "workers": [1]}]}
    settings = {"workers": 2, "size": 20_000, "network": "10g"}
    record = innet.simulate(faults=faults, **settings)
    assert record.exact
    assert record.seconds > 3e-3 > innet.simulate(**settings).seconds
    assert record.simulated.lost > 0


def test_faults_of_packets_and_restarts_leave_sums_exact():
    faults = {"duplicate": 0.1, "reorder": 0.1, "hold": 1e-5, "corrupt": 0.01, "loss": 0.01}
    settings = {"workers": 2, "size": 5_000, "network": "10g", "iterations": 2}
    record = innet.simulate(faults=faults, **settings)
    assert record.exact
    assert record.all_reduces == 2  # none is taken for another
    assert record.simulated.retransmissions > 0
    assert not same(record, innet.simulate(**settings))


def test_windows_may_adapt_with_the_time_outs_of_simulated_time():
    settings = {"workers": 2, "size": 5_000, "network": "10g:loss=0.01"}
    fixed = innet.simulate(**settings)
    adaptive = innet.simulate(window_control="aimd", **settings)
    assert adaptive.exact
    # The time-out is a millisecond in both.
    assert 1e-3 < adaptive.seconds < 5 * fixed.seconds


def test_workers_begin_a_bucket_when_they_are_ready(tmp_path):
    record = trained(tmp_path, 1e-3, straggler="fixed:worker=1,factor=3", network="10g")
    assert record.all_reduces == 9  # all are simulated
    assert record.exact
    for iteration in record.iterations:
        for bucket in iteration.buckets:
            late = max(bucket.encoded) - min(bucket.encoded)
            assert late == pytest.approx(bucket.encoded[1] - bucket.encoded[0])
            took = bucket.simulated.seconds
            assert max(bucket.summed) - min(bucket.encoded) == pytest.approx(took)
        assert iteration.waited[1] == 0 < iteration.waited[0]
    # Who waits for longer than the time-out sends again, and what comes of it is another sum's.
    assert record.simulated.retransmissions > 0
    slowest = trained(tmp_path, 3e-3, network="10g")
    assert record.seconds == pytest.approx(slowest.seconds, rel=0.02)


def test_thin_packets_take_as_long_as_those_that_they_stand_for(tmp_path):
    settings = {"straggler": "fixed:worker=1,factor=1.2", "network": "10g", "codec": "lhc"}
    full = trained(tmp_path, 1e-3, density=0.05, **settings)
    thin = trained(tmp_path, 1e-3, density=0.05, thin=True, **settings)
    assert [each.end for each in thin.iterations] == [each.end for each in full.iterations]
    assert thin.simulated == full.simulated
    assert thin.report.details["sizes"] == "codec"
    assert thin.iterations[0].buckets[0].exact is None


def test_sizes_of_large_thin_buckets_are_modelled(monkeypatch):
    settings = {"workers": 4, "size": 300_000, "thin": True, "iterations": 2}
    by_codec = innet.simulate(**settings)
    monkeypatch.setattr(simulate, "_CODEC_ELEMENTS", 1 << 16)
    modelled = innet.simulate(**settings)
    assert modelled.report.details["sizes"] == "modelled"
    assert same(by_codec, modelled)  # a dense codec's sizes are in proportion to the elements
    assert modelled.all_reduces == 1


def test_codecs_with_a_residual_have_one_for_each_bucket(tmp_path):
    record = trained(tmp_path, 1e-3, codec="topk:ratio=0.01")
    assert record.all_reduces == 9
    assert record.exact


def test_a_rule_for_the_first_layer_is_for_the_bucket_that_has_it(tmp_path):
    path = tmp_path / "model.toml"
    four = MODEL.replace("60_000", "80_000").replace("0, 1, 2", "0, 1, 2, 3")
    path.write_text(four.format(seconds=1.0))
    record = innet.simulate(model=str(path), workers=2, bucket_cap_mb=0.1, codec="scalecom")
    other, first = record.iterations[0].buckets
    assert (other.layers, first.layers) == (("fc3", "fc2"), ("fc1", "fc0"))
    assert first.bytes_sent > 20_000 * 4  # all of fc0
    assert other.bytes_sent < 20_000


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"size": 0}, InputError, "at least 1 element"),
        ({"size": 9, "model": "resnet20"}, InputError, "leave size or model out"),
        ({"model": "resnet21"}, UnknownNameError, "resnet20"),
        ({"worker": 3}, ConfigError, "Did you mean 'workers'"),
        ({"network": "100gig"}, UnknownNameError, "100g"),
        ({"network": "100g:rate=0"}, InputError, "rate is 0; give bits per second"),
        ({"iterations": 0}, ConfigError, "iterations = 0 cannot be used"),
        ({"compute": -1.0}, ConfigError, "compute = -1.0 cannot be used"),
        ({"straggler": "slow"}, UnknownNameError, "exponential"),
        ({"straggler": "exponential:scale=1"}, ConfigError, "unknown key 'scale'"),
        ({"straggler": "fixed:worker=4"}, InputError, "there is no worker 4"),
        ({"straggler": "fixed:factor=0"}, ConfigError, "above 0"),
        ({"pauses": ("1:1",)}, ConfigError, "WORKER:ITERATION:SECONDS"),
        ({"pauses": ("4:1:1",)}, InputError, "there is no worker 4"),
        ({"faults": {"loss": 2.0}}, ConfigError, "faults.loss = 2.0 cannot be used"),
        ({"faults": {"outages": [{"workers": [4]}]}}, InputError, "there is no worker 4"),
        ({"partial_after": 1e-3, "thin": True}, InputError, "leave partial_after or thin out"),
        (
            {
                "partial_after": 1e-3,
                "background": {"flow": [{"source": 0, "destination": 1, "rate": 1e9}]},
            },
            InputError,
            "leave partial_after or background out",
        ),
        ({"faults": {"mark": 0.1}, "baselines": ("ring",)}, InputError, "meet no faults"),
    ],
)
def test_what_cannot_be_used_is_named(settings, error, said):
    with pytest.raises(error, match=said):
        innet.simulate(**settings)


def test_thin_packets_stand_for_packets_of_any_size():
    record = innet.simulate(workers=2, size=22_290, elements_per_packet=2229, thin=True)
    assert record.report.values_per_packet == 2229
    assert record.report.packets_sent == 2 * (10 + 1)  # and a handshake
    with pytest.raises(InputError, match="elements_per_packet = 2229 is for thin packets"):
        innet.simulate(workers=2, elements_per_packet=2229)
