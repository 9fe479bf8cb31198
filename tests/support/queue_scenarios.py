"""Packets through slow egress queues at given times, on simple_switch and the built-in switch.

simple_switch's queues follow the clock. So rates are a few packets a second, and a scenario is only
played if no two events whose order matters are closer than ``MARGIN``: then its answers do not
depend on how fast the machine is. ``ambiguities`` finds such events.

Two programs are recorded. ``queue_metadata`` adds to a packet what each egress saw of its queue;
the times in it are compared within ``TOLERANCE``, all else exactly. ``ecn`` is the one of
p4/examples. Others, of tests/programs, get packets that fit them (``fuzz.make_case``).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, count
from pathlib import Path
from typing import Any

import numpy as np

from innet.bmv2 import simple_switch
from innet.core.engines import EngineName
from innet.core.packets import PacketBatch
from innet.programs import catalogue
from innet.switch import Switch
from support import fuzz

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "queue_metadata": ROOT / "tests/programs/queue_metadata.json",
    "ecn": ROOT / "p4/examples/ecn.json",
}

MARGIN = 30_000_000  # nanoseconds
TOLERANCE = 20_000_000
LATE = 12_000_000
"""How late packets may be handed to simple_switch; later ones spoil the run."""
LONGEST = 4_000_000_000
"""How long a scenario may take."""
SPACING = 20_000
"""Between packets of a burst."""
ATTEMPTS = 5

MILLISECOND = 1_000_000

#: What ``innet.bmv2`` begins with.
DEEP = "set_queue_depth 10000000"

Sent = dict[int, list[tuple[int, bytes]]]
"""What left, by port: nanoseconds since the first command, and bytes."""


@dataclass(frozen=True)
class Step:
    """Commands, then packets in a burst, at a time in milliseconds."""

    at: int
    packets: tuple[tuple[int, bytes], ...] = ()
    commands: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Step:
        packets = tuple((port, bytes.fromhex(data)) for port, data in document["packets"])
        return cls(document["at"], packets, tuple(document["commands"]))


@dataclass(frozen=True)
class Scenario:
    """What is played; ``commands`` at time 0, ``ports`` where packets may leave."""

    program: str
    commands: tuple[str, ...]
    steps: tuple[Step, ...]
    priority_queues: int = 1
    ports: tuple[int, ...] = (1, 2, 3, 4)

    def as_json(self) -> dict[str, Any]:
        document = asdict(self)
        for step in document["steps"]:
            step["packets"] = [[port, data.hex()] for port, data in step["packets"]]
        return document

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Scenario:
        return cls(
            document["program"],
            tuple(document["commands"]),
            tuple(map(Step.from_json, document["steps"])),
            document["priority_queues"],
            tuple(document["ports"]),
        )

    @property
    def path(self) -> Path:
        return PROGRAMS.get(self.program, fuzz.PROGRAMS / f"{self.program}.json")

    @property
    def document(self) -> dict[str, Any]:
        """The program's JSON; of those that innet ships by their names, such as slots-32."""
        if self.program in catalogue():
            return catalogue()[self.program].json()
        document: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return document


# ── Both switches ──


def play_built_in(scenario: Scenario, engine: EngineName) -> tuple[Sent, Switch]:
    """What the built-in switch sends, and when."""
    switch = _switch(scenario, engine)
    sent: Sent = defaultdict(list)

    def take(batch: PacketBatch) -> None:
        assert batch.time is not None
        for (port, data), left in zip(batch.to_packets(), batch.time.tolist(), strict=True):
            sent[port].append((left, data))

    for step in scenario.steps:
        now = step.at * MILLISECOND
        take(switch.run_until(now))
        switch.commands("\n".join(step.commands))
        times = now + SPACING * np.arange(len(step.packets))
        until = int(times[-1]) if len(times) else now
        batch = PacketBatch.from_packets(step.packets)
        take(switch.process_batch(batch, times=times, until=until))
    take(switch.run_until())
    # simple_switch loses what leaves by a port that it does not have.
    return {port: sent[port] for port in scenario.ports if port in sent}, switch


def _switch(scenario: Scenario, engine: EngineName) -> Switch:
    switch = Switch.load(scenario.document, engine, priority_queues=scenario.priority_queues)
    switch.command(DEEP)
    switch.commands("\n".join(scenario.commands))
    return switch


def compare(scenario: Scenario) -> Sent:
    """Assert that both engines answer as simple_switch does; returns what that sent.

    On a busy machine simple_switch may get packets too late, or be late itself. So a run that
    differs is repeated, and what differs every time is an error.
    """
    reason = AssertionError("no run")
    for _ in range(ATTEMPTS):
        sent, late = _play_once(scenario)
        try:
            assert late <= LATE, f"packets came {late / MILLISECOND:.0f} ms late on this machine"
            for engine in ("interpret", "jit"):
                check(scenario, engine, sent)
        except AssertionError as error:
            reason = error
        else:
            return sent
    raise reason


def _play_once(scenario: Scenario) -> tuple[Sent, int]:
    packets = [packet for step in scenario.steps for packet in step.packets]
    expected, _ = play_built_in(scenario, "interpret")
    ends = [left for sent in expected.values() for left, _ in sent] + [0]
    late = 0
    with simple_switch.open_session(
        scenario.document,
        packets,
        scenario.ports,
        deadline=60,
        priority_queues=scenario.priority_queues,
    ) as session:
        queues = [each for each in scenario.commands if each.startswith("set_queue")]
        session.commands([each for each in scenario.commands if each not in queues])
        begun, begun_of_day = time.monotonic_ns(), time.time_ns()
        session.commands(queues)
        late = (time.monotonic_ns() - begun) // 2
        begun, begun_of_day = begun + late, begun_of_day + late
        for step in scenario.steps:
            late = max(late, _sleep_until(begun + step.at * MILLISECOND))
            session.commands(step.commands)
            session.play(len(step.packets))
        _sleep_until(begun + max(ends) + 150 * MILLISECOND)
        session.play(0)
        departures = session.departures()
    return {
        port: [(round(seconds * 1e6) * 1000 - begun_of_day, data) for seconds, data in sent]
        for port, sent in departures.items()
        if sent
    }, late


def _sleep_until(moment: int) -> int:
    """Sleep; returns how many nanoseconds too late it is."""
    while (left := moment - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)
    return -left


# ── The comparison ──


def check(scenario: Scenario, engine: EngineName, real: Sent) -> None:
    """The built-in switch sends the same packets in the same order, at the same times."""
    model, _ = play_built_in(scenario, engine)
    assert set(model) == set(real)
    offsets: list[int] = []
    clocks: list[int] = []
    for port in sorted(real):
        split = _split_metadata if scenario.program == "queue_metadata" else _no_times
        ours = [split(data) for _, data in model[port]]
        theirs = [split(data) for _, data in real[port]]
        assert [each for each, _ in ours] == [each for each, _ in theirs], f"port {port}"
        offsets += [t - m for (m, _), (t, _) in zip(model[port], real[port], strict=True)]
        for (_, mine), (_, its) in zip(ours, theirs, strict=True):
            for one, other in zip(mine, its, strict=True):
                assert abs(one.waited - other.waited) <= TOLERANCE, (port, one, other)
                assert [at == 0 for at in one.clock] == [at == 0 for at in other.clock]
                clocks += [b - a for a, b in zip(one.clock, other.clock, strict=True) if a]
    # Each clock has its own zero.
    for differences in (offsets, clocks):
        if differences:
            assert max(differences) - min(differences) <= 2 * TOLERANCE


@dataclass(frozen=True)
class _Times:
    """Nanoseconds in a record: between enqueue and dequeue, and readings of the switch's clock."""

    waited: int
    clock: tuple[int, ...]


_REQUEST, _RECORD, _FIRST_TIME = 7, 31, 11


def _split_metadata(data: bytes) -> tuple[bytes, list[_Times]]:
    """A packet of queue_metadata without its times, and these."""
    rest, times = bytearray(data), []
    for start in range(_REQUEST, _REQUEST + _RECORD * data[_REQUEST - 1], _RECORD):
        words = data[start + _FIRST_TIME : start + _RECORD]
        rest[start + _FIRST_TIME : start + _RECORD] = bytes(_RECORD - _FIRST_TIME)
        enqueued, waited = words[:4], words[4:8]
        clock = [int.from_bytes(each, "big") * 1000 for each in (enqueued, words[8:14], words[14:])]
        times.append(_Times(int.from_bytes(waited, "big") * 1000, tuple(clock)))
    return bytes(rest), times


def _no_times(data: bytes) -> tuple[bytes, list[_Times]]:
    return data, []


# ── What would depend on the machine ──


@dataclass
class _PortEvents:
    """Events at a port: (time, packet), and of what is enqueued whether it had just arrived."""

    enqueued: list[tuple[int, int, bool]] = field(default_factory=list)
    dequeued: list[tuple[int, int]] = field(default_factory=list)


def ambiguities(scenario: Scenario) -> list[str]:
    """Events whose order matters and that lie closer to each other than ``MARGIN``."""
    ports, waiting = _events(scenario)
    found = [f"{waiting} packets still wait after {LONGEST} ns"] if waiting else []
    for port, events in ports.items():
        for (a, one, direct), (b, other, too) in combinations(events.enqueued, 2):
            if one != other and abs(a - b) < MARGIN and not (direct and too):
                found.append(f"port {port}: packets {one}, {other} are enqueued at {a}, {b}")
        for (a, one), (b, other) in combinations(events.dequeued, 2):
            if 0 < abs(a - b) < MARGIN:
                found.append(f"port {port}: packets {one}, {other} leave at {a}, {b}")
        for a, one, _ in events.enqueued:
            for b, other in events.dequeued:
                # The one made the other happen, unless several copies come at once.
                alone = sum(each[:2] == (a, one) for each in events.enqueued) == 1
                if abs(a - b) < MARGIN and not (a == b and one == other and alone):
                    found.append(f"port {port}: packet {one} comes at {a}, {other} leaves at {b}")
    return found


def _events(scenario: Scenario) -> tuple[dict[int, _PortEvents], int]:
    """The events at each port, and how many packets wait after ``LONGEST``."""
    switch = _switch(scenario, "interpret")
    ports: dict[int, _PortEvents] = defaultdict(_PortEvents)
    told = []
    left: set[int] = set()
    for step in scenario.steps:
        now = step.at * MILLISECOND
        told += switch.trace_until(now)
        switch.commands("\n".join(step.commands))
        for position, packet in enumerate(step.packets):
            told += switch.trace(*packet, time=now + SPACING * position)
    told += switch.trace_until(LONGEST)
    leaves = False
    for event in told:
        at, packet = event.time, event.packet
        assert at is not None
        assert packet is not None
        if event.kind in ("enqueue", "queue_full"):
            direct = packet not in left
            ports[event["port"]].enqueued.append((at, packet, direct))
        elif event.kind == "dequeue":
            leaves = True
            left.add(packet)
        elif event.kind == "egress" and leaves:
            ports[event["port"]].dequeued.append((at, packet))
            leaves = False
    return ports, switch.waiting


# ── Packets ──


def request(
    number: int, port: int, op: int = 0, *, priority: int = 0, passes: int = 0, heard: int = 0
) -> tuple[int, bytes]:
    """A packet for queue_metadata."""
    head = bytes([op, port, priority, passes]) + number.to_bytes(2, "big") + b"\0"
    return heard, head + bytes([number & 0xFF]) * 3


FORWARD, MULTICAST, CLONE_INGRESS, CLONE_EGRESS, RECIRCULATE, RESUBMIT = range(6)


def ipv4(number: int, to: int, *, precedence: int = 0, ecn: int = 2) -> tuple[int, bytes]:
    """A packet for ecn, to 10.0.0.``to``; its checksum is wrong until the switch updates it."""
    head = bytes([0x45, precedence << 5 | ecn, 0, 20]) + number.to_bytes(2, "big") + bytes(2)
    addresses = bytes([10, 0, 1, 1, 10, 0, 0, to])
    macs = bytes.fromhex("020000000001020000000002")
    return 0, macs + b"\x08\0" + head + bytes([64, 17, 0, 0]) + addresses


def _burst(at: int, *packets: tuple[int, bytes]) -> Step:
    return Step(at, packets)


# ── Scenarios by hand ──


def _depths() -> Scenario:
    """A queue grows and shrinks: depths before and behind, marks, times."""
    return Scenario(
        "queue_metadata",
        ("set_queue_rate 8 1",),
        (
            _burst(50, *(request(i, 1) for i in range(6))),
            _burst(440, *(request(i, 1) for i in range(6, 8))),
            _burst(1500, request(8, 1)),
            _burst(1560, *(request(i, 1) for i in range(9, 12))),
        ),
    )


def _drops() -> Scenario:
    """Queues of little room, and none; a depth that changes while packets wait."""
    return Scenario(
        "queue_metadata",
        ("set_queue_rate 8", "set_queue_depth 3 1", "set_queue_depth 0 2", "set_queue_rate 8 1"),
        (
            _burst(50, *(request(i, 1) for i in range(6)), request(6, 2), request(7, 3)),
            _burst(310, *(request(i, 1) for i in range(8, 12))),
            Step(440, tuple(request(i, 1) for i in range(12, 15)), ("set_queue_depth 1 1",)),
            Step(690, tuple(request(i, 1) for i in range(15, 19)), ("set_queue_depth 2 1",)),
        ),
    )


def _priorities() -> Scenario:
    """Queues of one port that are due at the same time: the highest priority leaves first."""
    some = [0, 2, 1, 0, 3, 2, 7, 1, 3, 0]
    return Scenario(
        "queue_metadata",
        ("set_queue_rate 4 1", "set_queue_depth 2 1 0"),
        (
            _burst(60, *(request(i, 1, priority=each) for i, each in enumerate(some))),
            _burst(310, *(request(10 + i, 1, priority=each) for i, each in enumerate((3, 0)))),
        ),
        priority_queues=4,
    )


def _rates() -> Scenario:
    """Rates by priority, that change while packets wait, that end, and a packet after a pause."""
    return Scenario(
        "queue_metadata",
        ("set_queue_rate 5 1 0", "set_queue_rate 3 1 1", "set_queue_rate 6 2"),
        (
            _burst(40, *(request(i, 1, priority=i % 2) for i in range(6))),
            Step(270, tuple(request(i, 1) for i in range(6, 8)), ("set_queue_rate 10 1 0",)),
            Step(1080, tuple(request(i, 2) for i in range(8, 9)), ("set_queue_rate 0 2",)),
            _burst(1150, request(9, 2)),
            _burst(1220, request(10, 2)),
        ),
        priority_queues=2,
    )


COPIES = (
    "mc_mgrp_create 1",
    "mc_node_create 7 1 2",
    "mc_node_create 9 3",
    "mc_node_associate 1 0",
    "mc_node_associate 1 1",
    "mirroring_add 1 4",
)


def _copies() -> Scenario:
    """Multicast, clones of both kinds, a packet that goes round twice, one that is resubmitted."""
    return Scenario(
        "queue_metadata",
        (
            *COPIES,
            "set_queue_rate 7 4",
            *(f"set_queue_rate {3 + port} {port}" for port in (1, 2, 3)),
        ),
        (
            _burst(50, request(0, 1, MULTICAST), request(1, 1), request(2, 1, MULTICAST)),
            _burst(600, request(3, 2, CLONE_INGRESS)),
            _burst(650, request(4, 2), request(5, 2, RESUBMIT), request(12, 2)),
            _burst(1250, request(6, 3, CLONE_EGRESS)),
            _burst(1300, request(7, 3, CLONE_EGRESS), request(13, 3)),
            _burst(1790, request(8, 1)),
            _burst(1840, request(9, 1, RECIRCULATE, passes=2), request(10, 1), request(11, 1)),
        ),
    )


def _full_copies() -> Scenario:
    """Copies find queues full: of multicast, clones, and packets that come by again."""
    commands = (f"set_queue_rate {rate} {port}" for port, rate in ((1, 4), (2, 5), (3, 6), (4, 4)))
    return Scenario(
        "queue_metadata",
        (*COPIES, *commands, "set_queue_depth 2", "set_queue_depth 1 4"),
        (
            _burst(60, *(request(i, 1, MULTICAST) for i in range(3)), request(3, 2, CLONE_INGRESS)),
            _burst(1100, request(4, 1), request(17, 4)),
            _burst(1150, *(request(i, 1, CLONE_INGRESS) for i in range(5, 9))),
            _burst(2400, request(9, 1)),
            _burst(2450, *(request(i, 1, RECIRCULATE, passes=2) for i in range(10, 14))),
            _burst(2800, *(request(i, 1) for i in range(14, 17))),
        ),
    )


def _ecn() -> Scenario:
    """Marks by depth, of packets that say ECT; precedences go to queues of their own."""
    routes = "table_add EcnIngress.routes EcnIngress.forward"
    return Scenario(
        "ecn",
        (
            f"{routes} 10.0.0.1/32 => 1",
            f"{routes} 10.0.0.2/32 => 2",
            "register_write EcnEgress.threshold 0 2",
            "set_queue_depth 5 1",
            "set_queue_rate 6 1",
            "set_queue_rate 6 2",
        ),
        (
            _burst(50, *(ipv4(i, 1, ecn=(2, 2, 0, 1, 3, 2, 2)[i]) for i in range(7))),
            _burst(90, *(ipv4(10 + i, 1, precedence=5) for i in range(4)), ipv4(20, 2)),
            _burst(420, *(ipv4(30 + i, 1) for i in range(3)), ipv4(40, 3)),
        ),
        priority_queues=8,
        ports=(0, 1, 2, 3),
    )


SCENARIOS = {
    "depths": _depths,
    "drops": _drops,
    "priorities": _priorities,
    "rates": _rates,
    "copies": _copies,
    "full_copies": _full_copies,
    "ecn": _ecn,
}


# ── Scenarios by chance ──


def random_scenario(seed: int) -> Scenario:
    """Some ports with rates and depths, and bursts that are not ambiguous."""
    rng = np.random.default_rng([seed, 22])
    priority_queues = int(rng.choice([1, 2, 4]))
    commands = list(COPIES)
    if rng.random() < 0.5:
        commands.append(f"set_queue_depth {rng.integers(1, 9)}")
    commands += [f"set_queue_rate {rng.integers(3, 8)} {port}" for port in (1, 2, 3, 4)]
    for port in rng.choice([1, 2, 3, 4], 2, replace=False):
        queue = f" {rng.integers(priority_queues)}" if rng.random() < 0.5 else ""
        commands.append(f"set_queue_depth {rng.integers(1, 4)} {port}{queue}")
    scenario = Scenario("queue_metadata", tuple(commands), (), priority_queues)
    hot = int(rng.integers(2, 5))
    return _with_bursts(
        scenario, rng, lambda number: tuple(_random_packets(rng, number, hot, priority_queues))
    )


def _with_bursts(
    scenario: Scenario,
    rng: np.random.Generator,
    make: Callable[[int], Sequence[tuple[int, bytes]]],
) -> Scenario:
    """The scenario with up to five bursts; ``make`` is given the number of packets before."""
    number = 0
    for _ in range(5):
        for _ in range(80):
            earliest = scenario.steps[-1].at + 35 if scenario.steps else 40
            packets = tuple(make(number))
            step = Step(int(earliest + rng.integers(200 if scenario.steps else 50)), packets)
            longer = replace(scenario, steps=(*scenario.steps, step))
            if not ambiguities(longer):
                scenario, number = longer, number + len(packets)
                break
    return scenario


#: Programs whose egress leaves nothing behind that a packet at another port finds.
FUZZED = ("fuzz_clone", "fuzz_ends", "fuzz_for", "fuzz_multicast", "fuzz_stacks", "fuzz_varbit")


def fuzz_scenario(name: str, seed: int) -> Scenario:
    """Commands and packets that fit a program, and queues with rates and depths; some leave."""
    made = (_fuzz_scenario(name, [seed, attempt]) for attempt in count())
    return next(each for each in made if play_built_in(each, "interpret")[0])


def _fuzz_scenario(name: str, seed: list[int]) -> Scenario:
    rng = np.random.default_rng([*seed, *name.encode()])
    (made,) = fuzz.make_case(name, int(rng.integers(1 << 31)), 200, rounds=1).rounds
    commands = [command for command, printed in made.commands if printed is not None]
    for port in range(fuzz.PORTS):
        commands.append(f"set_queue_rate {rng.integers(3, 8)} {port}")
        commands.append(f"set_queue_depth {rng.integers(1, 5)} {port}")
    scenario = Scenario(name, tuple(commands), (), ports=tuple(range(fuzz.PORTS)))

    def some(_: int) -> list[tuple[int, bytes]]:
        chosen = rng.choice(len(made.packets), int(rng.integers(1, 12)))
        return [made.packets[i] for i in chosen.tolist()]

    return _with_bursts(scenario, rng, some)


def _random_packets(
    rng: np.random.Generator, number: int, hot: int, priorities: int
) -> Iterator[tuple[int, bytes]]:
    for i in range(int(rng.integers(1, 8))):
        op = int(rng.choice([FORWARD, FORWARD, FORWARD, *range(1, 6)]))
        port = 1 if op == MULTICAST else int(rng.integers(1, 5))
        priority = int(rng.integers(priorities + 1)) % 8
        port = hot if port != 1 and rng.random() < 0.6 else port
        yield request(number + i, port, op, priority=priority, passes=int(rng.integers(1, 3)))
