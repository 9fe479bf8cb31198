"""Simulated time of a training's iterations, on one or several networks.

An iteration is computing, encoding, the network and decoding, one after the other: nothing
overlaps. The slowest worker ends computing for all. Sums do not depend on the network. So one
training suffices for all networks: its gradients are summed on each of them.

Plain float32 sums, and those of other rings, take the time of a ring all-reduce.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from innet.core.errors import ConfigError, InputError, StateError
from innet.core.reduce_op import Operation, Segment
from innet.core.settings import (
    BITMAP_BITS,
    SimulatedTrainingSettings,
    TrainingSettings,
)
from innet.records import Fabric, SimulatedTime, Step
from innet.scenarios.baselines import Baseline
from innet.scenarios.workload import Stragglers
from innet.sim.network import SECOND, Network, is_steady, network_of

if TYPE_CHECKING:
    from innet.allreduce.loop import RoundResult
    from innet.topology import Plan


def networks_of(settings: TrainingSettings) -> dict[str, Network]:
    """The networks on which a training takes simulated time, by the names that the user gave.

    Raises:
        ConfigError: a network is given twice, or its file cannot be used.
        UnknownNameError: no such preset or setting.
        InputError: a number that no network has, or an engine that is not simulated.
    """
    if not isinstance(settings, SimulatedTrainingSettings):
        return {}
    twice = {name for name in settings.networks if settings.networks.count(name) > 1}
    if twice:
        raise ConfigError(f"the network {min(twice)!r} is given twice; give each once.")
    if settings.networks and settings.engine != "jit":
        raise InputError(
            f"a network in simulated time runs compiled programs, not the engine "
            f"{settings.engine!r}; leave the engine out."
        )
    if settings.baselines and not settings.networks:
        raise ConfigError(
            "baselines are compared by simulated time; give a network too, such as "
            'networks = ["10g"] or --network 10g.'
        )
    if (settings.straggler != "none" or settings.pauses) and not settings.networks:
        raise ConfigError(
            "straggler and pauses change simulated time alone; give a network too, such as "
            'networks = ["10g"] or --network 10g.'
        )
    Stragglers(settings.straggler, settings.pauses, settings.workers, settings.seed)
    return {name: network_of(name) for name in settings.networks}


def described(networks: Mapping[str, Network]) -> dict[str, Any]:
    """All settings of the networks, for the settings of a record."""
    if not networks:
        return {}
    return {"network_settings": {name: asdict(network) for name, network in networks.items()}}


class NetworkCost(NamedTuple):
    """What all-reduces, or rounds of them, took on a network.

    Attributes:
        seconds: simulated.
        lost, dropped, retransmissions: packets.
        fabric: hosts, switches and links; None where nothing was sent.
    """

    seconds: float = 0.0
    lost: int = 0
    dropped: int = 0
    retransmissions: int = 0
    fabric: Fabric | None = None

    def plus(self, other: NetworkCost) -> NetworkCost:
        """Both, one after the other."""
        return NetworkCost(
            self.seconds + other.seconds,
            self.lost + other.lost,
            self.dropped + other.dropped,
            self.retransmissions + other.retransmissions,
            other.fabric or self.fabric,
        )


class TimedNetwork:
    """A network in simulated time, on which the rounds of another one are repeated.

    If nothing is lost and no packet was sent again, a round with as many words as an earlier one
    takes as long. It is then not simulated again.

    Args:
        name: that the user gave it, for errors.
        plan: of the job.
        network: rates, delays and queues.
        seed: of what is drawn by chance.
    """

    def __init__(self, name: str, plan: Plan, network: Network, seed: int) -> None:
        from innet.topology import EmulatedNetwork  # noqa: PLC0415 - it brings Numba

        self._name = name
        self._emulation = EmulatedNetwork(plan, seed=seed, network=network)
        self._steady = is_steady(network)
        self._known: dict[_Shape, NetworkCost] = {}
        self._taken = NetworkCost()

    def knows(self, segments: Mapping[int, list[Segment]]) -> bool:
        """Whether a round of such segments need not be simulated again."""
        return _lengths(segments) in self._known

    def repeat(self, segments: Mapping[int, list[Segment]], expected: RoundResult) -> None:
        """Exchange the segments of a round.

        Args:
            segments: of each worker.
            expected: what the other network made of them.

        Raises:
            StateError: another sum.
            StalledError: a worker gave up, as too many packets were lost.
        """
        key = _lengths(segments)
        if key not in self._known:
            taken = self._simulate(segments, expected)
            if not self._steady or taken.lost or taken.dropped or taken.retransmissions:
                self._taken = self._taken.plus(taken)
                return
            self._known[key] = taken
        self._taken = self._taken.plus(self._known[key])

    def _simulate(
        self, segments: Mapping[int, list[Segment]], expected: RoundResult
    ) -> NetworkCost:
        emulation = self._emulation
        simulation = emulation.timed
        ends = {worker: emulation.workers[worker] for worker in segments}
        before = simulation.counts()
        sent = sum(end.counters.retransmissions for end in ends.values())
        now = emulation.now
        for worker, end in ends.items():
            end.start(segments[worker], now)
        emulation.run()
        for worker, end in ends.items():
            pairs = zip(segments[worker], end.results(), expected.words[worker], strict=True)
            if not all(
                np.array_equal(words, known)
                for segment, words, known in pairs
                if segment.has_result(worker)
            ):
                raise StateError(
                    f"the network {self._name} gave worker {worker} another sum than the one "
                    "without simulated time; its times are not those of this training."
                )
        counts = simulation.counts().since(before)
        return NetworkCost(
            counts.ticks / SECOND,
            counts.lost,
            counts.dropped,
            sum(end.counters.retransmissions for end in ends.values()) - sent,
            simulation.fabric,
        )

    def take(self) -> NetworkCost:
        """What the rounds since the last call took."""
        taken, self._taken = self._taken, NetworkCost()
        return taken


_Shape = tuple[tuple[Operation, int, int | None], ...]


def _lengths(segments: Mapping[int, list[Segment]]) -> _Shape:
    """Operations, words and owners of a round, which are those of each worker."""
    some = next(iter(segments.values()))
    return tuple((segment.operation, segment.words.size, segment.owner) for segment in some)


class Timer:
    """Adds up what the iterations of a run take on each network.

    Args:
        settings: compute and codec times.
        elements: of the gradient.
        has_codec: elements are encoded and decoded.
        seed: of what makes workers slower.

    Attributes:
        times: the sums so far, by network.
    """

    def __init__(
        self, settings: TrainingSettings, elements: int, *, has_codec: bool, seed: int = 0
    ) -> None:
        self.times: dict[str, SimulatedTime] = {}
        self._stragglers: Stragglers | None = None
        self._compute = self._encode = self._decode = 0.0
        self._measured = False
        if isinstance(settings, SimulatedTrainingSettings):
            self._compute = settings.compute
            self._stragglers = Stragglers(
                settings.straggler, settings.pauses, settings.workers, seed
            )
            self._measured = settings.codec_times == "measured"
            if has_codec:
                self._encode = elements * settings.encode_time
                self._decode = elements * settings.decode_time

    def add(self, step: Step, found: Mapping[str, NetworkCost], passes: int = 1) -> Step:
        """The step, with the simulated seconds from the beginning to its end.

        Args:
            step: what was trained. Of scope "none", nothing was coded.
            found: what its all-reduce took, by network.
            passes: how many gradients each worker has computed for it.
        """
        encode, decode, compute = self._encode, self._decode, passes * self._compute
        if step.scope == "none":
            encode = decode = 0.0
        if self._stragglers is not None and found:
            factors = self._stragglers.factors(step.iteration)
            compute = float(np.max(compute * factors + self._stragglers.pauses(step.iteration)))
        if self._measured and step.seconds is not None:
            encode, decode = step.seconds.encode, step.seconds.decode
        for name, taken in found.items():
            before = self.times.get(name) or SimulatedTime()
            self.times[name] = before.model_copy(
                update={
                    "compute": before.compute + compute,
                    "encode": before.encode + encode,
                    "network": before.network + taken.seconds,
                    "decode": before.decode + decode,
                    "lost": before.lost + taken.lost,
                    "dropped": before.dropped + taken.dropped,
                    "retransmissions": before.retransmissions + taken.retransmissions,
                    "fabric": taken.fabric or before.fabric,
                }
            )
        ends = {name: self.times[name].seconds for name in found}
        return step.model_copy(update={"simulated_seconds": ends})


# ----------------------------------------------------------------------------
# Baselines: sums without a switch program, around a ring of workers.


class TimedRing:
    """Times of ring all-reduces, packet by packet over TCP; each begins with the initial window.

    Workers are at one switch; more than 32 are in racks of 32, with a spine between them. On
    a network without loss all all-reduces take equally long, so only one is simulated.

    Args:
        settings: of the training.
        networks: by name.
        elements: of the gradient.
        baseline: as ``Baseline.of`` takes it, a ring; "" for float32.
        seed: of what is drawn by chance.

    Attributes:
        took: seconds of this machine so far, compilation included.
    """

    def __init__(
        self,
        settings: TrainingSettings,
        networks: Mapping[str, Network],
        elements: int,
        baseline: str = "",
        seed: int = 0,
    ) -> None:
        self._workers, self._networks, self._elements = settings.workers, networks, elements
        self._baseline = Baseline.of(baseline or "ring")
        self._hop_cost = 0.0
        if isinstance(settings, SimulatedTrainingSettings):
            self._hop_cost = (settings.encode_time + settings.decode_time) * SECOND
        self._seeds = itertools.count(seed << 32)
        self._known: dict[tuple[str, float], NetworkCost] = {}
        self.took = 0.0

    def take(self, lossless: float = 1.0) -> dict[str, NetworkCost]:
        """What the next all-reduce takes, by network.

        Args:
            lossless: by how many times gradients are coded shorter, where that is measured.
        """
        begun = time.perf_counter()
        seed, found = next(self._seeds), {}
        lossless = round(lossless, 2)  # so that few are simulated
        for name, network in self._networks.items():
            taken = self._known.get((name, lossless)) or self._simulate(network, seed, lossless)
            if is_steady(network):
                self._known[name, lossless] = taken
            found[name] = taken
        self.took += time.perf_counter() - begun
        return found

    def _simulate(self, network: Network, seed: int, lossless: float) -> NetworkCost:
        if self._workers == 1 or self._elements == 0:
            return NetworkCost()
        from innet.sim.baselines import simulate_messages  # noqa: PLC0415 - it brings Numba

        graph = self._baseline.graph(
            self._workers, self._elements, hop_cost=self._hop_cost, lossless=lossless
        )
        racks = -(-self._workers // BITMAP_BITS)
        run = simulate_messages(graph, network, racks=racks, seed=seed)
        counts = run.counts
        return NetworkCost(
            run.seconds, counts.lost, counts.dropped, run.retransmissions, run.fabric
        )
