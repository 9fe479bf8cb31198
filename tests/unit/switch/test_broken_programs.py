"""A program that is damaged is refused, or runs: no other error, no hang, no memory filled.

INNET_BROKEN_PROGRAMS (250) in the environment says how many damaged programs are tried.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.broken_json import broken

from innet import programs
from innet.core.errors import ProgramError, UnsupportedError
from innet.switch import Switch, ir, load_program
from innet.switch.ir.check import check_references
from innet.switch.jit import JitEngine

COUNT = int(os.environ.get("INNET_BROKEN_PROGRAMS", "250"))
PARTS = 5
PATHS = sorted((Path(__file__).parents[2] / "programs").glob("*.json"))

pytestmark = pytest.mark.timeout(0 if COUNT > 250 else 300)


def document(name: str) -> dict[str, Any]:
    return json.loads(next(path for path in PATHS if path.stem == name).read_text())


def documents() -> list[dict[str, Any]]:
    # The largest say nothing more and take their time.
    small = [path for path in PATHS if path.stat().st_size < 60_000]
    return [json.loads(path.read_text()) for path in small] + [programs.find("slots", 32).json()]


def run(program: ir.Program, rng: np.random.Generator) -> None:
    packets = [(1, bytes(60)), (2, b""), (3, rng.bytes(100)), (0, rng.bytes(30))]
    Switch(program, "interpret").process(packets)


@pytest.mark.repeats("the same with more damage", but=["0"])
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_json_is_refused_or_runs(part):
    originals = documents()
    refused = 0
    for seed in range(part, COUNT, PARTS):
        rng = np.random.default_rng(seed)
        try:
            program = load_program(broken(originals[rng.integers(len(originals))], rng))
            run(program, rng)
            JitEngine.unsupported(program)  # emits it
        except ProgramError:
            refused += 1
    assert 0.2 * COUNT < PARTS * refused < 0.95 * COUNT


@pytest.mark.parametrize("depth", [520, 3000, 100_000])
@pytest.mark.parametrize("engine", ["interpret", "jit"])
def test_expressions_without_end_are_refused(depth, engine):
    one: dict[str, Any] = {"type": "hexstr", "value": "0x01"}
    expression = one
    for _ in range(depth):
        operation = {"op": "+", "left": one, "right": expression}
        expression = {"type": "expression", "value": operation}
    changed = document("fuzz_ends")
    action = next(each for each in changed["actions"] if each["name"] == "I.forward")
    action["primitives"][0]["parameters"][1] = expression
    with pytest.raises(ProgramError, match=r"nested (deeper than 1000 levels|too deeply)"):
        Switch.load(changed, engine)


def test_conditions_nested_too_deeply_for_python_run_interpreted():
    changed = document("fuzz_ends")
    ingress = changed["pipelines"][0]
    table, first = ingress["tables"][0]["name"], ingress["conditionals"][0]
    for i in range(120):
        leads = {"true_next": f"deep{i + 1}" if i < 119 else None, "false_next": None}
        ingress["conditionals"].append({**first, "name": f"deep{i}", "id": 1000 + i, **leads})
    ingress["conditionals"][-100]["false_next"] = table
    ingress["init_table"] = "deep0"
    run(load_program(changed), np.random.default_rng(0))
    with pytest.raises(UnsupportedError, match=r"(?s)nested so deeply.*engine='interpret'"):
        Switch.load(changed, "jit")


# ── Programs made in Python ──


def damaged(value: Any, rng: np.random.Generator) -> Any:
    """``value`` with one integer somewhere in it replaced; None where it has none."""
    if isinstance(value, bool) or (not isinstance(value, int | tuple) and not is_part(value)):
        return None
    if isinstance(value, int):
        return int(rng.choice([-1, value + 1, 10**6]))
    names = range(len(value)) if isinstance(value, tuple) else [f.name for f in fields(value)]
    for name in rng.permutation(np.array(names, object)):
        member = value[name] if isinstance(value, tuple) else getattr(value, name)
        changed = damaged(member, rng)
        if changed is not None:
            if isinstance(value, tuple):
                return (*value[:name], changed, *value[name + 1 :])
            return dataclasses.replace(value, **{name: changed})
    return None


def fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(value)


def is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


#: What holds references, not sizes and widths that would only ask for memory.
REFERRING = ("actions", "tables", "conditionals", "parser", "deparser", "checksums", "stacks")


@pytest.mark.parametrize("name", ["fuzz_ends", "fuzz_stacks", "fuzz_unions", "fuzz_counters"])
def test_damaged_references_are_refused(name):
    program = load_program(document(name))
    rng = np.random.default_rng(list(name.encode()))
    refused = 0
    for _ in range(60):
        member = str(rng.choice(REFERRING))
        changed = damaged(getattr(program, member), rng)
        if changed is None:
            continue
        try:
            check_references(dataclasses.replace(program, **{member: changed}))
        except ProgramError:
            refused += 1
    assert refused > 10


def test_the_place_and_what_is_missing_are_named():
    program = load_program(document("fuzz_ends"))
    position = next(i for i, each in enumerate(program.actions) if each.name == "I.forward")
    wrong = dataclasses.replace(
        program.actions[position], primitives=(ir.AddHeader(ir.HeaderRef(99)),)
    )
    actions = (*program.actions[:position], wrong, *program.actions[position + 1 :])
    with pytest.raises(ProgramError, match=r"I\.forward refers to .*: headers\[99\] of \d+"):
        Switch(dataclasses.replace(program, actions=actions), "interpret")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_what_the_loader_makes_passes(path):
    check_references(load_program(path))
