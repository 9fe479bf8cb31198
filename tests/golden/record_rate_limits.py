"""Record what simple_switch's queues with rates do to streams of packets: run this file.

Needs simple_switch on PATH, Thrift's library, and a machine that is not too busy: a stream is sent
again until simple_switch's threads were late for few packets. rate_limits.json is made by
``p4c-bm2-ss --std p4-16 rate_limits.p4``.
"""

from __future__ import annotations

import gzip
import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support import queue_scenarios  # noqa: E402 - found by the line above
from support.queue_scenarios import Scenario, ambiguities  # noqa: E402
from support.rate_limits import (  # noqa: E402
    COPIES,
    PROGRAM,
    RECORDED,
    STREAMS,
    Answer,
    Recorded,
    Stream,
    by_switch,
    compare,
    marked_packets,
    marking,
    parsed,
    summing,
)

from innet.bmv2 import simple_switch  # noqa: E402
from innet.switch.frontend.loader import fingerprint  # noqa: E402

ATTEMPTS = 6
FEW = 0.03
"""Of the packets, those that may have met a late thread."""


def record(stream: Stream) -> Recorded:
    """Send a stream through simple_switch."""
    packets = [(0, data) for data in stream.frames()]
    with simple_switch.open_session(
        json.loads(PROGRAM.read_text(encoding="utf-8")),
        packets,
        [*stream.ports, COPIES],
        priority_queues=stream.priorities,
    ) as session:
        session.commands(stream.commands())
        begun = time.monotonic()
        for milliseconds, _, _ in stream.packets:
            left = begun + milliseconds / 1e3 - time.monotonic()
            if left > 0:
                time.sleep(left)
            session.send(1)
        slowest = min(stream.rates.values())
        time.sleep(0.3 + stream.depth / slowest)
        session.play(0)
        departures = session.departures()
    arrivals = [0] * len(packets)
    answers: dict[int, Answer] = {}
    for port, sent in departures.items():
        for _, data in sent:
            number, answer, came = parsed(data)
            if port == COPIES:
                arrivals[number] = came
            else:
                answers[number] = answer
    assert all(arrivals), "a copy is missing"
    return Recorded(stream, arrivals, answers)


def _answers(scenario: Scenario) -> dict[int, list[tuple[int, str]]]:
    assert not ambiguities(scenario)
    sent = queue_scenarios.compare(scenario)
    return {port: [(time, data.hex()) for time, data in each] for port, each in sent.items()}


def main() -> None:
    streams = {}
    for name, make in STREAMS.items():
        tries = []
        for _ in range(ATTEMPTS):
            real = record(make())
            found = compare(real, by_switch(real.stream, real.arrivals))
            print(name, found.packets, found.equal, len(found.explained), found.unexplained)
            tries.append((found.packets - found.equal, real))
            if found.packets - found.equal <= FEW * found.packets:
                break
        streams[name] = min(tries, key=lambda each: each[0])[1].as_json()
    golden = {
        "simple_switch": simple_switch.version(),
        "fingerprint": fingerprint(json.loads(PROGRAM.read_text(encoding="utf-8"))),
        "streams": streams,
        "job": {"marking": _answers(marking()), "summing": _answers(summing(marked_packets()))},
    }
    text = json.dumps(golden, separators=(",", ":")).encode()
    RECORDED.write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
