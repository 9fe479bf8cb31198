"""A process group whose all-reduces of floats are summed by a switch.

    import innet.torch
    torch.distributed.init_process_group("innet")

gloo runs all other collectives, and all-reduces of other dtypes or operations.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.codecs import SumOptions, build_codec
from innet.core.errors import CompositionError, InputError
from innet.records import Report
from innet.torch import gloo
from innet.torch.callbacks import CallbackThreads
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.future import SettableFuture
from innet.torch.reducers import SwitchReducer
from innet.torch.rendezvous import RendezvousSettings, join_store
from innet.torch.tensors import DTYPES, memory_of, premultiplier, torch

dist = torch.distributed
PrefixStore = torch.distributed.distributed_c10d.PrefixStore
Work = torch.distributed.distributed_c10d.Work
Vector = NDArray[np.float32]

DEFAULT_CODEC = "exact"


# A ``Backend`` in Python (PyTorch 2.14) would not do: of its works and futures callers get what
# PyTorch makes in C++, whose ``then`` runs a callback wherever the work ends.
class SwitchGroup(dist.ProcessGroup):
    """Ranks that are workers of one job at a switch.

    A separate thread runs all-reduces with SUM, AVG or PREMUL_SUM of float32, float16 and bfloat16
    over the switch, in order. Their codec is ``INNET_CODEC``; by default ``exact``, whose sum is
    correctly rounded. gloo runs all-reduces with a NaN or an infinity. Callbacks of their futures
    run in other threads, and may begin all-reduces and wait for them.

    Args:
        store: a store for this group only.
        rank, size: in the group.
        timeout: how long an all-reduce waits for a rank.
        codec: a preset's name; by default that of ``INNET_CODEC``.

    Attributes:
        codec: of all-reduces; groups of one rank have none.
        reports: of the most recent all-reduces.

    Raises:
        InnetError: the switch cannot be reached or refuses, or a rank is missing.
        CompositionError: the codec has error feedback or momentum, and a process group cannot
            identify tensors. Use the communication hook for it.
    """

    def __init__(
        self, store: Any, rank: int, size: int, timeout: timedelta, codec: str | None = None
    ) -> None:
        _keep_uncompiled()
        codec = stateless_codec(codec)
        super().__init__(rank, size)  # type: ignore[call-arg]  # PyTorch's own types lack this form
        self._store = store
        self._timeout = timeout
        self.reports: deque[Report] = deque(maxlen=100)
        self._comm_thread: CommThread | None = None
        if size > 1:
            compile_codec(codec)
            settings = RendezvousSettings.of(deadline=timeout.total_seconds())
            member = join_store(store, rank, size, settings)
            # The job's name is new. The store may hold the addresses of an earlier group.
            self._store = PrefixStore(member.job, store)
            reducer = SwitchReducer(member, settings.deadline)
            self._comm_thread = CommThread(reducer, deadline=settings.deadline)
            self.codec = self._comm_thread.build_codec(codec)
        backend = self._make_gloo("gloo")
        threads = CallbackThreads() if self._comm_thread is None else self._comm_thread.callbacks
        self._gloo = gloo.Gloo(backend, threads)
        self._for_infinite: Any = None
        self._coalesced: list[Any] | None = None
        self._register_backend(
            torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo.backend
        )

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        return "innet"

    # ------------------------------------------------------------------ all-reduces

    def allreduce(self, tensors: Any, options: Any = None, timeout: Any = None) -> Any:
        """Compute a sum or mean in place on all ranks; see the class."""
        del timeout  # the group's
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        return self._all_reduce("allreduce", tensors, _operation(options))

    def allreduce_coalesced(self, tensors: Any, options: Any = None) -> Any:
        """Reduce several tensors."""
        return self._all_reduce("allreduce_coalesced", list(tensors), _operation(options))

    def _all_reduce(self, name: str, tensors: list[torch.Tensor], operation: _Operation) -> Any:
        # An all-reduce of no tensors would never complete.
        if not (tensors and operation.is_sum and all(_is_codable(each) for each in tensors)):
            return self._by_gloo(name, tensors, operation.given)
        if self._comm_thread is None or not all(each.numel() for each in tensors):
            if operation.factor != 1:
                for tensor in tensors:
                    gloo.write(tensor, gloo.plain_copy(tensor) * operation.factor)
            return self._by_gloo(name, tensors, operation.kind)
        for tensor in tensors:
            gloo.check_writable(tensor)
        work = SwitchWork(tensors, self._comm_thread.callbacks)
        for number, tensor in enumerate(tensors):
            its_name = f"{work.origin.name}, tensor {number}"
            self._comm_thread.put(_AllReduce(self, its_name, tensor, operation, work))
        return self.began(work)

    def _by_gloo(self, name: str, tensors: list[torch.Tensor], operation: Any) -> Any:
        of = dist.AllreduceOptions if name == "allreduce" else dist.AllreduceCoalescedOptions
        options = _options(operation, self._timeout, of)
        return self.began(gloo.run(self._gloo, name, tensors, options))

    def reduce_infinite(self, tensor: torch.Tensor, operation: _Operation) -> None:
        """All-reduce values that are infinite or NaN, over gloo.

        It runs in the communication thread and has separate connections: other threads use those of
        ``gloo`` in another order.
        """
        if self._for_infinite is None:
            self._for_infinite = self._make_gloo("gloo for infinite values")
        total = gloo.plain_copy(tensor)
        if operation.factor != 1:
            total *= operation.factor
        self._for_infinite.allreduce([total], _options(dist.ReduceOp.SUM, self._timeout)).wait()
        if operation.kind == dist.ReduceOp.AVG:
            total /= self.size()
        gloo.write(tensor, total)

    # ------------------------------------------------------------------ several as one

    def _start_coalescing(self, device: Any = None) -> None:
        """Collectives that begin from here on are one work; they begin at once."""
        del device
        self._coalesced = []

    def _end_coalescing(self, device: Any = None) -> Any:
        """The work of those that began since ``_start_coalescing``."""
        del device
        works, self._coalesced = self._coalesced or [], None
        is_counted = all(getattr(work, "is_counted", True) for work in works)
        return gloo.GlooWork(works, [], self._gloo.callbacks, is_counted=is_counted)

    def began(self, work: Any) -> Any:
        """Note a work that has begun; returns it."""
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _make_gloo(self, name: str) -> Any:
        return dist.ProcessGroupGloo(
            PrefixStore(name, self._store), self.rank(), self.size(), self._timeout
        )

    # ------------------------------------------------------------------ the end

    supports_reconfigure = False  # of PyTorch 2.14

    def reconfigure(self, options: Any = None) -> Any:
        """Refused: a job at the switch has the workers that it began with."""
        del options
        raise InputError(
            "a process group of innet cannot take other ranks; destroy it, and make a new one."
        )

    def shutdown(self) -> None:
        """Leave the job. ``destroy_process_group`` calls it."""
        if self._comm_thread is not None:
            self._comm_thread.close()
            self._comm_thread = None

    def abort(self) -> None:
        self.shutdown()


class SwitchWork(Work):
    """All-reduces under way.

    Args:
        tensors: the tensors that are reduced.
        callbacks: run those of its future.

    Attributes:
        origin: names it on all workers.
    """

    def __init__(self, tensors: list[torch.Tensor], callbacks: CallbackThreads) -> None:
        super().__init__()
        self.origin = callbacks.begin()
        self._callbacks = callbacks
        self._tensors = tensors
        self._left = len(tensors)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._future: SettableFuture | None = None

    def one_done(self) -> None:
        """The sum is in another tensor."""
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
            raise TimeoutError(f"an all-reduce is not complete after {seconds:g} s.")
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


class _AllReduce:
    """The reduction of one tensor; see ``innet.torch.comm_thread.ReduceWork``."""

    def __init__(
        self,
        group: SwitchGroup,
        name: str,
        tensor: torch.Tensor,
        operation: _Operation,
        work: SwitchWork,
    ) -> None:
        self.name = name
        self.codec = group.codec
        self.parts = ()  # the codec holds nothing back
        # The sum takes the tensor's place anyway.
        size = group.size()
        # A mean is a sum divided: the same as multiplied where the factor is exact.
        is_mean = operation.kind == dist.ReduceOp.AVG
        exact = is_mean and size & (size - 1) == 0
        self.options = SumOptions(factor=1 / size if exact else 1.0, overwrite=True)
        self._divides = is_mean and not exact
        self._group = group
        self._tensor = tensor
        self._operation = operation
        self._work = work

    @property
    def fingerprint(self) -> str:
        shape = tuple(self._tensor.shape)
        return f"{self._operation.kind} of {self._tensor.dtype} of shape {shape}"

    def load(self) -> Vector:
        # The tensor's own memory, where it is float32 in one piece.
        floats = self._tensor.detach().to(torch.float32).resolve_neg()
        if self._operation.factor != 1:
            floats = floats * self._operation.factor
        return memory_of(floats.contiguous())

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        if self._divides:
            total /= np.float32(self._group.size())
        elif factor != 1:
            total *= np.float32(factor)
        result = torch.from_numpy(total)
        if result.data_ptr() != self._tensor.data_ptr():
            gloo.write(self._tensor, result.reshape(self._tensor.shape))
        self._group.reports.append(report)
        self._work.one_done()

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        self._group.reduce_infinite(self._tensor, self._operation)
        self._work.one_done()

    def set_exception(self, error: BaseException) -> None:
        self._work.one_failed(error)


# PyTorch could call gloo itself, but it holds the GIL while it calls a group that is a Python
# class. A gloo thread that has ended an earlier collective may need the GIL to release tensors
# while it holds the lock that the call waits for: a deadlock.
BY_GLOO = (*gloo.COLLECTIVES, *gloo.COALESCED, *gloo.SCATTERED, *gloo.GATHERED)
"""Methods of the group that gloo runs."""
for _name in BY_GLOO:
    setattr(SwitchGroup, _name, gloo.method(_name))


@functools.cache
def _keep_uncompiled() -> None:
    """Make ``torch.compile`` call collectives instead of tracing them, which it refuses for groups
    other than PyTorch's. It is not called at import, since that would import the compiler.
    """
    disable: Callable[..., Any] = torch.compiler.disable
    for name in (*BY_GLOO, "allreduce", "allreduce_coalesced"):
        setattr(SwitchGroup, name, disable(getattr(SwitchGroup, name)))


def create(store: Any, rank: int, size: int, timeout: timedelta) -> SwitchGroup:
    """Called by PyTorch for ``init_process_group("innet")`` and ``new_group``."""
    return SwitchGroup(store, rank, size, timeout)


def stateless_codec(name: str | None = None) -> str:
    """Check that a codec works without knowing which tensor is which.

    Args:
        name: of a preset; by default that of ``INNET_CODEC``, or ``exact``.

    Returns:
        The name.

    Raises:
        UnknownNameError: the codec does not exist.
        CompositionError: it has error feedback or momentum.
    """
    source = "the codec"
    if name is None:
        source, name = "INNET_CODEC", os.environ.get("INNET_CODEC") or DEFAULT_CODEC
    if build_codec(name).keeps_state:
        raise CompositionError(
            f"{source} is {name!r}, which remembers what it did not send, but a process group "
            "does not know which tensor is which; use innet.torch.ddp_hook, or a codec that sends "
            "everything, such as exact, dense or lhc."
        )
    return name


def _is_codable(tensor: torch.Tensor) -> bool:
    is_dense = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return is_dense and tensor.dtype in DTYPES


class _Operation(NamedTuple):
    """What an all-reduce does.

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


def _operation(options: Any) -> _Operation:
    """The operation of options, or the argument itself, or the default."""
    given = dist.ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)
    if given == dist.ReduceOp.PREMUL_SUM:
        return _Operation(given, dist.ReduceOp.SUM, premultiplier(given))
    # A constant of ReduceOp, if it equals one.
    constants = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    return _Operation(given, next((each for each in constants if given == each), given))


def _options(operation: Any, timeout: timedelta, of: Any = dist.AllreduceOptions) -> Any:
    options = of()
    options.reduceOp = operation
    options.timeout = timeout
    return options
