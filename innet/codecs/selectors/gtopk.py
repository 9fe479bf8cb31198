"""Selector ``gtopk``: applies the k largest elements of the sum of the workers' top-k.

Shi et al., "A distributed synchronous SGD algorithm with global top-k sparsification for low
bandwidth networks", ICDCS 2019, arXiv 1901.04359.
"""

from __future__ import annotations

import numpy as np

from innet.codecs.optional_methods import AppliesPart
from innet.codecs.parts import Floats, Ints
from innet.codecs.selectors.topk import TopK
from innet.kernels import Kernels


class GTopK(TopK, AppliesPart):
    """Every worker sends its k largest elements. The k largest elements of the sum are applied;
    among equal magnitudes the first. What workers sent for other coordinates returns to their
    residuals.

    If at most k sums are not zero, all are applied. A coordinate whose values cancelled out to zero
    then counts as applied, too. Otherwise it is smaller than those that are kept, and is dropped.

    Differences with the paper: there the network only forwards. Pairs of workers merge their
    selections and keep the k largest elements of the sum, then pairs of pairs, for log2 N rounds. A
    coordinate may be dropped before all workers' values were added. Here everything is summed
    before anything is dropped. The result does not depend on the pairing, and any number of workers
    can take part.
    """

    name = "gtopk"

    def applied_indices(self, total: Floats) -> Ints | None:
        return largest_of_sum(self.context.kernels, total, self.count(total.size))


def largest_of_sum(kernels: Kernels, total: Floats, k: int) -> Ints | None:
    """Indices of the k largest magnitudes, the first among equal ones; None for all indices, if at
    most k elements are not zero.
    """
    if np.count_nonzero(total) <= k:
        return None
    indices, _ = kernels.top_k(total, k)
    return indices
