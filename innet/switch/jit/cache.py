"""Emitted modules on disk, and their compiled code beside them.

A module is named by everything that decides what it says and what it compiles to: the program, the
sources of the emitter, the versions of Python, NumPy and Numba, and the processor. Numba keeps its
compiled code in ``__pycache__`` beside the module. Modules are put in place by renaming and are
never changed, so that processes may share the directory; each ends in a digest of itself, so that
one that was damaged is noticed before it runs.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import llvmlite.binding as llvm
import numba
import numpy as np

from innet.switch import engine, hashes, ir, meters, randomness


def directory() -> Path:
    """Where modules are kept: $INNET_CACHE_DIR, $XDG_CACHE_HOME/innet or ~/.cache/innet.

    Where none of them can be written, a directory that lives as long as the process.
    """
    if named := os.environ.get("INNET_CACHE_DIR"):
        wanted = Path(named)
    elif base := os.environ.get("XDG_CACHE_HOME"):
        wanted = Path(base) / "innet"
    else:
        wanted = Path("~/.cache/innet").expanduser()
    return _usable(wanted / "switch")


@cache
def _usable(wanted: Path) -> Path:
    try:
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            return wanted
    except OSError:
        made = Path(tempfile.mkdtemp(prefix="innet-switch-"))
        atexit.register(_remove, made, os.getpid())
        return made


def _remove(path: Path, owner: int) -> None:
    """Remove a directory at the end of the process that made it, not of one forked from it."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


@cache
def _environment() -> str:
    """Everything but the program that decides about compiled code."""
    digest = hashlib.sha256()
    package = Path(__file__).parent
    imported = (engine, hashes, ir, meters, randomness)
    shared = [Path(str(module.__file__)) for module in imported]
    for source in sorted([*package.glob("*.py"), *shared]):
        digest.update(source.read_bytes())
    versions = (sys.version, np.__version__, numba.__version__, llvm.get_host_cpu_name())
    digest.update(repr(versions).encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    return digest.hexdigest()


def module_name(program: ir.Program) -> str:
    """The name of the module that belongs to a program here and now."""
    key = hashlib.sha256(f"{_environment()} {program.fingerprint}".encode()).hexdigest()
    return f"innet_switch_{key[:32]}"


def module_path(program: ir.Program) -> Path:
    """Where that module is, or would be."""
    return directory() / f"{module_name(program)}.py"


_DIGEST = "# sha256 of all above: "


def _signed(source: str) -> bytes:
    return f"{source}\n{_DIGEST}{hashlib.sha256(source.encode()).hexdigest()}\n".encode()


def stored(program: ir.Program) -> bool:
    """Whether the module is there, whole."""
    try:
        found = module_path(program).read_bytes()
    except OSError:
        return False
    source, _, _ = found.rpartition(f"\n{_DIGEST}".encode())
    return found == _signed(source.decode(errors="replace"))


def store(program: ir.Program, source: str) -> Path:
    """Put a module in place."""
    path = module_path(program)
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    with os.fdopen(handle, "wb") as file:
        file.write(_signed(source))
    Path(temporary).replace(path)
    return path


def load(program: ir.Program) -> ModuleType:
    """Import the stored module; compiles it when nobody did so before.

    Compiled code that cannot be read (a file cut short by a full disk) is removed and made anew.
    """
    name = module_name(program)
    if name in sys.modules:
        return sys.modules[name]
    path = module_path(program)
    try:
        return _import(name, path)
    except Exception:  # whatever Numba says of compiled code that it cannot read
        for stale in (path.parent / "__pycache__").glob(f"{name}.*"):
            stale.unlink(missing_ok=True)
        return _import(name, path)


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
