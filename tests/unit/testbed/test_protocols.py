"""Protocols of others on a testbed: aggregation, a cache, consensus, load balancing, telemetry."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from innet.programs import compile_p4, find_p4c

EXAMPLES = Path(__file__).parents[3] / "p4/examples"
NAMES = ("aggregation", "balance", "cache", "consensus", "telemetry")


def load(name):
    """An example's hosts, as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_sums_are_right_whatever_is_lost():
    aggregation = load("aggregation")
    bed, tasks, expected = aggregation.run(workers=3, elements=2400, loss=0.02, seed=5)
    assert all((task.result()[0] == expected).all() for task in tasks)
    assert sum(task.result()[1] for task in tasks) > 10
    lost = sum(each.lost for link in bed.links for each in link.counts())
    assert lost > 10

    again, others, _ = aggregation.run(workers=3, elements=2400, loss=0.02, seed=5)
    assert again.now == bed.now
    assert [each.result()[1] for each in others] == [each.result()[1] for each in tasks]

    lossless, tasks, expected = aggregation.run(workers=2, elements=800, loss=0)
    assert all((task.result()[0] == expected).all() for task in tasks)
    assert sum(task.result()[1] for task in tasks) == 0
    # 100 frames of 84 bytes on the wire take 6.72 us of 10 Gbit/s; then one way there and back.
    assert 6.72e-6 < lossless.now < 12e-6


def test_a_cache_answers_hot_keys_and_never_with_what_was_overwritten():
    _bed, switch, histories = load("cache").run(clients=3, reads=300)
    puts, gets = defaultdict(list), []
    for history in histories:
        for kind, key, value, begin, end, cached in history:
            if kind == "put":
                puts[key].append((begin, end, value))
            else:
                gets.append((key, value, begin, end, cached))
    for key, value, begin, end, _ in gets:
        before = [put for put in puts[key] if put[1] < begin]
        newest = max((put[0] for put in before), default=-1.0)
        allowed = {put[2] for put in puts[key] if put[0] < end and put[1] >= newest}
        allowed |= set() if before else {0}
        assert value in allowed
    cached = [end - begin for *_, begin, end, hit in gets if hit]
    others = [end - begin for *_, begin, end, hit in gets if not hit]
    assert len(cached) > len(gets) / 4
    assert sum(cached) / len(cached) < sum(others) / len(others) - 1.5e-6
    entries = switch.model.table_entries("cache")
    assert 3 < len(entries) <= 64
    hits = sum(switch.model.counters["Cache.hits"].packets.tolist())
    assert hits == len(cached)


def test_learners_agree_while_the_leader_changes():
    _bed, decided, latencies, taken = load("consensus").run(requests=40)
    one, other = decided
    for instance, votes in one.items():
        values = {value for _, value, _ in votes}
        assert len(values) == 1, f"instance {instance} was decided twice"
        if instance in other:
            assert values == {value for _, value, _ in other[instance]}
    assert set(range(1, 41)) <= {votes[0][1] for votes in one.values()}
    rounds = {round_ for votes in one.values() for round_, *_ in votes}
    assert rounds == {1, 2}
    assert 400e-6 < taken < 500e-6
    # All but those that met the change took one way there and back: five links.
    assert sorted(latencies)[30] < 10e-6 < 200e-6 < max(latencies)


def test_flows_leave_a_way_that_fails():
    _bed, trunks, send, seen = load("balance").run(packets=200, flows=6)
    fails, last = 4e-3, send.node.now
    total = 200 * 6
    assert total * 0.9 < len(seen) <= total
    sent = [link.counts()[0].packets for link in trunks[0]]
    assert min(sent) > 0.1 * sum(sent) * 0.3
    lost = trunks[1][0].counts()[1].lost
    assert lost > 0
    late = [time for time, *_ in seen if time > fails + 2e-3]
    assert len(late) > total / 4
    assert last > fails + 4e-3
    # What was lost was on its way when the link failed, or until probes had become stale.
    gone = {(flow, number) for flow in range(6) for number in range(200)}
    gone -= {(flow, number) for _, flow, number in seen}
    per_flow = defaultdict(list)
    for flow, number in gone:
        per_flow[flow].append(number)
    for numbers in per_flow.values():
        assert max(numbers) - min(numbers) < 30


def test_packets_say_what_they_met():
    _bed, seen = load("telemetry").run(packets=60)
    ways = {0: [1, 2, 3], 2: [2, 3]}
    depths = defaultdict(int)
    for source, _, hops in seen:
        assert [number for number, *_ in hops] == ways[source]
        times = [left for *_, left in hops]
        assert times == sorted(times)
        for number, depth, *_ in hops:
            depths[number] = max(depths[number], depth)
    assert len(seen) == 120
    # What comes from one link leaves by another, but longer by a hop: all 60 by less than a frame.
    assert max(depths[1], depths[3]) <= 1
    assert depths[2] > 5
    waits = [waited for source, _, hops in seen for number, _, waited, _ in hops if number == 2]
    # A frame of 1,042 bytes, with one hop or two, takes 8.8 us of 1 Gbit/s; as many as waited were
    # sent before.
    assert max(waits) == pytest.approx(8.77 * depths[2], abs=9)


@pytest.mark.repeats("the tests of what they do")
@pytest.mark.parametrize("name", NAMES)
def test_examples_run_as_programs(name):
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= 2


@pytest.mark.repeats("what p4c made of them, which is committed")
@pytest.mark.parametrize("name", NAMES)
def test_the_programs_are_what_p4c_makes(name):
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c-bm2-ss is not installed")
    made = compile_p4(EXAMPLES / f"{name}.p4", p4c=find_p4c())
    assert made == json.loads((EXAMPLES / f"{name}.json").read_text())
