"""``innet report --html``: one page that needs nothing else."""

from __future__ import annotations

import functools
import re
import shlex
import sys
from html.parser import HTMLParser

import pytest
from support.records import a_record
from typer.testing import CliRunner

import innet
from innet.cli.app import app
from innet.core.errors import InputError
from innet.records import Record
from innet.sim import Network

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """All elements of a page, and whether each is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, *tags):
        return [attributes for tag, attributes in self.found if tag in tags]


def innet_command(*words):
    found = CliRunner().invoke(app, [*map(str, words)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


@functools.cache
def records():
    return (
        innet.simulate(workers=3, size=3000, network="10g:loss=0.001", straggler="none"),
        innet.simulate(model="resnet20", workers=2, network="10g", codec="topk:ratio=0.01"),
        innet.sweep(
            {"size": 2000, "network": "10g"},
            {"workers": [2, 3], "codec": ["dense", "topk:ratio=0.1"]},
            jobs=1,
        ),
    )


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"<{number}>.json" for number in range(3)]
    for record, path in zip(records(), paths, strict=True):
        record.save(path)
    return paths


@pytest.fixture
def page(files, tmp_path):
    innet_command("report", *files, "--html", tmp_path / "page.html")
    return Page((tmp_path / "page.html").read_text())


def test_the_page_needs_nothing_else(page):
    names = {tag for tag, _ in page.found}
    assert names.isdisjoint({"script", "link", "iframe", "object", "embed", "base"})
    for tag, attributes in page.found:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "style"):
                assert tag != "img"
                assert "//" not in (value or "")
                assert name != "href" or value.startswith("#")
            assert not name.startswith("on")
    (style,) = (text for text in page.text if ":root" in text)
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style


def test_ids_are_unique_and_links_lead_to_them(page):
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    links = [
        attributes.get("href") or attributes.get("xlink:href")
        for attributes in page.all("a", "use")
    ]
    clips = [
        re.search(r"url\((#[^)]*)\)", attributes["clip-path"])[1]
        for _, attributes in page.found
        if "clip-path" in attributes
    ]
    assert len(links) > 10
    assert clips
    assert {*links, *clips} <= {f"#{each}" for each in ids}


def test_tables_and_plots_have_names_for_who_does_not_see_them(page):
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(each.get("scope") in ("row", "col") for each in page.all("th"))
    plots = page.all("svg")
    assert len(plots) == 3
    for each in plots:
        assert each["role"] == "img"
        assert each["aria-label"].startswith("Plot of ")
        assert "viewbox" in each
        assert "height" not in each


def test_the_page_says_what_the_records_hold(page):
    text = " ".join(" ".join(page.text).split())
    plain, model, _ = records()
    assert "3 records of innet" in text
    assert "<0>.json" in text
    assert "all-reduce of 3,000 elements, 3 workers, dense" in text
    assert f"{model.simulated.goodput_gbps:.4g}" in text
    assert "Sweep over workers and codec: 4 points" in text
    assert text.count("topk:ratio=0.1") >= 3
    assert f"{plain.simulated.retransmissions}" in text


def test_the_commands_make_the_records_again(page, tmp_path):
    commands = [each for each in page.text if each.startswith("innet ")]
    assert len(commands) == 3
    for record, command in zip(records(), commands, strict=True):
        path = tmp_path / "again"
        jobs = ["--jobs", "1"] if " sweep " in command else []
        innet_command(*shlex.split(command)[1:], *jobs, "-o", path)
        again = Record.load(path / "sweep.json" if path.is_dir() else path)
        if jobs:
            for one, other in zip(record.points, again.points, strict=True):
                assert one.record["simulated"] == other.record["simulated"]
        else:
            assert (again.simulated, again.iterations) == (record.simulated, record.iterations)
            path.unlink()


@pytest.mark.repeats("the same with other settings", but=["settings0-*"])
@pytest.mark.parametrize(
    ("settings", "command"),
    [
        (
            {"codec": {"preset": "topk", "selector": {"ratio": 0.1}}, "size": 2000},
            "innet simulate --codec topk --set selector.ratio=0.1 --size 2000",
        ),
        (
            {"network": Network(loss=0.1), "size": 64, "pauses": ("0:1:0.1", "1:1:0.2")},
            "innet simulate --network 100g:loss=0.1 --size 64 --pause 0:1:0.1 --pause 1:1:0.2",
        ),
        ({"codec": {"carrier": {"name": "dense"}}, "size": 64}, r"innet\.simulate\(.*carrier"),
    ],
)
def test_commands_of_other_settings(settings, command, tmp_path):
    record = innet.simulate(workers=2, **settings)
    record.save(tmp_path / "r.json")
    innet_command("report", tmp_path / "r.json", "--html", tmp_path / "page.html")
    found = [each for each in Page((tmp_path / "page.html").read_text()).text if "simulate" in each]
    (said,) = (each for each in found if each.startswith("innet"))
    assert re.match(command.replace("simulate --", "simulate --workers 2 --"), said)


def test_failures_are_named(tmp_path):
    record = innet.sweep({"program": "slots", "size": 64}, {"workers": [2, 33]}, jobs=1)
    record.save(tmp_path / "r.json")
    shown = innet_command("report", tmp_path / "r.json")
    assert "workers=33 failed: " in shown.stderr
    innet_command("report", tmp_path / "r.json", "--html", tmp_path / "page.html")
    assert "workers=33 failed: " in (tmp_path / "page.html").read_text()


def test_other_records_have_pages_too(tmp_path):
    a_record().save(tmp_path / "r.json")
    innet_command("report", tmp_path / "r.json", "--html", tmp_path / "page.html")
    assert Page((tmp_path / "page.html").read_text()).all("svg")


def test_without_matplotlib_the_page_says_so(files, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    innet_command("report", files[0], "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "No plot was drawn: " in text
    assert not Page(text).all("svg")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["0", "1", "--plot", "x.png"], "of one record"),
        (["0", "1", "--json"], "of one record"),
        (["2", "--trace", "x.json"], r"--trace is of simulations; .*innet\.sweep"),
        (["0", "--metric", "seconds"], "--metric is for --plot of a sweep"),
        ([], "name a record"),
    ],
)
def test_options_that_do_not_fit_the_records_are_refused(files, options, message):
    words = [files[int(each)] if each.isdigit() else each for each in options]
    with pytest.raises(InputError, match=message):
        innet_command("report", *words)


def test_several_records_are_shown_one_after_the_other(files, tmp_path):
    shown = innet_command("report", *files[1:]).stdout
    assert shown.index("<1>.json:") < shown.index("Goodput") < shown.index("<2>.json:")
    innet_command("report", files[1], "--trace", tmp_path / "t.json")
    assert (tmp_path / "t.json").stat().st_size > 1000
    words = ["--plot", tmp_path / "s.svg", "--metric", "dropped"]
    innet_command("report", files[2], *words)
    assert (tmp_path / "s.svg").exists()


def test_the_file_of_a_point_is_shown_as_its_run(tmp_path):
    innet.sweep({"size": 64}, {"workers": [2]}, jobs=1, out_dir=tmp_path)
    (path,) = (each for each in tmp_path.glob("*.json") if each.name != "sweep.json")
    assert "Goodput" in innet_command("report", path).stdout
