"""Compiled programs on disk: found again, shared, and made anew when they are damaged."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiers import tiered

from innet.core.errors import ProgramError
from innet.switch.frontend.loader import load_program
from innet.switch.jit import cache

pytestmark = pytest.mark.xdist_group("kept programs")  # which is set up once, not by each process

ROOT = Path(__file__).parents[3]

RUN = """
import sys
import numpy as np
from innet.core.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.jit import JitEngine
from innet.switch.frontend.loader import load_program
program = load_program("tests/programs/tools_clock.json")
engine = JitEngine(program, SwitchState(program, np.random.default_rng(0)))
out = engine.process(PacketBatch.from_packets([(1, bytes(64))]))
print(int("numba" not in sys.modules), len(out), engine.source_path)
"""


def start(directory: Path, script: str = RUN, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "INNET_CACHE_DIR": str(directory), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, int, Path]:
    """1 if Numba was not even imported, packets sent, and where the module is."""
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    warm, packets, path = out.split()
    return int(warm), int(packets), Path(path)


def test_another_process_compiles_nothing(kept: Path) -> None:
    (path,) = (kept / "switch").glob("*.py")
    files = [path, path.with_suffix(".code")]
    assert sorted((kept / "switch").iterdir()) == sorted(files)
    before = [each.stat().st_mtime_ns for each in files]
    assert finish(start(kept)) == (1, 1, path)
    assert finish(start(kept, NUMBA_DISABLE_JIT="1")) == (1, 1, path)
    assert [each.stat().st_mtime_ns for each in files] == before


def test_settings_of_numba_are_part_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cache._environment.__wrapped__()
    assert cache._environment.__wrapped__() == found
    monkeypatch.setenv("NUMBA_OPT", "1")
    assert cache._environment.__wrapped__() != found


@pytest.mark.repeats("settings that are part of the name, by two processes")
def test_settings_of_numba_make_another_file(tmp_path: Path) -> None:
    path = finish(start(tmp_path))[2]
    warm, packets, other = finish(start(tmp_path, NUMBA_OPT="1"))
    assert (warm, packets) == (0, 1)
    assert other != path


def test_every_source_that_decides_is_part_of_the_name() -> None:
    """A change of what lowers, emits or is called by emitted code must not find old code."""
    sources = set(cache.engine_sources())
    package = Path(cache.__file__).parent
    host_only = {package / "engine.py", *package.glob("tables/*.py")}
    decisive = set(package.rglob("*.py")) - host_only
    assert {package / "emit/program.py", package / "runtime/core.py"} < decisive <= sources
    for path in decisive:
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.ImportFrom) and str(found.module).startswith("innet.switch"):
                for name in found.names:
                    assert imported(f"{found.module}.{name.name}", str(found.module)) in sources


def imported(*names: str) -> Path:
    """The source of the first of these names that is a module."""
    for name in names:
        path = ROOT.joinpath(*name.split("."))
        for source in (path / "__init__.py", path.with_suffix(".py")):
            if source.is_file():
                return source
    raise AssertionError(names)


COMPILES = """
from innet.switch.jit import compiler
compile_source = compiler.compile_source
compiler.compile_source = lambda *args: print("compiles") or compile_source(*args)
"""


@pytest.fixture(scope="module")
def kept_by(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A directory in which two processes wanted the same program at the same time, and what each
    of them said.
    """
    directory = tmp_path_factory.mktemp("kept")
    processes = [start(directory, COMPILES + RUN) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].split() for process in processes]
    return directory, said


@pytest.fixture(scope="module")
def kept(kept_by: tuple[Path, list[list[str]]]) -> Path:
    """A directory in which the program was compiled. No test changes it."""
    return kept_by[0]


def test_of_processes_at_the_same_time_one_compiles(
    kept_by: tuple[Path, list[list[str]]],
) -> None:
    directory, said = kept_by
    assert sorted(words[:-2] for words in said) == [["0"], ["compiles", "0"]]
    assert [words[-2] for words in said] == ["1", "1"]
    (path,) = {Path(words[-1]) for words in said}
    assert sorted((directory / "switch").iterdir()) == sorted([path, path.with_suffix(".code")])


def cut(share: float) -> Callable[[bytes], bytes]:
    return lambda whole: whole[: int(share * len(whole))]


def flip(whole: bytes) -> bytes:
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


@pytest.mark.parametrize("suffix", [".py", ".code"])
@pytest.mark.parametrize("damage", [cut(0), cut(0.5), cut(0.999), flip, lambda _: b"\xff" * 99])
def test_what_is_damaged_is_not_loaded(
    kept: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    damage: Callable[[bytes], bytes],
) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("INNET_CACHE_DIR", str(tmp_path))
    program = load_program(ROOT / "tests/programs/tools_clock.json")
    monkeypatch.setattr(cache, "_loaded", {})
    assert cache.load(program) is not None
    path = cache.module_path(program).with_suffix(suffix)
    path.write_bytes(damage(path.read_bytes()))
    monkeypatch.setattr(cache, "_loaded", {})
    assert cache.load(program) is None


@pytest.mark.repeats("what is damaged is not loaded")
def test_what_is_damaged_is_made_anew(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    (path,) = tmp_path.rglob("*.code")
    path.write_bytes(cut(0.9)(path.read_bytes()))
    module = path.with_suffix(".py")
    assert finish(start(tmp_path)) == (0, 1, module)
    assert finish(start(tmp_path)) == (1, 1, module)


@pytest.mark.repeats("a full disk of which it is said that nothing is kept")
def test_a_full_disk_costs_time_only(tmp_path: Path) -> None:
    script = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1024, -1))\n" + RUN
    script = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + script
    assert finish(start(tmp_path, script))[:2] == (0, 1)
    assert not list((tmp_path / "switch").iterdir())


@pytest.mark.parametrize("full", tiered([False, True], [True], "the same on a full disk"))
def test_it_is_said_once_that_nothing_is_kept(tmp_path: Path, full: bool) -> None:
    """For a program and for functions, by the process and by one that it starts."""
    blocked = tmp_path / "file"
    folder = tmp_path if full else blocked
    blocked.touch()
    script = RUN + f"\nimport subprocess, sys\nsubprocess.run([sys.executable, '-c', {RUN!r}])\n"
    if full:
        limit = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1024, -1))\n"
        script = limit + "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + script
    nowhere = {"XDG_CACHE_HOME": str(blocked), "INNET_CACHE_TOLD": ""}
    process = start(folder, script, **nowhere)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    (line,) = said.splitlines()
    assert not full or not list((tmp_path / "switch").iterdir())
    why = "File too large" if full else "Not a directory"
    assert line.startswith(f"{folder}/switch cannot be written ({why})")
    assert line.endswith("set INNET_CACHE_DIR to a folder that is.")


def test_a_forked_process_leaves_the_directory_alone(tmp_path: Path) -> None:
    script = """
import os, sys, pathlib
from innet.core.errors import ProgramError
from innet.switch.jit import cache
path = cache.directory()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert path.is_dir()
    print(path)
"""
    blocked = tmp_path / "file"
    blocked.touch()
    environment = {**os.environ, "INNET_CACHE_DIR": str(blocked), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert Path(done.stdout.strip()).parent == tmp_path
    assert list(tmp_path.iterdir()) == [blocked]


def test_compiling_turned_off(tmp_path: Path) -> None:
    process = start(tmp_path, NUMBA_DISABLE_JIT="1")
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert "InputError: the jit engine compiles with Numba, which NUMBA_DISABLE_JIT" in error


def test_without_a_place_to_keep_it(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    warm, packets, path = finish(start(blocked))
    assert (warm, packets) == (0, 1)
    assert blocked not in path.parents
    assert not path.parent.exists()


def test_out_of_an_archive_it_says_so(tmp_path, monkeypatch):
    archive = tmp_path / "innet.zip"
    archive.touch()
    monkeypatch.setattr(cache.engine, "__file__", str(archive / "innet/switch/engine.py"))
    with pytest.raises(ProgramError, match=r"engine\.py cannot be read\. Out of an archive"):
        cache._environment.__wrapped__()
