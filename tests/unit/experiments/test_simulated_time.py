"""Trainings over simulated time: what an iteration takes, and rings as baselines."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.records import a_record, a_report, a_run
from support.summing import OracleSumming
from typer.testing import CliRunner

from innet.allreduce.collective import Collective
from innet.allreduce.loop import RoundResult
from innet.cli.app import app
from innet.core.errors import ConfigError, InnetError, InputError, StateError
from innet.core.settings import DemoSettings, TrainSettings
from innet.experiments import comparison, demo, simulated_time, train
from innet.experiments.ring_sums import ring_sum, to_bfloat16, to_float16
from innet.experiments.simulated_time import (
    NetworkCost,
    TimedNetwork,
    TimedRing,
    Timer,
    networks_of,
)
from innet.records import ACCURACY, PERPLEXITY, Run, SimulatedTime, Step, TrainingRecord
from innet.reports.plots import demo_figure, training_figure
from innet.reports.tables import Target, fastest, methods_of, simulated_table
from innet.scenarios.workload import Stragglers
from innet.sim import PRESETS, Network
from innet.sim.messages import ring_seconds
from innet.sim.network import is_steady

NOW = datetime(2030, 1, 2, tzinfo=UTC)
pytestmark = pytest.mark.xdist_group("simulated time")  # a training is made once
QUICK: dict[str, Any] = {"epochs": 1, "batch_size": 179, "workers": 2}


class TestTimer:
    def test_an_iteration_is_the_sum_of_its_parts(self) -> None:
        settings = TrainSettings(compute=1.0, encode_time=0.25, decode_time=0.5)
        timer = Timer(settings, 4, has_codec=True)
        first = timer.add(
            Step(iteration=1, loss=1), {"a": NetworkCost(8.0, lost=3), "b": NetworkCost(16.0)}
        )
        second = timer.add(
            Step(iteration=2, loss=1), {"a": NetworkCost(8.0, lost=4), "b": NetworkCost(16.0)}
        )
        assert first.simulated_seconds == {"a": 1 + 1 + 2 + 8, "b": 1 + 1 + 2 + 16}
        assert second.simulated_seconds == {"a": 24, "b": 40}
        times = timer.times["a"]
        assert (times.compute, times.encode, times.network, times.decode) == (2, 2, 16, 4)
        assert times.lost == 7

    def test_plain_sums_have_no_codec(self) -> None:
        settings = TrainSettings(compute=1.0)
        timer = Timer(settings, 10**9, has_codec=False)
        step = timer.add(Step(iteration=1, loss=1), {"a": NetworkCost(2.0)})
        assert step.simulated_seconds == {"a": 3}


class TestRings:
    def test_bfloat16_is_the_nearest_with_ties_to_even(self) -> None:
        bits = np.array([0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x7F7F_FFFF], np.uint32)
        found = to_bfloat16(bits.view(np.float32)).view(np.uint32)
        assert found.tolist() == [0x3F80_0000, 0x3F82_0000, 0x3F81_0000, 0x7F80_0000]
        special = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
        np.testing.assert_array_equal(to_bfloat16(special), special)

    def test_bfloat16_errs_by_half_a_unit_at_most(self) -> None:
        numbers = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
        found = to_bfloat16(numbers)
        assert not (found.view(np.uint32) & 0xFFFF).any()
        assert (np.abs(found - numbers) <= np.abs(numbers) * 2.0**-8).all()

    def test_float16_is_numpys(self) -> None:
        numbers = np.array([1.0005, 70_000.0, 1e-8], np.float32)
        assert to_float16(numbers).tolist() == [float(np.float16(1.0005)), np.inf, 0.0]

    @pytest.mark.parametrize("workers", [1, 2, 3, 5])
    @pytest.mark.parametrize("size", [2, 7, 100])
    def test_each_part_is_added_from_another_worker_on(self, workers: int, size: int) -> None:
        rng = np.random.default_rng(size)
        gradients = [rng.standard_normal(size).astype(np.float32) for _ in range(workers)]
        expected = np.zeros(size, np.float16)
        for first, rows in enumerate(np.array_split(np.arange(size), workers)):
            for row in rows:
                total = np.float16(gradients[first][row])
                for hop in range(1, workers):
                    more = np.float16(gradients[(first + hop) % workers][row])
                    # exact, then rounded once
                    exact = Fraction(float(total)) + Fraction(float(more))
                    total = np.float16(float(exact))
                expected[row] = total
        found = ring_sum(gradients, to_float16)
        np.testing.assert_array_equal(found, expected.astype(np.float32))

    @pytest.mark.parametrize("workers", [2, 4, 8])
    @pytest.mark.parametrize(("baseline", "width"), [("", 4), ("ring-float16", 2)])
    def test_times_are_near_the_closed_form(self, workers: int, baseline: str, width: int) -> None:
        """Answers take 6 % of the links, and the first windows of TCP some round trips."""
        settings = TrainSettings(networks=("1g", "10g"), workers=workers)
        found = TimedRing(settings, networks_of(settings), 50_000, baseline).take()
        for name, rate in (("1g", 1e9), ("10g", 10e9)):
            # 1,448 of 1,538 bytes are data; two links, a switch, and the last packet twice.
            latency = 2 * 500e-9 + 600e-9 + 2 * 12.5e-9 + 8 * 1538 / rate
            bound = ring_seconds(workers, 50_000 * width * 1538 / 1448, rate, latency)
            assert bound < found[name].seconds < 1.12 * bound

    def test_losses_are_drawn_for_each(self) -> None:
        settings = TrainSettings(networks=("10g:loss=0.01", "10g"))
        ring = TimedRing(settings, networks_of(settings), 50_000)
        found = [ring.take() for _ in range(4)]
        assert len({each["10g:loss=0.01"].seconds for each in found}) == 4
        assert len({each["10g"].seconds for each in found}) == 1
        assert sum(each["10g:loss=0.01"].retransmissions for each in found) > 0
        other = TimedRing(settings, networks_of(settings), 50_000)
        assert [other.take() for _ in range(4)] == found

    @pytest.mark.repeats("the times of rings, once more")
    def test_a_run_of_plain_sums_does_not_count_its_simulation(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """As its first one is compiled, which takes many times as long as all the run."""
        take = TimedRing.take

        def slow(ring: TimedRing, lossless: float = 1.0) -> dict[str, NetworkCost]:
            ring.took += 1000.0  # per iteration
            return take(ring, lossless)

        monkeypatch.setattr(TimedRing, "take", slow)
        record = demo.run(DemoSettings(iterations=2), tmp_path, created=NOW).record
        plain, *others = record.runs
        assert -2000 < plain.wall_seconds < -1900
        assert all(run.wall_seconds > 0 for run in others)

    def test_many_workers_are_in_racks(self) -> None:
        one_rack, two = (
            TimedRing(settings, networks_of(settings), 64).take()["10g"].seconds
            for settings in (
                TrainSettings(networks=("10g",), workers=32),
                TrainSettings(networks=("10g",), workers=64),
            )
        )
        # 126 steps instead of 62, and each chunk goes from rack to rack four times: two more links
        # and switches.
        expected = one_rack / 62 * 126 + 4 * 2 * (500e-9 + 600e-9)
        assert two == pytest.approx(expected, rel=0.01)

    def test_one_worker_sends_nothing(self) -> None:
        settings = TrainSettings(networks=("10g",), workers=1)
        assert TimedRing(settings, networks_of(settings), 50_000).take() == {"10g": NetworkCost()}


COMPARED = TrainSettings(
    codecs=("dense", "topk"),
    networks=("10g", "1g:delay=1e-5"),
    baselines=("ring-float16", "ring-bfloat16"),
    **QUICK,
)


@pytest.fixture(scope="module")
def record() -> TrainingRecord:
    return comparison.run(COMPARED, None, created=NOW).record


class TestTraining:
    def test_each_run_has_a_time_on_each_network(self, record: TrainingRecord) -> None:
        assert record.networks == ("10g", "1g:delay=1e-5")
        for run in record.runs:
            assert run.simulated.keys() == set(record.networks)
            for network, times in run.simulated.items():
                seconds = [step.simulated_seconds[network] for step in run.steps]
                assert seconds == sorted(seconds)
                assert seconds[-1] == times.seconds
                assert times.compute == pytest.approx(len(run.steps) * 200e-6)
                assert times.network > 0

    def test_codec_times_are_per_element(self, record: TrainingRecord) -> None:
        for run in record.runs:
            expected = 0 if run.settings["method"] == "plain float32" else 55_018e-10
            for times in run.simulated.values():
                assert times.encode == pytest.approx(len(run.steps) * expected)
                assert times.decode == times.encode

    def test_a_slower_network_takes_longer_and_sums_the_same(self, record: TrainingRecord) -> None:
        for run in record.runs:
            fast, slow = (run.simulated[name] for name in record.networks)
            assert slow.network > 2 * fast.network > 0
            assert (slow.compute, slow.encode) == (fast.compute, fast.encode)

    def test_sixteen_bits_take_half_the_time_and_learn_the_same(
        self, record: TrainingRecord
    ) -> None:
        plain, *_, half, brain = record.runs
        for run in (half, brain):
            ratio = (
                run.simulated["1g:delay=1e-5"].network / plain.simulated["1g:delay=1e-5"].network
            )
            assert 0.45 < ratio < 0.65
            losses = [[step.loss for step in each.steps] for each in (run, plain)]
            assert losses[0] != losses[1]
            np.testing.assert_allclose(*losses, rtol=0.02)

    def test_two_trainings_are_equal(self, record: TrainingRecord) -> None:
        again = comparison.run(COMPARED, None, created=NOW).record
        for one, other in zip(record.runs, again.runs, strict=True):
            assert one.simulated == other.simulated
            for a, b in zip(one.steps, other.steps, strict=True):
                assert (a.score, a.simulated_seconds) == (b.score, b.simulated_seconds)

    def test_a_network_takes_what_it_takes_alone(self, record: TrainingRecord) -> None:
        settings = TrainSettings(codecs=("topk",), networks=("10g",), **QUICK)
        alone = comparison.run(settings, None, created=NOW).record
        assert alone.runs[1].simulated["10g"] == record.runs[2].simulated["10g"]

    def test_the_record_says_what_the_networks_were(
        self, record: TrainingRecord, tmp_path: Path
    ) -> None:
        assert record.settings["network_settings"]["1g:delay=1e-5"]["delay"] == 1e-5
        record.save(tmp_path / "train.json")
        assert TrainingRecord.load(tmp_path / "train.json") == record

    def test_lost_packets_are_counted(self) -> None:
        network = "10g:loss=0.01"
        record = train(codecs=["dense"], networks=[network], **QUICK)
        plain, dense = record.runs
        assert plain.simulated[network].retransmissions > 0
        times = dense.simulated[network]
        assert times.retransmissions >= times.lost > 0
        assert dense.steps[-1].simulated_seconds == {network: times.seconds}
        assert dense.exact_steps == len(dense.steps)

    def test_measured_codec_times_are_those_of_the_steps(self) -> None:
        record = train(codecs=["dense"], networks=["10g"], codec_times="measured", **QUICK)
        times = record.runs[1].simulated["10g"]
        assert times.encode == pytest.approx(record.runs[1].total_seconds("encode"))
        assert times.decode == pytest.approx(record.runs[1].total_seconds("decode"))

    @pytest.mark.repeats("trainings with a time on each network")
    def test_the_demonstration_has_two_networks(self, tmp_path: Path) -> None:
        result = demo.run(DemoSettings(iterations=2), tmp_path, created=NOW)
        assert result.record.networks == ("10g", "100g")
        assert all(len(run.simulated) == 2 for run in result.record.runs)


def test_the_window_is_that_of_the_setting() -> None:
    """One chunk under way waits for a round trip each time."""
    given = {"codecs": ["dense"], "networks": ["10g"], **QUICK, "batch_size": 700}
    (_, every), (_, one) = (train(window=each, **given).runs for each in (None, 1))
    assert one.simulated["10g"].network > 5 * every.simulated["10g"].network


class TestRefused:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"networks": ("12g",)}, "12g"),
            ({"networks": ("10g:rate=0",)}, "rate is 0"),
            ({"networks": ("10g", "10g")}, "the network '10g' is given twice"),
            ({"networks": ("nowhere.toml",)}, "cannot read nowhere.toml"),
            ({"networks": ("10g",), "engine": "interpret"}, "leave the engine out"),
            ({"baselines": ("ring-float16",)}, "give a network too"),
            ({"networks": ("10g",), "baselines": ("tree",)}, "unknown baseline 'tree'"),
            ({"networks": ("10g",), "baselines": ("ring",)}, "few bits or coded ones, not 'ring'"),
            ({"networks": ("10g",), "baselines": ("gtopk-tree",)}, "not 'gtopk-tree'"),
            (
                {"networks": ("10g",), "baselines": ("ring-mxfp4:lossless=measured",)},
                "lossless coding of mxfp4 is not measured",
            ),
            (
                {"networks": ("10g",), "baselines": ("ring-float16", "ring-float16")},
                "ring-float16 is given twice",
            ),
        ],
    )
    def test_before_anything_is_trained(self, settings: dict[str, Any], message: str) -> None:
        events: list[Any] = []
        with pytest.raises(InnetError, match=message):
            comparison.run(TrainSettings(**settings), None, created=NOW, watch=events.append)
        assert events == []

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"compute": -1.0}, "compute = -1.0 cannot be used"),
            ({"encode_time": 2.0}, "encode_time = 2.0 cannot be used"),
            ({"window": 100}, "choose a power of two"),
            ({"codec_times": "none"}, "'assumed' or 'measured'"),
            ({"network": ["10g"]}, "Did you mean 'networks'"),
        ],
    )
    def test_by_name(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            train(**settings)

    def test_another_sum_on_the_network(self) -> None:
        """A sum that differs from the training's is an error: its time would mean nothing."""
        collective = Collective(workers=2)
        timed = TimedNetwork("10g", collective.plan, PRESETS["10g"], 0)

        def repeat(segments: Any, result: RoundResult) -> None:
            words = {worker: [each + 1 for each in them] for worker, them in result.words.items()}
            timed.repeat(segments, replace(result, words=words))

        collective.on_round = repeat
        with pytest.raises(StateError, match="the network 10g gave worker 0 another sum"):
            collective.all_reduce([np.ones(10, np.float32)] * 2)

    def test_what_is_not_a_collective(self, tmp_path: Path) -> None:
        settings = DemoSettings(iterations=1)
        with pytest.raises(InputError, match="a OracleSumming has no rounds"):
            demo.run(settings, tmp_path, created=NOW, make=OracleSumming)


class TestRepeatedRounds:
    """Rounds of equal lengths take equal times where nothing is lost."""

    @staticmethod
    def times(network: Network, codec: str, gradients: Any) -> list[NetworkCost]:
        collective = Collective(workers=4, codec=codec)
        timed = TimedNetwork("it", collective.plan, network, 3)
        collective.on_round = timed.repeat
        found = []
        for each in gradients:
            collective.all_reduce(each)
            found.append(timed.take())
        return found

    @pytest.fixture
    def gradients(self) -> list[list[Any]]:
        rng = np.random.default_rng(1)
        return [[rng.standard_normal(3000, np.float32) for _ in range(4)] for _ in range(6)]

    @pytest.mark.parametrize("codec", ["dense", "topk", "powersgd"])
    @pytest.mark.parametrize("network", [Network(rate=10e9), Network(queue_packets=2)])
    def test_they_are_not_simulated_again_and_take_as_long(
        self, codec: str, network: Network, gradients: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        short = self.times(network, codec, gradients)
        monkeypatch.setattr(simulated_time, "is_steady", lambda _: False)
        assert self.times(network, codec, gradients) == short
        assert all(taken.seconds > 0 for taken in short)

    def test_they_are_as_a_collective_on_that_network(self, gradients: Any) -> None:
        network = Network(rate=10e9, loss=0.01)
        collective = Collective(workers=4, codec="topk", network=network, seed=3)
        for taken, each in zip(self.times(network, "topk", gradients), gradients, strict=True):
            _, report = collective.all_reduce(each)
            assert report.simulated is not None
            assert taken.seconds == pytest.approx(report.simulated.seconds, rel=1e-12)
            assert taken[1:4] == (
                report.simulated.lost, report.simulated.dropped, report.retransmissions,
            )  # fmt: skip

    def test_losses_are_drawn_for_each(self, gradients: Any) -> None:
        found = self.times(Network(loss=0.02), "dense", gradients[:1] * 6)
        assert len({taken.seconds for taken in found}) > 1
        assert sum(taken.lost for taken in found) > 0

    def test_a_setting_that_is_not_known_to_leave_it_steady_does_not(self) -> None:
        assert is_steady(Network(rate=1e9, trunk_rate=1e9, queue_packets=3, host_cores=2))
        assert not is_steady(Network(loss=1e-6))


# ----------------------------------------------------------------------------
# Tables and pictures.


def timed(run: Run, seconds: dict[str, float], again: int = 0) -> Run:
    """The run with so many simulated seconds for each iteration."""
    steps = [
        step.model_copy(
            update={"simulated_seconds": {k: v * step.iteration for k, v in seconds.items()}}
        )
        for step in run.steps
    ]
    times = {
        k: SimulatedTime(network=v * len(steps), retransmissions=again) for k, v in seconds.items()
    }
    return run.model_copy(update={"steps": tuple(steps), "simulated": times})


@pytest.fixture
def timed_record() -> TrainingRecord:
    """LHC is as good in each iteration, and four times as fast on the slow network only."""
    report = a_report(codec="topk", bytes_sent=28000)
    return a_record(
        runs=[
            timed(a_run("plain"), {"slow": 0.4, "fast": 0.04}),
            timed(a_run("dense", report=a_report()), {"slow": 0.5, "fast": 0.05}),
            timed(a_run("topk", report=report), {"slow": 0.1, "fast": 0.06}, again=7),
        ]
    )


class TestTarget:
    def test_of_a_share_is_a_point_below_plain_sums(self, timed_record: TrainingRecord) -> None:
        target = Target.of(methods_of(timed_record))
        assert target is not None
        last = timed_record.runs[0].final_score
        assert last is not None
        assert (target.score, target.margin) == (pytest.approx(last - 0.01), "1 point")
        assert target.reached_by(last)
        assert not target.reached_by(last - 0.02)

    def test_of_a_perplexity_is_above(self) -> None:
        runs = [a_run("plain").model_copy(update={"metric": PERPLEXITY})]
        target = Target.of(methods_of(a_record(runs=runs)))
        last = runs[0].final_score
        assert target is not None
        assert last is not None
        assert target.score == pytest.approx(1.05 * last)
        assert target.reached_by(1.04 * last)
        assert not target.reached_by(1.06 * last)

    def test_without_plain_sums_there_is_none(self) -> None:
        assert Target.of(methods_of(a_record(runs=[a_run("dense", report=a_report())]))) is None

    def test_who_is_first_depends_on_the_network(self, timed_record: TrainingRecord) -> None:
        methods, target = methods_of(timed_record), Target(0.8, ACCURACY)
        # 1 - exp(-11 / 6) is 84 %: all reach it at the eleventh iteration.
        slow = [(each.title, s) for each, s in fastest(methods, "slow", target)]
        assert slow == [
            ("top-k 1 %, LHC", pytest.approx(1.1)),
            ("plain float32", pytest.approx(4.4)),
            ("dense", pytest.approx(5.5)),
        ]
        assert fastest(methods, "fast", target)[0][0].title == "plain float32"
        assert fastest(methods, "fast", Target(0.999, ACCURACY)) == []


def test_the_table_has_a_row_for_each_method_on_each_network(timed_record: TrainingRecord) -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(simulated_table(timed_record))
    text = console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    rows = [line.split() for line in text.splitlines() if line.split()[:1] == ["dense"]]
    assert [row[1:3] for row in rows] == [["500", "ms"], ["50.0", "ms"]]
    said = " ".join(text.split())
    assert "Sums without a codec are a ring all-reduce over TCP" in said
    assert "sent again on slow (top-k 1 %, LHC), fast (top-k 1 %, LHC)." in said


def test_the_picture_has_a_panel_for_each_network(timed_record: TrainingRecord) -> None:
    pytest.importorskip("matplotlib")
    demo_axes = demo_figure(timed_record).axes
    slow, slow_loss, fast, fast_loss, bars = demo_axes[:5]
    plain, *_ = slow.lines
    np.testing.assert_allclose(plain.get_xdata(), [4.4, 8.8])
    scores = [step.score for step in timed_record.runs[0].steps if step.score is not None]
    np.testing.assert_allclose(plain.get_ydata(), [100 * score for score in scores])
    title = " ".join(slow.get_title("left").split())
    assert "top-k 1 %, LHC first, 4.00\N{MULTIPLICATION SIGN} sooner than plain" in title
    for panel, network in ((slow_loss, "slow"), (fast_loss, "fast")):
        assert panel.get_title("left") == f"Loss over simulated time, {network}"
        for line, run in zip(panel.lines, timed_record.runs, strict=True):
            np.testing.assert_allclose(
                line.get_xdata(), [step.simulated_seconds[network] for step in run.steps]
            )
            np.testing.assert_allclose(line.get_ydata()[0], run.steps[0].loss)
    assert "plain float32 first, dense 25% later" in fast.get_title("left")
    assert sum(bar.get_width() for bar in bars.patches) == pytest.approx(
        1e3 * (0.4 + 0.5 + 0.1 + 0.04 + 0.05 + 0.06)
    )
    assert len(training_figure(timed_record).axes) == 5 + 4
    without = a_record()
    assert len(demo_figure(without).axes) == len(demo_axes) - 5


def test_an_iteration_lasts_as_long_as_its_slowest_worker() -> None:
    settings = TrainSettings(
        networks=("10g",), compute=1e-3, workers=4, straggler="lognormal:sigma=0.5",
        pauses=("2:3:0.25",),
    )  # fmt: skip
    timer = Timer(settings, 4, has_codec=False, seed=7)
    stragglers = Stragglers("lognormal:sigma=0.5", ["2:3:0.25"], 4, 7)
    end = 0.0
    for iteration in range(1, 6):
        step = timer.add(Step(iteration=iteration, loss=1.0), {"10g": NetworkCost(2e-3)})
        slowest = max(1e-3 * stragglers.factors(iteration) + stragglers.pauses(iteration))
        end += slowest + 2e-3
        assert step.simulated_seconds["10g"] == pytest.approx(end)
    assert timer.times["10g"].compute == pytest.approx(end - 5 * 2e-3)


def test_stragglers_need_a_network_and_must_exist() -> None:
    for settings, match in (
        ({"straggler": "lognormal:sigma=0.1"}, "change simulated time alone; give a network"),
        ({"pauses": ["0:1:1"]}, "change simulated time alone"),
        ({"straggler": "late", "networks": ["10g"]}, "unknown distribution of stragglers 'late'"),
        ({"straggler": "fixed:worker=9", "networks": ["10g"]}, "no worker 9"),
    ):
        with pytest.raises(InputError, match=match):
            train(**settings)


def test_equal_times_are_named_together() -> None:
    pytest.importorskip("matplotlib")
    runs = [
        timed(a_run("plain"), {"slow": 0.4}),
        timed(a_run("dense", report=a_report()), {"slow": 0.401}),
    ]
    panel = training_figure(a_record(runs=runs)).axes[0]
    assert "plain float32 and dense first" in panel.get_title("left")


def test_far_times_have_a_logarithmic_axis() -> None:
    pytest.importorskip("matplotlib")
    runs = [
        timed(a_run("plain"), {"slow": 4.0}),
        timed(a_run("topk", report=a_report(bytes_sent=28000)), {"slow": 0.1}),
    ]
    assert training_figure(a_record(runs=runs)).axes[0].get_xscale() == "log"


def test_the_command_shows_times_and_draws_them(tmp_path: Path) -> None:
    config = tmp_path / "train.toml"
    config.write_text('networks = ["1g"]\ncompute = 0.25\nepochs = 1\nbatch_size = 300\n')
    arguments = ["train", "--config", str(config), "--codec", "dense", "-o", str(tmp_path)]
    arguments += ["--network", "10g", "--network", "25g", "--baseline", "ring-bfloat16"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Computing takes 250 ms (a setting)" in said
    assert "bfloat16 (ring)" in said
    record = TrainingRecord.load(tmp_path / "train.json")
    assert record.networks == ("10g", "25g")
    assert (tmp_path / "train.png").stat().st_size > 10_000
    shown = CliRunner().invoke(app, ["report", str(tmp_path / "train.json"), "--json"])
    steps = json.loads(shown.stdout)["runs"][0]["steps"]
    assert steps[-1]["simulated_seconds"]["10g"] > 0.25
    wrong = CliRunner().invoke(app, ["train", "--network", "12g", "-o", str(tmp_path)])
    assert wrong.exit_code != 0
    assert wrong.exception is not None
    assert "12g" in str(wrong.exception)


def test_results_in_another_format_take_less_time() -> None:
    """Their all-gather has a quarter of the words; the training has other sums, near these."""
    runs: dict[str | None, Run] = {}
    for results in (None, "mxfp8-e4m3"):
        settings = TrainSettings(codecs=("bf16",), results=results, networks=("10g",), **QUICK)
        runs[results] = comparison.run(settings, None, created=NOW).record.runs[-1]
    plain, narrow = runs[None], runs["mxfp8-e4m3"]
    seconds = [run.simulated["10g"].network for run in (plain, narrow)]
    assert seconds[1] < seconds[0]
    assert narrow.final_score != 0
    assert narrow.steps[-1].loss != plain.steps[-1].loss
    assert narrow.steps[-1].loss == pytest.approx(plain.steps[-1].loss, rel=0.2)
