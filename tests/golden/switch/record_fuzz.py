"""Record what simple_switch does with the programs of one feature each: run this file.

Needs p4c-bm2-ss, simple_switch and simple_switch_CLI on PATH. Rewrites tests/programs/fuzz_*.json
and tests/golden/switch/fuzz_*.json.gz, which test_fuzz_golden.py holds both engines to. Names of
programs as arguments restrict it to those.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE)]

from record import compile_program  # noqa: E402 - found by that line
from support import fuzz, fuzz_recording  # noqa: E402

from innet.bmv2 import simple_switch  # noqa: E402

SEED = 1_000  # not one of those that the comparison with simple_switch itself begins with
PACKETS = 120


def tools() -> dict[str, str]:
    """Versions; p4c's own says also how it was built."""
    command = ["p4c-bm2-ss", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = re.search(r"Version (\S+)", done.stdout + done.stderr)
    return {"p4c": said[1] if said else "unknown", "simple_switch": simple_switch.version()}


def main(names: list[str]) -> None:
    for name in names or fuzz.NAMES:
        compile_program(name)
        case = fuzz.make_case(name, SEED, PACKETS)
        trace = fuzz.simple_switch(case)
        size = fuzz_recording.write(HERE / f"{name}.json.gz", case, trace, tools())
        print(name, len(case.packets), "packets,", size, "bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
