"""Packet tests as p4c has them: what a test file says, and what the runner makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bmv2 import needs_simple_switch
from support.switch_cases import program

from innet.bmv2.session import Session
from innet.core.errors import ControlError, InputError, MissingToolError, ProgramError
from innet.switch import ir, load_program
from innet.tools import stf, stf_syntax
from innet.tools.files import open_document
from innet.tools.stf import StfNames, arguments_of, differences, match_of, shown

FOLDER = Path(__file__).parents[2] / "stf"


def parse(line):
    (statement,) = stf_syntax.parse(line, "t.stf").statements
    return statement


def run(name, text, engine="interpret"):
    return stf.run(load_program(program(name)), stf_syntax.parse(text, "t.stf"), engine)


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("switch_tables", "interpret"),
        ("switch_tables", "jit"),
        ("switch_state", "interpret"),
        ("switch_profiles", "interpret"),
    ],
)
def test_files_that_pass(name, engine):
    test = stf_syntax.read(FOLDER / f"{name}.stf")
    outcome = stf.run(load_program(program(name)), test, engine)
    assert outcome.failures == ()
    assert outcome.passed
    assert outcome.packets == outcome.compared > 2


def test_a_file_that_fails():
    test = stf_syntax.read(FOLDER / "failing.stf")
    outcome = stf.run(load_program(program("switch_state")), test, "interpret")
    assert not outcome.passed
    assert [(failure.line, str(failure)) for failure in outcome.failures] == [
        (3, "table I.counted already has an entry with this match"),
        (14, "packets arrive at ports 511..511; a switch has ports 0..510"),
        (15, "counter hits($A): expected packets == 4, got 5"),
        (16, "no entry is called C. Named entries: A."),
        (
            17,
            "unknown register 'nowhere'. Known: I.narrow, I.signed_words, I.wide, I.widest, "
            "I.words.",
        ),
        (5, "port 1, packet 0: not the packet that was expected"),
        (7, "port 1, packet 1: not the packet that was expected"),
        (9, "port 1, packet 2: not the packet that was expected"),
        (None, "port 1, packet 4: nothing more was expected, but a packet left"),
        (11, "port 2, packet 0: a packet was expected, but none left"),
    ]


def test_registers_are_compared():
    text = "register_write I.words 2 7\n"
    text += "check_register words(2) == 7\ncheck_register I.words(1) < 1\n"
    assert run("switch_state", text).failures == ()
    failures = run("switch_state", text + "check_register words(2) != 7\n").failures
    assert [(each.line, str(each)) for each in failures] == [
        (4, "register words(2): expected != 7, got 7")
    ]
    (failure,) = run("switch_state", "check_register words(9999) == 0\n").failures
    assert "9999" in str(failure)


class TestSyntax:
    def test_statements(self):
        text = """
            ADD tab.le 10 h[1].f:0x1* "g h":3/8 act(a:1, b:0x2) = $E  # a comment
            setdefault t x.y()
            remove ALL
            remove $E
            packet 0x  # fails below, in a test of its own
            """.replace(
            "packet 0x  # fails below, in a test of its own", "wait\nno_packet\nWAIT 1.5ms"
        )
        assert stf_syntax.parse(text, "t").statements == (
            stf_syntax.Add(
                2,
                "tab.le",
                10,
                (("h[1].f", "0x1*"), ("g h", "3/8")),
                stf_syntax.NamedCall("act", (("a", "1"), ("b", "0x2"))),
                "$E",
            ),
            stf_syntax.SetDefault(3, "t", stf_syntax.NamedCall("x.y", ())),
            stf_syntax.Remove(4, None),
            stf_syntax.Remove(5, "E"),
            stf_syntax.Wait(6, None),
            stf_syntax.NoPacket(7),
            stf_syntax.Wait(8, 1_500_000),
        )

    def test_packets(self):
        assert parse("packet 3 0A 0b\t0c") == stf_syntax.Send(1, 3, b"\n\x0b\x0c")
        assert parse("packet 3") == stf_syntax.Send(1, 3, b"")
        assert parse("expect 03 0* ab") == stf_syntax.Expect(1, 3, "0*AB", exact=False)
        assert parse("expect 3 0aB $ # all") == stf_syntax.Expect(1, 3, "0AB", exact=True)
        assert parse("expect 3 $") == stf_syntax.Expect(1, 3, "", exact=True)
        assert parse("expect 3") == stf_syntax.Expect(1, 3, None, exact=False)

    def test_the_dialect_of_4ward(self):
        call = stf_syntax.NamedCall
        keys = (("h.a", "10.0.0.0/24"),)
        assert parse("add t h.a:10.0.0.0/24 f(1, 0x2)") == stf_syntax.Add(
            1, "t", None, keys, call("f", (("", "1"), ("", "0x2"))), None
        )
        assert parse("add t 5 h.a:10.0.0.0/24 group=3") == stf_syntax.Add(
            1, "t", 5, keys, stf_syntax.ProfileChoice("group", 3), None
        )
        assert parse("add t member=0") == stf_syntax.Add(
            1, "t", None, (), stf_syntax.ProfileChoice("member", 0), None
        )
        ports = (("port", "0x1"), ("v", "2"))
        assert parse("member p.q 0 set port=0x1 v=2") == stf_syntax.NewMember(
            1, "p.q", 0, call("set", ports)
        )
        assert parse("member p 1 set()") == stf_syntax.NewMember(1, "p", 1, call("set", ()))
        assert parse("group p 1 0 1 2") == stf_syntax.NewGroup(1, "p", 1, (0, 1, 2))

    def test_counters_and_commands(self):
        assert parse("check_counter c.d(5) bytes<=0x10") == stf_syntax.CheckCounter(
            1, "c.d", 5, "bytes", "<=", 16
        )
        assert parse("check_counter c($A)") == stf_syntax.CheckCounter(1, "c", "A", None, "==", 0)
        assert parse("check_register a.b(0x3) != 9") == stf_syntax.CheckRegister(
            1, "a.b", 3, "!=", 9
        )
        assert parse("mc_node_create 0 1 2") == stf_syntax.CliCommand(1, "mc_node_create 0 1 2")

    @pytest.mark.parametrize(
        ("line", "problem"),
        [
            ("packet", ":7: expected a port, found the end of the line"),
            ("packet x 00", ":8: expected a port, found 'x' .write packet PORT HEX.: packet x 00"),
            ("packet 1a 00", ":8: expected a port, found "),
            ("packet 1 0", ":8: a packet of 1 hexadecimal digits ends in half a byte"),
            ("packet 1 0*", ":11: expected hexadecimal digits or the end of the line"),
            ("expect", ":[0-9]+: .*expected a port"),
            ("expect 1 0$0", ":12: expected the end of the line, found '0'"),
            ("add", ":4: expected a name, found the end of the line .write add TABLE"),
            ("add t", ":6: expected a name or a number, found the end"),
            ("add t a:1", ":10: expected a name or .*, found the end of the line"),
            ("add t a:b c()", ":9: expected a number, found 'b'"),
            ("add t 1* c()", ":8: expected a name, found '\\*'"),
            ("add t 0x1* c()", ":[0-9]+: .*0x1\\* is no whole number"),
            ("add t c(:1)", ":9: expected a name, a number or '\\)', found ':'"),
            ("add t a:1 b=2", ":5: an entry chooses member=NUMBER or group=NUMBER, not b="),
            ("member p x f()", ":10: expected a number, found 'x'"),
            ("group p", ":8: expected a number, "),
            ("add t c(a:1 b:1)", ":13: expected ',' or '\\)', found 'b'"),
            ("add t c() d", ":11: expected the end of the line or '=', found 'd'"),
            ("add t c() = 5", ":13: expected a name, found '5'"),
            ("add t; c()", ":6: expected .*, found '; c\\(\\)'"),
            ("setdefault t c", ":15: expected '\\(', found the end"),
            ("  check_counter c(1) packet == 3", ":22: expected packets or bytes or the end"),
            ("check_counter c(1) packets = 3", ":28: expected a relation"),
            ("check_register r(1)", ":20: expected a relation .*, found the end"),
            ("check_register r(A) == 1", ":18: expected a number, found 'A'"),
            ("wait 5", ":6: the wait is '5'; write it with its unit, such as 20us"),
            ("wait 5ms 3", ":10: expected the end of the line, found '3'"),
            ("wait ms", ":6: expected a duration or the end of the line, found 'ms'"),
            ("no_packet 5", ":[0-9]+: .*expected the end of the line, found '5'"),
            (" é 1", ":2: 'é' begins no statement"),
        ],
    )
    def test_problems_name_file_line_and_column(self, line, problem):
        with pytest.raises(
            InputError, match=rf"some\.stf:3{problem if problem[0] == ':' else f':.*{problem}'}"
        ):
            stf_syntax.parse(f"wait\n\n{line}\n", "some.stf")

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(InputError, match=r"a\.stf cannot be read: No such file"):
            stf_syntax.read(tmp_path / "a.stf")


def key(match, width):
    return ir.TableKey(match, ir.FieldRef(0, 0), width, None, "k")


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "width", "text", "expected"),
        [
            ("EXACT", 16, None, ir.ExactMatch(0)),
            ("EXACT", 16, "0010", ir.ExactMatch(10)),
            ("TERNARY", 16, None, ir.TernaryMatch(0, 0)),
            ("TERNARY", 16, "0x1*2*", ir.TernaryMatch(0x1020, 0xF0F0)),
            # As many digits as were written are compared, so p4c's runner reads it.
            ("TERNARY", 16, "0x12", ir.TernaryMatch(0x12, 0xFF)),
            ("TERNARY", 9, "0x1ff", ir.TernaryMatch(0x1FF, 0x1FF)),
            ("TERNARY", 16, "0b*1", ir.TernaryMatch(1, 1)),
            ("TERNARY", 16, "0o7*", ir.TernaryMatch(0o70, 0o70)),
            ("TERNARY", 16, "7", ir.TernaryMatch(7, 0xFFFF)),
            ("TERNARY", 16, "0x7&&&0x3", ir.TernaryMatch(7, 3)),
            ("LPM", 32, None, ir.LpmMatch(0, 0)),
            ("LPM", 32, "0x0a01****", ir.LpmMatch(0x0A010000, 16)),
            ("LPM", 32, "0x0a000000/7", ir.LpmMatch(0x0A000000, 7)),
            ("LPM", 32, "5", ir.LpmMatch(5, 32)),
            ("LPM", 9, "0x1ff", ir.LpmMatch(0x1FF, 9)),
            ("RANGE", 8, None, ir.RangeMatch(0, 255)),
            ("RANGE", 8, "5..0x9", ir.RangeMatch(5, 9)),
            ("RANGE", 8, "5", ir.RangeMatch(5, 5)),
        ],
    )
    def test_keys(self, kind, width, text, expected):
        assert match_of(key(ir.MatchKind[kind], width), text) == expected

    @pytest.mark.parametrize(
        ("kind", "text"),
        [("EXACT", "0x1*"), ("EXACT", "1/8"), ("LPM", "0x1&&&3"), ("TERNARY", "0x1..5")],
    )
    def test_keys_of_another_kind(self, kind, text):
        with pytest.raises(ControlError, match="no value for key field k"):
            match_of(key(ir.MatchKind[kind], 16), text)

    def test_arguments(self):
        loaded = load_program(program("switch_tables"))
        action = StfNames(loaded).action(StfNames(loaded).table("run_table"), "two")
        assert arguments_of(action, [("", "0x5")]) == [5]
        with pytest.raises(ControlError, match=r"takes 1 argument\(s\)"):
            arguments_of(action, [("", "1"), ("", "2")])
        assert arguments_of(action, [("port", "0x5")]) == [5]
        with pytest.raises(ControlError, match="needs port as well"):
            arguments_of(action, [])
        with pytest.raises(ControlError, match="unknown parameter 'p'"):
            arguments_of(action, [("p", "1")])
        with pytest.raises(ControlError, match="given twice"):
            arguments_of(action, [("port", "1"), ("port", "1")])
        with pytest.raises(ControlError, match="no value for parameter port"):
            arguments_of(action, [("port", "0x*")])

    def test_names(self):
        names = StfNames(load_program(program("switch_tables")))
        assert names.table("I.run_table").name == names.table("run_table").name == "I.run_table"
        with pytest.raises(ControlError, match=r"'_table' is ambiguous: I\.constant_table"):
            names.table("_table")
        with pytest.raises(ControlError, match="unknown table 'run'"):
            names.table("run")
        table = names.table("ternary_table")
        positions = [names.key(table, each) for each in ("h.key.masked", "small", "extra", "valid")]
        assert positions == [0, 1, 2, 2]
        with pytest.raises(ControlError, match=r"unknown key field 'x' of I\.ternary_table"):
            names.key(table, "x")


class TestComparison:
    """What is compared: all packets of all ports that the test names, in order."""

    def test_ports_that_a_test_does_not_name_are_not_looked_at(self):
        silent = "packet 0 03050000001000000000200100000000000000\n"
        assert run("switch_state", silent).passed
        outcome = run("switch_state", silent + "no_packet\n")
        assert [str(each) for each in outcome.failures] == [
            "port 1, packet 0: nothing more was expected, but a packet left"
        ]

    def test_a_port_that_sends_is_looked_at(self):
        assert not run("switch_state", "packet 1 030500000010000000002001000000000000").passed

    def test_ternary_entries_need_a_priority(self):
        outcome = run("switch_tables", "add ternary_table masked:0x12**** ternary_(v:0x41)")
        assert "its entries need a priority" in str(outcome.failures[0])

    def test_time_passes_between_commands_and_packets(self):
        # Commands, then packets: one pause for each change from the one to the other.
        loaded = load_program(program("switch_state"))
        test = stf_syntax.parse("packet 0 00\npacket 0 00\nwait\nwait\npacket 0 00", "t")
        running = stf._BuiltinRun(loaded, stf.Switch(loaded, "interpret"))
        running.run(test)
        assert running.switch.state.clock == 2 * stf.PAUSE

    def test_idle_entries_are_told(self):
        outcome = run(
            "switch_ageing",
            "add small_table small:5 mark(v:1)\ntable_set_timeout small_table 0 1000\n"
            "packet 1 0600000000000000\nwait\npacket 1 0500000000000000\n"
            "expect 1 0600000000000000\nexpect 1 0500000000000001",
        )
        assert outcome.passed
        idle = "idle timeout at 1000000 us in I.small_table: entries 0"
        assert outcome.printed == ((3, idle),)


class TestTimes:
    """tools_clock stamps each packet with its arrival and departure, in microseconds."""

    @staticmethod
    def stamped(arrived, left):
        return f"expect 2 02{arrived:012x}{left:012x} $"

    @pytest.mark.parametrize("engine", ["jit", "interpret"])
    def test_gaps_and_waits(self, engine):
        text = ["set_queue_rate 100 2", *["packet 0 02"] * 3, "wait 0.5s", "packet 0 02"]
        # Departures are 10 ms apart, the first of them after 10 ms; after the wait nothing waits.
        expected = [(0, 10_000), (1_000, 20_000), (2_000, 30_000), (503_000, 503_000)]
        test = stf_syntax.parse("\n".join(text + [self.stamped(*each) for each in expected]), "t")
        assert stf.run(load_program(program("tools_clock")), test, engine, gap=10**6).passed
        expected = [(0, 10_000), (0, 20_000), (0, 30_000), (500_000, 500_000)]
        test = stf_syntax.parse("\n".join(text + [self.stamped(*each) for each in expected]), "t")
        assert stf.run(load_program(program("tools_clock")), test, engine).passed

    def test_commands_find_what_waits(self):
        text = """
            set_queue_rate 10 2
            set_queue_depth 2 2
            packet 0 02
            packet 0 02
            packet 0 02
            queue_read 2
            wait 150ms
            queue_read 2
            set_queue_rate 0 2
            packet 0 02
            wait
            packet 0 02
        """
        lines = [(0, 100), (0, 200), (150, 200), (1150, 1150)]
        text += "\n".join(self.stamped(a * 1000, b * 1000) for a, b in lines)
        outcome = run("tools_clock", text)
        assert outcome.passed
        limits = "capacity 2, rate 10, dropped 1"
        assert [text for _, text in outcome.printed] == [
            f"port 2 priority 0: depth 2, {limits}",
            f"port 2 priority 0: depth 1, {limits}",
        ]

    def test_without_times_nothing_waits(self):
        text = "set_queue_rate 1 2\nset_queue_depth 0 2\npacket 0 02\nwait\npacket 0 02\n"
        lines = [self.stamped(time, time) for time in (stf.PAUSE, 2 * stf.PAUSE)]
        assert run("tools_clock", text + "\n".join(lines)).passed

    @pytest.mark.parametrize("engine", ["jit", "interpret"])
    def test_the_example(self, engine):
        examples = Path(__file__).parents[3] / "p4/examples"
        test = stf_syntax.read(examples / "ecn.stf")
        loaded = load_program(examples / "ecn.json")
        assert stf.run(loaded, test, engine, priority_queues=8).passed
        assert not stf.run(loaded, test, engine).passed  # there is no queue 5


@pytest.mark.bmv2
@needs_simple_switch
class TestOnSimpleSwitch:
    @pytest.mark.parametrize("name", ["switch_tables", "switch_state", "switch_profiles"])
    def test_files_that_pass(self, name):
        test = stf_syntax.read(FOLDER / f"{name}.stf")
        outcome = stf.run_on_simple_switch(program(name), test)
        assert outcome.failures == ()
        assert outcome.packets == outcome.compared > 2
        engine = stf.run(load_program(program(name)), test, "interpret")
        assert outcome.printed == engine.printed

    def test_a_file_that_fails(self):
        test = stf_syntax.read(FOLDER / "failing.stf")
        outcome = stf.run_on_simple_switch(program("switch_state"), test)
        engine = stf.run(load_program(program("switch_state")), test, "interpret")
        told = [(each.line, str(each).removeprefix("simple_switch: ")) for each in outcome.failures]
        # Both tell the same; what is refused, each in words of its own.
        assert [line for line, _ in told] == [each.line for each in engine.failures]
        assert told[5:] == [(each.line, str(each)) for each in engine.failures][5:]
        assert outcome.packets == engine.packets

    def test_a_switch_that_ends_fails_the_test(self, monkeypatch):
        def end(self, count=None):
            raise ProgramError("simple_switch ended with signal SIGABRT")

        monkeypatch.setattr(Session, "play", end)
        test = stf_syntax.parse("packet 0 00\npacket 0 00\nregister_read nowhere 1", "t")
        outcome = stf.run_on_simple_switch(program("switch_state"), test)
        assert [str(each) for each in outcome.failures] == [
            "simple_switch ended with signal SIGABRT"
        ]


def test_without_simple_switch_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match="Install BMv2"):
        stf.run_on_simple_switch(program("switch_state"), stf_syntax.parse("packet 0 00", "t"))


class TestDifference:
    def test_marks(self):
        (row,) = differences("0A*B", bytes.fromhex("0BCC"))
        assert (row.offset, row.expected, row.got, row.marks) == (0, "0A*B", "0BCC", " ^ ^")

    def test_what_follows_may_be_anything_or_nothing(self):
        assert differences("0A", b"\n\n", exact=False) == []
        (row,) = differences("0A", b"\n\n", exact=True)
        assert row.marks == "  ^^"
        (row,) = differences("0A**", b"\n", exact=False)
        assert row.marks == "  ^^"

    def test_long_packets_are_cut(self):
        lines = shown("00" * 1000, b"\1" * 1000)
        assert len(lines) == 3 * 8 + 1
        assert lines[-1] == "55 more rows of 16 bytes differ"


@pytest.mark.parametrize("text", ["", "\n\n", "# packet 1 00\n"])
def test_a_test_that_states_nothing_is_refused(text):
    with pytest.raises(InputError, match=r"t\.stf: states nothing"):
        stf_syntax.parse(text, "t.stf")


MADE = FOLDER / "p4testgen"
"""What p4testgen 1.2.5.16 made of innet's own programs (``--seed 1``), without its comments."""


def made_tests(name):
    examples = Path(__file__).parents[3] / "p4" / "examples" / f"{name}.json"
    document = open_document(examples if examples.exists() else name)
    paths = sorted((MADE / name).glob("*.stf"))
    assert len(paths) >= 5
    return document, [stf_syntax.read(path) for path in paths]


@pytest.mark.parametrize("name", ["ecn", "forward"])
def test_what_p4testgen_made_of_own_programs(name):
    document, tests = made_tests(name)
    loaded = load_program(document)
    outcomes = [stf.run(loaded, test, "interpret") for test in tests]
    assert [each.failures for each in outcomes] == [()] * len(tests)
    assert sum(each.compared for each in outcomes) > 0


@pytest.mark.bmv2
@needs_simple_switch
@pytest.mark.parametrize("name", ["ecn", "forward"])
def test_simple_switch_passes_it_as_well(name):
    document, tests = made_tests(name)
    outcomes = [stf.run_on_simple_switch(document, test) for test in tests[:5]]
    assert [each.failures for each in outcomes] == [()] * len(outcomes)
