"""PTF runs a suite of packet tests (tests/ptf) against innet simple-switch-grpc."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed")
pytest.importorskip("grpc", reason="gRPC is not installed")
pytest.importorskip("thrift", reason="Thrift's library is not installed")

from support.client_venvs import SHELL_AND_PTF, python_with
from support.p4runtime import Process

ROOT = Path(__file__).parents[2]
FORWARD = ROOT / "p4" / "examples" / "forward.json"
TESTS = ["FollowsUpdatesTest", "ForwardsTest", "StartsEmptyTest"]


def _missing():
    if os.geteuid() != 0:
        return "network interfaces need root"
    return "" if shutil.which("ip") else "ip is not installed"


pytestmark = pytest.mark.skipif(bool(_missing()), reason=_missing())


@pytest.fixture
def cables():
    """Port -> (PTF's end, the switch's end) of three cables."""
    made = {
        port: tuple(f"p{os.getpid() % 100000:x}{port}{end}" for end in "ab") for port in (1, 2, 3)
    }
    try:
        for near, far in made.values():
            words = ["ip", "link", "add", near, "type", "veth", "peer", "name", far]
            subprocess.run(words, check=True, timeout=30)
            for each in (near, far):
                Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
                subprocess.run(["ip", "link", "set", each, "up"], check=True, timeout=30)
        yield made
    finally:
        for near, _ in made.values():
            subprocess.run(["ip", "link", "del", near], check=False, timeout=30)


def ptf(python, cables, port, folder):
    """What PTF says about the suite."""
    interfaces = [word for n, (near, _) in cables.items() for word in ("-i", f"{n}@{near}")]
    given = {
        "grpc": f"127.0.0.1:{port}",
        "device": 0,
        "p4info": str(FORWARD.with_suffix(".p4info.txtpb")),
        "json": str(FORWARD),
    }
    parameters = ";".join(f"{name}={value!r}" for name, value in given.items())
    tests = ["--test-dir", ROOT / "tests" / "ptf", "--test-params", parameters]
    done = subprocess.run(
        [python, python.parent / "ptf", *interfaces, *tests],
        cwd=folder,  # of its log
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(900)  # of which most makes the environment, once
@pytest.mark.repeats("the switch's own tests of packets, by PTF")
def test_a_suite_of_packet_tests(cables, tmp_path):
    python = python_with("ptf", *SHELL_AND_PTF)
    process = Process(interfaces={port: far for port, (_, far) in cables.items()})
    try:
        status, said = ptf(python, cables, process.port, tmp_path)
    finally:
        process.close()
    assert status == 0, said
    assert sorted(set(re.findall(r"forwarding\.(\w+) \.\.\. ok", said))) == TESTS, said
