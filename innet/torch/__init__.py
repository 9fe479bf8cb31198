"""innet for PyTorch. Only this package imports PyTorch; ``pip install 'innet[torch]'``.

The import registers the back end: ``torch.distributed.init_process_group("innet")``. PyTorch 2.14
and newer find it without the import, by innet's entry point ``torch.distributed.backends``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from innet.torch.tensors import torch

if TYPE_CHECKING:
    from innet.torch.ddp import CompressionHook, DDPHook, HookState, ddp_hook
    from innet.torch.fsdp import SwitchAllGather, SwitchAllReduce, SwitchReduceScatter

__all__ = [
    "CompressionHook",
    "DDPHook",
    "HookState",
    "SwitchAllGather",
    "SwitchAllReduce",
    "SwitchReduceScatter",
    "ddp_hook",
]

_HOMES = {
    "CompressionHook": "ddp",
    "DDPHook": "ddp",
    "HookState": "ddp",
    "SwitchAllGather": "fsdp",
    "SwitchAllReduce": "fsdp",
    "SwitchReduceScatter": "fsdp",
    "ddp_hook": "ddp",
}


def __getattr__(name: str) -> Any:
    """Import the names above when they are first used: models need none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"innet.torch.{_HOMES[name]}"), name)


def _create(*arguments: Any) -> Any:
    from innet.torch.group import create  # noqa: PLC0415 - as above

    return create(*arguments)


def register_backend() -> None:
    """Register the back end "innet", once. The import of this package does it, too."""
    if torch.distributed.is_available() and not hasattr(torch.distributed.Backend, "INNET"):
        torch.distributed.Backend.register_backend("innet", _create, devices=["cpu"])


register_backend()


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
