"""The Python oracle of the slot pool gives what simple_switch gave to the recorded traffic."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.slot_oracle import SlotOracle

RECORDINGS = Path(__file__).parents[1] / "golden"
GOLDEN = [
    path
    for program in ("slots", "collectives")
    for path in sorted(RECORDINGS.glob(f"{program}-[0-9]*.json.gz"))
]


def test_there_are_recordings() -> None:
    assert {path.name.partition("-")[0] for path in GOLDEN} == {"slots", "collectives"}


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_oracle_equals_simple_switch(path: Path) -> None:
    with gzip.open(path) as stream:
        golden: dict[str, Any] = json.load(stream)
    names = list(golden["registers"])
    oracle = SlotOracle(
        sum(".value" in name for name in names),
        golden["commands"],
        has_owners=golden["program"].startswith("collectives"),
    )
    answers: dict[str, list[str]] = {port: [] for port in golden["answers"]}
    for port, data in golden["packets"]:
        for egress, answer in oracle.one(port, bytes.fromhex(data)):
            answers[str(egress)].append(answer.hex())
    assert answers == golden["answers"]
    for name in names:
        field = name.rsplit(".", 1)[-1]
        for index, expected in golden["registers"][name].items():
            copy = oracle.copy(*divmod(int(index), 2))
            if field.startswith("value"):
                assert copy.values[int(field.removeprefix("value"))] == expected
            else:
                assert getattr(copy, field) == expected
