"""Record what simple_switch answers to our own packets: `python tests/golden/record.py`.

Needs simple_switch. Rewrites tests/golden/*.json.gz, which test_golden.py holds the built-in switch
to on machines that have no simple_switch.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.traffic import job_of, traffic  # noqa: E402 - found by the line above

from innet import programs  # noqa: E402
from innet.bmv2 import simple_switch  # noqa: E402
from innet.wire import PacketLayout  # noqa: E402

# Values per packet, workers, chunks, first chunk. One starts before the sequence wraps.
CASES = {
    "slots-32-pair": (32, 2, 60, 0),
    "slots-32-lone": (32, 1, 20, 0),
    "slots-32-wrap": (32, 3, 40, 2**32 - 21),
    "slots-64-four": (64, 4, 40, 0),
    "slots-256-pair": (256, 2, 12, 0),
    "slots-1024-pair": (1024, 2, 8, 0),
    "collectives-64-four": (64, 4, 60, 0),
    "fpisa-32-three": (32, 3, 30, 0),
    "harvest-64-three": (64, 3, 16, 0),  # so that no slot is taken over between two passes
    "harvest-256-three": (256, 3, 24, 0),
}


def main() -> None:
    for name, (values, workers, chunks, first) in CASES.items():
        rng = np.random.default_rng(list(name.encode()))
        program = programs.find(name.split("-")[0], values)
        job = job_of(workers)
        layouts = [
            PacketLayout(
                values, framing, has_owners=program.has_owners, adds_floats=program.adds_floats
            )
            for framing in ("udp", "raw")
        ]
        commands = job.commands()
        # Only in the wrapped case: registers as a job that ran for 2**32 chunks leaves them.
        if first:
            chunk = (job.number << 16 | job.epoch) << 32 | first
            commands += [f"register_write SlotsIngress.pool.chunk {i} {chunk}" for i in range(64)]
        packets = traffic(rng, layouts, job, chunks, first)
        document = program.json()
        # Of 64 bits simple_switch's control plane tells 63: pairs are seen in answers only.
        registers = [
            array["name"] for array in document["register_arrays"] if ".pair" not in array["name"]
        ]
        # Who answers, and when, depends on what comes between the passes of harvest-256.
        alone = name.startswith("harvest-256")
        answer = simple_switch.run(document, packets, commands, registers, one_by_one=alone)
        golden = {
            "program": program.name,
            "sha256": program.sha256,
            "p4c": program.p4c,
            "simple_switch": simple_switch.version(),
            # Where packets go round, simple_switch lets others in between.
            "in_order": alone or not name.startswith("harvest"),
            "commands": commands,
            "packets": [[port, data.hex()] for port, data in packets],
            "answers": {
                port: [data.hex() for data in sent] for port, sent in answer.packets.items()
            },
            "registers": {
                each: {int(i): int(values[i]) for i in np.flatnonzero(values)}
                for each, values in answer.registers.items()
            },
        }
        text = json.dumps(golden, indent=1).encode()
        (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text, mtime=0))
        print(name, len(packets), "packets in,", sum(map(len, answer.packets.values())), "out")


if __name__ == "__main__":
    main()
