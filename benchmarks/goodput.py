"""Goodput by loss and window, of slots.p4 and four workers, in virtual time.

    python -m benchmarks.goodput [--write]

Every packet takes half a millisecond on its link and is lost there with the probability of the row,
each way; links have room for any rate, so that a round trip and what is lost alone decide. Equal
seeds give equal tables: ``docs/goodput.md`` keeps one, and a test holds the code to a part of it.
``--write`` renews it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.topology import EmulatedNetwork, Request, make_plan

SNAPSHOT = Path(__file__).parents[1] / "docs" / "goodput.md"
LOSSES = (0.0, 0.001, 0.01, 0.1, 0.5)
WINDOWS = (1, 4, 16, 64, 256)
WORKERS = 4
VALUES = 64
CHUNKS = 1024
TIMING = Timing(timeout=5e-3, max_timeout=0.1, give_up=1000.0)


def main(
    write: Annotated[bool, typer.Option("--write", help="Renew docs/goodput.md.")] = False,
) -> None:
    """Print the table."""
    rows = [row(loss) for loss in LOSSES]
    print("\n".join([*HEAD, *rows]))
    if write:
        text = SNAPSHOT.read_text(encoding="utf-8")
        before = text[: text.index(HEAD[0])]
        SNAPSHOT.write_text("\n".join([before + HEAD[0], HEAD[1], *rows]) + "\n", encoding="utf-8")


HEAD = (
    "| loss | " + " | ".join(f"window {window}" for window in WINDOWS) + " |",
    "|---|" + "---|" * len(WINDOWS),
)


def row(loss: float) -> str:
    """One line of the table."""
    cells = [f"{goodput(loss, window):.3g}" for window in WINDOWS]
    return f"| {100 * loss:g} % | " + " | ".join(cells) + " |"


def goodput(loss: float, window: int) -> float:
    """Megabits of summed values that each worker gets per virtual second."""
    plan = make_plan("slots", VALUES, Request(workers=WORKERS, window=window))
    faults = Faults(loss=loss, delay=5e-4, tick=1e-4)
    network = EmulatedNetwork(plan, faults=faults, timing=TIMING, seed=1)
    words = np.ones(CHUNKS * VALUES, np.int32)
    for worker in network.workers:
        worker.start([Segment(ReduceOp.SUM, words)], 0.0)
    network.run()
    for worker in network.workers:
        assert (worker.results()[0] == WORKERS).all()
    return 32 * len(words) / network.now / 1e6


if __name__ == "__main__":
    typer.run(main)
