"""A round before each all-reduce, to check that all workers run the same one and can take part.

The others must not wait for a worker that cannot send its gradient, because it has a NaN or does
not fit the codec's memory. So all workers first send one packet of a few words, which the switch
combines by OR. The result names the workers with problems. If a worker has an error, another round
sends its message to the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.reduce_op import ReduceOp, Segment

Combine = Callable[[Sequence[Segment]], list[NDArray[np.int32]]]
"""One round over the network; see ``innet.allreduce.worker.Worker.combine``."""

_TEXT = 256  # words of a message that are sent to the others


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """The result of the round before an all-reduce.

    Attributes:
        not_finite: workers whose gradient holds a NaN or an infinity.
        failed: workers with an error.
        message: the error of the first of them.
    """

    not_finite: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    message: str = ""


def preflight(
    combine: Combine,
    worker: int,
    fingerprint: str,
    *,
    workers: int = 32,
    finite: bool = True,
    error: str | None = None,
) -> PreflightResult:
    """Run the round before an all-reduce. All workers must call it at the same point.

    Args:
        combine: combines words of all workers by OR.
        worker: index of this worker, 0 .. workers - 1.
        fingerprint: identifies the all-reduce; must be the same on all workers.
        workers: number of workers of the job, or more; the same on all workers.
        finite: whether its gradient is.
        error: why it cannot take part; None if it can.

    Raises:
        InputError: the workers run different all-reduces; every worker raises it.
    """
    local = _hash(fingerprint)
    # The hash and its complement; a bit for each worker whose gradient is not finite; a bit for
    # each with an error.
    bitmap = -(-workers // 32)
    words = np.zeros(2 + 2 * bitmap, np.uint32)
    if error is None:  # zeros do not change the others' words
        words[0], words[1] = local, ~local
    position, bit = worker // 32, np.uint32(1 << worker % 32)
    if not finite:
        words[2 + position] = bit
    if error is not None:
        words[2 + bitmap + position] = bit
    (combined,) = combine([Segment(ReduceOp.OR, words.view(np.int32))])
    flags = combined.view(np.uint32)
    failed = _workers(flags[2 + bitmap :])
    if failed:
        return PreflightResult(
            failed=failed, message=_share(combine, error if failed[0] == worker else None)
        )
    if flags[0] != local or flags[1] != ~local:
        raise InputError(
            f"the workers run different all-reduces; worker {worker} runs "
            f"{fingerprint}. All must have "
            "the same model and options, and call the same all-reduces in the same order."
        )
    return PreflightResult(not_finite=_workers(flags[2 : 2 + bitmap]))


def _hash(text: str) -> np.uint32:
    return np.uint32(int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little"))


def _workers(bitmap: NDArray[np.uint32]) -> tuple[int, ...]:
    bits = np.unpackbits(bitmap.astype("<u4").view(np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())


def _share(combine: Combine, message: str | None) -> str:
    """Send the message of the one worker with an error to all others."""
    room = 4 * _TEXT
    text = b"" if message is None else message.encode()[:room]
    words = np.frombuffer(text.ljust(room, b"\0"), np.int32)
    (combined,) = combine([Segment(ReduceOp.OR, words)])
    return combined.tobytes().rstrip(b"\0").decode(errors="replace")
