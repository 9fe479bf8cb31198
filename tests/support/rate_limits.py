"""Streams of packets through queues with a rate: simple_switch, the built-in switch, a simulation.

A packet says when simple_switch received it and what it saw of its queue (rate_limits.p4). Its
arrivals are given to innet, and the answers compared packet by packet. Rates are hundreds of
packets a second, so simple_switch's threads, which wake up up to some milliseconds late, change the
order of some events. Whether they did is known, as packets also say when they left: ``Queue``
repeats the arithmetic with these moments.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from innet.core.engines import EngineName
from innet.core.packets import PacketBatch
from innet.core.reduce_op import ReduceOp
from innet.scenarios.traffic import simulate_traffic
from innet.switch import Switch
from innet.tools.captures import CaptureReader
from innet.topology import Plan, Request, make_plan
from innet.wire import pack
from support.queue_scenarios import Scenario, Step, play_built_in

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "rate_limits"
PROGRAM = FOLDER / "rate_limits.json"
RECORDED = FOLDER / "simple_switch.json.gz"
COPIES = 9
WIRE_BITS = 8 * (60 + 24)  # of these packets, which are padded
MICROSECOND = 1000  # nanoseconds
ECT, CE = 2, 3


class Seen(NamedTuple):
    """What a packet tells behind its queue.

    Attributes:
        enq_qdepth, deq_qdepth: packets in its queue when it came and when it left.
        marked: it says "congestion experienced".
    """

    enq_qdepth: int
    deq_qdepth: int
    marked: bool


class Answer(NamedTuple):
    """What became of a packet that was not dropped; microseconds."""

    seen: Seen
    enqueued: int
    waited: int


@dataclass(frozen=True)
class Stream:
    """Packets and the queues that they meet.

    Attributes:
        rates: packets per second by port and priority.
        depth: packets that a queue holds.
        threshold: packets in a queue that mark those that come then.
        packets: (milliseconds, port, priority) of each.
    """

    rates: dict[tuple[int, int], int]
    depth: int
    threshold: int
    packets: list[tuple[float, int, int]]

    @property
    def priorities(self) -> int:
        return 1 + max(priority for _, priority in self.rates)

    @property
    def ports(self) -> list[int]:
        return sorted({port for port, _ in self.rates})

    def commands(self) -> list[str]:
        return [
            f"mirroring_add 1 {COPIES}",
            f"register_write E.threshold 0 {self.threshold}",
            *(f"set_queue_depth {self.depth} {port}" for port in self.ports),
            *(
                f"set_queue_rate {rate} {port} {priority}"
                for (port, priority), rate in self.rates.items()
            ),
        ]

    def frames(self) -> list[bytes]:
        return [
            _frame(number, port, priority)
            for number, (_, port, priority) in enumerate(self.packets)
        ]


def _frame(number: int, port: int, priority: int) -> bytes:
    header = bytes([0x45, priority << 5 | ECT]) + (40).to_bytes(2, "big")
    header += number.to_bytes(2, "big") + bytes([0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, port])
    return bytes.fromhex("0200000000010200000000020800") + header + bytes(20)


# ── Streams ──


def bursts() -> Stream:
    """Bursts half-way between two departures, of more packets than leave until the next: of 14 the
    queue lets 12 leave, and holds 16."""
    times = [104 + 96 * burst + 0.02 * number for burst in range(20) for number in range(14)]
    return Stream({(1, 0): 125}, 16, 8, [(time, 1, 0) for time in [100.0, *times]])


def constant() -> Stream:
    """Twice as many packets as leave: what is dropped is every other one, in the end."""
    return Stream({(1, 0): 100}, 20, 10, [(100 + 5.3 * n, 1, 0) for n in range(300)])


def poisson() -> Stream:
    """As many packets as leave, by chance."""
    times = 100 + np.cumsum(np.random.default_rng(1).exponential(8.0, 300))
    return Stream({(1, 0): 125}, 10, 4, [(float(time), 1, 0) for time in times])


def ports() -> Stream:
    """Two ports with rates of their own."""
    rng = np.random.default_rng(2)
    times = 100 + np.cumsum(rng.exponential(4.0, 400))
    return Stream(
        {(1, 0): 80, (2, 0): 150},
        12,
        5,
        [(float(time), int(rng.integers(1, 3)), 0) for time in times],
    )


def priorities() -> Stream:
    """Four priorities, each with a queue and a rate of its own."""
    rng = np.random.default_rng(3)
    times = 100 + np.cumsum(rng.exponential(4.0, 500))
    rates = {(1, 0): 20, (1, 1): 40, (1, 2): 60, (1, 3): 80}
    return Stream(rates, 8, 3, [(float(time), 1, int(rng.integers(4))) for time in times])


STREAMS: dict[str, Callable[[], Stream]] = {
    each.__name__: each for each in (bursts, constant, poisson, ports, priorities)
}
SIMULATED = ("bursts", "constant", "poisson")
"""Those with one queue: a simulated link serves its priorities one after the other."""


# ── A job's packets ──

_WORKERS, _SLOTS = 3, 8
_SENDER = 29  # the last byte of the source's address is the worker's port


def marking() -> Scenario:
    """Contributions of three workers, in bursts, through a slow queue that marks (ecn.p4)."""
    chunks = [*range(5)], [5, 6, 7]
    return Scenario(
        "ecn",
        (
            "table_add EcnIngress.routes EcnIngress.forward 10.0.0.0/8 => 9",
            "register_write EcnEgress.threshold 0 6",
            "set_queue_rate 8 9",
            "set_queue_depth 13 9",
        ),
        tuple(
            Step(at, tuple(packet for chunk in each for packet in _contributions(chunk)))
            for at, each in zip((50, 1187), chunks, strict=True)
        ),
        ports=(9,),
    )


def marked_packets() -> list[tuple[int, bytes]]:
    """What leaves there, nanoseconds and bytes."""
    sent, _ = play_built_in(marking(), "interpret")
    return sent[9]


def summing(marked: list[tuple[int, bytes]]) -> Scenario:
    """What left there, at a switch that sums (slots.p4), whose results wait in slow queues.

    Args:
        marked: nanoseconds and bytes.
    """
    rates = ("set_queue_rate 2 1", "set_queue_depth 1 1", "set_queue_rate 2 2")
    return Scenario(
        "slots-32",
        (*_plan().switches[0].commands, *rates),
        tuple(Step(round(time / 1e6) + 60, ((data[_SENDER], data),)) for time, data in marked),
        ports=(1, 2, 3),
    )


def _plan() -> Plan:
    return make_plan("slots", 32, Request(workers=_WORKERS, window=_SLOTS))


def _contributions(chunk: int) -> list[tuple[int, bytes]]:
    plan, found = _plan(), []
    for worker, host in enumerate(plan.workers):
        frames = pack(
            plan.layout,
            host.endpoint,
            host.peer,
            np.full((1, 32), 100 * chunk + worker, np.int32),
            operation=ReduceOp.SUM,
            job=plan.job.number,
            epoch=plan.job.epoch,
            sequence=chunk + 1,
            slot=chunk % _SLOTS,
            slot_version=0,
            worker=worker,
            listens=True,
        )
        found.append((worker + 1, frames[0].tobytes()))
    return found


# ── What innet answers ──


def parsed(data: bytes) -> tuple[int, Answer, int]:
    """Number, answer and time of arrival of a packet that left."""
    number = int.from_bytes(data[18:20], "big")
    words = data[34:54]
    came, enqueued, waited, before, behind = (
        int.from_bytes(words[a:b], "big")
        for a, b in ((0, 6), (6, 10), (10, 14), (14, 17), (17, 20))
    )
    seen = Seen(before, behind, data[15] & 3 == CE)
    return number, Answer(seen, enqueued, waited), came


def by_switch(stream: Stream, arrivals: list[int], engine: EngineName = "jit") -> dict[int, Answer]:
    """Answers of the built-in switch to packets that arrive at ``arrivals``, in microseconds."""
    switch = Switch.load(PROGRAM, engine, priority_queues=stream.priorities)
    switch.commands("\n".join(stream.commands()))
    batch = PacketBatch.from_packets([(0, data) for data in stream.frames()])
    sent = switch.process_batch(batch, times=MICROSECOND * np.array(arrivals))
    found = [parsed(data) for port, data in sent.to_packets() if port != COPIES]
    return {number: answer for number, answer, _ in found}


def by_simulation(stream: Stream, arrivals: list[int], folder: Path) -> dict[int, Answer]:
    """Answers of the same program in a simulated network.

    A host sends at ``arrivals`` through a fast link, to a switch whose trunk takes as long for each
    packet as the rate says. Behind it, they leave by a port that has no link.
    """
    ((port, _),) = stream.rates
    sent = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for time, data in zip(arrivals, stream.frames(), strict=True):
        sent += struct.pack("<IIII", *divmod(time, 1_000_000), len(data), len(data)) + data
    (folder / "sent.pcap").write_bytes(sent)
    (folder / "commands.txt").write_text("\n".join(stream.commands()[1:]))
    (folder / "traffic.toml").write_text(
        '[topology]\ntimestamp_unit = "ns"\n'
        "rate = 1e12\ndelay = 1e-5\nhost_send = 0.0\n"
        f"trunk_rate = {WIRE_BITS * stream.rates[port, 0]}\n"
        '[[link]]\nends = ["host 0", "s1:5"]\n'
        f'[[link]]\nends = ["s1:{port}", "s2:7"]\n'
        '[[flow]]\nsource = 0\npcap = "sent.pcap"\n'
    )
    simulate_traffic(
        folder / "traffic.toml",
        program=str(PROGRAM),
        commands=folder / "commands.txt",
        pcap=folder / "out",
    )
    with CaptureReader(folder / "out" / f"s1.{port}-to-s2.7.pcap") as capture:
        frames = [
            block.data.tobytes()[start : start + length]
            for block in capture.blocks()
            for start, length in zip(block.start, block.length, strict=True)
        ]
    found = {number: answer for number, answer, _ in map(parsed, frames)}
    # Timestamps of a simulated network are nanoseconds.
    return {
        number: Answer(each.seen, each.enqueued // 1000, each.waited // 1000)
        for number, each in found.items()
    }


# ── What simple_switch answered ──


@dataclass(frozen=True)
class Recorded:
    """A stream as simple_switch saw it.

    Attributes:
        stream: what was sent.
        arrivals: microseconds since the switch began, of each packet.
        answers: by number; those that are not there were dropped.
    """

    stream: Stream
    arrivals: list[int]
    answers: dict[int, Answer]

    def as_json(self) -> dict[str, Any]:
        return {
            "arrivals": self.arrivals,
            "answers": [
                [number, *each.seen, each.enqueued, each.waited]
                for number, each in sorted(self.answers.items())
            ],
        }


def recordings() -> dict[str, Any]:
    """What record_rate_limits.py has written."""
    document: dict[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return document


def recorded(name: str) -> Recorded:
    """A stream that was recorded."""
    document = recordings()["streams"][name]
    answers = {
        number: Answer(Seen(before, behind, bool(marked)), enqueued, waited)
        for number, before, behind, marked, enqueued, waited in document["answers"]
    }
    return Recorded(STREAMS[name](), document["arrivals"], answers)


# ── The comparison ──


@dataclass(frozen=True)
class Comparison:
    """Numbers of packets.

    Attributes:
        packets: that were sent.
        equal: those with the same depths and mark, or dropped by both.
        explained: others, where the answer follows from the moments at which simple_switch's own
            threads took packets from the queue.
        unexplained: all others.
    """

    packets: int
    equal: int
    explained: tuple[int, ...]
    unexplained: tuple[int, ...]


def compare(real: Recorded, ours: dict[int, Answer]) -> Comparison:
    """Compare packet by packet."""
    count = len(real.arrivals)
    differ = [
        number for number in range(count) if _seen(real.answers, number) != _seen(ours, number)
    ]
    follows = set(consistent(real))
    return Comparison(
        count,
        count - len(differ),
        tuple(each for each in differ if each in follows),
        tuple(each for each in differ if each not in follows),
    )


def _seen(answers: dict[int, Answer], number: int) -> Seen | None:
    return answers[number].seen if number in answers else None


def consistent(real: Recorded) -> list[int]:
    """Packets whose answer follows from when simple_switch's packets came and left.

    The depth before a packet is the number of packets that had come and not yet left, the depth
    behind it likewise when it leaves; a packet is dropped when the queue holds as many as it may.
    Moments are microseconds, so that events of the same one, and within ``SLACK`` of a dropped
    packet's arrival, may be in either order.
    """
    found = []
    for number, arrival in enumerate(real.arrivals):
        _, port, priority = real.stream.packets[number]
        queue = [
            (other, each)
            for other, each in real.answers.items()
            if real.stream.packets[other][1:] == (port, priority) and other != number
        ]
        answer = real.answers.get(number)
        if answer is None:
            most = _waiting(queue, arrival, arrival + SLACK)[1]
            is_right = most >= real.stream.depth
        else:
            left = answer.enqueued + answer.waited
            before = _waiting(queue, answer.enqueued, answer.enqueued)
            behind = _waiting(queue, left, left)
            is_right = (
                before[0] <= answer.seen.enq_qdepth <= before[1]
                and behind[0] <= answer.seen.deq_qdepth <= behind[1]
                and answer.seen.enq_qdepth < real.stream.depth
                and answer.seen.marked == (answer.seen.enq_qdepth >= real.stream.threshold)
            )
        if is_right:
            found.append(number)
    return found


SLACK = 2_000
"""Microseconds that a packet may need from its arrival to its queue."""


def _waiting(queue: list[tuple[int, Answer]], since: int, until: int) -> tuple[int, int]:
    """The fewest and the most packets that may wait at a moment between the two."""
    least = most = 0
    for _, each in queue:
        left = each.enqueued + each.waited
        least += each.enqueued < since and left > until
        most += each.enqueued <= until and left >= since
    return least, most
