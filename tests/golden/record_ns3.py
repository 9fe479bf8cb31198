"""Record what ns-3 makes of the flows in ns3/*.toml.

``python tests/golden/record_ns3.py [NAME ...]`` needs Python 3.11 to 3.13 with ``pip install ns3``,
and nothing else. It writes ns3/NAME.json.gz beside each ns3/NAME.toml: the links and flows in whole
numbers, and each packet's delay in picoseconds or the queue that dropped it. Compared with them in
tests/unit/sim/test_ns3.py.

Equal framing: a packet of ns-3's point-to-point links has 30 bytes of headers (UDP 8, IPv4 20, PPP
2), one of innet's has 66 bytes on the wire beside its payload (UDP, IPv4, Ethernet; preamble, check
sequence and gap), and at least 84 in all. So ns-3 is given packets with more payload.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from support.flow_scenarios import (  # noqa: E402 - found by the line above
    Outcome,
    Scenario,
    read_scenario,
    wire_bytes,
    write_golden,
)

NS3_HEADERS = 30
"""Bytes of a packet on ns-3's point-to-point link beside its payload: UDP, IPv4, PPP."""

# One run of ns-3: nodes with ns-3's own IPv4, static routes and UDP sockets; point-to-point links
# with drop-tail queues, and no traffic control, whose queues would stand before those of the links.
# Each flow has an address of its own at its destination, so that a route is a flow's path.
RUN = r"""
namespace innet_flows {
using namespace ns3;

struct Packets {
    std::vector<int64_t> sent, arrived;   // picoseconds, by ns-3's number of the packet; -1
    std::vector<int> flow, number, dropped_at;
    int64_t first = -1;                   // the number of the first packet sent
};

struct FlowState {
    int flow;
    uint32_t size;
    std::vector<int64_t> times;
    size_t next;
    Ptr<Socket> socket;
    InetSocketAddress to;
};

struct Network {
    Packets packets;
    std::vector<Ptr<Node>> nodes;
    std::vector<Ptr<PointToPointNetDevice>> devices;   // the sender of each directed link
    std::vector<FlowState*> flows;
};
Network* network = nullptr;   // a pointer: what is static would be destroyed after ns-3

static void send(FlowState* state) {
    Packets& packets = network->packets;
    Ptr<Packet> packet = Create<Packet>(state->size);
    if (packets.first < 0) packets.first = packet->GetUid();
    size_t row = packet->GetUid() - packets.first;
    if (row >= packets.sent.size()) {
        packets.sent.resize(2 * row + 1024, -1);
        packets.arrived.resize(2 * row + 1024, -1);
        packets.flow.resize(2 * row + 1024, -1);
        packets.number.resize(2 * row + 1024, -1);
        packets.dropped_at.resize(2 * row + 1024, -1);
    }
    packets.sent[row] = Simulator::Now().GetPicoSeconds();
    packets.flow[row] = state->flow;
    packets.number[row] = state->next;
    state->socket->SendTo(packet, 0, state->to);
    state->next += 1;
    if (state->next < state->times.size()) {
        Time next = PicoSeconds(state->times[state->next]);
        Simulator::Schedule(next - Simulator::Now(), &send, state);
    }
}

static void receive(Ptr<Socket> socket) {
    Packets& packets = network->packets;
    while (Ptr<Packet> packet = socket->Recv()) {
        packets.arrived[packet->GetUid() - packets.first] = Simulator::Now().GetPicoSeconds();
    }
}

static void dropped(int link, Ptr<const Packet> packet) {
    network->packets.dropped_at[packet->GetUid() - network->packets.first] = link;
}

static void use_picoseconds() { Time::SetResolution(Time::PS); }

static void build(int count) {
    network = new Network;
    InternetStackHelper stack;
    Ipv4StaticRoutingHelper routing;
    stack.SetRoutingHelper(routing);
    stack.SetIpv6StackInstall(false);
    for (int node = 0; node < count; ++node) {
        network->nodes.push_back(CreateObject<Node>());
        stack.Install(network->nodes.back());
    }
}

static void cable(int a, int b, uint64_t rate, int64_t delay, int queue_a, int queue_b) {
    Ptr<PointToPointChannel> channel = CreateObject<PointToPointChannel>();
    channel->SetAttribute("Delay", TimeValue(PicoSeconds(delay)));
    int ends[2] = {a, b}, queues[2] = {queue_a, queue_b};
    auto& nodes = network->nodes;
    auto& devices = network->devices;
    for (int end = 0; end < 2; ++end) {
        int link = devices.size();
        Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
        device->SetAddress(Mac48Address::Allocate());
        device->SetAttribute("DataRate", DataRateValue(DataRate(rate)));
        device->SetMtu(65535);
        Ptr<DropTailQueue<Packet>> queue = CreateObject<DropTailQueue<Packet>>();
        queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, queues[end]));
        device->SetQueue(queue);
        device->TraceConnectWithoutContext("MacTxDrop", MakeBoundCallback(&dropped, link));
        nodes[ends[end]]->AddDevice(device);
        device->Attach(channel);
        Ptr<Ipv4> ip = nodes[ends[end]]->GetObject<Ipv4>();
        uint32_t interface = ip->AddInterface(device);
        ip->AddAddress(interface, Ipv4InterfaceAddress(
            Ipv4Address(0x0a000000 + 4 * (link / 2) + 1 + end), Ipv4Mask("/30")));
        ip->SetUp(interface);
        devices.push_back(device);
    }
}

static void flow(uint32_t size, const std::vector<int>& path, const std::vector<int64_t>& times) {
    int number = network->flows.size();
    auto& devices = network->devices;
    Ipv4Address address(0x0b000001 + number);
    Ptr<Node> source = devices[path.front()]->GetNode();
    Ptr<NetDevice> last = devices[path.back() ^ 1];   // of the cable's other end
    Ptr<Node> destination = last->GetNode();
    Ptr<Ipv4> ip = destination->GetObject<Ipv4>();
    ip->AddAddress(ip->GetInterfaceForDevice(last), Ipv4InterfaceAddress(address, Ipv4Mask("/32")));
    Ipv4StaticRoutingHelper routing;
    for (int link : path) {
        Ptr<Ipv4> there = devices[link]->GetNode()->GetObject<Ipv4>();
        routing.GetStaticRouting(there)->AddHostRouteTo(
            address, there->GetInterfaceForDevice(devices[link]));
    }
    InetSocketAddress to(address, 9000 + number);
    Ptr<Socket> sink = Socket::CreateSocket(destination, UdpSocketFactory::GetTypeId());
    sink->Bind(to);
    sink->SetRecvCallback(MakeCallback(&receive));
    Ptr<Socket> socket = Socket::CreateSocket(source, UdpSocketFactory::GetTypeId());
    socket->Bind();
    network->flows.push_back(new FlowState{number, size, times, 0, socket, to});
    Simulator::Schedule(PicoSeconds(times.front()), &send, network->flows.back());
}

static double run() {
    std::clock_t begun = std::clock();
    Simulator::Run();
    return double(std::clock() - begun) / CLOCKS_PER_SEC;
}

static void clear() {
    Simulator::Destroy();
    for (FlowState* flow : network->flows) delete flow;
    delete network;
}
}
"""


def load() -> Any:
    """ns-3's bindings, with ``RUN`` compiled; and ns-3's version."""
    from importlib.metadata import version  # noqa: PLC0415 - the modules may not be installed

    import cppyy  # noqa: PLC0415 - likewise
    from ns import ns  # noqa: F401, PLC0415 - loads ns-3's libraries and headers

    cppyy.cppdef("#include <ctime>\n" + RUN)
    ns3 = cppyy.gbl.innet_flows
    ns3.use_picoseconds()
    return ns3, version("ns3")


def run(ns3: Any, scenario: Scenario) -> tuple[list[Outcome], float]:
    """What ns-3 makes of a scenario, and the seconds of processor time of ``Simulator::Run``."""
    ns3.build(scenario.nodes)
    for one, other in zip(scenario.links[::2], scenario.links[1::2], strict=True):
        ns3.cable(one.source, one.target, one.rate, one.delay, one.queue, other.queue)
    for flow in scenario.flows:
        ns3.flow(wire_bytes(flow.size) - NS3_HEADERS, list(flow.path), list(flow.times))
    seconds = ns3.run()
    outcomes = [Outcome([None] * len(flow.times)) for flow in scenario.flows]
    found = ns3.network.packets
    for sent, arrived, flow, number, dropped in zip(
        found.sent, found.arrived, found.flow, found.number, found.dropped_at, strict=True
    ):
        if flow < 0:
            continue
        if arrived >= 0:
            outcomes[flow].delays[number] = arrived - sent
        else:
            outcomes[flow].dropped_at[number] = dropped
    ns3.clear()
    return outcomes, float(seconds)


def packet_hops(scenario: Scenario, outcomes: list[Outcome]) -> int:
    """Packets that were put onto links."""
    return sum(
        len(flow.path) * len(outcome.delays)
        - sum(len(flow.path) - flow.path.index(link) for link in outcome.dropped_at.values())
        for flow, outcome in zip(scenario.flows, outcomes, strict=True)
    )


def measure(path: Path, repeats: int) -> None:
    """Print packets put onto links, and seconds of each of ``repeats`` runs, as JSON."""
    ns3, version = load()
    scenario = read_scenario(path)
    found = [run(ns3, scenario) for _ in range(repeats)]
    hops = packet_hops(scenario, found[0][0])
    print(json.dumps({"ns3": version, "hops": hops, "seconds": [took for _, took in found]}))


def main() -> None:
    """Record all scenarios, or those named; or ``measure``, for benchmarks/ns3.py."""
    if sys.argv[1:2] == ["--measure"]:
        measure(Path(sys.argv[2]), int(sys.argv[3]))
        return
    ns3, version = load()
    for path in sorted((HERE / "ns3").glob("*.toml")):
        if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
            continue
        scenario = read_scenario(path)
        outcomes, _ = run(ns3, scenario)
        size = write_golden(path.with_suffix(".json.gz"), scenario, outcomes, version)
        sent = sum(len(outcome.delays) for outcome in outcomes)
        lost = sum(len(outcome.dropped_at) for outcome in outcomes)
        hops = packet_hops(scenario, outcomes)
        print(f"{path.stem}: {sent} sent, {lost} dropped, {hops} over links, {size} bytes")


if __name__ == "__main__":
    main()
