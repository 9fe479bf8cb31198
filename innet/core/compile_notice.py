"""Says that compiled code is not kept, which otherwise only costs time."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_TOLD = "INNET_CACHE_TOLD"


def tell_not_kept(folder: Path | str, reason: str) -> None:
    """Say once, for this process and those that it starts, that what is compiled is not kept."""
    if os.environ.get(_TOLD):
        return
    os.environ[_TOLD] = "1"
    logging.getLogger("innet").warning(
        "%s cannot be written (%s), so what innet compiles is not kept, and each run compiles it "
        "again. Make room there or make it writable, or set INNET_CACHE_DIR to a folder that is.",
        folder,
        reason,
    )
