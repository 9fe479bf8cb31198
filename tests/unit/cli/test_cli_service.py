"""The service as a process: how it starts, ends, and says what is wrong."""

from __future__ import annotations

import signal
import socket
import sys

import numpy as np
import pytest
from support.service import SECONDS, SERVE, make_workers, service_process
from typer.testing import CliRunner

from innet.cli.app import app
from innet.core.errors import InputError, NetworkError
from innet.service import join
from innet.service.connections import key_of


@pytest.mark.repeats("the same with the other signal", but=["15"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_sums_and_ends_cleanly(number, tmp_path):
    (tmp_path / "key").write_text("secret\n")
    command = SERVE if number == signal.SIGTERM else (sys.executable, "-m", "workers.service")
    options = ("--key-file", str(tmp_path / "key"), "--metrics", "127.0.0.1:0", "--window", "8")
    with service_process(*options, command=command) as (running, address):
        with join(address, job="a", worker=0, workers=1, key="secret", deadline=SECONDS) as member:
            assert member.plan.window == 8
            (end,) = make_workers([member])
            total, _ = end.all_reduce(np.full(3, 0.5, np.float32))
            assert total.tolist() == [0.5] * 3
            running.send_signal(number)
            assert running.wait(60) == 0
        said = running.stderr.read()
        assert "metrics at http://127.0.0.1:" in said
        assert "slots-32: 4 jobs of up to 32 workers, 256 slots each; a key is needed." in said


@pytest.mark.parametrize(
    "address", ["::1", "[::1]", "::", "[::1]:48879", "::1:48879", "fe80::1%lo"]
)
def test_addresses_of_ipv6_are_told_so(address):
    with pytest.raises(InputError, match="an address of IPv6, which a switch service does not"):
        join(address, job="a", worker=0, workers=1)


def test_what_cannot_be_served():
    for options, said in {
        ("--listen", "0.0.0.0:0"): "without a key",
        ("--window", "12"): "window = 12 cannot be used; choose a power of two",
    }.items():
        result = CliRunner().invoke(app, [*SERVE[3:], *options])
        assert isinstance(result.exception, InputError)
        assert said in str(result.exception)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "{}:{}".format(*taken.getsockname())
        result = CliRunner().invoke(app, [*SERVE[3:], "--listen", address])
        assert isinstance(result.exception, NetworkError)
        assert f"cannot listen at {address}: Address already in use" in str(result.exception)


def test_keys_are_given_once(tmp_path):
    file = tmp_path / "key"
    with pytest.raises(InputError, match="cannot read"):
        key_of(None, file)
    file.write_text("\n")
    with pytest.raises(InputError, match="is empty"):
        key_of(None, file)
    file.write_text("a b\n")
    assert key_of(None, file) == "a b"
    assert key_of("c", None) == "c"
    with pytest.raises(InputError, match="not both"):
        key_of("c", file)
