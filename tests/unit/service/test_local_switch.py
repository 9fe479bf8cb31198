"""The switch process that a process starts for itself, where it cannot start."""

from __future__ import annotations

import pytest

from innet.core.errors import ConfigError, NetworkError
from innet.service import process
from innet.service.process import LocalSwitch


def test_too_many_jobs_are_said_in_one_line(monkeypatch):
    monkeypatch.setenv("INNET_JOBS", "16")
    with pytest.raises(ConfigError) as refused:
        LocalSwitch()
    said = str(refused.value)
    assert said.startswith("the switch process cannot start with INNET_JOBS=16: 16 jobs of up to")
    assert "room for 1 to 15" in said
    assert "\n" not in said


def test_a_program_that_does_not_exist_is_named(monkeypatch):
    monkeypatch.setenv("INNET_PROGRAM", "collectively")
    with pytest.raises(ConfigError, match=r"start with INNET_PROGRAM=collectively: .*collectives"):
        LocalSwitch()


def test_another_reason_is_said_in_one_line_too(monkeypatch):
    for name in ("INNET_JOBS", "INNET_VALUES", "INNET_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    taken = process.ServiceSettings(listen="192.0.2.1:1", key="k" * 32)  # no address of a machine
    monkeypatch.setattr(process, "validate", lambda *_, **__: taken)
    with pytest.raises(NetworkError, match=r"^the switch process cannot start: .*192\.0\.2\.1"):
        LocalSwitch()
