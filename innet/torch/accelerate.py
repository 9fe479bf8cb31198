"""innet's communication hook for Accelerate.

    from innet.torch.accelerate import CommHookKwargs
    accelerator = Accelerator(kwargs_handlers=[CommHookKwargs("topk")])

``pip install 'innet[accelerate]'``. For the process group ``innet``, initialise it before the
``Accelerator``, which accepts only its own back ends on the CPU and takes what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from innet.codecs import CodecSpec
from innet.core.errors import MissingToolError
from innet.torch.ddp import BucketHook
from innet.torch.model_hook import ModelHook
from innet.torch.tensors import torch

try:
    from accelerate.utils import DistributedDataParallelKwargs
except ImportError as error:
    raise MissingToolError(
        "Accelerate",
        "innet.torch.accelerate and innet.torch.transformers",
        f"Install it by: pip install 'innet[accelerate]' ({error}).",
    ) from error

_NOT_FOR_DDP = ("comm_hook", "comm_wrapper", "comm_state_option")


class CommHookKwargs(DistributedDataParallelKwargs):
    """Accelerate's handler for ``DistributedDataParallel``, which registers innet's hook.

    ``accelerator.register_for_checkpointing`` takes it too: ``save_state`` then saves the hook's
    state of all ranks, and ``load_state`` after ``prepare`` loads it.

    Args:
        hook: a codec, for a ``HookState`` with it; or a ``HookState`` or ``CompressionHook``.
        hook_options: other arguments of that ``HookState``.
        ddp_options: arguments of Accelerate's ``DistributedDataParallelKwargs``.

    Attributes:
        hook: with its ``state``.

    Raises:
        InnetError: as ``innet.torch.model_hook.ModelHook``.
    """

    hook: ModelHook

    def __init__(
        self,
        hook: BucketHook | CodecSpec = "dense",
        hook_options: Mapping[str, Any] | None = None,
        **ddp_options: Any,
    ) -> None:
        super().__init__(**ddp_options)
        self.hook = ModelHook(hook, **(hook_options or {}))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Accelerate finds a handler by its class itself, which may be none that it derives."""
        return DistributedDataParallelKwargs

    def to_dict(self, ignore_keys: tuple[str, ...] = _NOT_FOR_DDP) -> dict[str, Any]:
        """The arguments of ``DistributedDataParallel``; Accelerate calls it."""
        names = (each.name for each in fields(DistributedDataParallelKwargs))
        return {name: getattr(self, name) for name in names if name not in ignore_keys}

    def register_comm_hook(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        """Register the hook; Accelerate calls it with the wrapped model."""
        self.hook.register(model)

    def state_dict(self) -> dict[str, Any]:
        """See ``ModelHook.state_dict``."""
        return self.hook.state_dict()

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """See ``ModelHook.load_state_dict``."""
        self.hook.load_state_dict(saved)
