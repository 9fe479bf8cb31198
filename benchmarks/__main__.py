"""All benchmarks, one after the other: ``python -m benchmarks`` or ``make bench``."""

from __future__ import annotations

import subprocess
import sys

for name in ("switch", "aggregation", "l3", "codecs", "cuda", "allreduce"):
    # A process each: none inherits another's caches, threads or memory.
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)  # noqa: S603 - ours
