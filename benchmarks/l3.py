"""Packets per second through a plain IPv4 router: 10,000 routes and 10,000 next hops.

    python -m benchmarks.l3 [--routes 10000] [--json]

Both engines, simple_switch where it is installed, and the JIT with a tenth of the entries, whose
ratio shows what the size of the tables costs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.bmv2 import simple_switch
from innet.core.engines import EngineName
from innet.core.errors import MissingToolError
from innet.core.packets import PacketBatch
from innet.switch import Switch

PROGRAM = Path(__file__).parent / "programs" / "l3.json"
PORTS = 16
BATCH = 4096
BATCHES = 16
FRAME = 64


def main(
    routes: Annotated[int, typer.Option(help="Routes, and as many next hops.")] = 10_000,
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 7,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    document = json.loads(PROGRAM.read_text(encoding="utf-8"))
    commands, networks = control_plane(routes)
    packets = traffic(networks, BATCH * BATCHES)
    fewer, near = control_plane(routes // 10)
    rates = {
        "jit": _built_in(commands, packets, "jit", repeats),
        f"jit, {routes // 10:,} routes": _built_in(
            fewer, traffic(near, BATCH * BATCHES), "jit", repeats
        ),
        "interpret": _built_in(commands, packets.take(np.arange(BATCH)), "interpret", 1),
    }
    note = ""
    try:
        answer = simple_switch.run(document, packets.take(np.arange(40_000)).to_packets(), commands)
        rates[f"simple_switch {simple_switch.version()}"] = 40_000 / answer.seconds
    except MissingToolError as error:
        note = str(error)
    rows = [
        Row(name, rate, "packets/s", f"{FRAME} bytes each", rates["jit"] / rate)
        for name, rate in rates.items()
    ]
    show(f"l3.p4, {routes:,} routes and next hops", "jit is", rows, as_json, note)


def control_plane(routes: int) -> tuple[list[str], list[int]]:
    """Commands for routes of 12 to 32 bits, and one address in each of them."""
    rng = np.random.default_rng(routes)
    wanted: dict[tuple[int, int], int] = {}
    while len(wanted) < routes:
        length = int(rng.choice([12, 16, 20, 24, 28, 32], p=[0.05, 0.1, 0.15, 0.5, 0.1, 0.1]))
        address = int(rng.integers(1 << 32)) >> (32 - length) << (32 - length)
        wanted.setdefault((address, length), len(wanted))
    commands = ["table_set_default L3Ingress.routes L3Ingress.drop"]
    for (address, length), number in wanted.items():
        commands.append(
            f"table_add L3Ingress.routes L3Ingress.route {_dotted(address)}/{length} => {number}"
        )
        commands.append(
            f"table_add L3Ingress.next_hops L3Ingress.forward {number} => {number % PORTS} "
            f"0x0200000000fe {0x020000000000 + number}"
        )
    return commands, [address | (1 << (32 - length)) - 1 for address, length in wanted]


def _dotted(address: int) -> str:
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


def traffic(networks: list[int], count: int) -> PacketBatch:
    """``count`` frames to addresses inside the routes, evenly, in random order."""
    rng = np.random.default_rng(1)
    frames = np.zeros((count, FRAME), np.uint8)
    frames[:, :14] = np.frombuffer(bytes.fromhex("0200000000fe0200000000010800"), np.uint8)
    frames[:, 14:26] = np.frombuffer(bytes.fromhex("450000320000400040110000"), np.uint8)
    frames[:, 26:30] = (10, 0, 0, 1)
    to = np.array(networks, ">u4")[rng.integers(0, len(networks), count)]
    frames[:, 30:34] = to.view(np.uint8).reshape(count, 4)
    words = frames[:, 14:34].copy().view(">u2").astype(np.int64).sum(axis=1)
    words = (words & 0xFFFF) + (words >> 16)
    checksum = ((words & 0xFFFF) + (words >> 16)) ^ 0xFFFF
    frames[:, 24:26] = checksum.astype(">u2").view(np.uint8).reshape(count, 2)
    ports = rng.integers(0, PORTS, count).astype(np.int32)
    return PacketBatch.uniform(frames, ports)


def _built_in(commands: list[str], packets: PacketBatch, engine: EngineName, repeats: int) -> float:
    switch = Switch.load(PROGRAM, engine=engine)
    switch.commands("\n".join(commands))
    batches = [packets.take(np.arange(at, at + BATCH)) for at in range(0, len(packets), BATCH)]
    best = float("inf")
    for repeat in range(repeats + (repeats > 1)):
        begun = time.perf_counter()
        sent = sum(len(switch.process_batch(batch)) for batch in batches)
        if repeat or repeats == 1:  # the first warms up
            best = min(best, time.perf_counter() - begun)
        assert sent == len(packets), f"{len(packets) - sent} packets found no route"
    return len(packets) / best


if __name__ == "__main__":
    typer.run(main)
