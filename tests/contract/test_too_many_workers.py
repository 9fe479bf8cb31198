"""More workers than a program takes: one message in every layer, before anything has started."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import innet
from innet import programs
from innet.cli.app import app
from innet.core.errors import InputError
from innet.core.settings import (
    MAX_WORKERS,
    AllReduceSettings,
    MininetSettings,
    ServiceSettings,
    TrainSettings,
    load_toml,
    validate,
)
from innet.processes.settings import WorkerSettings
from innet.protocol import Membership
from innet.protocol.admission import Job, Member
from innet.service import join
from innet.service.slot_partition import SlotPartitions, plan_of
from innet.topology import AGGREGATIONS, Request, make_plan
from innet.wire import Endpoint

MANY = MAX_WORKERS + 1
MESSAGE = (
    rf"takes 1 to {MAX_WORKERS}, as a packet names each worker by one of {MAX_WORKERS} bits\. The "
    rf"program for larger jobs is tree; with the packets of this version it takes 1 to "
    rf"{MAX_WORKERS}, too\."
)
refused = pytest.raises(InputError, match=MESSAGE)


@pytest.mark.parametrize("program", list(AGGREGATIONS))
@pytest.mark.parametrize("workers", [MANY, 1024, 32768, 10**9])
def test_a_collective(program, workers):
    with pytest.raises(InputError, match=rf"{workers} workers; {program}-64 {MESSAGE}"):
        innet.Collective(workers=workers, program=program)


@pytest.mark.parametrize("topology", ["tree", "leaf-spine", "fat-tree:ports=8", "dumbbell"])
def test_a_plan_on_a_topology(topology):
    with pytest.raises(InputError, match=rf"{MANY} workers; tree-32 {MESSAGE}"):
        make_plan("tree", 32, Request(workers=MANY, topology=topology))


def test_gradients_of_too_many():
    with refused:
        innet.all_reduce([np.zeros(4, np.float32)] * MANY)


@pytest.mark.parametrize(
    ("model", "others"),
    [
        (AllReduceSettings, {}),
        (MininetSettings, {}),
        (TrainSettings, {}),
        (WorkerSettings, {"worker": 0}),
    ],
)
def test_settings(model, others, tmp_path):
    with refused:
        validate(model, {"workers": MANY, **others})
    file = tmp_path / "settings.toml"
    file.write_text("".join(f"{key} = {it}\n" for key, it in {"workers": MANY, **others}.items()))
    with pytest.raises(InputError, match=rf"settings\.toml: .*workers = {MANY} .*{MESSAGE}"):
        load_toml(file, model)


def test_a_service():
    with refused:
        validate(ServiceSettings, {"workers_max": MANY})
    with refused:
        SlotPartitions.divide(programs.find("slots", 32), 1, MANY)
    with refused:  # nobody listens there, and nobody is asked
        join("127.0.0.1:1", job="mine", worker=0, workers=MANY)


def test_the_protocol():
    with refused:
        Membership(worker=0, workers=MANY)
    with refused:
        Job([Member(1 + each, Endpoint.of_worker(each)) for each in range(MANY)])


def test_a_service_that_describes_more_is_not_believed():
    described = {
        "program": "slots", "values": 32, "job": 1, "epoch": 0, "workers": MANY, "absent": [],
        "slot_base": 0, "slots": 16, "group": 1, "port": 1,
    }  # fmt: skip
    with pytest.raises(innet.core.errors.NetworkError, match=MESSAGE):
        plan_of(described)


@pytest.mark.parametrize(
    "command",
    [
        "allreduce --workers {}",
        "allreduce --workers {} --program harvest",
        "net --workers {}",
        "train --workers {}",
        "demo --workers {}",
        "experiment throughput --workers {}",
        "switch serve --workers-max {}",
    ],
)
def test_commands(command):
    words = command.format(MANY).split()
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, InputError)
    assert re.search(MESSAGE, str(result.exception))


def test_the_exit_status():
    command = [sys.executable, "-m", "innet", "allreduce", "--workers", str(MANY)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.search(rf"^error: workers = {MANY} .*{MESSAGE}$", result.stderr.strip())
