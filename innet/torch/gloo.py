"""gloo, which runs the collectives that the switch does not, with tensors as gloo can take them.

gloo reads and writes a tensor's memory from its first element on, whatever the strides: of a view
it would change what lies between the elements.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from innet.core.errors import InputError
from innet.torch.callbacks import CallbackThreads
from innet.torch.future import SettableFuture
from innet.torch.tensors import torch

Work = torch.distributed.distributed_c10d.Work

COLLECTIVES = {
    **{
        name: name
        for name in (
            "allgather",
            "_allgather_base",
            "allgather_coalesced",
            "alltoall",
            "alltoall_base",
            "barrier",
            "broadcast",
            "gather",
            "monitored_barrier",
            "recv",
            "recv_anysource",
            "reduce",
            "scatter",
            "send",
        )
    },
    # What PyTorch 2.13 calls them.
    "all_gather_single": "_allgather_base",
    "all_to_all_single": "alltoall_base",
}
"""Methods of a process group that gloo runs, and gloo's names of them."""

_POINT_TO_POINT = ("recv", "recv_anysource", "send")  # which not all ranks of a group call

COALESCED = {
    "allgather_into_tensor_coalesced": "_allgather_base",
    "all_gather_single_coalesced": "_allgather_base",
}
"""Those of lists of outputs and inputs, and what gloo runs for each pair."""

SCATTERED = (
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced",
)
"""Those whose sums are scattered; gloo sums all of them on all ranks, too."""

GATHERED = ("gather_into_tensor", "gather_single")
"""Those of PyTorch 2.14 that gather into one tensor."""


class Gloo(NamedTuple):
    """What runs collectives of a group.

    Attributes:
        backend: a ProcessGroupGloo.
        callbacks: run those of the works' futures.
    """

    backend: Any
    callbacks: CallbackThreads


def run(gloo: Gloo, name: str, *arguments: Any, **options: Any) -> GlooWork:
    """Run one of gloo's collectives.

    Args:
        gloo: what runs it.
        name: of the collective there.
        arguments: of the collective; the first one is what it writes, except to send.
        options: its arguments by name.

    Returns:
        Its work. The tensors have the result when that is complete.

    Raises:
        InputError: elements of a tensor to be written share memory.
    """
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    given = [*arguments, *options.values()]
    taken = [_plain(each, [] if i or name == "send" else copies) for i, each in enumerate(given)]
    for tensor, _ in copies:
        check_writable(tensor)
    named = dict(zip(options, taken[len(arguments) :], strict=True))
    work = getattr(gloo.backend, name)(*taken[: len(arguments)], **named)
    return GlooWork([work], copies, gloo.callbacks, is_counted=name not in _POINT_TO_POINT)


def run_each(
    gloo: Gloo, name: str, outputs: Any, inputs: Any, options: tuple[Any, ...]
) -> GlooWork:
    """Run one of gloo's collectives for each pair of lists; one work for all."""
    pairs = zip(outputs, inputs, strict=True)
    works = [run(gloo, name, *pair, *options) for pair in pairs]
    return GlooWork(works, [], gloo.callbacks)


def reduce_scatter(gloo: Gloo, outputs: Any, inputs: Any, options: Any = None) -> GlooWork:
    """Sum on all ranks, of which each takes its part. The work of gloo's own reduce-scatter cannot
    tell whether it is complete, and has no future.

    Args:
        gloo: what runs it.
        outputs: a tensor, or a list of them, of the sums.
        inputs: for each, what is summed for all ranks: a tensor, or a list of one for each rank.
        options: PyTorch's, of a reduce-scatter.

    Raises:
        InputError: a sum and its place do not have the same number of elements.
    """
    if isinstance(outputs, torch.Tensor):
        outputs, inputs = [outputs], [inputs]
    rank, size = gloo.backend.rank(), gloo.backend.size()
    sums = torch.distributed.AllreduceOptions()
    if options is not None:
        operation: Any = options.reduceOp
        # Before PyTorch 2.13 gloo takes the mean over one rank as it is, also of integers.
        is_old = not hasattr(torch.distributed, "reduce_scatter_single")
        if is_old and size == 1 and operation == torch.distributed.ReduceOp.AVG:
            operation = torch.distributed.ReduceOp.SUM
        sums.reduceOp, sums.timeout = operation, options.timeout
    works, copies = [], []
    for output, given in zip(outputs, inputs, strict=True):
        check_writable(output)
        parts = given if isinstance(given, (list, tuple)) else [given]
        flat = torch.cat([plain_copy(part).view(-1) for part in parts])
        lengths = lengths_of(output, parts, rank, size)
        works.append(gloo.backend.allreduce([flat], sums))
        start = sum(lengths[:rank])
        copies.append((output, flat[start : start + lengths[rank]].view(output.shape)))
    return GlooWork(works, copies, gloo.callbacks, results=list(outputs))


def lengths_of(
    output: torch.Tensor, parts: Sequence[torch.Tensor], rank: int, size: int
) -> list[int]:
    """How many elements of a reduce-scatter's input belong to each rank.

    Raises:
        InputError: a sum and its place do not have the same number of elements.
    """
    elements = sum(part.numel() for part in parts)
    lengths = [elements // size] * size
    if len(parts) == size:
        lengths = [part.numel() for part in parts]
    if sum(lengths) != elements or lengths[rank] != output.numel():
        raise InputError(
            f"a reduce-scatter of {elements} elements over {size} ranks into a tensor of "
            f"{output.numel()} on rank {rank}; each rank takes its part of the input."
        )
    return lengths


def gather_into(gloo: Gloo, output: torch.Tensor, tensor: torch.Tensor, options: Any) -> GlooWork:
    """Gather all ranks' tensors into one on the root, which has them one after the other."""
    is_root = gloo.backend.rank() == options.rootRank
    rows = [list(torch.chunk(output, gloo.backend.size()))] if is_root else []
    rows = [[row.view(tensor.shape) for row in each] for each in rows]
    return run(gloo, "gather", rows, [tensor], options)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the elements are in memory one after the other, as they are."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """It, if it is plain, or a copy."""
    return tensor if is_plain(tensor) else plain_copy(tensor)


def plain_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Its elements, one after the other."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor.detach())


def write(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Write values into a tensor. Elements of an expanded one are one in memory.

    Raises:
        InputError: such elements have different values.
    """
    # One that was made in inference mode is changed in that mode only, which is a thread's own.
    with torch.inference_mode(tensor.is_inference()):
        tensor = tensor.detach()
        for dimension in range(tensor.dim()):
            if tensor.stride(dimension) == 0 and tensor.size(dimension) > 1:
                tensor, first = tensor.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
                if not bool((values.eq(first) | values.isnan() & first.isnan()).all()):
                    raise InputError(
                        f"the result for a tensor of shape {tuple(values.shape)}, which was "
                        "expanded, has different values for elements that share memory; give a "
                        "tensor with elements of its own (contiguous)."
                    )
                values = first
        tensor.copy_(values)


def check_writable(tensor: torch.Tensor) -> None:
    """Refuse a tensor in which elements overlap otherwise than by being expanded.

    Raises:
        InputError: says what to give instead.
    """
    reach = 0  # of the dimensions with smaller strides
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride:
            if stride <= reach:
                raise InputError(
                    f"elements of a tensor of shape {tuple(tensor.shape)} and strides "
                    f"{tensor.stride()} share memory, so results cannot be written there; give a "
                    "copy (contiguous)."
                )
            reach += stride * (size - 1)


def _plain(argument: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """An argument in which copies are where tensors are not plain; lists the copies."""
    if isinstance(argument, (list, tuple)):
        return [_plain(each, copies) for each in argument]
    if not isinstance(argument, torch.Tensor) or argument.layout != torch.strided:
        return argument
    if is_plain(argument):
        return argument
    copies.append((argument, plain_copy(argument)))
    return copies[-1][1]


class GlooWork(Work):
    """Work of gloo. Its results are copied to where they belong when it is complete, and callbacks
    of its future run where those of all-reduces by the switch do.

    Args:
        works: of gloo.
        copies: the tensors, and those that gloo writes.
        callbacks: of the group.
        is_counted: all ranks of the group have this work, so it has a number among theirs; without
            one it has no future.
        results: the tensors that are its result, if gloo does not list them.
    """

    def __init__(
        self,
        works: list[Any],
        copies: list[tuple[torch.Tensor, torch.Tensor]],
        callbacks: CallbackThreads,
        *,
        is_counted: bool = True,
        results: list[torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.is_counted = is_counted
        self._works = works
        self._copies = copies
        self._results = results
        self._callbacks = callbacks
        self._origin = callbacks.begin() if is_counted else None
        self._lock = threading.Lock()
        self._is_copied = False
        self._future: SettableFuture | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until it is complete; raises as gloo does."""
        for work in self._works:
            work.wait(*([timeout] if timeout else []))
        self._copy()
        if self._future is not None:
            self._future.wait_until_over(None)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        done = all(work.is_completed() for work in self._works)
        if done and self.is_success():
            self._copy()
        return done

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Any:
        return next((found for work in self._works if (found := work.exception())), None)

    def result(self) -> list[torch.Tensor]:
        self._copy()
        return self._given([work.result() for work in self._works])

    def get_future(self) -> Any:
        """Of the tensors that were given, as gloo lists them; not to send and to receive."""
        if self._origin is None:
            return self._works[0].get_future()  # says that there is none
        with self._lock:
            if self._future is not None:
                return self._future
            futures = torch.futures.collect_all([work.get_future() for work in self._works])
            self._future = SettableFuture(self._callbacks, origin=self._origin)
        futures.add_done_callback(self._complete)  # at once, if it is complete
        return self._future

    def _source_rank(self) -> Any:
        return self._works[0]._source_rank()

    def _complete(self, done: Any) -> None:
        assert self._future is not None
        try:
            values = self._given([future.value() for future in done.value()])
            self._copy()
        except BaseException as error:
            self._future.fail(error)
        else:
            self._future.complete(values)

    def _given(self, values: Any) -> list[torch.Tensor]:
        """The caller's tensors, flat, for those of gloo."""
        if self._results is not None:
            return self._results
        given = {copy.data_ptr(): tensor for tensor, copy in self._copies}
        return [given.get(value.data_ptr(), value) for value in _flat(values)]

    def _copy(self) -> None:
        with self._lock:
            if not self._is_copied:
                for tensor, copy in self._copies:
                    write(tensor, copy)
                self._is_copied = True


def _flat(value: Any) -> list[torch.Tensor]:
    return [part for each in value for part in _flat(each)] if isinstance(value, list) else [value]


def method(name: str) -> Callable[..., Any]:
    """The method of a process group that runs this collective by its ``_gloo``."""

    def collective(self: Any, *arguments: Any, **options: Any) -> Any:
        return self.began(begun(self._gloo, *arguments, **options))

    def begun(gloo: Gloo, *arguments: Any, **options: Any) -> GlooWork:
        if name in SCATTERED:
            return reduce_scatter(gloo, *arguments, **options)
        if name in GATHERED:
            return gather_into(gloo, *arguments, **options)
        if name in COALESCED:
            outputs, inputs, *rest = (*arguments, *options.values())
            return run_each(gloo, COALESCED[name], outputs, inputs, tuple(rest))
        return run(gloo, COLLECTIVES[name], *arguments, **options)

    collective.__name__ = name
    return collective
