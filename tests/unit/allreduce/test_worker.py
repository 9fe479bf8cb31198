"""One worker per thread over UDP sockets of the loopback interface, against a collective."""

from __future__ import annotations

import concurrent.futures
import contextlib
import time

import numpy as np
import pytest
from support.tiers import tiered
from support.udp_switch import Leader, UdpSwitch, on_loopback

import innet
from innet.allreduce.worker import Worker, connect
from innet.codecs import SumOptions, build_codec
from innet.core.errors import GradientError, InputError, NetworkError, StalledError, StateError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.topology import Request, make_plan
from innet.transport.raw_host import RawTransport
from innet.transport.udp import UdpTransport
from innet.wire import Endpoint, PacketLayout

WORKERS = 2
CODECS = ("topk", "scalecom")
ORDINARY = ["dense", "topk", "scalecom"]
ANOTHER = "the same with another codec"
LOSSY = Faults(loss=0.1, duplicate=0.1, reorder=0.1, hold=1e-3, tick=1e-4)
QUICK = Timing(timeout=0.05, max_timeout=0.2, give_up=20.0)
# Long enough for a switch and workers that wait for a processor, since all of them must have been
# heard when somebody gives up.
IMPATIENT = Timing(timeout=0.02, max_timeout=0.1, give_up=2.0)


@pytest.fixture
def plan():
    return on_loopback(make_plan("slots", 32, Request(workers=WORKERS, window=16)))


def gradients(size=700):
    rng = np.random.default_rng(1)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(WORKERS)]


@contextlib.contextmanager
def workers(plan, codec, **options):
    with contextlib.ExitStack() as stack:
        made = []
        for worker in range(WORKERS):
            transport = stack.enter_context(connect(plan, worker))
            made.append(Worker(plan, worker, codec=codec, transport=transport, seed=3, **options))
        yield made


def all_reduce(pair, given):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return list(pool.map(lambda each, x: each.all_reduce(x), pair, given))


@pytest.mark.parametrize("keep", [True, False])
def test_integers_of_dense_sums_are_kept_on_request(plan, keep):
    given = gradients()
    with UdpSwitch(plan), workers(plan, "dense", keep_integers=keep) as pair:
        results = all_reduce(pair, given)
    expected, _ = innet.all_reduce(given, values_per_packet=32, seed=3)
    for total, _ in results:
        np.testing.assert_array_equal(total, expected)
    for worker in pair:
        if not keep:
            with pytest.raises(StateError, match=r"not kept.*Worker\(keep_integers=True\)"):
                _ = worker.outcome.integer_sum
            continue
        own = [each.outcome.contribution.integers for each in pair]
        np.testing.assert_array_equal(worker.outcome.integer_sum, own[0] + own[1])


OVERWRITTEN = {"dense": True, "lhc": False, "topk": True, "powersgd": False}


@pytest.mark.parametrize(
    ("factor", "codec"),
    tiered(
        [(factor, codec) for factor in (0.5, 1 / 3) for codec in OVERWRITTEN],
        [(0.5, "topk"), (0.5, "powersgd"), (1 / 3, "dense")],
        "the same with another codec that is not multiplied on the way",
    ),
)
def test_means_over_the_gradients_have_the_same_bits(plan, codec, factor):
    """What may be done on the way is done for dense sums with powers of two, even if packets are
    sent again, and where a sum is decoded from few elements; the caller learns what is left to do.
    """
    given = gradients()
    expected, _ = innet.Collective(workers=WORKERS, codec=codec, seed=3).all_reduce(given)
    with UdpSwitch(plan), workers(plan, codec, faults=LOSSY, timing=QUICK) as pair:
        options = [
            SumOptions(worker.codec.examine(x)[0], factor=factor, overwrite=True)
            for worker, x in zip(pair, given, strict=True)
        ]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = list(
                pool.map(lambda each, *given: each.all_reduce_floats(*given), pair, given, options)
            )
    fresh = gradients()
    for (outcome, _), mine, unchanged in zip(results, given, fresh, strict=True):
        total = outcome.sum
        multiplied = OVERWRITTEN[codec] and (factor == 0.5 or codec == "topk")
        assert outcome.factor_left == (1 if multiplied else factor)
        assert np.shares_memory(total, mine) is OVERWRITTEN[codec]
        if not OVERWRITTEN[codec]:
            np.testing.assert_array_equal(mine, unchanged)
        left = np.float32(outcome.factor_left)
        np.testing.assert_array_equal(total * left, expected * np.float32(factor))


def test_each_outcome_says_what_is_left_to_do(plan):
    given = gradients()
    topk = [build_codec("topk", seed=3, worker=worker) for worker in range(WORKERS)]
    options = SumOptions(factor=0.5)
    with (
        UdpSwitch(plan),
        workers(plan, "dense") as pair,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        for codecs, done in (((None, None), True), (topk, False), ((None, None), True)):
            results = list(
                pool.map(
                    lambda each, x, codec: each.all_reduce_floats(x, options, codec=codec),
                    pair, given, codecs,
                )
            )  # fmt: skip
            left = 1 if done else 0.5
            assert [outcome.factor_left for outcome, _ in results] == [left] * WORKERS


def test_options_that_are_none_are_refused(plan):
    given = gradients()[0]
    broken = np.full(700, np.nan, np.float32)
    with workers(plan, "dense") as (one, _):
        for stats in (one.codec.examine(given), one.codec.examine(broken)[0], "stats"):
            with pytest.raises(InputError, match="give the first of what Codec"):
                one.all_reduce_floats(given, SumOptions(stats))
        for factor in ("0.5", None):
            with pytest.raises(InputError, match="give a number"):
                one.all_reduce_floats(given, SumOptions(factor=factor))
        for options in (0.5, None):
            with pytest.raises(InputError, match=r"give an innet\.codecs\.SumOptions"):
                one.all_reduce_floats(given, options)
        assert one._end.counters.sent == 0
        one._check_sound()


def test_what_may_be_needed_again_is_not_overwritten(plan):
    """A worker with ``renew`` may have to repeat the all-reduce, and a round that overflows is
    repeated by the codec.
    """
    optimistic = {"preset": "dense", "quantizer": {"name": "optimistic", "headroom": 1}}
    for codec, options in (("dense", {"renew": lambda _: plan}), (optimistic, {})):
        given = [np.full(700, 3, np.float32), np.full(700, 2, np.float32)]
        with (
            UdpSwitch(plan),
            workers(plan, codec, **options) as pair,
            concurrent.futures.ThreadPoolExecutor() as pool,
        ):
            results = list(
                pool.map(
                    lambda each, x: each.all_reduce_floats(
                        x, SumOptions(factor=0.5, overwrite=True)
                    ),
                    pair,
                    given,
                )
            )
        for outcome, report in results:
            np.testing.assert_allclose(outcome.sum * outcome.factor_left, 2.5, rtol=1e-6)
            assert report.details.get("overflows") == (1 if codec is optimistic else None)
        if options:
            assert [x.tolist() for x in given] == [[3] * 700, [2] * 700]


@pytest.mark.parametrize(
    ("codec", "faults"),
    tiered(
        [(codec, faults) for codec in ("dense", "lhc", "scalecom") for faults in (None, LOSSY)],
        [("dense", None), ("scalecom", LOSSY)],
        "the same with another codec, with faults or without",
    ),
    ids=lambda value: {None: "clean", LOSSY: "lossy"}.get(value, value),
)
def test_equal_to_the_collective_bit_for_bit(plan, codec, faults):
    reference = innet.Collective(
        workers=WORKERS, codec=codec, values_per_packet=32, engine="interpret", seed=3
    )
    with (
        UdpSwitch(plan) as network,
        workers(plan, codec, faults=faults, timing=QUICK) as pair,
    ):
        received = 0
        for _ in range(2):  # the second has what the codecs held back
            expected, in_memory = reference.all_reduce(gradients())
            results = all_reduce(pair, gradients())
            received += sum(report.packets_received for _, report in results)
            for total, report in results:
                np.testing.assert_array_equal(total, expected)
                assert report.rounds == in_memory.rounds
                assert report.bytes_sent == report.packets_sent * plan.layout.frame_size
                assert report.transport == ("udp" if faults is None else "udp with faults")
                assert report.seconds.total >= report.seconds.network > 0
        sent = sum(report.packets_sent for _, report in results)
        again = sum(report.retransmissions for _, report in results)
        assert sent - again == in_memory.packets_sent
        assert received == sum(each._end.counters.received for each in pair)
        if faults is not None:
            assert again > 0
        assert network.switch.statistics.packets_in > 0


def test_who_is_missing_is_named(plan):
    with UdpSwitch(plan) as network, workers(plan, "dense", timing=IMPATIENT) as pair:
        with pytest.raises(StalledError, match="worker 0 of 2"):
            pair[0].all_reduce(gradients()[0])
        registers = network.switch.registers
        said = pair[0].diagnose(lambda switch, name, index: int(registers[name][index]))
        assert said is not None
        assert "waits for worker 1" in said
        with pytest.raises(StateError, match="half-way"):
            pair[0].all_reduce(gradients()[0])


# ---------------------------------------------------------------- going on after a failure

GOING_ON = Timing(timeout=0.02, max_timeout=0.1, give_up=10.0, partial_after=2.0)


@pytest.mark.parametrize("codec", tiered(ORDINARY, ["topk"], ANOTHER))
def test_the_others_go_on_without_whoever_is_late(codec):
    """As a collective does: the same sums, the same workers left out, and no gradient lost."""
    plan = on_loopback(make_plan("slots", 32, Request(workers=3, window=16)))
    rng = np.random.default_rng(2)
    given = [rng.laplace(size=300).astype(np.float32) for _ in range(3)]
    reference = innet.Collective(workers=3, codec=codec, values_per_packet=32, seed=3)
    expected = [reference.all_reduce(given)[0]]
    reference.leave(1)
    expected += [reference.all_reduce(given)[0] for _ in range(2)]
    with UdpSwitch(plan) as network, contextlib.ExitStack() as stack:
        leader = Leader(network)
        made = [
            Worker(
                plan,
                worker,
                codec=codec,
                transport=stack.enter_context(connect(plan, worker)),
                timing=GOING_ON,
                seed=3,
                renew=leader.renew,
            )
            for worker in range(3)
        ]
        for total, _ in all_reduce(made, given):
            np.testing.assert_array_equal(total, expected[0])
        others = [made[0], made[2]]  # worker 1 has died
        for number in (1, 2):
            for total, report in all_reduce(others, [given[0], given[2]]):
                np.testing.assert_array_equal(total, expected[number])
                assert report.workers == 2
                assert report.details.get("without") == ([1] if number == 1 else None)
        assert {each.plan.job.epoch for each in others} == {1}
        with pytest.raises(InputError, match="worker 1 is absent"):
            made[1].begin_epoch(others[0].plan)


def test_a_stall_is_tried_again_under_the_next_epoch(plan):
    """The switch loses its registers when one worker has its result and the other has not."""
    with UdpSwitch(plan) as network, workers(plan, "dense", timing=IMPATIENT) as pair:
        expected = all_reduce(pair, gradients())[0][0]
        with pytest.raises(StalledError):  # the other one is not there
            pair[0].all_reduce(gradients()[0])
        following = network.next_epoch(frozenset())
        for each in pair:
            each.begin_epoch(following)
        for total, _ in all_reduce(pair, gradients()):
            np.testing.assert_array_equal(total, expected)
    with UdpSwitch(plan) as network:
        leader = Leader(network)
        options = {"timing": IMPATIENT, "renew": leader.renew, "attempts": 2}
        with workers(plan, "dense", **options) as pair:
            network.switch.registers["SlotsIngress.pool.chunk"][:] = 1 << 48
            network.switch.command("table_clear SlotsIngress.admission.admission")
            for total, _ in all_reduce(pair, gradients()):
                np.testing.assert_array_equal(total, expected)
            assert pair[0].plan.job.epoch == 1


def test_it_is_tried_no_more_often_than_asked(plan):
    asked = []

    def renew(late):
        asked.append(late)
        assert len(asked) < 3
        return plan

    hasty = Timing(timeout=0.02, max_timeout=0.1, give_up=0.1)
    options = {"timing": hasty, "renew": renew, "attempts": 3}
    with UdpSwitch(plan), workers(plan, "dense", **options) as pair:
        with pytest.raises(StalledError, match="worker 0 of 2"):
            pair[0].all_reduce(gradients()[0])
        assert asked == [(), ()]


def test_workers_at_different_all_reduces_get_no_sum_from_each_other(plan):
    """One has completed an all-reduce that the other has not, and an epoch begins for both."""
    with UdpSwitch(plan) as network, workers(plan, "dense", timing=IMPATIENT) as pair:
        all_reduce(pair, gradients())
        following = network.next_epoch(frozenset())
        restarted = Worker(
            plan, 1, codec="dense", transport=pair[1]._transport, seed=3, timing=IMPATIENT
        )
        for each in (pair[0], restarted):
            each.begin_epoch(following)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            tries = [pool.submit(each.all_reduce, gradients()[0]) for each in (pair[0], restarted)]
            assert all(isinstance(each.exception(), StalledError) for each in tries)
        refused = network.switch.counters["SlotsIngress.dropped"].packets
        assert refused[8] > 0  # they disagree


def test_who_may_not_go_on(plan):
    for attempts in (0, 2):
        with pytest.raises(InputError, match=f"{attempts} attempts"):
            Worker(plan, 0, codec="dense", transport=None, attempts=attempts)
    for worker, attempts in (("0", 1), (0, "1"), (True, 1)):
        with pytest.raises(InputError, match="give an integer"):
            Worker(plan, worker, codec="dense", transport=None, attempts=attempts)
    hasty = Timing(timeout=0.02, max_timeout=0.1, give_up=20.0, partial_after=0.1)
    with UdpSwitch(plan), workers(plan, "dense", timing=hasty) as pair:
        with pytest.raises(StalledError, match="lack the workers 1, who were late"):
            pair[0].all_reduce(gradients()[0])
        with pytest.raises(StalledError, match="the others went on without worker 1"):
            pair[1].all_reduce(gradients()[1])


def test_one_worker_reduces_tensors_with_codecs_of_their_own(plan):
    both = {name: [build_codec(name, seed=3, worker=w) for w in range(WORKERS)] for name in CODECS}
    references = {
        name: innet.Collective(
            workers=WORKERS, codec=name, values_per_packet=32, engine="interpret", seed=3
        )
        for name in CODECS
    }
    sizes = {"topk": 300, "scalecom": 500}
    with UdpSwitch(plan), workers(plan, "dense", timing=QUICK) as pair:
        for _ in range(2):
            for name in CODECS:
                given = gradients(sizes[name])
                expected, _ = references[name].all_reduce(given)
                with concurrent.futures.ThreadPoolExecutor() as pool:
                    found = list(
                        pool.map(
                            lambda each, x, codec: each.all_reduce(x, codec=codec),
                            pair, given, both[name],
                        )
                    )  # fmt: skip
                for total, report in found:
                    np.testing.assert_array_equal(total, expected)
                    assert report.codec == both[name][0].describe()


def test_an_all_reduce_is_not_harmed_by_one_of_another_thread(plan):
    given = gradients()
    expected, _ = innet.Collective(workers=WORKERS, values_per_packet=32, seed=3).all_reduce(given)
    words = [Segment(ReduceOp.OR, np.zeros(1, np.int32))]
    with (
        UdpSwitch(plan),
        workers(plan, "dense", timing=QUICK) as pair,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(pair[0].all_reduce, given[0])
        until = time.monotonic() + 30.0
        while pair[0]._end.counters.sent == 0 and time.monotonic() < until:
            time.sleep(0.001)
        with pytest.raises(StateError, match="worker 0 is under way, in another thread"):
            pair[0].all_reduce(given[0], codec=build_codec("dense", seed=3))
        with pytest.raises(StateError, match="worker 0 is under way, in another thread"):
            pair[0].combine(words)
        second, _ = pair[1].all_reduce(given[1])
        np.testing.assert_array_equal(first.result()[0], expected)
        np.testing.assert_array_equal(second, expected)
        all_reduce(pair, given)  # nothing is broken


def test_rounds_without_a_codec(plan):
    with UdpSwitch(plan), workers(plan, "dense", timing=QUICK) as pair:
        segments = [[Segment(ReduceOp.OR, np.array([1 << w, 4], np.int32))] for w in range(WORKERS)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda each, words: each.combine(words), pair, segments))
        for (words,) in found:
            assert words.tolist() == [3, 4]
        all_reduce(pair, gradients())  # the workers still agree


def test_a_round_that_stalled_is_the_end_of_the_epoch(plan):
    with UdpSwitch(plan), workers(plan, "dense", timing=IMPATIENT) as pair:
        words = [Segment(ReduceOp.OR, np.zeros(1, np.int32))]
        with pytest.raises(StalledError, match="worker 0 of 2"):
            pair[0].combine(words)
        with pytest.raises(StateError, match="half-way"):
            pair[0].combine(words)


def test_gradients_are_checked(plan):
    with workers(plan, "dense") as pair:
        with pytest.raises(GradientError, match="float32"):
            pair[0].all_reduce(np.zeros(3))
        with pytest.raises(GradientError, match="worker 0 is a masked array"):
            pair[0].all_reduce(np.ma.zeros(3, np.float32))
        with pytest.raises(GradientError, match="worker 1"):
            pair[1].all_reduce(np.array([np.nan], np.float32))


@pytest.mark.parametrize("codec", tiered(ORDINARY, ["topk"], ANOTHER))
def test_a_gradient_that_is_refused_is_as_if_it_had_not_been_given(plan, codec):
    reference = innet.Collective(workers=WORKERS, codec=codec, values_per_packet=32, seed=3)
    bad = gradients()[1]
    bad[7] = np.nan
    with UdpSwitch(plan), workers(plan, codec, timing=QUICK) as pair:
        for _ in range(2):
            with pytest.raises(GradientError, match="worker 1 is nan at index 7"):
                pair[1].all_reduce(bad)
            expected, _ = reference.all_reduce(gradients())
            for total, _ in all_reduce(pair, gradients()):
                np.testing.assert_array_equal(total, expected)


def test_a_gradient_of_another_size_is_as_if_it_had_not_been_given(plan):
    reference = innet.Collective(workers=WORKERS, codec="topk", values_per_packet=32, seed=3)
    with UdpSwitch(plan), workers(plan, "topk", timing=QUICK) as pair:
        for _ in range(2):
            expected, _ = reference.all_reduce(gradients())
            for total, _ in all_reduce(pair, gradients()):
                np.testing.assert_array_equal(total, expected)
            with pytest.raises(StateError, match="has 700 elements, the gradient 701"):
                pair[1].all_reduce(gradients(701)[1])


def test_an_address_of_another_machine_is_refused():
    plan = make_plan("slots", 32, Request(workers=2))
    with pytest.raises(NetworkError, match=r"10\.0\.0\.1, UDP port 48879"):
        connect(plan, 0)


@pytest.mark.parametrize("worker", [-1, 2])
def test_nobody_connects_for_a_worker_who_is_not_there(plan, worker):
    with pytest.raises(InputError, match=f"no worker {worker}; the job has 2"):
        connect(plan, worker)


def test_a_port_in_use_is_refused(plan):
    with connect(plan, 0), pytest.raises(NetworkError, match="Address already in use"):
        connect(plan, 0)


def test_what_cannot_be_connected():
    here = Endpoint("02:00:00:00:00:01", "127.0.0.1", 40000)
    with pytest.raises(InputError, match="framing 'raw'"):
        UdpTransport(here, here, PacketLayout(32, "raw"))
    raw = make_plan("slots", 32, Request(workers=2, framing="raw"))
    with pytest.raises(InputError, match="needs an interface"):
        connect(raw, 0)
    with pytest.raises(NetworkError, match="nowhere0"):
        RawTransport("nowhere0")
    with pytest.raises(InputError, match="no worker 2"):
        Worker(raw, 2, codec="dense", transport=None)
