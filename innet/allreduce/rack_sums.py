"""Sums within racks: each rack is a job of its own at its switch, and nothing leaves it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from innet.allreduce.loop import Reduction, RoundResult, Vector, reduce_loop, run_loops
from innet.allreduce.report import ERRORS, Rounds, comparison, counted, selections
from innet.allreduce.sizes import BY_CODEC, combined, sized
from innet.codecs import Codec, CodecSpec, ExchangeOutcome, ModelLayers, build_codec
from innet.core.errors import StalledError
from innet.core.reduce_op import Segment
from innet.records import Report
from innet.topology import EmulatedNetwork, WorkerEnd, check_codec
from innet.wire import HeaderFlag

_RACK_SEED = 0x7261636B

Racks = Sequence[Mapping[int, ExchangeOutcome]]
"""The outcomes of each rack, by worker."""


class RackSums:
    """The racks of a ``Collective``, with codecs of their own.

    Args:
        network: whose racks they are.
        codec: of sums within racks.
        workers: of the job.
        layers: as for ``build_codec``.
        seed: of the job.
        attempts: how often a stalled all-reduce is tried.
        threads: that run the codecs of large gradients.
        thin: packets carry no values.

    Attributes:
        codecs: of all workers, by index.

    Raises:
        CompositionError: the codec's parts do not fit each other, or the switches' sums.
    """

    def __init__(
        self,
        network: EmulatedNetwork,
        codec: CodecSpec,
        *,
        workers: int,
        layers: ModelLayers | None,
        seed: int,
        attempts: int,
        threads: int,
        thin: bool,
    ) -> None:
        # Another seed, so that what is drawn by chance for a rack is not drawn for all again.
        own_seed = (seed + _RACK_SEED) % 2**63
        self.codecs: list[Codec] = [
            build_codec(codec, seed=own_seed, worker=worker, layers=layers)
            for worker in range(workers)
        ]
        for rack in network.racks:
            check_codec(rack.plan, self.codecs[rack.workers[0]])
        self._network = network
        self._attempts = attempts
        self._threads = threads
        self._thin = thin

    def members(self) -> dict[int, tuple[int, ...]]:
        """The workers of each rack who take part, by position in the network's ``racks``; no empty
        rack.
        """
        absent = self._network.plan.job.absent
        found = {
            number: tuple(worker for worker in rack.workers if worker not in absent)
            for number, rack in enumerate(self._network.racks)
        }
        return {number: workers for number, workers in found.items() if workers}

    def adopt(self, worker: int, present: Sequence[int]) -> None:
        """Let a worker that comes back catch up with another one of its rack."""
        for rack in self._network.racks:
            others = [one for one in rack.workers if one in present]
            if worker in rack.workers and others:
                self.codecs[worker].adopt(self.codecs[others[0]].state_dict())

    def check(self, flat: Mapping[int, Vector]) -> None:
        """Refuse gradients that some codec would refuse; none has changed."""
        for worker, vector in flat.items():
            self.codecs[worker].check(vector)

    def reduce(self, flat: Mapping[int, Vector]) -> list[dict[int, ExchangeOutcome]]:
        """The outcomes of each rack, by worker. After an error no codec has changed.

        Args:
            flat: gradients of the workers who take part, checked; shape (d,).
        """
        states = {worker: self.codecs[worker].snapshot() for worker in flat}
        attempts = self._attempts
        while True:
            loops = {
                number: reduce_loop(
                    {worker: self.codecs[worker] for worker in workers},
                    {worker: flat[worker] for worker in workers},
                    workers,
                    checked=True,
                    threads=self._threads,
                )
                for number, workers in self.members().items()
            }
            try:
                reductions = run_loops(loops, self._combine)
            except BaseException as error:
                # Racks that were done take part again with the same gradients.
                for worker, state in states.items():
                    self.codecs[worker].load_state_dict(state)
                attempts -= 1
                if not attempts or not isinstance(error, StalledError):
                    raise
                self._network.begin_epoch(self._network.plan.job.absent)
            else:
                return [reductions[number].outcomes for number in loops]

    def _combine(self, rounds: Mapping[int, Mapping[int, list[Segment]]]) -> dict[int, RoundResult]:
        """One round of several racks, by position in the network's ``racks``."""
        network = self._network
        begun = network.now
        for segments in rounds.values():
            for worker, each in segments.items():
                network.rack_workers[worker].start(sized(each) if self._thin else each, begun)
        network.run_racks(rounds)
        if self._thin:
            return {number: combined(segments) for number, segments in rounds.items()}
        return {
            number: result_of({worker: network.rack_workers[worker] for worker in segments})
            for number, segments in rounds.items()
        }

    def rounds(self, racks: Racks, seconds: float) -> Rounds:
        """What the codecs of all racks did, for one report.

        Args:
            racks: their outcomes.
            seconds: that all racks took together.
        """
        outcomes = {worker: outcome for rack in racks for worker, outcome in rack.items()}
        codecs = [self.codecs[worker] for worker in outcomes]
        details: dict[str, Any] = {"scope": "rack", "racks": [len(rack) for rack in racks]}
        if self._thin:
            details["sizes"] = BY_CODEC
        details |= counted(codecs, list(outcomes.values()))
        done = Rounds.of(Reduction(outcomes, network=seconds))
        coding = (done.encode + done.decode) * len(outcomes)
        return done._replace(
            rounds=max(outcome.rounds for outcome in outcomes.values()),
            network=max(0.0, seconds - coding),
            infinite=sum(next(iter(rack.values())).infinite for rack in racks),
            details=details,
        )


def result_of(ends: Mapping[int, WorkerEnd]) -> RoundResult:
    """The words that these workers have received in a round, by worker."""
    return RoundResult(
        {worker: end.results() for worker, end in ends.items()},
        overflowed=any(end.result_flags & HeaderFlag.OVERFLOW for end in ends.values()),
    )


def compared(report: Report, racks: Racks, flat: Mapping[int, Vector], *, verify: bool) -> Report:
    """The report with what needs the outcomes of all racks: exact where each rack's sum is."""
    each = [
        comparison([flat[worker] for worker in rack], list(rack.values()), verify=verify)
        for rack in racks
    ]
    outcomes = [outcome for rack in racks for outcome in rack.values()]
    selected, union = selections(outcomes, report.elements)
    found: dict[str, Any] = {"selected": selected, "union": union}
    if verify:
        found["exact"] = all(one["exact"] for one in each)
        for name in ERRORS:
            found[name] = max(one[name] for one in each)
    return report.model_copy(update=found)
