"""The table of goodput in the docs is what the code does."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.goodput import LOSSES, SNAPSHOT, WINDOWS, goodput
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.topology import EmulatedNetwork, Request, make_plan


def snapshot() -> dict[tuple[float, int], str]:
    lines = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| loss |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start + 2 :]]
    return {
        (loss, window): cell
        for loss, (name, *cells) in zip(LOSSES, rows[: len(LOSSES)], strict=True)
        for window, cell in zip(WINDOWS, cells, strict=True)
        if name == f"{100 * loss:g} %"
    }


def test_the_table_has_every_row() -> None:
    assert set(snapshot()) == {(loss, window) for loss in LOSSES for window in WINDOWS}


@pytest.mark.parametrize(("loss", "window"), [(0.0, 16), (0.001, 256), (0.01, 64), (0.1, 256)])
def test_equal_seeds_give_the_numbers_of_the_table(loss: float, window: int) -> None:
    assert f"{goodput(loss, window):.3g}" == snapshot()[loss, window]


@pytest.mark.parametrize("tick", [0.0, 1e-5, 1e-4])
@pytest.mark.parametrize(("program", "racks", "links"), [("slots", None, 1), ("tree", 2, 2)])
def test_time_is_that_of_all_links_there_and_back(
    program: str, racks: int | None, links: int, tick: float
) -> None:
    # Eight windows, one after the other; sums of 0.3 ms are no multiples of 0.1 ms in floats.
    plan = make_plan(program, 64, Request(workers=2, racks=racks, window=4))
    network = EmulatedNetwork(plan, faults=Faults(delay=3e-4, tick=tick), seed=1)
    for worker in network.workers:
        worker.start([Segment(ReduceOp.SUM, np.ones(32 * 64, np.int32))], 0.0)
    network.run()
    assert network.now == pytest.approx(8 * 2 * links * 3e-4, rel=1e-9)
