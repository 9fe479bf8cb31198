"""The checks of ``group_checks``, ``memory_checks``, ``battery_checks``, ``hook_checks`` and
``shard_checks``, by the same ranks: to start them takes longer than the checks.

    python tests/support/group_and_memory_checks.py FOLDER UNTIL RANKS NAME ...
"""

from __future__ import annotations

import sys

import battery_checks
import group_checks
import hook_checks
import memory_checks
import shard_checks
from ranks import main

if __name__ == "__main__":
    modules = (group_checks, memory_checks, battery_checks, hook_checks, shard_checks)
    sys.exit(main({name: check for each in modules for name, check in each.CHECKS.items()}))
