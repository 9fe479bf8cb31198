"""Pictures of what commands print in a terminal: python docs/tools/terminal.py

Runs the commands, and draws their output as SVG. ``innet switch top`` shows a switch service with a
job of two workers, which are threads of this process.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from innet.allreduce.worker import Worker
from innet.service import join

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
WIDTH = 92
SECONDS = 300
THEME = TerminalTheme(
    (32, 36, 44),
    (222, 226, 232),
    [(32, 36, 44), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239), (198, 120, 221), (86, 182, 194), (222, 226, 232)],
)  # fmt: skip
_PACKET = "1:02000000000202000000000188b50102"


def run(*arguments: str) -> str:
    """What an innet command prints in a terminal of a given number of columns, with its colors."""
    environment = os.environ | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "innet", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
        cwd=ROOT,
        check=True,
    )
    return done.stdout


def draw(name: str, typed: str, output: str, lines: int = 40) -> None:
    """Write ``terminal-NAME.svg``: the command as typed, and the first lines of its output."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(f"$ {typed}", style="bold", markup=False, highlight=False)
    shown = output.rstrip("\n").split("\n")
    console.print(Text.from_ansi("\n".join(shown[:lines])))
    if len(shown) > lines:
        console.print("…")
    console.print()  # room below the last line
    svg = console.export_svg(
        title=" ".join(typed.split()[:3]), theme=THEME, unique_id=f"innet-{name}"
    )
    # Rich names a font that a browser would load from elsewhere: the reader's own is taken.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code, monospace", "ui-monospace, 'DejaVu Sans Mono', monospace")
    (IMAGES / f"terminal-{name}.svg").write_text(svg)


def top() -> str:
    """``innet switch top --once`` of a service at work."""
    address = "127.0.0.1:48990"
    stop = threading.Event()
    serving = subprocess.Popen(
        [sys.executable, "-m", "innet", "switch", "serve", "--listen", address],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert serving.stdout is not None
    serving.stdout.readline()  # it listens

    def work(number: int) -> None:
        with join(address, job="training", worker=number, workers=2) as membership:
            codec, transport = "dense", membership.transport
            worker = Worker(membership.plan, membership.worker, codec=codec, transport=transport)
            for _ in range(200):
                worker.all_reduce(np.ones(50_000, np.float32))
                done[number] += 1
            stop.wait(SECONDS)

    done = [0, 0]
    workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
    for each in workers:
        each.start()
    try:
        until = time.monotonic() + SECONDS
        while min(done) < 200 and time.monotonic() < until:
            time.sleep(0.1)
        return run("switch", "top", address, "--once")
    finally:
        stop.set()
        for each in workers:
            each.join(10)
        serving.terminate()
        serving.wait(60)


def main() -> None:
    """Draw all three."""
    explain = run("switch", "explain", "p4/examples/forward.json")
    draw("explain", "innet switch explain p4/examples/forward.json", explain)
    commands = ["--commands", "p4/examples/forward.commands"]
    trace = run(
        "switch", "explain", "p4/examples/forward.json", *commands, "--trace", "--packet", _PACKET
    )
    typed = (
        f"innet switch explain p4/examples/forward.json {' '.join(commands)} --trace --packet ..."
    )
    draw("trace", typed, trace)
    draw("top", "innet switch top --once", top())


if __name__ == "__main__":
    main()
