"""All-reduce of all workers in one process, through codecs and an emulated network.

    total, report = innet.all_reduce([gradient_0, gradient_1], codec="lhc")

``Collective`` keeps the state between all-reduces: the network with the registers of its switches,
the workers' chunk counters, and the residuals of the codecs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, overload

import numpy as np

from innet import programs
from innet.allreduce.dtypes import Gradient, kind_of, like, to_float32
from innet.allreduce.gathering import Array, Gathering, array_of, bytes_of, check_alike
from innet.allreduce.loop import (
    RoundResult,
    Vector,
    reduce_loop,
    run_loop,
)
from innet.allreduce.narrow_results import NarrowResults
from innet.allreduce.rack_sums import RackSums, compared, result_of
from innet.allreduce.report import (
    PacketCounts,
    Rounds,
    assembled,
    build_report,
    comparison,
    counted,
    simulated,
)
from innet.allreduce.sizes import BY_CODEC, RoundSizes, combined, sized
from innet.codecs import (
    Codec,
    CodecSpec,
    ExchangeOutcome,
    ModelLayers,
    SumOptions,
    build_codec,
    check_floats,
    check_gradient,
)
from innet.codecs.adascale import AdaScale
from innet.codecs.decode_once import DecodeOnce
from innet.core.engines import EngineName
from innet.core.errors import GradientError, InputError, StalledError, StateError
from innet.core.not_copyable import NotCopyable
from innet.core.numbers import is_int, number_list, require_int
from innet.core.reduce_op import CollectiveOp, Segment, SizedSegment
from innet.core.settings import MANY_SWITCHES_PROGRAM, default_program, program_with_owners
from innet.core.shards import Shards
from innet.core.threads import ExclusiveUse, cores
from innet.network import Faults, Recorder
from innet.protocol import Timing
from innet.records import Report
from innet.sim import Network, network_of
from innet.topology import (
    EmulatedNetwork,
    Plan,
    Request,
    check_codec,
    check_conditions,
    make_plan,
    with_bottleneck,
)
from innet.wire import Framing

if TYPE_CHECKING:
    from innet.sim.recording import RunRecorder
    from innet.sim.simulation import NetworkCounts

Frame = tuple[float, int, bytes]
Scope: TypeAlias = Literal["job", "rack"]
_STATE_VERSION = 2


def _half_of_the_slots(program: str, values_per_packet: int, *, thin: bool) -> int:
    """The window with which two jobs have room on a switch, a power of two."""
    find = programs.find_header_only if thin else programs.find
    slots = find(program, values_per_packet).dimensions().slots
    return 1 << (max(2, slots) // 2).bit_length() - 1


class _Before(NamedTuple):
    """Clocks and counts before an all-reduce: wall time, the workers', and the network's."""

    begun: float
    counts: list[PacketCounts]
    switch_seconds: float
    switch_packets: int
    now: float
    waited: float
    simulated: NetworkCounts | None


class Collective(NotCopyable):
    """All workers of a job in one process, connected by emulated switches.

    Args:
        workers: number of workers: 1 to 32, with program tree to 32,768.
        codec: name or parts of a codec; see ``innet.codecs.build_codec``.
        layers: shapes or numbers of elements of the model's layers, in the order of the gradient,
            for codecs with parameters per layer; one layer if None.
        program: name of a P4 program; by default slots on one switch, tree on several and
            for more than 32 workers.
        values_per_packet: int32 values in each packet. Programs are compiled for some numbers.
        topology: name of a topology, with or without options: "star", "tree:racks=4,depth=3",
            "leaf-spine", "fat-tree:ports=6", ...; by default as the program needs it.
        racks: switches with workers, for a tree or a leaf-spine.
        depth: levels of switches, for a tree.
        ports: ports of each switch, for a fat-tree.
        engine: "jit" or "interpret": how the built-in switches run the program.
        framing: "udp" or "raw" (Ethernet with innet's EtherType).
        window: chunks of a worker under way at once, a power of two; by default all slots of the
            program. In memory a large window is faster, as more packets share a call.
        faults: faults of every link, in both directions; None for none.
        timing: timeouts of the workers, in virtual seconds. With ``partial_after``, an all-reduce
            continues without workers who are later than that. They are left out until they
            ``rejoin``.
        attempts: how often a stalled all-reduce is tried, each time in the next epoch and with the
            same gradients.
        seed: seed of the codec's hashes and of the faults.
        rack_codec: the codec of sums within racks; see ``all_reduce``. With it, each rack is also a
            job of its own at its switch, and by default that and the job of all workers have half
            of the slots each. None: there are no such sums.
        network: rates, delays and queues of the network, which takes simulated time then: a preset
            such as "100g" or "10g:loss=1e-4", a TOML file, or ``innet.sim.Network``. The report's
            ``simulated`` says what it took.
        thin: in simulated time, let packets carry no values, and stand for those that do in time
            and bytes: ``values_per_packet`` may be any number to 65,535 then. Sums are computed
            beside the network, and so not verified.
        results: a number format, such as "bf16" or "mxfp8-e4m3", in which sums go back to the
            workers: an all-reduce is a reduce-scatter and an all-gather then, and each owner rounds
            its part of the sum in between and keeps the rest for the next one; see
            ``innet.allreduce.narrow_results``. It needs a program with owners, the default then.
            None: sums go back as they are.
        gain: estimate AdaScale's gain in each all-reduce: ``details["gain"]`` of the report; see
            ``innet.codecs.adascale``.
        verify: compare each result with the oracle, and measure the error against float64 sums.
        threads: threads that run the workers' codecs for large gradients; by default the number of
            cores. Results do not depend on it.
        decode_once: decode a sketch once for all workers, who have received the same words. If
            not, each decodes for itself. Results do not depend on it.

    Attributes:
        network: the running network.
        codecs: of all workers, by index.
        adascale: the averages behind the gain, None without ``gain``.
        on_round: called after each exchange of all workers, with their segments and the result,
            before anyone uses it; it must change neither. None by default.

    Raises:
        InputError: a number out of range, an unknown program or engine, invalid faults or timing.
        CompositionError: the codec's parts do not fit each other, or the switches' sums.
    """

    instead_of_a_copy = (
        "make another with the same arguments, and load the state_dict of this one into it"
    )

    def __init__(
        self,
        *,
        workers: int = 4,
        codec: CodecSpec = "dense",
        layers: ModelLayers | None = None,
        program: str | None = None,
        values_per_packet: int = 64,
        topology: str | None = None,
        racks: int | None = None,
        depth: int | None = None,
        ports: int | None = None,
        engine: EngineName = "jit",
        framing: Framing = "udp",
        window: int | None = None,
        faults: Faults | None = None,
        timing: Timing | None = None,
        attempts: int = 1,
        seed: int = 0,
        rack_codec: CodecSpec | None = None,
        network: str | Path | Network | Mapping[str, Any] | None = None,
        thin: bool = False,
        results: str | None = None,
        gain: bool = False,
        verify: bool = True,
        threads: int | None = None,
        decode_once: bool = True,
    ) -> None:
        # Step 1: what is wrong whatever the network is.
        seed = require_int(seed, "the seed")
        workers = require_int(workers, "the number of workers")
        sizes = {
            "the window": window,
            "the number of racks": racks,
            "the depth": depth,
            "the number of ports": ports,
            "the number of threads": threads,
        }
        for name, number in sizes.items():
            if number is not None:
                require_int(number, name)
        if require_int(attempts, "the number of attempts") < 1:
            raise InputError(f"{attempts} attempts; an all-reduce takes at least 1.")
        check_conditions(faults, timing)
        if thin and network is None:
            raise InputError(
                "thin packets are for networks in simulated time; give a network, such as '100g', "
                "or leave thin out."
            )
        has_racks = rack_codec is not None
        self._partial = timing is not None and timing.partial_after is not None
        if thin and self._partial:
            raise InputError(
                "sums of thin packets are computed beside the network, so none can be partial; "
                "leave partial_after or thin out."
            )
        if has_racks and self._partial:
            raise InputError(
                "racks that sum for themselves know no partial results; leave partial_after or "
                "rack_codec out."
            )
        self._results = self._made_results(results, workers, racks=has_racks)
        # Step 2: the plan of switches, links and workers.
        name = program or (
            MANY_SWITCHES_PROGRAM if has_racks else default_program(topology, workers)
        )
        name = program_with_owners(name) if results and program is None else name
        if has_racks and window is None:
            window = _half_of_the_slots(name, values_per_packet, thin=thin)
        request = Request(
            workers=workers,
            window=window,
            framing=framing,
            allow_partial=self._partial,
            topology=topology,
            racks=racks,
            depth=depth,
            ports=ports,
            thin=thin,
        )
        plan = make_plan(name, values_per_packet, request)
        # Step 3: a codec for each worker, and the network that the plan describes.
        self.workers = workers
        self.program = plan.switches[0].program.name
        self.engine = engine
        self.verify = verify and not thin
        self.thin = thin
        decoding = DecodeOnce(workers) if decode_once else None
        self.codecs: list[Codec] = [
            build_codec(
                codec, seed=seed, worker=worker, layers=layers, gain=gain, decoding=decoding
            )
            for worker in range(workers)
        ]
        self.adascale = AdaScale(workers) if gain else None
        check_codec(plan, self.codecs[0])
        self.network = EmulatedNetwork(
            plan,
            engine=engine,
            faults=faults,
            timing=timing,
            seed=seed,
            network=None if network is None else with_bottleneck(network_of(network), topology),
            racks=has_racks,
        )
        self.layout = plan.layout
        self._check_results()
        # Step 4: a job for each rack, and what that network may not be able to do.
        self._threads = min(workers, cores() if threads is None else max(1, threads))
        self._rack_sums = (
            None
            if rack_codec is None
            else RackSums(
                self.network,
                rack_codec,
                workers=workers,
                layers=layers,
                seed=seed,
                attempts=attempts,
                threads=self._threads,
                thin=thin,
            )
        )
        if (self._partial or attempts > 1) and not self.network.has_epochs:
            raise InputError(
                f"{self.program} knows no other epoch, which partial results and further attempts "
                "need; use slots, or leave partial_after and attempts out."
            )
        if self._partial and not self.network.has_partials:
            raise InputError(
                f"{self.program} gives no partial results; use slots, or leave partial_after out."
            )
        # Step 5: the state between all-reduces.
        self.on_round: Callable[[Mapping[int, list[Segment]], RoundResult], None] | None = None
        self._attempts = attempts
        self._seed = seed
        self._completed = 0  # all-reduces
        self._failed: str | None = None
        self._one = ExclusiveUse("this Collective")
        self._stalled = False

    def _made_results(
        self, results: str | None, workers: int, *, racks: bool
    ) -> list[NarrowResults]:
        """What each worker does with its part of a sum; nothing without ``results``."""
        if results is None:
            return []
        if racks or self._partial:
            other = "sums within racks" if racks else "partial results"
            raise InputError(f"results in another format are not for {other}; leave one out.")
        return [NarrowResults(results) for _ in range(workers)]

    def _check_results(self) -> None:
        if self._results:
            self._check_owners("all-reduce with results in another format")
            self.codecs[0].check_sharded()

    # ------------------------------------------------------------------ public methods

    @overload
    def all_reduce(
        self, gradients: Iterable[Gradient], *, scope: Literal["job"] = "job"
    ) -> tuple[Gradient, Report]: ...

    @overload
    def all_reduce(
        self, gradients: Iterable[Gradient], *, scope: Literal["rack"]
    ) -> tuple[list[Gradient], Report]: ...

    def all_reduce(
        self, gradients: Iterable[Gradient], *, scope: Scope = "job"
    ) -> tuple[Gradient, Report] | tuple[list[Gradient], Report]:
        """Sum the workers' gradients over the network, of all workers or of each rack.

        A failed all-reduce leaves the codecs unchanged, so the same gradients can be passed again.
        After a ``StalledError`` the next call begins the next epoch of the job, if its protocol has
        epochs. Packets of the failed all-reduce are then ignored.

        Args:
            gradients: one array per worker, all of one shape and dtype, in any iterable; of all
                workers, or of those who are ``present``. They are not modified. float32, float16
                or bfloat16; NumPy's arrays or PyTorch's tensors, or both: the sum then is as the
                first worker's. See ``innet.allreduce.dtypes``.
            scope: "job": one sum of all workers. "rack": each rack's own sum, which its switch
                returns without asking the switches above, so that nothing travels between switches.
                It needs ``rack_codec``, whose error feedback is a separate one.

        Returns:
            The decoded sum, of that shape, dtype and kind, and a report. Of scope "rack" a sum for
            each of ``racks``; the report is of all of them together. If late workers were left
            out, ``report.details["without"]`` names them. The sum then lacks them in every element,
            and their error feedback keeps their gradients.

        Raises:
            InputError: an unknown scope, or there is no ``rack_codec``.
            GradientError: a wrong dtype or shape, or a value that is not finite, alone or with the
                residual; names the worker. Nothing was sent and no codec has changed.
            StalledError: a worker waited too long for a slot; names the slot and the missing
                workers.
            StateError: the residuals have another size, and nothing has changed; or an earlier
                all-reduce failed half-way, so the workers no longer agree; or another all-reduce is
                under way in another thread.
        """
        if scope not in ("job", "rack"):
            raise InputError(f"the scope is {scope!r}; choose job or rack.")
        with self._one.taken():
            return self._all_reduce(gradients) if scope == "job" else self._rack_reduce(gradients)

    @property
    def racks(self) -> tuple[tuple[int, ...], ...]:
        """The workers of each rack who take part, no empty rack; none without ``rack_codec``."""
        return () if self._rack_sums is None else tuple(self._rack_sums.members().values())

    @property
    def rack_codecs(self) -> list[Codec]:
        """The codecs of sums within racks, by worker; none without ``rack_codec``."""
        return [] if self._rack_sums is None else self._rack_sums.codecs

    def _rack_reduce(self, gradients: Iterable[Gradient]) -> tuple[list[Gradient], Report]:
        """``all_reduce`` of scope "rack"."""
        if self._rack_sums is None:
            raise InputError(
                "this Collective has no sums within racks; make it with rack_codec, such as "
                "rack_codec='dense'."
            )
        before = self._begin()
        given = self._of_present(listed(gradients))
        floats = as_float32(given)
        flat = flattened(floats)
        self._rack_sums.check(flat)
        self._go_on()
        with self._recording_failure():
            racks = self._rack_sums.reduce(flat)
        self._completed += 1
        firsts = [next(iter(rack.items())) for rack in racks]
        sums = [
            like(outcome.sum.reshape(floats[worker].shape), given[worker])
            for worker, outcome in firsts
        ]
        done = self._rack_sums.rounds(racks, time.perf_counter() - before.begun)
        report = self._report(done, before, self._rack_sums.codecs[firsts[0][0]])
        return sums, compared(report, racks, flat, verify=self.verify)

    def reduce_scatter(
        self, gradients: Iterable[Gradient], *, sizes: Sequence[int] | None = None
    ) -> tuple[list[Gradient], Report]:
        """Sum the workers' gradients, of which each worker gets its own part.

        A worker's packets carry the parts of the others, and only its own part comes back: both
        ways together are about half the bytes of an all-reduce.

        Args:
            gradients: as for ``all_reduce``. A part is of the gradient with its elements in a row.
            sizes: elements of each worker's part, in the workers' order; by default they differ by
                one at most.

        Returns:
            The sum's part of each worker, shape (size,), in the workers' order, and a report.

        Raises:
            InputError: the program knows no reduce-scatter, or wrong sizes.
            CompositionError: no worker can decode a part of this codec's sum alone; says why.
            InnetError: as ``all_reduce``.
        """
        with self._one.taken():
            before = self._begin()
            given = self._of_present(listed(gradients))
            first = next(iter(given.values()))
            outcomes, shards, report = self._reduce_to(
                before, given, tuple(given), sizes, "reduce-scatter"
            )
            parts = [
                like(outcomes[worker].sum[shards.part(worker)], first)
                for worker in shards.owners
                if worker in outcomes
            ]
            return parts, report

    def reduce(self, gradients: Iterable[Gradient], root: int = 0) -> tuple[Gradient, Report]:
        """Sum the workers' gradients for one of them.

        Args:
            gradients: as for ``all_reduce``.
            root: the worker who gets the sum.

        Returns:
            The sum, as of ``all_reduce``, and a report.

        Raises:
            InnetError: as ``reduce_scatter``; ``root`` takes no part.
        """
        with self._one.taken():
            self._check_present(root)
            before = self._begin()
            given = self._of_present(listed(gradients))
            first: Any = next(iter(given.values()))
            outcomes, _, report = self._reduce_to(before, given, (root,), None, "reduce")
            if root not in outcomes:
                raise StalledError(f"the sum was for worker {root}, which was late.")
            return like(outcomes[root].sum.reshape(first.shape), first), report

    def all_gather(self, shards: Iterable[Array]) -> tuple[Array, Report]:
        """Give all workers each worker's array, bit for bit.

        Args:
            shards: one array for each worker, or for those who are ``present``, of any lengths and
                of one dtype, any.

        Returns:
            The arrays one after the other, shape (n,), as all workers have them, and a report.

        Raises:
            InputError: the program knows no all-gather, or the arrays are of several dtypes.
            StalledError, StateError: as ``all_reduce``.
        """
        with self._one.taken():
            given = self._of_present(listed(shards))
            return self._gather(given, "all-gather")

    def broadcast(self, array: Array, root: int = 0) -> tuple[Array, Report]:
        """Give all workers one worker's array, bit for bit.

        Args:
            array: of any dtype.
            root: whose it is.

        Returns:
            The array as the others have it, of its shape, and a report.

        Raises:
            InnetError: as ``all_gather``; ``root`` takes no part.
        """
        with self._one.taken():
            self._check_present(root)
            given: Any = array
            received, report = self._gather({root: given}, "broadcast")
            return received.reshape(given.shape), report

    def barrier(self) -> Report:
        """Let each worker wait until all have come here: a packet without values each way.

        Raises:
            InputError: the program knows no barrier.
            StalledError, StateError: as ``all_reduce``.
        """
        with self._one.taken():
            before = self._begin()
            begun = time.perf_counter()
            word = Segment(CollectiveOp.BARRIER, np.zeros(1, np.int32), self.present[0])
            self._exchange({worker: [word] for worker in self.present}, "barrier")
            done = Rounds(0, 1, time.perf_counter() - begun, details={"collective": "barrier"})
            return self._report(done, before, verbatim=True)

    def _gather(self, given: Mapping[int, Array], name: str) -> tuple[Array, Report]:
        """Give all workers the arrays of their owners."""
        before = self._begin()
        begun = time.perf_counter()
        own = {worker: bytes_of(array, worker) for worker, array in given.items()}
        check_alike(given)
        gathering = Gathering(tuple(own), tuple(each.size for each in own.values()))
        result = self._exchange(
            {worker: gathering.segments(worker, own.get(worker)) for worker in self.present}, name
        )
        joined = {
            worker: gathering.joined(worker, own.get(worker), words)
            for worker, words in result.words.items()
        }
        first: Any = next(iter(given.values()))
        # What somebody has who is not its owner has travelled.
        received = joined[next((worker for worker in joined if worker not in own), max(joined))]
        done = Rounds(
            elements=received.size // first.dtype.itemsize,
            rounds=1,
            network=time.perf_counter() - begun,
            details={"collective": name},
        )
        report = self._report(done, before, verbatim=True)
        if self.verify:
            truth = np.concatenate([*own.values()])
            exact = all(np.array_equal(each, truth) for each in joined.values())
            report = report.model_copy(update={"exact": exact})
        return array_of(received, first), report

    def _exchange(self, segments: Mapping[int, list[Segment]], name: str) -> RoundResult:
        """One round of words that travel as they are, of all workers."""
        self._check_owners(name)
        self._go_on()
        with self._recording_failure():
            result = self._combine(segments)
            if result.late or result.is_partial:
                raise StalledError(
                    f"this {name} lacks workers {number_list(result.late)}, who were late."
                )
        self._completed += 1
        return result

    def _check_owners(self, name: str) -> None:
        if not self.layout.has_owners:
            raise InputError(
                f"program {self.program} knows no {name}; make the Collective with "
                f"program={program_with_owners(self.program)!r}."
            )

    def _check_present(self, worker: int) -> None:
        self._check_worker(worker)
        if worker not in self.present:
            raise InputError(f"worker {worker} takes no part; those who do are {self.present}.")

    def _all_reduce(self, gradients: Iterable[Gradient]) -> tuple[Gradient, Report]:
        before = self._begin()
        given = self._of_present(listed(gradients))
        flat = flattened(as_float32(given))
        reduce = self._reduce_narrow if self._results else self._reduce
        outcomes, report = reduce(before, flat)
        first: Any = given[self.present[0]]
        total = next(iter(outcomes.values())).sum
        return like(total.reshape(first.shape), first), report

    def _reduce_to(
        self,
        before: _Before,
        given: Mapping[int, Gradient],
        owners: tuple[int, ...],
        sizes: Sequence[int] | None,
        name: str,
    ) -> tuple[dict[int, ExchangeOutcome], Shards, Report]:
        """Sum gradients through the workers' codecs, each part for its owner."""
        self._check_owners(name)
        self.codecs[0].check_sharded()
        flat = flattened(as_float32(given))
        shards = Shards.of(next(iter(flat.values())).size, owners, sizes)
        outcomes, report = self._reduce(before, flat, shards, name)
        return outcomes, shards, report

    def _reduce(
        self,
        before: _Before,
        flat: Mapping[int, Vector],
        shards: Shards | None = None,
        name: str | None = None,
    ) -> tuple[dict[int, ExchangeOutcome], Report]:
        """Sum gradients, flat and checked, through the workers' codecs."""
        outcomes, done = self._reduced(flat, shards, name)
        report = self._report(done, before)
        return outcomes, report.model_copy(update=self._compared(flat, outcomes, shards))

    def _reduce_narrow(
        self, before: _Before, flat: Mapping[int, Vector]
    ) -> tuple[dict[int, ExchangeOutcome], Report]:
        """``_reduce`` with results in another format."""
        # Step 1: each owner gets its part of the sum, and rounds it.
        size = next(iter(flat.values())).size
        shards = Shards.of(size, self.present)
        for worker in self.present:
            part = shards.part(worker)
            self._results[worker].check(part.stop - part.start)
        outcomes, done = self._reduced(flat, shards, None)
        begun = time.perf_counter()
        parts = {worker: shards.part(worker) for worker in self.present}
        owners = {worker: self._results[worker] for worker in self.present}
        narrow = {
            worker: owner.narrow(outcomes[worker].sum[parts[worker]])
            for worker, owner in owners.items()
        }
        # Step 2: the numbers go to all. If they do not arrive, the codecs have changed already.
        lengths = [part.stop - part.start for part in parts.values()]
        sizes = [self._results[0].size(length) for length in lengths]
        gathering = Gathering(self.present, tuple(sizes))
        segments = {
            worker: gathering.segments(worker, data) for worker, (data, _) in narrow.items()
        }
        try:
            result = self._exchange(segments, "all-reduce with results in another format")
        except BaseException as error:
            self._failed = type(error).__name__
            raise
        self._completed -= 1  # it was one all-reduce
        joined = {
            worker: gathering.joined(worker, narrow[worker][0], words)
            for worker, words in result.words.items()
        }
        # Step 3: all have the same bytes, and so the same sum.
        ends = np.cumsum([0, *sizes])
        first = next(iter(joined.values()))
        pieces = [
            owner.widen(first[begin:end], length)
            for owner, begin, end, length in zip(
                owners.values(), ends[:-1], ends[1:], lengths, strict=True
            )
        ]
        total = np.concatenate(pieces)
        for worker, (_, rest) in narrow.items():
            owners[worker].commit(rest)
        done = done._replace(
            rounds=done.rounds + 1,
            network=done.network + time.perf_counter() - begun,
            details={**done.details, "results": self._results[0].name},
        )
        report = self._report(done, before)
        found = self._compared(flat, outcomes, shards, total)
        if self.verify:
            found["exact"] &= all(np.array_equal(first, each) for each in joined.values())
        outcomes = {worker: replace(each, sum=total) for worker, each in outcomes.items()}
        return outcomes, report.model_copy(update=found)

    def _reduced(
        self, flat: Mapping[int, Vector], shards: Shards | None, name: str | None
    ) -> tuple[dict[int, ExchangeOutcome], Rounds]:
        """The outcomes of the workers' codecs, and what they did."""
        # All codecs are checked before any of them changes.
        for worker, vector in flat.items():
            self.codecs[worker].check(vector)
        self._go_on()
        loop = reduce_loop(
            dict(enumerate(self.codecs)),
            flat,
            self.present,
            attempts=self._attempts,
            has_epochs=self.network.has_epochs,
            checked=True,
            threads=self._threads,
            options=None if shards is None else SumOptions(keep_integers=True, shards=shards),
        )
        with self._recording_failure():
            reduction = run_loop(loop, self._combine, self._new_epoch)
        self._completed += 1
        outcomes = list(reduction.outcomes.values())
        done = Rounds.of(reduction)
        if name is not None:
            done = done._replace(details={**done.details, "collective": name})
        if self.thin:
            done = done._replace(details={**done.details, "sizes": BY_CODEC})
        if self.adascale is not None and (squares := done.details.get("squares")):
            gain = self.adascale.update(squares["workers"], squares["sum"], len(outcomes))
            done = done._replace(details={**done.details, "gain": gain})
        codecs = [self.codecs[worker] for worker in reduction.outcomes]
        return reduction.outcomes, done._replace(
            details={**done.details, **counted(codecs, outcomes)}
        )

    def _compared(
        self,
        flat: Mapping[int, Vector],
        outcomes: Mapping[int, ExchangeOutcome],
        shards: Shards | None,
        total: Vector | None = None,
    ) -> dict[str, Any]:
        """Fields of the report that need all outcomes; ``total`` in place of their sums."""
        vectors = [flat[worker] for worker in outcomes]
        whole = outcomes if shards is None else assembled(outcomes, shards)
        if total is not None:
            whole = {worker: replace(each, sum=total) for worker, each in whole.items()}
        # Where an owner was left out, nobody has the sum of its part.
        verify = self.verify and (shards is None or set(shards.owners) <= set(whole))
        return comparison(vectors, list(whole.values()), verify=verify)

    def all_reduce_sizes(self, sizes: RoundSizes) -> Report:
        """Send what the codecs would send in an all-reduce, without running them.

        Args:
            sizes: what each worker sends; see ``innet.allreduce.sizes``.

        Returns:
            The report; ``details["sizes"]`` says where the sizes come from.

        Raises:
            InputError: the packets are not thin.
            StalledError, StateError: as ``all_reduce``.
        """
        if not self.thin:
            raise InputError("sizes alone can be sent in thin packets; make this Collective thin.")
        with self._one.taken():
            before = self._begin()
            self._go_on()
            with self._recording_failure():
                for segments in sizes.rounds:
                    self._send(dict.fromkeys(self.present, segments))
            done = Rounds(
                elements=sizes.elements,
                rounds=len(sizes.rounds),
                network=time.perf_counter() - before.begun,
                details={"sizes": sizes.source},
            )
            return self._report(done, before)

    def _begin(self) -> _Before:
        """What there is before an all-reduce, which must be possible."""
        if self._failed is not None:
            raise StateError(
                f"an earlier all-reduce failed half-way ({self._failed}) and its workers no longer "
                "agree on what was summed; make a new Collective."
            )
        network = self.network
        if network.simulation is not None:
            network.simulation.forget_queues()
        return _Before(
            begun=time.perf_counter(),
            counts=self._counts(),
            switch_seconds=network.switch_seconds,
            switch_packets=network.packets_in,
            now=network.now,
            waited=max(network.starts.values(), default=network.now) - network.now,
            simulated=None if network.simulation is None else network.simulation.counts(),
        )

    def _go_on(self) -> None:
        """Begin another epoch if the all-reduce before this one has stalled."""
        if self._stalled:
            self.network.begin_epoch(self.plan.job.absent)
            self._stalled = False

    @contextmanager
    def _recording_failure(self) -> Iterator[None]:
        try:
            yield
        except StalledError as error:
            self._stalled = self.network.has_epochs
            self._failed = None if self._stalled else type(error).__name__
            raise
        except BaseException as error:
            self._failed = type(error).__name__
            raise

    def _report(
        self, done: Rounds, before: _Before, codec: Codec | None = None, *, verbatim: bool = False
    ) -> Report:
        network = self.network
        report = build_report(
            self.plan,
            None if verbatim else codec or self.codecs[0],
            done,
            [now.since(then) for now, then in zip(self._counts(), before.counts, strict=True)],
            engine=self.engine,
            transport=network.name,
            total_seconds=time.perf_counter() - before.begun,
            switch_seconds=network.switch_seconds - before.switch_seconds,
            simulated_seconds=network.now - before.now,
            switch_packets=network.packets_in - before.switch_packets,
        )
        if before.simulated is None or network.simulation is None:
            return report
        counts = network.simulation.counts().since(before.simulated)
        taken = simulated(report, counts, before.waited, self.plan.window, network.simulation)
        return report.model_copy(update={"simulated": taken})

    def _combine(self, segments: Mapping[int, list[Segment]]) -> RoundResult:
        """One round on the network: the workers' segments in, the results of each out."""
        if self.thin:
            self._send({worker: sized(each) for worker, each in segments.items()})
            return combined(segments)
        network = self.network
        ends = {worker: network.workers[worker] for worker in segments}
        begun = network.now
        for worker, end in ends.items():
            end.start(segments[worker], begun)
        try:
            network.run()
        except StalledError:
            if not self._partial or not any(end.done for end in ends.values()):
                raise
            network.resume(begun)
        if self._partial:
            late = {worker for worker, end in ends.items() if not end.done}
            late.update(*(end.missing for end in ends.values() if end.done))
            if len(late) == len(ends):
                raise StalledError(
                    "each worker was late for some sum of this round, so no worker can go on "
                    "without the others."
                )
            if late:
                return RoundResult({}, late=tuple(sorted(late)))
        result = result_of(ends)
        if self.on_round is not None:
            self.on_round(segments, result)
        return result

    def _send(self, segments: Mapping[int, Sequence[SizedSegment]]) -> None:
        """One round in thin packets."""
        network = self.network
        for worker, each in segments.items():
            network.workers[worker].start(each, network.now)
        network.run()

    def _new_epoch(self, without: tuple[int, ...]) -> tuple[int, ...]:
        """Begin the job's next epoch; returns the workers in it."""
        self.network.begin_epoch(self.plan.job.absent.union(without))
        return self.present

    @property
    def plan(self) -> Plan:
        """The network and the job in their current state, as data."""
        return self.network.plan

    @property
    def present(self) -> tuple[int, ...]:
        """Indices of the workers who take part, ascending."""
        return self.plan.job.present

    def leave(self, worker: int) -> None:
        """Continue without a worker, in the next epoch. Its codec keeps its residual.

        Raises:
            InputError: no such worker, or the last one.
            StateError: it has left already, or the protocol has no epochs.
        """
        self._check_worker(worker)
        if worker not in self.present:
            raise StateError(f"worker {worker} has left already.")
        self.network.begin_epoch(self.plan.job.absent | {worker})

    def rejoin(self, worker: int) -> None:
        """Let a worker who left take part again, in the next epoch.

        Its codec keeps its residual, and takes over from another worker the state that must be the
        same on all.

        Raises:
            InputError: no such worker.
            StateError: it never left, or the protocol has no epochs.
        """
        self._check_worker(worker)
        if worker in self.present:
            raise StateError(f"worker {worker} takes part already.")
        self.codecs[worker].adopt(self.codecs[self.present[0]].state_dict())
        if self._rack_sums is not None:
            self._rack_sums.adopt(worker, self.present)
        self.network.begin_epoch(self.plan.job.absent - {worker})

    def state_dict(self) -> dict[str, Any]:
        """The state between all-reduces, as copies: NumPy arrays, numbers and text.

        It has the states of all workers' codecs, who takes part, the seed and the number of
        completed all-reduces. Switches keep nothing that a later sum depends on. With faults, the
        packets that are lost after loading are others; sums do not depend on them.
        """
        with self._one.taken():
            of_results = [each.state_dict() for each in self._results]
            return {
                "version": _STATE_VERSION,
                "workers": self.workers,
                "seed": self._seed,
                "completed": self._completed,
                "absent": sorted(self.plan.job.absent),
                "codecs": [codec.state_dict() for codec in self.codecs],
                "rack_codecs": [codec.state_dict() for codec in self.rack_codecs],
                "adascale": None if self.adascale is None else self.adascale.state_dict(),
                **({"results": of_results} if of_results else {}),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict`` with the same bits.

        The codec's schedules may differ from those of the saved state; see ``innet.schedules``.

        Raises:
            StateError: it is no such state; or it has another version, number of workers or seed;
                or its codecs are others. Nothing has changed.
        """
        with self._one.taken():
            self._check_state(state)
            codecs: list[Codec | NarrowResults]
            codecs = [*self.codecs, *self.rack_codecs, *self._results]
            before = [codec.state_dict() for codec in codecs]
            try:
                saved_codecs = [
                    *state["codecs"], *state["rack_codecs"], *state.get("results", [])
                ]  # fmt: skip
                for codec, saved in zip(codecs, saved_codecs, strict=True):
                    codec.load_state_dict(saved)
                if self.adascale is not None and state["adascale"] is not None:
                    self.adascale.load_state_dict(state["adascale"])
                if set(state["absent"]) != self.plan.job.absent:
                    self.network.begin_epoch(frozenset(state["absent"]))
            except BaseException:
                for codec, saved in zip(codecs, before, strict=True):
                    codec.load_state_dict(saved)
                raise
            self._completed = state["completed"]

    def _check_state(self, state: object) -> None:
        keys = {"version", "workers", "seed", "completed", "absent", "codecs", "rack_codecs"}
        keys.update({"adascale", *(["results"] if self._results else [])})
        if not isinstance(state, Mapping) or set(state) != keys:
            raise StateError(
                f"the saved state is a {type(state).__name__} without the entries "
                f"{', '.join(sorted(keys))}; give what Collective.state_dict returned."
            )
        mine = {"version": _STATE_VERSION, "workers": self.workers, "seed": self._seed}
        for name, value in mine.items():
            if state[name] != value:
                raise StateError(
                    f"the saved state has {name} {state[name]!r}, this Collective {value!r}; make "
                    "it with the arguments of the one that was saved."
                )
        absent, codecs = state["absent"], state["codecs"]
        fits = isinstance(codecs, Sequence) and len(codecs) == self.workers
        fits &= isinstance(absent, Sequence) and set(absent) < set(range(self.workers))
        of_racks = state["rack_codecs"]
        fits &= isinstance(of_racks, Sequence) and len(of_racks) == len(self.rack_codecs)
        fits &= is_int(state["completed"]) and state["completed"] >= 0
        if not fits:
            raise StateError(
                f"the saved state does not describe {self.workers} workers, "
                f"{'with' if self.rack_codecs else 'without'} sums within racks; give what "
                "Collective.state_dict returned, whole, to one with the same arguments."
            )

    @contextmanager
    def record_packets(self, limit: int | None = None) -> Iterator[list[Frame]]:
        """Record packets between workers and switches while the context is open.

        Args:
            limit: the most packets to record.

        Yields:
            A list that is filled when the context closes: (virtual seconds, worker + 1, bytes), in
            order, both directions. On a single switch, worker + 1 is the switch port. With
            ``network``, a packet's time is that of its first bit on the worker's link, and packets
            that the link loses are among them.

        Raises:
            InputError: a limit below 0.
            StateError: packets are already being recorded.
        """
        if limit is not None:
            require_int(limit, "the limit of packets")
        frames: list[Frame] = []
        if self.network.simulation is not None:
            # It brings the simulator's compiled code, seconds for who has no simulated network.
            from innet.sim.captures import record_links  # noqa: PLC0415

            with record_links(self.network.simulation, frames, limit):
                yield frames
            return
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

    def record_run(
        self, watch: Mapping[str, Sequence[str]] | None = None, *, limit: int | None = None
    ) -> RunRecorder:
        """Record what happens to each packet from now on, for ``innet view``.

        Args:
            watch: cells of registers to record, too, by switch, such as ``{"s1": ["count[0]"]}``.
            limit: packets to keep at most; by default ``innet.sim.recording.MOST_PACKETS``.

        Returns:
            the recorder; its ``save("run.json", "a title")`` writes the record.

        Raises:
            InputError: there is no simulated time, or no such cell.
            StateError: packets are being recorded already.
        """
        # It brings the simulator's compiled code, as record_packets says.
        from innet.sim.recording import MOST_PACKETS, NodeNames, RunRecorder  # noqa: PLC0415

        plan = self.network.plan
        programs = {each.name: each.program.name for each in plan.switches}
        names = NodeNames(
            list(self.network.switches),
            [host.name for host in plan.hosts],
            [programs[name] for name in self.network.switches],
        )
        return RunRecorder(
            self.network.timed,
            self.network.switches,
            names,
            watch=watch,
            limit=MOST_PACKETS if limit is None else limit,
        )

    # ------------------------------------------------------------------ checks and the report

    def _check_worker(self, worker: int) -> None:
        if not 0 <= require_int(worker, "the worker") < self.workers:
            raise InputError(f"there is no worker {worker}; they are 0 .. {self.workers - 1}.")

    def _of_present(self, gradients: list[Gradient]) -> dict[int, Gradient]:
        """The gradients of the workers who take part, by worker."""
        if len(gradients) == self.workers:
            return {worker: gradients[worker] for worker in self.present}
        if len(gradients) == len(self.present):
            return dict(zip(self.present, gradients, strict=True))
        some = "" if len(self.present) == self.workers else f", {len(self.present)} of them present"
        raise GradientError(
            f"{len(gradients)} gradients for {self.workers} workers{some}; pass one for each."
        )

    def _counts(self) -> list[PacketCounts]:
        return [PacketCounts.of(end.counters) for end in self.network.workers]


def all_reduce(
    gradients: Iterable[Gradient],
    codec: CodecSpec = "dense",
    program: str | None = None,
    engine: EngineName = "jit",
    *,
    layers: ModelLayers | None = None,
    values_per_packet: int = 64,
    topology: str | None = None,
    racks: int | None = None,
    depth: int | None = None,
    ports: int | None = None,
    framing: Framing = "udp",
    window: int | None = None,
    faults: Faults | None = None,
    timing: Timing | None = None,
    attempts: int = 1,
    seed: int = 0,
    network: str | Path | Network | Mapping[str, Any] | None = None,
    thin: bool = False,
    results: str | None = None,
    gain: bool = False,
    verify: bool = True,
    threads: int | None = None,
    decode_once: bool = True,
) -> tuple[Gradient, Report]:
    """Sum gradients over a new network, with one worker per gradient.

    For training, make one ``Collective`` and call it in every iteration, as codecs keep residuals
    and switches keep registers. Arguments, results and errors are those of ``Collective`` and
    ``Collective.all_reduce``.

    Example:
        >>> import numpy as np
        >>> gradients = [np.array([0.5, 0, -2], np.float32), np.array([0, 0, 1], np.float32)]
        >>> total, report = all_reduce(gradients, codec="lhc")
        >>> total.tolist(), report.exact
        ([0.5, 0.0, -1.0], True)
    """
    gradients = listed(gradients)
    if not gradients:
        raise InputError("no gradients; an all-reduce needs at least one worker.")
    collective = Collective(
        workers=len(gradients),
        codec=codec,
        layers=layers,
        program=program,
        values_per_packet=values_per_packet,
        topology=topology,
        racks=racks,
        depth=depth,
        ports=ports,
        engine=engine,
        framing=framing,
        window=window,
        faults=faults,
        timing=timing,
        attempts=attempts,
        seed=seed,
        network=network,
        thin=thin,
        results=results,
        gain=gain,
        verify=verify,
        threads=threads,
        decode_once=decode_once,
    )
    return collective.all_reduce(gradients)


# ----------------------------------------------------------------------------
# Gradients of the user: one for each worker, checked before anything is sent.


def as_float32(gradients: Mapping[int, object]) -> dict[int, Vector]:
    """The gradients by worker as float32 arrays, of whatever shape.

    Raises:
        GradientError: another dtype, or several; names the worker.
    """
    first = next(iter(gradients))
    floats: dict[int, Vector] = {}
    for worker, gradient in gradients.items():
        converted: Any = to_float32(gradient, worker)
        check_floats(converted, worker)
        if kind_of(gradient) != kind_of(gradients[first]):
            raise GradientError(
                f"the gradient of worker {worker} is {kind_of(gradient)}, that of worker {first} "
                f"{kind_of(gradients[first])}; convert them to one dtype."
            )
        floats[worker] = converted
    return floats


def flattened(gradients: Mapping[int, Vector]) -> dict[int, Vector]:
    """The gradients by worker, checked: flat, contiguous, of one shape, finite.

    Args:
        gradients: as ``as_float32`` returns them.
    """
    first = next(iter(gradients))
    for worker, gradient in gradients.items():
        if gradient.shape != gradients[first].shape:
            raise GradientError(
                f"the gradient of worker {worker} has shape {gradient.shape}, that of worker "
                f"{first} {gradients[first].shape}; all workers must reduce the same tensor."
            )
    flat = {
        worker: np.ascontiguousarray(gradient).reshape(-1) for worker, gradient in gradients.items()
    }
    for worker, vector in flat.items():
        check_gradient(vector, worker)
    return flat


def listed(gradients: Iterable[Gradient]) -> list[Gradient]:
    """The gradients as a list. The iterable may be a generator, which can be read only once."""
    try:
        found = iter(gradients)
    except TypeError:
        raise GradientError(
            f"the gradients are of type {type(gradients).__name__}; pass a list with one NumPy "
            "array for each worker."
        ) from None
    return list(found)
