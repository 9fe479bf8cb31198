"""Tutorials: notebooks in jupytext's percent format, run, and written as Markdown with their output.

    python docs/tools/notebooks.py            # run all, and write docs/tutorials/*.md and figures
    python docs/tools/notebooks.py NAME ...   # these

A cell begins with ``# %%``. ``# %% [markdown]`` is text, each line a comment; ``# %% language="bash"``
is for the shell, each line a comment, too; ``needs="root"`` behind it leaves the cell out for others. All else is Python. A figure of Matplotlib that is open
at the end of a cell is shown there. The cells of a tutorial share one folder, which is empty at first.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
CELL_SECONDS = 270.0


@dataclass
class Cell:
    """A cell; ``kind`` is "markdown", "bash" or "python"."""

    kind: str
    source: str
    needs_root: bool = False
    output: str = ""
    figures: list[bytes] = field(default_factory=list)  # SVG


def parse(text: str) -> list[Cell]:
    """The cells of a notebook."""
    cells = []
    for piece in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = piece.partition("\n")
        kind = "python"
        if "[markdown]" in head:
            kind = "markdown"
        elif 'language="bash"' in head:
            kind = "bash"
        if kind != "python":
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        cells.append(Cell(kind, body.strip("\n"), 'needs="root"' in head))
    return cells


def run(cells: list[Cell]) -> None:
    """Run the cells in the present folder; their output and figures are kept in them.

    Raises:
        AssertionError: a command failed or took too long. An error of Python's is not caught.
    """
    import matplotlib as mpl  # noqa: PLC0415 - after what asks for nothing of it

    mpl.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    mpl.rcParams["svg.hashsalt"] = "innet"  # the same figure gives the same file
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell.kind == "bash":
            if cell.needs_root and os.geteuid() != 0:
                print(f"cell {number} needs root; left out", file=sys.stderr)
                continue
            cell.output = _shell(cell.source)
        elif cell.kind == "python":
            heard = io.StringIO()
            with contextlib.redirect_stdout(heard):
                code = compile(cell.source, f"cell {number}", "exec", dont_inherit=True)
                exec(code, namespace)  # noqa: S102 - our own tutorials
            cell.output = heard.getvalue()
            for each in map(plt.figure, plt.get_fignums()):
                drawn = io.BytesIO()
                each.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
                cell.figures.append(drawn.getvalue())
            plt.close("all")


def _shell(source: str) -> str:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "88",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["bash", "-ec", source],  # noqa: S607 - the reader's own shell
        capture_output=True,
        text=True,
        timeout=CELL_SECONDS,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, f"{source}\n{done.stdout}{done.stderr}"
    return done.stdout


def to_markdown(name: str, cells: list[Cell]) -> tuple[str, dict[str, bytes]]:
    """A notebook that was run as Markdown, and the files of its figures."""
    lines: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in cells:
        if cell.kind == "markdown":
            title, _, rest = cell.source.partition("\n\n")
            if title.startswith("# ") and "\n" not in title:
                link = f"To run it: [{name}.ipynb]({name}.ipynb), from `docs/tutorials/{name}.py`."
                lines += [title, "", f"*{link}*", "", rest, ""]
            else:
                lines += [cell.source, ""]
            continue
        # "py" and "sh": the tests run tutorials as a whole, and not each block alone.
        lines += [f"```{'sh' if cell.kind == 'bash' else 'py'}", cell.source, "```", ""]
        if cell.output.strip():
            lines += ["```text", cell.output.rstrip(), "```", ""]
        for drawn in cell.figures:
            figure = f"images/{name}-{len(figures) + 1}.svg"
            figures[figure] = drawn
            lines += [f"![Figure of {name}]({figure})", ""]
    return "\n".join(lines).rstrip() + "\n", figures


def to_ipynb(text: str) -> str:
    """The notebook for Jupyter, without outputs."""
    cells = []
    for number, cell in enumerate(parse(text)):
        source = f"%%bash\n{cell.source}" if cell.kind == "bash" else cell.source
        entry: dict[str, object] = {
            "id": f"cell-{number}",
            "cell_type": "markdown" if cell.kind == "markdown" else "code",
            "metadata": {},
            "source": source.splitlines(keepends=True),
        }
        if cell.kind != "markdown":
            entry |= {"execution_count": None, "outputs": []}
        cells.append(entry)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    document = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Run the tutorials that are named, or all, each in a process and a folder of its own."""
    into, chosen = TUTORIALS, sys.argv[1:]
    if chosen[:1] == ["--into"]:  # where pages and figures go
        into, chosen = Path(chosen[1]), chosen[2:]
    chosen = chosen or sorted(each.stem for each in TUTORIALS.glob("*.py"))
    if len(chosen) > 1:
        for name in chosen:
            subprocess.run([sys.executable, __file__, "--into", into, name], check=True)
        return
    (name,) = chosen
    began = time.monotonic()
    cells = parse((TUTORIALS / f"{name}.py").read_text())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run(cells)
    text, figures = to_markdown(name, cells)
    (into / f"{name}.md").write_text(text)
    (into / "images").mkdir(exist_ok=True)
    for path, drawn in figures.items():
        (into / path).write_bytes(drawn)
    print(f"{name}: {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
