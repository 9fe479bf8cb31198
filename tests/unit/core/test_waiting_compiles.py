"""What is said where compiling takes long and no command says it."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext

from innet.core import waiting


def test_the_logger_says_it_once_unless_a_command_does(caplog, monkeypatch):
    monkeypatch.setattr(waiting.hooks, "compiling", nullcontext)
    monkeypatch.setattr(waiting, "PATIENCE", 0)
    with caplog.at_level(logging.WARNING, "innet"):
        waiting.log_compiling()
        notice = waiting.hooks.compiling
        notice._seconds = 0
        waiting.log_compiling()
        assert waiting.hooks.compiling is notice
        for _ in range(2):
            with notice():
                while not caplog.messages:
                    time.sleep(0.01)  # pytest's timeout ends it
    (message,) = caplog.messages
    assert message.startswith("Compiling what this machine has not compiled yet")
