"""A communication hook for DistributedDataParallel: a switch sums the gradients.

state = HookState(codec="topk")
model.register_comm_hook(state, ddp_hook)

Without a switch, the all-reduce of any process group sums the codec's integers:

state = CompressionHook(codec="topk", group=None)
model.register_comm_hook(state, ddp_hook)
"""

# Without postponed annotations: PyTorch compares those of the hook with its types.

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from innet.codecs import CodecSpec, build_codec, check_seed
from innet.codecs.adascale import AdaScale
from innet.codecs.build import (
    check_patterns,
    complete,
    descriptions,
    normalize,
    scheduled_settings,
    spec_of_unit,
)
from innet.codecs.scheduled import LAYERS, spec_as_text, without_schedules
from innet.core.errors import InputError, StateError
from innet.records import Report
from innet.service.process import await_end
from innet.torch.bucket_reduction import (
    BucketReduction,
    FailedWork,
    ReductionStats,
    Shape,
    Unit,
    WaitingBucket,
    arrival_order,
    cut,
    layers,
    numel,
)
from innet.torch.comm_thread import CommThread, compile_codec
from innet.torch.future import SettableFuture
from innet.torch.reducers import GroupReducer, Reducer, SwitchReducer
from innet.torch.rendezvous import RendezvousSettings, checked_deadline, is_positive, join_group
from innet.torch.tensors import DTYPES, kernels_for, to_arrays, to_tensors, torch

Vector = NDArray[np.float32]
Bucket = Any
"""A torch.distributed.GradBucket, which PyTorch's type hints lack."""

UNIT_CAP_MB = 25.0  # that of DistributedDataParallel's buckets, and the first one's:
_FIRST_MEGABYTES = 1.0
_VERSION = 2  # of the state; 2 has other units
_SQUARES = ("workers", "sum")  # in a report's details
_MEGABYTE = 1 << 20


class BucketHook(ABC):
    """The state of ``ddp_hook``; one for each model.

    ``HookState`` and ``CompressionHook`` are the two; they differ in what sums.

    Gradients are coded as float32, whatever their dtype (float32, float16, bfloat16), and replaced
    by the mean over the workers. If a gradient of any worker has a NaN or an infinity, all workers
    get NaN for the parameters that are coded together with it, and the state of codecs does not
    change. A ``GradScaler`` then skips the step.

    Args:
        codec: a preset's name, or the parts of a codec; see ``innet.codecs.build_codec``. Layers
            are the model's parameters.
        group: its ranks are the workers; None for all ranks.
        unit_cap_mb: megabytes (of float32) of parameters that are coded together. With the default,
            the first unit has 1 MB, as PyTorch's first bucket has.
        seed: of the codec's hashes, the same on all workers.
        deadline: seconds that an all-reduce waits for a worker, including its computation.
        scale: returns the factor of the gradients, such as ``GradScaler.get_scale``. Gradients are
            divided by it before coding, so that error feedback and momentum are unscaled.
        named_parameters: ``model.named_parameters()`` of the model before it is wrapped, for a
            codec with patterns of names (``layers``).
        gain: let workers send what AdaScale's gain needs; see ``adascale_gain``.

    Raises:
        InputError: ``unit_cap_mb`` is not positive, ``deadline`` not positive and finite, or
            another argument is not what it should be.
        UnknownNameError, ConfigError: the codec names an unknown part or parameter.
    """

    def __init__(
        self,
        codec: CodecSpec = "dense",
        *,
        group: torch.distributed.ProcessGroup | None = None,
        unit_cap_mb: float = UNIT_CAP_MB,
        seed: int = 0,
        deadline: float = 300.0,
        scale: Callable[[], float] | None = None,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
        gain: bool = False,
    ) -> None:
        # Checked now, not in the first iteration, in which each worker waits for the others.
        if not is_positive(unit_cap_mb):
            raise InputError(f"unit_cap_mb is {unit_cap_mb}; give a positive number.")
        if scale is not None and not callable(scale):
            raise InputError(f"scale is {scale!r}; give a function, such as scaler.get_scale.")
        self.codec = complete(codec)
        for each in descriptions(self.codec):
            scheduled_settings(normalize(each))
        self._names = _names_of(self.codec, named_parameters)
        if gain and LAYERS not in self.codec:
            build_codec(self.codec, gain=True)  # refuses a codec that has no such sums
        self._with_gain = gain
        self._adascale: AdaScale | None = None
        self.deadline = checked_deadline(deadline)
        self.seed = check_seed(seed)
        compile_codec(self.codec)
        self.unit_cap_mb = unit_cap_mb
        self.scale = scale
        self._stats = ReductionStats()
        self._group = group
        self._saved: list[dict[str, Any]] = []  # of units that are not built yet
        self._begin()

    def _begin(self) -> None:
        self._comm_thread: CommThread | None = None
        self._forget_buckets()

    def _forget_buckets(self) -> None:
        """Make the next iteration like the first one."""
        self._units: list[Unit] = []
        self._places: dict[int, _ParameterOf] = {}  # by the parameter's id
        # The index of each bucket whose parameters have units, and whether it was the last.
        self._cut_buckets: list[tuple[int, bool]] = []
        self._reductions: dict[int, BucketReduction] = {}
        self._taken: set[int] = set()  # the parameters that this backward has brought, by their id
        self._looks_at_end = False  # of this backward

    # ------------------------------------------------------------------ what users call

    @property
    def reports(self) -> dict[int, Report]:
        """The reports of the last all-reduce of each unit."""
        return self._stats.reports

    @property
    def skipped(self) -> int:
        """How many units were not reduced because a gradient was not finite."""
        return self._stats.skipped

    @property
    def units(self) -> list[tuple[Shape, ...]]:
        """The shapes of the parameters that are coded together; known after the first iteration."""
        return [unit.shapes for unit in self._units]

    @property
    def process_group(self) -> torch.distributed.ProcessGroup | None:
        """The group whose ranks are the workers; None for all ranks."""
        return self._group

    def adascale_gain(self) -> float:
        """AdaScale's gain (Johnson et al., 2020) of the last iteration, from 1 to the workers.

        Call it once in each iteration, after ``backward``, and multiply the learning rate by it:
        the one that suits a single worker. It is the same on all workers. It is of the values that
        are sent: of a codec that selects, these are not all of the gradient.

        Raises:
            InputError: the hook was made without ``gain``.
        """
        if not self._with_gain:
            raise InputError(
                "the hook does not measure the gain; make it with HookState(gain=True)."
            )
        squares, self._stats.squares = self._stats.squares, {}
        scaler = self._adascale or AdaScale(torch.distributed.get_world_size(self._group))
        self._adascale = scaler
        if not squares:
            return scaler.gain  # all gradients were skipped
        workers, total = (sum(each[key] for each in squares.values()) for key in _SQUARES)
        return scaler.update(workers, total)

    def connect(self) -> None:
        """Connect now instead of with the first bucket. All workers must call it.

        Raises:
            InnetError: the switch cannot be reached or refuses, the group cannot sum, or a worker
                is missing.
        """
        if self._comm_thread is None:
            self._comm_thread = CommThread(self._reducer(), deadline=self.deadline, seed=self.seed)

    @abstractmethod
    def _reducer(self) -> Reducer:
        """The connection to the other workers."""

    def renew(self) -> None:
        """Recover after a failure with the same codecs; it waits for all workers. All must call it.

        Wrap the model again before continuing: a DistributedDataParallel cannot be used after an
        error in backward.

        Raises:
            InnetError: a worker is missing.
        """
        if self._comm_thread is not None:
            self._comm_thread.renew()
        self._begin_again()

    def _begin_again(self) -> None:
        self._saved = [_saved(unit) for unit in self._units] + self._saved
        self._forget_buckets()

    def close(self) -> None:
        """End the connection. It is called automatically at the end of the program."""
        if self._comm_thread is not None:
            self._comm_thread.close()
            self._comm_thread = None

    def state_dict(self) -> dict[str, Any]:
        """The state of this worker's codecs: copies as numbers, strings and tensors.

        Each rank has a different one. Save it between iterations, with the optimizer's.
        """
        return {
            "version": _VERSION,
            "rank": torch.distributed.get_rank(self._group),
            "workers": torch.distributed.get_world_size(self._group),
            "codec": spec_as_text(self.codec),
            "seed": self.seed,
            "unit_cap_mb": self.unit_cap_mb,
            "adascale": None if self._adascale is None else self._adascale.state_dict(),
            "units": to_tensors([_saved(unit) for unit in self._units] + self._saved),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict`` with the same bits. Call it before the first iteration.

        The codec's schedules may differ; they are followed from the number of iterations that were
        complete.

        Raises:
            StateError: it is not a state; it has another version, rank, number of workers, codec,
                seed or cap; or an iteration has begun. Nothing has changed.
        """
        if self._units:
            raise StateError("load the hook's state before the first iteration, not after it.")
        _check_form(state)
        mine = self.state_dict()
        if state.get("workers") not in (None, mine["workers"]):
            raise StateError(
                f"the hook's saved state is of {state['workers']} workers, and there are "
                f"{mine['workers']}; it does not fit another number of workers. "
                "Load the model and the optimizer, and begin with a new HookState."
            )
        theirs, codec = without_schedules(state.get("codec"), self.codec)
        state, mine = {**state, "codec": theirs}, {**mine, "codec": codec}
        for name, value in mine.items():
            if name not in ("units", "adascale") and state.get(name) != value:
                raise StateError(
                    f"the hook's saved state has {name} {state.get(name)!r}, this one {value!r}; "
                    "each rank loads its own, into a HookState made with the same arguments."
                )
        if self._with_gain and state.get("adascale") is not None:
            scaler = AdaScale(mine["workers"])
            scaler.load_state_dict(state["adascale"])
            self._adascale = scaler
        self._saved = to_arrays(state["units"])

    def __getstate__(self) -> dict[str, Any]:
        left_out = (
            "_comm_thread",
            "_own_switch",
            "_units",
            "_places",
            "_cut_buckets",
            "_reductions",
            "_taken",
            "_looks_at_end",
            "_group",
            "_names",  # parameters have other ids in another process
        )
        kept = {name: value for name, value in vars(self).items() if name not in left_out}
        if torch.distributed.is_initialized():
            return {**kept, "_saved": self.state_dict()["units"]}
        return kept

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._names = None
        self._saved = to_arrays(self._saved)
        self._group = None
        self._begin()

    # ------------------------------------------------------------------ one bucket

    def reduce(self, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        """See ``innet.torch.ddp_hook``."""
        if not hasattr(bucket, "gradients"):
            raise InputError(
                f"the hook was given a {type(bucket).__name__}, not a bucket of "
                "DistributedDataParallel. FullyShardedDataParallel does not say which parameters "
                "a gradient belongs to; for sharded models use fully_shard and "
                "innet.torch.SwitchReduceScatter."
            )
        self.connect()
        assert self._comm_thread is not None
        try:
            return self._take(self._comm_thread, bucket)
        except Exception as error:
            # The other workers wait for this one: send them the error.
            refusal = FailedWork(error, self._comm_thread)
            self._comm_thread.put(refusal)
            refusal.future.wait()
            raise

    def _take(self, comm_thread: CommThread, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if buffer.layout != torch.strided:
            raise InputError(
                f"the gradient of a parameter of shape {tuple(parameters[0].shape)} is sparse; the "
                "hook takes dense ones. Make the layer with sparse=False, or leave the hook out."
            )
        if buffer.dtype not in DTYPES:
            raise InputError(
                f"a bucket of {parameters[0].dtype}; gradients of {', '.join(map(str, DTYPES))} "
                "and of complex64 and complex32 can be reduced by a switch. Convert the model, or "
                "leave the hook out."
            )
        brought = {id(parameter) for parameter in parameters}
        if not brought.isdisjoint(self._taken):  # another backward
            self._reductions.clear()  # of one that was interrupted
            self._taken.clear()
            self._looks_at_end = False
        if self._is_new(bucket):
            self._cut(comm_thread, bucket, buffer.device)
        self._taken |= brought
        in_backward = torch._C._current_graph_task_id() >= 0  # and not in the shadow of join()
        if in_backward and not self._looks_at_end:
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
            self._looks_at_end = True
        scale = 1.0 if self.scale is None else self.scale()
        waiting = WaitingBucket(buffer, SettableFuture(comm_thread.callbacks, buffer.device))
        complete = []
        for parameter, gradient in zip(parameters, _gradients(bucket), strict=True):
            unit, position = self._place(parameter, gradient)
            reduction = self._reductions.get(unit.index)
            if reduction is None:
                reduction = BucketReduction(unit, comm_thread.workers, scale, self._stats)
                self._reductions[unit.index] = reduction
            if reduction.take(position, gradient, waiting):
                complete.append(self._reductions.pop(unit.index))
        for reduction in complete:
            comm_thread.put(reduction)
        return waiting.future

    def _is_new(self, bucket: Bucket) -> bool:
        """Whether its parameters have no units yet: in the first iteration, and later where
        DistributedDataParallel left it out before.
        """
        if any(id(parameter) in self._places for parameter in bucket.parameters()):
            return False
        if bucket.index() not in dict(self._cut_buckets):
            return True
        # In the first backward of a static graph all of several buckets have the index 0.
        known = {(bucket.index(), bucket.is_last()), *self._cut_buckets}
        return bool(self._taken) and known == {(0, False)}

    def _end_backward(self) -> None:
        """What has not come by now does not come: DistributedDataParallel may leave out buckets
        (skip_all_reduce_unused_params).
        """
        self._looks_at_end = False
        if torch._C._current_autograd_node() is not None:
            return  # of a backward inside of another one, which goes on (reentrant checkpoints)
        self._taken.clear()
        rest, self._reductions = self._reductions, {}
        for reduction in rest.values():
            if self._comm_thread is not None:
                self._comm_thread.put(reduction)

    def _place(self, parameter: torch.Tensor, gradient: torch.Tensor) -> tuple[Unit, int]:
        found = self._places.get(id(parameter))
        if found is None or gradient.numel() != found.unit.sizes[found.position]:
            raise StateError(
                f"a bucket holds a parameter of shape {tuple(parameter.shape)} that was not there "
                "in the first iteration; make a new HookState when the model changes, and one for "
                "each of several models."
            )
        return found.unit, found.position

    def _cut(self, comm_thread: CommThread, bucket: Bucket, device: torch.device) -> None:
        """Build units from the parameters of a bucket that is there for the first time."""
        # The number of those that had the index 0 before it is its own in a static graph.
        own_index = bucket.index() or [index for index, _ in self._cut_buckets].count(0)
        self._cut_buckets.append((bucket.index(), bucket.is_last()))
        parameters = bucket.parameters()
        shapes = [real_shape(parameter) for parameter in parameters]
        limits = [self.unit_cap_mb * _MEGABYTE / 4]
        if own_index == 0 and self.unit_cap_mb == UNIT_CAP_MB:
            limits.insert(0, _FIRST_MEGABYTES * _MEGABYTE / 4)
        # Only one bucket for the whole model is made anew after this iteration.
        anew = bucket.index() == 0 and bucket.is_last()
        order = arrival_order(shapes) if anew else list(reversed(range(len(shapes))))
        for number, part in enumerate(cut([numel(shapes[i]) for i in order], limits)):
            members = [order[i] for i in part]
            first = bucket.is_last() and 0 in members
            names = [self._name_of(parameters[i]) for i in members if numel(shapes[i])]
            spec = spec_of_unit(self.codec, first=first, names=names)
            if own_index > bucket.index() and 0 in members:
                self._check_without_first(names)
            # A rule for the model's first layer is one for the first of a codec's layers.
            if not anew or (first and spec != spec_of_unit(self.codec, first=False, names=names)):
                members.sort()
            its_shapes = tuple(shapes[i] for i in members)
            its_layers = layers(its_shapes, [self._name_of(parameters[i]) for i in members])
            codec = comm_thread.build_codec(
                spec, its_layers, kernels_for(device), gain=self._with_gain
            )
            place = own_index, number
            unit = Unit(len(self._units), its_shapes, codec, place)
            self._restore(unit)
            self._units.append(unit)
            for position, i in enumerate(members):
                self._places[id(parameters[i])] = _ParameterOf(unit, position, parameters[i])

    def _check_without_first(self, names: list[str]) -> None:
        """Refuse a rule for the model's first layer where nothing says which bucket has it."""
        with_rule, without = (
            spec_of_unit(self.codec, first=first, names=names) for first in (True, False)
        )
        if with_rule != without:
            raise InputError(
                "the codec has a rule for the model's first layer (first_dense), and in a static "
                "graph of several dtypes or buckets PyTorch does not say which bucket has it. "
                "Set first_dense to False, or wrap the model without static_graph."
            )

    def _name_of(self, parameter: torch.Tensor) -> str:
        """Its name in the model; "" if the codec has no patterns of names."""
        if LAYERS not in self.codec:
            return ""
        if self._names is None:
            raise StateError(
                "a HookState that was pickled does not know the parameters' names; make a new one "
                "with named_parameters, and load its state_dict."
            )
        if id(parameter) not in self._names:
            raise StateError(
                f"a parameter of shape {tuple(parameter.shape)} is not in named_parameters; give "
                "HookState those of the model that is wrapped."
            )
        return self._names[id(parameter)]

    def _restore(self, unit: Unit) -> None:
        if not self._saved:
            return
        # Saved by earlier versions, it has no place, and the order of the units counts.
        places = [tuple(saved.get("place") or unit.place) for saved in self._saved]
        if unit.place not in places:
            return
        index = places.index(unit.place)
        saved = self._saved[index]
        if tuple(tuple(shape) for shape in saved["shapes"]) != unit.shapes:
            raise StateError(
                f"the hook's saved state is of another model: unit {unit.index} had parameters of "
                f"shapes {saved['shapes']}, now {unit.shapes}."
            )
        unit.codec.load_state_dict(saved["codec"])
        del self._saved[index]


class HookState(BucketHook):
    """The state of ``ddp_hook`` with which a switch sums; one for each model.

    The first bucket joins the job; ``connect`` joins earlier. The end of a worker's process is
    noticed at once.

    Args:
        codec, unit_cap_mb, seed, deadline, scale, named_parameters, gain: see ``BucketHook``.
        process_group: its ranks are the workers; by default all ranks.
        switch: HOST:PORT of the switch service. By default from the environment (``INNET_SWITCH``);
            otherwise rank 0 starts one on this machine.
        job: prefix of the job's name at the switch; by default from the environment.
        key: the switch's key; by default from the environment.

    Raises:
        InputError, UnknownNameError, ConfigError: as ``BucketHook``, or the key's file cannot be
            read.
    """

    def __init__(
        self,
        codec: CodecSpec = "dense",
        *,
        process_group: torch.distributed.ProcessGroup | None = None,
        switch: str | None = None,
        job: str | None = None,
        key: str | None = None,
        unit_cap_mb: float = UNIT_CAP_MB,
        seed: int = 0,
        deadline: float = 300.0,
        scale: Callable[[], float] | None = None,
        named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
        gain: bool = False,
    ) -> None:
        self.settings = RendezvousSettings.of(switch=switch, job=job, key=key, deadline=deadline)
        super().__init__(
            codec,
            group=process_group,
            unit_cap_mb=unit_cap_mb,
            seed=seed,
            deadline=deadline,
            scale=scale,
            named_parameters=named_parameters,
            gain=gain,
        )

    def _begin(self) -> None:
        super()._begin()
        self._own_switch: str | None = None  # HOST:PORT of the one that this process has started

    def _reducer(self) -> Reducer:
        member, started = join_group(self._group, self.settings)
        self._own_switch = member.switch if started else None
        return SwitchReducer(member, self.deadline)

    def renew(self) -> None:
        """Recover after a failure with the same codecs; it waits for all workers. All must call it.

        If rank 0 started the switch and it has ended, rank 0 starts another. Otherwise it waits for
        a switch at the same address.

        Wrap the model again before continuing: a DistributedDataParallel cannot be used after an
        error in backward.

        Raises:
            InnetError: a worker is missing.
        """
        thread, switch = self._comm_thread, self._own_switch
        if thread is not None and switch is not None and thread.has_lost_switch():
            self.close()
            await_end(switch)
            self.connect()
            self._begin_again()
        else:
            super().renew()


class CompressionHook(BucketHook):
    """The state of ``ddp_hook`` with which a process group sums, without a switch; one for each
    model.

    The codec's integers are summed by the all-reduce of gloo or NCCL, whichever ``group`` has, over
    connections of the hook's own. Gradients and ``state_dict`` are those of ``HookState``, bit for
    bit.

    Args:
        codec, unit_cap_mb, seed, deadline, scale, named_parameters, gain: see ``BucketHook``.
        group: its ranks are the workers; by default all ranks.

    Raises:
        InputError, UnknownNameError, ConfigError: as ``BucketHook``.
    """

    def _reducer(self) -> Reducer:
        return GroupReducer(self._group, self.deadline)


def _names_of(
    codec: Mapping[str, Any], named: Iterable[tuple[str, torch.nn.Parameter]] | None
) -> dict[int, str] | None:
    """The parameters' names by their ids, if the codec has patterns of names.

    Raises:
        InputError: it has patterns, and there are no names.
        ConfigError: a parameter or a pattern without the other.
    """
    if LAYERS not in codec:
        return None
    if named is None:
        raise InputError(
            "the codec has patterns of the parameters' names, and a bucket does not say them; "
            "give HookState(named_parameters=model.named_parameters())."
        )
    names = {id(parameter): name for name, parameter in named if parameter.requires_grad}
    check_patterns(codec, list(names.values()))
    return names


def _gradients(bucket: Bucket) -> list[torch.Tensor]:
    """The gradients in a bucket's buffer, by parameter. Complex numbers are pairs of real ones, of
    which ``bucket.gradients()`` has the first half.

    Raises:
        InputError: the buffer has another size than the parameters.
    """
    parameters, buffer = bucket.parameters(), bucket.buffer()
    if not any(parameter.is_complex() for parameter in parameters):
        found: list[torch.Tensor] = bucket.gradients()
    else:
        shapes = [real_shape(parameter) for parameter in parameters]
        if sum(map(numel, shapes)) == buffer.numel():
            pieces = torch.split(buffer, [numel(shape) for shape in shapes])
            found = [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
        else:
            found = []
    size = sum(gradient.numel() for gradient in found)
    if size != buffer.numel():
        raise InputError(
            f"a bucket of {buffer.numel()} {buffer.dtype} with gradients of {size}; this PyTorch "
            "lays buckets out in a way that innet does not know. Leave the hook out."
        )
    return found


def real_shape(parameter: torch.Tensor) -> Shape:
    """The shape of a parameter's gradient in real numbers."""
    return (*parameter.shape, 2) if parameter.is_complex() else tuple(parameter.shape)


def _saved(unit: Unit) -> dict[str, Any]:
    return {"shapes": unit.shapes, "place": unit.place, "codec": unit.codec.state_dict()}


def _check_form(state: object) -> None:
    """Check that it is a state, not another dictionary of the same checkpoint."""
    units = state.get("units") if isinstance(state, Mapping) else None
    full = isinstance(units, (list, tuple)) and all(
        isinstance(unit, Mapping) and {"shapes", "codec"} <= set(unit) for unit in units
    )
    if not full:
        name = type(state).__name__
        what = f"a {name} without its units" if isinstance(state, Mapping) else f"a {name}"
        raise StateError(
            f"the hook's saved state is {what}; give what HookState.state_dict returned on this "
            "rank, whole. Where nothing was saved, begin with this HookState as it is."
        )


@dataclass(frozen=True, slots=True)
class _ParameterOf:
    """The position of a parameter. It holds the parameter, so that the id is not reused."""

    unit: Unit
    position: int
    parameter: torch.Tensor


def ddp_hook(
    state: BucketHook,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
    *sharded: torch.Tensor,
) -> torch.futures.Future[torch.Tensor]:
    """Replace the gradients of a bucket by their mean over all workers, in parallel with backward.

    Args:
        state: a ``HookState`` or ``CompressionHook``, one for each model, the same on all workers.
        bucket: DistributedDataParallel's bucket.
        sharded: additional arguments of FullyShardedDataParallel, which is refused.

    Returns:
        A future of the bucket's buffer with the means. If it fails, ``backward`` raises a
        RuntimeError with the message of the error.

    Raises:
        InnetError: the bucket cannot be reduced. The other workers raise, too.
    """
    del sharded
    if not isinstance(state, BucketHook):
        raise InputError(
            f"the hook's state is a {type(state).__name__}; register it with a HookState: "
            "model.register_comm_hook(HookState(...), ddp_hook)."
        )
    return state.reduce(bucket)


DDPHook = ddp_hook
"""The same."""
