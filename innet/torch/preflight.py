"""A round before each collective, to check that all workers run the same one and can take part.

The others must not wait for a worker that cannot send its gradient, because it has a NaN or does
not fit the codec's memory. So all workers first send one packet of a few words, which the switch
combines by OR. The result names the workers with problems. If a worker has an error, another round
sends its message to the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
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
        unused: parts of which every worker's gradient is zero.
        differs: the workers came to different collectives, and nothing else was said.
    """

    not_finite: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    message: str = ""
    unused: tuple[int, ...] = ()
    differs: bool = False


def preflight(
    combine: Combine,
    worker: int,
    fingerprint: str,
    *,
    name: str = "",
    workers: int = 32,
    finite: bool = True,
    error: str | None = None,
    zero: Collection[int] = (),
    parts: int = 0,
) -> PreflightResult:
    """Run the round before an all-reduce. All workers must call it at the same point.

    Args:
        combine: combines words of all workers by OR.
        worker: index of this worker, 0 .. workers - 1.
        fingerprint: describes the all-reduce; must be the same on all workers.
        name: says which one it is, as workers may come to several in another order.
        workers: number of workers of the job, or more; the same on all workers.
        finite: whether its gradient is.
        error: why it cannot take part; None if it can.
        zero: parts of the gradient that are zero, 0 .. parts - 1.
        parts: number of parts, the same on all workers.

    Raises:
        InputError: the workers run all-reduces of one name that differ; every worker raises it.
    """
    # Hashes and their complements; a bit for each worker whose gradient is not finite, each with an
    # error, and each with a part that is zero.
    bitmap = -(-workers // 32)
    words = np.zeros(4 + 3 * bitmap, np.uint32)
    mine = _hashes(name, fingerprint)
    if error is None:  # zeros do not change the others' words
        words[:4] = mine
    flags = words[4:].reshape(3, bitmap)
    position, bit = worker // 32, np.uint32(1 << worker % 32)
    flags[:, position] = np.where([not finite, error is not None, bool(zero)], bit, 0)
    combined = _combined(combine, words)
    flags = combined[4:].reshape(3, bitmap)
    not_finite, failed, with_zeros = (_members(each) for each in flags)
    if failed:
        return PreflightResult(
            failed=failed, message=_share(combine, error if failed[0] == worker else None)
        )
    if combined[0] != mine[0] or combined[1] != mine[1]:
        return PreflightResult(differs=True)
    if combined[2] != mine[2] or combined[3] != mine[3]:
        raise InputError(
            f"the workers run different collectives; worker {worker} runs "
            f"{fingerprint}. All must have "
            "the same model and options, and call the same collectives in the same order."
        )
    unused: tuple[int, ...] = ()
    if with_zeros and not not_finite:
        used = np.ones(parts, np.uint8)
        used[list(zero)] = 0
        bits = np.packbits(np.pad(used, (0, -parts % 32)), bitorder="little")
        combined = _combined(combine, bits.view("<u4").astype(np.uint32))
        unused = tuple(sorted(set(range(parts)).difference(_members(combined))))
    return PreflightResult(not_finite=not_finite, unused=unused)


def first_workers_choice(combine: Combine, worker: int, name: str) -> Callable[[str], bool]:
    """After ``differs``: which of the all-reduces comes first. All workers call it.

    Args:
        combine: combines words of all workers by OR.
        worker: index of this worker; worker 0 decides.
        name: of the all-reduce that this worker came to.

    Returns:
        Whether an all-reduce with a name is the one.
    """
    words = np.zeros(2, np.uint32)
    if worker == 0:
        words[:] = _hashes(name, "")[:2]
    combined = _combined(combine, words)
    return lambda other: bool((_hashes(other, "")[:2] == combined).all())


def _combined(combine: Combine, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    (combined,) = combine([Segment(ReduceOp.OR, words.view(np.int32))])
    return combined.view(np.uint32)


def _hashes(name: str, fingerprint: str) -> NDArray[np.uint32]:
    """Hashes of both, each before its complement: an OR of different ones is none of them."""
    both = np.array([_hash(name), _hash(fingerprint)], np.uint32)
    return np.stack([both, ~both], axis=1).reshape(4)


def _hash(text: str) -> np.uint32:
    return np.uint32(int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little"))


def _members(bitmap: NDArray[np.uint32]) -> tuple[int, ...]:
    bits = np.unpackbits(bitmap.astype("<u4").view(np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())


def _share(combine: Combine, message: str | None) -> str:
    """Send the message of the one worker with an error to all others."""
    room = 4 * _TEXT
    text = b"" if message is None else message.encode()[:room]
    words = np.frombuffer(text.ljust(room, b"\0"), np.int32)
    (combined,) = combine([Segment(ReduceOp.OR, words)])
    return combined.tobytes().rstrip(b"\0").decode(errors="replace")
