"""A process group whose all-reduces of floats are summed by a switch.

    import innet.torch
    torch.distributed.init_process_group("innet")

A switch whose program knows owners of chunks does more: reduce-scatters, reduces, all-gathers,
broadcasts and barriers (``innet.torch.switch_work``). gloo runs all other collectives, and sums of
other dtypes or operations.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from innet.codecs import build_codec
from innet.core.errors import CompositionError, InputError
from innet.records import Report
from innet.torch import gloo
from innet.torch.callbacks import CallbackThreads
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.reducers import SwitchReducer
from innet.torch.rendezvous import RendezvousSettings, join_store
from innet.torch.switch_work import (
    STEPS,
    Operation,
    PlannedWorks,
    Sum,
    SwitchWork,
    is_codable,
    operation_of,
)
from innet.torch.tensors import torch

dist = torch.distributed
PrefixStore = torch.distributed.distributed_c10d.PrefixStore

DEFAULT_CODEC = "exact"


# A ``Backend`` in Python (PyTorch 2.14) would not do: of its works and futures callers get what
# PyTorch makes in C++, whose ``then`` runs a callback wherever the work ends.
class SwitchGroup(dist.ProcessGroup):
    """Ranks that are workers of one job at a switch.

    A separate thread runs all-reduces with SUM, AVG or PREMUL_SUM of float32, float16 and bfloat16
    over the switch, in order, and what else the switch can do. Their codec is ``INNET_CODEC``; by
    default ``exact``, whose sum is correctly rounded. gloo runs sums with a NaN or an infinity.
    Callbacks of their futures run in other threads, and may begin collectives and wait for them.

    Args:
        store: a store for this group only.
        rank, size: in the group.
        timeout: how long an all-reduce waits for a rank.
        codec: a preset's name; by default that of ``INNET_CODEC``.

    Attributes:
        codec: of sums; groups of one rank have none.
        scatters: whether the switch does reduce-scatters with that codec.
        reducer: the connection to the switch; groups of one rank have none.
        reports: of the most recent collectives by the switch.

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
        self.reducer: SwitchReducer | None = None
        self._comm_thread: CommThread | None = None
        if size > 1:
            compile_codec(codec)
            settings = RendezvousSettings.of(deadline=timeout.total_seconds())
            member = join_store(store, rank, size, settings)
            # The job's name is new. The store may hold the addresses of an earlier group.
            self._store = PrefixStore(member.job, store)
            self.reducer = SwitchReducer(member, settings.deadline)
            self._comm_thread = CommThread(self.reducer, deadline=settings.deadline)
            self.codec = self._comm_thread.build_codec(codec)
            self.scatters = self.reducer.scatters(self.codec)
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
        return self._all_reduce("allreduce", tensors, operation_of(options))

    def allreduce_coalesced(self, tensors: Any, options: Any = None) -> Any:
        """Reduce several tensors."""
        return self._all_reduce("allreduce_coalesced", list(tensors), operation_of(options))

    def _all_reduce(self, name: str, tensors: list[torch.Tensor], operation: Operation) -> Any:
        # An all-reduce of no tensors would never complete.
        if not (tensors and operation.is_sum and all(is_codable(each) for each in tensors)):
            return self._by_gloo(name, tensors, operation.given)
        if self._comm_thread is None or not all(each.numel() for each in tensors):
            if operation.factor != 1:
                for tensor in tensors:
                    gloo.write(tensor, gloo.plain_copy(tensor) * operation.factor)
            return self._by_gloo(name, tensors, operation.kind)
        make = [
            functools.partial(Sum, group=self, given=[each], place=each, operation=operation)
            for each in tensors
        ]
        return self._run(PlannedWorks(tensors, make))

    def _run(self, steps: PlannedWorks) -> SwitchWork:
        """Begin a collective by the switch."""
        assert self._comm_thread is not None
        for tensor in steps.results:
            gloo.check_writable(tensor)
        work = SwitchWork(steps.results, self._comm_thread.callbacks, len(steps.make))
        for number, make in enumerate(steps.make):
            self._comm_thread.put(make(f"{work.origin.name}, tensor {number}", work))
        self.began(work)
        return work

    def _steps(self, name: str, arguments: list[Any]) -> PlannedWorks | None:
        """A collective that is not an all-reduce, as what the switch does; None if gloo does it."""
        if self._comm_thread is None or self.reducer is None or not self.reducer.has_owners:
            return None
        return STEPS[name](self, *arguments)

    def _by_gloo(self, name: str, tensors: list[torch.Tensor], operation: Any) -> Any:
        of = dist.AllreduceOptions if name == "allreduce" else dist.AllreduceCoalescedOptions
        options = _options(operation, self._timeout, of)
        return self.began(gloo.run(self._gloo, name, tensors, options))

    def sum_by_gloo(self, tensor: torch.Tensor, operation: Operation) -> torch.Tensor:
        """The sum or mean of values that are infinite or NaN, over gloo, in the tensor's dtype.

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
        return total

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


# PyTorch could call gloo itself, but it holds the GIL while it calls a group that is a Python
# class. A gloo thread that has ended an earlier collective may need the GIL to release tensors
# while it holds the lock that the call waits for: a deadlock.
BY_GLOO = (*gloo.COLLECTIVES, *gloo.COALESCED, *gloo.SCATTERED, *gloo.GATHERED)
"""Methods of the group that gloo runs, where the switch does not (``STEPS``)."""


def _method(name: str) -> Callable[..., Any]:
    """The method that runs this collective by the switch, or by gloo."""
    by_gloo = gloo.method(name)

    def collective(self: SwitchGroup, *arguments: Any, **options: Any) -> Any:
        steps = self._steps(name, [*arguments, *options.values()])
        return by_gloo(self, *arguments, **options) if steps is None else self._run(steps)

    collective.__name__ = name
    return collective


for _name in BY_GLOO:
    setattr(SwitchGroup, _name, _method(_name) if _name in STEPS else gloo.method(_name))


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


def _options(operation: Any, timeout: timedelta, of: Any = dist.AllreduceOptions) -> Any:
    options = of()
    options.reduceOp = operation
    options.timeout = timeout
    return options
