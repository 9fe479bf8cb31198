"""Hierarchical aggregation, and functions for all programs with several levels of switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import NamedTuple

from innet.core.errors import InputError
from innet.core.packets import MAX_PORT
from innet.core.settings import BITMAP_BITS, MAX_WORKERS
from innet.programs import CompiledProgram
from innet.protocol import SlotReader, SlotRegisters, Timing
from innet.protocol.admission import Job, WorkerPort
from innet.protocol.slot_client import TreeClient
from innet.topology.aggregation import (
    Aggregation,
    CellsReader,
    Probe,
    Request,
    checked,
    job_for,
    newest,
    newest_of,
)
from innet.topology.plan import (
    EntryFinder,
    Plan,
    PlannedHost,
    PlannedLink,
    PlannedSwitch,
    Port,
    Rack,
    UsedResources,
)
from innet.topology.topologies import TreeNode, shape
from innet.wire import Endpoint, PacketLayout

SERVER = "ps"
# ----------------------------------------------------------------------------
# Links, addresses and ports.

UP_PORT = 100  # towards the root; of the root, towards the server if there is one
_FIRST_CHILD_PORT = 101  # switches below; workers have the ports from 1 on


class Neighbor(NamedTuple):
    """A neighbor directly below a switch.

    Attributes:
        port: its port at the switch.
        node: the switch below; None for a worker.
        worker: the worker, or the first worker below that switch.
        workers: all workers there.
        place: which of the switch's children it is, from 0.
        endpoint: its addresses.
    """

    port: int
    node: TreeNode | None
    worker: int
    workers: range
    place: int
    endpoint: Endpoint


class WayUp(NamedTuple):
    """What leads up from a switch in one of the trees that it belongs to.

    Attributes:
        parent: the switch above.
        port: the port to it.
        slots: the slots of that tree, as keys of a ternary table.
    """

    parent: TreeNode
    port: int
    slots: tuple[str, ...]


def address(node: TreeNode) -> Endpoint:
    """The addresses of a switch."""
    return Endpoint.of_switch(node.index)


def below(node: TreeNode, members: Sequence[WorkerPort]) -> Iterator[Neighbor]:
    """The neighbors directly below ``node``: switches, then workers."""
    for place, (child, (port, _)) in enumerate(zip(node.children, links_of(node), strict=True)):
        yield Neighbor(port, child, child.identity, child.workers, place, address(child))
    for place, worker in enumerate(node.local_workers, start=len(node.children)):
        member = members[worker]
        alone = range(worker, worker + 1)
        yield Neighbor(member.port, None, worker, alone, place, member.endpoint)


def links_of(node: TreeNode) -> tuple[tuple[int, int], ...]:
    """Of each switch below ``node``, the port here and the port there."""
    return node.links or tuple(
        (_FIRST_CHILD_PORT + place, UP_PORT) for place in range(len(node.children))
    )


# ----------------------------------------------------------------------------
# Several trees: each slot belongs to one of them, by its low bits.

_CLASSES = 16  # of slots for each tree, where their number is no power of two


def slot_classes(trees: int, slots: int) -> int:
    """How many values of a slot's low bits are told apart: a power of two, at most ``slots``.

    Tree t has the values v with v modulo ``trees`` = t. If ``trees`` is no power of two, some trees
    have one value more than others; there are so many values that this is at most 1/16 more.
    """
    needed = trees if trees & (trees - 1) == 0 else _CLASSES * trees
    return min(slots, 1 << (needed - 1).bit_length())


def root_of(roots: Sequence[TreeNode], slot: int, slots: int) -> TreeNode:
    """The root of the tree that a slot of a job with ``slots`` belongs to."""
    return roots[slot % slot_classes(len(roots), slots) % len(roots)]


def with_ways(roots: Sequence[TreeNode], slots: int) -> list[tuple[TreeNode, tuple[WayUp, ...]]]:
    """Each switch of the trees once, by index, with the switches above it; none above a root."""
    nodes: dict[str, TreeNode] = {}
    ways: dict[str, list[WayUp]] = defaultdict(list)
    classes = slot_classes(len(roots), slots)
    for tree, root in enumerate(roots):
        keys = tuple(f"{low}&&&{classes - 1}" for low in range(tree, classes, len(roots)))
        for node in root.descend():
            nodes[node.name] = node
            for child, (_, port) in zip(node.children, links_of(node), strict=True):
                ways[child.name].append(WayUp(node, port, keys))
    ordered = sorted(nodes.values(), key=lambda node: node.index)
    return [(node, tuple(ways[node.name])) for node in ordered]


def members_below(
    root: TreeNode, first: int, last_port: int, taken: Container[Port], *, child_bits: bool = False
) -> tuple[WorkerPort, ...]:
    """The members of a job. Worker i is host ``first + i``, with its default address, at the port
    of its host's number + 1, or else at the lowest free port of its switch.

    Args:
        root: the tree.
        first: number of hosts of other jobs.
        last_port: last port that may follow from a host's number. Higher ports lead to switches.
        taken: ports of other jobs and of unused links.
        child_bits: the bits of a bitmap name the children of a switch, instead of all workers.

    Raises:
        InputError: a switch has too few ports, or more children than its bitmap has bits.
    """
    members: dict[int, WorkerPort] = {}
    for node in root.descend():
        for_switches = range(UP_PORT, _FIRST_CHILD_PORT + len(node.children))
        first_bit = len(node.children)
        below = first_bit + len(node.local_workers)
        if child_bits and below > BITMAP_BITS:
            raise InputError(
                f"{below} workers and switches directly below {node.name}; a switch takes "
                f"{BITMAP_BITS}, as a packet names each by one of {BITMAP_BITS} bits. Choose more "
                "racks or more levels, as the topology tree has by default, or a shape of your own "
                "with more switches."
            )
        used: set[int] = set()

        def free(port: int, node: TreeNode = node, used: set[int] = used) -> bool:
            return port not in used and Port(node.name, port) not in taken

        rest = iter(port for port in range(1, MAX_PORT + 1) if port not in for_switches)
        for bit, worker in enumerate(node.local_workers, start=first_bit):
            host = first + worker
            port = host + 1
            if port > last_port or not free(port):
                found = next(filter(free, rest), None)
                if found is None:
                    raise InputError(
                        f"{len(node.local_workers)} workers at switch {node.name}; it has too few "
                        f"ports for them: 1 to {MAX_PORT}, with those to other switches and of "
                        "other jobs. Spread them over more switches, or choose fewer jobs."
                    )
                port = found
            used.add(port)
            members[worker] = WorkerPort(
                port, Endpoint.of_worker(host), node.name, bit if child_bits else None
            )
    return tuple(members[worker] for worker in sorted(members))


def wire(
    root: TreeNode, members: Sequence[WorkerPort], first: int = 0
) -> tuple[list[PlannedHost], list[PlannedLink]]:
    """The hosts of the workers, named h(first + 1) and on, and all links of the tree."""
    hosts: dict[int, PlannedHost] = {}
    links: list[PlannedLink] = []
    for node in root.descend():
        for each in below(node, members):
            name = f"h{first + each.worker + 1}" if each.node is None else each.node.name
            if each.node is None:
                host = PlannedHost(name, each.endpoint, address(node), "worker", each.worker)
                hosts[each.worker] = host
            end = Port(name, 0 if each.node is None else UP_PORT)
            links.append(PlannedLink(end, Port(node.name, each.port)))
    return [hosts[worker] for worker in sorted(hosts)], links


def shape_of(plan: Plan) -> TreeNode:
    """The tree whose links ``wire`` made for a plan; the plan's first switch is the root."""
    return _trees(plan, (plan.switches[0].name,))[0]


def all_trees(plan: Plan) -> tuple[TreeNode, ...]:
    """The roots of all trees of a plan's job."""
    return _trees(plan, plan.roots or (plan.switches[0].name,))


def trees_of(plan: Plan) -> tuple[TreeNode, ...]:
    """The roots of the trees that the slots of a plan's job are spread over: those without a
    switch that is down, or all if there is none. Leaves do not count, as they are in all trees.
    Slots that move have a power of two of trees.
    """
    trees = all_trees(plan)
    up = tuple(
        root
        for root in trees
        if plan.down.isdisjoint(node.name for node in root.descend() if node.children)
    )
    up = up or trees
    return up[: 1 << len(up).bit_length() - 1] if plan.switches[0].program.moves_slots else up


def _possible_roots(plan: Plan) -> Callable[[int], tuple[TreeNode, ...]]:
    """Of a slot of a plan's job, the roots that may have it: any of them, if slots move."""
    roots = trees_of(plan)
    if plan.switches[0].program.moves_slots:
        return lambda _: roots
    return lambda slot: (root_of(roots, slot, plan.job.slots),)


def _trees(plan: Plan, roots: Sequence[str]) -> tuple[TreeNode, ...]:
    """Trees of a plan with these roots."""
    index = {switch.name: number for number, switch in enumerate(plan.switches)}
    racks: dict[str, list[int]] = defaultdict(list)
    attachments = plan.attachments()
    for number, host in enumerate(plan.hosts, start=1):
        if host.worker is not None:
            racks[attachments[number].node].append(host.worker)
    below: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for low, high in plan.trunks():
        if low.port == UP_PORT or plan.roots:
            below[high.node].append((high.port, low.port, low.node))

    @cache
    def node(name: str) -> TreeNode | None:
        """A switch, if there are workers below it."""
        found = [
            (child, (port, up_port))
            for port, up_port, child_name in sorted(below[name])
            if (child := node(child_name)) is not None
        ]
        workers = [*racks[name], *(worker for child, _ in found for worker in child.workers)]
        if not workers:
            return None
        spread = range(min(workers), max(workers) + 1)
        children, links = tuple(zip(*found, strict=True)) or ((), ())
        return TreeNode(name, index[name], spread, children, links)

    return tuple(found for root in roots if (found := node(root)) is not None)


def next_epoch(
    plan: Plan,
    absent: frozenset[int],
    entries: EntryFinder,
    tables: Sequence[str],
    admissions: Callable[[TreeNode, Sequence[WayUp], Job], list[str]],
) -> tuple[Plan, dict[str, list[str]]]:
    """See ``Aggregation.next_epoch``: the entries of ``tables`` are replaced by ``admissions``.

    Absent workers stay in the multicast groups; their hosts ignore the results. Switches that are
    down get no commands. Once they answer again they lose the entries that they had.
    """
    job = replace(plan.job, epoch=plan.job.following_epoch, absent=absent)
    # Step 1: whatever is known of an older epoch, also in trees that are not in use.
    commands: dict[str, list[str]] = {
        node.name: [
            f"table_delete {table} {entry}"
            for table in tables
            for entry in entries(node.name, table)
        ]
        for node, _ in with_ways(all_trees(plan), job.slots)
        if node.name not in plan.down
    }
    # Step 2: the trees that are in use from now on.
    for node, ways in with_ways(trees_of(plan), job.slots):
        if node.name not in plan.down:
            commands[node.name] += admissions(node, ways, job)
    return replace(plan, job=job), commands


def delivery(port: int, endpoint: Endpoint) -> str:
    """The command that addresses packets leaving at ``port`` to ``endpoint``."""
    return (
        f"table_add NetworkEgress.deliver NetworkEgress.address {port} => "
        f"0x{endpoint.mac_bytes.hex()} {endpoint.ip_number} {endpoint.udp_port}"
    )


# ----------------------------------------------------------------------------
# The plan of a network with several levels.


def plan_levels(
    program: CompiledProgram,
    request: Request,
    commands: Callable[[TreeNode, Sequence[WayUp], Job, UsedResources], tuple[str, ...]],
    *,
    served: bool = False,
    child_bits: bool = False,
    several_trees: bool = False,
    partitioned: bool = True,
) -> Plan:
    """The plan of the network for ``request``.

    Args:
        program: the program of all switches.
        request: parameters of the network.
        commands: (switch, what leads up from it, job, resources of other jobs) -> commands for the
            switch.
        served: the job has a parameter server behind the root.
        child_bits: the bits of a bitmap name the children of a switch, instead of all workers.
        several_trees: the program can spread a job's slots over several trees.
        partitioned: see ``Aggregation``.

    Raises:
        InputError: a number that exceeds the program's resources, or an invalid network.
    """
    size, window = checked(program, request, MAX_WORKERS if child_bits else None)
    options = {"racks": request.racks, "depth": request.depth, "ports": request.ports}
    network = shape(request.topology or "tree", request.workers, options)
    root = network.root
    if network.others and not several_trees:
        raise InputError(
            f"{len(network.roots)} trees: {program.program} sums over one; leave trees out, or "
            "choose program tree."
        )
    used = UsedResources.by(request.existing_jobs)
    # Higher ports lead to other switches.
    last_port = UP_PORT - 1 if root.children or served else MAX_PORT
    taken = used.ports | {end for link in network.unused_links for end in link}
    if served:
        taken |= {Port(root.name, server_port(root, used))}
    members = members_below(root, used.hosts, last_port, taken, child_bits=child_bits)
    job = job_for(request, size.slots, window, members, partitioned=partitioned)
    hosts, links = wire(root, members, used.hosts)
    if served:
        name = f"{SERVER}{len(request.existing_jobs) + 1}" if request.existing_jobs else SERVER
        hosts.append(PlannedHost(name, server_address(job, used), address(root), "server"))
        links.append(PlannedLink(Port(name, 0), Port(root.name, server_port(root, used))))
    return Plan(
        aggregation=program.program,
        switches=(
            *(
                PlannedSwitch(node.name, program, commands(node, ways, job, used))
                for node, ways in with_ways(network.roots, job.slots)
            ),
            *(PlannedSwitch(name, program, ()) for name in network.spare),
        ),
        hosts=tuple(hosts),
        links=(*links, *network.unused_links),
        job=job,
        layout=PacketLayout(size.values, request.framing, has_owners=program.has_owners),
        roots=tuple(each.name for each in network.roots) if network.others else (),
    )


def server_port(root: TreeNode, used: UsedResources) -> int:
    """The port of a job's parameter server at the root: the first that leads nowhere else."""
    for port in (UP_PORT, *range(_FIRST_CHILD_PORT + len(root.children), MAX_PORT + 1)):
        if Port(root.name, port) not in used.ports:
            return int(port)
    raise InputError(f"no port of {root.name} is left for a server. Choose fewer jobs.")


def server_address(job: Job, used: UsedResources) -> Endpoint:
    """The addresses of a job's parameter server: from the second job on, those of a worker with
    the server's number among all hosts.
    """
    return Endpoint.of_worker(used.hosts + len(job.members)) if used.hosts else Endpoint.of_server()


def with_defaults(request: Request, *, window: int, depth: int) -> Request:
    """``request``, completed by these defaults."""
    if request.window is None:
        request = replace(request, window=window)
    if request.depth is None and request.topology is None:
        request = replace(request, depth=depth)
    return request


# ----------------------------------------------------------------------------
# Hierarchical aggregation: a tree of switches, the workers below its leaves.

_ADMISSION = "TreeIngress.admission"
_POOL = "TreeIngress.pool"
_BY_SLOT = 511  # in place of a port up: the table "trees" has it
_TABLES = (f"{_ADMISSION}.admission", f"{_ADMISSION}.position", f"{_ADMISSION}.trees")


class TreeAggregation(Aggregation):
    """Worker i is host h(i+1); s1 is the root. Further jobs follow. Ports: ``members_below``."""

    has_epochs = True
    has_partials = True
    shares = True
    sequences = MappingProxyType({"tree": "TreeIngress.pool.sequence"})

    def plan(self, program: CompiledProgram, request: Request) -> Plan:
        """See ``Aggregation``. By default there are two levels, and a rack for every 32 workers."""
        if (request.job, request.epoch) == (0xFFFF, 0xFFFF):
            raise InputError("job 65535 has no epoch 65535 with tree; choose another number.")
        with_owners = partial(commands, has_owners=program.has_owners)
        plan = plan_levels(program, request, with_owners, child_bits=True, several_trees=True)
        trees = all_trees(plan)
        if program.moves_slots and (
            len(trees).bit_count() != 1 or trees[0].height > 1 < len(trees)
        ):
            raise InputError(
                f"{len(trees)} trees of {trees[0].height} levels of switches below the root: "
                f"{program.program} moves slots between 2, 4, 8, ... spines of a leaf-spine. "
                "Choose a topology such as leaf-spine:spines=4,trees=4, or program tree."
            )
        return plan

    def worker_end(self, plan: Plan, host: PlannedHost, timing: Timing | None = None) -> TreeClient:
        """See ``Aggregation``."""
        if timing is not None and timing.partial_after is not None and not plan.job.allow_partial:
            raise InputError(
                "partial_after is set, but the plan does not allow partial results for this job; "
                "plan it with Request(allow_partial=True)."
            )
        return TreeClient(
            plan.layout,
            plan.membership(host),
            source=host.endpoint,
            switch=host.peer,
            timing=timing,
        )

    def placed(self, network: Plan, hosts: Sequence[int], job: Job) -> Plan:
        """See ``Aggregation``. The root is the lowest switch that has all workers below it."""
        if network.roots:
            raise InputError("jobs that come and go sum over one tree each; leave trees out.")
        plan = network.at_hosts(hosts)
        # Step 1: the part of the network's tree that has the workers, below their lowest root.
        root = shape_of(plan)
        while len(root.children) == 1 and not root.local_workers:
            (root,) = root.children
        # Step 2: the workers' bits at their switches. Ports and addresses are the network's.
        members = [network.job.members[host] for host in hosts]
        for node in root.descend():
            for each in below(node, members):
                if each.node is None:
                    members[each.worker] = replace(members[each.worker], bit=each.place)
        job = replace(job, members=tuple(members))
        # Step 3: the commands of its switches, of which the first is the root.
        known = replace(UsedResources.by((network,)), nodes={})
        planned = {switch.name: switch for switch in network.switches}
        switches = tuple(
            replace(
                planned[node.name],
                commands=commands(node, ways, job, known, has_owners=plan.layout.has_owners),
            )
            for node, ways in sorted(
                with_ways((root,), job.slots), key=lambda pair: pair[0].name != root.name
            )
        )
        nodes = {each.name for each in switches} | {each.name for each in plan.hosts}
        links = tuple(link for link in plan.links if nodes.issuperset(link.ends))
        return replace(plan, switches=switches, links=links, job=job)

    def next_epoch(
        self, plan: Plan, absent: frozenset[int], entries: EntryFinder
    ) -> tuple[Plan, dict[str, list[str]]]:
        """See ``Aggregation``."""
        return next_epoch(plan, absent, entries, _TABLES, admissions)

    def racks(self, plan: Plan) -> tuple[Rack, ...]:
        """See ``Aggregation``. A rack's switch is the root of a tree of one level."""
        return tuple(
            _rack(plan, node, number)
            for number, node in enumerate(
                (node for node, _ in shape_of(plan).with_parents() if node.local_workers), start=1
            )
        )

    def late_workers(self, plan: Plan, read: CellsReader) -> frozenset[int]:
        """See ``Aggregation``. Which results lack somebody, the root knows."""
        job = plan.job
        if not job.allow_partial:
            return frozenset()
        possible_roots = _possible_roots(plan)
        everybody = {root.name: full_bitmap(root, job) for root in trees_of(plan)}
        cells = cache(lambda switch, name: read(switch, f"{_POOL}.{name}"))
        late: set[int] = set()
        pairs = ((slot, root) for slot in range(job.slots) for root in possible_roots(slot))
        for slot, root in pairs:
            owner, state, bitmap, count = (
                cells(root.name, name) for name in ("owner", "state", "bitmap", "count")
            )
            for index in (2 * (job.slot_base + slot), 2 * (job.slot_base + slot) + 1):
                # The root has been closed, or all of its racks are in and one of them was closed.
                has_result = state[index] & 1 or bitmap[index] == everybody[root.name]
                is_partial = count[index] != len(job.present)
                if has_result and is_partial and owner[index] == job.number << 16 | job.epoch:

                    def cell(switch: str, name: str, index: int = index) -> int:
                        return cells(switch, name)[index]

                    inside = counted(root, job, _held(root, job, cell)).bitmap
                    late.update(worker for worker in job.present if not inside >> worker & 1)
        return frozenset(late)

    def slot_reader(self, plan: Plan, probe: Probe) -> SlotReader:
        """See ``Aggregation``. Worker i is bit i, however many there are."""
        job = plan.job
        possible_roots = _possible_roots(plan)
        heeds_fence = job.allow_partial or plan.switches[0].program.moves_slots

        def reader(slot: int, slot_version: int) -> SlotRegisters:
            roots = possible_roots(slot)
            index = (job.slot_base | slot) << 1 | slot_version
            found = newest(
                counted(
                    root,
                    job,
                    _held(
                        root, job, lambda node, name: probe.register(node, f"{_POOL}.{name}", index)
                    ),
                )
                for root in roots
            )
            if not heeds_fence:
                return found
            lost = dict.fromkeys(name for root in roots for name in lost_switches(root, job, probe))
            return found._replace(lost=tuple(lost))

        return reader


def _rack(plan: Plan, node: TreeNode, number: int) -> Rack:
    """The job of the workers at a switch, the ``number``-th of these jobs from 1.

    It has slots and a multicast group behind those of the plan's job. Racks use different
    switches, so all have the same.
    """
    job, workers = plan.job, node.local_workers
    planned = next(each for each in plan.switches if each.name == node.name)
    slots = planned.program.dimensions().slots
    base = job.slot_base + job.slots
    if base + job.slots > slots:
        raise InputError(
            f"racks that sum for themselves need {job.slots} slots beside the {base} that are "
            f"taken; {planned.program.name} has {slots}. Choose a window of {slots // 2} or less."
        )
    numbers = [job.number, *(n for n in range(1, number + 2) if n != job.number)]
    members = tuple(replace(job.members[w], bit=bit) for bit, w in enumerate(workers))
    rack_job = replace(
        job,
        members=members,
        number=numbers[number],
        slot_base=base,
        group=job.group + 1,
        absent=frozenset(bit for bit, w in enumerate(workers) if w in job.absent),
    )
    alone = TreeNode(node.name, 0, range(len(workers)))
    used = UsedResources.by((plan,))
    return Rack(
        replace(
            plan,
            switches=(
                replace(
                    planned,
                    commands=commands(alone, (), rack_job, used, has_owners=plan.layout.has_owners),
                ),
            ),
            hosts=tuple(replace(plan.workers[w], worker=i) for i, w in enumerate(workers)),
            links=tuple(
                PlannedLink(Port(plan.workers[w].name, 0), Port(node.name, job.members[w].port))
                for w in workers
            ),
            job=rack_job,
            roots=(),
        ),
        workers,
    )


def lost_switches(root: TreeNode, job: Job, probe: Probe) -> tuple[str, ...]:
    """Switches that have lost their registers since the job's epoch began: without its fence."""
    return tuple(
        node.name
        for node in root.descend()
        if probe.register(node.name, f"{_POOL}.fence", job.slot_base) != fence_of(job)
    )


def _held(root: TreeNode, job: Job, read: Callable[[str, str], int]) -> dict[str, SlotRegisters]:
    """Sequence and bitmap of a slot in each switch; zeros where another epoch left something."""
    mine = job.number << 16 | job.epoch
    return {
        node.name: SlotRegisters(read(node.name, "sequence"), read(node.name, "bitmap"))
        if read(node.name, "owner") == mine
        else SlotRegisters(0, 0)
        for node in root.descend()
    }


def counted(root: TreeNode, job: Job, held: Mapping[str, SlotRegisters]) -> SlotRegisters:
    """The workers in a slot, from the registers of all switches, level by level.

    A worker counts if its switch has its bit. Where a switch does not have the newest chunk, or not
    any more, its parent's bit stands for all workers below it.

    Args:
        root: the tree.
        job: the job.
        held: of each switch, sequence and bitmap of the slot.

    Returns:
        The newest chunk that a switch has, and its workers: bit i is worker i.
    """
    newest = newest_of(held.values())

    def workers(node: TreeNode, *, inside: bool) -> int:
        registers = held[node.name]
        if registers.sequence != newest:
            found = node.mask if inside else 0
            for child in node.children:
                found |= workers(child, inside=False)
            return found
        found = 0
        for each in below(node, job.members):
            there = bool(registers.bitmap >> each.place & 1)
            if each.node is None:
                found |= there << each.worker
            else:
                found |= workers(each.node, inside=there)
        return found

    return SlotRegisters(newest, workers(root, inside=False))


def full_bitmap(node: TreeNode, job: Job) -> int:
    """The children of a switch that take part in the job's epoch, as bits."""
    return sum(
        1 << each.place
        for each in below(node, job.members)
        if not job.absent.issuperset(each.workers)
    )


def commands(
    node: TreeNode,
    ways: Sequence[WayUp],
    job: Job,
    used: UsedResources,
    *,
    has_owners: bool = False,
) -> tuple[str, ...]:
    """The commands for a switch of the tree, in simple_switch_CLI's language.

    Args:
        node: the switch.
        ways: what leads up from it, of each tree; nothing from a root.
        job: the job of the tree.
        used: resources of other jobs, for which the switch has commands.
        has_owners: chunks may have an owner; see ``CompiledProgram``.
    """
    lines = [f"mc_mgrp_create {job.group}"]
    first = used.nodes.get(node.name, 0)
    for number, each in enumerate(below(node, job.members), start=first):
        if Port(node.name, each.port) not in used.ports:
            lines.append(delivery(each.port, each.endpoint))
        lines += [
            f"mc_node_create {each.worker} {each.port}",
            f"mc_node_associate {job.group} {number}",
        ]
    for port, parent in {way.port: way.parent for way in ways}.items():
        if Port(node.name, port) not in used.ports:
            lines.append(delivery(port, address(parent)))
    if has_owners:
        lines += owner_places(node, job)
    return (*lines, *admissions(node, ways, job))


def owner_places(node: TreeNode, job: Job) -> list[str]:
    """The commands that say below which child of a switch the owner of a chunk is.

    They name absent workers, too, and so hold in all epochs.
    """
    alone = int(len(node.workers) == 1)
    return [
        f"table_add {_ADMISSION}.owners {_ADMISSION}.owner_below {job.number} "
        f"{each.workers.start}->{each.workers.stop - 1} => "
        f"{each.worker} {int(len(each.workers) == 1)} {alone} 1"
        for each in below(node, job.members)
    ]


def fence_of(job: Job) -> int:
    """What the register ``fence`` of a switch holds that has kept its registers in this epoch."""
    return ~(job.number << 16 | job.epoch) & 0xFFFF_FFFF


def admissions(node: TreeNode, ways: Sequence[WayUp], job: Job) -> list[str]:
    """The commands of an epoch: which workers are admitted, and which are required.

    The fence comes first, before anybody is admitted, and is never written again in this epoch: a
    switch that has lost its registers must not hold it. docs/tree.md says why.
    """
    spoken = f"{job.number} {job.epoch}"
    lines = [f"register_write {_POOL}.fence {job.slot_base} {fence_of(job)}"]
    everybody = full_bitmap(node, job)
    for each in below(node, job.members):
        size = sum(worker not in job.absent for worker in each.workers)
        if not size:
            continue
        entry = f"{each.port} {spoken} {each.worker} => {1 << each.place}"
        if each.node is None:
            lines.append(f"table_add {_TABLES[0]} {_ADMISSION}.admit_worker {entry}")
        else:
            lines.append(f"table_add {_TABLES[0]} {_ADMISSION}.admit_switch {entry} {size}")
    height = min(node.height, 3)
    entry = (
        f"{spoken} => {everybody} {job.group} {job.slot_base} {job.slots - 1} {height} "
        f"{int(job.allow_partial)}"
    )
    if not ways:
        lines.append(f"table_add {_TABLES[1]} {_ADMISSION}.set_root {entry} {len(job.present)}")
    elif everybody:
        ports = {way.port: way.parent for way in ways}
        for port, parent in ports.items():
            own_bit = 1 << [child.name for child in parent.children].index(node.name)
            lines.append(
                f"table_add {_TABLES[0]} {_ADMISSION}.admit_parent {port} {spoken} {node.identity} "
                f"=> {own_bit}"
            )
        lines.append(
            f"table_add {_TABLES[1]} {_ADMISSION}.set_inner {entry} "
            f"{_BY_SLOT if len(ports) > 1 else ways[0].port} {node.identity}"
        )
        if len(ports) > 1:
            lines += [
                f"table_add {_TABLES[2]} {_ADMISSION}.set_up_port {spoken} {slots} => {way.port} 1"
                for way in ways
                for slots in way.slots
            ]
    return lines
