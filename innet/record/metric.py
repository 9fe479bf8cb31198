"""What a trained model is judged by."""

from __future__ import annotations

from typing import Literal

from innet.record.report import Frozen


class Metric(Frozen):
    """The number that an evaluation yields.

    Attributes:
        name: for people: "accuracy", "perplexity".
        unit: "share" of one, which people read in per cent, or a plain "number".
        higher_is_better: whether more is better.
    """

    name: str
    unit: Literal["share", "number"] = "share"
    higher_is_better: bool = True

    @property
    def factor(self) -> float:
        """From the number to what people read: 100 for a share, in per cent."""
        return 100.0 if self.unit == "share" else 1.0


ACCURACY = Metric(name="accuracy")
PERPLEXITY = Metric(name="perplexity", unit="number", higher_is_better=False)
HIT_RATE = Metric(name="hit rate at 10")
