"""Record what simple_switch answers on the feature programs: run this file.

Needs p4c-bm2-ss and simple_switch on PATH. Rewrites tests/programs/switch_*.json and
tests/golden/switch/*.json.gz, which test_switch_golden.py holds the built-in switch to. Names of
cases as arguments restrict it to those.
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

from support.switch_cases import CASES, PROGRAMS, Case, program  # noqa: E402 - found by that line

from innet.bmv2 import simple_switch  # noqa: E402
from innet.switch.frontend.loader import fingerprint, without_source  # noqa: E402


def compile_program(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = ["p4c-bm2-ss", "--p4v", "16", "-o", str(out), f"{name}.p4"]
        subprocess.run(command, cwd=PROGRAMS, check=True)
        document = without_source(json.loads(out.read_text(encoding="utf-8")))
    document["program"] = f"{name}.p4"
    text = json.dumps(document, separators=(",", ":")) + "\n"
    (PROGRAMS / f"{name}.json").write_text(text, encoding="utf-8")


def record(case: Case) -> None:
    document = program(case.name)
    packets = case.packets()
    answer = simple_switch.run(document, packets, case.commands, case.registers)
    golden = {
        "simple_switch": simple_switch.version(),
        "fingerprint": fingerprint(document),
        "packets": [[port, data.hex()] for port, data in packets],
        "answers": {
            port: [data.hex() for data in sent] for port, sent in answer.packets.items() if sent
        },
        "registers": {name: cells.tolist() for name, cells in answer.registers.items()},
    }
    text = json.dumps(golden, separators=(",", ":")).encode()
    (HERE / f"{case.name}.json.gz").write_bytes(gzip.compress(text, mtime=0))
    print(case.name, len(packets), "in,", sum(map(len, answer.packets.values())), "out")


def main(names: list[str]) -> None:
    for case in CASES.values():
        if not names or case.name in names:
            compile_program(case.name)
            record(case)


if __name__ == "__main__":
    main(sys.argv[1:])
