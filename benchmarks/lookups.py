"""How long a packet with a table look-up takes, by kind of match and number of entries.

    python -m benchmarks.lookups [--sizes 100,1000,10000,100000] [--plot FILE] [--json]

The same packets through one table of each kind (`benchmarks/programs/lookups.p4`), in the JIT and,
where it is installed, in simple_switch. The first rows are packets without a look-up. All
others hit, each a random entry. Prefixes have 12 to 32 bits; ternary entries have one of 16 masks;
ranges cover all keys, without a gap.
"""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.bmv2 import simple_switch
from innet.core.errors import MissingToolError
from innet.core.packets import PacketBatch
from innet.switch import Switch

PROGRAM = Path(__file__).parent / "programs" / "lookups.json"
KINDS = {"exact": "exact_match", "LPM": "longest_prefix", "ternary": "ternary_match"}
KINDS["range"] = "range_match"
_BATCH = 4096
_MASKS = 16
_SECONDS = 1.0  # about as long simple_switch is to be busy with a table
_SCAN = 100e-9  # seconds for an entry of simple_switch's ternary and range tables, about


class Measured(NamedTuple):
    """Nanoseconds a packet."""

    switch: str
    kind: str
    entries: int
    nanoseconds: float


def main(
    sizes: Annotated[str, typer.Option(help="Numbers of entries.")] = "100,1000,10000,100000",
    repeats: Annotated[int, typer.Option(help="The best of so many.")] = 5,
    plot: Annotated[Path | None, typer.Option(help="A picture to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure all kinds and sizes; the ratio is to the JIT's time without a look-up."""
    wanted = [int(size) for size in sizes.split(",")]
    document = json.loads(PROGRAM.read_text(encoding="utf-8"))
    none = np.zeros(1, np.uint32)
    found = [Measured("jit", "none", 0, _jit([], traffic(0, none, 4 * _BATCH), repeats))]
    note, has_other = "", True
    try:
        beside = _simple_switch(document, [], traffic(0, none, 20_000))
        found.append(Measured("simple_switch", "none", 0, beside))
    except MissingToolError as error:
        note, has_other = str(error), False
    for number, (kind, table) in enumerate(KINDS.items(), start=1):
        for size in wanted:
            matches, keys = entries(kind, size)
            priority = " 1" if kind in {"ternary", "range"} else ""
            add = f"table_add LookupsIngress.{table} LookupsIngress.forward"
            commands = [f"{add} {match} => 1{priority}" for match in matches]
            taken = _jit(commands, traffic(number, keys, 4 * _BATCH), repeats)
            found.append(Measured("jit", kind, size, taken))
            if has_other:
                scanned = size if priority else 1
                count = int(np.clip(_SECONDS / (_SCAN * scanned), 2000, 20_000))
                taken = _simple_switch(document, commands, traffic(number, keys, count))
                found.append(Measured("simple_switch", kind, size, taken))
    rows = [
        Row(
            f"{each.switch}, {each.kind}, {each.entries:,}",
            each.nanoseconds, "ns", "", each.nanoseconds / found[0].nanoseconds,
        )
        for each in found
    ]  # fmt: skip
    show("A packet with a look-up, by entries", "jit without takes", rows, as_json, note)
    if plot:
        draw(found, plot)


def entries(kind: str, size: int) -> tuple[list[str], np.ndarray]:
    """As the command language writes them, and one key uint32 (size,) that hits each of them."""
    rng = np.random.default_rng(size)
    if kind == "range":
        bounds = np.linspace(0, 1 << 32, size + 1).astype(np.int64)
        matches = [f"{a}->{b - 1}" for a, b in pairwise(bounds.tolist())]
        return matches, bounds[:-1].astype(np.uint32)
    chosen: dict[tuple[int, int], str] = {}
    masks = rng.integers(0, 1 << 32, _MASKS) | rng.integers(0, 1 << 32, _MASKS)
    while len(chosen) < size:
        key = int(rng.integers(1 << 32))
        if kind == "exact":
            chosen[key, 0] = str(key)
        elif kind == "LPM":
            length = int(rng.integers(12, 33))
            key = key >> (32 - length) << (32 - length)
            chosen[key, length] = f"{key}/{length}"
        else:
            mask = int(masks[len(chosen) % _MASKS])
            chosen[key & mask, mask] = f"{key & mask}&&&{mask}"
    return list(chosen.values()), np.array([key for key, _ in chosen], np.uint32)


def traffic(kind: int, keys: np.ndarray, count: int) -> PacketBatch:
    """``count`` packets that ask the table of that number for random ones of ``keys``."""
    frames = np.zeros((count, 64), np.uint8)
    frames[:, 0] = kind
    asked = np.random.default_rng(1).choice(keys, count).astype(">u4")
    frames[:, 1:5] = asked.view(np.uint8).reshape(count, 4)
    return PacketBatch.uniform(frames, np.zeros(count, np.int32))


def _jit(commands: list[str], packets: PacketBatch, repeats: int) -> float:
    switch = Switch.load(PROGRAM, engine="jit")
    if commands:
        switch.commands("\n".join(commands))
    batches = [packets.take(np.arange(at, at + _BATCH)) for at in range(0, len(packets), _BATCH)]
    best = float("inf")
    for repeat in range(repeats + 1):  # the first warms up
        begun = time.perf_counter()
        sent = sum(len(switch.process_batch(batch)) for batch in batches)
        if repeat:
            best = min(best, time.perf_counter() - begun)
        assert sent == len(packets), f"{len(packets) - sent} packets hit no entry"
    return 1e9 * best / len(packets)


def _simple_switch(document: dict[str, object], commands: list[str], packets: PacketBatch) -> float:
    """The median of five parts of the packets, by simple_switch's clock."""
    parts = 5
    count = len(packets) // parts
    taken = []
    with simple_switch.open_session(
        document, packets.to_packets(), ports=[0, 1], deadline=900.0
    ) as session:
        session.commands(commands)
        for _ in range(parts):
            before = len(session.departures()[1])
            session.play(count)
            times = [seconds for seconds, _ in session.departures()[1]][before:]
            assert len(times) == count, f"{count - len(times)} packets hit no entry"
            taken.append((times[-1] - times[0]) / (count - 1))
    return 1e9 * float(np.median(taken))


def draw(found: list[Measured], path: Path) -> None:
    """Nanoseconds over entries, both to powers of ten."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only for --plot

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for color, kind in enumerate(KINDS):
        for switch, line in (("jit", "-"), ("simple_switch", "--")):
            of_kind = [each for each in found if (each.switch, each.kind) == (switch, kind)]
            if of_kind:
                axes.plot(
                    [each.entries for each in of_kind],
                    [each.nanoseconds for each in of_kind],
                    line, color=f"C{color}", marker="o", label=f"{kind}, {switch}",
                )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="entries", ylabel="a packet, ns")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    typer.run(main)
