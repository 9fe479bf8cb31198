"""Was the sum right? What all workers' outcomes say together, against oracles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from innet.codecs import Outcome


def is_exact(outcomes: Sequence[Outcome]) -> bool:
    """Whether every worker decoded the sum of the workers' integers, taken in int64."""
    oracle = np.zeros(len(outcomes[0].integer_sum), np.int64)
    for outcome in outcomes:
        own = outcome.contribution
        # Indices are distinct within a worker, so this adds each once.
        oracle[slice(None) if own.indices is None else own.indices] += own.integers
    return all(np.array_equal(outcome.integer_sum, oracle) for outcome in outcomes)


def errors(
    gradients: Sequence[NDArray[np.float32]], outcomes: Sequence[Outcome]
) -> tuple[float, float]:
    """Largest differences of the decoded sum: from the inputs' sum, from that of what was sent.

    Args:
        gradients: the workers', flat, shape (d,) each.
        outcomes: what each worker has after the all-reduce.
    """
    inputs = np.zeros(len(gradients[0]))
    sent = np.zeros(len(gradients[0]))
    for gradient, outcome in zip(gradients, outcomes, strict=True):
        inputs += gradient
        if outcome.indices is None:
            sent += outcome.sent
        else:
            sent[outcome.indices] += outcome.sent
    if (applied := outcomes[0].applied) is not None:
        counted = np.zeros_like(sent)
        counted[applied] = sent[applied]
        sent = counted
    decoded = outcomes[0].sum.astype(np.float64)
    return (
        float(np.abs(decoded - inputs).max(initial=0.0)),
        float(np.abs(decoded - sent).max(initial=0.0)),
    )


def selections(outcomes: Sequence[Outcome], size: int) -> tuple[int, int]:
    """Elements that the workers selected, all together, and coordinates that at least one did.

    Args:
        outcomes: what each worker has after the all-reduce.
        size: elements of the gradient.
    """
    chosen = np.zeros(size, np.bool_)
    selected = 0
    for outcome in outcomes:
        places = slice(None) if outcome.indices is None else outcome.indices
        chosen[places] = True
        selected += size if outcome.indices is None else outcome.indices.size
    return selected, int(np.count_nonzero(chosen))
