"""A network in simulated time: links, switches and hosts, whose events ``windows`` runs."""

from __future__ import annotations

import heapq
import itertools
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet.core.buffers import address_of
from innet.core.errors import InputError, StalledError
from innet.core.numba_cache import entry_of
from innet.core.packets import PacketBatch
from innet.network import FaultCounters, Faults, Host, at_port
from innet.protocol import SlotClient, Timing
from innet.protocol.slot_client import ClientState, LoopProgress
from innet.records import Fabric
from innet.sim import windows
from innet.sim.fabric import described, loads
from innet.sim.fast_forward import FastForward, Forwarded
from innet.sim.flow_control import FlowControl, PauseCounts, send_pause
from innet.sim.flows import Flow, FlowCounts, PacketFlow
from innet.sim.gpu_hosts import GpuHosts
from innet.sim.hosts import (
    close_host,
    on_message,
    plan_host_flows,
    receive_packet,
    send_frame,
)
from innet.sim.links import wire_time
from innet.sim.messages import MessageGraph
from innet.sim.messenger import PATHS, Messenger
from innet.sim.network import BALANCING, MOST_RATE, SECOND, UNITS, Network, assumed_settings
from innet.sim.scripts import CalledHost, ScriptedHost, ScriptPort
from innet.sim.state import (
    BATCH,
    BYTE_ONE,
    CALLED,
    CLIENT,
    COMPILED,
    CONTROL,
    DONE,
    FAILED,
    FAULTS,
    FAULTY,
    FLOW,
    FLOWLETS,
    FRAME,
    FULL_TRACE,
    GROUP,
    HOST,
    IDLE,
    LINK,
    MESSAGES,
    NEEDS_HOST,
    NEEDS_LEARNING,
    NEEDS_MESSAGES,
    NEEDS_PYTHON,
    NEEDS_RING,
    NEEDS_SWITCH,
    NEEDS_WAITING,
    NONE,
    OUTAGE,
    PAUSING,
    PROGRAM,
    PYTHON,
    SCRIPTED,
    SHORTEST_FRAME,
    SLOT,
    STATE,
    SWITCH,
    TOO_LONG,
    TRACE,
    TRACED,
    WAITING,
    WATCH,
    WITH_RECORDS,
)
from innet.sim.team import OVER, THREADS, make_team
from innet.sim.transport import ReliableTransport
from innet.switch import Switch
from innet.switch.inline import (
    TRAFFIC_ENTRIES,
    TRAFFIC_NOW,
    InlineQueues,
    InlineQueueSwitch,
)
from innet.switch.jit.runtime.queue import ARRIVED, ENQUEUED, WAY, entry_priority
from innet.switch.jit.runtime.queue import SLOT as SLOT_WORD
from innet.switch.jit.traits import ENTRY_WORDS, resizes
from innet.switch.record_sink import RecordSink
from innet.switch.traffic_manager import (
    ALPHA,
    FOREVER,
    PORTS,
    QUEUE_WORDS,
    UNLIMITED,
    TrafficManager,
)
from innet.wire import PacketLayout

_TRACED = 1 << 11  # packets of the trace, at least
_TRACED_BYTES = 1 << 23  # of them
_WINDOWS = 1 << 14  # of one call of compiled code, after which Python handles Ctrl-C
_MOST_THREADS = 8
_HOSTS = 32  # of each thread, at least: a window of fewer takes little time
_PARTS = 4  # of a window for each thread, so that one that is late leaves some to others
_STEALS = True  # threads take parts of others
_FIRST = 1 << 4  # packets that a link's ring has room for at first, at least

TIMING = Timing(timeout=1e-3, min_timeout=1e-3)
"""Default timeouts of workers: a millisecond, as SwitchML has it (NSDI 2021, section 4)."""


class PacketLimitError(StalledError):
    """Links carried more packets than they may."""


AnyHost = Host | ScriptedHost | CalledHost


class Cable(NamedTuple):
    """A link between a switch's port and a host, or another switch's port.

    Attributes:
        switch, port: one end. A port below 0 is none: the program cannot reach it.
        host: number of the host at the other end; None for a switch.
        other, other_port: that switch and its port.
        rate: bits per second; None: the network's ``rate``, or ``trunk_rate`` between switches;
            without one there, what hosts may send through the link.
        delay: seconds; None: the network's.
        loss: probability; None: the network's.
    """

    switch: str
    port: int
    host: int | None
    other: str = ""
    other_port: int = 0
    rate: float | None = None
    delay: float | None = None
    loss: float | None = None


class FrameSize(NamedTuple):
    """How long packets may be, in a network without a job.

    Attributes:
        frame_size: bytes of the longest, without check sequence, that it carries.
        wire_size: bytes that the longest takes on the wire; by default ``frame_size``.
    """

    frame_size: int
    wire_size: int

    @staticmethod
    def wire_length(carried: int) -> int:
        """Bytes on the wire of a frame: all that it carries."""
        return carried


class LinkCounts(NamedTuple):
    """A link in one direction.

    Attributes:
        source, target: names of its ends.
        packets, bytes: put onto it, lost ones included; bytes with ``network.OVERHEAD``.
        lost: packets.
        busy: picoseconds.
        last: when the last bit that was put onto it arrives, picoseconds; 0: there was none.
    """

    source: str
    target: str
    packets: int
    bytes: int
    lost: int
    busy: int
    last: int


class LinkEnd(NamedTuple):
    """An end of a link.

    Attributes:
        kind: "host" or "switch".
        number: among those of its kind.
        port: of a switch; None for hosts.
    """

    kind: str
    number: int
    port: int | None


class LinkEnds(NamedTuple):
    """What a link connects in one direction.

    Attributes:
        source, target: its ends.
        rate: bits per second.
        delay: picoseconds, with the pipeline of the switch at its end.
    """

    source: LinkEnd
    target: LinkEnd
    rate: int
    delay: int


class SwitchPackets(NamedTuple):
    """A switch.

    Attributes:
        packets_in: that have come.
        unconnected: that left by a port without a link.
        no_program: packets of a program that came to a switch without one, and were dropped.
    """

    packets_in: int
    unconnected: int
    no_program: int


class NetworkCounts(NamedTuple):
    """What has happened in a simulated network.

    Attributes:
        ticks: picoseconds.
        packets, bytes: put onto links, over all of them; bytes with ``network.OVERHEAD``.
        lost: packets that were lost on links.
        dropped: packets that found a queue full.
        trimmed: packets that did, and went on without their payload.
        unconnected: packets that left a switch by a port without a link.
        marked: packets that met congestion and were marked.
        pauses: how often priority flow control paused a link.
        paused: picoseconds in which it did, of each link and priority.
        busy: of each class of links, picoseconds in which they were busy, and how many there are.
        work: picoseconds in which each link was busy, each host's processor and each switch's
            port of recirculation: by "host links", "trunks", "host processors" and "recirculation".
    """

    ticks: int
    packets: int
    bytes: int
    lost: int
    dropped: int
    unconnected: int
    marked: int
    busy: Mapping[str, tuple[int, int]]
    work: Mapping[str, tuple[int, ...]]
    pauses: int = 0
    paused: tuple[int, ...] = ()
    trimmed: int = 0

    @property
    def longest_pause(self) -> float:
        """Seconds in which the link and priority that was paused longest was."""
        return max(self.paused, default=0) / SECOND

    def since(self, earlier: NetworkCounts) -> NetworkCounts:
        """What has happened since ``earlier``."""
        return NetworkCounts(
            self.ticks - earlier.ticks,
            self.packets - earlier.packets,
            self.bytes - earlier.bytes,
            self.lost - earlier.lost,
            self.dropped - earlier.dropped,
            self.unconnected - earlier.unconnected,
            self.marked - earlier.marked,
            {
                name: (busy - earlier.busy[name][0], links)
                for name, (busy, links) in self.busy.items()
            },
            {
                name: tuple(map(int.__sub__, each, earlier.work[name]))
                for name, each in self.work.items()
            },
            self.pauses - earlier.pauses,
            tuple(map(int.__sub__, self.paused, earlier.paused)),
            self.trimmed - earlier.trimmed,
        )

    def busiest(self, ticks: int) -> dict[str, float]:
        """Of each kind of ``work``, the part of a time in which the busiest one was busy.

        Args:
            ticks: picoseconds.
        """
        most = {name: max(each, default=0) for name, each in self.work.items()}
        return {name: min(1.0, each / ticks) for name, each in most.items() if each and ticks > 0}


class Simulation:
    """Hosts at switches, in simulated time.

    Args:
        network: rates, delays and queues.
        layout: of all packets of the program, or how long they may be.
        switches: by name, with their tables, which run compiled programs; None for one that only
            forwards packets of flows.
        cables: all links. Each host has one.
        hosts: number of hosts; they are 0, 1, ...
        seed: of losses and flows.

    Attributes:
        now: seconds.
        fabric: hosts, switches and links.
        assumed: settings of the network with assumed values.
        most_packets: that links may carry in all; None: any number.
        fast_forward: skip what repeats itself, see ``innet.sim.fast_forward``.
        sequences: the register of the switches' program by which that is known; "" if it has none.
        forwarded: what was skipped so far, and why nothing was in the last exchange.

    Raises:
        InputError: an engine that does not run in compiled code.
    """

    most_packets: int | None = None
    fast_forward: bool = True
    sequences: str = ""
    forwarded = Forwarded()

    def __init__(
        self,
        network: Network,
        layout: PacketLayout | FrameSize,
        switches: Mapping[str, Switch | None],
        cables: Sequence[Cable],
        hosts: int,
        *,
        seed: int = 0,
    ) -> None:
        network.check_frame(layout.wire_size)
        self._network = network
        self.assumed = assumed_settings(network)
        self._names, self._switches = list(switches), list(switches.values())
        self._layout = layout
        # What a packet takes of a switch's port for those that pass its pipeline again.
        self._pass_again = wire_time(layout.wire_size, round(network.of_recirculation))
        links, ways, self.fabric = _links(network, list(switches), cables)
        self._is_trunk = np.repeat([cable.host is None for cable in cables], 2)
        threads, self._threads = _threads(hosts)
        self._memory = memory = _memory(network, layout, links, ways, cables, hosts, seed, threads)
        self._learners: dict[int, Callable[[int], None]] = {}
        self._running: list[InlineQueueSwitch | None] = []
        self._received: list[PacketBatch] = []
        self._managers: list[TrafficManager] = []
        for index, (switch, here) in enumerate(zip(self._switches, ways, strict=True)):
            rows = 1 if switch is None else BATCH
            received = PacketBatch(
                np.zeros((rows, layout.frame_size), np.uint8),
                np.zeros(rows, np.int32),
                np.zeros(rows, np.int32),
            )
            self._received.append(received)
            running = None
            if switch is not None:
                running = switch.inline_queues(received)
                if running is None:
                    raise InputError(
                        "a network in simulated time runs compiled programs without ageing "
                        "entries; choose the engine jit."
                    )
            self._running.append(running)
            manager = switch.traffic_manager if switch else TrafficManager(network.queues)
            self._managers.append(manager)
            ports = np.flatnonzero(here >= 0).tolist()
            rates = {port: int(links["rate"][here[port]]) for port in ports}
            _set_up(
                manager, network, layout, rates, seed + index,
                trims=switch is None and network.trim,
            )  # fmt: skip
            memory.switches["runs"][index] = switch is not None
            memory.switches["resizes"][index] = switch is not None and resizes(switch.program)
            memory.switches["queues"][index] = manager.priorities * QUEUE_WORDS
            memory.programs["queues"][index] = address_of(manager.queues)
            memory.programs["queue_words"][index] = len(manager.queues)
        self._control = self._flow_control() if network.pfc else None
        # Compiled code has addresses only, so these are what keeps its arrays.
        self._begun: dict[int, InlineQueues] = {}
        self._recorded: set[int] = set()  # switches that a recording build runs
        self._kept: dict[int, ClientState] = {}
        self._cables = list(cables)
        self._flows: list[Flow | PacketFlow] = []
        self._trace: Callable[[NDArray[Any], NDArray[np.uint8]], None] | None = None
        self._added: list[int] = []  # when, of each flow
        self._outages: list[list[int]] = []
        self._ends: dict[int, AnyHost] = {}
        self._groups: dict[int, list[int]] = {}
        self._schedule: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = itertools.count()
        self._last = 0  # when the last group was done
        self._messenger: Messenger | None = None
        self._message_flows = 0  # the first of those that stand for messages' packets

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._last / SECOND

    @property
    def reached(self) -> float:
        """Seconds up to which all has happened, also after a stall."""
        return max(self._last, int(self._memory.state["begin"])) / SECOND

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Let ``action`` be done at a time, before what else happens then."""
        heapq.heappush(self._schedule, (_ticks(seconds), next(self._serial), action))

    def add_flows(self, flows: Sequence[Flow | PacketFlow]) -> None:
        """Let hosts send flows from now on, beside those that they send already.

        Switches send a ``Flow``'s packets on by a shortest path, one of several by a hash of the
        flow and the switch (ECMP). What becomes of a ``PacketFlow``'s is the program's matter.

        Raises:
            InputError: a host that does not exist or cannot be reached; a packet that is longer
                than those of this network.
        """
        # Step 1: refuse what this network has no place for.
        hosts = len(self._memory.hosts)
        for flow in flows:
            if isinstance(flow, Flow):
                self._network.check_priority(flow.priority)
            for host in (flow.source, flow.destination):
                if host >= hosts:
                    raise InputError(f"a flow names host {host}; there are hosts 0 to {hosts - 1}.")
        # Step 2: lay all flows out anew, those that there are already as they are now.
        if not self._flows:
            self._add_routes()
        had = len(self._flows)
        self._flows += flows
        self._added += [self._last] * len(flows)
        records = self._flow_records(had)
        self._keep_frames(records)
        self._keep_times(records, had)
        self._memory.keep("flows", records)
        self._memory.states["flow_count"] = len(records)
        # Step 3: tell hosts which flows are theirs, and those of the new ones when to send.
        order = np.argsort(records["source"], kind="stable")
        self._memory.keep("host_flows", order.astype(np.int64))
        first = np.searchsorted(records["source"][order], np.arange(hosts + 1))
        self._memory.keep("first_flow", first.astype(np.int64))
        for host in {flow.source for flow in flows}:
            plan_host_flows(self._memory.states, host)

    def _flow_records(self, had: int) -> NDArray[Any]:
        """FLOW of each flow, of which the first ``had`` are known; with room for their delays."""
        memory = self._memory
        records = np.zeros(len(self._flows), FLOW)
        records[:had] = memory.flows[:had]
        logs = len(memory.log)
        for here, flow in zip(records[had:], self._flows[had:], strict=True):
            here["source"], here["target"] = flow.source, flow.destination
            here["length"] = flow.frame_size
            here["packets"] = here["left"] = flow.count
            here["interval"] = max(1, _ticks(flow.mean_interval))
            here["is_random"], here["at"], here["log"] = flow.poisson, -1, -1
            here["path"] = BALANCING[self._network.paths] if flow.path is None else flow.path
            here["priority"] = flow.priority if isinstance(flow, Flow) else 0
            here["next"] = self._last + _ticks(flow.start)
            if flow.record_delays:
                here["log"], logs = logs, logs + flow.count
        log = np.full(logs, -1, np.int64)
        log[: len(memory.log)] = memory.log
        memory.keep("log", log)
        return records

    def _keep_times(self, records: NDArray[Any], had: int) -> None:
        """Lay out the listed times of flows; they count from when a flow was added."""
        begin, times = 0, [np.zeros(0, np.int64)]
        for index, (here, flow) in enumerate(zip(records, self._flows, strict=True)):
            ticks = flow.ticks() + self._added[index]
            if len(ticks):
                here["at"] = begin + int(here["sent"])
                if index >= had:
                    here["next"] = ticks[0]
            begin += len(ticks)
            times.append(ticks)
        self._memory.keep("times", np.concatenate([*times, np.zeros(1, np.int64)]))

    def _keep_frames(self, records: NDArray[Any]) -> None:
        """Lay out the packets of flows that have bytes."""
        frames: list[bytes] = []
        most = self._memory.data.shape[1]
        for index, flow in enumerate(self._flows):
            records[index]["frame"] = -1
            if isinstance(flow, PacketFlow):
                if (longest := max(map(len, flow.frames))) > most:
                    raise InputError(
                        f"a flow of host {flow.source} has packets of {longest} bytes, and those "
                        f"of this network have at most {most}."
                    )
                self._network.check_frame(longest + flow.extra)
                records[index]["frame"], records[index]["frames"] = len(frames), len(flow.frames)
                records[index]["is_stamped"], records[index]["extra"] = flow.stamp, flow.extra
                frames += flow.frames
        described = np.zeros(len(frames) + 1, FRAME)
        lengths = [*map(len, frames), 0]
        described["length"] = lengths
        described["begin"] = np.cumsum(lengths) - lengths
        self._memory.keep("frames", described)
        self._memory.keep("frame_data", np.frombuffer(b"".join([*frames, b"\0"]), np.uint8).copy())

    def trace(
        self,
        write: Callable[[NDArray[Any], NDArray[np.uint8]], None],
        cables: Sequence[int] | None = None,
    ) -> None:
        """Let packets be recorded as they are put onto links, lost ones included.

        Args:
            write: is given some thousands of them at a time, and all when time stops: TRACE, and
                uint8 (n, stride), their bytes. Those of a link come in the order of their times.
                Link 2i goes to the switch that cable i names first, 2i + 1 comes from it.
            cables: whose packets, of those that were given; by default all.
        """
        self._take_trace()
        memory = self._memory
        self._trace = write
        memory.links["is_traced"] = 0
        for cable in range(len(self._cables)) if cables is None else cables:
            memory.links["is_traced"][2 * cable : 2 * cable + 2] = 1
        memory.make_traces(max(_TRACED, _TRACED_BYTES // memory.data.shape[1]))

    def record(
        self,
        write: Callable[[NDArray[Any], NDArray[np.uint8]], None],
        watches: Sequence[tuple[int, NDArray[Any]]] = (),
        recorders: Mapping[int, RecordSink] | None = None,
    ) -> tuple[list[int], NDArray[Any]]:
        """Let the trace of all links say, too, what switches make of each packet.

        Switches then run their packets one by one, which changes nothing but the time it takes.

        Args:
            write: as for ``trace``.
            watches: cells of registers whose values are noted when they change: the switch, and a
                view of one cell of at most 64 bits.
            recorders: by switch: what takes the records of its program (``jit.records``), which
                builds that record run from now on; not where packets wait in its queues already.

        Returns:
            of each switch, how many packets its program has received so far: origins count on; and
            TRACE of packets that links carry already, with link, flow and when they arrive.
        """
        self.trace(write)
        memory = self._memory
        memory.switches["is_recorded"] = 1
        # What happened before is not noted.
        memory.links["full"] = 0
        for ways, manager in zip(memory.ways, self._managers, strict=True):
            for queue in manager.used_queues():
                if queue.port < PORTS and (link := int(ways[queue.port])) >= 0:
                    memory.links["full"][link] += queue.dropped
        noted = np.zeros(max(1, len(watches)), WATCH)
        for row, (switch, cell) in zip(noted, watches, strict=False):
            row["switch"], row["address"] = switch, cell.ctypes.data
            row["size"], row["value"] = cell.itemsize, cell.astype(np.uint64).view(np.int64)[0]
        memory.keep("watches", noted)
        memory.state["watch_count"] = len(watches)
        counts = []
        for index, running in enumerate(self._running):
            if running is None:
                counts.append(0)
                continue
            recorder = (recorders or {}).get(index)
            if recorder is not None and running.record(recorder):
                memory.switches["is_recorded"][index] = WITH_RECORDS
                self._recorded.add(index)
            counts.append(int(running.begin().received[0]))
            running.end()
        carried = [np.zeros(0, TRACE)]
        for link, wire in enumerate(memory.links):
            places = np.arange(int(wire["head"]), int(wire["tail"]))
            slots = memory.slots[int(wire["first"]) + (places & int(wire["mask"]))]
            lines = np.zeros(len(slots), TRACE)
            lines["link"], lines["flow"] = link, slots["flow"]
            lines["arrives"], lines["number"] = slots["time"], slots["number"]
            carried.append(lines)
        return counts, np.concatenate(carried)

    def flush_trace(self) -> None:
        """Hand over all packets of the trace until now."""
        self._take_trace()

    @property
    def happened(self) -> int:
        """Picoseconds: everything before has happened, and was traced."""
        state = self._memory.state
        return int(state["begin" if state["is_open"] else "end"])

    def waiting_packets(self) -> list[tuple[set[int], set[tuple[int, int]]]]:
        """Of each switch, what waits in its queues: since when packets of its program do,
        picoseconds; and packets of flows, by flow and number.
        """
        found = []
        for index, here in enumerate(self._memory.switches):
            since: set[int] = set()
            if (begun := self._begun.get(index)) is not None:
                entries = begun.waiting[: int(begun.traffic[TRAFFIC_ENTRIES]) * ENTRY_WORDS]
                since.update(entries.reshape(-1, ENTRY_WORDS)[:, ENQUEUED].tolist())
            flows = self._memory.waiting[index, : int(here["waiting"])]
            pairs = zip(flows["flow"].tolist(), flows["number"].tolist(), strict=True)
            found.append((since, set(pairs)))
        return found

    def link_ends(self) -> list[LinkEnds]:
        """What links connect, in the order of ``link_counts``."""
        switches = {name: number for number, name in enumerate(self._names)}
        found = []
        for index, cable in enumerate(self._cables):
            near = LinkEnd("switch", switches[cable.switch], cable.port)
            far = LinkEnd("host", cable.host or 0, None)
            if cable.host is None:
                far = LinkEnd("switch", switches[cable.other], cable.other_port)
            for link, (source, target) in enumerate(((far, near), (near, far)), 2 * index):
                here = self._memory.links[link]
                found.append(LinkEnds(source, target, int(here["rate"]), int(here["delay"])))
        return found

    @property
    def is_traced(self) -> bool:
        """Whether packets are being recorded."""
        return self._trace is not None

    def stop_trace(self) -> None:
        """End what ``trace`` or ``record`` began, after all packets until now were handed over.

        From the next run on, builds without records run the packets of switches in which none
        waits then.
        """
        self._take_trace()
        self._trace = None
        self._memory.links["is_traced"] = 0
        self._memory.switches["is_recorded"] = 0

    def flow_counts(self) -> list[FlowCounts]:
        """What has become of the packets of all flows, in the order in which they were added."""
        memory, found = self._memory, []
        for index, flow in enumerate(self._flows):
            if self._messenger and 0 <= index - self._message_flows < PATHS:
                continue  # packets of messages
            here = memory.flows[index]
            received = int(here["received"])
            delays = None
            if flow.record_delays:
                delays = memory.log[int(here["log"]) :][: flow.count].copy()
            found.append(
                FlowCounts(
                    int(here["sent"]),
                    received,
                    int(here["dropped"]),
                    int(here["lost"]),
                    int(here["marked"]),
                    int(here["delay"]) / received / SECOND if received else 0.0,
                    int(here["longest"]) / SECOND,
                    delays,
                    int(here["duplicated"]),
                )
            )
        return found

    def add_outage(self, cable: int, since: float, until: float) -> None:
        """Let a cable lose all packets whose first bit is put onto it in a time.

        Args:
            cable: which one, of those that were given.
            since: seconds.
            until: seconds.
        """
        end = FOREVER if until == math.inf else _ticks(until)
        lines = [[link, _ticks(since), end] for link in (2 * cable, 2 * cable + 1)]
        self._outages = sorted([*self._outages, *lines])
        outages = np.zeros(len(self._outages), OUTAGE)
        for index, (link, begin, end) in enumerate(self._outages):
            outages[index] = link, begin, end
            before = self._outages[index - 1][0] if index else -1
            if link != before:
                self._memory.links["outages"][link] = index
        self._memory.keep("outages", outages)
        self._memory.states["outage_count"] = len(outages)

    def learn(self, switch: int, learned: Callable[[int], None], lookahead: int) -> None:
        """Let each digest of a switch be told at its time, when the switch has sent it.

        Args:
            switch: its number.
            learned: is called with the time, picoseconds; it takes the switch's digests.
            lookahead: picoseconds after that within which nobody answers.
        """
        self._shorten_windows(lookahead)
        self._learners[switch] = learned
        self._memory.switches["learns"][switch] = 1

    def pause_link(self, host: int, since: float, until: float, priority: int = 0) -> None:
        """Let a host pause its link, as a network card does that takes no more packets.

        Args:
            host: its number.
            since: seconds.
            until: seconds; ``math.inf``: a pause storm.
            priority: of the packets.

        Raises:
            InputError: a network without flow control.
        """
        if self._control is None:
            raise InputError("hosts pause their links in networks with pfc=true.")
        if not 0 <= priority < (classes := int(self._memory.state["classes"])):
            raise InputError(f"priority {priority} is none of the network's {classes}.")
        link = int(self._memory.hosts["up"][host])

        def put(pause: int, seconds: float) -> None:
            while send_pause(self._memory.states, link, priority, pause, _ticks(seconds)) != 0:
                self._extend_ring(link)

        self.at(since, lambda: put(1, since))
        if until < math.inf:
            self.at(until, lambda: put(0, until))

    def _flow_control(self) -> FlowControl:
        classes = max(each.priorities for each in self._managers)
        longest = self._layout.wire_size
        return FlowControl(self._network, self._memory, classes, longest, self._link_name)

    def pause_counts(self, seconds: float | None = None) -> list[PauseCounts]:
        """How often and how long priority flow control paused links, of those that it did.

        Args:
            seconds: up to when, as it is now; None: ``now``.
        """
        if self._control is None:
            return []
        return self._control.counts(self._last if seconds is None else _ticks(seconds))

    def _link_name(self, link: int) -> str:
        """What a link connects, as ``link_counts`` names it."""
        cable = self._cables[link // 2]
        ends = [f"{cable.switch}:{cable.port}", f"{cable.other}:{cable.other_port}"]
        if cable.host is not None:
            ends[1] = f"host {cable.host}"
        return " to ".join(ends if link % 2 else ends[::-1])

    def _look_for_blocked(self, *, idle: bool) -> None:
        """Let flow control look for links that will never be resumed, when it is time."""
        control = self._control
        if control is None or self._memory.state["is_open"]:
            return
        now = min([int(self._memory.nodes.min()), *(each[0] for each in self._schedule[:1])])
        if idle or control.next_look <= now < FOREVER:
            control.look(FOREVER if idle else now, self._waiting_by_link)

    def _waiting_by_link(self, switch: int) -> Iterator[tuple[int, int]]:
        """Of packets that wait in a switch, places in ``pausing``; see ``FlowControl.look``."""
        memory = self._memory
        classes, ways = int(memory.state["classes"]), memory.ways[switch]
        priorities = memory.flows["priority"]
        for kept in memory.waiting[switch, : int(memory.switches["waiting"][switch])]:
            priority = int(priorities[kept["flow"]])
            yield (
                int(kept["link"]) * classes + priority,
                (int(kept["marked"]) >> 1) * classes + priority,
            )
        running, begun = self._running[switch], self._begun.get(switch)
        if running is None or begun is None:
            return
        pool, width = running.pool
        count = int(begun.traffic[TRAFFIC_ENTRIES])
        words = begun.waiting[: count * ENTRY_WORDS]
        for index, entry in enumerate(words.reshape(-1, ENTRY_WORDS)):
            priority = int(entry_priority(words, index, self._managers[switch].priorities))
            back = int(ways[int(pool[int(entry[SLOT_WORD]) * width + ARRIVED])])
            out = int(ways[int(entry[WAY]) & 0xFFFFFFFF])
            if priority >= 0 and back >= 0 and out >= 0:
                yield out * classes + priority, (back ^ 1) * classes + priority

    def _shorten_windows(self, lookahead: int) -> None:
        """Let windows be no longer than this many picoseconds from now on."""
        state = self._memory.state
        state["lookahead"] = min(int(state["lookahead"]), lookahead)

    def run_until(self, seconds: float) -> None:
        """Let time pass up to a time, or until nothing will ever happen.

        Hosts that exchange something go on with it, but no caller learns that a group is done.
        """
        if _ticks(seconds) <= self._last:
            return
        stop = self.launch_timer(seconds)
        while self.wait() != stop:
            pass

    def launch_timer(self, seconds: float) -> int:
        """Let time pass up to a time; returns the number by which ``wait`` tells that."""
        until = _ticks(seconds)
        stop = self.hold(self.launch({}))

        def reach() -> None:
            self._memory.groups["open"][stop] = 0
            self._memory.groups["finished"][stop] = until
            self._memory.state["completed"] += 1

        heapq.heappush(self._schedule, (until, next(self._serial), reach))
        return stop

    def run(
        self,
        ends: Mapping[int, AnyHost],
        others: Mapping[int, AnyHost] | None = None,
        starts: Mapping[int, float] | None = None,
    ) -> None:
        """Let time pass until all of ``ends`` have what they expect.

        Args:
            ends: the hosts that take part.
            others: hosts that answer, such as parameter servers; no host waits for them.
            starts: when hosts begin, seconds, not before ``now``; by default now.

        Raises:
            StalledError: a host gave up, or nothing will ever happen.
        """
        group = self.launch(ends, starts, others)
        while self.wait() != group:
            pass

    def launch(
        self,
        ends: Mapping[int, AnyHost],
        starts: Mapping[int, float] | None = None,
        others: Mapping[int, AnyHost] | None = None,
    ) -> int:
        """Let hosts begin an exchange; ``wait`` lets time pass.

        Args:
            ends: by number.
            starts: when each of them begins, seconds; by default now. Not before the last exchange
                that is done: its time, even if that of another one was later.
            others: as for ``run``.

        Returns:
            the number by which ``wait`` calls them.
        """
        memory, group = self._memory, self._free_group()
        begins = dict.fromkeys(ends, self._last)
        for host, seconds in (starts or {}).items():
            begins[host] = max(int(memory.state["begin"]), _ticks(seconds))
        memory.groups[group] = 0, self._last
        self._groups[group] = list(ends)
        for host, end in {**(others or {}), **ends}.items():
            here = memory.hosts[host]
            self._ends[host] = end
            here["kind"] = _kind_of(end)
            here["group"] = group
            here["start"] = here["timer"] = FOREVER
            here["is_open"] = host in ends and not end.done
            for name in ("sent", "received", "bytes", "answers", "waiting", "resent"):
                here[name] = 0
            memory.groups["open"][group] += here["is_open"]
            if here["is_open"] or host not in ends:
                here["start"] = begins.get(host, self._last)
            if here["kind"] == COMPILED:
                self._hand_over(host)
            elif isinstance(end, CalledHost):
                here["entry"], here["call"] = end.entry, address_of(end.call)
            elif isinstance(end, ScriptedHost):
                end.attach(ScriptPort(memory, host, self._handle))
        if memory.groups["open"][group] == 0:
            memory.state["completed"] += 1
        return group

    def launch_messages(
        self, graph: MessageGraph, transport: ReliableTransport, gpus: GpuHosts | None = None
    ) -> int:
        """Let hosts send the messages of a graph from now on; one graph at a time.

        Their group is done when all messages were delivered.

        Args:
            graph: of these hosts; or of GPUs, whose network cards these hosts are.
            transport: of messages that take the network.
            gpus: how GPUs are joined, and which card each has.

        Returns:
            the number by which ``wait`` calls them.

        Raises:
            InputError: a host that does not exist, or messages that packets have no numbers for.
        """
        memory = self._memory
        hosts = len(memory.hosts)
        used = graph.hosts if gpus is None else gpus.nics_of(graph)
        if used > hosts:
            raise InputError(f"a message names host {used - 1}; there are hosts 0 to {hosts - 1}.")
        generation = 0
        if self._messenger is None:
            self._add_message_flows()
        else:
            generation = self._messenger.generation + 1  # what is under way is of none that follow
        self._messenger = box = Messenger(
            graph,
            transport,
            hosts,
            rate=int(memory.links["rate"][memory.hosts["up"]].min()),
            base=self._last,
            first_flow=self._message_flows,
            generation=generation,
            gpus=gpus,
            trims=self._network.trim and not any(self._switches),
        )
        source, destination = graph.source, graph.destination
        if gpus is not None:
            source, destination = gpus.nic(source), gpus.nic(destination)
            # A card's events change what another one does after half a local latency or more.
            self._shorten_windows(gpus.latency_ticks // 2)
            memory.share(gpus.nics)
        memory.keep("messenger", box.record)
        memory.states["on_message"] = entry_of(on_message)
        group = self._free_group()
        taking = np.union1d(source, destination).tolist()
        left = np.bincount(destination, minlength=hosts)
        memory.groups[group] = int((left > 0).sum()), self._last
        self._groups[group] = taking
        for host in taking:
            here = memory.hosts[host]
            here["kind"], here["group"], here["start"] = MESSAGES, group, FOREVER
            here["is_open"], here["timer"] = left[host] > 0, box.next_event(host)
        if len(graph) == 0:
            memory.state["completed"] += 1
        return group

    def _add_message_flows(self) -> None:
        """Make the flows by which links and queues know packets of messages."""
        if len(self._memory.hosts) < 2:
            raise InputError("a network with one host has no destination for messages; add hosts.")
        self._message_flows = first = len(self._flows)
        self.add_flows(
            [Flow(source=0, destination=1, size=0, packets=1, interval=1.0) for _ in range(PATHS)]
        )
        self._memory.flows["next"][first : first + PATHS] = FOREVER
        plan_host_flows(self._memory.states, 0)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing will happen any more, but for what is scheduled; between events."""
        return int(self._memory.nodes.min()) == FOREVER

    def open_hosts(self) -> list[int]:
        """Hosts that expect more, as far as they were launched."""
        return [host for host in self._ends if self._memory.hosts["is_open"][host]]

    @property
    def messenger(self) -> Messenger | None:
        """What has become of the messages that were launched last."""
        return self._messenger

    def wait(self) -> int:
        """Let time pass until a group is done; returns its number.

        Raises:
            StalledError: as for ``run``.
        """
        memory, state = self._memory, self._memory.state
        self._begin_programs()
        forward = self._begin_forward()
        try:
            while True:
                state["limit"] = self._schedule[0][0] if self._schedule else FOREVER
                if self._control is not None:
                    state["limit"] = min(int(state["limit"]), self._control.next_look)
                why = self._pass_windows(forward)
                if self.most_packets is not None:
                    self._check_packets(self.most_packets)
                if why == DONE:
                    break
                self._look_for_blocked(idle=why == IDLE and not self._schedule)
                if why == NEEDS_PYTHON:
                    self._handle_nodes()
                elif why == TRACED:
                    self._take_trace()
                elif why == IDLE and not self._schedule:
                    self._last = max(self._last, int(memory.state["begin"]))
                    waiting = self.open_hosts()
                    raise StalledError(f"no packet is under way, but workers {waiting} wait.")
                elif self._schedule and not memory.state["is_open"]:
                    self._do_next(idle=why == IDLE)
        finally:
            for host, end in self._ends.items():
                if memory.hosts["kind"][host] == COMPILED:
                    self._take_up(host, end)
            self._end_programs()
            self._take_trace()
            self._end_forward(forward)
        state["completed"] -= 1
        done = next(each for each in self._groups if memory.groups["open"][each] == 0)
        for host in self._groups.pop(done):
            memory.hosts["kind"][host] = NONE
            memory.hosts["timer"][host] = FOREVER
            self._ends.pop(host, None)  # hosts that send messages have none
        self._last = max(self._last, int(memory.groups["finished"][done]))
        return done

    def compile(self) -> None:
        """Compile what lets time pass, where no kept code is; no time passes."""
        windows.run(self._memory.states, 0, 0)

    def _check_packets(self, most: int) -> None:
        if (carried := int(self._memory.links["packets"].sum())) > most:
            raise PacketLimitError(
                f"links carried {carried} packets, more than the limit of {most}."
            )

    def hold(self, group: int) -> int:
        """Let a group without hosts that expect something not be done; returns its number."""
        self._memory.groups["open"][group] += 1
        self._memory.state["completed"] -= 1
        return group

    def _free_group(self) -> int:
        groups = self._memory.groups
        for group in range(len(groups)):
            if group not in self._groups:
                return group
        self._memory.keep("groups", np.concatenate([groups, np.zeros(1, GROUP)]))
        return len(groups)

    def _add_routes(self) -> None:
        """Find the ports by which packets go from a switch to a host on shortest paths."""
        memory, hosts = self._memory, len(self._memory.hosts)
        links, ways = memory.links, memory.ways
        neighbors: list[list[int]] = [[] for _ in ways]  # switches from which one is reached
        for switch, ports in enumerate(ways):
            for link in ports[ports >= 0].tolist():
                if links["switch"][link] >= 0:
                    neighbors[int(links["switch"][link])].append(switch)
        routes: list[int] = []
        first = np.zeros(len(ways) * hosts + 1, np.int64)
        found: dict[int, list[list[int]]] = {}
        for host in range(hosts):
            leaf = int(links["switch"][int(memory.hosts["up"][host])])
            if leaf not in found:
                found[leaf] = _shortest(leaf, neighbors, links, ways)
        for switch, ports in enumerate(ways):
            for host in range(hosts):
                leaf = int(links["switch"][int(memory.hosts["up"][host])])
                if leaf == switch:
                    down = int(memory.hosts["down"][host])
                    routes += np.flatnonzero(ports == down).tolist()
                else:
                    routes += found[leaf][switch]
                first[switch * hosts + host + 1] = len(routes)
        memory.keep("routes", np.array([*routes, 0], np.int64))
        memory.keep("first_route", first)

    def _begin_programs(self) -> None:
        for index, each in enumerate(self._running):
            if each is not None:
                if self._trace is None and index in self._recorded and each.record(None):
                    self._recorded.remove(index)
                self._put_program(index, each.begin())

    def _end_programs(self) -> None:
        for each in self._running:
            if each is not None:
                each.end()

    def _put_program(self, index: int, begun: InlineQueues) -> None:
        """Hand a switch's program over to compiled code."""
        self._begun[index] = begun
        received = self._received[index]
        there = self._memory.programs[index]
        there["entry"] = begun.entry
        for name in begun._fields[1:]:
            there[name] = address_of(getattr(begun, name))
        there["frame_words"], there["start_words"] = len(begun.frame), len(begun.starts)
        there["rows"], there["stride"] = begun.out.shape
        there["batch"], there["traffic_words"] = len(begun.times), len(begun.traffic)
        there["waiting_words"] = len(begun.waiting)
        there["data"], there["lengths"] = address_of(received.data), address_of(received.length)
        there["ports"] = address_of(received.port)
        running = self._running[index]
        if self._control is not None and running is not None:
            pool, there["row_words"] = running.pool
            there["pool"] = address_of(pool)

    def _handle(self, why: int, which: int) -> None:
        """Do what compiled code returned for."""
        memory = self._memory
        if why == NEEDS_HOST:
            self._run_host(which)
        elif why == NEEDS_RING:
            if not memory.widen_trace(which):
                self._extend_ring(which)
        elif why == NEEDS_WAITING:
            memory.widen_waiting()
        elif why == NEEDS_MESSAGES:
            assert self._messenger is not None, "it asked for memory"
            self._messenger.grow()
        elif why == NEEDS_SWITCH:
            lacks = int(memory.switches["wanted"][which])
            running = self._running[which]
            assert running is not None, "it asked for memory"
            self._put_program(which, running.make_room(lacks))
            memory.switches["wanted"][which] = 0
        elif why == FULL_TRACE:
            memory.widen_traces()
        elif why == NEEDS_LEARNING:
            running = self._running[which]
            assert running is not None, "it has sent a digest"
            time = int(self._begun[which].traffic[TRAFFIC_NOW])
            running.end()
            self._learners[which](time)
            self._put_program(which, running.begin())
        elif why == FAILED:
            raise InputError(
                "a switch's program makes packets longer than those of the job."
                if which == TOO_LONG
                else "a switch's program went round without end."
            )

    def _pass_windows(self, forward: FastForward | None) -> int:
        """Let some windows pass, and perhaps skip others; why there is something to do."""
        if forward is None:
            return self._run_windows()
        why = forward.advance(self._run_windows)
        if forward.is_due:
            self._end_programs()
            forward.look(list(self._begun.values()))
            self._begin_programs()
        return why

    def _end_forward(self, forward: FastForward | None) -> None:
        if forward is not None:
            self.forwarded = forward.added_to(self.forwarded)

    def _begin_forward(self) -> FastForward | None:
        """What skips in the present exchange what repeats itself; None if nothing may be."""
        ends = [end for end in self._ends.values() if isinstance(end, SlotClient)]
        why = self._why_not_forward(ends)
        self.forwarded = self.forwarded._replace(why=why)
        if why:
            return None
        assert isinstance(self._layout, PacketLayout)
        switches = [each for each in self._switches if each is not None]
        running = [each for each in self._running if each is not None]
        states = [self._kept[host] for host in self._ends]
        return FastForward(
            self._memory,
            switches,
            running,
            self._layout,
            sequences=self.sequences,
            ends=ends,
            states=states,
        )

    def _why_not_forward(self, ends: Sequence[SlotClient]) -> str:
        """Why nothing may be skipped now; "" if something may."""
        memory, network = self._memory, self._network
        links, kinds = memory.links, memory.hosts["kind"]
        reasons = {
            "it is switched off": not self.fast_forward,
            "packets carry values": not getattr(self._layout, "is_header_only", False),
            "the program does not say where it keeps sequence numbers": not self.sequences,
            "packets of flows or messages are under way": bool(self._flows),
            "priority flow control pauses links": network.pfc,
            "links lose or change packets": bool(
                (links["loss"] > 0).any() or links["is_faulty"].any() or self._outages
            ),
            "packets are late or marked at random": bool(memory.hosts["jitter"].any())
            or network.ecn_max_bytes is not None,
            "packets are recorded or sampled": bool(
                links["is_traced"].any()
                or memory.switches["is_recorded"].any()
                or memory.switches["learns"].any()
                or self._schedule
            ),
            "several jobs share the network": len(self._groups) > 1,
            "not all hosts are workers with windows of a fixed size": len(ends) != len(self._ends)
            or not np.isin(kinds, [NONE, COMPILED]).all()
            or None in self._switches,
        }
        return next((why for why, is_so in reasons.items() if is_so), "")

    def _run_windows(self, most: int = _WINDOWS) -> int:
        """``windows.run``, on several threads if there are."""
        states = self._memory.states
        if self._threads is None:
            return int(windows.run(states, most, 0))
        # Compiled by this thread: Python waits for another one's end when it is interrupted, and
        # compiling takes long.
        windows.run(states, 0, 0)
        self._memory.team[OVER // 8] = 0
        others = [
            self._threads.submit(windows.run, states, 0, thread)
            for thread in range(1, int(self._memory.team[THREADS // 8]))
        ]
        try:
            return int(windows.run(states, most, 0))
        finally:
            self._memory.team[OVER // 8] = 1
            for other in others:
                other.result()

    def _handle_nodes(self) -> None:
        """Do what nodes have stopped for."""
        reasons, subjects = self._memory.reasons, self._memory.subjects
        found = np.flatnonzero(reasons).tolist()
        first = min(found, key=lambda node: int(reasons[node]))
        if reasons[first] <= NEEDS_MESSAGES:  # for one is for all
            self._handle(int(reasons[first]), int(subjects[first]))
            return
        for node in found:
            self._handle(int(reasons[node]), int(subjects[node]))

    def _do_next(self, *, idle: bool) -> None:
        """Do what is scheduled next, if all that comes before has happened."""
        time, _, action = self._schedule[0]
        if idle or int(self._memory.nodes.min()) >= time:
            heapq.heappop(self._schedule)
            self._end_programs()
            action()
            self._begin_programs()

    # ------------------------------------------------------------------ hosts

    def _run_host(self, host: int) -> None:
        """Handle a host's events of the window in Python."""
        memory, end = self._memory, self._ends[host]
        here = memory.hosts[host]
        until = int(memory.state["end"])
        if isinstance(end, ScriptedHost):
            # Its flows share its link. What arrives at the time of a flow's packet comes before it.
            flow = int(here["flow"])
            end.run_window(min(until, flow + 1 if self._comes(host) == flow else flow))
            return
        if isinstance(end, CalledHost):
            raise InputError(
                f"{end.name}'s function wants to send {int(end.call['sent'][0])} packets, of which "
                f"one is shorter than {SHORTEST_FRAME} bytes or longer than "
                f"{int(end.call['stride'][0])}, or more than {int(end.call['rows'][0])}."
            )
        if here["kind"] == COMPILED:
            self._retransmit(host, end)
            return
        while True:
            wire = memory.links[int(here["down"])]
            row = int(wire["first"] + (wire["head"] & wire["mask"]))
            comes, start = self._comes(host), int(here["start"])
            own = min(start, int(here["timer"]))
            now = min(comes, own)
            # At one time: what arrives, a start, a flow's packet, a timer.
            flow = int(here["flow"]) + (now in (comes, start))
            if now >= until or flow <= now:
                return
            if comes <= own:
                slot = memory.slots[row]
                if slot["flow"] != -1:
                    return
                now = receive_packet(memory.of_host(host), host, int(slot["length"]), now)
                carried = int(slot["carried"])
                frame = memory.data[row : row + 1, :carried].copy()
                wire["head"] += 1
                batch = PacketBatch(frame, np.array([carried], np.int32), np.zeros(1, np.int32))
                end.receive(batch, now / SECOND)
            elif here["start"] == now:
                here["start"] = FOREVER
            else:
                here["timer"] = FOREVER
            self._send(host, end, now)

    def _comes(self, host: int) -> int:
        """When the next packet arrives at a host; FOREVER if none is on its link."""
        wire = self._memory.links[int(self._memory.hosts["down"][host])]
        if wire["head"] == wire["tail"]:
            return FOREVER
        return int(self._memory.slots["time"][int(wire["first"] + (wire["head"] & wire["mask"]))])

    def _send(self, host: int, end: Host, now: int) -> None:
        """Send what a host has to send, set its timer, and notice that it is done."""
        here = self._memory.hosts[host]
        states = self._memory.of_host(host)
        seconds = math.nextafter(now / SECOND, math.inf)  # not before a deadline, as floats go
        packets = at_port(end.outgoing(seconds), 0)
        for row, carried in zip(packets.data, packets.length.tolist(), strict=True):
            frame = row[:carried]
            length = self._layout.wire_length(carried)
            while (why := send_frame(states, host, frame, length, now)) != 0:
                self._handle(why, int(here["up"]))
        deadline = end.next_deadline()
        if deadline is not None and deadline < math.inf:
            due = max(now, int(deadline * SECOND)) + 1
            here["timer"] = min(int(here["timer"]), due)
        if end.done and here["is_open"]:
            close_host(states, host, now)

    def _retransmit(self, host: int, end: Host) -> None:
        """What a client does when a timer has expired that compiled code leaves to Python."""
        here = self._memory.hosts[host]
        now = int(here["timer"])
        self._take_up(host, end)
        here["timer"] = FOREVER
        self._send(host, end, now)
        self._hand_over(host)

    def _take_up(self, host: int, end: AnyHost) -> None:
        """Update a client after compiled code has used its state."""
        assert isinstance(end, SlotClient), "others are not compiled"
        here = self._memory.hosts[host]
        progress = LoopProgress(
            answers=int(here["answers"]),
            received=int(here["received"]),
            bytes=int(here["bytes"]),
            sent=int(here["sent"]),
            waiting=0,
            first=0,
            end=0,
            lost=0,
            error=0,
        )
        end.apply_progress(progress)
        end.note_resent(int(here["resent"]))
        for name in ("answers", "received", "bytes", "sent", "resent"):
            here[name] = 0

    def _hand_over(self, host: int) -> None:
        """Hand a client's state over to compiled code."""
        end = self._ends[host]
        assert isinstance(end, SlotClient), "others are not compiled"
        end.settle()
        client = self._kept[host] = end.compiled_state(self._last / SECOND)
        self._memory.hosts["waiting"][host] = client.waiting
        there = self._memory.clients[host]
        (rules, member), ((chunk, state, queue), timers) = client.terms, client.slots
        operation, elements, combined, who, _, _, _ = client.chunks
        there["rules"], there["rule_count"] = address_of(rules), len(rules)
        there["member"], there["window"] = address_of(member), len(chunk)
        there["chunk"], there["state"] = address_of(chunk), address_of(state)
        there["queue"] = address_of(queue)
        there["timers"] = [address_of(each) for each in timers]
        there["chunks"], there["operation"] = len(operation), address_of(operation)
        there["elements"], there["combined"] = address_of(elements), address_of(combined)
        there["values"], there["who"] = combined.shape[1], address_of(who)
        there["stats"], there["clock"] = map(address_of, client.notes)
        there["head"], there["head_bytes"] = address_of(client.head), len(client.head)
        words, _, _, owners, _, _, places = client.message
        there["owners"], there["owner_count"] = address_of(owners), len(owners)
        there["places"] = address_of(places)
        there["words"], there["word_count"] = address_of(words), len(words)
        there["held"], there["halts"], there["last"] = client.held, client.halts, client.last

    # ------------------------------------------------------------------ memory

    def _extend_ring(self, link: int) -> None:
        """Give a link's ring twice its room, at the end of all rings."""
        memory = self._memory
        wire = memory.links[link]
        size, used = int(wire["mask"]) + 1, memory.used
        if used + 2 * size > len(memory.slots):
            rows = 2 * (used + 2 * size)
            slots = np.zeros(rows, SLOT)
            data = np.zeros((rows, memory.data.shape[1]), np.uint8)
            slots[:used], data[:used] = memory.slots[:used], memory.data[:used]
            memory.keep("slots", slots)
            memory.keep("data", data)
        index = np.arange(int(wire["head"]), int(wire["tail"]))
        old = int(wire["first"]) + (index & (size - 1))
        new = used + (index & (2 * size - 1))
        memory.slots[new], memory.data[new] = memory.slots[old], memory.data[old]
        wire["first"], wire["mask"] = used, 2 * size - 1
        memory.used = used + 2 * size

    def _take_trace(self) -> None:
        """Hand over the packets of the traces."""
        lines, data = self._memory.take_traces()
        if len(lines) and self._trace is not None:
            self._trace(lines, data)

    # ------------------------------------------------------------------ what there is to know

    def counts(self) -> NetworkCounts:
        """What has happened since the beginning."""
        links = self._memory.links
        control = self._control
        pauses, paused = (0, ()) if control is None else control.totals(self._last)
        is_trunk = self._is_trunk
        to_host = links["switch"] < 0
        classes = {
            "host_to_switch": ~is_trunk & ~to_host,
            "switch_to_host": ~is_trunk & to_host,
            "trunk": is_trunk,
        }
        return NetworkCounts(
            ticks=self._last,
            packets=int(links["packets"].sum()),
            bytes=int(links["bytes"].sum()),
            lost=int(links["lost"].sum()),
            dropped=sum(manager.dropped for manager in self._managers),
            unconnected=int(self._memory.switches["unconnected"].sum()),
            marked=sum(
                queue.marked for manager in self._managers for queue in manager.used_queues()
            ),
            busy={
                name: (int(links["busy"][rows].sum()), int(rows.sum()))
                for name, rows in classes.items()
                if rows.any()
            },
            work={
                "host links": tuple(links["busy"][~is_trunk].tolist()),
                "trunks": tuple(links["busy"][is_trunk].tolist()),
                "host processors": tuple(self._memory.hosts["worked"].tolist()),
                "recirculation": tuple(
                    0 if each is None else self._pass_again * each.statistics.recirculated
                    for each in self._switches
                ),
            },
            pauses=pauses,
            paused=paused,
            trimmed=int(links["trimmed"].sum()),
        )

    def queue_bytes_max(self) -> int:
        """The most bytes that ever waited in an egress queue, since ``forget_queues``."""
        queues = [queue for manager in self._managers for queue in manager.used_queues()]
        return max((queue.bytes_max for queue in queues), default=0)

    def forget_queues(self) -> None:
        """Restart the search for the longest queue."""
        for manager in self._managers:
            manager.reset_bytes_max()

    def finished(self, host: int) -> float:
        """When a host was done last, seconds."""
        return int(self._memory.hosts["finished"][host]) / SECOND

    def resume(self, hosts: Iterable[int]) -> None:
        """After a stall, let time go on from when the last of these hosts was done.

        Until then their links are busy, and their packets on the way. That others gave up later
        does not count.
        """
        done = [int(self._memory.hosts["finished"][host]) for host in hosts]
        self._last = max(self._last, *done)

    def set_pace(self, hosts: Iterable[int], rate: float) -> None:
        """Let packets of hosts leave at a rate, bits per second, evenly spaced."""
        for host in hosts:
            self._memory.hosts["pace"][host] = round(rate)

    def set_frame(self, host: int, layout: PacketLayout) -> None:
        """Let the frames of a host's client be those of a layout."""
        here = self._memory.hosts[host]
        here["carried"], here["extra"] = layout.frame_size, layout.wire_size - layout.frame_size

    def set_loss(self, cable: int, probability: float) -> None:
        """Let a cable lose packets with a probability, in both directions."""
        self._memory.links["loss"][2 * cable : 2 * cable + 2] = probability

    def set_faults(self, faults: Faults, cables: Sequence[int] | None = None) -> None:
        """Let cables duplicate, hold back, delay and spoil packets, in both directions.

        Losses, outages and restarts have separate functions, and ``tick`` has no meaning here.
        Packets of flows without their own bytes are neither corrupted nor truncated.

        Args:
            faults: of all faulty cables.
            cables: which ones, of those that were given; by default all.
        """
        memory = self._memory
        rows = np.arange(len(self._cables)) if cables is None else np.asarray(cables)
        links = np.concatenate([2 * rows, 2 * rows + 1]).astype(np.int64)
        memory.links["delay"][links] += _ticks(faults.delay)
        record = np.zeros(1, FAULTS)
        for name in ("duplicate", "reorder", "corrupt", "truncate", "mark"):
            record[name] = getattr(faults, name)
        record["hold"], record["jitter"] = _ticks(faults.hold), _ticks(faults.jitter)
        memory.keep("faults", record)
        if faults.jitter or any(
            getattr(faults, name)
            for name in ("duplicate", "reorder", "corrupt", "truncate", "mark")
        ):
            memory.links["is_faulty"][links] |= FAULTY

    def fault_counts(self) -> FaultCounters:
        """What faults have done to packets, over all links and both directions."""
        links, record = self._memory.links, self._memory.faults[0]
        return FaultCounters(
            entered=int(links["packets"].sum()),
            lost=int(links["lost"].sum()),
            duplicated=int(record["duplicated"]),
            held=int(record["held"]),
            arrived=int(links["head"].sum()),
            corrupted=int(record["corrupted"]),
            truncated=int(record["truncated"]),
            marked=int(record["marked"]),
        )

    def cables_of_hosts(self) -> dict[int, int]:
        """The host at each cable that has one, by the cable's number."""
        return {
            index: cable.host for index, cable in enumerate(self._cables) if cable.host is not None
        }

    def link_counts(self) -> list[LinkCounts]:
        """Of each cable, the link to the switch that it names first, and the one from it.

        Hosts are called "host 0", and switches' ends "s1:3", by their port.
        """
        found = []
        for index, cable in enumerate(self._cables):
            ends = [f"{cable.switch}:{cable.port}", f"{cable.other}:{cable.other_port}"]
            if cable.host is not None:
                ends[1] = f"host {cable.host}"
            for link, (source, target) in enumerate((ends[::-1], ends), 2 * index):
                here = self._memory.links[link]
                packets = int(here["packets"])
                found.append(
                    LinkCounts(
                        source,
                        target,
                        packets,
                        int(here["bytes"]),
                        int(here["lost"]),
                        int(here["busy"]),
                        int(here["free"] + here["delay"]) if packets else 0,
                    )
                )
        return found

    def host_packets(self, host: int) -> tuple[int, int]:
        """Packets of the program, and bytes of them, that a host has counted."""
        here = self._memory.hosts[host]
        return int(here["received"]), int(here["bytes"])

    def host_counts(self, host: int) -> tuple[int, int, int]:
        """Packets and bytes that a scripted host or one with a function received, and packets that
        it sent.
        """
        here = self._memory.hosts[host]
        return int(here["received"]), int(here["bytes"]), int(here["sent"])

    def switch_counts(self, switch: int) -> SwitchPackets:
        """What has happened at a switch, by its number."""
        memory = self._memory
        into = memory.links[memory.links["switch"] == switch]
        here = memory.switches[switch]
        return SwitchPackets(
            int(into["head"].sum()), int(here["unconnected"]), int(here["dropped"])
        )

    @property
    def flows(self) -> Sequence[Flow | PacketFlow]:
        """All flows, in the order in which they were added."""
        return self._flows

    @property
    def known_flows(self) -> list[Flow | PacketFlow | None]:
        """The same, but None for those that stand for packets of messages, of whichever hosts."""
        first = self._message_flows if self._messenger else len(self._flows)
        after = self._flows[first + PATHS :]
        return [*self._flows[:first], *[None] * (len(self._flows) - first - len(after)), *after]

    def managers(self) -> list[TrafficManager]:
        """The queues of each switch, in the order in which they were given."""
        return list(self._managers)

    def under_way(self) -> int:
        """Packets on links: put onto one, and neither delivered nor lost."""
        links = self._memory.links
        return int((links["tail"] - links["head"]).sum())


def _set_up(
    manager: TrafficManager,
    network: Network,
    layout: PacketLayout | FrameSize,
    rates: Mapping[int, int],
    seed: int,
    *,
    trims: bool,
) -> None:
    """Give a switch the queues of a network; ``rates`` are those of its ports' links, ``seed`` is
    that of marks. With ``trims`` the last queue of a port is that of headers.
    """
    manager.set_clock_ticks(SECOND // UNITS[network.timestamp_unit])
    manager.set_dscp_priorities(network.priorities > 1)
    manager.set_shared_buffer(network.buffer_bytes, network.buffer_alpha)
    if network.ecn_max_bytes is not None:
        span = network.ecn_max_bytes - (network.ecn_bytes or 0)
        manager.set_red(span, network.ecn_probability, seed)
    if network.pfc:  # who sends is paused before a queue is too long
        manager.set_shared_buffer(network.shared_buffer)
        manager.queues[-ALPHA] = UNLIMITED
    manager.set_recirculation(
        round(network.of_recirculation), _ticks(network.recirculation_latency), SECOND
    )
    for port, rate in rates.items():
        manager.set_bit_rate(rate, port, SECOND)
        manager.set_depth(FOREVER if network.pfc else network.queue_packets, port)
        manager.set_depth_bytes(network.queue_bytes, port)
        manager.set_ecn_threshold(network.ecn_bytes, port)
        if trims:
            manager.set_depth(network.trim_packets, port, network.priorities)
            manager.set_ecn_threshold(None, port, network.priorities)
    if isinstance(layout, PacketLayout) and layout.has_owners:
        # A thin packet with values stands for a longer one, and one without them for itself.
        manager.set_stand_in(layout.frame_size, layout.wire_size - layout.frame_size)


def _ticks(seconds: float) -> int:
    return round(seconds * SECOND)


def _kind_of(end: AnyHost) -> int:
    if isinstance(end, ScriptedHost):
        return SCRIPTED
    if isinstance(end, CalledHost):
        return CALLED
    return COMPILED if isinstance(end, SlotClient) and end.runs_compiled else PYTHON


def _links(
    network: Network, switches: Sequence[str], cables: Sequence[Cable]
) -> tuple[NDArray[Any], NDArray[np.int64], Fabric]:
    """Two links for each cable, the one to its first end first; ``State.ways``; what they make."""
    number = {name: index for index, name in enumerate(switches)}
    links = np.zeros(2 * len(cables), LINK)
    ways = np.full((len(number), PORTS), -1, np.int64)
    pipeline = _ticks(network.switch_latency)
    links["outages"] = links["length"] = -1
    rates, fabric = _rates(network, number, cables)
    for index, cable in enumerate(cables):
        here, to, back = number[cable.switch], links[2 * index], links[2 * index + 1]
        to["rate"] = back["rate"] = round(rates[index])
        delay = network.delay if cable.delay is None else cable.delay
        to["delay"] = back["delay"] = _ticks(delay)
        to["loss"] = back["loss"] = network.loss if cable.loss is None else cable.loss
        to["switch"], to["port"] = here, cable.port
        to["delay"] += pipeline
        to["pipeline"] = pipeline
        if cable.port >= 0:
            ways[here, cable.port] = 2 * index + 1
        if cable.host is not None:
            back["switch"], back["port"] = -1, cable.host
        else:
            there = number[cable.other]
            back["switch"], back["port"] = there, cable.other_port
            back["delay"] += pipeline
            back["pipeline"] = pipeline
            ways[there, cable.other_port] = 2 * index
    return links, ways, fabric


def _rates(
    network: Network, number: Mapping[str, int], cables: Sequence[Cable]
) -> tuple[list[float], Fabric]:
    """The rate of each cable, and the fabric that they make."""
    hosts = np.zeros(len(number), np.int64)
    room = np.zeros(len(number))
    trunks, own, links = [], [], []
    for cable in cables:
        if cable.host is None:
            trunks.append((number[cable.switch], number[cable.other]))
            own.append(network.trunk_rate if cable.rate is None else cable.rate)
        else:
            links.append(network.rate if cable.rate is None else cable.rate)
            hosts[number[cable.switch]] += 1
            room[number[cable.switch]] += links[-1]
    needed = loads(room, trunks)
    between = [
        float(min(max(network.rate, need), MOST_RATE)) if rate is None else rate
        for need, rate in zip(needed, own, strict=True)
    ]
    of_hosts, of_trunks = iter(links), iter(between)
    rates = [next(of_trunks if cable.host is None else of_hosts) for cable in cables]
    return rates, described(hosts, links, trunks, between, needed)


class _NetworkMemory:
    """The arrays of a network, and a STATE with their addresses."""

    links: NDArray[Any]
    hosts: NDArray[Any]
    switches: NDArray[Any]
    clients: NDArray[Any]
    programs: NDArray[Any]
    slots: NDArray[Any]
    data: NDArray[np.uint8]
    nodes: NDArray[np.int64]
    team: NDArray[np.int64]
    reasons: NDArray[np.int64]
    subjects: NDArray[np.int64]
    ways: NDArray[np.int64]
    flows: NDArray[Any]
    log: NDArray[np.int64]
    watches: NDArray[Any]
    controls: NDArray[Any]
    pausing: NDArray[Any]
    waiting: NDArray[Any]
    groups: NDArray[Any]
    faults: NDArray[Any]

    def __init__(self, threads: int, **arrays: NDArray[Any]) -> None:
        parts = 1 if threads == 1 else _PARTS * threads
        self.states = np.zeros(parts, STATE)
        self.state = self.states[0]
        self.used = 0  # slots that belong to rings
        self.keep("states", self.states)
        self.keep("team", make_team(threads, parts, steals=_STEALS))
        for name, array in arrays.items():
            self.keep(name, array)
        self.share()
        self.make_traces(1)

    def keep(self, name: str, array: NDArray[Any]) -> None:
        """Replace an array."""
        setattr(self, name, array)
        self.states[name] = address_of(array)

    def share(self, cards: int = 1) -> None:
        """Give each part its nodes: hosts and their switch, which have most to do with each other;
        and those of the same host's ``cards``.
        """
        switches, parts = len(self.switches), len(self.states)
        leaf = self.links["switch"][self.hosts["up"]]
        first = np.arange(len(leaf)) // cards * cards
        _, place = np.unique(leaf[first] * len(leaf) + first, return_inverse=True)
        part = np.arange(switches + len(leaf)) % parts  # of switches without hosts
        part[switches:] = place * parts // (place.max(initial=0) + 1)
        part[leaf[::-1]] = part[: switches - 1 : -1]  # that of a switch's first host
        order = np.argsort(part, kind="stable")
        self.keep("order", order)
        self.keep("first_node", np.searchsorted(part[order], np.arange(parts + 1)))
        self.part = part
        self.controls["state"] = address_of(self.states) + part * STATE.itemsize

    def of_host(self, host: int) -> NDArray[Any]:
        """The STATE of a host's part, (1,)."""
        part = int(self.part[len(self.switches) + host])
        return self.states[part : part + 1]

    def make_traces(self, limit: int) -> None:
        """Make room for the traces of all parts, which have so many packets together, usually."""
        self.states["trace_limit"] = limit
        room, stride = -(-2 * limit // len(self.states)), self.data.shape[1]
        self.traces: list[tuple[NDArray[Any], NDArray[np.uint8]]] = []
        for part in range(len(self.states)):
            self.traces.append((np.zeros(0, TRACE), np.zeros((0, stride), np.uint8)))
            self._widen(part, room)

    def _widen(self, part: int, room: int) -> None:
        """Give the trace of a part room for so many packets more."""
        lines, data = self.traces[part]
        lines = np.concatenate([lines, np.zeros(room, TRACE)])
        data = np.concatenate([data, np.zeros((room, data.shape[1]), np.uint8)])
        self.traces[part] = lines, data
        state = self.states[part]
        state["trace"], state["traced"] = address_of(lines), address_of(data)
        state["trace_room"] = len(lines)

    def widen_traces(self) -> None:
        """Make room in the traces that are full, or nearly."""
        for part, state in enumerate(self.states):
            if 2 * state["traced_packets"] >= state["trace_room"]:
                self._widen(part, int(state["trace_room"]))

    def widen_trace(self, link: int) -> bool:
        """Make room in a link's trace, if there is no more than in its ring; whether that is so."""
        wire, back = self.links[link], self.links[link ^ 1]  # which leads to the link's source
        if not wire["is_traced"]:
            return False
        switch = int(back["switch"])
        part = int(self.part[switch if switch >= 0 else len(self.switches) + int(back["port"])])
        state = self.states[part]
        ring = int(wire["mask"]) + 1 - int(wire["tail"] - wire["head"])
        if ring < state["trace_room"] - state["traced_packets"]:
            return False
        self._widen(part, int(state["trace_room"]))
        return True

    def take_traces(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Empty all traces; their lines, by part, and bytes, which are overwritten later."""
        counts = self.states["traced_packets"].tolist()
        self.states["traced_packets"] = 0
        taken = [
            (lines[:count], data[:count])
            for count, (lines, data) in zip(counts, self.traces, strict=True)
        ]
        if len(taken) == 1:
            return taken[0]
        all_lines, all_data = zip(*taken, strict=True)
        return np.concatenate(all_lines), np.concatenate(all_data)

    def widen_waiting(self) -> None:
        """Make room for twice as many packets of flows in switches' queues."""
        switches, room = self.waiting.shape
        waiting = np.zeros((switches, 2 * room), WAITING)
        waiting[:, :room] = self.waiting
        self.keep("waiting", waiting)
        self.states["waiting_room"] = 2 * room


def _shortest(
    target: int,
    neighbors: Sequence[Sequence[int]],
    links: NDArray[Any],
    ways: NDArray[np.int64],
) -> list[list[int]]:
    """Of each switch, the ports on shortest paths to ``target``, by breadth-first search."""
    distance = {target: 0}
    reached = deque([target])
    while reached:
        here = reached.popleft()
        for there in neighbors[here]:
            if there not in distance:
                distance[there] = distance[here] + 1
                reached.append(there)
    found: list[list[int]] = []
    for switch, ports in enumerate(ways):
        nearer = distance.get(switch, 0) - 1
        found.append(
            [
                port
                for port in np.flatnonzero(ports >= 0).tolist()
                if (there := int(links["switch"][ports[port]])) >= 0
                and distance.get(there) == nearer
            ]
        )
    return found


def _threads(hosts: int) -> tuple[int, ThreadPoolExecutor | None]:
    """Among how many threads a window's nodes are shared, and those beside the present one."""
    shares = max(1, min(os.cpu_count() or 1, _MOST_THREADS, hosts // _HOSTS))
    return shares, ThreadPoolExecutor(shares - 1, "innet-simulation") if shares > 1 else None


def _flowlets(network: Network, switches: int) -> NDArray[np.int64]:
    """Empty tables of flowlets, if switches use them."""
    size = switches * FLOWLETS if network.paths == "flowlet" else 1
    found = np.zeros((size, 2), np.int64)
    found[:, 0] = -FOREVER  # no packet has come
    return found


def _memory(  # noqa: PLR0917 - one caller
    network: Network,
    layout: PacketLayout | FrameSize,
    links: NDArray[Any],
    ways: NDArray[np.int64],
    cables: Sequence[Cable],
    hosts: int,
    seed: int,
    threads: int,
) -> _NetworkMemory:
    """A network without packets."""
    shortest = np.array([wire_time(0, int(rate)) for rate in links["rate"]])
    lookahead = int((links["delay"] + shortest).min())
    # Rings grow. Trunks that are fast enough for all hosts rarely carry that much.
    usual = np.minimum(links["rate"], round(network.rate))
    frame = np.array([wire_time(layout.wire_size, int(rate)) for rate in usual])
    flying = np.minimum((links["delay"] + lookahead) // frame + 2, 1 << 16)
    sizes = np.maximum(_FIRST, 1 << np.ceil(np.log2(flying)).astype(np.int64))
    links["mask"] = sizes - 1
    links["first"] = np.cumsum(sizes) - sizes
    here = np.zeros(hosts, HOST)
    here["start"] = here["timer"] = here["flow"] = FOREVER
    here["carried"], here["extra"] = layout.frame_size, layout.wire_size - layout.frame_size
    here["receives"] = _ticks(network.host_receive / network.host_cores)
    here["sends"] = _ticks(network.host_send / network.host_cores)
    here["byte"] = round(network.host_byte / network.host_cores * SECOND * BYTE_ONE)
    here["jitter"] = _ticks(network.host_jitter)
    here["pace"] = 0 if network.host_pace is None else round(network.host_pace)
    for index, cable in enumerate(cables):
        if cable.host is not None:
            here["up"][cable.host], here["down"][cable.host] = 2 * index, 2 * index + 1
    switches = np.zeros(len(ways), SWITCH)
    into = [np.flatnonzero(links["switch"] == switch) for switch in range(len(ways))]
    most = max(len(each) for each in into) + 1
    memory = _NetworkMemory(
        threads,
        links=links,
        hosts=here,
        switches=switches,
        flows=np.zeros(1, FLOW),
        clients=np.zeros(hosts, CLIENT),
        programs=np.zeros(len(ways), PROGRAM),
        slots=np.zeros(int(sizes.sum()), SLOT),
        data=np.zeros((int(sizes.sum()), layout.frame_size), np.uint8),
        nodes=np.full(len(ways) + hosts, FOREVER, np.int64),
        ways=ways,
        into=np.concatenate(into).astype(np.int64),
        first_into=np.concatenate([[0], np.cumsum([len(each) for each in into])]),
        routes=np.zeros(1, np.int64),
        flowlets=_flowlets(network, len(ways)),
        first_route=np.zeros(len(ways) * hosts + 1, np.int64),
        host_flows=np.zeros(1, np.int64),
        first_flow=np.zeros(hosts + 1, np.int64),
        waiting=np.zeros((len(ways), 4), WAITING),
        groups=np.zeros(1, GROUP),
        outages=np.zeros(1, OUTAGE),
        faults=np.zeros(1, FAULTS),
        times=np.zeros(1, np.int64),
        log=np.zeros(1, np.int64),
        frames=np.zeros(1, FRAME),
        frame_data=np.zeros(1, np.uint8),
        watches=np.zeros(1, WATCH),
        controls=np.zeros(len(ways) + hosts, CONTROL),
        pausing=np.zeros(1, PAUSING),
        heap_times=np.zeros(_PARTS * threads * most, np.int64),
        heap_links=np.zeros(_PARTS * threads * most, np.int64),
        reasons=np.zeros(len(ways) + hosts, np.int64),
        subjects=np.zeros(len(ways) + hosts, np.int64),
    )
    memory.controls["node"] = [*range(len(ways)), *range(hosts)]
    memory.state["heap_room"] = most
    memory.used = int(sizes.sum())
    state = memory.state
    state["switch_count"], state["host_count"] = len(ways), hosts
    state["stride"], state["waiting_room"] = layout.frame_size, 4
    state["seed"] = seed & (1 << 63) - 1
    state["flowlet_gap"] = _ticks(network.flowlet_gap)
    state["lookahead"] = lookahead
    return memory
