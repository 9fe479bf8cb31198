"""Record what simple_switch's egress queues do to packets that come at given times: run this file.

Needs p4c-bm2-ss and simple_switch on PATH, and a machine that has time. Rewrites
tests/programs/queue_metadata.json and queues.json.gz, which test_queues_golden.py holds the
built-in switch to. ecn.json is made by ``innet p4 compile p4/examples/ecn.p4``.
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

from support.queue_scenarios import (  # noqa: E402 - found by that line
    PROGRAMS,
    SCENARIOS,
    Scenario,
    ambiguities,
    compare,
    random_scenario,
)

from innet.bmv2 import simple_switch  # noqa: E402
from innet.switch.frontend.loader import fingerprint, without_source  # noqa: E402

BY_CHANCE = 12


def compile_program() -> str:
    """Compile queue_metadata; returns p4c's version."""
    path = PROGRAMS["queue_metadata"]
    source = path.with_suffix(".p4").name
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = ["p4c-bm2-ss", "--std", "p4-16", "-o", str(out), source]
        subprocess.run(command, cwd=path.parent, check=True)
        document = without_source(json.loads(out.read_text(encoding="utf-8")))
    document["program"] = source
    # simple_switch knows the field by this name, which P4_16 has no way to say.
    document["field_aliases"].append(["queueing_metadata.qid", ["scalars", "metadata_t.qid"]])
    path.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    version = subprocess.run(
        ["p4c-bm2-ss", "--version"], capture_output=True, text=True, check=True
    )
    return (version.stdout + version.stderr).split("Version ")[1].split()[0]


def record(name: str, scenario: Scenario) -> dict:
    assert not ambiguities(scenario), name
    sent = compare(scenario)
    print(name, sum(map(len, sent.values())), "packets left")
    answers = {port: [[time, data.hex()] for time, data in each] for port, each in sent.items()}
    return {"scenario": scenario.as_json(), "answers": answers}


def main() -> None:
    version = compile_program()
    scenarios = {name: make() for name, make in SCENARIOS.items()}
    scenarios |= {f"random-{seed}": random_scenario(seed) for seed in range(BY_CHANCE)}
    golden = {
        "p4c": version,
        "simple_switch": simple_switch.version(),
        "fingerprints": {
            name: fingerprint(json.loads(path.read_text(encoding="utf-8")))
            for name, path in PROGRAMS.items()
        },
        "scenarios": {name: record(name, each) for name, each in scenarios.items()},
    }
    text = json.dumps(golden, separators=(",", ":")).encode()
    (HERE / "queues.json.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
