"""``innet help``: the pages of the documentation in the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from innet.core.errors import UnknownNameError

_PACKAGE = Path(__file__).parents[1]
_SITE_ONLY = {"index", "gallery"}  # they lead to pages and show figures


def help_topic(
    ctx: typer.Context,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Argument(help="A page, a command, or a word of a heading. Without it: all pages."),
    ] = None,
) -> None:
    """Show a page of the documentation, a command's help, or where a word is explained."""
    from rich.markdown import Markdown

    from innet.cli.output import out

    if not topic:
        out.print(_table())
        return
    name = " ".join(topic)
    found = _pages()
    if name in found:
        with out.pager(styles=True) if out.is_terminal else nullcontext():
            out.print(Markdown(_for_terminal(found[name].read_text(encoding="utf-8"))))
    elif (command := _command_of(ctx, topic)) is not None:
        typer.echo(command.command.get_help(command), nl=False)  # Typer has printed it with Rich
    elif places := list(_headings(name)):
        for page, heading in places:
            out.print(f"innet help {page:14} {heading}", markup=False, highlight=False)
    else:
        raise UnknownNameError("topic", name, {*found})


def _pages() -> dict[str, Path]:
    """The pages by name: those of the wheel, or of the checkout."""
    inside = _PACKAGE / "docs"
    folder = inside if inside.is_dir() else _PACKAGE.parent / "docs"
    return {each.stem: each for each in sorted(folder.glob("*.md")) if each.stem not in _SITE_ONLY}


def _table() -> Any:
    from rich.table import Table

    table = Table("topic", "page", box=None, header_style="bold", pad_edge=False)
    for name, path in _pages().items():
        with path.open(encoding="utf-8") as file:
            title = file.readline().lstrip("# ").strip()
        table.add_row(name, title)
    return table


def _headings(word: str) -> Iterator[tuple[str, str]]:
    """Pages and their headings that contain a word."""
    for name, path in _pages().items():
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
            if word.casefold() in heading.casefold():
                yield name, heading


def _for_terminal(text: str) -> str:
    """Without figures, and with links to pages as commands."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n*", "", text)
    text = re.sub(r"\[([^\]]*)\]\((?:https?:[^)]*)\)", r"\1", text)
    return re.sub(r"\[([^\]]*)\]\(([\w-]*)(?:\.md)?(?:#[^)]*)?\)", _reference, text)


def _reference(found: re.Match[str]) -> str:
    text, page = found.group(1), found.group(2)
    return f"{text} (`innet help {page}`)" if page in _pages() else text


def _command_of(ctx: typer.Context, words: list[str]) -> typer.Context | None:
    """The context of a command by its words; None if there is no such command."""
    context: Any = ctx.find_root()
    for word in words:
        command = getattr(context.command, "commands", {}).get(word)
        if command is None:
            return None
        context = type(context)(command, parent=context, info_name=word)
    found: typer.Context = context
    return found
