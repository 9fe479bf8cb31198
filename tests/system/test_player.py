"""The player in a browser: it loads, plays, steps, scrubs, and shows a packet's headers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from innet.cli.app import app
from innet.sim import Testbed as Bed
from innet.sim.flows import udp_frame
from tests.support.browser import CHROMIUM, opened

pytestmark = pytest.mark.xdist_group("player")

ROOT = Path(__file__).parents[2]
L3 = ROOT / "benchmarks/programs/l3.json"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page of a small run: three hosts at a router; one of the links loses packets."""
    if not (CHROMIUM and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed; apt install chromium-driver")
    folder = tmp_path_factory.mktemp("player")
    routes = [f"table_add routes route 10.0.0.{i}/32 => {i}" for i in (1, 2, 3)]
    routes += [
        f"table_add next_hops forward {i} => {i} 02:00:00:00:ff:01 02:00:00:00:00:0{i}"
        for i in (1, 2, 3)
    ]
    bed = Bed("10g", seed=5)
    router = bed.switch("</script>", L3, commands=routes)
    hosts = [bed.host(f"h{i}") for i in (1, 2, 3)]
    for port, host in enumerate(hosts, start=1):
        bed.link(host, router, port=port, loss=0.2 if port == 3 else 0.0)
    for source in (1, 2):
        bed.packets(hosts[source], udp_frame(source, 0, 400), interval=4e-7, packets=30)
    bed.record()
    bed.run()
    bed.save(folder / "run.json")
    found = CliRunner().invoke(app, ["view", str(folder / "run.json")])
    assert found.exit_code == 0, found.output
    assert f"page: {folder / 'run.html'}" in found.stdout.replace("\n", "")
    return folder / "run.html"


@pytest.fixture(scope="module")
def chromium(page, tmp_path_factory):
    with opened(tmp_path_factory.mktemp("profile"), "1400,1000") as found:
        yield found


@pytest.fixture
def browser(page, chromium):
    """The page as it is when it was loaded."""
    chromium("POST", "url", {"url": page.as_uri()})
    chromium.until("return document.documentElement.dataset.ready === 'yes'")
    yield chromium
    assert chromium.errors() == []


def press(browser, key):
    browser.run(f"dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', cancelable: true}}))")


def test_it_plays_steps_and_scrubs(browser):
    assert "packets in" in browser.run("return document.getElementById('about').textContent")
    assert browser.run("return view.time === run.begin")
    # One event after the other, there and back.
    times = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        press(browser, key)
        times.append(browser.run("return view.time"))
    assert times[0] < times[1] < times[2]
    assert times[3] == times[1]
    assert times[:3] == browser.run("return [...run.events.slice(1, 4)]")
    # Playing goes on to the end; the bar follows.
    browser.run("setSpeed(8)")
    press(browser, " ")
    assert browser.run("return document.getElementById('play').textContent") == "Pause"
    browser.until("return view.time === run.end && !view.playing")
    assert browser.run("return document.getElementById('scrub').value") == "10000"
    scrub = "const bar = document.getElementById('scrub'); bar.value = 5000;"
    browser.run(scrub + "bar.dispatchEvent(new Event('input'))")
    assert browser.run("return run.begin < view.time && view.time < run.end && !view.playing")


def test_a_packet_shows_its_headers_and_where_it_is_next(browser):
    row = browser.run(
        "const row = run.fate.findIndex((fate, row) => fate === 1 && run.link[row] % 2 === 0);"
        "goTo(run.time[row] + run.flight[row] / 2);"
        "const dot = view.dots.find((each) => each.row === row);"
        "const box = document.getElementById('net').getBoundingClientRect();"
        "document.getElementById('net').dispatchEvent(new MouseEvent('click',"
        " {clientX: box.left + dot.x, clientY: box.top + dot.y}));"
        "return row"
    )
    detail = "return document.getElementById('detail').innerText"
    shown = browser.run(detail)
    assert f"Packet {row}" in shown
    for text in ("Way through </script>", "table L3Ingress.routes: hit entry 0", "sent to port 1"):
        assert text in shown
    for text in ("ipv4", "10.0.0.1", "02:00:00:00:00:01", "442 bytes", "passed on"):
        assert text in shown
    # Its next hop is the packet that it caused.
    browser.run("[...document.querySelectorAll('#detail button')].at(-1).click()")
    following = browser.run("return view.selected")
    assert browser.run(f"return run.cause[{following}]") == row
    assert "</script>:1 → h1" in browser.run(detail)
    assert "waited" in browser.run(detail)
    press(browser, "Escape")
    assert "packets put onto links" in browser.run(detail)


def test_queues_and_losses_are_seen(browser):
    assert browser.run(
        "const queue = run.queues.find((each) => each && each.most);"
        "const at = queue.enters.findIndex((time) => run.depth(queue, time) === queue.most);"
        "goTo(queue.enters[at]); return run.depth(queue, view.time)"
    ) > 0  # fmt: skip
    assert browser.run("return document.querySelectorAll('.chart').length") == 1
    # Where a packet is lost, a pixel has the color of losses.
    assert browser.run(
        "const [when, row] = run.seen.find((each) => each[2] === 4);"
        "pause(); goTo(when); const {x, y} = pointOf(wires[run.link[row]], 0.5);"
        "const pixel = stage.pen.getImageData(x, y, 1, 1).data;"
        "const probe = stage.pen; probe.fillStyle = colors.bad; probe.fillRect(0, 0, 1, 1);"
        "const red = probe.getImageData(0, 0, 1, 1).data;"
        "return Math.abs(pixel[0] - red[0]) + Math.abs(pixel[1] - red[1]) < 40"
    )


@pytest.mark.parametrize("width", [900, 1400])
def test_it_is_no_wider_than_the_window(browser, width):
    browser("POST", "window/rect", {"width": width, "height": 900})
    browser.until(f"return innerWidth <= {width} && stage.width <= {width}")
    wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.run(wide) <= 0
