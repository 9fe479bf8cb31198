"""One worker of a job in its own process: one codec, one slot client, any transport.

    plan = make_plan("slots", 64, Request(workers=4))
    with connect(plan, worker=0) as transport:
        total, report = Worker(plan, 0, codec="lhc", transport=transport).all_reduce(gradient)

``innet.allreduce.collective`` is the same for all workers of a job in one process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.dtypes import Gradient, like, to_float32
from innet.allreduce.gathering import Array, Gathering, array_of, bytes_of
from innet.allreduce.loop import RoundResult, Vector, named, reduce_loop, run_loop
from innet.allreduce.narrow_results import NarrowResults
from innet.allreduce.report import PacketCounts, Rounds, build_report, counted, followed_by
from innet.codecs import (
    Codec,
    CodecSpec,
    ExchangeOutcome,
    ModelLayers,
    SumOptions,
    build_codec,
    check_floats,
)
from innet.codecs.checks import GradientStats
from innet.codecs.decode_once import decoding_by
from innet.core.errors import (
    GradientError,
    InputError,
    StalledError,
    StateError,
)
from innet.core.not_copyable import NotCopyable
from innet.core.numbers import FLOAT32_INFINITY, require_int
from innet.core.reduce_op import CollectiveOp, Segment
from innet.core.settings import program_with_owners
from innet.core.shards import Shards, listed_sizes
from innet.core.threads import ExclusiveUse
from innet.network import ClockedTransport, Faults, FaultyTransport, Transport, drive
from innet.protocol import Timing, network_timing
from innet.records import Report
from innet.topology import (
    Plan,
    PlannedHost,
    Probe,
    RegisterReader,
    WorkerEnd,
    aggregation_of,
    check_codec,
    check_conditions,
)
from innet.transport.job_memory import DecodeOncePerHost
from innet.transport.socket_loop import socket_loop
from innet.transport.transports import HostTransport, provider_of
from innet.wire import HeaderFlag

TIMING = network_timing()
"""Timeouts for real networks, whose hosts may wait longer for a processor than for packets."""


Renew: TypeAlias = Callable[[tuple[int, ...]], Plan]
"""(workers to continue without) -> the plan of the job's next epoch. It returns when all others
that take part have requested it, and the switches have admitted it."""


def connect(
    plan: Plan, worker: int, interface: str | None = None, *, transport: str | None = None
) -> closing[HostTransport]:
    """Open a worker's connection to its switch, by sockets of this network namespace.

    Args:
        plan: of the job. Its layout determines UDP or raw Ethernet.
        worker: index of the worker.
        interface: network interface for raw Ethernet.
        transport: the name of another transport; see ``innet.transport.transports``.

    Raises:
        InputError: no such worker or transport, or raw Ethernet without an interface.
        NetworkError: an address or interface that this machine does not have, or not root.
    """
    _check_worker(plan, worker)
    return connect_host(plan, plan.workers[worker], interface, transport=transport)


def _check_worker(plan: Plan, worker: int) -> None:
    if not 0 <= require_int(worker, "the worker's index") < len(plan.workers):
        raise InputError(f"there is no worker {worker}; the job has {len(plan.workers)}.")


def _check_options(options: object) -> None:
    if not isinstance(options, SumOptions):
        raise InputError(f"the options are {options!r}; give an innet.codecs.SumOptions.")
    stats: object = options.stats
    if stats is not None and not (
        isinstance(stats, GradientStats) and 0 <= stats.magnitude < FLOAT32_INFINITY
    ):
        raise InputError(
            f"the options' stats are {stats!r}; give the first of what Codec.examine returned for "
            "this gradient, if it is finite, or leave them out."
        )
    factor: object = options.factor
    if not isinstance(factor, Real):
        raise InputError(f"the options' factor is {factor!r}; give a number, or leave it out.")


def connect_host(
    plan: Plan, host: PlannedHost, interface: str | None = None, *, transport: str | None = None
) -> closing[HostTransport]:
    """The same for any host of the plan, such as the parameter server.

    Raises:
        InputError: no such transport, or raw Ethernet without an interface.
        NetworkError: the address or the interface cannot be used.
    """
    provider = provider_of(transport or plan.layout.framing)
    return closing(provider.connect(host.endpoint, host.peer, plan.layout, interface))


class Worker(NotCopyable):
    """One worker.

    Args:
        plan: the job and its network, the same for all workers.
        worker: index of this worker.
        codec: the same for all workers; see ``innet.codecs.build_codec``.
        transport: the connection to the switch.
        switch: name of the switch, for the report.
        faults: faults of this worker's packets, in both directions, added in this process.
        timing: timeouts of this worker, in seconds of the transport's clock. With
            ``partial_after`` and ``renew``, an all-reduce continues without workers who are later
            than that.
        layers: of the gradient; see ``innet.codecs.build_codec``.
        seed: seed of the codec's hashes, the same for all workers, and of the faults.
        renew: begins the job's next epoch for all workers. Without it a stall, or a sum that lacks
            a worker, is an error.
        attempts: how often a stalled all-reduce is tried, each time in the next epoch.
        decode_once: workers that share memory with the switch decode equal words once for all of
            their machine; see ``innet.transport.job_memory``. Results are the same either way.
        results: a number format in which sums go back to the workers, the same for all of them; see
            ``Collective``.
        keep_integers: ``outcome`` has the sum's integers (``integer_sum``) of every codec. Without
            it, those of dense gradients become floats as they arrive, which is faster.

    Attributes:
        plan: the current state of the job.
        outcome: outcome of the last all-reduce, to compare workers.

    Raises:
        InputError: no such worker; invalid faults or timing; several attempts without ``renew``; or
            window control by congestion marks, which the transport does not carry.
        CompositionError: the codec's parts do not fit each other, or the switches' sums.
    """

    instead_of_a_copy = "make it in the process in which it takes part"

    def __init__(
        self,
        plan: Plan,
        worker: int,
        *,
        codec: CodecSpec,
        transport: ClockedTransport,
        switch: str = "unknown",
        faults: Faults | None = None,
        timing: Timing | None = None,
        layers: ModelLayers | None = None,
        seed: int = 0,
        renew: Renew | None = None,
        attempts: int = 1,
        decode_once: bool = True,
        keep_integers: bool = False,
        results: str | None = None,
    ) -> None:
        attempts = require_int(attempts, "the number of attempts")
        if attempts < 1 or (attempts > 1 and renew is None):
            raise InputError(
                f"{attempts} attempts; one is the least, and more need renew, which leads the "
                "workers to the job's next epoch."
            )
        _check_worker(plan, worker)
        check_conditions(faults, timing)
        self.plan = plan
        self.worker = worker
        self.outcome: ExchangeOutcome | None = None
        self.codec: Codec = build_codec(codec, seed=seed, worker=worker, layers=layers)
        check_codec(plan, self.codec)
        self._clock = transport.now
        self._name = transport.name
        self._transport: Transport = transport
        if faults is not None:
            rng = np.random.default_rng([seed, worker])
            self._transport = FaultyTransport(transport, faults, rng)
            self._name = f"{transport.name} with faults"
        self._switch = switch
        self._timing = timing or TIMING
        if self._timing.window_control == "aimd" and not getattr(transport, "carries_ecn", True):
            raise InputError(
                "the window control aimd follows marks of congestion, and a switch service gives "
                "none: it sees no IPv4 headers and knows of no queue. Leave it fixed."
            )
        self._renew = renew
        self._attempts = attempts
        self._bare = transport
        self._decode_once = decode_once
        self._keep_integers = keep_integers
        self._decoding: DecodeOncePerHost | None = None
        self._results = None if results is None else NarrowResults(results)
        if self._results is not None:
            if renew is not None:
                raise InputError(
                    "results in another format are lost with their owner, so nobody can go on "
                    "without it; leave renew or results out."
                )
            self._check_owners("all-reduce with results in another format")
            self.codec.check_sharded()
        self._completed = 0  # all-reduces
        self._failed: str | None = None
        self._one = ExclusiveUse(f"worker {worker}")
        self._end = self._new_end(plan)
        self._socket_loop = socket_loop(self._end, self._transport)

    def all_reduce(
        self, gradient: Gradient, *, codec: Codec | None = None
    ) -> tuple[Gradient, Report]:
        """Sum this worker's gradient with the others'. All workers call it equally often.

        All or nothing, as in ``Collective.all_reduce``: if a sum lacks a worker, the others repeat
        the all-reduce without it, in the next epoch and with their codecs restored. All of them
        have received the same sums, so they agree on whom to leave out.

        Args:
            gradient: of the same shape and dtype on all workers: float32, float16 or bfloat16, an
                array or a tensor of PyTorch. It is not modified.
            codec: used instead of the worker's codec, for workers that reduce several tensors, each
                with its codec state. It must pass ``innet.topology.check_codec``.

        Returns:
            The decoded sum, of that shape, dtype and kind, and this worker's report. Fields that
            need all workers' outcomes are None or 0; see ``innet.allreduce.report``. If late
            workers were left out, ``report.details["without"]`` names them.

        Raises:
            GradientError: a wrong dtype, or a value that is not finite; nothing was sent.
            StalledError: it waited too long for a slot, which the message names; or sums lack
                workers and there is no ``renew``; or the others continued without this worker.
            NetworkError: the interface went away.
            StateError: the residual has another size, and nothing was sent; or an earlier
                all-reduce failed half-way and ``begin_epoch`` was not called; or another one is
                under way in another thread.
        """
        with self._one.taken():
            self._check_sound()
            floats: Any = to_float32(gradient, self.worker)
            check_floats(floats, self.worker)
            flat = floats.reshape(-1)
            if self._results is not None:
                total, report = self._narrow_all_reduce(flat, codec, self._results)
            else:
                outcome, report = self._all_reduce(flat, codec, SumOptions())
                total = outcome.sum
            return like(total.reshape(floats.shape), gradient), report

    def _narrow_all_reduce(
        self, flat: Vector, codec: Codec | None, results: NarrowResults
    ) -> tuple[Vector, Report]:
        """An all-reduce by a reduce-scatter and an all-gather of what owners round."""
        present = self.plan.job.present
        shards = Shards.of(flat.size, present)
        part = shards.part(self.worker)
        results.check(part.stop - part.start)
        outcome, report = self._all_reduce(flat, codec, SumOptions(shards=shards))
        data, rest = results.narrow(outcome.sum[shards.part(self.worker)])
        parts = [shards.part(worker) for worker in present]
        lengths = [part.stop - part.start for part in parts]
        sizes = [results.size(length) for length in lengths]
        gathering = Gathering(present, tuple(sizes))
        segments = gathering.segments(self.worker, data)
        words, gathered = self._sent_verbatim(segments, flat.size, "all-gather")
        joined = gathering.joined(self.worker, data, words)
        pieces = np.split(joined, np.cumsum(sizes)[:-1])
        results.commit(rest)
        self._completed -= 1  # both were one all-reduce
        total = np.concatenate(
            [results.widen(piece, length) for piece, length in zip(pieces, lengths, strict=True)]
        )
        return total, followed_by(report, gathered, {"results": results.name})

    def reduce_scatter(
        self,
        gradient: Gradient,
        *,
        sizes: Sequence[int] | None = None,
        codec: Codec | None = None,
    ) -> tuple[Gradient, Report]:
        """Sum the workers' gradients, and get this worker's part of the sum.

        All workers call it equally often, as ``all_reduce``, with equal sizes.

        Args:
            gradient: as for ``all_reduce``. A part is of the gradient with its elements in a row.
            sizes: elements of the part of each worker that takes part, in their order; by default
                they differ by one at most.
            codec: as for ``all_reduce``.

        Returns:
            This worker's part, shape (size,), and its report.

        Raises:
            InputError: the program knows no reduce-scatter, or wrong sizes; nothing was sent.
            CompositionError: no worker can decode a part of this codec's sum alone; says why.
            InnetError: as ``all_reduce``.
        """
        return self._reduce_to(gradient, self.plan.job.present, sizes, codec, "reduce-scatter")

    def reduce(
        self, gradient: Gradient, root: int = 0, *, codec: Codec | None = None
    ) -> tuple[Gradient | None, Report]:
        """Sum the workers' gradients for one of them, ``root``.

        Returns:
            The sum, as of ``all_reduce``, at the root, None elsewhere; and this worker's report.

        Raises:
            InnetError: as ``reduce_scatter``; ``root`` takes no part.
        """
        self._check_present(root)
        total, report = self._reduce_to(gradient, (root,), None, codec, "reduce")
        if self.worker != root:
            return None, report
        given: Any = gradient
        found: Any = total
        return found.reshape(given.shape), report

    def _reduce_to(
        self,
        gradient: Gradient,
        owners: tuple[int, ...],
        sizes: Sequence[int] | None,
        codec: Codec | None,
        name: str,
    ) -> tuple[Gradient, Report]:
        """Sum for owners of parts; this worker's part, shape (size,)."""
        with self._one.taken():
            self._check_sound()
            self._check_owners(name)
            (self.codec if codec is None else codec).check_sharded()
            floats: Any = to_float32(gradient, self.worker)
            check_floats(floats, self.worker)
            shards = Shards.of(floats.size, owners, sizes)
            options = SumOptions(shards=shards)
            outcome, report = self._all_reduce(floats.reshape(-1), codec, options, name)
            return like(outcome.sum[shards.part(self.worker)], gradient), report

    def all_gather(
        self, shard: Array, *, sizes: Sequence[int] | None = None
    ) -> tuple[Array, Report]:
        """Get the arrays of all workers, bit for bit.

        All workers call it equally often, as ``all_reduce``, with arrays of one dtype.

        Args:
            shard: this worker's array, of any dtype.
            sizes: elements of the array of each worker that takes part, in their order; by default
                all have as many as this one.

        Returns:
            The arrays one after the other, shape (n,), and this worker's report.

        Raises:
            InputError: the program knows no all-gather, or a wrong size; nothing was sent.
            StalledError, NetworkError, StateError: as ``combine``.
        """
        given: Any = shard
        present = self.plan.job.present
        own = bytes_of(shard, self.worker)
        if sizes is None:
            sizes = [len(given.reshape(-1))] * len(present)
        sizes = listed_sizes(sizes)
        item = given.dtype.itemsize
        Shards.of(sum(sizes), present, sizes)  # refuses sizes that are none
        gathering = Gathering(present, tuple(size * item for size in sizes))
        received, report = self._gather(gathering, own, item, "all-gather")
        return array_of(received, shard), report

    def broadcast(self, array: Array, root: int = 0) -> tuple[Array, Report]:
        """Get one worker's array, bit for bit.

        All workers call it equally often, as ``all_reduce``.

        Args:
            array: the root's; of others one of its shape and dtype, which is not read.
            root: whose array it is.

        Returns:
            The array, and this worker's report.

        Raises:
            InnetError: as ``all_gather``; ``root`` takes no part.
        """
        self._check_present(root)
        given: Any = array
        own = bytes_of(array, self.worker)
        gathering = Gathering((root,), (own.size,))
        mine = own if self.worker == root else None
        received, report = self._gather(gathering, mine, given.dtype.itemsize, "broadcast")
        found: Any = array_of(received, array)
        return found.reshape(given.shape), report

    def barrier(self) -> Report:
        """Wait until all workers have come here: a packet without values each way.

        Raises:
            InputError: the program knows no barrier.
            StalledError, NetworkError, StateError: as ``combine``.
        """
        owner = self.plan.job.present[0]
        word = Segment(CollectiveOp.BARRIER, np.zeros(1, np.int32), owner)
        return self._verbatim([word], 0, "barrier")[1]

    def _gather(
        self, gathering: Gathering, own: NDArray[np.uint8] | None, item: int, name: str
    ) -> tuple[NDArray[np.uint8], Report]:
        """The bytes of all owners, of elements of ``item`` bytes."""
        segments = gathering.segments(self.worker, own)
        words, report = self._verbatim(segments, sum(gathering.sizes) // item, name)
        return gathering.joined(self.worker, own, words), report

    def _verbatim(
        self, segments: list[Segment], elements: int, name: str
    ) -> tuple[list[NDArray[np.int32]], Report]:
        """One round of words that travel as they are."""
        with self._one.taken():
            self._check_sound()
            self._check_owners(name)
            return self._sent_verbatim(segments, elements, name)

    def _sent_verbatim(
        self, segments: list[Segment], elements: int, name: str
    ) -> tuple[list[NDArray[np.int32]], Report]:
        begun = time.perf_counter()
        before = PacketCounts.of(self._end.counters)
        words = self._combine(segments)
        self._completed += 1
        seconds = time.perf_counter() - begun
        report = build_report(
            self.plan,
            None,
            Rounds(elements, 1, seconds, details={"collective": name}),
            [PacketCounts.of(self._end.counters).since(before)],
            engine=self._switch,
            transport=self._name,
            total_seconds=seconds,
        )
        return words, report

    def _check_owners(self, name: str) -> None:
        if not self.plan.layout.has_owners:
            program = self.plan.switches[0].program.name
            raise InputError(
                f"program {program} knows no {name}; have the switch run "
                f"{program_with_owners(program)}."
            )

    def _check_present(self, worker: int) -> None:
        present = self.plan.job.present
        if require_int(worker, "the root") not in present:
            raise InputError(f"worker {worker} takes no part; those who do are {present}.")

    def all_reduce_floats(
        self, gradient: Vector, options: SumOptions, *, codec: Codec | None = None
    ) -> tuple[ExchangeOutcome, Report]:
        """``all_reduce`` for callers that know more of the gradient, or need it no longer.

        Args:
            gradient: shape (d,), float32.
            options: what is known of it, and may be done with it. It is not overwritten if the
                worker has ``renew``, as another epoch would need it. With shards it is a
                reduce-scatter, or a reduce.
            codec: as for ``all_reduce``.

        Returns:
            The outcome with the sum, and what is left to multiply it by; and the report.

        Raises:
            InputError: the options have another type, or hold something else than they should;
                nothing was sent.
            InnetError: as ``all_reduce``, and ``reduce_scatter``.
        """
        _check_options(options)
        name = None
        with self._one.taken():
            self._check_sound()
            if options.shards is not None:
                to_all = options.shards.owners == self.plan.job.present
                name = "reduce-scatter" if to_all else "reduce"
                self._check_owners(name)
                (self.codec if codec is None else codec).check_sharded()
            check_floats(gradient, self.worker)
            return self._all_reduce(gradient, codec, options, name)

    def _all_reduce(
        self,
        gradient: Vector,
        codec: Codec | None,
        options: SumOptions,
        name: str | None = None,
    ) -> tuple[ExchangeOutcome, Report]:
        codec = self.codec if codec is None else codec
        begun = time.perf_counter()
        before = PacketCounts.of(self._end.counters)
        loop = reduce_loop(
            {self.worker: codec},
            {self.worker: np.ascontiguousarray(gradient)},
            self.plan.job.present,
            attempts=self._attempts,
            has_epochs=self._renew is not None,
            options=replace(
                options,
                keep_integers=options.keep_integers or self._keep_integers,
                overwrite=options.overwrite and self._renew is None,
            ),
        )
        try:
            with decoding_by(self._shared_decoding()):
                reduction = run_loop(loop, self._round, self._new_epoch)
        except BaseException as error:
            refused = isinstance(error, (GradientError, StateError))
            unsent = self._end.counters.sent == before.sent
            self._failed = None if refused and unsent else type(error).__name__
            raise
        self.outcome = reduction.outcomes[self.worker]
        self._completed += 1
        done = Rounds.of(reduction)
        details = {**done.details, **counted([codec], [self.outcome])}
        if name is not None:
            details["collective"] = name
        report = build_report(
            self.plan,
            codec,
            done._replace(details=details),
            [PacketCounts.of(self._end.counters).since(before)],
            engine=self._switch,
            transport=self._name,
            total_seconds=time.perf_counter() - begun,
        )
        return self.outcome, report

    def _shared_decoding(self) -> DecodeOncePerHost | None:
        """What this worker shares with others of its machine, if there are others."""
        memory = getattr(self._bare, "job_memory", None) if self._decode_once else None
        if memory is None or len(self.plan.job.present) < 2:
            self._decoding = None
        elif self._decoding is None or self._decoding.memory is not memory:
            self._decoding = DecodeOncePerHost(memory)
        return self._decoding

    def combine(self, segments: Sequence[Segment]) -> list[NDArray[np.int32]]:
        """One round without a codec: combine words with the other workers'.

        All workers call it at the same point, with segments of the same operations and lengths.

        Returns:
            The combined words, one array per segment.

        Raises:
            StalledError: it waited too long for a slot, or words lack workers who were late.
            NetworkError: the interface went away.
            StateError: an earlier round failed, and ``begin_epoch`` was not called; or one is under
                way in another thread.
        """
        with self._one.taken():
            return self._combine(segments)

    def _combine(self, segments: Sequence[Segment]) -> list[NDArray[np.int32]]:
        self._check_sound()
        try:
            result = self._round({self.worker: list(segments)})
        except BaseException as error:
            self._failed = type(error).__name__
            raise
        if result.late or result.is_partial:
            self._failed = "late workers"
            raise StalledError(f"this round lacks {named(result.late)}, who were late.")
        return result.words[self.worker]

    def begin_epoch(self, plan: Plan) -> None:
        """Continue in another epoch of the job: after a failure, or with other workers.

        The codec keeps its residual. A failed all-reduce has no effect. Workers must agree on the
        number of completed all-reduces, or they get no sums from each other.

        Args:
            plan: the plan of the epoch, on the same transport, the same for all workers.

        Raises:
            InputError: this worker is absent in it.
        """
        end = self._new_end(plan)
        end.counters = self._end.counters
        self._end = end
        self._socket_loop = socket_loop(self._end, self._transport)
        self.plan = plan
        self._failed = None

    def _new_end(self, plan: Plan) -> WorkerEnd:
        host = plan.workers[self.worker]
        end = aggregation_of(plan.aggregation).worker_end(plan, host, self._timing)
        end.all_or_none = True
        return end

    def diagnose(self, read: RegisterReader) -> str | None:
        """After a ``StalledError``: the workers it waits for, from the switches' registers.

        Args:
            read: (name of a switch, name of a register, index) -> value of the cell.
        """
        reader = aggregation_of(self.plan.aggregation).slot_reader(self.plan, Probe(read))
        found = self._end.diagnose(reader)
        return None if found is None else str(found)

    def _check_sound(self) -> None:
        if self._failed is not None:
            raise StateError(
                f"an earlier all-reduce failed half-way ({self._failed}); begin a new job, or go "
                "on under the next epoch (begin_epoch)."
            )

    def _round(self, segments: Mapping[int, list[Segment]]) -> RoundResult:
        """One round over the transport."""
        end = self._end
        now = self._clock()
        end.label = self._completed
        end.start(segments[self.worker], now)
        if self._socket_loop is None:
            drive({0: end}, self._transport, now)
        else:
            self._socket_loop.run(now)
        if not end.has_results:
            return RoundResult({}, late=end.late, is_partial=True)
        overflowed = bool(end.result_flags & HeaderFlag.OVERFLOW)
        return RoundResult({self.worker: end.results()}, overflowed=overflowed)

    def _new_epoch(self, without: tuple[int, ...]) -> tuple[int, ...]:
        """Begin the job's next epoch with the other workers; returns the workers in it."""
        assert self._renew is not None
        self.begin_epoch(self._renew(without))
        return self.plan.job.present
