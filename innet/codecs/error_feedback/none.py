"""Error feedback ``none``: what was not sent is forgotten."""

from __future__ import annotations

from typing import Any

from innet.codecs.parts import ErrorFeedback, Floats, Selector, SelectSteps
from innet.core.settings import Settings


class NoErrorFeedback(ErrorFeedback[Settings]):
    """No state."""

    name = "none"

    def choose(self, selector: Selector[Any], gradient: Floats, workers: int) -> SelectSteps:
        return selector.choose(gradient, workers)
