"""Ageing: timeouts of entries, and the sweeps that report those that nothing hits.

The program is tests/programs/switch_ageing.p4. Every packet of number ``k`` hits the entries of
``k`` in all tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import agree
from support.switch_cases import program
from support.tiers import examples

from innet.core.errors import ControlError, InputError
from innet.core.packets import PacketBatch
from innet.switch import IdleTimeout, Switch, load_program

PROGRAM = load_program(program("switch_ageing"))
ADD = {
    "small_table": "table_add small_table mark {k} => 1",
    "exact_table": "table_add exact_table mark {k} {k} => 1",
    "lpm_table": "table_add lpm_table tally {k}/32 => 1",
    "steady_table": "table_add steady_table mark {k} => 1",
    "member_table": "table_indirect_add member_table {k} => 0",
    "ternary_table": "table_add ternary_table mark {k}&&&0xffff 0&&&0 => 1 5",
    "range_table": "table_add range_table mark {k}->{k} => 1 5",
}
"""How an entry for number ``k`` is added to each table."""
AGEING = [name for name in ADD if name != "steady_table"]
"""In the order of the program."""
FULL = {name: ("E." if name[0] in "tr" else "I.") + name for name in AGEING}


def packet(k: int) -> tuple[int, bytes]:
    number = k.to_bytes(4, "big")
    return 1, number[3:] + number[2:] + number + b"\0"


def switch_of(engine: str) -> Switch:
    switch = Switch(PROGRAM, engine)
    switch.command("act_prof_create_member members member 1")
    return switch


def add(switch: Switch, table: str, k: int) -> int:
    return int(switch.command(ADD[table].format(k=k)).split()[-1])


def taken(switch: Switch, milliseconds: int) -> list[tuple[int, str, tuple[int, ...]]]:
    """What is reported up to a time."""
    switch.state.clock = 1000 * milliseconds
    return [(each.time // 1000, each.table, each.handles) for each in switch.take_idle_timeouts()]


@pytest.fixture(params=["interpret", "jit"])
def switch(request: pytest.FixtureRequest) -> Switch:
    return switch_of(request.param)


# ── What is reported, and when ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("table", AGEING)
def test_an_entry_that_nothing_hits_is_reported(switch: Switch, table: str) -> None:
    handle = add(switch, table, 7)
    assert taken(switch, 50_000) == []  # it has no timeout
    switch.command(f"table_set_timeout {table} {handle} 1500")
    assert taken(switch, 51_999) == []  # 1,000 ms after it was set, and before the next sweep
    assert taken(switch, 52_000) == [(52_000, FULL[table], (handle,))]
    switch.state.clock = 53_500_000
    switch.process([packet(8)])
    assert taken(switch, 54_600) == [(54_000, FULL[table], (handle,))]
    switch.process([packet(7)])
    assert taken(switch, 56_999) == []
    assert taken(switch, 57_000) == [(57_000, FULL[table], (handle,))]


def test_who_stays_idle_is_reported_by_every_second_sweep(switch: Switch) -> None:
    """As simple_switch 1.15.5 told in its log, with these timeouts set 0.2 s after a sweep."""
    for k in (5, 6):
        add(switch, "small_table", k)
    switch.state.clock = 200_000
    switch.command("table_set_timeout small_table 0 400")
    switch.command("table_set_timeout small_table 1 1700")
    found = taken(switch, 6_999)
    assert found == [(i * 1000, "I.small_table", ((1, 0)[i % 2],)) for i in range(1, 7)]


def test_a_timeout_stays_with_the_index(switch: Switch) -> None:
    """The next entry there has it, as in simple_switch, until the table is cleared."""
    add(switch, "small_table", 5)
    switch.command("table_set_timeout small_table 0 400")
    assert taken(switch, 1000) == [(1000, "I.small_table", (0,))]
    switch.command("table_delete small_table 0")
    handle = add(switch, "small_table", 5)
    assert handle == 1 << 24
    assert taken(switch, 2000) == [(2000, "I.small_table", (handle,))]
    switch.command("table_clear small_table")
    assert add(switch, "small_table", 5) == 0
    assert taken(switch, 90_000) == []


def test_sweeps_come_before_changes_of_the_same_time(switch: Switch) -> None:
    """An entry that is deleted, set anew or hit after a sweep is in what that sweep reported."""
    reports = [(1000, "I.small_table", (0,))]
    for change in ("table_delete small_table 0", "table_set_timeout small_table 0 0", None):
        switch = switch_of(switch.engine_name)
        add(switch, "small_table", 5)
        switch.command("table_set_timeout small_table 0 400")
        switch.state.clock = 1_900_000
        if change is None:
            switch.process([packet(5)])
        else:
            switch.command(change)
        assert taken(switch, 1999) == reports
    assert taken(switch, 2000) == []


def test_tables_of_a_sweep_come_in_the_programs_order(switch: Switch) -> None:
    for table in reversed(AGEING):
        for k in (3, 4, 5):
            add(switch, table, k)
        switch.command(f"table_set_timeout {table} 2 1")
        switch.command(f"table_set_timeout {table} 0 1")
    assert taken(switch, 1000) == [(1000, FULL[table], (0, 2)) for table in AGEING]


def test_entries_of_the_program_age_too(switch: Switch) -> None:
    switch.command("table_set_timeout constant_table 1 100")
    switch.state.clock = 950_000
    switch.process([packet(2)])
    assert taken(switch, 1000) == []
    assert taken(switch, 2000) == [(2000, "I.constant_table", (1,))]


def test_milliseconds_are_cut(switch: Switch) -> None:
    """Both times are whole milliseconds before they are compared, as in simple_switch."""
    add(switch, "small_table", 5)
    switch.ageing.sweep_interval_ms = 3
    switch.state.clock = 1999
    switch.command("table_set_timeout small_table 0 2")
    assert taken(switch, 3) == [(3, "I.small_table", (0,))]  # after 1,001 microseconds


def test_the_interval_of_sweeps(switch: Switch) -> None:
    assert switch.ageing.sweep_interval_ms == 1000
    add(switch, "small_table", 5)
    switch.command("table_set_timeout small_table 0 10")
    assert taken(switch, 1000) == [(1000, "I.small_table", (0,))]
    switch.ageing.sweep_interval_ms = 100
    assert [time for time, *_ in taken(switch, 1599)] == [1200, 1400]
    for wrong in (0, -1, 1.5, None):
        with pytest.raises(InputError, match="the sweep interval"):
            switch.ageing.sweep_interval_ms = wrong


def test_a_clock_that_leaps(switch: Switch) -> None:
    """As to the time of day: only the last sweeps are done."""
    assert taken(switch, 10**12) == []
    add(switch, "small_table", 5)
    switch.command("table_set_timeout small_table 0 400")
    found = taken(switch, 2 * 10**12)
    assert len(found) == 5000
    assert 2 * 10**12 - 2000 < found[-1][0] <= 2 * 10**12
    assert taken(switch, 5) == []  # set back: sweeps go on where they were


def test_a_traced_packet_hits(switch: Switch) -> None:
    add(switch, "small_table", 5)
    switch.command("table_set_timeout small_table 0 400")
    switch.state.clock = 900_000
    switch.trace(*packet(5))
    assert taken(switch, 1999) == []


def test_reports_are_lines_for_people() -> None:
    assert str(IdleTimeout(5, "I.t", (1, 7))) == "idle timeout at 5 us in I.t: entries 1, 7"


def test_compiled_loops_leave_such_programs_to_python() -> None:
    """Sweeps come between calls."""
    batch = PacketBatch.from_packets([packet(1)])
    assert switch_of("jit").inline(batch) is None


# ── The control plane ────────────────────────────────────────────────────────────────────────────


def test_the_life_of_an_entry(switch: Switch) -> None:
    for table in ("small_table", "steady_table"):
        add(switch, table, 5)
    line = "0: 0x5 => I.mark 0x1 priority 0"
    assert switch.command("table_dump_entry small_table 0") == line  # it has no timeout
    assert switch.table_entries("small_table")[0].life is None
    switch.state.clock = 1_000_500
    switch.command("table_set_timeout small_table 0 1500")
    switch.state.clock = 1_012_499
    life = "Life: 12ms since hit, timeout is 1500ms"
    assert switch.command("table_dump_entry small_table 0") == f"{line}\n{life}"
    assert switch.command("table_dump_entry_from_key small_table 5") == f"{line}\n{life}"
    assert switch.command("table_dump small_table") == f"{line}\n{life}\ndefault: NoAction"
    assert switch.command("table_dump_entry steady_table 0") == line
    assert switch.table_entries("steady_table")[0].life is None
    switch.state.clock += 15_501
    assert switch.table_entries("small_table")[0].life == (1500, 28)
    switch.command("table_modify small_table NoAction 0")
    assert switch.table_entries("small_table")[0].life == (1500, 28)  # no hit
    switch.process([packet(5)])
    assert switch.table_entries("small_table")[0].life == (1500, 0)


def test_timeouts_that_are_refused(switch: Switch) -> None:
    for table in ("small_table", "steady_table"):
        add(switch, table, 5)
    for line, reason in (
        ("small_table 1 1500", "no entry with handle 1"),
        ("small_table 0 -1", "does not fit the 31 bits of the timeout"),
        ("steady_table 0 1", r"I\.steady_table does not support entry timeouts"),
    ):
        with pytest.raises(ControlError, match=reason):
            switch.command(f"table_set_timeout {line}")
    assert taken(switch, 90_000) == []


def test_where_rows_have_closed_up() -> None:
    """An entry's row is no longer its index."""
    rng = np.random.default_rng(1)
    switches = [switch_of(engine) for engine in ("interpret", "jit")]
    for table in ("exact_table", "lpm_table", "ternary_table", "range_table", "member_table"):
        handles = {}
        for switch in switches:
            handles = {k: add(switch, table, k) for k in range(250)}
            for handle in handles.values():
                switch.command(f"table_set_timeout {table} {handle} 1000000")
        kept = {int(k): handles[int(k)] for k in rng.choice(250, 40, replace=False)}
        for handle in sorted(set(handles.values()) - set(kept.values())):
            for switch in switches:
                switch.command(f"table_delete {table} {handle}")
        numbers = list(kept)
        for clock in range(1, 30):
            sent = [packet(int(rng.choice(numbers))) for _ in range(2)]
            for switch in switches:
                switch.state.clock += clock * 1000
                switch.process(sent)
        agree(*(switch.state for switch in switches))
        dumps = [switch.command(f"table_dump {table}") for switch in switches]
        assert dumps[0] == dumps[1]
        assert len(set(re.findall(r"Life: (\d+)ms", dumps[0]))) > 10


# ── Random times, by an oracle ───────────────────────────────────────────────────────────────────


@dataclass
class Oracle:
    """One sweep after the other over dictionaries, written from the description alone."""

    interval: int = 1000
    clock: int = 0
    swept: int = 0
    entries: dict[str, dict[int, int]] = field(default_factory=lambda: {t: {} for t in AGEING})
    """By table: the number that each handle matches."""
    timeouts: dict[tuple[str, int], int] = field(default_factory=dict)
    hits: dict[tuple[str, int], int] = field(default_factory=dict)
    reported: dict[str, set[int]] = field(default_factory=lambda: {t: set() for t in AGEING})
    found: list[tuple[int, str, tuple[int, ...]]] = field(default_factory=list)

    def at(self, clock: int) -> None:
        self.clock = clock
        while self.swept + 1000 * self.interval <= clock:
            self.swept += 1000 * self.interval
            for table in AGEING:
                idle = {h for h in self.entries[table] if self.is_idle(table, h)}
                self.reported[table] = idle - self.reported[table]
                if self.reported[table]:
                    by_index = sorted(self.reported[table], key=index_of)
                    self.found.append((self.swept, FULL[table], tuple(by_index)))

    def is_idle(self, table: str, handle: int) -> bool:
        timeout = self.timeouts.get((table, index_of(handle)), 0)
        since = self.swept // 1000 - self.hits[table, index_of(handle)] // 1000
        return timeout > 0 and since >= timeout

    def hit(self, number: int) -> None:
        for table, entries in self.entries.items():
            for handle, matched in entries.items():
                if matched == number:
                    self.hits[table, index_of(handle)] = self.clock


def index_of(handle: int) -> int:
    return handle & 0xFFFFFF


NUMBERS = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 3_000_000)),
    st.tuples(st.just("wait"), st.sampled_from([1, 999, 1000, 100_000, 500_000, 1_000_000])),
    st.tuples(st.just("send"), st.lists(NUMBERS, min_size=1, max_size=3)),
    st.tuples(st.just("add"), st.sampled_from(AGEING), NUMBERS),
    st.tuples(st.just("delete"), st.sampled_from(AGEING), st.integers(0, 9)),
    st.tuples(st.just("timeout"), st.sampled_from(AGEING), st.integers(0, 9), st.integers(0, 2500)),
    st.tuples(st.just("clear"), st.sampled_from(AGEING)),
    st.tuples(st.just("interval"), st.sampled_from([50, 333, 1000])),
    st.tuples(st.just("take")),
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(STEPS, max_size=60))
def test_both_engines_as_the_oracle(steps: list[tuple]) -> None:
    switches, oracle = [switch_of(engine) for engine in ("interpret", "jit")], Oracle()

    def command(line: str) -> str:
        answers = {switch.command(line) for switch in switches}
        assert len(answers) == 1
        return answers.pop()

    def check() -> None:
        for switch in switches:
            found = [tuple(each) for each in switch.take_idle_timeouts()]
            assert found == oracle.found
        oracle.found = []
        agree(*(switch.state for switch in switches))

    # All tables have entries from the beginning, so that short examples tell something.
    start = [("add", table, k) for table in AGEING for k in (1, 2, 3)]
    start += [("timeout", table, i, 700 + 400 * i) for table in AGEING for i in (0, 1)]
    for step, *given_ in [*start, *steps, ("wait", 2_500_000)]:
        match step:
            case "wait":
                oracle.at(oracle.clock + given_[0])
                for switch in switches:
                    switch.state.clock = oracle.clock
            case "send":
                for number in given_[0]:
                    oracle.hit(number)
                batches = [switch.process(map(packet, given_[0])) for switch in switches]
                assert batches[0] == batches[1]
            case "add":
                table, number = given_
                if number not in oracle.entries[table].values():
                    handle = int(command(ADD[table].format(k=number)).split()[-1])
                    oracle.entries[table][handle] = number
                    oracle.hits[table, index_of(handle)] = oracle.clock
            case "delete" | "timeout":
                table, position, *rest = given_
                if not oracle.entries[table]:
                    continue
                handles = sorted(oracle.entries[table])
                handle = handles[position % len(handles)]
                if step == "delete":
                    command(f"table_delete {table} {handle}")
                    del oracle.entries[table][handle]
                else:
                    command(f"table_set_timeout {table} {handle} {rest[0]}")
                    oracle.timeouts[table, index_of(handle)] = rest[0]
                    oracle.hits[table, index_of(handle)] = oracle.clock
            case "clear":
                (table,) = given_
                command(f"table_clear {table}")
                oracle.entries[table].clear()
                for index in range(8):
                    oracle.timeouts.pop((table, index), None)
            case "interval":
                oracle.interval = given_[0]
                oracle.at(oracle.clock)
                for switch in switches:
                    switch.ageing.sweep_interval_ms = given_[0]
            case "take":
                check()
    check()


# ── Packets that wait in queues ──────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(st.tuples(st.integers(0, 900_000_000), st.integers(0, 5)), max_size=25),
    st.lists(st.integers(0, 4000), min_size=3, max_size=3),
    st.sampled_from([1, 3, 0]),
    st.sampled_from([None, 0, 5_000_000_000]),
)
def test_sweeps_within_a_call_with_times(
    arrivals: list[tuple[int, int]], timeouts: list[int], rate: int, longer: int | None
) -> None:
    """They find what they find when each event is a call of its own."""
    times = np.cumsum([gap for gap, _ in arrivals], dtype=np.int64)
    packets = [packet(k) for _, k in arrivals]
    until = None if longer is None else (int(times[-1]) if len(times) else 0) + longer
    found = []
    for engine in ("interpret", "jit"):
        for one_by_one in (True, False):
            switch = switch_of(engine)
            for table in AGEING:
                for k, timeout in enumerate(timeouts):
                    handle = add(switch, table, k + 1)
                    switch.command(f"table_set_timeout {table} {handle} {timeout}")
            if rate:
                switch.command(f"set_queue_rate {rate}")
            if one_by_one:
                reports = []
                for time, each in zip(times.tolist(), packets, strict=True):
                    reports += step_to(switch, time)
                    switch.process([each], times=[time], until=time)
                    reports += switch.take_idle_timeouts()
                while switch.next_departure is not None:
                    if until is not None and switch.next_departure > until:
                        break
                    reports += step_to(switch, switch.next_departure)
                    switch.run_until(switch.next_departure)
                    reports += switch.take_idle_timeouts()
                if until is not None:
                    reports += step_to(switch, until)
                    switch.run_until(until)
            else:
                switch.process(packets, times=times, until=until)
                reports = []
            reports += switch.take_idle_timeouts()
            lives = [t.ages.last_hits.tolist() for t in switch.state.tables if t.ages is not None]
            found.append((reports, lives, switch.state.clock, switch.traffic_manager.now))
    assert found[0] == found[1] == found[2] == found[3]


def step_to(switch: Switch, time: int) -> list[IdleTimeout]:
    """Run what leaves before ``time``, one after the other; what sweeps found meanwhile."""
    found = []
    while switch.next_departure is not None and switch.next_departure < time:
        switch.run_until(switch.next_departure)
        found += switch.take_idle_timeouts()
    return found


def test_a_hit_in_egress_counts_from_the_queue(switch: Switch) -> None:
    """As in simple_switch: packets keep the time at which they came, or were copied."""
    for table in ("small_table", "range_table"):
        add(switch, table, 5)
        switch.command(f"table_set_timeout {table} 0 100000")
    switch.command("set_queue_rate 1")
    times = [1_000_000_000, 1_500_000_000]
    switch.process([packet(5), packet(5)], times=times, until=2_100_000_000)
    assert switch.table_entries("small_table")[0].life == (100_000, 600)
    assert switch.table_entries("range_table")[0].life == (100_000, 1100)  # one has left
    switch.run_until(3_200_000_000)
    assert switch.table_entries("range_table")[0].life == (100_000, 1700)
