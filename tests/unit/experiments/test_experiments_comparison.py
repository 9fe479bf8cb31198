"""Training with any codec beside plain sums: what is compared, recorded and shown."""

from __future__ import annotations

import csv
import io
import json
import math
import signal
import sys
from datetime import UTC, datetime

import pytest
from rich.console import Console
from typer.testing import CliRunner

from innet import experiments
from innet.cli import TERMINATED, main
from innet.cli.app import app
from innet.codecs.carriers.lhc import Lhc
from innet.core.errors import ConfigError, DivergedError, InnetError, InputError
from innet.core.settings import TrainSettings
from innet.experiments import comparison
from innet.experiments.models import digits_cnn
from innet.records import TRAIN, TrainingRecord
from innet.reports.registry import table_of
from innet.reports.tables import training_table
from innet.reports.training_log import numbers_of

pytestmark = pytest.mark.xdist_group("comparison")  # which is set up once, not by each process

QUICK = {"workers": 2, "batch_size": 400, "epochs": 1, "seed": 7}  # one iteration
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    settings = TrainSettings(codecs=("exact", "topk", "dgc"), repeats=2, **QUICK)
    return comparison.run(settings, tmp_path_factory.mktemp("out"), created=NOW)


def test_every_codec_and_seed_is_in_the_record(result):
    loaded = TrainingRecord.load(result.record_path, TRAIN)
    assert loaded == result.record
    found = [(run.settings["method"], run.settings["seed"]) for run in loaded.runs]
    names = ("plain float32", "exact", "topk", "dgc")
    assert found == [(name, seed) for seed in (7, 8) for name in names]
    codecs = [run.settings.get("codec") for run in loaded.runs[:4]]
    assert codecs == [None, "exact", "topk", "dgc"]
    assert loaded.settings["iterations_per_epoch"] == 1


def test_runs_of_a_seed_start_alike_and_every_sum_is_exact(result):
    for seed in (7, 8):
        runs = [run for run in result.record.runs if run.settings["seed"] == seed]
        assert len({run.steps[0].loss for run in runs}) == 1
        assert all(run.exact_steps == 1 for run in runs[1:])
    assert result.record.runs[0].steps[0].loss != result.record.runs[4].steps[0].loss


def test_the_table_has_a_row_for_each_way(result):
    console = Console(file=io.StringIO(), width=120)
    console.print(training_table(result.record))
    text = console.file.getvalue()
    for name in ("plain float32", "exact", "topk", "dgc"):
        (row,) = [line for line in text.splitlines() if line.strip().startswith(name)]
        assert row.count("±") == 2
        assert (" all " in row) == (name != "plain float32")


def test_what_adacomps_paper_counts_is_in_the_record_and_its_table():
    settings = TrainSettings(codecs=("adacomp",), **QUICK)
    record = comparison.run(settings, None, created=NOW).record
    plain, run = record.runs
    assert plain.counted_elements == {}
    model = digits_cnn.model()
    assert sum(run.counted_elements.values()) == 2 * model.size
    assert set(run.counted_elements) == {"convolution", "matrix", "vector"}
    # Bins of convolutions and vectors are short, 8 bits an element; those of matrices long, 16.
    (step,) = run.steps
    short = step.counted_bits["convolution"] + step.counted_bits["vector"]
    assert short // 8 + step.counted_bits["matrix"] // 16 == step.selected
    assert 0 < short < step.counted_bits["matrix"] * 8
    console = Console(file=io.StringIO(), width=80)
    console.print(table_of(record))
    (row,) = [line for line in console.file.getvalue().splitlines() if " matrix " in line]
    assert row.split()[:3] == ["adacomp", "matrix", "50,112"]
    assert f"{run.counted_rates()['matrix']:.1f}\N{MULTIPLICATION SIGN}" in row


def test_local_sgd_over_the_switch_is_that_of_plain_sums():
    settings = TrainSettings(
        codecs=("exact",), workers=4, batch_size=50, epochs=1, local_sgd="2,4", rack_codec="exact"
    )
    plain, run = comparison.run(settings, None, created=NOW).record.runs
    assert [step.scope for step in run.steps] == [
        "none",
        "rack",
        "none",
        "job",
        "none",
        "rack",
        "none",
    ]
    assert run.summed_steps == run.exact_steps == 3
    # Of two workers' sums, and of four, the nearest float32: plain sums of two are as near.
    assert run.steps[2].loss == plain.steps[2].loss
    assert run.steps[-1].loss == pytest.approx(plain.steps[-1].loss, rel=1e-5)
    sent = [step.bytes_sent for step in run.steps]
    assert [bool(each) for each in sent] == [step.scope != "none" for step in run.steps]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local_sgd": "9,3"}, "K1 must be less than K2"),
        ({"racks": 2}, "racks without local_sgd"),
        ({"local_sgd": "3", "networks": ("10g",)}, "take no simulated time"),
        ({"local_sgd": "3", "baselines": ("ring-float16",)}, "take no simulated time"),
    ],
)
def test_settings_that_do_not_go_with_local_sgd(settings, message):
    with pytest.raises((ValueError, ConfigError), match=message):
        TrainSettings(**settings)


def test_a_codec_with_momentum_has_none_in_the_optimizer():
    methods = comparison.methods(TrainSettings(codecs=("topk", "dgc")))
    assert [method.codec_momentum for method in methods] == [False, False, True]


def test_one_preset_with_other_parameters_is_another_way():
    denser = {"preset": "topk", "selector": {"ratio": 0.05}}
    names = [method.name for method in comparison.methods(TrainSettings(codecs=("topk", denser)))]
    assert names == ["plain", "topk", "topk(ratio=0.05)"]
    fewer = {"preset": "topk", "selector": {"k": 9}}
    names = [method.name for method in comparison.methods(TrainSettings(codecs=(denser, fewer)))]
    assert names[1:] == [f"topk({each})" for each in ("ratio=0.05", "k=9")]
    names = [method.name for method in comparison.methods(TrainSettings(codecs=(denser,)))]
    assert names == ["plain", "topk"]


@pytest.mark.parametrize("codecs", [("topk", "topk"), ("plain",), ("topkk",)])
def test_codecs_that_cannot_be_compared(codecs):
    with pytest.raises(InnetError):
        comparison.methods(TrainSettings(codecs=codecs))


def test_a_codec_given_twice_is_named():
    with pytest.raises(ConfigError, match=r"topk.* is given twice"):
        comparison.methods(TrainSettings(codecs=("topk", "topk")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "workers = 0 cannot be used"),
        (["--epochs", "0"], "epochs = 0 cannot be used"),
        (["--repeats", "0"], "repeats = 0 cannot be used"),
        (["--framework", "jax"], "unknown framework 'jax'. Known: numpy, torch."),
        (["--codec", "topkk"], "topk"),
        (["--codec", "topk", "--set", "selector.ratio=nan"], "ratio"),
        (["--codec", "topk", "--set", "ratio=0.1"], "PART.KEY=VALUE"),
        (["--codec", "dense", "--set", "selector.ratio=0.1"], "ratio"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path, arguments, message):
    folder = tmp_path / "out"
    result = CliRunner().invoke(app, ["train", *arguments, "-o", str(folder)])
    assert isinstance(result.exception, InnetError)
    assert message in str(result.exception)
    assert not folder.exists()


def test_a_framework_of_another_distribution_computes_the_gradients(tmp_path, monkeypatch):
    calls = []

    def gradient(*arguments):
        calls.append(len(arguments))
        return digits_cnn.gradient(*arguments)

    monkeypatch.setitem(digits_cnn.FRAMEWORKS._loaded, "mine", gradient)  # as an entry point would
    config = tmp_path / "train.toml"
    config.write_text('codecs = ["dense"]\nbatch_size = 600\nworkers = 2\nepochs = 1\n')
    arguments = ["train", "--framework", "mine", "--config", str(config), "-o", str(tmp_path)]
    assert CliRunner().invoke(app, [*arguments, "--log", "csv"]).exit_code == 0
    assert calls == [3] * 4  # a step of two workers, with plain sums and by the codec
    for run in TrainingRecord.load(tmp_path / comparison.RECORD, TRAIN).runs:
        with (tmp_path / "log" / f"{run.name}.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        found = {key: float(value) for key, value in row.items() if value}
        assert found == {"iteration": 1.0, **numbers_of(run.steps[0])}


def test_parameters_for_each_layer_are_of_the_models_layers(tmp_path):
    """As the runs themselves are told the layers, so is the look at the codecs before them."""
    rates = (1, 1, 4, 1, 100, 10, 10, 1)
    spec = {"preset": "scalecom", "selector": {"rates": rates, "first_dense": False}}
    settings = TrainSettings(codecs=(spec,), **QUICK)
    made = comparison.run(settings, tmp_path, created=NOW)
    sizes = [math.prod(shape) for shape in digits_cnn.SHAPES.values()]
    chosen = sum(-(-size // rate) for size, rate in zip(sizes, rates, strict=True))
    (step,) = made.record.runs[1].steps
    assert step.selected == QUICK["workers"] * chosen
    wrong = {"preset": "scalecom", "selector": {"rates": rates[:3]}}
    with pytest.raises(ConfigError, match="3 rates for 8 layers"):
        comparison.run(TrainSettings(codecs=(wrong,), **QUICK), tmp_path / "not", created=NOW)


@pytest.mark.parametrize(("codec", "expected"), [("lhc", [3, 4]), ("dense", [])])
def test_repairs_are_compiled_before_anything_is_timed(tmp_path, monkeypatch, codec, expected):
    """A peel that halts is rare: the first one would be told as seconds of decoding."""
    repaired, events = [], []
    repair = Lhc._repair

    def noted(self, *arguments):
        repaired.append(arguments[-1].layout.hashes)
        return (yield from repair(self, *arguments))

    monkeypatch.setattr(Lhc, "_repair", noted)
    settings = TrainSettings(codecs=(codec,), **QUICK)
    comparison.run(
        settings,
        tmp_path,
        created=NOW,
        watch=lambda event: events.append((event.title, event.step, list(repaired))),
    )
    _, step, before = next(each for each in events if each[0].startswith(codec) and each[1])
    assert step.iteration == 1
    assert before == expected


def test_what_was_trained_before_another_diverged_is_kept(tmp_path, monkeypatch):
    of_seed = comparison.run_seed

    def diverging(method, trial):
        if method.name == "thc":
            raise DivergedError("the training diverged: the loss of iteration 1 is nan.")
        return of_seed(method, trial)

    monkeypatch.setattr(comparison, "run_seed", diverging)
    settings = TrainSettings(codecs=("dense", "thc", "topk"), **QUICK)
    path = tmp_path / comparison.RECORD
    said = rf"thc, seed 7: the training diverged: .* nan\. What .* before it is in {path}\."
    with pytest.raises(DivergedError, match=said):
        comparison.run(settings, tmp_path, created=NOW)
    kept = TrainingRecord.load(path, TRAIN)
    assert [run.settings["method"] for run in kept.runs] == ["plain float32", "dense"]
    assert "dense" in str(training_table(kept).columns[0]._cells)


def test_what_was_trained_before_an_interruption_is_kept(tmp_path, monkeypatch):
    of_seed = comparison.run_seed

    def interrupted(method, trial):
        if method.name == "topk":
            raise KeyboardInterrupt
        return of_seed(method, trial)

    monkeypatch.setattr(comparison, "run_seed", interrupted)
    config = tmp_path / "train.toml"
    config.write_text('codecs = ["topk"]\nbatch_size = 400\nworkers = 2\nepochs = 1\n')
    done = CliRunner().invoke(app, ["train", "--config", str(config), "-o", str(tmp_path)])
    path = tmp_path / comparison.RECORD
    assert done.exit_code == 130
    assert f"What was trained before is in {path}." in done.output
    assert [run.settings["method"] for run in TrainingRecord.load(path, TRAIN).runs] == [
        "plain float32"
    ]


@pytest.mark.repeats("the same with another error", but=["error1"])
@pytest.mark.parametrize(
    "error", [InputError("the integers are none."), MemoryError(), ZeroDivisionError("x / 0")]
)
def test_what_was_trained_before_a_codec_failed_is_kept(tmp_path, monkeypatch, error):
    of_seed = comparison.run_seed

    def failing(method, trial):
        if method.name == "topk":
            raise error
        return of_seed(method, trial)

    monkeypatch.setattr(comparison, "run_seed", failing)
    config = tmp_path / "train.toml"
    config.write_text('codecs = ["topk"]\nbatch_size = 400\nworkers = 2\nepochs = 1\n')
    done = CliRunner().invoke(app, ["train", "--config", str(config), "-o", str(tmp_path)])
    path = tmp_path / comparison.RECORD
    said = f"What was trained before is in {path}."
    assert done.exit_code == 1
    assert error.__notes__ == [said]  # which a traceback shows; these two are told without one
    assert (said in done.output) == isinstance(error, (InputError, MemoryError))
    assert [run.settings["method"] for run in TrainingRecord.load(path, TRAIN).runs] == [
        "plain float32"
    ]


@pytest.mark.repeats("the same after an interruption")
def test_what_was_trained_before_a_termination_is_kept(tmp_path, monkeypatch, capsys):
    of_seed, save = comparison.run_seed, comparison.saved

    def terminated(method, trial):
        if method.name == "topk":
            signal.raise_signal(signal.SIGTERM)
        return of_seed(method, trial)

    def terminated_again(*arguments):  # as by timeout, which tells the process and its group
        signal.raise_signal(signal.SIGTERM)
        return save(*arguments)

    monkeypatch.setattr(comparison, "run_seed", terminated)
    monkeypatch.setattr(comparison, "saved", terminated_again)
    config = tmp_path / "train.toml"
    config.write_text('codecs = ["topk"]\nbatch_size = 400\nworkers = 2\nepochs = 1\n')
    command = ["innet", "train", "--config", str(config), "-o", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == TERMINATED
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    path = tmp_path / comparison.RECORD
    said = capsys.readouterr().err
    assert f"What was trained before is in {path}." in said
    assert said.endswith("terminated.\n")
    assert [run.settings["method"] for run in TrainingRecord.load(path, TRAIN).runs] == [
        "plain float32"
    ]


def test_the_command_and_its_report(tmp_path):
    config = tmp_path / "train.toml"
    config.write_text('codecs = ["dense"]\nbatch_size = 400\nworkers = 2\nepochs = 1\n')
    arguments = ["train", "--config", str(config), "-o", str(tmp_path), "--json"]
    trained = CliRunner().invoke(app, arguments)
    assert trained.exit_code == 0, trained.stderr
    assert json.loads(trained.stdout)["settings"]["codecs"] == ["dense"]
    assert (tmp_path / "train.png").stat().st_size > 10_000
    shown = CliRunner().invoke(
        app, ["report", str(tmp_path / "train.json"), "--plot", str(tmp_path / "again.png")]
    )
    assert shown.exit_code == 0, shown.stderr
    assert "all" in shown.stdout.split()
    assert (tmp_path / "again.png").stat().st_size > 10_000


def test_the_python_call_gives_the_same_record(tmp_path, result):
    record = experiments.train(codecs=["exact"], **QUICK)
    expected = [result.record.runs[place] for place in (0, 1)]
    for made, run in zip(record.runs, expected, strict=True):
        assert (made.name, made.codec, made.final_score) == (run.name, run.codec, run.final_score)
        assert [step.loss for step in made.steps] == [step.loss for step in run.steps]
    assert not list(tmp_path.iterdir())
    kept = experiments.train(codecs=["exact"], out_dir=tmp_path, **QUICK)
    assert TrainingRecord.load(tmp_path / comparison.RECORD) == kept
    with pytest.raises(ConfigError, match=r"train\(\).*epoch"):
        experiments.train(epoch=3)


def test_short_trainings_are_evaluated_more_often_than_after_each_epoch(tmp_path):
    record = experiments.train(codecs=["dense"], workers=2, batch_size=30, epochs=1)
    places = [step.iteration for step in record.runs[0].steps if step.score is not None]
    assert len(record.runs[0].steps) == 23
    assert places == [*range(2, 23, 2), 23]
