"""Ageing beside a real simple_switch: what its log says of sweeps, what its dumps say of entries.

Its notifications go over nanomsg, which many builds lack; the log has the same lines.
"""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from support.bmv2 import needs_simple_switch
from support.switch_cases import program

from innet.bmv2 import simple_switch
from innet.bmv2.session import Session
from innet.switch import Switch, load_program

pytest.importorskip("thrift", reason="Thrift's library is not installed")
pytestmark = [
    pytest.mark.bmv2,
    needs_simple_switch,
]

DOCUMENT = program("switch_ageing")
START = (
    "table_add small_table mark 1 => 1",
    "table_add small_table mark 2 => 1",
    "table_add small_table mark 3 => 1",
    "table_add lpm_table tally 0.0.0.2/32 => 1",
    "table_add ternary_table mark 2&&&0xffff 0&&&0 => 1 5",
)
HIT = (1, b"\x02\0\x02\0\0\0\x02\0")
"""Hits the entries of 2 in all three tables."""
SWEPT = re.compile(r"Ageing entry (\d+) in table '(.+)'$|Sending ageing notification", re.MULTILINE)


@pytest.fixture
def logging_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simple_switch on PATH logs what it does."""
    real = shutil.which("simple_switch")
    wrapper = tmp_path / "simple_switch"
    wrapper.write_text(f'#!/bin/sh\nexec {real} --log-console "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def log(session: Session) -> str:
    return (session._path / "log").read_text(errors="replace")


def reports(session: Session) -> list[tuple[str, tuple[int, ...]]]:
    """(table, handles) of all notifications so far."""
    found, handles, table = [], [], ""
    for match in SWEPT.finditer(log(session)):
        if match[1] is not None:
            handles.append(int(match[1]))
            table = match[2]
        else:
            found.append((table, tuple(handles)))
            handles = []
    return found


def wait_for(session: Session, count: int) -> None:
    """Until there were so many notifications: a sweep has just been."""
    session._wait(lambda: len(reports(session)) >= count, "sweeps")


def test_sweeps_report_what_the_built_in_ones_do(logging_switch: None) -> None:
    """Commands and packets come right after sweeps, far from the ends of timeouts."""
    own = Switch(load_program(DOCUMENT), "interpret")
    clock = 0  # milliseconds since a sweep of simple_switch
    steps: list[tuple[int, list[str], bool]] = [
        # how many notifications to wait for, then commands, and whether a packet comes
        (1, ["table_set_timeout small_table 1 400", "table_set_timeout small_table 2 1400"], False),
        (5, ["table_set_timeout ternary_table 0 2400", "table_set_timeout lpm_table 0 1"], True),
        (10, ["table_delete small_table 1", "table_add small_table mark 2 => 1"], False),
        (16, [], False),
    ]
    found: list[tuple[str, tuple[int, ...]]] = []
    with simple_switch.open_session(DOCUMENT, [HIT], [1], thrift=True) as session:
        if "Set default default entry" not in log(session):
            pytest.skip("this simple_switch was built without the macros that log sweeps")
        for line in [*START, "table_set_timeout small_table 0 1"]:
            session.command(line)
            own.command(line)
        for count, commands, packet in steps:
            while len(found) < count:
                clock += 1000
                own.state.clock = clock * 1000 + 50_000
                found += [(each.table, each.handles) for each in own.take_idle_timeouts()]
            wait_for(session, len(found))
            for line in commands:
                session.command(line)
                own.command(line)
            if packet:
                session.play(1)
                own.process([HIT])
        theirs = reports(session)
    assert theirs[: len(found)] == found
    assert {table for table, _ in found} == {"I.small_table", "I.lpm_table", "E.ternary_table"}
    assert found[11] == ("I.small_table", (0, 1 << 24 | 1, 2))  # with the timeout of the index


def test_the_life_of_entries() -> None:
    """What a dump says of the time since the last hit lies between two looks at a clock."""
    begun: dict[str, float] = {}
    with simple_switch.open_session(DOCUMENT, [HIT, HIT], [1], thrift=True) as session:

        def age(command: str) -> tuple[float, float, int, int]:
            """The least and most that an entry's age may be, in ms, what it is, its timeout."""
            before = time.monotonic()
            answer = session.command(command)
            after = time.monotonic()
            found = re.search(r"\nLife: (\d+)ms since hit, timeout is (\d+)ms", answer)
            assert found, answer
            low, high = 1000 * (before - begun["to"]) - 1, 1000 * (after - begun["from"]) + 1
            return low, high, int(found[1]), int(found[2])

        def check(command: str, timeout: int) -> None:
            low, high, since, said = age(command)
            assert low <= since <= high
            assert said == timeout

        session.commands(START)
        assert "Life" not in session.command("table_dump_entry small_table 1")  # no timeout
        begun["from"] = time.monotonic()
        session.command("table_set_timeout small_table 1 77777")
        session.command("table_set_timeout lpm_table 0 5000")
        session.command("table_set_timeout ternary_table 0 1234")
        begun["to"] = time.monotonic()
        check("table_dump ternary_table", 1234)
        time.sleep(0.2)
        session.command("table_modify small_table NoAction 1")  # no hit
        check("table_dump_entry_from_key small_table 2", 77777)
        begun["from"] = time.monotonic()
        session.play(1)
        begun["to"] = time.monotonic()
        check("table_dump_entry small_table 1", 77777)
        check("table_dump lpm_table", 5000)
        check("table_dump ternary_table", 1234)
        time.sleep(0.5)
        session.command("set_queue_rate 1")
        begun["from"] = time.monotonic()
        session.play(1)
        begun["to"] = time.monotonic()
        time.sleep(2)  # it waits a second in its queue; the hit in egress counts from before
        check("table_dump ternary_table", 1234)
        session.command("table_set_timeout small_table 1 0")
        assert "Life" not in session.command("table_dump_entry small_table 1")
