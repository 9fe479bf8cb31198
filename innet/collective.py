"""All-reduce: the one place where codecs and a network meet.

    total, report = innet.all_reduce([gradient_0, gradient_1], codec="lhc")

``Collective`` keeps what outlives one all-reduce: the network, with the registers of its switches
and the workers' chunk counters, and what each worker's codec has held back.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, CodecSpec, Outcome, build_codec, check_gradient, check_integer
from innet.config import Engine
from innet.errors import GradientError, InputError, StateError
from innet.fabric import Faults, Recorder
from innet.plan import Emulation, Request, make_plan
from innet.protocol import Timing
from innet.record import Report, Seconds
from innet.threads import Map, cores, side_by_side
from innet.verification import errors, is_exact, selections
from innet.wire import Framing
from innet.words import Segment

Vector = NDArray[np.float32]
Layers = Sequence[int | Sequence[int]]
Exchange = Generator[list[Segment], list[NDArray[np.int32]], Outcome]
Frame = tuple[float, int, bytes]
_Step = list[Segment] | Outcome
_WORTH_THREADS = 1 << 16  # elements; below, to hand work over takes longer than to do it


class Collective:
    """Workers of one process with switches between them.

    Args:
        workers: how many, 1 up to the bits of the program's bitmap.
        codec: a preset's name, or the parts of a codec; see ``innet.codecs.build_codec``.
        layers: shapes of the model's layers, or their numbers of elements, in the order of the
            gradient, for codecs that treat each by itself; one layer if None.
        program: name of a shipped P4 program.
        values_per_packet: int32 values in each packet; the program is compiled for some numbers.
        racks: switches that the workers are spread over, for programs that know several levels.
        depth: levels of switches, likewise.
        engine: "jit" or "interpret": how the built-in switches run the program.
        framing: "udp" or "raw" (Ethernet with an EtherType of its own).
        window: chunks of a worker under way at once, a power of two; by default all slots of the
            program. In memory a large window is faster, as more packets share a call.
        faults: what happens to packets on every link, both ways; nothing if None.
        timing: the workers' patience, in virtual seconds.
        seed: of the codec's hashes and of the faults.
        verify: compare each result with the oracle, and measure the error against float64 sums.
        threads: that run the workers' codecs, for large gradients; as many as there are cores if
            None. Results do not depend on it.

    Attributes:
        plan: the network, as data.
        network: the network, running.

    Raises:
        InputError: a number out of range, an unknown program or engine.
        CompositionError: the codec's parts do not fit each other.
    """

    def __init__(
        self,
        *,
        workers: int = 4,
        codec: CodecSpec = "dense",
        layers: Layers | None = None,
        program: str = "slots",
        values_per_packet: int = 64,
        racks: int | None = None,
        depth: int | None = None,
        engine: Engine = "jit",
        framing: Framing = "udp",
        window: int | None = None,
        faults: Faults | None = None,
        timing: Timing | None = None,
        seed: int = 0,
        verify: bool = True,
        threads: int | None = None,
    ) -> None:
        seed = check_integer(seed, "the seed")
        workers = check_integer(workers, "the number of workers")
        sizes = {
            "the window": window,
            "the number of racks": racks,
            "the depth": depth,
            "the number of threads": threads,
        }
        for name, number in sizes.items():
            if number is not None:
                check_integer(number, name)
        self.plan = make_plan(
            program,
            values_per_packet,
            Request(workers=workers, window=window, framing=framing, racks=racks, depth=depth),
        )
        self.workers = workers
        self.program = self.plan.switches[0].program.name
        self.engine = engine
        self.verify = verify
        self._threads = min(workers, cores() if threads is None else max(1, threads))
        self.codecs: list[Codec] = [
            build_codec(codec, seed=seed, worker=worker, layers=layers) for worker in range(workers)
        ]
        self.network = Emulation(self.plan, engine=engine, faults=faults, timing=timing, seed=seed)
        self.layout = self.plan.layout
        self._failed: str | None = None

    # ------------------------------------------------------------------ what users call

    def all_reduce(self, gradients: Iterable[NDArray[np.float32]]) -> tuple[Vector, Report]:
        """Sum the workers' gradients over the network.

        Args:
            gradients: one float32 array per worker, all of one shape, in a list or any other
                iterable. They are not modified.

        Returns:
            The sum as decoded, float32 of that shape, and a report of what it took.

        Raises:
            GradientError: a wrong dtype or shape, or a value that is not finite, alone or with
                what the worker's codec held back; names the worker. Nothing was sent and no codec
                has changed.
            StalledError: a worker waited too long for a slot; says which, and for whom.
            StateError: the codecs hold back a gradient of another size, and nothing has changed;
                or an earlier all-reduce failed half-way, so the workers no longer agree.
        """
        begun = time.perf_counter()
        if self._failed is not None:
            raise StateError(
                f"an earlier all-reduce failed half-way ({self._failed}) and its workers no longer "
                "agree on what was summed; make a new Collective."
            )
        gradients = _listed(gradients)
        flat = self._checked(gradients)
        # All codecs are asked before any of them takes its gradient up.
        for codec, gradient in zip(self.codecs, flat, strict=True):
            codec.check(gradient)
        before = self._counts()
        switches = self.network.switch_seconds
        network = 0.0
        try:
            outcomes, rounds, network = self._exchange(flat)
        except BaseException as error:
            self._failed = type(error).__name__
            raise
        counts = self._counts() - before
        total = outcomes[0].sum.reshape(gradients[0].shape)
        spent = time.perf_counter() - begun
        seconds = Seconds(
            encode=sum(outcome.encode_seconds for outcome in outcomes),
            network=network,
            decode=sum(outcome.decode_seconds for outcome in outcomes),
            total=spent,
            switch=self.network.switch_seconds - switches,
        )
        return total, self._report(flat, outcomes, rounds, counts, seconds)

    @contextmanager
    def record_packets(self, limit: int | None = None) -> Iterator[list[Frame]]:
        """While the context is open, packets between workers and switches are remembered.

        Args:
            limit: how many to remember at most.

        Yields:
            A list that is filled when the context closes: (virtual seconds, worker + 1, bytes), in
            order, both directions. On a single switch, worker + 1 is the switch port.

        Raises:
            StateError: a context of this kind is open already.
        """
        frames: list[Frame] = []
        if self.network.edge.tap is not None:
            raise StateError("packets are being recorded already; close that context first.")
        recorder = Recorder(limit)
        self.network.edge.tap = recorder
        try:
            yield frames
        finally:
            self.network.edge.tap = None
            seen = zip(recorder.times(), recorder.packets().to_packets(), strict=True)
            frames.extend((float(when), port, data) for when, (port, data) in seen)

    # ------------------------------------------------------------------ the rounds

    def _exchange(self, flat: list[Vector]) -> tuple[list[Outcome], int, float]:
        """Run all workers' codecs; outcomes, rounds, seconds in the network."""
        exchanges: list[Exchange] = [
            codec.exchange(gradient, self.workers, checked=True)
            for codec, gradient in zip(self.codecs, flat, strict=True)
        ]
        try:
            with side_by_side(self._threads if flat[0].size >= _WORTH_THREADS else 1) as run:
                return self._in_lock_step(exchanges, run)
        finally:
            for exchange in exchanges:
                exchange.close()  # after a failure: codecs take back what they have not sent

    def _in_lock_step(
        self, exchanges: list[Exchange], run: Map
    ) -> tuple[list[Outcome], int, float]:
        answers: list[list[NDArray[np.int32]] | None] = [None] * self.workers
        rounds = 0
        network = 0.0
        while True:
            steps = list(run(_advance, exchanges, answers))
            segments = [step for step in steps if not isinstance(step, Outcome)]
            outcomes = [step for step in steps if isinstance(step, Outcome)]
            if outcomes:
                # They decide by what all have received, so they end together.
                assert not segments
                assert len(outcomes) == self.workers
                return outcomes, rounds, network
            begun = time.perf_counter()
            answers = [*self._round(segments)]
            network += time.perf_counter() - begun
            rounds += 1

    def _round(self, segments: list[list[Segment]]) -> list[list[NDArray[np.int32]]]:
        """One exchange: every worker's segments in, what each worker received out."""
        network = self.network
        for end, each in zip(network.workers, segments, strict=True):
            end.start(each, network.now)
        network.run()
        return [end.results() for end in network.workers]

    # ------------------------------------------------------------------ checks and the report

    def _checked(self, gradients: Sequence[NDArray[np.float32]]) -> list[Vector]:
        """Flat, contiguous, all alike, all finite."""
        if len(gradients) != self.workers:
            raise GradientError(
                f"{len(gradients)} gradients for {self.workers} workers; pass one for each."
            )
        for worker, gradient in enumerate(gradients):
            if not isinstance(gradient, np.ndarray):
                raise GradientError(
                    f"the gradient of worker {worker} is a {type(gradient).__name__}; pass a NumPy "
                    "array (for a torch tensor: tensor.detach().cpu().numpy())."
                )
            if gradient.dtype != np.float32:
                raise GradientError(
                    f"the gradient of worker {worker} is {gradient.dtype}, not float32; convert it "
                    "with .astype(np.float32)."
                )
            if gradient.shape != gradients[0].shape:
                raise GradientError(
                    f"the gradient of worker {worker} has shape {gradient.shape}, that of worker 0 "
                    f"{gradients[0].shape}; all workers must reduce the same tensor."
                )
        flat = [np.ascontiguousarray(gradient).reshape(-1) for gradient in gradients]
        for worker, vector in enumerate(flat):
            check_gradient(vector, worker)
        return flat

    def _counts(self) -> _Counts:
        ends = [end.counters for end in self.network.workers]
        return _Counts(
            sent=np.array([end.sent for end in ends]),
            received=np.array([end.received for end in ends]),
            bytes_sent=np.array([end.bytes_sent for end in ends]),
            retransmissions=np.array([end.retransmissions for end in ends]),
            switch=self.network.packets_in,
        )

    def _report(
        self,
        flat: list[Vector],
        outcomes: list[Outcome],
        rounds: int,
        counts: _Counts,
        seconds: Seconds,
    ) -> Report:
        chunks = -(-len(flat[0]) // self.layout.values)
        exact = is_exact(outcomes) if self.verify else None
        selected, union = selections(outcomes, len(flat[0]))
        error, error_sent = errors(flat, outcomes) if self.verify else (None, None)
        return Report(
            exact=exact,
            workers=self.workers,
            codec=self.codecs[0].describe(),
            program=self.program,
            engine=self.engine,
            fabric="memory" if self.network.fabric is self.network.edge else "memory with faults",
            values_per_packet=self.layout.values,
            elements=len(flat[0]),
            selected=selected,
            union=union,
            rounds=rounds,
            packets_sent=int(counts.sent.sum()),
            packets_received=int(counts.received.sum()),
            bytes_sent=int(counts.bytes_sent.max()),
            bytes_dense=chunks * self.layout.frame_size,
            retransmissions=int(counts.retransmissions.sum()),
            seconds=seconds,
            switch_packets=counts.switch,
            max_abs_error=error,
            max_abs_error_sent=error_sent,
            infinite=int(np.count_nonzero(np.isinf(outcomes[0].sum))),
            details=dict(outcomes[0].details),
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """Counters of all workers, shape (workers,), and of the switches; differences are of a run."""

    sent: NDArray[np.int64]
    received: NDArray[np.int64]
    bytes_sent: NDArray[np.int64]
    retransmissions: NDArray[np.int64]
    switch: int

    def __sub__(self, other: _Counts) -> _Counts:
        return _Counts(
            self.sent - other.sent,
            self.received - other.received,
            self.bytes_sent - other.bytes_sent,
            self.retransmissions - other.retransmissions,
            self.switch - other.switch,
        )


def _advance(exchange: Exchange, answers: list[NDArray[np.int32]] | None) -> _Step:
    """The segments of a worker's next round, or what it has in the end."""
    try:
        return next(exchange) if answers is None else exchange.send(answers)
    except StopIteration as stop:
        outcome: Outcome = stop.value
        return outcome


def _listed(gradients: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """The gradients of any iterable, such as a generator, which can be read only once."""
    try:
        found = iter(gradients)
    except TypeError:
        raise GradientError(
            f"the gradients are of type {type(gradients).__name__}; pass a list with one NumPy "
            "array for each worker."
        ) from None
    return list(found)


def all_reduce(
    gradients: Iterable[NDArray[np.float32]],
    codec: CodecSpec = "dense",
    program: str = "slots",
    engine: Engine = "jit",
    *,
    layers: Layers | None = None,
    values_per_packet: int = 64,
    racks: int | None = None,
    depth: int | None = None,
    framing: Framing = "udp",
    window: int | None = None,
    faults: Faults | None = None,
    timing: Timing | None = None,
    seed: int = 0,
    verify: bool = True,
    threads: int | None = None,
) -> tuple[Vector, Report]:
    """Sum gradients over a fresh network; one worker per gradient.

    For training, where codecs keep residuals and the switch its registers, make one ``Collective``
    and call it for every iteration. Arguments, results and errors are those of ``Collective`` and
    ``Collective.all_reduce``.

    Example:
        >>> import numpy as np
        >>> gradients = [np.array([0.5, 0, -2], np.float32), np.array([0, 0, 1], np.float32)]
        >>> total, report = all_reduce(gradients, codec="lhc")
        >>> total.tolist(), report.exact
        ([0.5, 0.0, -1.0], True)
    """
    gradients = _listed(gradients)
    if not gradients:
        raise InputError("no gradients; an all-reduce needs at least one worker.")
    collective = Collective(
        workers=len(gradients),
        codec=codec,
        layers=layers,
        program=program,
        values_per_packet=values_per_packet,
        racks=racks,
        depth=depth,
        engine=engine,
        framing=framing,
        window=window,
        faults=faults,
        timing=timing,
        seed=seed,
        verify=verify,
        threads=threads,
    )
    return collective.all_reduce(gradients)
