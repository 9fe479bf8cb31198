"""Sums within racks: each rack's own, exact, and without a packet between switches."""

from __future__ import annotations

import numpy as np
import pytest

from innet.allreduce.collective import Collective
from innet.core.errors import InputError, StalledError, StateError
from innet.network import Faults, Outage
from innet.protocol import Timing

TOPOLOGIES = [
    ({"workers": 4, "racks": 2}, ((0, 1), (2, 3))),
    ({"workers": 7, "racks": 3}, ((0, 1), (2, 3), (4, 5, 6))),
    ({"workers": 8, "topology": "tree:racks=4,depth=3"}, ((0, 1), (2, 3), (4, 5), (6, 7))),
    ({"workers": 5, "topology": "leaf-spine:racks=2"}, ((0, 1), (2, 3, 4))),
    ({"workers": 3, "topology": "star"}, ((0, 1, 2),)),
]


def gradients(workers: int, size: int = 700, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size, np.float32) for _ in range(workers)]


def nearest(vectors) -> np.ndarray:
    """Float64 has room for the exact sum of few float32 numbers of like magnitude."""
    return np.sum(np.array(vectors, np.float64), axis=0).astype(np.float32)


def packets_in(collective: Collective) -> dict[str, int]:
    return {name: each.statistics.packets_in for name, each in collective.network.switches.items()}


@pytest.mark.repeats("the same without faults", but=["True-*"])
@pytest.mark.parametrize(("arguments", "racks"), TOPOLOGIES)
@pytest.mark.parametrize("faulty", [False, True])
def test_each_rack_gets_its_own_sum_and_nothing_leaves_it(arguments, racks, faulty):
    faults = Faults(loss=0.1, duplicate=0.1, reorder=0.2) if faulty else None
    collective = Collective(
        **arguments, codec="dense", rack_codec="exact", window=16, faults=faults, seed=3
    )
    assert collective.racks == racks
    leaves = {rack.plan.switches[0].name for rack in collective.network.racks}
    for seed in range(2):
        job = gradients(arguments["workers"], seed=seed)
        before = packets_in(collective)
        sums, report = collective.all_reduce(job, scope="rack")
        assert report.exact is True
        assert report.workers == arguments["workers"]
        assert report.details["racks"] == [len(rack) for rack in racks]
        for rack, total in zip(racks, sums, strict=True):
            np.testing.assert_array_equal(total, nearest([job[worker] for worker in rack]))
        after = packets_in(collective)
        if not faulty:  # late packets of the sum before may still be on their way between switches
            assert {name for name in after if after[name] > before[name]} == leaves
            assert sum(after.values()) - sum(before.values()) == report.packets_sent
        total, report = collective.all_reduce(job)  # the sum of all, in between, is right as well
        assert report.exact is True
        assert abs(total - nearest(job)).max() < 1e-6


def test_the_mean_of_a_rack_without_a_network_is_the_same():
    job = gradients(6)
    collective = Collective(workers=6, racks=3, codec="topk", rack_codec="dense", window=64)
    sums, _ = collective.all_reduce(job, scope="rack")
    for rack, total in zip(collective.racks, sums, strict=True):
        alone = Collective(workers=len(rack), codec="dense")
        expected, _ = alone.all_reduce([job[worker] for worker in rack])
        np.testing.assert_array_equal(total / len(rack), expected / len(rack))


def test_racks_that_need_fewer_rounds_end_before_others():
    """The carrier lhc repairs a sketch that does not peel in further rounds."""
    rng = np.random.default_rng(5)
    job = gradients(4, 4000)
    for worker in (0, 1):
        job[worker][rng.random(4000) < 0.97] = 0  # sparse in one rack, dense in the other
    collective = Collective(workers=4, racks=2, codec="dense", rack_codec="lhc", window=64)
    sums, report = collective.all_reduce(job, scope="rack")
    assert report.exact is True
    for rack, total in zip(collective.racks, sums, strict=True):
        alone = Collective(workers=2, codec="lhc")
        expected, one = alone.all_reduce([job[worker] for worker in rack])
        np.testing.assert_array_equal(total, expected)
        assert one.rounds <= report.rounds


def test_what_is_left_for_a_rack_is_not_left_for_all():
    job = gradients(4)
    both = Collective(workers=4, racks=2, codec="topk:ratio=0.1", rack_codec="topk:ratio=0.2")
    without = Collective(workers=4, racks=2, program="tree", codec="topk:ratio=0.1")
    for step in range(3):
        both.all_reduce(gradients(4, seed=step), scope="rack")
        total, _ = both.all_reduce(job)
        expected, _ = without.all_reduce(job)
        np.testing.assert_array_equal(total, expected)
    residuals = [codec.error_feedback.residual for codec in both.rack_codecs]
    assert not np.array_equal(residuals[0], both.codecs[0].error_feedback.residual)


def test_workers_leave_and_come_back():
    job = gradients(5)
    collective = Collective(workers=5, racks=2, codec="dense", rack_codec="exact", window=64)
    assert collective.racks == ((0, 1), (2, 3, 4))
    collective.leave(3)
    collective.leave(0)
    assert collective.racks == ((1,), (2, 4))
    sums, report = collective.all_reduce(job, scope="rack")
    assert (report.exact, report.workers) == (True, 3)
    np.testing.assert_array_equal(sums[0], job[1])
    np.testing.assert_array_equal(sums[1], nearest([job[2], job[4]]))
    collective.leave(1)  # nobody is left in this rack
    assert collective.racks == ((2, 4),)
    (total,), _ = collective.all_reduce(job, scope="rack")
    np.testing.assert_array_equal(total, nearest([job[2], job[4]]))
    for worker in (1, 0, 3):
        collective.rejoin(worker)
    sums, _ = collective.all_reduce(job, scope="rack")
    np.testing.assert_array_equal(sums[0], nearest(job[:2]))
    np.testing.assert_array_equal(sums[1], nearest(job[2:]))


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_rack_that_stalls_is_named_and_changes_nothing(attempts):
    job = gradients(4)
    collective = Collective(
        workers=4,
        racks=2,
        codec="dense",
        rack_codec="topk:ratio=0.1",
        window=64,
        faults=Faults(outages=(Outage(0.0, 0.7, hosts=(4,)),)),
        timing=Timing(timeout=0.01, give_up=0.5),
        attempts=attempts,
    )
    before = [codec.state_dict() for codec in collective.rack_codecs]
    if attempts == 1:
        with pytest.raises(
            StalledError, match=r"rack of s3, whose workers are \[2, 3\]: .*waits for"
        ):
            collective.all_reduce(job, scope="rack")
        for codec, state in zip(collective.rack_codecs, before, strict=True):
            assert codec.state_dict()["step"] == state["step"] == 0
            assert codec.error_feedback.residual is None or not codec.error_feedback.residual.any()
    sums, report = collective.all_reduce(job, scope="rack")
    assert report.exact is True
    fresh = Collective(workers=4, racks=2, codec="dense", rack_codec="topk:ratio=0.1", window=64)
    for found, expected in zip(sums, fresh.all_reduce(job, scope="rack")[0], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_state_has_the_racks_codecs():
    arguments = {"workers": 4, "racks": 2, "codec": "topk", "rack_codec": "topk", "window": 64}
    one, other = Collective(**arguments), Collective(**arguments)
    one.all_reduce(gradients(4), scope="rack")
    other.load_state_dict(one.state_dict())
    for scope in ("rack", "job"):
        job = gradients(4, seed=7)
        np.testing.assert_array_equal(
            one.all_reduce(job, scope=scope)[0], other.all_reduce(job, scope=scope)[0]
        )
    without = Collective(workers=4, racks=2, program="tree", codec="topk")
    with pytest.raises(StateError, match="without sums within racks"):
        without.load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"program": "slots"}, "slots has one level of switches, so there are no racks"),
        ({"racks": 2, "window": 1024}, "Choose a window of 512 or less"),
        (
            {"racks": 2, "timing": Timing(partial_after=0.1)},
            "racks that sum for themselves know no partial results",
        ),
    ],
)
def test_what_has_no_sums_within_racks(arguments, message):
    with pytest.raises(InputError, match=message):
        Collective(workers=4, rack_codec="dense", **arguments)


def test_a_scope_has_to_be_there():
    collective = Collective(workers=2)
    with pytest.raises(InputError, match="make it with rack_codec"):
        collective.all_reduce(gradients(2), scope="rack")
    with pytest.raises(InputError, match=r"the scope is 'leaf'; choose job or rack\."):
        collective.all_reduce(gradients(2), scope="leaf")


def test_in_simulated_time_no_link_between_switches_is_used():
    job = gradients(4, 3000)
    collective = Collective(
        workers=4, racks=2, codec="dense", rack_codec="exact", network="10g:trunk_rate=1e9"
    )
    simulation = collective.network.simulation
    sums, report = collective.all_reduce(job, scope="rack")
    for rack, total in zip(collective.racks, sums, strict=True):
        np.testing.assert_array_equal(total, nearest([job[worker] for worker in rack]))
    trunks = [each for each in simulation.link_counts() if "host" not in each.source + each.target]
    assert trunks
    assert all(each.packets == 0 for each in trunks)
    _, of_all = collective.all_reduce(job)
    assert of_all.simulated.seconds > report.simulated.seconds
