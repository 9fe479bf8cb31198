"""Every innet command and every Python example in README and docs runs as it is written."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import typer.main
from support import fork_server
from support.mininet import missing
from support.tiers import tiered
from typer.core import TyperGroup

from innet.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = {"p4 compile": "p4c-bm2-ss", "bmv2": "simple_switch"}
NEEDS_ROOT = ("innet net",)

# Which imports all that programs need, and forks them: four seconds, in each process of pytest.
by_one_server = pytest.mark.xdist_group("forked")


def blocks(language):
    """(page and number, text) of every fenced block of ``language``."""
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for page in PAGES:
        found = fence.findall(page.read_text())
        for number, text in enumerate(found):
            yield pytest.param(text, id=f"{page.stem}-{number}")


def commands():
    for parameter in blocks("console"):
        for line in re.findall(r"^\$ (?:sudo )?(innet .*)$", parameter.values[0], re.MULTILINE):
            yield pytest.param(line, id=f"{parameter.id}-{line}")


def run_command(arguments, folder, say=None):
    command = [sys.executable, "-m", "innet", *arguments]
    result = fork_server.run(command, folder, say)
    assert result.returncode == 0, result.stderr


def on_a_network(line):
    return line.startswith(NEEDS_ROOT) or "--switch builtin" in line


def words_of(line):
    return [word.partition("#")[0] for word in shlex.split(line, comments=True)]


LINES = sorted({p.values[0] for p in commands()})


def take_what_they_are_given(line):
    """Whether its command has the options of a line, and they their values.

    Raises:
        UsageError: it has not, or they have not.
    """
    command, words = typer.main.get_command(app), words_of(line)[1:]
    context = command.make_context("innet", words)
    while isinstance(command, TyperGroup):
        words = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
        context = command.make_context(name, words, parent=context)
    return not isinstance(command, TyperGroup)


def test_commands_take_what_they_are_given(monkeypatch):
    """All of them, as most run in the second tier only."""
    monkeypatch.chdir(ROOT)
    assert all(take_what_they_are_given(line) for line in LINES if "--help" not in line)
    with pytest.raises(Exception, match="No such option: --wrokers"):
        take_what_they_are_given("innet allreduce --wrokers 3")


# In tests/unit/cli, with fewer workers, elements and steps; networks are in test_mininet*.py.
TESTED = tuple(
    f"innet {name}" for name in ("allreduce", "reproduce", "simulate", "switch bench", "train")
)


def one_of_each():
    """The shortest line of each command, but of those that have tests of their own."""
    shortest = {}
    for line in sorted((line for line in LINES if "--help" not in line), key=len):
        if not on_a_network(line) and not line.startswith(TESTED):
            names = itertools.takewhile(
                re.compile(r"[a-z][a-z0-9-]*").fullmatch, words_of(line)[1:3]
            )
            shortest.setdefault(tuple(names), line)
    return [*shortest.values()]


def marks(line):
    if on_a_network(line):
        # One after the other with other tests that look at what their networks leave behind.
        return [pytest.mark.xdist_group("mininet"), pytest.mark.mininet]
    return [by_one_server]


@pytest.mark.parametrize(
    "line", tiered(LINES, one_of_each(), "the same command with other options", marks)
)
def test_command(line, tmp_path):
    for needing, tool in NEEDS.items():
        if needing in line and not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    if on_a_network(line) and missing():
        pytest.skip(missing())
    for name in ("p4", "benchmarks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    arguments = words_of(line)
    if arguments[:2] == ["innet", "demo"] and "--iterations" not in arguments:
        arguments += ["--iterations", "12"]  # the whole demo has a test of its own
    if arguments[:2] == ["innet", "train"] and "--epochs" not in arguments:
        arguments += ["--epochs", "1"]  # whole trainings have tests of their own
    # What earlier commands of a page leave behind.
    if "innet-out/demo.json" in arguments:
        run_command(["demo", "--iterations", "12"], tmp_path)
    if arguments[:2] == ["innet", "view"]:
        record = ["allreduce", "--network", "100g", "--size", "500", "--record", "run.json"]
        run_command(record, tmp_path)
    if "arrivals.toml" in arguments:
        (text,) = (each.values[0] for each in blocks("toml") if "[arrivals]" in each.values[0])
        (tmp_path / "arrivals.toml").write_text(text)
    say = "exit\n" if "--cli" in arguments else None
    run_command(arguments[1:], tmp_path, say)


EXAMPLES = list(blocks("python"))


def test_examples_name_what_there_is():
    """What all of them import from innet, as most run in the second tier only."""
    found = 0
    for (text,) in (each.values for each in EXAMPLES):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("innet"):
                module = importlib.import_module(node.module)
                for alias in node.names:
                    there = hasattr(module, alias.name) or importlib.util.find_spec(
                        f"{node.module}.{alias.name}"  # a module that nobody has imported yet
                    )
                    assert there, f"{node.module} has no {alias.name}"
                    found += 1
    assert found > 20


def in_first_tier():
    """The first example of each page, and all that extend innet: nothing else does so. Sweeps and
    training with PyTorch have tests of their own.
    """
    pages = {}
    for example in EXAMPLES:
        pages.setdefault(example.id.rpartition("-")[0], example)
    first = [page for name, page in pages.items() if name not in {"pytorch", "sweeps"}]
    return [*first, *(each for each in EXAMPLES if each.id.startswith("extending-"))]


ANOTHER = pytest.mark.repeats("another example of the page, and the tests of what it shows")


@by_one_server
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(*each.values, id=each.id, marks=[ANOTHER] * (each not in in_first_tier()))
        for each in EXAMPLES
    ],
)
def test_python(text, tmp_path):
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    code = (
        "import warnings\n"
        "warnings.filterwarnings('error', category=DeprecationWarning, module='innet')\n"
        f"exec(compile({text!r}, 'example', 'exec'))"
    )
    result = fork_server.run([sys.executable, "-c", code], tmp_path)
    assert result.returncode == 0, result.stderr


def test_there_is_something_to_run():
    assert len(list(commands())) >= 8
    assert len(list(blocks("python"))) >= 3


def test_what_is_in_the_second_tier_is_listed():
    """By file, in CONTRIBUTING.md."""
    listed = (ROOT / "CONTRIBUTING.md").read_text()
    marks = re.compile(r"pytest\.mark\.repeats|import .*\b(tiered|seeds)\b|EITHER_KIND|larger=")
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if marks.search(path.read_text())]
    assert len(found) > 20
    for path in found:
        family = re.sub(r"^test_(mininet|model_check)(_\w+)$", r"\2", path.stem)
        assert f"{family}.py`" in listed, f"CONTRIBUTING.md does not list {path.name}"


def anchors(page):
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Pages that exist when the site is built; its build checks links to them (test_site.py).
GENERATED = re.compile(r"(^|/)reference/|^[\w-]+\.ipynb$")


def test_links_lead_somewhere():
    for page in PAGES:
        for target, _, anchor in re.findall(r"\]\(([^)#:]*)(#([^)]*))?\)", page.read_text()):
            if GENERATED.search(target):
                continue
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in anchors(there), f"{page.name} links to {target}#{anchor}"


def test_files_and_modules_are_where_the_pages_say():
    fields = set(re.findall(r'"(innet[.][a-z_.]+)"', (ROOT / "examples/innet.lua").read_text()))
    for page in PAGES:
        text = page.read_text()
        paths = r"`((?:innet|tests|benchmarks|examples|topo|workers)/[\w/.-]*)`"
        for path in re.findall(paths, text):
            assert (ROOT / path).exists(), f"{page.name} names {path}"
        names = re.findall(r"(?<![\w./\[\"'])innet(?:\.[a-z_0-9]+)+", text)
        for name in sorted({*names} - fields):  # those of Wireshark's filters
            folder = ROOT
            for word in name.split("."):
                if (folder / f"{word}.py").exists() or not (folder / word).exists():
                    break
                folder /= word
            left = name.split(".")[len(folder.relative_to(ROOT).parts) :]
            found = not left or (folder / f"{left[0]}.py").exists()
            exported = left and left[0] in (folder / "__init__.py").read_text()
            assert found or exported, f"{page.name} names {name}"
