"""``innet help``: the pages of the documentation in the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from innet.core.errors import UnknownNameError

_PACKAGE = Path(__file__).parents[1]
_MOST = 10  # sections that a word is shown in
_SITE_ONLY = {"index", "gallery"}  # they lead to pages and show figures


def help_topic(
    ctx: typer.Context,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Argument(help="A page, a command, or words to look for. Without it: all pages."),
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
    elif places := _places(topic):
        for page, heading, line in places[:_MOST]:
            _say(f"innet help {page}: {heading}", style="bold")
            _say(f"  {line}")
        if len(places) > _MOST:
            _say(f"and {len(places) - _MOST} more sections")
    else:
        raise UnknownNameError("topic", name, {*found})


def _say(text: str, style: str | None = None) -> None:
    from innet.cli.output import out

    out.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


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


def _places(words: list[str]) -> list[tuple[str, str, str]]:
    """Sections with all of the words, the best first: page, heading, and a line with a word."""
    wanted = [word.casefold() for word in words]
    found = []
    for page, path in _pages().items():
        for heading, lines in _sections(path.read_text(encoding="utf-8")):
            text = "\n".join([heading, *lines]).casefold()
            if all(word in text for word in wanted):
                worth = [_worth(line.casefold(), wanted) for line in lines]
                best = max(worth, default=0)
                line = lines[worth.index(best)] if best else next(filter(None, lines), "")
                named = sum(word in f"{page} {heading}".casefold() for word in wanted)
                found.append(((named, best, sum(worth)), (page, heading, line)))
    found.sort(key=itemgetter(0), reverse=True)
    return [place for _, place in found]


def _worth(line: str, wanted: list[str]) -> int:
    """How many of the words a line has; a bold word, or one of a table's first column, counts more
    at the begin, as it is explained there.
    """
    begin = line.lstrip("*|-` ")
    return sum((word in line) + (begin != line and begin.startswith(word)) for word in wanted)


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Headings, and the lines below each. A # in an example is none."""
    heading, lines, is_code = "", list[str](), False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        if line.startswith("#") and not is_code:
            if heading:
                yield heading, lines
            heading, lines = line.lstrip("# "), []
        elif not line.startswith("```"):
            lines.append(_for_terminal(line).strip())
    yield heading, lines


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
