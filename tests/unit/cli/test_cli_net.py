"""Options of ``innet net`` that would have no effect are refused, before a network is built."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.mininet import needs_mininet
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import ConfigError, InputError

OWN = ["--p4", "mine.json", "--cli"]
FILE = ["--topology", "mine.json", "--cli"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "ncf", "--epochs", "2"], "--model, --epochs: no effect without --train"),
        (["--out", "folder"], "--out: no effect without --train"),
        (["--train", "--size", "10"], "--size: no effect on a training"),
        (["--commands", "rules"], "--commands: no effect without a program of your own"),
        ([*OWN, "--rate", "10"], "--rate: no effect on a program of your own"),
        ([*OWN, "--codec", "lhc", "-w", "3"], "--codec: no effect on a program of your own"),
        ([*OWN, "--topology", "tree"], "--topology tree: a program of your own runs on a star"),
        ([*OWN, "--switch", "bmv2", "--engine", "jit"], "--engine: no effect on simple_switch"),
        (["--predict", "--train", "--cli"], "--train, --cli: no effect on a prediction"),
        (["--predict", "--draw", "a.png"], "--draw: no effect on a prediction"),
        ([*OWN, "--predict"], "--p4, --cli: no effect on a prediction"),
        (["--predict", "--topology", "mine.json"], "--topology mine.json: a prediction is of all"),
        (["--predict"], "a prediction needs rate; give it, in Mbit/s"),
        (["--predict", "--rate", "9"], "a prediction needs queue"),
        ([*OWN, "--rate", "9", "--queue", "9"], "--rate, --queue: no effect on a program of"),
        ([*FILE, "--workers", "3"], "--workers: no effect, as the topology file says"),
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
    words = ["net", "--config", str(config), *option, "--draw", str(tmp_path / "net.png")]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(f"{option[0]}: no effect")


@pytest.mark.parametrize("words", [[], OWN, FILE])
def test_a_number_of_queues_that_no_port_can_have(words):
    result = CliRunner().invoke(app, ["net", *words, "--priority-queues", "33"])
    assert isinstance(result.exception, ConfigError)
    assert "priority_queues" in str(result.exception)


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
