"""What docstrings list under ``Args:``, ``Attributes:`` and ``Raises:`` exists."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("innet", "topo", "workers")


def listed(node, section):
    """The names of a section's entries, which are indented by four."""
    text = "\n" + inspect.cleandoc(ast.get_docstring(node, clean=False))
    entries = re.split(r"^\S", text.partition(f"\n{section}:\n")[2], maxsplit=1, flags=re.M)[0]
    for names in re.findall(r"^ {4}(\S[^:\n]*):", entries, re.M):
        yield from names.replace("*", "").split(", ")


def parameters(function):
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}


def family(node, file, classes):
    """A class and those that it derives from: of its file, if one has the name there."""
    known = [node]
    for each in known:
        for base in each.bases:
            named = classes[re.sub(r"\[.*", "", ast.unparse(base)).rpartition(".")[2]]
            here = [one for one in named if one in file and one is not each]
            known += [one for one in here or named if one not in known]
    return known


def attributes(node):
    """What a class's body declares, its properties, and what its methods assign to ``self``."""
    for each in node.body:
        match each:
            case ast.AnnAssign(target=target) | ast.Assign(targets=[target]):
                yield ast.unparse(target)
            case ast.FunctionDef(name=name, decorator_list=[_, *_]):
                yield name
    for each in ast.walk(node):
        match each:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def lies(file, classes):
    """What the docstrings of a file list that does not exist."""
    errors = {*vars(builtins), *(name for name in classes if name.endswith("Error"))}
    errors |= {each.asname or each.name for each in file if isinstance(each, ast.alias)}
    for node in file:
        known = {"Args": set(), "Attributes": set(), "Raises": errors}
        match node:
            case ast.ClassDef():
                bases = family(node, file, classes)
                known["Attributes"] = {name for each in bases for name in attributes(each)}
                made = (part for each in bases for part in each.body)
                made = (
                    part for part in made if getattr(part, "name", "") in {"__init__", "__new__"}
                )
                known["Args"] = next(map(parameters, made), known["Attributes"])
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                known["Args"] = parameters(node)
            case ast.Module():
                pass
            case _:
                continue
        if ast.get_docstring(node, clean=False):
            for section, names in known.items():
                for name in listed(node, section):
                    if name.partition(".")[0] not in names:
                        yield f"{getattr(node, 'name', 'the module')}: {section} {name}"


def found(sources):
    """The lies of files, by their names."""
    files = {name: set(ast.walk(ast.parse(text))) for name, text in sources.items()}
    classes = defaultdict(list)
    for file in files.values():
        for node in file:
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(node)
    return sorted(f"{name}: {lie}" for name, file in files.items() for lie in lies(file, classes))


def test_docstrings_list_what_exists():
    paths = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    assert found({path.relative_to(ROOT): path.read_text() for path in paths}) == []


def test_what_does_not_exist_is_found():
    base = "class Base:\n    here = 1\n    def __init__(self, given):\n        self.kept = given\n"
    text = """
from base import Base
class Derived(Base):
    \"\"\"A class.

    Args:
        given, lost: some.

    Attributes:
        here: one.
        kept: two.
        gone: three.

    Raises:
        ValueError: because.
        NoSuchError: because.
    \"\"\"
"""
    assert found({"base.py": base, "derived.py": text}) == [
        "derived.py: Derived: Args lost",
        "derived.py: Derived: Attributes gone",
        "derived.py: Derived: Raises NoSuchError",
    ]
