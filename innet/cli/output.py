"""What commands print: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

out = Console()
err = Console(stderr=True)


def say_error(message: str) -> None:
    """One message, as a person should see it."""
    err.print("[bold red]error:[/]", end=" ")
    err.print(message, markup=False, highlight=False, soft_wrap=True)


def say_json(document: Any) -> None:
    """A document for programs: nothing else goes to standard output then."""
    print(json.dumps(document, indent=2))
