"""Record what simple_switch logs about packets: `python tests/golden/simple_switch/record_logs.py`.

Needs a simple_switch with logging macros, as ``simple_switch_logging`` on PATH. Rewrites
tests/golden/simple_switch/logs.json.gz, which test_logs_golden.py holds the built-in switch to.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from support import switch_logs  # noqa: E402 - found by the line above

from innet.bmv2 import simple_switch  # noqa: E402
from innet.switch.frontend.loader import fingerprint  # noqa: E402


def main() -> None:
    recordings = []
    for name, (document, rounds) in switch_logs.cases().items():
        with tempfile.TemporaryDirectory() as folder:
            words = [switch_logs.logging_switch()]
            lines = switch_logs.of_process(words, document, rounds, Path(folder))
        recording = {
            "program": name,
            "fingerprint": fingerprint(document),
            "rounds": [
                [commands, [[port, data.hex()] for port, data in packets]]
                for commands, packets in rounds
            ],
            "lines": switch_logs.by_packet(lines)[0],
        }
        print(name, sum(map(len, recording["lines"].values())), "lines")
        recordings.append(recording)
    golden = {"simple_switch": simple_switch.version(), "logs": recordings}
    text = json.dumps(golden, separators=(",", ":")).encode()
    (HERE / "logs.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
