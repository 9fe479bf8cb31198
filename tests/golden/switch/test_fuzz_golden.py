"""Both engines do with the programs of one feature each what simple_switch was recorded to do.

The recordings are made by record_fuzz.py and say with which versions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support import fuzz, fuzz_recording
from support.tiers import tiered

from innet.switch.frontend.loader import fingerprint

HERE = Path(__file__).parent


def recording(name: str) -> Path:
    return HERE / f"{name}.json.gz"


def test_every_program_is_recorded():
    recorded = {path.name.split(".")[0] for path in HERE.glob("fuzz_*.json.gz")}
    assert recorded == set(fuzz.NAMES)
    assert len(recorded) >= 16


def test_both_engines_have_all_of_every_program():
    assert all(fuzz.engines(name) == ["interpret", "jit"] for name in fuzz.NAMES)


@pytest.mark.parametrize("name", fuzz.NAMES)
def test_the_recording_is_of_this_program(name):
    case, trace, recorded = fuzz_recording.read(recording(name))
    assert recorded["fingerprint"] == fingerprint(fuzz.document(name)), "run record_fuzz.py"
    assert set(recorded["tools"]) == {"p4c", "simple_switch"}
    assert recording(name).stat().st_size <= fuzz_recording.MOST_BYTES
    answered = sum(len(sent) for each in trace.answers for a in each for sent in a.values())
    assert answered > len(case.packets) / 10, "nearly everything was dropped"
    assert [handle for each in trace.handles for handle in each].count(None) < 60


#: Programs of what the engines are compared by nowhere else: tests/differential/ compares them over
#: random traffic of jit_*, switch_* and queue_*, which have the features of the others.
COMPILED = ["counters", "empty", "ends", "for", "loops", "negative", "priorities", "signed"]


@pytest.mark.parametrize(
    ("name", "engine"),
    tiered(
        [(name, engine) for name in fuzz.NAMES for engine in ("interpret", "jit")],
        [
            *((name, "interpret") for name in fuzz.NAMES),
            *((f"fuzz_{name}", "jit") for name in COMPILED),
        ],
        "the same interpreted, and both engines with programs of the same features",
    ),
)
def test_equals_the_recording(name, engine):
    case, trace, _ = fuzz_recording.read(recording(name))
    fuzz.compare(case, trace, engine)
