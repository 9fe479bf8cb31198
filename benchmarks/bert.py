"""An iteration of BERT-large with SwitchML, beside the public simulator of SwitchML's authors.

    python -m benchmarks.bert [--draws 20]

The other simulator (ChenYuHo/SwitchML-omnetpp, commit 65440a9) says in its omnetpp.ini, [Bert2],
that one job "finished at 0.143306406924" seconds: two workers in two racks, links of 100 Gbit/s
without delay, 512 slots, 9,000 bytes on the wire for 2,229 values. It draws the time of each group
of layers, forward, backward and update of the weights, from a normal distribution whose standard
deviation is a fiftieth of the mean; so its number is one draw. Groups are summed one after the
other, each as soon as a worker has its gradients, and updates take no time of the next group.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from innet import Collective
from innet.allreduce.sizes import RoundSizes
from innet.core.reduce_op import ReduceOp, ThinSegment
from innet.experiments import workload
from innet.sim import Network

MODEL = Path(__file__).with_name("bert_groups.toml")
THEIRS = 0.143306406924
WORKERS = 2
VALUES = 2229
WIRE_BYTES = 9000
RATE = 100e9
SPREAD = 1 / 50
UPDATE = 39.3125e-12
"""Seconds for an element's update: their list of updates divided by the elements."""

Times = NDArray[np.float64]


class Draws:
    """Groups in the order of the backward pass: elements, and times of both workers.

    Args:
        rng: draws times; without it all take the mean.
    """

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        model = workload.load(MODEL)
        self.elements = [layer.elements for layer in model.backward]
        update = UPDATE * np.array(self.elements)
        backward = np.diff(model.backward_times(), prepend=0.0)
        self.update, steps = _drawn(update, rng), _drawn(backward, rng)
        # The forward pass is drawn at once, with the spread that the sum of equal parts has.
        parts = _drawn(np.full(len(update), model.forward / len(update)), rng)
        self.ready = parts.sum(1)[:, None] + np.cumsum(steps, 1)


def _drawn(mean: Times, rng: np.random.Generator | None) -> Times:
    times = np.tile(mean, (WORKERS, 1))
    return times if rng is None else rng.normal(times, SPREAD * times)


def by_packets(draws: Draws, collective: Collective) -> float:
    """Seconds of an iteration, every packet through the P4 program."""
    network = collective.network
    assert network.simulation is not None
    begun = network.now
    free, end = np.zeros(WORKERS), 0.0
    for group, elements in enumerate(draws.elements):
        starts = np.maximum(draws.ready[:, group], free)
        network.starts = dict(enumerate((begun + starts).tolist()))
        rounds = ((ThinSegment(ReduceOp.SUM, elements),),)
        collective.all_reduce_sizes(RoundSizes(elements, rounds))
        free = np.array([network.simulation.finished(each) - begun for each in range(WORKERS)])
        end = max(end, float((free + draws.update[:, group]).max()))
    return end


def by_hand(draws: Draws) -> float:
    """The same with their packets and without a network: each group takes its packets' time on
    four links, of which all but one overlap.
    """
    packet = 8 * WIRE_BYTES / RATE
    free = end = 0.0
    for group, elements in enumerate(draws.elements):
        begin = max(free, float(draws.ready[:, group].max()))
        free = begin + (math.ceil(elements / VALUES) + 3) * packet
        end = max(end, free + float(draws.update[:, group].max()))
    return end


def network() -> Collective:
    """Two workers, each below a switch of its own, and a switch above; nothing else takes time."""
    bare = Network(rate=RATE, delay=0, switch_latency=0, host_receive=0, host_send=0)
    return Collective(
        workers=WORKERS, topology="tree", racks=2, values_per_packet=VALUES, window=512,
        thin=True, network=bare,
    )  # fmt: skip


def main(
    draws: Annotated[int, typer.Option(help="Iterations with times drawn by chance.")] = 20,
    seed: Annotated[int, typer.Option(help="Of these times.")] = 0,
) -> None:
    """Simulate, and print a table."""
    collective = network()
    rng = np.random.default_rng(seed)
    drawn = [Draws(rng) for _ in range(draws)]
    ours = np.array([by_packets(each, collective) for each in drawn])
    hand = np.array([by_hand(Draws(rng)) for _ in range(2000)])
    table = Table(title="An iteration of BERT-large, milliseconds", title_justify="left", box=None)
    table.add_column("")
    table.add_column("mean times", justify="right")
    table.add_column("drawn times", justify="right")
    table.add_row("the other simulator", "", f"{1e3 * THEIRS:.3f}, one draw")
    for name, mean, values in (
        ("innet, packet by packet", by_packets(Draws(), collective), ours),
        ("arithmetic, their packets", by_hand(Draws()), hand),
    ):
        text = f"{1e3 * values.mean():.2f} ± {1e3 * values.std():.2f} of {len(values)}"
        table.add_row(name, f"{1e3 * mean:.3f}", text)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
