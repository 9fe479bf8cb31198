"""One all-reduce on a Mininet network: settings in, sum and report out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, Strict

from innet.codecs import check_gradient
from innet.config import AllReduceSettings, Engine
from innet.experiments import allreduce
from innet.participant import Vector
from innet.plan import Plan
from innet.record import Report, Seconds
from innet.switch.bmv2 import version
from innet.verification import errors, is_exact
from topo.network import network, scratch
from topo.nodes import BuiltinSwitch
from topo.topologies import Links, PlanTopo, SwitchKind
from topo.workforce import Workforce, interface_packets
from workers.outcomes import load
from workers.settings import JobSettings, WorkerSettings

AnyPath = Annotated[Path, Strict(False)]
LogLevel = Literal["off", "trace", "debug", "info", "warn", "error"]
_WINDOW_OF_BMV2 = 64
_QUEUE_OF_LINK = 15_000  # bytes that a link of TCLink's holds without loss, whatever its rate
Watch = Callable[[str], None]


class NetSettings(JobSettings):
    """A job on a Mininet network.

    Attributes:
        switch: "builtin" or "bmv2".
        engine: how the built-in switch runs the program.
        size: elements of each worker's generated gradient.
        density: share of its elements that are not zero.
        input: NumPy files (.npz or .npy) with the workers' gradients instead.
        rounds: how many all-reduces; the report is of the last.
        rate: of every link, Mbit/s; None for as fast as the machine is.
        pcap: folder for captures of all interfaces of all switches.
        simple_switch: BMv2's executable; by default the one on PATH.
        thrift_port: where simple_switch's control plane listens, in the switch's own namespace.
        log_level: of simple_switch.
    """

    switch: SwitchKind = "builtin"
    engine: Engine = "jit"
    size: Annotated[int, Field(ge=0, le=2**30)] = 100_000
    density: Annotated[float, Field(ge=0, le=1)] = 1.0
    input: tuple[AnyPath, ...] = Field(default=(), strict=False)
    rounds: Annotated[int, Field(ge=1)] = 1
    rate: Annotated[float, Field(gt=0, le=1000)] | None = None
    pcap: AnyPath | None = None
    simple_switch: AnyPath | None = None
    thrift_port: Annotated[int, Field(ge=1, le=65535)] = 9090
    log_level: LogLevel = "off"

    def completed(self) -> NetSettings:
        """With a window: all slots, or what simple_switch or a limited link has room for."""
        windows = [self.window]
        if self.window is None and self.switch == "bmv2":
            windows.append(_WINDOW_OF_BMV2)
        if self.window is None and self.rate is not None:
            fitting = _QUEUE_OF_LINK // self.plan().layout.frame_size
            windows.append(1 << (fitting.bit_length() - 1))  # a power of two
        known = [window for window in windows if window is not None]
        return self.model_copy(update={"window": min(known, default=None)})

    def gradients(self) -> list[Vector]:
        """The workers' gradients: those that ``innet allreduce`` has by the same settings."""
        chosen: dict[str, Any] = {"seed": self.seed, "size": self.size, "density": self.density}
        if not self.input or "workers" in self.model_fields_set:
            chosen["workers"] = self.workers
        return allreduce.gradients(AllReduceSettings(input=self.input, **chosen))

    def topology(self, plan: Plan, folder: Path) -> PlanTopo:
        """What Mininet is to build."""
        options: dict[str, Any] = {"pcap": self.pcap}
        if self.switch == "bmv2":
            options |= {"simple_switch": self.simple_switch, "thrift_port": self.thrift_port}
            options |= {"log_level": self.log_level}
        else:
            options |= {"engine": self.engine, "seed": self.seed}
        return PlanTopo(
            plan,
            switch=self.switch,
            switch_options=options,
            links=Links(rate=self.rate),
            folder=folder,
        )

    def of_worker(self) -> WorkerSettings:
        """What the workers' processes are told, but for what differs between them."""
        names = JobSettings.model_fields
        shared = {name: getattr(self, name) for name in names}
        runs = f"simple_switch {version()}" if self.switch == "bmv2" else self.engine
        return WorkerSettings(worker=0, switch=runs, rounds=self.rounds, **shared)


@dataclass(frozen=True, slots=True)
class NetResult:
    """What an all-reduce on a network gave.

    Attributes:
        sum: float32, of the gradients' shape.
        reports: of each round.
    """

    sum: Vector
    reports: tuple[Report, ...]

    @property
    def report(self) -> Report:
        """Of the last round."""
        return self.reports[-1]


def run(
    settings: NetSettings,
    *,
    watch: Watch = lambda _: None,
    inspect: Callable[[Any, NetResult], None] | None = None,
) -> NetResult:
    """Bring a network up, sum gradients over it, and take it down.

    Args:
        settings: what to do.
        watch: told what is being done.
        inspect: called with Mininet's network and the result before the network is taken down.

    Raises:
        InnetError: something is missing or cannot be used, or a part of the network failed;
            everything is down again.
    """
    gradients = settings.gradients()
    settings = settings.model_copy(update={"workers": len(gradients)}).completed()
    plan = settings.plan()
    for worker, gradient in enumerate(gradients):
        check_gradient(gradient.reshape(-1), worker)
    if settings.pcap is not None:
        settings.pcap.mkdir(parents=True, exist_ok=True)
        settings = settings.model_copy(update={"pcap": settings.pcap.resolve()})
    with scratch() as folder:
        topo = settings.topology(plan, folder)
        watch(f"starting {len(plan.switches)} switches and {len(plan.hosts)} hosts")
        with network(topo, limited=settings.rate is not None) as net:
            workers = Workforce(net, plan, settings.of_worker(), folder)
            for worker, gradient in enumerate(gradients):
                workers.give(worker, gradient)
            watch("starting the workers")
            reports = []
            with workers:
                for number in range(settings.rounds):
                    watch(f"all-reduce {number + 1} of {settings.rounds}")
                    before = packets(net)
                    each = workers.all_reduce()
                    reports.append(combined(gradients, workers, each, packets(net) - before))
            result = NetResult(np.load(workers.output(0)), tuple(reports))
            if inspect is not None:
                inspect(net, result)
    return result


def combined(
    gradients: list[Vector], workers: Workforce, reports: list[Report], switch_packets: int
) -> Report:
    """One report of what the workers' reports say, and of whether their sums are right."""
    outcomes = [load(workers.outcome(worker)) for worker in range(len(reports))]
    flat = [gradient.reshape(-1) for gradient in gradients]
    error, error_sent = errors(flat, outcomes)
    return combined_counts(reports, switch_packets).model_copy(
        update={
            "exact": is_exact(outcomes),
            "max_abs_error": error,
            "max_abs_error_sent": error_sent,
        }
    )


def combined_counts(reports: list[Report], switch_packets: int) -> Report:
    """One report of the workers', without what takes their outcomes to know."""
    first = reports[0]
    return first.model_copy(
        update={
            "fabric": f"Mininet, {first.fabric}",
            "packets_sent": sum(each.packets_sent for each in reports),
            "packets_received": sum(each.packets_received for each in reports),
            "bytes_sent": max(each.bytes_sent for each in reports),
            "retransmissions": sum(each.retransmissions for each in reports),
            "seconds": Seconds(
                encode=sum(each.seconds.encode for each in reports),
                network=max(each.seconds.network for each in reports),
                decode=sum(each.seconds.decode for each in reports),
                total=max(each.seconds.total for each in reports),
            ),
            "switch_packets": switch_packets,
        }
    )


def packets(net: Any) -> int:
    """Packets that the switches have processed."""
    return sum(
        each.statistics()["packets_in"]
        if isinstance(each, BuiltinSwitch)
        else interface_packets(each)
        for each in net.switches
    )
