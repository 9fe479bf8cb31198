"""Records as one HTML page that needs nothing else: no scripts, no fonts, no other files."""

from __future__ import annotations

import html
import importlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from innet.core.errors import InputError, MissingToolError
from innet.core.files import atomic_write
from innet.records import Record, ReproductionRecord, SimulationRecord, SweepRecord, units
from innet.reports import registry as reports
from innet.reports import tables
from innet.reports.columns import Column, make_table
from innet.reports.plots import new_figure

# Black and near-black of plots become the page's color of text.
_INKS = re.compile(r"#(?:000000|333333)\b")
_POINTS_PER_PIXEL = 0.75
_LEAST = 0.65  # of a plot's width, below which its letters are too small to read
_EMPTY: tuple[Any, ...] = ((), [], {}, "")
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --faint: #666; --line: #d6d6d6;
  --shade: #f5f5f3; --link: #0058a3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e6e3; --paper: #17191c; --faint: #a5a5a5;
  --line: #3c4043; --shade: #212428; --link: #8cc4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 3rem;
  padding-top: 1rem; border-top: 1px solid var(--line); } h3 { font-size: 1.05rem; }
a { color: var(--link); } .faint { color: var(--faint); }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .92rem; }
caption { text-align: left; color: var(--faint); padding-bottom: .4rem; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; font-variant-numeric: tabular-nums; }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom; white-space: pre-line; }
tbody th { font-weight: normal; } .right { text-align: right; white-space: nowrap; }
.faint + h3 { margin-top: 1.5rem; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
details { margin: .5rem 0; } summary { cursor: pointer; }
caption { white-space: normal; }
.about td, .about th { overflow-wrap: anywhere; } .about th { color: var(--faint); }
figure { margin: 1rem 0; } figure svg { display: block; width: 100%; height: auto; }
figure svg text { fill: currentColor; }
pre { overflow-x: auto; background: var(--shade); border: 1px solid var(--line);
  border-radius: .3rem; padding: .7rem .9rem; font-size: .88rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.failed { border-left: 4px solid #d55e00; padding-left: .8rem; }
@media print { h2 { break-before: page; } .scroll { overflow: visible; } }
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record on a page.

    Attributes:
        name: of its file.
        record: what it holds.
        command: what makes the record again; "" if that is not known.
    """

    name: str
    record: Record
    command: str = ""


def write_html(entries: Sequence[Entry], path: str | Path) -> None:
    """Write the page of some records.

    Raises:
        InputError: there is no record, or one that cannot be drawn.
        OutputError: the file cannot be written.
    """
    text = page(entries)
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(entries: Sequence[Entry]) -> str:
    """The page of some records: for each its results, plot, settings and how to make it again.

    Raises:
        InputError: as ``write_html``.
    """
    if not entries:
        raise InputError("name at least one record for the page.")
    titles = [title_of(entry.record) for entry in entries]
    title = titles[0] if len(titles) == 1 else f"{len(titles)} records of innet"
    body = [f"<h1>{_text(title)}</h1>"]
    if len(entries) > 1:
        links = (
            f'<li><a href="#record-{number}">{_text(each)}</a></li>'
            for number, each in enumerate(titles, 1)
        )
        body += ["<nav><ol>", *links, "</ol></nav>", *_comparison(entries), *_claims(entries)]
    for number, (entry, each) in enumerate(zip(entries, titles, strict=True), 1):
        body.append(f'<section id="record-{number}">')
        if len(entries) > 1:
            body.append(f"<h2>{_text(each)}</h2>")
        body += [*_section(entry, number), "</section>"]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{_text(title)}</title>",
            f"<style>{_STYLE}</style>",
            "</head>",
            "<body>",
            "<main>",
            *body,
            "</main>",
            "</body>",
            "</html>",
            "",
        ]
    )


def title_of(record: Record) -> str:
    """What a record is, in a line."""
    if isinstance(record, SimulationRecord):
        what = record.model or f"all-reduce of {record.elements:,} elements"
        return f"{what}, {units.plural(record.workers, 'worker')}, {record.report.codec}"
    if isinstance(record, SweepRecord):
        names = " and ".join(axis.name for axis in record.axes)
        return f"Sweep over {names}: {units.plural(len(record.points), 'point')}"
    kind = record.format.removeprefix("innet.")
    subject = record.settings.get("title") or getattr(record, "codec", "")
    return f"{kind.capitalize()}: {subject}" if subject else kind.capitalize()


def _section(entry: Entry, number: int) -> Iterator[str]:
    record = entry.record
    yield f'<p class="faint">{_text(entry.name)}, {record.created:%Y-%m-%d %H:%M} UTC</p>'
    if isinstance(record, SweepRecord) and record.failures:
        yield '<div class="failed"><p>These points failed:</p><ul>'
        yield from (f"<li>{_text(line)}</li>" for line in tables.failures(record))
        yield "</ul></div>"
    yield "<h3>Results</h3>"
    for position, table in enumerate(_tables(reports.table_of(record))):
        yield _table(table, "Results" if position == 0 else f"Results, part {position + 1}")
    try:
        yield _plot(entry, number)
    except MissingToolError as error:
        yield f'<p class="faint">No plot was drawn: {_text(str(error))}</p>'
    if entry.command:
        yield "<h3>How to repeat it</h3>"
        yield f"<pre><code>{_text(entry.command)}</code></pre>"
    yield "<h3>Settings</h3>"
    yield from _folded(record.settings, "Settings of the run")
    if isinstance(record, SimulationRecord):
        yield from _folded(record.network, "All settings of the network")
    machine = {"innet": record.innet, **record.machine.model_dump()}
    yield from _folded(machine, "Version and machine")


def _comparison(entries: Iterable[Entry]) -> Iterator[str]:
    """The simulations in one table, where there are several."""
    found = [each.record for each in entries if isinstance(each.record, SimulationRecord)]
    if len(found) < 2:
        return
    columns: list[Column[SimulationRecord]] = [
        Column("run", lambda each: Text(title_of(each)), "left"),
        Column("iteration", lambda each: units.duration(each.iteration_seconds)),
        Column(
            "network", lambda each: units.duration(each.simulated.seconds / len(each.iterations))
        ),
        Column("goodput, Gbit/s", lambda each: f"{each.simulated.goodput_gbps:.4g}"),
        Column("dropped", lambda each: units.count(each.simulated.dropped)),
        Column("sent again", lambda each: units.count(each.simulated.retransmissions)),
        Column("exact", lambda each: "yes" if each.exact else "no"),
    ]
    caption = "Means of an iteration; dropped and repeated packets of the whole run."
    table = make_table(found, columns, caption=caption)
    yield "<h3>Simulations side by side</h3>"
    yield _table(table, "Simulations side by side")


def _claims(entries: Iterable[Entry]) -> Iterator[str]:
    """The claims of all papers in one table, where there are several."""
    found = [each.record for each in entries if isinstance(each.record, ReproductionRecord)]
    if len(found) < 2:
        return
    yield "<h3>All claims</h3>"
    yield _table(tables.claims_table(found), "All claims")


# ----------------------------------------------------------------------------
# Tables.


def _tables(shown: Table | Group) -> list[Table]:
    if isinstance(shown, Table):
        return [shown]
    return [each for each in shown.renderables if isinstance(each, Table)]


def _table(table: Table, label: str) -> str:
    """A table of the terminal as one of HTML. Its first column names the rows."""
    # Without a head, rows are names and values: text as well as numbers.
    right = [table.show_header and each.justify == "right" for each in table.columns]
    sides = [' class="right"' if each else "" for each in right]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    said = ". ".join(filter(None, [_plain(table.title), _plain(table.caption)]))
    caption = f"<caption>{_text(said)}</caption>"
    if not said:  # the heading above says it already
        caption = f'<caption class="unseen">{_text(label)}</caption>'
    lines = [f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(label)}">']
    lines += ["<table>", caption]
    if table.show_header:
        cells = (
            f'<th scope="col"{side}>{_text(_plain(each.header))}</th>'
            for side, each in zip(sides, table.columns, strict=True)
        )
        lines += ["<thead><tr>", *cells, "</tr></thead>"]
    lines.append("<tbody>")
    for first, *others in rows:
        cells = (
            f"<td{side}>{_text(_plain(cell))}</td>"
            for side, cell in zip(sides[1:], others, strict=True)
        )
        lines.append(
            f'<tr><th scope="row"{sides[0]}>{_text(_plain(first))}</th>{"".join(cells)}</tr>'
        )
    return "\n".join([*lines, "</tbody>", "</table>", "</div>"])


def _plain(cell: Any) -> str:
    """What a cell says, without markup."""
    if cell is None:
        return ""
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell), emoji=False).plain


def _folded(values: Mapping[str, Any], label: str) -> Iterator[str]:
    """Names and values that a reader unfolds; those that are not set are left out."""
    known = {key: each for key, each in values.items() if each is not None and each not in _EMPTY}
    yield f"<details><summary>{_text(label)}</summary>"
    yield _pairs(known, label)
    yield "</details>"


def _pairs(values: Mapping[str, Any], label: str) -> str:
    rows = (
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(_value(value))}</td></tr>'
        for name, value in values.items()
    )
    return "\n".join(
        [
            f'<div class="scroll" role="region" tabindex="0" aria-label="{_text(label)}">',
            f'<table class="about"><caption>{_text(label)}</caption><tbody>',
            *rows,
            "</tbody></table></div>",
        ]
    )


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_value(each)}" for key, each in value.items())
    return units.setting(value)


def _text(text: str) -> str:
    return html.escape(text)


# ----------------------------------------------------------------------------
# Plots.


def _plot(entry: Entry, number: int) -> str:
    """The plot of a record as SVG inside the page, in the page's colors."""
    new_figure(1, 1)  # MissingToolError without matplotlib
    look = {
        "savefig.transparent": True,
        "svg.fonttype": "none",
        "svg.hashsalt": "innet",  # the same names of parts in each run
        "legend.framealpha": 0.0,
    }
    with (
        importlib.import_module("matplotlib").rc_context(look),
        tempfile.TemporaryDirectory() as at,
    ):
        path = Path(at, "plot.svg")
        reports.draw(entry.record, path)
        drawn = path.read_text(encoding="utf-8")
    label = f"Plot of {title_of(entry.record)}; the numbers are in the tables"
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="Plot">\n<figure>\n'
        f"{_inline(drawn, f'plot-{number}-', label)}\n</figure>\n</div>"
    )


def _inline(svg: str, prefix: str, label: str) -> str:
    """An SVG file as an element of a page.

    Args:
        svg: the file.
        prefix: of all its ids, which must differ from those of other plots.
        label: what it shows.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    svg = _INKS.sub("currentColor", svg)
    head, _, rest = svg.partition(">")
    box = re.search(r'viewBox="0 0 ([\d.]+) [\d.]+"', head)
    assert box is not None
    width = float(box[1]) / _POINTS_PER_PIXEL
    style = f"min-width: {_LEAST * width:.0f}px; max-width: {width:.0f}px"
    return f'<svg role="img" aria-label="{_text(label)}" {box[0]} style="{style}">{rest}'.strip()
