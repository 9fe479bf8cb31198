"""The checks of ``group_checks``, ``memory_checks`` and ``battery_checks``, by the same ranks: to
start them takes longer than the checks.

    python tests/support/group_and_memory_checks.py FOLDER UNTIL RANKS NAME ...
"""

from __future__ import annotations

import sys

import battery_checks
import group_checks
import memory_checks
from ranks import main

if __name__ == "__main__":
    sys.exit(main(group_checks.CHECKS | memory_checks.CHECKS | battery_checks.CHECKS))
