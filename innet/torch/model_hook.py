"""A communication hook that is registered when a trainer wraps its models.

Trainers wrap models themselves, and save one checkpoint of all ranks. The modules ``accelerate``,
``transformers`` and ``lightning`` beside this one use it.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from innet.codecs import CodecSpec
from innet.codecs.build import complete
from innet.core.errors import InputError, StateError
from innet.torch.ddp import BucketHook, HookState, ddp_hook
from innet.torch.tensors import torch

dist = torch.distributed


class ModelHook:
    """A hook for the models of a trainer: each has a state of its own.

    Args:
        hook: a codec, for a ``HookState`` with it for each model; or a ``HookState`` or
            ``CompressionHook``, which is for one model.
        options: other arguments of that ``HookState``; its parameters' names are the model's.

    Attributes:
        states: of the models, in the order in which they were wrapped.

    Raises:
        InputError: a hook and options for another.
        UnknownNameError, ConfigError: the codec names an unknown part or parameter.
    """

    def __init__(self, hook: BucketHook | CodecSpec = "dense", **options: Any) -> None:
        self.states: list[BucketHook] = []
        self._models: list[weakref.ref[torch.nn.Module]] = []  # of the states
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
        self._saved: dict[int, Mapping[str, Any]] = {}  # of models that are not wrapped yet

    @property
    def state(self) -> BucketHook | None:
        """Of the model that was wrapped last; None before the first."""
        return self.states[-1] if self.states else None

    def register(self, model: torch.nn.parallel.DistributedDataParallel) -> None:
        """Register the hook with a model that was just wrapped. One that was wrapped before begins
        anew.

        Raises:
            InputError: a second model, and the hook is for one.
            InnetError: as ``HookState``.
        """
        number = self._number(model.module)
        if self._given is None:
            names = model.module.named_parameters()
            state: BucketHook = HookState(
                self._codec, **{"named_parameters": names, **self._options}
            )
        elif number:
            raise InputError(
                f"a {type(self._given).__name__} is for one model, and this is another; give the "
                "trainer a codec and options instead, and each model gets a state."
            )
        else:
            state = self._given
        self.states[number:] = [state, *self.states[number + 1 :]]
        self._models[number:] = [weakref.ref(model.module), *self._models[number + 1 :]]
        if number in self._saved:
            self._load(number)
        model.register_comm_hook(state, ddp_hook)

    def _number(self, model: torch.nn.Module) -> int:
        """That of a model among those that still exist; the connection of its state is closed."""
        pairs = list(zip(self._models, self.states, strict=True))
        for wrapped, state in pairs:
            if wrapped() is None or (wrapped() is model and state is not self._given):
                state.close()
        kept = [pair for pair in pairs if pair[0]() is not None]
        self._models, self.states = [pair[0] for pair in kept], [pair[1] for pair in kept]
        there = [wrapped() for wrapped in self._models]
        return next((i for i, each in enumerate(there) if each is model), len(there))

    def close(self) -> None:
        """End the connections to the other workers."""
        for state in self.states:
            state.close()

    def state_dict(self) -> dict[str, Any]:
        """The states of all models and ranks, the same on all. All ranks call it.

        Raises:
            StateError: no model was wrapped.
        """
        if not self.states:
            raise StateError("the hook has no state before the trainer has wrapped the model.")
        models = []
        for state in self.states:
            mine = state.state_dict()
            ranks: list[Any] = [None] * mine["workers"]
            dist.all_gather_object(ranks, mine, group=state.process_group)
            models.append({"ranks": ranks})
        return {"models": models}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue from a ``state_dict``: now, or when the models are wrapped.

        Raises:
            StateError: as ``HookState.load_state_dict``, it is of fewer models, or not such a
                state.
        """
        models = saved.get("models") if isinstance(saved, Mapping) else None
        if isinstance(saved, Mapping) and "ranks" in saved:  # by earlier versions, of one model
            models = [saved]
        if not isinstance(models, list) or not all(
            isinstance(each, Mapping) and isinstance(each.get("ranks"), list) for each in models
        ):
            raise StateError(
                "this is no state of a trainer's hook; give what its state_dict returned, whole."
            )
        if len(models) < len(self.states):
            raise StateError(
                f"the hook's saved state is of {len(models)} models, and {len(self.states)} are "
                "wrapped; wrap those that were there when it was saved, in the same order."
            )
        self._saved = dict(enumerate(models))
        for number in range(len(self.states)):
            self._load(number)

    def _load(self, number: int) -> None:
        state, ranks = self.states[number], self._saved.pop(number)["ranks"]
        rank = dist.get_rank(state.process_group)
        state.load_state_dict(ranks[min(rank, len(ranks) - 1)])  # refuses another number
