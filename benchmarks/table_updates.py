"""Tables that change while packets are forwarded: what a thousand updates a second cost.

    python -m benchmarks.table_updates [--entries 10000] [--json]

For a table of each match kind, parts of a second with and without updates take turns. Every second
update adds an entry, the others delete one. Seconds are those of this process's processor time, so
that what else the machine does takes nothing from either. At last 100,000 entries are written into
an empty table. ``benchmarks.p4runtime_updates`` does so over P4Runtime.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from benchmarks.common import Row, show
from innet.core.packets import PacketBatch
from innet.switch import Switch
from innet.switch.control.control_plane import ControlPlane

if TYPE_CHECKING:
    from innet.p4runtime.client import P4RuntimeClient

PROGRAM = Path(__file__).parent / "programs" / "table_updates.json"
KINDS = ("exact", "lpm", "ternary", "range")
BATCH = 1024
PART = 0.1  # seconds
UPDATE = 1e-3  # seconds from one to the next

Key = tuple[int | tuple[int, int], ...]


def main(
    entries: Annotated[int, typer.Option(help="Entries of the table.")] = 10_000,
    written: Annotated[int, typer.Option(help="Entries to write at last; 0: none.")] = 100_000,
    repeats: Annotated[int, typer.Option(help="Pairs of parts, of which the best count.")] = 40,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    rows = []
    for kind in KINDS:
        without, updated = _turns(kind, entries, repeats)
        rows.append(Row(f"{kind}, no updates", without, "packets/s", "", 1.0))
        name, ratio = f"{kind}, 1,000 updates/s", updated / without
        rows.append(Row(name, updated, "packets/s", "", ratio))
    for kind in KINDS if written else ():
        seconds = _write_directly(kind, written)
        rows.append(Row(f"{kind}, by the control plane", written / seconds, "entries/s", "", 1.0))
    show(f"tables of {entries:,} entries", "it is", rows, as_json)


def keys(kind: str, count: int) -> Iterator[Key]:
    """The keys of so many different entries."""
    rng = np.random.default_rng(count)
    seen: set[Key] = set()
    while len(seen) < count:
        address, port = int(rng.integers(1 << 32)), int(rng.integers(1 << 16))
        length = int(rng.choice([12, 16, 20, 24, 28, 32], p=[0.05, 0.1, 0.15, 0.5, 0.1, 0.1]))
        mask = (1 << 32) - (1 << 32 - length)
        key: Key
        match kind:
            case "exact":
                key = (address, port)
            case "lpm":
                key = ((address & mask, length),)
            case "ternary":
                exact = 0xFFFF if port & 1 else 0
                key = ((address & mask, mask), (port & exact, exact), (0, 0))
            case _:
                high = min(port + int(rng.integers(1000)), 0xFFFF)
                key = ((address & 0xFFFFFF00, 0xFFFFFF00), (port, high))
        if key not in seen:
            seen.add(key)
            yield key


def _add(control: ControlPlane, kind: str, key: Key, number: int) -> int:
    priority = 1 + number % 1000 if kind in ("ternary", "range") else None
    table, action = f"ProbeIngress.{kind}_table", "ProbeIngress.forward"
    return control.table_add(table, action, list(key), [2], priority)


def start_of_frame(kind: str, key: Key) -> bytes:
    """The first bytes of a frame that an entry of this key matches."""
    numbers = [each if isinstance(each, int) else each[0] for each in key]
    address, port = (*numbers, 0)[:2]
    return bytes([KINDS.index(kind)]) + (address << 16 | port).to_bytes(6, "big")


def _packets(kind: str, entries: list[Key]) -> PacketBatch:
    """One to an entry each."""
    frames = np.zeros((BATCH, 64), np.uint8)
    rng = np.random.default_rng(0)
    for frame, chosen in zip(frames, rng.integers(len(entries), size=BATCH), strict=True):
        frame[:7] = list(start_of_frame(kind, entries[chosen]))
    return PacketBatch.uniform(frames, np.zeros(BATCH, np.int32))


def _turns(kind: str, entries: int, repeats: int) -> tuple[float, float]:
    """Packets per second without and with updates."""
    updates = int(repeats * PART / UPDATE)
    every = list(keys(kind, entries + updates + 10))
    switch = Switch.load(PROGRAM, engine="jit")
    control, table = switch.control, f"ProbeIngress.{kind}_table"
    handles = [_add(control, kind, key, i) for i, key in enumerate(every[:entries])]
    coming = enumerate(every[entries:])
    packets = _packets(kind, every[:entries])
    rng = np.random.default_rng(1)
    switch.process_batch(packets)

    def update(number: int) -> None:
        if number % 2:
            at = int(rng.integers(len(handles)))
            handles[at], handles[-1] = handles[-1], handles[at]
            control.table_delete(table, handles.pop())
        else:
            place, key = next(coming)
            handles.append(_add(control, kind, key, place))

    for number in range(2):  # from the first change on the table has room for others
        update(number)
        switch.process_batch(packets)

    def part(with_updates: bool) -> float:
        begun = time.process_time()
        done = forwarded = 0
        while (passed := time.process_time() - begun) < PART:
            while with_updates and done * UPDATE < passed:
                update(done)
                done += 1
            switch.process_batch(packets)
            forwarded += BATCH
        return forwarded / passed

    part(True)
    pairs = [(part(False), part(True)) for _ in range(repeats)]
    return max(without for without, _ in pairs), max(updated for _, updated in pairs)


def _write_directly(kind: str, count: int) -> float:
    """Seconds for so many entries, and the first packet after them."""
    every = list(keys(kind, count))
    switch = Switch.load(PROGRAM, engine="jit")
    packet = _packets(kind, every).take(np.arange(1))
    switch.process_batch(packet)
    begun = time.process_time()
    for number, key in enumerate(every):
        _add(switch.control, kind, key, number)
    switch.process_batch(packet)
    return time.process_time() - begun


def table_entry(client: P4RuntimeClient, kind: str, key: Key, number: int) -> Any:
    """The Entity of a table entry, for a controller."""
    names = ("headers.probe.address", "headers.probe.port", "headers.probe.class")
    if kind == "range":
        matches = dict(zip(names, key, strict=False))
    else:
        matches = {
            name: each
            for name, each in zip(names, key, strict=False)
            if isinstance(each, int) or each[1]
        }
    priority = 1 + number % 1000 if kind in ("ternary", "range") else 0
    action, parameters = "ProbeIngress.forward", {"port": 2}
    return client.entry(f"ProbeIngress.{kind}_table", matches, action, parameters, priority)


if __name__ == "__main__":
    typer.run(main)
