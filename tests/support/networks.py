"""Networks of a plan, held to the oracle; and the packets that their switches see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from innet.core.errors import StalledError
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp, Segment, combine
from innet.network import Faults, Outage
from innet.programs import CompiledProgram
from innet.protocol import Timing
from innet.topology import EmulatedNetwork, Plan, Request, make_plan
from support.traffic import mangled

MIXED = [(ReduceOp.SUM, 130), (ReduceOp.OR, 1), (ReduceOp.MAX, 37), (ReduceOp.SUM, 0)]
BAD = Faults(loss=0.1, duplicate=0.1, reorder=0.2, hold=0.05, jitter=1e-3, tick=1e-3)
PATIENT = Timing(timeout=0.002, max_timeout=0.05, give_up=600.0)
HASTY = Timing(timeout=0.002, max_timeout=0.05, give_up=2.0, partial_after=0.03)


_DEPTH = b'"deq_qdepth"]},"right":{"type":"hexstr","value":"0x%06x"}'
_text = CompiledProgram.text


def text_if_congested(program: CompiledProgram) -> bytes:
    """Of ``adaptive-tree``, as if every queue were long, so that each chunk moves its slot."""
    text = _text(program)
    assert text.count(_DEPTH % 16) == program.moves_slots
    return text.replace(_DEPTH % 16, _DEPTH % 0)


def network(
    program: str,
    workers: int,
    *,
    values: int = 32,
    window: int = 8,
    racks: int | None = None,
    depth: int | None = None,
    topology: str | None = None,
    ports: int | None = None,
    faults: Faults | None = None,
    timing: Timing = PATIENT,
    engine: str = "jit",
    framing: str = "udp",
    seed: int = 0,
) -> EmulatedNetwork:
    request = Request(
        workers=workers,
        window=window,
        racks=racks,
        depth=depth,
        topology=topology,
        ports=ports,
        job=7,
        epoch=3,
        framing=framing,
        allow_partial=timing.partial_after is not None,
    )
    plan = make_plan(program, values, request)
    return EmulatedNetwork(plan, engine=engine, faults=faults, timing=timing, seed=seed)


def contributions(
    rng: np.random.Generator,
    workers: int,
    shape: Sequence[tuple[Any, ...]],
    reach: int = 2**31 // 32,
) -> list[list[Segment]]:
    """Words of which 32 can be summed within int32; larger ones with a larger ``reach``.

    ``shape``: of each segment the operation, the length and, if it has one, the owner.
    """
    return [
        [
            Segment(operation, rng.integers(-reach, reach, length).astype(np.int32), *owner)
            for operation, length, *owner in shape
        ]
        for _ in range(workers)
    ]


def all_reduce(net: EmulatedNetwork, given: list[list[Segment]]) -> None:
    """One round; asserts that every worker holds the exact result of every segment."""
    for end, segments in zip(net.workers, given, strict=True):
        end.start(segments, net.now)
    net.run()
    hold_exact(net, given)


def hold_exact(net: EmulatedNetwork, given: list[list[Segment]]) -> None:
    """Every worker that is to get a segment's result has it, bit for bit."""
    results = [end.results() for end in net.workers]
    for index, segment in enumerate(given[0]):
        if not segment.size:
            continue
        operation, owner = segment.operation, segment.owner
        words = [segments[index].words for segments in given]
        getting = range(len(given))
        if operation == CollectiveOp.REDUCE:
            others = [each for worker, each in enumerate(words) if worker != owner]
            words = others or [np.zeros_like(words[0])]
            operation, getting = ReduceOp.SUM, range(owner, owner + 1)
        elif isinstance(operation, CollectiveOp):
            is_barrier = operation == CollectiveOp.BARRIER
            words, operation = [words[owner]], ReduceOp.SUM
            getting = () if is_barrier else [each for each in getting if each != owner]
        expected = combine(operation, words)
        for worker in getting:
            np.testing.assert_array_equal(results[worker][index], expected, err_msg=str(segment))


def mute(end: object) -> None:
    """What the host sends never leaves it."""
    speak = end.outgoing  # type: ignore[attr-defined]
    end.outgoing = lambda now: speak(now)[:0]  # type: ignore[attr-defined]


def watch(net: EmulatedNetwork) -> dict[str, list[tuple[int, bytes]]]:
    """From now on: what arrives at each switch, in order."""
    seen: dict[str, list[tuple[int, bytes]]] = {name: [] for name in net.switches}

    def spied(name: str) -> object:
        inner = net.switches[name].process_batch

        def process(batch: PacketBatch, **times: object) -> PacketBatch:
            seen[name] += batch.to_packets()
            return inner(batch, **times)

        return process

    for name, switch in net.switches.items():
        switch.process_batch = spied(name)  # type: ignore[method-assign]
    return seen


def switch_traffic(
    program: str, values: int, seed: int, **shape: int
) -> tuple[Plan, dict[str, list[tuple[int, bytes]]]]:
    """What the switches of a bad network see in two rounds, with mangled packets among it.

    One of the workers is away for a while, and the others ask for results that lack it.
    """
    away = Outage(0.04, 0.15, (4,))
    rng = np.random.default_rng(seed)
    net = network(
        program,
        4,
        values=values,
        window=4,
        faults=replace(BAD, outages=(away,)),
        timing=HASTY,
        engine="interpret",
        seed=seed,
        **shape,
    )
    seen = watch(net)
    for _ in range(2):
        # Over the whole range, so that sums leave int32; results are then compared elsewhere.
        words: list[tuple[Any, ...]] = [(ReduceOp.SUM, 300), (ReduceOp.MAX, 40), (ReduceOp.OR, 9)]
        if net.plan.layout.has_owners:
            words += [(each, 200, owner) for owner, each in enumerate(CollectiveOp)]
        given = contributions(rng, 4, words, reach=2**31)
        for end, segments in zip(net.workers, given, strict=True):
            end.start(segments, net.now)
        try:
            net.run()
        except StalledError:  # of one whom the others went on without
            break
    for packets in seen.values():
        whole = list(packets)
        for place in rng.integers(0, len(whole), len(whole) // 6):
            packets.insert(int(place), mangled(rng, whole[rng.integers(len(whole))]))
    return net.plan, seen
