"""innet.bmv2.simple_switch: what goes wrong around an external simple_switch is said, and in
time.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest
from support.bmv2 import checked_simple_switch

from innet.bmv2 import cli, session, simple_switch
from innet.core.errors import ControlError, MissingToolError, ProgramError, StalledError

LISTEN = """
import socket, sys, time
port = int(sys.argv[sys.argv.index("--thrift-port") + 1])
listener = socket.create_server(("127.0.0.1", port))
"""
ANSWER = """
import sys
print("RuntimeCmd: ", end="", flush=True)
for line in sys.stdin:
    print(f"{line.strip()} done\\nRuntimeCmd: ", end="", flush=True)
"""


def tool(
    folder: Path, name: str, script: str, interpreter: str = sys.executable, options: str = ""
) -> Path:
    """A stand-in. Its help has only the ``options``."""
    shell = f'[ "$1" = --help ] && echo "{options}" && exit'
    python = f"import sys\nif '--help' in sys.argv:\n    sys.exit(print('{options}'))"
    path = folder / name
    path.write_text(
        f"#!{interpreter}\n{python if interpreter == sys.executable else shell}\n{script}\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """A simple_switch that listens and sleeps, and a simple_switch_CLI that says done."""
    monkeypatch.setenv("PATH", str(tmp_path))
    tool(tmp_path, "simple_switch", LISTEN + "time.sleep(20)")
    tool(tmp_path, "simple_switch_CLI", ANSWER)
    return tmp_path


def test_without_simple_switch_the_remedy_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolError, match=r"simple_switch is not installed.*Install BMv2"):
        simple_switch.run({}, [])


def test_the_checked_build_is_taken_where_it_is(tools):
    taken = [simple_switch.find_simple_switch(checked_simple_switch())[0]]
    tool(tools, "simple_switch_checked", "")
    taken += [simple_switch.find_simple_switch(checked_simple_switch())[0]]
    assert taken == [tools / "simple_switch", tools / "simple_switch_checked"]
    assert simple_switch.find_simple_switch()[0] == tools / "simple_switch"


def test_a_command_line_that_does_not_answer_is_named(tools, monkeypatch):
    monkeypatch.setattr(cli, "ANSWER_SECONDS", 0.2)
    tool(tools, "simple_switch_CLI", "exec /bin/sleep 20", "/bin/sh")
    with pytest.raises(StalledError, match=r"did not answer to start in 0\.2 s"):
        simple_switch.run({}, [])


def test_a_command_line_that_ends_is_quoted(tools):
    tool(tools, "simple_switch_CLI", "echo No module named thrift", "/bin/sh")
    with pytest.raises(ControlError, match="simple_switch_CLI ended: No module named thrift"):
        simple_switch.run({}, [])


def test_a_refused_command_is_quoted(tools):
    tool(tools, "simple_switch_CLI", ANSWER.replace("{line.strip()} done", "Error: no, {line}"))
    with pytest.raises(ControlError, match="set_queue_depth 10000000: Error: no"):
        simple_switch.run({}, [])


def test_answers_belong_to_their_commands(tools):
    with simple_switch.open_session({}, []) as session:
        many = [f"command {i}" for i in range(130)]
        assert [each.strip() for each in session.commands(many)] == [f"{i} done" for i in many]
        with pytest.raises(ControlError, match="not one command"):
            session.command("# nothing")


def test_a_switch_that_never_listens_is_named(tools):
    tool(tools, "simple_switch", "exec /bin/sleep 20", "/bin/sh")
    with pytest.raises(StalledError, match="waiting for simple_switch to listen"):
        simple_switch.run({}, [], deadline=0.3)


def test_priority_queues_are_options_of_the_target(tools):
    """They follow the program and --, as simple_switch takes them."""
    say = "import sys\nprint(sys.argv[-4:], flush=True)\nsys.exit(1)"
    tool(tools, "simple_switch", say)
    words = r"'program.json', '--', '--priority-queues', '{}'"
    for given, expected in (({}, 1), ({"priority_queues": 8}, 8)):
        with pytest.raises(ProgramError, match=words.format(expected)):
            simple_switch.run({}, [], **given)


@pytest.mark.parametrize(
    ("options", "has_address"), [("--notifications-addr --device-id", True), ("--device-id", False)]
)
def test_a_build_without_nanomsg_gets_no_address(tools, options, has_address):
    """It would refuse the option, and needs none: nobody else can have its address."""
    tool(tools, "simple_switch", "print(sys.argv, flush=True)\nsys.exit(1)", options=options)
    with pytest.raises(ProgramError) as error:
        simple_switch.run({}, [])
    assert ("'--notifications-addr', 'ipc://notifications.ipc'" in str(error.value)) is has_address


def test_a_switch_that_refuses_the_program_is_quoted(tools):
    tool(tools, "simple_switch", "echo Add more fields; exit 1", "/bin/sh")
    with pytest.raises(ProgramError, match=r"(?s)ended with status 1;.*Add more fields"):
        simple_switch.run({}, [])


def test_a_switch_that_aborts_is_quoted(tools):
    abort = "pipe.read(16); sys.stderr.write('Assertion failed'); sys.stderr.flush(); os.abort()"
    tool(
        tools,
        "simple_switch",
        f"import os\npipe = open('p3_in.pcap', 'rb', 0); pipe.read(24)\n{LISTEN}\n{abort}",
    )
    with pytest.raises(ProgramError, match=r"signal SIGABRT.*Assertion failed"):
        simple_switch.run({}, [(3, b"abc"), (3, b"d")])


def test_packets_arrive_in_order_whatever_their_ports(tools):
    """A stand-in that reads like simple_switch does: the earliest of all ports, then its next."""
    copy = """
import struct
out, files, heads = open("p1_out.pcap", "wb", 0), {}, {}
out.write(bytes(24))
def advance(port):
    head = files[port].read(16)
    heads.pop(port, None)
    if head:
        heads[port] = head, files[port].read(struct.unpack("=IIII", head)[2])
for port in (1, 2, 5):
    files[port] = open(f"p{port}_in.pcap", "rb")  # buffered: reads on until all asked for is there
    files[port].read(24)
    open(f"p{port}_out.pcap", "ab").close()
"""
    play = """
for port in files:
    advance(port)
while heads:
    port = min(heads, key=lambda each: struct.unpack("=IIII", heads[each][0])[:2])
    out.write(b"".join(heads[port]))
    advance(port)
time.sleep(20)
"""
    tool(tools, "simple_switch", copy + LISTEN + play)
    packets = [(port, bytes([i]) * i * 50) for i, port in enumerate([5, 2, 2, 1, 5, 5, 1, 2] * 20)]
    with simple_switch.open_session({}, packets) as session:
        assert session.play(0) == {}
        assert session.play(1) == {1: [packets[0][1]]}
        assert session.play(7) == {1: [data for _, data in packets[1:8]]}
        assert session.play() == {1: [data for _, data in packets[8:]]}
        assert sum(map(len, session.departures().values())) == len(packets)


def test_ports_by_which_packets_may_leave(tools):
    """A stand-in that has only the ports it is told of, as simple_switch."""
    create = "import sys\nfor each in sys.argv:\n    if '@p' in each:\n"
    create += "        open(each.split('@')[1] + '_out.pcap', 'wb').write(bytes(24))\n"
    tool(tools, "simple_switch", create + LISTEN + "time.sleep(20)")
    assert simple_switch.run({}, [], ["mirroring_add 1 4"], ports=[2]).packets == {2: [], 4: []}


def test_ports_that_commands_name():
    commands = ["mc_node_create 1 4 6 | 2", "mirroring_add 5 9", "table_add t a 1 =>"]
    assert simple_switch.ports_of(commands) == {4, 6, 9}


def test_records_that_are_cut_are_left_out():
    record = struct.pack("=IIII", 3, 500_000, 2, 2) + b"ab"
    assert session._records(record + record[:-1]) == [(3.5, b"ab")]
