"""The switch service over sockets of the loopback interface, in this process."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from support.service import (
    LOOPBACK,
    SECONDS,
    all_reduce,
    joined,
    make_workers,
    serving,
    together,
    where,
)

import innet
from innet.allreduce.worker import Worker
from innet.core.errors import (
    ControlError,
    InputError,
    MembershipError,
    NetworkError,
    StalledError,
    StateError,
)
from innet.core.settings import ServiceSettings, validate
from innet.protocol import Timing
from innet.service import client, join, protocol
from innet.service import transport as service_fabric
from innet.service.connections import Channel
from innet.service.server import SwitchService

BOTH = pytest.mark.carriers("udp", "shm")


def gradients(workers=2, size=700, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(workers)]


@pytest.mark.repeats(
    "each codec with each number of workers", but=["*dense-2*", "*lhc-4*", "*scalecom-2*"]
)
@BOTH
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("codec", ["dense", "lhc", "scalecom"])
def test_equal_to_the_collective_bit_for_bit(service, stack, codec, workers):
    reference = innet.Collective(
        workers=workers, codec=codec, values_per_packet=32, engine="jit", seed=3
    )
    ends = make_workers(joined(service, stack, workers), codec)
    for _ in range(2):  # the second has what the codecs held back
        expected, in_memory = reference.all_reduce(gradients(workers))
        for total, report in all_reduce(ends, gradients(workers)):
            np.testing.assert_array_equal(total, expected)
            assert report.rounds == in_memory.rounds


@pytest.mark.parametrize("values", [64, 256])
def test_harvest_is_served_as_slots_is(stack, values):
    """Two jobs, and an epoch without a worker, on the programs with several passes."""
    service = stack.enter_context(serving(program="harvest", values_per_packet=values))
    trio = joined(service, stack, 3)
    others = make_workers(joined(service, stack, 2, job="other"))
    ends = make_workers(trio, "lhc")
    expected, _ = innet.all_reduce(gradients(3), codec="lhc", program="harvest", seed=3)
    results = all_reduce(ends + others, gradients(3) + gradients(2, 900))
    for total, report in results[:3]:
        np.testing.assert_array_equal(total, expected)
        assert report.program == f"harvest-{values}"
    together([lambda each=each: each.renew(SECONDS, without=[1]) for each in (trio[0], trio[2])])
    pair = make_workers([trio[0], trio[2]])
    expected, _ = innet.all_reduce(gradients(2), program="harvest", seed=3)
    for total, _ in all_reduce(pair, gradients(2)):
        np.testing.assert_array_equal(total, expected)


def test_a_window_that_follows_congestion_is_refused(service, stack):
    (alone,) = joined(service, stack, 1)
    with pytest.raises(InputError, match="a switch service gives none"):
        make_workers([alone], timing=Timing(window_control="aimd"))


@BOTH
def test_jobs_share_the_switch_without_noticing(service, stack):
    ours = make_workers(joined(service, stack, 2, job="ours"))
    theirs = make_workers(joined(service, stack, 3, job="theirs"))
    for seed in range(3):
        x, y = gradients(2, 5000, seed), gradients(3, 4000, 100 + seed)
        results = all_reduce(ours + theirs, x + y)
        alone = [innet.all_reduce(each, codec="dense", values_per_packet=32) for each in (x, y)]
        for number, (total, _) in enumerate(results):
            np.testing.assert_array_equal(total, alone[number >= 2][0])


def test_a_job_is_spread_over_two_switches(service, stack):
    other = stack.enter_context(serving())
    places = [joined(each, stack, 2, job="spread") for each in (service, other)]
    ends = [make_workers(place, "lhc") for place in places]  # by switch, by worker
    buckets = [gradients(size=size, seed=size) for size in (700, 300)]

    def work(worker):
        return [
            ends[number][worker].all_reduce(bucket[worker])[0]
            for number, bucket in enumerate(buckets)
        ]

    sums = together([lambda w=worker: work(w) for worker in range(2)])
    for number, bucket in enumerate(buckets):
        expected, _ = innet.all_reduce(bucket, codec="lhc", values_per_packet=32, seed=3)
        np.testing.assert_array_equal(sums[0][number], expected)
        np.testing.assert_array_equal(sums[1][number], expected)
    for each in (service, other):
        assert each.ask(each.statistics)["jobs"][0]["members"][0]["packets_in"] > 0


def test_who_has_not_joined_is_named(service):
    begun = time.monotonic()
    with pytest.raises(StalledError, match="waited for workers 0, 2 of job 'test'"):
        join(where(service), job="test", worker=1, workers=3, deadline=1)
    assert time.monotonic() - begun < SECONDS / 2


def test_a_second_worker_of_an_index_is_refused(service, stack):
    joined(service, stack, 2)
    with pytest.raises(InputError, match="has a worker 1 already"):
        join(where(service), job="test", worker=1, workers=2, deadline=SECONDS)


@BOTH
def test_a_worker_that_is_gone_is_named_at_once(service, stack):
    pair = joined(service, stack)
    ends = make_workers(pair)
    all_reduce(ends, gradients())
    pair[1].close()
    begun = time.monotonic()
    with pytest.raises(MembershipError, match="worker 1 lost its connection to job 'test'"):
        ends[0].all_reduce(gradients()[0])
    assert time.monotonic() - begun < SECONDS / 2


def test_a_worker_is_gone_though_a_process_that_it_forked_is_there(service, stack):
    """As those that load the data of a training, which have all its sockets open as well."""
    pair = joined(service, stack)
    forked = os.dup(pair[0]._channel.fileno())
    stack.callback(os.close, forked)
    pair[0].close()
    deadline = time.monotonic() + SECONDS
    while not pair[1].gone:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert pair[1].gone == {0}


def test_a_process_that_was_forked_does_not_leave_the_job(service, stack, monkeypatch):
    pair = joined(service, stack)
    said = []
    monkeypatch.setattr(pair[0]._channel, "send", said.append)
    with monkeypatch.context() as forked:
        forked.setattr("innet.service.connections.os.getpid", lambda: 0)
        pair[0].leave()
    assert said == []


def test_a_process_that_was_forked_does_not_end_the_connection(service, stack, monkeypatch):
    pair = joined(service, stack)
    channel = pair[0]._channel
    copy = Channel(channel._socket.dup())
    monkeypatch.setattr(copy, "_owner", os.getpid() + 1)
    copy.close()
    for total, _ in all_reduce(make_workers(pair, "exact"), gradients()):
        np.testing.assert_allclose(total, sum(gradients()), atol=1e-6)
    assert not pair[1].gone


@BOTH
def test_a_worker_that_left_is_named(service, stack, monkeypatch):
    assert service_fabric._LONG_SILENCE > service_fabric._SILENCE
    monkeypatch.setattr(service_fabric, "_LONG_SILENCE", 0.7)
    pair = joined(service, stack)
    pair[0].leave()
    with pytest.raises(MembershipError, match="worker 0 left job 'test'"):
        make_workers(pair)[1].all_reduce(gradients()[1])
    with pytest.raises(StateError, match="left its job"):
        pair[0].transport.now()
    with pytest.raises(StateError, match="not in job 'test' any more"):
        pair[0].read_register("s1", "SlotsIngress.pool.count", 0)


def test_who_left_on_purpose_is_waited_for_longer():
    departed = {}
    transport = service_fabric.ServiceTransport(0, lambda: -1, lambda: None, departed)
    assert transport.watch(10.0).until == 11.0  # nobody sleeps longer
    departed[1] = service_fabric.Departure("left", on_purpose=True)
    assert transport.watch(12.5).until == 13.5
    assert transport.watch(15.0).until == 12.5 + 3.0
    transport.heard()
    departed[2] = service_fabric.Departure("died")
    assert transport.watch(15.0).until == 15.0 + 0.5
    assert transport.watch(15.2).until == 15.0 + 0.5


@BOTH
def test_a_worker_is_replaced_and_all_go_on(service, stack):
    pair = joined(service, stack)
    pair[1].close()
    with pytest.raises(MembershipError):
        make_workers(pair)[0].all_reduce(gradients()[0])
    first = pair[0].epoch
    again = together(
        [
            lambda: pair[0].renew(SECONDS),
            lambda: join(where(service), job="test", worker=1, workers=2, deadline=SECONDS),
        ]
    )
    stack.callback(again[1].leave)
    assert again[1].epoch == pair[0].epoch == (first + 1) % 0x10000
    assert pair[0].gone == frozenset()
    expected, _ = innet.all_reduce(gradients(), codec="dense", values_per_packet=32)
    for total, _ in all_reduce(make_workers([pair[0], again[1]]), gradients()):
        np.testing.assert_array_equal(total, expected)


def test_who_asks_for_the_next_epoch_calls_the_others(service, stack):
    pair = joined(service, stack)
    with pytest.raises(StalledError, match="waited for worker 1 of job 'test'"):
        pair[0].renew(1)
    with pytest.raises(MembershipError, match="worker 0 asks for the next epoch"):
        make_workers(pair)[1].all_reduce(gradients()[1])
    together([lambda each=each: each.renew(SECONDS) for each in pair])
    all_reduce(make_workers(pair), gradients())


@BOTH
def test_the_others_go_on_without_a_worker_that_is_late(service, stack):
    trio = joined(service, stack, 3)
    patience = Timing(timeout=0.05, max_timeout=0.2, give_up=60, partial_after=1.5)
    ends = [
        Worker(
            each.plan, each.worker, codec="dense", transport=each.transport, timing=patience,
            renew=lambda late, each=each: each.renew(SECONDS, without=late),
        )
        for each in trio[:2]
    ]  # fmt: skip
    expected, _ = innet.all_reduce(gradients(), codec="dense", values_per_packet=32)
    for total, report in all_reduce(ends, gradients()):
        np.testing.assert_array_equal(total, expected)
        assert report.details["without"] == [2]
    assert trio[0].waiting == frozenset()
    with pytest.raises(StalledError, match="waited for workers 0, 1"):
        trio[2].renew(1)
    assert trio[0].waiting == {2}
    together([lambda each=each: each.renew(SECONDS) for each in trio])
    assert trio[0].plan.job.absent == frozenset()
    assert trio[1].newcomers == {2}
    all_reduce(make_workers(trio), gradients(3))


@BOTH
def test_the_others_go_on_without_a_worker_that_is_gone(service, stack):
    trio = joined(service, stack, 3)
    trio[1].close()
    rest = [trio[0], trio[2]]
    ends = [
        Worker(
            each.plan, each.worker, codec="dense", transport=each.transport, attempts=2, seed=3,
            renew=lambda late, each=each: each.renew(SECONDS, without={*late, *each.gone}),
        )
        for each in rest
    ]  # fmt: skip
    expected, _ = innet.all_reduce(gradients(), codec="dense", values_per_packet=32)
    for total, report in all_reduce(ends, gradients()):
        np.testing.assert_array_equal(total, expected)
        assert report.workers == 2


def test_who_was_left_out_is_told_and_may_go(service, stack):
    trio = joined(service, stack, 3)
    together([lambda each=each: each.renew(SECONDS, without=[2]) for each in trio[:2]])
    with pytest.raises(MembershipError, match="worker 2 was left out by the others of job"):
        make_workers(trio)[2].all_reduce(gradients(3)[2])
    trio[2].close()
    deadline = time.monotonic() + SECONDS
    while trio[0].gone != {2}:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert trio[0].transport._departures == {}  # else it would wait less long for worker 1


def test_an_epoch_that_began_after_its_worker_had_given_up_waiting(service, stack):
    pair = joined(service, stack)
    with pytest.raises(StalledError):
        pair[0].renew(1)
    late = together([lambda: pair[1].renew(SECONDS)])[0]  # begins, since worker 0 has asked
    with pytest.raises(MembershipError, match="worker 0 has not gone on to the next epoch"):
        make_workers(pair)[0].all_reduce(gradients()[0])
    assert pair[0].renew(SECONDS).job.epoch == late.job.epoch
    all_reduce(make_workers(pair), gradients())


def test_whose_packets_are_not_like_those_of_the_others_is_told_why_it_is_missing(service, stack):
    """Another codec may announce more words: the switch refuses them before anybody compares."""
    pair = joined(service, stack)
    patience = Timing(timeout=0.02, max_timeout=0.1, give_up=1.0)
    ends = [
        make_workers(pair, codec, timing=patience)[index]
        for index, codec in enumerate(["dense", "topk"])
    ]

    def told(index):
        with pytest.raises(StalledError):
            ends[index].all_reduce(gradients()[index])
        return ends[index].diagnose(pair[index].read_register)

    said = together([lambda index=index: told(index) for index in range(2)])
    own = [f"None of what worker {index} sent was counted" in said[index] for index in range(2)]
    assert sorted(own) == [False, True]  # that of who came second
    assert all("waits for worker" in each for each in said)


def test_who_is_missing_in_a_slot_is_read_from_the_switch(service, stack):
    pair = joined(service, stack)
    patience = Timing(timeout=0.02, max_timeout=0.1, give_up=0.3)
    end = make_workers(pair, timing=patience)[0]
    with pytest.raises(StalledError, match="worker 0 of 2"):
        end.all_reduce(gradients()[0])
    assert "waits for worker 1" in end.diagnose(pair[0].read_register)
    with pytest.raises(ControlError, match=r"no register nothing\[0\]"):
        pair[0].read_register("s1", "nothing", 0)


def test_no_room_for_another_job(service, stack):
    for name in ("a", "b"):
        joined(service, stack, 1, job=name)
    with pytest.raises(InputError, match="no room for job 'c'"):
        join(where(service), job="c", worker=0, workers=1, deadline=SECONDS)
    stack.close()
    joined(service, stack, 1, job="c")


def test_keys():
    with pytest.raises(NetworkError, match=r"cannot listen at 192\.0\.2\.1"):  # other machines may
        SwitchService(ServiceSettings(listen="192.0.2.1:0", values_per_packet=32, key="right"))
    with serving(key="right") as service:
        where_to = where(service)
        with join(where_to, job="a", worker=0, workers=1, key="right", deadline=SECONDS):
            pass
        with pytest.raises(InputError, match="the key is not the switch's"):
            join(where_to, job="a", worker=0, workers=1, key="wrong", deadline=SECONDS)
        with pytest.raises(InputError, match="pass the key"):
            join(where_to, job="a", worker=0, workers=1, deadline=SECONDS)
        assert service.refused == 2


@pytest.mark.parametrize("name", ["service", "wire"])
def test_another_version_is_refused_by_both_sides(service, monkeypatch, name):
    own = {"service": protocol.VERSION, "wire": protocol.WIRE_VERSION}
    with pytest.raises(NetworkError, match=f"version 99 of the {name} protocol, this side"):
        protocol.check_greeting({"nonce": "", **own, name: 99}, "there")

    def other(*arguments, **fields):
        return protocol.request(*arguments, **fields) | {name: 99}

    monkeypatch.setattr(client, "request", other)
    with pytest.raises(InputError, match=f"the client speaks version 99 of the {name} protocol"):
        join(where(service), job="a", worker=0, workers=1, deadline=SECONDS)


def test_a_switch_that_is_not_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refuses
        port = taken.getsockname()[1]
        with pytest.raises(NetworkError, match=f"cannot reach a switch at 127.0.0.1:{port}"):
            join(f"127.0.0.1:{port}", job="a", worker=0, workers=1, deadline=1)


def test_who_says_nothing_is_no_switch():
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        pytest.raises(StalledError, match="waited for its greeting"),
    ):
        join(f"127.0.0.1:{mute.getsockname()[1]}", job="a", worker=0, workers=1, deadline=1)


@pytest.mark.parametrize(
    "said", [b"220 mail.example ESMTP\r\n", b'{"ready": true}\n', b"[1]\n", b"x" * 100_000]
)
def test_who_says_something_else_is_no_switch(said):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet():
            sock, _ = other.accept()
            with sock:
                sock.sendall(said)

        def enter():
            with pytest.raises(NetworkError, match="no innet switch service"):
                join(f"127.0.0.1:{other.getsockname()[1]}", job="a", worker=0, workers=1)

        together([greet, enter])


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:x", ":1", "127.0.0.1:99999", "no.such.host.invalid:1"]
)
def test_addresses_that_are_none(address):
    with pytest.raises(InputError):
        join(address, job="a", worker=0, workers=1, deadline=1)


def test_a_port_in_use_is_refused(service):
    with pytest.raises(NetworkError, match="Address already in use"):
        SwitchService(ServiceSettings(listen=where(service), values_per_packet=32))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"listen": "0.0.0.0:0"}, "without a key"),
        ({"key": ""}, "the key is empty"),
        (
            {"program": "hashed", "values_per_packet": 256},
            "such as a parameter server; serve slots, harvest or tree",
        ),
        ({"program": "slot"}, "unknown program"),
        ({"values_per_packet": 33}, "allowed is 32, 64, 256 or 1024"),
        ({"workers_max": 33}, "33 workers; .* takes 1 to 32, as .* one of 32 bits"),
        ({"workers_max": 32769}, "workers_max = 32769 .* takes 1 to 32768"),
        ({"window": 12}, "window = 12 .* choose a power of two"),
        ({"jobs": 0}, "jobs = 0 .* at least 1"),
        ({"jobs": 16}, "room for 1 to 15"),
        ({"engine": "jot"}, "engine = 'jot' .*'jit' or 'interpret'"),
    ],
)
def test_services_that_cannot_be(changes, why):
    def serve():
        given = {"listen": LOOPBACK, "values_per_packet": 32} | changes
        SwitchService(validate(ServiceSettings, given))

    with pytest.raises(innet.core.errors.InnetError, match=why):
        serve()


@BOTH
def test_workers_learn_that_the_switch_stops_and_go_on_with_the_next(stack):
    with serving() as service:
        address = where(service)
        pair = joined(service, stack)
        all_reduce(make_workers(pair), gradients())
    with pytest.raises(MembershipError, match="was stopped while worker 0 was in job 'test'"):
        make_workers(pair)[0].all_reduce(gradients()[0])
    with serving(listen=address):
        together([lambda each=each: each.renew(SECONDS) for each in pair])
        expected, _ = innet.all_reduce(gradients(), codec="dense", values_per_packet=32)
        for total, _ in all_reduce(make_workers(pair), gradients()):
            np.testing.assert_array_equal(total, expected)


def test_a_way_in_that_failed_is_tried_anew(stack, monkeypatch):
    with serving() as service:
        address = where(service)
        pair = joined(service, stack)
    with serving(listen=address):
        with monkeypatch.context() as lost:
            lost.setattr(pair[0].transport, "show", lambda hello: None)
            with pytest.raises(StalledError, match="a firewall"):
                pair[0].renew(1)
        with pytest.raises(StalledError, match="waited for worker 1 of job 'test'"):
            pair[0].renew(1)
        plans = together([lambda each=each: each.renew(SECONDS) for each in pair])
        assert plans[0].job.epoch == plans[1].job.epoch


@pytest.fixture
def many_files():
    """As in a process that trains: what is opened now has a number above select's limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"this process may have {hard} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    with contextlib.ExitStack() as files:
        while files.enter_context(Path(os.devnull).open()).fileno() < 1024:
            pass
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.usefixtures("many_files")
def test_who_has_many_files_open_takes_part(service, stack, monkeypatch, streams):
    if not streams:
        monkeypatch.setattr("innet.allreduce.worker.socket_loop", lambda *_: None)
    pair = joined(service, stack)
    assert min(each.transport._link._socket.fileno() for each in pair) > 1023
    for total, _ in all_reduce(make_workers(pair, "exact"), gradients()):
        np.testing.assert_allclose(total, sum(gradients()), atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"key": b"secret"}, "the key is of type bytes; give it as text"),
        ({"switch": ("127.0.0.1", 48879)}, "the switch is of type tuple; give it as text"),
        ({"job": b"a"}, "the job is of type bytes; give it as text"),
        ({"config": b"a"}, "the config is of type bytes; give it as text"),
        ({"worker": "0"}, "the worker's index is '0'; give an integer"),
        ({"workers": 1.0}, "the number of workers is 1.0; give an integer"),
        ({"deadline": "60"}, "a deadline of '60' s; give a finite number"),
        ({"deadline": True}, "a deadline of True s; give a finite number"),
    ],
)
def test_what_is_of_another_type_is_refused(service, wrong, said):
    given = {"switch": where(service), "job": "a", "worker": 0, "workers": 1}
    with pytest.raises(InputError, match=said):
        join(**given | wrong)


def test_numbers_of_numpy_are_numbers(service):
    numbers = {"worker": np.int64(0), "workers": np.int32(1), "deadline": np.float32(SECONDS)}
    with join(where(service), job="a", **numbers) as alone:
        assert (alone.worker, alone.workers) == (0, 1)
        assert alone.renew(without=np.array([1])).job.present == (0,)
        with pytest.raises(InputError, match="a worker to go on without is '1'; give an integer"):
            alone.renew(without="1")


@pytest.mark.parametrize("deadline", [math.inf, math.nan])
def test_a_deadline_without_end_is_refused(service, stack, deadline):
    with pytest.raises(InputError, match=f"a deadline of {deadline} s; give a finite number"):
        join(where(service), job="a", worker=0, workers=1, deadline=deadline)
    (alone,) = joined(service, stack, workers=1, deadline=1e12)  # longer than a system call takes
    with pytest.raises(InputError, match="give a finite number"):
        alone.renew(deadline)
    assert alone.renew(1e12).job.present == (0,)


def test_no_more_is_under_way_than_the_system_has_memory_for(stack, monkeypatch):
    """As on a machine whose limit is the kernel's default, for a user who is not root."""
    default = 212_992
    for module in ("innet.transport.peers", "innet.transport.udp"):
        monkeypatch.setattr(
            f"{module}.widen_buffers",
            lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, default // 2),
        )
    with serving(jobs=1, values_per_packet=256) as service:
        assert service.partitions.slots == 1024
        assert service.partitions.max_queued < 1024
        made = joined(service, stack, workers=2)
        window = made[0].plan.window
        assert 2 * window <= service.partitions.max_queued < 4 * window
        given = gradients(size=200_000)
        patient = Timing(timeout=10.0, min_timeout=10.0, max_timeout=10.0, give_up=30.0)
        for total, report in all_reduce(make_workers(made, timing=patient), given):
            np.testing.assert_allclose(total, sum(given), rtol=1e-5, atol=1e-5)
            assert report.retransmissions == 0
        assert service.ports.lost == 0
        stack.close()


def test_what_is_waited_for_is_said_after_two_seconds(service, stack, caplog):
    del stack
    with pytest.raises(StalledError, match="waited for worker 1"):
        join(where(service), job="slow", worker=0, workers=2, deadline=3.0)
    assert caplog.messages == ["worker 0 waits for worker 1 of job 'slow' ..."]
    caplog.clear()
    with pytest.raises(NetworkError, match="cannot reach a switch"):
        join("127.0.0.1:9", job="slow", worker=0, workers=2, deadline=3.0)
    assert caplog.messages == ["worker 0 waits for a switch at 127.0.0.1:9 ..."]
