"""A future whose result or exception another thread sets."""

from __future__ import annotations

from typing import Any

from innet.torch.tensors import torch

Future = torch.futures.Future[Any]


class SettableFuture:
    """A ``torch.futures.Future`` whose exceptions reach both Python and C++.

    PyTorch's ``set_exception`` raises in Python only. DistributedDataParallel waits in C++ and
    would take the exception for the result. An exception raised in a callback reaches both, as a
    RuntimeError with the message, so this class raises it in a callback.

    Args:
        device: of the result's tensors.

    Attributes:
        future: the future to wait for.
        error: the error message of a failure; else None.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        devices = None if device is None or device.type == "cpu" else [device]
        self._inner: Future = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
        self.error: BaseException | None = None
        self.future: Future = self._inner.then(self._checked)

    def set_result(self, value: object) -> None:
        """Complete the future."""
        self._inner.set_result(value)

    def set_exception(self, error: BaseException) -> None:
        """Fail the future."""
        self.error = error
        self._inner.set_result(None)

    def _checked(self, kept: Future) -> Any:
        if self.error is not None:
            raise self.error
        return kept.value()
