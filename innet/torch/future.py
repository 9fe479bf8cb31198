"""A future that another thread keeps or breaks."""

from __future__ import annotations

from typing import Any

from innet.torch.tensors import torch

Future = torch.futures.Future[Any]


class SettableFuture:
    """Something that will be there.

    An exception that is put into a future by ``set_exception`` is raised for who asks in Python
    only; DistributedDataParallel asks in C++ and would take it for the result. One that a callback
    raises is an error for both, as a RuntimeError with the message.

    Args:
        device: of the tensors that it will hold.

    Attributes:
        future: for who waits.
        error: why it was broken; None as long as it was not.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        devices = None if device is None or device.type == "cpu" else [device]
        self._inner: Future = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
        self.error: BaseException | None = None
        self.future: Future = self._inner.then(self._checked)

    def set_result(self, value: object) -> None:
        """Here it is."""
        self._inner.set_result(value)

    def set_exception(self, error: BaseException) -> None:
        """It will not come."""
        self.error = error
        self._inner.set_result(None)

    def _checked(self, kept: Future) -> Any:
        if self.error is not None:
            raise self.error
        return kept.value()
