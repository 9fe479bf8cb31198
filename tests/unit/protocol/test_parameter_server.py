"""The parameter server as a process, and workers over UDP sockets of the loopback interface."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading

import numpy as np
import pytest
from support.tiers import tiered
from support.udp_switch import UdpSwitch, on_loopback

import innet
from innet.allreduce.worker import Worker, connect, connect_host
from innet.core.errors import InputError
from innet.network import Faults
from innet.processes import parameter_server
from innet.processes.settings import ServerSettings
from innet.protocol import Timing
from innet.topology import Request, aggregation_of, make_plan

WORKERS = 2


@contextlib.contextmanager
def serving(plan):
    """The server's end in a thread, as the process runs it."""
    host = parameter_server.server_of(plan)
    end = aggregation_of("hashed").server_end(plan, host)
    over = threading.Event()
    with connect_host(plan, host) as transport:
        thread = threading.Thread(
            target=parameter_server.serve,
            args=(end, transport, lambda: "" if over.is_set() else None),
            daemon=True,
        )
        thread.start()
        yield end
        over.set()
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("codec", tiered(["dense", "lhc"], ["lhc"], "the same with lhc"))
def test_equal_to_the_collective_bit_for_bit(codec):
    plan = on_loopback(make_plan("hashed", 32, Request(workers=WORKERS, window=16)))
    rng = np.random.default_rng(1)
    given = [rng.laplace(size=700).astype(np.float32) for _ in range(WORKERS)]
    expected, _ = innet.all_reduce(given, codec=codec, values_per_packet=32, seed=3)
    patient = Timing(timeout=0.05, max_timeout=0.2, give_up=20.0)
    lossy = Faults(loss=0.1, duplicate=0.1, reorder=0.1, hold=1e-3, tick=1e-4)
    with contextlib.ExitStack() as stack:
        stack.enter_context(UdpSwitch(plan))
        end = stack.enter_context(serving(plan))
        pair = [
            Worker(
                plan,
                worker,
                codec=codec,
                transport=stack.enter_context(connect(plan, worker)),
                faults=lossy,
                timing=patient,
                seed=3,
            )
            for worker in range(WORKERS)
        ]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            sums = list(pool.map(lambda each, x: each.all_reduce(x), pair, given))
    for total, _ in sums:
        np.testing.assert_array_equal(total, expected)
    assert end.counters.results > 0


def test_the_process_says_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "server.toml"
    path.write_text('program = "slots"\n')
    assert parameter_server.main([str(path)]) == 1
    assert "slots has no parameter server" in capsys.readouterr().err
    path.write_text("worker = 1\n")
    assert parameter_server.main([str(path)]) == 1
    assert "worker" in capsys.readouterr().err
    # 10.0.255.1 is the server's in its own namespace, and nobody's here.
    path.write_text('program = "hashed"\n')
    assert parameter_server.main([str(path), "--wait"]) == 1
    assert "cannot send from 10.0.255.1" in capsys.readouterr().err
    with pytest.raises(InputError, match="raw Ethernet needs an interface"):
        parameter_server.run(ServerSettings(program="hashed", framing="raw"), lambda: "")


def test_a_server_of_another_kind_is_named(monkeypatch):
    monkeypatch.setattr("innet.topology.hashed.HashedAggregation.server_end", lambda *_: object())
    with pytest.raises(InputError, match="server of hashed is of type object; this process runs"):
        parameter_server.run(ServerSettings(program="hashed"), lambda: "")
