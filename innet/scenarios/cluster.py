"""A cluster that jobs share as they come and go: its hosts, its slots, and who gets them when.

Nothing here takes time or sends packets: ``innet.scenarios.jobs`` says when jobs arrive and end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from innet.core.settings import Placement, Queueing


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks for.

    Attributes:
        workers: hosts.
        slots: of each switch, a power of two.
    """

    workers: int
    slots: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a running job has.

    Attributes:
        hosts: ascending.
        slot_base: its first slot, a multiple of its slots.
    """

    hosts: tuple[int, ...]
    slot_base: int


class Cluster:
    """Hosts in racks, slots, and the jobs that wait for them.

    Args:
        racks: the switch of each host.
        slots: of each switch. A job has the same ones at all of its switches.
        placement: which of the free hosts a job gets. packed: those of the rack that it fills
            best, else of as few racks as possible; spread: as many racks as possible; random.
        queueing: fifo: a job begins after all that arrived before it have begun; backfill: each
            that fits begins.
        seed: of random placement.
    """

    def __init__(
        self, racks: Sequence[str], slots: int, placement: Placement, queueing: Queueing, seed: int
    ) -> None:
        self._racks, self._slots = racks, slots
        self._placement, self._queueing = placement, queueing
        self._rng = np.random.default_rng([seed, 0xC1])
        self._free = set(range(len(racks)))
        self._ranges: dict[int, range] = {}  # of slots, of each running job
        self._running: dict[int, Share] = {}
        self._waiting: list[tuple[int, Demand]] = []

    @property
    def hosts_busy(self) -> int:
        """Hosts that have a worker."""
        return len(self._racks) - len(self._free)

    @property
    def slots_used(self) -> int:
        """Slots of each switch that running jobs have."""
        return sum(map(len, self._ranges.values()))

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._waiting)

    def arrive(self, job: int, demand: Demand) -> None:
        """Let a job wait; ``begin`` says when it need not."""
        self._waiting.append((job, demand))

    def take(self, job: int, share: Share, slots: int) -> None:
        """Let a job have this share, which is free."""
        self._free.difference_update(share.hosts)
        self._ranges[job] = range(share.slot_base, share.slot_base + slots)
        self._running[job] = share

    def end(self, job: int) -> None:
        """Let others have what a job had."""
        self._free.update(self._running.pop(job).hosts)
        del self._ranges[job]

    def begin(self) -> list[tuple[int, Share]]:
        """The jobs that can begin now, in the order in which they arrived, with what they get."""
        begun: list[tuple[int, Share]] = []
        left: list[tuple[int, Demand]] = []
        for job, demand in self._waiting:
            base = self._base_for(demand.slots)
            blocked = bool(left) and self._queueing == "fifo"
            if blocked or base is None or demand.workers > len(self._free):
                left.append((job, demand))
                continue
            share = Share(self._place(demand.workers), base)
            self.take(job, share, demand.slots)
            begun.append((job, share))
        self._waiting = left
        return begun

    def _base_for(self, slots: int) -> int | None:
        """The first multiple of ``slots`` from which on so many are free; None if there is none."""
        for base in range(0, self._slots - slots + 1, slots):
            taken = self._ranges.values()
            if all(base >= each.stop or base + slots <= each.start for each in taken):
                return base
        return None

    def _place(self, workers: int) -> tuple[int, ...]:
        """Free hosts for a job."""
        if self._placement == "random":
            chosen = self._rng.choice(sorted(self._free), workers, replace=False)
            return tuple(sorted(chosen.tolist()))
        racks: dict[str, list[int]] = defaultdict(list)
        for host in sorted(self._free):
            racks[self._racks[host]].append(host)
        if self._placement == "packed":
            enough = [each for each in racks.values() if len(each) >= workers]
            if enough:
                return tuple(min(enough, key=len)[:workers])
            in_turn = [host for each in sorted(racks.values(), key=len)[::-1] for host in each]
            return tuple(sorted(in_turn[:workers]))
        # Spread: one host after the other from the rack that has given fewest, of these from the
        # one with most hosts left.
        given = dict.fromkeys(racks, 0)
        found: list[int] = []
        while len(found) < workers:
            rack = min(
                (each for each in racks if racks[each]),
                key=lambda each: (given[each], -len(racks[each])),
            )
            found.append(racks[rack].pop(0))
            given[rack] += 1
        return tuple(sorted(found))
