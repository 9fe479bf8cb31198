"""The papers' claims, as data: ``papers.toml`` and ``times.toml`` beside this file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from innet.claims.citations import document
from innet.claims.claim import Paper
from innet.claims.times import time_claims
from innet.core.errors import UnknownNameError
from innet.core.settings import validate


@cache
def papers() -> Mapping[str, Paper]:
    """All papers by the name of their preset, or of their way to train, in the file's order."""
    entries, times = document("papers.toml"), time_claims(document("times.toml"))
    for name, claims in times.items():
        entries[name]["claims"] += claims
    return {name: validate(Paper, entry, "papers.toml") for name, entry in entries.items()}


def paper_of(codec: str) -> Paper:
    """The paper of a preset.

    Raises:
        UnknownNameError: there are no claims for that name; lists those that there are.
    """
    found = papers().get(codec)
    if found is None:
        raise UnknownNameError("codec with claims", codec, papers())
    return found
