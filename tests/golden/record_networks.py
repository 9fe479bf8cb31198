"""Record what simple_switch answers as a switch of a larger network.

``python tests/golden/record_networks.py`` needs simple_switch. It lets a bad network of built-in
switches run, gives what each of them saw to simple_switch, and writes the answers beside those of
record.py, which test_golden.py holds both engines to.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.networks import switch_traffic, text_if_congested  # noqa: E402 - found by the line above

from innet.bmv2 import simple_switch  # noqa: E402
from innet.programs import CompiledProgram  # noqa: E402
from innet.topology import PlannedSwitch  # noqa: E402

# Program, values per packet, shape of the network; and what the switches are called in the files.
CASES = [
    ("tree", 32, {"racks": 2}, {"s1": "root", "s2": "leaf"}),
    ("tree", 64, {"racks": 3, "depth": 3}, {"s2": "middle"}),
    ("collectives-tree", 64, {"racks": 2}, {"s1": "root", "s2": "leaf"}),
    ("tree", 64, {"topology": "leaf-spine:racks=2,spines=3,trees=3"}, {"leaf2": "three-trees"}),
    ("adaptive-tree", 32, {"topology": "leaf-spine:racks=3,spines=4,trees=4"}, {"leaf2": "leaf"}),
    ("hashed", 32, {"racks": 2}, {"s1": "spine", "s2": "rack"}),
    ("hashed", 64, {}, {"s1": "lone"}),
]


def main() -> None:
    for program, values, shape, names in CASES:
        # In the network whose packets are taken, slots of adaptive-tree move with every chunk.
        text = text_if_congested if program == "adaptive-tree" else CompiledProgram.text
        with mock.patch.object(CompiledProgram, "text", text):
            plan, seen = switch_traffic(program, values, seed=values, **shape)
        for switch in plan.switches:
            if switch.name in names:
                path = HERE / f"{program}-{values}-{names[switch.name]}.json.gz"
                write(path, switch, list(switch.commands), seen[switch.name])
            # A switch of a tree that has lost its registers since the job's epoch began.
            if program == "tree" and switch.name in names and values == 32:
                path = HERE / f"{program}-{values}-{names[switch.name]}-lost.json.gz"
                left = [line for line in switch.commands if not line.startswith("register_write")]
                write(path, switch, left, seen[switch.name])


def write(
    path: Path, switch: PlannedSwitch, commands: list[str], packets: list[tuple[int, bytes]]
) -> None:
    """Write what simple_switch answers."""
    golden = record(switch, commands, packets)
    path.write_bytes(gzip.compress(json.dumps(golden, indent=1).encode(), mtime=0))
    sent = sum(map(len, golden["answers"].values()))
    print(path.name, len(packets), "packets in,", sent, "out")


def record(
    switch: PlannedSwitch, commands: list[str], packets: list[tuple[int, bytes]]
) -> dict[str, Any]:
    """What simple_switch answers, and what its registers hold in the end."""
    document = switch.program.json()
    registers = [array["name"] for array in document["register_arrays"]]
    answer = simple_switch.run(document, packets, commands, registers)
    return {
        "program": switch.program.name,
        "sha256": switch.program.sha256,
        "p4c": switch.program.p4c,
        "simple_switch": simple_switch.version(),
        "commands": commands,
        "packets": [[port, data.hex()] for port, data in packets],
        "answers": {port: [data.hex() for data in sent] for port, sent in answer.packets.items()},
        "registers": {
            each: {int(i): int(values[i]) for i in np.flatnonzero(values)}
            for each, values in answer.registers.items()
        },
    }


if __name__ == "__main__":
    main()
