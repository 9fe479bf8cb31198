"""The report of an all-reduce: packets, times, and whether the sum was exact.

Sums are compared with oracles in blocks, so that oracles need little memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from innet.allreduce.loop import Reduction
from innet.codecs import Codec, ExchangeOutcome
from innet.core.float_sums import FloatSum, are_possible, order_error
from innet.core.shards import Shards
from innet.core.vnmse import SquaredErrors
from innet.protocol import Counters
from innet.records import VERBATIM, Report, Seconds, Simulated
from innet.sim.network import SECOND
from innet.topology import Plan

if TYPE_CHECKING:
    from innet.sim.simulation import NetworkCounts, Simulation

_BLOCK = 1 << 17  # elements; one of float64 is a megabyte
ERRORS = ("max_abs_error", "max_abs_error_sent", "vnmse", "vnmse_sent")
"""Fields of a report about a sum's errors, those against the inputs and against what was sent."""


class PacketCounts(NamedTuple):
    """The counters of one worker that are in reports."""

    sent: int
    received: int
    bytes_sent: int
    retransmissions: int

    @classmethod
    def of(cls, counters: Counters) -> PacketCounts:
        """The current counts."""
        return cls(counters.sent, counters.received, counters.bytes_sent, counters.retransmissions)

    def since(self, before: PacketCounts) -> PacketCounts:
        """The difference to the counts ``before``."""
        return PacketCounts(*(now - then for now, then in zip(self, before, strict=True)))


class Rounds(NamedTuple):
    """What the codecs did in an all-reduce.

    Attributes:
        elements: of the gradient.
        rounds: over the network.
        network: seconds that they took.
        encode, decode: seconds of a worker's codec, the mean of all.
        infinite: elements of the sum beyond float32.
        details: what is to be reported, by name.
    """

    elements: int
    rounds: int
    network: float
    encode: float = 0.0
    decode: float = 0.0
    infinite: int = 0
    details: Mapping[str, Any] = MappingProxyType({})

    @classmethod
    def of(cls, reduction: Reduction) -> Rounds:
        """Those of the workers of this process."""
        outcomes = list(reduction.outcomes.values())
        without = {"without": list(reduction.without)} if reduction.without else {}
        return cls(
            elements=outcomes[0].sum.size,
            rounds=outcomes[0].rounds,
            network=reduction.network,
            encode=sum(each.encode_seconds for each in outcomes) / len(outcomes),
            decode=sum(each.decode_seconds for each in outcomes) / len(outcomes),
            infinite=outcomes[0].infinite,
            details={**outcomes[0].details, **without},
        )


def build_report(
    plan: Plan,
    codec: Codec | None,
    done: Rounds,
    packets: Iterable[PacketCounts],
    *,
    engine: str,
    transport: str,
    total_seconds: float,
    switch_seconds: float | None = None,
    simulated_seconds: float | None = None,
    switch_packets: int = 0,
) -> Report:
    """The report of an all-reduce, from what the workers of this process know.

    Exactness and selections need the outcomes of all workers; see ``comparison``.

    Args:
        plan: of the job, in the epoch in which the all-reduce ended.
        codec: of any of the workers; None if words travel as they are.
        done: what the codecs did.
        packets: counts of this all-reduce, for each of these workers.
        engine: the engine that ran the switch's program.
        transport: the transport that carried the packets.
        total_seconds: duration of the call.
        switch_seconds: seconds in the switches' programs; None if they run in other processes.
        simulated_seconds: seconds of virtual time; None for real networks.
        switch_packets: packets that the switches processed, if known.
    """
    counts = list(packets)
    layout = plan.layout
    chunks = -(-done.elements // layout.elements)
    hints = () if codec is None else codec.hints()
    return Report(
        exact=None,
        workers=len(plan.job.present),
        codec=VERBATIM if codec is None else codec.describe(),
        program=plan.switches[0].program.name,
        engine=engine,
        transport=transport,
        values_per_packet=layout.elements,
        elements=done.elements,
        rounds=done.rounds,
        packets_sent=sum(each.sent for each in counts),
        packets_received=sum(each.received for each in counts),
        bytes_sent=max(each.bytes_sent for each in counts),
        bytes_dense=chunks * layout.wire_size,
        retransmissions=sum(each.retransmissions for each in counts),
        seconds=Seconds(
            encode=done.encode,
            network=done.network,
            decode=done.decode,
            total=total_seconds,
            switch=switch_seconds,
            simulated=simulated_seconds,
        ),
        switch_packets=switch_packets,
        max_abs_error=None,
        max_abs_error_sent=None,
        infinite=done.infinite,
        details={**done.details, **({"hints": hints} if hints else {})},
    )


def followed_by(report: Report, other: Report, details: Mapping[str, Any]) -> Report:
    """The report of two steps that are one all-reduce, with these details.

    Args:
        report: of the first step, whose codec and elements are those of both.
        other: of the second.
        details: besides those of the first.
    """
    sums = ("rounds", "packets_sent", "packets_received", "bytes_sent", "retransmissions")
    seconds = report.seconds.model_copy(
        update={
            "network": report.seconds.network + other.seconds.network,
            "total": report.seconds.total + other.seconds.total,
        }
    )
    return report.model_copy(
        update={
            **{name: getattr(report, name) + getattr(other, name) for name in sums},
            "seconds": seconds,
            "details": {**report.details, **details},
        }
    )


def simulated(
    report: Report, counts: NetworkCounts, waited: float, window: int, simulation: Simulation
) -> Simulated:
    """The report's part on simulated time.

    Args:
        report: without it.
        counts: what has happened in the network during the all-reduce.
        waited: seconds until the last worker could send.
        window: chunks that a worker may have under way.
        simulation: the network.
    """
    elements = report.elements
    chunks = (report.packets_sent - report.retransmissions) / max(1, report.workers)
    seconds = counts.ticks / SECOND
    waited = min(max(0.0, waited), seconds)
    rate = elements / (seconds - waited) if seconds > waited else 0.0
    return Simulated(
        seconds=seconds,
        waited=waited,
        goodput_gbps=32 * rate / 1e9,
        elements_per_second=rate,
        packets=counts.packets,
        bytes=counts.bytes,
        lost=counts.lost,
        dropped=counts.dropped,
        marked=counts.marked,
        retransmissions=report.retransmissions,
        queue_bytes_max=simulation.queue_bytes_max(),
        utilization={
            name: busy / (links * counts.ticks) if counts.ticks else 0.0
            for name, (busy, links) in counts.busy.items()
        },
        busiest=counts.busiest(round((seconds - waited) * SECOND)),
        windows_max=chunks / (window * max(1, report.rounds)),
        assumed=simulation.assumed,
        pauses=counts.pauses,
        paused=counts.longest_pause,
        fabric=simulation.fabric,
    )


def comparison(
    gradients: Sequence[NDArray[np.float32]],
    outcomes: Sequence[ExchangeOutcome],
    *,
    verify: bool = True,
) -> dict[str, Any]:
    """Fields of a ``Report`` that need the outcomes of all workers, by name.

    Args:
        gradients: the workers', flat, shape (d,) each.
        outcomes: outcome of each worker.
        verify: compare the sum with oracles; otherwise only selections are counted.
    """
    selected, union = selections(outcomes, len(gradients[0]))
    fields: dict[str, Any] = {"selected": selected, "union": union}
    if verify:
        fields["exact"] = is_exact(outcomes)
        fields["order_error"] = _order_error(outcomes)
        fields |= errors(gradients, outcomes)
    return fields


def assembled(
    outcomes: Mapping[int, ExchangeOutcome], shards: Shards
) -> dict[int, ExchangeOutcome]:
    """The outcomes of a reduce-scatter as those of an all-reduce: each with all owners' parts.

    Args:
        outcomes: by worker.
        shards: whose parts are whose. Of owners without an outcome nobody has the sum.
    """
    first = next(iter(outcomes.values()))
    total = first.total
    integers, values = total.integers.copy(), first.sum.copy()
    for owner, piece in shards.pieces(first.contribution.limbs, total.indices):
        if owner in outcomes:
            integers[piece] = outcomes[owner].total.integers[piece]
    for owner in shards.owners:
        if owner in outcomes:
            values[shards.part(owner)] = outcomes[owner].sum[shards.part(owner)]
    whole = replace(total, integers=integers)
    return {worker: replace(each, total=whole, sum=values) for worker, each in outcomes.items()}


def counted(
    codecs: Sequence[Codec], outcomes: Sequence[ExchangeOutcome]
) -> dict[str, tuple[int | None, ...]]:
    """Details for a report: what the codec's paper counts, if that is not the bytes on the wire.

    Args:
        codecs: of some workers.
        outcomes: of each of them.

    Returns:
        ``counted_bits``: of these workers together, by layer, None for layers that are not counted;
        or nothing.
    """
    each = [codec.counted_bits(outcome) for codec, outcome in zip(codecs, outcomes, strict=True)]
    layers = [bits for bits in each if bits is not None]
    if not layers:
        return {}
    columns = zip(*layers, strict=True)
    return {"counted_bits": tuple(None if None in c else sum(b or 0 for b in c) for c in columns)}


class _Listed:
    """An array, dense or sparse, that is read in blocks.

    Args:
        indices: shape (m,), int32, ascending, distinct: indices of the values; None for all.
        values: shape (m,).
        size: elements of the array.
    """

    def __init__(self, indices: NDArray[np.int32] | None, values: NDArray[Any], size: int) -> None:
        self._indices, self._values = indices, values
        if indices is not None:
            edges = np.minimum(np.arange(0, size + _BLOCK, _BLOCK), size)
            self._ends = np.searchsorted(indices, edges.astype(indices.dtype))

    def add_to(self, total: NDArray[Any], begin: int) -> None:
        """Add the elements from ``begin``, a multiple of the block size, to ``total``."""
        if self._indices is None:
            total += self._values[begin : begin + total.size]
        else:
            first, last = self._ends[begin // _BLOCK : begin // _BLOCK + 2]
            # Indices are distinct, so each is added once.
            total[self._indices[first:last] - begin] += self._values[first:last]


def is_exact(outcomes: Sequence[ExchangeOutcome]) -> bool | None:
    """Whether every worker decoded the sum of the workers' integers, computed in int64.

    Of floats that the switch has added: False if workers decoded different sums, or sums that no
    order of arrival explains; otherwise None, as there is no one sum.
    """
    operation = outcomes[0].contribution.operation
    if isinstance(operation, FloatSum):
        first = outcomes[0].integer_sum
        same = all(np.array_equal(first, each.integer_sum) for each in outcomes)
        words = [each.contribution.integers for each in outcomes]
        return None if same and are_possible(operation, words, first) else False
    groups = [outcome.groups for outcome in outcomes]
    if any(isinstance(each.contribution.operation, FloatSum) for each in groups[0]):
        verdicts = [is_exact(of_group) for of_group in zip(*groups, strict=True)]
        return False if False in verdicts else None
    size = outcomes[0].contribution.size
    sent, decoded = [], []
    for outcome in outcomes:
        local, total = outcome.contribution, outcome.total
        if local.size != size or (total.indices is None and total.integers.size != size):
            return False
        sent.append(_Listed(local.indices, local.integers, size))
        decoded.append(_Listed(total.indices, total.integers, size))
    for begin in range(0, size, _BLOCK):
        oracle = _block(sent, begin, size, np.int64)
        for each in decoded:
            if not np.array_equal(_block([each], begin, size, np.int64), oracle):
                return False
    return True


def _order_error(outcomes: Sequence[ExchangeOutcome]) -> float | None:
    """How much sums depend on the order of arrival; None of integers, whose sums do not."""
    if groups := [outcome.groups for outcome in outcomes if outcome.groups]:
        each = [_order_error(of_group) for of_group in zip(*groups, strict=True)]
        return max((error for error in each if error is not None), default=None)
    operation = outcomes[0].contribution.operation
    if not isinstance(operation, FloatSum):
        return None
    return order_error(operation, [outcome.contribution.integers for outcome in outcomes])


def errors(
    gradients: Sequence[NDArray[np.float32]], outcomes: Sequence[ExchangeOutcome]
) -> dict[str, float]:
    """Errors of the decoded sum, by the names of a ``Report``'s fields.

    Args:
        gradients: the workers', flat, shape (d,) each.
        outcomes: outcome of each worker.

    Returns:
        The largest difference to the sum of the inputs and to that of sent values, and the vNMSE.
    """
    size, applied = len(gradients[0]), outcomes[0].applied
    given = [_Listed(None, gradient, size) for gradient in gradients]
    picked = [_Listed(outcome.indices, outcome.sent, size) for outcome in outcomes]
    counting = None if applied is None else _Listed(applied, np.ones(applied.size, np.bool_), size)
    largest = dict.fromkeys(ERRORS[:2], 0.0)
    squares = {name: SquaredErrors() for name in ERRORS[2:]}
    for begin in range(0, size, _BLOCK):
        inputs = _block(given, begin, size, np.float64)
        sent = _block(picked, begin, size, np.float64)
        if counting is not None:
            sent[~_block([counting], begin, size, np.bool_)] = 0.0
        decoded = outcomes[0].sum[begin : begin + _BLOCK]
        for name, squared, true in zip(largest, squares.values(), (inputs, sent), strict=True):
            difference = decoded - true
            squared.add(difference, true)
            np.abs(difference, out=difference)
            largest[name] = max(largest[name], float(difference.max()))
    return largest | {name: each.vnmse for name, each in squares.items()}


def _block(arrays: Sequence[_Listed], begin: int, size: int, dtype: DTypeLike) -> NDArray[Any]:
    """The sum of the arrays, from ``begin`` to the end of the block."""
    total = np.zeros(min(_BLOCK, size - begin), dtype)
    for each in arrays:
        each.add_to(total, begin)
    return total


def selections(outcomes: Sequence[ExchangeOutcome], size: int) -> tuple[int, int]:
    """Elements selected by all workers together, and coordinates selected by at least one.

    Args:
        outcomes: outcome of each worker.
        size: elements of the gradient.
    """
    chosen = np.zeros(size, np.bool_)
    selected = 0
    for outcome in outcomes:
        indices = slice(None) if outcome.indices is None else outcome.indices
        chosen[indices] = True
        selected += size if outcome.indices is None else outcome.indices.size
    return selected, int(np.count_nonzero(chosen))
