"""Programs that are waited for with a deadline, and ended; the doctor. No root, no Mininet."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from innet.cli import app
from innet.core.child_process import ChildProcess
from innet.core.errors import NetworkError, StalledError
from innet.mininet.doctor import findings


def process(tmp_path, code):
    return ChildProcess("thing", [sys.executable, "-c", code], tmp_path / "log")


def gone(pid):
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


def test_lines_come_and_go(tmp_path):
    each = process(tmp_path, "while True: print(input()[::-1], flush=True)")
    for word in ("abc", "x" * 100_000):
        each.write_line(word)
        assert each.read_line(30, "answering") == word[::-1]
    assert each.running
    each.end()
    assert not each.running
    assert gone(each.pid)


def test_a_deadline_names_what_was_waited_for(tmp_path):
    each = process(tmp_path, "input()")
    with pytest.raises(StalledError, match=r"thing was not ready within 0\.2 s"):
        each.read_line(0.2, "ready")
    each.end()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit('no such port')", r"ended with status 1.*no such port"),
        ("import os; os.kill(os.getpid(), 9)", r"was ended by SIGKILL.*none"),
    ],
)
def test_a_death_is_told_with_the_last_words(tmp_path, code, words):
    each = process(tmp_path, code)
    with pytest.raises(NetworkError, match=f"(?s)thing {words}"):
        each.read_line(30, "ready")
    each.write_line("nobody hears this")
    each.end()


def test_who_ignores_sigterm_or_is_stopped_ends_as_well(tmp_path):
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('on', flush=True); input()"
    deaf = process(tmp_path, code)
    assert deaf.read_line(30, "on") == "on"
    stopped = process(tmp_path, "print('on', flush=True); input()")
    assert stopped.read_line(30, "on") == "on"
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped.end()
    assert "was ended by SIGTERM" in str(stopped.death())
    assert gone(stopped.pid)
    deaf.end()
    assert gone(deaf.pid)


def test_it_dies_with_its_parent(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom innet.core.child_process import ChildProcess\n"
        f"child = ChildProcess('child', ['sleep', '60'], Path({str(tmp_path / 'log')!r}))\n"
        "print(child.pid, flush=True)\nsys.stdin.read()"
    )
    parent = process(tmp_path, code)
    child = int(parent.read_line(30, "ready"))
    os.kill(parent.pid, signal.SIGKILL)
    assert gone(child)
    parent.end()


def test_the_doctor_tells_what_is_missing_and_how_to_get_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {each.name: each for each in findings()}
    assert {"p4c", "simple_switch", "Mininet", "root", "kernel: netem", "torch", "CUDA"} <= set(
        found
    )
    for name in ("p4c", "simple_switch"):
        assert not found[name].present
        assert "apt install" in found[name].remedy
    assert all(each.remedy and each.purpose for each in found.values())
    monkeypatch.setattr(sys, "argv", ["innet", "doctor", "--json"])
    assert app.run() == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == list(found)
    monkeypatch.setattr(sys, "argv", ["innet", "doctor"])
    assert app.run() == 0
    assert "sudo apt install" in capsys.readouterr().out


def test_the_doctor_tells_of_programs_that_cannot_be_run(monkeypatch, tmp_path):
    """As those that were built for another processor."""
    for name in ("p4c-bm2-ss", "simple_switch", "simple_switch_CLI"):
        (tmp_path / name).write_bytes(b"\x7fELF of another machine")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = {each.name: each for each in findings()}
    for name, program in (("p4c", "p4c-bm2-ss"), ("simple_switch", "simple_switch")):
        assert not found[name].present
        assert found[name].detail == f"{tmp_path / program} cannot be run: Exec format error."


def test_programs_of_the_administrator_are_found():
    code = "import contextlib, os\n"
    code += "with contextlib.suppress(Exception): import innet.mininet.debian\n"
    code += "print(os.environ['PATH'])"
    as_by_su = {**os.environ, "PATH": "/usr/bin:/bin:/sbin"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=as_by_su,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "/usr/bin:/bin:/sbin:/usr/sbin\n"


def test_the_doctor_is_not_misled_by_a_folder(tmp_path, monkeypatch):
    (tmp_path / "tensorboard").mkdir()
    (tmp_path / "matplotlib.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in ("tensorboard", "matplotlib"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {each.name: each for each in findings()}
    assert (found["tensorboard"].present, found["tensorboard"].detail) == (False, "not installed")
    assert (found["matplotlib"].present, found["matplotlib"].detail) == (True, "yes")
