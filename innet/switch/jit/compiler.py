"""From a program to machine code: can it be compiled, its source, its machine code.

Numba is imported with this module, which takes longer than to load what was compiled before. So
the engine imports it only where ``cache`` has nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba

from innet.core.errors import InputError, UnsupportedError
from innet.core.waiting import hooks
from innet.switch import ir
from innet.switch.engine import allocate_registers
from innet.switch.ir.tree import walk
from innet.switch.jit.codegen import machine_code
from innet.switch.jit.emit.program import Emitted, emit
from innet.switch.jit.native import MachineCode
from innet.switch.jit.traits import ALGORITHMS, needs_queue


def reasons_against(program: ir.Program) -> list[str]:
    """What ``program`` uses that cannot be compiled, each with where it is used."""
    if reasons := structural_reasons(program):
        return reasons
    try:
        source_of(program)
    except UnsupportedError as error:
        return [str(error)]
    return []


def source_of(program: ir.Program, queued: bool | None = None, *, recording: bool = False) -> str:
    """The module that a program becomes; the arguments as in ``cache.module_path``.

    Raises:
        UnsupportedError: it uses something that the emitter does not have.
    """
    queued = needs_queue(program) if queued is None else queued
    return _emitted(_ByFingerprint(program), queued or recording, recording).source


def compile_source(source: str, path: Path) -> MachineCode:
    """The machine code of a module that is, or would be, at ``path``.

    Raises:
        InputError: Numba is set not to compile.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # which numba sets as it starts
        raise InputError(
            "the jit engine compiles with Numba, which NUMBA_DISABLE_JIT turns off; unset it, "
            'or load the program with engine="interpret"'
        )
    module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    with hooks.compiling():
        exec(compile(source, str(path), "exec"), module)  # noqa: S102 - what innet emitted itself
        return machine_code(module["process"], module["GROWTH"], module["ROW"])


class _ByFingerprint:
    """A program as a dictionary key: equal if the fingerprints are."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByFingerprint) and (
            self.program.fingerprint == other.program.fingerprint
        )

    def __hash__(self) -> int:
        return hash(self.program.fingerprint)


@lru_cache(maxsize=4)
def _emitted(identity: _ByFingerprint, queued: bool, recording: bool) -> Emitted:
    emitted = emit(identity.program, allocate_registers(identity.program), queued, recording)
    try:
        ast.parse(emitted.source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        # Python parses at most 200 nested parentheses and 100 nested blocks.
        raise UnsupportedError(
            f"the compiled engine cannot have expressions or conditions nested so deeply: {error}"
        ) from None
    return emitted


# ── What the JIT does not have ───────────────────────────────────────────────────────────────────


def structural_reasons(program: ir.Program) -> list[str]:
    """Each unsupported construct with where it is used; empty if the program can be emitted."""
    reasons: dict[str, None] = {f"the extern instance {name}": None for name in program.externs}
    for user, tree in _constructs(program):
        for node in walk(tree):
            if isinstance(node, ir.ExternCall):
                reasons[f"the primitive {node.name} ({user})"] = None
    for reason in _other_reasons(program):
        reasons[reason] = None
    return list(reasons)


def _constructs(program: ir.Program) -> Iterator[tuple[str, Any]]:
    for state in program.parser.states:
        yield f"parser state {state.name}", state
    for action in program.actions:
        yield f"action {action.name}", action
    yield "deparser", program.deparser.operations
    for conditional in program.conditionals:
        yield f"condition {conditional.name}", conditional
    for checksum in program.checksums:
        yield f"checksum {checksum.name}", checksum


def _other_reasons(program: ir.Program) -> Iterator[str]:
    for field_list in program.field_lists:
        for part in field_list.elements:
            if isinstance(part, ir.FieldRef) and not program.headers[part.header].metadata:
                yield f"a field list with a packet's header ({program.name_of(part)})"
    used = {
        node.calculation
        for node in walk((program.actions, program.checksums))
        if isinstance(node, ir.Hash | ir.Checksum)
    }
    used.update(range(len(program.calculations), len(program.hashes)))
    for index in sorted(used):
        calculation = program.hashes[index]
        if calculation.algorithm not in ALGORITHMS:
            yield f"the hash algorithm {calculation.algorithm} ({calculation.name})"
