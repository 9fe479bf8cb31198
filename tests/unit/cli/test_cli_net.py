"""Options of ``innet net`` that would have no effect are refused, before a network is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mininet import needs_mininet
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import ConfigError, InputError

OWN = ["program", "mine.json"]
FILE = ["program", "--topology", "mine.json"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*OWN, "--topology", "tree"], "--topology tree: a program of your own runs on a star"),
        (["program"], "which program? Give its file"),
        ([*OWN, "--switch", "bmv2", "--engine", "jit"], "--engine: no effect on simple_switch"),
        (["--topology", "mine.json"], "--topology mine.json: such a network is for a program of"),
        (["predict", "--topology", "mine.json"], "--topology mine.json: a prediction is of all"),
        (["predict"], "a prediction needs rate; give it, in Mbit/s"),
        (["predict", "--rate", "9"], "a prediction needs queue"),
        ([*FILE, "--workers", "3"], "--workers: no effect, as the topology file says"),
        (["--p4", "mine.json", "--cli"], "--p4 is a command now: innet net program FILE"),
        (["-w", "2", "--draw=a.png"], "--draw is a command now: innet net draw FILE"),
        (["--train"], "--train is a command now: innet net train"),
        (["--predict"], "--predict is a command now: innet net predict"),
    ],
)
def test_options_without_effect_are_refused(words, said):
    result = CliRunner().invoke(app, ["net", *words])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(said)


@needs_mininet
@pytest.mark.parametrize(
    ("switch", "option"), [("builtin", ["--simple-switch", "x"]), ("bmv2", ["--engine", "jit"])]
)
def test_the_switch_may_be_said_by_the_settings(switch, option, tmp_path):
    config = Path(tmp_path, "net.toml")
    config.write_text(f'switch = "{switch}"\n')
    words = ["net", "draw", "--config", str(config), *option, str(tmp_path / "net.png")]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{option[0]}: no effect")


@pytest.mark.parametrize("words", [[], OWN, FILE])
def test_a_number_of_queues_that_no_port_can_have(words):
    result = CliRunner().invoke(app, ["net", *words, "--priority-queues", "33"])
    assert isinstance(result.exception, ConfigError)
    assert "priority_queues" in str(result.exception)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("program", "--rate"), ("program", "--codec"), ("train", "--size"), ("train", "--output"),
        ("predict", "--cli"), ("predict", "--output"), ("draw", "--cli"), ("allreduce", "--epochs"),
        ("allreduce", "--commands"),
    ],
)  # fmt: skip
def test_a_command_has_no_option_without_effect(command, option):
    result = CliRunner().invoke(app, ["net", command, option, "1"])
    assert result.exit_code == 2
    assert f"No such option: {option}" in result.stderr


def test_a_file_may_not_say_what_a_program_of_ones_own_does_not_go_by(tmp_path):
    config = Path(tmp_path, "net.toml")
    config.write_text("rate = 10\n")
    result = CliRunner().invoke(app, ["net", *OWN, "--config", str(config)])
    assert isinstance(result.exception, ConfigError)
    assert "net.toml: rate: no effect here" in str(result.exception)


def test_only_links_with_a_rate_have_queues():
    result = CliRunner().invoke(app, ["net", "--queue", "64"])
    assert isinstance(result.exception, ConfigError)
    assert "give rate, too" in str(result.exception)


@needs_mininet
def test_the_window_fits_the_queue():
    from innet.mininet.settings import NetSettings  # noqa: PLC0415 - Mininet may be missing

    def window(**chosen):
        return NetSettings(rate=100.0, queue=300, **chosen).completed().window

    assert (window(), window(jobs=2), window(window=1024)) == (256, 128, 1024)


@needs_mininet
@pytest.mark.parametrize("switch", ["builtin", "bmv2"])
def test_switches_get_their_queues(switch, tmp_path):
    from innet.mininet.settings import NetSettings  # noqa: PLC0415 - Mininet may be missing

    settings = NetSettings(switch=switch, priority_queues=6).completed()
    topo = settings.mininet_topo(settings.plan(), tmp_path)
    assert [topo.nodeInfo(each)["priority_queues"] for each in topo.switches()] == [6]
