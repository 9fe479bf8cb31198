"""Record what BMv2's egress queues do: run this file with the folder of BMv2's sources.

    python tests/golden/switch/record_queueing.py behavioral-model

Needs g++, and of BMv2 only include/bm/bm_sim/queueing.h. Rewrites queueing.json.gz, which
test_queueing_golden.py holds the traffic manager to.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from support.queues import some_lines  # noqa: E402 - found by that line

SEQUENCES, LINES = 80, 120


def main(sources: str) -> None:
    lines = [line for seed in range(SEQUENCES) for line in some_lines(seed, LINES)]
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / "queueing"
        include = f"-I{sources}/include/bm/bm_sim"
        command = ["g++", "-std=c++17", "-O1", include, str(HERE / "queueing.cpp"), "-o", str(tool)]
        subprocess.run([*command, "-lpthread"], check=True)
        text = "\n".join(lines)
        result = subprocess.run([tool], input=text, capture_output=True, text=True, check=True)
    answers = result.stdout.split("\n")[:-1]
    found = json.dumps([lines, answers], separators=(",", ":")).encode()
    (HERE / "queueing.json.gz").write_bytes(gzip.compress(found, mtime=0))
    print(len(lines), "lines,", len(answers), "answers")


if __name__ == "__main__":
    main(sys.argv[1])
