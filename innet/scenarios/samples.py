"""Samples of a simulated network over time: queues, links, slots in use, throughput, windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from innet.records.simulation import NetworkSamples
from innet.scenarios.background import Background
from innet.sim.network import SECOND, Network
from innet.sim.simulation import LinkCounts, Simulation
from innet.switch import Switch
from innet.topology import Plan, WorkerEnd
from innet.topology.plan import SharedPlan

USUAL = 200
"""Samples for a plot."""
_FINER = (
    256  # times as fine as the longest all-reduce would need: sparse ones are that much shorter
)
_LONGEST = 10.0  # seconds between samples, at most
_MOST_SHOWN = 6  # queues and switches
_COUNT = ".count"  # how the register ends that has the contributions to each slot


class Sampler:
    """Samples a network at equal intervals. The length of the run is not known beforehand.

    When there are twice as many samples as wanted, every other one is dropped, and the interval is
    doubled.

    Args:
        simulation: the network.
        plan: its switches and ports; of several jobs, each has as many workers.
        switches: by name, in the order of the simulation.
        network: delays of links.
        workers: whose windows are sampled.
        background: packets beside the all-reduce.
        wanted: how many samples, at least; no more than twice as many are kept.
        elements: of the gradient, from which the first distance follows.
        interval: that distance, in seconds, if it is given.
    """

    def __init__(
        self,
        simulation: Simulation,
        plan: Plan | SharedPlan,
        switches: Mapping[str, Switch],
        network: Network,
        *,
        workers: Sequence[WorkerEnd],
        background: Background,
        wanted: int,
        elements: int,
        interval: float | None = None,
    ) -> None:
        self._simulation, self._network, self._wanted = simulation, network, wanted
        self._ends, self._background = workers, background
        names = list(switches)
        ends = [*plan.attachments().values(), *(end for link in plan.trunks() for end in link)]
        self._ports = [(names.index(end.node), end.port) for end in ends]
        self._names = [f"{end.node}:{end.port}" for end in ends]
        self._workers = len(plan.jobs[0].workers)
        self._counts = {
            name: cells
            for name, switch in switches.items()
            for register, cells in switch.registers.items()
            if register.endswith(_COUNT)
        }
        finest = max(1e-9, 32 * elements / network.rate / wanted / _FINER)
        self._interval = finest if interval is None else interval
        self._times: list[float] = []
        self._queues: list[NDArray[np.int64]] = []
        self._busy: list[dict[str, tuple[int, int]]] = []
        self._slots: list[list[int]] = []
        self._bits: list[dict[str, float]] = []  # that have come so far
        self._windows: list[tuple[float, ...]] = []
        self._stopped = True

    def begin(self, seconds: float) -> None:
        """Take samples from a time on; nothing if it does already."""
        if self._stopped:
            self._stopped = False
            self._at(seconds)

    def end(self) -> NetworkSamples | None:
        """Take no samples any more; those that were taken, None if there are fewer than two."""
        self._stopped = True
        if len(self._times) < 2:
            return None
        depths = np.array(self._queues)
        order = np.argsort(-depths.max(axis=0), kind="stable")[:_MOST_SHOWN]
        taken = np.array(self._slots).reshape(len(self._times), -1)
        switches = list(self._counts)
        busiest = np.argsort(-taken.max(axis=0), kind="stable")[:_MOST_SHOWN]
        return NetworkSamples(
            seconds=tuple(self._times),
            queue_bytes={
                self._names[at]: tuple(depths[:, at].tolist())
                for at in order
                if depths[:, at].any()
            },
            utilization={name: self._shares(name) for name in self._busy[0]},
            slots={switches[at]: tuple(taken[:, at].tolist()) for at in busiest},
            throughput={name: self._rates(name) for name in self._bits[0]},
            windows=self._sampled_windows(),
        )

    def _rates(self, name: str) -> tuple[float, ...]:
        """Bits per second since the sample before each."""
        bits = np.array([each[name] for each in self._bits], np.float64)
        return (0.0, *(np.diff(bits) / np.diff(self._times)).tolist())

    def _sampled_windows(self) -> dict[str, tuple[float, ...]]:
        if not any(end.window.adapts for end in self._ends):
            return {}
        names = ("mean", "smallest", "largest")
        return dict(zip(names, zip(*self._windows, strict=True), strict=True))

    def _shares(self, name: str) -> tuple[float, ...]:
        """Which part of the time since the sample before each link of a class was busy."""
        busy = np.array([each[name][0] for each in self._busy], np.float64)
        ticks = np.diff(self._times) * SECOND * self._busy[0][name][1]
        return (0.0, *(np.diff(busy) / ticks).tolist())

    def _at(self, seconds: float) -> None:
        self._simulation.at(seconds, lambda: self._take(seconds))

    def _take(self, now: float) -> None:
        if self._stopped:
            return
        simulation = self._simulation
        self._times.append(now)
        managers = simulation.managers()
        self._queues.append(
            np.array([managers[switch].waiting_bytes(port) for switch, port in self._ports])
        )
        links = simulation.link_counts()
        self._busy.append(self._busy_until(round(now * SECOND), links))
        to_hosts = [link.bytes for link in links if link.target.startswith("host ")]
        bits: dict[str, float] = {"workers": 8 * sum(to_hosts[: self._workers]) / self._workers}
        self._bits.append(bits | self._background.received_bits(simulation.flow_counts()))
        sizes = [end.window.size for end in self._ends]
        self._windows.append((float(np.mean(sizes)), float(min(sizes)), float(max(sizes))))
        self._slots.append(
            [int(((cells > 0) & (cells < self._workers)).sum()) for cells in self._counts.values()]
        )
        if len(self._times) >= 2 * self._wanted:
            self._interval *= 2
            for kept in (
                self._times, self._queues, self._busy, self._slots, self._bits, self._windows,
            ):  # fmt: skip
                del kept[1::2]
        if self._interval <= _LONGEST:
            self._at(self._times[-1] + self._interval)

    def _busy_until(self, now: int, links: list[LinkCounts]) -> dict[str, tuple[int, int]]:
        """Of each class of links, how long they were busy by now, and how many there are.

        A link counts packets as they are put onto it, also those that wait for its bits. These are
        what lies between now and the end of its last bit.
        """
        found: dict[str, tuple[int, int]] = {}
        delay = round(self._network.delay * SECOND)
        pipeline = round(self._network.switch_latency * SECOND)
        for link in links:
            to_host = link.target.startswith("host ")
            name = "switch_to_host" if to_host else "host_to_switch"
            if not to_host and not link.source.startswith("host "):
                name = "trunk"
            until = link.last - delay - (0 if to_host else pipeline)
            busy, count = found.get(name, (0, 0))
            found[name] = busy + link.busy - max(0, until - now), count + 1
        return found
