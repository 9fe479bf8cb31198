"""P4 programs that are not innet's, on networks from files, and Mininet's own command."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import fork_server
from support.mininet import KINDS, missing, needs_mininet

from innet.cli import app
from innet.core.errors import ConfigError, UnknownNameError

if not missing():
    from innet.mininet.debian import Topo
    from innet.mininet.files import FileTopo, compiled, load
    from innet.mininet.network import network
    from innet.mininet.nodes import BuiltinSwitch, P4Host

ROOT = Path(__file__).parents[2]
FORWARD = ROOT / "p4/examples/forward.json"
RULES = ROOT / "p4/examples/forward.commands"
NO_TEXT = ROOT / "docs/images/demo.png"

pytestmark = [
    pytest.mark.mininet,
    needs_mininet,
    pytest.mark.xdist_group("mininet"),
    pytest.mark.usefixtures("forked_programs", "nothing_left"),
]


def run_cli(arguments, lines, folder):
    command = [sys.executable, "-m", "innet", "net", "program", *map(str, arguments)]
    result = fork_server.run(command, folder, "\n".join([*lines, "exit", ""]), timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


# One word that needs no tool, for machines without socat: 60 bytes to an address.
SEND = (
    "h1 python3 -c 'import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); "
    's.bind(("{interface}", 0)); s.send(bytes.fromhex("{address}") + bytes(54))\''
)


@pytest.mark.repeats("the same with simple_switch", but=["builtin"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_own_program_carries_packets(kind, tmp_path):
    said = run_cli(
        [FORWARD, "--commands", RULES, "--switch", kind, "--priority-queues", "3"],
        [
            "switch s1 set_queue_depth 100 2 2",
            "switch s1 set_queue_depth 100 2 3",
            SEND.format(interface="h1-eth0", address="020000000002"),
            SEND.format(interface="h1-eth0", address="020000000009"),
            "py __import__('time').sleep(0.2)",
            "switch s1 counter_read ForwardIngress.forwarded 2",
            "switch s1 counter_read ForwardIngress.unknown 0",
        ],
        tmp_path,
    )
    assert "ForwardIngress.forwarded[2]= (60 bytes, 1 packets)" in said
    assert "1 packets)" in said[said.index("ForwardIngress.unknown[0]") :]
    assert "there is no priority 2" not in said
    assert "there is no priority 3" in said  # the fourth, of three


def test_hosts_without_addresses_get_them_and_know_each_others():
    topo = Topo()
    options = {"program": FORWARD, "engine": "interpret"}
    options["commands"] = [
        "table_add ForwardIngress.addresses ForwardIngress.forward 0x000000000001 => 1",
        "table_add ForwardIngress.addresses ForwardIngress.forward 0x000000000002 => 2",
    ]
    topo.addSwitch("s1", cls=BuiltinSwitch, **options)
    for name in ("h1", "h2"):
        topo.addLink(topo.addHost(name, cls=P4Host), "s1")
    with network(topo) as net:
        send = 's.socket(s.AF_INET, s.SOCK_DGRAM).sendto(b"x", ("10.0.0.2", 9))'
        assert net.get("h1").cmd(f"python3 -c 'import socket as s; {send}'") == ""
        end = time.monotonic() + 10
        while "1 packets" not in net.get("s1").command("counter_read ForwardIngress.forwarded 2"):
            assert time.monotonic() < end
            time.sleep(0.05)


def topology(tmp_path, **changes):
    document = {
        "hosts": {
            "h1": {
                "ip": "10.0.1.1/24",
                "mac": "08:00:00:00:01:11",
                "commands": ["route add default gw 10.0.1.10 dev eth0", "no-such-command --now"],
            },
            "h2": {"ip": "10.0.2.2/24", "mac": "08:00:00:00:02:22", "commands": []},
        },
        "switches": {
            "s1": {"runtime_json": "tables/s1-runtime.json"},
            "s2": {"cli_input": "s2.commands"},
        },
        "links": [["h1", "s1-p1"], ["s1-p2", "s2-p3", "0", 100], ["h2", "s2-p1"]],
        **changes,
    }
    path = tmp_path / "topology.json"
    path.write_text(json.dumps(document))
    (tmp_path / "tables").mkdir(exist_ok=True)
    (tmp_path / "tables/s1-runtime.json").write_text(
        json.dumps(
            {
                "table_entries": [
                    {
                        "table": "ForwardIngress.addresses",
                        "match": {"hdr.ethernet.destination": "08:00:00:00:02:22"},
                        "action_name": "ForwardIngress.forward",
                        "action_params": {"port": 2},
                    }
                ]
            }
        )
    )
    (tmp_path / "s2.commands").write_text(
        "# h2\ntable_add ForwardIngress.addresses ForwardIngress.forward 0x080000000222 => 1\n"
    )
    return path


@pytest.mark.repeats("programs in networks of innet's")
def test_a_tutorials_topology_loads(tmp_path):
    said = run_cli(
        ["--topology", topology(tmp_path), FORWARD],
        [
            SEND.format(interface="eth0", address="080000000222"),
            "py __import__('time').sleep(0.2)",
            "switch s2 counter_read ForwardIngress.forwarded 1",
            "h1 ip -color=never route",
            "links",
        ],
        tmp_path,
    )
    assert "ForwardIngress.forwarded[1]= (60 bytes, 1 packets)" in said
    assert "default via 10.0.1.10 dev eth0" in said
    assert "h1: `no-such-command --now` failed with status 127" in said
    assert "s1-eth2<->s2-eth3" in said


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"links": [["h1", "s1-p1"], ["h9", "s1-p2"]]}, UnknownNameError, "'h9' of the links"),
        ({"links": [["h1", "s3-p1"]]}, UnknownNameError, "unknown host or switch 's3-p1'"),
        ({"links": [["h1"]]}, ConfigError, "of which the last two can be left out"),
        ({"links": "h1-s1"}, ConfigError, "links"),
        ({"links": [["h1", 3]]}, ConfigError, "names of nodes"),
        ({"links": [["h1", "s1-p1", None]]}, ConfigError, "a number of milliseconds"),
        ({"links": [["h1", "s1-p1", "0", 0]]}, ConfigError, "Mbit/s above 0, at most 1000"),
        ({"links": [["h1", "s1-p1", "0", -5]]}, ConfigError, "Mbit/s above 0, at most 1000"),
        ({"links": [["h1", "s1-p1", "0", 10_000]]}, ConfigError, "Mbit/s above 0, at most 1000"),
        ({"links": [["h1", "s1-p1"], ["s1-p1", "s2-p1"]]}, ConfigError, "two links at s1-p1"),
        ({"links": [["h1", "s1-p511"]]}, ConfigError, "s1-p511: a switch has ports 0 to 510"),
        ({"hosts": {"h1": {"ip": "10.0.0.300/24"}}}, ConfigError, "300"),
        ({"hosts": {"h1": {"mac": "08:00:00:00:01"}}}, ConfigError, "give a MAC address such as"),
        ({"hosts": {"h1": {"adress": "10.0.0.1"}}}, ConfigError, "unknown key 'hosts.h1.adress'"),
        ({"hosts": 3}, ConfigError, "hosts"),
    ],
)
def test_what_is_wrong_in_a_topology_is_named(tmp_path, change, error, words):
    with pytest.raises(error, match=words):
        load(topology(tmp_path, **change))


def test_a_program_may_be_compressed(tmp_path):
    squeezed = tmp_path / "squeezed.json.gz"
    squeezed.write_bytes(gzip.compress(FORWARD.read_bytes()))
    path = compiled(squeezed, tmp_path)
    assert json.loads(path.read_text()) == json.loads(FORWARD.read_text())
    topo = FileTopo(topology(tmp_path), squeezed)
    (command,) = topo.nodeInfo("s1")["commands"]
    assert command.startswith("table_add ForwardIngress.addresses ForwardIngress.forward")


def test_files_that_are_no_topology(tmp_path):
    path = tmp_path / "t.json"
    with pytest.raises(ConfigError, match="cannot read the topology"):
        load(path)
    for text in ("{", "[]", ""):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"the topology .*t\.json"):
            load(path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.json"], "none.json"),
        (
            [str(FORWARD), "--switch", "tofino"],
            "switch = 'tofino' cannot be used; allowed is 'builtin' or 'bmv2'",
        ),
        ([str(FORWARD), "--commands", "none"], "cannot read none"),
        ([str(FORWARD), "--commands", str(NO_TEXT)], "unknown command"),
        (["--topology", "none.json"], "cannot read the topology none.json"),
    ],
)
def test_errors_are_told_in_one_message(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["innet", "net", "program", *arguments])
    failed = "not installed" in words or "unknown command" in words
    assert app.run() == (1 if failed else 2)
    said = capsys.readouterr().err.replace("\n", " ")
    assert words in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("topology", "register", "link"),
    [
        ("innet_star,2", "SlotsIngress.pool.count", "h2-eth0<->s1-eth2 (OK OK)"),
        *(
            pytest.param(
                topology,
                "TreeIngress.pool.bitmap",
                "s2-eth100<->s1-eth101 (OK OK)",
                marks=pytest.mark.repeats("the same with a star"),
            )
            for topology in ("innet_dumbbell,2", "innet_tree,2,2")
        ),
    ],
)
def test_mininets_own_command_builds_networks(topology, register, link):
    system = Path("/usr/bin/python3")
    packages = Path(sys.prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    version = subprocess.run(
        [system, "-V"], capture_output=True, text=True, timeout=20, check=True
    ).stdout.split()[1]
    if not packages.is_dir() or not version.startswith(packages.name.removeprefix("python") + "."):
        pytest.skip(f"the system's Python is {version}, that of the tests another")
    environment = os.environ | {"INNET_ENVIRONMENT": sys.prefix}
    environment.pop("PYTHONPATH", None)
    custom = ROOT / "topo/custom.py"
    call = ["mn", "--custom", custom, "--topo", topology, "--controller", "none"]
    result = subprocess.run(
        call,
        input=f"switch s1 register_read {register} 0\ninnet slots s1\nlinks\nexit\n",
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f"{register}[0]= 0" in result.stdout + result.stderr
    assert "Slots of s1" in result.stdout + result.stderr
    assert link in result.stdout + result.stderr
