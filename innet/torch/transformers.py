"""innet's communication hook for the Trainer of Transformers.

    from innet.torch.transformers import CommHookTrainer
    trainer = CommHookTrainer(model, arguments, train_dataset=data, comm_hook="topk")

``pip install 'innet[transformers]'``. ``CommHookMixin`` does the same for a class derived from
``Trainer``: name it first among the base classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from innet.codecs import CodecSpec
from innet.core.errors import MissingToolError, StateError
from innet.torch.accelerate import CommHookKwargs
from innet.torch.ddp import BucketHook
from innet.torch.tensors import torch

try:
    from accelerate.utils import DistributedDataParallelKwargs
    from transformers import Trainer
except ImportError as error:
    raise MissingToolError(
        "Transformers",
        "innet.torch.transformers",
        f"Install it by: pip install 'innet[transformers]' ({error}).",
    ) from error


class CommHookMixin:
    """Registers innet's hook with the model that a ``Trainer`` wraps.

    Checkpoints hold a file ``comm_hook_RANK.pt`` for each rank, beside the Trainer's
    ``rng_state_RANK.pth``; ``resume_from_checkpoint`` continues from it with the same bits.

    Args:
        arguments: of the ``Trainer``.
        comm_hook: a codec, for a ``HookState`` with it; or a ``HookState`` or ``CompressionHook``.
        comm_hook_options: other arguments of that ``HookState``.
        options: of the ``Trainer``.

    Attributes:
        comm_hook: Accelerate's handler, with the hook's ``state``.

    Raises:
        InnetError: as ``innet.torch.model_hook.ModelHook``.
    """

    def __init__(
        self,
        *arguments: Any,
        comm_hook: BucketHook | CodecSpec = "dense",
        comm_hook_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.comm_hook = CommHookKwargs(comm_hook, comm_hook_options)
        super().__init__(*arguments, **options)

    def _build_accelerator_args(self, **given: Any) -> dict[str, Any]:
        """The Trainer's own handler for DDP, with the hook."""
        arguments: dict[str, Any] = super()._build_accelerator_args(**given)  # type: ignore[misc]
        handlers = arguments["kwargs_handlers"]
        for index, handler in enumerate(handlers):
            if isinstance(handler, DistributedDataParallelKwargs):
                for each in fields(DistributedDataParallelKwargs):
                    setattr(self.comm_hook, each.name, getattr(handler, each.name))
                handlers[index] = self.comm_hook
        return arguments

    def _save_rng_state(self, output_dir: str) -> None:
        """Called on each rank for each checkpoint that can be resumed."""
        super()._save_rng_state(output_dir)  # type: ignore[misc]
        state = self.comm_hook.hook.state
        if state is not None:  # otherwise there is one rank, and nothing is wrapped
            saved = state.state_dict()
            torch.save(saved, Path(output_dir) / f"comm_hook_{saved['rank']}.pt")

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Called on each rank after the model is wrapped."""
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        state = self.comm_hook.hook.state
        if checkpoint is None or state is None:
            return
        path = Path(checkpoint) / f"comm_hook_{state.state_dict()['rank']}.pt"
        if not path.exists():
            raise StateError(
                f"the checkpoint has no {path.name}, the hook's state of this rank. Resume with as "
                "many ranks and the hook that it was saved with, or load the model alone."
            )
        state.load_state_dict(torch.load(path, weights_only=True))


class CommHookTrainer(CommHookMixin, Trainer):
    """The ``Trainer`` with innet's hook; see ``CommHookMixin``."""
