"""Mistakes of people who train with DistributedDataParallel: every rank is told, and none hangs.

Two processes meet all of them in turn, since it takes longer to start them than to err.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from support.lossy import LossyRelay
from support.service import serving, where

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[1] / "support" / "ddp_pair.py"
SECONDS = 150
PATIENCE = 20.0  # of a case with a deadline of 2 s, on a machine that is busy

pytestmark = [
    pytest.mark.xdist_group("ddp"),
    pytest.mark.repeats("mistakes that test_comm_thread tells, with two ranks as processes"),
]

MISTAKES = {  # what rank 0 and rank 1 are told
    "no_switch": ["NetworkError: cannot reach a switch at {nowhere}"] * 2,
    "no_switch_for_a_group": ["NetworkError: cannot reach a switch at {nowhere}"] * 2,
    "a_switch_that_cannot_be_started": ["NetworkError: rank 0 has no switch: .*33"] * 2,
    "another_version": ["NetworkError: the switch .* speaks version 99 of the service protocol"]
    * 2,
    "a_wrong_key_of_rank_1": [
        "StalledError: worker 0 of 2 waited for worker 1",
        "InputError: .*the key is not the switch's",
    ],
    "a_second_rank_0": [
        r"InputError: .*has a worker 0 already.* \| StalledError: .* waited for worker 1"
    ]
    * 2,
    "a_gpu_without_its_kernels_in_rank_1": [
        "FutureError: .*worker 1 gave up: .*numba-cuda",
        "MissingToolError: numba-cuda",
    ],
    "a_model_that_grows": ["StateError: .*was not there in the first iteration"] * 2,
    "a_model_that_is_wrapped_anew": ["nothing was raised"] * 2,
    "sparse_gradients": [r"InputError: .*of shape \(20, 12\) is sparse.*sparse=False"] * 2,
    "another_seed_of_rank_1": ["FutureError: .*seed"] * 2,
}


@contextlib.contextmanager
def another_version():
    """Something that greets as a switch of another version; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        over = threading.Event()

        def greet():
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = listener.accept()
                    with client:
                        client.sendall(b'{"service": 99, "wire": 2, "nonce": "00"}\n')

        thread = threading.Thread(target=greet)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What both ranks say of each case, and where the switches were."""
    folder = tmp_path_factory.mktemp("pair")
    with socket.create_server(("127.0.0.1", 0)) as free:
        nowhere = f"127.0.0.1:{free.getsockname()[1]}"
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(serving(key="right", workers_max=2, jobs=4))
        address = (service.address.ip, service.address.udp_port)
        relay = stack.enter_context(LossyRelay(address, loss=0.05, seed=5))
        places = {
            "nowhere": nowhere,
            "switch": where(service),
            "lossy": "{}:{}".format(*relay.address),
            "another version": stack.enter_context(another_version()),
        }
        (folder / "places.json").write_text(json.dumps(places))
        command = [sys.executable, "-W", "ignore", SCRIPT, folder]
        pair = subprocess.run(command, stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert pair.returncode == 0, pair.stderr.decode()
    assert relay.dropped > 0
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)], places


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_to_both_ranks_in_time(told, name):
    found, places = told
    for rank, expected in enumerate(MISTAKES[name]):
        outcome = found[rank][name]
        assert re.match(expected.format(**places), outcome["said"], re.DOTALL), outcome["said"]
        assert outcome["seconds"] < PATIENCE


def test_a_nan_under_amp_is_a_step_that_both_skip(told):
    for each in told[0]:
        assert each["a_nan_under_amp"]["said"] == ["moves", "stays", "moves", 2.0**9]


def test_packets_that_are_lost_change_no_bit_of_a_training(told):
    for each in told[0]:
        found = each["a_training_whose_packets_are_lost"]["said"]
        assert found == {"exact": True, "topk": True}


def test_losses_are_those_of_gloo(told):
    for each in told[0]:
        found = each["curves"]["said"]
        assert found["exact"] == found["gloo"]  # the sum of two has one rounding
        np.testing.assert_allclose(found["dense"], found["gloo"], rtol=1e-6)
        assert found["gloo"][-1] < found["gloo"][0] / 2


def test_gradients_by_the_comparison_of_pytorchs_tests_of_hooks(told):
    for each in told[0]:
        found = each["gradients_as_pytorch_compares_them"]["said"]
        assert found["exact"][0] == 0.0  # they ask for 1e-5
        assert found["dense"][0] < 1.2e-5
        assert found["dense"][1] < 2**-29  # its steps are parts of the largest element
