"""Selector ``all``: the whole gradient, every time."""

from __future__ import annotations

from innet.codecs.parts import INCLUDES_LARGEST, SAME_INDICES, Capabilities, Floats, Ints, Selector
from innet.core.settings import Settings


class All(Selector[Settings]):
    """Leaves nothing behind and needs no index."""

    name = "all"
    capabilities = Capabilities(provides=frozenset({SAME_INDICES, INCLUDES_LARGEST}))

    def select(self, x: Floats) -> tuple[Ints | None, Floats]:
        """Everything. The values are x itself, not a copy."""
        return None, x
