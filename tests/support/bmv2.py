"""Whether tests can run programs on BMv2's simple_switch."""

from __future__ import annotations

import pytest

from innet.bmv2.simple_switch import find_simple_switch
from innet.core.errors import MissingToolError


def missing() -> str:
    """What is not installed; empty if nothing is missing."""
    try:
        find_simple_switch()
    except MissingToolError as error:
        return str(error)
    return ""


needs_simple_switch = pytest.mark.skipif(bool(missing()), reason=missing())
