"""All-reduces over links with a rate: benchmarks.links, briefly."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import typer
from support.mininet import namespaces

from benchmarks import links
from benchmarks.star import Star
from innet.core.errors import MissingToolError, NetworkError

MEGABITS, VALUES = 10.0, 100_000
_BURST = 80 << 10  # bytes that come after a pause are let through at once


def _missing() -> str:
    if os.geteuid() != 0:
        return "network namespaces need root"
    if lacking := [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]:
        return f"{lacking[0]} is not installed"
    try:
        with Star(1) as star:
            star.limit(MEGABITS, 1_000_000)
    except NetworkError as error:
        return str(error)
    return ""


@pytest.mark.mininet
@pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed")
def test_packets_that_the_kernel_loses_are_sent_again(capsys):
    pytest.importorskip("torch")
    if missing := _missing():
        pytest.skip(missing)
    links.main(
        rate=[1000.0],
        method=["dense"],
        workers=2,
        elements=VALUES,
        repeats=1,
        loss=5.0,
        as_json=True,
    )
    (row,) = (
        each for each in json.loads(capsys.readouterr().out)["rows"] if each["name"] == "dense"
    )
    assert int(row["remark"].split("; ")[-1].split(" packets sent again")[0]) > 0


@pytest.mark.mininet
@pytest.mark.repeats("sums of the service and of gloo, in the benchmark of links")
def test_nobody_is_faster_than_the_links(capsys, tmp_path):
    pytest.importorskip("torch")
    if missing := _missing():
        pytest.skip(missing)
    before = namespaces()
    plot = tmp_path / "links.png"
    links.main(
        rate=[MEGABITS],
        method=["dense"],
        workers=2,
        elements=VALUES,
        repeats=1,
        plot=str(plot),
        as_json=True,
    )
    document = json.loads(capsys.readouterr().out)
    rows = {row["name"]: row for row in document["rows"]}
    assert set(rows) == {"gloo", "dense"}
    # A worker sends its whole gradient to the switch, or half of it twice to the other one.
    least = (4 * VALUES - _BURST) * 8 / (1e6 * MEGABITS)
    assert min(row["rate"] for row in rows.values()) > 1e3 * least
    assert rows["gloo"]["ratio"] == 1.0
    assert plot.stat().st_size > 0
    own = str(Path("/proc/self/ns/net").readlink())
    assert namespaces() - before <= {own}


def test_ways_and_windows_that_there_are_not():
    with pytest.raises(typer.BadParameter, match="no such method: dens; there are dense"):
        links.main(method=["dens"])
    with pytest.raises(typer.BadParameter, match="choose a power of two"):
        links.main(window=12)


def test_who_is_not_root_is_told(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NetworkError, match="by root only"):
        Star(2)


def test_a_command_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else tool)
    with pytest.raises(MissingToolError, match="apt install iproute2"):
        Star(2)
