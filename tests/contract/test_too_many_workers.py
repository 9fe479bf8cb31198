"""More workers than a program takes: one message in every layer, before anything has started."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import innet
from innet import programs
from innet.cli.app import app
from innet.core.errors import InputError
from innet.core.settings import (
    BITMAP_BITS,
    MAX_WORKERS,
    AllReduceSettings,
    MininetSettings,
    ServiceSettings,
    TrainSettings,
    load_toml,
    validate,
)
from innet.processes.settings import WorkerSettings
from innet.protocol import JobMembership
from innet.protocol.admission import Job, WorkerPort
from innet.service import join
from innet.service.slot_partition import SlotPartitions, plan_of
from innet.topology import AGGREGATIONS, Request, make_plan
from innet.wire import Endpoint

MANY = BITMAP_BITS + 1  # for all programs but trees
TOO_MANY = MAX_WORKERS + 1  # for tree, and any job
MESSAGE = (
    r"takes 1 to 32, as a packet names each worker by one of 32 bits\. The program for larger jobs "
    r"is tree, which takes 1 to 32768\."
)
MOST = r"a job takes 1 to 32768\."
refused = pytest.raises(InputError, match=MESSAGE)
refused_anywhere = pytest.raises(InputError, match=MOST)


@pytest.mark.parametrize(
    "program", sorted(set(AGGREGATIONS) - {"tree", "collectives-tree", "adaptive-tree"})
)
@pytest.mark.parametrize("workers", [MANY, 1024, TOO_MANY, 10**9])
def test_a_collective(program, workers):
    message = MESSAGE
    if program == "collectives":  # larger jobs get one that does the same
        message = message.replace("is tree,", "is collectives-tree,")
    with pytest.raises(InputError, match=rf"{workers} workers; {program}-64 {message}"):
        innet.Collective(workers=workers, program=program)


@pytest.mark.parametrize("program", ["tree", "collectives-tree", "adaptive-tree"])
@pytest.mark.parametrize("workers", [TOO_MANY, 10**9])
def test_a_tree(program, workers):
    with pytest.raises(InputError, match=rf"^{workers} workers; {program}-64 takes 1 to 32768\.$"):
        innet.Collective(workers=workers, program=program)


@pytest.mark.parametrize("topology", ["tree", "leaf-spine", "fat-tree:ports=8", "dumbbell"])
def test_a_plan_on_a_topology(topology):
    with pytest.raises(InputError, match=rf"{TOO_MANY} workers; tree-32 takes 1 to 32768\."):
        make_plan("tree", 32, Request(workers=TOO_MANY, topology=topology))


@pytest.mark.parametrize(
    ("request_", "switch", "number"),
    [
        (Request(workers=MANY, topology="star"), "s1", MANY),
        (Request(workers=64, topology="dumbbell"), "s1", 33),  # the other half is a child, too
        (Request(workers=MANY, racks=1), "s2", MANY),
        (Request(workers=40, racks=MANY, depth=2), "s1", MANY),
        (Request(workers=1025, topology="leaf-spine"), "spine1", 33),
        (Request(workers=1024, racks=2, topology="leaf-spine"), "leaf1", 512),
        (Request(workers=1025, depth=2), "s1", 33),
    ],
)
def test_a_switch_of_a_tree(request_, switch, number):
    message = (
        f"{number} workers and switches directly below {switch}; a switch takes 32, as a packet "
        "names each by one of 32 bits. Choose more racks or more levels, as the topology tree has "
        "by default, or a shape of your own with more switches."
    )
    with pytest.raises(InputError, match=re.escape(message)):
        make_plan("tree", 32, request_)


@pytest.mark.parametrize("chosen", [{"program": "slots"}, {"topology": "star"}])
def test_gradients_of_too_many(chosen):
    with refused:
        innet.all_reduce([np.zeros(4, np.float32)] * MANY, **chosen)
    assert innet.all_reduce([np.ones(4, np.float32)] * MANY)[0].tolist() == [MANY] * 4


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
    with refused_anywhere:
        validate(model, {"workers": TOO_MANY, **others})
    assert validate(model, {"workers": MAX_WORKERS, **others}).workers == MAX_WORKERS
    file = tmp_path / "settings.toml"
    told = {"workers": TOO_MANY, **others}
    file.write_text("".join(f"{key} = {it}\n" for key, it in told.items()))
    with pytest.raises(InputError, match=rf"settings\.toml: .*workers = {TOO_MANY} .*{MOST}"):
        load_toml(file, model)


def test_a_service():
    with refused_anywhere:
        validate(ServiceSettings, {"workers_max": TOO_MANY})
    with refused:
        SlotPartitions.divide(programs.find("slots", 32), 1, MANY)
    with refused_anywhere:  # nobody listens there, and nobody is asked
        join("127.0.0.1:1", job="mine", worker=0, workers=TOO_MANY)


def test_the_protocol():
    with refused:
        JobMembership(worker=0, workers=MANY)
    assert JobMembership(worker=0, workers=MANY, bit=0).workers == MANY  # in a tree
    with refused_anywhere:
        JobMembership(worker=0, workers=TOO_MANY, bit=0)
    members = [
        WorkerPort(1 + each % 32, Endpoint.of_worker(each), str(each // 32))
        for each in range(TOO_MANY)
    ]
    with refused:
        Job(members[:MANY])
    in_a_tree = [replace(each, bit=0) for each in members]
    assert len(Job(in_a_tree[:MANY]).present) == MANY
    with refused:
        Job([*in_a_tree[: MANY - 1], members[MANY - 1]])
    with refused_anywhere:
        Job(in_a_tree)


def test_a_service_that_describes_more_is_not_believed():
    described = {
        "program": "slots", "values": 32, "job": 1, "epoch": 0, "workers": MANY, "absent": [],
        "slot_base": 0, "slots": 16, "group": 1, "port": 1,
    }  # fmt: skip
    with pytest.raises(innet.core.errors.NetworkError, match=MESSAGE):
        plan_of(described)


@pytest.mark.parametrize(
    ("command", "workers", "message"),
    [
        *(
            (command, TOO_MANY, MOST)
            for command in (
                "allreduce --workers {}",
                "allreduce --workers {} --program harvest",
                "net --workers {}",
                "train --workers {}",
                "demo --workers {}",
                "experiment throughput --workers {}",
                "switch serve --workers-max {}",
            )
        ),
        ("allreduce --workers {} --program harvest", MANY, MESSAGE),
        ("allreduce --workers {} --topology star", MANY, MESSAGE),
        ("allreduce --workers {} --program hashed --racks 4", MANY, MESSAGE),
        ("net --workers {} --program slots", MANY, MESSAGE),
        ("switch serve --workers-max {} --listen 127.0.0.1:0", MANY, MESSAGE),
    ],
)
def test_commands(command, workers, message):
    result = CliRunner().invoke(app, command.format(workers).split())
    assert isinstance(result.exception, InputError)
    assert re.search(message, str(result.exception))


def test_the_exit_status():
    command = [sys.executable, "-m", "innet", "allreduce", "--workers", str(TOO_MANY)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.search(rf"^error: workers = {TOO_MANY} .*{MOST}$", result.stderr.strip())
