"""A communication hook for DistributedDataParallel: gradients are summed by a switch.

state = HookState(codec="topk")
model.register_comm_hook(state, ddp_hook)
"""

# Annotations are not postponed here: PyTorch compares those of the hook with its own types.

from innet.core.errors import InputError
from innet.torch.hook_state import HookState
from innet.torch.tensors import torch


def ddp_hook(
    state: HookState,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]
    *sharded: torch.Tensor,
) -> torch.futures.Future[torch.Tensor]:
    """Replace the gradients of a bucket by their mean over all workers, while backward goes on.

    Args:
        state: one for each model, the same on all workers.
        bucket: of DistributedDataParallel.
        sharded: what FullyShardedDataParallel gives its hooks besides, so that it can be refused.

    Returns:
        A future of the bucket's buffer with the means. If it fails, ``backward`` raises a
        RuntimeError with the message of the error.

    Raises:
        InnetError: the bucket cannot be reduced; the others are told, and raise as well.
    """
    del sharded
    if not isinstance(state, HookState):
        raise InputError(
            f"the hook's state is a {type(state).__name__}; register it with one of its own: "
            "model.register_comm_hook(HookState(...), ddp_hook)."
        )
    return state.reduce(bucket)


DDPHook = ddp_hook
"""The same."""
