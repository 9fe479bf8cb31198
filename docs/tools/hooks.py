"""MkDocs hooks: pages that are generated when the site is built, and links that leave docs/.

Generated pages come from what they describe: commands from the command line, settings and records
from their models, programs from p4/, metrics from their collector, the API from docstrings. Pages
of the checkout's root (ARCHITECTURE.md and the like) become pages of the site.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

TOOLS = Path(__file__).parent
ROOT = TOOLS.parents[1]
DOCS = TOOLS.parent
sys.path.insert(0, str(TOOLS))

import api  # noqa: E402 - beside this file, which MkDocs does not import as part of a package
import notebooks  # noqa: E402
import reference  # noqa: E402
import verdicts  # noqa: E402

PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
}
_HOMES = {uri: ROOT / name for name, uri in PROJECT.items() if uri != "index.md"}


def slugify(text: str, separator: str) -> str:
    """Name a heading as GitHub does, so that one link is right there and on the site."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set what YAML cannot say, and put the API's pages into the navigation."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify
    pages = [{module: uri} for module, uri in api.pages().items()]
    for section in config.nav or []:
        for entry in section.get("Reference") or []:
            if isinstance(entry, dict) and entry.get("Python") == "reference/api":
                entry["Python"] = pages
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for uri, path in _HOMES.items():
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for uri, text in {**reference.generate(), **api.generate()}.items():
        files.append(File.generated(config, uri, content=text))
    for path in sorted((DOCS / "tutorials").glob("*.py")):
        notebook = notebooks.to_ipynb(path.read_text())
        files.append(File.generated(config, f"tutorials/{path.stem}.ipynb", content=notebook))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links that leave docs/ to the pages of the site; to plain text where there is none."""
    uri = page.file.src_uri
    home = _HOMES.get(uri, DOCS / uri).parent
    return re.sub(
        r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#:\s]+)(#[^)]*)?\)",
        lambda found: _link(found, home, uri),
        markdown,
    )


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Give pages with tables of verdicts the whole width, marks, and a picture of all on top."""
    if not verdicts.has_verdicts(html):
        return html
    page.meta["hide"] = ["navigation", "toc"]
    links = " · ".join(
        f'<a href="{each.url}">{each.title}</a>' for each in page.toc.items[0].children
    )
    above = f'<p class="sections">{links}</p>\n{verdicts.summary(html)}'
    heading, end, rest = verdicts.marked(html).partition("</h1>")
    return f'<div class="wide">{heading}{end}{above}{rest}</div>'


def _link(found: re.Match[str], home: Path, uri: str) -> str:
    mark, text, target, anchor = found.group(1), found.group(2), found.group(3), found.group(4)
    path = Path(os.path.normpath(home / target))
    if path.is_relative_to(DOCS):
        there = path.relative_to(DOCS).as_posix()
    elif path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix() in PROJECT:
        there = PROJECT[path.relative_to(ROOT).as_posix()]
    elif path.exists():
        return text  # a file of the checkout: its name is the text
    else:
        return found.group(0)  # MkDocs reports it
    relative = os.path.relpath(there, Path(uri).parent).replace(os.sep, "/")
    return f"{mark}[{text}]({relative}{anchor or ''})"
