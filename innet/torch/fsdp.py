"""Sums gradients of ``fully_shard`` with a switch. Each rank gets its shard of the mean.

    for module in (model.first, model.second, model):
        fully_shard(module)
    SwitchReduceScatter.attach(model, codec="topk")

The switch sends every sum to all ranks, so a reduce-scatter costs as much as an all-reduce. A codec
with 1 % density makes up for it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Codec, CodecSpec, build_codec
from innet.core.errors import InputError
from innet.core.reduce_op import Deferral
from innet.records import Report
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.reducers import SwitchReducer
from innet.torch.rendezvous import Settings, join_group
from innet.torch.tensors import DTYPES, kernels_for, torch

try:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter
except ImportError:  # PyTorch before 2.8 lacks this interface
    FSDPModule = ReduceScatter = object  # type: ignore[assignment,misc]

Vector = NDArray[np.float32]
dist = torch.distributed


class _ModuleReduction:
    """The reduction of the gradients of one sharded module, coded together as one layer."""

    def __init__(self, comm_thread: CommThread, codec: CodecSpec, index: int) -> None:
        self.reports: list[Report] = []
        self._comm_thread = comm_thread
        self._spec = codec
        self._index = index
        self._codec: Codec | None = None

    def close(self) -> None:
        """Leave the job, for all modules. It is called automatically at the end of the program."""
        self._comm_thread.close()

    def _sum(self, gradient: torch.Tensor, what: str) -> torch.Tensor:
        """The sum over all workers, flat; it blocks until then.

        Raises:
            InnetError: the reduction failed.
        """
        if gradient.dtype not in DTYPES:
            raise InputError(f"gradients are {gradient.dtype}; see reduce_dtype in PyTorch.")
        if self._codec is None:
            self._codec = self._comm_thread.build_codec(
                self._spec, kernels=kernels_for(gradient.device)
            )
        work = _ModuleGradient(gradient, self._codec, f"{what} {self._index}")
        self._comm_thread.put(work)
        total, report = work.wait()
        if report is not None:
            self.reports[:] = [report]
        return torch.from_numpy(total)


class SwitchReduceScatter(_ModuleReduction, ReduceScatter):
    """The reduce-scatter of one module that ``fully_shard`` was applied to.

    Its codec codes the gradients of all of the module's parameters together as one layer, in
    PyTorch's layout for the ranks.

    Attributes:
        reports: of the last all-reduce; empty before the first.
    """

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
        settings = Settings.of(switch=switch, job=job, key=key, deadline=deadline)
        modules, comm_thread = _join(model, codec, process_group, settings, seed)
        made = [cls(comm_thread, codec, index) for index, _ in enumerate(modules)]
        for module, each in zip(modules, made, strict=True):
            module.set_custom_reduce_scatter(each)
        return made

    def allocate(
        self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Allocate memory for gradients."""
        return torch.empty(*size, dtype=dtype, device=device)

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
        if not mean and op != dist.ReduceOp.SUM:
            raise InputError(f"a switch sums, it cannot do {op}; leave factors of gradients out.")
        if dist.get_world_size(group) != self._comm_thread.workers:
            raise InputError(
                f"parameters are sharded over {dist.get_world_size(group)} ranks, the job has "
                f"{self._comm_thread.workers} workers; attach with that process group."
            )
        total = self._sum(input_tensor, "sharded module")
        start = dist.get_rank(group) * output_tensor.numel()
        shard = total[start : start + output_tensor.numel()]
        factor = 1 / self._comm_thread.workers if mean else 1.0
        output_tensor.copy_((shard * factor).reshape(output_tensor.shape))


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
        settings = Settings.of(switch=switch, job=job, key=key, deadline=deadline)
        modules, comm_thread = _join(model, codec, process_group, settings, seed)
        made = [cls(comm_thread, codec, index) for index, _ in enumerate(modules)]
        for module, each in zip(modules, made, strict=True):
            module.set_all_reduce_hook(each)
        return made

    def __call__(self, shard: torch.Tensor) -> None:
        """Replace this rank's shard by its mean over the replicas; it blocks until then.

        Raises:
            InnetError: the reduction failed.
        """
        mean = self._sum(shard, "replicas of sharded module") / self._comm_thread.workers
        shard.copy_(mean.reshape(shard.shape))


def _join(
    model: torch.nn.Module, codec: CodecSpec, group: Any, settings: Settings, seed: int
) -> tuple[list[Any], CommThread]:
    """The sharded modules of a model, and the thread that reduces their gradients."""
    if ReduceScatter is object:
        raise InputError("this PyTorch has no hooks for fully_shard; 2.8 or newer has them.")
    modules = [each for each in model.modules() if isinstance(each, FSDPModule)]
    if not modules:
        raise InputError(
            "no module of the model is sharded; apply fully_shard first. For FSDP of PyTorch 1 "
            "(FullyShardedDataParallel) there is no hook: it cannot know which parameters a "
            "gradient belongs to."
        )
    build_codec(codec, seed=seed)  # an invalid codec is reported now, not in the first backward
    compile_codec(codec)
    member, _ = join_group(group, settings)
    reducer = SwitchReducer(member, settings.deadline)
    return modules, CommThread(reducer, deadline=settings.deadline, seed=seed)


class _ModuleGradient:
    """The reduction of a module's gradient; see ``innet.torch.comm_thread.ReduceWork``."""

    def __init__(self, gradient: torch.Tensor, codec: Codec, module: str) -> None:
        self.codec = codec
        self.deferral = Deferral(overwrite=True)  # of the copy that is loaded
        self.fingerprint = f"{module}, {gradient.numel()} elements of {gradient.dtype}"
        self._gradient = gradient
        self._over = threading.Event()
        self._total: Vector | None = None
        self._report: Report | None = None
        self._error: BaseException | None = None

    def load(self) -> Vector:
        flat: Vector = self._gradient.reshape(-1).to("cpu", torch.float32, copy=True).numpy()
        return flat

    def set_result(self, total: Vector, report: Report) -> None:
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
