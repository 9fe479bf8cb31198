"""What ``--help`` says: everything that is written for it, and defaults that are true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.settings import (
    AllReduceSettings,
    DemoSettings,
    SimulateSettings,
    ThroughputSettings,
    TrainSettings,
)


def walk(command, path=()):
    """All commands below one, by the words that call them."""
    if not hasattr(command, "commands"):
        return {path: command}
    found = {}
    for name, each in command.commands.items():
        found |= walk(each, (*path, name))
    return found


COMMANDS = walk(typer.main.get_command(app))
SETTINGS = {
    ("allreduce",): AllReduceSettings,
    ("demo",): DemoSettings,
    ("simulate", "run"): SimulateSettings,
    ("train",): TrainSettings,
    ("experiment", "throughput"): ThroughputSettings,
}


def plain(text):
    """Without marks of code, and with one space wherever there are any."""
    return re.sub(r"\s+", " ", text.replace("`", ""))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_shows_all_that_is_written_for_it(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "500")  # so that no help is cut into lines
    shown = plain(CliRunner().invoke(app, [*path, "--help"]).stdout)
    written = [getattr(each, "help", None) for each in COMMANDS[path].params]
    assert [each for each in written if each and plain(each) not in shown] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_an_example_of_options_that_exist_and_a_page_that_exists(path):
    example, page = COMMANDS[path].epilog.split("\n\n")
    words = example.removeprefix("Example: ").strip("`").split()
    assert words[words.index("innet") + 1 :][: len(path)] == list(path)
    known = {name for each in COMMANDS[path].params for name in each.opts}
    assert {word for word in words if word.startswith("-")} <= known
    assert Path(page.removeprefix("More: ")).is_file()


def test_innet_lists_each_command_with_its_own_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    shown = plain(CliRunner().invoke(app, ["--help"]).stdout)
    for name, command in typer.main.get_command(app).commands.items():
        summary, *_ = command.help.split("\n\n")
        assert f"│ {name} {plain(summary)} │" in shown


def test_commands_are_listed_without_their_settings_and_options():
    listed = subprocess.run(
        [sys.executable, "-c", _HELP], check=True, capture_output=True, text=True, timeout=60
    )
    assert "Commands" in listed.stdout
    assert listed.stderr == ""


_HELP = """
import sys
from innet.cli.app import run
sys.argv = ["innet", "--help"]
assert run() == 0
late = {"innet.cli.options", "innet.core.settings", "numpy", "pydantic"} & sys.modules.keys()
sys.stderr.write(" ".join(sorted(late)))
"""


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_flags_have_no_type(path):
    assert "<bool>" not in CliRunner().invoke(app, [*path, "--help"]).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("innet allreduce --codec to", {"topk"}),
        ("innet allreduce --topology leaf", {"leaf-spine"}),
        ("innet net draw --program tre", {"tree"}),
        ("innet train --model digits", {"digits-cnn"}),
        ("innet train --engine j", {"jit"}),
        ("innet simulate run --model res", {"resnet20", "resnet50"}),
        ("innet simulate --model res", {"resnet20", "resnet50"}),
        ("innet simulate --mod", {"--model"}),
        ("innet simulate s", {"sweep"}),
        ("innet net allreduce --switch b", {"builtin", "bmv2"}),
        ("innet switch explain slots-3", {"slots-32"}),
        ("innet p4 export slots-3", {"slots-32"}),
        ("innet reproduce gto", {"gtopk"}),
    ],
)
def test_values_are_completed(words, expected):
    environment = {"_INNET_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split()) - 1)
    said = CliRunner().invoke(app, [], prog_name="innet", env=environment)
    assert set(said.stdout.split()) == expected


@pytest.mark.parametrize(("path", "settings"), SETTINGS.items())
def test_defaults_are_those_of_the_settings(path, settings):
    compared = 0
    for each in COMMANDS[path].params:
        said = re.search(r"\[default: (.*)\]", each.help or "")
        field = settings.model_fields.get(each.name)
        if said is None or field is None or field.default is None or field.default_factory:
            continue
        default = field.default if isinstance(field.default, tuple) else (field.default,)
        shown = ", ".join(f"{it:g}" if isinstance(it, float) else str(it) for it in default)
        assert said[1] == shown, each.name
        compared += 1
    assert compared > 4


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        (("net", "train"), ("train",), "epochs"),
        (("net", "train"), ("train",), "model"),
        (("switch", "stf"), ("net", "allreduce"), "engine"),
        (("switch", "bench"), ("switch", "replay"), "batch"),
        (("switch", "top"), ("switch", "serve"), "key_file"),
    ],
)
def test_an_option_of_two_commands_is_the_same(one, other, name):
    first, second = (
        next(each for each in COMMANDS[path].params if each.name == name) for path in (one, other)
    )
    assert first.opts == second.opts
    begin = re.sub(r" \[default: .*", "", second.help).lower()
    assert begin in first.help.lower()
