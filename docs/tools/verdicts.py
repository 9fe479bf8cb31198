"""Tables of verdicts on the site: a mark for each, commands below their rows, and a picture of all.

The marks, the picture and its sentence come from the tables' own words, so that they cannot differ.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

HEADLINES = ("theirs", "headline, setting")  # heads of the tables whose rows are the claims
_COLUMNS = 3  # tables with fewer explain verdicts
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(?:td|th)[^>]*>(.*?)</(?:td|th)>", re.DOTALL)
_IN_PART = re.compile(r"\b(at|for|but|only|against|up to|with the|accuracy)\b")


class Verdict(NamedTuple):
    """A kind of verdict.

    Attributes:
        mark: before the words.
        words: in the picture and the sentence.
        name: of its style in innet.css.
    """

    mark: str
    words: str
    name: str


REPRODUCED = Verdict("✓", "reproduced", "reproduced")
IN_PART = Verdict("◐", "reproduced in part", "in-part")
DIRECTION = Verdict("→", "reproduced in direction only", "direction")
NOT = Verdict("✗", "not reproduced", "not")
UNJUDGED = Verdict("○", "not judged", "unjudged")
KINDS = (REPRODUCED, IN_PART, DIRECTION, NOT, UNJUDGED)


def verdict_of(text: str) -> Verdict | None:
    """The kind of a verdict in words; None where they are none."""
    said = re.sub(r"\(.*?\)", "", _plain(text)).strip().lower()
    for begin, kind in (
        ("not reproduced", NOT),
        ("not judged", UNJUDGED),
        ("direction", DIRECTION),
    ):
        if said.startswith(begin):
            return kind
    if "reproduced" not in said:
        return None
    return IN_PART if _IN_PART.search(said) else REPRODUCED


def has_verdicts(content: str) -> bool:
    """Whether a page has a table of verdicts, which is wide."""
    return any(_verdict_column(_heads(each)) is not None for each in _TABLE.findall(content))


def marked(content: str) -> str:
    """A page with a mark for each verdict, and with commands below their rows."""
    return _TABLE.sub(lambda found: _marked(found.group()), content)


def summary(content: str) -> str:
    """A sentence and a picture: how many claims have which verdict, by paper; "" without any."""
    claims: list[tuple[str, Verdict]] = []
    for table in _TABLE.findall(content):
        heads = _heads(table)
        column = _verdict_column(heads)
        if column is None or heads[1] not in HEADLINES:
            continue
        paper = ""
        for row in _rows(table):
            paper = _paper(row[0]) or paper
            if (kind := verdict_of(row[column])) is not None:
                claims.append((paper, kind))
    if not claims:
        return ""
    counts = Counter(kind for _, kind in claims)
    parts = [f"{counts[kind]} {kind.words}" for kind in KINDS if counts[kind]]
    said = f"Verdicts on {len(claims)} claims: {', '.join(parts)}."
    return f'<p class="verdicts">{said}</p>\n{_picture(claims, said)}\n'


def _marked(table: str) -> str:
    heads = _heads(table)
    column = _verdict_column(heads)
    if column is None:
        return table
    below = heads[-1] == "command"

    def row(found: re.Match[str]) -> str:
        cells = _CELL.findall(found.group(1))
        if "<th" in found.group(1):
            names = cells[:-1] if below else cells
            return f"<tr>{''.join(f'<th>{each}</th>' for each in names)}</tr>"
        kind = verdict_of(cells[column])
        if kind is not None:
            mark = f'<span class="verdict {kind.name}" title="{kind.words}">{kind.mark}</span> '
            cells[column] = mark + cells[column]
        shown = "".join(f"<td>{each}</td>" for each in (cells[:-1] if below else cells))
        if not below:
            return f"<tr>{shown}</tr>"
        command = f'<td class="command" colspan="{len(cells) - 1}">{cells[-1]}</td>'
        return f'<tr class="above">{shown}</tr>\n<tr class="below">{command}</tr>'

    return _ROW.sub(row, table)


def _heads(table: str) -> list[str]:
    return [_plain(each) for each in _CELL.findall(table.partition("</thead>")[0])]


def _rows(table: str) -> list[list[str]]:
    body = table.partition("</thead>")[2]
    return [_CELL.findall(each) for each in _ROW.findall(body)]


def _verdict_column(heads: Sequence[str]) -> int | None:
    if len(heads) < _COLUMNS:
        return None
    return next((at for at, each in enumerate(heads) if each.startswith("verdict")), None)


def _plain(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", text)).strip()


def _paper(cell: str) -> str:
    """The paper that a claim is of: what stands before the colon."""
    name = _plain(cell).partition(":")[0].strip()
    return "several codecs" if "," in name or name == "all" else name


def _picture(claims: Iterable[tuple[str, Verdict]], said: str) -> str:
    """A bar for each paper, with a box for each claim."""
    found: dict[str, list[Verdict]] = {}
    for paper, kind in claims:
        found.setdefault(paper, []).append(kind)
    papers = sorted(found, key=lambda paper: (paper == "several codecs", -len(found[paper])))
    box, left, line = 26, 150, 26
    width = left + box * max(20, *map(len, found.values()))
    height = line * (len(papers) + 1) + 8
    drawn = []
    for number, paper in enumerate(papers):
        top = number * line
        drawn.append(_text(left - 10, top + 18, html.escape(paper), 'text-anchor="end"'))
        for at, kind in enumerate(sorted(found[paper], key=KINDS.index)):
            drawn += _box(left + at * box, top, kind, box)
    left = 8
    for kind in KINDS:
        drawn += _box(left, height - line, kind, box)
        drawn.append(_text(left + box + 4, height - line + 18, kind.words, ""))
        left += box + 14 + 7 * len(kind.words)
    return (
        f'<svg class="verdicts" role="img" viewBox="0 0 {max(width, left)} {height}" '
        f'aria-label="{html.escape(said)}">{"".join(drawn)}</svg>'
    )


def _box(left: int, top: int, kind: Verdict, size: int) -> list[str]:
    return [
        f'<rect class="{kind.name}" x="{left}" y="{top + 1}" width="{size - 3}" '
        f'height="{size - 3}" rx="3"><title>{kind.words}</title></rect>',
        _text(left + size // 2 - 1, top + 18, kind.mark, 'class="mark" text-anchor="middle"'),
    ]


def _text(left: int, top: int, said: str, more: str) -> str:
    return f'<text x="{left}" y="{top}" {more}>{said}</text>'
