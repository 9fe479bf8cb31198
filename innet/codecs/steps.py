"""Parts that count the all-reduces: to hash anew, to take turns, to warm up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from innet.codecs.parts import Context, P, Part
from innet.errors import StateError


class Counting(Part[P]):
    """``self._step`` is a number of all-reduces, 0 at first, and all of the part's state.

    The part itself decides when one counts.
    """

    def __init__(self, parameters: P, context: Context) -> None:
        super().__init__(parameters, context)
        self._step = 0

    def common(self) -> tuple[object, ...]:
        return (self._step,)

    def adopt(self, state: Mapping[str, Any]) -> None:
        self._step = loaded_step(state)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._expect(state, {"step"})
        self._step = loaded_step(state)


def loaded_step(state: Mapping[str, Any]) -> int:
    """The entry "step" of a saved state.

    Raises:
        StateError: it is not a number of all-reduces.
    """
    step = state["step"]
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise StateError(f"the saved number of all-reduces is {step!r}, not a count.")
    return step
