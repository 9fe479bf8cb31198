"""What docs/service.md tells people to type, at a free port."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.service import together

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "service.md").read_text()
BLOCKS = re.findall(r"^```\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
DEFAULT = "127.0.0.1:48879"


def lines(beginning):
    found = [
        line.partition("#")[0].strip()
        for block in BLOCKS
        for line in block.splitlines()
        if line.startswith(beginning)
    ]
    assert found, beginning
    return found


def start(line, address):
    words = shlex.split(line.replace(DEFAULT, address))
    words[:1] = [sys.executable, "-m", "innet"] if words[0] == "innet" else [sys.executable]
    return subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    said, complained = process.communicate(timeout=240)
    assert process.returncode == 0, complained
    return said


@pytest.mark.repeats("the service's tests, by the commands of its page")
def test_a_service_workers_and_top():
    serve, remote, trees = lines("innet switch serve")
    assert "--key-file" in remote  # which needs another machine
    with start(f"{trees} --listen 127.0.0.1:0", "127.0.0.1:0") as service:
        assert service.stdout.readline().startswith("listening at ")
        service.terminate()
        assert service.wait(60) == 0
    with start(serve, "127.0.0.1:0") as service:
        try:
            address = service.stdout.readline().removeprefix("listening at ").strip()
            workers = [
                start(line, address) for line in lines("python -m innet.processes.allreduce")
            ]
            reports = [json.loads(finish(worker))["report"] for worker in workers]
            assert [report["workers"] for report in reports] == [2, 2]
            join_from_python(address)
            live, once = lines("innet switch top")
            assert "slots-256" in finish(start(f"{live} {address}", address))
            seen = json.loads(finish(start(once.replace("10.0.0.1:48879", address), address)))
            assert seen["packets"]["in"] >= sum(report["packets_sent"] for report in reports)
        finally:
            service.terminate()
        assert service.wait(60) == 0


def join_from_python(address):
    """The example of a worker, as four workers."""
    (code,) = [block for block in BLOCKS if "from innet.service import join" in block]
    assert "worker=0, workers=4" in code

    def work(worker):
        names = {"gradient": np.full(1000, worker, np.float32)}
        changed = code.replace(DEFAULT, address).replace("worker=0,", f"worker={worker},")
        exec(changed, names)  # the example itself
        return names["total"]

    for total in together([lambda w=worker: work(w) for worker in range(4)], 240):
        np.testing.assert_allclose(total, 6, rtol=1e-6)
