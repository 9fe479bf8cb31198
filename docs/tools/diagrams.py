"""The two diagrams, drawn as SVG: python docs/tools/diagrams.py

All text stands on a filled box, and lines are of a middle gray, so that both can be read on a light and
on a dark page.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

IMAGES = Path(__file__).parents[1] / "images"
LINE = "#7d8590"
# One color for each part, in both diagrams.
WORKER, CODEC, PROTOCOL, SWITCH, RESULT = "#2f6fb3", "#2b8a5c", "#7356b3", "#b3541e", "#4a5560"
FONT = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif"


class Drawing:
    """An SVG of that size in pixels."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'width="{width}" height="{height}" font-family="{FONT}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            f'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8Z" fill="{LINE}"/></marker></defs>',
        ]

    def box(self, at: tuple[int, int], size: tuple[int, int], color: str, *lines: str) -> None:
        """A box; the first line is its name, the others say what it does."""
        (x, y), (width, height) = at, size
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" fill="{color}"/>'
        )
        top = y + height / 2 - 8.5 * (len(lines) - 1) + 5
        for number, line in enumerate(lines):
            style = 'font-weight="600" font-size="15"' if number == 0 else 'font-size="12.5"'
            self._parts.append(
                f'<text x="{x + width / 2:g}" y="{top + 17 * number:g}" fill="#fff" '
                f'text-anchor="middle" {style}>{escape(line)}</text>'
            )

    def arrow(self, *points: tuple[int, int]) -> None:
        """A line through the points, with a head at the last."""
        path = " ".join(f"{x} {y}" for x, y in points)
        self._parts.append(
            f'<path d="M{path}" fill="none" stroke="{LINE}" stroke-width="2" marker-end="url(#end)"/>'
        )

    def text(self) -> str:
        """The SVG."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"


def system() -> str:
    """Workers, their codecs and clients, the switch, and the way back."""
    drawing = Drawing(900, 330, "innet: workers, codec, packets, and the P4 program on the switch")
    for worker in range(3):
        y = 15 + 85 * worker
        name = f"worker {worker + 1}"
        drawing.box((10, y), (150, 60), WORKER, name, "float32 gradient")
        drawing.box((195, y), (170, 60), CODEC, "codec", "float32 → int32 words")
        drawing.box((400, y), (170, 60), PROTOCOL, "slot client", "window, resending")
        drawing.arrow((160, y + 30), (193, y + 30))
        drawing.arrow((365, y + 30), (398, y + 30))
        drawing.arrow(
            (570, y + 30),
            (588, y + 30),
            (588, 130 + 10 * (worker - 1)),
            (628, 130 + 10 * (worker - 1)),
        )
    drawing.box(
        (630, 15),
        (260, 230),
        SWITCH,
        "switch",
        "a P4 program, compiled by p4c,",
        "on the built-in switch, or BMv2",
        "adds int32 values in slots",
    )
    drawing.arrow((760, 245), (760, 275))
    drawing.box((630, 277), (260, 42), RESULT, "results, by multicast")
    drawing.arrow((630, 298), (572, 298))
    drawing.box((400, 277), (170, 42), PROTOCOL, "summed words")
    drawing.arrow((400, 298), (367, 298))
    drawing.box((195, 277), (170, 42), CODEC, "decode")
    drawing.arrow((195, 298), (162, 298))
    drawing.box((10, 277), (150, 42), WORKER, "sum → optimizer")
    return drawing.text()


def packet() -> str:
    """The way of a chunk of values through the switch."""
    drawing = Drawing(900, 400, "a chunk's way through the switch and back")
    drawing.box(
        (10, 15), (205, 70), PROTOCOL, "chunk", "64 words, sequence 9;", "window 8: slot 0, copy 1"
    )
    drawing.box(
        (240, 15), (205, 70), PROTOCOL, "frame", "Ethernet, IPv4, UDP,", "innet header, 64 values"
    )
    drawing.box(
        (470, 15), (205, 70), SWITCH, "parser", "headers, checksum", "damaged: dropped, counted"
    )
    drawing.box(
        (700, 15),
        (190, 70),
        SWITCH,
        "admission",
        "table: port, job, epoch,",
        "worker → worker's bit",
    )
    for x in (215, 445, 675):
        drawing.arrow((x, 50), (x + 23, 50))
    drawing.arrow((795, 85), (795, 118))
    drawing.box(
        (700, 120), (190, 80), SWITCH, "sequence", "newer: the slot is new", "older: stale, dropped"
    )
    drawing.box(
        (470, 120), (205, 80), SWITCH, "bitmap", "worker seen before?", "then only read the slot"
    )
    drawing.box(
        (240, 120), (205, 80), SWITCH, "value registers", "replace, or add", "64 int32 at one index"
    )
    drawing.box(
        (10, 120),
        (205, 80),
        SWITCH,
        "complete?",
        "all bits of the job set",
        "no: the packet ends here",
    )
    for x in (700, 470, 240):
        drawing.arrow((x, 160), (x - 23, 160))
    drawing.arrow((112, 200), (112, 233))
    drawing.box((10, 235), (205, 70), RESULT, "multicast", "one copy to each worker", "of the job")
    drawing.box((240, 235), (205, 70), SWITCH, "egress, deparser", "addresses, checksum")
    drawing.box(
        (470, 235), (205, 70), PROTOCOL, "slot client", "chunk 9 is done:", "the slot's next chunk"
    )
    drawing.box(
        (700, 235), (190, 70), CODEC, "codec", "decodes when all chunks", "of the round are there"
    )
    for x in (215, 445, 675):
        drawing.arrow((x, 270), (x + 23, 270))
    drawing.box(
        (10, 335),
        (880, 48),
        RESULT,
        "lost on the way?",
        "No result within the time-out: the worker sends the chunk again. The bitmap keeps it from being added twice.",
    )
    return drawing.text()


def main() -> None:
    """Write both."""
    for draw in (system, packet):
        (IMAGES / f"{draw.__name__}.svg").write_text(draw())


if __name__ == "__main__":
    main()
