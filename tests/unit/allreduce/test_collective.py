"""all_reduce through codec, protocol, P4 program and back, against integer oracles."""

from __future__ import annotations

import concurrent.futures
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

import innet
from innet.allreduce.collective import Collective, all_reduce
from innet.core.errors import (
    GradientError,
    InputError,
    StalledError,
    StateError,
    UnknownNameError,
)
from innet.network import Faults
from innet.protocol import Timing

CODECS = ["dense", "lhc", "topk"]


def gradients(workers, size, density=1.0, seed=0):
    rng = np.random.default_rng(seed)
    tensors = rng.standard_normal((workers, size), np.float32)
    tensors[rng.random((workers, size)) >= density] = 0
    return list(tensors)


def rounding(exact, workers, largest):
    """How far a decoded sum may lie from the exact one, for each element.

    Every worker rounds once, by half a step of max · N / (2**31 - 1), and the result once.
    """
    return workers * 0.5 * largest * workers / (2**31 - 1 - workers) + np.abs(exact) * 2.0**-24


@pytest.mark.parametrize("codec", ["dense", "lhc"])
@pytest.mark.parametrize("workers", [1, 2, 3, 8, 32])
def test_lossless_codecs_give_the_sum(codec, workers):
    inputs = gradients(workers, 5000, 0.02)
    total, report = all_reduce(inputs, codec=codec)
    assert report.exact
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    largest = max(np.abs(each).max() for each in inputs)
    assert (np.abs(total - exact) <= rounding(exact, workers, largest)).all()
    assert report.workers == workers
    assert report.max_abs_error == report.max_abs_error_sent


@settings(max_examples=examples(40))
@given(
    workers=st.integers(1, 32),
    size=st.one_of(st.integers(0, 70), st.integers(1000, 1100), st.integers(0, 20_000)),
    density=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    codec=st.sampled_from(CODECS),
    values=st.sampled_from([32, 64, 256]),
    window=st.sampled_from([None, 32]),
    seed=st.integers(0, 2**16),
)
def test_any_size_is_exact(workers, size, density, codec, values, window, seed):
    inputs = gradients(workers, size, density, seed)
    total, report = all_reduce(inputs, codec=codec, values_per_packet=values, window=window)
    assert report.exact
    assert report.workers == workers
    assert total.shape == (size,)
    assert total.dtype == np.float32
    if codec != "topk":
        exact = np.sum(inputs, axis=0, dtype=np.float64)
        largest = max(np.abs(each).max(initial=0) for each in inputs)
        assert (np.abs(total - exact) <= rounding(exact, workers, largest)).all()


@settings(max_examples=12)
@given(
    workers=st.integers(1, 9),
    size=st.one_of(st.integers(0, 70), st.integers(1000, 1100)),
    codec=st.sampled_from(CODECS),
    seed=st.integers(0, 2**16),
)
def test_any_size_is_exact_when_interpreted(workers, size, codec, seed):
    inputs = gradients(workers, size, 0.3, seed)
    _, report = all_reduce(inputs, codec=codec, values_per_packet=32, engine="interpret")
    assert report.exact


@pytest.mark.parametrize("codec", CODECS)
def test_engines_agree(codec):
    inputs = gradients(3, 3000, 0.05)
    by_jit, fast = all_reduce(inputs, codec=codec, engine="jit")
    by_interpreter, slow = all_reduce(inputs, codec=codec, engine="interpret")
    assert by_jit.tobytes() == by_interpreter.tobytes()
    assert (fast.packets_sent, fast.bytes_sent) == (slow.packets_sent, slow.bytes_sent)


@pytest.mark.repeats("the same with other sizes", but=["*-32", "*-256"])
@pytest.mark.parametrize("values", [32, 64, 256, 1024])
@pytest.mark.parametrize("framing", ["udp", "raw"])
def test_packet_sizes_and_framings(values, framing):
    inputs = gradients(2, 2000)
    # To compile the largest program takes longest, and test_golden.py does so in the second tier.
    engine = "interpret" if values == 1024 else "jit"
    _, report = all_reduce(inputs, values_per_packet=values, framing=framing, engine=engine)
    assert report.exact
    frame = (42 if framing == "udp" else 14) + 32 + 4 * values
    assert report.values_per_packet == values
    assert report.bytes_sent == report.packets_sent // 2 * frame
    assert report.bytes_dense == -(-2000 // values) * frame


def test_shape_is_kept_and_inputs_are_not_modified():
    inputs = [each.reshape(4, 5, 6) for each in gradients(3, 120)]
    before = [each.copy() for each in inputs]
    total, _ = all_reduce([np.asfortranarray(each) for each in inputs], codec="topk")
    assert total.shape == (4, 5, 6)
    for each, copy in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(each, copy)


@pytest.mark.parametrize("codec", CODECS)
def test_loss_duplication_and_reordering_change_nothing(codec):
    inputs = gradients(4, 20_000, 0.05)
    calm, report = all_reduce(inputs, codec=codec, window=64)
    faults = Faults(loss=0.05, duplicate=0.1, reorder=0.2, delay=1e-4, hold=0.02)
    stormy, faulty = all_reduce(
        inputs, codec=codec, window=64, faults=faults, timing=Timing(timeout=2e-3), seed=3
    )
    again, _ = all_reduce(
        inputs, codec=codec, window=64, faults=faults, timing=Timing(timeout=2e-3), seed=3
    )
    assert faulty.exact
    assert faulty.retransmissions > 0 == report.retransmissions
    assert again.tobytes() == stormy.tobytes()
    if codec == "dense":  # the others hash by seed, which changes nothing either, but words
        assert stormy.tobytes() == calm.tobytes()


def test_many_all_reduces_on_one_switch():
    collective = Collective(workers=3, codec="dense", window=8)
    for seed in range(12):
        inputs = gradients(3, 100 + 67 * seed, seed=seed)
        total, report = collective.all_reduce(inputs)
        assert report.exact
        np.testing.assert_allclose(total, np.sum(inputs, axis=0), atol=1e-5)


def test_error_feedback_sends_everything_in_the_end():
    codec = {"preset": "topk", "selector": {"ratio": 0.1}}
    collective = Collective(workers=2, codec=codec)
    inputs = gradients(2, 500)
    received, report = collective.all_reduce(inputs)
    assert report.max_abs_error > 0.1 > report.max_abs_error_sent
    nothing = [np.zeros(500, np.float32)] * 2
    for _ in range(9):
        total, report = collective.all_reduce(nothing)
        assert report.exact
        received = received + total
    np.testing.assert_allclose(received, np.sum(inputs, axis=0), atol=1e-5)


def test_a_silent_worker_is_named():
    collective = Collective(workers=3, codec="dense", timing=Timing(give_up=0.5))
    dead = collective.network.workers[1]
    alive = dead.outgoing
    dead.outgoing = lambda now: alive(now)[:0]  # what it sends never leaves it
    with pytest.raises(StalledError, match="waits for worker 1"):
        collective.all_reduce(gradients(3, 100))
    # The next one is of the next epoch, with ends that know nothing of this.
    inputs = gradients(3, 100)
    total, report = collective.all_reduce(inputs)
    assert report.exact
    assert collective.plan.job.epoch == 1
    np.testing.assert_allclose(total, np.sum(inputs, axis=0), atol=1e-5)


def test_recorded_packets_are_all_that_passed():
    collective = Collective(workers=2, codec="dense")
    with collective.record_packets() as frames:
        _, report = collective.all_reduce(gradients(2, 1000))
    assert len(frames) == report.packets_sent + report.packets_received
    assert {port for _, port, _ in frames} == {1, 2}
    assert sum(len(data) for _, _, data in frames) == (
        (report.packets_sent + report.packets_received) * collective.layout.frame_size
    )


def test_packets_are_recorded_by_one_context_at_a_time():
    collective = Collective(workers=2, codec="dense")
    with collective.record_packets() as frames:
        with (
            pytest.raises(StateError, match="recorded already"),
            collective.record_packets(),
        ):
            pass
        _, report = collective.all_reduce(gradients(2, 100))
    assert len(frames) == report.packets_sent + report.packets_received
    with collective.record_packets() as again:
        collective.all_reduce(gradients(2, 100))
    assert len(again) == len(frames)


def test_report_counts():
    _, report = all_reduce(gradients(4, 6400), codec="dense")
    # One packet of each worker agrees on the scale, 100 of 64 values are summed.
    assert report.rounds == 2
    assert report.packets_received == report.packets_sent == report.switch_packets
    assert report.packets_sent == 4 * (1 + 100)
    assert report.compression == 100 / 101
    assert report.seconds.total >= report.seconds.network > 0


def test_each_report_is_of_its_own_all_reduce():
    network = Collective(workers=3, codec={"preset": "topk", "selector": {"k": 10}})
    job = list(np.eye(3, 1000, dtype=np.float32) + np.linspace(1, 2, 1000, dtype=np.float32))
    first, second = (network.all_reduce(job)[1] for _ in range(2))
    assert second.packets_received == second.packets_sent == second.switch_packets
    assert second.packets_sent <= first.packets_sent
    assert second.bytes_sent <= first.bytes_sent
    assert (
        (first.rounds, first.retransmissions) == (second.rounds, second.retransmissions) == (2, 0)
    )
    assert first.selected == second.selected == 30
    assert 10 <= first.union <= 30


def test_without_verification_nothing_is_claimed():
    _, report = all_reduce(gradients(2, 100), verify=False)
    assert report.exact is None
    assert report.max_abs_error is None


def test_sums_beyond_float32_are_counted():
    largest = np.finfo(np.float32).max
    inputs = [np.array([largest, 1, largest, -largest], np.float32)] * 2
    inputs[1] = np.array([largest, 1, -largest, -largest], np.float32)
    total, report = all_reduce(inputs)
    assert np.isinf(total).tolist() == [True, False, False, True]
    assert report.exact
    assert report.infinite == 2
    assert all_reduce(gradients(2, 10))[1].infinite == 0


class TestRefusalsLeaveAllAsItWas:
    """A worker that cannot take part must not cost the others their gradients."""

    def states(self, collective):
        return [
            codec.state_dict()["parts"]["error_feedback"]["residual"] for codec in collective.codecs
        ]

    def after_refusal(self, collective, inputs, error, match):
        before = self.states(collective)
        sent = [end.counters.sent for end in collective.network.workers]
        with pytest.raises(error, match=match):
            collective.all_reduce(inputs)
        for one, other in zip(before, self.states(collective), strict=True):
            np.testing.assert_array_equal(one, other)
        assert sent == [end.counters.sent for end in collective.network.workers]
        size = len(before[0])
        _, report = collective.all_reduce([np.zeros(size, np.float32)] * 3)
        assert report.exact

    def test_another_shape(self):
        collective = Collective(workers=3, codec="topk")
        collective.all_reduce(gradients(3, 500))
        self.after_refusal(collective, gradients(3, 400), StateError, "500 elements.*400")

    def test_residual_of_the_last_worker_overflows(self):
        collective = Collective(workers=3, codec={"preset": "topk", "selector": {"k": 1}})
        inputs = gradients(3, 4)
        inputs[2] = np.array([3e38, 1, 2e38, 0], np.float32)
        collective.all_reduce(inputs)
        self.after_refusal(collective, inputs, GradientError, r"worker 2 .*index 2 ")

    def test_state_of_the_last_worker_is_of_another_layout(self):
        collective = Collective(workers=3, codec="topk")
        collective.all_reduce(gradients(3, 500))
        state = collective.codecs[2].state_dict()
        other = collective.codecs[2].state_dict()
        other["parts"]["error_feedback"]["residual"] = np.ones(7, np.float32)
        collective.codecs[2].load_state_dict(other)
        before = self.states(collective)[:2]
        with pytest.raises(StateError, match="worker 2 has 7 elements"):
            collective.all_reduce(gradients(3, 500))
        for one, now in zip(before, self.states(collective), strict=False):
            np.testing.assert_array_equal(one, now)
        collective.codecs[2].load_state_dict(state)
        assert collective.all_reduce(gradients(3, 500))[1].exact


def test_a_generator_of_gradients_is_taken():
    inputs = gradients(3, 50)
    expected, _ = all_reduce(inputs)
    total, report = all_reduce(each for each in inputs)
    assert report.workers == 3
    assert total.tobytes() == expected.tobytes()
    total, _ = Collective(workers=3).all_reduce(iter(inputs))
    assert total.tobytes() == expected.tobytes()


class TestBadInput:
    @pytest.mark.parametrize("wrong", [None, 3, np.float32(1), np.array(1, np.float32)])
    def test_no_list(self, wrong):
        with pytest.raises(GradientError, match="pass a list with one NumPy array for each"):
            all_reduce(wrong)
        with pytest.raises(GradientError, match="pass a list with one NumPy array for each"):
            Collective(workers=2).all_reduce(wrong)

    @pytest.mark.parametrize("wrong", ["4", 2.5, 2.0, None, True])
    def test_workers_are_an_integer(self, wrong):
        with pytest.raises(InputError, match=r"number of workers is .*give an integer"):
            Collective(workers=wrong)

    @pytest.mark.parametrize("wrong", [1.0, "8", True])
    def test_window_is_an_integer(self, wrong):
        with pytest.raises(InputError, match=r"window is .*give an integer"):
            Collective(window=wrong)

    @pytest.mark.parametrize("wrong", [1.5, None, "0", False])
    def test_seed_is_an_integer(self, wrong):
        with pytest.raises(InputError, match=r"seed is .*give an integer"):
            Collective(seed=wrong)

    def test_numpy_integers_are_integers(self):
        collective = Collective(workers=np.int64(2), window=np.uint8(8), seed=np.int32(1))
        assert collective.all_reduce(gradients(2, 10))[1].exact

    def test_no_gradients(self):
        with pytest.raises(InputError, match="at least one worker"):
            all_reduce([])

    def test_too_many_workers(self):
        with pytest.raises(InputError, match=r"33 workers; slots-64 takes 1 to 32"):
            all_reduce(gradients(33, 4), program="slots")

    def test_zero_workers(self):
        with pytest.raises(InputError, match="0 workers"):
            Collective(workers=0)

    def test_number_of_gradients(self):
        with pytest.raises(GradientError, match="2 gradients for 4 workers"):
            Collective(workers=4).all_reduce(gradients(2, 4))

    def test_dtype(self):
        inputs = gradients(3, 4)
        inputs[1] = inputs[1].astype(np.float64)
        with pytest.raises(GradientError, match=r"worker 1 is float64, not float32.*astype"):
            all_reduce(inputs)

    def test_no_array(self):
        with pytest.raises(GradientError, match="worker 0 is a list"):
            all_reduce([[1.0, 2.0]])

    def test_what_a_mask_hides_is_not_summed(self):
        with pytest.raises(GradientError, match="worker 0 is a masked array"):
            all_reduce(np.ma.masked_less(np.stack(gradients(2, 4)), 0))

    def test_shape(self):
        inputs = [np.zeros(4, np.float32), np.zeros(5, np.float32)]
        with pytest.raises(GradientError, match=r"worker 1 has shape \(5,\), that of worker 0"):
            all_reduce(inputs)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_not_finite(self, value):
        inputs = gradients(3, 40)
        inputs[2][17] = value
        with pytest.raises(GradientError, match=r"worker 2.*17"):
            all_reduce(inputs)

    def test_a_refused_gradient_changes_nothing(self):
        collective = Collective(workers=2, codec="topk")
        wrong = gradients(2, 40)
        wrong[1][0] = np.nan
        with pytest.raises(GradientError):
            collective.all_reduce(wrong)
        _, report = collective.all_reduce(gradients(2, 400))
        assert report.exact

    def test_codec(self):
        with pytest.raises(UnknownNameError, match=r"Did you mean 'dense'.*Known.*exact"):
            all_reduce(gradients(2, 4), codec="dnese")

    def test_program(self):
        with pytest.raises(UnknownNameError, match=r"Did you mean .slots.*Known: .*hashed"):
            all_reduce(gradients(2, 4), program="slotz")

    def test_engine(self):
        with pytest.raises(UnknownNameError, match="interpret, jit"):
            all_reduce(gradients(2, 4), engine="turbo")

    def test_values_per_packet(self):
        with pytest.raises(InputError, match="compiled for 32, 64, 256, 1024"):
            all_reduce(gradients(2, 4), values_per_packet=65)

        with pytest.raises(InputError, match="not for '64'"):
            all_reduce(gradients(2, 4), values_per_packet="64")

    @pytest.mark.parametrize(
        ("wrong", "remedy"),
        [
            ({"faults": {"loss": 0.1}}, r"faults is \{'loss': 0.1\}; give innet.network.Faults"),
            ({"faults": 0.1}, "faults is 0.1; give innet.network.Faults"),
            ({"timing": 1.0}, "timing is 1.0; give innet.protocol.Timing"),
            ({"program": 3}, "unknown program 3. Known: adaptive-tree"),
            ({"engine": None}, "unknown switch engine None. Known: interpret"),
            ({"layers": 1000}, "the layers are 1000; give a list with the shape of each"),
        ],
    )
    def test_arguments_of_another_type(self, wrong, remedy):
        with pytest.raises(InputError, match=remedy):
            Collective(workers=2, **wrong)

    @pytest.mark.parametrize("wrong", ["4", 2.5, True])
    def test_how_many_packets_are_recorded(self, wrong):
        recording = Collective(workers=2).record_packets(wrong)
        with pytest.raises(InputError, match=r"limit of packets is .*give an integer"), recording:
            pass

    @pytest.mark.parametrize(
        ("window", "remedy"),
        [(0, "has 1024 slots"), (3, "must be a power of two"), (2048, "has 1024 slots")],
    )
    def test_window(self, window, remedy):
        with pytest.raises(InputError, match=f"a window of {window}.*{remedy}"):
            all_reduce(gradients(2, 4), window=window)


def test_an_all_reduce_is_not_harmed_by_one_of_another_thread():
    gradients = [np.full(20_000, worker + 1, np.float32) for worker in range(2)]
    collective = Collective(workers=2, engine="interpret")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        first = pool.submit(collective.all_reduce, gradients)
        until = time.monotonic() + 30.0
        while collective.network.packets_in == 0 and time.monotonic() < until:
            time.sleep(0.001)
        with pytest.raises(StateError, match="this Collective is under way, in another thread"):
            collective.all_reduce(gradients)
        assert not first.done()
        total, report = first.result()
    assert report.exact
    np.testing.assert_array_equal(total, 3.0)
    collective.all_reduce(gradients)  # nothing is broken


def test_the_package_offers_it():
    assert innet.all_reduce is all_reduce
    assert innet.Collective is Collective
    with pytest.raises(AttributeError, match="nonsense"):
        _ = innet.nonsense
