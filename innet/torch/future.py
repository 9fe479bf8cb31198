"""A future that another thread completes, and whose callbacks may begin all-reduces."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from innet.torch.callbacks import CallbackThreads, WorkOrigin
from innet.torch.tensors import torch


class SettableFuture(torch.futures.Future[Any]):
    """A ``torch.futures.Future`` of work that a communication thread does.

    PyTorch's ``set_exception`` raises in Python only. DistributedDataParallel waits in C++ and
    would take the exception for the result. So here the result of a failure is a tensor of which
    every use raises the error.

    Args:
        callbacks: run the callbacks of the future.
        device: of the result's tensors.
        origin: of the work; by default it begins here.
        of: the future whose callback's result this one has, if it is such a one.

    Attributes:
        origin: names the work on all workers.
        error: of a failure; else None.
    """

    def __init__(
        self,
        callbacks: CallbackThreads,
        device: torch.device | None = None,
        origin: WorkOrigin | None = None,
        of: SettableFuture | None = None,
    ) -> None:
        self._device = None if device is None or device.type == "cpu" else device
        super().__init__(devices=None if self._device is None else [self._device])
        if of is None:
            self.origin = callbacks.begin() if origin is None else origin
            callbacks.open(self.origin)
        else:
            self.origin = of.origin
        self.error: BaseException | None = None
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._has_callbacks = False
        self._over = threading.Event()  # complete, and the callbacks have run

    # ------------------------------------------------------------------ who completes it

    def complete(self, value: object) -> None:
        """Complete the future; its callbacks run in other threads."""
        with self._lock:  # so that no callback comes meanwhile
            has_callbacks = self._has_callbacks
            self._callbacks.run(self.origin, lambda: self._set(value), calls_back=has_callbacks)

    def fail(self, error: BaseException) -> None:
        """Fail the future."""
        self.error = error
        self.complete(_Failed(_raised(error)))

    def _set(self, value: object) -> None:
        try:
            self.set_result(value)
        finally:
            self._over.set()

    # ------------------------------------------------------------------ who waits for it

    def wait(self) -> Any:
        """The result, as soon as it is there.

        Raises:
            FutureError: it failed.
        """
        super().wait()
        return self.value()

    def value(self) -> Any:
        """The result of a future that is complete; raises as ``wait``."""
        if self.error is not None:
            raise _raised(self.error)
        return super().value()

    def then(self, callback: Callable[[Any], Any]) -> SettableFuture:
        """Run a callback with this future when it is complete.

        Returns:
            A future of its result.
        """
        derived = SettableFuture(self._callbacks, self._device, of=self)

        def run() -> None:
            try:
                value = callback(self)
            except BaseException as error:
                derived.error = error
                value = _Failed(_raised(error))
            derived._set(value)  # its callbacks run here, too

        self._run_when_done(run)
        return derived

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        """Run a callback with this future when it is complete."""
        self._run_when_done(lambda: callback(self))

    def _run_when_done(self, call: Callable[[], Any]) -> None:
        with self._lock:
            self._has_callbacks = True

        def run(_: Any) -> None:
            with self._callbacks.in_callback_of(self.origin):
                call()

        super().add_done_callback(run)

    # ------------------------------------------------------------------ who waits for the work

    def is_over(self) -> bool:
        """Whether it is complete, and its callbacks have run; or this is one of them."""
        return self._over.is_set() or (self.done() and self._callbacks.is_in(self.origin))

    def wait_until_over(self, seconds: float | None) -> bool:
        """Wait for ``is_over``; None for no limit. Returns whether it is."""
        return self.is_over() or self._over.wait(seconds)


class FutureError(RuntimeError):
    """The work of a future failed, or a callback of it; has the message of the error."""


def _raised(error: BaseException) -> FutureError:
    """What waiting raises. A callback that waited for failed work has the same error."""
    if isinstance(error, FutureError):
        return error
    failure = FutureError(f"{type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


class _Failed(torch.Tensor):
    """The result of work that failed: whatever uses it raises the error."""

    error: BaseException

    @staticmethod
    def __new__(cls, error: BaseException) -> _Failed:
        made: _Failed = torch.Tensor._make_wrapper_subclass(cls, (1,))
        made.error = error
        return made

    def __init__(self, error: BaseException) -> None:
        del error

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del func, types
        given = [*args, *(kwargs or {}).values()]
        raise next(each.error for each in _flat(given) if isinstance(each, cls))

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"<failed: {self.error}>"


def _flat(values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        return [values]
    return [part for each in values for part in _flat(each)]
