"""A switch service behind a link that carries shorter packets than its workers' interfaces do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from support.tiers import tiered

TOOLS = ("ip", "nsenter", "unshare", "sysctl")
JUMBO, USUAL = 1500, 600  # packets of 256 values have 1,084 bytes


def _missing():
    if os.geteuid() != 0:
        return "network namespaces need root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{lacking[0]} is not installed" if lacking else ""


def inside(place, *words):
    return ["nsenter", f"--net=/proc/{place}/ns/net", *words]


def do(place, command):
    subprocess.run(inside(place, *command.split()), check=True, timeout=30)


def network(stack):
    """The process that holds it."""
    run = ["unshare", "--net", "cat"]  # which ends when its input does
    holder = stack.enter_context(
        subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    )
    stack.callback(holder.stdin.close)
    holder.stdin.write(b"\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == b"\n"
    return holder.pid


def path(stack):
    """Two networks, and a router between them: a wide link to the first, a narrow one behind."""
    near, router, far = (network(stack) for _ in range(3))
    for number, (end, longest) in enumerate(((near, JUMBO), (far, USUAL))):
        do(router, f"ip link add end{number} mtu {longest} type veth peer eth0 netns {end}")
        do(router, f"ip address add 10.77.{number}.1/24 dev end{number}")
        do(router, f"ip link set end{number} up")
        do(end, f"ip link set eth0 mtu {longest} up")
        do(end, f"ip address add 10.77.{number}.2/24 dev eth0")
        do(end, f"ip route add default via 10.77.{number}.1")
    do(router, "sysctl -qw net.ipv4.ip_forward=1")
    return near, far


@pytest.mark.mininet
@pytest.mark.skipif(bool(_missing()), reason=_missing() or "never")
@pytest.mark.parametrize(
    "switch_is", tiered(["near", "far"], ["far"], "the same with the switch at the other end")
)
def test_packets_are_cut_where_a_link_does_not_carry_them_whole(tmp_path, switch_is):
    key = tmp_path / "key"
    key.write_text("secret")
    with contextlib.ExitStack() as stack:
        near, far = path(stack)
        places = (near, far) if switch_is == "near" else (far, near)
        at = "10.77.0.2:48879" if switch_is == "near" else "10.77.1.2:48879"
        python = [sys.executable, "-m"]
        serve = [*python, "innet", "switch", "serve", "--listen", at]
        serve += ["--values-per-packet", "256", "--key-file", key]
        service = stack.enter_context(
            subprocess.Popen(inside(places[0], *serve), stdout=subprocess.PIPE)
        )
        stack.callback(service.terminate)
        assert service.stdout.readline()
        settings = [f"service={at}", f"key_file={key}", "workers=1", "worker=0", "timeout=5"]
        work = [*python, "innet.processes.allreduce", *(f"-s{each}" for each in settings)]
        done = subprocess.run(
            inside(places[1], *work), capture_output=True, text=True, timeout=100, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["report"]["retransmissions"] == 0
