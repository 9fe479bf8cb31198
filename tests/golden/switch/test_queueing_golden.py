"""The traffic manager's queues do what BMv2's do, recorded from its C++ (record_queueing.py)."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from support.queues import ManagedQueues, NaiveQueues

GOLDEN = Path(__file__).resolve().parent / "queueing.json.gz"


@pytest.mark.parametrize("kind", [ManagedQueues, NaiveQueues])
def test_queues_do_what_those_of_bmv2_do(kind):
    lines, answers = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    for line, expected, got in zip(lines, answers, kind().run(lines), strict=True):
        assert got == expected, line


def test_the_recording_has_drops_waits_and_all_kinds_of_lines():
    lines, answers = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    kinds = Counter(line.split()[0] for line in lines)
    assert min(kinds[each] for each in ("new", "push", "until", "depth", "rate")) >= 50
    pushed = Counter(
        answer.split()[0]
        for line, answer in zip(lines, answers, strict=True)
        if line.startswith("push")
    )
    assert pushed["0"] > 500
    assert pushed["1"] > 2000
    assert sum(answer.count(":") for answer in answers) == 2 * pushed["1"]
