"""DistributedDataParallel and process groups in four processes, through a switch process."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.rank_checks import hold_checks, names_of_checks, run
from support.service import service_process

if importlib.util.find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

RANKS = 4
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "ddp_checks.py"
CHECKS = names_of_checks(SCRIPT)
LONG = ["every_codec_equals_memory", "every_codec_without_a_switch_equals_one_with_it"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

pytestmark = pytest.mark.xdist_group("ddp")  # one at a time: each has many processes


@pytest.mark.timeout(620)
def test_checks(tmp_path):
    """All in one run, since it takes longer to start four processes than to make most checks.

    There is time for a busy machine: where nothing is compiled yet, all four ranks compile the same
    kernels, which is a minute and a half of processor time for the first check alone.
    """
    names = [name for name in CHECKS if name not in LONG]
    hold_checks(SCRIPT, tmp_path, RANKS, names, timeout=600)


@pytest.mark.repeats("the checks with some codecs, and the contract of all codecs")
@pytest.mark.parametrize("name", LONG)
def test_long_checks(name, tmp_path):
    hold_checks(SCRIPT, tmp_path, RANKS, [name], timeout=280)


# ---------------------------------------------------------------- the guide, as it is written

GUIDE = (ROOT / "docs" / "pytorch.md").read_text()
COMMANDS = re.findall(r"^\$ (torchrun .*)$", GUIDE, re.MULTILINE)


def test_the_guide_shows_what_changes():
    plain = (ROOT / "examples" / "plain_ddp.py").read_text().splitlines()
    diffs = re.findall(r"^```diff\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    for name, shown in zip(("switch_ddp.py", "hook_ddp.py"), diffs, strict=True):
        changed = (ROOT / "examples" / name).read_text().splitlines()
        lines = list(difflib.unified_diff(plain, changed, n=0, lineterm=""))[2:]
        assert [each for each in lines if each[0] in "+-" and each[1:]] == [
            each for each in shown.splitlines() if each[1:]
        ]


def last_line(*arguments, ranks=RANKS, **environment):
    options = ["--standalone", "--nproc-per-node", ranks]
    result = run([*TORCHRUN, *options, *arguments], timeout=240, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip().splitlines()[-1]


def test_there_are_commands_in_the_guide():
    assert len(COMMANDS) >= 2


@pytest.mark.repeats("the checks of the group, by the guide's commands")
@pytest.mark.parametrize("command", COMMANDS)
def test_command(command):
    options = ["torchrun", "--standalone", "--nproc-per-node", str(RANKS)]
    words = shlex.split(command)
    assert words[: len(options)] == options
    # Half as many ranks start in half the time; with four ranks there are the checks.
    said = last_line(*(ROOT / word for word in words[len(options) :]), ranks=2)
    assert re.fullmatch(r"epoch 3: \d\d\.\d% of the training images are right", said)


@pytest.mark.repeats("the checks of sums, in two whole trainings")
def test_the_group_learns_what_gloo_learns():
    plain, switch = (
        last_line(ROOT / "examples" / f"{name}_ddp.py") for name in ("plain", "switch")
    )
    assert plain == switch


@pytest.mark.repeats("test_command, by torchrun's options for machines")
def test_several_machines(tmp_path):
    """Their commands, with both machines on the loopback interface."""
    key = tmp_path / "key.txt"
    key.write_text("a key\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = f"127.0.0.1:{free.getsockname()[1]}"
    with service_process("--key-file", str(key), "--jobs", "1") as (_, address):
        environment = {**os.environ, "INNET_SWITCH": address, "INNET_KEY_FILE": str(key)}
        options = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
        options += ["--rdzv-endpoint", rendezvous, "--local-addr", "127.0.0.1"]
        machines = [
            subprocess.Popen(
                [*TORCHRUN, *options, str(ROOT / "examples" / "switch_ddp.py")],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for _ in range(2)
        ]  # fmt: skip
        said = [machine.communicate(timeout=100) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert sum("epoch 3" in out for out, _ in said) == 1


DEAD = """
import os, sys, numpy as np
from torch import distributed as dist
from innet.core.errors import MembershipError
from innet.core.reduce_op import ReduceOp, Segment
from innet.torch.reducers import GroupReducer

def rank(number):
    store = dist.FileStore(sys.argv[1], 3)
    dist.init_process_group("gloo", store=store, rank=number, world_size=3)
    reducer = GroupReducer(None, deadline=60.0)
    words = [Segment(ReduceOp.SUM, np.ones(5, np.int32))]
    assert reducer.combine(words)[0].tolist() == [3] * 5
    if number == 1:
        os._exit(0)
    try:
        reducer.combine(words)
    except MembershipError as error:
        os.write(1, f"{error}\\n".encode())  # at once, as others write there, too
        os._exit(0)
    os._exit(1)

ranks = [os.fork() or rank(number) for number in range(3)]
sys.exit(sum(os.waitpid(each, 0)[1] for each in ranks))
"""


@pytest.mark.repeats("a worker that ends is named, as in test_comm_thread, with torchrun")
def test_a_rank_that_ends_is_named_without_a_switch(tmp_path):
    done = run([sys.executable, "-c", DEAD, tmp_path / "store"], 120)
    assert done.returncode == 0, done.stderr
    said = sorted(done.stdout.splitlines())
    assert len(said) == 2
    for rank, line in zip((0, 2), said, strict=True):
        assert line.startswith(f"worker 1 did not answer; worker {rank}: the all-reduce of gloo")
