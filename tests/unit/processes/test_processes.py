"""The programs of workers/: their command lines, and workers that sit at a switch service."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.service import SECONDS, serving, together, where

import innet
from innet.core.errors import ConfigError, InputError, MembershipError, StalledError
from innet.core.settings import TrainSettings, load_toml
from innet.experiments import comparison
from innet.processes import allreduce, training
from innet.processes.allreduce import take_turn
from innet.processes.commandline import parser_of, settings_from
from innet.processes.settings import WorkerSettings
from innet.processes.training import TrainingWorkerSettings
from innet.scenarios import allreduce as experiment
from innet.service import join

PROGRAMS = {
    "allreduce": ("service_job = innet", "HOST:PORT of a switch service"),
    "training": ("learning_rate (required)", "a registered model's name"),
    "parameter_server": ("workers = 4", "for programs that have one: hashed"),
    "switch": ("--interface", "JSON from p4c"),
}


@pytest.fixture(scope="module")
def service():
    with serving(key="k") as running:
        yield running


@pytest.fixture
def at(service, tmp_path):
    (tmp_path / "key").write_text("k")
    return {"service": where(service), "key_file": tmp_path / "key", "workers": 2, "give_up": 20.0}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_explain_themselves(name, capsys):
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(f"workers.{name}").main(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert {"switch": "innet simple-switch"}.get(name, f"python -m innet.processes.{name}") in said
    assert all(text in said for text in PROGRAMS[name])
    assert "``" not in said  # docstrings are shown as texts


@pytest.mark.parametrize("name", ["allreduce", "training", "parameter_server"])
def test_settings_are_needed(name, capsys):
    with pytest.raises(SystemExit) as stop:
        importlib.import_module(f"workers.{name}").main([])
    assert stop.value.code == 2
    assert "--help lists them" in capsys.readouterr().err


def settings(arguments):
    parser = parser_of("allreduce", "", WorkerSettings, "")
    return settings_from(parser.parse_args(arguments), WorkerSettings)


def test_options_win_over_the_file(tmp_path):
    for name, text in (
        ("a.toml", 'worker = 1\ncodec = "lhc"\n'),
        ("a.json", json.dumps({"worker": 1, "codec": "lhc"})),
    ):
        (tmp_path / name).write_text(text)
        found = settings([str(tmp_path / name), "--set", "codec=topk", "-s", "rounds = 3"])
        assert (found.worker, found.codec, found.rounds) == (1, "topk", 3)
    parts = settings(["--set", "worker=0", "--set", 'codec={carrier="lhc"}'])
    assert parts.codec == {"carrier": "lhc"}


@pytest.mark.parametrize("word", ["worker", "worker=x", "nobody=1", "worker=-1", "worker=[[["])
def test_options_that_cannot_be_used(word):
    with pytest.raises(ConfigError):
        settings(["--set", word])


def test_a_worker_that_the_job_does_not_have(tmp_path):
    path = tmp_path / "worker.toml"
    path.write_text("worker = 4\n")
    with pytest.raises(ConfigError, match=r"worker = 4 .* the job has 4 workers, from 0 to 3"):
        load_toml(path, WorkerSettings)
    path.write_text("worker = 4\nworkers = 5\n")
    assert load_toml(path, WorkerSettings).worker == 4


LEARNING = {"iterations": 2, "batch_size": 8, "learning_rate": 0.1, "momentum": 0.9}


def test_a_file_that_cannot_be_written_is_refused_before_the_work(at, tmp_path):
    where = tmp_path / "absent" / "x.npy"
    for work in (
        lambda: allreduce.run(WorkerSettings(worker=0, output=where, **at)),
        lambda: allreduce.run(WorkerSettings(worker=0, outcome=where, **at)),
        lambda: training.run(TrainingWorkerSettings(worker=0, outcome=where, **LEARNING, **at)),
    ):
        with pytest.raises(InputError, match=r"cannot write .*absent/x\.npy: No such file"):
            next(work())


@pytest.mark.parametrize("name", ["input", "size", "density", "rounds", "output"])
def test_a_worker_of_a_training_knows_no_settings_of_all_reduces(name, capsys):
    with pytest.raises(SystemExit):
        training.main(["--help"])
    assert f"  {name} = " not in capsys.readouterr().out
    assert training.main(["--set", f"{name}=1"]) == 1
    assert f"{name}" in capsys.readouterr().err


def test_a_sum_goes_to_just_the_path_that_was_named(at, tmp_path):
    options = WorkerSettings(worker=0, size=10, output=tmp_path / "sum", **at | {"workers": 1})
    list(allreduce.run(options))
    assert len(np.load(tmp_path / "sum")) == 10


SPEAKER = """
import sys
import time
from functools import partial
from innet.processes.allreduce import main_of
from innet.processes.settings import WorkerSettings

def speak(settings, wait):
    yield from ({"report": number} for number in range(3))

sys.exit(main_of("allreduce", "", WorkerSettings, speak, ["--set", "worker=0"]))
"""


@pytest.mark.repeats("the same of the command line, in test_cli.py")
def test_output_that_cannot_be_written_or_that_nobody_reads():
    command = [sys.executable, "-c", SPEAKER]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "error: cannot write the output: the disk is full.\n"
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as closed:
        run = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


def test_workers_of_a_service(service, at, tmp_path):
    rng = np.random.default_rng(0)
    gradients = experiment.generate(2, 3000, 0.1, rng)
    expected, in_memory = innet.all_reduce(gradients, codec="lhc", values_per_packet=32, seed=0)

    def work(worker):
        output = tmp_path / f"{worker}.npy"
        options = WorkerSettings(
            worker=worker, codec="lhc", size=3000, density=0.1, output=output, **at
        )
        (line,) = allreduce.run(options)
        return np.load(output), line["report"]

    for total, report in together([lambda w=worker: work(w) for worker in range(2)]):
        np.testing.assert_array_equal(total, expected)
        assert report["program"] == "slots-32"
        assert report["rounds"] == in_memory.rounds


def test_a_worker_of_a_service_goes_on_without_one_that_is_late(at):
    gradients = experiment.generate(1, 500, 1.0, np.random.default_rng(0))
    expected, _ = innet.all_reduce(gradients, values_per_packet=32)

    def work():
        options = WorkerSettings(worker=0, size=500, output=at["key_file"].with_name("sum.npy"),
                                 partial_after=0.3, **at)  # fmt: skip
        return list(allreduce.run(options))

    def be_late():
        with join(at["service"], job="innet", worker=1, workers=2, key="k") as late:
            while not late._departures:
                late.transport.wait(late.transport.now(), late.transport.now() + 0.1)

    (line,), _ = together([work, be_late])
    assert line["report"]["details"]["without"] == [1]
    np.testing.assert_array_equal(np.load(at["key_file"].with_name("sum.npy")), expected)


def test_a_training_worker_of_a_service(at):
    own = {"framework": "numpy", "codec": "topk", **LEARNING, **at, "workers": 1}
    lines = list(training.run(TrainingWorkerSettings(worker=0, **own)))
    assert len(lines) == 2
    assert all(np.isfinite(line["loss"]) for line in lines)


def test_a_training_worker_leaves_the_test_set_alone_where_it_is_told_to(at, tmp_path):
    same = {"framework": "numpy", "batch_size": 400, "evaluate": "validation", "workers": 1}
    chosen = TrainSettings(
        codecs=("exact",), epochs=1, learning_rate=0.1, momentum=0.9, values_per_packet=32, **same
    )
    created = datetime(2026, 1, 1, tzinfo=UTC)
    expected = comparison.run(chosen, tmp_path, created=created).record.runs[1].steps
    steps = LEARNING | {"iterations": len(expected)}
    worker = TrainingWorkerSettings(worker=0, codec="exact", **at | steps | same)
    lines = list(training.run(worker))
    assert [line["loss"] for line in lines] == [step.loss for step in expected]
    assert lines[-1]["score"] == expected[-1].score


def test_a_worker_that_comes_for_another_sum_is_told_at_once(service, at):
    session = partial(join, at["service"], job="innet", workers=2, key="k", deadline=SECONDS)

    def first():
        session(worker=0, config="all-reduces of 20 elements").leave()

    def second():
        while not service.ask(service.statistics, SECONDS)["jobs"]:
            time.sleep(0.01)
        match = "one of all-reduces of 20 elements; worker 1 comes with all-reduces of 30 elements"
        with pytest.raises(InputError, match=match):
            list(allreduce.run(WorkerSettings(worker=1, size=30, **at)))
        session(worker=1).leave()  # and the first need not wait on

    together([first, second])


def test_a_worker_of_a_service_that_is_alone(at):
    options = WorkerSettings(worker=0, **at | {"give_up": 0.3})
    with pytest.raises(StalledError, match="waited for worker 1 of job 'innet'"):
        list(allreduce.run(options))
    with pytest.raises(InputError, match="pass the key"):
        list(allreduce.run(WorkerSettings(worker=0, **at | {"key_file": None})))


@pytest.mark.parametrize(
    ("name", "value"), [("topology", "nope"), ("racks", 2), ("depth", 2), ("ports", 4)]
)
def test_a_network_beside_a_service_is_refused(at, name, value):
    options = WorkerSettings(worker=0, **at, **{name: value})
    with pytest.raises(InputError, match=f"{name} is {value!r}, and service .* Leave {name} or"):
        list(allreduce.run(options))


class Worker:
    """Whose collective stalls."""

    def __init__(self, error):
        self.error = error

    def stall(self):
        raise self.error

    def diagnose(self, read):
        return f"waits for {read('s1', 'bitmap', 0)}"


def test_a_stall_is_explained_where_registers_can_be_read():
    stalled = Worker(StalledError("nothing came"))
    with pytest.raises(StalledError, match="nothing came"):
        take_turn(stalled, stalled.stall, wait=False)
    with pytest.raises(StalledError, match="waits for 7"):
        take_turn(stalled, stalled.stall, wait=False, read=lambda *_: 7)
    gone = Worker(MembershipError("gone"))
    with pytest.raises(MembershipError, match="gone"):
        take_turn(gone, gone.stall, wait=False, read=lambda *_: 7)
