"""``innet help``."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import UnknownNameError

PAGES = {each.stem for each in Path("docs").glob("*.md")} - {"index", "gallery"}


def shown(*topic):
    result = CliRunner().invoke(app, ["help", *topic], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_all_pages_are_listed():
    listed = {line.split()[0] for line in shown().splitlines()[1:] if line.strip()}
    assert listed == PAGES


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_is_shown_without_figures_and_addresses(page):
    text = shown(page)
    title = (
        (Path("docs") / f"{page}.md").read_text().partition("\n")[0].lstrip("# ").replace("`", "")
    )
    assert title.split()[0] in text
    assert "![" not in text
    assert "](" not in text.replace("[mode](", "")


def test_links_name_the_command_that_shows_the_page():
    assert "(innet help guide)" in " ".join(shown("slots").split())


def test_a_command_shows_its_help():
    assert "--packet" in shown("switch", "explain")
    assert "innet switch explain" in shown("switch", "explain")


def test_a_word_of_headings_lists_where_it_is():
    lines = shown("queues").splitlines()
    assert any(line.startswith("innet help switch ") for line in lines)


def test_an_unknown_topic_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'slots'"):
        CliRunner().invoke(app, ["help", "slotz"], catch_exceptions=False)
