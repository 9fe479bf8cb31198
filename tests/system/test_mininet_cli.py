"""Looking into running switches: the words of the command line, on both kinds of switch."""

from __future__ import annotations

import os
import signal
import sys

import pytest
from support import fork_server
from support.mininet import EITHER_KIND, KINDS, missing, needs_mininet

from innet.core.errors import ControlError, InputError, StalledError, UnknownNameError

if not missing():
    from innet.mininet import inspect
    from innet.mininet.cli import show
    from innet.mininet.debian import Topo
    from innet.mininet.network import network, temporary_folder
    from innet.mininet.settings import NetSettings
    from innet.mininet.worker_pool import WorkerPool

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]


def run_cli(arguments, lines, folder):
    command = [sys.executable, "-m", "innet", "net", "--cli", *arguments]
    return fork_server.run(command, folder, "\n".join([*lines, "exit", ""]), timeout=120)


@pytest.mark.repeats("what is shown of a switch where a worker stops, by a command")
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_shows_what_switches_hold(kind, tmp_path):
    # 300 values of 64 a packet: after the handshake's chunk, five of them in four slots.
    arguments = ["--topology", "tree", "--workers", "2", "--size", "300", "--window", "4"]
    lines = [
        "innet slots s1",
        "innet registers s1",
        "innet registers s1 bitmap",
        "innet registers s1 bitmap 1",
        "innet tables s2",
        "innet tables s2 position",
        "innet counters s2",
        "innet who-waits",
        "innet",
    ]
    result = run_cli([*arguments, "--switch", kind], lines, tmp_path)
    assert result.returncode == 0, result.stderr
    said = [" ".join(line.split()) for line in result.stdout.splitlines()]
    text = "\n".join(said)
    assert "1 0 1 5 0, 1" in said  # job, slot, version, chunk, who is in
    assert "TreeIngress.pool.bitmap 2048 32 6" in said
    assert "innet> TreeIngress.pool.bitmap of s1" in said
    assert said.count("1 3 0x3") == 2
    assert any(
        line.startswith("TreeIngress.admission.position hdr.innet.job (exact)") for line in said
    )
    assert any(
        line.startswith("0 0x1 0x0 TreeIngress.admission.set_inner 0x1 0x1 0x0 0x3")
        for line in said
    )
    assert "default: TreeIngress.admission.drop_not_admitted" in said
    assert "innet> Counters of s2\nname index packets bytes\ninnet>" in text  # nothing was refused
    assert "no slot waits for a worker" in said
    assert "innet who-waits slots of any switch in which somebody is missing" in said


@pytest.mark.repeats("a worker that dies")
@pytest.mark.parametrize("kind", EITHER_KIND)
def test_a_worker_that_stops_is_who_is_waited_for(kind):
    settings = NetSettings(
        workers=3, size=600_000, window=2, switch=kind, give_up=3.0, timeout=0.1, seed=1
    )
    with temporary_folder() as folder:
        topo = settings.mininet_topo(settings.shared_plan(), folder)
        with network(topo) as net:
            workers = WorkerPool(net, settings.plan(), settings.of_worker(), folder)
            for worker, gradient in enumerate(settings.gradients()):
                workers.write_gradient(worker, gradient)
            with workers:
                workers.begin()
                os.kill(workers.processes[1].pid, signal.SIGSTOP)
                with pytest.raises(StalledError, match="waits for worker 1"):
                    workers.finish()
            table = show(net, ["who-waits"])
            assert next(iter(table.columns[-1].cells)) == "1"
            assert next(iter(table.columns[-2].cells)) == "0, 2"
            assert table.row_count <= 4
            assert "0, 2" in cells(show(net, ["slots", "s1"]))
            assert "SlotsIngress.pool.chunk" in cells(show(net, ["registers", "s1"]))
            assert "00000005" in cells(show(net, ["registers", "s1", "worker_bitmap"]))
            assert "SlotsIngress.admission.admission" in cells(show(net, ["tables", "s1"]))
            refused(net)
            inject(net)
            assert counted(show(net, ["counters", "s1"]))


def inject(net):
    """One frame that is nobody's."""
    code = "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); "
    code += 's.bind(("h1-eth0", 0)); s.send(bytes(60))'
    net.hosts[0].cmd(f"{sys.executable} -c '{code}'; sleep 0.3")


def cells(table):
    return " ".join(cell for column in table.columns for cell in column.cells)


def counted(table):
    rows = zip(*(column.cells for column in table.columns), strict=True)
    return [row for row in rows if row[0].endswith("dropped") and row[2] != "0"]


def refused(net):
    """What cannot be shown, each for its reason."""
    for words in ([], ["slots"], ["slots", "s1", "x"], ["nothing", "s1"]):
        with pytest.raises(ControlError, match="usage"):
            show(net, words)
    with pytest.raises(UnknownNameError, match="unknown switch 's9'"):
        show(net, ["slots", "s9"])
    for words, said in (
        (["registers", "s1", "nowhere"], "unknown register 'nowhere'"),
        (["registers", "s1", "worker_bitmap", "x"], "'x' is no index"),
        (["registers", "s1", "worker_bitmap", "2048"], "index 2048 is not in"),
        (["tables", "s1", "nowhere"], "unknown table 'nowhere'"),
    ):
        with pytest.raises(ControlError, match=said):
            show(net, words)


def test_after_a_failure_the_command_line_is_open_and_the_status_is_1(tmp_path):
    arguments = ["--workers", "2", "--size", "100", "--loss", "1", "--give-up", "0.3"]
    result = run_cli(arguments, ["innet who-waits", "innet 'slots"], tmp_path)
    assert result.returncode == 1
    assert "no slot waits for a worker" in result.stdout  # since nobody reached it
    assert "error: No closing quotation" in result.stdout
    assert result.stderr.count("error:") == 1
    assert "Traceback" not in result.stderr


def test_a_network_without_a_job_says_so():
    with pytest.raises(InputError, match="no job of innet's"):
        inspect.shared_plan(Topo())
