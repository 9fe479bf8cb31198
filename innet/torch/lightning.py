"""innet for Lightning: its communication hook, or its process group.

    from innet.torch.lightning import CommHookStrategy
    trainer = Trainer(strategy=CommHookStrategy("topk"), devices=4, accelerator="cpu")
    trainer = Trainer(strategy=CommHookStrategy(process_group_backend="innet"), ...)

``pip install 'innet[lightning]'``. Lightning's own ``DDPStrategy`` registers hooks on CUDA alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from innet.codecs import CodecSpec
from innet.core.errors import InputError, MissingToolError, StateError
from innet.torch.ddp import BucketHook
from innet.torch.model_hook import ModelHook
from innet.torch.tensors import torch

try:
    from lightning.pytorch.strategies import DDPStrategy
except ImportError as error:
    raise MissingToolError(
        "Lightning",
        "innet.torch.lightning",
        f"Install it by: pip install 'innet[lightning]' ({error}).",
    ) from error

_KEY = "innet_comm_hook"  # in Lightning's checkpoints


class CommHookStrategy(DDPStrategy):
    """Lightning's ``DDPStrategy`` with innet's hook, on the CPU too.

    Checkpoints hold the hook's state of all ranks; ``ckpt_path=`` continues from it with the same
    bits.

    Args:
        hook: a codec, for a ``HookState`` with it; or a ``HookState`` or ``CompressionHook``. None
            for no hook: then ``process_group_backend="innet"`` sends DDP's own all-reduces through
            the switch.
        hook_options: other arguments of that ``HookState``.
        options: of ``DDPStrategy``.

    Attributes:
        hook: with its ``state``; None if there is none.

    Raises:
        InputError: a hook of Lightning's arguments beside this one.
        InnetError: as ``innet.torch.model_hook.ModelHook``.
    """

    def __init__(
        self,
        hook: BucketHook | CodecSpec | None = None,
        hook_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if hook is not None and options.get("ddp_comm_hook") is not None:
            raise InputError("two hooks; give either a codec or ddp_comm_hook.")
        super().__init__(**options)
        self.hook = None if hook is None else ModelHook(hook, **(hook_options or {}))

    def _register_ddp_hooks(self) -> None:
        if self.hook is None:
            super()._register_ddp_hooks()
            return
        assert isinstance(self.model, torch.nn.parallel.DistributedDataParallel)
        self.hook.register(self.model)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any = None
    ) -> None:
        """Add the hook's state of all ranks. Lightning calls it on all ranks."""
        if self.hook is not None and self.hook.state is not None:
            checkpoint[_KEY] = self.hook.state_dict()
        super().save_checkpoint(checkpoint, filepath, storage_options)

    def load_checkpoint(
        self, checkpoint_path: str | Path, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load a checkpoint, and keep the hook's state for the model that is wrapped next.

        Raises:
            StateError: the checkpoint has no state of a hook.
        """
        checkpoint: dict[str, Any] = super().load_checkpoint(checkpoint_path, weights_only)
        if self.hook is not None:
            if _KEY not in checkpoint:
                raise StateError(
                    f"{checkpoint_path} has no state of innet's hook, as it was saved without one; "
                    "load the model's weights from it, and begin with a new hook."
                )
            self.hook.load_state_dict(checkpoint[_KEY])
        return checkpoint

    def teardown(self) -> None:
        """Lightning calls it at the end of ``fit``."""
        if self.hook is not None:
            self.hook.close()
        super().teardown()
