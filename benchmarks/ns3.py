"""Packets over links per second of this machine: innet's simulated network, and ns-3.

    python -m benchmarks.ns3 --ns3-python ns3env/bin/python [--hosts 8 --hosts 32] [--json]

A star of hosts at 100 Gbit/s, each of which sends packets to the next one by UDP: the same flows in
both. Beside them, innet's hosts sum words by the compiled program ``slots``, in packets of the same
size, of which as many pass as many links. All in seconds of processor time. ns-3 runs in a Python
of its own, which needs ``pip install ns3`` (Python 3.11 to 3.13) and nothing of innet.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import Row, show
from benchmarks.simulation import seconds
from innet.sim import PRESETS
from innet.sim.flows import Flow
from innet.sim.simulation import Cable, Simulation
from innet.topology import EmulatedNetwork, Request, make_plan
from innet.wire import PacketLayout

RECORD = Path(__file__).parents[1] / "tests" / "golden" / "record_ns3.py"
VALUES = 64  # of a packet
SIZE = 288  # UDP payload of such a packet, bytes
RATE = 70e9  # of a flow's payload, bits per second
INSTALL = (
    "ns-3 is not there. In a Python of 3.11 to 3.13: python3.11 -m venv ns3env && "
    "ns3env/bin/pip install ns3; then give --ns3-python ns3env/bin/python."
)


def main(
    hosts: Annotated[list[int] | None, typer.Option(help="Hosts of the star; repeat it.")] = None,
    packets: Annotated[int, typer.Option(help="That each host sends.")] = 10_000,
    repeats: Annotated[int, typer.Option(help="The median of so many.")] = 3,
    ns3_python: Annotated[Path, typer.Option(help="A Python with ns3.")] = Path(sys.executable),
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    note = ""
    for count in hosts or [8, 32]:
        each = max(1, packets * 8 // count)
        rates = {
            "innet, flows": flows_rate(count, each, repeats),
            "innet, sums by slots": sums_rate(count, each, repeats),
        }
        found = ns3_rate(count, each, repeats, ns3_python)
        if isinstance(found, str):
            note = found
        else:
            rates.update(found)
        rows = [
            Row(name, rate / 1e6, "million packets/s", "", rates["innet, flows"] / rate)
            for name, rate in rates.items()
        ]
        show(
            f"A star of {count} hosts, {each:,} packets of each",
            "innet's flows are",
            rows,
            as_json,
            note,
        )


def flows_rate(hosts: int, packets: int, repeats: int) -> float:
    """Packets over links per second of processor time, of flows."""
    flows = [
        Flow(
            source=host,
            destination=(host + 1) % hosts,
            rate=RATE,
            size=SIZE,
            packets=packets,
            start=host * 1e-12,
        )
        for host in range(hosts)
    ]
    cables = [Cable("s1", host, host) for host in range(hosts)]
    rates = []
    for repeat in range(repeats + 1):  # the first one compiles
        simulation = Simulation(PRESETS["100g"], PacketLayout(VALUES), {"s1": None}, cables, hosts)
        simulation.add_flows(flows)
        begun = time.process_time()
        simulation.run_until(2 * packets * 8 * SIZE / RATE)
        took = time.process_time() - begun
        assert all(each.received == packets for each in simulation.flow_counts())
        rates += [simulation.counts().packets / took] if repeat else []
    return statistics.median(rates)


def sums_rate(hosts: int, packets: int, repeats: int) -> float:
    """Packets over links per second of processor time, in all-reduces over one switch."""
    plan = make_plan("slots", VALUES, Request(workers=hosts))
    net = EmulatedNetwork(plan, network=PRESETS["100g"])
    assert net.simulation is not None
    seconds(net, packets * VALUES)  # compiles
    rates = []
    for _ in range(repeats):
        before = net.simulation.counts()
        took = seconds(net, packets * VALUES)
        rates.append(net.simulation.counts().since(before).packets / took)
    return statistics.median(rates)


def ns3_rate(hosts: int, packets: int, repeats: int, python: Path) -> dict[str, float] | str:
    """As ``flows_rate``, in ns-3, by its version; or why there is none."""
    lines = [
        "[topology]",
        f'kind = "star"\nhosts = {hosts}\nrate = 100e9\ndelay = 500e-9\nqueue_packets = 4096',
    ]
    for host in range(hosts):
        lines.append(f"[[flow]]\nsource = {host}\ndestination = {(host + 1) % hosts}")
        lines.append(f"rate = {RATE}\nsize = {SIZE}\npackets = {packets}\nstart = {host * 1e-12}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "star.toml"
        path.write_text("\n".join(lines), encoding="utf-8")
        command = [str(python), str(RECORD), "--measure", str(path), str(repeats)]
        try:
            answer = subprocess.run(  # noqa: S603 - the Python that the user named
                command, capture_output=True, text=True, check=False
            )
        except OSError as error:
            return f"{python} cannot be run: {error.strerror}. {INSTALL}"
    if answer.returncode != 0:
        last = answer.stderr.strip().splitlines()[-1:] or [f"exit status {answer.returncode}"]
        return f"{last[0]}. {INSTALL}"
    found = json.loads(answer.stdout)
    return {f"ns-3 {found['ns3']}": found["hops"] / statistics.median(found["seconds"])}


if __name__ == "__main__":
    typer.run(main)
