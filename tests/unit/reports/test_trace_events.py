"""Traces of simulations, held to what the Trace Event Format says."""

from __future__ import annotations

import functools
import itertools
import json
from collections import defaultdict

import pytest

import innet
from innet.reports.trace_events import trace_events, write_trace

CLOSE = 2e-6  # microseconds: a tick to each side


@functools.cache
def record():
    return innet.simulate(
        workers=3,
        model="resnet20",
        network="10g:loss=1e-3",
        iterations=2,
        straggler="lognormal:sigma=0.2",
        pauses=("1:2:0.001",),
        bucket_cap_mb=0.2,
        seed=3,
    )


@functools.cache
def trace():
    return trace_events(record())


def spans(name=None):
    return [
        each
        for each in trace()["traceEvents"]
        if each["ph"] == "X" and name in (None, each["name"])
    ]


def test_every_event_has_the_keys_of_its_phase():
    for each in trace()["traceEvents"]:
        assert isinstance(each["name"], str)
        assert {type(each["pid"]), type(each["tid"])} == {int}
        assert isinstance(each["args"], dict)
        if each["ph"] == "M":
            assert each["name"] in {"process_name", "thread_name", "process_sort_index"}
            assert "ts" not in each
            continue
        assert each["ts"] >= 0
        if each["ph"] == "X":
            assert each["dur"] > 0
            assert each["cat"]
        elif each["ph"] in "be":
            assert each["cat"]
            assert isinstance(each["id"], str)
        else:
            assert each["ph"] == "C"
            assert each["args"]
            assert all(isinstance(value, (int, float)) for value in each["args"].values())


def test_times_never_go_back():
    times = [each["ts"] for each in trace()["traceEvents"] if each["ph"] != "M"]
    assert times == sorted(times)
    assert max(each["ts"] + each["dur"] for each in spans()) == pytest.approx(
        record().seconds * 1e6
    )


def test_processes_and_threads_are_named_once_before_they_are_used():
    named = defaultdict(list)
    for each in trace()["traceEvents"]:
        if each["name"] == "thread_name":
            named[each["pid"], each["tid"]].append(each["args"]["name"])
        elif each["ph"] == "X":
            assert len(named[each["pid"], each["tid"]]) == 1
    assert {names[0] for (pid, _), names in named.items() if pid} == {"compute", "gradients"}
    assert [
        each["args"]["name"] for each in trace()["traceEvents"] if each["name"] == "process_name"
    ] == ["network", "worker 0", "worker 1", "worker 2"]


def test_spans_of_a_thread_do_not_overlap():
    threads = defaultdict(list)
    for each in spans():
        threads[each["pid"], each["tid"]].append((each["ts"], each["ts"] + each["dur"]))
    assert len(threads) == 2 * 3
    for found in threads.values():
        for (_, end), (begin, _) in itertools.pairwise(found):
            assert begin >= end - CLOSE


def test_all_reduces_begin_and_end_once():
    pending, ended = {}, []
    for each in trace()["traceEvents"]:
        key = each.get("cat"), each.get("id"), each["name"]
        if each["ph"] == "b":
            assert key not in pending
            pending[key] = each["ts"]
        elif each["ph"] == "e":
            ended.append(key)
            assert pending.pop(key) < each["ts"]
    assert not pending
    assert len(set(ended)) == len(ended) == 2 * len(record().iterations[0].buckets)


def test_spans_are_those_of_the_record():
    for number, worker in ((1, 0), (2, 1)):
        iteration = record().iterations[number - 1]
        for name, total in (
            ("encode", iteration.encode),
            ("network", iteration.network),
            ("decode", iteration.decode),
            ("pause", iteration.paused),
        ):
            found = [
                each["dur"]
                for each in spans(name)
                if each["pid"] == worker + 1 and each["args"]["iteration"] == number
            ]
            assert sum(found) == pytest.approx(total[worker] * 1e6)
        computed = [
            each["dur"]
            for name in ("forward", "backward")
            for each in spans(name)
            if each["pid"] == worker + 1 and each["args"]["iteration"] == number
        ]
        assert sum(computed) == pytest.approx(iteration.compute[worker] * 1e6)
    assert len(spans("pause")) == 1
    buckets = len(record().iterations[0].buckets)
    assert buckets > 1
    assert len(spans("network")) == 2 * 3 * buckets


def test_counters_end_at_the_totals_of_the_record():
    last = {}
    for each in trace()["traceEvents"]:
        if each["ph"] == "C":
            last[each["name"]] = each["args"]
    what = record().simulated
    assert what.lost > 0
    for name in ("packets", "lost", "dropped", "retransmissions"):
        assert last[name] == {name: getattr(what, name)}
    assert last["utilization"] == dict.fromkeys(what.utilization, 0)
    assert last["goodput_gbps"] == {"goodput_gbps": 0}


def test_the_file_is_json_and_the_same_in_two_runs(tmp_path):
    write_trace(record(), tmp_path / "one.json")
    assert json.loads((tmp_path / "one.json").read_text()) == trace()
    again = innet.simulate(workers=2, size=1000)
    write_trace(again, tmp_path / "two.json")
    write_trace(innet.simulate(workers=2, size=1000), tmp_path / "three.json")
    assert (tmp_path / "two.json").read_bytes() == (tmp_path / "three.json").read_bytes()
