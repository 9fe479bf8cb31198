"""Compiled programs on disk: found again, shared, and made anew when they are damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RUN = """
import numpy as np
from innet.packets import PacketBatch
from innet.switch.engine import SwitchState
from innet.switch.jit import JitEngine
from innet.switch.loader import load_program
program = load_program("tests/programs/jit_parser.json")
engine = JitEngine(program, SwitchState(program, np.random.default_rng(0)))
out = engine.process(PacketBatch.from_packets([(1, bytes(64))]))
hits = sum(engine._process.stats.cache_hits.values())
print(hits, len(out), engine.source_path)
"""


def start(directory: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN],
        cwd=ROOT,
        env={**os.environ, "INNET_CACHE_DIR": str(directory), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, int, Path]:
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    hits, packets, path = out.split()
    return int(hits), int(packets), Path(path)


def test_second_process_compiles_nothing(tmp_path: Path) -> None:
    hits, packets, path = finish(start(tmp_path))
    assert (hits, packets) == (0, 1)
    assert path.parent == tmp_path / "switch"
    before = path.stat().st_mtime_ns
    assert finish(start(tmp_path)) == (1, 1, path)
    assert path.stat().st_mtime_ns == before


def test_processes_at_the_same_time(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(3)]
    assert [finish(process)[1] for process in processes] == [1, 1, 1]
    assert finish(start(tmp_path))[0] == 1
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("keep", [0, 20])
def test_damaged_code_is_made_anew(tmp_path: Path, keep: int) -> None:
    finish(start(tmp_path))
    damaged = [*tmp_path.rglob("*.nbc"), *tmp_path.rglob("*.nbi")]
    assert len(damaged) == 2
    for path in damaged:
        path.write_bytes(path.read_bytes()[:keep])
        assert finish(start(tmp_path))[1] == 1
        assert finish(start(tmp_path))[0] == 1


@pytest.mark.parametrize("share", [0, 0.5, 0.999, None])
def test_a_damaged_module_is_written_anew(tmp_path: Path, share: float | None) -> None:
    path = finish(start(tmp_path))[2]
    whole = path.read_bytes()
    path.write_bytes(b"\xff" * 99 if share is None else whole[: int(share * len(whole))])
    assert finish(start(tmp_path))[1:] == (1, path)
    assert path.read_bytes() == whole
    assert finish(start(tmp_path))[0] == 1


def test_a_forked_process_leaves_the_directory_alone(tmp_path: Path) -> None:
    script = """
import os, sys, pathlib
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
    hits, packets, path = finish(start(blocked))
    assert (hits, packets) == (0, 1)
    assert blocked not in path.parents
    assert not path.parent.exists()
