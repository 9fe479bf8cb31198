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
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, build_codec
from innet.core.errors import CompositionError
from innet.core.reduce_op import Deferral
from innet.records import Report
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.future import SettableFuture
from innet.torch.reducers import SwitchReducer
from innet.torch.rendezvous import Settings, join_store
from innet.torch.tensors import DTYPES, torch

dist = torch.distributed
PrefixStore = torch.distributed.distributed_c10d.PrefixStore
Work = torch.distributed.distributed_c10d.Work
Vector = NDArray[np.float32]

DEFAULT_CODEC = "exact"


class SwitchGroup(dist.ProcessGroup):
    """Ranks that are workers of one job at a switch.

    A separate thread runs all-reduces with SUM or AVG of float32, float16 and bfloat16 over the
    switch, in order. Their codec is ``INNET_CODEC``; by default ``exact``, whose sum is correctly
    rounded. gloo runs all-reduces with a NaN or an infinity.

    Args:
        store: a store for this group only.
        rank, size: in the group.
        timeout: how long an all-reduce waits for a rank.
        codec: a preset's name; by default that of ``INNET_CODEC``.

    Attributes:
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
            settings = Settings.of(deadline=timeout.total_seconds())
            member = join_store(store, rank, size, settings)
            # The job's name is new. The store may hold the addresses of an earlier group.
            self._store = PrefixStore(member.job, store)
            reducer = SwitchReducer(member, settings.deadline)
            self._comm_thread = CommThread(reducer, deadline=settings.deadline)
            self._codec = self._comm_thread.build_codec(codec)
        self._gloo = self._make_gloo("gloo")
        self._for_infinite: Any = None
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, self._gloo)

    def getBackendName(self) -> str:  # noqa: N802 - PyTorch's name
        return "innet"

    # ------------------------------------------------------------------ all-reduces

    def allreduce(self, tensors: Any, options: Any = None, timeout: Any = None) -> Any:
        """Compute a sum or mean in place on all ranks; see the class."""
        del timeout  # the group's
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        operation = _operation(options)
        if self._comm_thread is None or not _all_fit(tensors, operation):
            return self._gloo.allreduce(tensors, _options(operation, self._timeout))
        return self._submit(tensors, operation)

    def allreduce_coalesced(self, tensors: Any, options: Any = None) -> Any:
        """Reduce several tensors."""
        operation = _operation(options)
        if self._comm_thread is None or not _all_fit(tensors, operation):
            given = [] if options is None else [options]
            return self._gloo.allreduce_coalesced(tensors, *given)
        return self._submit(list(tensors), operation)

    def _submit(self, tensors: list[torch.Tensor], operation: Any) -> SwitchWork:
        assert self._comm_thread is not None
        work = SwitchWork(tensors)
        for tensor in tensors:
            self._comm_thread.put(_AllReduce(self, tensor, operation, work, self._codec))
        return work

    def reduce_infinite(self, tensor: torch.Tensor, operation: Any) -> None:
        """All-reduce values that are infinite or NaN, over gloo.

        It runs in the communication thread and has separate connections: other threads use those of
        ``gloo`` in another order.
        """
        if self._for_infinite is None:
            self._for_infinite = self._make_gloo("gloo for infinite values")
        sums = _options(dist.ReduceOp.SUM, self._timeout)
        self._for_infinite.allreduce([tensor], sums).wait()
        if operation == dist.ReduceOp.AVG:
            tensor /= self.size()

    def _make_gloo(self, name: str) -> Any:
        return dist.ProcessGroupGloo(
            PrefixStore(name, self._store), self.rank(), self.size(), self._timeout
        )

    # ------------------------------------------------------------------ the end

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
    """

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._tensors = tensors
        self._left = len(tensors)
        self._future = SettableFuture()
        self._over = threading.Event()

    def one_done(self) -> None:
        """The sum is in another tensor."""
        self._left -= 1
        if self._left == 0 and self._future.error is None:
            self._future.set_result(self._tensors)
            self._over.set()

    def one_failed(self, error: BaseException) -> None:
        if self._future.error is None:
            self._future.set_exception(error)
            self._over.set()

    def is_completed(self) -> bool:
        return self._over.is_set()

    def is_success(self) -> bool:
        return self._over.is_set() and self._future.error is None

    def exception(self) -> BaseException | None:
        return self._future.error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete.

        Raises:
            InnetError: it failed.
            TimeoutError: it is not complete after ``timeout``.
        """
        seconds = None if not timeout else timeout.total_seconds()
        if not self._over.wait(seconds):
            raise TimeoutError(f"an all-reduce is not complete after {seconds:g} s.")
        if self._future.error is not None:
            raise self._future.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> Any:
        return self._future.future


class _AllReduce:
    """The reduction of one tensor; see ``innet.torch.comm_thread.ReduceWork``."""

    def __init__(
        self,
        group: SwitchGroup,
        tensor: torch.Tensor,
        operation: Any,
        work: SwitchWork,
        codec: Codec,
    ) -> None:
        self.codec = codec
        # The sum takes the tensor's place anyway.
        mean = operation == dist.ReduceOp.AVG
        self.deferral = Deferral(1 / group.size() if mean else 1.0, overwrite=True)
        self._group = group
        self._tensor = tensor
        self._operation = operation
        self._work = work

    @property
    def fingerprint(self) -> str:
        shape = tuple(self._tensor.shape)
        return f"{self._operation} of {self._tensor.dtype} of shape {shape}"

    def load(self) -> Vector:
        # The tensor's own memory, where it is float32 in one piece.
        flat: Vector = self._tensor.detach().to(torch.float32).contiguous().view(-1).numpy()
        return flat

    def set_result(self, total: Vector, report: Report) -> None:
        if self._operation == dist.ReduceOp.AVG and not self.deferral.multiplied:
            total /= np.float32(self._group.size())
        result = torch.from_numpy(total)
        if result.data_ptr() != self._tensor.data_ptr():
            self._tensor.detach().copy_(result.reshape(self._tensor.shape))
        self._group.reports.append(report)
        self._work.one_done()

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        self._group.reduce_infinite(self._tensor.detach(), self._operation)
        self._work.one_done()

    def set_exception(self, error: BaseException) -> None:
        self._work.one_failed(error)


def _by_gloo(name: str) -> Callable[..., Any]:
    def collective(self: SwitchGroup, *arguments: Any, **options: Any) -> Any:
        return getattr(self._gloo, name)(*arguments, **options)

    collective.__name__ = name
    return collective


# PyTorch could call gloo itself, but it holds the GIL while it calls a group that is a Python
# class. A gloo thread that has ended an earlier collective may need the GIL to release tensors
# while it holds the lock that the call waits for: a deadlock.
_GLOOS = (
    "allgather",
    "_allgather_base",
    "allgather_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "scatter",
    "send",
)
for _name in _GLOOS:
    setattr(SwitchGroup, _name, _by_gloo(_name))


@functools.cache
def _keep_uncompiled() -> None:
    """Make ``torch.compile`` call collectives instead of tracing them, which it refuses for groups
    other than PyTorch's. It is not called at import, since that would import the compiler.
    """
    disable: Callable[..., Any] = torch.compiler.disable
    for name in (*_GLOOS, "allreduce", "allreduce_coalesced"):
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


def _all_fit(tensors: Sequence[torch.Tensor], operation: Any) -> bool:
    # An all-reduce of no tensors would never complete.
    return len(tensors) > 0 and all(_fits(each, operation) for each in tensors)


def _fits(tensor: torch.Tensor, operation: Any) -> bool:
    return (
        operation in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
        and tensor.dtype in DTYPES
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() > 0
        # Elements of an expanded tensor share memory, so their sums cannot be written.
        and (0 not in tensor.stride() or tensor.numel() == 1)
    )


def _operation(options: Any) -> Any:
    """The operation of options, or the argument itself, or the default; a constant of ReduceOp if
    it equals one.
    """
    given = dist.ReduceOp.SUM if options is None else getattr(options, "reduceOp", options)
    constants = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    return next((each for each in constants if given == each), given)


def _options(operation: Any, timeout: timedelta) -> Any:
    options = dist.AllreduceOptions()
    options.reduceOp = operation
    options.timeout = timeout
    return options
