"""tree.p4 is the model of trees whose bitmaps name children, packet for packet.

``test_model_check_child_bits`` explores all that can happen to the model. Here every pair of a
slot's contents and a packet that was met there is put to the compiled program on both engines, and
what becomes of both is compared. Each pair has a slot of its own, so that a switch gets hundreds of
them in one batch. The second tier takes the pairs of larger networks too, which need some minutes
to be explored.

The model sums. Of a chunk with an owner, the program `collectives-tree` does the same with the
same packets, but for the values in them. So all that can happen to such chunks is what happens to
sums, if the program keeps and sends the right part of each sum: the values that ``Network.words``
names, in the packets that ``Network.carries`` names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
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
    Effect,
    Packet,
    Rule,
    Slot,
    Tree,
    Up,
    explored,
)
from support.exploring import BITS, each_model
from support.tiers import tiered
from support.traffic import without_values

from innet import programs
from innet.core.packets import PacketBatch
from innet.core.reduce_op import CollectiveOp, ReduceOp
from innet.protocol.admission import Job
from innet.switch import Switch, load_program
from innet.switch.ir import Program
from innet.topology.plan import UsedResources
from innet.topology.topologies import TreeNode
from innet.topology.tree import UP_PORT, WayUp, below, commands, members_below
from innet.wire import WITHOUT_VALUES, Endpoint, HeaderFlag, PacketLayout, pack, parse_strict

REDUCE, BROADCAST, BARRIER = CollectiveOp
JOB, EPOCH = 7, 3
OWNER = JOB << 16 | EPOCH
SLOTS = 512  # of the job, beside as many that are not its own; each has two versions
FIRST = 2 * SLOTS  # index of the job's first slot and version
STALE, LATE, LOST = 7, 10, 11  # indices of the counter of drops


def fenced(tree: Tree, chunks: int, restarts: int = 0) -> ChildBits:
    """A job whose workers may ask for partial results."""
    return ChildBits(tree, Rule.FENCE, 1, chunks, partial=True, restarts=restarts, root_fence=True)


MODELS = [
    fenced(RACK, 3),
    fenced(RACKS, 1),
    fenced(RACKS, 1, restarts=1),
    fenced(EVEN_RACKS, 1),
    fenced(TALL_RACK, 2),
    fenced(TALL_RACK, 1, restarts=2),
    fenced(PODS, 1),
    # Nobody may ask for partial results, and nothing is fenced.
    ChildBits(RACKS, Rule.COMPLETE, 1, 3),
    ChildBits(PODS, Rule.COMPLETE, 1, 3),
    ChildBits(RACKS, Rule.COMPLETE, 1, 2, restarts=1),
    ChildBits(PODS, Rule.COMPLETE, 1, 1, restarts=2),
]
# Those of the first tier with owners of chunks.
OWNED = [MODELS[2], MODELS[7], MODELS[10]]
LARGER = [
    *LARGE,
    fenced(RACK, 2, restarts=1),
    fenced(POD, 1, restarts=1),
    ChildBits(RACKS, Rule.COMPLETE, 2, 4),
    fenced(PODS, 1, restarts=1),
    ChildBits(PODS, Rule.COMPLETE, 1, 2, restarts=1),
]


class Pair(NamedTuple):
    """What was met at a switch, and what the model says comes of it."""

    slot: Slot
    life: int
    packet: Packet
    effect: Effect


def pairs_of(model: ChildBits) -> dict[tuple[int, bool], list[Pair]]:
    """By switch, and whether it has lost its registers in this epoch."""
    met = explored(model).met
    found: dict[tuple[int, bool], list[Pair]] = defaultdict(list)
    for slot, life, packet in sorted(met, key=repr):
        pair = Pair(slot, life, packet, met[slot, life, packet])
        found[packet.to, life != 0].append(pair)
    return found


@cache
def program(name: str, values: int) -> Program:
    return load_program(programs.find(name, values).json())


class Network:
    """The switches of a model, as the control plane sets them up.

    Args:
        model: the model.
        operation: what is done with the chunks.
        first_owner: who owns chunk 0, if it has an owner. The next worker owns the next chunk.
    """

    def __init__(
        self,
        model: ChildBits,
        operation: ReduceOp | CollectiveOp = ReduceOp.SUM,
        first_owner: int | None = None,
    ) -> None:
        self.model = model
        self.operation = operation
        self.has_owners = first_owner is not None
        self.first_owner = first_owner or 0
        self.layout = PacketLayout(64 if self.has_owners else 32, has_owners=self.has_owners)
        members = members_below(self.nodes[ROOT], 0, 99, frozenset(), child_bits=True)
        self.job = Job(
            members,
            number=JOB,
            epoch=EPOCH,
            slot_base=SLOTS,
            slots=SLOTS,
            allow_partial=model.partial,
        )

    @cached_property
    def nodes(self) -> dict[int, TreeNode]:
        """By the model's number of the switch."""
        found: dict[int, TreeNode] = {}

        def node(switch: int) -> TreeNode:
            children = self.model.children[switch]
            inner = tuple(node(child) for child in children if child >= 0)
            workers = [~child for child in children if child < 0]
            workers += [worker for each in inner for worker in each.workers]
            found[switch] = TreeNode(
                f"s{switch + 1}", switch, range(min(workers), max(workers) + 1), inner
            )
            return found[switch]

        node(ROOT)
        return found

    def start(self, switch: int, engine: str, *, lost: bool) -> Switch:
        node = self.nodes[switch]
        above = [] if switch == ROOT else [self.nodes[self.model.above[switch][0]]]
        ways = [WayUp(parent, UP_PORT, ()) for parent in above]
        name = "collectives-tree" if self.has_owners else "tree"
        running = Switch(program(name, self.layout.values), engine)
        used = UsedResources.by(())
        for command in commands(node, ways, self.job, used, has_owners=self.has_owners):
            running.command(command)
        if lost:  # the control plane gives it its tables again, and not the fence
            running.registers["TreeIngress.pool.fence"][:] = 0
        return running

    def ends_below(self, switch: int) -> list[tuple[int, int]]:
        """Of each child: its port, and by what number it is addressed."""
        return [(each.port, each.worker) for each in below(self.nodes[switch], self.job.members)]

    def owner(self, chunk: int) -> int:
        """Who owns a chunk, if it has an owner."""
        return (self.first_owner + chunk) % self.model.workers if self.has_owners else 0

    def carries(self, chunk: int, node: int, *, up: bool) -> bool:
        """Whether a packet between a node of the model and the switch above carries values."""
        if self.operation == BARRIER:
            return False
        there = {~node} if node < 0 else set(self.nodes[node].workers)
        if not self.has_owners:
            return True
        if up == (self.operation == BROADCAST):
            return self.owner(chunk) in there
        return there != {self.owner(chunk)}

    def words(self, chunk: int, total: int) -> list[int]:
        """Those of a sum, by whose they are, that count."""
        found = [total >> BITS * worker & 0xFFFF for worker in range(4)]
        if self.has_owners:
            found = [
                word * ((worker == self.owner(chunk)) == (self.operation == BROADCAST))
                for worker, word in enumerate(found)
            ]
        return [0] * 4 if self.operation == BARRIER else found

    def kept(self, switch: int, slot: Slot) -> list[int]:
        """What is in a slot: a sum, or a result, or nothing of one that came without values."""
        chunk = slot.sequence - 1
        bare = slot.mode & 2 and not self.carries(chunk, switch, up=False)
        return [0] * 4 if bare else self.words(chunk, slot.total)


def frames(network: Network, pairs: list[Pair], *, requests: int = 0) -> PacketBatch:
    """The packets of pairs, each for its own slot; all workers ask for ``requests`` levels."""
    columns: dict[str, list[int]] = defaultdict(list)
    ports: list[int] = []
    layout = network.layout
    values = np.zeros((len(pairs), layout.values), np.int32)
    bare: list[int] = []
    for row, (_, _, packet, _) in enumerate(pairs):
        values[row, :4] = network.words(packet.chunk, packet.total)
        lower = packet.to
        if isinstance(packet, Up):
            lower = network.model.children[packet.to][packet.child]
            port, sender = network.ends_below(packet.to)[packet.child]
            is_worker = network.model.children[packet.to][packet.child] < 0
            asked = packet.request or requests
            flags = int(HeaderFlag.PARTIAL) | asked - 1 << 6 if asked else 0
            # A switch's own bitmap means nothing to the one above, nor does a worker's count.
            bitmap, count = (0, 9) if is_worker else (0xA5A5A5A5, packet.count)
        else:
            port, sender = 100, network.nodes[packet.to].identity
            flags = HeaderFlag.RESULT | HeaderFlag.PARTIAL * packet.lacks
            bitmap, count = packet.bits, packet.count
        if not network.carries(packet.chunk, lower, up=isinstance(packet, Up)):
            bare.append(row)
        ports.append(port)
        columns["sequence"].append(packet.chunk + 1)
        columns["worker"].append(sender)
        columns["flags"].append(int(flags))
        columns["bitmap"].append(bitmap)
        columns["count"].append(count)
        columns["exponent"].append(network.owner(packet.chunk))
    kinds = {"sequence": np.uint32, "bitmap": np.uint32, "flags": np.uint8}
    fields = {
        name: np.array(column, kinds.get(name, np.uint16)) for name, column in columns.items()
    }
    row = np.arange(len(pairs))
    packed = pack(
        layout,
        Endpoint.of_worker(0),
        Endpoint.of_switch(),
        values,
        operation=network.operation,
        job=JOB,
        epoch=EPOCH,
        slot=(row >> 1).astype(np.uint16),
        slot_version=(row & 1).astype(np.uint8),
        **fields,
    )
    length = np.full(len(pairs), packed.shape[1], np.int32)
    for each in bare:
        data = without_values(layout, packed[each].tobytes())
        length[each] = len(data)
        packed[each, : len(data)] = np.frombuffer(data, np.uint8)
    return PacketBatch(packed, length, np.array(ports, np.int32))


Registers = dict[str, np.ndarray]


def registers(network: Network, slots: list[Slot], switch: int) -> Registers:
    """Cells of the job's slots that say what the model says; an empty slot is another owner's."""
    held = [slot for slot in slots if slot.sequence]
    rows = np.array([row for row, slot in enumerate(slots) if slot.sequence], np.int64)
    names = ["owner", "sequence", "chunk_signature", "state", "bitmap", "count", "exponent"]
    names += ["chunk_owner"] * network.has_owners
    found = {name: np.zeros(2 * SLOTS, np.int64) for name in names}
    found["owner"][rows] = OWNER
    found["chunk_signature"][rows] = int(network.operation) << 12 | network.layout.values
    for name in ("exponent", "chunk_owner") if network.has_owners else ():
        found[name][rows] = [network.owner(slot.sequence - 1) for slot in held]
    found["sequence"][rows] = [slot.sequence for slot in held]
    # That a result lacks workers, the root finds by its count.
    found["state"][rows] = [slot.mode & (1 if switch == ROOT else 7) for slot in held]
    found["bitmap"][rows] = [slot.bits for slot in held]
    found["count"][rows] = [slot.count for slot in held]
    for worker in range(4):
        found[f"value{worker}"] = np.zeros(2 * SLOTS, np.int64)
        found[f"value{worker}"][rows] = [network.kept(switch, slot)[worker] for slot in held]
    return found


def cells(running: Switch, name: str) -> np.ndarray:
    place = "values" if name.startswith("value") else "pool"
    return running.registers[f"TreeIngress.{place}.{name}"]


def expected_drops(switch: int, pairs: list[Pair], model: ChildBits) -> dict[int, int]:
    """By reason. A packet that completes nothing is no drop, and one that is late is answered."""
    reasons: Counter[int] = Counter()
    for slot, life, packet, _ in pairs:
        stale = packet.chunk + 1 < slot.sequence
        if isinstance(packet, Up):
            lost = switch == ROOT and life != 0 and model.partial
            there = slot if slot.sequence == packet.chunk + 1 else Slot()
            late = there.mode & 1 and not there.bits >> packet.child & 1
        else:
            inside = packet.bits >> model.above[switch][1] & 1
            lost, late = life != 0 and packet.lacks and inside, False
        reasons[LOST if lost else STALE if stale else LATE if late else 0] += 1
    del reasons[0]
    return dict(reasons)


Answer = tuple[int, int, int, int, int, list[int], int]
"""Port, worker, chunk, bitmap, count, values ([] in a packet without), flags."""


def expected_answers(network: Network, switch: int, pair: Pair) -> list[Answer]:
    found: list[Answer] = []
    after, sent = pair.effect
    for packet in sent:
        what, up = packet.chunk, isinstance(packet, Up)
        carried = network.carries(what, switch if up else packet.to, up=up)
        words = network.words(what, packet.total) if carried else []
        if isinstance(packet, Up):
            asked = int(HeaderFlag.PARTIAL) | packet.request - 1 << 6 if packet.request else 0
            own = network.nodes[switch].identity
            found.append((100, own, what, after.bits, packet.count, words, asked))
            continue
        place = network.model.children[switch].index(packet.to)
        port, worker = network.ends_below(switch)[place]
        flags = int(HeaderFlag.RESULT | HeaderFlag.PARTIAL * packet.lacks)
        found.append((port, worker, what, packet.bits, packet.count, words, flags))
    return sorted(found)


def answers(network: Network, leaving: PacketBatch) -> dict[int, list[Answer]]:
    """By the row of the packet that each stems from."""
    batch = parse_strict(network.layout, leaving)
    found: dict[int, list[Answer]] = defaultdict(list)
    assert leaving.origin is not None
    for port, row, header, values in zip(
        leaving.port.tolist(), leaving.origin.tolist(), batch.header, batch.values, strict=True
    ):
        bare = int(header["operation"]) & WITHOUT_VALUES != 0
        assert int(header["operation"]) == int(network.operation) | WITHOUT_VALUES * bare
        assert (int(header["slot"]), int(header["slot_version"])) == divmod(row, 2)
        assert bare or not values[4:].any()
        words = [] if bare else values[:4].tolist()
        numbers = (int(header[name]) for name in ("worker", "sequence", "bitmap", "count"))
        worker, sequence, bitmap, count = numbers
        found[row].append((port, worker, sequence - 1, bitmap, count, words, int(header["flags"])))
    return {row: sorted(each) for row, each in found.items()}


def parts(pairs: list[Pair]) -> Iterator[list[Pair]]:
    for start in range(0, len(pairs), 2 * SLOTS):
        yield pairs[start : start + 2 * SLOTS]


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same compiled"))
@each_model(MODELS, lambda model: model.name, larger=LARGER)
def test_the_model_is_the_program(model: ChildBits, engine: str) -> None:
    """Also where workers ask for partial results of a job that has none: they are not heard."""
    compare(Network(model), engine)


@pytest.mark.parametrize("engine", tiered(["jit", "interpret"], ["jit"], "the same compiled"))
@pytest.mark.parametrize("operation", list(CollectiveOp), ids=str)
@each_model(OWNED, lambda model: model.name, larger=[each for each in MODELS if each not in OWNED])
def test_the_model_with_the_right_values_is_the_program(
    model: ChildBits, operation: CollectiveOp, engine: str
) -> None:
    """Whoever owns the chunks."""
    for owner in range(model.workers):
        compare(Network(model, operation, owner), engine)


def compare(network: Network, engine: str) -> None:
    """All pairs of the network's model."""
    model = network.model
    for (switch, lost), met in pairs_of(model).items():
        running = network.start(switch, engine, lost=lost)
        for pairs in parts(met):
            for requests in (0,) if model.partial else (0, 1, 4):
                put(network, running, switch, pairs, requests)


def put(network: Network, running: Switch, switch: int, pairs: list[Pair], requests: int) -> None:
    """The pairs to the switch, all at once."""
    for name, held in registers(network, [pair.slot for pair in pairs], switch).items():
        cells(running, name)[FIRST:] = held
    untouched = {name: array.copy() for name, array in running.registers.items()}
    dropped = running.counters["TreeIngress.dropped"].packets
    before = dropped.copy()
    leaving = running.process_batch(frames(network, pairs, requests=requests))
    after = registers(network, [pair.effect[0] for pair in pairs], switch)
    for name, wanted in after.items():
        found = cells(running, name)
        np.testing.assert_array_equal(found[FIRST:].astype(np.int64), wanted, err_msg=name)
        np.testing.assert_array_equal(found[:FIRST], 0)
    for name, array in running.registers.items():
        if name.rpartition(".")[2] not in after:  # the fence among them, and what is not used here
            np.testing.assert_array_equal(array, untouched[name], err_msg=name)
    reasons = dropped - before
    assert {int(each): int(reasons[each]) for each in np.flatnonzero(reasons)} == expected_drops(
        switch, pairs, network.model
    )
    got = answers(network, leaving)
    for row, pair in enumerate(pairs):
        assert got.get(row, []) == expected_answers(network, switch, pair), pair
