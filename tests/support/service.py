"""A switch service in a thread of the test or in a process, and workers in threads."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import subprocess
import sys
import threading
import time

import numpy as np

from innet.allreduce.worker import Worker
from innet.core.reduce_op import ReduceOp, Segment
from innet.core.settings import ServiceSettings
from innet.protocol import SlotClient, Timing
from innet.service import join
from innet.service.server import SwitchService

SERVE = (sys.executable, "-m", "innet", "switch", "serve")
LOOPBACK = "127.0.0.1:0"
QUICK = Timing(timeout=0.05, max_timeout=0.2, give_up=60.0)
CARRIER = "auto"  # what carries packets of ``joined`` workers, unless a test says so
SECONDS = 60.0  # for all to join, on a machine that is busy with other tests


@contextlib.contextmanager
def serving(**settings):
    """A service on a free port of the loopback interface."""
    defaults = {"listen": LOOPBACK, "values_per_packet": 32, "jobs": 2, "workers_max": 4}
    service = SwitchService(ServiceSettings(**defaults | settings))
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(60)
        assert not thread.is_alive()


@contextlib.contextmanager
def service_process(*options, command=SERVE):
    """A service in a process of its own, and where it listens."""
    running = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--values-per-packet", "32", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        try:
            said = running.stdout.readline()
            assert said.startswith("listening at "), running.stderr.read()
            yield running, said.removeprefix("listening at ").strip()
        finally:
            running.kill()


def wait_until_empty(service):
    """Nobody of an earlier test is there any more."""
    deadline = time.monotonic() + 60
    while service.ask(service.statistics, 60)["jobs"]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def where(service):
    return str(service.address)


def together(functions, seconds=120):
    """Run functions side by side; their results, or the first error."""
    with concurrent.futures.ThreadPoolExecutor(len(functions)) as pool:
        waiting = [pool.submit(each) for each in functions]
        return [each.result(seconds) for each in waiting]


def joined(service, stack, workers=2, job="test", **options):
    """Memberships of all workers of a job, to be closed with ``stack``."""
    options = {"deadline": SECONDS, "transport": CARRIER} | options

    def enter(worker):
        return join(where(service), job=job, worker=worker, workers=workers, **options)

    made = together([lambda w=worker: enter(w) for worker in range(workers)])
    for each in made:
        stack.callback(each.leave)
    return made


def make_workers(memberships, codec="dense", **options):
    options = {"timing": QUICK, "seed": 3} | options
    return [
        Worker(each.plan, each.worker, codec=codec, transport=each.transport, **options)
        for each in memberships
    ]


def all_reduce(workers, gradients):
    """All workers' sums and reports."""
    pairs = zip(workers, gradients, strict=True)
    return together([lambda each=each, x=x: each.all_reduce(x) for each, x in pairs])


def frames_of(membership, seed, count=100, **changes):
    """What a worker of that job, or of one with ``changes``, would send: ``count`` datagrams."""
    plan = membership.plan
    member = plan.membership(plan.workers[membership.worker])
    end = SlotClient(
        plan.layout,
        dataclasses.replace(member, **changes),
        source=plan.workers[0].endpoint,
        switch=plan.workers[0].peer,
    )
    words = np.random.default_rng(seed).integers(-1000, 1000, count * plan.layout.values, np.int32)
    end.start([Segment(ReduceOp.SUM, words)], 0.0)
    return end.outgoing(0.0)[:, plan.layout.header_offset :].copy()
