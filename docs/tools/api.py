"""The API's pages: every public name of the public packages, by mkdocstrings.

Public are the names in ``__all__`` of the modules below, or all that have no underscore where a
module has no ``__all__``. A public name without a docstring fails the build.
"""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

PUBLIC = {
    "innet": "All-reduces, trainings, simulations and sweeps.",
    "innet.allreduce.worker": "One worker of a job, over a transport.",
    "innet.network": "Faults, hosts, and the event loop in virtual time.",
    "innet.codecs": "Codecs by name or by parts.",
    "innet.codecs.parts": "The base classes of codecs' parts.",
    "innet.switch": "The programmable switch.",
    "innet.programs": "The compiled P4 programs.",
    "innet.topology": "Which switches there are, and which programs they run.",
    "innet.transport": "What carries packets between hosts and a switch.",
    "innet.wire": "The packet layout.",
    "innet.sim": "Networks in simulated time.",
    "innet.torch": "The process group and the hooks for PyTorch.",
    "innet.experiments": "Trainings from Python.",
    "innet.experiments.emulation": "A training script of one's own.",
    "innet.records": "What runs leave behind.",
    "innet.core.reduce_op": "What a switch does with words.",
    "innet.core.packets": "Batches of packets.",
    "innet.core.schedules": "Parameters that change from step to step.",
    "innet.core.errors": "The errors that innet raises.",
}
ROOT = Path(__file__).parents[2]


def pages() -> dict[str, str]:
    """The address of each module's page."""
    return {module: f"reference/api/{module}.md" for module in PUBLIC}


def generate() -> dict[str, str]:
    """All pages: address and Markdown."""
    missing = [f"{module}.{name}" for module in PUBLIC for name in undocumented(module)]
    if missing:
        raise SystemExit(f"public names without a docstring: {', '.join(missing)}")
    return {uri: _page(module) for module, uri in pages().items()}


def _page(module: str) -> str:
    lines = [f"# {module}", "", f"::: {module}"]
    lines += [
        "    options: {show_root_heading: false, show_root_toc_entry: false, members: false}",
        "",
    ]
    for name in names(module):
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def names(module: str) -> list[str]:
    """The public names of a module, in the order of its ``__all__`` or of its source."""
    tree = _parse(_file(module))
    exported = _exported(tree)
    if exported is not None:
        return [each for each in exported if each != "__version__"]
    return [each for each in _definitions(tree) if not each.startswith("_")]


def undocumented(module: str) -> list[str]:
    """The public names of a module that have no docstring where they are defined."""
    return [name for name in names(module) if not _documented(module, name)]


def _file(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{module} is not there")
    return Path(spec.origin)


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            found: list[str] = ast.literal_eval(node.value)
            return found
    return None


def _definitions(tree: ast.Module) -> dict[str, bool]:
    """Names that a module defines itself, and whether each has a docstring."""
    found: dict[str, bool] = {}
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found[node.name] = ast.get_docstring(node) is not None
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(target, ast.Name) and target.id != "__all__":
                found[target.id] = text
    return found


def _documented(module: str, name: str) -> bool:
    tree = _parse(_file(module))
    defined = _definitions(tree)
    if name in defined:
        return defined[name]
    for node in ast.walk(tree):  # also below TYPE_CHECKING
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    inner = f"{node.module}.{alias.name}"
                    spec = importlib.util.find_spec(node.module)
                    if spec is not None and spec.submodule_search_locations is not None:
                        below = Path(spec.submodule_search_locations[0]) / f"{alias.name}.py"
                        if below.exists():
                            return ast.get_docstring(_parse(below)) is not None
                    return _documented(node.module, inner.rpartition(".")[2])
    return False
