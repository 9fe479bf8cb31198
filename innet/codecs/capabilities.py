"""What a codec's parts can do and need, as data; the check that a composition can work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from innet.core.errors import CompositionError

# Properties that parts provide and require. Third parties' parts may add their own words.
SAME_INDICES = "same indices"  # all workers select the same coordinates
REST = "rest"  # something stays behind that a later all-reduce can send
LARGEST = "largest"  # the element of largest magnitude is always selected
INT32 = "int32"  # int32 words whose sum over the workers fits, one or several for each element
WHOLE_STEP = "whole step"  # values are rounded to either neighbor, not to the nearest alone
ONE_INTEGER = "one integer"  # exactly one integer for each element
COEFFICIENTS = "coefficients"  # what is sent is not elements but factors that make them
ZEROS = "zeros"  # the integers of an element belong to it alone, and are zero where it is zero
UNMIXED = "unmixed"  # each word of a sum is one integer of one element, and nothing else
SMALL = "small integers"  # their bound is known, and usually far below int32's


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one part declares. Defaults are those of a part that does not care.

    Attributes:
        provides: properties that other parts may rely on.
        requires: properties that some part must provide, each with the reason.
        summable: what leaves the part can be combined in the network, without knowing indices.
        fixed_size: how many words it sends depends on the gradient's size alone.
        rounds: how many exchanges over the network it adds, the fewest and the most. The opening
            round, which every codec has, counts as the quantizer's: its are (1, 1).
        integer_width: bits of the integers it makes, None where it makes none.
        overflow_bound: the largest magnitude of these integers, for N workers, as a formula.
        index: how the receiver knows which coordinates arrived: "none", "bitmap", ...
        metadata: words besides values, for d elements, as a formula.
        lossless: the integers arrive exactly.
        wraps: its sums may leave int32 and mean what they are modulo 2**32; switches that keep
            such sums at the end of the range are not for it.
    """

    provides: frozenset[str] = frozenset()
    requires: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    summable: bool = True
    fixed_size: bool = True
    rounds: tuple[int, int] = (0, 0)
    integer_width: int | None = None
    overflow_bound: str | None = None
    index: str | None = None
    metadata: str = "0"
    lossless: bool = True
    wraps: bool = False


def check(parts: Mapping[str, tuple[str, Capabilities]]) -> None:
    """Refuse parts that cannot work together.

    Args:
        parts: by kind ("selector", "carrier", ...) the name and the capabilities.

    Raises:
        CompositionError: names the part, what it needs, why, and which parts were chosen.
    """
    provided = frozenset[str]().union(*(each.provides for _, each in parts.values()))
    chosen = ", ".join(f"{kind} {name!r}" for kind, (name, _) in parts.items())
    for kind, (name, each) in parts.items():
        for needed, reason in each.requires.items():
            if needed not in provided:
                raise CompositionError(
                    f"{kind} {name!r} needs {needed!r}, which no other part provides: {reason} "
                    f"(chosen: {chosen})"
                )
        if not each.summable:
            raise CompositionError(
                f"{kind} {name!r} makes words that a switch cannot sum; choose another {kind} "
                f"(chosen: {chosen})"
            )


def joined(parts: Iterable[Capabilities]) -> dict[str, Any]:
    """The capabilities of a whole codec, for people and for JSON."""
    each = list(parts)
    return {
        "summable": all(part.summable for part in each),
        "fixed_size": all(part.fixed_size for part in each),
        "lossless": all(part.lossless for part in each),
        "rounds": [sum(part.rounds[0] for part in each), sum(part.rounds[1] for part in each)],
        "integer_width": next((part.integer_width for part in each if part.integer_width), None),
        "overflow_bound": next((part.overflow_bound for part in each if part.overflow_bound), None),
        "index": next((part.index for part in each if part.index), None),
        # Two words are the workers' agreement.
        "metadata": " + ".join(["2", *(part.metadata for part in each if part.metadata != "0")]),
    }
