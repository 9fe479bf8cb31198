"""Collectives that a switch does: the works of the communication thread, and what callers get.

``STEPS`` has those that take a program whose chunks have owners. All ranks decide alike whether the
switch does one: by operation, dtypes and numbers of elements, never by strides.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, SumOptions
from innet.core.errors import InputError
from innet.core.shards import Shards
from innet.records import Report
from innet.torch import gloo
from innet.torch.callbacks import CallbackThreads
from innet.torch.comm_thread import CollectiveWork
from innet.torch.future import SettableFuture
from innet.torch.reducers import SwitchReducer
from innet.torch.tensors import DTYPES, memory_of, premultiplier, torch

dist = torch.distributed
Work = torch.distributed.distributed_c10d.Work
Vector = NDArray[np.float32]


class SwitchedGroup(Protocol):
    """What collectives need of their process group.

    Attributes:
        codec: of sums.
        scatters: whether the switch does reduce-scatters with it.
        reducer: the connection to the switch; None for a group of one rank.
        reports: of the most recent collectives.
    """

    codec: Codec
    scatters: bool
    reducer: SwitchReducer | None
    reports: deque[Report]

    def rank(self) -> int: ...

    def size(self) -> int: ...

    def sum_by_gloo(self, tensor: torch.Tensor, operation: Operation) -> torch.Tensor: ...


def is_codable(tensor: torch.Tensor) -> bool:
    """Whether a codec can code it."""
    return _is_dense(tensor) and tensor.dtype in DTYPES


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.device.type == "cpu"


class Operation(NamedTuple):
    """What is done with the tensors of all ranks.

    Attributes:
        given: PyTorch's operation.
        kind: that, or SUM if it is a sum of tensors that are multiplied by a factor before.
        factor: that factor, of PREMUL_SUM, which each rank may have its own of.
    """

    given: Any
    kind: Any
    factor: float = 1.0

    @property
    def is_sum(self) -> bool:
        return self.kind in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)


def operation_of(options: Any) -> Operation:
    """The operation of options, or the argument itself, or the default."""
    given = dist.ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)
    if given == dist.ReduceOp.PREMUL_SUM:
        return Operation(given, dist.ReduceOp.SUM, premultiplier(given))
    # A constant of ReduceOp, if it equals one.
    constants = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    return Operation(given, next((each for each in constants if given == each), given))


# ------------------------------------------------------------------ what callers get


class SwitchWork(Work):
    """Collectives under way.

    Args:
        tensors: the tensors that are its result.
        callbacks: run those of its future.
        steps: how many of the communication thread's works it waits for.

    Attributes:
        origin: names it on all workers.
    """

    def __init__(self, tensors: list[torch.Tensor], callbacks: CallbackThreads, steps: int) -> None:
        super().__init__()
        self.origin = callbacks.begin()
        self._callbacks = callbacks
        self._tensors = tensors
        self._left = steps
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._future: SettableFuture | None = None

    def one_done(self, *results: tuple[torch.Tensor, torch.Tensor]) -> None:
        """One of the steps is done.

        Args:
            results: tensors, and what is written to them.
        """
        try:
            for tensor, values in results:
                gloo.write(tensor, values)
        except InputError as error:  # of an expanded tensor; the others have what they should
            self.one_failed(error)
            return
        self._left -= 1
        if self._left == 0 and self._error is None:
            self._end()

    def one_failed(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._done.set()
        if self._future is not None:
            self._complete()

    def _complete(self) -> None:
        assert self._future is not None
        if self._error is None:
            self._future.complete(self._tensors)
        else:
            self._future.fail(self._error)

    def is_completed(self) -> bool:
        return self._done.is_set()

    def is_success(self) -> bool:
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete, and the callbacks of its future have run.

        Raises:
            InnetError: it failed.
            TimeoutError: it is not complete after ``timeout``.
        """
        seconds = None if not timeout else timeout.total_seconds()
        over = self._done.wait(seconds)
        if over and self._future is not None:
            over = self._future.wait_until_over(seconds)
        if not over:
            raise TimeoutError(f"a collective is not complete after {seconds:g} s.")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> Any:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = SettableFuture(self._callbacks, origin=self.origin)
            done = self._done.is_set()
        if done:
            self._complete()
        return self._future


# ------------------------------------------------------------------ works of the thread


class Sum:
    """The sum of tensors of all ranks; see ``innet.torch.comm_thread.ReduceWork``.

    Args:
        name: as of a ``ReduceWork``.
        work: waits for it.
        group: the process group.
        given: the tensors that are summed, one after the other.
        place: where the sum goes, or this rank's part of it; None for nowhere.
        operation: what is done.
        shards: which part of the sum each rank gets; None for all of it, which then takes the place
            of the one tensor that is given.
    """

    def __init__(
        self,
        name: str,
        work: SwitchWork,
        *,
        group: SwitchedGroup,
        given: Sequence[torch.Tensor],
        place: torch.Tensor | None,
        operation: Operation,
        shards: Shards | None = None,
    ) -> None:
        self.name = name
        self.codec = group.codec
        self.parts = ()  # the codec holds nothing back
        size = group.size()
        # A mean is a sum divided: the same as multiplied where the factor is exact.
        is_mean = operation.kind == dist.ReduceOp.AVG
        exact = is_mean and shards is None and size & (size - 1) == 0
        # The whole sum takes the tensor's place anyway.
        self.options = SumOptions(
            factor=1 / size if exact else 1.0, overwrite=shards is None, shards=shards
        )
        self._divides = is_mean and not exact
        self._group = group
        self._given = given
        self._place = place
        self._operation = operation
        self._shards = shards
        self._work = work

    @property
    def fingerprint(self) -> str:
        first = self._given[0]
        said = f"{self._operation.kind} of {first.dtype} of shape {tuple(first.shape)}"
        if self._shards is None:
            return said
        return f"{said}, parts at {self._shards.bounds} for ranks {self._shards.owners}"

    def load(self) -> Vector:
        # The tensor's own memory, where it is float32 in one piece.
        floats = self._joined().detach().to(torch.float32).resolve_neg()
        if self._operation.factor != 1:
            floats = floats * self._operation.factor
        return memory_of(floats.contiguous())

    def _joined(self) -> torch.Tensor:
        if len(self._given) == 1:
            return self._given[0]
        return torch.cat([gloo.plain_copy(each).view(-1) for each in self._given])

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        self._group.reports.append(report)
        total = total[self._mine()]
        if self._place is None:
            self._work.one_done()
            return
        if self._divides:
            total /= np.float32(self._group.size())
        elif factor != 1:
            total *= np.float32(factor)
        result = torch.from_numpy(total)
        if result.numel() and result.data_ptr() == self._place.data_ptr():
            self._work.one_done()
        else:
            self._work.one_done((self._place, result.reshape(self._place.shape)))

    def _mine(self) -> slice:
        return slice(None) if self._shards is None else self._shards.part(self._group.rank())

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        total = self._group.sum_by_gloo(self._joined(), self._operation)
        if self._place is None:
            self._work.one_done()
            return
        mine = total.reshape(-1)[self._mine()]
        self._work.one_done((self._place, mine.reshape(self._place.shape)))

    def set_exception(self, error: BaseException) -> None:
        self._work.one_failed(error)


class Move:
    """A collective that sums nothing; see ``innet.torch.comm_thread.MoveWork``.

    Args:
        name: as of a ``MoveWork``.
        work: waits for it.
        fingerprint: what it is, the same on all ranks.
        call: does it; returns the tensors to write to, with what is written, and the report.
        reports: where the report goes.
    """

    def __init__(
        self,
        name: str,
        work: SwitchWork,
        *,
        fingerprint: str,
        call: Call,
        reports: deque[Report],
    ) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self._call = call
        self._reports = reports
        self._work = work

    def move(self) -> None:
        results, report = self._call()
        self._reports.append(report)
        self._work.one_done(*results)

    def set_exception(self, error: BaseException) -> None:
        self._work.one_failed(error)


Results: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]
Call: TypeAlias = Callable[[], tuple[Results, Report]]


# ------------------------------------------------------------------ collectives as steps


class PlannedWorks(NamedTuple):
    """A collective as works of the communication thread.

    Attributes:
        results: the tensors that it writes.
        make: for each of the works, what makes it of its name and the work of the caller.
    """

    results: list[torch.Tensor]
    make: Sequence[Callable[[str, SwitchWork], CollectiveWork]]


def _reduce_scatter(
    group: SwitchedGroup, outputs: Any, inputs: Any, options: Any = None, *_: Any
) -> PlannedWorks | None:
    operation = operation_of(options)
    if isinstance(outputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    if not (group.scatters and operation.is_sum and len(outputs) == len(inputs)):
        return None
    make = []
    for output, given in zip(outputs, inputs, strict=True):
        parts = list(given) if isinstance(given, (list, tuple)) else [given]
        if not all(is_codable(each) and each.dtype == output.dtype for each in [output, *parts]):
            return None
        lengths = gloo.lengths_of(output, parts, group.rank(), group.size())
        if not sum(lengths):
            return None
        shards = Shards.of(sum(lengths), range(group.size()), lengths)
        make.append(
            partial(Sum, group=group, given=parts, place=output, operation=operation, shards=shards)
        )
    return PlannedWorks(list(outputs), make) if make else None


def _reduce(
    group: SwitchedGroup, tensors: Any, options: Any = None, *_: Any
) -> PlannedWorks | None:
    operation = operation_of(options)
    root = _root_of(group, options)
    if not (group.scatters and operation.is_sum) or root is None:
        return None
    if not (isinstance(tensors, list) and all(map(is_codable, tensors))):
        return None
    if not (tensors and all(each.numel() for each in tensors)):
        return None
    is_root = group.rank() == root
    make = [
        partial(
            Sum,
            group=group,
            given=[tensor],
            place=tensor if is_root else None,
            operation=operation,
            shards=Shards.of(tensor.numel(), (root,)),
        )
        for tensor in tensors
    ]
    return PlannedWorks(tensors, make)


def _all_gather(
    group: SwitchedGroup, outputs: Any, inputs: Any, options: Any = None, *_: Any
) -> PlannedWorks | None:
    del options
    if isinstance(inputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    if not inputs or len(outputs) != len(inputs):
        return None
    make, results = [], []
    for output, given in zip(outputs, inputs, strict=True):
        are_many = isinstance(output, (list, tuple))
        places = list(output) if are_many else [output]
        if not all(_is_dense(each) and each.dtype == given.dtype for each in [given, *places]):
            return None
        if are_many:
            fits = len(places) == group.size() and all(each.shape == given.shape for each in places)
        else:
            fits = output.numel() == group.size() * given.numel()
        if not (fits and given.numel()):
            return None
        results += places
        make.append(gathering(group.reducer, places, given, group.reports))
    return PlannedWorks(results, make)


def gathering(
    reducer: SwitchReducer | None,
    places: list[torch.Tensor],
    given: torch.Tensor,
    reports: deque[Report],
) -> Callable[[str, SwitchWork], Move]:
    """What makes the ``Move`` of an all-gather.

    Args:
        reducer: the connection to the switch.
        places: where the ranks' tensors go: one for each, or one for all, one after the other.
        given: this rank's, with as many elements as those of the others.
        reports: where the report goes.
    """

    def call() -> tuple[Results, Report]:
        assert reducer is not None
        found, report = reducer.all_gather(gloo.plain(given))
        rows = found.chunk(len(places))
        return [(p, row.view(p.shape)) for p, row in zip(places, rows, strict=True)], report

    said = f"an all-gather of {given.numel()} elements of {given.dtype}"
    return partial(Move, fingerprint=said, call=call, reports=reports)


def _broadcast(
    group: SwitchedGroup, tensors: Any, options: Any = None, *_: Any
) -> PlannedWorks | None:
    root = _root_of(group, options)
    if root is None or not (isinstance(tensors, list) and tensors):
        return None
    if not all(_is_dense(each) and each.numel() for each in tensors):
        return None
    make = [
        partial(
            Move,
            fingerprint=f"a broadcast of {each.numel()} elements of {each.dtype} from {root}",
            call=partial(_spread, group, each, root),
            reports=group.reports,
        )
        for each in tensors
    ]
    return PlannedWorks(tensors, make)


def _spread(group: SwitchedGroup, tensor: torch.Tensor, root: int) -> tuple[Results, Report]:
    assert group.reducer is not None
    found, report = group.reducer.broadcast(gloo.plain(tensor), root)
    return [] if group.rank() == root else [(tensor, found)], report


def _root_of(group: SwitchedGroup, options: Any) -> int | None:
    """The root that options name; None if they name none, or a wrong one, as gloo says."""
    root = getattr(options, "rootRank", None)
    return root if isinstance(root, int) and 0 <= root < group.size() else None


def _barrier(group: SwitchedGroup, options: Any = None) -> PlannedWorks:
    del options
    call = partial(_meet, group)
    make = partial(Move, fingerprint="a barrier", call=call, reports=group.reports)
    return PlannedWorks([], [make])


def _meet(group: SwitchedGroup) -> tuple[Results, Report]:
    assert group.reducer is not None
    return [], group.reducer.barrier()


STEPS: dict[str, Callable[..., PlannedWorks | None]] = {
    **dict.fromkeys(gloo.SCATTERED, _reduce_scatter),
    **dict.fromkeys(
        (
            "allgather",
            "_allgather_base",
            "all_gather_single",
            "allgather_into_tensor_coalesced",
            "all_gather_single_coalesced",
        ),
        _all_gather,
    ),
    "broadcast": _broadcast,
    "reduce": _reduce,
    "barrier": _barrier,
}
"""Methods of a process group that a switch can do, and what makes their steps of their arguments:
None if gloo has to do it."""
