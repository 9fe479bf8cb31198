"""``innet help``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import UnknownNameError
from innet.core.settings import TrainSettings
from innet.experiments.models.model import MODELS

PAGES = {each.stem for each in Path("docs").glob("*.md")} - {"index", "gallery"}


def shown(*topic):
    result = CliRunner().invoke(app, ["help", *topic], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_all_pages_are_listed():
    listed = {line.split()[0] for line in shown().splitlines()[1:] if line.strip()}
    assert listed == PAGES


@pytest.mark.repeats(
    "the same with other pages", but=["slots", "guide", "codecs", "pytorch", "mininet", "simulate"]
)
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
    assert any(line.startswith("innet help switch: ") for line in shown("queues").splitlines())


@pytest.mark.parametrize("words", [["straggler"], ["STRAGGLER", "pause"], ["partial_after"]])
def test_words_of_the_text_are_found_with_a_line(words):
    lines = shown(*words).splitlines()
    assert lines[0].startswith("innet help ")
    assert any(word.casefold() in lines[1].casefold() for word in words)
    assert lines[1].startswith("  ")


def test_the_line_that_explains_a_word_comes_first():
    row, cells, first, line = shown("straggler").splitlines()[:4]
    assert row == "innet help own-training: Networks and times of computing"
    assert cells.startswith("  | `straggler`, `pauses` |")
    assert first == "innet help simulate: An iteration"
    assert line.startswith("  **Stragglers** (`--straggler`) are workers that compute longer.")


def test_sections_whose_heading_has_the_word_come_first():
    heads = [line for line in shown("slots").splitlines() if line.startswith("innet help ")]
    assert not heads  # that is a page
    heads = [line for line in shown("codec").splitlines() if line.startswith("innet help ")]
    assert len(heads) == 10
    has = ["codec" in line.casefold() for line in heads]
    assert has == sorted(has, reverse=True)
    assert "more sections" in shown("codec").splitlines()[-1]


def test_the_models_that_train_names_are_all_there_are():
    said = " ".join(TrainSettings.model_fields["model"].description.split())
    assert set(MODELS) <= set(re.findall(r"[\w-]+", said))
    text = (Path("docs") / "training.md").read_text()
    assert all(f"| `{name}` |" in text for name in MODELS)


def test_an_unknown_topic_is_refused_by_name():
    with pytest.raises(UnknownNameError, match="Did you mean 'slots'"):
        CliRunner().invoke(app, ["help", "slotz"], catch_exceptions=False)
