"""The site of the documentation builds without a warning, and can be searched in a browser."""

from __future__ import annotations

import functools
import http.server
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.browser import opened

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "docs" / "tools"

# The processes of xdist would each build it.
pytestmark = [
    pytest.mark.xdist_group("site"),
    pytest.mark.timeout(600),
    pytest.mark.repeats("what test_docs finds in the pages, in the site that is built of them"),
]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site's folder."""
    for name in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; make setup-dev has it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """What a page loads: addresses of scripts, styles, images and frames."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "link" and given.get("rel") in {"stylesheet", "icon", "preconnect", "preload"}:
            self.found.append(given["href"])
        elif tag in {"script", "img", "iframe"} and "src" in given:
            self.found.append(given["src"])


def test_every_command_setting_and_public_name_has_an_entry(site):
    text = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    assert 'id="innet-allreduce"' in text["reference/commands.html"]
    assert 'id="innet-switch-explain"' in text["reference/commands.html"]
    assert "partial_after" in text["reference/configuration.html"]
    assert "max_abs_error_sent" in text["reference/records.html"]
    assert "slots-64" in text["reference/programs.html"]
    assert "innet_switch_packets_total" in text["reference/metrics.html"]
    assert 'id="innet.Collective.all_reduce"' in text["reference/api/innet.html"]
    assert 'id="innet.switch.Switch.process_batch"' in text["reference/api/innet.switch.html"]


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text())
        assert loads.found
        assert [each for each in loads.found if re.match(r"(https?:)?//", each)] == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:", style.read_text())
    for picture in site.rglob("*.svg"):
        assert not re.search(r"url\(['\"]?https?:", picture.read_text()), picture


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("reproduced", "reproduced"),
        ("reproduced (accuracy at most 1.0 points worse, on average)", "reproduced"),
        ("reproduced, within a factor of 1.5", "reproduced"),
        ("reproduced at 10 and 25 Gbit/s", "reproduced in part"),
        ("reproduced, but not against random draws", "reproduced in part"),
        ("accuracy reproduced; its rate counts other bytes", "reproduced in part"),
        ("direction only: our ring's hosts cost nothing", "reproduced in direction only"),
        ("not reproduced: plain sums also lose", "not reproduced"),
        ("not judged", "not judged"),
        ("in that table", None),
    ],
)
def test_verdicts_have_marks_by_their_words(monkeypatch, said, words):
    monkeypatch.syspath_prepend(str(TOOLS))
    kind = importlib.import_module("verdicts").verdict_of(f"<em>{said}</em>")
    assert (kind and kind.words) == words


def test_the_page_of_results_has_the_whole_width_and_one_picture_of_all_verdicts(site):
    text = (site / "results.html").read_text()
    assert 'class="wide"' in text
    assert re.search(r"md-sidebar--primary[^>]*hidden", text)
    assert re.search(r"md-sidebar--secondary[^>]*hidden", text)
    assert '<a href="#headlines-about-time">' in text.partition("<table>")[0]
    (said,) = re.findall(r'<p class="verdicts">(.*?)</p>', text)
    total, *counts = map(int, re.findall(r"\d+", said))
    assert total == sum(counts) > 30
    picture = re.search(r"<svg class=\"verdicts\".*?</svg>", text, re.DOTALL)[0]
    assert picture.count("<rect") == total + 5  # and the legend's
    assert f'aria-label="{said}"' in picture
    body = text[text.index('id="headlines"') : text.index('id="until-plain-sums')]
    assert body.count('<span class="verdict ') == total
    commands = re.findall(r'<tr class="below"><td class="command" colspan="5">(.*?)</td>', body)
    assert "<code>innet reproduce lhc --claim bytes</code>" in commands
    assert len(commands) == body.count('<tr class="above">') > 20
    assert 'class="wide"' not in (site / "training.html").read_text()


def test_undocumented_names_are_found(tmp_path, monkeypatch):
    """The build's check would notice one."""
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.syspath_prepend(str(tmp_path))
    api = importlib.import_module("api")

    (tmp_path / "sample_without.py").write_text(
        '__all__ = ["f", "g", "LIMIT"]\n\ndef f():\n    """F."""\n\ndef g(): ...\n\nLIMIT = 1\n'
    )
    assert api.undocumented("sample_without") == ["g", "LIMIT"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Without a line for each request."""

    def log_message(self, *_): ...


@pytest.fixture
def address(site):
    """The site over HTTP, on loopback: search runs in a worker, which files may not have."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def browser(tmp_path):
    with opened(tmp_path / "profile") as found:
        yield found


def test_navigation_and_search(address, browser):
    browser("POST", "url", {"url": f"{address}/index.html"})
    assert browser.run("return document.title").startswith("innet")
    # From the tab to a tutorial, and a figure is there.
    browser.run(
        "[...document.querySelectorAll('.md-tabs a')]"
        ".find(a => a.textContent.includes('Tutorials')).click()"
    )
    browser.until("return location.pathname.endsWith('tutorials/index.html')")
    browser.run("document.querySelector('.md-content a[href=\"first-all-reduce.html\"]').click()")
    browser.until("return location.pathname.endsWith('first-all-reduce.html')")
    figure = "const i = document.querySelector('.md-content img'); return i && i.naturalWidth"
    assert browser.until(figure) > 100
    # Search, and go to the first result.
    browser.run("document.querySelector('[data-md-component=search-query]').focus()")
    browser.run(
        "const q = document.querySelector('[data-md-component=search-query]');"
        "q.value = 'straggler'; q.dispatchEvent(new Event('input', {bubbles: true}));"
        "q.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))"
    )
    found = browser.until(
        "return [...document.querySelectorAll('.md-search-result__link')].map(a => a.href)"
        ".filter(a => a).join(' ')"
    )
    assert "simulate" in found
    browser.run("document.querySelector('.md-search-result__link').click()")
    browser.until("return document.body.innerText.toLowerCase().includes('straggler')")
    # On a phone nothing is wider than the page.
    browser("POST", "window/rect", {"width": 420, "height": 800})
    for page in ("index.html", "guide.html", "reference/commands.html", "reference/api/innet.html"):
        browser("POST", "url", {"url": f"{address}/{page}"})
        wide = "return document.documentElement.scrollWidth - window.innerWidth"
        assert browser.run(wide) <= 0, page
    # The last page has tables of parameters: no cell is out of sight to the right.
    browser.until("return document.querySelector('table[data-stacked]')")
    right = (
        "return Math.max(...[...document.querySelectorAll('table[data-stacked] td')]"
        ".map(cell => cell.getBoundingClientRect().right)) - window.innerWidth"
    )
    assert browser.run(right) <= 0
