"""Iterations of DistributedDataParallel over the switch beside gloo's, in four processes.

    taskset -c 0,1 python -m benchmarks.ddp [--layers 2] [--width 2560] [--json]
    sudo python -m benchmarks.ddp --rate 1000

Each process holds one copy of the same model for each way to reduce gradients: gloo's all-reduce,
the hook with several codecs, and the process group. They take turns; an iteration is forward and
backward with the gradients of all processes, and the time that of the slowest process. "Compute"
is the same without any communication. Each way has a switch process of its own, of which one works
at a time. With a rate, processes and switches are in networks of their own, which links of that
rate connect (``benchmarks.links``). Ratios are of medians. Cores cannot do an iteration sooner than
the processor time of all processes, the switch's included, divided by their number.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Annotated, Any

import typer

from benchmarks.common import Row, show
from benchmarks.ranks import KEY, Serving, dismiss, heard, ranks_of, running, serve
from benchmarks.star import INTERFACE, Place, Star, enter
from innet.codecs import CodecSpec
from innet.core.errors import InnetError
from innet.records import Report

HOOKS: dict[str, CodecSpec] = {
    "hook, dense": "dense",
    "hook, top-k 1 % by LHC": "topk",
    # The first layer, which ScaleCom sends whole, would be half of this model.
    "hook, ScaleCom 100 x": {"preset": "scalecom", "selector": {"first_dense": False}},
}
GROUP = "process group, exact"
QUEUE = 16_000_000  # bytes that may wait at a link: more than are under way
METHODS = ("compute", "gloo", *HOOKS, GROUP)


@dataclass(frozen=True, slots=True)
class _Rank:
    """What a process is told; ``switches`` are addresses by way."""

    rank: int
    ranks: int
    layers: int
    width: int
    switches: dict[str, str]
    store: str
    place: Place | None


def _run(told: Connection, task: _Rank) -> None:
    """Do iterations of the ways that are named, until told None."""
    if task.place is not None:
        enter(task.place)
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    import torch  # noqa: PLC0415 - only here
    from torch import distributed  # noqa: PLC0415 - as torch
    from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415 - as torch

    from innet.torch import HookState, ddp_hook  # noqa: PLC0415 - as torch

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{task.store}", rank=task.rank, world_size=task.ranks
    )
    reports: dict[str, Callable[[], list[Report]]] = {}

    def model(method: str) -> Any:
        torch.manual_seed(0)
        layers = (torch.nn.Linear(task.width, task.width) for _ in range(task.layers))
        net = torch.nn.Sequential(*layers)
        if method == GROUP:
            os.environ["INNET_SWITCH"], os.environ["INNET_KEY"] = task.switches[method], KEY
            group: Any = distributed.new_group(backend="innet")
            reports[method] = lambda: list(group.reports)[-task.layers :]  # a bucket for each layer
            return DistributedDataParallel(net, process_group=group)
        wrapped = DistributedDataParallel(net)
        if method in HOOKS:
            state = HookState(HOOKS[method], switch=task.switches[method], key=KEY)
            wrapped.register_comm_hook(state, ddp_hook)
            reports[method] = lambda: list(state.reports.values())
        return wrapped

    models = {method: model(method) for method in METHODS}
    batch = torch.randn(32, task.width, generator=torch.Generator().manual_seed(task.rank))
    told.send(None)
    while (method := told.recv()) is not None:
        distributed.barrier()
        begun, used = time.perf_counter(), time.process_time()
        with models[method].no_sync() if method == "compute" else contextlib.nullcontext():
            models[method](batch).square().mean().backward()
        spent, used = time.perf_counter() - begun, time.process_time() - used
        told.send((spent, used, reports[method]() if method in reports else []))
    told.send(None)
    distributed.destroy_process_group()


def _iterations(  # noqa: PLR0917 - options of the command
    ranks: int,
    layers: int,
    width: int,
    repeats: int,
    values: int,
    places: tuple[Place, ...],
) -> list[Row]:
    with contextlib.ExitStack() as stack:
        store = f"{stack.enter_context(tempfile.TemporaryDirectory())}/store"
        serving = Serving(values, workers=ranks, place=places[-1] if places else None)
        switches = {
            method: stack.enter_context(running(serve, serving)) for method in (*HOOKS, GROUP)
        }
        addresses = {method: str(switch.address) for method, switch in switches.items()}
        tasks = [
            _Rank(rank, ranks, layers, width, addresses, store, places[rank] if places else None)
            for rank in range(ranks)
        ]
        ends = stack.enter_context(ranks_of(_run, tasks))
        seconds: dict[str, list[float]] = {method: [] for method in METHODS}
        used: dict[str, list[float]] = {method: [] for method in METHODS}
        reports: dict[str, list[list[Report]]] = {method: [] for method in METHODS}
        for repeat in range(repeats + 3):
            for method, measured in seconds.items():
                switch = switches.get(method)
                before = switch.processor_time() if switch else 0.0
                for here in ends:
                    here.send(method)
                answers = heard(ends)
                after = switch.processor_time() if switch else 0.0
                if repeat >= 3:  # before, buckets are made anew and codecs begin to remember
                    measured.append(max(spent for spent, _, _ in answers))
                    used[method].append(after - before + sum(each for _, each, _ in answers))
                    reports[method] += [each for _, _, each in answers if each]
        dismiss(ends)
    gloo = statistics.median(seconds["gloo"])
    rows = []
    for method, measured in seconds.items():
        spent = statistics.median(measured)
        text = f"{1e3 * statistics.median(used[method]):.0f} ms of processor time"
        text += _parts(reports[method])
        rows.append(Row(method, 1e3 * spent, "ms", text, gloo / spent))
    return rows


def _parts(reports: list[list[Report]]) -> str:
    """Sums over the all-reduces of an iteration, medians over iterations and processes."""
    if not reports:
        return ""
    parts = {
        "encode": [sum(each.seconds.encode for each in some) for some in reports],
        "network": [sum(each.seconds.network for each in some) for some in reports],
        "decode": [sum(each.seconds.decode for each in some) for some in reports],
    }
    text = ", ".join(f"{part} {1e3 * statistics.median(each):.0f}" for part, each in parts.items())
    again = sum(each.retransmissions for some in reports for each in some)
    last = reports[-1]
    fewer = sum(each.bytes_dense for each in last) / sum(each.bytes_sent for each in last)
    return f"; {text} ms; {fewer:.3g}x fewer bytes; {again} packets sent again"


def main(  # noqa: PLR0917 - options of a command
    layers: Annotated[int, typer.Option(help="Linear layers.")] = 2,
    width: Annotated[int, typer.Option(help="Inputs and outputs; 2,560 make 25 MiB.")] = 2560,
    ranks: Annotated[int, typer.Option(help="Processes.")] = 4,
    repeats: Annotated[int, typer.Option(help="Iterations of each kind.")] = 11,
    values: Annotated[int, typer.Option(help="Values per packet.")] = 256,
    rate: Annotated[float | None, typer.Option(min=1, help="Of each link, Mbit/s.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Measure, and print ratios first."""
    with contextlib.ExitStack() as stack:
        places: tuple[Place, ...] = ()
        if rate is not None:
            star = stack.enter_context(Star(ranks))
            star.limit(rate, QUEUE)
            places = star.places
        rows = _iterations(ranks, layers, width, repeats, values, places)
    size = layers * (width + 1) * width
    links = "" if rate is None else f", links of {rate:,g} Mbit/s"
    title = f"iterations of {size:,} parameters, {ranks} processes{links}"
    show(title, "times as fast as gloo", rows, as_json)


if __name__ == "__main__":
    try:
        typer.run(main)
    except InnetError as error:
        sys.exit(str(error))
