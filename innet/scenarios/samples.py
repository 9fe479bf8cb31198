"""Samples of a simulated network over time: queues, links, pauses, slots, throughput, rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from innet.records.simulation import NetworkSamples
from innet.scenarios.background import Background
from innet.sim.messenger import ConnectionCounts, Messenger
from innet.sim.network import SECOND, Network
from innet.sim.simulation import LinkCounts, Simulation
from innet.switch import Switch
from innet.topology import WorkerEnd

USUAL = 200
"""Samples for a plot."""
_FINER = (
    256  # times as fine as the longest all-reduce would need: sparse ones are that much shorter
)
_LONGEST = 10.0  # seconds between samples, at most
_MOST_SHOWN = 6  # queues, switches and paused links
_MOST_CONNECTIONS = 8  # of messages that have lines of their own
_COUNT = ".count"  # how the register ends that has the contributions to each slot

Lines = dict[str, tuple[float, ...]]
Sums = dict[tuple[str, str], float]


class Sampler:
    """Samples a network at equal intervals. The length of the run is not known beforehand.

    When there are twice as many samples as wanted, every other one is dropped, and the interval is
    doubled.

    Args:
        network: delays of links.
        workers: how many; they are the first hosts.
        wanted: how many samples, at least; no more than twice as many are kept.
        background: packets beside the all-reduce.
        elements: of the gradient, from which the first distance follows.
        interval: that distance, in seconds, if it is given.
        switches: whose slots are sampled, by name.
        ends: whose windows are; of a network with messages, those of connections are.
    """

    def __init__(
        self,
        network: Network,
        *,
        workers: int,
        wanted: int,
        background: Background | None = None,
        elements: int = 0,
        interval: float | None = None,
        switches: Mapping[str, Switch] | None = None,
        ends: Sequence[WorkerEnd] = (),
    ) -> None:
        self._network, self._wanted, self._workers = network, wanted, workers
        self._ends, self._background = ends, background
        self._counts = {
            name: cells
            for name, switch in (switches or {}).items()
            for register, cells in switch.registers.items()
            if register.endswith(_COUNT)
        }
        finest = max(1e-9, 32 * elements / network.rate / wanted / _FINER)
        self._interval = finest if interval is None else interval
        self._times: list[float] = []
        self._queues: list[NDArray[np.int64]] = []
        self._slots: list[list[int]] = []
        self._windows: list[dict[str, float]] = []
        self._rates: list[dict[str, float]] = []
        # What has come so far, by what it is and of what: busy seconds, bits, pauses, and seconds
        # of these. ``_before`` is of networks and messages that are over.
        self._sums: list[Sums] = []
        self._before: Sums = {}
        self._simulation: Simulation | None = None
        self._ports: list[tuple[str, int, int]] = []  # names, switches, and their ports
        self._messages: Messenger | None = None
        self._origin = 0.0  # the network's time 0, in seconds of the run
        self._stopped = True

    def begin(self, simulation: Simulation, seconds: float, origin: float = 0.0) -> None:
        """Take samples from a time on; nothing if it does already.

        Args:
            simulation: the network; where it is another one than before, it goes on with that.
            seconds: the time.
            origin: the network's time 0.
        """
        if simulation is not self._simulation:
            if self._simulation is not None:
                over = self._of_network(self._simulation, self._simulation.reached)
                self._before = _added(self._before, over)
            self._simulation, self._origin, self._stopped = simulation, origin, True
            self._ports = [
                (link.source, ends.source.number, ends.source.port)
                for link, ends in zip(simulation.link_counts(), simulation.link_ends(), strict=True)
                if ends.source.port is not None
            ]
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
        pauses = self._increases("pauses", most=_MOST_SHOWN)
        paused = self._increases("paused", np.diff(self._times))
        return NetworkSamples(
            seconds=tuple(self._times),
            queue_bytes={
                self._ports[at][0]: tuple(depths[:, at].tolist())
                for at in order
                if depths[:, at].any()
            },
            utilization=self._increases("busy", np.diff(self._times)),
            slots={switches[at]: tuple(taken[:, at].tolist()) for at in busiest},
            throughput=self._increases("bits", np.diff(self._times)),
            windows=_lines(self._windows),
            rates=_lines(self._rates),
            pauses={name: tuple(map(int, values)) for name, values in pauses.items()},
            paused={name: paused[name] for name in pauses},
        )

    def _increases(
        self, kind: str, over: NDArray[np.float64] | float = 1.0, most: int | None = None
    ) -> Lines:
        """By how much sums have grown since the sample before each, over something; the ``most`` of
        which that is most.
        """
        last = self._sums[-1]
        names = [name for each, name in last if each == kind]
        if most is not None:
            names = sorted(names, key=lambda name: -last[kind, name])[:most]
        found = {}
        for name in names:
            sums = np.array([each.get((kind, name), 0.0) for each in self._sums], np.float64)
            found[name] = (0.0, *(np.diff(sums) / over).tolist())
        return found

    def _at(self, seconds: float) -> None:
        assert self._simulation is not None, "it has begun"
        self._simulation.at(seconds - self._origin, lambda: self._take(seconds))

    def _take(self, now: float) -> None:
        simulation = self._simulation
        if self._stopped or simulation is None:
            return
        self._times.append(now)
        managers = simulation.managers()
        waiting = [managers[switch].waiting_bytes(port) for _, switch, port in self._ports]
        self._queues.append(np.array(waiting))
        sums = self._of_network(simulation, now - self._origin)
        if simulation.messenger is None:
            sizes = [float(end.window.size) for end in self._ends]
            adapts = any(end.window.adapts for end in self._ends)
            self._windows.append(_spread(sizes) if adapts else {})
        else:
            sums |= self._of_messages(simulation.messenger)
        self._sums.append(_added(self._before, sums))
        self._slots.append(
            [int(((cells > 0) & (cells < self._workers)).sum()) for cells in self._counts.values()]
        )
        if len(self._times) >= 2 * self._wanted:
            self._interval *= 2
            for kept in (
                self._times, self._queues, self._slots, self._windows, self._rates, self._sums,
            ):  # fmt: skip
                del kept[1::2]
        if self._interval <= _LONGEST:
            self._at(self._times[-1] + self._interval)

    def _of_messages(self, messenger: Messenger) -> Sums:
        """Take samples of what connections may do; bits of them that have come."""
        if self._messages is not None and self._messages is not messenger:
            self._before = _added(self._before, _bits_of(self._messages.connection_counts()))
        self._messages = messenger
        found = messenger.connection_counts()
        sampled = (self._rates, found.rate), (self._windows, found.window)
        for (samples, values), changes in zip(sampled, messenger.adapts, strict=True):
            known = _named(found, values) or _spread(values[found.is_active].tolist())
            samples.append(known if changes else {})
        return _bits_of(found)

    def _of_network(self, simulation: Simulation, now: float) -> Sums:
        """What has come of a network by a time, which it has reached: busy seconds of each class of
        links, in the mean, bits that came, pauses of links and their seconds.
        """
        links = simulation.link_counts()
        to_hosts = [link.bytes for link in links if link.target.startswith("host ")]
        found: Sums = {}
        for name, (busy, count) in self._busy_until(round(now * SECOND), links).items():
            found["busy", name] = busy / count / SECOND
        found["bits", "workers"] = 8 * sum(to_hosts[: self._workers]) / self._workers
        if self._background is not None:
            received = self._background.received_bits(simulation.flow_counts())
            found |= {("bits", name): bits for name, bits in received.items()}
        for each in simulation.pause_counts(now):
            name = f"{each.source} to {each.target}"
            for kind, value in (("pauses", each.pauses), ("paused", each.paused)):
                found[kind, name] = found.get((kind, name), 0) + value
        return found

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


def _added(one: Sums, other: Sums) -> Sums:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in [*one, *other]}


def _spread(values: Sequence[float]) -> dict[str, float]:
    """Of what there are many; nothing of none."""
    if not values:
        return {}
    return {
        "mean": float(np.mean(values)),
        "smallest": float(min(values)),
        "largest": float(max(values)),
    }


def _named(found: ConnectionCounts, values: NDArray[np.int64]) -> dict[str, float]:
    """Of each connection, by its name; nothing where there are too many."""
    if len(values) > _MOST_CONNECTIONS:
        return {}
    ends = zip(found.source.tolist(), found.target.tolist(), values.tolist(), strict=True)
    return {f"{source} to {target}": float(value) for source, target, value in ends}


def _bits_of(found: ConnectionCounts) -> Sums:
    return {("bits", name): 8 * each for name, each in _named(found, found.received).items()}


def _lines(sampled: Sequence[Mapping[str, float]]) -> Lines:
    """Values of each name; 0 where there was none."""
    names = dict.fromkeys(name for each in sampled for name in each)
    return {name: tuple(each.get(name, 0.0) for each in sampled) for name in names}
