"""What a service says of itself: statistics, metrics, and ``innet switch top``."""

from __future__ import annotations

import contextlib
import io
import json
import re
import urllib.request

import numpy as np
import pytest
from rich.console import Console
from support.service import (
    all_reduce,
    joined,
    make_workers,
    serving,
    where,
)
from typer.testing import CliRunner

from innet.cli import switch_service
from innet.cli.app import app
from innet.core.errors import InputError, MissingToolError, NetworkError, StalledError
from innet.programs import p4_directory
from innet.protocol import SlotRegisters, Timing
from innet.service import statistics as metrics
from innet.service.connections import Observer
from innet.service.statistics import DROP_REASONS, open_slots
from innet.transport.peers import Address

GRADIENT = np.arange(320, dtype=np.float32)


def stalled(service, stack):
    """A job in which worker 0 has sent one chunk, and waits for worker 1."""
    pair = joined(service, stack, 2, job="half")
    patience = Timing(timeout=5, max_timeout=5, give_up=0.2)
    with pytest.raises(StalledError):
        make_workers(pair, timing=patience)[0].all_reduce(np.ones(3, np.float32))
    return pair


def without_repeats(service, observer, stack):
    """A job of two, the reports of an all-reduce in which no packet was sent twice, and what the
    service had counted before it.

    Loopback may deliver packets in another order when a process changes its processor. A worker
    then takes some for lost and sends them again, and may leave before all answers have come.
    """
    for attempt in range(10):
        before = observer.statistics()
        own = stack.enter_context(contextlib.ExitStack())
        pair = joined(service, own, 2, job=f"job {attempt}")
        workers = make_workers(pair, timing=Timing(timeout=20, max_timeout=20, give_up=20))
        reports = [report for _, report in all_reduce(workers, [GRADIENT] * 2)]
        if not any(report.retransmissions for report in reports):
            return pair, reports, before
        own.close()
    raise AssertionError("packets were sent twice in each of 10 all-reduces")


def test_packets_and_members_are_counted(service, stack):
    with Observer(where(service)) as observer:
        assert observer.statistics()["jobs"] == []
        pair, reports, before = without_repeats(service, observer, stack)
        now = observer.statistics()
        sent = [report.packets_sent for report in reports]
        assert now["packets"]["in"] - before["packets"]["in"] == sum(sent)
        assert now["packets"]["out"] - before["packets"]["out"] == sum(
            report.packets_received for report in reports
        )
        assert now["packets"]["bytes_in"] - before["packets"]["bytes_in"] == sum(sent) * 160
        (job,) = now["jobs"]
        assert (job["workers"], job["running"]) == (2, True)
        assert job["name"].startswith("job ")
        assert job["epoch"] == pair[0].epoch
        assert (job["slots_open"], job["missing"], job["awaited"]) == (0, [], [])
        assert [member["packets_in"] for member in job["members"]] == sent
        assert all(0 <= member["silent_seconds"] < 20 for member in job["members"])


def test_who_waits_for_whom(service, stack):
    stalled(service, stack)
    (job,) = service.ask(service.statistics)["jobs"]
    assert (job["slots_open"], job["missing"]) == (1, [1])
    assert job["members"][1]["silent_seconds"] is None
    shown = CliRunner().invoke(app, ["switch", "top", where(service), "--once"]).output
    assert "1 of 512 slots open; chunk 1 waits for worker 1" in " ".join(shown.split())


def test_who_is_awaited(service, stack):
    joined(service, stack, 2, job="two")[1].close()
    with Observer(where(service)) as observer:
        (job,) = observer.statistics()["jobs"]
    assert job["awaited"] == [0, 1]
    assert [member["worker"] for member in job["members"]] == [0]
    shown = CliRunner().invoke(app, ["switch", "top", where(service)]).output
    assert "the next epoch waits for workers 0, 1" in " ".join(shown.split())
    assert "absent" in shown


def test_json_for_scripts(service):
    result = CliRunner().invoke(app, ["switch", "top", where(service), "--once", "--json"])
    document = json.loads(result.output)
    assert document["switch"]["program"] == "slots-32"
    assert set(document) == {"switch", "packets", "drops", "jobs"}


def test_drop_reasons_have_the_names_of_the_program():
    """``DROP_NOT_INNET`` of slots.p4 is ``not_innet`` in statistics and metrics."""
    folder = p4_directory() / "include"
    text = (folder / "drop_reasons.p4").read_text() + (folder / "pool.p4").read_text()
    constants = re.findall(r"const bit<8> DROP_(\w+) *= (\d+);", text)
    assert [(name.lower(), int(index)) for name, index in constants] == [
        (name, index) for index, name in enumerate(DROP_REASONS, start=1)
    ]


@pytest.mark.parametrize(("program", "reasons"), [("slots", 9), ("harvest", 10)])
def test_each_reason_of_a_program_is_shown(program, reasons):
    with serving(program=program, values_per_packet=64) as service:
        drops = service.ask(service.statistics)["drops"]
    assert [name for name in drops if name in DROP_REASONS] == list(DROP_REASONS[:reasons])


def test_rates_and_lines_until_it_is_interrupted(service, monkeypatch):
    looks = iter(range(2))

    def sleep(_):
        if next(looks) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(switch_service.time, "sleep", sleep)
    result = CliRunner().invoke(app, ["switch", "top", where(service), "--json"])
    assert result.exit_code == 0
    before, now = map(json.loads, result.output.splitlines())
    now["switch"]["seconds"] = before["switch"]["seconds"] + 2
    now["packets"]["in"] = before["packets"]["in"] + 3000
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(switch_service.screen(before, now))
    assert "packets, 1,500/s; out" in console.export_text()


def test_who_may_look():
    with serving(key="k") as service:
        with Observer(where(service), key="k") as observer:
            observer.statistics()
        with pytest.raises(InputError, match="pass the key"):
            Observer(where(service))
    with pytest.raises(NetworkError, match="cannot reach a switch"):
        Observer(where(service), key="k")


def test_statistics_of_hundreds_of_jobs_are_read(service, monkeypatch):
    """500 jobs of one worker take 170,000 bytes."""
    jobs = [{"name": f"{job:0100}", "members": [{"worker": 0}]} for job in range(2000)]
    with monkeypatch.context() as patched:
        patched.setattr(service, "statistics", lambda: {"jobs": jobs})
        with Observer(where(service)) as observer:
            assert [observer.statistics()["jobs"] for _ in range(2)] == [jobs, jobs]


def test_a_service_that_ends_while_somebody_looks():
    with serving() as service:
        observer = Observer(where(service))
        observer.statistics()
    with observer, pytest.raises(NetworkError, match="is gone"):
        observer.statistics()


def test_metrics(service, stack):
    stalled(service, stack)
    ask = lambda: service.ask(service.statistics)  # noqa: E731
    with metrics.exporting(Address("127.0.0.1", 0), ask) as address:
        url = f"http://{address}/metrics"
        with urllib.request.urlopen(url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        with (
            pytest.raises(NetworkError, match="cannot serve metrics"),
            metrics.exporting(address, ask),
        ):
            pass
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    statistics = service.ask(service.statistics)
    assert float(values['innet_switch_packets_total{way="in"}']) == statistics["packets"]["in"]
    assert values['innet_switch_dropped_packets_total{reason="stale"}'] == "0.0"
    assert values['innet_job_running{job="half"}'] == "1.0"
    assert values['innet_job_slots_open{job="half"}'] == "1.0"
    assert values['innet_job_awaited{job="half",worker="1"}'] == "1.0"
    assert values['innet_worker_packets_total{job="half",way="in",worker="0"}'] == "1.0"


def test_metrics_need_their_library(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(metrics.importlib, "import_module", missing)
    with (
        pytest.raises(MissingToolError, match=r"innet\[metrics\]"),
        metrics.exporting(Address("127.0.0.1", 0), dict),
    ):
        pass


def test_a_question_that_fails_is_the_askers_trouble(service):
    with pytest.raises(ZeroDivisionError):
        service.ask(lambda: 1 // 0)
    assert service.ask(service.statistics)["switch"]["program"] == "slots-32"


def test_who_asks_a_service_that_does_not_run():
    with serving() as service:
        pass
    with pytest.raises(StalledError, match="did not answer within"):
        service.ask(dict, 0.05)


def test_open_slots_name_the_oldest():
    held = {
        (0, 0): SlotRegisters(5, 0b11),
        (0, 1): SlotRegisters(9, 0b01),
        (1, 0): SlotRegisters(6, 0b10),
    }
    found = open_slots(lambda *at: held.get(at, SlotRegisters(0, 0)), 2, (0, 1))
    assert found == (2, 6, (0,))
    assert open_slots(lambda *at: held.get(at, SlotRegisters(0, 0)), 2, (0,))[0] == 2
    near_the_end = {(0, 0): SlotRegisters(1, 0b01), (0, 1): SlotRegisters(0xFFFFFFFF, 0b10)}
    assert open_slots(lambda *at: near_the_end[at], 1, (0, 1)) == (2, 0xFFFFFFFF, (0,))
