"""Feedback ``none``: what was not sent is forgotten."""

from __future__ import annotations

from typing import Any

from innet.codecs.parts import Feedback, Floats, Ints, Selector
from innet.config import Settings


class NoFeedback(Feedback[Settings]):
    """No state."""

    name = "none"

    def select(self, selector: Selector[Any], gradient: Floats) -> tuple[Ints | None, Floats]:
        return selector.select(gradient)
