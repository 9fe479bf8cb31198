"""simple_switch's control plane, served for the built-in switch: answers, codes and bad clients."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest
from support.bmv2 import needs_simple_switch
from support.switch_cases import program

pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.thrift_fuzz import Calls, Process, answer, connected

from innet.bmv2 import shell
from innet.bmv2.build import find_simple_switch, own_notifications
from innet.bmv2.thrift_api import CALLS, EXACT, SERVICES
from innet.bmv2.thrift_client import ThriftClient
from innet.core.errors import ControlError, NetworkError, Refusal


@pytest.fixture
def running():
    made = []

    def make(name="fuzz_registers", **options):
        made.append(Process(json.dumps(program(name)), engine="interpret", **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def client(running):
    there = ThriftClient(running().port)
    yield there
    there.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def test_every_call_of_the_services_is_there():
    assert {name: len(calls) for name, calls in SERVICES.items()} == {
        "standard": 70,
        "simple_pre": 8,
        "simple_pre_lag": 9,
        "simple_switch": 14,
    }


@pytest.mark.repeats("the same with other programs", but=["fuzz_registers"])
@needs_simple_switch
@pytest.mark.parametrize("name", ["fuzz_registers", "fuzz_counters", "fuzz_digests", "fuzz_parser"])
def test_random_calls_are_answered_as_simple_switch_answers_them(name, running, tmp_path):
    document = program(name)
    path, port = tmp_path / "program.json", free_port()
    path.write_text(json.dumps(document))
    switch, _ = find_simple_switch()
    words = [switch, "--thrift-port", str(port), "--log-level", "off", path]
    words += own_notifications(switch, f"ipc:///tmp/innet-test-{port}.ipc")
    real = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        there, here = connected(port), ThriftClient(running(name).port)
        calls = Calls(document, random.Random(7))
        for number in range(60):
            call, arguments = calls.next()
            wanted, found = (answer(each, call, arguments) for each in (there, here))
            assert found == wanted, (number, call, arguments)
            for each in (there, here):
                if not each.open:
                    each.connect()
            if is_read(call):
                continue
            for read, of in calls.reads():
                wanted, found = (answer(each, read, of) for each in (there, here))
                assert found == wanted, (number, call, arguments, read, of)
        there.close()
        here.close()
    finally:
        real.kill()
        real.wait()


def is_read(call):
    return any(word in call for word in ("_get_", "_read", "_get"))


def test_refusals_have_simple_switchs_codes(client):
    with pytest.raises(ControlError) as refused:
        client.call("bm_mt_get_num_entries", 0, "nothing")
    assert refused.value.reason is Refusal.UNKNOWN_TABLE
    with pytest.raises(ControlError, match="the index is beyond the end"):
        client.call("bm_register_read", 0, "I.words", 1 << 20)
    with pytest.raises(ControlError, match="there is no array of this name"):
        client.call("bm_register_read", 0, "words", 0)  # the CLI shortens names, the switch not
    with pytest.raises(ControlError, match="--enable-swap"):
        client.call("bm_swap_configs")


def test_a_program_is_swapped_at_run_time(running):
    there = running("fuzz_registers", enable_swap=True)
    client = ThriftClient(there.port)
    with pytest.raises(ControlError, match="no configuration to swap"):
        client.call("bm_swap_configs")
    with pytest.raises(ControlError, match="no JSON"):
        client.call("bm_load_new_config", "{")
    client.call("bm_load_new_config", json.dumps(program("fuzz_counters")))
    assert "I.words" in client.call("bm_get_config")
    client.call("bm_swap_configs")
    assert json.loads(client.call("bm_get_config")) == program("fuzz_counters")
    client.close()


EXACT_KEY = {"type": EXACT, "exact": {"key": b"1"}}


def valid_frames(client):
    """Some calls as they are on the wire, which change nothing."""
    for name, arguments in (
        ("bm_register_read", (0, "I.words", 1)),
        ("bm_mt_get_entries", (0, "I.table")),
        (
            "bm_mt_add_entry",
            (0, "none", [{"type": EXACT, "exact": {"key": b"1"}}], "x", [b"1"], {}),
        ),
        ("bm_mc_node_create", (0, 1, "101", "1")),
        ("mirroring_session_get", (1,)),
    ):
        yield client._message(name, CALLS[name], arguments)


def test_ten_thousand_frames_that_are_no_calls_end_their_connections_alone(running):
    there = running()
    noise = random.Random(3)
    good = ThriftClient(there.port)
    good.call("bm_register_write", 0, "I.words", 2, 77)
    frames = list(valid_frames(good))
    titles = [
        struct.pack(">I", 0x80010001) + struct.pack(">i", 1 << 30),  # a name of a gigabyte
        struct.pack(">I", 0x80010001) + struct.pack(">i", -5),
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    before = memory()
    for number in range(100):
        with socket.create_connection(("127.0.0.1", there.port), 5) as bad:
            sent = []
            for _ in range(100):  # whatever the first one ends, no later one is a call
                frame = bytearray(noise.choice(frames))
                for _ in range(noise.randrange(1, 4)):
                    frame[noise.randrange(4, len(frame))] = noise.randrange(256)
                sent.append(bytes(frame[: noise.choice([len(frame), noise.randrange(len(frame))])]))
            sent.insert(0, titles[number % 3] if number < 30 else b"")
            with contextlib.suppress(OSError):  # it may be closed meanwhile
                bad.sendall(b"".join(sent))
    for _ in range(300):
        with socket.create_connection(("127.0.0.1", there.port), 5) as bad:
            bad.sendall(noise.randbytes(noise.randrange(1, 60)))
    assert good.call("bm_register_read", 0, "I.words", 2) == 77
    end = time.monotonic() + 20
    while threading.active_count() > 20:  # the threads of all bad clients end
        assert time.monotonic() < end
        time.sleep(0.02)
    assert memory() - before < 100 << 20
    good.close()


def memory():
    """Bytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_client_that_stops_in_mid_call_holds_nobody_up(running):
    there = running()
    good = ThriftClient(there.port)
    for part in (3, 12, 30, 45):
        frame = next(iter(valid_frames(good)))
        with socket.create_connection(("127.0.0.1", there.port), 5) as half:
            half.sendall(frame[:part])
            assert good.call("bm_register_read", 0, "I.words", 0) == 0
    good.close()


def test_a_hundred_clients_at_once_lose_nothing(running):
    there = running()
    failed = []

    def write(number):
        try:
            client = ThriftClient(there.port)
            for _ in range(5):
                before = client.call("bm_register_read", 0, "I.words", number % 8)
                client.call("bm_register_write", 0, "I.words", number % 8, before)
            client.close()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(100)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(30)
    assert not failed
    assert not any(each.is_alive() for each in threads)


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NetworkError, match=f"TCP port {port}.*--thrift-port"):
            Process(json.dumps(program("fuzz_registers")), port=port)


def test_commands_of_the_cli_reach_a_running_switch(running, capsys):
    there = running()
    lines = ["register_write words 1 7", "register_read words 1", "nothing", "", "exit", "help"]
    assert shell.run("127.0.0.1", there.port, lines) == 1
    said = capsys.readouterr().out
    assert "words[1]= 7" in said
    assert "Error: " in said
    assert "nothing" in said


def test_names_are_completed(running):
    control = shell.connect("127.0.0.1", running().port)
    completion = shell.Completion(control)
    assert completion.of("register_re", "register_re") == ["register_read", "register_reset"]
    assert completion.of("register_read I.w", "I.w") == ["I.wides", "I.words"]
    assert completion.of("nothing I.w", "I.w") == []
    control.close()


def test_innets_own_service_tells_what_the_others_cannot(client):
    client.call("bm_register_write", 0, "I.larges", 0, -1)  # 64 bits of ones
    assert client.call("bm_register_read", 0, "I.larges", 0) == -1  # of the same bits
    assert client.call("command", "register_read I.larges 0") == f"I.larges[0]= {(1 << 64) - 1}"
    assert client.call("command", "queue_read 1")
    with pytest.raises(ControlError, match="absent"):
        client.call("command", "register_read absent 0")
    assert json.loads(client.call("statistics"))["packets_in"] == 0


def test_an_entry_may_be_replaced_more_often_than_a_signed_handle_counts(running):
    control = shell.connect("127.0.0.1", running("switch_tables").port)
    try:
        for number in range(257):
            handle = control.table_add("I.lpm_table", "I.lpm", ["2", "10.1.2.0/24"], ["3"])
            assert handle == number % 256 << 24
            assert control.table_entry("I.lpm_table", handle).handle == handle
            control.table_delete("I.lpm_table", handle)
    finally:
        control.close()
