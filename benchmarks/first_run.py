"""The first minute: processor time of commands, when nothing is compiled and when all is.

    python -m benchmarks.first_run                             # times
    python -m benchmarks.first_run --before DIR                # beside another checkout, in turns
    python -m benchmarks.first_run --repeats 5 --only codecs

``DIR`` is a checkout of another commit (``git worktree add DIR COMMIT``); it runs with this one's
environment. Cold runs use a new copy of the package and an empty cache. Warm runs are those after
it. Compared are medians of the processor time of all processes of a command.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INNET = [sys.executable, "-m", "innet"]
TESTBED = """
from innet.sim import Testbed
bed = Testbed("10g", seed=1)
s1 = bed.switch("s1", "p4/examples/forward.json", commands="p4/examples/forward.commands")
client, server = bed.host("h1"), bed.host("h2")
bed.link(client, s1, port=1)
bed.link(server, s1, port=2)
@client.run
async def ask():
    socket = client.udp()
    socket.send(b"ping", server.ip, 7)
    return await socket.receive()
@server.serve
async def answer():
    socket = server.udp(7)
    request = await socket.receive()
    socket.send(request.payload, request.address, request.port)
bed.run()
"""
COLD = {
    "allreduce": [*INNET, "allreduce"],
    "allreduce --network 100g": [*INNET, "allreduce", "--network", "100g"],
    "simulate": [*INNET, "simulate"],
    "a Testbed": [sys.executable, "-c", TESTBED],
}
"""What is run cold, and warm afterwards."""
WARM = {name: [*INNET, *name.split()] for name in ("codecs", "doctor", "help", "report --help")}
"""What is run warm alone, as it compiles nothing."""


def seconds(command: list[str], tree: Path, cache: Path) -> float:
    """Processor time of a command and the processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(cache)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(  # noqa: S603 - ours
        command,
        cwd=tree,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def copied(tree: Path, target: Path) -> Path:
    """A copy of a checkout's package and programs, without what was compiled."""
    if target.exists():
        shutil.rmtree(target)
    for part in ("innet", "p4", "workers", "topo"):
        if (tree / part).exists():
            shutil.copytree(
                tree / part, target / part, ignore=shutil.ignore_patterns("__pycache__")
            )
    return target


def main() -> None:
    """Run each command cold and warm, of each checkout in turns, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", help="commands whose name contains this")
    options = parser.parse_args()
    trees = [ROOT] if options.before is None else [options.before.resolve(), ROOT]
    heads = ["command", "", *(["before"] if len(trees) > 1 else []), "now", "ratio"]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|", flush=True)
    chosen = {n: c for n, c in {**COLD, **WARM}.items() if (options.only or "") in n}
    with tempfile.TemporaryDirectory() as folder:
        for name, command in chosen.items():
            kinds = ("cold", "warm") if name in COLD else ("bytecode", "warm")
            taken: list[list[list[float]]] = [[[] for _ in trees] for _ in kinds]
            for _ in range(options.repeats):
                for number, tree in enumerate(trees):
                    cache = Path(folder, f"cache{number}")
                    shutil.rmtree(cache, ignore_errors=True)
                    copy = copied(tree, Path(folder, f"tree{number}"))
                    for rows in taken:
                        rows[number].append(seconds(command, copy, cache))
            for kind, rows in zip(kinds, taken, strict=True):
                if kind != "bytecode":
                    middle = [statistics.median(each) for each in rows]
                    cells = [name, kind, *(f"{each:.2f} s" for each in middle)]
                    ratio = f"{middle[-1] / middle[0]:.2f}"
                    print("| " + " | ".join([*cells, ratio]) + " |", flush=True)


if __name__ == "__main__":
    main()
