"""Fixtures of the system tests."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from support import fork_server
from support.mininet import nothing_left

from innet.core import child_process

__all__ = ["forked_programs", "nothing_left"]


@pytest.fixture
def forked_programs(monkeypatch):
    """``ChildProcess`` forks innet's own programs in this test."""
    if fork_server.FORKS:
        fork_server.start_server()
        same = {name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "TimeoutExpired")}
        module = SimpleNamespace(Popen=fork_server.start_program, **same)
        monkeypatch.setattr(child_process, "subprocess", module)
