"""Ports with a bit rate: wire times, strict priority, and limits in bytes, beside a naive model."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from support.lines import Arrival, Buffers, managed, naive, some_arrivals
from support.switch_cases import program
from support.tiers import examples

from innet.core.errors import ControlError, InputError
from innet.core.packets import PacketBatch
from innet.switch import Switch, traffic_manager
from innet.switch.traffic_manager import (
    BYTES,
    DEPTH,
    DROPS,
    MARKED,
    MOST_EXTRA_BYTES,
    TrafficManager,
    mark_congestion,
)

PICOSECONDS = 10**12
RATES = [1, 1000, 10**6, 10**9 + 7, 10**10, 10**11, 4 * 10**11]


NO_LIMITS = Buffers()


def on_lines(priorities=1, rate=10**11, buffers=NO_LIMITS):
    """A traffic manager whose ports have a bit rate, in picoseconds."""
    manager = TrafficManager(priorities)
    manager.set_bit_rate(rate, ticks_per_second=PICOSECONDS)
    manager.set_depth(buffers.packets)
    manager.set_depth_bytes(buffers.bytes)
    manager.set_ecn_threshold(buffers.threshold)
    manager.set_shared_buffer(buffers.shared, float(buffers.alpha))
    return manager


def departures(manager, *arrivals):
    """When packets leave, in picoseconds, in the order in which they came."""
    left = managed(manager, arrivals).left
    return [left.get(number) for number in range(len(arrivals))]


def test_packets_follow_each_other_after_their_time_on_the_wire():
    """At 100 Gbit/s a byte takes 80 ps; 24 bytes are added, and the shortest frame has 60."""
    manager = on_lines()
    arrivals = [Arrival(5, 1, 0, length) for length in (1500, 60, 1, 330)]
    assert departures(manager, *arrivals) == [5, 121_925, 128_645, 135_365]


def test_times_are_rounded_up_to_a_tick():
    manager = TrafficManager()
    manager.set_bit_rate(10**9 + 7, 1)
    assert departures(manager, *[Arrival(0, 1, 0, 60)] * 3) == [0, 672, 1344]
    slower = TrafficManager()
    slower.set_bit_rate(10**9 - 7, 1)
    assert departures(slower, *[Arrival(0, 1, 0, 60)] * 3) == [0, 673, 1346]


def test_a_line_that_was_idle_sends_at_once():
    manager = on_lines()
    assert departures(manager, Arrival(0, 1, 0, 60), Arrival(10**6, 1, 0, 60)) == [0, 10**6]


def test_ports_do_not_share_a_line():
    assert departures(on_lines(), Arrival(0, 1, 0, 60), Arrival(0, 2, 0, 60)) == [0, 0]


def test_the_highest_priority_goes_first_but_nothing_is_interrupted():
    """A frame of 126 bytes takes 12,000 ps."""
    arrivals = [
        Arrival(0, 1, 0, 126),  # leaves at once
        Arrival(1, 1, 0, 126),
        Arrival(2, 1, 1, 126),  # before the second
        Arrival(13_000, 1, 2, 126),  # while the third is sent; before the second, too
    ]
    assert departures(on_lines(3), *arrivals) == [0, 36_000, 12_000, 24_000]


def test_a_packet_takes_its_line_for_what_it_becomes():
    """At 100 Gbit/s a byte takes 80 ps. The second and the fourth come while another is sent."""
    arrivals = [
        Arrival(0, 1, 0, 1476, becomes=76),  # sent by 8,000 ps
        Arrival(5, 1, 0, 976, becomes=1976),  # by 168,000
        Arrival(9, 1, 0, 76),
        Arrival(9_000, 1, 1, 76),  # of a higher priority
        Arrival(9_001, 2, 0, 76),
    ]
    assert departures(on_lines(2), *arrivals) == [0, 8_000, 176_000, 168_000, 9_001]


def test_a_queue_without_a_bit_rate_keeps_its_interval():
    manager = TrafficManager()
    manager.set_rate(10)
    manager.set_bit_rate(1000, 1)
    assert departures(manager, *[Arrival(0, port, 0, 101) for port in (1, 2, 1, 2)]) == [
        0,
        10**8,
        10**9,
        2 * 10**8,
    ]


def test_packets_that_wait_keep_their_departures_when_a_line_comes():
    manager = TrafficManager()
    manager.set_rate(10, 1)
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8
    manager.set_bit_rate(10**6, 1)
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8
    assert traffic_manager.admit(manager.queues, manager.first_word(1, 0), 0, 101) == 10**8 + 10**6


def test_a_limit_in_bytes_counts_what_waits():
    manager = on_lines(buffers=Buffers(bytes=1000))
    arrivals = [Arrival(0, 1, 0, length) for length in (1000, 600, 500, 400)]
    # The first is on the wire when the second comes, and nothing waits.
    assert departures(manager, *arrivals) == [0, 81_920, None, 131_840]
    queue = manager.queue(1)
    assert (queue.dropped, queue.bytes, queue.bytes_max) == (1, 0, 1000)
    assert (queue.capacity_bytes, queue.bit_rate) == (1000, 10**11)


def test_both_limits_hold():
    manager = on_lines(buffers=Buffers(packets=1, bytes=100))
    lengths = [100, 101, 1, 1]
    assert departures(manager, *[Arrival(0, 1, 0, each) for each in lengths]) == [
        0,
        None,
        9920,
        None,
    ]
    manager.set_depth_bytes(None, 1)
    assert manager.queue(1).capacity_bytes is None


CASES = [
    Buffers(),
    Buffers(packets=3),
    Buffers(bytes=4000),
    Buffers(packets=6, bytes=9000),
    Buffers(threshold=0),
    Buffers(bytes=20_000, threshold=3000),
    Buffers(shared=20_000),
    Buffers(shared=30_000, alpha=Fraction(1, 4)),
    Buffers(shared=30_000, alpha=Fraction(8), bytes=20_000, packets=9, threshold=1),
]
COMPILED = SimpleNamespace(
    **{
        name: njit(getattr(traffic_manager, name))
        for name in ("admit", "is_congested", "postponement", "withdraw", "resize")
    }
)


@pytest.mark.repeats("the same with other buffers", but=["buffers0", "buffers3", "buffers5"])
@pytest.mark.parametrize("buffers", CASES)
@settings(deadline=None, max_examples=examples(60))
@given(
    seed=st.integers(0, 2**32), priorities=st.sampled_from([1, 2, 8]), rate=st.sampled_from(RATES)
)
def test_as_a_naive_scheduler(buffers, seed, priorities, rate):
    arrivals = some_arrivals(np.random.default_rng(seed), 80, priorities)
    expected = naive(rate, PICOSECONDS, priorities, buffers, arrivals)
    manager = on_lines(priorities, rate, buffers)
    got = managed(manager, arrivals)
    assert got == expected
    compiled = on_lines(priorities, rate, buffers)
    assert managed(compiled, arrivals, COMPILED) == expected
    np.testing.assert_array_equal(compiled.queues, manager.queues)
    # Nothing is lost or made, and each queue is first in, first out.
    assert manager.dropped + len(got.left) == len(arrivals)
    words = manager._cells
    assert not words[..., [DEPTH, BYTES]].any()
    assert words[..., DROPS].sum() == len(arrivals) - len(got.left)
    assert words[..., MARKED].sum() == len(got.marked)
    by_queue = {}
    for number in sorted(got.left):
        each = arrivals[number]
        by_queue.setdefault((each.port, each.priority), []).append(got.left[number])
    assert all(times == sorted(times) for times in by_queue.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("set_bit_rate", -1), "the bit rate of a port is 0 to .* not -1"),
        (("set_bit_rate", 1.5), "the bit rate of a port is 1.5; give an integer"),
        (("set_bit_rate", 10**15 + 1), "the bit rate of a port is 0 to 1,000,000,000,000,000"),
        (("set_bit_rate", 1, 512), "an egress port is 0 to 511, not 512"),
        (("set_bit_rate", 1, 1, 0), "the ticks of a second is 1 to 1,000,000,000,000, not 0"),
        (("set_depth_bytes", -1), "the depth of a queue in bytes is 0 to .* not -1"),
        (("set_depth_bytes", 1, 1, 7), "there is no priority 7"),
        (("set_ecn_threshold", -1), "the ECN threshold of a queue is 0 to .* not -1"),
        (("set_shared_buffer", 0), "the size of the buffer is 1 to .* not 0"),
        (("set_shared_buffer", 1000, 0), "alpha of the shared buffer is 1/128 to 128, not 0"),
        (("set_shared_buffer", 1000, "1"), "alpha of the shared buffer is .*, not '1'"),
        (("set_shared_buffer", 1000, float("nan")), "alpha of the shared buffer is .*, not nan"),
        (("set_recirculation", -1), "the rate of recirculation is 0 to .* not -1"),
        (("set_recirculation", 1, -1), "the latency of recirculation is 0 to .* not -1"),
    ],
)
def test_what_no_queue_can_have_is_named_and_changes_nothing(call, message):
    manager = TrafficManager(2)
    before = manager.queues.copy()
    name, *arguments = call
    with pytest.raises(ControlError, match=message):
        getattr(manager, name)(*arguments)
    assert (manager.queues == before).all()


# ── Buffers and marks ──


def test_a_queue_may_hold_alpha_times_what_is_free():
    """Of 1,000 bytes and alpha 1: a queue at most half, and what is left is shared likewise."""
    manager = on_lines(buffers=Buffers(shared=1000))
    first, second = manager.first_word(1, 0), manager.first_word(2, 0)
    taken = [traffic_manager.admit(manager.queues, first, 0, 100) >= 0 for _ in range(8)]
    assert taken == [True] * 5 + [False] * 3
    taken = [traffic_manager.admit(manager.queues, second, 0, 100) >= 0 for _ in range(4)]
    assert taken == [True] * 3 + [False]
    traffic_manager.withdraw(manager.queues, first, 0, 100)
    traffic_manager.withdraw(manager.queues, first, 0, 100)
    assert traffic_manager.admit(manager.queues, second, 0, 100) >= 0
    manager.clear()
    assert traffic_manager.admit(manager.queues, first, 0, 500) >= 0
    manager.set_shared_buffer(None)
    assert traffic_manager.admit(manager.queues, first, 0, 5000) >= 0


def ipv4(ecn, *, vlan=b"", options=b""):
    """A frame with a correct header checksum."""
    head = bytearray(bytes([0x45 + len(options) // 4, 0xB8 | ecn, 0, 40]) + bytes(4))
    head += bytes([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]) + options
    head[10:12] = (0xFFFF - ones_sum(head)).to_bytes(2, "big")
    return bytes(12) + vlan + b"\x08\x00" + bytes(head) + bytes(20)


def ones_sum(header):
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.mark.parametrize("ecn", [1, 2])
@pytest.mark.parametrize("vlan", [b"", b"\x81\x00\x00\x05"])
@pytest.mark.parametrize("options", [b"", b"\x01\x02\x03\xff"])
def test_a_mark_keeps_the_header_checksum_correct(ecn, vlan, options):
    frame = ipv4(ecn, vlan=vlan, options=options)
    marked = mark_congestion(frame)
    start = 14 + len(vlan)
    assert marked == mark_congestion(marked)
    assert marked[start + 1] == 0xBB
    assert ones_sum(marked[start : start + 20 + len(options)]) == 0xFFFF
    changed = [at for at in range(len(frame)) if frame[at] != marked[at]]
    assert set(changed) <= {start + 1, start + 10, start + 11}


@pytest.mark.parametrize(
    "frame",
    [ipv4(0), ipv4(3), b"", ipv4(1)[:33], ipv4(1).replace(b"\x08\x00\x45", b"\x86\xdd\x45")],
)
def test_other_packets_are_not_marked(frame):
    assert mark_congestion(frame) is frame


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_queues_mark_packets_that_find_too_many_bytes(engine):
    switch = Switch.load("p4/examples/ecn.json", engine, priority_queues=8)
    switch.command("table_add EcnIngress.routes EcnIngress.forward 10.0.0.0/8 => 1")
    switch.command("register_write EcnEgress.threshold 0 1000")  # it marks none itself
    switch.traffic_manager.set_bit_rate(10**9)
    switch.traffic_manager.set_ecn_threshold(100)
    frames = [ipv4(ecn) for ecn in (1, 1, 1, 2, 0, 3, 1)]
    sent = switch.process([(2, frame) for frame in frames], times=[0] * 6 + [10**9])
    # The first is on the wire when the others come; the last finds nothing.
    assert [data[15] & 3 for _, data in sent] == [1, 1, 1, 3, 0, 3, 1]
    assert all(ones_sum(data[14:34]) == 0xFFFF for _, data in sent)
    assert switch.traffic_manager.queue(1, 5).marked == switch.traffic_manager.marked == 1


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_packets_choose_queues_by_their_dscp(engine):
    """Where the program leaves the priority 0, and only if that is asked for."""
    switch = Switch.load("p4/examples/forward.json", engine, priority_queues=4)
    switch.command("table_add ForwardIngress.addresses ForwardIngress.forward 0 => 1")
    switch.traffic_manager.set_bit_rate(10**9)

    def classes(frames):
        """The classes of packets that come at the same time, as they leave."""
        now = switch.traffic_manager.now + 10**6
        packets = PacketBatch.from_packets([(2, frame) for frame in frames])
        sent = switch.process_batch(packets, times=np.full(len(frames), now), until=now + 10**6)
        return [int(data[15]) >> 5 for data in sent.data]

    def frame(selector, ethertype=b"\x08\x00"):
        return ipv4(0)[:12] + ethertype + b"\x45" + bytes([selector << 5]) + ipv4(0)[16:]

    frames = [frame(selector) for selector in (0, 1, 0, 3, 7, 2)]
    assert classes(frames) == [0, 1, 0, 3, 7, 2]
    switch.traffic_manager.set_dscp_priorities(True)
    # The first one's line is free. Class 7 has the highest of four queues, as class 3.
    assert classes(frames) == [0, 3, 7, 2, 1, 0]
    # What is not IPv4 has no class.
    assert classes([frame(0), frame(7, b"\x86\xdd"), frame(1)]) == [0, 1, 7]


# ── Recirculation ──


def loops(engine, *recirculation, times=(0, 0), until=None):
    """What leaves of packets that recirculate three times, with the times."""
    switch = Switch.load(program("switch_copies"), engine)
    switch.traffic_manager.set_recirculation(*recirculation)
    packets = PacketBatch.from_packets([(0, bytes([9, 0, 0, n, *bytes(72)])) for n in range(2)])
    batch = switch.process_batch(packets, times=np.array(times), until=until)
    return switch, batch


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_a_pass_takes_the_recirculation_port_and_its_latency(engine):
    """At a byte per tick. A pass adds a header of 9 bytes, and 24 are added on the wire."""
    switch, batch = loops(engine, 8 * 10**9, 1000)
    # Passes begin every 1,000 ticks; the second packet is behind the first each time.
    sizes = [85 + 24, 94 + 24, 103 + 24]
    first = second = 0
    for size in sizes:
        sent = first + size
        first = sent + 1000
        second = max(second, sent) + size + 1000
    assert batch.time.tolist() == [first, second]
    assert switch.statistics.recirculated == 6


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_passes_that_are_due_later_wait_for_another_call(engine):
    switch, batch = loops(engine, 0, 1000, times=(0, 10), until=500)
    assert len(batch) == 0
    assert (switch.waiting, switch.next_departure) == (2, 1000)
    assert [len(switch.run_until(end)) for end in (2999, 3000, 3009, 3010)] == [0, 1, 0, 1]
    assert (switch.waiting, switch.next_departure) == (0, None)


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_resubmitted_packets_take_the_same_port(engine):
    switch = Switch.load(program("switch_copies"), engine)
    switch.traffic_manager.set_recirculation(8 * 10**9, 1000)
    packets = PacketBatch.from_packets([(0, bytes([3, *bytes(75)])), (0, bytes([9, *bytes(75)]))])
    batch = switch.process_batch(packets, times=np.array([0, 5]))
    # 100 bytes on the wire; the second packet, with a header more, is sent after them.
    assert batch.time.tolist() == [1100, 100 + 109 + 1000 + 118 + 1000 + 127 + 1000]


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_without_times_or_the_setting_a_pass_takes_no_time(engine):
    assert loops(engine, None)[1].time.tolist() == [0, 0]
    switch = loops(engine, 8 * 10**9, 1000)[0]
    sent = switch.process([(0, bytes([9, *bytes(75)]))])
    assert len(sent) == 1
    assert switch.statistics.recirculated == 9


def longer(batch, extra):
    """The same packets, longer than what they carry."""
    return PacketBatch(batch.data, batch.length, batch.port, extra=np.array(extra, np.int32))


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("extra", [(0, 0, 0), (1000, 1000, 1000), (1000, 0, 300), (0, 7, 0)])
def test_programs_see_extra_bytes_and_lines_carry_them(engine, extra):
    """A tick is the time of a byte. Frames of 100 bytes and 24 on the wire, and so many more."""
    switch = Switch.load(program("switch_copies"), engine)
    switch.traffic_manager.set_bit_rate(8 * 10**9)
    plain, with_header = bytes([20, *range(99)]), bytes([4, *range(99)])
    switch.commands("mc_mgrp_create 3\nmc_node_create 0 1\nmc_node_associate 3 0")
    received = PacketBatch.from_packets([(0, plain), (0, with_header), (0, plain)])
    batch = switch.process_batch(longer(received, extra), times=np.zeros(3, np.int64))
    # The second is longer by the header that ingress added, and all by that which egress adds.
    assert batch.length.tolist() == [109, 111, 109]
    assert batch.time.tolist() == [0, 133 + extra[0], 268 + extra[0] + extra[1]]
    lengths = [
        int.from_bytes(data[at : at + 2], "big")
        for at, (_, data) in zip([6, 8, 6], batch.to_packets(), strict=True)
    ]
    assert lengths == [100 + extra[0], 102 + extra[1], 100 + extra[2]]
    most = max(100 + extra[0], 202 + extra[1] + extra[2])
    assert switch.traffic_manager.queue(1).bytes_max == most
    assert (batch.extra is None) == (not any(extra))
    assert batch.extra is None or batch.extra.tolist() == list(extra)


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_packets_that_pass_again_keep_their_extra_bytes(engine):
    """Copies, clones and further passes are as long as the packets that they are made of."""
    switch = Switch.load(program("switch_copies"), engine)
    switch.traffic_manager.set_recirculation(8 * 10**9, 1000)
    received = PacketBatch.from_packets([(0, bytes([3, *bytes(75)])), (0, bytes([9, *bytes(75)]))])
    batch = switch.process_batch(longer(received, [400, 0]), times=np.array([0, 5]))
    alone = switch.process_batch(longer(received, [0, 0]), times=np.array([10**6, 10**6 + 5]))
    # The port of recirculation takes 400 ticks more for each pass of the first packet.
    assert batch.time[0] - alone.time[0] + 10**6 == 400
    assert batch.extra.tolist() == [400 if origin == 0 else 0 for origin in batch.origin]


@pytest.mark.repeats("the same compiled", but=["interpret"])
@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_programs_count_extra_bytes_without_times_too(engine):
    switch = Switch.load(program("fuzz_counters"), engine)
    switch.process([(0, bytes(10))])
    batch = PacketBatch.from_packets([(0, bytes(10))])
    assert switch.process_batch(longer(batch, [500])).extra.tolist() == [500]
    (counter,) = (
        cells
        for cells, array in zip(switch.state.counters, switch.program.counters, strict=True)
        if array.name.endswith(".both")
    )
    assert counter[0].tolist() == [4, 2 * 10 + 2 * 510]


@pytest.mark.parametrize("engine", ["jit", "interpret"])
@pytest.mark.parametrize("extra", [-1, MOST_EXTRA_BYTES + 1])
def test_extra_bytes_are_bounded(engine, extra):
    switch = Switch.load(program("fuzz_counters"), engine)
    batch = longer(PacketBatch.from_packets([(0, bytes(10))]), [extra])
    with pytest.raises(InputError, match=r"extra bytes of a packet are 0 to 524,288; found"):
        switch.process_batch(batch)
    with pytest.raises(InputError, match=r"a batch of 1 packets has extra bytes of 2"):
        longer(batch, [1, 2])


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_programs_cut_the_extra_bytes_first(engine):
    """They stand at the end: truncate(n) leaves n bytes, of which the packet carries its first."""
    switch = Switch.load(program("switch_copies"), engine)
    cuts = [20, 60, 120, 255]  # within what it carries, of it, and beyond its end
    packets = [(0, bytes([8, cut, *bytes(38)])) for cut in cuts]
    received = longer(PacketBatch.from_packets(packets), [100] * len(cuts))
    whole = switch.process_batch(PacketBatch.from_packets([(0, bytes([8, 255, *bytes(38)]))]))
    carried = int(whole.length[0])
    batch = switch.process_batch(received, times=np.arange(len(cuts)))
    assert batch.length.tolist() == [min(cut, carried) for cut in cuts]
    assert batch.extra.tolist() == [max(0, min(cut - carried, 100)) for cut in cuts]
