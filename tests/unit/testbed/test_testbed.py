"""Networks of one's own in simulated time: hosts as coroutines, switches, links, errors."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import numpy as np
import pytest

import innet
from innet.core.errors import ControlError, InputError, StalledError, StateError, UnknownNameError
from innet.network import Faults
from innet.scenarios.traffic import TrafficRun
from innet.scenarios.traffic_file import read_scenario
from innet.sim import Testbed as Bed
from innet.sim.flows import udp_frame
from innet.sim.network import SECOND
from innet.testbed import DONE, NEVER

ROOT = Path(__file__).parents[3]
L3 = ROOT / "benchmarks/programs/l3.json"
DIGESTS = ROOT / "tests/programs/jit_digests.json"
REQUEST = udp_frame(0, 1, 18, payload=b"request".ljust(18))
REPLY = udp_frame(1, 0, 18, payload=b"reply".ljust(18))


def routes(hosts):
    """Commands of the router: host i behind port i."""
    found = []
    for i in range(1, hosts + 1):
        found.append(f"table_add routes route 10.0.0.{i}/32 => {i}")
        found.append(
            f"table_add next_hops forward {i} => {i} 02:00:00:00:ff:01 02:00:00:00:00:0{i}"
        )
    return found


def star(hosts=2, network="10g", seed=0, **link):
    """Hosts at a router."""
    bed = Bed(network, seed=seed)
    router = bed.switch("s1", L3, commands=routes(hosts))
    ends = [bed.host(f"h{i}") for i in range(1, hosts + 1)]
    for port, host in enumerate(ends, start=1):
        bed.link(host, router, port=port, **link)
    return bed, router, *ends


def echo(host, reply=REPLY):
    """Let a host answer for ever."""

    @host.serve
    async def answer():
        while True:
            await host.receive()
            host.send(reply)


def wire(frame, rate=10e9):
    """Picoseconds of a frame on the wire."""
    return -(-8 * (max(len(frame), 60) + 24) * SECOND // int(rate))


# ------------------------------------------------------------------ what hosts do


def test_a_request_and_its_answer_take_the_closed_form():
    bed, router, client, server = star()
    echo(server)

    @client.run
    async def ask():
        client.send(REQUEST)
        return await client.receive(timeout=1e-3)

    bed.run()
    hop = wire(REQUEST) + 500_000
    cost = 12_500  # 100 ns of one of 8 cores
    there = cost + hop + 600_000 + hop + cost
    assert ask.result()[26:30] == bytes([10, 0, 0, 2])
    assert round(bed.now * SECOND) == 2 * there
    assert (client.sent, client.received, server.received) == (1, 1, 1)
    assert router.model.statistics.as_dict()["packets_in"] == 2


def test_two_runs_of_a_seed_are_equal_and_those_of_others_are_not():
    def run(seed):
        bed, _, client, server = star(seed=seed, loss=0.2)
        echo(server)

        @client.run
        async def ask():
            seen = []
            for _ in range(50):
                client.send(REQUEST)
                seen.append(await client.receive(timeout=1e-5) is not None)
                seen.append(client.ticks)
            return seen

        bed.run()
        return ask.result()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_scapy_packets_udp_sockets_and_filters():
    scapy = pytest.importorskip("scapy.all")
    bed, _, a, b = star()
    socket = b.udp(7)

    @b.serve
    async def answer():
        while True:
            datagram = await socket.receive()
            socket.send(datagram.payload.upper(), datagram.address, datagram.port)

    @a.run
    async def ask():
        a.send(
            scapy.Ether(dst=b.mac, src=a.mac)
            / scapy.IP(src=a.ip, dst=b.ip)
            / scapy.UDP(sport=5000, dport=7)
            / b"hello"
        )
        a.send(REQUEST)  # to a port that is not open
        reply = await a.receive(match=lambda frame: b"HELLO" in frame)
        return scapy.Ether(reply)

    bed.run()
    assert bytes(ask.result()[scapy.UDP].payload) == b"HELLO"
    assert ask.result()[scapy.UDP].dport == 5000
    assert b.waiting == 1


def test_time_outs_sleeps_tasks_and_timers():
    bed, _, a, b = star()
    order = []

    @a.run
    async def main():
        assert await a.receive(timeout=2e-6) is None
        order.append(("late", a.ticks))

        async def beside(number):
            await a.sleep(1e-6)
            order.append((number, a.ticks))
            return number

        tasks = [a.start(beside, number) for number in range(2)]
        a.at(2.5e-6, lambda: order.append(("timer", a.ticks)))
        return [await task for task in tasks]

    bed.run()
    assert main.result() == [0, 1]
    assert order == [("late", 2_000_000), ("timer", 2_500_000), (0, 3_000_000), (1, 3_000_000)]
    assert b.received == 0


def test_paced_and_scheduled_frames_leave_at_their_times():
    bed, _, a, b = star()
    a.pace(1e9)

    @a.run
    async def send():
        for _ in range(3):
            a.send(REQUEST)
        a.send(REQUEST, at=1e-3)

    @b.run
    async def count():
        times = []
        for _ in range(4):
            await b.receive()
            times.append(b.ticks)
        return times

    bed.run()
    first, second, third, last = count.result()
    assert second - first == third - second == wire(REQUEST, 1e9)
    assert last - first == 1_000_000_000


def test_hosts_with_two_links_and_switches_with_two_between_them():
    bed = Bed("10g")
    s1 = bed.switch("s1", L3, commands=routes(3))
    s2 = bed.switch("s2", L3, commands=routes(3))
    a, b = bed.host("h1"), bed.host("h2")
    bed.link(a, s1, port=1)
    bed.link(a, s2, port=1)
    bed.link(s1, s2, ports=(2, 5))
    bed.link(s1, s2, ports=(3, 6))
    bed.link(b, s2, port=2)
    seen = []

    @a.run
    async def send():
        a.send(REQUEST[:-1] + b"0")
        a.send(REQUEST[:-1] + b"1", link=1)

    @b.run
    async def count():
        for _ in range(2):
            frame = await b.receive()
            seen.append((frame[22], frame[-1:], b.ticks))

    bed.run()
    (one, first, soon), (two, second, late) = seen
    assert (one, two, first, second) == (
        63,
        62,
        b"1",
        b"0",
    )  # the first link's way has two switches
    assert late > soon
    assert [link.packets for link in bed.simulation.link_counts()][:4] == [1, 0, 1, 0]


def test_flows_outages_restarts_and_captures(tmp_path):
    bed, router, a, b = star()
    down = bed._links[1]
    down.down(1e-3, 2e-3)
    bed.capture(tmp_path)
    flow = bed.packets(a, REQUEST, interval=1e-4, packets=30)
    plain = bed.flow(b, a, size=100, interval=1e-4, packets=5)
    seen = []
    router.at(5e-4, "table_clear routes")
    router.at(6e-4, lambda switch: [switch.command(line) for line in routes(2) if "routes" in line])
    bed.at(1.05e-3, lambda: seen.append(bed.now))
    bed.run()
    assert flow.counts().sent == 30
    assert plain.counts().received == 5
    forward, back = down.counts()
    assert (forward.source, forward.target, back.source) == ("h2", "s1", "s1")
    assert back.lost == 10
    assert back.packets == 29  # one came while there were no routes
    assert b.received == b.waiting == 19
    assert seen == [0.00105]
    assert (tmp_path / "host0-to-s1.1.pcap").stat().st_size > 30 * 60


def test_compiled_hosts_do_what_coroutines_do():
    def run(compiled):
        bed, _, a, b = star(network="100g")
        if compiled:
            size = len(REPLY)
            reply = np.frombuffer(REPLY, np.uint8).copy()

            @bed.compiled(b, memory=1)
            def answer(now, frame, memory, out, lengths):
                if len(frame) == 0:
                    return 0, -1
                memory[0] += 1
                out[0, :size] = reply
                lengths[0] = size
                return 1, -1
        else:
            echo(b)

        @a.run
        async def ask():
            times = []
            for _ in range(3):
                for _ in range(4):
                    a.send(REQUEST)
                for _ in range(4):
                    assert (await a.receive(timeout=1e-3))[42:] == REPLY[42:]
                    times.append(a.ticks)
            return times

        bed.run()
        return ask.result(), b.received, b.sent

    assert run(True) == run(False)


def test_a_compiled_host_ends_the_run_and_has_timers():
    bed, _, a, _ = star()

    @bed.compiled(a, memory=[3, 0], serves=False)
    def tick(now, frame, memory, out, lengths):
        memory[0] -= 1
        memory[1] = now
        if memory[0] == 0:
            return 0, -2
        return 0, now + 1_000_000

    bed.run()
    assert tick.memory.tolist() == [0, 2_000_000]
    assert (NEVER, DONE) == (-1, -2)


def test_queues_are_measured_again_and_again():
    bed, router, a, b = star()
    bed.link(bed.host("h3"), router)
    seen = []
    bed.packets(a, REQUEST + bytes(1000), interval=1e-9, packets=50)
    bed.packets(bed.hosts["h3"], REQUEST + bytes(1000), interval=1e-9, packets=50)
    bed.every(5e-6, lambda: seen.append((bed.now, router.queue(2))))
    bed.run()
    depths = [0 if queue is None else queue.depth for _, queue in seen]
    assert max(depths) > 30
    assert [time for time, _ in seen[:3]] == [0.0, 5e-6, 1e-5]
    assert seen[-1][0] < 2e-4
    assert b.received == 100


def test_a_traffic_file_is_the_same_network(tmp_path):
    (tmp_path / "routes").write_text("\n".join(routes(3)))
    path = tmp_path / "traffic.toml"
    path.write_text(
        f"""
        seed = 4
        [topology]
        preset = "10g"
        loss = 0.1
        [[link]]
        ends = ["host 0", "s1:1"]
        [[link]]
        ends = ["host 1", "s1:2"]
        rate = 1e9
        [[link]]
        ends = ["host 2", "s1:3"]
        [switch.s1]
        program = "{L3}"
        commands = "routes"
        [[flow]]
        source = 0
        destination = 1
        size = 500
        packets = 200
        rate = 2e9
        [[flow]]
        source = 2
        destination = 1
        size = 100
        packets = 200
        interval = 3e-6
        poisson = true
        """
    )
    run = TrafficRun(read_scenario(path), seed=4)
    run.run()
    bed = Bed.read(path)
    bed.run()
    assert bed.simulation.link_counts() == run.simulation.link_counts()
    assert list(bed.hosts) == ["h1", "h2", "h3"]
    arrived, stamps = (
        bed.hosts["h2"].received,
        [flow.received for flow in run.simulation.flow_counts()],
    )
    assert 0 < arrived == sum(stamps) < 400


def test_a_job_of_innet_beside_others():
    gradients = [np.random.default_rng(n).normal(size=3000).astype(np.float32) for n in range(3)]
    bed = Bed("10g:loss=1e-3", seed=2)
    switch = bed.switch("s1", "slots-32")
    hosts = [bed.host(f"h{n}") for n in range(1, 6)]
    for port, host in enumerate(hosts, start=1):
        bed.link(host, switch, port=port)
    job = bed.job(switch, hosts[:3], gradients, codec="exact", start=1e-5)
    flow = bed.flow(hosts[3], hosts[0], size=1000, interval=1e-6, packets=300)

    @hosts[4].run
    async def wait():
        await hosts[4].sleep(1e-3)

    bed.run()
    total = np.sum(np.array(gradients, np.float64), axis=0).astype(np.float32)
    assert (job.result() == total).all()
    assert job.finished > 1e-5
    assert flow.counts().received > 290

    alone = Bed("10g", seed=2)
    switch = alone.switch("s1", "slots-32")
    hosts = [alone.host(f"h{n}") for n in range(1, 4)]
    for host in hosts:
        alone.link(host, switch)
    job = alone.job(switch, hosts, gradients)
    alone.run()
    _, report = innet.all_reduce(gradients, network="10g", values_per_packet=32)
    assert job.finished == report.simulated.seconds
    hosts[0].serve(_forever)
    with pytest.raises(InputError, match="coroutines and a job"):
        alone.run()


async def _forever():
    raise AssertionError("it is not begun")


def test_transfers_beside_coroutines():
    bed, _, a, b, c, d = star(4, "1g")
    sent = [bed.transfer(a, b, 1_000_000), bed.transfer(a, b, 1000, start=0.1)]

    @c.run
    async def ask():
        c.send(REQUEST[:30] + bytes([10, 0, 0, 4]) + REQUEST[34:])  # its checksum is wrong
        return await c.receive(timeout=1e-3)

    bed.run()
    assert ask.result() is None
    assert 8e-3 < sent[0].finished < 12e-3
    assert 0.1 < sent[1].finished == bed.now
    assert d.received == 0
    a.serve(_forever)
    with pytest.raises(InputError, match="coroutines and a job or transfers"):
        bed.run()


def test_jobs_that_cannot_be():
    bed, router, a, b = star()
    with pytest.raises(InputError, match="needs a switch with one of innet's programs"):
        bed.job(router, [a, b], [np.zeros(4, np.float32)] * 2)
    with pytest.raises(InputError, match="worker 0 is h2, which is not at port 1 of s1"):
        bed.job(router, [b, a], [np.zeros(4, np.float32)] * 2)


# ------------------------------------------------------------------ controllers


def digest_packet(op):
    return bytes([op, 1, 2, 0, 3]) + (0x1234).to_bytes(8, "big") + bytes(40)


def learning(latency=1e-4):
    bed = Bed("10g")
    switch = bed.switch("s1", DIGESTS)
    a, b = bed.host("h1"), bed.host("h2")
    bed.link(a, switch, port=0)
    bed.link(b, switch, port=1)
    return bed, switch, a, b


def test_a_controller_learns_and_orders_at_a_distance():
    bed, switch, a, b = learning()
    seen = []

    @switch.controller(latency=1e-4)
    async def learn(control):
        async for digest in control.digests("seen_t", fields=("port", "word", "signed")):
            seen.append((digest.word, digest.port, digest.time, control.now))
            await control.register_write("I.drawn", 7, 99)
            seen.append((await control.register_read("I.drawn", 7), control.now))

    @a.run
    async def send():
        a.send(digest_packet(64 + 1))
        a.send(digest_packet(1))
        await a.sleep(1e-3)

    bed.run()
    frame = digest_packet(1)
    sent = (12_500 + wire(frame) + 500_000 + 600_000) / SECOND
    (word, port, time, told), (value, read) = seen
    assert (word, port, value) == (0x1234, 0, 99)
    assert time == pytest.approx(sent, abs=1e-15)
    assert told == pytest.approx(sent + 1e-4, abs=1e-15)
    assert read == pytest.approx(sent + 5e-4, abs=1e-15)
    assert b.waiting == 2


def test_packets_go_to_a_controller_and_come_from_it():
    bed, switch, a, b = learning()

    @switch.controller(latency=1e-5, port=2)
    async def forward(control):
        while True:
            frame = await control.receive()
            control.send(bytes([1]) + frame[1:])

    @a.run
    async def send():
        a.send(digest_packet(2))

    @b.run
    async def count():
        await b.receive()
        return b.now

    bed.run()
    assert 2e-5 < count.result() < 2.5e-5


def test_a_refused_order_is_told():
    bed, switch, a, _ = learning()
    caught = []

    @switch.controller(latency=1e-6)
    async def wrong(control):
        try:
            await control.table_add("nothing", "drop", [])
        except ControlError as error:
            caught.append(str(error))
        control.table_add("nothing", "drop", [])

    @a.run
    async def wait():
        await a.sleep(1)

    with pytest.raises(ControlError, match="nothing"):
        bed.run()
    assert len(caught) == 1


def test_an_unknown_learn_list_is_named():
    bed, switch, a, _ = learning()

    @switch.controller(latency=1e-6)
    async def wrong(control):
        await control.digest("macs")

    @a.run
    async def wait():
        await a.sleep(1)

    with pytest.raises(UnknownNameError, match="seen_t") as error:
        bed.run()
    assert "wrong of controller 1 of s1" in error.value.__notes__[0]


# ------------------------------------------------------------------ errors


def test_beds_that_cannot_run():
    with pytest.raises(InputError, match="the bed is empty"):
        Bed().run()
    bed, router, a, _ = star()
    with pytest.raises(InputError, match="nothing is to run"):
        bed.run()
    with pytest.raises(StateError, match="time has passed"):
        bed.host("h9")
    bed, router, a, _ = star()
    with pytest.raises(InputError, match="port 2 of switch s1 has two links, to h2 and to h3"):
        bed.link(bed.host("h3"), router, port=2)
    with pytest.raises(InputError, match="ports are 0 to 510"):
        bed.link(a, router, port=512)
    with pytest.raises(InputError, match="there is a h1 already"):
        bed.host("h1")
    with pytest.raises(InputError, match="put a switch between them"):
        bed.link(a, bed.host("h4"))
    with pytest.raises(InputError, match="host h4 has no link"):
        bed.run()
    with pytest.raises(InputError, match="'fast'"):
        bed.link(a, router, rate="fast")
    with pytest.raises(InputError, match="loss is 2"):
        bed.link(a, router, loss=2)
    with pytest.raises(InputError, match="no coroutine; write async def wrong"):

        @a.run
        def wrong():
            pass

    with pytest.raises(InputError, match="frame_size"):
        Bed(frame_size=70_000)
    with pytest.raises(InputError, match=r"gone\.json"):
        Bed().switch("s1", "gone.json")


def test_wrong_commands_name_the_switch_and_the_line():
    bed = Bed()
    switch = bed.switch("s1", L3, commands=["table_clear routes", "table_add nothing x =>"])
    host = bed.host("h1")
    bed.link(host, switch)

    @host.run
    async def wait():
        await host.sleep(1)

    with pytest.raises(ControlError, match="commands:2, at switch s1"):
        bed.run()


@pytest.mark.parametrize("size", [10, 70_000])
def test_frames_that_are_none(size):
    bed, _, a, _ = star()

    @a.run
    async def send():
        a.send(bytes(size))

    with pytest.raises(InputError, match=f"{size} bytes; here they have 14 to 1514") as error:
        bed.run()
    assert "in send of h1, after 0 ps of simulated time" in error.value.__notes__


@pytest.mark.parametrize(
    ("port", "size", "said"),
    [
        (65536, 1, "UDP port 65536 is none; give 0 to 65535"),
        (7, 65508, "a datagram of 65508 bytes; UDP takes 65507"),
    ],
)
def test_datagrams_that_are_none(port, size, said):
    bed, _, a, b = star()

    @a.run
    async def send():
        a.udp(9).send(bytes(size), b.ip, port)

    with pytest.raises(InputError, match=said):
        bed.run()


def test_asyncio_has_no_part_in_simulated_time():
    bed, _, a, _ = star()

    @a.run
    async def wait():
        await asyncio.sleep(1.0)

    with pytest.raises(RuntimeError, match="no running event loop") as error:
        bed.run()
    assert "await host.sleep(seconds)" in error.value.__notes__[-1]


def test_a_coroutine_that_raises_ends_the_run_with_its_traceback():
    bed, _, a, _ = star()

    @a.run
    async def broken():
        await a.sleep(1.5e-6)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as error:
        bed.run()
    assert error.value.__notes__ == ["in broken of h1, after 1.5 us of simulated time"]
    assert error.traceback[-1].name == "broken"


def test_hosts_that_wait_for_each_other_are_told():
    bed, _, a, b = star()

    @a.run
    async def one():
        await a.sleep(1e-6)
        await a.receive()

    @b.run
    async def other():
        await b.receive()

    with pytest.raises(StalledError) as error:
        bed.run()
    told = str(error.value)
    assert "nothing will ever happen" in told
    assert re.search(r"one of h1 waits in \w+\(\) since 1 us, at .*test_testbed\.py:\d+", told)
    assert "other of h2 waits" in told
    assert "@host.serve" in told


def test_a_host_that_never_yields_is_named():
    bed, _, a, _ = star()

    @a.run
    async def stuck():
        while True:
            pass

    with pytest.raises(StalledError, match=r"stuck of h1 does not yield: .*test_testbed\.py:\d+"):
        bed.run(step_limit=0.3)


def test_a_run_without_an_end_is_ended():
    bed, _, a, b = star()
    echo(b)

    @a.run
    async def ask():
        while True:
            a.send(REQUEST)
            await a.receive()

    with pytest.raises(StalledError, match=r"did not end in 0\.5 s of real time"):
        bed.run(wall_limit=0.5)
    bed, _, a, b = star()
    echo(b)

    @a.run
    async def again():
        while True:
            a.send(REQUEST)
            await a.receive()

    with pytest.raises(StalledError, match="more than the limit of 1000"):
        bed.run(most_packets=1000)
    bed, _, a, b = star()
    echo(b)

    @a.run
    async def third():
        while True:
            a.send(REQUEST)
            await a.receive()

    bed.run(until=1e-4)
    assert bed.now == 1e-4
    before = a.received
    bed.run(until=2e-4)
    assert a.received == pytest.approx(2 * before, abs=2)
    assert not third.done


def test_what_is_called_at_the_wrong_time():
    bed, _, a, b = star()

    @a.run
    async def meddle():
        await a.sleep(1e-6)
        b.send(REPLY)

    with pytest.raises(StateError, match="not h2's turn"):
        bed.run()
    bed, _, a, b = star()

    @a.run
    async def listen():
        await b.receive()

    with pytest.raises(StateError, match="in a coroutine of h2 only"):
        bed.run()


def test_a_compiled_function_that_numba_refuses():
    bed, _, a, _ = star()
    with pytest.raises(InputError, match="Numba cannot compile wrong of h1"):

        @bed.compiled(a)
        def wrong(now, frame, memory, out, lengths):
            return undefined_name  # noqa: F821

    @bed.compiled(a, serves=False)
    def too_long(now, frame, memory, out, lengths):
        lengths[0] = 70_000
        return 1, -1

    with pytest.raises(InputError, match="h1's function wants to send 1 packets"):
        bed.run()


def test_faults_are_those_of_all_beds():
    bed = Bed("10g", seed=3, faults=Faults(duplicate=0.5))
    router = bed.switch("s1", L3, commands=routes(2))
    a, b = bed.host("h1"), bed.host("h2")
    bed.link(a, router)
    bed.link(b, router)
    bed.packets(a, REQUEST, interval=1e-6, packets=100)
    bed.run()
    assert bed.simulation.fault_counts().duplicated > 50
