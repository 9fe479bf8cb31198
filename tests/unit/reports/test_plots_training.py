"""The table and the picture of a training show all its seeds."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from rich.console import Console
from support.records import a_record, a_report, a_run

from innet.records import PERPLEXITY, TRAIN, Metric
from innet.reports import plots
from innet.reports.plots import training_figure
from innet.reports.registry import draw
from innet.reports.tables import (
    cells,
    methods_of,
    spread_of_scores,
    title,
    training_notes,
    training_table,
)

pytest.importorskip("matplotlib")


def a_training(metric=None, seeds=3):
    """Plain sums and top-k; the runs of a seed are a tenth better than those of the one before."""
    runs = []
    for seed in range(seeds):
        for method, report in (("plain float32", None), ("topk", a_report(bytes_sent=28400))):
            run = a_run(method, report=report)
            steps = [
                step.model_copy(
                    update={
                        "loss": step.loss * 0.9**seed,
                        "score": None if step.score is None else step.score * (1 - 0.1 * seed),
                    }
                )
                for step in run.steps
            ]
            changes = {
                "name": f"{method}-{seed}",
                "steps": tuple(steps),
                "settings": {"method": method, "seed": seed},
            }
            runs.append(run.model_copy(update=changes | ({"metric": metric} if metric else {})))
    settings = {"title": "something learns", "workers": 4, "epochs": 2, "iterations_per_epoch": 11}
    return a_record(format=TRAIN, runs=runs, settings=settings)


@pytest.mark.parametrize(("workers", "said"), [(4, "4 workers"), (1, "1 worker")])
def test_a_title_says_how_many_workers_there_are(workers, said):
    record = a_training()
    record = record.model_copy(update={"settings": {**record.settings, "workers": workers}})
    expected = f"something learns: {said}, epochs: 2, seeds: 3"
    assert title(record, methods_of(record)) == expected


def test_runs_are_grouped_by_their_way_to_sum():
    plain, topk = methods_of(a_training())
    assert (plain.title, topk.title) == ("plain float32", "topk")
    assert (plain.measured, topk.measured) == (False, True)
    assert topk.compression == pytest.approx(10)
    last = topk.runs[0].final_score
    assert topk.scores() == pytest.approx([last, 0.9 * last, 0.8 * last])
    assert topk.losses(11)[2] == pytest.approx(0.81 * topk.losses(11)[0])


def test_a_loss_that_ran_away_does_not_fill_the_table():
    _, topk = methods_of(a_training())
    steps = [step.model_copy(update={"loss": 1.5e26}) for step in topk.runs[0].steps]
    away = replace(topk, runs=(topk.runs[0].model_copy(update={"steps": tuple(steps)}),))
    assert cells(away, 11)[1] == "1.5e+26"


def test_lines_are_means_and_bands_deviations():
    record = a_training()
    score, traffic, loss, final = training_figure(record).axes
    runs = methods_of(record)[1].runs
    scores = np.array(
        [[100 * step.score for step in run.steps if step.score is not None] for run in runs]
    )
    np.testing.assert_allclose(score.lines[1].get_ydata(), scores.mean(axis=0))
    np.testing.assert_allclose(score.lines[1].get_xdata(), [11, 22])
    np.testing.assert_allclose(traffic.lines[0].get_xdata(), [11 * 28400, 22 * 28400])
    (band,) = score.collections
    edges = band.get_paths()[0].vertices[:, 1]
    around = scores.std(axis=0, ddof=1)
    assert edges.min() == pytest.approx((scores.mean(axis=0) - around).min())
    assert edges.max() == pytest.approx((scores.mean(axis=0) + around).max())
    assert len(loss.lines) == 2
    assert final.get_xscale() == "log"
    assert not [text for axes in (score, traffic, loss, final) for text in axes.texts]


def test_names_stand_below_the_panels_and_cover_no_curve():
    record = a_training()
    long = "topk(ratio=0.05) + qsgd + lhc + residual, and more of such words"
    runs = [
        run.model_copy(update={"settings": {"method": f"{long} {number}", "codec": "topk"}})
        for number in range(4)
        for run in record.runs[1::2]
    ]
    figure = training_figure(record.model_copy(update={"runs": (*record.runs[::2], *runs)}))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["plain float32", *(f"{long} {number}" for number in range(4))]
    box = legend.get_window_extent()
    assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
    for axes in figure.axes:
        assert not axes.get_tightbbox().overlaps(box)
    # Equal curves are seen below each other
    widths = [line.get_linewidth() for line in figure.axes[0].lines]
    assert widths == sorted(widths, reverse=True)
    assert len({*widths}) == len(widths)


def test_one_seed_has_no_band():
    assert not training_figure(a_training(seeds=1)).axes[0].collections


def test_perplexities_are_no_percentages():
    figure = training_figure(a_training(PERPLEXITY))
    assert figure.axes[0].get_ylabel() == "perplexity"
    assert figure.axes[0].lines[1].get_ydata().max() < 1


def test_scores_with_their_spread():
    accuracy = a_run().metric
    assert spread_of_scores([0.97, 0.98], accuracy) == "97.5 ± 0.7 %"
    assert spread_of_scores([0.97], accuracy) == "97.0 %"
    assert spread_of_scores([4.1, 4.3], PERPLEXITY) == "4.20 ± 0.14"
    assert spread_of_scores([], accuracy) == "not evaluated"
    error = Metric(name="error", unit="number", higher_is_better=False)
    assert spread_of_scores([0.00112, 0.00114], error) == "0.00113 ± 1.41e-05"
    assert spread_of_scores([0.0, 0.0], error) == "0.00 ± 0.00"
    assert spread_of_scores([-3.2], error) == "-3.20"


@pytest.mark.parametrize("less", [2, 25])
def test_every_number_at_a_logarithmic_axis_has_its_unit(less):
    record = a_training()
    dense = a_run("dense", report=a_report()).model_copy(update={"settings": {"method": "dense"}})
    other = a_run("lhc", report=a_report(bytes_sent=284_000 // less)).model_copy(
        update={"settings": {"method": "lhc"}}
    )
    figure = training_figure(record.model_copy(update={"runs": (dense, other)}))
    _, traffic, _, final = figure.axes
    for axes, units in ((traffic, ("kB", "MB")), (final, ("\N{MULTIPLICATION SIGN}",))):
        low, high = axes.get_xlim()
        labels = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
        inside = [each for each in labels if low <= each.get_position()[0] <= high]
        shown = [each.get_text() for each in inside if each.get_text()]
        assert len(shown) > 1
        assert all(each.endswith(units) for each in shown), shown


@pytest.mark.parametrize(
    ("low", "high"), [(2e4, 6e5), (4.1e5, 6.3e6), (1e3, 1e8), (2.1e5, 3.9e5), (3.1e5, 3.9e5)]
)
def test_a_logarithmic_axis_is_labelled_whatever_its_range(low, high):
    """By the formatter of the axis alone: powers of ten beside it would lie one over the other."""
    figure = plots.new_figure(4, 3)
    axes = figure.subplots()
    axes.plot([low, high], [1, 2])
    plots.log_scale(axes, "x", plots.bytes_tick)
    figure.draw_without_rendering()
    left, right = axes.get_xlim()
    ticks = [tick for tick in axes.xaxis.get_major_ticks() if left <= tick.get_loc() <= right]
    labels = [tick.label1.get_text() for tick in ticks]
    assert 2 <= len(set(labels)) == len(labels) <= 7
    assert all(label.endswith("B") for label in labels)
    assert not any(tick.label1.get_text() for tick in axes.xaxis.get_minor_ticks())


def test_plain_sums_that_were_evaluated_once_are_seen():
    record = a_training(seeds=1)
    short = [run.model_copy(update={"steps": run.steps[:11]}) for run in record.runs]
    score = training_figure(record.model_copy(update={"runs": tuple(short)})).axes[0]
    assert [(len(line.get_xdata()), line.get_marker()) for line in score.lines] == [(1, "o")] * 2


def names_of_points(ratios, methods):
    """The panel of final scores, and where it names ways to sum, of so many times fewer bytes."""
    record = a_training(seeds=1)
    plain, topk = record.runs
    named = [plain]
    for ratio, method in zip(ratios, methods, strict=True):
        steps = [
            step.model_copy(update={"bytes_sent": step.bytes_dense // ratio}) for step in topk.steps
        ]
        settings = {"method": method, "seed": 0}
        named.append(
            topk.model_copy(update={"name": method, "settings": settings, "steps": tuple(steps)})
        )
    figure = training_figure(record.model_copy(update={"runs": tuple(named)}))
    figure.draw_without_rendering()
    final = figure.axes[-1]
    return final.get_window_extent(), [text.get_window_extent() for text in final.texts]


def test_names_of_points_stay_within_the_picture():
    ratios = (10, 90)  # the right one of two points, and the left one
    methods = [f"a codec of many parts, sent {ratio} times fewer bytes" for ratio in ratios]
    frame, boxes = names_of_points((*ratios, *range(20, 25)), [*methods, *"abcde"])
    boxes = boxes[:2]
    assert len(boxes) == len(methods)
    for box in boxes:
        assert frame.x0 <= box.x0 < box.x1 <= frame.x1


def test_names_of_points_that_coincide_can_be_read():
    methods = ["dense", "lhc", "exact", "sketched-sgd", "block", "sidco-e", "topk"]
    _, boxes = names_of_points((1, 1, 1, 9, 9, 10, 10), methods)
    assert len(boxes) == len(methods)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_file_is_a_png(tmp_path):
    draw(a_training(), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def with_failure(losses, scores, settings=None):
    """The training, and a codec with such losses and scores at its evaluations."""
    record = a_training(seeds=1)
    topk = record.runs[1]
    evaluated = iter(scores)
    steps = [
        step.model_copy(
            update={
                "loss": loss,
                "score": None if step.score is None else next(evaluated),
            }
        )
        for step, loss in zip(topk.steps, losses, strict=True)
    ]
    failed = topk.model_copy(
        update={"name": "bad", "steps": tuple(steps), "settings": {"method": "bad", "codec": "dgc"}}
    )
    return record.model_copy(
        update={
            "runs": (*record.runs, failed),
            "settings": {**record.settings, "chance": 0.1, **(settings or {})},
        }
    )


def test_a_training_that_diverged_is_said_and_does_not_squeeze_the_others():
    losses = [2.3 * 3**number for number in range(22)]
    record = with_failure(losses, [0.3, 0.2])
    (note,) = training_notes(record)
    assert note == "bad: its loss grew, the training diverged. Choose a smaller learning rate."
    score, _, loss, _ = training_figure(record).axes
    assert loss.get_ylim()[1] < 4
    assert "beyond this panel: bad (diverged)" in [text.get_text() for text in loss.texts]
    (legend,) = score.figure.legends
    assert "bad (diverged)" in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("final", "chance", "said"), [(0.11, 0.1, True), (0.2, 0.1, False), (0.11, None, False)]
)
def test_a_training_that_learnt_nothing_is_said(final, chance, said):
    record = with_failure([2.3] * 22, [0.3, final], {"chance": chance})
    notes = training_notes(record)
    assert bool(notes) == said
    if said:
        assert notes[0].startswith(
            "bad: its accuracy, 11.0 %, is no better than guessing (10.0 %)."
        )
    rows = [text for column in training_table(record).columns[:1] for text in column._cells]
    assert rows == ["plain float32", "topk", "bad *" if said else "bad"]


def test_many_codecs_have_a_panel_each():
    record = a_training(seeds=2)
    runs = [run for run in record.runs if run.settings["method"] != "topk"]
    names = [f"codec{number}" for number in range(13)]
    for name in names:
        for seed, run in enumerate(each for each in record.runs if each.summed_by_network):
            settings = {"method": name, "seed": seed, "codec": name}
            runs.append(run.model_copy(update={"name": f"{name}-{seed}", "settings": settings}))
    figure = training_figure(record.model_copy(update={"runs": tuple(runs)}))
    *panels, final = figure.axes
    assert [axes.get_title(loc="left").partition(":")[0] for axes in panels] == names
    assert all(len(axes.lines) == 14 for axes in panels)  # its own, and the others in gray
    assert [text.get_text() for text in final.texts] == names


def test_a_table_of_two_seeds_fits_80_columns():
    record = a_training(seeds=2)
    console = Console(width=80, file=io.StringIO())
    console.print(training_table(record))
    (row,) = [line for line in console.file.getvalue().splitlines() if line.startswith("  topk")]
    assert row.rstrip().endswith("all")
