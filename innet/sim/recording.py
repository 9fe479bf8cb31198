"""Recordings of simulated networks: what happened to each packet, for ``innet view``.

All of it is exact but where the record says "not known": losses and faults are those of the run,
and a switch's program says itself which packet caused which.
"""

from __future__ import annotations

import zlib
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from innet._version import __version__
from innet.core.errors import InputError, StateError
from innet.records import Machine, RecordedLink, RecordedNode, RecordingRecord
from innet.records.recording import (
    BY_PROGRAM,
    LOST_ON_LINK,
    NO_LINK,
    NO_PROGRAM,
    NOT_KNOWN,
    PASSED_ON,
    QUEUE_FULL,
    RECEIVED,
    UNDER_WAY,
    HeaderLayout,
)
from innet.sim.captures import with_headers
from innet.sim.header_layouts import layouts_of
from innet.sim.network import SECOND
from innet.sim.simulation import LinkEnd, LinkEnds, Simulation
from innet.sim.state import CHANGED, DAMAGED, FULL, LOST, TRACE, UNCONNECTED
from innet.switch import Switch, ir
from innet.switch.ways import WayRecorder

MOST_PACKETS = 100_000
"""Packets that a recording keeps by default: so many play fluently in a browser."""
MOST_FRAME_BYTES = 14_000_000
"""Bytes that all frames may take of a page, which has to stay below 20 MB; else each is cut."""
_CUTS = (256, 128, 96, 64)
_SAMPLE = 1_000_000  # bytes of frames by which it is estimated

_MOST_CELLS = 64  # of a register that is watched as a whole

Waiting = Sequence[tuple[set[int], set[tuple[int, int]]]]
Watches = Mapping[str, Sequence[str]]
"""Cells to watch, such as ``{"s1": ["counts[3]"]}``: a register's name and an index, by switch."""


class NodeNames(NamedTuple):
    """What a network calls its nodes.

    Attributes:
        switches: names, in the order of the simulation.
        hosts: a name for each of its hosts; the same for those that are one node with several
            links.
        programs: of each switch; "" without one.
    """

    switches: Sequence[str]
    hosts: Sequence[str]
    programs: Sequence[str]


class RunRecorder:
    """Records the packets of a simulation from now on.

    Args:
        simulation: whose packets.
        switches: with programs, by name, in its order; None for those without one.
        names: of its nodes.
        watch: cells of registers whose values are recorded; "name" alone is all cells of a register
            with at most 64.
        limit: packets to keep at most.

    Raises:
        InputError: a limit below 1, or a cell that there is none of, or wider than 64 bits.
        StateError: packets are being recorded already.
    """

    def __init__(
        self,
        simulation: Simulation,
        switches: Mapping[str, Switch | None],
        names: NodeNames,
        *,
        watch: Watches | None = None,
        limit: int = MOST_PACKETS,
    ) -> None:
        if limit < 1:
            raise InputError(f"a recording keeps {limit} packets; give 1 or more.")
        if simulation.is_traced:
            raise StateError("packets are being recorded already; record or capture, not both.")
        self._created = datetime.now(UTC)
        self._simulation, self._switches, self._names = simulation, switches, names
        self._limit = limit
        self._lines: list[NDArray[Any]] = []
        self._frames: list[bytes] = []  # each once
        self._known: dict[bytes, int] = {}
        self._frame_of: list[NDArray[np.int64]] = []
        self._kept = 0
        self._until: int | None = None  # from when on packets are left out
        self._waiting: Waiting | None = None  # what waited then
        self._begin = round(simulation.now * SECOND)
        self._before = sum(link.packets for link in simulation.link_counts())
        self.watched, cells = _watched(switches, watch or {})
        self._first_values = tuple(int(cell[0]) for _, cell in cells)
        self._watched_switches = np.array([switch for switch, _ in cells], np.int64)
        self._ways = {
            number: WayRecorder(switch.state)
            for number, switch in enumerate(switches.values())
            if switch is not None
        }
        self._received, self._under_way = simulation.record(self._take, cells, self._ways)

    def _take(self, lines: NDArray[Any], data: NDArray[np.uint8]) -> None:
        """Keep lines of the trace, and each packet's bytes once."""
        if self._until is not None:
            return
        frames = np.full(len(lines), -1, np.int64)
        rows = np.flatnonzero(lines["fate"] <= DAMAGED)
        flows = self._simulation.known_flows
        packets, carried = with_headers(lines[rows], data[rows], flows)
        unknown = [number for number, flow in enumerate(flows) if flow is None]
        carried[np.isin(lines["flow"][rows], unknown)] = 0
        for row, packet, length in zip(rows.tolist(), packets, carried.tolist(), strict=True):
            taken = packet[:length].tobytes()
            number = self._known.setdefault(taken, len(self._frames))
            if number == len(self._frames):
                self._frames.append(taken)
            frames[row] = number
        self._lines.append(lines.copy())
        self._frame_of.append(frames)
        self._kept += len(rows)
        if self._kept > self._limit:
            # Links carry some packets later than they were put: what comes before now is complete.
            self._until = self._simulation.happened
            self._waiting = self._simulation.waiting_packets()
            self._simulation.stop_trace()

    def stop(self) -> None:
        """End the recording; what was recorded stays."""
        if self._simulation.is_traced and self._until is None:
            self._simulation.stop_trace()

    def record(self, title: str, settings: Mapping[str, Any] | None = None) -> RecordingRecord:
        """What was recorded so far.

        Args:
            title: what ran.
            settings: of the run.
        """
        simulation = self._simulation
        simulation.flush_trace()
        lines, frames = np.zeros(0, TRACE), np.zeros(0, np.int64)
        if self._lines:
            lines, frames = np.concatenate(self._lines), np.concatenate(self._frame_of)
        # Step 1: all that was traced, by time and then by node, and when the recording ends.
        links = simulation.link_ends()
        order = np.lexsort((self._nodes_of(lines, links), lines["time"]))
        lines, frames = lines[order], frames[order]
        carried = sum(link.packets for link in simulation.link_counts()) - self._before
        end = self._until
        if end is None:
            end = max([self._begin, *lines["time"][-1:].tolist()])
            if simulation.under_way():
                end = max(end, round(simulation.now * SECOND))
            elif len(lines):  # time may pass for long after the last packet has arrived
                end = max(end, int(lines["arrives"].max()), int(lines["again"].max()))
        # Step 2: what became of each packet, and what caused it.
        runs = [self._switches[name] is not None for name in self._names.switches]
        fates = _Fates(lines, links, runs, end)
        fates.follow_flows()
        fates.follow_programs(self._received, self._under_way)
        fates.settle(self._waiting or simulation.waiting_packets())
        times = lines["time"][lines["fate"] <= DAMAGED]
        if len(times) > self._limit:
            end = min(end, int(times[self._limit]))
        last = end if self._until is None else end - 1
        is_packet = (lines["fate"] <= DAMAGED) & (lines["time"] <= last)
        packets, frames, fate = lines[is_packet], frames[is_packet], fates.fate[is_packet]
        ways, way_of = self._ways_of(fates)
        # Row numbers of all lines become those of packets.
        rows = np.append(np.where(is_packet, np.cumsum(is_packet) - 1, -1), -1)
        full = np.flatnonzero((lines["fate"] == FULL) & (lines["time"] <= last))
        changed = lines[(lines["fate"] == CHANGED) & (lines["time"] <= last)]
        # Step 3: bytes, in the order of their first packets, and where headers lie in them.
        used, first, frames = np.unique(frames, return_index=True, return_inverse=True)
        order = np.argsort(first)
        frames = np.argsort(order)[frames]
        kept = [self._frames[number] for number in used[order].tolist()]
        layouts, layout_of = self._layouts(kept, frames, packets["link"], links)
        cut, kept = _fitting(kept)
        names, nodes = self._nodes()
        again = packets["again"]
        return RecordingRecord.packed(
            {
                "link": packets["link"],
                "time": packets["time"],
                "flight": packets["arrives"] - packets["time"],
                "again": np.where(again > 0, again - packets["time"], 0),
                "length": packets["length"],
                "frame": frames,
                "layout": layout_of,
                "flow": packets["flow"],
                "cause": rows[fates.cause[is_packet]],
                "copy_of_cause": fates.copy[is_packet],
                "fate": fate,
                "damaged": packets["fate"] == DAMAGED,
                "way": way_of[is_packet],
                "full_time": lines["time"][full],
                "full_link": lines["link"][full],
                "full_cause": rows[fates.cause[full]],
                "change_time": changed["time"],
                "change_watch": -1 - changed["link"],
                "change_low": changed["number"] & 0xFFFFFFFF,
                "change_high": changed["number"] >> 32 & 0xFFFFFFFF,
                "frame_length": np.array([len(each) for each in kept], np.int64),
                "bytes": np.frombuffer(b"".join(kept), np.uint8),
            },
            innet=__version__,
            created=self._created,
            machine=Machine.here(),
            settings={"title": title, **(settings or {})},
            nodes=nodes,
            links=tuple(
                RecordedLink(
                    source=names[link.source.kind, link.source.number],
                    target=names[link.target.kind, link.target.number],
                    source_port=link.source.port,
                    target_port=link.target.port,
                    rate=link.rate,
                    delay=link.delay,
                )
                for link in links
            ),
            watches=self.watched,
            first_values=self._first_values,
            begin=self._begin,
            end=end,
            packets=len(packets),
            left_out=carried - len(packets),
            cut=cut,
            layouts=layouts,
            ways=ways,
        )

    def _nodes_of(self, lines: NDArray[Any], links: Sequence[LinkEnds]) -> NDArray[np.int64]:
        """The node that wrote each line: switches, then hosts."""
        switches = len(self._switches)
        sources = [
            end.number + (0 if end.kind == "switch" else switches)
            for end in (link.source for link in links)
        ]
        link = lines["link"].astype(np.int64)
        node = np.array(sources, np.int64)[np.maximum(link, 0)]
        node[lines["fate"] == UNCONNECTED] = -1 - link[lines["fate"] == UNCONNECTED]
        is_changed = lines["fate"] == CHANGED
        node[is_changed] = self._watched_switches[-1 - link[is_changed]]
        return node

    def _ways_of(self, fates: _Fates) -> tuple[tuple[tuple[str, ...], ...], NDArray[np.int64]]:
        """Ways through programs, and that of each line; -1: it has none."""
        known: dict[tuple[str, ...], int] = {}
        way_of = np.full(len(fates.fate), -1, np.int64)
        for switch, came in fates.came.items():
            for packet, lines in self._ways[switch].ways().items():
                at = packet - self._received[switch]
                if 0 <= at < len(came) and came[at][3] >= 0 and not came[at][4]:
                    way_of[came[at][3]] = known.setdefault(lines, len(known))
        return tuple(known), way_of

    def _layouts(
        self,
        frames: list[bytes],
        frame_of: NDArray[np.int64],
        link_of: NDArray[np.int32],
        links: Sequence[LinkEnds],
    ) -> tuple[tuple[tuple[HeaderLayout, ...], ...], NDArray[np.int64]]:
        """Layouts of headers, and that of each packet, by the program at an end of its link."""
        programs: list[ir.Program | None] = []
        of_link = np.zeros(len(links), np.int64)
        for number, link in enumerate(links):
            program = None
            for end in (link.target, link.source):
                if end.kind == "switch" and program is None:
                    switch = self._switches[self._names.switches[end.number]]
                    program = None if switch is None else switch.program
            if program not in programs:
                programs.append(program)
            of_link[number] = programs.index(program)
        found: list[tuple[HeaderLayout, ...]] = []
        layout_of = np.full(len(frame_of), -1, np.int64)
        for number, program in enumerate(programs):
            rows = np.flatnonzero(of_link[link_of] == number)
            which, back = np.unique(frame_of[rows], return_inverse=True)
            layouts, each = layouts_of(program, [frames[frame] for frame in which.tolist()])
            layout_of[rows] = each[back] + len(found)
            found += layouts
        return tuple(found), layout_of

    def save(self, path: str | Path, title: str, settings: Mapping[str, Any] | None = None) -> None:
        """Write what ``record`` returns to a JSON file.

        Raises:
            OutputError: it cannot be written.
        """
        self.record(title, settings).save(path)

    def _nodes(self) -> tuple[dict[tuple[str, int], int], tuple[RecordedNode, ...]]:
        """Positions of nodes by kind and number, and the nodes: switches, then hosts."""
        places: dict[tuple[str, int], int] = {}
        nodes: list[RecordedNode] = []
        for number, name in enumerate(self._names.switches):
            places["switch", number] = len(nodes)
            program = self._names.programs[number]
            nodes.append(RecordedNode(name=name, kind="switch", program=program))
        named: dict[str, int] = {}
        for number, name in enumerate(self._names.hosts):
            if name not in named:
                named[name] = len(nodes)
                nodes.append(RecordedNode(name=name, kind="host"))
            places["host", number] = named[name]
        return places, tuple(nodes)


def _switch_at(end: LinkEnd) -> int:
    """The switch at an end of a link; -1: a host."""
    return end.number if end.kind == "switch" else -1


class _Fates:
    """What became of each line of a trace, and which other one caused it.

    Args:
        lines: TRACE, in order of time.
        links: what they connect.
        runs: of each switch, whether it has a program.
        end: of the recording, picoseconds.

    Attributes:
        fate: shape (n,), of ``records.FATES``.
        cause: shape (n,): a line, or -1.
        copy: shape (n,): 1 if it was that line's duplicate.
        came: by switch with a program: what came to it, as ``_arrivals`` has it.
    """

    def __init__(
        self, lines: NDArray[Any], links: Sequence[LinkEnds], runs: Sequence[bool], end: int
    ) -> None:
        self._lines, self._runs, self._end = lines, runs, end
        self.fate = np.full(len(lines), NOT_KNOWN, np.int64)
        self.cause = np.full(len(lines), -1, np.int64)
        self.copy = np.zeros(len(lines), np.int64)
        self.came: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self._becomes: dict[int, int] = {}  # fates of lines that something came of
        self._targets = [_switch_at(each.target) for each in links]
        # Lines about an unconnected port name the switch where others name the link.
        link = np.maximum(lines["link"], 0)
        self._target = np.array(self._targets, np.int64)[link]
        sources = np.array([_switch_at(each.source) for each in links], np.int64)
        self._source = sources[link]
        nowhere = lines["fate"] == UNCONNECTED
        self._source[nowhere] = -1 - lines["link"][nowhere]
        self._is_packet = lines["fate"] <= DAMAGED
        self._arrives = self._is_packet & (lines["fate"] != LOST)

    def _arrivals(self, rows: NDArray[np.int64]) -> list[tuple[int, int, int, int, int]]:
        """When packets and duplicates arrive, by time, link and order on it: time, link, place, row
        and copy.
        """
        found = []
        lines = self._lines[rows]
        times = lines["arrives"].tolist(), lines["again"].tolist(), lines["link"].tolist()
        for row, first, second, link in zip(rows.tolist(), *times, strict=True):
            found.append((first, link, 2 * row, row, 0))
            if second > 0:
                found.append((second, link, 2 * row + 1, row, 1))
        found.sort()
        return found

    def follow_flows(self) -> None:
        """Find the causes of packets of flows without bytes, by flow and number."""
        lines, is_flow = self._lines, self._lines["flow"] >= 0
        came: dict[tuple[int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
        rows = np.flatnonzero(is_flow & self._arrives & (self._target >= 0))
        for _, _, _, row, copy in self._arrivals(rows):
            key = int(self._target[row]), int(lines["flow"][row]), int(lines["number"][row])
            came[key].append((row, copy))
        for row in np.flatnonzero(is_flow & (self._source >= 0)).tolist():
            key = int(self._source[row]), int(lines["flow"][row]), int(lines["number"][row])
            if came[key]:
                self._note(row, *came[key].popleft())

    def follow_programs(self, received: Sequence[int], under_way: NDArray[Any]) -> None:
        """Find the causes of what programs sent: switches number the packets that they receive.

        Args:
            received: of each switch, before the recording.
            under_way: packets that links carried then.
        """
        lines, is_program = self._lines, self._lines["flow"] < 0
        for switch, runs in enumerate(self._runs):
            if not runs:
                continue
            rows = np.flatnonzero(is_program & self._arrives & (self._target == switch))
            came = self._arrivals(rows)
            before = [
                (int(each["arrives"]), int(each["link"]), -1, -1, 0)
                for each in under_way
                if self._targets[int(each["link"])] == switch and each["flow"] < 0
            ]
            if before:
                came = sorted(came + before)
            self.came[switch] = came
            sent = np.flatnonzero(is_program & (self._source == switch) & (lines["number"] >= 0))
            for row in sent[lines["fate"][sent] != CHANGED].tolist():
                at = int(lines["number"][row]) - received[switch]
                if 0 <= at < len(came) and came[at][3] >= 0:
                    self._note(row, came[at][3], came[at][4])

    def _note(self, row: int, cause: int, copy: int) -> None:
        """A line was caused by another one."""
        self.cause[row], self.copy[row] = cause, copy
        fate = int(self._lines["fate"][row])
        if fate <= DAMAGED:
            self._becomes[cause] = PASSED_ON
        else:
            what = QUEUE_FULL if fate == FULL else NO_LINK
            self._becomes.setdefault(cause, what)

    def settle(self, waiting: Waiting) -> None:
        """Say what became of each packet.

        Args:
            waiting: what waits in switches' queues at the end.
        """
        lines, fate = self._lines, self.fate
        fate[self._arrives & (self._target < 0)] = RECEIVED
        fate[lines["arrives"] > self._end] = UNDER_WAY
        fate[lines["fate"] == LOST] = LOST_ON_LINK
        for cause, what in self._becomes.items():
            fate[cause] = what
        for row in np.flatnonzero((fate == NOT_KNOWN) & self._is_packet).tolist():
            switch, flow = int(self._target[row]), int(lines["flow"][row])
            since, flows = waiting[switch]
            if flow >= 0:
                waits = (flow, int(lines["number"][row])) in flows
                fate[row] = UNDER_WAY if waits else NO_LINK
            elif not self._runs[switch]:
                fate[row] = NO_PROGRAM
            elif int(lines["arrives"][row]) not in since:
                fate[row] = BY_PROGRAM


def _watched(
    switches: Mapping[str, Switch | None], watch: Watches
) -> tuple[tuple[str, ...], list[tuple[int, NDArray[Any]]]]:
    """Names of watched cells, and each cell with the number of its switch."""
    names: list[str] = []
    cells: list[tuple[int, NDArray[Any]]] = []
    numbers = {name: number for number, name in enumerate(switches)}
    for name, asked in watch.items():
        switch = switches.get(name)
        if switch is None:
            able = ", ".join(each for each, model in switches.items() if model is not None)
            raise InputError(f"{name} has no registers to watch; switches with programs: {able}.")
        for each in [asked] if isinstance(asked, str) else asked:
            register, bracket, index = each.partition("[")
            array = switch.registers[register]
            if array.ndim != 1:
                raise InputError(f"{each} of {name} is wider than 64 bits and cannot be watched.")
            if bracket and not (index.endswith("]") and index[:-1].isdecimal()):
                raise InputError(f"{each!r} is no cell; write it as {register}[0].")
            chosen = range(len(array))[:_MOST_CELLS] if not bracket else [int(index[:-1])]
            for cell in chosen:
                if cell >= len(array):
                    raise InputError(f"{register} of {name} has cells 0 to {len(array) - 1}.")
                names.append(f"{name} {register}[{cell}]")
                cells.append((numbers[name], array[cell : cell + 1]))
    return tuple(names), cells


def _fitting(frames: list[bytes]) -> tuple[int | None, list[bytes]]:
    """Frames, each cut if all together would take too much of a page, and at how many bytes."""
    kept = frames
    for cut in (None, *_CUTS):
        kept = [frame[:cut] for frame in frames]
        if _packed_size(kept) <= MOST_FRAME_BYTES:
            return cut, kept
    return _CUTS[-1], kept


def _packed_size(frames: list[bytes]) -> float:
    """About how many bytes of a page frames take, packed: by some of them."""
    total = sum(map(len, frames))
    if total <= MOST_FRAME_BYTES // 2:
        return total  # packed and as base64, it is not more by much
    middle = len(frames) // 2  # packets that come one after the other are alike
    some = b"".join(frames[middle : middle + 1 + _SAMPLE * len(frames) // total])
    return total * len(zlib.compress(some)) / len(some) * 4 / 3
