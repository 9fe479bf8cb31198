"""Workers that one process emulates: parts of a batch, and a gradient of each, with one model.

What a worker of DistributedDataParallel has for itself, each worker here has too: its part of the
batch, its random numbers, and the statistics of its batch normalization. Running statistics are
those of worker 0, as DistributedDataParallel broadcasts them.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError, StateError
from innet.records.units import plural
from innet.torch.tensors import DTYPES, torch

LossOf = Callable[..., torch.Tensor]
"""A worker's part of the batch to its loss, the mean over its samples."""


def seed_all(seed: int) -> None:
    """Seed the generators that scripts draw from: Python's, NumPy's and PyTorch's."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 - the one that data augmentation draws from
    torch.manual_seed(seed)


class WorkerBatches(NamedTuple):
    """A batch, as the workers have it.

    Attributes:
        arguments: of the function that computes the loss, by worker; None for no samples.
        shares: how much each worker's mean loss counts; together as much as there are workers.
    """

    arguments: list[tuple[Any, ...] | None]
    shares: list[float]


def split(batch: tuple[Any, ...], workers: int) -> WorkerBatches:
    """Divide a batch into parts of neighboring samples, whose sizes differ by one at most.

    A worker's loss counts as much as it has samples. So the mean gradient of the workers is the
    gradient of the mean loss of the whole batch, also where the batch cannot be divided evenly.

    Args:
        batch: tensors and arrays with samples in their first dimension, lists of samples, and
            tuples and mappings of these. Numbers, text and the like are the same for each worker.
        workers: how many.

    Raises:
        InputError: nothing in the batch can be divided, or there are several numbers of samples.
    """
    sizes = set(_lengths(batch))
    if not sizes:
        raise InputError(
            "no tensor of the batch has samples to divide; pass the batch behind the function that "
            "computes the loss."
        )
    if len(sizes) != 1 or sizes == {0}:
        found = ", ".join(map(str, sorted(sizes)))
        raise InputError(
            f"a batch with {found} samples in its parts; all tensors must have as many in their "
            "first dimension, and one at least. Where another dimension has the samples, give "
            "batches=, a list with each worker's own batch."
        )
    (samples,) = sizes
    least, more = divmod(samples, workers)
    ends = np.cumsum([0, *(least + (worker < more) for worker in range(workers))]).tolist()
    rows = [slice(*bounds) for bounds in pairwise(ends)]
    return WorkerBatches(
        [_rows_of(batch, each) if each.stop > each.start else None for each in rows],
        [(each.stop - each.start) * workers / samples for each in rows],
    )


def _is_array(value: object) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _is_container(value: object) -> bool:
    """Whether something holds parts of the batch, rather than samples."""
    if isinstance(value, list):
        return all(_is_array(each) or _is_container(each) for each in value)
    return isinstance(value, tuple | Mapping)


def _lengths(value: Any) -> list[int]:
    if _is_container(value):
        items = value.values() if isinstance(value, Mapping) else value
        return [length for each in items for length in _lengths(each)]
    return [len(value)] if _is_array(value) or isinstance(value, list) else []


def _rows_of(value: Any, rows: slice) -> Any:
    if isinstance(value, Mapping):
        return {key: _rows_of(each, rows) for key, each in value.items()}
    if _is_container(value):
        found = [_rows_of(each, rows) for each in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return value[rows] if _is_array(value) or isinstance(value, list) else value


class EmulatedWorkers:
    """The gradients of all workers, by one model.

    Args:
        model: whose parameters that require a gradient are summed, in the model's order.
        workers: how many.

    Attributes:
        shapes: of the parameters, by name.

    Raises:
        InputError: no parameter requires a gradient; one is of a dtype that cannot be coded, or
            not initialized; or a module needs a process group.
    """

    def __init__(self, model: torch.nn.Module, workers: int) -> None:
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.SyncBatchNorm):
                raise InputError(
                    f"the module {name!r} is a SyncBatchNorm, which needs a process group; "
                    "emulated workers are one process. Take BatchNorm, GroupNorm or LayerNorm."
                )
        self._model, self._workers = model, workers
        self._parameters = {
            name: each for name, each in model.named_parameters() if each.requires_grad
        }
        if not self._parameters:
            raise InputError("no parameter of the model requires a gradient; there is no sum.")
        for name, each in self._parameters.items():
            if isinstance(each, torch.nn.UninitializedParameter):
                raise InputError(
                    f"parameter {name!r} is not initialized yet; pass a batch through the model "
                    "before it is attached."
                )
            if each.dtype not in DTYPES:
                raise InputError(
                    f"parameter {name!r} is {each.dtype}; gradients are coded as float32, which "
                    "holds float32, float16 and bfloat16. Convert the model, by model.float()."
                )
        self.shapes = {name: tuple(each.shape) for name, each in self._parameters.items()}
        size = sum(each.numel() for each in self._parameters.values())
        self._gradients = np.zeros((workers, size), np.float32)
        self._without_momentum: torch.optim.Optimizer | None = None
        self._found: set[str] = set()  # parameters to which some worker has a gradient

    def digest(self) -> bytes:
        """Of the parameters and buffers as they are."""
        found = hashlib.blake2b()
        for each in (*self._model.parameters(), *self._model.buffers()):
            found.update(each.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return found.digest()

    def accumulate(self, loss_of: LossOf, parts: WorkerBatches, scaler: Any = None) -> torch.Tensor:
        """Add each worker's gradient of its part to those that ``take`` will return.

        The parameters' ``grad`` and the running statistics of all workers but the first stay as
        they were.

        Args:
            loss_of: computes a worker's loss.
            parts: of the batch.
            scaler: a ``GradScaler``, by which losses are multiplied before the backward pass. The
                gradients are divided by it again.

        Returns:
            The mean loss, detached, of shape ().

        Raises:
            InputError: what ``loss_of`` returns is no loss, or a gradient is sparse.
            StateError: parameters require a gradient that did not when the model was attached.
        """
        self._check_learning()
        before = {name: each.grad for name, each in self._parameters.items()}
        running = [(each, each.clone()) for each in self._model.buffers()]
        of_first: list[torch.Tensor] = []
        total: torch.Tensor | None = None
        try:
            for worker, (arguments, share) in enumerate(
                zip(parts.arguments, parts.shares, strict=True)
            ):
                if arguments is None:
                    continue
                for each in self._parameters.values():
                    each.grad = None
                if worker:
                    _restore(running)
                loss = self._backward(loss_of, arguments, worker, scaler)
                scale = 1.0 if scaler is None else scaler.get_scale()
                self._collect(worker, share / scale)
                if not worker:
                    of_first = [each.clone() for each, _ in running]
                counted = loss * (share / self._workers)
                total = counted if total is None else total + counted.to(total.device)
        finally:
            for name, each in self._parameters.items():
                each.grad = before[name]
            if of_first:
                _restore([(each, kept) for (each, _), kept in zip(running, of_first, strict=True)])
        assert total is not None
        return total

    def _backward(
        self, loss_of: LossOf, arguments: tuple[Any, ...], worker: int, scaler: Any
    ) -> torch.Tensor:
        """The loss of a worker, whose gradient is in the parameters' ``grad``."""
        try:
            loss = loss_of(*arguments)
            if isinstance(loss, torch.Tensor) and loss.numel() == 1:
                loss = loss.reshape(())
                (loss if scaler is None else scaler.scale(loss)).backward()
        except Exception as error:
            size = max(_lengths(arguments), default=1)
            error.add_note(f"It was worker {worker}'s part of the batch, of {size} samples.")
            raise
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            what = f"of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else ""
            raise InputError(
                f"the function that computes the loss returned a {type(loss).__name__} {what}; "
                "expected is the mean loss of its samples, a tensor of one element."
            )
        return loss.detach().float()

    def _check_learning(self) -> None:
        """Refuse parameters whose gradients would not be summed."""
        for name, each in self._model.named_parameters():
            if each.requires_grad and name not in self._parameters:
                raise StateError(
                    f"parameter {name!r} did not require a gradient when the model was attached, "
                    "and is not among those that are summed; attach the model while it does."
                )

    def _collect(self, worker: int, factor: float) -> None:
        """Add a factor times the parameters' ``grad`` to a worker's gradient."""
        device = next(iter(self._parameters.values())).device
        pieces = []
        for name, each in self._parameters.items():
            if each.grad is None:
                pieces.append(torch.zeros(each.numel(), device=device))
                continue
            if each.grad.layout != torch.strided:
                raise InputError(
                    f"the gradient of parameter {name!r} is sparse; make its layer with "
                    "sparse=False."
                )
            self._found.add(name)
            pieces.append(each.grad.reshape(-1).to(device, torch.float32))
        gradient = torch.cat(pieces)
        if factor != 1.0:
            gradient *= factor
        self._gradients[worker] += gradient.cpu().numpy()

    def take(self) -> list[NDArray[np.float32]]:
        """The workers' gradients, shape (elements,) each, valid until the next ``accumulate``.

        Raises:
            StateError: the optimizer has momentum again, which the codec has.
        """
        optimizer = self._without_momentum
        if optimizer is not None and any(each["momentum"] for each in optimizer.param_groups):
            raise StateError(
                "the optimizer has momentum again, beside that of the codec; a schedule such as "
                "OneCycleLR takes cycle_momentum=False."
            )
        return list(self._gradients)

    def give(self, mean: NDArray[np.float32], scaler: Any = None) -> None:
        """Add the mean gradient to the parameters' ``grad``, and forget the workers' gradients.

        ``grad`` of a parameter stays None if no worker has a gradient to it and the mean is zero
        there: nothing that a codec kept of earlier iterations came with it either.

        Args:
            mean: shape (elements,).
            scaler: a ``GradScaler``, which will divide by its scale.
        """
        scale = 1.0 if scaler is None else scaler.get_scale()
        begin = 0
        for name, each in self._parameters.items():
            piece = mean[begin : begin + each.numel()]
            begin += each.numel()
            if name not in self._found and not piece.any():
                continue
            new = torch.from_numpy(piece * np.float32(scale)).reshape(each.shape)
            found = torch.empty_like(each).copy_(new)  # of its dtype, device and strides
            each.grad = found if each.grad is None else each.grad + found
        self._found.clear()
        self._gradients[:] = 0

    def not_finite(self) -> int | None:
        """The first worker whose gradient has a NaN or infinity; None if there is none."""
        finite = np.isfinite(self._gradients).all(axis=1)
        return None if finite.all() else int(np.argmin(finite))

    def take_momentum(self, optimizer: torch.optim.Optimizer | None, codec: str) -> None:
        """Take the momentum out of an optimizer, as the codec has it; ``take`` sees it stay out.

        Raises:
            InputError: the optimizer is not SGD, or not known.
        """
        if not isinstance(optimizer, torch.optim.SGD):
            kind = "none was attached" if optimizer is None else type(optimizer).__name__
            raise InputError(
                f"the codec {codec} has the momentum of SGD, which the optimizer must not have "
                f"then; attach a torch.optim.SGD ({kind}), or leave the codec out."
            )
        for group in optimizer.param_groups:
            group.update(momentum=0.0, nesterov=False, dampening=0.0)
        self._without_momentum = optimizer

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse an optimizer of another model.

        Raises:
            InputError: it has none of the parameters.
        """
        mine = set(map(id, self._parameters.values()))
        held = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if not mine & held:
            raise InputError(
                f"the optimizer has none of the model's {plural(len(mine), 'parameter')}; make it "
                "inside of the loop over the emulation, of the model that is attached."
            )


def _restore(states: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Write saved values into buffers."""
    with torch.no_grad():
        for buffer, kept in states:
            buffer.copy_(kept)
