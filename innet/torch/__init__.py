"""What innet offers to PyTorch. The only place that imports it; ``pip install 'innet[torch]'``.

Importing it registers the back end: ``torch.distributed.init_process_group("innet")``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from innet.torch.flat import torch

if TYPE_CHECKING:
    from innet.torch.ddp import DDPHook, ddp_hook
    from innet.torch.hook_state import HookState

__all__ = ["DDPHook", "HookState", "ddp_hook"]


def __getattr__(name: str) -> Any:
    """The names above, imported when they are asked for: models need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from innet.torch import ddp  # noqa: PLC0415 - see above

    return getattr(ddp, name)


def _create(*arguments: Any) -> Any:
    from innet.torch.group import create  # noqa: PLC0415 - as above

    return create(*arguments)


if torch.distributed.is_available() and not hasattr(torch.distributed.Backend, "INNET"):
    torch.distributed.Backend.register_backend("innet", _create, devices=["cpu"])
