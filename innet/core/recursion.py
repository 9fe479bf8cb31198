"""Python's limit of nested calls, for what follows the nesting of a program's expressions."""

from __future__ import annotations

import sys

_CALLS = 8000
"""A function that walks an expression makes at most four calls a level, of which BMv2's reader
takes 1000. So many calls fit into the stack of any thread, also where C code makes them.
"""


def allow_nesting() -> None:
    """Allow nested calls for expressions as deep as BMv2 takes them, from now on."""
    if sys.getrecursionlimit() < _CALLS:
        sys.setrecursionlimit(_CALLS)
