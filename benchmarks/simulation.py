"""How fast simulated time passes: packets over links per second of this machine.

    python -m benchmarks.simulation [--workers 8 64] [--elements 640000]

All-reduces of words over one switch and over a tree, at 100 Gbit/s without loss. The first one of a
network is not counted: it compiles what this machine has not compiled yet. Beside it, the same
all-reduce in memory without time, and the ratio of the two.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from innet.core.reduce_op import ReduceOp, Segment
from innet.sim import PRESETS
from innet.topology import Emulation, Request, make_plan


def seconds(net: Emulation, elements: int) -> float:
    """Of processor time, for one round."""
    words = np.ones(elements, np.int32)
    for end in net.workers:
        end.start([Segment(ReduceOp.SUM, words)], net.now)
    begun = time.process_time()
    net.run()
    passed = time.process_time() - begun
    assert all((end.results()[0] == len(net.workers)).all() for end in net.workers)
    return passed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--elements", type=int, default=640_000, help="of all workers together")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("workers  program   simulated  packets/s of processor time  time beside memory's")
    for workers in arguments.workers:
        program = "slots" if workers <= 32 else "tree"
        plan = make_plan(program, 64, Request(workers=workers))
        elements = arguments.elements // workers
        timed, plain = Emulation(plan, network=PRESETS["100g"]), Emulation(plan)
        seconds(timed, elements), seconds(plain, elements)
        assert timed.simulation is not None
        found = []
        for _ in range(arguments.repeats):
            before = timed.simulation.counts()
            took = seconds(timed, elements)
            passed = timed.simulation.counts().since(before)
            found.append((took, passed.packets / took, took / seconds(plain, elements)))
        _, rate, ratio = sorted(found)[len(found) // 2]
        print(
            f"{workers:7}  {program:7}  {passed.ticks / 1e6:7.1f} µs  {rate / 1e6:20.2f} million  "
            f"{ratio:18.1f} x"
        )


if __name__ == "__main__":
    main()
