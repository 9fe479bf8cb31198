"""Workers that die, leave and come back, switches that forget, sums that overflow: never wrong."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiers import tiered

from innet import Collective
from innet.core.errors import GradientError, InputError, StalledError, StateError
from innet.network import Faults, Outage
from innet.protocol import Timing
from innet.topology.tree import TreeAggregation

WORKERS = 3
SIZE = 32 * 40
SLOW = {"delay": 1e-3, "tick": 1e-4}  # a round trip takes 2 ms, so that there are phases to die in
WAIT = Timing(timeout=0.01, max_timeout=0.05, give_up=0.4)
GO_ON = Timing(timeout=0.01, max_timeout=0.05, give_up=0.4, partial_after=0.05)
# The handshake ends at 2 ms; then five windows of eight chunks follow.
PHASES = [0.0, 0.5e-3, 1.5e-3, 2.5e-3, 5e-3, 8.5e-3, 10.5e-3]


def gradients(workers: int = WORKERS, size: int = SIZE, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(workers)]


def collective(**arguments) -> Collective:
    given = {"workers": WORKERS, "values_per_packet": 32, "window": 8, "timing": WAIT}
    return Collective(**{**given, **arguments})


def assert_sum(total: np.ndarray, of: list[np.ndarray]) -> None:
    np.testing.assert_allclose(total, np.sum(of, axis=0, dtype=np.float64), atol=1e-5)


# ---------------------------------------------------------------- death


@pytest.mark.parametrize("victim", range(WORKERS))
@pytest.mark.parametrize("when", PHASES)
def test_whoever_dies_at_any_phase_is_named_in_time(victim: int, when: float) -> None:
    network = collective(faults=Faults(**SLOW, outages=(Outage(when, hosts=(victim + 1,)),)))
    with pytest.raises(StalledError, match=rf"worker {victim}\b"):
        network.all_reduce(gradients())
    assert network.network.now <= when + 1.0


@pytest.mark.repeats("the same with other codecs", but=["dense-*", "scalecom-*-0", "topk-0.0015-*"])
@pytest.mark.parametrize("victim", range(WORKERS))
@pytest.mark.parametrize(
    ("codec", "when"),
    # Top-k has fewer packets, and no more phases. ScaleCom's leader may be the one who dies.
    [
        *(("dense", when) for when in PHASES),
        *((codec, when) for codec in ("topk", "scalecom") for when in PHASES[:4]),
    ],
)
def test_the_others_go_on_without_whoever_dies(victim: int, when: float, codec: str) -> None:
    network = collective(
        codec=codec,
        timing=GO_ON,
        faults=Faults(**SLOW, outages=(Outage(when, hosts=(victim + 1,)),)),
    )
    inputs = gradients()
    others = [each for worker, each in enumerate(inputs) if worker != victim]
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert report.workers == WORKERS - 1
    assert report.details["without"] == [victim]
    assert network.present == tuple(worker for worker in range(WORKERS) if worker != victim)
    if codec == "dense":
        assert_sum(total, others)
    # The next one has nobody to wait for: it takes no longer than ten round trips.
    before = network.network.now
    _, report = network.all_reduce(inputs)
    assert report.exact
    assert "without" not in report.details
    assert network.network.now - before < 0.03


def test_nothing_is_lost_or_counted_twice_when_a_worker_is_left_out() -> None:
    """With error feedback everything is sent some time: also what the late worker had to say."""
    network = collective(
        codec="topk", timing=GO_ON, faults=Faults(**SLOW, outages=(Outage(1.5e-3, 0.5, (2,)),))
    )
    inputs = gradients()
    received, report = network.all_reduce(inputs)
    assert report.details["without"] == [1]
    network.network.now = 0.6  # it is back
    network.rejoin(1)
    zeros = [np.zeros(SIZE, np.float32)] * WORKERS
    for _ in range(120):
        total, report = network.all_reduce(zeros)
        assert report.exact
        received = received + total
    assert_sum(received, inputs)


def test_a_worker_that_is_cut_off_for_a_while_delays_the_others_only() -> None:
    network = collective(faults=Faults(**SLOW, outages=(Outage(3e-3, 0.3, (2,)),)))
    inputs = gradients()
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert report.retransmissions > 0
    assert_sum(total, inputs)


def test_a_partition_of_all_is_survived_or_named() -> None:
    inputs = gradients()
    network = collective(faults=Faults(**SLOW, outages=(Outage(3e-3, 0.3),)))
    assert_sum(network.all_reduce(inputs)[0], inputs)
    network = collective(faults=Faults(**SLOW, outages=(Outage(3e-3),)), timing=GO_ON)
    with pytest.raises(StalledError, match="job 1, epoch 0"):
        network.all_reduce(inputs)


# ---------------------------------------------------------------- coming and going


def test_workers_leave_and_come_back() -> None:
    network = collective(workers=4)
    inputs = gradients(4)
    for change, expected in (
        (None, (0, 1, 2, 3)),
        (("leave", 2), (0, 1, 3)),
        (("leave", 0), (1, 3)),
        (("rejoin", 2), (1, 2, 3)),
        (("leave", 3), (1, 2)),
        (("leave", 1), (2,)),
        (("rejoin", 0), (0, 2)),
    ):
        if change is not None:
            getattr(network, change[0])(change[1])
        assert network.present == expected
        total, report = network.all_reduce(inputs)
        assert report.exact
        assert report.workers == len(expected)
        assert_sum(total, [inputs[worker] for worker in expected])
        # Those who take part are enough.
        total, _ = network.all_reduce([inputs[worker] for worker in expected])
        assert_sum(total, [inputs[worker] for worker in expected])
    assert network.plan.job.epoch == 6


def test_those_who_take_part_lead_in_turn() -> None:
    """ScaleCom's leader is one of them, whoever has left; what nobody chose stays for later."""
    network = collective(workers=4, codec={"preset": "scalecom", "error_feedback": "residual"})
    inputs = gradients(4)
    chosen = [codec.selector.select for codec in network.codecs]
    held = [np.zeros(SIZE, np.float32) for _ in range(4)]
    leaders = []
    for change in (("leave", 0), None, ("leave", 2), None, ("rejoin", 0), None, ("rejoin", 2)):
        if change is not None:
            getattr(network, change[0])(change[1])
        for worker in network.present:
            held[worker] += inputs[worker]
        leader = network.present[len(leaders) % len(network.present)]
        leaders.append(leader)
        indices, _ = chosen[leader](held[leader])
        total, report = network.all_reduce(inputs)
        assert report.exact
        assert np.flatnonzero(total).tolist() == indices.tolist()
        for worker in network.present:
            held[worker][indices] = 0
    assert leaders == [1, 2, 1, 3, 1, 3, 2]


def test_who_cannot_leave_or_come_back() -> None:
    network = collective()
    with pytest.raises(InputError, match=r"there is no worker 3; they are 0 \.\. 2"):
        network.leave(3)
    with pytest.raises(StateError, match="worker 1 takes part already"):
        network.rejoin(1)
    network.leave(1)
    with pytest.raises(StateError, match="worker 1 has left already"):
        network.leave(1)
    network.leave(0)
    with pytest.raises(InputError, match="all workers of the job are absent"):
        network.leave(2)
    with pytest.raises(GradientError, match="2 gradients for 3 workers, 1 of them present"):
        network.all_reduce(gradients(2))
    assert network.all_reduce(gradients(1))[1].exact


# ---------------------------------------------------------------- switches that forget


@pytest.mark.parametrize("when", [0.0, 1.2e-3, 3.2e-3, 6.1e-3, 12.1e-3])
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("codec", tiered(["dense", "lhc"], ["dense"], "the same with dense"))
def test_a_switch_that_loses_its_registers_in_mid_round(
    when: float, loss: float, codec: str
) -> None:
    """With a second attempt it is exact; with one attempt it is exact, or says that it stalled."""
    faults = Faults(**SLOW, loss=loss, restarts=(when,))
    inputs = gradients()
    network = collective(codec=codec, faults=faults, attempts=2)
    total, report = network.all_reduce(inputs)
    assert report.exact
    assert_sum(total, inputs)
    network = collective(codec=codec, faults=faults)
    said = ""
    try:
        total, report = network.all_reduce(inputs)
    except StalledError as error:
        said = str(error)
        total, report = network.all_reduce(inputs)
    assert report.exact
    assert_sum(total, inputs)
    assert network.plan.job.epoch == bool(said)
    assert "job 1, epoch 0" in said or not said


def test_attempts_repeat_with_the_codecs_as_they_were() -> None:
    faults = Faults(**SLOW, loss=0.3, restarts=(1.3e-3, 3.3e-3, 5.3e-3))
    inputs = gradients()
    network = collective(codec="topk", faults=faults, attempts=5)
    undisturbed = collective(codec="topk")
    for _ in range(3):
        total, report = network.all_reduce(inputs)
        assert report.exact
        np.testing.assert_array_equal(total, undisturbed.all_reduce(inputs)[0])
    assert network.plan.job.epoch >= 1


def test_who_tries_again_and_again_finds_an_outage_over() -> None:
    timing = Timing(timeout=5e-3, max_timeout=0.05, give_up=0.2)
    faults = Faults(**SLOW, outages=(Outage(1.5e-3, 0.5, (2,)),))
    network = collective(timing=timing, attempts=3, faults=faults)
    total, report = network.all_reduce(gradients())
    assert report.exact
    assert_sum(total, gradients())
    assert (network.plan.job.epoch, network.plan.job.absent) == (2, frozenset())
    assert 0.5 <= network.network.now < 0.6


@pytest.mark.parametrize("attempts", [1, 2])
def test_where_all_are_late_for_some_sum_all_begin_again(attempts: int) -> None:
    faults = Faults(**SLOW, loss=0.2, outages=(Outage(2.5e-3, 57.5e-3),))
    network = collective(timing=GO_ON, attempts=attempts, faults=faults, seed=19)
    if attempts == 1:
        with pytest.raises(StalledError, match="each worker was late for some sum"):
            network.all_reduce(gradients())
    total, report = network.all_reduce(gradients())
    assert report.exact
    assert network.plan.job.epoch >= 1
    assert_sum(total, [gradients()[worker] for worker in network.present])


@pytest.mark.parametrize("codec", ["topk", "dgc", "scalecom", "qsgd", "powersgd", "sidco-p"])
def test_after_a_stall_the_same_gradients_can_be_given_again(codec: str) -> None:
    """What was held back of them in the attempt would be counted twice."""
    network = collective(codec=codec, faults=Faults(**SLOW, outages=(Outage(0.1, 0.5, (2,)),)))
    undisturbed = collective(codec=codec)
    first, second = gradients(), gradients(seed=1)
    np.testing.assert_array_equal(network.all_reduce(first)[0], undisturbed.all_reduce(first)[0])
    network.network.now = 0.1 - 2.5e-3  # what one round has told is used in the next
    with pytest.raises(StalledError):
        network.all_reduce(second)
    network.network.now = 0.6
    for _ in range(2):
        total, report = network.all_reduce(second)
        assert report.exact
        np.testing.assert_array_equal(total, undisturbed.all_reduce(second)[0])


def test_an_all_reduce_that_is_broken_off_leaves_the_codecs_as_they_were(monkeypatch) -> None:
    network = collective(codec="topk")
    network.all_reduce(gradients())
    before = [codec.state_dict()["parts"] for codec in network.codecs]

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(network.network, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        network.all_reduce(gradients(seed=1))
    for codec, state in zip(network.codecs, before, strict=True):
        held = codec.state_dict()["parts"]["error_feedback"]["residual"]
        np.testing.assert_array_equal(held, state["error_feedback"]["residual"])


def test_no_attempt_is_no_number_of_attempts(monkeypatch) -> None:
    monkeypatch.setattr(TreeAggregation, "has_partials", False)
    with pytest.raises(InputError, match="tree-32 gives no partial results"):
        collective(program="tree", timing=GO_ON)
    with pytest.raises(InputError, match="0 attempts"):
        collective(attempts=0)


# ---------------------------------------------------------------- sums that overflow


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("workers", [2, 5, 32])
def test_overflow_is_seen_and_the_round_repeated(workers: int, loss: float) -> None:
    codec = {"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}}
    faults = Faults(loss=loss) if loss else None
    network = collective(codec=codec, workers=workers, faults=faults)
    rng = np.random.default_rng(1)
    inputs = [np.abs(rng.standard_normal(100)).astype(np.float32) for _ in range(workers)]
    for sign in (1, -1):
        extremes = [sign * each for each in inputs]
        for each in extremes:
            each[7] = sign * np.float32(3e38) / workers
        total, report = network.all_reduce(extremes)
        assert report.exact
        assert report.details["overflows"] >= 1
        assert report.infinite == 0
        oracle = np.sum(extremes, axis=0, dtype=np.float64)
        np.testing.assert_allclose(total, oracle, rtol=1e-7, atol=3e38 * 2.0**-30 * workers)
    # Where sums cancel out nothing overflows, and steps are finer than those of fixed point.
    small = [np.float32((-1) ** i) * np.abs(inputs[0]) for i in range(workers)]
    exact = collective(codec="dense", workers=workers).all_reduce(small)[1]
    _, report = network.all_reduce(small)
    if not loss:
        assert "overflows" not in report.details
    assert report.exact
    assert report.max_abs_error_sent <= exact.max_abs_error_sent
