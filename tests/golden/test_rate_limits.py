"""Streams through queues with a rate: innet's queues beside simple_switch's, packet by packet.

The recordings are made by record_rate_limits.py.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support import queue_scenarios
from support.rate_limits import (
    PROGRAM,
    SIMULATED,
    STREAMS,
    Answer,
    by_simulation,
    by_switch,
    compare,
    consistent,
    marked_packets,
    marking,
    recorded,
    recordings,
    summing,
)

from innet.switch.frontend.loader import fingerprint
from innet.wire import HeaderFlag
from innet.wire.layout import HEADER

LATE = 0.04
"""Of a stream's packets, those that another order of two events may change."""


FLAGS = 42 + HEADER.fields["flags"][1]


def check(real, ours):
    found = compare(real, ours)
    assert len(found.unexplained) <= 0.02 * found.packets
    assert len(found.explained) <= LATE * found.packets
    # Waiting times are equal but for threads that wake up late.
    both = real.answers.keys() & ours.keys()
    late = sorted(real.answers[each].waited - ours[each].waited for each in both)
    assert late[len(late) // 20] > -1000
    assert late[len(late) // 2] < 1000
    return found


@pytest.mark.parametrize("engine", ["interpret", "jit"])
@pytest.mark.parametrize("name", STREAMS)
def test_queues_answer_as_those_of_simple_switch(name, engine):
    real = recorded(name)
    check(real, by_switch(real.stream, real.arrivals, engine))


@pytest.mark.parametrize("name", SIMULATED)
def test_so_does_a_link_of_a_simulated_network(name, tmp_path):
    real = recorded(name)
    ours = by_simulation(real.stream, real.arrivals, tmp_path)
    check(real, ours)
    switch = by_switch(real.stream, real.arrivals)
    assert {each: ours[each].seen for each in ours} == {each: switch[each].seen for each in switch}


@pytest.mark.repeats("the same compiled", but=["interpret"])
@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_a_jobs_packets_are_marked_summed_and_dropped_as_by_simple_switch(engine):
    """Marks of one switch's queue reach all workers with the results of the next."""
    answers = {
        name: {
            int(port): [(time, bytes.fromhex(data)) for time, data in sent]
            for port, sent in found.items()
        }
        for name, found in recordings()["job"].items()
    }
    queue_scenarios.check(marking(), engine, answers["marking"])
    queue_scenarios.check(summing(marked_packets()), engine, answers["summing"])
    # One worker's queue was full, and from the third chunk on all are told of congestion.
    assert {port: len(sent) for port, sent in answers["summing"].items()} == {1: 6, 2: 7, 3: 7}
    for sent in answers["summing"].values():
        flags = [int(data[FLAGS]) for _, data in sent]
        assert [bool(each & HeaderFlag.ECN) for each in flags] == [False] * 2 + [True] * (
            len(sent) - 2
        )


def test_the_recordings_have_what_they_are_for():
    for name in STREAMS:
        real = recorded(name)
        marked = sum(each.seen.marked for each in real.answers.values())
        assert 0 < marked < len(real.answers) < len(real.arrivals) <= 500, name
    document = recordings()
    program = json.loads(PROGRAM.read_text(encoding="utf-8"))
    assert document["fingerprint"] == fingerprint(program), "run record_rate_limits.py"


@pytest.mark.parametrize("name", ["bursts", "priorities"])
def test_what_is_wrong_is_not_explained(name):
    """Another depth, a mark, or a drop does not follow from when packets came and left."""
    real = recorded(name)
    assert len(consistent(real)) >= 0.98 * len(real.arrivals)
    for number, answer in list(real.answers.items())[20:80:20]:
        deeper = answer.seen._replace(enq_qdepth=answer.seen.enq_qdepth + 2)
        other = answer.seen._replace(marked=not answer.seen.marked)
        for wrong in (Answer(deeper, *answer[1:]), Answer(other, *answer[1:])):
            assert number not in consistent(replace(real, answers={**real.answers, number: wrong}))
    ours = by_switch(replace(real.stream, depth=real.stream.depth - 1), real.arrivals)
    with pytest.raises(AssertionError):
        check(real, ours)
