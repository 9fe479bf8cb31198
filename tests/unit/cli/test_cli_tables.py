"""No table that the command line prints is cut, however narrow the output is."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text
from support.records import MACHINE, a_record, a_report, a_run
from support.tiers import tiered
from typer.testing import CliRunner

import innet
from innet.cli import output
from innet.cli.app import app
from innet.mininet import inspect
from innet.records import (
    TRAIN,
    Finding,
    Measurement,
    NetworkRun,
    Point,
    PredictionRecord,
    RecordingRecord,
    ReproductionRecord,
    SimulatedTime,
    ThroughputRecord,
)
from innet.reports import registry as reports
from innet.reports import tables
from innet.reports.console import TableConsole
from innet.scenarios.jobs import simulate_jobs
from innet.scenarios.traffic import simulate_traffic

WIDTHS = (60, 80, 120, None)  # None: a pipe
STF = "p4/examples/two-workers.stf"
LONG = "topk:ratio=0.01,quantizer=qsgd,levels=127,error_feedback=residual"
SHARED = {"innet": "0", "created": datetime(2030, 1, 2, tzinfo=UTC), "machine": MACHINE}


def simulated():
    return innet.simulate(
        workers=3, size=20_000, iterations=2, thin=True, network="10g", codec=LONG,
        baselines=("ring", "halving-doubling"), sensitivity=True,
        background={"flow": [{"source": 1, "destination": 0, "rate": 1e9, "size": 1000}]},
    )  # fmt: skip


def swept():
    return innet.sweep(
        {"size": 2_560_000, "network": "10g", "thin": True, "baselines": ("ring",)},
        {"workers": [2, 3], "codec": ["dense", LONG], "straggler": ["none", "fixed:factor=1.5"]},
        jobs=1,
    )


def trained():
    runs = [a_run("plain"), a_run("dense", report=a_report()), a_run(LONG, report=a_report())]
    runs = [
        each.model_copy(
            update={
                "simulated": {"100g": SimulatedTime(compute=0.1234, network=12.5, encode=0.5)},
                "counted_elements": {"convolution": 100_000},
                "counted_bits": {"convolution": (1000,) * len(each.steps)},
            }
        )
        for each in runs
    ]
    settings = {"workers": 4, "iterations_per_epoch": 11, "networks": ["100g"], "epochs": 2}
    return a_record(format=TRAIN, runs=runs, settings=settings)


def predicted():
    counts = {"packets": 81234, "bytes": 28321234, "dropped": 0, "lost": 0, "retransmissions": 7}
    return PredictionRecord(
        **SHARED, workers=2, jobs=1, elements=10, window=64, idle_seconds=1e-4, busy=0.5,
        exact=True, mininet=NetworkRun.of((0.1,), 10, **counts),
        simulated=NetworkRun.of((0.2,), 10, **counts),
    )  # fmt: skip


def reproduced():
    finding = Finding(claim="It is 3 times " * 9, paper_result="3.21", setup="s", measured="2.97")
    return ReproductionRecord(
        **SHARED, codec="lhc", paper="A 2024", findings=(finding,), not_reproduced=("n",)
    )


def throughput():
    point = Point(switch="memory", workers=2, codec=LONG, values_per_packet=64, window=8)
    return ThroughputRecord(
        **SHARED, measurements=(Measurement(point=point, reports=(a_report(),)),)
    )


def traffic(recording=None):
    flows = """
        [topology]
        kind = "star"
        hosts = 3
        [[flow]]
        source = 0
        destination = 1
        size = 999
        packets = 70
        interval = 1e-6"""
    with TemporaryDirectory() as folder:
        path = Path(folder, "flows.toml")
        path.write_text(flows)
        return simulate_traffic(path, recording=recording)


def recording():
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        traffic(path)
        return RecordingRecord.load(path)


def jobs():
    return simulate_jobs(
        [{"workers": 2}, {"workers": 3, "codec": LONG}], size=20_000, network="10g"
    )


def of_mininet():
    shown = inspect._table("slots of s1", "slot", ">owner", "who is in")
    inspect._fill(shown, [(str(number), "1,234,567", "0-24, 26-39") for number in range(40)])
    return shown


SHOWN = {
    "simulate": lambda: tables.simulation_table(simulated()),
    "jobs": lambda: tables.jobs_table(jobs()),
    "sweep": lambda: tables.sweep_table(swept()),
    "recording": lambda: tables.recording_table(recording()),
    "traffic": lambda: tables.traffic_table(traffic()),
    "demo": lambda: tables.demo_table(a_record()),
    "train": lambda: reports.table_of(trained()),
    "predict": lambda: tables.prediction_table(predicted()),
    "reproduce": lambda: tables.reproduction_table(reproduced()),
    "claims": lambda: tables.claims_table([reproduced()] * 2),
    "throughput": lambda: tables.throughput_table(throughput()),
    "allreduce": lambda: tables.report_table(a_report(codec=LONG)),
    "mininet": of_mininet,
}
COMMANDS = ("codecs", "codecs topk", "doctor", "help", f"switch stf slots-32 {STF} {STF}",
            "switch bench slots-32 --packets 64", "p4 check slots-32 --stages")  # fmt: skip


def test_each_kind_of_record_is_shown():
    formats = {each.removeprefix("innet.") for each in reports.FORMATS}
    assert formats <= SHOWN.keys() | {"simulation", "prediction"}


@functools.cache
def shown(name):
    return SHOWN[name]()


def plain(cell):
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


def tables_of(made):
    if isinstance(made, Group):
        for each in made.renderables:
            yield from tables_of(each)
    elif isinstance(made, Table):
        yield made


def check(made, text, width):
    """Each word of the tables is whole; no line is wider than it may be, or needs to be."""
    for each in (each for table in made for each in tables_of(table)):
        words = [word for column in each.columns for cell in column.cells
                 for word in plain(cell).split()]  # fmt: skip
        words += [word for column in each.columns if each.show_header and any(column.cells)
                  for word in plain(column.header).split()]  # fmt: skip
        missing = set(words) - set(text.split())
        assert not missing, missing
        if width is None:  # a row of numbers is one line
            numbers = [column for column in each.columns if column.justify == "right"]
            for cells in zip(*(column.cells for column in numbers), strict=True):
                row = r".*".join(re.escape(plain(cell)) for cell in cells if len(plain(cell)) < 25)
                assert re.search(row, text)
    assert "…" not in text


@pytest.mark.xdist_group("records' tables")  # what is simulated for them is made once
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SHOWN)
def test_records_tables_are_whole(name, width, monkeypatch):
    if width is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", str(width))
    console = TableConsole(emoji=False)
    with console.capture() as captured:
        console.print(shown(name))
    text = captured.get()
    check([shown(name)], text, width)
    for line in text.splitlines() if width else ():
        assert len(line) <= max(width, 24 + len(LONG)), line


@pytest.mark.repeats(
    "the bench, which test_tools_bench.py runs",
    but=["codecs*", "doctor*", "help*", "switch stf*", "p4 check*"],
)
@pytest.mark.parametrize(
    "width", tiered(WIDTHS, (60,), "the same with other widths, and records' tables")
)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_tables_are_whole(command, width, monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[3])
    made = []
    whole = output.out.print

    def watched(*objects, **options):
        made.extend(objects)
        whole(*objects, **options)

    monkeypatch.setattr(output.out, "print", watched)
    found = CliRunner().invoke(app, command.split(), env={"COLUMNS": width and str(width)})
    assert found.exit_code == 0, found.output
    assert any(True for each in made for _ in tables_of(each))
    check(made, found.stdout, width)


def test_a_sweeps_rows_become_blocks_where_they_do_not_fit(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    console = TableConsole()
    table = Table("codec")
    for name in ("time", "goodput\nGbit/s", "packets"):
        table.add_column(name, justify="right")
    table.add_row("topk:ratio=0.01", "2.38 ms", "382.15", "2,560,000")
    table.add_row("dense", "24.6 ms", "", "12")
    with console.capture() as captured:
        console.print(table)
    assert [line.strip() for line in captured.get().splitlines()] == [
        "",
        "codec           topk:ratio=0.01",
        "time            2.38 ms",
        "goodput Gbit/s  382.15",
        "packets         2,560,000",
        "",
        "codec           dense",
        "time            24.6 ms",
        "packets         12",
    ]


def test_text_wraps_before_rows_become_blocks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "44")
    console = TableConsole()
    table = Table("summed by", box=None)
    table.add_column("time", justify="right")
    table.add_row("a sentence of several words that is long", "2.38 ms")
    with console.capture() as captured:
        console.print(table)
    assert captured.get().splitlines()[1:] == [
        " a sentence of several words that   2.38 ms",
        " is long",
    ]
