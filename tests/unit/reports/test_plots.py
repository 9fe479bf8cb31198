"""The demonstration's plot shows what the record says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.records import a_record, a_report, a_run

from innet.codecs.presets import PRESETS
from innet.core.errors import InputError, MissingToolError
from innet.records import Step
from innet.reports.plots import codec_styles, demo_figure
from innet.reports.registry import draw

pytest.importorskip("matplotlib")

TIMES = "\N{MULTIPLICATION SIGN}"


def test_lines_carry_the_records_numbers() -> None:
    record = a_record()
    accuracy, accuracy_bytes, _, loss, loss_bytes, _ = demo_figure(record).axes
    for index, run in enumerate(record.runs):
        known = [step for step in run.steps if step.score is not None]
        expected = [100 * (step.score or 0) for step in known]
        np.testing.assert_allclose(accuracy.lines[index].get_ydata(), expected)
        assert list(accuracy.lines[index].get_xdata()) == [11, 22]
        assert list(loss.lines[index].get_xdata()) == list(range(1, 23))
    for line, each in zip(accuracy_bytes.lines, (284000, 28000), strict=True):
        assert list(line.get_xdata()) == [11 * each, 22 * each]
    first = [step.loss for step in record.runs[1].steps]
    smoothed = loss_bytes.lines[0].get_ydata()
    assert smoothed[0] == first[0]
    assert smoothed[1] == pytest.approx(np.mean(first[:2]))
    assert smoothed[-1] == pytest.approx(np.mean(first[-11:]))
    assert accuracy_bytes.get_xscale() == loss_bytes.get_xscale() == "log"


def test_bars_carry_totals_of_the_runs_that_sent_packets() -> None:
    volume = demo_figure(a_record()).axes[2]
    assert [bar.get_width() for bar in volume.patches] == [22 * 284000, 22 * 28000]
    texts = [text.get_text() for text in volume.texts]
    assert texts == ["6.25 MB", f"616 kB (10.1{TIMES} less)"]


def test_the_heading_says_what_was_found() -> None:
    found = demo_figure(a_record()).get_suptitle().splitlines()[1]
    assert (
        found
        == f"top-k 1 %, LHC: 10.1{TIMES} fewer bytes, accuracy within 1 point of plain float32"
    )
    worse = [
        step.model_copy(update={"score": step.score and step.score - 0.02})
        for step in a_run("topk", report=a_report(bytes_sent=28000)).steps
    ]
    runs = [a_run("plain"), a_run("dense", report=a_report()), a_run("topk", steps=worse)]
    found = demo_figure(a_record(runs=runs)).get_suptitle().splitlines()[1]
    assert found == "no codec saves bytes and stays within 1 point of plain float32's accuracy"


def test_a_codec_has_one_color_and_no_two_lines_look_alike() -> None:
    alone = codec_styles(["topk"])[0]
    together = codec_styles(["dense", "lhc", "topk", "topk(ratio=0.05)", "mine", "yours"])
    assert together[2] == alone
    assert len({tuple(look.items()) for look in together}) == 6
    every = codec_styles(PRESETS.names())
    assert len({tuple(look.items()) for look in every}) == len(every) >= 17
    many = codec_styles([f"codec {number}" for number in range(100)])
    assert len(many) == 100  # more than there are styles


def test_times_are_of_the_runs_that_sent_packets() -> None:
    times = demo_figure(a_record()).axes[5]
    assert [label.get_text() for label in times.get_yticklabels()] == ["dense", "top-k 1 %, LHC"]
    assert [bar.get_width() for bar in times.patches] == pytest.approx([2, 10, 1] * 2)


def test_title_counts_the_exact_sums() -> None:
    steps = [Step.of(1, 1.0, 0.5, a_report()), Step.of(2, 1.0, 0.5, a_report(exact=False))]
    figure = demo_figure(a_record(runs=[a_run("dense", steps)]))
    assert "1 of 2 integer sums exact" in figure.get_suptitle()
    alone = demo_figure(a_record(settings={"workers": 1})).get_suptitle()
    assert alone.startswith("1 worker learns handwritten digits; the switch sums its gradients (")


def test_file_is_a_png_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        draw(a_record(), tmp_path / name)
    content = (tmp_path / "one.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) > 20_000
    assert content == (tmp_path / "two.png").read_bytes()


@pytest.mark.repeats("the same with another form", but=["a.pdf-*"])
@pytest.mark.parametrize(("name", "begins"), [("a.pdf", b"%PDF-"), ("a.SVG", b"<?xml")])
def test_a_file_is_what_its_name_says(tmp_path: Path, name: str, begins: bytes) -> None:
    draw(a_record(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_name_of_no_picture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"written as \.txt; choose one of \.png, \.pdf, \.svg"):
        draw(a_record(), tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())


def test_records_of_other_shapes_can_be_drawn(tmp_path: Path) -> None:
    bare = [Step(iteration=1, loss=0.5)]
    for runs in (
        [a_run("plain", bare)],
        [a_run("dense", report=a_report(bytes_sent=0, bytes_dense=0))],
        [a_run(f"run{index}", report=a_report()) for index in range(9)],
    ):
        draw(a_record(runs=runs), tmp_path / "plot.png")


def test_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*absent"):
        draw(a_record(), tmp_path / "absent" / "plot.png")


def test_a_back_end_of_another_environment_does_no_harm(tmp_path: Path) -> None:
    """As where a notebook calls innet of another environment than its own."""
    draw = (
        "import sys; from innet.reports import plots; "
        "plots.save(plots.new_figure(1, 1), sys.argv[1])"
    )
    picture = tmp_path / "empty.png"
    subprocess.run(
        [sys.executable, "-c", draw, picture],
        env={**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"},
        check=True,
        timeout=60,
    )
    assert picture.stat().st_size > 0


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingToolError, match=r"pip install 'innet\[plot\]'"):
        demo_figure(a_record())
