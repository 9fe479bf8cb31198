"""Which part of a vector belongs to which worker: the shards of reduce-scatters and all-gathers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from innet.core.errors import InputError
from innet.core.numbers import require_int


def listed_sizes(sizes: Sequence[int]) -> list[int]:
    """Sizes of shards as a list.

    Raises:
        InputError: they are no list of integers.
    """
    if not isinstance(sizes, Sequence | np.ndarray):
        raise InputError(f"the sizes are {sizes!r}; give a list with one for each worker.")
    return [require_int(size, "the size of a shard") for size in sizes]


@dataclass(frozen=True, slots=True)
class Shards:
    """Consecutive parts of a vector, each with a worker as its owner.

    Attributes:
        bounds: part i is ``bounds[i] : bounds[i + 1]``; it may be empty. The first is 0, and the
            last is the number of elements.
        owners: of each part, the index of a worker.
    """

    bounds: tuple[int, ...]
    owners: tuple[int, ...]

    @classmethod
    def of(cls, elements: int, owners: Sequence[int], sizes: Sequence[int] | None = None) -> Shards:
        """One shard for each owner.

        Args:
            elements: of the vector.
            owners: workers, each once.
            sizes: elements of each one's shard, in their order; by default they differ by one at
                most, and the first ones are the longer ones.

        Raises:
            InputError: sizes that are no list of integers, a size below 0, or too many or too few
                sizes or elements.
        """
        if sizes is None:
            least, longer = divmod(elements, len(owners))
            sizes = [least + (index < longer) for index in range(len(owners))]
        sizes = listed_sizes(sizes)
        if len(sizes) != len(owners) or min(sizes) < 0 or sum(sizes) != elements:
            raise InputError(
                f"the shards have {len(sizes)} sizes, {sum(sizes)} elements in all, for "
                f"{len(owners)} workers and a vector of {elements}; give each worker 0 elements "
                "or more, and all of them together as many as the vector has."
            )
        return cls(tuple(accumulate(sizes, initial=0)), tuple(owners))

    @property
    def elements(self) -> int:
        """Elements of the vector."""
        return self.bounds[-1]

    def part(self, worker: int) -> slice:
        """The elements that belong to a worker; none if it owns no part."""
        if worker not in self.owners:
            return slice(0, 0)
        index = self.owners.index(worker)
        return slice(self.bounds[index], self.bounds[index + 1])

    def pieces(
        self, limbs: int = 1, indices: NDArray[np.int32] | None = None
    ) -> Iterator[tuple[int, slice]]:
        """Where integers of the elements lie, piece by piece, without empty ones.

        Args:
            limbs: integers of each element. Those of all elements follow each other limb by limb.
            indices: (m,) ascending: which of all these integers there are; None for all.

        Yields:
            an owner, and where a piece of its integers lies in the array of integers.
        """
        for limb in range(limbs):
            places = [limb * self.elements + bound for bound in self.bounds]
            if indices is not None:
                places = np.searchsorted(indices, places).tolist()
            for index, owner in enumerate(self.owners):
                if places[index] < places[index + 1]:
                    yield owner, slice(places[index], places[index + 1])
