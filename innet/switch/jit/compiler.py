"""From a program to machine code: emitted, then compiled by Numba, which is imported with this."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Any

import numba

from innet.core.errors import InputError, UnsupportedError
from innet.switch import ir
from innet.switch.engine import allocate_registers
from innet.switch.jit.emit.program import Emitted, emit
from innet.switch.jit.native import MachineCode
from innet.switch.jit.object_code import machine_code
from innet.switch.jit.unsupported import structural_reasons


def reasons_against(program: ir.Program) -> list[str]:
    """What ``program`` uses that cannot be compiled, each with where it is used."""
    if reasons := structural_reasons(program):
        return reasons
    try:
        source_of(program)
    except UnsupportedError as error:
        return [str(error)]
    return []


def source_of(program: ir.Program) -> str:
    """The module that a program becomes.

    Raises:
        UnsupportedError: it uses something that the emitter does not have.
    """
    return _emitted(_Identity(program)).source


def compiled(source: str, path: Path) -> MachineCode:
    """The machine code of a module that is, or would be, at ``path``.

    Raises:
        InputError: Numba is told not to compile.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined] # which numba sets as it starts
        raise InputError(
            "the jit engine compiles with Numba, which NUMBA_DISABLE_JIT turns off; unset it, "
            'or load the program with engine="interpret"'
        )
    module: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), module)  # noqa: S102 - what innet emitted itself
    return machine_code(module["process"], module["GROWTH"])


class _Identity:
    """A program as a key: equal when the programs say the same."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and (
            self.program.fingerprint == other.program.fingerprint
        )

    def __hash__(self) -> int:
        return hash(self.program.fingerprint)


@lru_cache(maxsize=4)
def _emitted(identity: _Identity) -> Emitted:
    emitted = emit(identity.program, allocate_registers(identity.program))
    try:
        ast.parse(emitted.source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        # Python reads 200 nested parentheses and 100 nested blocks, and no more.
        raise UnsupportedError(
            f"the compiled engine cannot have expressions or conditions nested so deeply: {error}"
        ) from None
    return emitted
