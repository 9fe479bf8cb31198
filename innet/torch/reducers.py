"""How a process sums with the others: through a switch, or by a process group's own all-reduce.

Both run the same exchange of the codec (``innet.allreduce.loop``); they differ in what combines the
words of a round.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.loop import RoundResult, reduce_loop, run_loop
from innet.allreduce.worker import TIMING, Worker
from innet.codecs import Codec, ExchangeOutcome, SumOptions
from innet.core.errors import (
    CompositionError,
    InnetError,
    InputError,
    MembershipError,
    NetworkError,
    StateError,
)
from innet.core.numbers import number_list
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import ClockedTransport
from innet.records import Report, Seconds
from innet.topology import Plan, check_codec
from innet.torch.tensors import torch

dist = torch.distributed
PrefixStore = torch.distributed.distributed_c10d.PrefixStore
Vector = NDArray[np.float32]
Words = NDArray[np.int32]

_QUARTER = 1 << 30  # of int32's range: two of them exceed it
_REPORT_SECONDS = 10.0  # how long survivors of a failure wait for each other
_LOOK_SECONDS = 0.02


class Reducer(Protocol):
    """One worker's connection to the others. The communication thread calls it.

    Attributes:
        worker: index of this worker.
        workers: number of workers.
    """

    worker: int
    workers: int

    def check(self, codec: Codec) -> None:
        """Refuse a codec whose sums would be wrong here.

        Raises:
            InnetError: says why, and what to choose instead.
        """

    def combine(self, segments: Sequence[Segment]) -> list[Words]:
        """One round without a codec; see ``innet.allreduce.worker.Worker.combine``."""

    def all_reduce(
        self,
        gradient: Vector,
        codec: Codec,
        options: SumOptions,
    ) -> tuple[ExchangeOutcome, Report]:
        """This worker's outcome, with the sum of all workers' gradients, and its report.

        Args:
            gradient: of this worker, shape (d,), float32.
            codec: that codes it.
            options: what is known of the gradient, and may be done with it. Shards only where there
                is a switch that ``has_owners``.
        """

    def renew(self, deadline: float) -> None:
        """Begin again after a failure; waits for all workers.

        Raises:
            InnetError: a worker is missing.
        """

    def is_lost(self) -> bool:
        """Whether only a new reducer helps."""

    def diagnose(self) -> str | None:
        """After a stall: whom it waits for, if that can be known."""

    def leave(self) -> None:
        """End the connection."""


class SwitchMembership(Protocol):
    """A worker's membership in a job at a switch, as ``innet.service.join`` returns it."""

    worker: int
    workers: int

    @property
    def plan(self) -> Plan: ...

    @property
    def transport(self) -> ClockedTransport: ...

    @property
    def switch(self) -> str: ...

    @property
    def gone(self) -> frozenset[int]: ...

    def read_register(self, switch: str, name: str, index: int) -> int: ...

    def renew(self, deadline: float) -> Plan: ...

    def leave(self) -> None: ...


class SwitchReducer:
    """Sums through a switch; see ``Reducer``.

    Args:
        member: of a job that has begun.
        deadline: seconds that an all-reduce waits for a worker, including its computation.
    """

    def __init__(self, member: SwitchMembership, deadline: float) -> None:
        self.worker = member.worker
        self.workers = member.workers
        self._member = member
        self._reducer = Worker(
            member.plan,
            self.worker,
            codec="dense",  # each all-reduce has its codec
            transport=member.transport,
            switch="service",
            timing=replace(TIMING, give_up=deadline),
        )

    def check(self, codec: Codec) -> None:
        check_codec(self._member.plan, codec)

    def combine(self, segments: Sequence[Segment]) -> list[Words]:
        return self._reducer.combine(segments)

    def all_reduce(
        self,
        gradient: Vector,
        codec: Codec,
        options: SumOptions,
    ) -> tuple[ExchangeOutcome, Report]:
        return self._reducer.all_reduce_floats(gradient, options, codec=codec)

    @property
    def has_owners(self) -> bool:
        """Whether the switch's program does more than all-reduces."""
        return self._member.plan.layout.has_owners

    def scatters(self, codec: Codec) -> bool:
        """Whether the switch does reduce-scatters of that codec's sums."""
        try:
            codec.check_sharded()
        except CompositionError:
            return False
        return self.has_owners

    def all_gather(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Report]:
        """All workers' tensors, one after the other; see ``Worker.all_gather``."""
        return self._reducer.all_gather(tensor)

    def broadcast(self, tensor: torch.Tensor, root: int) -> tuple[torch.Tensor, Report]:
        """The root's tensor; see ``Worker.broadcast``."""
        return self._reducer.broadcast(tensor, root)

    def barrier(self) -> Report:
        """Wait until all workers have come here."""
        return self._reducer.barrier()

    def renew(self, deadline: float) -> None:
        self._reducer.begin_epoch(self._member.renew(deadline))

    def is_lost(self) -> bool:
        try:
            _ = self._member.gone
        except (MembershipError, StateError):  # now, or in an earlier renew
            return True
        return False

    def diagnose(self) -> str | None:
        try:
            return self._reducer.diagnose(self._member.read_register)
        except (InnetError, OSError):  # the switch is gone
            return None

    def leave(self) -> None:
        self._member.leave()


class GroupReducer:
    """Sums by the all-reduce of gloo or NCCL, without a switch; see ``Reducer``.

    Words are summed as int32, modulo 2**32, as a switch does. A test sum checks this first; if the
    group's sums do not wrap around, codecs that need this are refused. If the group has no BOR, as
    NCCL, bits are sent as bytes with MAX: 8 times the words of bitmaps.

    It has its own connections between the group's ranks, since it runs in a thread, and
    collectives of one group need one order.

    Args:
        group: the process group; None for the default group.
        deadline: seconds that an all-reduce waits for a rank, including its computation.

    Raises:
        InputError: there is no process group, this rank is not in it, or it is not of gloo, NCCL or
            innet.
        NetworkError: a rank is missing.
    """

    def __init__(self, group: Any, deadline: float) -> None:
        if not dist.is_initialized():
            raise InputError(
                "there is no process group; call torch.distributed.init_process_group."
            )
        self.worker = dist.get_rank(group)
        if self.worker < 0:
            raise InputError("this rank is not in the process group.")
        self.workers = dist.get_world_size(group)
        self._parent = group
        self._name = _backend_of(dist.get_backend_config(group))
        self._device = torch.device("cpu")
        if self._name == "nccl":
            self._device = torch.device("cuda", torch.cuda.current_device())
        self._bytes = 0
        self._may_overflow: Callable[[], bool] = lambda: False
        self._open(deadline)

    def _open(self, deadline: float) -> None:
        first = 0 if self._parent is None else dist.get_global_rank(self._parent, 0)
        drawn = [secrets.token_hex(8) if self.worker == 0 else None]
        try:
            dist.broadcast_object_list(drawn, src=first, group=self._parent)
            self._store = PrefixStore(
                f"innet/{drawn[0]}", dist.distributed_c10d._get_default_store()
            )
            self._group = _connect(
                self._name, self._store, self.worker, self.workers, timedelta(seconds=deadline)
            )
        except RuntimeError as error:
            raise NetworkError(
                f"rank {self.worker} could not connect to the other {self.workers - 1} ranks by "
                f"{self._name}: {_first_line(error)}"
            ) from error
        self._probe()

    def _probe(self) -> None:
        """Whether sums wrap, and whether there is a bitwise OR: versions of PyTorch differ."""
        quarters = np.full(1, _QUARTER, np.int32)
        wrapped = np.asarray([self.workers * _QUARTER]).astype(np.uint32).view(np.int32)
        bit = np.full(1, 1 << self.worker % 31, np.int32)
        try:
            self._wraps = bool(self._all_reduce(quarters, dist.ReduceOp.SUM)[0] == wrapped[0])
        except RuntimeError as error:
            raise self._failure(error) from error
        try:
            bits = self._all_reduce(bit, dist.ReduceOp.BOR)
        except (RuntimeError, ValueError):  # refused on each rank, before anything was sent
            self._has_or = False
        else:
            self._has_or = bool(bits[0] == (1 << min(self.workers, 31)) - 1)

    def check(self, codec: Codec) -> None:
        codec.value_bits(self.workers)
        if codec.sends_floats:
            raise CompositionError(
                f"the codec {codec.describe()} sends floats for a switch to add, and this process "
                f"group ({self._name}) adds integers only; choose another codec, such as dense."
            )
        if codec.wraps and not self._wraps:
            raise CompositionError(
                f"the codec {codec.describe()} needs sums modulo 2**32, and those of this process "
                f"group ({self._name}) are not; choose another group, or the carrier dense."
            )

    def combine(self, segments: Sequence[Segment]) -> list[Words]:
        return self._round({self.worker: segments}).words[self.worker]

    def all_reduce(
        self,
        gradient: Vector,
        codec: Codec,
        options: SumOptions,
    ) -> tuple[ExchangeOutcome, Report]:
        begun = time.perf_counter()
        self._bytes = 0
        self._may_overflow = lambda: codec.may_overflow
        try:
            reduction = run_loop(
                reduce_loop(
                    {self.worker: codec},
                    {self.worker: gradient},
                    tuple(range(self.workers)),
                    has_epochs=False,
                    options=options,
                ),
                self._round,
                _no_epochs,
            )
        finally:
            self._may_overflow = lambda: False
        outcome = reduction.outcomes[self.worker]
        report = Report(
            exact=None,
            workers=self.workers,
            codec=codec.describe(),
            program="none",
            engine="all-reduce",
            transport=self._name,
            values_per_packet=0,
            elements=gradient.size,
            rounds=outcome.rounds,
            packets_sent=0,
            packets_received=0,
            bytes_sent=self._bytes,
            bytes_dense=gradient.nbytes,
            seconds=Seconds(
                encode=outcome.encode_seconds,
                network=reduction.network,
                decode=outcome.decode_seconds,
                total=time.perf_counter() - begun,
            ),
            max_abs_error=None,
            max_abs_error_sent=None,
            infinite=outcome.infinite,
            details=dict(outcome.details),
        )
        return outcome, report

    def _round(self, segments: Mapping[int, Sequence[Segment]]) -> RoundResult:
        """One all-reduce for each operation of the round."""
        mine = segments[self.worker]
        words: list[Words] = [np.empty(0, np.int32)] * len(mine)
        overflowed = False
        try:
            for operation in ReduceOp:
                places = [i for i, each in enumerate(mine) if each.operation is operation]
                joined = np.concatenate([np.empty(0, np.int32), *(mine[i].words for i in places)])
                if not joined.size:
                    continue
                if operation is ReduceOp.SUM and self._may_overflow():
                    combined, overflowed = self._summed_wide(joined)
                else:
                    combined = self._combined(operation, joined)
                ends = np.cumsum([mine[i].words.size for i in places])
                for i, part in zip(places, np.split(combined, ends[:-1]), strict=True):
                    words[i] = part
        except (RuntimeError, ValueError) as error:
            raise self._failure(error) from error
        return RoundResult({self.worker: words}, overflowed=overflowed)

    def _combined(self, operation: ReduceOp, words: Words) -> Words:
        if operation is ReduceOp.SUM:
            return self._all_reduce(words, dist.ReduceOp.SUM)
        if operation is ReduceOp.MAX:
            return self._all_reduce(words, dist.ReduceOp.MAX)
        if self._has_or:
            return self._all_reduce(words, dist.ReduceOp.BOR)
        bits = self._all_reduce(np.unpackbits(words.view(np.uint8)), dist.ReduceOp.MAX)
        return np.packbits(bits).view(np.int32)

    def _summed_wide(self, words: Words) -> tuple[Words, bool]:
        """The sum as int32, and whether it exceeds int32, in all-reduces of int64."""
        wide = self._all_reduce(words.astype(np.int64), dist.ReduceOp.SUM)
        narrow = wide.astype(np.int32)
        return narrow, bool((narrow != wide).any())

    def _all_reduce(self, array: NDArray[Any], operation: Any) -> NDArray[Any]:
        self._bytes += array.nbytes
        tensor = torch.from_numpy(array.copy()).to(self._device)
        options = dist.AllreduceOptions()
        options.reduceOp = operation
        self._group.allreduce([tensor], options).wait()
        result: NDArray[Any] = tensor.cpu().numpy()
        return result

    # ------------------------------------------------------------------ failures

    def _failure(self, error: Exception) -> InnetError:
        """The error of a failed all-reduce, with the ranks that are missing.

        Each survivor notes in the store that it failed, and ends its connections, so that the
        others fail too instead of waiting.
        """
        said = f"worker {self.worker}: the all-reduce of {self._name} failed: {_first_line(error)}"
        missing = self._missing()
        if not missing:
            return NetworkError(said)
        who = f"worker{'s' if len(missing) > 1 else ''} {number_list(missing)}"
        return MembershipError(f"{who} did not answer; {said}")

    def _missing(self) -> list[int]:
        try:
            self._store.set(f"failed/{self.worker}", "")
            self._group.abort()
            missing = [each for each in range(self.workers) if each != self.worker]
            until = time.monotonic() + _REPORT_SECONDS
            while missing and time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
                missing = [each for each in missing if not self._store.check([f"failed/{each}"])]
        except RuntimeError:  # the process with the store has ended
            return []
        return missing

    def renew(self, deadline: float) -> None:
        self.leave()
        self._open(deadline)

    def is_lost(self) -> bool:
        return False

    def diagnose(self) -> str | None:
        return None

    def leave(self) -> None:
        self._group.shutdown()


def _backend_of(config: str) -> str:
    """The back end for words, of those of a group: gloo if it has it.

    Raises:
        InputError: it has neither gloo nor NCCL.
    """
    names = {part.rpartition(":")[2] for part in config.split(",")}
    if names & {"gloo", "innet"}:  # innet's process group leaves integers to gloo
        return "gloo"
    if "nccl" in names:
        return "nccl"
    raise InputError(
        f"a process group of {config}; CompressionHook takes one of gloo or NCCL. Make one by "
        "torch.distributed.new_group(backend='gloo')."
    )


def _connect(name: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, rank, size, options)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _no_epochs(without: tuple[int, ...]) -> tuple[int, ...]:
    raise AssertionError(f"a group has no epochs, yet the loop leaves out {without}")
