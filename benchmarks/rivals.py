"""All-reduces by P4 programs beside SHARP, NVLS and NCCL's algorithms, in simulated time.

    python -m benchmarks.rivals [--gpus 64] [--gpus-per-host 8] [--mib 25] [--network 400g] [--json]
    python -m benchmarks.rivals --load 0.3 ...      # beside another job between the same hosts

All run over one fat-tree, of 16 ports unless another topology is given, whose trunks are as fast
as hosts' links. Hosts send and receive as RDMA does. A P4 program sums over one tree, and over all
that the topology has; in a leaf-spine also with slots that leave trees that are congested. Hosts
with several GPUs have a card for each. Messages of algorithms between hosts go over the transport
roce, by the paths that --paths names, and have NCCL's --protocol, if one is given. A row's ratio is
to the ring.

A ring of 1,024 GPUs takes minutes; choose rows by --only where that is too long.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

import innet
from benchmarks.common import Row, show
from innet.sim.network import PRESETS

_BASELINES = ("ring", "nccl-tree", "hierarchical-ring")
_FIRST = "P4, one tree"
_MOVING = "P4, slots that move"


def _switched(topology: str, values: int, gpus_per_host: int) -> dict[str, dict[str, Any]]:
    """Settings of what switches sum, by name."""
    p4 = {"program": "tree", "elements_per_packet": values, "thin": True}
    several = f"{topology}{',' if ':' in topology else ':'}trees=all"
    found: dict[str, dict[str, Any]] = {
        _FIRST: {**p4, "topology": topology},
        "P4, all trees": {**p4, "topology": several},
        _MOVING: {**p4, "program": "adaptive-tree", "topology": several},
        "SHARP": {"switch": "sharp", "topology": topology},
        "SHARP, all trees": {"switch": "sharp", "topology": several},
    }
    if not topology.startswith("leaf-spine"):
        del found[_MOVING]
    if gpus_per_host > 1:
        found["NVLS and ring"] = {"switch": "nvls", "topology": topology}
    return found


def main(  # noqa: PLR0917 - options of a command
    gpus: Annotated[int, typer.Option(help="Workers.")] = 64,
    gpus_per_host: Annotated[int, typer.Option(help="Of each host.")] = 1,
    mib: Annotated[float, typer.Option(help="MiB of float32.")] = 25,
    network: Annotated[str, typer.Option(help="A preset: the rate of links.")] = "100g",
    topology: Annotated[str, typer.Option(help="Of all.")] = "fat-tree:ports=16",
    values: Annotated[int, typer.Option(help="Values of a packet of P4 programs.")] = 256,
    load: Annotated[float, typer.Option(help="Of another job, a share of each host's link.")] = 0.0,
    paths: Annotated[str, typer.Option(help="How switches choose paths for messages.")] = "ecmp",
    protocol: Annotated[str | None, typer.Option(help="NCCL's: ll, ll128, simple.")] = None,
    extra: Annotated[
        str, typer.Option("--settings", help="More of the network, as pfc=true.")
    ] = "",
    only: Annotated[list[str] | None, typer.Option(help="Names of rows; repeatable.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Simulate each way, and print how much faster than a ring it is."""
    # Step 1: what all have in common.
    rate, more = PRESETS[network].rate, f",{extra}" if extra else ""
    common: dict[str, Any] = {
        "workers": gpus,
        "gpus_per_host": gpus_per_host,
        "size": round(mib * (1 << 20) / 4),
        "network": f"{network}:host=rdma,trunk_rate={rate:g},paths={paths}{more}",
        "encode_time": 0.0,
        "decode_time": 0.0,
        "transport": "roce",
    }
    if load:
        # Each host sends to the one that is half of them further on, as another job's ring might.
        flows = [
            {
                "source": host,
                "destination": (host + gpus // 2) % gpus,
                "rate": load * rate,
                "size": 1458,
                "poisson": True,
            }
            for host in range(gpus)
        ]
        common["background"] = {"flow": flows}
    # Step 2: sums by switches; the first run also has the algorithms between hosts.
    taken: dict[str, float] = {}
    wanted = set(only or [])
    full = {
        f"{name}:protocol={protocol}" if protocol else name: name
        for name in _BASELINES
        if name in (wanted or _BASELINES) and (gpus_per_host > 1 or name != "hierarchical-ring")
    }
    begun = time.perf_counter()
    for name, settings in _switched(topology, values, gpus_per_host).items():
        baselines = tuple(full) if name == _FIRST else ()
        if wanted and name not in wanted and not baselines:
            continue
        record = innet.simulate(**common, **settings, baselines=baselines)
        taken[name] = record.simulated.seconds
        taken |= {full[each]: run.simulated.seconds for each, run in record.baselines.items()}
    # Step 3: the table.
    usual = taken.get("ring", max(taken.values()))
    rows = [Row(name, 1e3 * each, "ms", "", usual / each) for name, each in taken.items()]
    given = ", ".join((network, topology, f"paths={paths}", *filter(None, [extra])))
    title = f"{mib:g} MiB on {gpus:,} GPUs, {gpus_per_host} a host, {given}"
    note = f"{time.perf_counter() - begun:.0f} s to simulate"
    if load:
        note = f"beside packets at {load:.0%} of each link; {note}"
    show(title, "times as fast as a ring", rows, as_json, note)


if __name__ == "__main__":
    typer.run(main)
