"""PyTorch's own tests of process groups, with innet's beside gloo."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.service import service_process

for _name in ("torch", "expecttest"):  # PyTorch's tests need the latter
    if importlib.util.find_spec(_name) is None:
        pytest.skip(f"{_name} is not installed", allow_module_level=True)

SCRIPT = Path(__file__).parents[1] / "support" / "pytorch_own.py"
SECONDS = 560  # on a machine that is busy with other tests; alone it takes two minutes
BACKENDS = ("gloo", "innet")
PARTS = 2


def outcomes(folder, address):
    """{back end: {test: [outcome, message, seconds]}}; side by side, as most of it is waiting."""
    environment = {**os.environ, "INNET_SWITCH": address, "PYTHONWARNINGS": "ignore"}
    found = {backend: {} for backend in BACKENDS}
    with contextlib.ExitStack() as stack:
        running = []
        for backend, part in itertools.product(BACKENDS, range(PARTS)):
            file = folder / f"{backend}{part}.json"
            said = stack.enter_context(file.with_suffix(".txt").open("w"))
            command = [sys.executable, SCRIPT, backend, file, f"{part}/{PARTS}"]
            process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
            stack.callback(process.kill)
            running.append((process, backend, file))
        until = time.monotonic() + SECONDS
        for process, backend, file in running:
            status = process.wait(until - time.monotonic())
            assert status == 0, file.with_suffix(".txt").read_text()[-4000:]
            found[backend] |= json.loads(file.read_text())
    return found


@pytest.mark.repeats("the checks of the group and of DistributedDataParallel, by PyTorch's tests")
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.xdist_group("ddp")
def test_what_passes_with_gloo_passes_with_innet(tmp_path):
    with service_process("--jobs", "16", "--workers-max", "4") as (_, address):
        found = outcomes(tmp_path, address)
    gloo, innet = found.values()
    assert gloo.keys() == innet.keys()
    ran = [name for name, (outcome, *_) in gloo.items() if outcome != "skipped"]
    assert len(ran) >= 80  # of 285 with PyTorch 2.13; most others need GPUs
    worse = {
        name: innet[name][:2]
        for name in ran
        if gloo[name][0] == "passed" and innet[name][0] != "passed"
    }
    assert not worse, "\n".join(f"{name}: {': '.join(said)}" for name, said in worse.items())
