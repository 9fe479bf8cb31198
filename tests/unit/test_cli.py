"""The command line: what people type, and what they see when it is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from innet.cli.allreduce import with_parameters
from innet.cli.app import app
from innet.errors import ConfigError, InnetError


def innet(*arguments):
    """The exit code, standard output and standard error of one command."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def report_of(*arguments):
    result = innet("allreduce", "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_help_lists_the_commands():
    text = innet("--help").stdout
    for command in ("demo", "allreduce", "codecs", "report", "p4"):
        assert command in text


def test_version():
    assert innet("--version").stdout.strip().count(".") == 2


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


def test_config_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('workers = 2\nsize = 300\n[codec]\npreset = "topk"\nselector.ratio = 0.5\n')
    assert report_of("--config", path)["workers"] == 2
    assert report_of("--config", path, "--workers", 3)["workers"] == 3


def test_codecs():
    listed = json.loads(innet("codecs", "--json").stdout)
    assert {"dense", "lhc", "topk"} <= set(listed["codecs"])
    assert "lhc" in innet("codecs").stdout


def test_p4_list_and_export(tmp_path):
    listed = json.loads(innet("p4", "list", "--json").stdout)
    assert listed["slots-64"]["values"] == 64
    assert "slots-256" in innet("p4", "list").stdout
    assert innet("p4", "export", "slots-32", "-o", tmp_path / "x.json").exit_code == 0
    assert json.loads((tmp_path / "x.json").read_text())["header_types"]


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
            (["--codec", "lcp"], r"unknown codec 'lcp'.*Known: dense, lhc, topk"),
            (["--workers", "0"], r"workers = 0 cannot be used.*1 to 32"),
            (["--workers", "33"], r"workers = 33 cannot be used.*1 to 32"),
            (["--density", "1.5"], r"density = 1\.5 cannot be used.*0 to 1"),
            (["--engine", "fast"], r"engine = 'fast' cannot be used.*'jit' or 'interpret'"),
            (["--values-per-packet", "100"], r"values_per_packet = 100.*32, 64 or 256"),
            (["--codec", "topk", "--set", "selector.ration=1"], r"ration.*ratio"),
            (["--input", "nowhere.npz"], r"nowhere\.npz"),
            (["--config", "nowhere.toml"], r"nowhere\.toml"),
            (["--program", "slot"], r"unknown program 'slot'"),
        ],
    )
    def test_allreduce(self, arguments, message):
        with pytest.raises(InnetError, match=message):
            innet("allreduce", "--size", 100, *arguments)

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

    def test_definitions(self, tmp_path):
        p4c = tmp_path / "p4c"
        p4c.touch(mode=0o755)
        with pytest.raises(InnetError, match="NAME=NUMBER"):
            innet("p4", "compile", tmp_path / "a.p4", "-D", "VALUES", "--p4c", p4c)

    def test_a_person_sees_one_line_and_no_traceback(self):
        command = [sys.executable, "-m", "innet", "allreduce", "--codec", "lcp"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith("error: unknown codec 'lcp'.")
        assert "Traceback" not in result.stderr
        assert result.stdout == ""

    def test_no_record(self, tmp_path):
        with pytest.raises(InnetError, match=r"nothing\.json"):
            innet("report", tmp_path / "nothing.json")
