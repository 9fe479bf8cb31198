"""All that can happen to trees whose bitmaps name children: nobody is told a wrong thing of itself.

The model (``support.child_bits_model``) is that of tree.p4, which docs/tree.md describes;
``test_model_check_tree`` holds the program to it. A worker takes a result if, and only if, it is
the sum of as many workers as it says, and it says of this worker what is true. The second
tier explores larger networks too, which takes some minutes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.child_bits_model import (
    EVEN_RACKS,
    LARGE,
    POD,
    PODS,
    RACK,
    RACKS,
    ROOT,
    TALL_RACK,
    ChildBits,
    CounterexampleError,
    Down,
    Rule,
    explore,
    explored,
)
from support.exploring import each_model


def fence(tree: tuple, chunks: int = 1, restarts: int = 0) -> ChildBits:
    """The rule of tree.p4, where workers ask for partial results."""
    return ChildBits(tree, Rule.FENCE, 1, chunks, partial=True, restarts=restarts, root_fence=True)


WITHOUT_RESTARTS = [
    fence(RACK, 3),
    fence(RACKS),
    fence(EVEN_RACKS),
    fence(TALL_RACK, 2),
    fence(PODS),
]
WITH_RESTARTS = [
    fence(RACKS, restarts=1),
    fence(TALL_RACK, restarts=2),
]
LARGER = [
    fence(RACKS, 2),
    fence(RACK, 2, restarts=1),
    fence(POD, restarts=1),
    fence(RACKS, restarts=2),
    fence(PODS, restarts=1),
    *LARGE,
]
LARGER_WITHOUT_RESTARTS = [model for model in LARGER if not model.restarts]
LARGER_WITH_RESTARTS = [model for model in LARGER if model.restarts]
# Nobody asks for partial results, and nothing is fenced.
COMPLETE = [
    ChildBits(RACKS, Rule.COMPLETE, 1, 3),
    ChildBits(PODS, Rule.COMPLETE, 1, 3),
    ChildBits(RACKS, Rule.COMPLETE, 1, 2, restarts=1),
    ChildBits(RACKS, Rule.COMPLETE, 1, 1, restarts=2),
    ChildBits(PODS, Rule.COMPLETE, 1, 1, restarts=2),
]
LARGER_COMPLETE = [
    ChildBits(RACKS, Rule.COMPLETE, 2, 4),
    ChildBits(PODS, Rule.COMPLETE, 1, 2, restarts=1),
]


def name(model: ChildBits) -> str:
    return model.name


# ---------------------------------------------------------------- what is wrong


def test_partial_results_need_the_fence() -> None:
    """A complete result needs no register. For others the leaf may have summed anew, and others.

    Here a leaf passes a result only if its own slot is closed or full.
    """
    with pytest.raises(CounterexampleError) as caught:
        explore(replace(fence(RACK, restarts=1), rule=Rule.COMPLETE), ends=False)
    assert str(caught.value).splitlines() == [
        "worker 1 is told that it is not in, and it is",
        "switch 1 gets the sum [1] of chunk 0, which asks 2 levels",
        "switch 1 restarts",
        "switch 0 gets the sum [1] of chunk 0",
        "switch 1 gets the sum [0] of chunk 0, which asks 2 levels",
        "switch 1 gets the result [1] of chunk 0 with bitmap 1",
        "worker 1 gets the result [1] of chunk 0 with bitmap 1",
    ]


@pytest.mark.parametrize(
    ("model", "message", "steps"),
    [
        # A root that restarts makes a second result, and the leaf has had the first.
        (replace(fence(RACKS, restarts=1), root_fence=False), "not in, and it is", 8),
        # A leaf that gets the fence when it has sent something up, and lost its registers.
        (replace(fence(RACK, restarts=1), fence_first=False), "not in, and it is", 8),
        # All racks are in, but not all workers of each.
        (replace(fence(RACK), counts=False), "another number", 4),
    ],
    ids=["no-root-fence", "late-fence", "no-counts"],
)
def test_without_one_of_its_parts_it_is_refuted(model: ChildBits, message: str, steps: int) -> None:
    with pytest.raises(CounterexampleError, match=message) as caught:
        explore(model, ends=False)
    assert len(caught.value.steps) == steps


# ---------------------------------------------------------------- what holds


@each_model(WITHOUT_RESTARTS, name, larger=LARGER_WITHOUT_RESTARTS)
def test_every_chunk_ends_also_without_a_worker(model: ChildBits) -> None:
    """From every state, once nothing is lost any more, with all workers or without any one.

    Except for a worker that lacks the root's results of two windows: the others may go on, and take
    over the slots that it asks for.
    """
    found = explored(model)
    everybody = model.full(ROOT)
    for nodes in (*found.stuck, *(nodes for nodes, _ in found.stuck_without)):
        made = max(
            slot.sequence for slot in nodes.slots[ROOT] if slot.mode or slot.bits == everybody
        )
        assert made - min(len(own) for own in nodes.received) >= 2 * model.window
    assert model.chunks > 2 * model.window or not found.stuck


@each_model([*WITHOUT_RESTARTS, *WITH_RESTARTS], name, larger=LARGER)
def test_with_fences_everybody_is_told_what_is_true(model: ChildBits) -> None:
    """Any packet lost, repeated or delayed for any time; workers late or dead; partial results;
    switches that forget. All who have a chunk's result have the same.
    """
    found = explored(model)
    sums = {total for nodes in found.ends for own in nodes.received for _, total in own}
    assert len(sums) == model.chunks * ((1 << model.workers) - 1)  # anybody may be missing
    if model.restarts:
        assert 0 < len(found.stuck) < len(found.reached)  # for these there is the next epoch


@each_model(COMPLETE, name, larger=LARGER_COMPLETE)
def test_jobs_without_partial_results_need_no_fence(model: ChildBits) -> None:
    found = explored(model)
    assert bool(found.stuck) == bool(model.restarts)
    assert found.ends


def test_a_chunk_ends_from_so_many_states_after_a_leaf_has_restarted() -> None:
    """Of the 272 in which some worker waits for the result and no switch has restarted yet."""
    before = fence(RACKS)
    after = replace(before, restarts=1)
    found = 0
    waiting = [nodes for nodes in explored(before).reached if not all(nodes.received)]
    for nodes in waiting:
        restarted = dict(after.events(nodes))
        found += after.finishes(restarted["switch 1 restarts"])
    assert (found, len(waiting)) == (142, 272)


@each_model(WITH_RESTARTS, name, larger=LARGER_WITH_RESTARTS)
def test_a_switch_with_the_fence_knows_its_children(model: ChildBits) -> None:
    """The result it is in finds the slot that was sent up: it need not look whether it does."""
    found = 0
    for (slot, life, packet), (after, _) in explored(model).met.items():
        if not isinstance(packet, Down) or life or packet.chunk + 1 < slot.sequence:
            continue
        assert packet.to != ROOT
        if packet.bits >> model.above[packet.to][1] & 1 and packet.lacks:
            assert slot.sequence == packet.chunk + 1
            assert slot.mode & 1 or slot.bits == model.full(packet.to)
            assert after.bits == slot.bits
            found += 1
    assert found
