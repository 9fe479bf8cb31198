"""tree and hashed from epoch to epoch: workers leave and return, switches forget, jobs go on.

A sample of workers dies at some phases; in the second tier each worker dies at each phase.
"""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import tiered

from innet.allreduce.collective import Collective
from innet.core.errors import StalledError
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.topology.tree import shape_of

SIZE = 400
SHAPES = [
    ("tree", {"racks": 2}),
    ("tree", {"racks": 4, "depth": 3}),
    ("hashed", {}),
    ("hashed", {"racks": 2}),
]
# A packet takes half a millisecond on each link: there and back 2 ms, 3 ms with three levels.
PHASES = [0.0, 5e-4, 1e-3, 1.5e-3, 2e-3, 2.5e-3, 3e-3, 4e-3]
DEATHS = [(when, victim) for when in PHASES for victim in range(4)]
A_SAMPLE = "the same with a sample of the phases and workers"
SLOW = {"delay": 5e-4, "tick": 1e-4}


def collective(program, shape, workers=4, **changes):
    settings = {
        "values_per_packet": 32,
        "window": 8,
        "timing": Timing(timeout=5e-3, max_timeout=0.1, give_up=2.0),
        **changes,
    }
    return Collective(workers=workers, program=program, **shape, **settings)


def gradients(workers=4):
    rng = np.random.default_rng(workers)
    return [rng.laplace(size=SIZE).astype(np.float32) for _ in range(workers)]


def assert_sum(total, given):
    np.testing.assert_allclose(total, np.sum(given, axis=0, dtype=np.float64), atol=1e-5)


@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_workers_leave_and_come_back(program, shape):
    network = collective(program, shape, faults=Faults(loss=0.02, tick=1e-3))
    assert len(list(shape_of(network.plan).descend())) == len(network.plan.switches)
    inputs = gradients()
    for change, expected in (
        (None, (0, 1, 2, 3)),
        (("leave", 1), (0, 2, 3)),
        (("leave", 0), (2, 3)),  # the first rack is empty
        (("leave", 3), (2,)),
        (("rejoin", 0), (0, 2)),
        (("rejoin", 3), (0, 2, 3)),
    ):
        if change is not None:
            getattr(network, change[0])(change[1])
        total, report = network.all_reduce(inputs)
        assert report.exact
        assert report.workers == len(expected)
        assert_sum(total, [inputs[worker] for worker in expected])
    assert network.plan.job.epoch == 5


@pytest.mark.repeats("the same at other times", but=["*-0.0012", "*-0.0061"])
@pytest.mark.parametrize("when", [0.0, 1.2e-3, 2.2e-3, 6.1e-3])
@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_switches_that_lose_their_registers_in_mid_round(program, shape, when):
    """With a second attempt it is exact; with one attempt it is exact, or says that it stalled."""
    faults = Faults(**SLOW, loss=0.05, restarts=(when,))
    inputs = gradients()
    network = collective(program, shape, faults=faults, attempts=2)
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert_sum(total, inputs)
    network = collective(program, shape, faults=faults)
    said = "job 1, epoch 0"
    try:
        total, report = network.all_reduce(inputs)
    except StalledError as error:
        said = str(error)
        total, report = network.all_reduce(inputs)
    assert "job 1, epoch 0" in said
    assert report.exact
    assert_sum(total, inputs)


@pytest.mark.parametrize(
    ("when", "victim"),
    tiered(DEATHS, [(0.0, 0), (1.5e-3, 1), (4e-3, 3)], A_SAMPLE),
)
@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_whoever_dies_at_any_phase_is_named_in_time(program, shape, victim, when):
    cut = Faults(**SLOW, outages=(Outage(when, hosts=(victim + 1,)),))
    network = collective(program, shape, faults=cut)
    with pytest.raises(StalledError, match=rf"worker {victim}\b"):
        network.all_reduce(gradients())
    assert network.network.now <= when + 3.0
    network.leave(victim)  # and the others go on
    network.network.now = 10.0
    assert network.all_reduce(gradients())[1].exact


@pytest.mark.parametrize(
    ("when", "victim", "loss"),
    tiered(
        [(*death, loss) for death in DEATHS for loss in (0.0, 0.05)],
        [(0.0, 1, 0.0), (2.5e-3, 2, 0.05)],
        A_SAMPLE,
    ),
)
@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_the_others_go_on_without_whoever_dies(program, shape, victim, when, loss):
    """Without that one and nobody else, though others share its rack.

    Where packets are lost, all of another's requests may be, and it is late as well.
    """
    network = collective(
        program,
        shape,
        timing=Timing(timeout=5e-3, max_timeout=0.05, give_up=2.0, partial_after=0.3),
        faults=Faults(**SLOW, loss=loss, outages=(Outage(when, hosts=(victim + 1,)),)),
    )
    inputs = gradients()
    total, report = network.all_reduce(inputs)
    assert report.exact
    without = report.details["without"]
    assert victim in without
    assert without == [victim] or loss
    assert_sum(total, [each for worker, each in enumerate(inputs) if worker not in without])
    before = network.network.now
    assert network.all_reduce(inputs)[1].exact  # there is nobody to wait for
    assert network.network.now - before < 0.3


@pytest.mark.repeats("the same with other networks", but=["tree-{'racks': 2}", "hashed-{}"])
@pytest.mark.parametrize(("program", "shape"), SHAPES, ids=str)
def test_nothing_is_lost_or_counted_twice_when_a_worker_is_left_out(program, shape):
    """With error feedback everything is sent some time: also what the late worker had to say."""
    network = collective(
        program,
        shape,
        codec="topk",
        timing=Timing(timeout=5e-3, max_timeout=0.05, give_up=2.0, partial_after=0.1),
        faults=Faults(**SLOW, outages=(Outage(0.0, 0.5, (2,)),)),
    )
    inputs = gradients()
    received, report = network.all_reduce(inputs)
    assert report.details["without"] == [1]
    network.network.now = 0.6  # it is back
    network.rejoin(1)
    for _ in range(120):
        total, report = network.all_reduce([np.zeros(SIZE, np.float32)] * 4)
        assert report.exact
        received = received + total
    assert_sum(received, inputs)


@pytest.mark.parametrize("when", [0.0, 1.5e-3, 4e-3])
def test_a_server_that_dies_is_pointed_to(when):
    cut = Faults(**SLOW, outages=(Outage(when, 9.0, hosts=(5,)),))
    network = collective("hashed", {"racks": 2}, faults=cut)
    with pytest.raises(StalledError, match="parameter server: see that it runs"):
        network.all_reduce(gradients())
    network.network.now = 10.0  # it is back, and the job goes on under the next epoch
    assert network.all_reduce(gradients())[1].exact


def test_hashed_needs_no_second_attempt():
    """What switches forget, workers send again, and it reaches the server."""
    for when in (1.2e-3, 2.2e-3, 6.1e-3):
        network = collective("hashed", {"racks": 2}, faults=Faults(**SLOW, restarts=(when,)))
        assert network.all_reduce(gradients())[1].exact
        assert network.plan.job.epoch == 0


def test_hashed_aggregators_of_an_epoch_before_are_taken_over():
    network = collective("hashed", {})
    keys = network.network.switches["s1"].registers["aggregators.key"]
    keys[:] = 1 << 48 | 7 << 32 | 5  # of the same job, and of an epoch that is no more
    assert network.all_reduce(gradients())[1].exact
    counters = network.network.switches["s1"].counters
    assert counters["HashedIngress.collided"].packets[0] == 0
