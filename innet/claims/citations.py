"""Which paper a codec, or a way to train, is from: of ``papers.toml``, without the claims."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


def document(name: str) -> dict[str, Any]:
    """A TOML file of this folder."""
    return tomllib.loads(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def citations() -> dict[str, str]:
    """Authors, title and venue, by the name of the preset."""
    return {name: entry["paper"] for name, entry in document("papers.toml").items()}
