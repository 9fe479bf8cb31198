"""ATP's setting in simulated time: jobs that share a switch's memory, or have static parts of it.

    python -m benchmarks.atp [--chunks 2048]

Program ``hashed`` is ATP's: any chunk of any job may use any of 2,048 aggregators, and what finds
its aggregator taken goes to the job's parameter server. Beside it is ``slots``, with as much
memory, 1,024 slots of two copies, of which each job has an equal part. A job has two workers and,
with ``hashed``, a server; packets have 62 values. It takes some minutes, most of them in the
servers, which are not compiled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from innet.core.reduce_op import ReduceOp, ThinSegment
from innet.protocol.parameter_server import ParameterServer
from innet.sim import Network
from innet.sim.network import goodput_bound
from innet.topology import Request, SharedEmulation, SharedPlan, plan_jobs

WORKERS = 2
VALUES = 62
RATE = 100e9
AGGREGATORS = 2048
WINDOW = 512  # a quarter of the aggregators: by CRC-32, next to no two of them are the same
DELAY = 3e-6
"""Of a link, assumed: a round trip of 14 µs, which a window of 512 packets covers."""
_TAKEN = 0xFFFF << 48  # a job that there is not


def network(
    program: str, jobs: int, *, taken: float = 0.0, delay: float = DELAY
) -> SharedEmulation:
    """The network of ``jobs`` jobs.

    Args:
        program: "hashed" or "slots".
        jobs: how many.
        taken: part of the aggregators that others hold for ever.
        delay: seconds, of a link.
    """
    window = WINDOW if program == "hashed" else min(WINDOW, 1024 // jobs)
    request = Request(workers=WORKERS, window=window, thin=True)
    plan = plan_jobs(program, VALUES, request, jobs)
    if taken:
        first, *others = plan.jobs
        (switch,) = first.switches
        # Spread over all aggregators.
        held = [i for i in range(AGGREGATORS) if int((i + 1) * taken) > int(i * taken)]
        key = "register_write HashedIngress.aggregators.key"
        commands = (*switch.commands, *(f"{key} {i} {_TAKEN}" for i in held))
        plan = SharedPlan((replace(first, switches=(replace(switch, commands=commands),)), *others))
    return SharedEmulation(plan, Network(rate=RATE, delay=delay))


def goodput(net: SharedEmulation, chunks: int) -> float:
    """Gbit/s of a worker's values, the mean of all jobs, which all begin at once."""
    done = net.run([[_chunks(chunks)] for _ in net.workers])
    return sum(_gbps(chunks, each.end - each.begin) for each in done) / len(done)


def iteration(net: SharedEmulation, chunks: int, compute: float) -> float:
    """Seconds of an iteration, computing and summing, the mean of all jobs.

    The jobs begin evenly spread over an iteration that nothing slows.

    Args:
        net: the network.
        chunks: of a gradient.
        compute: seconds before each all-reduce.
    """
    jobs = range(len(net.workers))
    spread = (compute + _bits(chunks) / bound() / 1e9) / len(jobs)
    done = net.run(
        [[_chunks(chunks)] * 2 for _ in jobs],
        {job: job * spread for job in jobs},
        [[compute]] * len(jobs),
    )
    ends = {job: [each.end for each in done if each.job == job] for job in jobs}
    return sum(last - first for first, last in ends.values()) / len(jobs)


def collisions(net: SharedEmulation) -> float:
    """Part of the contributions that found their aggregator taken."""
    sent = sum(end.counters.sent for job in net.workers for end in job)
    servers = [each for each in net.servers if isinstance(each, ParameterServer)]
    return sum(server.collisions for server in servers) / sent


def bound() -> float:
    """Gbit/s of values that a link takes."""
    return goodput_bound(VALUES, 74 + 4 * VALUES, RATE) / 1e9


def _chunks(count: int) -> list[ThinSegment]:
    return [ThinSegment(ReduceOp.SUM, VALUES * count)]


def _bits(chunks: int) -> int:
    return 32 * VALUES * chunks


def _gbps(chunks: int, seconds: float) -> float:
    return _bits(chunks) / seconds / 1e9


def main(
    chunks: Annotated[int, typer.Option(help="Packets of a gradient.")] = 2048,
    most: Annotated[int, typer.Option(help="Jobs, at most.")] = 16,
) -> None:
    """Simulate, and print three tables."""
    console = Console()
    print(f"{bound():.1f} Gbit/s of values fit a link of 100")
    table = Table("aggregators taken", "collided", "goodput", "bound", title="one job", box=None)
    for taken in (0.0, 0.25, 0.5, 0.75, 1.0):
        net = network("hashed", 1, taken=taken, delay=500e-9)
        got, share = goodput(net, 4 * chunks), collisions(net)
        table.add_row(*(f"{each:.3g}" for each in (taken, share, got, bound() / (1 + share))))
    console.print(table)
    counts = [jobs for jobs in (1, 2, 4, 8, 16) if jobs <= most]
    table = Table("jobs", "hashed", "collided", "slots", title="all at once, Gbit/s", box=None)
    for jobs in counts:
        net = network("hashed", jobs)
        got = goodput(net, chunks)
        static = goodput(network("slots", jobs), chunks)
        table.add_row(str(jobs), *(f"{each:.3g}" for each in (got, collisions(net), static)))
    console.print(table)
    table = Table(
        "jobs", "sum for", "hashed", "collided", "slots", "faster", title="iteration, µs", box=None
    )
    one = _bits(chunks) / bound() / 1e9  # an all-reduce at the full rate
    for jobs in counts[1:]:
        # Of the time, if nothing slows them: so that one job sums at a time, or half of them.
        for share in sorted({jobs, 2}, reverse=True):
            compute = (share - 1) * one
            net = network("hashed", jobs)
            shared = iteration(net, chunks, compute)
            static = iteration(network("slots", jobs), chunks, compute)
            table.add_row(
                str(jobs),
                f"1/{share} of the time",
                f"{1e6 * shared:.1f}",
                f"{collisions(net):.3g}",
                f"{1e6 * static:.1f}",
                f"{100 * (static / shared - 1):+.0f} %",
            )
    console.print(table)


if __name__ == "__main__":
    typer.run(main)
