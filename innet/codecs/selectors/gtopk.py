"""Selector ``gtopk``: of the sum of the workers' top-k, the k largest count.

Shi et al., "A distributed synchronous SGD algorithm with global top-k sparsification for low
bandwidth networks", ICDCS 2019, arXiv 1901.04359.
"""

from __future__ import annotations

import numpy as np

from innet.codecs.parts import Floats, Ints
from innet.codecs.selectors.topk import TopK
from innet.kernels import Kernels


class GTopK(TopK):
    """Every worker sends its k largest; of the sum the k largest are kept, of equal magnitudes
    those that come first. What workers sent for the others returns to their residuals.

    Where at most k sums are not zero all count: a coordinate at which the workers' values cancelled
    out has then arrived, too. Otherwise it is smaller than those that are kept and has lost.

    Differences with the paper, where the network does nothing but forward: there, pairs
    of workers merge their selections and keep the k largest of the sum, then pairs of pairs, for
    log2 N rounds, so that a coordinate may lose against a neighbor's before the others' shares of
    it have been added. Here everything is summed before anything is dropped: the result does not
    depend on who is paired with whom, and there may be any number of workers.
    """

    name = "gtopk"

    def applied_indices(self, total: Floats) -> Ints | None:
        return largest_of_sum(self.context.kernels, total, self.count(total.size))


def largest_of_sum(kernels: Kernels, total: Floats, k: int) -> Ints | None:
    """Indices of the k largest magnitudes, of equal ones the first; None where at most k are not
    zero, for all.
    """
    if np.count_nonzero(total) <= k:
        return None
    indices, _ = kernels.top_k(total, k)
    return indices
