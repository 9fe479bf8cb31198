"""What simple_switch did with a case, as JSON: for machines that have no simple_switch."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from innet.switch.frontend.loader import fingerprint
from support import fuzz

MOST_BYTES = 60_000
"""Of a compressed recording."""


def write(path: Path, case: fuzz.Case, trace: fuzz.Trace, tools: dict[str, str]) -> int:
    """Record; returns the size of the file. ``tools``: versions of what it was made with."""
    done = zip(case.rounds, trace.handles, trace.answers, strict=True)
    recording = {
        "tools": tools,
        "fingerprint": fingerprint(fuzz.document(case.name)),
        "seed": case.seed,
        "rounds": [
            {
                "commands": [command for command, _ in each.commands],
                "handles": handles,
                "packets": [[port, data.hex()] for port, data in each.packets],
                "answers": [
                    {port: [data.hex() for data in sent] for port, sent in answer.items()}
                    for answer in answers
                ],
            }
            for each, handles, answers in done
        ],
        "registers": trace.state.registers,
        "counters": trace.state.counters,
    }
    text = json.dumps(recording, separators=(",", ":")).encode()
    compressed = gzip.compress(text, mtime=0)
    if len(compressed) > MOST_BYTES:
        raise ValueError(f"{path.name} would be {len(compressed)} bytes: take fewer packets")
    path.write_bytes(compressed)
    return len(compressed)


def read(path: Path) -> tuple[fuzz.Case, fuzz.Trace, dict[str, Any]]:
    """The case, what simple_switch did, and the recording itself."""
    recording = json.loads(gzip.decompress(path.read_bytes()))
    rounds = recording["rounds"]
    case = fuzz.Case(
        path.name.split(".")[0],
        recording["seed"],
        [
            fuzz.Round(
                list(zip(each["commands"], each["handles"], strict=True)),
                [(port, bytes.fromhex(data)) for port, data in each["packets"]],
            )
            for each in rounds
        ],
    )
    answers = [
        [
            {int(port): [bytes.fromhex(data) for data in sent] for port, sent in answer.items()}
            for answer in each["answers"]
        ]
        for each in rounds
    ]
    counters = {
        name: [(packets, size) for packets, size in cells]
        for name, cells in recording["counters"].items()
    }
    state = fuzz.State(recording["registers"], counters)
    return case, fuzz.Trace([each["handles"] for each in rounds], answers, state), recording
