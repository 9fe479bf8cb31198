"""What every registered transport promises a switch service and its workers; and docs' own one."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from pathlib import Path

import numpy as np
import pytest
from support.service import (
    all_reduce,
    joined,
    make_workers,
    serving,
    together,
    wait_until_empty,
    where,
)

import innet
from innet.core.errors import ConfigError, InputError, MembershipError, UnknownNameError
from innet.core.packets import PacketBatch
from innet.core.registry import Registry
from innet.service import join
from innet.transport import transports
from innet.transport.transports import (
    TRANSPORTS,
    SwitchEnd,
    TransportProvider,
    checked_transport,
    provider_of,
    service_transports,
)
from innet.wire import Endpoint, PacketLayout

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
OWN = "unix"  # the transport of docs/extending.md
IN_SERVICES = [name for name in service_transports() if name != "auto"]
ON_NETWORKS = ["udp", "raw"]
WINDOW = 4  # its sockets hold few datagrams
GRADIENTS = [np.random.default_rng(seed).normal(size=300).astype(np.float32) for seed in range(2)]


def of_the_docs(monkeypatch):
    """Register the transport of docs/extending.md for one test."""
    fresh = Registry(TRANSPORTS.kind, "innet.nobody")
    for name in TRANSPORTS:
        fresh.register(name, TRANSPORTS.get(name))
    monkeypatch.setattr(transports, "TRANSPORTS", fresh)
    (code,) = re.findall(
        r"```python\n((?:(?!```).)*?class UnixProvider.*?)```", PAGE.read_text(), re.DOTALL
    )
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), {"__name__": "example"})


@pytest.fixture(params=[*IN_SERVICES, OWN])
def name(request, monkeypatch):
    if request.param == OWN:
        of_the_docs(monkeypatch)
    return request.param


@pytest.fixture
def service(name):
    with serving(transport=name, window=WINDOW) as running:
        yield running


@pytest.fixture
def stack():
    with contextlib.ExitStack() as opened:
        yield opened


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def right(workers, gradients=GRADIENTS):
    """One all-reduce; checks the sums, and returns the reports."""
    expected, _ = innet.all_reduce(gradients, codec="dense", values_per_packet=32)
    pairs = all_reduce(workers, gradients)
    for total, _ in pairs:
        np.testing.assert_array_equal(total, expected)
    return [report for _, report in pairs]


# ------------------------------------------------------------------ in a service


def test_sums_are_those_in_memory_and_the_report_has_the_name(name, service, stack):
    members = joined(service, stack, transport=name)
    workers = make_workers(members)
    for _ in range(3):
        reports = right(workers)
    assert [report.transport for report in reports] == [name] * 2
    (job,) = service.ask(service.statistics)["jobs"]
    assert all(worker["address"] for worker in job["members"])
    for member in members:
        member.leave()
    wait_until_empty(service)  # ports and memory are free for another job
    right(make_workers(joined(service, stack, transport=name)))


def test_workers_who_leave_it_open_take_what_the_service_requires(name, service, stack):
    members = joined(service, stack, transport="auto")
    assert [member.transport.name for member in members] == [name] * 2


def test_it_is_an_error_to_want_another_one(name, service, stack):
    if name == "udp":  # which needs no offer, so nothing tells the worker before
        with pytest.raises(InputError, match=r"no shared memory for worker 0: .* offers none"):
            join(where(service), job="a", worker=0, workers=1, transport="shm")
        return
    with pytest.raises(InputError, match=rf"takes workers by .* only \(--transport {name}\)"):
        join(where(service), job="a", worker=0, workers=1, transport="udp")
    with (
        serving(transport="udp") as plain,
        pytest.raises(InputError, match=r"^no .* for worker 0: the switch at .* offers none"),
    ):
        join(where(plain), job="a", worker=0, workers=1, transport=name)


def test_who_dies_is_reported_and_the_others_go_on_in_the_next_epoch(name, service, stack):
    members = joined(service, stack, transport=name)
    right(make_workers(members))
    members[1].close()
    worker = make_workers(members[:1])[0]
    with pytest.raises(MembershipError, match="worker 1 lost its connection"):
        worker.all_reduce(GRADIENTS[0])
    worker.begin_epoch(members[0].renew(60, without=[1]))
    total, _ = worker.all_reduce(GRADIENTS[0])
    expected, _ = innet.all_reduce(GRADIENTS[:1], codec="dense", values_per_packet=32)
    np.testing.assert_array_equal(total, expected)


def test_two_jobs_do_not_meet(name, service, stack):
    first = make_workers(joined(service, stack, job="one", transport=name))
    second = make_workers(joined(service, stack, job="two", transport=name))
    other = [10 * each for each in GRADIENTS]
    together([lambda: right(first), lambda: right(second, other)])


def test_frames_of_a_wrong_length_are_counted_and_dropped(name, service, stack):
    members = joined(service, stack, transport=name)
    link, layout = members[0].transport, members[0].plan.layout
    short = np.zeros((1, layout.frame_size - 4), np.uint8)
    link.send(PacketBatch.uniform(short, 0), link.now())
    right(make_workers(members))
    end = time.monotonic() + 20.0
    while service.ask(service.statistics)["drops"]["wrong_length"] < 1:
        assert time.monotonic() < end, "it is not counted"
        time.sleep(0.01)
        link.send(PacketBatch.uniform(short, 0), link.now())  # a busy switch may lose one


# ------------------------------------------------------------------ on a network, and by name


@pytest.mark.parametrize("name", ON_NETWORKS)
def test_a_host_can_connect_to_a_network(name):
    layout, local = PacketLayout(32, name), Endpoint("02:00:00:00:00:01", "127.0.0.1", free_port())
    if name == "raw":
        with pytest.raises(InputError, match="raw Ethernet needs an interface"):
            provider_of(name).connect(local, local, layout, None)
        return
    with contextlib.closing(provider_of(name).connect(local, local, layout, None)) as end:
        assert end.name == name
        end.send(PacketBatch.uniform(np.zeros((1, layout.frame_size), np.uint8), 0), end.now())
        assert end.wait(end.now(), end.now() + 10) >= 0
        assert len(end.receive(end.now())) == 1  # it is connected to itself


def test_what_leads_to_services_only_says_so():
    here, layout = Endpoint.of_worker(0), PacketLayout(32, "udp")
    with pytest.raises(InputError, match="leads to a switch without a service; use udp or raw"):
        provider_of("shm").connect(here, here, layout, None)


def test_docs_name_every_transport():
    text = (PAGE.parent / "service.md").read_text()
    for each in IN_SERVICES:
        assert f"`{each}`" in text


def test_a_name_is_checked(monkeypatch):
    assert service_transports() == ("auto", "udp", "shm")
    with pytest.raises(InputError, match="INNET_X is 'raw'; choose one of auto, udp, shm"):
        checked_transport("raw", "INNET_X")
    with pytest.raises(UnknownNameError, match=r"entry point innet.transports"):
        provider_of("nothing")
    of_the_docs(monkeypatch)
    assert checked_transport(OWN) == OWN
    assert "unix" in service_transports()


def test_what_is_no_transport_is_refused(monkeypatch):
    fresh = Registry("transport", "innet.nobody")
    fresh.register("odd", lambda: None)
    monkeypatch.setattr(transports, "TRANSPORTS", fresh)
    with pytest.raises(ConfigError, match=r"register a class derived from .*TransportProvider"):
        provider_of("odd")


def test_a_transport_that_only_the_service_has_is_named(monkeypatch, stack):
    with monkeypatch.context() as there:
        of_the_docs(there)
        service = stack.enter_context(serving(transport=OWN))
    with pytest.raises(UnknownNameError, match="unix"):
        join(where(service), job="a", worker=0, workers=1)


def test_ends_that_do_nothing_by_default_do_so():
    class Nothing(SwitchEnd):
        def offer(self):
            return None

        def serve(self):
            return None

        def close(self):
            pass

    end = Nothing()
    assert end.descriptors() == ()
    end.assign(0, None)
    end.release("peer")
    end.end_job(0)
    with pytest.raises(NotImplementedError):
        TransportProvider().join(None, None)
    with pytest.raises(NotImplementedError):
        TransportProvider().listen(None)
