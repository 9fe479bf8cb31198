"""Who is in which job of a service: no sockets, no clocks."""

from __future__ import annotations

import pytest

from innet.core.errors import InputError
from innet.service.coordinator import Jobs
from innet.transport.peers import Address


class World:
    """Jobs, switches that remember what they were told, and clients that are numbers."""

    def __init__(self, partitions=2, workers=4, draw=None):
        self.said = {}
        self.switches = []
        self.late = frozenset()
        numbers = iter(range(100, 200))
        self.jobs = Jobs(self, partitions, workers, self.say, draw or (lambda _: next(numbers)))

    def say(self, client, message):
        self.said.setdefault(client, []).append(message)

    def begin_epoch(self, job):
        addresses = {worker: job.members[worker].address for worker in job.present}
        self.switches.append(("begin", job.partition, job.number, job.epoch, addresses))
        return {"epoch": job.epoch}

    def late_workers(self, job):
        assert job.awaited
        return self.late if job.epochs else frozenset()

    def renew(self, client, *without):
        (job,) = self.jobs
        self.jobs.renew(client, {"epoch": job.epoch, "without": list(without)})

    def end_job(self, job):
        self.switches.append(("end", job.partition))

    def join(self, client, worker, workers=2, job="a"):
        self.jobs.join(client, {"job": job, "worker": worker, "workers": workers})

    def hello(self, client, sender=None):
        token = bytes.fromhex(next(m["token"] for m in self.said[client] if "token" in m))
        return self.jobs.hello(token, sender or Address("127.0.0.1", 1000 + client))

    def enter(self, client, worker, workers=2, job="a"):
        self.join(client, worker, workers, job)
        self.hello(client)

    def last(self, client):
        return self.said[client][-1]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def running(world):
    world.enter(1, 0)
    world.enter(2, 1)
    return world


def test_a_job_begins_when_all_have_shown_their_addresses(world):
    world.join(1, 0)
    world.join(2, 1)
    assert world.hello(2)
    assert world.last(2) == {"awaited": [0]}
    assert world.switches == []
    assert world.hello(1)
    here = {0: Address("127.0.0.1", 1001), 1: Address("127.0.0.1", 1002)}
    assert world.switches == [("begin", 0, 101, 102, here)]
    assert world.last(1) == world.last(2) == {"plan": {"epoch": 102}, "newcomers": [0, 1]}
    (job,) = world.jobs
    assert job.is_running
    assert job.epochs == 1


def test_who_waits_is_told_for_whom(world):
    world.enter(1, 2, workers=4)
    assert world.last(1) == {"awaited": [0, 1, 3]}
    world.enter(2, 1, workers=4)
    assert world.last(1) == world.last(2) == {"awaited": [0, 3]}
    world.jobs.gone(2)
    assert {"left": 1, "on_purpose": False} in world.said[1]
    assert world.last(1) == {"awaited": [0, 1, 3]}


def test_a_token_is_somebodys_and_an_address_is_one_workers(world):
    assert not world.jobs.hello(b"x" * 16, Address("127.0.0.1", 5))
    world.enter(1, 0)
    world.join(2, 1)
    assert not world.hello(2, Address("127.0.0.1", 1001))
    assert world.switches == []
    assert world.hello(1, Address("127.0.0.1", 7))  # the first address counts
    assert world.hello(2)
    assert world.switches[0][-1][0] == Address("127.0.0.1", 1001)


def test_renewal_waits_for_all_and_begins_the_next_epoch(running):
    running.renew(1)
    assert {"renewing": 0} in running.said[2]
    assert running.last(1) == {"awaited": [1]}
    assert len(running.switches) == 1
    running.renew(2)
    assert running.switches[1][:4] == ("begin", 0, 101, 103)
    assert running.last(1) == running.last(2) == {"plan": {"epoch": 103}, "newcomers": []}


def test_a_worker_that_left_can_be_replaced(running):
    running.jobs.gone(2)
    assert running.last(1) == {"left": 1, "on_purpose": False}
    assert not next(iter(running.jobs)).is_running
    running.enter(3, 1)
    assert running.last(1) == {"joined": 1}
    assert running.last(3) == {"awaited": [0]}
    running.renew(1)
    assert running.last(3) == running.last(1) == {"plan": {"epoch": 103}, "newcomers": [1]}
    assert running.switches[1][-1][1] == Address("127.0.0.1", 1003)


def test_a_departure_on_purpose_is_told_as_such(running):
    running.jobs.gone(1, left=True)
    assert running.last(2) == {"left": 0, "on_purpose": True}


def test_a_job_is_over_when_the_last_has_left(running):
    running.jobs.gone(1)
    assert list(running.jobs)
    running.jobs.gone(2)
    assert not list(running.jobs)
    assert running.switches[-1] == ("end", 0)
    running.jobs.gone(2)  # nobody by now
    assert not running.jobs.hello(b"", Address("127.0.0.1", 5))


def test_partitions_are_used_again(world):
    world.join(1, 0, job="a")
    world.join(2, 0, job="b")
    assert [job.partition for job in world.jobs] == [0, 1]
    with pytest.raises(InputError, match=r"no room for job 'c'.*'a', 'b'.*INNET_JOBS"):
        world.join(3, 0, job="c")
    world.jobs.gone(1)
    world.join(3, 0, job="c")
    assert [job.partition for job in world.jobs] == [1, 0]
    numbers = [job.number for job in world.jobs]
    assert len(set(numbers)) == 2
    assert 0 not in numbers


def test_a_second_worker_of_an_index_is_refused_while_the_first_is_there(world):
    world.join(1, 0)
    with pytest.raises(InputError, match="has a worker 0 already"):
        world.join(2, 0)
    world.jobs.gone(1)
    world.join(2, 0)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"workers": 3}, "has 2 workers, not 3"),
        ({"worker": 2}, "no worker 2 in job 'a'"),
        ({"worker": -1}, "no worker -1"),
        ({"worker": True}, "no worker True"),
        ({"worker": "0"}, "no worker '0'"),
        ({"worker": None}, "no worker None"),
        ({"workers": 5}, "takes 1 to 4"),
        ({"workers": 0}, "takes 1 to 4"),
        ({"workers": 2.0}, "takes 1 to 4"),
        ({"job": ""}, "a name of 1 to"),
        ({"job": "x" * 101}, "a name of 1 to"),
        ({"job": ["a"]}, "a name of 1 to"),
        ({"job": "a\nb"}, "printable"),
        ({"job": "\ud800"}, "printable"),
        ({"config": "codec topk"}, "job 'a' is one of codec dense; worker 1 comes with codec topk"),
        ({"config": ""}, "a job's config has 1 to"),
        ({"config": "x" * 2001}, "a job's config has 1 to"),
        ({"config": 7}, "a job's config has 1 to"),
    ],
)
def test_what_cannot_be_joined(world, asked, why):
    world.jobs.join(1, {"job": "a", "worker": 0, "workers": 2, "config": "codec dense"})
    with pytest.raises(InputError, match=why):
        world.jobs.join(2, {"job": "a", "worker": 1, "workers": 2} | asked)
    assert len(list(world.jobs)) == 1
    world.join(2, 1)  # nothing has changed


def test_who_comes_with_the_same_terms_or_none_can_join(world):
    asked = {"job": "x" * 100, "workers": 3, "config": "y" * 2000}  # as long as they may be
    world.jobs.join(1, asked | {"worker": 0})
    world.jobs.join(2, asked | {"worker": 1})
    world.join(3, 2, workers=3, job="x" * 100)
    (job,) = world.jobs
    assert sorted(job.members) == [0, 1, 2]


def test_only_members_renew(world):
    with pytest.raises(InputError, match="join a job first"):
        world.jobs.renew(1, {})


@pytest.fixture
def three(world):
    for worker in range(3):
        world.enter(worker, worker, workers=3)
    return world


def present(world):
    return sorted(world.switches[-1][-1])


def test_going_on_without_a_worker_and_with_it_again(three):
    three.renew(0, 2)
    assert three.last(0) == {"awaited": [1]}
    three.renew(1, 2)
    assert present(three) == [0, 1]
    (job,) = three.jobs
    assert (job.absent, job.is_running) == ({2}, True)
    assert three.last(2) == {"left_out": [0, 1]}
    three.renew(2)
    assert three.last(1) == {"renewing": 2}
    assert three.last(2) == {"awaited": [0, 1]}
    three.renew(0)
    three.renew(1)
    assert present(three) == [0, 1, 2]
    assert three.last(1) == {"plan": {"epoch": job.epoch}, "newcomers": [2]}
    assert job.absent == set()


def test_who_was_left_out_stays_out_until_it_asks(three):
    three.renew(0, 2)
    three.renew(1, 2)
    three.renew(0)
    three.renew(1)
    assert present(three) == [0, 1]
    three.jobs.gone(2)  # nor does it matter that it leaves
    three.renew(0)
    three.renew(1)
    assert present(three) == [0, 1]
    three.enter(7, 2, workers=3)
    assert three.last(7) == {"awaited": [0, 1]}
    three.renew(0)
    three.renew(1)
    assert present(three) == [0, 1, 2]


def test_who_asked_first_says_whom_to_leave_out(three):
    three.renew(1, 0)
    three.renew(0, 1)
    assert three.last(1) == {"awaited": [2]}
    three.renew(2)
    assert present(three) == [1, 2]
    assert three.last(0) == {"awaited": [1, 2]}  # it waits for the epoch after


def test_asking_again_changes_whom_one_leaves_out_but_not_who_came_first(three):
    three.renew(1)
    three.renew(0, 1)
    three.renew(1, 0)
    assert three.said[2].count({"renewing": 1}) == 1
    three.renew(2)
    assert present(three) == [1, 2]


def test_who_has_shown_no_address_cannot_ask(running):
    running.jobs.gone(2)
    running.join(3, 1)
    running.renew(3)
    running.renew(1)
    assert running.last(1) == {"awaited": [1]}
    running.hello(3)
    assert running.switches[1][-1][1] == Address("127.0.0.1", 1003)


def test_a_dead_worker_is_left_out(three):
    three.jobs.gone(1)
    three.renew(0, 1)
    three.renew(2, 1)
    assert present(three) == [0, 2]
    assert next(iter(three.jobs)).is_running


def test_switches_name_late_workers_whom_a_request_does_not_name(three):
    three.late = frozenset({2, 9})  # a worker that the job does not have changes nothing
    three.renew(0)
    assert three.last(0) == {"awaited": [1]}
    three.late = frozenset({1})  # who comes first decides
    three.renew(1)
    assert present(three) == [0, 1]


def test_a_worker_that_asks_is_not_left_out_for_being_late(three):
    three.late = frozenset({0, 2})
    three.renew(0)
    assert three.last(0) == {"awaited": [1]}
    three.renew(1)
    assert present(three) == [0, 1]


def test_a_late_request_for_an_epoch_that_has_begun_is_none(three):
    (job,) = three.jobs
    before = job.epoch
    three.renew(0)
    three.renew(1)
    three.renew(2)
    three.jobs.renew(0, {"epoch": before})
    assert job.is_running
    assert {"renewing": 0} not in three.said[2][-1:]


@pytest.mark.parametrize("without", [[0], "1", [True], [None], 1, {"1": 1}])
def test_whom_nobody_can_leave_out(three, without):
    (job,) = three.jobs
    with pytest.raises(InputError, match="worker 0 cannot go on without"):
        three.jobs.renew(0, {"epoch": job.epoch, "without": without})
    assert job.is_running


@pytest.mark.parametrize(("draw", "number"), [(lambda n: n - 1, 0xFFFF), (lambda n: 0, 1)])
def test_numbers_fit_the_header(draw, number):
    world = World(draw=draw)
    world.enter(1, 0, workers=1)
    ((_, _, *header, _),) = world.switches
    assert header == [number, (draw(0x10000) + 1) % 0x10000]


def test_epochs_wrap_around(world):
    world.enter(1, 0, workers=1)
    (job,) = world.jobs
    job.epoch = 0xFFFF
    world.renew(1)
    assert world.last(1) == {"plan": {"epoch": 0}, "newcomers": []}


def test_a_thousand_workers_are_not_told_a_million_lists():
    """While many are missing, a newcomer hears of them, and all whenever half of them have come."""
    world = World(workers=1000)
    for worker in range(999):
        world.enter(worker, worker, workers=1000)
    said = [message for each in world.said.values() for message in each]
    lists = [message["awaited"] for message in said if "awaited" in message]
    assert len(lists) < 1000 * 30
    assert sum(map(len, lists)) < 1_500_000
    assert all(world.last(worker) == {"awaited": [999]} for worker in range(999))
