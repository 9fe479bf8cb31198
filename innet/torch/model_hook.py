"""A communication hook that is registered when a trainer wraps its model.

Trainers wrap models themselves, and save one checkpoint of all ranks. The modules ``accelerate``,
``transformers`` and ``lightning`` beside this one use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innet.codecs import CodecSpec
from innet.codecs.build import complete
from innet.core.errors import InputError, StateError
from innet.torch.ddp import BucketHook, HookState, ddp_hook
from innet.torch.tensors import torch

dist = torch.distributed


class ModelHook:
    """A hook for the model of a trainer.

    Args:
        hook: a codec, for a ``HookState`` with it; or a ``HookState`` or ``CompressionHook``.
        options: other arguments of that ``HookState``; its parameters' names are the model's.

    Attributes:
        state: of the model that was wrapped last; None before the first.

    Raises:
        InputError: a hook and options for another.
        UnknownNameError, ConfigError: the codec names an unknown part or parameter.
    """

    def __init__(self, hook: BucketHook | CodecSpec = "dense", **options: Any) -> None:
        self.state: BucketHook | None = None
        self._given: BucketHook | None = None
        if isinstance(hook, BucketHook):
            if options:
                raise InputError(
                    f"options {', '.join(options)} beside a {type(hook).__name__}; give them to it."
                )
            self._given = hook
        else:
            self._codec = complete(hook)
        self._options = options
        self._saved: Mapping[str, Any] | None = None

    def register(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        """Register the hook with a model that was just wrapped.

        Raises:
            InnetError: as ``HookState``.
        """
        if self._given is None:
            self.close()
            names = model.module.named_parameters()
            self.state = HookState(self._codec, **{"named_parameters": names, **self._options})
        else:
            self.state = self._given
        if self._saved is not None:
            self._load()
        model.register_comm_hook(self.state, ddp_hook)

    def close(self) -> None:
        """End the connection to the other workers."""
        if self.state is not None:
            self.state.close()

    def state_dict(self) -> dict[str, Any]:
        """The states of all ranks, the same on all. All ranks call it.

        Raises:
            StateError: no model was wrapped.
        """
        if self.state is None:
            raise StateError("the hook has no state before the trainer has wrapped the model.")
        mine = self.state.state_dict()
        ranks: list[Any] = [None] * mine["workers"]
        dist.all_gather_object(ranks, mine, group=self.state.process_group)
        return {"ranks": ranks}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``: now, or when the model is wrapped.

        Raises:
            StateError: as ``HookState.load_state_dict``, or it is not such a state.
        """
        if not (isinstance(saved, Mapping) and isinstance(saved.get("ranks"), list)):
            raise StateError(
                "this is no state of a trainer's hook; give what its state_dict returned, whole."
            )
        self._saved = saved
        if self.state is not None:
            self._load()

    def _load(self) -> None:
        assert self.state is not None
        assert self._saved is not None
        ranks = self._saved["ranks"]
        rank = dist.get_rank(self.state.process_group)
        self.state.load_state_dict(ranks[min(rank, len(ranks) - 1)])  # refuses another number
        self._saved = None
