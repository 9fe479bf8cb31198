"""The limit of 32 workers lifted, for plans only: no compiled program carries more so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from innet.programs import CompiledProgram


@contextmanager
def allowed(most: int) -> Iterator[None]:
    """Programs take up to ``most`` workers, as far as plans go."""
    dimensions = CompiledProgram.dimensions

    def larger(program: CompiledProgram):
        return replace(dimensions(program), workers=most)

    with (
        mock.patch.object(CompiledProgram, "dimensions", larger),
        mock.patch("innet.protocol.admission.MAX_WORKERS", most),
        mock.patch("innet.protocol.settings.MAX_WORKERS", most),
    ):
        yield
