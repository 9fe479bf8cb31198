"""Workers that share memory with the switch process: how it is chosen, and what cannot hurt it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.lossy import LossyRelay
from support.service import (
    SECONDS,
    all_reduce,
    joined,
    make_workers,
    service_process,
    serving,
    together,
    where,
)

import innet
from innet.core.errors import InputError, StalledError
from innet.core.reduce_op import ReduceOp, Segment
from innet.network import Faults
from innet.protocol import Timing
from innet.service import join
from innet.transport.rings import (
    DOWN_READ,
    PAGE,
    UP_READ,
    UP_WRITTEN,
    Geometry,
    RingError,
    create_sealed,
    map_sealed,
)


def gradients(workers=2, size=2000, seed=1):
    rng = np.random.default_rng(seed)
    return [rng.laplace(size=size).astype(np.float32) for _ in range(workers)]


def right(workers, given, codec="dense"):
    """Whether all workers get what a collective in memory gets."""
    expected, _ = innet.all_reduce(given, codec=codec, values_per_packet=32, seed=3)
    found = all_reduce(workers, given)
    for total, _ in found:
        np.testing.assert_array_equal(total, expected)
    return [report for _, report in found]


def shared_by_process():
    """This process's shared memory of innet's: of each file, by its inode, how many maps, and how
    many descriptors. No two files have the same inode, so what is new is told from what was there.
    """
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = Counter(int(line[4]) for line in lines if "/memfd:innet" in line)
    descriptors = Counter()
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if "/memfd:innet" in str(each.readlink()):
                descriptors[each.stat().st_ino] += 1
    return maps, descriptors


# ------------------------------------------------------------------ the choice


def test_shared_memory_is_chosen_on_one_machine(service, stack):
    pair = joined(service, stack, transport="auto")
    reports = right(make_workers(pair), gradients())
    assert [report.transport for report in reports] == ["shm", "shm"]
    members = service.ask(service.statistics)["jobs"][0]["members"]
    assert [each["address"][:4] for each in members] == ["shm:", "shm:"]


def test_udp_and_shared_memory_meet_in_a_job(service, stack):
    trio = together(
        [
            lambda w=worker, name=name: join(
                where(service), job="both", worker=w, workers=3, transport=name, deadline=SECONDS
            )
            for worker, name in enumerate(["udp", "shm", "auto"])
        ]
    )
    for each in trio:
        stack.callback(each.leave)
    workers = make_workers(trio, "lhc")
    right(workers, gradients(3), "lhc")
    assert [each.transport.name for each in trio] == ["udp", "shm", "shm"]


def test_who_comes_by_something_between_stays_with_udp(service, stack):
    relay = stack.enter_context(LossyRelay(service.address, loss=0.0, seed=5))
    address = "{}:{}".format(*relay.address)
    with join(address, job="far", worker=0, workers=1) as alone:
        assert alone.transport.name == "udp"
    with pytest.raises(InputError, match=r"something else at .* between"):
        join(address, job="far", worker=0, workers=1, transport="shm")


@pytest.mark.parametrize(
    ("served", "wanted", "said"),
    [
        ("udp", "shm", "no shared memory for worker 0: the switch at .* offers none"),
        ("shm", "udp", "takes workers by shared memory only .*leave the transport auto"),
    ],
)
def test_sides_that_want_something_else_are_told(served, wanted, said):
    with serving(transport=served) as service:
        with pytest.raises(InputError, match=said):
            join(where(service), job="a", worker=0, workers=1, transport=wanted)
        with join(where(service), job="a", worker=0, workers=1) as alone:
            assert alone.transport.name == served


def test_no_other_transport_is_there(service):
    with pytest.raises(InputError, match="the transport is 'tcp'; choose one of auto, udp, shm"):
        join(where(service), job="a", worker=0, workers=1, transport="tcp")


def test_udp_is_left_where_the_system_gives_no_memory(service, stack, monkeypatch):
    def none(*_):
        raise RingError("no memory to share: too many open files")

    monkeypatch.setattr("innet.transport.peers.create_sealed", none)
    assert joined(service, stack, workers=1, transport="auto")[0].transport.name == "udp"
    with pytest.raises(InputError, match="no memory to share: too many open files"):
        join(where(service), job="b", worker=0, workers=1, transport="shm")


# ------------------------------------------------------------------ the same protocol


@pytest.mark.parametrize("engine", ["jit", "interpret"])
def test_faults_cost_no_sum(stack, engine):
    service = stack.enter_context(serving(engine=engine))
    trio = joined(service, stack, 3, transport="shm")
    faults = Faults(loss=0.05, duplicate=0.05, reorder=0.1, hold=0.01, tick=1e-3, truncate=0.02)
    workers = make_workers(trio, "dense", faults=faults)
    reports = right(workers, gradients(3, 1500))
    assert sum(report.retransmissions for report in reports) > 0
    dropped = service.ask(service.statistics)["drops"]
    assert dropped["wrong_length"] > 0  # those that were cut


def test_without_the_compiled_loop_sums_are_the_same(service, stack, monkeypatch):
    monkeypatch.setattr("innet.allreduce.worker.socket_loop", lambda *_: None)
    right(make_workers(joined(service, stack, transport="shm"), "lhc"), gradients(), "lhc")


def test_rings_wrap_around(service, stack):
    pair = joined(service, stack, transport="shm")
    rows = pair[0].transport._link.ring.rows
    workers = make_workers(pair)
    for seed in range(2):
        right(workers, gradients(size=32 * (5 * rows + 3), seed=seed))
    assert pair[0].transport._link.ring.state[0] > 10 * rows


# ------------------------------------------------------------------ wake-ups


@pytest.mark.timeout(120)  # of a busy machine; usually it takes seconds
@pytest.mark.parametrize("threads", [1, 2])
def test_no_wake_up_is_missed(stack, monkeypatch, threads):
    """Everybody sleeps between any two packets, and no timer ends a sleep: only wake-ups do."""
    for where_it_is in ("innet.service.server._TURN", "innet.service.transport._LONGEST_WAIT"):
        monkeypatch.setattr(where_it_is, 1000.0)
    service = stack.enter_context(serving(threads=threads))
    timing = Timing(
        timeout=900.0, max_timeout=900.0, min_timeout=900.0, give_up=950.0, reordering=None
    )
    trio = joined(service, stack, 3, transport="shm")
    workers = make_workers(trio, timing=timing)

    def run(worker):
        for number in range(500):
            words = np.full(3, number, np.int32)
            (found,) = worker.combine([Segment(ReduceOp.SUM, words)])
            assert found.tolist() == [3 * number] * 3
        return worker._end.counters.retransmissions

    assert together([lambda each=each: run(each) for each in workers]) == [0, 0, 0]


# ------------------------------------------------------------------ decoding once


CODECS = [
    "lhc",
    {"preset": "lhc", "carrier": {"name": "lhc", "index": "bitmap"}},
    "topk:ratio=0.05",
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("once", [True, False])
def test_a_machine_decodes_once_what_each_would_decode(service, stack, codec, once):
    trio = joined(service, stack, 3, transport="shm")
    workers = make_workers(trio, codec, decode_once=once)
    rng = np.random.default_rng(5)
    reference = innet.Collective(
        workers=3, codec=codec, values_per_packet=32, seed=3, decode_once=False
    )
    for _ in range(4):
        given = [
            (rng.standard_normal(6000) * (rng.random(6000) < 0.05)).astype(np.float32)
            for _ in range(3)
        ]
        expected, _ = reference.all_reduce(given)
        for total, _ in all_reduce(workers, given):
            np.testing.assert_array_equal(total, expected)
    if not once:
        assert [each._decoding for each in workers] == [None] * 3
        return
    assert sum(each._decoding.saved for each in workers) > 0


# ------------------------------------------------------------------ deaths


def sum_on(worker, size):
    """Sum until something happens."""
    for _ in range(1000):
        worker.all_reduce(np.ones(size, np.float32))


WORKER = """
import sys
import numpy as np
from innet.allreduce.worker import Worker
from innet.service import join
member = join(sys.argv[1], job="test", worker=1, workers=2, transport="shm", deadline=60.0)
worker = Worker(member.plan, 1, codec="dense", transport=member.transport, seed=3)
while True:
    worker.all_reduce(np.ones(200_000, np.float32))
    print("summed", flush=True)
"""


def test_a_worker_that_is_killed_leaves_nothing(service, stack):
    """And the other one goes on without it."""
    before = shared_by_process()
    running = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", WORKER, where(service)], stdout=subprocess.PIPE, text=True
        )
    )
    stack.callback(running.kill)
    mine = join(where(service), job="test", worker=0, workers=2, transport="shm", deadline=60.0)
    (worker,) = make_workers([mine])
    worker.all_reduce(np.ones(200_000, np.float32))
    assert running.stdout.readline() == "summed\n"
    # The rings of both workers at the switch, and mine; and what I share with the other worker.
    assert (shared_by_process()[0] - before[0]).total() == 4
    running.send_signal(signal.SIGKILL)
    with pytest.raises(StalledError):
        sum_on(worker, 200_000)
    worker.begin_epoch(mine.renew(SECONDS, without=[1]))
    total, _ = worker.all_reduce(np.ones(10, np.float32))
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)
    mine.leave()
    del worker, mine
    assert_gone(before)


def assert_gone(before):
    """Nothing is left of what came since; what earlier tests left may go meanwhile."""
    deadline = time.monotonic() + SECONDS
    while gc.collect() >= 0:
        new = [now - then for now, then in zip(shared_by_process(), before, strict=True)]
        if not any(new):
            return
        assert time.monotonic() < deadline, new
        time.sleep(0.05)


def test_a_switch_that_is_killed_is_followed_by_another(stack):
    before = shared_by_process()
    with service_process() as (running, address):
        alone = join(address, job="a", worker=0, workers=1, transport="shm", deadline=60.0)
        (worker,) = make_workers([alone])
        worker.all_reduce(np.ones(1000, np.float32))
        running.send_signal(signal.SIGKILL)
        with pytest.raises(StalledError, match="is gone"):
            sum_on(worker, 1000)
    command = [sys.executable, "-m", "innet", "switch", "serve", "--listen", address]
    again = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(again.kill)
    assert again.stdout.readline().startswith("listening at ")
    worker.begin_epoch(alone.renew(SECONDS))
    total, report = worker.all_reduce(np.full(1000, 2.0, np.float32))
    np.testing.assert_allclose(total, 2.0, rtol=1e-6)
    assert report.transport == "shm"
    alone.leave()
    del worker, alone
    assert_gone(before)


# ------------------------------------------------------------------ workers that scribble


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_worker_writes_into_its_memory_hurts_nobody_else(stack, threads):
    """Any bytes at any place of it, its indices included, while another job sums."""
    service = stack.enter_context(serving(threads=threads))
    (scribbler,) = joined(service, stack, 1, job="scribbler", transport="shm")
    pair = joined(service, stack, 2, transport="shm")
    workers = make_workers(pair, "lhc")
    memory = scribbler.transport._link.ring.memory
    reference = innet.Collective(workers=2, codec="lhc", values_per_packet=32, seed=3)
    rng = np.random.default_rng(7)
    words = memory[:PAGE].view(np.int64)
    for seed in range(40):
        memory[PAGE:] = rng.integers(0, 256, len(memory) - PAGE, np.uint8)
        words[UP_WRITTEN // 8] = rng.choice([-1, 1, 60, 10**6, 2**63 - 1, -(2**63)])
        words[UP_READ // 8], words[DOWN_READ // 8] = rng.integers(-(2**62), 2**62, 2)
        scribbler.transport._link._session.bell.send(b"\0")
        given = gradients(seed=seed)
        expected, _ = reference.all_reduce(given)
        for total, _ in all_reduce(workers, given):
            np.testing.assert_array_equal(total, expected)
    assert service.ask(service.statistics)["drops"]["wrong_length"] > 0


def test_the_memory_keeps_its_size():
    geometry = Geometry(64, 160)
    descriptor = create_sealed(geometry.size)
    try:
        for size in (0, geometry.size + 4096):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        assert len(map_sealed(descriptor, geometry.size, "of rings")) == geometry.size
        with pytest.raises(RingError, match="no memory of rings of that size"):
            map_sealed(descriptor, Geometry(128, 160).size, "of rings")
    finally:
        os.close(descriptor)


def test_memory_that_is_not_sealed_is_not_taken():
    geometry = Geometry(64, 160)
    descriptor = os.memfd_create("open")
    try:
        os.ftruncate(descriptor, geometry.size)
        with pytest.raises(RingError, match="no memory of rings"):
            map_sealed(descriptor, geometry.size, "of rings")
    finally:
        os.close(descriptor)
