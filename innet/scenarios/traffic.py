"""Flows of packets over a simulated network whose switches run any compiled P4 program."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from innet._version import __version__
from innet.core.errors import ControlError, InputError
from innet.records import (
    FlowTraffic,
    HostTraffic,
    LinkTraffic,
    Machine,
    QueueTraffic,
    SwitchTraffic,
    TrafficRecord,
)
from innet.scenarios.traffic_file import Scenario, SwitchFiles, read_scenario
from innet.sim.captures import LinkCaptures
from innet.sim.flow_control import PauseCounts
from innet.sim.flows import Flow, FlowCounts, PacketFlow
from innet.sim.network import SECOND, Network
from innet.sim.recording import NodeNames, RunRecorder, Watches
from innet.sim.simulation import FrameSize, LinkCounts, Simulation
from innet.switch import Switch, ir
from innet.tools.files import open_program, read_commands

_SLACK = 256
"""Bytes by which programs may make packets longer than those that hosts send."""
_FIRST_LOOK = 1e-3  # seconds of simulated time; then after twice as many, and so on
_MOST_HOPS = 1000  # of a packet: IPv4 has at most 255
_END = 1e6  # seconds; a run without an end stops before, as nothing is under way


def simulate_traffic(
    path: str | Path,
    *,
    program: str | None = None,
    commands: str | Path | None = None,
    priority_queues: int = 1,
    network: str | Path | Network | Mapping[str, Any] | None = None,
    pcap: str | Path | None = None,
    recording: str | Path | None = None,
    watch: Watches | None = None,
    seed: int | None = None,
    created: datetime | None = None,
) -> TrafficRecord:
    """Let flows of packets pass a simulated network.

    Args:
        path: a TOML file with topology and flows; see docs/simulation.md.
        program: compiled P4 (BMv2 JSON), or the name of a program of innet, that all switches run
            for which the file states none. Without any, switches forward flows by shortest paths.
        commands: file of commands for their tables, as simple_switch_CLI has them.
        priority_queues: egress queues per port.
        network: rates, delays and queues, for what the file does not state.
        pcap: folder for a capture of each link in each direction.
        recording: file for a record of what happens to each packet, which ``innet view`` shows.
        watch: cells of registers that it records, too, such as ``{"s1": ["counts[3]"]}``.
        seed: of losses, random flows and random(); by default the file's, or 0.
        created: when the run began, for the record; by default now.

    Raises:
        ConfigError: the file cannot be read, or something in it cannot be used.
        InputError, ProgramError, ControlError: likewise programs and commands.
    """
    begun = time.perf_counter()
    scenario = read_scenario(
        path,
        program=program,
        commands=None if commands is None else Path(commands),
        priority_queues=priority_queues,
        network=network,
    )
    seed = scenario.seed or 0 if seed is None else seed
    run = TrafficRun(scenario, seed)
    captures = None if pcap is None else LinkCaptures(run.simulation, Path(pcap))
    recorder = None if recording is None else run.recorder(watch)
    run.run()
    if recorder is not None:
        assert recording is not None
        recorder.save(recording, Path(path).name, {"seed": seed})
    return TrafficRecord(
        innet=__version__,
        created=created or datetime.now(UTC),
        machine=Machine.here(),
        settings={
            "traffic": str(path),
            "program": program,
            "commands": None if commands is None else str(commands),
            "priority_queues": priority_queues,
            "pcap": None if pcap is None else str(pcap),
            "seed": seed,
        },
        network=asdict(scenario.network),
        wall_seconds=time.perf_counter() - begun,
        **run.results([] if captures is None else captures.files),
    )


class TrafficRun:
    """A scenario's network.

    Attributes:
        simulation: its links, hosts and queues.
        switches: by name; None for those without a program.
    """

    def __init__(self, scenario: Scenario, seed: int = 0) -> None:
        self._scenario = scenario
        programs: dict[str, ir.Program] = {}
        self.switches: dict[str, Switch | None] = {}
        for number, (name, files) in enumerate(scenario.switches.items()):
            self.switches[name] = None
            if files.program is not None:
                if files.program not in programs:
                    programs[files.program] = open_program(files.program)
                self.switches[name] = Switch(
                    programs[files.program],
                    "jit",
                    seed=seed + number,
                    priority_queues=files.priority_queues,
                )
        scenario.network.check_frame(scenario.longest)
        sizes = [flow.frame_size for flow in scenario.flows if isinstance(flow, PacketFlow)]
        room = max(sizes) + _SLACK if sizes else 1
        self.simulation = Simulation(
            scenario.network,
            FrameSize(room, room),
            self.switches,
            scenario.cables,
            scenario.hosts,
            seed=seed,
        )
        self.simulation.set_faults(scenario.faults)
        # After the network has set up the queues, so that commands may change them.
        for name, files in scenario.switches.items():
            switch = self.switches[name]
            if switch is not None:
                _command(name, switch, files)
        self.simulation.add_flows(scenario.flows)

    def run(self) -> None:
        """Let time pass until the scenario's end, or until nothing will ever happen.

        Raises:
            InputError: there is no end, and packets go round in circles.
        """
        if self._scenario.seconds is not None:
            self.simulation.run_until(self._scenario.seconds)
            return
        # A loop of the program never ends by itself, so that it is looked for now and then: in
        # packets that links carried for each that was sent or under way since the last look.
        reached, before, alive, sent = _FIRST_LOOK, 0, 0, 0
        hops = _MOST_HOPS + len(self._scenario.cables)
        while True:
            self.simulation.run_until(reached)
            if reached >= _END:
                return
            all_sent = sum(flow.sent for flow in self.simulation.flow_counts())
            carried = sum(link.packets for link in self.simulation.link_counts())
            if carried - before > max(all_sent - sent + alive, 1) * hops:
                raise InputError(
                    f"after {reached:g} s of simulated time {all_sent} packets were sent, and "
                    f"links carried {carried}: the program sends packets in circles. Say by "
                    "seconds, before the file's first table, when to stop."
                )
            reached, before, sent = min(2 * reached, _END), carried, all_sent
            alive = self._under_way()

    def recorder(self, watch: Watches | None = None) -> RunRecorder:
        """Records its packets from now on, and cells of registers."""
        names = NodeNames(
            list(self.switches),
            [f"host {number}" for number in range(self._scenario.hosts)],
            [files.program or "" for files in self._scenario.switches.values()],
        )
        return RunRecorder(self.simulation, self.switches, names, watch=watch)

    def _under_way(self) -> int:
        """Packets on links and in queues."""
        queues = (queue for each in self.simulation.managers() for queue in each.used_queues())
        return self.simulation.under_way() + sum(queue.depth for queue in queues)

    def results(self, captures: list[Path]) -> dict[str, Any]:
        """Fields of the record."""
        simulation, scenario = self.simulation, self._scenario
        counts = simulation.flow_counts()
        links = simulation.link_counts()
        pauses: dict[tuple[str, str], list[PauseCounts]] = {}
        for each in simulation.pause_counts():
            pauses.setdefault((each.source, each.target), []).append(each)
        last = max(link.last for link in links)
        seconds = scenario.seconds or last / SECOND
        return {
            "fabric": simulation.fabric,
            "seconds": seconds,
            "under_way": self._under_way(),
            "flows": tuple(map(_flow, scenario.flows, counts)),
            "hosts": tuple(self._host(host, counts) for host in range(scenario.hosts)),
            "switches": tuple(
                self._switch(number, name, links) for number, name in enumerate(scenario.switches)
            ),
            "links": tuple(
                LinkTraffic(
                    source=link.source,
                    target=link.target,
                    packets=link.packets,
                    bytes=link.bytes,
                    lost=link.lost,
                    utilization=link.busy / SECOND / seconds if seconds else 0.0,
                    pauses={each.priority: each.pauses for each in paused},
                    paused={each.priority: each.paused for each in paused},
                    capture=str(captures[number]) if captures else "",
                )
                for number, link in enumerate(links)
                for paused in [pauses.get((link.source, link.target), [])]
            ),
            "packets": sum(link.packets for link in links),
        }

    def _host(self, host: int, counts: list[FlowCounts]) -> HostTraffic:
        packets, volume = self.simulation.host_packets(host)
        sent = sent_bytes = 0
        for flow, count in zip(self._scenario.flows, counts, strict=True):
            if isinstance(flow, Flow) and flow.destination == host:
                packets += count.received
                volume += count.received * flow.frame_size
            if flow.source == host:
                sent += count.sent
                sent_bytes += _bytes(flow, count.sent)
        return HostTraffic(
            sent=sent, sent_bytes=sent_bytes, received=packets, received_bytes=volume
        )

    def _switch(self, number: int, name: str, links: list[LinkCounts]) -> SwitchTraffic:
        switch, manager = self.switches[name], self.simulation.managers()[number]
        told = {} if switch is None else switch.statistics.as_dict()
        counted = self.simulation.switch_counts(number)
        queues = tuple(
            QueueTraffic(
                port=queue.port,
                priority=queue.priority,
                dropped=queue.dropped,
                bytes_max=queue.bytes_max,
                marked=queue.marked,
            )
            for queue in manager.used_queues()
        )
        return SwitchTraffic(
            name=name,
            program=self._scenario.switches[name].program or "",
            packets_in=counted.packets_in,
            packets_out=sum(
                link.packets for link in links if link.source.rpartition(":")[0] == name
            ),
            dropped_program=told.get("dropped_ingress", 0) + told.get("dropped_egress", 0),
            dropped_queue=sum(queue.dropped for queue in queues),
            unconnected=counted.unconnected,
            no_program=counted.no_program,
            replicated=told.get("replicated", 0),
            cloned=told.get("cloned", 0),
            resubmitted=told.get("resubmitted", 0),
            recirculated=told.get("recirculated", 0),
            queues=queues,
        )


def _command(name: str, switch: Switch, files: SwitchFiles) -> None:
    """Run a switch's commands. Errors name file and line."""
    for number, line in enumerate(read_commands(files.commands).lines, start=1):
        try:
            switch.command(line)
        except ControlError as error:
            raise type(error)(f"{files.commands}:{number}, at switch {name}: {error}") from None


def _bytes(flow: Flow | PacketFlow, sent: int) -> int:
    if isinstance(flow, PacketFlow) and len(flow.frames) > 1:
        return sum(map(len, flow.frames[:sent]))
    return sent * flow.frame_size


def _flow(flow: Flow | PacketFlow, counts: FlowCounts) -> FlowTraffic:
    is_plain = isinstance(flow, Flow)
    told = not isinstance(flow, PacketFlow) or flow.stamp
    return FlowTraffic(
        source=flow.source,
        destination=flow.destination if is_plain else None,
        runs_program=not is_plain,
        sent=counts.sent,
        received=counts.received if told else None,
        dropped=counts.dropped if is_plain else None,
        lost=counts.lost if is_plain else None,
        mean_delay=counts.mean_delay if counts.received else None,
        longest_delay=counts.longest_delay if counts.received else None,
    )
