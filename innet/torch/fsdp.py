"""Sums gradients of ``fully_shard`` with a switch. Each rank gets its shard of the mean.

    for module in (model.first, model.second, model):
        fully_shard(module)
    SwitchReduceScatter.attach(model, codec="exact")
    SwitchAllGather.attach(model)

Where the switch's program knows owners of chunks (``collectives``), each rank receives the sums of
its own shard only, and parameters are gathered by the switch, too. Another program sends every sum
to all ranks, so that a reduce-scatter costs as much as an all-reduce; so it does with a codec that
cannot be sharded, such as ``topk``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, CodecSpec, SumOptions, build_codec
from innet.codecs.build import complete
from innet.codecs.scheduled import spec_as_text
from innet.core.errors import InputError, StateError
from innet.core.shards import Shards
from innet.records import Report
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.reducers import SwitchReducer
from innet.torch.rendezvous import RendezvousSettings, join_group
from innet.torch.switch_work import SwitchWork, gathering
from innet.torch.tensors import (
    DTYPES,
    kernels_for,
    premultiplier,
    to_arrays,
    to_tensors,
    torch,
)

try:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
except ImportError:  # PyTorch before 2.9 lacks this interface
    FSDPModule = AllGather = ReduceScatter = object  # type: ignore[assignment,misc]

Vector = NDArray[np.float32]
dist = torch.distributed


class _ModuleReduction:
    """The reduction of the gradients of one sharded module, coded together as one layer.

    PyTorch reduces only the parameters that have a gradient. What the codec holds back belongs to
    parameters, so each set of them that is reduced together has a codec, and takes over what is
    held back of its parameters.
    """

    def __init__(self, comm_thread: CommThread, codec: CodecSpec, index: int, module: Any) -> None:
        self.reports: list[Report] = []
        self._comm_thread = comm_thread
        self._spec = codec
        self._index = index
        self._codecs: dict[tuple[int, ...], Codec] = {}  # by numbers of parameters
        self._last: tuple[int, ...] | None = None  # whose codec has what is held back of them
        self._places: dict[int, list[slice]] = {}  # of these in the gradient
        self._held: dict[int, dict[str, Vector]] = {}  # of the other parameters, by number
        self._saved: dict[tuple[int, ...], Any] = {}  # states of codecs that are not made yet
        self._group = module._get_fsdp_state()._fsdp_param_group
        self._reduced: list[int] = []  # parameters that have a gradient now
        if self._group is not None:
            reduce = self._group.post_backward

            def post_backward(*unused: Any) -> Any:
                self._reduced = _with_gradient(self._group)
                return reduce(*unused)

            self._group.post_backward = post_backward

    def close(self) -> None:
        """Leave the job, for all modules. It is called automatically at the end of the program."""
        self._comm_thread.close()

    def state_dict(self) -> dict[str, Any]:
        """What the codec of this module holds back on this rank, as numbers, strings and tensors.

        Each rank has a different one. Save it between iterations, with the optimizer's.
        """
        self._hand_back()
        state: dict[str, Any] = to_tensors(
            {
                **self._identity(),
                "held": [[number, kept] for number, kept in self._held.items()],
                "codecs": [
                    *([list(key), codec.state_dict()] for key, codec in self._codecs.items()),
                    *([list(key), each] for key, each in self._saved.items()),
                ],
            }
        )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict`` with the same bits. Call it before the first iteration.

        Raises:
            StateError: it is of another module, rank, number of workers or codec, or an iteration
                has begun.
        """
        if self._codecs:
            raise StateError("load the state of a reduction before the first iteration, not after.")
        for key, mine in self._identity().items():
            if not isinstance(state, Mapping) or state.get(key) != mine:
                theirs = state.get(key) if isinstance(state, Mapping) else None
                raise StateError(
                    f"the saved state of a sharded module has {key} {theirs!r}, this one {mine!r}; "
                    "each rank loads that of its own, for the same module of the same model."
                )
        saved = to_arrays(dict(state))
        self._held = {number: dict(kept) for number, kept in saved["held"]}
        self._saved = {tuple(key): each for key, each in saved["codecs"]}

    def _identity(self) -> dict[str, Any]:
        parameters = [] if self._group is None else self._group.fsdp_params
        return {
            "version": 1,
            "module": self._index,
            "shapes": [list(each._orig_size) for each in parameters],
            "worker": self._comm_thread.worker,
            "workers": self._comm_thread.workers,
            "codec": spec_as_text(complete(self._spec)),
        }

    def _sum(
        self, gradient: torch.Tensor, what: str, shards: int, parts: Shards | None = None
    ) -> torch.Tensor:
        """The sum over all workers, flat; it blocks until then.

        Args:
            gradient: of the module's parameters that have one.
            what: for messages.
            shards: how many shards of each parameter follow each other.
            parts: which part of the sum each worker gets; None for all of it.

        Raises:
            InnetError: the reduction failed.
        """
        if gradient.dtype not in DTYPES:
            raise InputError(f"gradients are {gradient.dtype}; see reduce_dtype in PyTorch.")
        codec = self._codec(gradient, shards)
        work = _ModuleGradient(gradient, codec, f"{what} {self._index}", parts)
        self._comm_thread.put(work)
        total, report = work.wait()
        if report is not None:
            self.reports[:] = [report]
        return torch.from_numpy(total)

    def _codec(self, gradient: torch.Tensor, shards: int) -> Codec:
        """That of the parameters that are reduced now, with what is held back of them."""
        key = tuple(self._reduced)
        codec = self._codecs.get(key)
        if codec is None:
            codec = self._comm_thread.build_codec(self._spec, kernels=kernels_for(gradient.device))
            if key in self._saved:
                codec.load_state_dict(self._saved.pop(key))
            self._codecs[key] = codec
        if key != self._last and codec.keeps_state:
            self._hand_back()
            self._places = self._spans(gradient.numel(), shards)
            feedback = codec.error_feedback
            names = {name for number in key for name in self._held.get(number, ())}
            arrays = {name: np.zeros(gradient.numel(), np.float32) for name in names}
            for number, spans in self._places.items():
                for name, values in self._held.pop(number, {}).items():
                    for span, part in zip(spans, np.split(values, shards), strict=True):
                        arrays[name][span] = part
            feedback.remember(arrays)
            self._last = key
        return codec

    def _hand_back(self) -> None:
        """Take what is held back out of the codec that was used last."""
        if self._last is None:
            return
        feedback = self._codecs[self._last].error_feedback
        arrays = feedback.remembered()
        for number, spans in self._places.items():
            self._held[number] = {
                name: np.concatenate([values[span] for span in spans])
                for name, values in arrays.items()
            }
        feedback.remember(dict.fromkeys(arrays))
        self._last = None

    def _spans(self, size: int, shards: int) -> dict[int, list[slice]]:
        """Where each parameter's shards are in a gradient of that size, by number."""
        parameters = self._group.fsdp_params
        sizes = [parameters[number].padded_sharded_param_size.numel() for number in self._reduced]
        if shards * sum(sizes) != size:
            raise StateError(
                f"the gradient has {size} elements, and its parameters {shards * sum(sizes)}; this "
                "PyTorch reduces others than innet knows. Take a codec that holds nothing back, "
                "such as exact or dense."
            )
        starts = list(accumulate(sizes, initial=0))
        return {
            number: [
                slice(shard * starts[-1] + start, shard * starts[-1] + start + length)
                for shard in range(shards)
            ]
            for number, start, length in zip(self._reduced, starts, sizes, strict=False)
        }


def _with_gradient(group: Any) -> list[int]:
    """The numbers of the parameters that PyTorch is about to reduce."""
    unused_too = getattr(group, "reduce_scatter_unused_params", False)
    found = []
    for number, parameter in enumerate(group.fsdp_params):
        if hasattr(parameter, "_unsharded_param"):
            whole = parameter.unsharded_param
            accumulated = parameter.unsharded_accumulated_grad is not None
            if accumulated or whole.grad is not None or (unused_too and whole.requires_grad):
                found.append(number)
    return found


class SwitchReduceScatter(_ModuleReduction, ReduceScatter):
    """The reduce-scatter of one module that ``fully_shard`` was applied to.

    Its codec codes the gradients of all of the module's parameters together as one layer, in
    PyTorch's layout for the ranks. Parameters without a gradient are left out, and what is held
    back of them stays.

    Attributes:
        reports: of the last one; empty before the first.
    """

    _scatters = False  # whether the switch does it, or an all-reduce

    @classmethod
    def attach(
        cls,
        model: torch.nn.Module,
        codec: CodecSpec = "dense",
        *,
        process_group: Any = None,
        switch: str | None = None,
        job: str | None = None,
        key: str | None = None,
        seed: int = 0,
        deadline: float = 300.0,
    ) -> list[SwitchReduceScatter]:
        """Join a job, and reduce the gradients of all sharded modules of ``model`` through it.

        Args:
            model: the model; ``fully_shard`` was applied to it or to its modules.
            codec: see ``innet.torch.HookState``, also for the other arguments.
            process_group: the ranks that parameters are sharded over; by default all.
            switch: its address.
            job: prefix of its name.
            key: the switch's.
            seed: of the codec's hashes.
            deadline: of an all-reduce, seconds.

        Returns:
            The reduce-scatters by module.

        Raises:
            InputError: no module is sharded, or PyTorch is too old.
            InnetError: the switch is not available, or a rank is missing.
        """
        settings = RendezvousSettings.of(switch=switch, job=job, key=key, deadline=deadline)
        modules = _sharded_modules(model)
        checked = _checked_codec(codec, seed)
        comm_thread, reducer = _join(process_group, settings, seed)
        made = [cls(comm_thread, codec, index, module) for index, module in enumerate(modules)]
        for module, each in zip(modules, made, strict=True):
            each._scatters = reducer.scatters(checked)
            module.set_custom_reduce_scatter(each)
        return made

    def allocate(
        self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocate memory for gradients."""
        return _allocated(size, dtype, device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Write this rank's shard of the sum or mean to ``output_tensor``; it blocks until then.

        Raises:
            InnetError: the reduction failed.
        """
        del async_op  # complete on return
        mean = op == dist.ReduceOp.AVG
        if op == dist.ReduceOp.PREMUL_SUM:  # of set_gradient_divide_factor
            input_tensor = input_tensor * premultiplier(op)
        elif not mean and op != dist.ReduceOp.SUM:
            raise InputError(f"a switch sums, it cannot do {op}; leave factors of gradients out.")
        _check_size(group, self._comm_thread)
        workers, rank = self._comm_thread.workers, dist.get_rank(group)
        parts = Shards.of(input_tensor.numel(), range(workers)) if self._scatters else None
        total = self._sum(input_tensor, "sharded module", workers, parts)
        start = rank * output_tensor.numel()
        shard = total[start : start + output_tensor.numel()]
        if mean:
            shard = shard / workers
        output_tensor.copy_(shard.reshape(output_tensor.shape))


class SwitchAllGather(AllGather):
    """The all-gather of one module's parameters that ``fully_shard`` was applied to, by a switch
    whose program knows owners of chunks. Parameters of any dtype arrive bit for bit.

    Its job is another one than that of a ``SwitchReduceScatter``: both may run at the same time.

    Attributes:
        reports: of the last one; empty before the first.
    """

    @classmethod
    def attach(
        cls,
        model: torch.nn.Module,
        *,
        process_group: Any = None,
        switch: str | None = None,
        job: str | None = None,
        key: str | None = None,
        deadline: float = 300.0,
    ) -> list[SwitchAllGather]:
        """Join a job, and gather the parameters of all sharded modules of ``model`` through it.

        Args:
            model: the model; ``fully_shard`` was applied to it or to its modules.
            process_group: the ranks that parameters are sharded over; by default all.
            switch: its address; see ``innet.torch.HookState``, also for the other arguments.
            job: prefix of its name.
            key: the switch's.
            deadline: of an all-gather, seconds.

        Returns:
            The all-gathers by module.

        Raises:
            InputError: no module is sharded, PyTorch is too old, or the switch's program knows no
                all-gather.
            InnetError: the switch is not available, or a rank is missing.
        """
        settings = RendezvousSettings.of(switch=switch, job=job, key=key, deadline=deadline)
        modules = _sharded_modules(model)
        comm_thread, reducer = _join(process_group, settings, seed=0)
        if not reducer.has_owners:
            comm_thread.close()
            raise InputError(
                "the program of the switch knows no all-gather; start one by `innet switch serve "
                "--program collectives`, or set INNET_PROGRAM=collectives where rank 0 starts it, "
                "or leave all-gathers to PyTorch."
            )
        made = [cls(comm_thread, reducer) for _ in modules]
        for module, each in zip(modules, made, strict=True):
            module.set_custom_all_gather(each)
        return made

    def __init__(self, comm_thread: CommThread, reducer: SwitchReducer) -> None:
        self.reports: deque[Report] = deque(maxlen=1)
        self._comm_thread = comm_thread
        self._reducer = reducer

    def close(self) -> None:
        """Leave the job, for all modules. It is called automatically at the end of the program."""
        self._comm_thread.close()

    def allocate(
        self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocate memory for parameters."""
        return _allocated(size, dtype, device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        async_op: bool = False,
    ) -> SwitchWork | None:
        """Write all ranks' shards to ``output_tensor``, one after the other.

        Returns:
            The work to wait for, if it is asynchronous; None if it is complete. Tensors on a GPU
            are complete on return.

        Raises:
            InnetError: the all-gather failed.
        """
        _check_size(group, self._comm_thread)
        # A GPU's memory is read and written in this thread, whose stream PyTorch has chosen.
        place, given = (
            each if each.is_cpu else each.cpu() for each in (output_tensor, input_tensor)
        )
        work = SwitchWork([output_tensor], self._comm_thread.callbacks, 1)
        make = gathering(self._reducer, [place], given, self.reports)
        self._comm_thread.put(make(work.origin.name, work))
        if async_op and place is output_tensor:
            return work
        work.wait()
        if place is not output_tensor:
            output_tensor.copy_(place)
        return None


def _allocated(size: Sequence[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(*size, dtype=dtype, device=device)


def _check_size(group: Any, comm_thread: CommThread) -> None:
    if dist.get_world_size(group) != comm_thread.workers:
        raise InputError(
            f"parameters are sharded over {dist.get_world_size(group)} ranks, the job has "
            f"{comm_thread.workers} workers; attach with that process group."
        )


class SwitchAllReduce(_ModuleReduction):
    """The all-reduce of one sharded module's gradient over the replicas of hybrid sharding.

        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        for module in (model.first, model.second, model):
            fully_shard(module, mesh=mesh["shard"])
        SwitchAllReduce.attach(model, "topk", process_group=mesh["replicate"].get_group())

    Shards are reduced by PyTorch within each replica. This rank's shard is then summed with the
    same shard of the other replicas, coded as one layer.

    Attributes:
        reports: of the last all-reduce; empty before the first.
    """

    @classmethod
    def attach(
        cls,
        model: torch.nn.Module,
        codec: CodecSpec = "dense",
        *,
        process_group: Any,
        switch: str | None = None,
        job: str | None = None,
        key: str | None = None,
        seed: int = 0,
        deadline: float = 300.0,
    ) -> list[SwitchAllReduce]:
        """Join a job, and reduce the shards of all sharded modules of ``model`` through it.

        Args:
            model: the model; ``fully_shard`` was applied to it or to its modules, with a mesh of
                one dimension.
            codec: see ``innet.torch.HookState``, also for the other arguments.
            process_group: the ranks that hold the same shard.
            switch: its address.
            job: prefix of its name.
            key: the switch's.
            seed: of the codec's hashes.
            deadline: of an all-reduce, seconds.

        Returns:
            The all-reduces by module.

        Raises:
            InputError: no module is sharded, or PyTorch is too old.
            InnetError: the switch is not available, or a rank is missing.
        """
        settings = RendezvousSettings.of(switch=switch, job=job, key=key, deadline=deadline)
        modules = _sharded_modules(model)
        _checked_codec(codec, seed)
        comm_thread, _ = _join(process_group, settings, seed)
        made = [cls(comm_thread, codec, index, module) for index, module in enumerate(modules)]
        for module, each in zip(modules, made, strict=True):
            module.set_all_reduce_hook(each)
        return made

    def __call__(self, shard: torch.Tensor) -> None:
        """Replace this rank's shard by its mean over the replicas; it blocks until then.

        Raises:
            InnetError: the reduction failed.
        """
        mean = self._sum(shard, "replicas of sharded module", 1) / self._comm_thread.workers
        shard.copy_(mean.reshape(shard.shape))


def _sharded_modules(model: torch.nn.Module) -> list[Any]:
    if ReduceScatter is object:
        raise InputError("this PyTorch has no hooks for fully_shard; 2.9 or newer has them.")
    modules = [each for each in model.modules() if isinstance(each, FSDPModule)]
    if not modules:
        raise InputError(
            "no module of the model is sharded; apply fully_shard first. For FSDP of PyTorch 1 "
            "(FullyShardedDataParallel) there is no hook: it cannot know which parameters a "
            "gradient belongs to."
        )
    return modules


def _checked_codec(codec: CodecSpec, seed: int) -> Codec:
    """An invalid codec is reported now, not in the first backward."""
    built = build_codec(codec, seed=seed)
    compile_codec(codec)
    return built


def _join(group: Any, settings: RendezvousSettings, seed: int) -> tuple[CommThread, SwitchReducer]:
    """The thread that does what sharded modules need, and its connection to the switch."""
    member, _ = join_group(group, settings)
    reducer = SwitchReducer(member, settings.deadline)
    return CommThread(reducer, deadline=settings.deadline, seed=seed), reducer


class _ModuleGradient:
    """The reduction of a module's gradient; see ``innet.torch.comm_thread.ReduceWork``."""

    def __init__(
        self, gradient: torch.Tensor, codec: Codec, module: str, shards: Shards | None
    ) -> None:
        self.name = ""  # backward reduces modules in one order
        self.codec = codec
        self.parts = ()  # parameters without a gradient are not there
        self.options = SumOptions(overwrite=True, shards=shards)  # of the copy that is loaded
        self.fingerprint = f"{module}, {gradient.numel()} elements of {gradient.dtype}"
        self._gradient = gradient
        self._over = threading.Event()
        self._total: Vector | None = None
        self._report: Report | None = None
        self._error: BaseException | None = None

    def load(self) -> Vector:
        flat: Vector = self._gradient.reshape(-1).to("cpu", torch.float32, copy=True).numpy()
        return flat

    def set_result(self, total: Vector, factor: float, report: Report) -> None:
        del factor  # 1, as the options do not say another one
        self._total, self._report = total, report
        self._over.set()

    def set_not_finite(self, workers: tuple[int, ...]) -> None:
        del workers
        self._total = np.full(self._gradient.numel(), np.nan, np.float32)
        self._over.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._over.set()

    def wait(self) -> tuple[Vector, Report | None]:
        self._over.wait()
        if self._error is not None:
            raise self._error
        assert self._total is not None
        return self._total, self._report
