"""The papers' claims as data, and what is measured of them."""

from __future__ import annotations

import importlib.util
import io
import json
from datetime import UTC, datetime
from typing import ClassVar, Literal

import numpy as np
import pytest
from rich.console import Console
from support.records import a_report, a_run
from typer.testing import CliRunner

from innet.claims import reproduce, selection, traffic, training
from innet.claims.claim import KINDS, ClaimContext, Measure, Paper, ReproduceOptions
from innet.claims.offline import OfflineReducer
from innet.claims.papers import paper_of, papers
from innet.claims.selection import SelectionRatio, SelectionTime
from innet.claims.traffic import BuildUp, SparseAggregation, WorkerTraffic
from innet.claims.training import Training
from innet.cli.app import app
from innet.codecs import build_codec
from innet.codecs.presets import PRESETS
from innet.core.errors import ConfigError, DivergedError, InputError, UnknownNameError
from innet.core.settings import validate
from innet.experiments.models.model import MODELS
from innet.records import PERPLEXITY, Finding, ReproductionRecord
from innet.reports.plots import reproduction_figure
from innet.reports.tables import reproduction_table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FULL, QUICK = (
    ClaimContext(paper_of("topk"), ReproduceOptions(quick=quick), None) for quick in (False, True)
)
TOPK = {"preset": "topk", "selector": {"ratio": 0.01}, "carrier": "dense"}
SHARED = {"preset": "scalecom", "selector": {"rate": 100, "exact": True, "first_dense": False}}

TRAINED = {
    "kind": "training",
    "model": "digits-cnn",
    "workers": 2,
    "batch_size": 300,
    "epochs": 1,
    "max_score_drop": 60,
}
A_PAPER = {
    "paper": "Somebody, 2030",
    "codec": "topk",
    "note": "A\nnote.",
    "not_reproduced": ["the moon: too far"],
    "claims": [
        {"claim": "it learns", "paper_result": "much", "measure": TRAINED},
        {
            "claim": "it is small",
            "paper_result": "very",
            "measure": {
                "kind": "aggregation",
                "codecs": {"lhc": "lhc"},
                "elements": 20000,
                "workers": 2,
                "density": 0.01,
                "overlap": True,
                "subject": "lhc",
                "min_ratio": 2.0,
            },
        },
    ],
}


def descriptions(paper):
    yield paper.codec
    yield from paper.codecs.values()
    for claim in paper.claims:
        yield from getattr(claim.measure, "codecs", {}).values()
        if getattr(claim.measure, "codec", None) is not None:
            yield claim.measure.codec


NO_CODECS = {"hier-avg"}  # a way to train, with any codec


@pytest.mark.parametrize("name", papers())
def test_every_claim_can_be_measured(name):
    paper = paper_of(name)
    if name not in NO_CODECS:
        assert name in PRESETS
        selectors = [build_codec(spec).spec["selector"]["name"] for spec in (paper.codec, name)]
        assert selectors[0] == selectors[1]
    for description in descriptions(paper):
        build_codec(description)
    for claim in paper.claims:
        measure = claim.measure
        assert getattr(measure, "model", "digits-cnn") in MODELS
        for label in ("subject", "constant"):
            compared = getattr(measure, "codecs", getattr(measure, "methods", {"": 0}))
            assert getattr(measure, label, next(iter(compared))) in compared
        if getattr(measure, "min_ratio", None) is not None:  # of codecs, or of methods' times
            assert getattr(measure, "codecs", None) or measure.methods


def test_what_cannot_be_tried_is_said_with_the_reason():
    for paper in papers().values():
        assert all(": " in reason for reason in paper.not_reproduced), paper.paper


def test_a_codec_without_claims_is_told_with_those_that_have_some():
    with pytest.raises(UnknownNameError, match=r"codec with claims 'dense'.*topk"):
        paper_of("dense")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_score_drop": -1}, "max_score_drop"),
        ({"kind": "guess"}, "kind|guess"),
        ({"worker": 4}, "worker"),
    ],
)
def test_mistakes_in_the_data_are_named(change, message):
    claim = A_PAPER["claims"][0] | {"measure": TRAINED | change}
    with pytest.raises(ConfigError, match=message):
        validate(Paper, A_PAPER | {"claims": [claim]})


class Weather(Measure):
    """A kind of claim from elsewhere. It counts how often it was measured."""

    kind: Literal["weather"]
    degrees: int
    measured: ClassVar[list[int]] = []

    def measure(self, context):
        self.measured.append(self.degrees)
        if self.degrees < -273:
            raise InputError("it is too cold")
        return Finding(
            setup="outside",
            measured=f"{self.degrees}",
            holds=self.degrees > 30,
            direction=self.degrees > 20,
        )


@pytest.fixture
def weather(monkeypatch):
    """Papers "hot", "cold" and "never", whose claims are about the weather."""
    monkeypatch.setitem(KINDS._loaded, "weather", Weather)
    monkeypatch.setitem(KINDS._targets, "weather", "outside:Weather")
    monkeypatch.setattr(Weather, "measured", [])

    def paper(*degrees):
        claims = [
            {
                "claim": f"it is {each}",
                "paper_result": "hot",
                "why": "it is autumn",
                "measure": {"kind": "weather", "degrees": each},
            }
            for each in degrees
        ]
        return validate(Paper, A_PAPER | {"claims": claims})

    found = {"hot": paper(31, 21), "cold": paper(1, 2, 3), "never": paper(-300)}
    monkeypatch.setattr(reproduce, "paper_of", found.__getitem__)
    monkeypatch.setattr("innet.claims.papers.papers", lambda: found)
    return found


def test_a_kind_of_claim_from_elsewhere(tmp_path, weather):
    record, _ = reproduce.run("hot", tmp_path, options=reproduce.ReproduceOptions(), created=NOW)
    assert [(each.claim, each.verdict) for each in record.findings] == [
        ("it is 31", "reproduced"),
        ("it is 21", "direction only"),
    ]
    console = Console(file=io.StringIO(), width=100)
    console.print(reproduction_table(record))
    assert console.file.getvalue().count("it is autumn") == 1  # only where it does not hold


def test_what_was_measured_is_not_measured_again(tmp_path, weather):
    told = []
    arguments = {"created": NOW, "tell": told.append}
    options = reproduce.ReproduceOptions()
    done, failed = reproduce.run_all(weather, tmp_path, options=options, **arguments)
    assert [record.codec for record, _ in done] == ["hot", "cold"]
    assert [str(error) for error in failed.values()] == ["it is too cold"]
    assert Weather.measured == [31, 21, 1, 2, 3, -300]
    assert [(each.number, each.of, each.kept) for each in told] == [
        (number, 6, False) for number in range(1, 6)
    ]
    assert all(each.seconds_left >= 0 for each in told)

    # An interruption leaves the first claims; a changed option makes other findings.
    path = tmp_path / "reproduce-cold.json"
    record = ReproductionRecord.load(path)
    record.model_copy(update={"findings": record.findings[:2]}).save(path)
    Weather.measured.clear()
    again, _ = reproduce.run_all(["hot", "cold"], tmp_path, options=options, **arguments)
    assert Weather.measured == [3]
    assert [each.kept for each in told[5:]] == [True, True, True, True, False]
    assert [found.measured for found in again[1][0].findings] == ["1", "2", "3"]
    reproduce.run("cold", tmp_path, options=reproduce.ReproduceOptions(seeds=2), created=NOW)
    assert Weather.measured == [3, 1, 2, 3]


def test_claims_with_some_words(tmp_path, weather):
    told = []
    arguments = {"options": reproduce.ReproduceOptions(), "created": NOW, "tell": told.append}
    record, _ = reproduce.run("cold", tmp_path, about="IS 3", **arguments)
    assert [each.claim for each in record.findings] == ["it is 3"]
    record, _ = reproduce.run("cold", tmp_path, about="is 1", **arguments)
    assert [each.claim for each in record.findings] == ["it is 1", "it is 3"]
    assert Weather.measured == [3, 1]
    assert [(each.number, each.of) for each in told] == [(1, 1), (1, 1)]
    with pytest.raises(InputError, match=r"no claim of cold has the words 'rain'.*it is 2"):
        reproduce.run("cold", tmp_path, about="rain", **arguments)


def test_all_papers_leave_a_page(tmp_path, weather):
    weather.pop("never")
    shown = CliRunner().invoke(app, ["reproduce", "--all", "-o", str(tmp_path)])
    assert shown.exit_code == 0, shown.stderr
    assert "5 of 5, cold: it is 3: not reproduced" in shown.stderr
    assert "1 reproduced, 1 direction only, 3 not reproduced" in " ".join(shown.stdout.split())
    page = (tmp_path / "reproduce-all.html").read_text()
    for words in ("All claims", "it is 31", "direction only", "it is autumn"):
        assert words in page


def test_a_paper_that_cannot_be_measured_does_not_stop_the_others(tmp_path, weather):
    shown = CliRunner().invoke(app, ["reproduce", "--all", "-o", str(tmp_path)])
    assert shown.exit_code != 0
    assert "1 of 3 were not measured. never: it is too cold" in str(shown.exception)
    assert (tmp_path / "reproduce-all.html").exists()


def test_offline_sums_are_those_of_the_collective():
    rng = np.random.default_rng(0)
    gradients = [rng.standard_normal(500).astype(np.float32) for _ in range(3)]
    reducer = OfflineReducer({**TOPK, "carrier": "lhc"}, 3, [(500,)])
    first, _ = reducer(gradients)
    # 3 workers with 5 elements each: what is sent is in the sum, all else is zero.
    assert reducer.selected == [15]
    assert np.count_nonzero(first) == reducer.unions[0] <= 15
    largest = [np.abs(each).argmax() for each in gradients]
    expected = [sum(g[i] for g in gradients if abs(g[i]) >= np.sort(abs(g))[-5]) for i in largest]
    np.testing.assert_allclose(first[largest], expected, rtol=1e-6)
    reducer(gradients)
    assert len(reducer.unions) == 2


def test_the_union_of_topk_builds_up_and_a_shared_one_does_not(monkeypatch):
    monkeypatch.setattr(traffic, "_STEPS", 2)
    codecs = {"topk": TOPK, "scalecom": SHARED}
    measure = BuildUp(
        kind="build-up", model="digits-cnn", counts=(1, 4, 16), codecs=codecs, constant="scalecom"
    )
    found = measure.finding(FULL)
    assert found.holds is True
    assert found.numbers["growth"]["scalecom"] == 1
    assert found.numbers["growth"]["topk"] > 4
    assert [series.x for series in found.series] == [(1, 4, 16)] * 2
    wrong = measure.model_copy(update={"constant": "topk"})
    assert wrong.finding(FULL).holds is False
    assert measure.finding(QUICK).holds is None


def test_selected_shares_are_compared_with_the_wanted(monkeypatch):
    monkeypatch.setattr(selection, "_STEPS", 4)
    measure = SelectionRatio(
        kind="selection-ratio",
        model="digits-cnn",
        workers=2,
        codecs={"topk": TOPK},
        targets=(0.01, 0.1),
        within=1.01,
    )
    found = measure.finding(FULL)
    assert found.holds is True  # top-k selects exactly what is wanted, rounded down
    assert found.numbers["topk"] == pytest.approx({"0.01": 1, "0.1": 1}, rel=2e-3)
    threshold = measure.model_copy(update={"codecs": {"sidco-e": "sidco-e"}})
    assert threshold.finding(FULL).holds is False
    monkeypatch.setattr(selection, "selections", lambda *_, **__: ([1], [1]))  # far too few
    assert measure.finding(FULL).holds is False


def test_times_are_of_the_same_gradient_side_by_side():
    codecs = {"topk": TOPK, "shared": SHARED, "threshold": "threshold"}
    measure = SelectionTime(
        kind="selection-time",
        codecs=codecs,
        elements=20000,
        subject="topk",
        min_ratio={"threshold": 1e9},
    )
    found = measure.finding(FULL)
    assert found.holds is False
    assert found.numbers["ratios"]["topk"] == 1
    assert all(seconds > 0 for seconds in found.numbers["seconds"].values())
    assert measure.finding(QUICK).setup.startswith("2,000 elements")


@pytest.mark.parametrize("overlap", [True, False])
def test_bytes_are_compared_with_dense_ones(overlap):
    measure = SparseAggregation(
        kind="aggregation",
        codecs={"lhc": "lhc"},
        elements=20000,
        workers=4,
        density=0.02,
        overlap=overlap,
        subject="lhc",
        min_ratio=10.0,
    )
    found = measure.finding(FULL)
    assert found.holds is overlap  # four times as many are in the union where places differ
    assert found.numbers["lhc"]["bytes"] > 2


def test_bytes_by_the_number_of_workers():
    measure = WorkerTraffic(
        kind="traffic",
        model="digits-cnn",
        counts=(1, 4),
        codecs={"scalecom": "scalecom", "topk": {"preset": "topk"}},
        constant="scalecom",
    )
    found = measure.finding(FULL)
    assert found.holds is True
    assert found.numbers["growth"]["topk"] > 2


class TestComparing:
    def test_worse_is_positive_whatever_the_metric(self):
        accuracy, perplexity = a_run().metric, PERPLEXITY

        assert training._drop(accuracy, 0.9, 0.88) == pytest.approx(2)
        assert training._drop(accuracy, 0.9, 0.95) == pytest.approx(-5)
        assert training._drop(perplexity, 4.0, 5.0) == pytest.approx(25)
        assert training._drop(perplexity, 4.0, 3.0) == pytest.approx(-25)

    @pytest.mark.parametrize(
        ("max_score_drop", "min_compression", "holds"),
        [(3, 0, True), (1, 0, False), (3, 2.5, True), (3, 2.6, False), (1, 2.5, False)],
    )
    def test_a_training_must_lose_little_and_save_bytes(
        self, max_score_drop, min_compression, holds
    ):
        report = a_report(bytes_sent=100, bytes_dense=250)

        def run(score):
            step = a_run(report=report).steps[0].model_copy(update={"score": score})
            return a_run(steps=[step], report=report)

        changes = {"max_score_drop": max_score_drop, "min_compression": min_compression}
        measure = validate(Training, TRAINED | changes)
        found = measure._compared([run(0.9)], [run(0.88)], "a model")
        assert found.holds is holds
        assert ("fewer bytes" in found.criterion) is (min_compression > 0)

    def test_a_paper_from_beginning_to_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reproduce, "paper_of", lambda _: validate(Paper, A_PAPER))
        options = reproduce.ReproduceOptions(seeds=2, seed=5)
        record, path = reproduce.run("topk", tmp_path, options=options, created=NOW)
        assert ReproductionRecord.load(path) == record
        trained, small = record.findings
        assert (trained.claim, trained.paper_result, trained.holds) == ("it learns", "much", True)
        assert trained.numbers["exact"] is True
        assert len(trained.numbers["lost"]) == 2
        assert trained.numbers["selected"] == pytest.approx(0.01, rel=2e-3)
        assert 0.01 < trained.numbers["union"] < 0.02
        assert [series.label for series in trained.series] == ["plain float32", "codec"]
        assert len(trained.series[0].spread) == len(trained.series[0].y)
        assert small.holds is True
        console = Console(file=io.StringIO(), width=100)
        console.print(reproduction_table(record))
        text = console.file.getvalue()
        for words in (
            "Somebody, 2030",
            "A note.",
            "it is small",
            "reproduced (",
            "the moon: too far",
        ):
            assert words in text
        if importlib.util.find_spec("matplotlib"):
            lines, bars = reproduction_figure(record).axes
            assert len(lines.lines) == 2
            assert len(bars.patches) == 1
            assert lines.get_title(loc="left") == "Reproduced: it learns"

    @pytest.mark.repeats("the same with another codec", but=["dgc-*"])
    @pytest.mark.parametrize(
        ("preset", "selector", "most"),
        [
            ("scalecom", {"rate": 100, "warmup": 20, "first_dense": False}, 0.4),
            ("dgc", {"ratio": 0.01, "warmup_steps": 10}, 0.1),
        ],
    )
    def test_a_quick_run_leaves_the_warm_up(self, preset, selector, most, tmp_path, monkeypatch):
        """Else it would say nothing of what the codec does after it."""
        codec = {"preset": preset, "selector": selector}
        claim = A_PAPER["claims"][0] | {"measure": TRAINED | {"batch_size": 50}}
        paper = A_PAPER | {"codec": codec, "claims": [claim]}
        monkeypatch.setattr(reproduce, "paper_of", lambda _: validate(Paper, paper))
        options = reproduce.ReproduceOptions(quick=True)
        record, _ = reproduce.run("any", tmp_path, options=options, created=NOW)
        (found,) = record.findings
        assert "12 steps" in found.setup
        assert 0.01 < found.numbers["selected"] < most

    def test_a_training_that_diverges_is_a_finding(self, tmp_path, monkeypatch):
        def runs(measure, spec, context, *, plain=False, schedule):
            if plain:
                return []
            raise DivergedError("the training diverged: the loss of iteration 3 is nan.")

        monkeypatch.setattr(training, "_runs", runs)
        paper = A_PAPER | {"claims": A_PAPER["claims"][:1]}
        monkeypatch.setattr(reproduce, "paper_of", lambda _: validate(Paper, paper))
        record, _ = reproduce.run(
            "topk", tmp_path, options=reproduce.ReproduceOptions(), created=NOW
        )
        (found,) = record.findings
        assert found.holds is False
        assert "iteration 3" in found.measured

    def test_a_file_that_cannot_be_written_is_told_first(self, tmp_path):
        (tmp_path / "reproduce-topk.json").mkdir()
        with pytest.raises(InputError, match="cannot write"):
            reproduce.run("topk", tmp_path, options=reproduce.ReproduceOptions(), created=NOW)


class TestCommand:
    def test_the_list(self):
        shown = CliRunner().invoke(app, ["reproduce", "--list"])
        assert shown.exit_code == 0
        assert [line.split()[0] for line in shown.stdout.splitlines() if " claim" in line] == list(
            papers()
        )
        shown = CliRunner().invoke(app, ["reproduce", "topk", "--list", "--claim", "Translation"])
        claim = next(each.claim for each in papers()["topk"].claims if "translation" in each.claim)
        assert shown.stdout.replace("\n", " ").strip() == f"- {claim}"

    @pytest.mark.parametrize(
        "arguments", [[], ["dense"], ["topk", "--seeds", "0"], ["topk", "--all"]]
    )
    def test_mistakes(self, arguments, tmp_path):
        shown = CliRunner().invoke(app, ["reproduce", *arguments, "-o", str(tmp_path / "new")])
        assert shown.exit_code != 0
        assert not (tmp_path / "new").exists()

    def test_the_record_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reproduce, "paper_of", lambda _: validate(Paper, A_PAPER))
        arguments = ["reproduce", "topk", "--quick", "-o", str(tmp_path), "--json"]
        made = CliRunner().invoke(app, arguments)
        assert made.exit_code == 0, made.stderr
        record = json.loads(made.stdout)
        assert record["format"] == "innet.reproduce"
        assert record["settings"] == {"quick": True, "seeds": 1}
        assert [finding["holds"] for finding in record["findings"]] == [None, None]
        plot = tmp_path / "again.png"
        path = str(tmp_path / "reproduce-topk.json")
        shown = CliRunner().invoke(app, ["report", path, "--plot", str(plot)])
        assert shown.exit_code == 0, shown.stderr
        assert "the moon" in shown.stdout
        if importlib.util.find_spec("matplotlib"):
            assert plot.stat().st_size > 5000
