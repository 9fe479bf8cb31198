"""Sums at the ends of int32, on every program: what leaves it is detected, nothing else is."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
from support.networks import network

from innet import Collective, programs
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.switch import Switch
from innet.topology import AGGREGATIONS, Request, aggregation_of, make_plan
from innet.wire import Endpoint, HeaderFlag, pack, parse_strict

# The fewest that each program is compiled for.
VALUES = {
    each.program: each.parameters["VALUES"]
    for each in sorted(programs.catalogue().values(), key=lambda each: -each.parameters["VALUES"])
    if not each.is_header_only
}
HIGH, LOW = 2**31 - 1, -(2**31)
SHAPES = [
    *((name, {}) for name in AGGREGATIONS.names() if not aggregation_of(name).saturates),
    ("tree", {"racks": 3, "depth": 3}),
    ("hashed", {"racks": 2}),
]
# What each of four workers adds to one element.
WORDS = [
    (HIGH, 0, 0, 0),
    (LOW, 0, 0, 0),
    (HIGH, 1, 0, 0),
    (0, -1, 0, LOW),
    (HIGH, HIGH, HIGH, HIGH),
    (LOW, LOW, LOW, LOW),
    (2**30, 2**30 - 1, 0, 0),
    (2**30, 2**30, 0, 0),
    (-(2**30), -(2**30), 0, 0),
    (-(2**30), -(2**30), 0, -1),
    (2**29, 2**29, 2**29, 2**29 - 1),
    (2**29, 2**29, 2**29, 2**29),
    (HIGH, LOW, HIGH, LOW),
    (HIGH, -HIGH, 1, -1),
]


def fits(words: tuple[int, ...]) -> bool:
    return LOW <= sum(words) <= HIGH


def always_fits(words: tuple[int, ...]) -> bool:
    """Whatever is added first."""
    parts = (part for size in range(1, 5) for part in itertools.combinations(words, size))
    return all(map(fits, parts))


@pytest.mark.parametrize(
    ("program", "shape", "collides"),
    [
        *((program, shape, False) for program, shape in SHAPES),
        *((program, shape, True) for program, shape in SHAPES if program == "hashed"),
    ],
    ids=str,
)
def test_what_leaves_int32_is_detected(program, shape, collides):
    """In switches and, where aggregators are another job's, in the server."""
    net = network(program, 4, values=VALUES[program], **shape)
    if collides:
        for switch in net.switches.values():
            switch.registers["aggregators.key"][:] = 99 << 48 | 1 << 32 | 5
    for place, words in enumerate(WORDS):
        for end, word in zip(net.workers, words, strict=True):
            vector = np.zeros(32, np.int32)
            vector[(place * 5) % 32] = word
            end.start([Segment(ReduceOp.SUM, vector)], net.now)
        net.run()
        said = {bool(end.result_flags & HeaderFlag.OVERFLOW) for end in net.workers}
        assert len(said) == 1  # all workers are told the same
        if not fits(words):
            assert said == {True}
        elif always_fits(words):
            assert said == {False}
        wrapped = (sum(words) - LOW) % 2**32 + LOW
        assert {int(end.results()[0][(place * 5) % 32]) for end in net.workers} == {wrapped}


@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_only_sums_can_leave_it(program, shape):
    net = network(program, 4, values=VALUES[program], **shape)
    for operation, expected in ((ReduceOp.MAX, HIGH), (ReduceOp.OR, -1)):
        for end, word in zip(net.workers, (HIGH, LOW, HIGH, LOW), strict=True):
            end.start([Segment(operation, np.full(40, word, np.int32))], net.now)
        net.run()
        for end in net.workers:
            assert not end.result_flags & HeaderFlag.OVERFLOW
            assert (end.results()[0] == expected).all()


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_it_is_rescaled_and_repeated(program, shape, loss):
    """Words that are as large as they can be: the round again with a step that fits, and exact."""
    network = Collective(
        workers=4,
        codec={"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}},
        program=program,
        values_per_packet=VALUES[program],
        window=8,
        faults=Faults(loss=loss, tick=1e-3) if loss else None,
        timing=Timing(timeout=5e-3, max_timeout=0.05),
        **shape,
    )
    rng = np.random.default_rng(1)
    for sign in (1, -1):
        given = [sign * np.abs(rng.standard_normal(100)).astype(np.float32) for _ in range(4)]
        for each in given:
            each[7] = sign * np.float32(3e38) / 4
        total, report = network.all_reduce(given)
        assert report.exact
        assert report.details["overflows"] >= 1
        oracle = np.sum(given, axis=0, dtype=np.float64)
        np.testing.assert_allclose(total, oracle, rtol=1e-7, atol=3e38 * 2.0**-28)


# Whose words are the two that do not fit together; switches whose aggregators are another chunk's;
# the switches that see it: where the two meet, and what is above. s1 is above the racks s2 and s3.
MEETING = [
    ((0, 1), (), {"s2", "s1"}),
    ((2, 3), (), {"s3", "s1"}),
    ((0, 2), (), {"s1"}),
    ((0, 2), ("s1",), set()),  # at the server, in sums of racks
    ((0, 2), ("s1", "s2", "s3"), set()),  # in single contributions
]


def take(net, switches):
    for name in switches:
        net.switches[name].registers["aggregators.key"][:] = 99 << 48 | 1 << 32 | 5


def seen_by(net):
    """The switches that have seen a sum leave int32, or were told so by one below."""
    return {
        name
        for name, switch in net.switches.items()
        if (switch.registers["HashedIngress.marks.marks"] & int(HeaderFlag.OVERFLOW)).any()
    }


@pytest.mark.parametrize(("two", "taken", "switches"), MEETING)
@pytest.mark.parametrize(("word", "one"), [(HIGH, 1), (LOW, -1)])
def test_hashed_tells_of_it_wherever_it_happens(word, one, two, taken, switches):
    """The last word of int32 and one more: in a rack's entry, a level higher, at the server."""
    net = network("hashed", 4, racks=2)
    take(net, taken)
    for worker, end in enumerate(net.workers):
        vector = np.zeros(32, np.int32)
        vector[5] = {two[0]: word, two[1]: one}.get(worker, 0)
        end.start([Segment(ReduceOp.SUM, vector)], net.now)
    net.run()
    assert all(end.result_flags & HeaderFlag.OVERFLOW for end in net.workers)
    assert seen_by(net) == switches
    for end in net.workers:  # a sum modulo 2**32 for whoever means that
        assert end.results()[0][5] == (LOW if word == HIGH else HIGH)


@pytest.mark.parametrize(("two", "taken", "switches"), MEETING)
def test_hashed_is_exact_when_that_is_rescaled(two, taken, switches):
    collective = Collective(
        workers=4,
        codec={"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}},
        program="hashed",
        values_per_packet=32,
        window=8,
        racks=2,
    )
    take(collective.network, taken)
    given = [np.zeros(40, np.float32) for _ in range(4)]
    for worker in range(4):
        given[worker][:5] = 2.0 ** -np.arange(4, 9) * (worker + 1)
    for worker in two:  # each is as large as a word can be
        given[worker][7] = 1.0
    total, report = collective.all_reduce(given)
    assert report.exact
    assert report.details["overflows"] == 1
    assert seen_by(collective.network) == switches
    np.testing.assert_allclose(total, np.sum(given, axis=0), rtol=0, atol=4 * 2.0**-29)
    assert total[7] == 2.0


@pytest.mark.repeats("saturation in tests/golden and test_server.py, with a build of its own")
@pytest.mark.skipif(
    not (shutil.which("p4c-bm2-ss") or shutil.which("p4c")), reason="p4c is not installed"
)
def test_compiled_so_it_saturates():
    """As ATP's sums do; and it is detected all the same."""
    document = programs.compile_p4(
        programs.p4_directory() / "hashed.p4", {"VALUES": 32, "SATURATING": 1}
    )
    plan = make_plan("hashed", 32, Request(workers=2, window=16))
    pairs = [(HIGH, 1), (LOW, -1), (HIGH, HIGH), (LOW, LOW), (HIGH, LOW), (2**30, 2**30 - 1)]
    for engine in ("jit", "interpret"):
        switch = Switch.load(document, engine=engine)
        for command in plan.switches[0].commands:
            switch.command(command)
        for chunk, pair in enumerate(pairs):
            frames = pack(
                plan.layout,
                Endpoint.of_worker(0),
                Endpoint.of_switch(),
                np.repeat(np.int32([pair]).T, 32, axis=1),
                operation=ReduceOp.SUM,
                job=1,
                epoch=0,
                sequence=chunk + 1,
                slot=chunk,
                slot_version=0,
                worker=np.arange(2, dtype=np.uint16),
            )
            packets = [(port, frame.tobytes()) for port, frame in enumerate(frames, start=1)]
            ((port, data),) = switch.process(packets)
            batch = parse_strict(plan.layout, data)
            assert port == 100
            assert (batch.values[0] == np.clip(sum(pair), LOW, HIGH)).all()
            assert bool(batch.header["flags"][0] & HeaderFlag.OVERFLOW) == (not fits(pair))
