"""What people meet when something is missing, wrong or dies: a message, status 1, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.mininet import EITHER_KIND, KINDS, children, missing, needs_mininet

import innet
from innet.cli import app
from innet.core.errors import NetworkError, StalledError

if not missing():
    from innet.mininet import allreduce, inspect
    from innet.mininet.cli import show
    from innet.mininet.network import network, temporary_folder
    from innet.mininet.settings import NetSettings
    from innet.mininet.worker_pool import WorkerPool

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]

LONG = ["--size", "600000", "--window", "1"]


def words_of(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        return []


def running(parent, word, deadline=60.0):
    """The first process below ``parent`` with ``word`` among its arguments, once there is one."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        for each in sorted(children(parent)):
            if any(word in argument for argument in words_of(each)[1:]):
                return each
        time.sleep(0.02)
    raise AssertionError(f"no process with {word} within {deadline} s")


@pytest.mark.repeats(
    "workers and switches that die, named in test_mininet.py and test_mininet_cli.py"
)
@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("worker1.json", "worker 1 on h2 was ended by SIGKILL"),
        ("@s1-eth1", "switch s1 was ended by SIGKILL"),
    ],
)
def test_a_death_is_told_and_everything_taken_down(word, said):
    call = [sys.executable, "-m", "innet", "net", "--workers", "2", *LONG]
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    running(process.pid, "worker1.json")
    os.kill(running(process.pid, word), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said in errors.replace("\n", " ")
    assert "Traceback" not in errors


@pytest.mark.parametrize("kind", EITHER_KIND)
def test_a_host_whose_interface_vanishes_is_named(kind):
    settings = NetSettings(
        workers=2, size=600_000, window=1, seed=5, switch=kind, give_up=2.0, timeout=0.05
    )
    with temporary_folder() as folder:
        topo = settings.mininet_topo(settings.shared_plan(), folder)
        with network(topo) as net:
            workers = WorkerPool(net, settings.plan(), settings.of_worker(), folder)
            for worker, gradient in enumerate(settings.gradients()):
                workers.write_gradient(worker, gradient)
            inside = ["mnexec", "-a", str(net.hosts[1].pid), "ip", "link", "set", "h2-eth0", "down"]
            with workers:
                soon = threading.Timer(0.3, lambda: subprocess.run(inside, check=True, timeout=10))
                soon.start()
                with pytest.raises((NetworkError, StalledError)) as caught:
                    workers.all_reduce()
    assert "worker 1" in str(caught.value)


@pytest.mark.repeats("a worker that dies, with two jobs")
def test_a_worker_of_one_job_that_dies_ends_both(monkeypatch):
    settings = NetSettings(
        workers=2, size=100_000, window=1, program="tree", topology="dumbbell", jobs=2
    )
    begin = WorkerPool.begin

    def begin_and_kill(workers):
        begin(workers)
        if workers.outcome(0).parent.name == "job2":
            os.kill(workers.processes[0].pid, signal.SIGKILL)

    monkeypatch.setattr(WorkerPool, "begin", begin_and_kill)
    with pytest.raises(NetworkError, match="worker 0 on h3 was ended by SIGKILL"):
        allreduce.run_jobs(settings)


def without(monkeypatch, late, number, **chosen):
    """All-reduces, in the first of which some workers get a signal."""
    settings = NetSettings(
        **{"workers": 3, "seed": 5, "size": 60_000, "window": 16, "rounds": 2, **chosen},
        partial_after=2.0,  # the others may have to wait for a processor
        give_up=20.0,
    )
    begin = WorkerPool.begin
    rounds = []

    def begin_and_stop(workers):
        begin(workers)
        if not rounds:
            for worker in late:
                os.kill(workers.processes[worker].pid, number)
        rounds.append(workers.present)

    monkeypatch.setattr(WorkerPool, "begin", begin_and_stop)
    seen = []

    def look(net, results):
        (plan,) = inspect.shared_plan(net.topo).jobs
        seen.append((plan.job.absent, show(net, ["who-waits"]).caption))

    (result,) = allreduce.run_jobs(settings, inspect=look)
    others = [worker for worker in range(settings.workers) if worker not in late]
    assert seen == [(set(late), "no slot waits for a worker")]
    assert rounds == [tuple(range(settings.workers)), tuple(others)]
    given = settings.gradients()
    gradients = [given[worker] for worker in others]
    expected, in_memory = innet.all_reduce(gradients, codec=settings.codec, seed=5)
    np.testing.assert_array_equal(result.sum, expected)
    first, second = result.reports
    assert first.details["without"] == [*late]
    assert "without" not in second.details
    for report in (first, second):
        assert report.exact
        assert report.workers == len(others)
        assert report.max_abs_error == in_memory.max_abs_error
    return result.departed


@pytest.mark.parametrize("kind", EITHER_KIND)
def test_the_others_go_on_without_a_worker_that_is_late(monkeypatch, kind):
    left = without(monkeypatch, [1], signal.SIGSTOP, switch=kind)
    assert left == {1: "worker 1 on h2 was late by 2 s or more."}


@pytest.mark.repeats("workers that are late, with one switch and in test_networks_partial.py")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("late", [[1], [2, 3]], ids=["a worker", "a rack"])
def test_switches_of_a_tree_name_who_is_late_in_other_racks(monkeypatch, late, kind):
    chosen = {"workers": 6, "racks": 3, "size": 20_000, "program": "tree", "switch": kind}
    left = without(monkeypatch, late, signal.SIGSTOP, **chosen)
    assert left == {each: f"worker {each} on h{each + 1} was late by 2 s or more." for each in late}


@pytest.mark.repeats("workers that are late, by workers that died")
@pytest.mark.parametrize("kind", EITHER_KIND)
@pytest.mark.parametrize("program", ["tree", "hashed", "harvest"])
def test_the_others_go_on_without_a_worker_that_died(monkeypatch, program, kind):
    chosen = {"program": program, "switch": kind, "codec": "lhc", "framing": "raw"}
    left = without(monkeypatch, [1], signal.SIGKILL, **chosen)
    assert "worker 1 on h2 was ended by SIGKILL" in left[1]


def test_a_sum_is_not_called_right_if_somebody_died_before_saying_what_it_had_sent(tmp_path):
    gradients = NetSettings(workers=2, size=100).gradients()
    _, report = innet.all_reduce(gradients, verify=False)
    workers = SimpleNamespace(
        contributors=(0, 1), outcome=lambda worker: tmp_path / f"{worker}.npz"
    )
    (tmp_path / "0.npz").touch()
    found = allreduce.combined(gradients, workers, [report], 7)
    assert found.exact is None
    assert found.max_abs_error is None
    assert found.switch_packets == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--partial-after", "40"], "partial_after is 40.0 s, but after 30.0 s"),
        (["train", "--partial-after", "1"], "leave --partial-after out"),
        (["--pcap", "{file}"], "cannot make the folder"),
        (["train", "--pcap", "{file}"], "cannot make the folder"),
        (["program", "{forward}", "--pcap", "{file}"], "cannot make the folder"),
        (["--input", "{file}"], "{file}"),
        (["program", "{file}"], "{file}"),
        (["--config", "{file}"], "{file}"),
        (["--output", "/no/such/folder/x.npy"], "/no/such/folder"),
        (["--framing", "token-ring"], "framing"),
        (["--rate", "0"], "rate"),
        (["--switch", "tofino"], "switch"),
        (["--topology", "tree", "--ports", "4"], "ports is 4, which a tree does not take"),
    ],
)
def test_errors_are_told_in_one_message(arguments, words, monkeypatch, capsys, tmp_path):
    file = tmp_path / "file"
    file.write_text("{ nothing of use")
    forward = Path(__file__).parents[2] / "p4/examples/forward.json"
    names = {"file": file, "forward": forward}
    given = [each.format(**names) for each in arguments]
    monkeypatch.setattr(sys, "argv", ["innet", "net", *given])
    assert app.run() == (1 if arguments == ["program", "{file}"] or "--output" in arguments else 2)
    said = capsys.readouterr().err.replace("\n", " ")
    assert words.format(**names) in said
    assert "Traceback" not in said


def test_a_machine_without_mininet_is_told_how_to_get_it():
    code = (
        "import sys; sys.modules['mininet'] = None; sys.argv = ['innet', 'net']; "
        "from innet.cli import app; sys.exit(app.run())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 1
    assert "Mininet is not installed" in result.stderr
    assert "sudo apt install mininet" in result.stderr
    assert "Traceback" not in result.stderr
