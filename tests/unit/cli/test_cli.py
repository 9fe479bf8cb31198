"""The command line: what people type, and what they see when it is wrong."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from support.interrupts import hear_interrupts
from support.tiers import tiered
from typer.testing import CliRunner

from innet import programs
from innet.cli import INTERRUPTED, TERMINATED, main
from innet.cli.app import app, status_of
from innet.cli.options import with_parameters
from innet.cli.output import TerminalNotice, say_json
from innet.core.errors import (
    CompositionError,
    ConfigError,
    DivergedError,
    InnetError,
    InputError,
    OutputError,
    StalledError,
    UnknownNameError,
)
from innet.records import RecordingRecord


def innet(*arguments):
    """The exit code, standard output and standard error of one command."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def process(*arguments, **keywords):
    """The command in a process of its own, as a shell starts it."""
    command = [sys.executable, "-m", "innet", *map(str, arguments)]
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | keywords
    return subprocess.run(command, timeout=60, check=False, **keywords)


def test_on_a_terminal_compiling_is_said_once():
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system=None)
    with TerminalNotice(3600, terminal)():
        pass
    assert terminal.file.getvalue() == ""
    notice = TerminalNotice(0, terminal)
    for _ in range(2):
        with notice(), notice():
            while "Compiling" not in terminal.file.getvalue():
                time.sleep(0.01)  # pytest's timeout ends it
    said = "Compiling what this machine has not compiled yet (kept for the next time) ...\n"
    assert terminal.file.getvalue() == said
    script = Console(file=io.StringIO(), force_terminal=False)
    with TerminalNotice(0, script)():
        time.sleep(0.05)
    assert script.file.getvalue() == ""


def report_of(*arguments):
    result = innet("allreduce", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_help_lists_the_commands():
    text = innet("--help").stdout
    for command in ("demo", "allreduce", "codecs", "report", "p4", "switch"):
        assert command in text


def test_version():
    assert innet("--version").stdout.strip().count(".") == 2


def test_sources_that_are_not_installed():
    code = """
import importlib.metadata, sys
def version(name, found=importlib.metadata.version):
    if name == "innet":
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
sys.argv = ["innet", "p4", "list"]
import innet.__main__
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "slots-64" in done.stdout


@pytest.mark.parametrize("codec", ["dense", "lhc", "topk"])
def test_allreduce(codec):
    report = report_of("--codec", codec, "--size", 3000, "--density", 0.05, "--workers", 3)
    assert report["exact"] is True
    assert report["workers"] == 3
    assert report["elements"] == 3000
    assert set(report["seconds"]) >= {"encode", "network", "decode", "total"}
    assert report["compression"] == report["bytes_dense"] / report["bytes_sent"]


def test_allreduce_options_reach_the_run():
    report = report_of("--size", 500, "--engine", "interpret", "--values-per-packet", 32)
    assert report["engine"] == "interpret"
    assert report["values_per_packet"] == 32
    assert report["program"] == "slots-32"


def test_a_recorded_all_reduce_is_viewed(tmp_path):
    run = tmp_path / "run.json"
    report = report_of(
        "--network", "10g", "--size", 500, "--values-per-packet", 32, "--record", run
    )  # fmt: skip
    record = RecordingRecord.load(run)
    assert record.settings["title"] == "All-reduce of 4 workers, dense"
    from_workers = report["packets_sent"] + report["packets_received"]
    assert record.packets == from_workers
    innet("view", run, "-o", tmp_path / "page.html")
    assert "All-reduce of 4 workers, dense" in (tmp_path / "page.html").read_text()


def test_more_workers_than_a_switch_takes_are_spread_over_racks():
    report = report_of("--workers", 64, "--size", 500)
    assert report["exact"] is True
    assert (report["program"], report["workers"]) == ("tree-64", 64)


def test_input_files_of_more_workers_than_a_switch_takes(tmp_path):
    np.savez(tmp_path / "many.npz", **{f"w{i}": np.full(100, i, np.float32) for i in range(40)})
    report = report_of("--input", tmp_path / "many.npz")
    assert report["exact"] is True
    assert (report["program"], report["workers"]) == ("tree-64", 40)


@pytest.mark.parametrize(
    ("name", "packets"),
    [("reduce-scatter", 2 * 17), ("all-gather", 2 * 16), ("reduce", 2 * 17), ("broadcast", 2 * 16)],
)
def test_collectives(name, packets, tmp_path):
    """Of 1,000 elements each worker sends 16 packets, and one to agree on the scale of a sum."""
    file = tmp_path / "result.npy"
    options = ("--collective", name, "--workers", 2, "--size", 1000, "--output", file)
    report = json.loads(innet("allreduce", "--json", *options).stdout)
    assert report["exact"]
    assert report["details"]["collective"] == name
    assert report["program"] == "collectives-64"
    assert np.load(file).shape == (1000,)
    assert report["packets_sent"] == packets


def test_a_barrier_has_no_result(tmp_path):
    with pytest.raises(InputError, match="a barrier has no result; leave --output out"):
        innet("allreduce", "--collective", "barrier", "--output", tmp_path / "no.npy")
    text = innet("allreduce", "--collective", "barrier").stdout
    assert "Collective" in text
    assert "oracle" not in text


def test_allreduce_table():
    result = innet("allreduce", "--size", 100)
    assert "equals the oracle's" in result.stdout


def test_codec_parameters():
    few = report_of("--codec", "topk", "--set", "selector.ratio=0.01", "--size", 5000)
    many = report_of("--codec", "topk", "--set", "selector.ratio=0.2", "--size", 5000)
    assert few["bytes_sent"] < many["bytes_sent"]


def test_with_parameters():
    assert with_parameters("topk", []) == "topk"
    assert with_parameters({"carrier": "lhc"}, ["carrier.lanes=8", "carrier.x=name"]) == {
        "carrier": {"name": "lhc", "lanes": 8, "x": "name"}
    }
    for wrong in ("ratio=1", "selector.ratio", "selector.=1", "=3"):
        with pytest.raises(ConfigError, match=r"PART\.KEY=VALUE"):
            with_parameters("topk", [wrong])


def test_input_files_and_output(tmp_path):
    first, second = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    np.savez(tmp_path / "both.npz", first, second)
    np.save(tmp_path / "first.npy", first)
    np.save(tmp_path / "second.npy", second)
    report = report_of("--input", tmp_path / "both.npz", "--output", tmp_path / "sum.npy")
    assert report["workers"] == 2
    np.testing.assert_allclose(np.load(tmp_path / "sum.npy"), first + second, rtol=1e-6)
    report = report_of("-i", tmp_path / "first.npy", "-i", tmp_path / "second.npy")
    assert report["elements"] == 6


def test_json_has_no_word_for_infinity(tmp_path):
    largest = np.full(3, np.finfo(np.float32).max)
    np.savez(tmp_path / "both.npz", largest, largest)

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    text = innet("allreduce", "--json", "-i", tmp_path / "both.npz").stdout
    report = json.loads(text, parse_constant=refuse)
    assert report["max_abs_error"] is None
    assert report["infinite"] == 3
    assert "Sums beyond float32" in innet("allreduce", "-i", tmp_path / "both.npz").stdout


def test_json_of_nested_numbers_that_are_not_finite(capsys):
    say_json({"a": [1.5, float("nan")], "b": {"c": (float("-inf"), True)}})
    assert json.loads(capsys.readouterr().out) == {"a": [1.5, None], "b": {"c": [None, True]}}


def test_config_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('workers = 2\nsize = 300\n[codec]\npreset = "topk"\nselector.ratio = 0.5\n')
    assert report_of("--config", path)["workers"] == 2
    assert report_of("--config", path, "--workers", 3)["workers"] == 3


def test_codecs():
    listed = json.loads(innet("codecs", "--json").stdout)
    assert {"dense", "lhc", "topk"} <= set(listed["codecs"])
    shown = innet("codecs").stdout
    assert "lhc" in shown
    assert "NSDI 2024" in shown
    assert "selector: adacomp, all," in shown
    shown = innet("codecs", "topk").stdout
    assert "None: the part decides" in shown
    assert "cells_per_item" in shown
    assert json.loads(innet("codecs", "topk", "--json").stdout)["index"]
    shown = innet("codecs", "mxfp4:sums=wide,block=16").stdout
    assert " 4              7               4           62,500  1.61         31%" in shown
    assert "in the order of arrival" in " ".join(innet("codecs", "fpisa").stdout.split())
    sizes = json.loads(innet("codecs", "mxfp8-e4m3", "--json").stdout)["sizes"]
    packets = -(-333_334 // 64) + -(-31_252 // 64)
    known = {"sum_bits": 10, "sums_per_word": 3, "scale_words": 31_250, "bytes": packets * 330}
    assert sizes["4"] == known
    with pytest.raises(InnetError, match=r"unknown codec 'topc'.*'topk'"):
        innet("codecs", "topc")
    shown = innet("codecs", "sampled").stdout  # a part that is no codec
    assert "selector sampled: " in shown
    (ratio,) = (line for line in shown.splitlines() if line.split()[:2] == ["ratio", "0.001"])
    assert ratio.rstrip().endswith("a number above 0 and at most 1")
    assert json.loads(innet("codecs", "sampled", "--json").stdout)["selector"]["ratio"] == 0.001


def test_p4_list_and_export(tmp_path):
    listed = json.loads(innet("p4", "list", "--json").stdout)
    assert listed["slots-64"]["values"] == 64
    assert "slots-256" in innet("p4", "list").stdout
    assert innet("p4", "export", "slots-32", "-o", tmp_path / "x.json").exit_code == 0
    assert json.loads((tmp_path / "x.json").read_text())["header_types"]


def test_p4_examples(tmp_path):
    assert "forward: forward.commands, forward.json, forward.p4" in innet("p4", "example").stdout
    innet("p4", "example", "forward", "-o", tmp_path / "new" / "folder")
    copy = tmp_path / "new" / "folder" / "forward.json"
    assert copy.read_bytes() == (programs.p4_directory() / "examples/forward.json").read_bytes()
    innet("p4", "example", "forward", "-o", copy.parent)  # the same once more
    innet("p4", "example", "saturating", "-o", tmp_path)
    assert list(programs.catalogue(tmp_path)) == ["saturating-32"]


@pytest.mark.repeats("the same call in Python, with a program that p4c takes seconds for")
@pytest.mark.skipif(
    not (shutil.which("p4c-bm2-ss") or shutil.which("p4c")), reason="p4c is not installed"
)
def test_p4_compile(tmp_path):
    source = shutil.copytree("p4", tmp_path / "p4") / "slots.p4"
    result = innet("p4", "compile", source, "-D", "VALUES=32", "-D", "SLOTS=16")
    assert result.exit_code == 0
    document = json.loads((tmp_path / "p4" / "slots.json").read_text())
    assert {array["size"] for array in document["register_arrays"]} == {32}


class TestWrong:
    """Each names the thing and the remedy."""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--codec", "lcp"], r"unknown codec 'lcp'.*Known.*: .*dense"),
            (["--workers", "0"], r"workers = 0 cannot be used.*1 to 32768"),
            (["--workers", "32769"], r"workers = 32769 cannot be used.*1 to 32768"),
            (
                ["--workers", "33", "--program", "slots"],
                r"33 workers; slots-64 takes 1 to 32, .* larger jobs is tree",
            ),
            (
                ["--workers", "33", "--depth", "1"],
                r"33 workers .* more racks or more levels",
            ),
            (["--density", "1.5"], r"density = 1\.5 cannot be used.*0 to 1"),
            (["--engine", "fast"], r"engine = 'fast' cannot be used.*'jit' or 'interpret'"),
            (["--values-per-packet", "100"], r"values_per_packet = 100.*32, 64, 256 or 1024"),
            (["--codec", "topk", "--set", "selector.ration=1"], r"ration.*ratio"),
            (["--input", "nowhere.npz"], r"nowhere\.npz"),
            (["--config", "nowhere.toml"], r"nowhere\.toml"),
            (["--program", "slot"], r"unknown program 'slot'"),
            (["--codec", "lhc", "--codec", "dense"], r"--codec is given 2 times"),
            (["--topology", "tre"], r"unknown topology 'tre'.*'tree'"),
            (["--record", "run.json"], r"--record is of simulated time; add --network"),
            (["--watch", "s1:x[0]"], r"add --record"),
            (["--network", "10g", "--record", "r", "--watch", "x"], r"'x' is no cell"),
        ],
    )
    def test_allreduce(self, arguments, message):
        with pytest.raises(InnetError, match=message):
            innet("allreduce", "--size", 100, *arguments)

    def test_view_of_another_record(self, tmp_path):
        (tmp_path / "run.json").write_text('{"format": "innet.demo", "version": 6}')
        with pytest.raises(InputError, match=r"'innet.demo'; needed is innet.recording"):
            innet("view", tmp_path / "run.json")

    def test_typo_in_a_config(self, tmp_path):
        path = tmp_path / "run.toml"
        path.write_text("worker = 2\n")
        with pytest.raises(ConfigError, match=r"run\.toml: unknown key 'worker'.*'workers'"):
            innet("allreduce", "--config", path)

    def test_no_toml(self, tmp_path):
        path = tmp_path / "run.toml"
        path.write_text("workers = \n")
        with pytest.raises(ConfigError, match="line 1"):
            innet("demo", "--config", path)

    def test_export_of_nothing(self):
        with pytest.raises(InnetError, match="unknown compiled program 'slots-65'"):
            innet("p4", "export", "slots-65")

    def test_an_example_over_other_files(self, tmp_path):
        (tmp_path / "forward.p4").write_text("mine")
        with pytest.raises(InputError, match=r"forward.p4 exists. Remove it, or .*--output"):
            innet("p4", "example", "forward", "-o", tmp_path)
        assert [each.name for each in tmp_path.iterdir()] == ["forward.p4"]
        with pytest.raises(OutputError, match=r"forward\.p4"):
            innet("p4", "example", "ecn", "-o", tmp_path / "forward.p4" / "folder")
        with pytest.raises(InnetError, match="unknown example 'forwards'"):
            innet("p4", "example", "forwards")

    def test_definitions(self, tmp_path):
        p4c = tmp_path / "p4c"
        p4c.touch(mode=0o755)
        with pytest.raises(InnetError, match="NAME=NUMBER"):
            innet("p4", "compile", tmp_path / "a.p4", "-D", "VALUES", "--p4c", p4c)

    def test_check_of_what_is_no_program(self, tmp_path):
        (tmp_path / "other.json").write_text("{}")
        with pytest.raises(InnetError, match=r"other\.json: no compiled P4 program"):
            innet("p4", "check", tmp_path / "other.json")

    def test_a_folder_as_source(self, tmp_path):
        p4c = tmp_path / "p4c"
        p4c.touch(mode=0o755)
        with pytest.raises(InnetError, match=r"cannot read .*programs\.toml: No such file"):
            innet("p4", "compile", tmp_path, "--p4c", p4c)
        with pytest.raises(InnetError, match="--define and --output need a P4 file"):
            innet("p4", "compile", tmp_path, "-D", "VALUES=32", "--p4c", p4c)

    def test_a_source_in_place_of_what_it_compiles_to(self):
        with pytest.raises(InnetError, match=r"source: compile it first \(innet p4 compile p4/sl"):
            innet("switch", "explain", "p4/slots.p4")

    def test_workers_that_contradict_the_input(self, tmp_path):
        np.savez(tmp_path / "a.npz", np.ones(3, np.float32), np.ones(3, np.float32))
        with pytest.raises(InnetError, match="workers = 5, but the input holds 2 arrays"):
            innet("allreduce", "--workers", 5, "-i", tmp_path / "a.npz")
        (tmp_path / "run.toml").write_text(f'workers = 3\ninput = ["{tmp_path / "a.npz"}"]\n')
        with pytest.raises(InnetError, match="workers = 3, but the input holds 2 arrays"):
            innet("allreduce", "--config", tmp_path / "run.toml")

    @pytest.mark.parametrize("path", ["absent/x.npy", "."])
    def test_output_is_tried_before_the_run(self, tmp_path, monkeypatch, path):
        def run(*_, **__):
            raise AssertionError("the output cannot be written, so nothing should run")

        monkeypatch.setattr("innet.allreduce.collective.all_reduce", run)
        with pytest.raises(InnetError, match="cannot write"):
            innet("allreduce", "--size", 10, "--output", tmp_path / path)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    def test_output_that_fails_after_the_run(self):
        done = CliRunner().invoke(app, ["allreduce", "--size", "10", "--output", "/dev/full"])
        assert isinstance(done.exception, OutputError)
        assert str(done.exception) == "cannot write /dev/full: the disk is full."
        assert "Packets sent" in done.stdout  # what was found out is told all the same

    def test_output_to_a_pipe(self, tmp_path):
        name = tmp_path / "p.json"
        innet("p4", "export", "slots-32", "-o", name)
        done = process("p4", "export", "slots-32", "-o", "/dev/stdout")
        assert done.stdout == name.read_text() + "/dev/stdout\n"

    @pytest.mark.parametrize("command", [("switch", "explain"), ("p4", "check")])
    def test_a_name_that_no_file_can_have(self, command):
        with pytest.raises(InnetError, match=r"x: file name too long\. Name the JSON"):
            innet(*command, "x" * 300)

    def test_parameters_that_nobody_can_read(self):
        with pytest.raises(ConfigError, match=r"k = '-----.*… cannot be used") as caught:
            innet("allreduce", "--codec", "topk", "--set", "selector.k=" + "-" * 100_000)
        assert len(str(caught.value)) < 300
        with pytest.raises(ConfigError, match=r"PART\.KEY=VALUE") as caught:
            with_parameters("topk", ["-" * 100_000])
        assert len(str(caught.value)) < 300

    def test_nested_too_deeply(self, tmp_path):
        (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
        with pytest.raises(ConfigError, match=r"deep\.toml is no valid TOML: it is nested"):
            innet("allreduce", "--config", tmp_path / "deep.toml")
        (tmp_path / "deep.json").write_text("[" * 100_000)
        with pytest.raises(InnetError, match=r"deep\.json is no JSON that can be read"):
            innet("report", tmp_path / "deep.json")

    def test_a_person_sees_one_line_and_no_traceback(self):
        command = [sys.executable, "-m", "innet", "allreduce", "--codec", "lcp"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 2
        assert result.stderr.startswith("error: unknown codec 'lcp'.")
        assert "Traceback" not in result.stderr
        assert result.stdout == ""

    def test_no_record(self, tmp_path):
        with pytest.raises(InnetError, match=r"nothing\.json"):
            innet("report", tmp_path / "nothing.json")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("a key"), 2),
        (UnknownNameError("codec", "lcp", ["lhc"]), 2),
        (CompositionError("parts that do not fit"), 2),
        (OutputError("a full disk"), 1),
        (DivergedError("a loss"), 1),
        (StalledError("a slot"), 1),
    ],
)
def test_the_status_says_whose_fault_it_is(error, status):
    assert status_of(error) == status


class TestEnds:
    """How the process ends when the world around it does."""

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    @pytest.mark.parametrize(
        "arguments",
        tiered([["codecs"], ["codecs", "--json"], ["--version"]], [["codecs"]], "another command"),
    )
    def test_full_disk(self, arguments):
        with Path("/dev/full").open("w") as full:
            result = process(*arguments, stdout=full)
        assert result.returncode == 1
        assert result.stderr == "error: cannot write the output: the disk is full.\n"

    def test_a_terminal_of_no_columns(self):
        result = process("p4", "list", env={**os.environ, "COLUMNS": "0"})
        assert "slots-64" in result.stdout

    def test_a_library_without_its_parts(self, monkeypatch, capsys):
        def fails():
            raise OSError("no liblibrary.so")

        monkeypatch.setattr("innet.cli.app.run", fails)
        monkeypatch.setattr("innet.cli._abandon_output", lambda: None)
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 1
        assert capsys.readouterr().err == "error: no liblibrary.so\n"

    def test_a_folder_that_was_deleted(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        advice = "The folder that this was started in was deleted: go to another (cd)"
        monkeypatch.setattr(sys, "argv", ["innet", "report", "demo.json"])
        with pytest.raises(SystemExit, match="2"):
            main()
        said = capsys.readouterr().err
        assert said.startswith(
            f"error: cannot read demo.json: No such file or directory.\n{advice}"
        )
        # As by Numba, which wants to know where it is before it compiles anything.
        monkeypatch.setattr("innet.cli.app.run", os.getcwd)
        monkeypatch.setattr("innet.cli._abandon_output", lambda: None)
        with pytest.raises(SystemExit, match="1"):
            main()
        assert capsys.readouterr().err.startswith(f"error: No such file or directory.\n{advice}")

    @pytest.mark.parametrize(
        "arguments", tiered([["codecs"], ["codecs", "--json"]], [["codecs"]], "another command")
    )
    def test_a_reader_that_has_gone(self, arguments):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            result = process(*arguments, stdout=writer)
        finally:
            os.close(writer)
        assert result.returncode == 1
        assert result.stderr == ""

    def test_no_memory(self):
        limited = ["sh", "-c", 'ulimit -v 4194304 && exec "$@"', "sh"]  # kilobytes
        command = [*limited, sys.executable, "-m", "innet", "allreduce", "-w", "1"]
        result = subprocess.run(
            [*command, "--size", str(2**30)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert result.returncode == 2
        assert result.stderr.startswith("error: 1073741824 elements for each of 1 workers")
        assert result.stderr.count("\n") == 1

    def test_no_memory_anywhere_else(self, monkeypatch, capsys):
        def full(*_, **__):
            raise MemoryError("Unable to allocate 4.00 TiB")

        monkeypatch.setattr("innet.programs.available", full)
        monkeypatch.setattr(sys, "argv", ["innet", "p4", "list"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 1
        assert "Unable to allocate 4.00 TiB" in capsys.readouterr().err

    # While packages are imported, and while packets travel: 32 workers take many seconds.
    @pytest.mark.parametrize(
        ("imported", "number"),
        tiered(
            [
                (imported, number)
                for imported in ("numpy", "numba", "innet.allreduce.collective", "")
                for number in (signal.SIGINT, signal.SIGTERM)
            ],
            [("", signal.SIGTERM)],
            "the same while something else is imported",
        ),
    )
    def test_interrupted(self, tmp_path, imported, number):
        # Says on its first line when it is time; `sleep` makes sure that the signal comes in time.
        (tmp_path / "sitecustomize.py").write_text(WHEN_IMPORTED)
        command = [sys.executable, "-m", "innet", "allreduce", "-w", "32", "--size", "3000000"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path.cwd())]),
            "INTERRUPT_AT": imported or "innet.scenarios.allreduce",
            "PAUSE": "20" if imported else "0",
        }
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=hear_interrupts,  # noqa: PLW1509 - these tests start no threads
        ) as running:
            try:
                assert running.stdout.readline() == "now\n"
                if not imported:
                    time.sleep(1.5)
                running.send_signal(number)
                _, said = running.communicate(timeout=30)
            finally:
                running.kill()
        if number == signal.SIGTERM:
            assert running.returncode == TERMINATED
            assert said == "terminated.\n"
            return
        # Where exec() was interrupted, CPython ends by the signal; to a shell it is the same.
        assert running.returncode in (INTERRUPTED, -signal.SIGINT)
        assert said == "interrupted.\n"


WHEN_IMPORTED = """
import os, sys, time
class Finder:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPT_AT"]:
            print("now", flush=True)
            time.sleep(float(os.environ["PAUSE"]))
sys.meta_path.insert(0, Finder())
"""


def test_allreduce_over_a_bad_network(tmp_path):
    config = tmp_path / "bad.toml"
    config.write_text(
        "workers = 3\nsize = 3000\nvalues_per_packet = 32\nattempts = 2\n"
        "[faults]\nduplicate = 0.1\nloss = 0.9\nrestarts = [0.0005]\n"
        "[[faults.outages]]\nworkers = [1]\nbegin = 0.0\nend = 0.02\n"
    )
    result = innet(
        "allreduce", "--config", str(config), "--loss", "0.05", "--corrupt", "0.05", "--json"
    )
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["exact"]
    assert report["retransmissions"] > 0
    assert report["transport"] == "memory with faults"


def test_allreduce_goes_on_without_a_dead_worker(tmp_path):
    config = tmp_path / "dead.toml"
    config.write_text("workers = 3\nsize = 3000\n[[faults.outages]]\nworkers = [2]\n")
    result = innet("allreduce", "--config", str(config), "--partial-after", "0.1", "--json")
    report = json.loads(result.stdout)
    assert (report["exact"], report["workers"], report["details"]["without"]) == (True, 2, [2])


def test_outages_are_options_of_allreduce():
    small = ("allreduce", "--workers", "3", "--size", "3000", "--delay", "0.001", "--json")
    result = innet(*small, "--crash", "1:0.001", "--partial-after", "0.1")
    assert json.loads(result.stdout)["details"]["without"] == [1]
    result = innet(*small, "--crash", "0:0.001:0.05", "--crash", "1:0.02:0.07")
    assert json.loads(result.stdout)["exact"]
    assert json.loads(result.stdout)["retransmissions"] > 0
    result = innet(*small, "--partition", "0.003:0.05")
    assert json.loads(result.stdout)["retransmissions"] > 0
    result = innet(*small, "--restart", "0.0035", "--attempts", "2")
    assert json.loads(result.stdout)["exact"]


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--loss", "1.5", "faults.loss"),
        ("--window-control", "cubic", "window_control"),
        ("--crash", "2", "WORKER:BEGIN"),
        ("--crash", ":0.1", "WORKER:BEGIN"),
        ("--crash", "spine:0.1", "switch 'spine'"),
        ("--crash", "9:0.1", "there is no worker 9 to cut off; the job has 4"),
        ("--crash", "1:soon", "times in seconds"),
        ("--crash", "1:x", "--crash 1:x: give times in seconds"),  # and no pictures for ":x:"
        ("--crash", "1:0.2:0.1", "it ends after it begins"),
        ("--partition", "0.1", "BEGIN:END"),
        ("--partition", "-1:2", "faults.outages"),
        ("--restart", "-1", "faults.restarts"),
    ],
)
def test_impossible_networks_are_refused(option, value, said):
    with pytest.raises(InnetError, match=said):
        innet("allreduce", option, value)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--size", "abc", "size = 'abc' cannot be used; allowed is an integer from 0 to"),
        ("--size", "1.5", "size = 1.5 cannot be used; allowed is an integer from 0 to"),
        ("--window", "many", "window = 'many' cannot be used; allowed is an integer"),
        ("--density", "a lot", "density = 'a lot' cannot be used; allowed is a number from 0 to 1"),
    ],
)
def test_a_number_that_is_none_is_refused_in_the_words_of_settings(option, text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        CliRunner().invoke(app, ["simulate", option, text], catch_exceptions=False)


def test_a_size_may_be_written_as_people_write_it():
    found = CliRunner().invoke(app, ["allreduce", "--size", "2e3", "--workers", "2", "--json"])
    assert json.loads(found.stdout)["elements"] == 2000
