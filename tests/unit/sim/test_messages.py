"""Message graphs of the baselines: sums on arrays, bytes, and times over ideal links."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.messages import ideal_seconds, run_on_arrays
from support.tiers import examples

from innet.core.errors import InputError, UnknownNameError
from innet.sim import messages
from innet.sim.baselines import simulate_messages
from innet.sim.messages import (
    ELEMENTS,
    SentElements,
    all_gather,
    gtopk_tree,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    nccl_tree_all_reduce,
    parameter_server,
    ring_all_reduce,
    together,
)
from innet.sim.network import SECOND

RATE, LATENCY = 100e9, 2e-6


def gradients(hosts, elements):
    rng = np.random.default_rng(hosts * 1000 + elements)
    return rng.integers(-1000, 1000, (hosts, elements))


def sums(graph, hosts, elements, *, servers=0, seed=0):
    """Every worker has the sum; a server that is no worker begins with zeros."""
    arrays = gradients(hosts, elements)
    total = arrays.sum(axis=0)
    everywhere = np.vstack([arrays, np.zeros((servers, elements), arrays.dtype)])
    assert run_on_arrays(graph, everywhere, seed) == len(graph)
    np.testing.assert_array_equal(everywhere[:hosts], np.tile(total, (hosts, 1)))


def in_topological_order(graph):
    earlier = np.repeat(np.arange(len(graph)), np.diff(graph.first))
    assert (graph.dependents > earlier).all()
    np.testing.assert_array_equal(
        np.bincount(graph.dependents, minlength=len(graph)), graph.dependencies
    )
    # Who waits knows of it: it received that message, or sent it.
    ends = graph.source[graph.dependents]
    assert ((ends == graph.destination[earlier]) | (ends == graph.source[earlier])).all()


SMALL_CHUNKS = partial(nccl_tree_all_reduce, chunk=16)
ALL_REDUCES = [
    ring_all_reduce, halving_doubling_all_reduce, gtopk_tree, nccl_tree_all_reduce, SMALL_CHUNKS
]  # fmt: skip


@pytest.mark.parametrize("build", ALL_REDUCES)
@pytest.mark.parametrize("hosts", [*range(1, 10), 12, 16, 31])
def test_all_reduces_sum_in_any_order_of_events(build, hosts):
    for elements in (0, 1, hosts - 1, 40, 101):
        graph = build(hosts, elements)
        in_topological_order(graph)
        sums(graph, hosts, elements, seed=elements)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(ALL_REDUCES), st.integers(1, 20), st.integers(0, 70), st.integers(0, 1 << 30)
)
def test_all_reduces_sum_whatever_their_size(build, hosts, elements, seed):
    sums(build(hosts, elements), hosts, elements, seed=seed)


@pytest.mark.parametrize(("hosts", "servers"), [(1, 1), (4, 1), (5, 2), (6, 6)])
def test_a_parameter_server_sums(hosts, servers):
    elements = 53
    extra = parameter_server(hosts, range(hosts, hosts + servers), elements)
    in_topological_order(extra)
    sums(extra, hosts, elements, servers=servers)
    assert extra.bytes.sum() == 2 * hosts * elements * 4
    workers = parameter_server(hosts, range(servers), elements)
    in_topological_order(workers)
    sums(workers, hosts, elements)
    assert workers.bytes.sum() == 2 * (hosts - 1) * elements * 4


def test_an_all_gather_gives_everyone_all_that_the_others_have():
    sizes = np.array([5, 0, 17, 3, 8])
    graph = all_gather(5, sizes)
    in_topological_order(graph)
    whole, ends = np.arange(1, sizes.sum() + 1), np.cumsum(sizes)
    arrays = np.zeros((5, len(whole)), int)
    for host, end in enumerate(ends):
        arrays[host, end - sizes[host] : end] = whole[end - sizes[host] : end]
    run_on_arrays(graph, arrays)
    np.testing.assert_array_equal(arrays, np.tile(whole, (5, 1)))
    assert graph.bytes.sum() == 4 * 4 * sizes.sum()


@pytest.mark.parametrize("name", messages.ALL_GATHERS)
@pytest.mark.parametrize("hosts", [*range(1, 10), 12, 16, 31])
def test_parts_go_to_all_and_come_together(name, hosts):
    """An all-gather gives all each owner's part, and the same backwards sums it for the owner."""
    rng = np.random.default_rng(hosts)
    for elements in (0, 1, hosts, 101):
        gather = messages.ALL_GATHERS[name](hosts, elements)
        scatter = messages.REDUCE_SCATTERS[name](hosts, elements)
        offset, length = messages.chunks(elements, hosts)
        own = [slice(begin, begin + size) for begin, size in zip(offset, length, strict=True)]
        arrays = [rng.integers(-9, 9, elements).astype(np.int64) for _ in range(hosts)]
        total, whole = np.sum(arrays, axis=0), np.zeros(elements, np.int64)
        for host, part in enumerate(own):
            whole[part] = arrays[host][part]
        for graph, given_ in ((gather, arrays), (scatter, [each.copy() for each in arrays])):
            in_topological_order(graph)
            got = [each.copy() for each in given_]
            assert run_on_arrays(graph, got, seed=elements) == len(graph)
            for host, part in enumerate(own):
                if graph is gather:
                    np.testing.assert_array_equal(got[host], whole)
                else:
                    np.testing.assert_array_equal(got[host][part], total[part])
            # Each host sends and gets n - 1 parts.
            assert graph.elements.sum() == (hosts - 1) * elements


def test_times_of_all_gathers_over_ideal_links():
    """All have the bytes of n - 1 parts; a ring n - 1 latencies, pat two for each of log2(n)."""
    elements, hosts = 32_000, 32
    rest = 8 * 4 * elements / hosts * (hosts - 1) / RATE
    times = {
        name: ideal_seconds(build(hosts, elements), RATE, LATENCY)
        for name, build in messages.ALL_GATHERS.items()
    }
    assert times["ring"] == pytest.approx(rest + (hosts - 1) * LATENCY)
    assert times["direct"] == pytest.approx(rest + LATENCY)
    assert times["pat"] == pytest.approx(rest + (2 * 5 - 1) * LATENCY)
    for name, build in messages.REDUCE_SCATTERS.items():
        scatter = build(hosts, elements)
        assert ideal_seconds(scatter, RATE, LATENCY) == pytest.approx(times[name], rel=0.02)


@pytest.mark.parametrize("shape", [(1, 4), (3, 1), (2, 2), (3, 4), (4, 3)])
def test_a_hierarchy_sums_and_crosses_groups_once_around(shape):
    several, members = shape
    groups = np.arange(several * members).reshape(shape).tolist()
    graph = hierarchical_all_reduce(groups, 120)
    in_topological_order(graph)
    sums(graph, several * members, 120)
    sums(hierarchical_all_reduce(groups, 37), several * members, 37)
    across = graph.source // members != graph.destination // members
    assert graph.bytes[across].sum() == 2 * (several - 1) * 120 * 4


def test_a_ring_sends_what_the_closed_form_says_from_each_host():
    graph = ring_all_reduce(8, 8000, dtype="float16")
    sent = np.bincount(graph.source, weights=graph.bytes)
    np.testing.assert_array_equal(sent, 2 * 7 / 8 * 8000 * 2)
    assert len(graph) == 2 * 7 * 8


def test_chunks_have_an_element_more_at_the_front():
    offset, length = messages.chunks(11, 4)
    assert (offset.tolist(), length.tolist()) == ([0, 3, 6, 9], [3, 3, 3, 2])


def test_hosts_have_the_numbers_and_the_order_that_are_given():
    graph = ring_all_reduce([7, 2, 5], 3)
    pairs = set(zip(graph.source.tolist(), graph.destination.tolist(), strict=True))
    assert pairs == {(7, 2), (2, 5), (5, 7)}
    number, count = graph.connections()
    assert count == 3
    assert len(set(number[graph.source == 7])) == 1


COST = 100.0  # picoseconds per byte


@pytest.mark.parametrize("hosts", [2, 4, 8, 32])
@pytest.mark.parametrize("cost", [0.0, COST])
def test_times_over_ideal_links_are_the_closed_forms(hosts, cost):
    elements = 32 * 1000
    size = elements * 4
    given = {"reduce_cost": cost}
    for graph, expected in [
        (
            ring_all_reduce(hosts, elements, **given),
            messages.ring_seconds(hosts, size, RATE, LATENCY, cost),
        ),
        (
            halving_doubling_all_reduce(hosts, elements, **given),
            messages.halving_doubling_seconds(hosts, size, RATE, LATENCY, cost),
        ),
        (
            gtopk_tree(hosts, elements, **given),
            messages.gtopk_seconds(hosts, size, RATE, LATENCY, cost),
        ),
        (
            parameter_server(hosts, [hosts], elements, **given),
            messages.parameter_server_seconds(hosts, size, RATE, LATENCY, reduce_cost=cost),
        ),
        (
            all_gather(hosts, np.full(hosts, elements)),
            messages.all_gather_seconds(np.full(hosts, size), RATE, LATENCY),
        ),
    ]:
        assert ideal_seconds(graph, RATE, LATENCY) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("dtype", "of_a_thousand"),
    [
        ("bfloat16", 2000),
        ("fp8-e4m3", 1000 + 1),
        ("mxfp8-e5m2", 1000 + 32),
        ("mxfp6-e2m3", 750 + 32),
        ("mxfp4", 500 + 32),
        ("int8", 1000 + 4),
        (replace(ELEMENTS["float32"], lossless=1.28), 3125),
        (replace(ELEMENTS["bfloat16"], lossless=1.5), 1334),
    ],
    ids=str,
)
def test_rings_of_number_formats_take_the_closed_form(dtype, of_a_thousand):
    """Codes and scales of each chunk, and a hop's decoding and encoding beside the summing."""
    kind = replace(SentElements.of(dtype), hop_cost=150.0)
    graph = ring_all_reduce(8, 8000, dtype=kind, reduce_cost=COST)
    assert (graph.bytes == of_a_thousand).all()
    in_topological_order(graph)
    assert set(graph.delay.tolist()) == {0, round(of_a_thousand * COST + 1000 * 150)}
    size, hop = 8 * of_a_thousand, 1000 * 150 / SECOND
    expected = messages.ring_seconds(8, size, RATE, LATENCY, COST, hop=hop)
    assert ideal_seconds(graph, RATE, LATENCY) == pytest.approx(expected, rel=1e-12)


def test_a_message_of_no_elements_has_no_bytes():
    for kind in ELEMENTS.values():
        assert kind.bytes(0) == 0
        assert kind.bytes(1) == -(-kind.bits // 8) + kind.scale_bytes


@pytest.mark.parametrize("hosts", [2, 3, 4, 7, 8, 31, 32])
def test_a_double_tree_sends_each_half_up_and_down_at_full_rate(hosts):
    """Twice the gradient from a host at most, and a chunk's way through the trees beside it."""
    elements, chunk = 32 * 1000, 4000
    size = 4 * elements
    graph = nccl_tree_all_reduce(hosts, elements, chunk=chunk)
    sent = np.bincount(graph.source, weights=graph.bytes)
    received = np.bincount(graph.destination, weights=graph.bytes)
    # Both trees' edges carry their half once each way.
    assert sent.sum() == 2 * (hosts - 1) * size
    assert max(sent.max(), received.max()) <= 2 * size
    least = 8 * max(sent.max(), received.max()) / RATE
    depth = 2 * hosts.bit_length()
    found = ideal_seconds(graph, RATE, 0)
    assert least * (1 - 1e-9) <= found <= least + depth * 3 * 8 * chunk / RATE
    if hosts == 2:
        assert found == pytest.approx(8 * size / RATE)
    # Where nothing else waits for the link, a chunk waits for the acknowledgement of the last one.
    pieces = size // 2 // chunk
    assert ideal_seconds(graph, RATE, LATENCY) <= found + (2 * pieces + depth) * LATENCY
    # A chunk for each half, and summing takes its time at each level.
    whole = nccl_tree_all_reduce(hosts, elements, chunk=size)
    slow = nccl_tree_all_reduce(hosts, elements, chunk=size, reduce_cost=COST)
    assert len(whole) == 4 * (hosts - 1)
    times = [ideal_seconds(each, RATE, LATENCY) for each in (whole, slow)]
    assert times[1] >= times[0] + size / 2 * COST / 1e12


def test_who_sends_nothing_on_in_one_tree_does_so_in_the_other():
    for hosts in range(2, 40):
        graph = nccl_tree_all_reduce(hosts, 2, chunk=4)
        inside = [set(graph.destination[graph.reduces & (graph.offset == half)]) for half in (0, 1)]
        assert len(inside[0] & inside[1]) <= 1
        assert hosts < 3 or len(inside[0] | inside[1]) >= hosts - 1


@pytest.mark.parametrize("hosts", [3, 6, 11])
def test_halving_doubling_pays_for_hosts_beyond_a_power_of_two(hosts):
    power = 1 << (hosts.bit_length() - 1)
    elements = power * 500
    found = ideal_seconds(
        halving_doubling_all_reduce(hosts, elements, reduce_cost=COST), RATE, LATENCY
    )
    size = 4 * elements
    expected = messages.halving_doubling_seconds(hosts, size, RATE, LATENCY, COST)
    # Hosts that are given nothing before begin at once, and share a link with what is given.
    assert expected <= found + 1e-12 <= 1.05 * expected


def test_a_step_of_halving_and_doubling_waits_for_what_its_host_has_sent():
    graph = halving_doubling_all_reduce(8, 8000)
    steps = 6
    for host in range(8):
        own = np.flatnonzero(graph.source == host)
        assert len(own) == steps
        for earlier, later in itertools.pairwise(own):
            waiting = graph.dependents[graph.first[earlier] : graph.first[earlier + 1]]
            assert later in waiting


def test_hosts_that_begin_a_little_later_do_not_spoil_halving_and_doubling():
    graph = halving_doubling_all_reduce(32, 320_000)
    late = np.random.default_rng(0).exponential(1e-5, 32)
    together = simulate_messages(graph, "10g", transport="roce").seconds
    apart = simulate_messages(graph.starting(late), "10g", transport="roce").seconds
    assert apart < 1.3 * together + late.max()  # otherwise 1.8 times as long


def test_a_sharded_server_takes_as_long_as_the_ring_without_its_latencies():
    hosts, elements = 8, 80_000
    graph = parameter_server(hosts, range(hosts), elements)
    found = ideal_seconds(graph, RATE, 0.0)
    lower = messages.parameter_server_seconds(hosts, 4 * elements, RATE, servers=8, colocated=True)
    assert lower == messages.ring_seconds(hosts, 4 * elements, RATE)
    assert found == pytest.approx(lower, rel=1e-9)


def test_hosts_that_begin_late_hold_up_those_that_wait_for_them():
    graph = ring_all_reduce(4, 4000)
    usual = ideal_seconds(graph, RATE, LATENCY)
    late = graph.starting([0.0, 0.0, 1e-3, 0.0])
    assert ideal_seconds(late, RATE, LATENCY) == pytest.approx(1e-3 + usual, rel=1e-6)
    assert ideal_seconds(graph.starting(0.5), RATE, LATENCY) == pytest.approx(0.5 + usual)


def test_graphs_of_several_buckets_run_side_by_side_or_in_order():
    graphs = [ring_all_reduce(4, 4000), gtopk_tree(3, 10), halving_doubling_all_reduce(4, 400)]
    seconds = [ideal_seconds(graph, RATE, LATENCY) for graph in graphs]
    beside = together(graphs)
    in_topological_order(beside)
    assert max(seconds) <= ideal_seconds(beside, RATE, LATENCY) < sum(seconds)
    order = together(graphs, in_order=True)
    in_topological_order(order)
    assert len(order) == len(beside) + 2 * 4
    found = ideal_seconds(order, RATE, LATENCY)
    # The host that the second does not need is ahead; the others wait for each other.
    assert 0.9 * sum(seconds) < found <= sum(seconds) + 1e-12


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: ring_all_reduce(0, 5), "how many"),
        (lambda: ring_all_reduce([1, 1], 5), "different numbers"),
        (lambda: ring_all_reduce(3, -1), "elements is -1"),
        (lambda: nccl_tree_all_reduce(3, 8, chunk=3), "chunk is 3; give bytes, 4 or more"),
        (lambda: gtopk_tree(3, 1.5), "elements is 1.5"),
        (lambda: ring_all_reduce(3, 5, reduce_cost=-1.0), "picoseconds per byte"),
        (lambda: all_gather(3, [1, 2]), "one for each host"),
        (lambda: all_gather(2, [1, -2]), "one for each host"),
        (lambda: hierarchical_all_reduce([[0, 1], [2]], 4), "the same size"),
        (lambda: together([]), "at least one"),
        (lambda: ring_all_reduce(3, 5).starting([0.0]), "one for each"),
        (lambda: ring_all_reduce(3, 5).starting(-1.0), "seconds"),
    ],
)
def test_arguments_that_are_none_are_named(build, words):
    with pytest.raises(InputError, match=words):
        build()


def test_element_types_are_known_by_name():
    with pytest.raises(UnknownNameError, match="bfloat16"):
        ring_all_reduce(3, 5, dtype="bfloat")
