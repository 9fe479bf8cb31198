"""All-reduces over real packets on Mininet networks, against the same in memory; and their ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support import fork_server
from support.bmv2 import needs_simple_switch
from support.capture_files import read_by_scapy
from support.interrupts import hear_interrupts
from support.mininet import (
    EITHER_KIND,
    KINDS,
    NEEDS_BMV2,
    children,
    missing,
    needs_mininet,
)
from support.tiers import tiered

import innet
from innet.cli import app
from innet.core.errors import InputError, NetworkError, ProgramError, StalledError
from innet.core.settings import TrainSettings
from innet.experiments import comparison

if not missing():
    from innet.mininet import allreduce, training
    from innet.mininet.debian import Topo
    from innet.mininet.network import network, temporary_folder
    from innet.mininet.nodes import Bmv2Switch, BuiltinSwitch, network_namespace_of
    from innet.mininet.worker_pool import WorkerPool

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]

IPV4_END = 34  # bytes of Ethernet and IPv4 headers
IMAGES = 1438  # that the digits' workers share


def settings(**chosen):
    return allreduce.NetSettings(**{"workers": 2, "size": 20_000, "seed": 5, **chosen})


def in_memory(chosen):
    total, report = innet.all_reduce(
        chosen.gradients(),
        codec=chosen.codec,
        program=chosen.program,
        values_per_packet=chosen.values_per_packet,
        engine=chosen.engine,
        seed=chosen.seed,
    )
    return total, report


OF_EACH_KIND = "the same on a network of each kind"


def marks_of(case):
    return NEEDS_BMV2 if case[-1] == "bmv2" else []


@pytest.mark.parametrize(
    ("workers", "codec", "framing", "program", "kind"),
    tiered(
        [
            (2, "dense", "raw", "hashed", "builtin"),
            (2, "dense", "raw", "hashed", "bmv2"),
            (2, "lhc", "raw", "tree", "builtin"),
            (2, "lhc", "raw", "tree", "bmv2"),
            (4, "dense", "udp", "three trees", "builtin"),
            (4, "dense", "udp", "three trees", "bmv2"),
            *(
                (workers, codec, "udp", program, kind)
                for program in ("slots", "tree", "hashed")
                for codec in ("dense", "lhc", "scalecom")
                for workers in (2, 4, 8)
                for kind in ("builtin", "bmv2")
            ),
        ],
        [(2, "dense", "udp", "slots", "bmv2")],
        OF_EACH_KIND,
        marks_of,
    ),
)
def test_equal_to_memory_bit_for_bit_under_loss(workers, codec, framing, program, kind):
    several = {"program": "tree", "topology": "leaf-spine:racks=2,spines=3,trees=3"}
    chosen = settings(
        workers=workers,
        codec=codec,
        framing=framing,
        **(several if program == "three trees" else {"program": program}),
        window=64,
        switch=kind,
        # ScaleCom sends so little that of fewer elements no packet may be lost.
        size=200_000 if codec == "scalecom" else 20_000,
        density=1 if codec == "dense" else 0.02,
        loss=0.03,
        duplicate=0.03,
        reorder=0.03,
        timeout=0.05,
        give_up=60.0,
    )
    result = allreduce.run(chosen)
    total, report = in_memory(chosen)
    np.testing.assert_array_equal(result.sum, total)
    mine = result.report
    assert mine.exact
    assert mine.retransmissions > 0
    assert mine.max_abs_error == report.max_abs_error
    for what in ("rounds", "elements", "codec", "selected", "union"):
        assert getattr(mine, what) == getattr(report, what), what
    assert mine.switch_packets > 0


@pytest.mark.repeats("packets of 1,024 values in memory, and of fewer in Mininet")
@pytest.mark.parametrize("kind", EITHER_KIND)
@pytest.mark.parametrize(
    ("collective", "framing"),
    tiered(
        [
            ("reduce-scatter", "udp"),
            ("all-gather", "raw"),
            ("broadcast", "udp"),
            ("reduce", "udp"),
            ("barrier", "udp"),
        ],
        [("reduce-scatter", "udp"), ("all-gather", "raw")],
        "other collectives",
    ),
)
def test_collectives_under_loss(collective, framing, kind):
    chosen = settings(
        collective=collective, framing=framing, workers=3, codec="exact", switch=kind, loss=0.03,
        duplicate=0.03, reorder=0.03, timeout=0.05, give_up=60.0,
    )  # fmt: skip
    result = allreduce.run(chosen)
    assert result.report.program == "collectives-64"
    assert result.report.exact is (None if collective == "barrier" else True)
    given = chosen.gradients()
    if collective in {"reduce-scatter", "reduce"}:
        truth = np.sum(np.array(given, np.float64), axis=0).astype(np.float32)
        np.testing.assert_array_equal(result.sum, truth)
    if collective == "broadcast":
        np.testing.assert_array_equal(result.sum, given[0])


@pytest.mark.parametrize("kind", EITHER_KIND)
def test_jumbo_frames(kind):
    # 1,024 values are 4,170 bytes: more than links carry that were not told.
    framing = "raw" if kind == "builtin" else "udp"
    chosen = settings(
        values_per_packet=1024,
        framing=framing,
        switch=kind,
        engine="interpret",
        size=5_000,
        window=4,
    )
    result = allreduce.run(chosen)
    total, _ = in_memory(chosen)
    np.testing.assert_array_equal(result.sum, total)
    assert result.report.exact


@pytest.mark.repeats("sums in Mininet, and trainings over processes")
@pytest.mark.parametrize(
    ("workers", "codec", "program", "kind"),
    tiered(
        [
            (2, "topk", "slots", "builtin"),
            (2, "topk", "slots", "bmv2"),
            *(
                (workers, codec, program, kind)
                for program in ("slots", "tree")
                for codec in ("dense", "lhc", "scalecom")
                for workers in (2, 4, 8)
                for kind in ("builtin", "bmv2")
            ),
        ],
        [(2, "topk", "slots", "builtin")],
        OF_EACH_KIND,
        marks_of,
    ),
)
def test_a_training_is_that_in_memory_bit_for_bit(workers, codec, program, kind, tmp_path):
    chosen = settings(
        workers=workers,
        codec=codec,
        program=program,
        seed=3,
        switch=kind,
        loss=0.01,
        timeout=0.05,
        give_up=60.0,
    )
    steps = 4
    small = TrainSettings(epochs=1, batch_size=IMAGES // workers // steps)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    trained = training.run(chosen, small, tmp_path, created=when).record.runs[1]
    in_process = small.model_copy(update={"workers": workers, "codecs": (codec,), "seed": 3})
    expected = comparison.run(in_process, tmp_path, created=when).record.runs[1]
    assert len(trained.steps) == steps
    assert [step.loss for step in trained.steps] == [step.loss for step in expected.steps]
    assert trained.steps[-1].score == expected.steps[-1].score
    for mine, theirs in zip(trained.steps, expected.steps, strict=True):
        assert (mine.selected, mine.union) == (theirs.selected, theirs.union)
    assert trained.exact_steps == steps
    assert trained.codec == expected.codec


@pytest.mark.repeats("what the settings of a training do in memory")
def test_a_training_leaves_the_test_set_alone_where_it_is_told_to(tmp_path):
    small = TrainSettings(epochs=1, batch_size=300, evaluate="validation", codecs=("exact",))
    when = datetime(2026, 1, 1, tzinfo=UTC)
    chosen = settings(codec="exact", seed=3)
    plain, trained = training.run(chosen, small, tmp_path, created=when).record.runs
    in_process = small.model_copy(update={"workers": 2, "seed": 3})
    expected = comparison.run(in_process, tmp_path, created=when).record.runs
    for mine, theirs in zip((plain, trained), expected, strict=True):
        assert [step.loss for step in mine.steps] == [step.loss for step in theirs.steps]
        assert mine.steps[-1].score == theirs.steps[-1].score


@pytest.mark.parametrize("kind", EITHER_KIND)
def test_a_capture_of_the_network_replays_to_the_same_outputs(kind, tmp_path):
    # simple_switch's captures do not tell the order of packets of different ports, which matters
    # where packets are sent again: none is, unless the machine has no time for a second.
    given = {"loss": 0.05, "timeout": 0.05} if kind == "builtin" else {"timeout": 1.0}
    chosen = settings(switch=kind, pcap=tmp_path, size=5000, **given)
    allreduce.run(chosen)
    plan = chosen.plan()
    rules = tmp_path / "rules"
    rules.write_text("\n".join(plan.switches[0].commands))
    call = [sys.executable, "-m", "innet", "switch", "replay", "slots-64"]
    call += ["--commands", str(rules), "--out", str(tmp_path / "again")]
    for port in (1, 2):
        path = str(tmp_path / f"s1-eth{port}_in.pcap")
        call += [path, "--port", f"{port}={path}"]
    replayed = fork_server.run(call, tmp_path, timeout=120)
    assert replayed.returncode == 0, replayed.stderr
    for port in (1, 2):
        seen, _ = read_by_scapy(tmp_path / f"s1-eth{port}_out.pcap")
        again, _ = read_by_scapy(tmp_path / "again" / f"p{port}_out.pcap")
        assert len(seen) > 30
        if kind == "bmv2":
            # Its captures do not say in which order packets of different ports were taken, and the
            # last of a chunk lends the result its IPv4 identification.
            seen, again = (sorted(data[IPV4_END:] for data in each) for each in (seen, again))
        assert seen == again


@pytest.mark.repeats("links with a rate in test_mininet_prediction.py")
def test_links_with_a_rate_limit_what_passes():
    chosen = settings(rate=10.0, size=30_000)
    result = allreduce.run(chosen)
    assert chosen.completed().window == 32
    assert result.report.exact
    bits = 8 * result.report.bytes_sent
    # A bucket of 15 kB is sent at once.
    assert result.report.seconds.network > 0.9 * (bits - 8 * 15_000) / 10e6


@pytest.mark.parametrize(
    "cycles", [2, pytest.param(100, marks=pytest.mark.repeats("the same with two networks"))]
)
def test_start_and_stop_leave_nothing(cycles):
    for _ in range(cycles):
        chosen = settings(workers=3, engine="interpret")
        with (
            temporary_folder() as folder,
            network(chosen.mininet_topo(chosen.plan(), folder)) as net,
        ):
            assert net.switches[0].command("mc_dump")
            assert len(children()) >= 4


@contextlib.contextmanager
def at_work(**chosen):
    """A network whose workers have begun an all-reduce that takes long."""

    chosen = settings(**{"size": 600_000, "window": 1, **chosen})
    plan = chosen.plan()
    with temporary_folder() as folder, network(chosen.mininet_topo(plan, folder)) as net:
        workers = WorkerPool(net, plan, chosen.of_worker(), folder)
        for worker, gradient in enumerate(chosen.gradients()):
            workers.write_gradient(worker, gradient)
        with workers:
            yield net, workers


def soon(action):
    timer = threading.Timer(0.3, action)
    timer.start()
    return timer


@pytest.mark.repeats("the same with simple_switch", but=["builtin"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_switch_that_dies_is_named(kind):
    with at_work(switch=kind) as (net, workers):
        soon(lambda: os.kill(net.switches[0].process.pid, signal.SIGKILL))
        with pytest.raises(NetworkError, match=r"switch s1 was ended by SIGKILL"):
            workers.all_reduce()


def test_a_worker_that_dies_is_named():
    with at_work() as (_, workers):
        soon(lambda: os.kill(workers.processes[1].pid, signal.SIGKILL))
        with pytest.raises(NetworkError, match=r"worker 1 on h2 was ended by SIGKILL"):
            workers.all_reduce()


@pytest.mark.repeats("a worker that stops, in test_mininet_cli.py")
def test_a_worker_that_stops_is_named_by_the_switches_registers():
    with at_work(give_up=1.0) as (_, workers):
        soon(lambda: os.kill(workers.processes[1].pid, signal.SIGSTOP))
        with pytest.raises(StalledError, match=r"waits for worker 1"):
            workers.all_reduce()


@pytest.mark.repeats("a host's interface in test_mininet_failures.py")
def test_an_interface_that_vanishes_is_named():
    with at_work() as (net, workers):
        inside = ["mnexec", "-a", str(net.switches[0].pid), "ip", "link", "del", "s1-eth2"]
        soon(lambda: subprocess.run(inside, check=True, timeout=10))
        with pytest.raises(NetworkError, match=r"interface (s1-eth2|went down)"):
            workers.all_reduce()


@pytest.mark.bmv2
@needs_simple_switch
def test_a_thrift_port_in_use_is_named():

    chosen = settings(switch="bmv2", thrift_port=9191)
    with temporary_folder() as folder, network(chosen.mininet_topo(chosen.plan(), folder)) as net:
        switch = net.switches[0]
        with network_namespace_of(switch.pid), socket.socket() as taken:
            switch.process.end()
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", 9191))
            taken.listen()
            with pytest.raises(NetworkError, match="port 9191 is in use"):
                switch.start([])


@pytest.mark.bmv2
@needs_simple_switch
def test_another_simple_switch_on_the_machine_is_not_in_the_way(tmp_path):
    """Which has the notifications address that simple_switch takes by default."""
    topo = Topo()
    forward = Path(__file__).parents[2] / "p4" / "examples" / "forward.json"
    topo.addSwitch("s1", cls=Bmv2Switch, program=forward, folder=tmp_path, device_id=54321)
    address = Path("/tmp/bmv2-54321-notifications.ipc")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as other:
        other.bind(str(address))
        try:
            other.listen()
            with network(topo) as net:
                assert net.switches[0].command("show_ports") is not None
        finally:
            address.unlink()


def test_a_program_that_is_none_is_named(tmp_path):

    wrong = tmp_path / "wrong.json"
    for text, why in (
        ("{}", "no compiled P4 program: .*pipelines"),
        ("not JSON", "no JSON"),
        ('{"__meta__": {"version": [2, 23]}}', "expected a member"),
    ):
        wrong.write_text(text)
        topo = Topo()
        topo.addSwitch("s1", cls=BuiltinSwitch, program=wrong, folder=tmp_path)
        topo.addHost("h1")
        topo.addLink("h1", "s1")
        named = rf"switch s1: .*wrong\.json: .*{why}.*innet p4 compile"
        with pytest.raises(ProgramError, match=named), network(topo):
            pass
    topo = Topo()
    topo.addSwitch("s1", cls=BuiltinSwitch, program=tmp_path / "none.json", folder=tmp_path)
    with pytest.raises(InputError, match=r"no program .*none\.json"), network(topo):
        pass


def command(*arguments):
    return [sys.executable, "-m", "innet", "net", "--workers", "2", *arguments]


def test_the_command_prints_the_report_and_writes_the_sum(tmp_path):
    call = command("--size", "3000", "--json", "--output", str(tmp_path / "sum"), "--cli")
    lines = "nodes\nswitch s1 register_read SlotsIngress.pool.count 0\nswitch s9 x\nexit\n"
    result = fork_server.run(call, tmp_path, lines, timeout=120)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout[: result.stdout.index("\n}") + 2])
    assert report["exact"] is True
    assert report["transport"] == "Mininet, udp"
    assert "SlotsIngress.pool.count[0]= 2" in result.stdout
    assert "switches are s1" in result.stdout
    total, _ = innet.all_reduce(settings(size=3000, seed=0).gradients())
    np.testing.assert_array_equal(np.load(tmp_path / "sum"), total)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.repeats("the same with SIGINT")),
        pytest.param(signal.SIGKILL, marks=pytest.mark.repeats("the same with SIGINT")),
    ],
)
def test_an_interrupted_run_leaves_nothing(number):
    process = subprocess.Popen(
        command("--size", "3000000", "--window", "1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - no thread is started before it
    )
    end = time.monotonic() + 60
    while len(children(process.pid)) < 6 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.3)
    assert process.poll() is None
    started = children(process.pid)
    process.send_signal(number)
    status = process.wait(60)
    assert status == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[number]
    end = time.monotonic() + 30
    while (left := [each for each in started if Path(f"/proc/{each}").exists()]) and (
        time.monotonic() < end
    ):
        time.sleep(0.05)
    assert not left
    with (
        temporary_folder()
    ):  # removes the folder of a run that was killed, which could not do so itself
        assert not list(Path(tempfile.gettempdir()).glob(f"innet-net-{process.pid}-*"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topology", "ring"], "unknown topology 'ring'"),
        (["--window", "3"], "choose a power of two"),
        (["--program", "nothing"], "unknown program 'nothing'"),
        (["--switch", "bmv2", "--simple-switch", "/no/such"], "/no/such is not installed"),
    ],
)
def test_errors_are_told_in_one_message(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["innet", "net", *arguments])
    failed = "not installed" in words or "unknown command" in words
    assert app.run() == (1 if failed else 2)
    said = capsys.readouterr().err
    assert words in said.replace("\n", " ")
    assert "Traceback" not in said


def test_root_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["innet", "net"])
    assert app.run() == 2
    assert "needs root: run the command with sudo" in capsys.readouterr().err.replace("\n", " ")
