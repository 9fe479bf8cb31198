"""tree and hashed: exact sums over several switches, whatever the links do."""

from __future__ import annotations

import numpy as np
import pytest
from support.networks import BAD, MIXED, all_reduce, contributions, mute, network, watch

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.protocol.parameter_server import ParameterServer
from innet.wire import Endpoint, HeaderFlag, PacketLayout, internet_checksum, pack, parse

SHAPES = [
    ("tree", 1, {}),
    ("tree", 4, {"racks": 1, "depth": 1}),
    ("tree", 4, {"racks": 2}),
    ("tree", 7, {"racks": 3, "depth": 3}),
    ("tree", 32, {"racks": 4}),
    ("tree", 9, {"topology": "dumbbell"}),
    ("tree", 33, {}),
    ("tree", 64, {"topology": "leaf-spine"}),
    ("tree", 100, {"racks": 12, "depth": 3}),
    ("tree", 128, {"topology": "fat-tree", "ports": 8}),
    ("hashed", 1, {}),
    ("hashed", 4, {}),
    ("hashed", 5, {"racks": 2}),
    ("hashed", 6, {"racks": 3, "depth": 3}),
    ("hashed", 32, {"racks": 4}),
]


@pytest.mark.repeats(
    "the same with more workers, and each network with and without faults",
    but=[
        "tree-4-*-bad",
        "tree-7-*-bad",
        "tree-9-*-perfect",
        "tree-33-*-bad",
        "tree-64-*-perfect",
        "hashed-1-*-perfect",
        "hashed-5-*-bad",
        "hashed-6-*-bad",
    ],
)
@pytest.mark.parametrize("faults", [None, BAD], ids=["perfect", "bad"])
@pytest.mark.parametrize(("program", "workers", "shape"), SHAPES, ids=str)
def test_exact_over_any_network(program, workers, shape, faults):
    rng = np.random.default_rng(workers)
    net = network(program, workers, faults=faults, seed=workers, **shape)
    for _ in range(2):
        all_reduce(net, contributions(rng, workers, MIXED))
    for end in net.workers:
        assert end.counters.refused == {}
        if faults is None:
            assert end.counters.retransmissions == end.counters.duplicates == 0
    if faults is not None:
        assert sum(end.counters.retransmissions for end in net.workers) > 0


@pytest.mark.parametrize("framing", ["udp", "raw"])
@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("program", ["tree", "hashed"])
def test_engines_and_framings(program, engine, framing):
    net = network(program, 3, racks=2, engine=engine, framing=framing, faults=Faults(loss=0.05))
    all_reduce(net, contributions(np.random.default_rng(0), 3, MIXED))


@pytest.mark.parametrize("program", ["tree", "hashed"])
def test_sums_that_leave_int32_say_so(program):
    net = network(program, 4, racks=2)
    words = np.full(40, 2**30 + 1, np.int32)  # four times that is 4, modulo 2**32
    words[::2] = 1
    for end in net.workers:
        end.start([Segment(ReduceOp.SUM, words)], net.now)
    net.run()
    for end in net.workers:
        assert HeaderFlag.OVERFLOW in end.result_flags
        assert (end.results()[0] == 4).all()
    all_reduce(net, contributions(np.random.default_rng(0), 4, MIXED))
    assert all(HeaderFlag.OVERFLOW not in end.result_flags for end in net.workers)


@pytest.mark.parametrize("program", ["tree", "hashed"])
@pytest.mark.parametrize("dead", range(4))
def test_a_dead_worker_is_named(program, dead):
    net = network(program, 4, racks=2, timing=Timing(timeout=0.01, give_up=0.5))
    mute(net.workers[dead])
    with pytest.raises(StalledError, match=f"waits for worker {dead}"):
        all_reduce(net, contributions(np.random.default_rng(0), 4, MIXED))


@pytest.mark.parametrize("phase", [1, 3, 7])
def test_a_worker_that_dies_later_is_named(phase):
    """After ``phase`` turns in which it sent something; the others are by then further on."""
    for program in ("tree", "hashed"):
        net = network(program, 3, window=2, timing=Timing(timeout=0.01, give_up=0.5))
        turns = [0]
        speak = net.workers[1].outgoing

        def dying(now, turns=turns, speak=speak):
            frames = speak(now)
            turns[0] += len(frames) > 0
            return frames[:0] if turns[0] > phase else frames

        net.workers[1].outgoing = dying
        with pytest.raises(StalledError, match="waits for worker 1"):
            all_reduce(net, contributions(np.random.default_rng(0), 3, [(ReduceOp.SUM, 900)]))


def test_a_dead_server_is_pointed_to():
    net = network("hashed", 3, timing=Timing(timeout=0.01, give_up=0.5))
    mute(net.hosts[4])
    with pytest.raises(StalledError, match="parameter server: see that it runs"):
        all_reduce(net, contributions(np.random.default_rng(0), 3, MIXED))


# ---------------------------------------------------------------- recovery, step by step


def lose(net, switch: str, wanted) -> list[int]:
    """From now on the switch drops, once, the first packet for which ``wanted(port, header)``."""
    inner = net.switches[switch].process_batch
    layout = net.plan.layout
    lost: list[int] = []

    def process(batch: PacketBatch) -> PacketBatch:
        leaving = inner(batch)
        keep = np.ones(len(leaving), np.bool_)
        header = parse(layout, leaving).header
        for row in range(len(leaving)):
            if not lost and wanted(int(leaving.port[row]), header[row]):
                keep[row] = False
                lost.append(row)
        return leaving.take(keep)

    net.switches[switch].process_batch = process
    return lost


def one_chunk(net) -> None:
    count = len(net.workers)
    all_reduce(net, contributions(np.random.default_rng(0), count, [(ReduceOp.SUM, 30)]))


def test_tree_a_result_lost_below_the_leaf_is_repeated_by_the_leaf():
    net = network("tree", 4, racks=2)
    lost = lose(net, "s2", lambda port, header: port == 2 and header["flags"] & HeaderFlag.RESULT)
    seen = watch(net)
    one_chunk(net)
    assert lost
    assert len(seen["s1"]) == 2  # a sum from each rack: the root was not asked again
    assert net.workers[1].counters.retransmissions == 1
    assert net.workers[0].counters.received == 1


def test_tree_a_result_lost_above_the_leaf_is_repeated_by_the_root():
    net = network("tree", 4, racks=2)
    lost = lose(net, "s1", lambda port, header: port == 102)
    seen = watch(net)
    one_chunk(net)
    assert lost
    assert len(seen["s2"]) == 2 + 1  # the other rack is left alone
    # Both workers of the rack ask at once; what the first one's question brings is for both.
    assert len(seen["s1"]) <= 4
    assert [end.counters.retransmissions for end in net.workers] == [0, 0, 1, 1]


def test_tree_a_sum_lost_on_the_way_up_is_sent_again_by_the_leaf():
    net = network("tree", 4, racks=2)
    lost = lose(net, "s3", lambda port, header: port == 100)
    one_chunk(net)
    assert lost


def test_tree_a_leaf_without_registers_learns_from_the_result():
    """The leaf forgets its slots after the sum has gone up and before the result is down."""
    net = network("tree", 4, racks=2)
    inner = net.switches["s1"].process_batch

    def process(batch: PacketBatch) -> PacketBatch:
        for cells in net.switches["s2"].registers.values():
            cells[:] = 0
        return inner(batch)

    net.switches["s1"].process_batch = process
    one_chunk(net)


def test_tree_a_restarted_root_is_diagnosed_or_recovered():
    net = network("tree", 4, racks=2, timing=Timing(timeout=0.01, give_up=1.0))
    given = contributions(np.random.default_rng(0), 4, [(ReduceOp.SUM, 900)])
    inner = net.switches["s1"].process_batch
    calls = [0]

    def process(batch: PacketBatch) -> PacketBatch:
        calls[0] += 1
        if calls[0] == 3:  # in mid-round
            for cells in net.switches["s1"].registers.values():
                cells[:] = 0
        return inner(batch)

    net.switches["s1"].process_batch = process
    all_reduce(net, given)  # what the root has lost, the leaves still hold


@pytest.mark.parametrize(
    ("racks", "switch", "port", "flags"),
    [
        (None, "s1", 100, 0),  # the sum, to the server
        (None, "s1", 2, HeaderFlag.RESULT),
        (2, "s2", 100, 0),  # the sum of a rack
        (2, "s1", 100, 0),
        (2, "s1", 101, HeaderFlag.RESULT),
        (2, "s3", 3, HeaderFlag.RESULT),
    ],
)
def test_hashed_recovers_and_frees_what_it_took(racks, switch, port, flags):
    net = network("hashed", 3, racks=racks)
    lost = lose(
        net,
        switch,
        lambda out, header: out == port and header["flags"] & HeaderFlag.RESULT == flags,
    )
    one_chunk(net)
    assert lost
    for each in net.switches.values():
        assert not each.registers["aggregators.key"].any()


def collided(net) -> int:
    return sum(
        int(switch.counters["HashedIngress.collided"].packets[0])
        for switch in net.switches.values()
    )


def test_hashed_chunks_without_an_aggregator_are_summed_by_the_server():
    for racks in (None, 2):
        net = network("hashed", 4, racks=racks)
        keys = net.switches["s1" if racks is None else "s2"].registers["aggregators.key"]
        keys[:] = 99 << 48 | 1 << 32 | 5  # every aggregator of one switch is of job 99
        all_reduce(net, contributions(np.random.default_rng(0), 4, MIXED))
        assert collided(net) > 0
        assert (keys == 99 << 48 | 1 << 32 | 5).all()
        assert all(end.counters.retransmissions == 0 for end in net.workers)
        server = net.hosts[5]
        assert isinstance(server, ParameterServer)
        assert server.collisions > 0 or racks


def test_hashed_a_default_window_hardly_collides_with_itself():
    net = network("hashed", 2, window=512)
    rng = np.random.default_rng(2)
    for _ in range(2):
        all_reduce(net, contributions(rng, 2, [(ReduceOp.SUM, 32 * 1500)]))
    assert collided(net) < 2 * 2 * 1500 // 20


@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("program", ["tree", "hashed"])
def test_congestion_met_anywhere_is_told_to_all(program, taken):
    """One worker's packets say "congestion experienced", also where they find no aggregator."""
    net = network(program, 4, racks=2)
    if taken and program == "hashed":
        net.switches["s2"].registers["aggregators.key"][:] = 99 << 48 | 1 << 32 | 5
    speak = net.workers[1].outgoing

    def marked(now):
        frames = speak(now)
        records = net.plan.layout.view(frames)
        records["ipv4"]["tos"] |= 3
        records["ipv4"]["checksum"] = 0
        headers = np.ascontiguousarray(records["ipv4"])[:, None].view(np.uint8)
        records["ipv4"]["checksum"] = internet_checksum(headers)
        return frames

    net.workers[1].outgoing = marked
    one_chunk(net)
    assert all(HeaderFlag.ECN in end.result_flags for end in net.workers)


def test_hashed_exact_while_aggregators_come_and_go():
    """Half of them are taken by others, others again in every round."""
    rng = np.random.default_rng(1)
    net = network("hashed", 4, racks=2, faults=Faults(loss=0.02, reorder=0.2, tick=1e-3))
    for _ in range(3):
        for switch in net.switches.values():
            keys = switch.registers["aggregators.key"]
            keys[rng.random(len(keys)) < 0.5] = 99 << 48 | 1 << 32 | 5
            keys[rng.random(len(keys)) < 0.3] = 0
        all_reduce(net, contributions(rng, 4, MIXED))
    assert collided(net) > 0


def test_hashed_a_late_copy_does_not_keep_an_aggregator():
    """What arrives after the result takes one that nobody frees; newer chunks take it over."""
    net = network("hashed", 1, window=1)
    switch = net.switches["s1"]
    rng = np.random.default_rng(0)
    seen = watch(net)
    one_chunk(net)
    keys = switch.registers["aggregators.key"]
    assert not keys.any()
    switch.process(seen["s1"][:1])
    keys[:] = keys[np.flatnonzero(keys)]  # as if all places had been left so
    all_reduce(net, contributions(rng, 1, [(ReduceOp.SUM, 32 * 3)]))
    assert collided(net) == 1  # the chunk that is not yet two windows ahead


# ---------------------------------------------------------------- who may speak


def strange(net, worker: int, port: int, switch: str, **changes) -> int:
    """A packet at a port; why the switch drops it, by its counter, or 0."""
    layout: PacketLayout = net.plan.layout
    job = net.plan.job
    fields = {
        "operation": ReduceOp.SUM,
        "job": job.number,
        "epoch": job.epoch,
        "sequence": 1,
        "slot": 0,
        "slot_version": 0,
        "worker": worker,
        **changes,
    }
    words = np.ones((1, layout.values), np.int32)
    frames = pack(layout, Endpoint.of_worker(worker), Endpoint.of_switch(), words, **fields)
    counter = net.switches[switch].counters["dropped"]
    before = counter.packets.copy()
    net.switches[switch].process([(port, frames[0].tobytes())])
    (reasons,) = np.nonzero(counter.packets - before)
    return int(reasons[0]) if len(reasons) else 0


NOT_ADMITTED, NOT_BELOW, MALFORMED, SLOT_RANGE = 5, 9, 4, 6


ANY_PROGRAM = [
    (0, 1, "s2", {}, 0),
    (1, 1, "s2", {}, NOT_ADMITTED),  # another worker's index
    (2, 3, "s2", {}, NOT_ADMITTED),  # a worker of the other rack
    (0, 1, "s2", {"job": 8}, NOT_ADMITTED),
    (0, 1, "s2", {"epoch": 4}, NOT_ADMITTED),
    (0, 1, "s2", {"bitmap": 3}, NOT_BELOW),  # for others as well
    (0, 1, "s2", {"flags": HeaderFlag.RESULT}, MALFORMED),
    (0, 1, "s2", {"flags": HeaderFlag.PARTIAL}, 0),
    (0, 1, "s2", {"slot": 8}, SLOT_RANGE),
    (0, 101, "s1", {"bitmap": 3, "count": 2}, 0),
    (0, 101, "s1", {"bitmap": 2, "count": 1}, 0),  # the others are late
    (0, 101, "s1", {"bitmap": 3, "count": 2, "flags": HeaderFlag.RESULT}, MALFORMED),
    (0, 1, "s1", {}, NOT_ADMITTED),
    (0, 100, "s2", {"flags": HeaderFlag.RESULT, "bitmap": 15, "count": 4}, 0),  # from above
    (0, 100, "s2", {"bitmap": 15, "count": 4}, MALFORMED),  # but results only
]
ADMISSION = {
    "tree": [
        *ANY_PROGRAM,
        (0, 101, "s1", {"count": 0}, NOT_BELOW),  # for nobody
        (0, 101, "s1", {"count": 3}, NOT_BELOW),  # for more than are below
        (0, 101, "s1", {"count": 0xFFFF}, NOT_BELOW),
        (2, 101, "s1", {"count": 2}, NOT_ADMITTED),  # for the other rack
        (0, 1, "s2", {"count": 4}, 0),  # a worker counts 1, whatever it says
        (
            2,
            100,
            "s2",
            {"flags": HeaderFlag.RESULT, "bitmap": 3},
            NOT_ADMITTED,
        ),  # of the other rack
    ],
    "hashed": [
        *(each for each in ANY_PROGRAM if each[4] != SLOT_RANGE),  # it has no slots
        (0, 101, "s1", {"bitmap": 12, "count": 2}, NOT_BELOW),  # for the other rack
        (0, 101, "s1", {"bitmap": 6, "count": 2}, NOT_BELOW),
        (0, 101, "s1", {"bitmap": 0}, NOT_BELOW),
    ],
}


@pytest.mark.parametrize(
    ("program", "worker", "port", "switch", "changes", "reason"),
    [(program, *each) for program, cases in ADMISSION.items() for each in cases],
    ids=str,
)
def test_admission(program, worker, port, switch, changes, reason):
    net = network(program, 4, racks=2, engine="interpret")
    assert strange(net, worker, port, switch, **changes) == reason


def test_tree_a_worker_counts_for_one_whatever_it_says():
    net = network("tree", 4, racks=2, engine="interpret")
    assert strange(net, 0, 1, "s2", count=3) == 0
    held = {
        name: net.switches["s2"].registers[f"TreeIngress.pool.{name}"][0]
        for name in ("bitmap", "count")
    }
    assert held == {"bitmap": 1, "count": 1}
