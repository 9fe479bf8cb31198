"""How fast simulated time passes: packets over links per second of this machine.

    python -m benchmarks.simulation [--workers 8 64] [--elements 2000000] [--large] [--forward]

All-reduces of words over one switch and over a tree, at 100 Gbit/s without loss, in full and in
thin packets, of a number of elements, of half and of a quarter of it: what they take is to be in
proportion. The first one of a network is not counted: it compiles what this machine has not
compiled yet. Beside it, the same all-reduce in memory without time, and the ratio of the two.

``--large``: 64 workers × 25 MiB in full packets, and 1,024 workers × 25 MiB in thin ones.

``--forward``: what fast-forward saves, which is off in the others. 1,024 workers × 25 MiB in thin
packets, with it and in full, whose counts and times must be equal; × 1 GiB; and an iteration of
GPT-3 175B (``gpt3_175b.toml``), whose buckets are simulated once for each size.

``--threads``: a ring and halving-doubling of 1,024 hosts on one thread and on as many as there are
cores, in turn; elapsed seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from pathlib import Path
from unittest import mock

import numpy as np

import innet
from innet.core.reduce_op import ReduceOp, Segment, SizedSegment
from innet.sim import PRESETS
from innet.sim.baselines import simulate_messages
from innet.sim.messages import halving_doubling_all_reduce, ring_all_reduce
from innet.topology import EmulatedNetwork, Request, make_plan

MEBIBYTES_25 = 25 * 2**20 // 4
GIBIBYTE = 2**30 // 4
GPT3 = Path(__file__).parent / "gpt3_175b.toml"


def emulation(workers: int, *, thin: bool, timed: bool = True) -> EmulatedNetwork:
    """A network of so many workers."""
    program = "slots" if workers <= 32 else "tree"
    plan = make_plan(program, 64, Request(workers=workers, thin=thin))
    found = EmulatedNetwork(plan, network=PRESETS["100g"] if timed else None)
    if timed:
        found.timed.fast_forward = False
    return found


def seconds(net: EmulatedNetwork, elements: int) -> float:
    """Of processor time, for one round."""
    is_header_only = net.plan.layout.is_header_only
    words = np.ones(0 if is_header_only else elements, np.int32)
    for end in net.workers:
        end.start(
            [SizedSegment(ReduceOp.SUM, elements)]
            if is_header_only
            else [Segment(ReduceOp.SUM, words)],
            net.now,
        )
    begun = time.process_time()
    net.run()
    passed = time.process_time() - begun
    assert is_header_only or all(
        (end.results()[0] == len(net.workers)).all() for end in net.workers
    )
    return passed


def compare(workers: int, elements: int, repeats: int, *, thin: bool) -> None:
    """Print a row."""
    timed, plain = emulation(workers, thin=thin), emulation(workers, thin=thin, timed=False)
    seconds(timed, elements), seconds(plain, elements)
    assert timed.simulation is not None
    found = []
    for _ in range(repeats):
        parts = [seconds(timed, elements // part) for part in (4, 2)]
        before = timed.simulation.counts()
        took = seconds(timed, elements)
        passed = timed.simulation.counts().since(before)
        ratios = [part / took for part in parts]
        found.append((passed.packets / took, took / seconds(plain, elements), *ratios))
    rate, beside, quarter, half = np.median(found, axis=0)
    print(
        f"{workers:7}  {timed.plan.switches[0].program.name:10}  {rate / 1e6:12.2f} million"
        f"  {beside:18.2f} x  {quarter:5.2f}, {half:4.2f}, 1"
    )


def large(workers: int, *, thin: bool) -> None:
    """Print what a large all-reduce takes."""
    net = emulation(workers, thin=thin)
    assert net.simulation is not None
    seconds(net, 640)
    before, begun = net.simulation.counts(), time.perf_counter()
    seconds(net, MEBIBYTES_25)
    passed = net.simulation.counts().since(before)
    took = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    goodput = 32 * MEBIBYTES_25 / (passed.ticks / 1e12) / 1e9
    print(
        f"{workers} workers x 25 MiB, {'thin' if thin else 'full'}: {passed.packets / 1e6:.1f} "
        f"million packets over links in {took:.1f} s, {memory:.1f} GiB; simulated "
        f"{passed.ticks / 1e9:.3f} ms, {goodput:.1f} Gbit/s"
    )


def forward(workers: int) -> None:
    """Print what all-reduces take with fast-forward and without."""
    # First, as what follows leaves many objects to Python.
    begun = time.perf_counter()
    record = innet.simulate(
        model=str(GPT3), workers=workers, program="tree", thin=True, values_per_packet=256
    )
    took = time.perf_counter() - begun
    print(
        f"an iteration of GPT-3 175B: {took:.1f} s; of {len(record.iterations[0].buckets)} buckets "
        f"{record.all_reduces} were simulated"
    )
    net = emulation(workers, thin=True)
    simulation = net.timed
    seconds(net, 640)

    def run(elements: int, *, skipping: bool) -> tuple[float, float, int]:
        simulation.fast_forward = skipping
        before, skipped = simulation.counts(), simulation.forwarded.packets
        begun = time.perf_counter()
        processor = seconds(net, elements)
        took = time.perf_counter() - begun
        passed = simulation.counts().since(before)
        left = passed.packets - (simulation.forwarded.packets - skipped)
        how = "fast-forward" if skipping else "in full"
        print(
            f"{workers} workers x {elements / 2**18:.0f} MiB, {how}: {took:.2f} s, "
            f"{processor:.2f} s of processor; {left / 1e6:.1f} of {passed.packets / 1e6:.1f} "
            "million packets simulated"
        )
        return took, passed.ticks, passed.packets

    run(MEBIBYTES_25, skipping=True)  # with memory that no process has used yet
    fast, *counts = run(MEBIBYTES_25, skipping=True)
    run(GIBIBYTE, skipping=True)
    full, *others = run(MEBIBYTES_25, skipping=False)
    assert counts == others, "a skipped run is not the full one"
    print(f"fast-forward takes 1/{full / fast:.0f} of the time of the full run")


def beside_one_thread(repeats: int) -> None:
    """Print what message graphs of 1,024 hosts take on one thread and on all."""
    for name, graph in (
        ("ring", ring_all_reduce(1024, 1_000_000)),
        ("halving-doubling", halving_doubling_all_reduce(1024, 250_000)),
    ):
        took: dict[int, list[float]] = {1: [], os.cpu_count() or 1: []}
        simulated = set()
        for _ in range(1 + repeats):  # the first one compiles
            for threads, found in took.items():
                with mock.patch("os.cpu_count", return_value=threads):
                    begun = time.perf_counter()
                    run = simulate_messages(graph, "100g", transport="roce", racks=32, spines=4)
                    found.append(time.perf_counter() - begun)
                simulated.add((run.seconds, run.counts.packets))
        ((_, packets),) = simulated  # the same on any number of threads
        median = {threads: float(np.median(found[1:])) for threads, found in took.items()}
        listed = ", ".join(f"{each:.2f} s on {threads}" for threads, each in median.items())
        ratio = median[1] / median[max(median)]
        print(f"{name}: {packets / 1e6:.1f} million packets over links, {listed}: {ratio:.2f} x")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--elements", type=int, default=2_000_000, help="of all workers together")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="25 MiB, 64 and 1,024 workers")
    parser.add_argument("--forward", action="store_true", help="fast-forward, 1,024 workers")
    parser.add_argument("--threads", action="store_true", help="on one, and on one for each core")
    arguments = parser.parse_args()
    if arguments.forward:
        forward(1024)
        return
    if arguments.threads:
        beside_one_thread(arguments.repeats)
        return
    if arguments.large:
        large(64, thin=False)
        large(1024, thin=True)
        return
    print(
        "workers  program     packets/s of processor  time beside memory's  time of 1/4, 1/2, all"
    )
    for workers in arguments.workers:
        for thin in (False, True):
            compare(workers, arguments.elements // workers, arguments.repeats, thin=thin)


if __name__ == "__main__":
    main()
