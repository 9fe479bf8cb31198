"""The names of the switch's engines. Settings offer them, which the switch does not import."""

from __future__ import annotations

from typing import Literal, TypeAlias

EngineName: TypeAlias = Literal["jit", "interpret"]
