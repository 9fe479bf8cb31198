"""Selector ``gs-sgd``: the heavy hitters of the sum, found in a count sketch of it.

Dai et al., "A distributed SGD algorithm with global sketching for deep learning training
acceleration" (gs-SGD), 2021, arXiv 2108.06004.
"""

from __future__ import annotations

from innet.codecs.selectors.heavy import HeavyHitters


class GsSgd(HeavyHitters):
    """The k coordinates with the largest estimates are sent, and all of them count.

    Differences with the paper: the workers' sketches are added up by the switch in one round, not
    by pairs of workers in log2 N.
    """

    name = "gs-sgd"
