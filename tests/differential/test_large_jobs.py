"""Jobs of more than 32 workers, over trees of two and three levels, leaf-spines and fat-trees.

The second tier adds jobs of 400 to 32,768 workers, which take minutes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.networks import mute
from support.tiers import tiered

from innet import Collective
from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.topology.tree import shape_of

LOST_STATE = 11  # index of the counter of drops
ROOT_LOST = (
    "Switch s1 has lost its registers since the epoch began, and refuses what it might answer"
)
SHAPES = [
    (33, {}),
    (64, {"topology": "leaf-spine"}),
    (100, {"racks": 12, "depth": 3}),
]
LARGER = [
    (64, {"topology": "fat-tree:ports=8"}),
    (100, {}),
    (1000, {}),
    (1000, {"topology": "fat-tree:ports=16"}),
    (4096, {}),
]
FEWER = "the same with fewer workers"
THREE_LEVELS = pytest.mark.repeats("the same with two levels")
DEEPER = pytest.mark.repeats("the same, with loss or without, on another tree")
# What arrives in 5 ms is one batch: many packets for each, for the sake of the time that it takes.
BAD = Faults(loss=0.03, duplicate=0.03, reorder=0.1, hold=0.05, jitter=5e-3, tick=5e-3)
SLOW = Faults(delay=5e-4, tick=1e-4)  # a packet takes half a millisecond on each link
PATIENT = Timing(timeout=0.02, max_timeout=0.2, give_up=600.0)
GOING_ON = Timing(timeout=5e-3, max_timeout=0.05, give_up=2.0, partial_after=0.3)


def collective(workers: int, shape: dict, **changes: object) -> Collective:
    settings = {"values_per_packet": 32, "window": 8, "timing": PATIENT, **changes}
    return Collective(workers=workers, program="tree", **{**settings, **shape})


def gradients(workers: int, size: int = 150) -> list[np.ndarray]:
    rng = np.random.default_rng(workers)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(workers)]


def assert_sum(total: np.ndarray, given: list[np.ndarray]) -> None:
    step = 1e-6  # of fixed point, at most; each worker is off by half of it
    expected = np.sum(given, axis=0, dtype=np.float64)
    np.testing.assert_allclose(total, expected, atol=step * len(given))


@pytest.mark.repeats("the same with more workers", but=["33-*", "64-*"])
@pytest.mark.parametrize(("workers", "shape"), tiered([*SHAPES, *LARGER], SHAPES, FEWER), ids=str)
def test_exact_over_bad_networks(workers, shape):
    """Twice, so that slots are taken over; bit for bit what a network without faults gives."""
    size = 150
    if workers >= 1000:
        size, shape = 70, {**shape, "window": 2}
    network = collective(workers, shape, faults=BAD)
    inputs = gradients(workers, size)
    for _ in range(2):
        total, report = network.all_reduce(inputs)
        assert report.exact
        assert report.workers == workers
        assert_sum(total, inputs)
    assert report.retransmissions > 0
    assert not any(end.counters.refused for end in network.network.workers)
    undisturbed, report = collective(workers, shape).all_reduce(inputs)
    np.testing.assert_array_equal(total, undisturbed)
    assert report.retransmissions == 0


@pytest.mark.repeats("test_exact_over_bad_networks, with more workers")
def test_the_largest_job():
    network = collective(32768, {"window": 1})
    inputs = gradients(32768, 40)
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert report.workers == 32768
    assert_sum(total, inputs)


# ---------------------------------------------------------------- workers that die


@pytest.mark.parametrize(
    ("workers", "shape", "dead", "names"),
    [
        (33, {}, [32], " 32"),
        (64, {"topology": "leaf-spine"}, [40], " 40"),
        (100, {"racks": 12, "depth": 3}, [7, 77], "s 7, 77"),  # in racks of different pods
        (100, {}, [*range(25)], "s 0 to 24"),  # a whole rack
        pytest.param(1000, {"depth": 3}, [0, 999], "s 0, 999", marks=pytest.mark.repeats(FEWER)),
    ],
    ids=str,
)
def test_the_dead_are_named_level_by_level(workers, shape, dead, names):
    network = collective(workers, shape, timing=Timing(timeout=0.01, give_up=0.5))
    inputs = gradients(workers)
    for worker in dead:
        mute(network.network.workers[worker])
    with pytest.raises(StalledError, match=rf"It waits for worker{names}\."):
        network.all_reduce(inputs)
    network.network.begin_epoch(dead)  # and the others go on, with new ends
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert_sum(total, [each for worker, each in enumerate(inputs) if worker not in dead])


def test_one_that_dies_in_mid_round_is_named():
    network = collective(100, {"racks": 12, "depth": 3}, timing=Timing(timeout=0.01, give_up=0.5))
    end = network.network.workers[42]
    speak, turns = end.outgoing, [0]

    def dying(now):
        frames = speak(now)
        turns[0] += len(frames) > 0
        return frames[:0] if turns[0] > 3 else frames

    end.outgoing = dying
    with pytest.raises(StalledError, match=r"waits for worker 42\."):
        network.all_reduce(gradients(100, 32 * 60))


@pytest.mark.parametrize(
    ("workers", "shape", "loss"),
    [
        (64, {"topology": "leaf-spine"}, 0.0),
        pytest.param(64, {"topology": "leaf-spine"}, 0.02, marks=DEEPER),
        pytest.param(100, {"racks": 12, "depth": 3}, 0.0, marks=DEEPER),
        (100, {"racks": 12, "depth": 3}, 0.02),
        pytest.param(400, {}, 0.02, marks=pytest.mark.repeats(FEWER)),
    ],
    ids=str,
)
def test_the_dead_are_left_out_and_come_back(workers, shape, loss):
    dead = [5, workers - 1]
    outages = tuple(Outage(1e-3, 5.0, hosts=(worker + 1,)) for worker in dead)
    faults = Faults(delay=5e-4, tick=1e-3, loss=loss, outages=outages)
    network = collective(workers, shape, faults=faults, timing=GOING_ON)
    inputs = gradients(workers)
    total, report = network.all_reduce(inputs)
    assert report.exact
    without = report.details["without"]
    assert set(dead) <= set(without)
    assert without == dead or loss  # where packets are lost, another one may be late as well
    assert_sum(total, [each for worker, each in enumerate(inputs) if worker not in without])
    before = network.network.now
    assert network.all_reduce(inputs)[1].exact  # there is nobody to wait for
    assert network.network.now - before < 0.3
    network.network.now = 6.0
    for worker in without:
        network.rejoin(worker)
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert report.workers == workers
    assert_sum(total, inputs)


# ---------------------------------------------------------------- switches that restart


def restart(network: Collective, switch: str, after: int) -> list[int]:
    """``switch`` loses all registers before its ``after``-th batch of packets; says when it has."""
    running = network.network.switches[switch]
    inner, calls, done = running.process_batch, [0], []

    def process(batch: PacketBatch) -> PacketBatch:
        calls[0] += 1
        if calls[0] == after:
            for cells in running.registers.values():
                cells[:] = 0
            done.append(after)
        return inner(batch)

    running.process_batch = process
    return done


def switches_of(network: Collective) -> tuple[str, str]:
    """The root and a leaf."""
    nodes = list(shape_of(network.plan).descend())
    return nodes[0].name, next(node.name for node in reversed(nodes) if not node.children)


@pytest.mark.parametrize("after", tiered([2, 3, 5], [3], "the same at another time"))
@pytest.mark.parametrize("which", ["root", "leaf"])
@pytest.mark.parametrize(
    ("workers", "shape"),
    [(40, {}), pytest.param(40, {"racks": 6, "depth": 3}, marks=THREE_LEVELS)],
    ids=str,
)
def test_a_switch_that_restarts_in_mid_round(workers, shape, which, after):
    """Without partial results: all sums are complete, at the latest with a second attempt."""
    inputs = gradients(workers, 32 * 40)
    timing = Timing(timeout=5e-3, max_timeout=0.1, give_up=2.0)
    network = collective(workers, shape, faults=SLOW, timing=timing, attempts=2)
    root, leaf = switches_of(network)
    done = restart(network, root if which == "root" else leaf, after)
    total, report = network.all_reduce(inputs)
    assert done
    assert report.exact
    assert report.workers == workers
    assert_sum(total, inputs)
    for switch in network.network.switches.values():
        assert not switch.counters["TreeIngress.dropped"].packets[LOST_STATE]


@pytest.mark.parametrize("after", tiered([2, 3, 5], [3], "the same at another time"))
@pytest.mark.parametrize("which", ["root", "leaf"])
@pytest.mark.parametrize(
    ("workers", "shape"),
    [(40, {}), pytest.param(40, {"racks": 6, "depth": 3}, marks=THREE_LEVELS)],
    ids=str,
)
def test_a_switch_that_restarts_where_results_may_be_partial(workers, shape, which, after):
    """It refuses what it could answer wrongly: nobody is told that it is in and is not. A root
    refuses everything until the next epoch.
    """
    inputs = gradients(workers, 32 * 40)
    network = collective(workers, shape, faults=SLOW, timing=GOING_ON, attempts=2)
    root, leaf = switches_of(network)
    switch = root if which == "root" else leaf
    done = restart(network, switch, after)
    total, report = network.all_reduce(inputs)
    assert done
    assert report.exact
    without = report.details.get("without", [])
    assert_sum(total, [each for worker, each in enumerate(inputs) if worker not in without])
    dropped = network.network.switches[switch].counters["TreeIngress.dropped"].packets
    if which == "root":
        assert dropped[LOST_STATE] > 0
        assert network.plan.job.epoch > 0
    before = int(dropped[LOST_STATE])
    assert network.all_reduce(inputs)[1].exact  # in the epoch that it knows from the beginning
    assert (int(dropped[LOST_STATE]) > before) == (network.plan.job.epoch == 0 and before > 0)


def test_a_restarted_root_stalls_a_single_attempt_with_partial_results():
    """Without them it goes on: what the root has lost, the leaves still hold."""
    inputs = gradients(40, 32 * 40)
    patient = Timing(timeout=5e-3, max_timeout=0.1, give_up=1.0)
    for timing in (patient, replace(patient, partial_after=0.3)):
        network = collective(40, {}, faults=SLOW, timing=timing)
        root, _ = switches_of(network)
        assert restart(network, root, 3) == []
        if timing.partial_after is not None:
            with pytest.raises(StalledError, match=ROOT_LOST):
                network.all_reduce(inputs)
        total, report = network.all_reduce(inputs)
        assert network.plan.job.epoch == (timing.partial_after is not None)
        assert report.exact
        assert_sum(total, inputs)


# ---------------------------------------------------------------- codecs


def compression(codec: object, workers: int, size: int) -> float:
    """With gradients whose largest elements are each worker's own."""
    rng = np.random.default_rng(7)
    network = Collective(workers=workers, codec=codec, values_per_packet=64, window=64)
    report = None
    for _ in range(2):
        total, report = network.all_reduce(
            [rng.laplace(size=size).astype(np.float32) for _ in range(workers)]
        )
        assert report.exact
        assert np.isfinite(total).all()
    assert network.program == ("tree-64" if workers > 32 else "slots-64")
    return report.compression


@pytest.mark.repeats("the union that does not build up, in test_reproduce.py")
def test_the_compression_of_scalecom_does_not_depend_on_the_number_of_workers():
    """The headline of the paper, here with its 64 workers through the switches."""
    size = 40_000
    found = {workers: compression("scalecom", workers, size) for workers in (4, 16, 64)}
    assert len(set(found.values())) == 1
    assert found[64] > 30
    sparse = {workers: compression("topk", workers, size) for workers in (4, 64)}
    assert sparse[64] < sparse[4] / 2  # that of independent choices does


@pytest.mark.parametrize(
    "codec",
    tiered(["lhc", "scalecom", "topk", "thc", "dense"], ["scalecom"], "other codecs"),
)
def test_codecs_of_64_workers_over_a_bad_network(codec):
    network = Collective(
        workers=64, codec=codec, values_per_packet=64, window=8, faults=BAD, timing=PATIENT, seed=3
    )
    still = Collective(workers=64, codec=codec, values_per_packet=64, window=8, seed=3)
    rng = np.random.default_rng(3)
    for _ in range(2):
        inputs = [rng.laplace(size=700).astype(np.float32) for _ in range(64)]
        total, report = network.all_reduce(inputs)
        assert report.exact
        np.testing.assert_array_equal(total, still.all_reduce(inputs)[0])
