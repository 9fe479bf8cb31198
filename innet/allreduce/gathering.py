"""All-gathers and broadcasts: the bytes of arrays as words, and back.

Nothing is computed with them, so arrays of any dtype arrive bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from innet.allreduce.dtypes import kind_of
from innet.core.errors import InputError
from innet.core.reduce_op import CollectiveOp, Segment

Array = TypeVar("Array")
"""A NumPy array or a tensor of PyTorch, of any dtype."""

_WORD = 4  # bytes


class Gathering(NamedTuple):
    """Arrays of one dtype, of which each belongs to a worker and goes to all others.

    Attributes:
        owners: indices of the workers, in the order of their arrays.
        sizes: bytes of each array.
    """

    owners: tuple[int, ...]
    sizes: tuple[int, ...]

    def segments(self, worker: int, own: NDArray[np.uint8] | None) -> list[Segment]:
        """What a worker sends: its own array's words, and room for the others'.

        Args:
            worker: who.
            own: its bytes; None if it has no array.

        Raises:
            InputError: they are not as many as the sizes say.
        """
        found = []
        for owner, size in zip(self.owners, self.sizes, strict=True):
            if owner != worker:  # nothing is written there, so the system gives no memory for it
                words = np.empty(-(-size // _WORD), np.int32)
            elif own is None or own.size != size:
                raise InputError(
                    f"the array of worker {worker} has {0 if own is None else own.size} bytes, "
                    f"and {size} were announced; give all workers the same sizes."
                )
            else:
                words = _words(own)
            found.append(Segment(CollectiveOp.BROADCAST, words, owner))
        return found

    def joined(
        self, worker: int, own: NDArray[np.uint8] | None, words: Sequence[NDArray[np.int32]]
    ) -> NDArray[np.uint8]:
        """All arrays' bytes, one after the other, from the result of a worker's segments.

        They may lie in the memory of the result.
        """
        whole = _whole(words) if all(size % _WORD == 0 for size in self.sizes) else None
        if whole is None:
            whole = np.empty(sum(self.sizes), np.uint8)
            written = list(range(len(words)))
        else:
            written = [index for index, owner in enumerate(self.owners) if owner == worker]
        ends = list(accumulate(self.sizes))
        for index in written:
            part = words[index].view(np.uint8)[: self.sizes[index]]
            if own is not None and self.owners[index] == worker:
                part = own
            whole[ends[index] - self.sizes[index] : ends[index]] = part
        return whole


def _words(data: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Bytes as words; copied only if they do not fill words, or lie across them."""
    if data.size % _WORD == 0 and data.ctypes.data % _WORD == 0:
        return data.view(np.int32)
    words = np.zeros(-(-data.size // _WORD), np.int32)
    words.view(np.uint8)[: data.size] = data
    return words


def _whole(words: Sequence[NDArray[np.int32]]) -> NDArray[np.uint8] | None:
    """The bytes of arrays as one array, if they follow each other in memory."""
    filled = [each for each in words if each.size]
    if not filled:
        return np.empty(0, np.uint8)
    base: Any = filled[0].base
    if base is None or any(each.base is not base for each in filled):
        return None
    begin = filled[0].ctypes.data
    for each in filled:
        if each.ctypes.data != begin:
            return None
        begin += each.nbytes
    data = base.reshape(-1).view(np.uint8)
    first = filled[0].ctypes.data - data.ctypes.data
    found: NDArray[np.uint8] = data[first : first + begin - filled[0].ctypes.data]
    return found


def bytes_of(array: object, worker: int) -> NDArray[np.uint8]:
    """The bytes of an array, or of a tensor on any device, of any dtype: shape (bytes,).

    Raises:
        InputError: it is neither, holds Python objects, or is sparse.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.layout != torch.strided:
            raise InputError(
                f"what worker {worker} has is a sparse tensor; pass tensor.to_dense()."
            )
        plain = array.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
        found: NDArray[np.uint8] = plain.view(torch.uint8).numpy()
        return found
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        raise InputError(
            f"what worker {worker} has is of type {type(array).__name__}; give a NumPy array of "
            "numbers, or a tensor of PyTorch."
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def array_of(data: NDArray[np.uint8], like: Any) -> Any:
    """Bytes as an array or tensor of the dtype, and on the device, of another one; shape (n,)."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        return torch.from_numpy(data).view(like.dtype).to(like.device)
    return data.view(like.dtype)


def check_alike(arrays: Mapping[int, Any]) -> None:
    """Refuse arrays of several dtypes.

    Raises:
        InputError: names the worker.
    """
    first = next(iter(arrays))
    for worker, array in arrays.items():
        if kind_of(array) != kind_of(arrays[first]):
            raise InputError(
                f"the array of worker {worker} is {kind_of(array)}, that of worker {first} "
                f"{kind_of(arrays[first])}; convert them to one dtype."
            )
