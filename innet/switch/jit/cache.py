"""Compiled programs on disk: the emitted module, for readers, and its machine code.

The file names are a digest of everything that determines the content: the program, the sources of
the JIT (``engine_sources``), the versions of Python, NumPy, Numba and LLVM, and the processor.
Files are written by renaming and never changed, so processes may share the directory. Each file
ends with its digest, so that damage is detected before the code runs.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from innet.core.compile_notice import tell_not_kept
from innet.core.errors import ProgramError
from innet.switch import engine, ir
from innet.switch.jit.native import MachineCode, NativeProgram
from innet.switch.jit.traits import needs_queue


def directory() -> Path:
    """The cache directory: $INNET_CACHE_DIR, $XDG_CACHE_HOME/innet or ~/.cache/innet.

    If none of them is writable, a temporary directory of the process.
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
    except OSError as error:
        tell_not_kept(wanted, error.strerror or str(error))
        made = Path(tempfile.mkdtemp(prefix="innet-switch-"))
        atexit.register(_remove, made, os.getpid())
        return made


def _remove(path: Path, owner: int) -> None:
    """Remove a directory at the end of the process that made it, not of one forked from it."""
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


#: Environment variables that change Numba's code for the same source.
_SETTINGS = (
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_ENABLE_AVX",
    "NUMBA_LOOP_VECTORIZE",
    "NUMBA_OPT",
    "NUMBA_SLP_VECTORIZE",
)


#: The sources that decide what is emitted and compiled, below ``innet/switch``. Everything that
#: ``lower``, ``emit`` and ``runtime`` import must be among them, or old machine code would go on
#: being used after a change.
_SOURCES = (
    "engine.py",
    "record_sink.py",
    "interpreter/expressions.py",
    "state/entries.py",
    "state/hash_index.py",
    "state/hashes.py",
    "state/meters.py",
    "state/replication.py",
    "traffic_manager.py",
)
_FOLDERS = ("ir", "jit")


def engine_sources() -> list[Path]:
    """The source files whose changes invalidate compiled programs."""
    root = Path(str(engine.__file__)).parent
    folders = (path for folder in _FOLDERS for path in (root / folder).rglob("*.py"))
    return sorted([*(root / name for name in _SOURCES), *folders])


@cache
def _environment() -> str:
    """A digest of everything except the program that determines compiled code."""
    digest = hashlib.sha256()
    try:
        for source in engine_sources():
            digest.update(source.read_bytes())
    except OSError as error:
        raise ProgramError(
            f"the engine jit tells by innet's sources what it may use again, and {error.filename} "
            "cannot be read. Out of an archive innet cannot be used: unpack it, or install innet."
        ) from None
    libraries = (np.__version__, version("numba"), version("llvmlite"))
    settings = [os.environ.get(name) for name in _SETTINGS]
    versions = (sys.version, libraries, llvm.get_host_cpu_name(), settings)
    digest.update(repr(versions).encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    return digest.hexdigest()


def module_path(
    program: ir.Program, queued: bool | None = None, *, recording: bool = False
) -> Path:
    """The path of the emitted module of a program in the current environment.

    ``queued``: its form with queues between ingress and egress; by default that of calls without
    times, which has them where packets come by again. ``recording``: the build that records events,
    which has queues.
    """
    queued = needs_queue(program) if queued is None else queued
    build = " recording" if recording else " queued" if queued else ""
    form = f"{_environment()} {program.fingerprint}{build}"
    key = hashlib.sha256(form.encode()).hexdigest()
    return directory() / f"innet_switch_{key[:32]}.py"


_loaded: dict[Path, NativeProgram] = {}


def load(
    program: ir.Program, queued: bool | None = None, *, recording: bool = False
) -> NativeProgram | None:
    """A program that was compiled before; None if it was not, or the file is damaged."""
    path = module_path(program, queued, recording=recording)
    if path not in _loaded:
        source, code = _read(path), _read(path.with_suffix(".code"))
        if source is None or code is None:
            return None
        _loaded[path] = NativeProgram(deserialize(code))
    return _loaded[path]


def store(
    program: ir.Program,
    source: str,
    compiled: MachineCode,
    queued: bool | None = None,
    *,
    recording: bool = False,
) -> NativeProgram:
    """Store a program for other processes and load it into this one."""
    path = module_path(program, queued, recording=recording)
    _write(path, source.encode())
    _write(path.with_suffix(".code"), serialize(compiled))
    _loaded[path] = NativeProgram(compiled)
    return _loaded[path]


def serialize(compiled: MachineCode) -> bytes:
    """Compiled code as bytes: a line of JSON, then the object file."""
    return json.dumps(compiled.header()).encode() + b"\n" + compiled.code


def deserialize(data: bytes) -> MachineCode:
    """The inverse of ``serialize``."""
    head, _, code = data.partition(b"\n")
    header = json.loads(head)
    for name in ("arguments", "returned"):
        header[name] = tuple((dtype, dimensions) for dtype, dimensions in header[name])
    return MachineCode(**header, code=code)


_DIGEST = b"\n# sha256 of all above: "


def _with_digest(data: bytes) -> bytes:
    return data + _DIGEST + hashlib.sha256(data).hexdigest().encode() + b"\n"


def _read(path: Path) -> bytes | None:
    """The content of a file; None if it is missing or damaged."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    data, _, _ = found.rpartition(_DIGEST)
    return data if found == _with_digest(data) else None


def _write(path: Path, data: bytes) -> None:
    """Write a file. If the disk is full it is left out, which is said and costs time later."""
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(_with_digest(data))
        Path(temporary).replace(path)
    except OSError as error:
        tell_not_kept(path.parent, error.strerror or str(error))
        if temporary:
            Path(temporary).unlink(missing_ok=True)
