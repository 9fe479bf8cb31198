"""Chunks with an owner in the program `collectives-tree`: what switches send, refuse and keep.

Whole trees are in ``test_networks_owners``.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest
from support.tiers import tiered
from support.traffic import without_values

from innet import programs
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.switch import Switch, ir, load_program
from innet.topology import Plan, Request, make_plan
from innet.topology.topologies import TreeNode
from innet.topology.tree import UP_PORT, below, shape_of
from innet.wire import WITHOUT_VALUES, Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

VALUES = 64
REDUCE, BROADCAST, BARRIER = CollectiveOp
LAYOUT = PacketLayout(VALUES, has_owners=True)
MALFORMED, STALE, MISMATCH, LATE, LOST = 4, 7, 8, 10, 11  # indices of the counter of drops
# Racks of worker 0, which is alone there, of 1 and 2, and of 3 and 4, below the root s1.
PLAN = make_plan("collectives-tree", VALUES, Request(workers=5, racks=3, window=4))
PARTIAL = make_plan(
    "collectives-tree", VALUES, Request(workers=5, racks=3, window=4, allow_partial=True)
)
ROOT = shape_of(PLAN)
LEAVES = ROOT.children
Answer = dict[int, "int | None"]
"""By the addressee: the first value of its packet, None of one that ends with the header."""

engines = pytest.mark.parametrize(
    "engine", tiered(["interpret", "jit"], ["jit"], "the same interpreted")
)
owners = pytest.mark.parametrize("owner", tiered(range(5), [0, 3], "the same in another rack"))
operations = pytest.mark.parametrize("operation", list(CollectiveOp), ids=str)


@cache
def program() -> ir.Program:
    return load_program(programs.find("collectives-tree", VALUES).json())


def switch_of(node: TreeNode, engine: str, plan: Plan = PLAN) -> Switch:
    switch = Switch.load(program(), engine)
    for command in next(each.commands for each in plan.switches if each.name == node.name):
        switch.command(command)
    return switch


def packet(
    node: TreeNode,
    sender: int | None,
    operation: int,
    owner: int,
    *,
    whole: bool,
    value: int = 0,
    chunk: int = 0,
    **fields: int,
) -> tuple[int, bytes]:
    """What reaches a switch: from a child by its index, or from the switch above (None).

    By default it is of one worker, or complete.
    """
    places = {each.worker: each for each in below(node, PLAN.job.members)}
    if sender is None:
        port, known = UP_PORT, {"count": 5, "bitmap": 7, "flags": int(HeaderFlag.RESULT)}
    else:
        place = places[sender]
        port, known = place.port, {"count": len(place.workers)}
    known |= {"worker": node.identity if sender is None else sender, "exponent": owner, **fields}
    frame = pack(
        LAYOUT,
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        np.full((1, VALUES), value, np.int32),
        operation=operation,
        job=PLAN.job.number,
        epoch=PLAN.job.epoch,
        sequence=chunk + 1,
        slot=chunk % 4,
        slot_version=chunk // 4 % 2,
        **known,
    )[0].tobytes()
    return port, frame if whole else without_values(LAYOUT, frame)


def seen(answers: list[tuple[int, bytes]]) -> Answer:
    """What is sent to whom: one packet each."""
    found: Answer = {}
    for port, data in answers:
        batch = parse_strict(LAYOUT, data)
        header = batch.header[0]
        worker = int(header["worker"])
        is_up = not int(header["flags"]) & HeaderFlag.RESULT
        assert is_up == (port == UP_PORT)
        assert worker not in found
        bare = int(header["operation"]) & WITHOUT_VALUES != 0
        assert len(data) == (LAYOUT.bare_size if bare else LAYOUT.frame_size)
        if not bare:
            assert len(set(batch.values[0].tolist())) == 1
        found[worker] = None if bare else int(batch.values[0, 0])
    return found


def dropped(switch: Switch) -> Counter[int]:
    counts = switch.counters["TreeIngress.dropped"].packets
    return Counter({int(reason): int(counts[reason]) for reason in np.flatnonzero(counts)})


def carries(operation: int, owner: int, there: range, *, up: bool) -> bool:
    """Whether a packet between ``there`` and the switch above has values."""
    if operation == BARRIER:
        return False
    if up == (operation == BROADCAST):
        return owner in there
    return any(worker != owner for worker in there)


@engines
@operations
@owners
def test_what_goes_up_and_comes_down(engine: str, operation: int, owner: int) -> None:
    """At each switch, whichever child is last; an answer once more to who asks again."""
    for node in (ROOT, *LEAVES):
        children = list(below(node, PLAN.job.members))
        switch = switch_of(node, engine)
        for chunk, last in enumerate(children):
            sent = {
                each.worker: packet(
                    node, each.worker, operation, owner, value=10**each.place, chunk=chunk,
                    whole=carries(operation, owner, each.workers, up=True),
                )
                for each in children
            }  # fmt: skip
            total = sum(
                10**each.place
                for each in children
                if carries(operation, owner, each.workers, up=True)
            )
            others = [data for worker, data in sent.items() if worker != last.worker]
            assert switch.process(others * 2) == []
            answer = seen(switch.process([sent[last.worker]]))
            down: Answer = {
                each.worker: total if carries(operation, owner, each.workers, up=False) else None
                for each in children
            }
            if node is ROOT:
                assert answer == down
            else:
                rises = carries(operation, owner, node.workers, up=True)
                up = {node.identity: total if rises else None}
                assert answer == up
                # Whoever asks again has the sum sent up again; then the result comes.
                assert [seen(switch.process([each])) for each in sent.values()] == [up] * len(sent)
                falls = carries(operation, owner, node.workers, up=False)
                result = packet(node, None, operation, owner, value=77, whole=falls, chunk=chunk)
                down = {w: None if value is None else 77 for w, value in down.items()}
                assert seen(switch.process([result])) == down
            for worker, data in sent.items():
                assert seen(switch.process([data])) == {worker: down[worker]}
            assert not dropped(switch)


@engines
@operations
@owners
def test_values_where_none_belong_and_none_where_some_do(
    engine: str, operation: int, owner: int
) -> None:
    """Nobody speaks for the owner: neither a worker nor a switch whose workers it is not among."""
    for node in (ROOT, *LEAVES):
        switch = switch_of(node, engine)
        wrong = [
            packet(
                node, each.worker, operation, owner,
                whole=not carries(operation, owner, each.workers, up=True),
            )
            for each in below(node, PLAN.job.members)
        ]  # fmt: skip
        if node is not ROOT:
            falls = carries(operation, owner, node.workers, up=False)
            wrong.append(packet(node, None, operation, owner, whole=not falls))
        assert switch.process(wrong) == []
        assert dropped(switch) == {MALFORMED: len(wrong)}
        for name, cells in switch.registers.items():
            assert name.endswith("fence") or not cells.any()


@engines
@operations
def test_another_owner_is_a_mismatch(engine: str, operation: int) -> None:
    """And a packet of an older chunk changes no newer one's owner."""
    leaf = LEAVES[1]
    switch = switch_of(leaf, engine)

    def one(worker: int, owner: int, chunk: int) -> tuple[int, bytes]:
        alone = range(worker, worker + 1)
        whole = carries(operation, owner, alone, up=True)
        return packet(leaf, worker, operation, owner, whole=whole, chunk=chunk, value=5)

    assert switch.process([one(1, 4, 8), one(2, 1, 8), one(2, 3, 8), one(2, 1, 0)]) == []
    assert dropped(switch) == {MISMATCH: 2, STALE: 1}
    (value,) = seen(switch.process([one(2, 4, 8)])).values()
    assert value == (10 if operation == REDUCE else None)
    # A result is right: it takes the place of whatever the switch held.
    whole = carries(operation, 2, leaf.workers, up=False)
    result = packet(leaf, None, operation, 2, whole=whole, chunk=8, value=3)
    assert set(seen(switch.process([result]))) == {1, 2}
    assert switch.process([one(1, 4, 8)]) == []
    assert seen(switch.process([one(1, 2, 8)])) == {1: 3 if operation == BROADCAST else None}


@engines
@pytest.mark.parametrize("operation", [REDUCE, BROADCAST], ids=str)
def test_a_leaf_that_lost_its_registers_takes_the_result(engine: str, operation: int) -> None:
    """It has it for whoever asks again, with values for those who get some."""
    leaf, owner = LEAVES[2], 4
    switch = switch_of(leaf, engine)
    gets = 4 if operation == REDUCE else 3
    assert switch.process([packet(leaf, 3, operation, owner, whole=gets == 4, value=9)]) == []
    for cells in switch.registers.values():
        cells[:] = 0
    answer = seen(switch.process([packet(leaf, None, operation, owner, whole=True, value=6)]))
    assert answer == {gets: 6, 7 - gets: None}
    for worker in (3, 4, 3):
        again = packet(
            leaf, worker, operation, owner, value=9,
            whole=carries(operation, owner, range(worker, worker + 1), up=True),
        )  # fmt: skip
        assert seen(switch.process([again])) == {worker: 6 if worker == gets else None}


@engines
@pytest.mark.parametrize("lacking", [3, 4])
@pytest.mark.parametrize("operation", [REDUCE, BROADCAST], ids=str)
def test_a_leaf_that_is_closed_sends_what_is_there(
    engine: str, operation: int, lacking: int
) -> None:
    """Zeros for an owner who is not there, and nothing of an earlier chunk."""
    leaf, owner = LEAVES[2], 4
    switch = switch_of(leaf, engine, PARTIAL)
    there = 7 - lacking

    def one(worker: int, chunk: int, **fields: int) -> tuple[int, bytes]:
        whole = carries(operation, owner, range(worker, worker + 1), up=True)
        return packet(leaf, worker, operation, owner, whole=whole, chunk=chunk, value=9, **fields)

    assert switch.process([packet(leaf, w, ReduceOp.SUM, 0, whole=True, value=50) for w in (3, 4)])
    answers = switch.process([one(there, 8, flags=int(HeaderFlag.PARTIAL))])
    adds = (there == owner) == (operation == BROADCAST)
    assert seen(answers) == {3: 9 if adds else 0}
    assert int(parse_strict(LAYOUT, answers[0][1]).header[0]["count"]) == 1
    assert seen(switch.process([one(lacking, 8)])) == {3: 9 if adds else 0}  # sent up again
    assert dropped(switch) == {LATE: 1}
    # The result, in which this leaf is: its children in it are those that it has sent up.
    flags = int(HeaderFlag.RESULT | HeaderFlag.PARTIAL)
    result = packet(
        leaf, None, operation, owner, whole=True, chunk=8, value=6, count=4, flags=flags
    )
    answers = switch.process([result])
    bitmaps = {int(parse_strict(LAYOUT, data).header[0]["bitmap"]) for _, data in answers}
    assert bitmaps == {1 << there - 3}
    gets = 4 if operation == REDUCE else 3
    assert seen(answers) == {gets: 6, 7 - gets: None}
    switch.registers["TreeIngress.pool.fence"][:] = 0
    assert switch.process([result]) == []
    assert dropped(switch) == {LATE: 1, LOST: 1}


@engines
def test_jobs_have_owners_of_their_own(engine: str) -> None:
    """The same index is another worker of another job, in another rack."""
    second = make_plan(
        "collectives-tree", VALUES,
        Request(workers=6, racks=3, window=4, job=2, existing_jobs=(PLAN,)),
    )  # fmt: skip
    leaf = shape_of(second).children[0]  # workers 0 and 1 of it, 0 of the first
    assert (leaf.workers, LEAVES[0].workers) == (range(2), range(1))
    switch = switch_of(leaf, engine)
    for command in next(each.commands for each in second.switches if each.name == leaf.name):
        switch.command(command)
    sent = []
    for plan, worker in ((PLAN, 0), (second, 0), (second, 1)):
        member = plan.job.members[worker]
        frame = pack(
            LAYOUT, member.endpoint, Endpoint.of_switch(), np.full((1, VALUES), 8, np.int32),
            operation=REDUCE, job=plan.job.number, epoch=0, sequence=1, slot=0, slot_version=0,
            worker=worker, exponent=1, count=1,
        )[0].tobytes()  # fmt: skip
        owns = plan is second and worker == 1
        sent.append((member.port, without_values(LAYOUT, frame) if owns else frame))
    # Of the first job, whose worker 1 is elsewhere; then of the second.
    assert [seen([each]) for each in switch.process(sent)] == [{0: 8}, {0: 8}]
    assert not dropped(switch)
