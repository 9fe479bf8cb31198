"""innet.switch.bmv2: what goes wrong around an external simple_switch is said, and in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from innet.errors import MissingToolError, StalledError
from innet.switch import bmv2


def tool(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_without_simple_switch_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match=r"simple_switch is not installed.*Install BMv2"):
        bmv2.run({}, [])


def test_a_command_line_that_does_not_answer_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(bmv2, "_CONTROL_SECONDS", 0.2)
    cli = tool(tmp_path, "simple_switch_CLI", "exec sleep 20")
    with pytest.raises(StalledError, match=r"did not answer 1 commands in 0\.2 s"):
        bmv2._control(cli, 9, ["register_read x"])


def test_a_switch_that_never_listens_is_named(tmp_path, monkeypatch):
    tool(tmp_path, "simple_switch", "exec sleep 20")
    tool(tmp_path, "simple_switch_CLI", "exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(StalledError, match="waiting for simple_switch to listen"):
        bmv2.run({}, [], deadline=0.3)
