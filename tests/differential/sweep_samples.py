"""Both engines over a folder of compiled programs that are not innet's own, such as p4c's samples.

    PYTHONPATH=.:tests python tests/differential/sweep_samples.py FOLDER [--stf FOLDER] [--bmv2]

Every ``*.json`` below the folder is loaded and compiled, and 61 packets made for it (after entries
and registers made for it, too) go through the interpreter and the compiled engine: packets, state
and counts must be equal. Every ``*.stf`` below the other folder is run on both engines where there
is a program of its name. With ``--bmv2`` simple_switch gets 40 packets for each program, and random
commands before them; the interpreter must answer as it does. What failed is listed by kind, and the
exit status is 1 if anything did.

Nothing is kept: compiled programs go to a folder that is removed at the end.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from support import fuzz
from support.engines import check_random_traffic

from innet.core.errors import InnetError
from innet.switch.frontend.loader import load_program
from innet.tools import stf, stf_syntax

#: Programs for each process: what LLVM holds for a program lives as long as its process.
_BETWEEN_FRESH_PROCESSES = 30

Result = tuple[str, str, float]
"""What became of a program or test, its name and the reason, seconds."""


class _TookTooLongError(Exception):
    pass


def main(
    folder: Annotated[Path, typer.Argument(help="Compiled programs, searched below.")],
    tests: Annotated[Path | None, typer.Option("--stf", help="Packet tests.")] = None,
    bmv2: Annotated[bool, typer.Option("--bmv2", help="Compare with simple_switch.")] = False,
    processes: Annotated[int, typer.Option(help="So many at a time.")] = 2,
    seconds: Annotated[int, typer.Option(help="At most for one program.")] = 600,
) -> None:
    """Run everything, print what failed, and the sums."""
    programs = sorted(folder.rglob("*.json"))
    tasks = [(partial(traffic, path), path.stem) for path in programs]
    if bmv2:
        tasks += [
            (partial(simple_switch, path), f"{path.stem}, simple_switch") for path in programs
        ]
    if tests is not None:
        named = {path.stem: path for path in programs}
        found = sorted(path for path in tests.rglob("*.stf") if path.stem in named)
        tasks += [(partial(packet_test, named[path.stem], path), path.name) for path in found]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["INNET_CACHE_DIR"] = cache
        with get_context("spawn").Pool(
            processes, maxtasksperchild=_BETWEEN_FRESH_PROCESSES
        ) as workers:
            limited = partial(_within, seconds)
            results = list(workers.imap_unordered(limited, tasks, chunksize=1))
    raise typer.Exit(_summary(results))


def traffic(path: Path) -> None:
    """Load, compile and compare one program."""
    check_random_traffic(load_program(path), seed=0, largest=60, rounds=1)


def simple_switch(path: Path) -> None:
    """Compare one program's answers with those of simple_switch."""
    fuzz.PROGRAMS = path.parent
    case = fuzz.make_case(path.stem, seed=0, packets=40, rounds=2)
    fuzz.compare(case, fuzz.simple_switch(case), "interpret")


def packet_test(program: Path, test: Path) -> None:
    """Run one packet test on both engines."""
    loaded, parsed = load_program(program), stf_syntax.read(test)
    failures = [
        f"{engine}: {failure}"
        for engine in ("interpret", "jit")
        for failure in stf.run(loaded, parsed, engine).failures
    ]
    assert not failures, failures


def _within(seconds: int, task: tuple[Callable[[], None], str]) -> Result:
    """Run a task for so long at most."""
    action, name = task

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _TookTooLongError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    begun = time.monotonic()
    kind = "passed" if name.endswith(".stf") else "agreed"
    reason = ""
    try:
        action()
    except _TookTooLongError:
        kind, reason = "took too long", f"more than {seconds} s"
    except InnetError as error:
        kind, reason = "refused", str(error)
    except Exception as error:
        kind, reason = "FAILED", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return kind, f"{name}: {' '.join(reason.split())[:300]}", time.monotonic() - begun


def _summary(results: Iterable[Result]) -> int:
    every = sorted(results)
    slowest = sorted(every, key=lambda each: -each[2])[:10]
    good = ("agreed", "passed")
    for kind, text, took in chain((each for each in every if each[0] not in good), slowest):
        typer.echo(f"{kind:14} {took:6.1f} s  {text}")
    counts = Counter(kind for kind, _, _ in every)
    typer.echo(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return int(set(counts) - set(good) != set())


if __name__ == "__main__":
    typer.run(main)
